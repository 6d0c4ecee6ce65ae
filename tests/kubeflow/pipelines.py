"""Small compiled pipelines, and the pools on which they are placed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["POOLS", "compiled", "loop_over", "task"]

POOLS = """version: 1
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 8, memory: 16Gi}, price: 0.2/h}
  od: {capacity: on-demand, provider: aks, node: {cpu: 8, memory: 16Gi}, price: 1/h}
policy:
  default: {spot: prefer, interruptions: {max: 3}}
"""

_IMAGE = {"image": "python:3.11", "command": ["python3", "-c", "pass"]}


def task(component: str, after: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A task of a component. ``model="train"``: its input ``model`` is the artifact of that task."""
    made: dict[str, Any] = {"componentRef": {"name": f"comp-{component}"}, "taskInfo": {"name": component}}
    made |= {"cachingOptions": {}}
    reads = more.pop("model", "")
    if reads:
        source = {"taskOutputArtifact": {"producerTask": reads, "outputArtifactKey": "model"}}
        made["inputs"] = {"artifacts": {"model": source}}
    wanted = [*after, *([reads] if reads else [])]
    return {**made, **({"dependentTasks": wanted} if wanted else {}), **more}


def loop_over(component: str, items: str) -> dict[str, Any]:
    """A loop whose body is a component."""
    iterator = {"itemInput": "item", "items": {"raw": items}}
    return {**task(component), "parameterIterator": iterator}


def compiled(
    tasks: Mapping[str, Mapping[str, Any]],
    inside: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    name: str = "digits",
    steps: int = 3,
) -> str:
    """The text of a pipeline. ``inside``: the tasks of pipelines inside it, by component. ``train`` writes ``model``."""
    dags = inside or {}
    used = {each["componentRef"]["name"] for group in (tasks, *dags.values()) for each in group.values()}
    names = sorted(each.removeprefix("comp-") for each in used)
    components: dict[str, Any] = {}
    for component in names:
        if component in dags:
            components[f"comp-{component}"] = {
                "dag": {"tasks": dict(dags[component])},
                "inputDefinitions": {"parameters": {"item": {"parameterType": "NUMBER_INTEGER", "isOptional": True}}},
            }
        else:
            components[f"comp-{component}"] = {"executorLabel": f"exec-{component}", **_ports(component)}
    ir = {
        "pipelineInfo": {"name": name},
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.17.0",
        "components": components,
        "deploymentSpec": {
            "executors": {f"exec-{each}": {"container": dict(_IMAGE)} for each in names if each not in dags}
        },
        "root": {
            "dag": {"tasks": dict(tasks)},
            "inputDefinitions": {"parameters": {"steps": {"parameterType": "NUMBER_INTEGER", "defaultValue": steps}}},
        },
    }
    return str(yaml.safe_dump(ir))


def _ports(component: str) -> dict[str, Any]:
    """``train`` writes a model, ``evaluate`` reads it and writes how good it is."""
    model = {"artifacts": {"model": {"artifactType": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"}}}}
    types = {"accuracy": "NUMBER_DOUBLE", "right": "NUMBER_INTEGER", "verdict": "STRING", "counts": "LIST"}
    if component == "train":
        return {"outputDefinitions": model}
    if component != "evaluate":
        return {}
    wrote = {"parameters": {name: {"parameterType": kind} for name, kind in types.items()}}
    return {"inputDefinitions": model, "outputDefinitions": wrote}
