"""Read the requests of a compiled task to its pod and node: resources, and the settings of ``platforms.kubernetes``.

Some settings hold values that only the run has (a memory limit from a pipeline parameter, a toleration from an upstream task).
They are deferred: :func:`read_deferred` reads them once the values are there. Sources:
``backend/src/v2/driver/k8s.go`` and ``container.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.graph import DagInput, PodConfig, Source, TaskOutput, TaskSpec
from spotwright.model.scheduling_terms import Constraints
from spotwright.pipelines.graph.pod_config_reader import POD_SETTINGS, read_pod_config, with_pvc_name_parameters
from spotwright.pipelines.graph.task_config import TaskConfigPassthrough, task_config, task_config_of
from spotwright.pipelines.ir.kfp_settings import read_constraints, read_resources
from spotwright.pipelines.values.parameter_values import to_text

__all__ = ["PLACEMENT", "TaskSettings", "read_deferred", "read_settings"]

PLACEMENT = "placement:"
"""Prefix of the names in ``TaskSpec.parameters`` that only the task's placement needs; the code never gets them."""

_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\[['\"](.+?)['\"]\]\}\}")
_NOTHING_PASSED = TaskConfigPassthrough()
_REFERENCES = ("componentInputParameter", "taskOutputParameter", "runtimeValue")
_LISTS, _MAPPINGS = ("tolerations", "nodeAffinity", *POD_SETTINGS), ("nodeSelector", "podMetadata")
_SUPPORTED = {
    "tolerations", "nodeSelector", "nodeAffinity", "podMetadata", "activeDeadlineSeconds", "imagePullPolicy",
    "enabledSharedMemory", *POD_SETTINGS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of one task, in the terms of :class:`~spotwright.graph.TaskSpec`.

    ``sources`` are inputs that only the placement needs, ``inputs`` those of the code that its resources read.
    ``ignored`` names settings without a meaning on one machine. ``timeout`` is seconds. ``config`` is the value of a
    ``dsl.TaskConfig``. ``deferred`` holds the raw settings where some of them wait for values of the run.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    inputs: frozenset[str] = frozenset()
    passed: TaskConfigPassthrough = field(default_factory=TaskConfigPassthrough)
    config: Mapping[str, Any] = field(default_factory=dict)
    deferred: Mapping[str, Any] = field(default_factory=dict)
    pod_config: PodConfig = field(default_factory=PodConfig)
    ignored: tuple[str, ...] = ()


def read_settings(
    container: Mapping[str, Any], kubernetes: Mapping[str, Any], passed: TaskConfigPassthrough = _NOTHING_PASSED
) -> TaskSettings:
    """Read a container's resources and its entry under ``platforms.kubernetes``. Raises ``ValueError`` for wrong values."""
    _check_kinds(kubernetes)
    sources: dict[str, Source] = {}
    settings = _take_references(with_pvc_name_parameters(kubernetes), sources)
    resources = dict(container.get("resources") or {})
    inputs = set(_INPUT.findall(" ".join(_texts(resources))))
    env = {str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or ()}
    deferred = {"resources": resources, "kubernetes": settings, "env": env} if sources or inputs else {}
    pod_resources, pod_settings = passed.of_pod(resources, settings)
    requests, limits = read_resources(_without_inputs(pod_resources))
    constraints = read_constraints(_without_references(pod_settings))  # also where deferred: errors come before the run
    metadata = settings.get("podMetadata") or {}
    seconds = float(settings.get("activeDeadlineSeconds") or 0)
    return TaskSettings(
        requests=requests,
        limits=limits,
        constraints=Constraints() if sources else constraints,
        labels={str(k): str(v) for k, v in (metadata.get("labels") or {}).items()},
        annotations={str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()},
        timeout=seconds or None,
        sources=sources,
        inputs=frozenset(inputs),
        passed=passed,
        config={} if deferred or not passed.given else task_config(passed, env, resources, settings),
        deferred=deferred,
        pod_config=read_pod_config(pod_settings),
        ignored=tuple(key for key in sorted(settings) if settings[key] and _is_ignored(key, settings)),
    )


def _check_kinds(kubernetes: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a setting of the wrong kind, before the run: deferred settings are read only during the run."""
    for key, value in kubernetes.items():
        if key in _LISTS and not (
            isinstance(value, list | None) and all(isinstance(each, Mapping) for each in value or ())
        ):
            raise ValueError(f"{key}: expected a list of mappings, found {value!r:.60}")
        if key in _MAPPINGS and not isinstance(value, Mapping | None):
            raise ValueError(f"{key}: expected a mapping, found {value!r:.60}")


def _without_inputs(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources that wait for no value of the run."""
    return {key: value for key, value in resources.items() if not any(_INPUT.search(text) for text in _texts(value))}


def _without_references(item: Any) -> Any:
    """The settings that wait for no value of the run."""
    if isinstance(item, Mapping):
        return {key: _without_references(value) for key, value in item.items() if not _is_reference(value)}
    if isinstance(item, list):
        return [_without_references(value) for value in item if not _is_reference(value)]
    return item


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {PLACEMENT}


def _is_ignored(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting has no meaning on one machine: pod labels and annotations have one only where the code reads them."""
    if key != "podMetadata":
        return key not in _SUPPORTED
    field_paths = " ".join(str(entry.get("fieldPath")) for entry in settings.get("fieldPathAsEnv") or ())
    names = [name for group in settings[key].values() for name in group]
    return any(not name.startswith("spotwright.dev/") and f"['{name}']" not in field_paths for name in names)


def read_deferred(task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
    """The task with its deferred settings read from the values of its inputs; the task itself where it has none.

    ``values`` holds the value of every name in ``task.parameters``. Raises :class:`PipelineError` for a value that is no
    quantity, toleration, selector or affinity.
    """
    if not task.deferred:
        return task
    try:
        resources, kubernetes = (_with_values(task.deferred[part], values) for part in ("resources", "kubernetes"))
        extension, passed = task.extension, task_config_of(task).passed
        if passed.given:
            config = task_config(passed, task.deferred["env"], resources, kubernetes)
            extension = dataclasses.replace(task_config_of(task), values=config)
        resources, kubernetes = passed.of_pod(resources, kubernetes)
        requests, limits = read_resources(resources)
        constraints, pod_config = read_constraints(kubernetes), read_pod_config(kubernetes)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise PipelineError(f"task {task.name}: its placement or resources cannot be read: {error}") from error
    return dataclasses.replace(
        task,
        requests=requests,
        limits=limits,
        constraints=constraints,
        pod_config=pod_config,
        deferred={},
        extension=extension,
    )


def _with_values(item: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(item, str):
        return _INPUT.sub(lambda match: to_text(values[match.group(1)]), item)
    if isinstance(item, Mapping):
        if set(item) == {PLACEMENT}:
            return values[item[PLACEMENT]]
        return {key: _with_values(value, values) for key, value in item.items()}
    if isinstance(item, list):
        return [_with_values(value, values) for value in item]
    return item


def _take_references(item: Any, sources: dict[str, Source]) -> Any:
    """The settings, each reference replaced by the name of a source that is added to ``sources``, each constant by its value."""
    if isinstance(item, list):
        return [_take_references(value, sources) for value in item]
    if not isinstance(item, Mapping):
        return item
    if len(item) == 1 and next(iter(item)) in _REFERENCES:
        if "runtimeValue" in item:
            return item["runtimeValue"].get("constant")
        return {PLACEMENT: _add_source(item, sources)}
    return {key: _take_references(value, sources) for key, value in item.items()}


def _add_source(reference: Mapping[str, Any], sources: dict[str, Source]) -> str:
    output = reference.get("taskOutputParameter")
    source: Source
    if output is not None:
        source = TaskOutput(_name_in(output["producerTask"]), _name_in(output["outputParameterKey"]))
        name = f"{PLACEMENT}{source.task}.{source.output}"
    else:
        source = DagInput(_name_in(reference["componentInputParameter"]))
        name = f"{PLACEMENT}{source.name}"
    sources[name] = source
    return name


def _name_in(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected the name of a task, output or input, found {value!r}")
    return value


def _texts(item: Any) -> list[str]:
    if isinstance(item, Mapping):
        return [text for value in item.values() for text in _texts(value)]
    return [item] if isinstance(item, str) else []
