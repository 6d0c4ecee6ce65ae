"""The record of a kind: all that Spotwright knows of it. No module outside this package compares a kind with a name.

A module of this package that serves a family of kinds has their records as ``KINDS``: a new kind is a record in a module, and
no other table. Kinds that are not placed have records too where something is known of their pods. The modules are imported
when a kind is first looked up.
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
"""The objects to which the spec of an object refers, each as kind of the same group, and name."""


WhyNotEvicted: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], str]
"""Why an eviction of a pod would cost its work something, by the pod's owners, nearest first; empty if it would not."""


Count: TypeAlias = Callable[[Mapping[str, Any], Path], int | None]
"""The most pods at one time of the template at a path of an object; ``None`` if the object does not say."""


Holds: TypeAlias = Callable[[Mapping[str, Any], Others], Iterator[Path]]
"""The paths of the objects that an object holds, each a mapping or a text that is YAML; other objects may say which."""


class Sharing(StrEnum):
    """Who has the volume of a claim."""

    NAMED = "named"  # all pods that name the claim, in other objects too
    OBJECT = "object"  # all pods of the object for which it is made
    POD = "pod"  # one pod: each gets its own claim


class Mount(NamedTuple):
    """A place in a container at which it has a volume, or the ``folder`` of it; an empty folder is the whole volume."""

    path: str
    folder: str = ""
    is_read_only: bool = False


class Claim(NamedTuple):
    """A PersistentVolumeClaim that pods have as a volume, by its name, or by that of the template from which it is made.

    ``path`` leads to where the object names it or has its template. ``spec`` is what it asks for; empty for one that is named,
    which is another object. ``mounts`` are the places in the containers of the pods. ``tasks`` are the names of the calls
    whose pods have it, ``None`` if all pods of the template do.
    """

    name: str
    path: Path
    sharing: Sharing = Sharing.NAMED
    spec: Mapping[str, Any] = {}
    volume: str = ""
    mounts: tuple[Mount, ...] = ()
    tasks: frozenset[str] | None = None


class Earlier:
    """Names of a list that come before one of them, as bits: thousands of tasks that each wait for all others need no sets.

    ``bits`` has the bit of each name of the list, and ``mask`` the bits of those in it.
    """

    __slots__ = ("_bits", "_mask")

    def __init__(self, bits: Mapping[str, int], mask: int) -> None:
        """Keep them; the bits are shared by all calls of the list."""
        self._bits, self._mask = bits, mask

    def __contains__(self, name: object) -> bool:
        """Whether a name comes before."""
        return isinstance(name, str) and bool(self._mask & self._bits.get(name, 0))

    def __eq__(self, other: object) -> bool:
        """Whether they are the same names of lists with the same names."""
        if not isinstance(other, Earlier):
            return NotImplemented
        return self._mask == other._mask and (self._bits is other._bits or self._bits == other._bits)

    def __hash__(self) -> int:
        """The hash of the bits."""
        return hash(self._mask)


class Call(NamedTuple):
    """A step on the way to pods: a task of a DAG, a step, a replicated job. ``where`` is the list in which it has its ``name``.

    ``after`` are the names in that list which have ended before it begins. ``is_conditional``: it may not run at all. ``times``
    is how often it runs at one time; ``None``: the object does not say.
    """

    where: Path
    name: str
    after: Earlier = Earlier({}, 0)
    is_conditional: bool = False
    times: int | None = 1


class Run(NamedTuple):
    """One way by which an object comes to pods of a template: the calls, outermost first.

    ``times`` is how many pods it makes at one time, in all iterations of loops; ``None``: the object does not say.
    ``locks`` are the mutexes that it holds, each with the number of the calls around what has it. An empty name is a lock that
    may let in others.
    """

    calls: tuple[Call, ...]
    times: int | None
    locks: tuple[tuple[str, int], ...] = ()


class Order(NamedTuple):
    """In what order an object makes its pods: the runs of each template by its path, none where that is not known.

    ``limit`` is the most pods of the object at one time; ``None`` without a limit.
    """

    runs: Mapping[Path, Sequence[Run]]
    limit: int | None = None


Claims: TypeAlias = Callable[[Mapping[str, Any], Path], Iterator[Claim]]
"""The claims that the pods of the template at a path have beside those in their pod spec."""


class Retry(StrEnum):
    """Who makes a lost pod again."""

    NONE = "none"  # no controller
    JOB = "job"  # a Job, by its backoffLimit and podFailurePolicy
    ROLE = "role"  # the training operator, by the role's restartPolicy
    SET = "set"  # the kind's own controller, with all pods beside it
    STEP = "step"  # Argo, by the step's retryStrategy
    TRIAL = "trial"  # Katib, as another trial
    OTHER = "other"  # the kind's own controller


