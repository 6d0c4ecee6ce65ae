"""What the checks look at: the pools with their nodes, the DaemonSets and kubelets beside them, and the pods of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.clouds.node_signs import is_passing_taint
from spotwright.config import Config
from spotwright.manifests.rules.placeholders import judgeable
from spotwright.manifests.rules.pod_spec import PodSpecError, pod_constraints, pod_requests
from spotwright.manifests.rules.schema import POD, check_value
from spotwright.manifests.yamltext.documents import ManifestError, Path, show
from spotwright.model.pools import Pool, Resources
from spotwright.model.scheduling_terms import Constraints, Taint
from spotwright.provisioning.kubelets import Shutdown
from spotwright.provisioning.objects import Objects
from spotwright.scheduling.ladder import too_large

__all__ = [
    "Finding",
    "Ground",
    "PodWork",
    "Severity",
    "ground_of",
    "labels_of",
    "name_of",
    "names",
    "pod_works",
    "taints_of",
]

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
    kind: str
    spec: Mapping[str, Any]
    constraints: Constraints
    requests: Resources


@dataclass(frozen=True, slots=True)
class Ground:
    """What all checks look at. ``members`` are the nodes of each pool; ``strangers`` those of none.

    ``unread`` are the pods that cannot be compared, because a field of theirs has another form than Kubernetes asks for.
    """

    config: Config
    members: Mapping[str, Sequence[Mapping[str, Any]]]
    strangers: Sequence[Mapping[str, Any]]
    daemon_sets: Sequence[PodWork]
    kubelets: Sequence[Shutdown]
    priorities: Mapping[str, int]
    works: Sequence[PodWork]
    unread: Sequence[Finding] = ()

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The pools of the configuration."""
        return self.config.pools

    def priority_of(self, work: PodWork) -> int | None:
        """The priority of the pod; None where the value of its class is not known."""
        given = work.spec.get("priority")
        if isinstance(given, int):
            return given
        name = str(work.spec.get("priorityClassName") or "")
        return self.priorities.get(name, None if name else 0)

    def spot_pools_of(self, work: PodWork) -> list[Pool]:
        """The spot pools on which the pod lands."""
        return [pool for pool in self.pools.values() if pool.is_spot and not self.refusal(pool, work)]

    def refusal(self, pool: Pool, work: PodWork) -> str:
        """Why no node of the pool admits the pod by its size, labels and taints; empty if one does."""
        large = too_large(work.requests, pool.node)
        if large:
            return large
        constraints = work.constraints
        if not self.members.get(pool.name):  # nothing but the configuration says what labels its nodes have
            constraints = judgeable(constraints, {pool.name: pool}, lambda _level, _path, _text: None)
        reasons = []
        for labels, taints in self.kinds_of_node(pool):
            own = tuple(one for one in taints if not providers.is_tolerated_by_cluster(pool, one, work.requests))
            reasons.append(constraints.refusal(labels, own))
        return "" if "" in reasons else reasons[0]

    def tolerates(self, pool: Pool, work: PodWork, taint: Taint) -> bool:
        """Whether the pod tolerates a taint of the pool, by itself or because the cluster adds the toleration."""
        return work.constraints.tolerates(taint) or providers.is_tolerated_by_cluster(pool, taint, work.requests)

    def kinds_of_node(self, pool: Pool) -> list[tuple[Mapping[str, str], tuple[Taint, ...]]]:
        """The different labels and lasting taints of the pool's nodes; those of the configuration where it has no node."""
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


