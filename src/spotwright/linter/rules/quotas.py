"""Rules on what a namespace allows: pods that a ResourceQuota beside them refuses, and more of them than it holds at once.

A quota counts the pods of its namespace together, so what other work uses comes on top: a rule here speaks of the pods of one
template alone, which no other work can help. Pods that a pipeline makes have no namespace in its file.

Sources: Kubernetes 1.35, ``pkg/quota/v1/evaluator/core/pods.go`` (``Constraints``, ``podComputeUsageHelper``,
``podMatchesScopeFunc``), and documentation, "Resource Quotas".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.kube.admission import is_in, object_name
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job
from spotwright.linter.rules.capacity import needed_at_once
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import Pods, Shape, items_of, mapping_at, mapping_of, texts_of
from spotwright.model.pools import Resources
from spotwright.model.quantities import parse_resource
from spotwright.model.scheduling_terms import Expression, is_placeholder
from spotwright.placing.pod_spec import pod_requests
from spotwright.scheduling.ladder import EVERYWHERE, amount_text

__all__ = ["RULES"]

_PODS = frozenset({"pods", "count/pods"})
_STATED = frozenset({"cpu", "memory"})  # a quota of them refuses containers that state none


class _Bound(NamedTuple):
    """One bound of a quota: its key there, whether of ``requests``, ``limits`` or ``pods``, of which resource, and how much."""

    key: str
    field: str
    name: str
    most: int


def _quotas(pods: Pods) -> Iterator[tuple[str, list[_Bound]]]:
    """The quotas that count the pods, each with its name and its bounds on them."""
    owner = pods.owner
    for one in owner.beside.of_kind("ResourceQuota") if owner is not None and not pods.is_partial else ():
        if is_in(one, owner.namespace if owner is not None else None) and _counts(mapping_at(one, "spec"), pods):
            yield object_name(one), list(_bounds(mapping_at(one, "spec", "hard")))


def _bounds(hard: Shape) -> Iterator[_Bound]:
    for key, value in hard.items():
        field, dot, name = str(key).partition(".")
        if key in _PODS:
            field, name = "pods", "pods"
        elif key in EVERYWHERE or str(key).startswith("hugepages-"):  # without "requests."
            field, name = "requests", str(key)
        elif not dot or field not in ("requests", "limits") or name == "storage":
            continue  # of other objects
        try:
            if not is_placeholder(value):
                yield _Bound(str(key), field, name, parse_resource(name, value))
        except (ValueError, TypeError):
            continue  # another rule names it


def _counts(quota: Shape, pods: Pods) -> bool:
    """Whether a quota counts the pods, by its scopes. One on the affinity to other namespaces is never about these rules."""
    scopes = [Expression(one, "Exists") for one in texts_of(quota.get("scopes"))]
    for given in map(mapping_of, items_of(mapping_at(quota, "scopeSelector").get("matchExpressions"))):
        values = tuple(texts_of(given.get("values")))
        scopes.append(Expression(str(given.get("scopeName")), str(given.get("operator")), values))
    return all(_is_in_scope(one, pods) for one in scopes)


def _is_in_scope(scope: Expression, pods: Pods) -> bool:
    if scope.key == "PriorityClass":
        named = pods.value.get("priorityClassName")
        return scope.matches({scope.key: str(named)} if named else {})
    is_ended = "activeDeadlineSeconds" in pods.as_admitted
    is_best_effort = _STATED.isdisjoint([name for _, stated in _stated(pods) for name in stated])
    in_scope = {
        "Terminating": is_ended,
        "NotTerminating": not is_ended,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }
    return in_scope.get(scope.key, False)


def _stated(pods: Pods) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each container with its name, and what it states: its limits, and its requests, for which a limit counts too."""
    for field in ("containers", "initContainers"):
        for container in map(mapping_of, items_of(pods.as_admitted.get(field))):
            limits = {
                **mapping_at(pods.as_admitted, "resources", "limits"),
                **mapping_at(container, "resources", "limits"),
            }
            requests = {
                **limits,
                **mapping_at(pods.as_admitted, "resources", "requests"),
                **mapping_at(container, "resources", "requests"),
            }
            yield (
                str(container.get("name") or "main"),
                requests | {f"limits.{name}": each for name, each in limits.items()},
            )


