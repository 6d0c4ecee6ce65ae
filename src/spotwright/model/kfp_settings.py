"""What a compiled KFP task says, in this vocabulary: resources, tolerations, selectors, affinity, retries and policy.

They are read in two places that must agree: where a pipeline runs, and where a compiled file is placed for a cluster. Sources:
``backend/src/v2/driver/k8s.go`` and ``container.go`` of kubeflow/pipelines, ``kfp/dsl/structures.py``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from spotwright.model.placing import Constraints, Expression, Preference, Term, Toleration
from spotwright.model.policy import Layer
from spotwright.model.policy_values import parse_policy
from spotwright.model.quantities import parse_duration, parse_resource

__all__ = [
    "RETRY_POLICIES",
    "group_names",
    "inherit_retry",
    "is_group",
    "read_constraints",
    "read_policy_text",
    "read_resources",
    "read_retry",
]

RETRY_POLICIES = {
    "POLICY_UNSPECIFIED": True,
    "POLICY_ALWAYS": True,
    "POLICY_ON_FAILURE": True,
    "POLICY_ON_ERROR": False,
    "POLICY_ON_TRANSIENT_ERROR": False,
}
"""What newer SDKs can say of ``set_retry``, by name: whether the failures of a task's own code are retried too."""

_IN_PIPELINE = "the pipeline"  # the place that explain names for what the compiled file says
_GROUP = re.compile(r"(?:for-loop|condition|condition-branches|exit-handler)-\d+")


def read_resources(resources: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Requests and limits of a container's ``resources``. The fields that start with ``resource`` are newer and win.

    A limit counts as a request where there is none, as in Kubernetes. Raises ``ValueError`` for what is no quantity.
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


def _device(kind: str) -> str:
    """The device that an accelerator's type means.

    Names of Vertex AI (``NVIDIA_TESLA_T4``, ``TPU_V3``) have no domain, so no node of a cluster could have them: they count
    as what Kubernetes calls a GPU of NVIDIA and a TPU.
    """
    if "/" in kind:
        return kind
    if kind.upper().startswith("NVIDIA"):
        return "nvidia.com/gpu"
    return "google.com/tpu" if kind.upper().startswith("TPU") else kind


def read_constraints(kubernetes: Mapping[str, Any]) -> Constraints:
    """Tolerations, node selector and node affinity of an executor's entry under ``platforms.kubernetes``.

    Values that are known only in a run (``*Json``) must have been put in before. Raises ``ValueError``, ``TypeError``,
    ``AttributeError`` or ``KeyError`` for what has another shape.
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


def read_retry(retry: Mapping[str, Any] | None, timeout: float | None) -> Layer | None:
    """The policy layer of ``set_retry`` and ``set_timeout``; ``None`` when neither was called.

    The SDK writes a first backoff of zero where the user gave none (``structures.py``, ``RetryPolicy.to_proto``), so zero
    counts as not said and the policy's own backoff holds. A policy of newer SDKs that names errors of the cluster alone keeps
    the code's own failures from being retried, as Argo does. Raises ``ValueError`` for a value that is no duration.
    """
    values: dict[str, Any] = {}
    if retry is not None:
        of_code = RETRY_POLICIES.get(str(retry.get("policy") or ""), True)
        values["errors.retries"] = int(retry.get("maxRetryCount") or 0) if of_code else 0
        first = parse_duration(retry.get("backoffDuration") or 0)
        if first:
            values["errors.backoff"] = first
            values["errors.factor"] = max(1.0, float(retry.get("backoffFactor") or 2.0))
            values["errors.ceiling"] = parse_duration(retry.get("backoffMaxDuration") or "3600s")
    if timeout is not None:
        values["timeout"] = timeout
    said = [name for name, there in (("set_retry", retry is not None), ("set_timeout", timeout is not None)) if there]
    return Layer(" and ".join(said), values) if said else None


def group_names(tasks: Mapping[str, Any]) -> dict[str, str]:
    """The names of a DAG's tasks by their keys: a loop, condition or exit handler that was given a name has that one.

    The compiler keys such a group ``for-loop-12`` and keeps ``ParallelFor(name="loop")`` as its display name. A name that is
    not the group's alone, or cannot be a part of a path, does not count.
    """
    shown = {key: str((task.get("taskInfo") or {}).get("name") or key) for key, task in tasks.items()}
    groups = {key for key, task in tasks.items() if is_group(key, task)}
    taken = Counter(shown[key] if key in groups else key for key in tasks)
    return {
        key: shown[key]
        if key in groups and taken[shown[key]] == 1 and shown[key] not in tasks and _is_name(shown[key])
        else key
        for key in tasks
    }


def is_group(key: str, task: Mapping[str, Any]) -> bool:
    """Whether a task is a loop, condition or exit handler that the compiler made, by its key in the document."""
    return _GROUP.fullmatch(key) is not None and "cachingOptions" not in task


def _is_name(text: str) -> bool:
    return "/" not in text and text not in (".", "..") and text.isprintable() and len(text) <= 100


def inherit_retry(own: Layer | None, above: Layer | None) -> Layer | None:
    """The layer of a task inside a pipeline that is a task itself: its ``set_retry`` counts where the task has none.

    ``above`` is the nearest such layer. Source: ``backend/src/v2/compiler/visitor.go``.
    """
    if own is None or above is None or "errors.retries" in own.values:
        return own or above
    return Layer(f"{above.source} and {own.source}", {**above.values, **own.values})


def read_policy_text(text: Any) -> Layer:
    """The policy that a compiled pipeline carries as one JSON text. Raises ``ValueError`` or ``TypeError`` for another text."""
    policy = json.loads(text)
    if not isinstance(policy, dict):
        raise TypeError("its policy is no JSON object")
    return parse_policy(policy, _IN_PIPELINE)
