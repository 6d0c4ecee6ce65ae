"""One task of a DAG, read from the intermediate representation; and what of the language is not supported yet.

What cannot run is collected with the task's path instead of raised at once, so that a pipeline is told everything in one
message. A document that contradicts itself is refused at the first contradiction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.kfp_settings import read_policy_text, read_retry
from spotwright.model.policy import Layer
from spotwright.model.policy_values import PolicyValueError
from spotwright.pipelines.lightweight import Unsupported, recognise
from spotwright.pipelines.settings import Settings, read_settings
from spotwright.pipelines.spec import (
    ArtifactSpec,
    Constant,
    Dag,
    DagInput,
    Executor,
    OutputSpecs,
    ParameterSpec,
    Source,
    TaskOutput,
    TaskSpec,
)
from spotwright.pipelines.values import KINDS, fit, whole_numbers

__all__ = ["Reading", "component_of", "read_input_specs", "read_output_specs", "read_policy", "read_task"]

_KINDS_LATER = {
    "TASK_FINAL_STATUS": "the final status of another task (dsl.PipelineTaskFinalStatus) is not supported yet",
    "TASK_CONFIG": "its own settings as an input (dsl.TaskConfig) are not supported yet",
}
_WORKSPACE = "{{$.workspace_path}}"


@dataclass(slots=True)
class Reading:
    """What one pass over a compiled pipeline collects.

    What equal tasks have in common is read once and shared: their parts of ``ir`` are one object
    (:func:`spotwright.pipelines.compiled.read_json`), so that object's identity, alive all the time, is the key.
    """

    file: str
    ir: Mapping[str, Any]
    platform: Mapping[str, Any]
    known_executors: dict[tuple[int, int], tuple[Executor, Settings]] = field(default_factory=dict)
    known_parameters: dict[int, dict[str, ParameterSpec]] = field(default_factory=dict)
    dags: dict[str, Dag] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)  # DAGs being read, outermost first
    refused: list[str] = field(default_factory=list)
    ignored: dict[str, None] = field(default_factory=dict)

    def refuse(self, path: str, why: str) -> None:
        """Note that the task at ``path`` cannot run."""
        self.refused.append(f"task {path}: {why}")

    def error(self, place: str, what: str) -> PipelineError:
        """The error for a document that contradicts itself."""
        return PipelineError(f"{self.file}: {place}: {what}")

    def executor(self, label: str, path: str) -> Mapping[str, Any]:
        """The executor of a label. Raises :class:`PipelineError` when there is none."""
        executors = (self.ir.get("deploymentSpec") or {}).get("executors") or {}
        if label not in executors:
            raise self.error(f"task {path}", f"its executor {label!r} is not in deploymentSpec.executors")
        found: Mapping[str, Any] = executors[label]
        return found

    def setting(self, platform: str, label: str) -> Mapping[str, Any]:
        """What a platform says about the executor of a label; often nothing."""
        deployment = (self.platform.get(platform) or {}).get("deploymentSpec") or {}
        return (deployment.get("executors") or {}).get(label) or {}


def component_of(reading: Reading, task: Mapping[str, Any], path: str) -> tuple[str, Mapping[str, Any]]:
    """The name and the definition of a task's component. Raises :class:`PipelineError` when it is missing."""
    name = (task.get("componentRef") or {}).get("name") or ""
    components = reading.ir.get("components") or {}
    if name not in components:
        raise reading.error(f"task {path}", f"its component {name!r} is not in components")
    return name, components[name]


def read_task(
    reading: Reading, name: str, task: Mapping[str, Any], component: tuple[str, Mapping[str, Any]], path: str
) -> TaskSpec | None:
    """Read one task; ``None`` when it uses what is not supported, which ``reading`` then knows."""
    before = len(reading.refused)
    component_name, definition = component
    for why in _unsupported(task):
        reading.refuse(path, why)
    specs = read_input_specs(reading, definition, path)
    outputs = read_output_specs(reading, definition, path)
    executor, settings, policy = _read_executor(reading, definition, path)
    parameters, artifacts = _read_sources(reading, task, specs[0], path)
    if len(reading.refused) > before:
        return None
    for dangling in sorted(settings.inputs - set(parameters)):
        raise reading.error(f"task {path}", f"its resources read the input {dangling!r}, which it is not given")
    parameters |= settings.sources
    caching = task.get("cachingOptions") or {}
    return TaskSpec(
        name=name,
        component=component_name,
        dag=None if executor else component_name,
        executor=executor,
        parameters=parameters,
        artifacts=artifacts,
        after=_after(task, parameters, artifacts),
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
        display_name=str((task.get("taskInfo") or {}).get("name") or name),
        labels=settings.labels,
        annotations=settings.annotations,
        deferred=settings.deferred,
    )


def _unsupported(task: Mapping[str, Any]) -> list[str]:
    trigger = task.get("triggerPolicy") or {}
    found = []
    if "parameterIterator" in task or "artifactIterator" in task:
        found.append("a loop (dsl.ParallelFor) is not supported yet; write its iterations as tasks")
    if trigger.get("condition"):
        found.append("a condition (dsl.If, dsl.Elif, dsl.Else) is not supported yet; decide inside a component")
    if trigger.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED":
        found.append("running after a failure (dsl.ExitHandler, ignore_upstream_failure) is not supported yet")
    return found


