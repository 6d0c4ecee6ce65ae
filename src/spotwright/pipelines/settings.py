"""What a compiled task asks of the place it runs in: resources, and the settings of ``platforms.kubernetes``.

Some settings hold values that are known only while the run goes on (a memory limit from a pipeline parameter, a toleration
from an upstream task). They are kept as they are and :func:`settled` puts the values in. Sources:
``backend/src/v2/driver/k8s.go`` and ``container.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.kfp_settings import read_constraints, read_resources
from spotwright.model.placing import Constraints
from spotwright.pipelines.spec import DagInput, Source, TaskOutput, TaskSpec
from spotwright.pipelines.surroundings import CLUSTERS_OWN, Surroundings, read_surroundings, with_references
from spotwright.pipelines.task_config import Passed, task_config
from spotwright.pipelines.values import to_text

__all__ = ["PLACEMENT", "Settings", "read_settings", "settled"]

PLACEMENT = "placement:"
"""Prefix of the names in ``TaskSpec.parameters`` that only the task's placement needs; the code never sees them."""

_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\[['\"](.+?)['\"]\]\}\}")
_NOTHING_PASSED = Passed()
_REFERENCES = ("componentInputParameter", "taskOutputParameter", "runtimeValue")
_LISTS, _MAPPINGS = ("tolerations", "nodeAffinity", *CLUSTERS_OWN), ("nodeSelector", "podMetadata")
_UNDERSTOOD = {
    "tolerations", "nodeSelector", "nodeAffinity", "podMetadata", "activeDeadlineSeconds", "imagePullPolicy",
    "enabledSharedMemory", *CLUSTERS_OWN,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one task, in the words of :class:`~spotwright.pipelines.spec.TaskSpec`.

    ``sources`` are inputs that only the placement needs, ``inputs`` those of the code that its resources read.
    ``ignored`` names what means nothing on one machine. ``timeout`` is seconds. ``config`` is what a ``dsl.TaskConfig`` holds.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    inputs: frozenset[str] = frozenset()
    passed: Passed = field(default_factory=Passed)
    config: Mapping[str, Any] = field(default_factory=dict)
    deferred: Mapping[str, Any] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)
    ignored: tuple[str, ...] = ()


def read_settings(
    container: Mapping[str, Any], kubernetes: Mapping[str, Any], passed: Passed = _NOTHING_PASSED
) -> Settings:
    """Read a container's resources and its entry under ``platforms.kubernetes``. Raises ``ValueError`` for wrong values."""
    _check_kinds(kubernetes)
    sources: dict[str, Source] = {}
    known = _take_references(with_references(kubernetes), sources)
    resources = dict(container.get("resources") or {})
    inputs = set(_INPUT.findall(" ".join(_texts(resources))))
    env = {str(entry["name"]): str(entry.get("value", "")) for entry in container.get("env") or ()}
    deferred = {"resources": resources, "kubernetes": known, "env": env} if sources or inputs else {}
    of_pod, around = passed.of_pod(resources, known)
    requests, limits = read_resources(_without_inputs(of_pod))
    constraints = read_constraints(_without_references(around))  # what is wrong already is said already
    metadata = known.get("podMetadata") or {}
    seconds = float(known.get("activeDeadlineSeconds") or 0)
    return Settings(
        requests=requests,
        limits=limits,
        constraints=Constraints() if sources else constraints,
        labels={str(k): str(v) for k, v in (metadata.get("labels") or {}).items()},
        annotations={str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()},
        timeout=seconds or None,
        sources=sources,
        inputs=frozenset(inputs),
        passed=passed,
        config={} if deferred or not passed.given else task_config(passed, env, resources, known),
        deferred=deferred,
        surroundings=read_surroundings(around),
        ignored=tuple(key for key in sorted(known) if known[key] and _means_nothing(key, known)),
    )


def _check_kinds(kubernetes: Mapping[str, Any]) -> None:
    """Nothing else looks at these before a run: where they need values, they are read when those are there."""
    for key, value in kubernetes.items():
        if key in _LISTS and not (
            isinstance(value, list | None) and all(isinstance(each, Mapping) for each in value or ())
        ):
            raise ValueError(f"{key}: expected a list of mappings, found {value!r:.60}")
        if key in _MAPPINGS and not isinstance(value, Mapping | None):
            raise ValueError(f"{key}: expected a mapping, found {value!r:.60}")


def _without_inputs(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Only what is known before the run; the rest comes with :func:`settled`."""
    return {key: value for key, value in resources.items() if not any(_INPUT.search(text) for text in _texts(value))}


def _without_references(item: Any) -> Any:
    """The settings without what only the run will know."""
    if isinstance(item, Mapping):
        return {key: _without_references(value) for key, value in item.items() if not _is_reference(value)}
    if isinstance(item, list):
        return [_without_references(value) for value in item if not _is_reference(value)]
    return item


def _is_reference(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {PLACEMENT}


def _means_nothing(key: str, known: Mapping[str, Any]) -> bool:
    if key != "podMetadata":
        return key not in _UNDERSTOOD
    read = " ".join(str(entry.get("fieldPath")) for entry in known.get("fieldPathAsEnv") or ())  # by the code itself
    said = [name for group in known[key].values() for name in group]
    return any(not name.startswith("spotwright.dev/") and f"['{name}']" not in read for name in said)


def settled(task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
    """Put the values of a task's inputs into its resources and placement; the task itself when nothing depends on them.

    ``values`` holds the resolved value of every name in ``task.parameters``. Raises :class:`PipelineError` when a value
    is no quantity or no toleration, selector or affinity.
    """
    if not task.deferred:
        return task
    try:
        resources, kubernetes = (_with_values(task.deferred[part], values) for part in ("resources", "kubernetes"))
        config = task_config(task.passed, task.deferred["env"], resources, kubernetes) if task.passed.given else {}
        resources, kubernetes = task.passed.of_pod(resources, kubernetes)
        requests, limits = read_resources(resources)
        constraints, around = read_constraints(kubernetes), read_surroundings(kubernetes)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise PipelineError(f"task {task.name}: its placement or resources cannot be read: {error}") from error
    return dataclasses.replace(
        task,
        requests=requests,
        limits=limits,
        constraints=constraints,
        surroundings=around,
        config=config,
        deferred={},
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
    """Replace every reference by the name of a source that was added to ``sources``, and every constant by its value."""
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
