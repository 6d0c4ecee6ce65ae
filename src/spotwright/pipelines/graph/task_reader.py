"""Read one task of a DAG from the intermediate representation, and record the features that this version cannot run.

Unsupported features are recorded with the task's path instead of raised at once, so that one error names all of a pipeline.
A document that contradicts itself is refused at the first contradiction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spotwright.graph import ArtifactSpec, Constant, Container, OutputSpecs, ParameterSpec, Source, TaskOutput, TaskSpec
from spotwright.model.policy import Layer, PolicyValueError
from spotwright.pipelines.graph.executor_reader import Unsupported, read_executor, read_importer
from spotwright.pipelines.graph.ir_pass import IrPass
from spotwright.pipelines.graph.kfp_executors import Importer, PvcStep, PythonComponent
from spotwright.pipelines.graph.source_reader import read_condition_of, read_loop, read_sources, upstream_of
from spotwright.pipelines.graph.task_config import TaskConfig, read_passthrough
from spotwright.pipelines.graph.task_settings import TaskSettings, read_settings
from spotwright.pipelines.ir.kfp_settings import read_policy_text, read_retry
from spotwright.pipelines.values.parameter_values import KINDS, coerce, whole_numbers

__all__ = ["component_of", "read_input_specs", "read_output_specs", "read_policy", "read_task"]

_FINAL_STATUS, _CONFIG = "TASK_FINAL_STATUS", "TASK_CONFIG"


def component_of(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the definition of a task's component. Raises :class:`PipelineError` when it is missing."""
    name = (task.get("componentRef") or {}).get("name") or ""
    components = ir_pass.ir.get("components") or {}
    if name not in components:
        raise ir_pass.error(f"task {path}", f"its component {name!r} is not in components")
    return name, components[name]


def read_task(
    ir_pass: IrPass,
    names: Mapping[str, str],
    key: str,
    task: Mapping[str, Any],
    component: tuple[str, Mapping[str, Any]],
    path: str,
) -> TaskSpec | None:
    """Read one task; ``None`` where it uses an unsupported feature, which ``ir_pass`` records.

    ``names`` are the names of the tasks around it, by their keys in the document; ``key`` is its own.
    """
    before = len(ir_pass.unsupported)
    component_name, definition = component
    specs = read_input_specs(ir_pass, definition, path)
    outputs = read_output_specs(ir_pass, definition, path)
    executor, settings, policy = _read_executor(ir_pass, definition, path)
    parameters, artifacts = read_sources(ir_pass, names, task, specs[0], path)
    condition, loop = read_condition_of(ir_pass, task, path), read_loop(ir_pass, task, path)
    if loop is not None and executor is not None:
        ir_pass.refuse(path, "a loop over a component that is no pipeline; write it as a dsl.ParallelFor")
    if len(ir_pass.unsupported) > before:
        return None
    for dangling in sorted(settings.inputs - set(parameters)):
        raise ir_pass.error(f"task {path}", f"its resources read the input {dangling!r}, which it is not given")
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
        retry=_read_retry(ir_pass, task, settings, path),
        policy=policy,
        caching=bool(caching.get("enableCache")) and not _depends_on_run(parameters),
        cache_key=str(caching.get("cacheKey") or ""),
        constraints=settings.constraints,
        display_name=str((task.get("taskInfo") or {}).get("name") or key),
        labels=settings.labels,
        annotations=settings.annotations,
        pod_config=settings.pod_config,
        deferred=settings.deferred,
        extension=_task_config(settings, definition),
    )


def _renamed(source: Source, names: Mapping[str, str]) -> Source:
    return replace(source, task=names.get(source.task, source.task)) if isinstance(source, TaskOutput) else source


def _task_config(settings: TaskSettings, definition: Mapping[str, Any]) -> TaskConfig | None:
    parameters = (definition.get("inputDefinitions") or {}).get("parameters") or {}
    inputs = tuple(name for name, raw in parameters.items() if raw.get("parameterType") == _CONFIG)
    return TaskConfig(settings.passed, settings.config, inputs) if settings.passed.given or inputs else None


def _depends_on_run(parameters: Mapping[str, Source]) -> bool:
    """Whether a constant holds a placeholder whose value differs in every run, so that no result can be shared."""
    text = json.dumps([source.value for source in parameters.values() if isinstance(source, Constant)])
    return "{{$.pipeline_" in text or "{{$.workspace_path" in text


