"""Read the settings of a compiled KFP task: resources, tolerations, selectors, affinity, retries and policy.

Runs and the placement of compiled files share this reader, so that both agree. Sources:
``backend/src/v2/driver/k8s.go`` and ``container.go`` of kubeflow/pipelines, ``kfp/dsl/structures.py``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from spotwright.kube.pod import PREFERRED, REQUIRED, TERMS, Refusal, refusals_of
from spotwright.model.policy import Layer, parse_policy
from spotwright.model.quantities import parse_duration, parse_resource
from spotwright.model.scheduling_terms import is_placeholder

__all__ = [
    "RETRY_POLICIES",
    "PodFields",
    "accelerator_in",
    "accelerator_loss",
    "amounts_in",
    "nonempty",
    "pod_fields",
    "read_policy_text",
    "read_resources",
    "read_retry",
    "runtime_field",
    "with_constants",
]


Path: TypeAlias = tuple[str | int, ...]

RETRY_POLICIES = {
    "POLICY_UNSPECIFIED": True,
    "POLICY_ALWAYS": True,
    "POLICY_ON_FAILURE": True,
    "POLICY_ON_ERROR": False,
    "POLICY_ON_TRANSIENT_ERROR": False,
}
"""Policies of ``set_retry`` in newer SDKs: whether failures of the task's own code are retried too."""

_IN_PIPELINE = "the pipeline"  # explain's name for the source of the compiled file's settings


