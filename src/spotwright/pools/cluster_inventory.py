"""The inventory for the checks: the pools with their nodes, the DaemonSets and kubelets, and the pods of manifests.

It is read from the output of ``kubectl get ... -o json``. When a node shuts down, its kubelet ends pods in phases, by priority.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from spotwright.clouds import node_labels, providers
from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.clouds.node_signs import is_passing_taint
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.kinds.argo_steps import argo_version, code_paths, effective, templates
from spotwright.kinds.kind import Retry, kind_of, kinds_of_every_node
from spotwright.kinds.situation import objects_within
from spotwright.kube.admission import (
    ADMITTING,
    SYSTEM_CLASSES,
    Others,
    Unreadable,
    admitted,
    no_others,
    object_name,
    unreadable,
)
from spotwright.kube.object_fields import mapping, metadata
from spotwright.kube.pod import refusals_of, scheduling_of
from spotwright.model.not_judged import NotJudged, Subject
from spotwright.model.pools import Pool, Resources
from spotwright.model.quantities import parse_duration
from spotwright.model.scheduling_terms import Constraints, Taint
from spotwright.placing.documents import ManifestError, Path, parse, show
from spotwright.placing.patch import data_document, value_at
from spotwright.placing.pod_spec import POD, PodSpecError, check_value, pod_requests
from spotwright.pools.autoscaler_config_maps import priorities_of, status_of
from spotwright.pools.node_pool_files import TOOLS, is_listing
from spotwright.pools.pool_objects import MADE_BY, why_unread
from spotwright.pools.request import (
    API_MODEL,
    CONFIG_MAP,
    KUBELET,
    NODE,
    NODE_POOL,
    PRIORITY_CLASS,
    find_wrong,
    word_for,
)
from spotwright.pools.terraform_files import Unread, is_terraform, manifests
from spotwright.scheduling.ladder import SIZE_UNKNOWN, STATE_NODE, too_large

__all__ = [
    "ClusterInventory",
    "Finding",
    "Objects",
    "Phase",
    "PodWork",
    "Severity",
    "Shutdown",
    "add_object",
    "ground_of",
    "labels_of",
    "name_of",
    "names",
    "objects_of",
    "pod_works",
    "read_objects",
    "read_shutdown",
    "taints_of",
]


_HIGHEST_OF_USERS = 1_000_000_000
_TOTAL, _CRITICAL, _BY_PRIORITY = (
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
)


class Phase(NamedTuple):
    """The pods from one priority up to that of the next phase have ``seconds`` to end."""

    priority: int
    seconds: float


class Shutdown(NamedTuple):
    """How a kubelet shuts its node down. ``phases``: lowest priority first. ``setting`` is the field that has them."""

    setting: str
    phases: tuple[Phase, ...]

    @property
    def total(self) -> float:
        """The longest delay of the shutdown, in seconds, with pods in each phase; 0: it is not delayed."""
        return sum(phase.seconds for phase in self.phases)

    def share(self, priority: int | None) -> float:
        """Seconds that a pod of this priority has; ``None``, a user's class of unknown value: the shortest possible."""
        if priority is None:
            starts = (phase.priority for phase in self.phases if phase.priority <= _HIGHEST_OF_USERS)
            return min(map(self.share, starts), default=self.share(0))
        return next((phase for phase in reversed(self.phases) if phase.priority <= priority), self.phases[0]).seconds


def read_shutdown(settings: Mapping[str, Any], name: str) -> Shutdown:
    """Read a kubelet's settings; ``name`` is its name in messages.

    Raises :class:`InputError` with the field where a kubelet would not start with them.
    """
    wrong = find_wrong(settings, KUBELET)
    if wrong:
        raise InputError(f"{name}: {wrong}")
    total, critical = (parse_duration(settings.get(field) or 0) for field in (_TOTAL, _CRITICAL))
    listed = settings.get(_BY_PRIORITY) or ()
    if listed and (total or critical):
        raise InputError(f"{name}: {_BY_PRIORITY} excludes {_TOTAL}: no kubelet starts with both; remove one")
    if listed:
        phases = [Phase(one.get("priority") or 0, float(one.get("shutdownGracePeriodSeconds") or 0)) for one in listed]
        return Shutdown(_BY_PRIORITY, tuple(sorted(phases)))
    of_users = max(total - critical, 0.0)
    lowest_critical = SYSTEM_CLASSES["system-cluster-critical"]
    return Shutdown(_TOTAL, (Phase(0, of_users), Phase(lowest_critical, total - of_users)))