def _read_executor(
    ir_pass: IrPass, definition: Mapping[str, Any], path: str
) -> tuple[PythonComponent | Container | Importer | PvcStep | None, TaskSettings, Layer | None]:
    if "dag" in definition:
        return None, TaskSettings(), None
    label = str(definition.get("executorLabel") or "")
    raw = ir_pass.executor(label, path)
    if "importer" in raw:
        return _read_importer(ir_pass, raw["importer"], definition, path), TaskSettings(), None
    kubernetes = ir_pass.setting("kubernetes", label)
    passed = read_passthrough(definition)
    key = (id(raw), id(kubernetes) if kubernetes else 0, passed)
    if key not in ir_pass.executors:
        try:
            executor = read_executor(raw, kubernetes)
        except Unsupported as error:
            ir_pass.refuse(path, str(error))
            return None, TaskSettings(), None
        try:
            settings = read_settings(raw.get("container") or {}, kubernetes, passed)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            what = f"its resources or kubernetes settings cannot be read: {error}"
            raise ir_pass.error(f"task {path}", what) from error
        if not passed.env and not isinstance(executor, PvcStep):
            executor = replace(executor, env={})
        if isinstance(executor, Container):  # only a container can have another user
            settings = replace(settings, ignored=tuple(key for key in settings.ignored if key != "securityContext"))
        ir_pass.executors[key] = executor, settings
    executor, settings = ir_pass.executors[key]
    ir_pass.ignored.update(dict.fromkeys(settings.ignored))
    policy = read_policy(ir_pass, ir_pass.setting("spotwright", label), f"task {path}")
    return executor, settings, policy


def _read_importer(
    ir_pass: IrPass, importer: Mapping[str, Any], definition: Mapping[str, Any], path: str
) -> Importer | None:
    try:
        return read_importer(importer, definition)
    except Unsupported as error:
        ir_pass.refuse(path, str(error))
        return None


def _read_retry(ir_pass: IrPass, task: Mapping[str, Any], settings: TaskSettings, path: str) -> Layer | None:
    try:
        return read_retry(task.get("retryPolicy"), settings.timeout)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"its retryPolicy cannot be read: {error}") from error


def read_policy(ir_pass: IrPass, entry: Mapping[str, Any], place: str) -> Layer | None:
    """Read the policy that a compiled pipeline carries as one JSON text under ``policy``; ``None`` when it has none."""
    if "policy" not in entry:
        return None
    try:
        return read_policy_text(entry["policy"])
    except PolicyValueError as error:
        raise ir_pass.error(place, f"platforms.spotwright: {error}") from error
    except (ValueError, TypeError) as error:
        raise ir_pass.error(place, f"platforms.spotwright: its policy is not valid JSON: {error}") from error


def read_input_specs(
    ir_pass: IrPass, definition: Mapping[str, Any], path: str
) -> tuple[dict[str, ParameterSpec], dict[str, ArtifactSpec]]:
    """The declared inputs of a component."""
    inputs = definition.get("inputDefinitions") or {}
    return _parameter_specs(ir_pass, inputs, path), _artifact_specs(inputs)


def read_output_specs(ir_pass: IrPass, definition: Mapping[str, Any], path: str) -> OutputSpecs:
    """The declared outputs of a component. Their names become file names, so they may hold no slash."""
    outputs = definition.get("outputDefinitions") or {}
    specs = OutputSpecs(_parameter_specs(ir_pass, outputs, path), _artifact_specs(outputs))
    for name in (*specs.parameters, *specs.artifacts):
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            raise ir_pass.error(f"task {path}" if path else "root", f"its output {name!r} cannot be a file name")
    for name, spec in specs.artifacts.items():
        if spec.is_list and "dag" not in definition:
            ir_pass.refuse(
                path, f"its output {name} is a list of artifacts, which only a pipeline can have (dsl.Collected)"
            )
    return specs


def _parameter_specs(ir_pass: IrPass, group: Mapping[str, Any], path: str) -> dict[str, ParameterSpec]:
    parameters = group.get("parameters") or {}
    if id(parameters) in ir_pass.parameter_specs:
        return ir_pass.parameter_specs[id(parameters)]
    specs = {}
    for name, raw in parameters.items():
        kind = str(raw.get("parameterType") or raw.get("type") or "")
        supplied = {_CONFIG: True, _FINAL_STATUS: False}.get(
            kind
        )  # the engine supplies a config; a status needs a source
        kind = kind if supplied is None else "STRUCT"
        place = f"task {path}" if path else "root"
        if kind not in KINDS:
            raise ir_pass.error(place, f"parameter {name} has the unknown type {kind!r}")
        default = raw.get("defaultValue")
        try:
            specs[name] = ParameterSpec(
                type=kind,
                optional=bool(raw.get("isOptional")) if supplied is None else supplied,
                has_default="defaultValue" in raw,
                default=None if default is None else coerce(default, kind),
                description=str(raw.get("description") or ""),
                literals=tuple(coerce(each, kind) for each in raw.get("literals") or ()),
            )
            specs[name].check(specs[name].default)
        except ValueError as error:
            raise ir_pass.error(place, f"the default of parameter {name}: {error}") from error
    if specs:
        ir_pass.parameter_specs[id(parameters)] = specs
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
