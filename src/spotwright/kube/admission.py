"""The additions of a cluster to new pods, as far as the given objects show them.

The scheduler sees more than a pod's own fields: its namespace may have a node selector and default requests, its runtime class an
overhead, a selector and tolerations, and a PodDefault of Kubeflow tolerations, variables and volumes. Placement, lint and the
check of pools read pods as admitted, so that they agree. Without the object an addition is unknown, and the pod is read as
written.

Sources: Kubernetes 1.35, ``plugin/pkg/admission/podnodeselector``, ``plugin/pkg/admission/limitranger``,
``plugin/pkg/admission/runtimeclass`` and ``pkg/apis/core/v1/defaults.go`` (``SetDefaults_LimitRangeItem``); OpenShift's
documentation, "Creating project-wide node selectors"; kubeflow/dashboard, ``components/admission-webhook``
(``filterPodDefaults``, ``applyPodDefaultsOnPod``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from spotwright.kube.object_fields import mapping, mappings, metadata
from spotwright.kube.pod import is_selected
from spotwright.model.quantities import parse_resource
from spotwright.model.scheduling_terms import is_placeholder

__all__ = [
    "ADMITTING",
    "COUNTED",
    "SYSTEM_CLASSES",
    "Added",
    "Others",
    "Priority",
    "Unreadable",
    "additions",
    "admitted",
    "contradiction",
    "faulty",
    "is_in",
    "namespace_selector",
    "no_others",
    "object_name",
    "priority",
    "unreadable",
]

Others = Callable[[str], Iterable[Mapping[str, Any]]]
"""The given objects of a kind."""

ADMITTING = ("LimitRange", "Namespace", "PodDefault", "RuntimeClass")
"""The kinds of the objects that add fields to pods."""

COUNTED = (*ADMITTING, "ResourceQuota")
"""The kinds whose quantities count for pods."""

_QUANTITIES = ("default", "defaultRequest", "max", "min")
_SELECTORS = ("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector")


def no_others(_kind: str) -> Iterable[Mapping[str, Any]]:
    """No given objects."""
    return ()


class Added(NamedTuple):
    """The fields that an object adds to a pod. ``maker`` is its name in messages: ``namespace team``, ``RuntimeClass kata``.

    ``limits`` and ``requests`` are defaults of containers, ``overhead`` is the pod's. ``lists`` are more items for lists of the
    pod (``tolerations``, ``volumes``), ``in_containers`` for lists of each container that is no init container.
    """

    maker: str
    selector: Mapping[str, Any] = {}
    overhead: Mapping[str, Any] = {}
    limits: Mapping[str, Any] = {}
    requests: Mapping[str, Any] = {}
    lists: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    in_containers: Mapping[str, Sequence[Mapping[str, Any]]] = {}


class Unreadable(NamedTuple):
    """An unreadable quantity in an object: its path, and why. API servers refuse the object, so it has no effect."""

    path: tuple[str | int, ...]
    text: str


def admitted(
    spec: Mapping[str, Any], namespace: str | None, others: Others, labels: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """A pod spec with the cluster's additions; the same one without known additions.

    ``namespace`` and ``labels`` are the pod's; an empty namespace or ``None`` matches objects without one. The pod's own
    selector wins over another value in the namespace: :func:`contradiction`.
    """
    added: dict[str, Any] = {}
    own = mapping(spec.get("nodeSelector"))
    selector = {**own}
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    items: dict[str, list[Any]] = {}
    for one in additions(spec, namespace, others, labels):
        selector = {**one.selector, **selector}
        limits, requests = {**one.limits, **limits}, {**one.requests, **requests}
        added |= _longer({**spec, **added}, one.lists)
        for name, more in one.in_containers.items():
            items.setdefault(name, []).extend(more)
        if one.overhead:
            added["overhead"] = one.overhead
    if selector.keys() - own.keys():
        added["nodeSelector"] = selector
    for name in ("containers", "initContainers") if limits or requests or items else ():
        if isinstance(containers := spec.get(name), list):
            further = items if name == "containers" else {}
            added[name] = [_with_defaults(one, limits, requests, further) for one in containers]
    return {**spec, **added} if added else spec


def _longer(given: Mapping[str, Any], lists: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The lists of a mapping, with more items at their ends."""
    own = {name: given.get(name) for name in lists}
    return {name: [*(old if isinstance(old := own[name], list) else ()), *more] for name, more in lists.items() if more}


def additions(
    spec: Mapping[str, Any], namespace: str | None, others: Others, labels: Mapping[str, Any] | None = None
) -> Iterator[Added]:
    """Each object's additions to a pod with these labels; of several values for one key the first counts."""
    if selector := namespace_selector(namespace, others):
        yield Added(f"namespace {namespace}", selector)
    for one in _adding(spec, namespace, others):
        if any(True for _ in unreadable(one)):
            continue
        scheduling, overhead = mapping(one.get("scheduling")), mapping(mapping(one.get("overhead")).get("podFixed"))
        if scheduling or overhead:
            lists = {"tolerations": mappings(scheduling.get("tolerations"))}
            yield Added(object_name(one), mapping(scheduling.get("nodeSelector")), overhead, lists=lists)
        for item in mappings(mapping(one.get("spec")).get("limits")):
            if item.get("type") == "Container":
                limits = {**mapping(item.get("max")), **mapping(item.get("default"))}
                requests = {**mapping(item.get("min")), **limits, **mapping(item.get("defaultRequest"))}
                yield Added(object_name(one), limits=limits, requests=requests)
    for one in others("PodDefault"):
        wanted = mapping(one.get("spec"))
        if is_in(one, namespace) and is_selected(wanted.get("selector"), labels or {}):
            lists = {name: mappings(wanted.get(name)) for name in ("tolerations", "volumes")}
            in_containers = {name: mappings(wanted.get(name)) for name in ("env", "volumeMounts")}
            yield Added(object_name(one), lists=lists, in_containers=in_containers)