def _speaks_of_its_run(parameters: Mapping[str, Source]) -> bool:
    """Whether a constant holds a placeholder that stands for something else in every run: no result can be shared then."""
    written = [source.value for source in parameters.values() if isinstance(source, Constant)]
    return "{{$.pipeline_" in json.dumps(written)


def _read_executor(
    reading: Reading, definition: Mapping[str, Any], path: str
) -> tuple[Executor | None, Settings, Layer | None]:
    if "dag" in definition:
        return None, Settings(), None
    label = str(definition.get("executorLabel") or "")
    raw = reading.executor(label, path)
    kubernetes = reading.setting("kubernetes", label)
    key = (id(raw), id(kubernetes) if kubernetes else 0)
    if key not in reading.known_executors:
        try:
            executor = recognise(raw)
        except Unsupported as kind:
            reading.refuse(path, str(kind))
            return None, Settings(), None
        try:
            settings = read_settings(raw.get("container") or {}, kubernetes)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            what = f"its resources or kubernetes settings cannot be read: {error}"
            raise reading.error(f"task {path}", what) from error
        reading.known_executors[key] = executor, settings
    executor, settings = reading.known_executors[key]
    for needed in settings.needed:
        reading.refuse(path, f"it needs {needed} (kfp.kubernetes), which is not supported yet; pass it as a parameter")
    reading.ignored.update(dict.fromkeys(settings.ignored))
    policy = read_policy(reading, reading.setting("spotwright", label), f"task {path}")
    return executor, settings, policy


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


def _read_sources(
    reading: Reading, task: Mapping[str, Any], specs: Mapping[str, ParameterSpec], path: str
) -> tuple[dict[str, Source], dict[str, Source]]:
    inputs = task.get("inputs") or {}
    parameters: dict[str, Source] = {}
    for name, given in (inputs.get("parameters") or {}).items():
        if "taskFinalStatus" in given:
            reading.refuse(path, _KINDS_LATER["TASK_FINAL_STATUS"])
        elif given.get("parameterExpressionSelector"):
            reading.refuse(path, f"its input {name} picks a field of a loop's item, which is not supported yet")
        else:
            parameters[name] = _parameter_source(reading, name, given, specs.get(name), path)
    artifacts: dict[str, Source] = {}
    for name, given in (inputs.get("artifacts") or {}).items():
        if "componentInputArtifact" in given:
            artifacts[name] = DagInput(given["componentInputArtifact"])
        else:
            output = given.get("taskOutputArtifact") or {}
            artifacts[name] = TaskOutput(output.get("producerTask", ""), output.get("outputArtifactKey", ""))
    return parameters, artifacts


def _parameter_source(
    reading: Reading, name: str, given: Mapping[str, Any], spec: ParameterSpec | None, path: str
) -> Source:
    if "componentInputParameter" in given:
        return DagInput(given["componentInputParameter"])
    if "taskOutputParameter" in given:
        output = given["taskOutputParameter"]
        return TaskOutput(output.get("producerTask", ""), output.get("outputParameterKey", ""))
    value = given.get("runtimeValue") or {}
    if "constant" not in value:
        raise reading.error(f"task {path}", f"its input {name} has no value that this version knows")
    constant = value["constant"]
    if _WORKSPACE in json.dumps(constant):
        reading.refuse(path, "the workspace of a run (dsl.WORKSPACE_PATH_PLACEHOLDER) is not supported yet")
    if spec is None:
        return Constant(whole_numbers(constant))
    try:
        return Constant(fit(constant, spec.type))
    except ValueError as error:
        raise reading.error(f"task {path}", f"its input {name}: {error}") from error


def _after(task: Mapping[str, Any], *sources: Mapping[str, Source]) -> tuple[str, ...]:
    names: dict[str, None] = dict.fromkeys(task.get("dependentTasks") or ())
    for group in sources:
        names.update(dict.fromkeys(source.task for source in group.values() if isinstance(source, TaskOutput)))
    return tuple(sorted(names))


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
            reading.refuse(path, f"its output {name} is a list of artifacts, which is not supported yet")
    return specs


def _parameter_specs(reading: Reading, group: Mapping[str, Any], path: str) -> dict[str, ParameterSpec]:
    parameters = group.get("parameters") or {}
    if id(parameters) in reading.known_parameters:
        return reading.known_parameters[id(parameters)]
    specs = {}
    for name, raw in parameters.items():
        kind = str(raw.get("parameterType") or raw.get("type") or "")
        if kind in _KINDS_LATER:
            reading.refuse(path, _KINDS_LATER[kind])
            continue
        place = f"task {path}" if path else "root"
        if kind not in KINDS:
            raise reading.error(place, f"parameter {name} has the unknown type {kind!r}")
        default = raw.get("defaultValue")
        try:
            specs[name] = ParameterSpec(
                type=kind,
                optional=bool(raw.get("isOptional")),
                has_default="defaultValue" in raw,
                default=None if default is None else fit(default, kind),
                description=str(raw.get("description") or ""),
            )
        except ValueError as error:
            raise reading.error(place, f"the default of parameter {name}: {error}") from error
    if specs and len(specs) == len(parameters):
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
