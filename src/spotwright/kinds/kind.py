"""The record of a kind: all that Spotwright knows of it. Modules outside this package never compare kinds by name.

Each module of a family of kinds has their records as ``KINDS``: a new kind is one record and no other table. Kinds that are not
placed have records too if their pods are known. The modules are imported at the first lookup.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from math import prod
from typing import Any, NamedTuple, TypeAlias

from spotwright.kube.admission import Others
from spotwright.kube.object_fields import mapping
from spotwright.placing.context import PlaceContext
from spotwright.placing.documents import Path
from spotwright.placing.enforcement import Mechanism
from spotwright.placing.patch import value_at
from spotwright.placing.pods import PodRole
from spotwright.placing.retries import whole_number

__all__ = [
    "Call",
    "Claim",
    "Count",
    "Kind",
    "Mount",
    "Order",
    "PlaceObject",
    "PodLevels",
    "PodPlace",
    "Reads",
    "Retry",
    "RetryFields",
    "Run",
    "Sharing",
    "Words",
    "all_kinds",
    "calls_after",
    "claims_in",
    "claims_made",
    "claims_of_each",
    "group_of",
    "holds_at",
    "kind_in",
    "kind_of",
    "kinds_of_every_node",
    "leads_by_name",
    "levels_of_pods",
    "matching",
    "may_be_run",
    "mounts_in",
    "mounts_of",
    "number_at",
    "one_pod",
    "placed_kind",
    "pods_at",
    "product",
    "replicas",
    "run_kind",
    "run_kinds",
]


PlaceObject: TypeAlias = Callable[[PlaceContext], None]
"""Places one object through its context."""

References: TypeAlias = Callable[[Mapping[str, Any]], Iterator[tuple[str, Any]]]
"""The objects to which an object's spec refers, each as its kind (of the same group) and name."""


WhyNotEvicted: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], str]
"""Why an eviction of a pod would cost its work something, by its owners, nearest first; empty if not."""


Count: TypeAlias = Callable[[Mapping[str, Any], Path], int | None]
"""The most pods at one time of the template at a path of an object; ``None`` if the object does not say."""


Holds: TypeAlias = Callable[[Mapping[str, Any], Others], Iterator[Path]]
"""The paths of the objects inside an object, each a mapping or a string of YAML; other objects may name them."""


class Sharing(StrEnum):
    """Which pods share the volume of a claim."""

    NAMED = "named"  # all pods that name the claim, of other objects too
    OBJECT = "object"  # all pods of the object for which it is made
    POD = "pod"  # one pod: each gets its own claim


class Mount(NamedTuple):
    """A mount path in a container, with the ``folder`` of the volume there; an empty folder is the whole volume."""

    path: str
    folder: str = ""
    is_read_only: bool = False


class Claim(NamedTuple):
    """A PersistentVolumeClaim that pods have as a volume, by its name, or by its template's.

    ``path`` leads to its name or its template in the object. ``spec`` is the claim's; empty for a named one, which is another
    object. ``mounts`` are the containers' mounts. ``tasks`` are the names of the calls whose pods have it, ``None`` for all
    pods of the template.
    """

    name: str
    path: Path
    sharing: Sharing = Sharing.NAMED
    spec: Mapping[str, Any] = {}
    volume: str = ""
    mounts: tuple[Mount, ...] = ()
    tasks: frozenset[str] | None = None


class Earlier:
    """The names of a list before one of them, as bits, which replace thousands of large sets.

    ``bits`` has the bit of each name of the list, ``mask`` the bits of the earlier ones.
    """

    __slots__ = ("_bits", "_mask")

    def __init__(self, bits: Mapping[str, int], mask: int) -> None:
        """Keep them; the bits are shared by all calls of the list."""
        self._bits, self._mask = bits, mask

    def __contains__(self, name: object) -> bool:
        """Whether a name comes before."""
        return isinstance(name, str) and bool(self._mask & self._bits.get(name, 0))

    def __eq__(self, other: object) -> bool:
        """Whether both have the same names out of equal lists."""
        if not isinstance(other, Earlier):
            return NotImplemented
        return self._mask == other._mask and (self._bits is other._bits or self._bits == other._bits)

    def __hash__(self) -> int:
        """The hash of the bits."""
        return hash(self._mask)


class Call(NamedTuple):
    """A step on the way to pods: a task of a DAG, a step, a replicated job. ``where`` is the list in which it has its ``name``.

    ``after`` are the names in that list that end before it begins. ``is_conditional``: it may not run at all. ``times`` is its
    number of parallel runs; ``None``: unknown.
    """

    where: Path
    name: str
    after: Earlier = Earlier({}, 0)
    is_conditional: bool = False
    times: int | None = 1