def ground_of(config: Config, objects: Objects, found: Iterable[PodWork | Finding]) -> Ground:
    """The ground for the checks: each node belongs to the pool whose labels it has, else to the one whose name it carries.

    ``found`` is what :func:`pod_works` gives for manifests.
    """
    members: dict[str, list[Mapping[str, Any]]] = {name: [] for name in config.pools}
    strangers: list[Mapping[str, Any]] = []
    for node in objects.nodes:
        pool = providers.pool_of(labels_of(node), config.pools) or _named_by(labels_of(node), config.pools)
        (strangers if pool is None else members[pool.name]).append(node)
    both = [*(one for daemon_set in objects.daemon_sets for one in pod_works(daemon_set, "")), *found]
    works = [one for one in both if isinstance(one, PodWork)]
    return Ground(
        config,
        members,
        strangers,
        [work for work in works if work.kind == "DaemonSet"],
        objects.kubelets,
        objects.priorities,
        [work for work in works if work.kind != "DaemonSet"],
        [one for one in both if isinstance(one, Finding)],
    )


def _named_by(labels: Mapping[str, str], pools: Mapping[str, Pool]) -> Pool | None:
    for pool in pools.values():
        label = providers.pool_label(pool)
        if label and labels.get(label) in (providers.pool_name(pool), pool.labels.get(label, pool.name)):
            return pool
    return None


def pod_works(document: Any, file: str) -> Iterator[PodWork | Finding]:
    """The pods of an object of any kind: every mapping with containers in it, and every template of an Argo workflow.

    In place of a pod that cannot be read there is a finding, with the field.
    """
    if not isinstance(document, Mapping):
        return
    kind = str(document.get("kind") or "object")
    metadata = document.get("metadata")
    name = metadata.get("name") or metadata.get("generateName") if isinstance(metadata, Mapping) else None
    where = f"{file}: {kind} {name or ''}".strip() if file else f"{kind} {name or ''}".strip()
    for spec in _pod_specs(document, (), {}):
        try:
            check_value(spec, (), spec.value, POD)
            yield PodWork(where, kind, spec.value, pod_constraints(spec.value), pod_requests(spec.value))
        except PodSpecError as error:
            yield _unread(where, spec.problem(error.path, str(error)))
        except ManifestError as error:
            yield _unread(where, error)


def _unread(where: str, error: ManifestError) -> Finding:
    return Finding(
        "pod-not-readable",
        Severity.ERROR,
        where,
        f"{error}: nothing of this pod was compared with the pools",
        "correct the field; spotwright lint names its line",
    )


class _PodSpec(NamedTuple):
    """A pod spec of an object. ``elsewhere``: the paths of fields that it does not hold itself, under that name."""

    path: Path
    value: Mapping[str, Any]
    elsewhere: Mapping[str, Path]

    def problem(self, path: Path, text: str) -> ManifestError:
        first, rest = str(path[0]) if path else "", path[1:]
        if first in self.elsewhere:
            path = (*self.elsewhere[first], *(rest[1:] if first == "containers" else rest))
        else:
            path = (*self.path, *path)
        return ManifestError(f"{show(path)}: {text}")


def _pod_specs(value: Any, path: Path, above: Mapping[str, tuple[Path, Any]]) -> Iterator[_PodSpec]:
    """The pod specs in a value. ``above``: the fields of a workflow that its templates have too, with their paths."""
    if len(path) > _DEEPEST:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _pod_specs(item, (*path, index), above)
    if not isinstance(value, Mapping):
        return
    containers = value.get("containers")
    if isinstance(containers, list) and any(isinstance(one, Mapping) for one in containers):
        yield _PodSpec(path, value, {})
        return
    held = {key: ((*path, key), value[key]) for key in ("tolerations", "nodeSelector", "affinity") if value.get(key)}
    held = {**above, **held}
    for name in ("container", "script"):
        single = value.get(name)
        if isinstance(single, Mapping) and "image" in single:
            fields = {**held, "containers": ((*path, name), [single])}
            yield _PodSpec(
                path, {key: one for key, (_, one) in fields.items()}, {key: at for key, (at, _) in fields.items()}
            )
            return
    for key, item in value.items():
        yield from _pod_specs(item, (*path, str(key)), held)


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
