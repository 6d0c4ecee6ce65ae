"""Read the settings of a compiled KFP task: resources, tolerations, selectors, affinity, retries and policy.

They are read both to run a pipeline and to place a compiled file for a cluster, and both must read the same. Sources:
``backend/src/v2/driver/k8s.go`` and ``container.go`` of kubeflow/pipelines, ``kfp/dsl/structures.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from spotwright.model.policy import Layer, parse_policy
from spotwright.model.quantities import parse_duration, parse_resource
from spotwright.model.scheduling_terms import Constraints, Expression, Preference, Term, Toleration, is_placeholder

__all__ = [
    "RETRY_POLICIES",
    "accelerator_loss",
    "read_constraints",
    "read_policy_text",
    "read_resources",
    "read_retry",
    "runtime_field",
    "with_constants",
]


RETRY_POLICIES = {
    "POLICY_UNSPECIFIED": True,
    "POLICY_ALWAYS": True,
    "POLICY_ON_FAILURE": True,
    "POLICY_ON_ERROR": False,
    "POLICY_ON_TRANSIENT_ERROR": False,
}
"""Policies of ``set_retry`` in newer SDKs: whether failures of the task's own code are retried too."""

_IN_PIPELINE = "the pipeline"  # the place that explain names for what the compiled file says


def read_resources(resources: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of a container's ``resources``. The fields that start with ``resource`` are newer and win.

    A limit counts as a request where there is none, as in Kubernetes. Raises ``ValueError`` for a value that is no quantity.
    """
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
        limits[_device(str(kind))] = count
    return {**limits, **requests}, limits


def accelerator_loss(resources: Mapping[str, Any]) -> str:
    """Why the backend gives a container none of the accelerators that it asks for; empty if it gives them, or asks for none.

    The backend writes the type into the pod as the name of a resource, and writes nothing where the type or the count is missing.
    Source: kubeflow/pipelines, ``backend/src/v2/driver/driver.go``, ``initPodSpecPatch``.
    """
    accelerator = resources.get("accelerator")
    if not isinstance(accelerator, Mapping) or not accelerator:
        return ""
    kind = str(accelerator.get("resourceType") or accelerator.get("type") or "")
    count = str(accelerator.get("resourceCount") or accelerator.get("count") or "")
    if not kind:
        return f"sets the number of accelerators ({count}) and no type, so KFP's backend gives it none" if count else ""
    if not count:
        return f"sets the accelerator type {kind} and no number, so KFP's backend gives it none"
    if is_placeholder(kind) or "/" in kind:
        return ""
    return f"sets the accelerator type {kind}, which KFP's backend writes as the name of a resource, and no node offers {kind}"


def _device(kind: str) -> str:
    """The device name in Kubernetes for an accelerator's type.

    Names of Vertex AI (``NVIDIA_TESLA_T4``, ``TPU_V3``) and of GKE's label (``nvidia-l4``) have no domain, so no node of a
    cluster offers them (:func:`accelerator_loss`). On simulated nodes they count as ``nvidia.com/gpu`` and ``google.com/tpu``.
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
    """The field with which a parameter decides at run time where the pods go; empty if there is none."""
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


def read_constraints(kubernetes: Mapping[str, Any]) -> Constraints:
    """Tolerations, node selector and node affinity of an executor's entry under ``platforms.kubernetes``.

    References in ``*Json`` values must have been replaced by the values of the run. Raises ``ValueError``, ``TypeError``,
    ``AttributeError`` or ``KeyError`` for settings of another shape.
    """
    tolerations = [t for entry in kubernetes.get("tolerations") or () for t in _read_tolerations(entry)]
    selector = kubernetes.get("nodeSelector") or {}
    labels = selector.get("nodeSelectorJson") or selector.get("labels") or {}
    _check_mapping("nodeSelector", labels)
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
        for each in given if isinstance(given, list) else [given]:
            _check_mapping("tolerationJson", each)
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
        _check_mapping("nodeAffinityJson", whole)
        demands = whole.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        required += [_read_term(term) for term in demands.get("nodeSelectorTerms") or ()]
        wishes = whole.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        preferred += [Preference(int(wish["weight"]), _read_term(wish["preference"])) for wish in wishes]
    elif entry.get("weight"):
        preferred.append(Preference(int(entry["weight"]), _read_term(entry)))
    else:
        required.append(_read_term(entry))


def _check_mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: expected a mapping, found {value!r:.60}")


def _read_term(term: Mapping[str, Any]) -> Term:
    return Term(_read_expressions(term.get("matchExpressions")), _read_expressions(term.get("matchFields")))


def _read_expressions(entries: Any) -> tuple[Expression, ...]:
    return tuple(
        Expression(str(e["key"]), str(e["operator"]), tuple(str(v) for v in e.get("values") or ()))
        for e in entries or ()
    )


_MAX_COUNT = 2**31  # an int32, by pipeline_spec.proto of kubeflow/pipelines


def read_retry(retry: Mapping[str, Any] | None, timeout: float | None) -> Layer | None:
    """The policy layer of ``set_retry`` and ``set_timeout``; ``None`` when neither was called.

    The SDK writes a first backoff of zero where the user gave none (``structures.py``, ``RetryPolicy.to_proto``), so zero
    counts as left out, and the backoff of the policy holds. With a policy of newer SDKs that names errors of the cluster
    only, failures of the code are not retried, as in Argo. Raises ``ValueError`` for a value that is no duration, or no number.
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
            values["errors.ceiling"] = parse_duration(retry.get("backoffMaxDuration") or "3600s")
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