class Run(NamedTuple):
    """One path of calls to a template's pods, outermost first.

    ``times`` is its number of pods at one time, over all iterations of loops; ``None``: unknown. ``locks`` are the mutexes that
    it holds, each with the number of calls around the holder. An empty name is a lock that may admit others.
    """

    calls: tuple[Call, ...]
    times: int | None
    locks: tuple[tuple[str, int], ...] = ()


class Order(NamedTuple):
    """The order of an object's pods: the runs of each template by its path, empty if unknown.

    ``limit`` is the most pods of the object at one time; ``None`` without a limit.
    """

    runs: Mapping[Path, Sequence[Run]]
    limit: int | None = None


Claims: TypeAlias = Callable[[Mapping[str, Any], Path], Iterator[Claim]]
"""The claims that the pods of the template at a path have beside those in their pod spec."""


class Retry(StrEnum):
    """Who recreates a lost pod."""

    NONE = "none"  # no controller
    JOB = "job"  # a Job, by its backoffLimit and podFailurePolicy
    ROLE = "role"  # the training operator, by the role's restartPolicy
    SET = "set"  # the kind's own controller, with all pods beside it
    STEP = "step"  # Argo, by the step's retryStrategy
    TRIAL = "trial"  # Katib, as another trial
    OTHER = "other"  # the kind's own controller


class Reads(StrEnum):
    """The objects of a kind that the controller in the cluster reads."""

    NOTHING = "nothing"
    OBJECTS = "objects"  # those named by a pod's owner, or by a new object
    RUNS = "runs"  # all: each is a run, or a part of one


class PodLevels(NamedTuple):
    """A pod as its controller merges it from an object's levels, and the source of each inherited part.

    ``path`` leads to the level that gets new fields, with the ``form`` T, S or H of a place. ``spec`` has the fields of a pod
    spec. ``where`` has source paths by paths in the spec, also for the values inside.
    """

    path: Path
    form: str
    spec: Mapping[str, Any]
    metadata: Mapping[str, Any]
    where: Mapping[Path, Path] = {}


ReadLevels: TypeAlias = Callable[[Mapping[str, Any], Path], PodLevels]
ReadTasks: TypeAlias = Callable[[Mapping[str, Any], Path], Iterable[tuple[str, PodLevels]]]
"""Reads the pod at a path of an object."""


class PodPlace(NamedTuple):
    """A place of pods in a kind. ``steps`` is a path with ``*`` for any key or item; ``form`` is T, S, H or K.

    ``job`` is the number of steps from the template up to its Job spec, 0 without one. ``read`` merges the levels of a pod with
    inherited fields. ``at_once`` counts the template's pods at one time. ``is_there``: whether the holder itself has pods
    (default), unlike an Argo template that calls others. ``tasks`` reads the pod of each task that uses the template, with the
    task's name (empty if it is the only one), for kinds whose tasks have the containers.
    """

    steps: tuple[str, ...]
    form: str = "T"
    duty: PodRole = PodRole.WORKER
    job: int = 0
    read: ReadLevels | None = None
    at_once: Count | None = None
    is_there: Callable[[Any], bool] | None = None
    tasks: ReadTasks | None = None

    @property
    def is_template(self) -> bool:
        """Whether it is a pod template, of Kubernetes or of Tekton, whose templates have no metadata."""
        return self.form == "T" or str(self.steps[-1]).endswith("odTemplate")

    def levels(self, data: Mapping[str, Any], path: Path) -> PodLevels:
        """The pod at a path of an object."""
        if self.read is not None:
            return self.read(data, path)
        holder = mapping(value_at(data, path))
        if self.form != "T":
            return PodLevels(path, self.form, holder, {})
        return PodLevels((*path, "spec"), "T", mapping(holder.get("spec")), mapping(holder.get("metadata")))


class Words(NamedTuple):
    """The values that the field at a path may have; ``version``: only in this version."""

    path: str
    words: tuple[str, ...]
    version: str = ""


class RetryFields(NamedTuple):
    """The retry fields of a kind. Paths are from the object, with ``*`` for every item or key.

    ``home`` is the field of the limit, with ``[]`` behind the name of a list; empty without retries. ``levels`` are the places
    of retries, each with its fields. ``types`` are all fields at a path: a mapping's with their types, a list's item type,
    ``None`` where values are not checked.
    """

    home: str = ""
    levels: Mapping[str, tuple[str, ...]] = {}
    types: Mapping[str, Any] = {}
    values: tuple[Words, ...] = ()