class Reads(StrEnum):
    """What the controller in the cluster reads of a kind."""

    NOTHING = "nothing"
    OBJECTS = "objects"  # one that is named by a pod's owner, or by what is created
    RUNS = "runs"  # all: each is a run, or a part of one


class PodLevels(NamedTuple):
    """A pod as its controller makes it of all levels of an object, and where what its own level lacks stands.

    ``path`` leads to the level to which a field is added, which has the ``form`` T, S or H of a place. ``spec`` has the fields of
    a pod spec. ``where`` has paths of the object by paths in the spec, which hold for what is inside too.
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

    ``job`` is how many steps above the template its Job spec stands, 0 if it has none. ``read`` merges the levels of a pod whose
    fields stand elsewhere too. ``at_once`` counts the pods of the template that there are at one time. ``is_there``: whether the
    holder has pods itself, as a template of Argo that calls others has not; by default it has. ``tasks`` reads the pod of each
    task that has the template, with the task's name (empty for the only one), where containers are those of tasks.
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
        """Whether a pod template stands there, by Kubernetes or by Tekton, whose templates have no metadata."""
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
    """The words that the field at a path may have; ``version``: in this version alone."""

    path: str
    words: tuple[str, ...]
    version: str = ""


class RetryFields(NamedTuple):
    """How people write what a kind retries. Paths are from the object, with ``*`` for every item or key.

    ``home`` is the field that says how often, with ``[]`` behind the name of a list; empty without retries. ``levels`` are
    the places at which people write retries, each with those words for them that it has. ``types`` are all fields of what stands
    at a path: of a mapping each with its own type, of a list that of its items, ``None`` for what is not looked at.
    """

    home: str = ""
    levels: Mapping[str, tuple[str, ...]] = {}
    types: Mapping[str, Any] = {}
    values: tuple[Words, ...] = ()


_NO_FIELDS = RetryFields()


def _leads_never(_role: str) -> bool:
    return False


def leads_by_name(role: str) -> bool:
    """Whether a role has a name that people give to one which all others need."""
    return re.search(_LEADERS, role, re.IGNORECASE) is not None


_LEADERS = r"(^|-)(mpi)?(leader|driver|coordinator|launcher|master|chief|head|scheduler|ps|parameter-?server)s?(-|\d|$)"


class Kind(NamedTuple):
    """What is known of one kind. The interface of Kueue's ``GenericJob`` was the model for what belongs here.

    ``version`` is the one that is placed and read; empty: no API server is asked about the kind. ``more_versions`` are those
    that a cluster may serve instead. ``takes_any_version``: another version has the same fields, or ``place`` reports it.
    ``place`` places an object; ``None``: it passes through unchanged.

    ``places`` locates its pods, ``holds`` the objects of other kinds inside it. ``claims`` are the object's claims,
    ``order`` is the order of its pods; without it all run at one time. ``retry`` is who makes a lost one again, ``retries``
    how people write that, ``mechanisms`` are its ways to go on after the end of an attempt. ``harm`` is what an interruption
    does, where it hurts people and not the work alone. ``is_gang``: its pods run together or not at all. ``may_work``: its
    pods serve, unless the label ``spotwright.dev/role: worker`` or its own policy says that they work. ``is_of_nodes``:
    it describes nodes and has no pods. ``why_not_evicted`` is what an eviction costs, where it may cost nothing; without it,
    an eviction counts as a failure. ``pods_label`` is the label of its pods, and of no others, by whose value they are known,
    ``restart_label`` the one with the number of the restart that all its pods share. ``suspended_by`` is the path of the
    field that suspends it: its pods are deleted, and made again when it goes on. ``makes_pods_later``: after some have failed,
    its controller waits before it makes the next.

    ``leads`` says by the name of a role whether all others need it. ``is_partial``: its pods are whole only together with
    another object. ``shows_pods_of_another``: it describes pods that another object has. ``annotations`` is where a holder of
    pods has theirs. ``passes_signals``: its controller starts each command by a program that passes signals on to all processes.

    ``top`` is the path of the spec that another kind may hold, as a CronWorkflow that of a Workflow. ``roles`` are those that its
    controller knows, ``container`` is the name that it wants of the code's container, ``default_policy`` the restartPolicy of
    a role that names none. ``may_change``: its pods may be changed at any time, and count for what is made of them
    afterwards. ``leaves_pods``: pods that it owns are left as they come, because they serve or have a special entrypoint.

    ``makes`` are kinds that its controller makes, whose objects follow theirs and are not placed by themselves.
    ``hands_down``: what its controller makes is placed by the policy of the object, of which it copies no metadata.
    ``references`` are the objects that its placement reads. ``is_queued``: Kueue gives it the default queue of its namespace,
    as Kueue is installed; kinds that Kueue manages only where its administrator says so are not. Source: kubernetes-sigs/kueue,
    ``config/components/manager/controller_manager_config.yaml``.
    ``old_fields`` of its spec belong to older releases under the same apiVersion; its API server drops them.

    ``short_name`` is one of kubectl's. ``page`` is its page in docs/kinds, which is made of this record, ``page_of_retries``
    the kind that goes on as it does, whose table it does not repeat. ``notes`` are facts for its users that no other
    field has, one a line, ``tried`` says on what it was tried.
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
        """The plural of its name, as it stands in paths of the API."""
        return f"{self.name.lower()}s"

    @property
    def is_known(self) -> bool:
        """Whether anything is known of what its objects have in them."""
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
    """What a kind holds whose inner objects stand at these paths, whatever other objects say."""

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
    """The calls of a list by their names, each behind all before it. ``stay`` are those that do not end by themselves."""
    bits = {name: 1 << index for index, name in enumerate(after)}
    needed = {name: [one for one in set(given) if one in bits] for name, given in after.items()}
    before = dict.fromkeys(bits, 0)
    sorter = TopologicalSorter(needed)
    try:
        order: Iterable[str] = list(sorter.static_order())
    except CycleError:
        order = (name for _ in bits for name in bits)  # a circle, whose tasks never run: until nothing changes
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
    """The mounts of volumes in containers, anywhere in a pod spec or what holds its fields."""
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
    """What each pod of a kind gets that has templates of claims at this path."""

    def claims(data: Mapping[str, Any], _pods: Path) -> Iterator[Claim]:
        yield from claims_made(data, _steps(path), Sharing.POD)

    return claims