_LIST_KINDS = ("List", "NodeList", "DaemonSetList", "NodePoolList", "PriorityClassList", "ConfigMapList")
_ASK = "kubectl get nodes -o json"
_OR_A_LIST = f", or for pools import with {TOOLS}; {MADE_BY} are read too"
_NO_KIND = "object without a kind"
_GAP = re.compile(r"(?:[ \t\r\n]|(?<=\n)---(?=[ \t\r\n]|\Z))*")


@dataclass(slots=True)
class Objects:
    """The objects of a file or a cluster by kind. ``others`` counts the kinds that were left out.

    ``listings`` are lists of node pools that their provider's tools wrote (:mod:`~spotwright.pools.node_pool_files`).
    ``kubelets`` are the kubelets' shutdowns; ``priorities`` the values of priority classes, the default under the empty name.
    ``no_daemon_sets`` says why a cluster does not show its DaemonSets.

    ``config_maps`` are the cluster autoscaler's by name, each with its place; ``no_config_maps`` says why a cluster does not
    show them. ``has_all``: the cluster has no others. ``is_empty``: there is an empty list, as kubectl writes it for a cluster
    without nodes. ``admitting`` are objects that make the cluster add to pods. ``unread`` are objects that make nodes and have
    no reader.
    """

    nodes: list[Mapping[str, Any]] = field(default_factory=list)
    node_pools: list[Mapping[str, Any]] = field(default_factory=list)
    daemon_sets: list[Mapping[str, Any]] = field(default_factory=list)
    kubelets: list[Shutdown] = field(default_factory=list)
    priorities: dict[str, int] = field(default_factory=lambda: dict(SYSTEM_CLASSES))
    api_models: list[Mapping[str, Any]] = field(default_factory=list)
    listings: list[Mapping[str, Any]] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    no_daemon_sets: str = ""
    config_maps: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    no_config_maps: str = ""
    has_all: bool = False
    is_empty: bool = False
    admitting: list[Mapping[str, Any]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def of_kind(self, kind: str) -> Iterator[Mapping[str, Any]]:
        """The objects of a kind that make the cluster add to pods."""
        return (one for one in self.admitting if one.get("kind") == kind)

    @property
    def knows_nodes(self) -> bool:
        """Whether it shows the cluster's nodes, even if there are none."""
        return bool(self.nodes) or self.is_empty

    def require_nodes(self, name: str, *, or_others: bool = False) -> None:
        """Raise :class:`InputError` without a node, naming what was found instead.

        ``or_others``: an empty list, or other objects that the checks read, will do.
        """
        if self.nodes:
            return
        if or_others and (self.daemon_sets or self.config_maps or self.kubelets or self.is_empty):
            return
        found = ", ".join(f"{count} {kind}" for kind, count in self.others.most_common(3))
        held = ((self.daemon_sets, "DaemonSet"), (self.config_maps, "ConfigMap"), (self.kubelets, "kubelet"))
        found = found or ", ".join(f"{len(some)} {kind}" for some, kind in held if some) or "a List without items"
        if self.listings:
            found = "a list of node pools, which pools import reads"
        elif self.unread:
            found = "; ".join(one.text for one in self.unread[:3])
        others = _OR_A_LIST if self.unread or _NO_KIND in self.others else ""
        raise InputError(f"{name}: expected nodes, found {found}: write the file with {_ASK}{others}")


def read_objects(text: str, name: str) -> Objects:
    """Read the objects of a text; ``name`` is how messages call it.

    Raises :class:`InputError` where it is neither JSON nor YAML, or where a node lacks what every node has.
    """
    if not text.strip():
        raise InputError(f"{name}: the file is empty: write it with {_ASK}")
    objects = Objects()
    for document in _documents(text, name):
        found = list(_flattened(document, name))
        objects.is_empty |= not found
        for one in found:
            _sort(one, objects, name)
    return objects


def _documents(text: str, name: str) -> Iterable[Any]:
    stripped = text.lstrip("\ufeff \t\r\n")
    if not stripped.startswith(("{", "[")):
        return [document.get(()) for document in parse(text, name)]
    try:
        return list(_json_documents(stripped))
    except json.JSONDecodeError as error:
        raise InputError(f"{name}:{error.lineno}: not valid JSON: {error.msg}; write the file with {_ASK}") from None
    except RecursionError:
        raise InputError(f"{name}: nested too deep to be nodes; write the file with {_ASK}") from None


def _json_documents(text: str) -> Iterator[Any]:
    """The values of a text, one after another: a loop over commands writes several, with or without --- between them."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        yield value
        gap = _GAP.match(text, position)
        position = gap.end() if gap else position


def objects_of(value: Any, name: str) -> list[Any]:
    """The objects of a list as the API and kubectl write it; any other value alone.

    Raises :class:`InputError` for a list of anything else; ``name`` is its file's in messages.
    """
    is_list = isinstance(value, Mapping) and str(value.get("kind")) in _LIST_KINDS
    return list(_flattened(value, name)) if is_list else [value]


def _flattened(document: Any, name: str) -> Iterator[Mapping[str, Any]]:
    items: Any = document if isinstance(document, list) else [document]
    common: Mapping[str, Any] = {}
    if isinstance(document, Mapping) and str(document.get("kind")) in _LIST_KINDS:
        items = document.get("items") or []
        kind = str(document["kind"]).removesuffix("List")
        if kind:  # the API writes the kind of all items once, at the list (kubectl get --raw)
            common = {"kind": kind, "apiVersion": document.get("apiVersion")}
    for item in items if isinstance(items, list) else [items]:
        if not isinstance(item, Mapping):
            raise InputError(
                f"{name}: expected objects of Kubernetes, found {word_for(item)}: write the file with {_ASK}{_OR_A_LIST}"
            )
        yield {**common, **item}


def _sort(one: Mapping[str, Any], objects: Objects, name: str) -> None:
    kind = str(one.get("kind") or "")
    if add_object(one, objects, name):
        return
    if kind in kinds_of_every_node():
        objects.daemon_sets.append(one)
    elif one.get("apiVersion") == "vlabs" and isinstance(one.get("properties"), Mapping):
        wrong = find_wrong(one, API_MODEL)
        if wrong:
            raise InputError(f"{name}: an API model of aks-engine: {wrong}")
        objects.api_models.append(one)
    elif is_listing(one):
        objects.listings.append(one)
        _sort_inner(one, objects, name)
    elif kind and (why := why_unread(kind)):
        objects.unread.append(Unread(kind, str(metadata(one).get("name") or ""), why))
    else:
        objects.others[kind or _NO_KIND] += 1


def _sort_inner(listing: Mapping[str, Any], objects: Objects, name: str) -> None:
    """Sort the objects inside the resources of a Terraform output."""
    found, unread = manifests(listing, name) if is_terraform(listing) else ((), ())
    objects.unread += unread
    for one in found:
        _sort(one, objects, name)


def add_object(one: Mapping[str, Any], objects: Objects, name: str) -> bool:
    """Add a node or a NodePool of Karpenter, the settings of a kubelet, a PriorityClass, or a ConfigMap of the autoscaler.

    False for any other object. Raises :class:`InputError`.
    """
    kind = one.get("kind")
    if kind in ADMITTING:
        objects.admitting.append(one)
    settings = one if kind == "KubeletConfiguration" else one.get("kubeletconfig")
    if kind == "Node":
        objects.nodes.append(_checked(one, NODE, f"{name}: node {len(objects.nodes) + 1}"))
    elif kind == "NodePool" and str(one.get("apiVersion", "")).startswith("karpenter.sh/"):
        objects.node_pools.append(_checked(one, NODE_POOL, f"{name}: NodePool {len(objects.node_pools) + 1}"))
    elif kind == "ConfigMap":
        return _add_config_map(one, objects, name)
    elif isinstance(settings, Mapping):
        objects.kubelets.append(read_shutdown(settings, f"{name}: kubelet {len(objects.kubelets) + 1}"))
    elif kind == "PriorityClass":
        _checked(one, PRIORITY_CLASS, f"{name}: PriorityClass")
        names = [one["metadata"]["name"], *([""] if one.get("globalDefault") is True else [])]
        objects.priorities |= dict.fromkeys(names, one.get("value") or 0)
    else:
        return False
    return True


def _add_config_map(one: Mapping[str, Any], objects: Objects, name: str) -> bool:
    """Add a ConfigMap of the autoscaler, from whichever namespace. Two of one name belong to two autoscalers and are refused."""
    metadata = one.get("metadata")
    own_name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if own_name not in (STATUS, PRIORITIES):
        return False
    place = f"{name}: ConfigMap {own_name}"
    _checked(one, CONFIG_MAP, place)
    other_place, other = objects.config_maps.setdefault(own_name, (place, one))
    if other.get("data") != one.get("data"):
        raise InputError(f"{place}: another one stands in {other_place.partition(': ')[0]}: leave one of them out")
    return True


def _checked(one: Mapping[str, Any], shape: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """The object, if its fields have the API's types. Raises :class:`InputError` with the first field that does not."""
    wrong = find_wrong(one, shape)
    if wrong:
        raise InputError(f"{what}: {wrong}")
    if not (one.get("metadata") or {}).get("name"):
        raise InputError(f"{what}: metadata.name is missing: write the file with {_ASK}")
    return one


_SHOWN = 3
_DEEPEST = 40


class Severity(StrEnum):
    """How bad a finding is. An error keeps work from running; the command then ends with 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One finding. ``where`` is a pool, node or manifest; ``fix`` says what to do."""

    code: str
    severity: Severity
    where: str
    text: str
    fix: str


class PodWork(NamedTuple):
    """The pods of one template of an object."""

    where: str
    is_on_every_node: bool
    spec: Mapping[str, Any]
    constraints: Constraints
    requests: Resources


@dataclass(frozen=True, slots=True)
class ClusterInventory:
    """The subject of all checks. ``members`` are the nodes of each pool; ``strangers`` the nodes without a pool.

    ``unread`` are the pods and ConfigMaps with a malformed field, which cannot be compared. ``knows_nodes``: there are no other
    nodes. ``autoscalers`` come from the ConfigMaps of the cluster autoscaler.
    """

    config: Config
    members: Mapping[str, Sequence[Mapping[str, Any]]]
    strangers: Sequence[Mapping[str, Any]]
    daemon_sets: Sequence[PodWork]
    kubelets: Sequence[Shutdown]
    priorities: Mapping[str, int]
    works: Sequence[PodWork]
    unread: Sequence[Finding] = ()
    knows_nodes: bool = True
    autoscalers: Autoscalers = UNKNOWN

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The pools of the configuration."""
        return self.config.pools

    def priority_of(self, work: PodWork) -> int | None:
        """The priority of the pod; ``None`` if its class has no known value."""
        given = work.spec.get("priority")
        if isinstance(given, int):
            return given
        name = str(work.spec.get("priorityClassName") or "")
        return self.priorities.get(name, None if name else 0)

    def spot_pools_of(self, work: PodWork) -> list[Pool]:
        """The spot pools on which the pod lands."""
        return [pool for pool in self.pools.values() if pool.is_spot and not self.refusal(pool, work)]

    @property
    def not_judged(self) -> list[NotJudged]:
        """The pools of which it is unknown whether some of the work fits."""
        found = {
            pool.name: NotJudged(Subject.POOL, pool.name, SIZE_UNKNOWN, STATE_NODE)
            for pool in self.pools.values()
            for work in self.works
            if pool.node is None and any(work.requests.values()) and not self.refusal(pool, work)
        }
        return list(found.values())

    def refusal(self, pool: Pool, work: PodWork) -> str:
        """Why no node of the pool admits the pod by its size, labels and taints; empty if one does."""
        large = too_large(work.requests, pool)
        if large:
            return large

        def left(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
            return tuple(one for one in taints if not providers.is_tolerated_by_cluster(pool, one, work.requests))

        if not self.members.get(pool.name):  # only the configuration has its nodes' labels
            return node_labels.refusal(pool, work.constraints, left(providers.taints(pool)))
        reasons = [work.constraints.refusal(labels, left(taints)) for labels, taints in self.kinds_of_node(pool)]
        return "" if "" in reasons else reasons[0]

    def tolerates(self, pool: Pool, work: PodWork, taint: Taint) -> bool:
        """Whether the pod tolerates a taint of the pool, by itself or because the cluster adds the toleration."""
        return work.constraints.tolerates(taint) or providers.is_tolerated_by_cluster(pool, taint, work.requests)

    def kinds_of_node(self, pool: Pool) -> list[tuple[Mapping[str, str], tuple[Taint, ...]]]:
        """The different labels and lasting taints of the pool's nodes; the configuration's if it has no node."""
        nodes = self.members.get(pool.name) or ()
        if not nodes:
            return [(labels, providers.taints(pool)) for labels in providers.labels_by_zone(pool)]
        different = {
            (
                tuple(sorted(labels_of(node).items())),
                tuple(taint for taint in taints_of(node) if not is_passing_taint(taint.key)),
            )
            for node in nodes
        }
        return [(dict(labels), taints) for labels, taints in sorted(different)]


def ground_of(config: Config, objects: Objects, found: Iterable[PodWork | Finding]) -> ClusterInventory:
    """The inventory for the checks: each node belongs to the pool whose labels it has, else to the one whose name it carries.

    ``found`` is the result of :func:`pod_works` for manifests.
    """
    members: dict[str, list[Mapping[str, Any]]] = {name: [] for name in config.pools}
    strangers: list[Mapping[str, Any]] = []
    for node in objects.nodes:
        pool = providers.pool_of(labels_of(node), config.pools) or _named_by(labels_of(node), config.pools)
        (strangers if pool is None else members[pool.name]).append(node)
    both = [
        *(one for daemon_set in objects.daemon_sets for one in pod_works(daemon_set, "", config, objects.of_kind)),
        *found,
    ]
    works = [one for one in both if isinstance(one, PodWork)]
    autoscalers, unread = _autoscalers(objects)
    unread += [_not_added(one, wrong) for one in objects.admitting for wrong in unreadable(one)]
    return ClusterInventory(
        config,
        members,
        strangers,
        [work for work in works if work.is_on_every_node],
        objects.kubelets,
        objects.priorities,
        [work for work in works if not work.is_on_every_node],
        [*(one for one in both if isinstance(one, Finding)), *unread],
        objects.knows_nodes,
        autoscalers,
    )


def _not_added(one: Mapping[str, Any], wrong: Unreadable) -> Finding:
    text = f"{show(wrong.path)}: {wrong.text}: it was not applied to pods"
    return Finding(
        "manifest-not-readable", Severity.ERROR, object_name(one), text, "correct the manifest, or leave it out"
    )


def _autoscalers(objects: Objects) -> tuple[Autoscalers, list[Finding]]:
    """The state in the cluster autoscaler's ConfigMaps, and a finding for each unreadable one."""
    unread: list[Finding] = []
    read: dict[str, Any] = {}
    for name, (place, config_map) in objects.config_maps.items():
        try:
            read[name] = status_of(config_map) if name == STATUS else priorities_of(config_map)
        except InputError as error:
            said = str(error).removeprefix(f"ConfigMap {name}: ")
            fix = f"write it with kubectl get configmap -n kube-system {name} -o yaml, or correct it"
            unread.append(Finding("config-map-not-readable", Severity.WARNING, place, said, fix))
    has_status, has_priorities = (
        True if name in objects.config_maps else False if objects.has_all else None for name in (STATUS, PRIORITIES)
    )
    why = objects.no_config_maps or UNKNOWN.unread
    return Autoscalers(has_status, read.get(STATUS), has_priorities, read.get(PRIORITIES), None, why), unread


def _named_by(labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    for pool in pools.values():
        label = providers.pool_label(pool)
        if label and labels.get(label) in (providers.pool_name(pool), pool.labels.get(label, pool.name)):
            return pool
    return None


def pod_works(document: Any, file: str, config: Config, others: Others = no_others) -> Iterator[PodWork | Finding]:
    """The pods of an object of any kind: every mapping with containers in it, and every template of an Argo workflow.

    A manifest in a string of the object counts too. An unreadable pod gives a finding, with the field. The configuration names
    the version of Argo; ``others`` has the objects that make the cluster add to pods.
    """
    if not isinstance(document, Mapping):
        return
    yield from _works_of(document, file, argo_version(config), others)
    with suppress(ManifestError):  # invalid YAML, which place refuses
        for held in objects_within(data_document(document, file), (), document):
            if held.base == ():  # it is in a string; mappings were found already
                yield from _works_of(held.value, file, argo_version(config), others)


def _works_of(
    document: Mapping[str, Any], file: str, argo: tuple[int, int], others: Others
) -> Iterator[PodWork | Finding]:
    kind = str(document.get("kind") or "object")
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, Mapping) else None
    where = f"{file}: {kind} {name or ''}".strip() if file else f"{kind} {name or ''}".strip()
    is_on_every_node = kind in kinds_of_every_node()
    for spec in _pod_specs(document, (), argo):
        try:
            for level in spec.levels:
                check_value(level, (), level.value, _LEVEL)
            check_value(spec, (), spec.value, POD)
            for one in refusals_of(spec.value):
                raise spec.problem(one.path, one.text)
            namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
            pod = admitted(spec.value, namespace, others, spec.labels)
            yield PodWork(where, is_on_every_node, spec.value, scheduling_of(pod), pod_requests(pod))
        except PodSpecError as error:
            yield _unread(where, spec.problem(error.path, str(error)))
        except ManifestError as error:
            yield _unread(where, error)


def _unread(where: str, error: ManifestError) -> Finding:
    return Finding(
        "pod-not-readable",
        Severity.ERROR,
        where,
        f"{error}: this pod was not compared with the pools",
        "correct the field; spotwright lint names its line",
    )


class _PodSpec(NamedTuple):
    """A pod spec of an object. ``where``: source paths of inherited values, by their paths in it; ``levels`` are merged in it."""

    path: Path
    value: Mapping[str, Any]
    where: Mapping[Path, Path] = {}
    levels: Sequence[_PodSpec] = ()
    labels: Mapping[str, Any] = {}

    def problem(self, path: Path, text: str) -> ManifestError:
        known = next((path[:size] for size in range(len(path), 0, -1) if path[:size] in self.where), ())
        start = self.where.get(known, self.path)
        return ManifestError(f"{show((*start, *path[len(known) :]))}: {text}")


_LEVEL = {name: POD[name] for name in ("affinity", "nodeSelector", "tolerations")}


def _pod_specs(value: Any, path: Path, argo: tuple[int, int], around: Any = None) -> Iterator[_PodSpec]:
    """The pod specs in a value. ``around`` has the value as its ``spec``, with the labels of a pod beside it."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_specs(item, (*path, index), argo)
    if not isinstance(value, Mapping):
        return
    record = kind_of(str(value.get("apiVersion") or ""), str(value.get("kind") or ""))
    if record.retry is Retry.STEP:
        yield from _steps(value, record.top, path, argo)
        return
    containers = value.get("containers")
    if isinstance(containers, list) and any(isinstance(one, Mapping) for one in containers):
        yield _PodSpec(path, value, labels=mapping(mapping(mapping(around).get("metadata")).get("labels")))
        return
    single = value.get("container")  # of an executor of a compiled pipeline
    if isinstance(single, Mapping) and "image" in single:
        yield _PodSpec(path, {"containers": [single]}, {("containers", 0): (*path, "container")})
        return
    for key, item in value.items():
        yield from _pod_specs(item, (*path, str(key)), argo, value if key == "spec" else None)


def _steps(workflow: Mapping[str, Any], top: Path, base: Path, argo: tuple[int, int]) -> Iterator[_PodSpec]:
    """The pod specs of a workflow's templates that run code; ``base`` is the workflow's path, ``top`` its spec in it."""
    get = partial(value_at, workflow)
    for template in templates(get, top):
        paths = code_paths(get, template)
        if paths:
            pod = effective(get, top, template, argo)
            where: dict[Path, Path] = {("containers", index): path for index, path in enumerate(paths)}
            levels = (top, (*top, "templateDefaults"), template.path)
            yield _PodSpec(
                (*base, *template.path),
                pod.spec,
                {inside: (*base, *at) for inside, at in (where | dict(pod.where)).items()},
                [_PodSpec((*base, *at), level) for at in levels if isinstance(level := get(at), dict)],
                mapping(pod.metadata.get("labels")),
            )


def labels_of(node: Mapping[str, Any]) -> dict[str, str]:
    """The labels of a node."""
    return {str(key): str(value) for key, value in ((node.get("metadata") or {}).get("labels") or {}).items()}


def name_of(node: Mapping[str, Any]) -> str:
    """The name of a node."""
    return str((node.get("metadata") or {}).get("name"))


def taints_of(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    """The taints of a node."""
    given = (node.get("spec") or {}).get("taints") or ()
    return tuple(
        Taint(str(one.get("key")), str(one.get("value") or ""), str(one.get("effect")))
        for one in given
        if isinstance(one, Mapping)
    )


def names(some: Sequence[str]) -> str:
    """The first few of some names, and how many more there are."""
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    return ", ".join(some[:_SHOWN]) + more