_NO_FIELDS = RetryFields()


def _leads_never(_role: str) -> bool:
    return False


def leads_by_name(role: str) -> bool:
    """Whether a role's name is usual for one that all others need."""
    return re.search(_LEADERS, role, re.IGNORECASE) is not None


_LEADERS = r"(^|-)(mpi)?(leader|driver|coordinator|launcher|master|chief|head|scheduler|ps|parameter-?server)s?(-|\d|$)"


class Kind(NamedTuple):
    """The facts about one kind, modelled on Kueue's ``GenericJob`` interface.

    ``version`` is the one that is placed and read; empty: API servers are not asked about the kind. ``more_versions`` are
    others that a cluster may serve. ``takes_any_version``: another version has the same fields, or ``place`` reports it.
    ``place`` places an object; ``None``: it passes through unchanged.

    ``places`` locates its pods, ``holds`` the objects of other kinds inside it. ``claims`` are the object's claims, ``order``
    is the order of its pods; without it all run at one time. ``retry`` is who recreates a lost one, ``retries`` has the fields
    for it, ``mechanisms`` are its ways of retrying. ``harm`` is the effect of an interruption on people, beyond the work.
    ``is_gang``: its pods run together or not at all. ``may_work``: its pods serve, unless the label
    ``spotwright.dev/role: worker`` or its policy declares them workers. ``is_of_nodes``: it describes nodes and has no pods.
    ``why_not_evicted`` is the cost of an eviction, where it may be free; without it, an eviction counts as a failure.
    ``pods_label`` is the label that only its pods have and whose value identifies them, ``restart_label`` the one with the
    number of the restart, shared by all its pods. ``suspended_by`` is the path of the field that suspends it: its pods are
    deleted, and recreated when it resumes. ``makes_pods_later``: its controller backs off after failures.

    ``leads`` tells by a role's name whether all others need it. ``is_partial``: another object completes its pods.
    ``shows_pods_of_another``: it describes pods that another object has. ``annotations`` is the path of a holder's pod
    annotations. ``passes_signals``: its controller starts each command through a program that forwards signals to all processes.

    ``top`` is the path of the spec that another kind may hold, as a CronWorkflow holds a Workflow's. ``roles`` are those that
    its controller knows, ``container`` is the required name of the code's container, ``default_policy`` a role's default
    restartPolicy. ``may_change``: its pods may be changed at any time, and changes apply to later pods. ``leaves_pods``: pods
    that it owns stay unchanged, because they serve or have a special entrypoint.

    ``makes`` are kinds that its controller makes, whose objects are not placed by themselves. ``hands_down``: its policy
    applies to the objects that its controller makes without its metadata. ``references`` are the objects that its placement
    reads. ``is_queued``: Kueue gives it the default queue of its namespace, in Kueue's default installation; kinds that its
    administrator has to enable do not count. Source: kubernetes-sigs/kueue,
    ``config/components/manager/controller_manager_config.yaml``. ``old_fields`` of its spec belong to older releases under the
    same apiVersion; its API server drops them.

    ``short_name`` is one of kubectl's. ``page`` is its page in docs/kinds, generated from this record, ``page_of_retries`` a
    kind that retries alike, whose table is not repeated. ``notes`` are further facts for users, one a line, ``tried`` says on
    what it was tried.
    """

    group: str
    name: str
    version: str = ""
    more_versions: tuple[str, ...] = ()
    takes_any_version: bool = False
    is_cluster_wide: bool = False
    place: PlaceObject | None = None
    places: tuple[PodPlace, ...] = ()
    holds: Holds | None = None
    claims: Claims | None = None
    order: Callable[[Mapping[str, Any]], Order] | None = None
    retry: Retry = Retry.OTHER
    retries: RetryFields = _NO_FIELDS
    mechanisms: tuple[Mechanism, ...] = ()
    harm: str = ""
    is_gang: bool = False
    may_work: bool = False
    is_of_nodes: bool = False
    reads: Reads = Reads.NOTHING
    top: tuple[str, ...] = ("spec",)
    roles: tuple[str, ...] = ()
    leads: Callable[[str], bool] = _leads_never
    is_partial: bool = False
    passes_signals: bool = False
    shows_pods_of_another: bool = False
    annotations: tuple[str, ...] = ()
    container: str = ""
    default_policy: str = ""
    may_change: bool = False
    leaves_pods: bool = False
    makes: tuple[str, ...] = ()
    hands_down: bool = False
    references: References | None = None
    is_queued: bool = False
    old_fields: tuple[str, ...] = ()
    short_name: str = ""
    why_not_evicted: WhyNotEvicted | None = None
    makes_pods_later: bool = False
    pods_label: str = ""
    restart_label: str = ""
    suspended_by: Path = ()
    page: str = ""
    page_of_retries: str = ""
    notes: str = ""
    tried: str = ""

    @property
    def api_version(self) -> str:
        """The apiVersion that is placed and read, or empty."""
        return f"{self.group}/{self.version}" if self.group and self.version else self.version

    @property
    def plural(self) -> str:
        """The plural of its name in paths of the API."""
        return f"{self.name.lower()}s"

    @property
    def is_known(self) -> bool:
        """Whether anything is known about its objects."""
        return self.place is not None or self.places != () or self.holds is not None or self.shows_pods_of_another

    @property
    def makes_trials(self) -> bool:
        """Whether it is Katib's Experiment."""
        return self.retry is Retry.TRIAL and self.makes != ()

    @property
    def is_admitted(self) -> bool:
        """Whether its objects are placed when they are created in a cluster."""
        return self.place is not None and self.version != "" and not self.is_cluster_wide


