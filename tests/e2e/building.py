"""Compiled pipelines built from functions of a test, in the shape of the SDK's compiler.

Compiling with the SDK takes most of a second; tests/kfp and the tests of .py files hold the two shapes together.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e import inside

__all__ = ["Of", "Param", "Step", "document", "step"]

_TYPES = {
    "str": "STRING", "int": "NUMBER_INTEGER", "float": "NUMBER_DOUBLE", "bool": "BOOLEAN",
    "list": "LIST", "dict": "STRUCT", "dict[str, Any]": "STRUCT", "list[str]": "LIST", "list[int]": "LIST",
}  # fmt: skip
_COMMAND = (
    'program_path=$(mktemp -d)\n\nprintf "%s" "$0" > "$program_path/ephemeral_component.py"\n'
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path "$program_path/ephemeral_component.py" "$@"\n'
)
_IMPORTS = "import hashlib, shutil, subprocess\nfrom kfp import dsl\n"
_PIP = "python3 -m pip install --quiet --no-warn-script-location"


@dataclass(frozen=True)
class Of:
    """The output of another step."""

    step: str
    output: str = "Output"


@dataclass(frozen=True)
class Param:
    """An argument of the pipeline."""

    name: str


@dataclass(frozen=True)
class Step:
    """One task: a function, its inputs and its settings."""

    function: Callable[..., Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    after: Sequence[str] = ()
    retry: Mapping[str, Any] | None = None
    resources: Mapping[str, Any] | None = None
    packages: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cached: bool = True
    cache_key: str = ""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


def step(function: Callable[..., Any], inputs: Mapping[str, Any] | None = None, **settings: Any) -> Step:
    """A step of a function, with its inputs by name."""
    return Step(function, inputs or {}, **settings)


def document(
    steps: Mapping[str, Step], parameters: Mapping[str, str | tuple[str, Any]] | None = None, name: str = "tested"
) -> str:
    """The text of a compiled pipeline with its platform document. ``parameters``: types by name, or types and defaults."""
    inputs = {key: _parameter(kind) for key, kind in (parameters or {}).items()}
    root: dict[str, Any] = {"dag": {"tasks": {key: _task(key, each) for key, each in steps.items()}}}
    if inputs:
        root["inputDefinitions"] = {"parameters": inputs}
    ir = {
        "pipelineInfo": {"name": name},
        "schemaVersion": "2.1.0",
        "sdkVersion": "kfp-2.17.0",
        "components": {f"comp-{key}": _component(key, each) for key, each in steps.items()},
        "deploymentSpec": {
            "executors": {f"exec-{key}": {"container": _container(each)} for key, each in steps.items()}
        },
        "root": root,
    }
    executors = {f"exec-{key}": dict(each.kubernetes) for key, each in steps.items() if each.kubernetes}
    platforms = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}
    return "\n---\n".join(json.dumps(part) for part in ((ir, platforms) if executors else (ir,)))


def _caching(each: Step) -> dict[str, Any]:
    if not each.cached:
        return {}
    return {"enableCache": True, **({"cacheKey": each.cache_key} if each.cache_key else {})}


def source_of(function: Callable[..., Any]) -> str:
    """A module with the function in it, as a component's source."""
    return "\n".join([inspect.getsource(inside), _IMPORTS, textwrap.dedent(inspect.getsource(function))])


def _parameter(kind: str | tuple[str, Any]) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"parameterType": _TYPES[kind]}
    return {"parameterType": _TYPES[kind[0]], "defaultValue": kind[1], "isOptional": True}


def _annotations(function: Callable[..., Any]) -> tuple[dict[str, str], str]:
    """The annotations of a function's inputs and of its result as text; empty for ``None``."""
    signature = inspect.signature(function)
    given = {name: _written(parameter.annotation) for name, parameter in signature.parameters.items()}
    returned = signature.return_annotation
    return given, "" if returned in {None, "None", inspect.Signature.empty} else _written(returned)


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _component(name: str, each: Step) -> dict[str, Any]:
    given, returned = _annotations(each.function)
    inputs: dict[str, dict[str, Any]] = {"parameters": {}, "artifacts": {}}
    outputs: dict[str, dict[str, Any]] = {"parameters": {}, "artifacts": {}}
    for key, kind in given.items():
        artifact = {"artifactType": {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"}}
        if kind.startswith("dsl.Output["):
            outputs["artifacts"][key] = artifact
        elif kind.startswith("dsl.Input["):
            inputs["artifacts"][key] = artifact
        else:
            inputs["parameters"][key] = {"parameterType": _TYPES[kind]}
    if returned:
        outputs["parameters"]["Output"] = {"parameterType": _TYPES[returned]}
    component: dict[str, Any] = {"executorLabel": f"exec-{name}"}
    if inputs := {key: value for key, value in inputs.items() if value}:
        component["inputDefinitions"] = inputs
    if outputs := {key: value for key, value in outputs.items() if value}:
        component["outputDefinitions"] = outputs
    return component


def _container(each: Step) -> dict[str, Any]:
    install = ["sh", "-c", f'{_PIP} {" ".join(map(repr, each.packages))} && "$0" "$@"'] if each.packages else []
    container: dict[str, Any] = {
        "image": "python:3.11",
        "command": [*install, "sh", "-ec", _COMMAND, each.source or source_of(each.function)],
        "args": ["--executor_input", "{{$}}", "--function_to_execute", each.function.__name__],
    }
    if each.env:
        container["env"] = [{"name": key, "value": value} for key, value in each.env.items()]
    if each.resources:
        container["resources"] = dict(each.resources)
    return container


def _task(name: str, each: Step) -> dict[str, Any]:
    given, _ = _annotations(each.function)
    inputs: dict[str, dict[str, Any]] = {"parameters": {}, "artifacts": {}}
    upstream = dict.fromkeys(each.after)
    for key, value in each.inputs.items():
        is_artifact = given[key].startswith("dsl.Input[")
        inputs["artifacts" if is_artifact else "parameters"][key] = _source(value, is_artifact=is_artifact)
        if isinstance(value, Of):
            upstream[value.step] = None
    task: dict[str, Any] = {
        "componentRef": {"name": f"comp-{name}"},
        "taskInfo": {"name": name},
        "cachingOptions": _caching(each),
    }
    if inputs := {key: value for key, value in inputs.items() if value}:
        task["inputs"] = inputs
    if upstream:
        task["dependentTasks"] = list(upstream)
    if each.retry:
        task["retryPolicy"] = dict(each.retry)
    return task


def _source(value: Any, *, is_artifact: bool) -> dict[str, Any]:
    if isinstance(value, Param):
        return {"componentInputParameter": value.name}
    if not isinstance(value, Of):
        return {"runtimeValue": {"constant": value}}
    if is_artifact:
        return {"taskOutputArtifact": {"producerTask": value.step, "outputArtifactKey": value.output}}
    return {"taskOutputParameter": {"producerTask": value.step, "outputParameterKey": value.output}}
