"""One task of a DAG, read from the intermediate representation; and what of the language is not supported yet.

What cannot run is collected with the task's path instead of raised at once, so that a pipeline is told everything in one
message. A document that contradicts itself is refused at the first contradiction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spotwright.model.kfp_settings import read_policy_text, read_retry
from spotwright.model.policy import Layer
from spotwright.model.policy_values import PolicyValueError
from spotwright.pipelines.importing import read_importer
from spotwright.pipelines.lightweight import Unsupported, recognise
from spotwright.pipelines.reading import Reading
from spotwright.pipelines.settings import Settings, read_settings
from spotwright.pipelines.sources import read_condition_of, read_loop, read_sources, upstream_of
from spotwright.pipelines.spec import (
    ArtifactSpec,
    ClaimStep,
    Constant,
    Container,
    Executor,
    Importer,
    OutputSpecs,
    ParameterSpec,
    Source,
    TaskOutput,
    TaskSpec,
)
from spotwright.pipelines.task_config import read_passed
from spotwright.pipelines.values import KINDS, fit, whole_numbers

__all__ = ["component_of", "read_input_specs", "read_output_specs", "read_policy", "read_task"]

_FINAL_STATUS, _CONFIG = "TASK_FINAL_STATUS", "TASK_CONFIG"


def component_of(reading: Reading, task: Mapping[str, Any], path: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the definition of a task's component. Raises :class:`PipelineError` when it is missing."""
    name = (task.get("componentRef") or {}).get("name") or ""
    components = reading.ir.get("components") or {}
    if name not in components:
        raise reading.error(f"task {path}", f"its component {name!r} is not in components")
    return name, components[name]


def read_task(
    reading: Reading,
    names: Mapping[str, str],
    key: str,
    task: Mapping[str, Any],
    component: tuple[str, Mapping[str, Any]],
    path: str,
) -> TaskSpec | None:
    """Read one task; ``None`` when it uses what is not supported, which ``reading`` then knows.

    ``names`` are the names of the tasks around it, by their keys in the document; ``key`` is its own.
    """
    before = len(reading.refused)
    component_name, definition = component
    specs = read_input_specs(reading, definition, path)
    outputs = read_output_specs(reading, definition, path)
    executor, settings, policy = _read_executor(reading, definition, path)
    parameters, artifacts = read_sources(reading, names, task, specs[0], path)
    condition, loop = read_condition_of(reading, task, path), read_loop(reading, task, path)
    if loop is not None and executor is not None:
        reading.refuse(path, "a loop over a component that is no pipeline; put it into a dsl.ParallelFor")
    if len(reading.refused) > before:
        return None
    for dangling in sorted(settings.inputs - set(parameters)):
        raise reading.error(f"task {path}", f"its resources read the input {dangling!r}, which it is not given")
    parameters |= {name: _renamed(source, names) for name, source in settings.sources.items()}
    caching = task.get("cachingOptions") or {}
    trigger = task.get("triggerPolicy") or {}
    return TaskSpec(
        name=names[key],
        component=component_name,
        dag=None if executor else component_name,
        executor=executor,
        parameters=parameters,
        artifacts=artifacts,
        after=upstream_of(names, task, parameters, artifacts),
        after_all=trigger.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED",
        condition=condition,
        loop=loop,
        parameter_specs=specs[0],
        artifact_specs=specs[1],
        outputs=outputs,
        requests=settings.requests,
        limits=settings.limits,
        retry=_read_retry(reading, task, settings, path),
        policy=policy,
        caching=bool(caching.get("enableCache")) and not _speaks_of_its_run(parameters),
        cache_key=str(caching.get("cacheKey") or ""),
        constraints=settings.constraints,
        display_name=str((task.get("taskInfo") or {}).get("name") or key),
        labels=settings.labels,
        annotations=settings.annotations,
        surroundings=settings.surroundings,
        passed=settings.passed,
        config=settings.config,
        config_inputs=_config_inputs(definition),
        deferred=settings.deferred,
    )


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    return replace(source, task=names.get(source.task, source.task)) if isinstance(source, TaskOutput) else source


def _config_inputs(definition: Mapping[str, Any]) -> tuple[str, ...]:
    parameters = (definition.get("inputDefinitions") or {}).get("parameters") or {}
    return tuple(name for name, raw in parameters.items() if raw.get("parameterType") == _CONFIG)


def _speaks_of_its_run(parameters: Mapping[str, Source]) -> bool:
    """Whether a constant holds a placeholder that stands for something else in every run: no result can be shared then."""
    written = [source.value for source in parameters.values() if isinstance(source, Constant)]
    text = json.dumps(written)
    return "{{$.pipeline_" in text or "{{$.workspace_path" in text