def _refused(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Pods of which the quota admits not even one."""
    for quota, bounds in _quotas(pods) if pods.containers else ():
        for container, stated in _stated(pods):
            missing = sorted(one.key for one in bounds if one.name in _STATED and _key(one) not in stated)
            if missing:
                what = f"pods with a container that does not state {', '.join(missing)}: {container}"
                text = f"{pods.label}: {quota} refuses {what}"
                yield Problem(pods.spec, text, "State it in each container, or write a LimitRange with defaults.")
                return
        for one in bounds:
            asked = _used(pods, one)
            if asked > one.most:
                more = f"{_shown(one, one.most)}, and one pod has {_shown(one, asked)}"
                text = f"{pods.label}: {quota} allows {'no pods' if one.field == 'pods' else more}"
                yield Problem(pods.spec, text)


def _key(one: _Bound) -> str:
    return f"limits.{one.name}" if one.field == "limits" else one.name


def _used(pods: Pods, one: _Bound) -> int:
    """What one pod uses of a bound; 0 where that cannot be read, which another rule says."""
    if one.field == "pods":
        return 1
    try:
        return (_limits(pods) if one.field == "limits" else pods.requests).get(one.name, 0)
    except (ValueError, TypeError, AttributeError):
        return 0


def _limits(pods: Pods) -> Resources:
    """The limits of one pod, summed as its requests are."""
    pod: dict[str, Any] = {"overhead": pods.as_admitted.get("overhead"), **_limits_alone(pods.as_admitted)}
    for field in ("containers", "initContainers"):
        pod[field] = [_limits_alone(mapping_of(one)) for one in items_of(pods.as_admitted.get(field))]
    return pod_requests(pod)


def _limits_alone(given: Shape) -> dict[str, Any]:
    return {"resources": {"requests": mapping_at(given, "resources", "limits")}}


def _shown(one: _Bound, amount: int) -> str:
    return f"{amount_text(one.name, amount)}{' of limits' if one.field == 'limits' else ''}"


def _fewer(pods: Pods, *, is_gang: bool) -> Iterator[tuple[str, int, int]]:
    """Quotas that hold fewer of the pods than there are at once: the name of each, how many it holds, and how many there are."""
    group = pods.group
    if group is None or group.at_once is None or group.is_gang is not is_gang or not pods.containers:
        return
    needed = min(group.at_once, needed_at_once(pods)) if is_gang else group.at_once
    for quota, bounds in _quotas(pods):
        held = min((one.most // used for one in bounds if (used := _used(pods, one)) > 0), default=needed)
        if 0 < held < needed:
            yield quota, held, needed


def _gang(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for quota, held, needed in _fewer(pods, is_gang=True):
        text = f"{pods.label} has {needed} pods that start together, and {quota} holds {held} at most"
        yield Problem(pods.spec, text)


def _some(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    for quota, held, needed in _fewer(pods, is_gang=False):
        text = f"{pods.label} has {needed} pods at once, and {quota} holds {held}: the others are made as these end"
        yield Problem(pods.spec, text)


_QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: team}}\nspec:\n  hard: {hard}\n---\n"
_SIZE = "resources: {requests: {cpu: 2}, limits: {memory: 4Gi}}\n"
_GANG = (
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: train}\nspec:\n  schedulerName: volcano\n"
    "  minAvailable: 4\n  tasks:\n  - name: worker\n    replicas: 4\n    template:\n      spec:\n"
    "        containers: [{name: main, image: 'trainer:1', resources: {requests: {cpu: 4}}}]\n"
)

RULES = (
    Rule(
        id="quota-refuses-pods",
        severity=Severity.ERROR,
        title="Pods that a ResourceQuota of their namespace refuses",
        why="The API server makes no pod that would go over a quota, and none that leaves out what a quota of cpu or memory "
        "counts. The object is created, its pods never are, and only an event says why.",
        fix="Ask for less in a pod, or raise the quota.",
        fails=_QUOTA.format(hard="{requests.cpu: 8, limits.memory: 32Gi}") + job(ON_SPOT),
        passes=_QUOTA.format(hard="{requests.cpu: 8, limits.memory: 32Gi}") + job(ON_SPOT, container=_SIZE),
        checks=Checks(pods=_refused),
        source='Kubernetes documentation, "Resource Quotas"',
    ),
    Rule(
        id="gang-larger-than-quota",
        severity=Severity.WARNING,
        title="More pods that start together than a ResourceQuota holds",
        why="A gang starts whole or not at all. If the quota of its namespace holds fewer of its pods, it waits for ever.",
        fix="Raise the quota, or let fewer pods start together.",
        fails=_QUOTA.format(hard="{requests.cpu: 8}") + _GANG,
        passes=_QUOTA.format(hard="{requests.cpu: 16}") + _GANG,
        checks=Checks(pods=_gang),
        source='Kubernetes documentation, "Resource Quotas"',
    ),
    Rule(
        id="quota-holds-fewer-pods",
        severity=Severity.NOTE,
        title="Fewer pods at once than the object asks for",
        why="The quota of the namespace holds some of the pods. The rest are made as these end, so the work takes longer, and a "
        "replacement of an interrupted pod waits for its place too.",
        fix="Raise the quota, or lower parallelism.",
        fails=_QUOTA.format(hard="{pods: 4}") + job(ON_SPOT, spec="parallelism: 8\n"),
        passes=_QUOTA.format(hard="{pods: 8}") + job(ON_SPOT, spec="parallelism: 8\n"),
        checks=Checks(pods=_some),
        source='Kubernetes documentation, "Resource Quotas"',
    ),
)
"""The rules of this module."""