def pods_at(
    path: str,
    form: str = "T",
    duty: PodRole = PodRole.WORKER,
    job: int = 0,
    read: ReadLevels | None = None,
    at_once: Count | None = None,
    is_there: Callable[[Any], bool] | None = None,
    tasks: ReadTasks | None = None,
) -> PodPlace:
    """The place of pods at a path such as ``spec.template``."""
    return PodPlace(_steps(path), form, duty, job, read, at_once, is_there, tasks)


def holds_at(*paths: str) -> Holds:
    """The inner objects at these paths, whatever other objects say."""

    def holds(data: Mapping[str, Any], _others: Others) -> Iterator[Path]:
        for path in paths:
            yield from matching(data, _steps(path))

    return holds


def matching(value: Any, pattern: Sequence[str], path: Path = ()) -> Iterator[Path]:
    """The paths of the values that a pattern leads to: ``*`` is every item of a list or every key of a mapping."""
    if not pattern:
        yield path
        return
    step, rest = pattern[0], pattern[1:]
    if step != "*":
        if isinstance(value, dict) and value.get(step) is not None:
            yield from matching(value[step], rest, (*path, step))
    elif isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from matching(child, rest, (*path, key))


def calls_after(
    where: Path, after: Mapping[str, Iterable[str]], stay: Iterable[str] = (), conditional: Iterable[str] = ()
) -> dict[str, Call]:
    """The calls of a list by their names, each after all before it. ``stay`` are those that do not end by themselves."""
    bits = {name: 1 << index for index, name in enumerate(after)}
    needed = {name: [one for one in set(given) if one in bits] for name, given in after.items()}
    before = dict.fromkeys(bits, 0)
    sorter = TopologicalSorter(needed)
    try:
        order: Iterable[str] = list(sorter.static_order())
    except CycleError:
        order = (name for _ in bits for name in bits)  # tasks of a cycle never run: until nothing changes
    changed = 0
    for count, name in enumerate(order):
        found = before[name]
        for one in needed[name]:
            found |= before[one] | bits[one]
        if found != before[name]:
            before[name], changed = found, count
        elif count - changed > len(bits):
            break
    ends = (1 << len(bits)) - 1 & ~sum(bits[one] for one in set(stay) if one in bits)
    may_not_run = set(conditional)
    return {
        name: Call(where, name, Earlier(bits, found & ends & ~bits[name]), name in may_not_run)
        for name, found in before.items()
    }


def claims_in(data: Any, path: Path) -> Iterator[Claim]:
    """The claims in a list of volumes, as pods have it, at a path of an object."""
    for index, volume in _mappings(data, path):
        name = value_at(volume, ("persistentVolumeClaim", "claimName"))
        own = value_at(volume, ("ephemeral", "volumeClaimTemplate", "spec"))
        label = str(volume.get("name"))
        if isinstance(name, str):
            yield Claim(name, (*path, index, "persistentVolumeClaim"), volume=label)
        elif isinstance(own, dict):
            yield Claim(label, (*path, index, "ephemeral"), Sharing.POD, own, label)


def claims_made(data: Any, path: Path, sharing: Sharing) -> Iterator[Claim]:
    """The claims in a list of templates of claims (``volumeClaimTemplates``) at a path of an object."""
    for index, template in _mappings(data, path):
        name, spec = str(value_at(template, ("metadata", "name"))), template.get("spec")
        yield Claim(name, (*path, index), sharing, spec if isinstance(spec, dict) else {}, name)


