"""Pipelines of container components, and the files that a run leaves for a task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.project import Project

from spotwright.local.protocol import read_exit

NUMBER = {"parameterType": "NUMBER_INTEGER"}


def container(
    *args: str,
    inputs: Mapping[str, Any] | None = None,
    script: str = "",
    parameters: Sequence[str] = (),
    **settings: Any,
) -> dict[str, Any]:
    """A component that executes a shell script with these arguments; its outputs are whole numbers."""
    return {
        "inputs": inputs or {},
        "outputs": parameters,
        "container": {"image": "alpine", "command": ["sh", "-c", script], "args": list(args), **settings},
    }


def pipeline(project: Project, **steps: dict[str, Any]) -> Path:
    """Write a compiled pipeline of container components."""
    components, executors, tasks = {}, {}, {}
    for name, each in steps.items():
        components[f"comp-{name}"] = {
            "executorLabel": f"exec-{name}",
            "inputDefinitions": {"parameters": {key: {"parameterType": "STRING"} for key in each["inputs"]}},
            "outputDefinitions": {"parameters": dict.fromkeys(each["outputs"], NUMBER)},
        }
        executors[f"exec-{name}"] = {"container": each["container"]}
        given = {key: {"runtimeValue": {"constant": value}} for key, value in each["inputs"].items()}
        tasks[name] = {"componentRef": {"name": f"comp-{name}"}, "inputs": {"parameters": given}}
    ir = {
        "pipelineInfo": {"name": "tested"}, "schemaVersion": "2.1.0", "components": components,
        "deploymentSpec": {"executors": executors}, "root": {"dag": {"tasks": tasks}},
    }  # fmt: skip
    return project.write("tested.yaml", json.dumps(ir, indent=1))


def log(project: Project, task: str, number: int = 1) -> str:
    return (project.attempt(task, number) / "log.txt").read_text()


def exit_code(project: Project, task: str) -> int | None:
    record = read_exit(project.attempt(task))
    assert record is not None
    return record.exit_code