def _mappings(data: Any, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    items = value_at(data, path)
    return ((index, one) for index, one in enumerate(items if isinstance(items, list) else ()) if isinstance(one, dict))


def one_pod(_data: Mapping[str, Any], _path: Path) -> int:
    """A single pod."""
    return 1


def replicas(data: Mapping[str, Any], path: Path) -> int | None:
    """The ``replicas`` beside the template, by default 1."""
    return number_at(data, (*path[:-1], "replicas"))


def number_at(data: Mapping[str, Any], path: Path, default: int = 1) -> int | None:
    """A count in a field of an object; ``None`` where it is known only later."""
    return whole_number(value_at(data, path), default)


def product(*counts: int | None) -> int | None:
    """The product of counts; ``None`` if one of them is not known."""
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
    """The record of a kind, by any version of its group; one without any facts for an unknown kind."""
    return kind_in(group_of(api_version), name)


def kind_in(group: str, name: str) -> Kind:
    """The record of a kind of a group; one without any facts for an unknown kind."""
    return all_kinds().get((group, name)) or Kind(group=group, name=name)


def run_kind(data: Mapping[str, Any]) -> Kind:
    """The record of the kind of a run or of a part of one; no two have one name, so lists need not say the group."""
    return run_kinds().get(str(data.get("kind"))) or Kind(group="", name=str(data.get("kind")))


@cache
def run_kinds() -> Mapping[str, Kind]:
    """Every kind of which objects are runs, or parts of one, by its name."""
    runs = [kind for kind in all_kinds().values() if kind.reads is Reads.RUNS]
    return {kind.name: kind for kind in sorted(runs, key=lambda kind: kind.name)}


def may_be_run(api_version: str, name: str) -> bool:
    """Whether an object may be a run, or a part of one: kinds of such a name in unknown groups may be too."""
    other = all_kinds().get((group_of(api_version), name))
    return name in run_kinds() and (other is None or other.reads is Reads.RUNS)


@cache
def kinds_of_every_node() -> frozenset[str]:
    """The names of the kinds of which each node has a pod, whatever else is placed there."""
    every = all_kinds().values()
    return frozenset(kind.name for kind in every if any(place.duty is PodRole.SYSTEM for place in kind.places))


@cache
def placed_kind(name: str) -> Kind | None:
    """The kind of this name that is placed, whatever its group; of several, that of the shorter group."""
    return next((kind for kind in all_kinds().values() if kind.name == name and kind.place and kind.version), None)