def mounts_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """The volume mounts of containers, anywhere in a pod spec or a holder."""
    if isinstance(value, dict):
        mounts = value.get("volumeMounts")
        yield from (one for one in (mounts if isinstance(mounts, list) else ()) if isinstance(one, dict))
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict | list):
            yield from mounts_in(one)


def mounts_of(mounts: Iterable[Mapping[str, Any]], volume: str) -> Iterator[Mount]:
    """The places of a volume among mounts."""
    for one in mounts:
        if one.get("name") == volume:
            folder = one.get("subPath") or one.get("subPathExpr") or ""
            yield Mount(str(one.get("mountPath")), str(folder), one.get("readOnly") is True)


def claims_of_each(path: str) -> Claims:
    """The claims of each pod of a kind with claim templates at this path."""

    def claims(data: Mapping[str, Any], _pods: Path) -> Iterator[Claim]:
        yield from claims_made(data, _steps(path), Sharing.POD)

    return claims


def _mappings(data: Any, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    items = value_at(data, path)
    return ((index, one) for index, one in enumerate(items if isinstance(items, list) else ()) if isinstance(one, dict))


def one_pod(_data: Mapping[str, Any], _path: Path) -> int:
    """One pod."""
    return 1


def replicas(data: Mapping[str, Any], path: Path) -> int | None:
    """The ``replicas`` beside the template, by default 1."""
    return number_at(data, (*path[:-1], "replicas"))


def number_at(data: Mapping[str, Any], path: Path, default: int = 1) -> int | None:
    """A count in a field of an object; ``None`` for a placeholder."""
    return whole_number(value_at(data, path), default)


def product(*counts: int | None) -> int | None:
    """The product of counts; ``None`` if one is unknown."""
    return prod(known) if len(known := [one for one in counts if one is not None]) == len(counts) else None


def levels_of_pods(template: str) -> dict[str, tuple[str, ...]]:
    """The levels of a pod template, which have no retries."""
    return dict.fromkeys((template, f"{template}.spec", f"{template}.spec.containers.*"), ())


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


@cache
def all_kinds() -> Mapping[tuple[str, str], Kind]:
    """Every kind by its group and its name, in this order."""
    files = [
        path for path in pathlib.Path(__file__).parent.iterdir() if path.suffix == ".py" and path.stem != "__init__"
    ]
    modules = [import_module(f"{__package__}.{path.stem}") for path in files]
    kinds = {(kind.group, kind.name): kind for module in modules for kind in getattr(module, "KINDS", ())}
    return {key: kinds[key] for key in sorted(kinds)}


def group_of(api_version: str) -> str:
    """The group of an apiVersion; empty for the core of Kubernetes."""
    return api_version.rpartition("/")[0]


def kind_of(api_version: str, name: str) -> Kind:
    """The record of a kind, by any version of its group; an empty record for an unknown kind."""
    return kind_in(group_of(api_version), name)


def kind_in(group: str, name: str) -> Kind:
    """The record of a kind of a group; an empty record for an unknown kind."""
    return all_kinds().get((group, name)) or Kind(group=group, name=name)


def run_kind(data: Mapping[str, Any]) -> Kind:
    """The record of the kind of a run or of a part of one; their names are unique, so lists may omit the group."""
    return run_kinds().get(str(data.get("kind"))) or Kind(group="", name=str(data.get("kind")))


@cache
def run_kinds() -> Mapping[str, Kind]:
    """Every kind whose objects are runs, or parts of one, by name."""
    runs = [kind for kind in all_kinds().values() if kind.reads is Reads.RUNS]
    return {kind.name: kind for kind in sorted(runs, key=lambda kind: kind.name)}


def may_be_run(api_version: str, name: str) -> bool:
    """Whether an object may be a run, or a part of one; unknown groups with such a kind count too."""
    other = all_kinds().get((group_of(api_version), name))
    return name in run_kinds() and (other is None or other.reads is Reads.RUNS)


@cache
def kinds_of_every_node() -> frozenset[str]:
    """The kinds with a pod on each node, such as DaemonSet."""
    every = all_kinds().values()
    return frozenset(kind.name for kind in every if any(place.duty is PodRole.SYSTEM for place in kind.places))


@cache
def placed_kind(name: str) -> Kind | None:
    """The placed kind of this name in any group; of several, the first by group."""
    return next((kind for kind in all_kinds().values() if kind.name == name and kind.place and kind.version), None)