def read_resources(resources: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of a container's ``resources``. The fields that start with ``resource`` are newer and win.

    A limit without a request counts as the request, as in Kubernetes. Raises ``ValueError`` for a value that is not a quantity.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for which, amounts in (("Request", requests), ("Limit", limits)):
        amounts.update({name: parse_resource(name, given) for name, given in amounts_in(resources, which).items()})
    kind, given = accelerator_in(resources)
    count = parse_resource("count", given or 0)
    if kind and count:
        limits[_device(kind)] = count
    return {**limits, **requests}, limits


def amounts_in(resources: Mapping[str, Any], which: str) -> dict[str, Any]:
    """The CPUs and the memory of a container's ``resources`` as written. ``which``: ``Request`` or ``Limit``."""
    found: dict[str, Any] = {}
    for name, unit in (("cpu", ""), ("memory", "G")):
        new, old = resources.get(f"resource{name.capitalize()}{which}"), resources.get(f"{name}{which}")
        if new or old:
            found[name] = new or f"{old}{unit}"
    return found


def accelerator_in(resources: Mapping[str, Any]) -> tuple[str, Any]:
    """The type and the number of a container's accelerators as written, or empty."""
    given = resources.get("accelerator") or {}
    return str(given.get("resourceType") or given.get("type") or ""), given.get("resourceCount") or given.get(
        "count"
    ) or ""


def accelerator_loss(resources: Mapping[str, Any]) -> str:
    """Why the backend assigns none of a container's requested accelerators; empty if it assigns them, or none are requested.

    The backend writes the type into the pod as the name of a resource, but not if the type or the count is missing. Source:
    kubeflow/pipelines, ``backend/src/v2/driver/driver.go``, ``initPodSpecPatch``.
    """
    accelerator = resources.get("accelerator")
    if not isinstance(accelerator, Mapping) or not accelerator:
        return ""
    kind, count = map(str, accelerator_in(resources))
    if not kind:
        return (
            f"sets the number of accelerators ({count}) without a type, so KFP's backend assigns none" if count else ""
        )
    if not count:
        return f"sets the accelerator type {kind} without a number, so KFP's backend assigns none"
    if is_placeholder(kind) or "/" in kind:
        return ""
    return (
        f"sets the accelerator type {kind}, which KFP's backend requests as a resource of that name, and nodes do not offer"
        f" {kind}"
    )


def _device(kind: str) -> str:
    """The device name in Kubernetes for an accelerator's type.

    Names of Vertex AI (``NVIDIA_TESLA_T4``, ``TPU_V3``) and of GKE's label (``nvidia-l4``) have no domain, so nodes of clusters
    do not offer them (:func:`accelerator_loss`). On simulated nodes they count as ``nvidia.com/gpu`` and ``google.com/tpu``.
    """
    if "/" in kind:
        return kind
    if kind.upper().startswith("NVIDIA"):
        return "nvidia.com/gpu"
    return "google.com/tpu" if kind.upper().startswith("TPU") else kind


_DECIDED_BY_PARAMETERS = (
    ("tolerations", "tolerationJson"),
    ("nodeAffinity", "nodeAffinityJson"),
    ("nodeSelector", "nodeSelectorJson"),
)
_PARAMETERS = ("componentInputParameter", "taskOutputParameter")


def runtime_field(kubernetes: Mapping[str, Any]) -> str:
    """The field with which a parameter decides at run time where the pods go, or empty."""
    for group, field in _DECIDED_BY_PARAMETERS:
        entries = kubernetes.get(group) or ()
        for entry in entries if isinstance(entries, list) else [entries]:
            value = entry.get(field) if isinstance(entry, Mapping) else None
            if isinstance(value, Mapping) and any(name in value for name in _PARAMETERS):
                return field
    return ""


def with_constants(item: Any) -> Any:
    """Settings with every run-time value that is a constant replaced by the constant."""
    if isinstance(item, list):
        return [with_constants(value) for value in item]
    if not isinstance(item, dict):
        return item
    if set(item) == {"runtimeValue"}:
        return item["runtimeValue"].get("constant")
    return {key: with_constants(value) for key, value in item.items()}


class PodFields(NamedTuple):
    """The fields of a pod spec by which the backend selects a task's nodes.

    ``paths``: each part's place in the settings, by its path in the pod spec.
    """

    spec: Mapping[str, Any]
    paths: Mapping[Path, Path]

    def path(self, path: Path) -> Path:
        """The path in the settings of a path in the pod spec."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.paths:
                return (*self.paths[path[:length]], *path[length:])
        return path[:1]

    @property
    def refusals(self) -> Iterator[Refusal]:
        """The API server's refusals of the pod that the backend makes, each with its path in the settings."""
        for one in refusals_of(self.spec):
            yield one._replace(path=self.path(one.path))


def pod_fields(kubernetes: Mapping[str, Any]) -> PodFields:
    """The tolerations, node selector and node affinity of an executor's entry under ``platforms.kubernetes``.

    An entry of affinity without a condition is left out, one with a weight is a preference, and a selector given as JSON
    replaces the labels, even if empty. References must have been replaced by values of the run. Source: ``extendPodSpecPatch``
    in ``backend/src/v2/driver/k8s.go`` of kubeflow/pipelines. Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for
    settings of another shape.
    """
    spec: dict[str, Any] = {}
    paths: dict[Path, Path] = {}
    selector = kubernetes.get("nodeSelector") or {}
    name = "labels" if selector.get("nodeSelectorJson") is None else "nodeSelectorJson"
    labels, at = _constant(selector, ("nodeSelector", name))
    if labels:
        _check_mapping("nodeSelector", labels)
        spec["nodeSelector"], paths["nodeSelector",] = dict(labels), at
    tolerations = spec["tolerations"] = []
    for index, entry in enumerate(kubernetes.get("tolerations") or ()):
        for item, at in _tolerations(entry, ("tolerations", index)):
            paths["tolerations", len(tolerations)] = at
            tolerations.append(item)
    required: list[Any] = []
    preferred: list[Any] = []
    for index, entry in enumerate(kubernetes.get("nodeAffinity") or ()):
        _add_affinity(entry, ("nodeAffinity", index), required, preferred, paths)
    nodes = {REQUIRED[-1]: {TERMS[-1]: required} if required else None, PREFERRED[-1]: preferred or None}
    affinity = {key: value for key, value in nodes.items() if value}
    spec["affinity"] = {"nodeAffinity": affinity} if affinity else {}
    return PodFields({key: value for key, value in spec.items() if value}, paths)


def _constant(holder: Mapping[str, Any], path: Path) -> tuple[Any, Path]:
    """The value of a field, and its path; for a run-time value that is a constant, the constant's."""
    value = holder.get(str(path[-1]))
    if isinstance(value, Mapping) and set(value) == {"runtimeValue"}:
        return value["runtimeValue"].get("constant"), (*path, "runtimeValue", "constant")
    return value, path


def _tolerations(entry: Mapping[str, Any], path: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """The tolerations of one entry, each with its path. ``tolerationJson`` may hold one, a list of them, or none."""
    if "tolerationJson" not in entry:
        seconds = _whole(entry.get("tolerationSeconds"))
        yield nonempty({**{key: entry.get(key) for key in _TOLERATION}, "tolerationSeconds": seconds}), path
        return
    given, at = _constant(entry, (*path, "tolerationJson"))
    several = isinstance(given, list)
    for index, each in enumerate(given if several else [given] if given else []):
        _check_mapping("tolerationJson", each)
        yield nonempty({key: each.get(key) for key in _TOLERATION}), (*at, index) if several else at


_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")


def _add_affinity(
    entry: Mapping[str, Any], path: Path, required: list[Any], preferred: list[Any], paths: dict[Path, Path]
) -> None:
    """Add one entry. Each required one is an alternative."""
    if entry.get("nodeAffinityJson") is not None:
        whole, at = _constant(entry, (*path, "nodeAffinityJson"))
        _check_mapping("nodeAffinityJson", whole or {})
        for name, found, inner in ((REQUIRED[-1], required, TERMS[-1:]), (PREFERRED[-1], preferred, ())):
            given: Any = (whole or {}).get(name)
            for index, term in enumerate((given.get(TERMS[-1]) if given and inner else given) or ()):
                paths[(*(TERMS if inner else PREFERRED), len(found))] = (*at, name, *inner, index)
                found.append(term)
        return
    term = nonempty({key: entry.get(key) for key in ("matchExpressions", "matchFields")})
    if not term:
        return
    if entry.get("weight") is None:
        paths[(*TERMS, len(required))] = path
        required.append(term)
    else:
        paths[(*PREFERRED, len(preferred))] = paths[(*PREFERRED, len(preferred), "preference")] = path
        preferred.append({"weight": _whole(entry["weight"]), "preference": term})


def _whole(value: Any) -> Any:
    """A whole number of a message, which protobuf may write as a string or with a point; another value as it is."""
    is_whole = isinstance(value, str) and _INTEGER.fullmatch(value)
    return int(value) if is_whole or (isinstance(value, float) and value.is_integer()) else value


_INTEGER = re.compile(r"-?\d{1,19}")


def nonempty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: Go's JSON leaves out empty ones."""
    return {key: value for key, value in fields.items() if value not in (None, "", [])}


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a mapping, found {value!r:.60}")


_MAX_COUNT = 2**31  # an int32, by pipeline_spec.proto of kubeflow/pipelines


def read_retry(retry: Mapping[str, Any] | None, timeout: float | None) -> Layer | None:
    """The policy layer of ``set_retry`` and ``set_timeout``; ``None`` when neither was called.

    The SDK writes a first backoff of zero where the user gave none (``structures.py``, ``RetryPolicy.to_proto``), so zero
    counts as unset, and the policy's backoff applies. With a newer SDK's policy for errors of the cluster only, failures of the
    code are not retried, as in Argo. Raises ``ValueError`` for an invalid duration or number.
    """
    values: dict[str, Any] = {}
    if retry is not None:
        of_code = RETRY_POLICIES.get(str(retry.get("policy") or ""), True)
        count, factor = retry.get("maxRetryCount") or 0, float(retry.get("backoffFactor") or 2.0)
        if not float(count) < _MAX_COUNT or not math.isfinite(factor):
            raise ValueError(
                f"maxRetryCount {count} with backoffFactor {factor:g}: expected an int32 and a finite number"
            )
        values["errors.retries"] = int(count) if of_code else 0
        first = parse_duration(retry.get("backoffDuration") or 0)
        if first:
            values["errors.backoff"] = first
            values["errors.factor"] = max(1.0, factor)
            values["errors.max_backoff"] = parse_duration(retry.get("backoffMaxDuration") or "3600s")
    if timeout is not None:
        values["timeout"] = timeout
    calls = [name for name, given in (("set_retry", retry), ("set_timeout", timeout)) if given is not None]
    return Layer(" and ".join(calls), values) if calls else None


def read_policy_text(text: Any) -> Layer:
    """The policy that a compiled pipeline carries as one JSON text. Raises ``ValueError`` or ``TypeError`` for another text."""
    policy = json.loads(text)
    if not isinstance(policy, dict):
        raise TypeError("its policy is not a JSON object")
    return parse_policy(policy, _IN_PIPELINE)
