"""What a compiled task asks of the place it runs in: resources, retries, and the settings of ``platforms.kubernetes``.

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
from spotwright.model.placing import Constraints, Expression, Preference, Term, Toleration
from spotwright.model.policy import Layer
from spotwright.model.quantities import parse_duration, parse_resource
from spotwright.pipelines.spec import DagInput, Source, TaskOutput, TaskSpec
from spotwright.pipelines.values import to_text

__all__ = ["PLACEMENT", "Settings", "read_retry", "read_settings", "settled"]

PLACEMENT = "placement:"
"""Prefix of the names in ``TaskSpec.parameters`` that only the task's placement needs; the code never sees them."""

_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\[['\"](.+?)['\"]\]\}\}")
_REFERENCES = ("componentInputParameter", "taskOutputParameter", "runtimeValue")
_NEEDED = {
    "secretAsEnv": "a secret as environment variables",
    "secretAsVolume": "a secret as files",
    "configMapAsEnv": "a config map as environment variables",
    "configMapAsVolume": "a config map as files",
    "fieldPathAsEnv": "a field of its pod as an environment variable",
    "pvcMount": "a persistent volume",
    "emptyDirMounts": "an empty-dir volume",
    "genericEphemeralVolume": "an ephemeral volume",
}
_UNDERSTOOD = {"tolerations", "nodeSelector", "nodeAffinity", "podMetadata", "activeDeadlineSeconds"}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one task, in the words of :class:`~spotwright.pipelines.spec.TaskSpec`.

    ``sources`` are inputs that only the placement needs, ``inputs`` those of the code that its resources read. ``needed``
    names what the code cannot run without and this version cannot give, ``ignored`` what means nothing on one machine.
    ``timeout`` is seconds.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    constraints: Constraints = field(default_factory=Constraints)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    inputs: frozenset[str] = frozenset()
    deferred: Mapping[str, Any] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def read_settings(container: Mapping[str, Any], kubernetes: Mapping[str, Any]) -> Settings:
    """Read a container's resources and its entry under ``platforms.kubernetes``. Raises ``ValueError`` for wrong values."""
    sources: dict[str, Source] = {}
    known = _take_references(kubernetes, sources)
    resources = dict(container.get("resources") or {})
    inputs = set(_INPUT.findall(" ".join(_texts(resources))))
    deferred = {"resources": resources, "kubernetes": known} if sources or inputs else {}
    requests, limits = _read_resources(_without_inputs(resources))
    metadata = known.get("podMetadata") or {}
    seconds = float(known.get("activeDeadlineSeconds") or 0)
    return Settings(
        requests=requests,
        limits=limits,
        constraints=Constraints() if sources else _read_constraints(known),
        labels={str(k): str(v) for k, v in (metadata.get("labels") or {}).items()},
        annotations={str(k): str(v) for k, v in (metadata.get("annotations") or {}).items()},
        timeout=seconds or None,
        sources=sources,
        inputs=frozenset(inputs),
        deferred=deferred,
        needed=tuple(text for key, text in _NEEDED.items() if known.get(key)),
        ignored=tuple(key for key in sorted(known) if known[key] and _means_nothing(key, known[key])),
    )


def _without_inputs(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Only what is known before the run; the rest comes with :func:`settled`."""
    return {key: value for key, value in resources.items() if not any(_INPUT.search(text) for text in _texts(value))}


def _means_nothing(key: str, value: Any) -> bool:
    if key == "podMetadata":
        said = [name for group in value.values() for name in group]
        return any(not name.startswith("spotwright.dev/") for name in said)
    return key not in _UNDERSTOOD and key not in _NEEDED


def settled(task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
    """Put the values of a task's inputs into its resources and placement; the task itself when nothing depends on them.

    ``values`` holds the resolved value of every name in ``task.parameters``. Raises :class:`PipelineError` when a value
    is no quantity or no toleration, selector or affinity.
    """
    if not task.deferred:
        return task
    try:
        requests, limits = _read_resources(_with_values(task.deferred["resources"], values))
        constraints = _read_constraints(_with_values(task.deferred["kubernetes"], values))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise PipelineError(f"task {task.name}: its placement or resources cannot be read: {error}") from error
    return dataclasses.replace(task, requests=requests, limits=limits, constraints=constraints, deferred={})


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
        source = TaskOutput(output["producerTask"], output["outputParameterKey"])
        name = f"{PLACEMENT}{source.task}.{source.output}"
    else:
        source = DagInput(reference["componentInputParameter"])
        name = f"{PLACEMENT}{source.name}"
    sources[name] = source
    return name


def _texts(item: Any) -> list[str]:
    if isinstance(item, Mapping):
        return [text for value in item.values() for text in _texts(value)]
    return [item] if isinstance(item, str) else []


def _read_resources(resources: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits. The fields that start with ``resource`` are the newer ones and win, as in the backend."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for name, unit in (("cpu", ""), ("memory", "G")):
        for which, amounts in (("Request", requests), ("Limit", limits)):
            new = resources.get(f"resource{name.capitalize()}{which}")
            old = resources.get(f"{name}{which}")
            if new or old:
                amounts[name] = parse_resource(name, new or f"{old}{unit}")
    accelerator = resources.get("accelerator") or {}
    kind = accelerator.get("resourceType") or accelerator.get("type")
    count = parse_resource("count", accelerator.get("resourceCount") or accelerator.get("count") or 0)
    if kind and count:
        limits[kind] = count
    return {**limits, **requests}, limits


def _read_constraints(kubernetes: Mapping[str, Any]) -> Constraints:
    tolerations = [t for entry in kubernetes.get("tolerations") or () for t in _read_tolerations(entry)]
    selector = kubernetes.get("nodeSelector") or {}
    labels = selector.get("nodeSelectorJson") or selector.get("labels") or {}
    required: list[Term] = []
    preferred: list[Preference] = []
    for entry in kubernetes.get("nodeAffinity") or ():
        _read_affinity(entry, required, preferred)
    return Constraints(
        tolerations=tuple(tolerations),
        selector={str(key): str(value) for key, value in labels.items()},
        required=tuple(required),
        preferred=tuple(preferred),
    )


def _read_tolerations(entry: Mapping[str, Any]) -> list[Toleration]:
    """One entry of the compiled list. ``tolerationJson`` may hold a toleration, a list of them, or nothing."""
    if "tolerationJson" in entry:
        given = entry["tolerationJson"] or []
        return [t for item in (given if isinstance(given, list) else [given]) for t in _read_tolerations(item)]
    seconds = entry.get("tolerationSeconds")
    return [
        Toleration(
            key=str(entry.get("key") or ""),
            operator=str(entry.get("operator") or "Equal"),
            value=str(entry.get("value") or ""),
            effect=str(entry.get("effect") or ""),
            seconds=int(seconds) if seconds is not None else None,
        )
    ]


def _read_affinity(entry: Mapping[str, Any], required: list[Term], preferred: list[Preference]) -> None:
    """Add one entry. Each required entry is an alternative of its own, as ``k8s.go`` makes it."""
    if "nodeAffinityJson" in entry:
        whole = entry["nodeAffinityJson"] or {}
        demands = whole.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        required += [_read_term(term) for term in demands.get("nodeSelectorTerms") or ()]
        wishes = whole.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        preferred += [Preference(int(wish["weight"]), _read_term(wish["preference"])) for wish in wishes]
    elif entry.get("weight"):
        preferred.append(Preference(int(entry["weight"]), _read_term(entry)))
    else:
        required.append(_read_term(entry))


def _read_term(term: Mapping[str, Any]) -> Term:
    return Term(_read_expressions(term.get("matchExpressions")), _read_expressions(term.get("matchFields")))


def _read_expressions(entries: Any) -> tuple[Expression, ...]:
    return tuple(
        Expression(str(e["key"]), str(e["operator"]), tuple(str(v) for v in e.get("values") or ()))
        for e in entries or ()
    )


def read_retry(retry: Mapping[str, Any] | None, timeout: float | None) -> Layer | None:
    """The policy layer of ``set_retry`` and ``set_timeout``; ``None`` when neither was called.

    The SDK writes a first backoff of zero where the user gave none (``structures.py``, ``RetryPolicy.to_proto``), so zero
    counts as not said and the policy's own backoff holds. Raises ``ValueError`` for a value that is no duration.
    """
    values: dict[str, Any] = {}
    if retry is not None:
        values["errors.retries"] = int(retry.get("maxRetryCount") or 0)
        first = parse_duration(retry.get("backoffDuration") or 0)
        if first:
            values["errors.backoff"] = first
            values["errors.factor"] = max(1.0, float(retry.get("backoffFactor") or 2.0))
            values["errors.ceiling"] = parse_duration(retry.get("backoffMaxDuration") or "3600s")
    if timeout is not None:
        values["timeout"] = timeout
    said = [name for name, there in (("set_retry", retry is not None), ("set_timeout", timeout is not None)) if there]
    return Layer(" and ".join(said), values) if said else None