def _read_executor(
    reading: Reading, definition: Mapping[str, Any], path: str
) -> tuple[Executor | Container | Importer | ClaimStep | None, Settings, Layer | None]:
    if "dag" in definition:
        return None, Settings(), None
    label = str(definition.get("executorLabel") or "")
    raw = reading.executor(label, path)
    if "importer" in raw:
        return _read_importer(reading, raw["importer"], definition, path), Settings(), None
    kubernetes = reading.setting("kubernetes", label)
    passed = read_passed(definition)
    key = (id(raw), id(kubernetes) if kubernetes else 0, passed)
    if key not in reading.known_executors:
        try:
            executor = recognise(raw, kubernetes)
        except Unsupported as kind:
            reading.refuse(path, str(kind))
            return None, Settings(), None
        try:
            settings = read_settings(raw.get("container") or {}, kubernetes, passed)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            what = f"its resources or kubernetes settings cannot be read: {error}"
            raise reading.error(f"task {path}", what) from error
        if not passed.env and not isinstance(executor, ClaimStep):
            executor = replace(executor, env={})
        if isinstance(executor, Container):  # a container is somebody, a process of this machine is you
            settings = replace(settings, ignored=tuple(key for key in settings.ignored if key != "securityContext"))
        reading.known_executors[key] = executor, settings
    executor, settings = reading.known_executors[key]
    reading.ignored.update(dict.fromkeys(settings.ignored))
    policy = read_policy(reading, reading.setting("spotwright", label), f"task {path}")
    return executor, settings, policy


def _read_importer(
    reading: Reading, importer: Mapping[str, Any], definition: Mapping[str, Any], path: str
) -> Importer | None:
    try:
        return read_importer(importer, definition)
    except Unsupported as kind:
        reading.refuse(path, str(kind))
        return None


def _read_retry(reading: Reading, task: Mapping[str, Any], settings: Settings, path: str) -> Layer | None:
    try:
        return read_retry(task.get("retryPolicy"), settings.timeout)
    except ValueError as error:
        raise reading.error(f"task {path}", f"its retryPolicy cannot be read: {error}") from error


def read_policy(reading: Reading, entry: Mapping[str, Any], place: str) -> Layer | None:
    """Read the policy that a compiled pipeline carries as one JSON text under ``policy``; ``None`` when it has none."""
    if "policy" not in entry:
        return None
    try:
        return read_policy_text(entry["policy"])
    except PolicyValueError as error:
        raise reading.error(place, f"platforms.spotwright: {error}") from error
    except (ValueError, TypeError) as error:
        raise reading.error(place, f"platforms.spotwright: its policy is no JSON text: {error}") from error


def read_input_specs(
    reading: Reading, definition: Mapping[str, Any], path: str
) -> tuple[dict[str, ParameterSpec], dict[str, ArtifactSpec]]:
    """The declared inputs of a component."""
    inputs = definition.get("inputDefinitions") or {}
    return _parameter_specs(reading, inputs, path), _artifact_specs(inputs)


def read_output_specs(reading: Reading, definition: Mapping[str, Any], path: str) -> OutputSpecs:
    """The declared outputs of a component. Their names become file names, so they must be plain."""
    outputs = definition.get("outputDefinitions") or {}
    specs = OutputSpecs(_parameter_specs(reading, outputs, path), _artifact_specs(outputs))
    for name in (*specs.parameters, *specs.artifacts):
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            raise reading.error(f"task {path}" if path else "root", f"its output {name!r} is no plain name")
    for name, spec in specs.artifacts.items():
        if spec.is_list and "dag" not in definition:
            reading.refuse(
                path, f"its output {name} is a list of artifacts, which only a pipeline can have (dsl.Collected)"
            )
    return specs


def _parameter_specs(reading: Reading, group: Mapping[str, Any], path: str) -> dict[str, ParameterSpec]:
    parameters = group.get("parameters") or {}
    if id(parameters) in reading.known_parameters:
        return reading.known_parameters[id(parameters)]
    specs = {}
    for name, raw in parameters.items():
        kind = str(raw.get("parameterType") or raw.get("type") or "")
        given = {_CONFIG: True, _FINAL_STATUS: False}.get(kind)  # whoever runs it gives the one; code needs the other
        kind = kind if given is None else "STRUCT"
        place = f"task {path}" if path else "root"
        if kind not in KINDS:
            raise reading.error(place, f"parameter {name} has the unknown type {kind!r}")
        default = raw.get("defaultValue")
        try:
            specs[name] = ParameterSpec(
                type=kind,
                optional=bool(raw.get("isOptional")) if given is None else given,
                has_default="defaultValue" in raw,
                default=None if default is None else fit(default, kind),
                description=str(raw.get("description") or ""),
                literals=tuple(fit(each, kind) for each in raw.get("literals") or ()),
            )
            specs[name].check(specs[name].default)
        except ValueError as error:
            raise reading.error(place, f"the default of parameter {name}: {error}") from error
    if specs:
        reading.known_parameters[id(parameters)] = specs
    return specs


def _artifact_specs(group: Mapping[str, Any]) -> dict[str, ArtifactSpec]:
    specs = {}
    for name, raw in (group.get("artifacts") or {}).items():
        kind = raw.get("artifactType") or {}
        specs[name] = ArtifactSpec(
            schema=str(kind.get("schemaTitle") or "system.Artifact"),
            version=str(kind.get("schemaVersion") or "0.0.1"),
            is_list=bool(raw.get("isArtifactList")),
            optional=bool(raw.get("isOptional")),
            metadata=whole_numbers(raw.get("metadata") or {}),
            description=str(raw.get("description") or ""),
        )
    return specs
