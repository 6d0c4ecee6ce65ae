"""Small compiled pipelines, built by hand in the shapes that SDKs of several versions write."""

from __future__ import annotations

import json
from typing import Any

from spotwright.graph import TaskGraph, TaskSpec
from spotwright.kfp.compiled import Compiled, read_shared_json
from spotwright.kfp.pipeline_graph import build

RUN_COMPONENT = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    "_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path "
    '"$program_path/ephemeral_component.py" "$@"\n'
)


def python_container(
    function: str = "step", source: str | None = None, install: str = "", **extra: Any
) -> dict[str, Any]:
    """A container as the SDK compiles a lightweight component to."""
    module = source or f"\nimport kfp\nfrom kfp import dsl\nfrom kfp.dsl import *\n\ndef {function}(): ...\n"
    first = ["sh", "-c", install] if install else []
    return {
        "image": "python:3.11",
        "command": [*first, "sh", "-ec", RUN_COMPONENT, module],
        "args": ["--executor_input", "{{$}}", "--function_to_execute", function],
        **extra,
    }


def component(name: str, inputs: dict[str, Any] | None = None, outputs: dict[str, Any] | None = None) -> dict[str, Any]:
    """A component that runs the executor ``exec-NAME``."""
    found: dict[str, Any] = {"executorLabel": f"exec-{name}"}
    if inputs:
        found["inputDefinitions"] = inputs
    if outputs:
        found["outputDefinitions"] = outputs
    return found


def task(name: str, **more: Any) -> dict[str, Any]:
    """A task of the component ``comp-NAME``."""
    return {
        "componentRef": {"name": f"comp-{name}"},
        "taskInfo": {"name": name},
        "cachingOptions": {"enableCache": True},
        **more,
    }


def ir(
    tasks: dict[str, Any],
    components: dict[str, Any] | None = None,
    containers: dict[str, Any] | None = None,
    root: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A pipeline of these tasks. Components and containers that are not given are made from the tasks."""
    refs = {name: entry["componentRef"]["name"].removeprefix("comp-") for name, entry in tasks.items()}
    given = components or {}
    made = {f"comp-{ref}": given.get(f"comp-{ref}", component(ref)) for ref in refs.values()} | given
    labels = [entry["executorLabel"] for entry in made.values() if "executorLabel" in entry]
    executors = {label: {"container": python_container()} for label in labels}
    executors |= {label: {"container": container} for label, container in (containers or {}).items()}
    return {
        "pipelineInfo": {"name": "built"},
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.17.0",
        "components": made,
        "deploymentSpec": {"executors": executors},
        "root": {"dag": {"tasks": tasks}, **(root or {})},
    }


def compiled(spec: dict[str, Any], platform: dict[str, Any] | None = None) -> Compiled:
    """The compiled pipeline of a representation."""
    return Compiled(ir=spec, platform=platform or {}, source="/pipelines/built.yaml", pipeline="built")


def stored(pipeline: Compiled) -> str:
    """The JSON in which a run stores a compiled pipeline."""
    return json.dumps(pipeline.to_data())


def restored(text: str) -> Compiled:
    """The compiled pipeline of :func:`stored` JSON."""
    return Compiled.from_data(read_shared_json(text))


def graph(*args: Any, platform: dict[str, Any] | None = None, **kwargs: Any) -> TaskGraph:
    """The graph of :func:`ir` with the same arguments."""
    return build(compiled(ir(*args, **kwargs), platform))


def kubernetes(label: str, **settings: Any) -> dict[str, Any]:
    """A platform document that says something about one executor."""
    return {"kubernetes": {"deploymentSpec": {"executors": {label: settings}}}}


def one(pipeline: TaskGraph, name: str = "step") -> TaskSpec:
    """A task of the root."""
    return pipeline.root.tasks[name]