def unreadable(one: Mapping[str, Any]) -> Iterator[Unreadable]:
    """The unreadable quantities of a LimitRange, a ResourceQuota or a RuntimeClass, without placeholders."""
    if one.get("kind") not in COUNTED:
        return
    limits = mapping(one.get("spec")).get("limits")
    held: list[tuple[tuple[str | int, ...], Any]] = [
        (("overhead", "podFixed"), mapping(one.get("overhead")).get("podFixed")),
        (("spec", "hard"), mapping(one.get("spec")).get("hard")),
    ]
    for index, item in enumerate(limits if isinstance(limits, list) else ()):
        held += [(("spec", "limits", index, name), mapping(item).get(name)) for name in _QUANTITIES]
    for path, quantities in held:
        for name, value in mapping(quantities).items():
            try:
                if not is_placeholder(value):
                    parse_resource(str(name), value)
            except (ValueError, TypeError) as error:
                yield Unreadable((*path, name), str(error))


def faulty(spec: Mapping[str, Any], namespace: str | None, others: Others) -> Iterator[tuple[str, Unreadable]]:
    """The objects whose additions to a pod are unreadable: each one's name, and its first unreadable quantity."""
    for one in _adding(spec, namespace, others):
        for wrong in islice(unreadable(one), 1):
            yield object_name(one), wrong


def object_name(one: Mapping[str, Any]) -> str:
    """An object as messages name it: ``LimitRange defaults``."""
    return f"{one.get('kind')} {metadata(one).get('name')}"


def _adding(spec: Mapping[str, Any], namespace: str | None, others: Others) -> Iterator[Mapping[str, Any]]:
    """The RuntimeClass of a pod, and the LimitRanges of its namespace."""
    named = spec.get("runtimeClassName")
    yield from islice((one for one in (others("RuntimeClass") if named else ()) if _is_named(one, named)), 1)
    yield from (one for one in others("LimitRange") if is_in(one, namespace))


def namespace_selector(namespace: str | None, others: Others) -> dict[str, str]:
    """The node selector that a namespace adds to its pods; empty if it has none, or is unknown."""
    for one in others("Namespace") if namespace else ():
        if _is_named(one, namespace):
            notes = mapping(metadata(one).get("annotations"))
            texts = [notes[key] for key in _SELECTORS if isinstance(notes.get(key), str)]
            pairs = (part.partition("=") for text in texts for part in text.split(","))
            return {key.strip(): value.strip() for key, equals, value in pairs if equals}
    return {}


def contradiction(spec: Mapping[str, Any], namespace: str | None, others: Others) -> tuple[str, str] | None:
    """A key of the pod's node selector with another value in its namespace, and that value: the API server refuses the pod."""
    own = mapping(spec.get("nodeSelector"))
    wanted = namespace_selector(namespace, others)
    return next(((key, value) for key, value in wanted.items() if key in own and str(own[key]) != value), None)


SYSTEM_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priority classes that every cluster has."""


class Priority(NamedTuple):
    """The priority of a pod, and its source: ``PriorityClass batch``, or ``its priority``."""

    value: int
    maker: str


def priority(spec: Mapping[str, Any], others: Others) -> Priority | None:
    """The priority of a pod as admitted; ``None`` if its class is unknown, or its value is not an integer.

    A pod without a class has the value of the cluster's default class, else 0. Source: Kubernetes,
    ``plugin/pkg/admission/priority``.
    """
    named, given = spec.get("priorityClassName"), spec.get("priority")
    if not named and isinstance(given, int) and _is_whole(given):
        return Priority(given, "its priority")
    if isinstance(named, str) and named in SYSTEM_CLASSES:
        return Priority(SYSTEM_CLASSES[named], f"PriorityClass {named}")
    for one in others("PriorityClass"):
        is_its = _is_named(one, named) if named else one.get("globalDefault") is True
        value = one.get("value") or 0
        if is_its and _is_whole(value):
            return Priority(value, object_name(one))
    return None if named else Priority(0, "no PriorityClass")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _with_defaults(
    container: Any, limits: Mapping[str, Any], requests: Mapping[str, Any], items: Mapping[str, Sequence[Any]]
) -> Any:
    """A container with default limits and requests, and more items in its lists; its own limit is also its request."""
    if not isinstance(container, Mapping):
        return container
    container = {**container, **_longer(container, items)} if items else container
    resources = container.get("resources") or {}
    if not isinstance(resources, Mapping) or not (limits or requests):
        return container
    own = mapping(resources.get("limits"))
    missing = {key: value for key, value in requests.items() if key not in own}
    both = {"limits": {**limits, **own}, "requests": {**missing, **mapping(resources.get("requests"))}}
    return {**container, "resources": {**resources, **both}}


def is_in(one: Mapping[str, Any], namespace: str | None) -> bool:
    """Whether an object is in the namespace of a pod; of two without a namespace each is in that of the other."""
    return (metadata(one).get("namespace") or "") == (namespace or "")


def _is_named(one: Mapping[str, Any], name: Any) -> bool:
    return isinstance(name, str) and metadata(one).get("name") == name
