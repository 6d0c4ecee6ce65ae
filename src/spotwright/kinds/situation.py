"""The pods that an object makes: their templates, how many of each run at once, and whether they need each other.

Lint and the reviews of objects use it, so that rules on shared claims or gangs apply to every kind, also inside other objects.
The facts are in the records of kinds. Unstated numbers, such as a loop's pods, are unknown, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, NamedTuple

from spotwright.kfp.compiled import IrError, require_size
from spotwright.kinds.katib import documents_in
from spotwright.kinds.kind import (
    Call,
    Claim,
    Mount,
    PodPlace,
    Run,
    Sharing,
    calls_after,
    claims_in,
    kind_of,
    matching,
    mounts_in,
    mounts_of,
    product,
)
from spotwright.kinds.unknown import duty_of_named, find_pod_specs, replicas_above, template_of
from spotwright.kube.admission import Others, no_others
from spotwright.placing.document_pair import EXECUTORS, PIPELINE, PLATFORMS
from spotwright.placing.documents import Document, Path
from spotwright.placing.patch import value_at
from spotwright.placing.retries import whole_number

__all__ = [
    "HeldObject",
    "PodGroup",
    "held_objects",
    "objects_within",
    "pipeline_groups",
    "pod_claims",
    "pod_groups",
    "pod_places",
    "pods_of_tasks",
    "pods_with",
    "run_together",
]


class PodGroup(NamedTuple):
    """The pods of one template. ``path`` leads to the template or the holder, as ``place.form`` says.

    ``at_once`` is the most pods at one time; ``None``: unknown. ``is_gang``: they and the other groups of the object run
    together or not at all. ``runs`` are the paths of calls to them, empty if unknown. ``limit`` is the most pods of the object
    at one time, if it has a limit.
    """

    place: PodPlace
    path: Path
    at_once: int | None
    is_gang: bool = False
    runs: tuple[Run, ...] = ()
    limit: int | None = None

    @property
    def spec(self) -> Path:
        """The path of the pod spec, or of the holder that has its fields."""
        return (*self.path, "spec") if self.place.form == "T" else self.path


def pod_places(data: Mapping[str, Any]) -> Iterator[tuple[PodPlace, Path]]:
    """The places of an object's pod templates and holders, in its record's order: :func:`pod_groups` without counting."""
    kind = kind_of(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
    for place in kind.places:
        for at in matching(data, place.steps):
            if place.is_there is None or place.is_there(value_at(data, at)):
                yield place, at


def pod_groups(data: Mapping[str, Any], pod_paths: Sequence[Path] = ()) -> Iterator[PodGroup]:
    """The pods of an object by their templates, in the order of its record, then those at ``pod_paths``, as users name them.

    Empty for an unknown kind without such a path. Objects inside it are separate: :func:`held_objects`.
    """
    api_version, name = str(data.get("apiVersion") or ""), str(data.get("kind") or "")
    kind, known = kind_of(api_version, name), set()
    order = kind.order(data) if kind.order is not None else None
    for place, at in pod_places(data):
        at_once = None if place.at_once is None else place.at_once(data, at)
        runs = (Run((), at_once),) if order is None else tuple(order.runs.get(at, ()))
        limit = None if order is None else order.limit
        group = PodGroup(place, at, _most(runs, limit), kind.is_gang, runs, limit)
        known.add(group.spec)
        yield group
    for spec in find_pod_specs(data, pod_paths, may_be_partial=kind.place is None) if pod_paths else ():
        if spec not in known:
            template = template_of(spec)
            place = PodPlace(tuple(map(str, spec)), "S" if template is None else "T", duty_of_named(api_version, name))
            at_once = replicas_above(data, spec)
            yield PodGroup(place, spec if template is None else template, at_once, runs=(Run((), at_once),))


def pipeline_groups(pair: Any) -> Iterator[PodGroup]:
    """The pods of a compiled pipeline by their executors, in the order of the document; ``pair`` has its two documents.

    The form of their places is ``K``: the path leads to the Kubernetes settings of the executor, which may be missing.
    """
    runs: dict[str, list[Run]] = {}
    ir = value_at(pair, PIPELINE)
    if not isinstance(ir, dict):
        return
    with suppress(IrError):  # its order is unknown; place refuses it
        require_size(ir)
        _unfold(ir, ("root",), (), 1, runs)
    executors = value_at(ir, ("deploymentSpec", "executors"))
    for label, executor in executors.items() if isinstance(executors, dict) else ():
        if value_at(executor, ("container",)):
            found = tuple(runs.get(label, ()))
            yield PodGroup(_EXECUTOR, (*PLATFORMS, *EXECUTORS, label), _most(found, None), runs=found)


_EXECUTOR = PodPlace((*map(str, EXECUTORS), "*"), "K")


def _unfold(ir: Any, keys: Path, calls: tuple[Call, ...], times: int | None, runs: dict[str, list[Run]]) -> None:
    """Add the runs of each executor in the DAG of a component. Source: kubeflow/pipelines, ``pipeline_spec.proto``."""
    given = value_at(ir, (*keys, "dag", "tasks"))
    tasks = {name: task for name, task in given.items() if isinstance(task, dict)} if isinstance(given, dict) else {}
    conditional = [name for name, task in tasks.items() if value_at(task, ("triggerPolicy", "condition"))]
    after = {name: _texts(task.get("dependentTasks")) for name, task in tasks.items()}
    for name, call in calls_after(keys, after, (), conditional).items():
        count = _iterations(tasks[name])
        component = str(value_at(tasks[name], ("componentRef", "name")))
        made, inner = product(times, count), (*calls, call._replace(times=count))
        if value_at(ir, ("components", component, "dag")) is not None:
            _unfold(ir, ("components", component), inner, made, runs)
        else:
            label = str(value_at(ir, ("components", component, "executorLabel")))
            runs.setdefault(label, []).append(Run(inner, made))


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _iterations(task: Mapping[str, Any]) -> int | None:
    """The parallel iterations of a task; ``None`` if only the run has its items."""
    iterator = task.get("parameterIterator") or task.get("artifactIterator")
    if iterator is None:
        return 1
    limit = whole_number(value_at(task, ("iteratorPolicy", "parallelismLimit")), 0)
    try:
        items = json.loads(str(value_at(iterator, ("items", "raw"))))
    except (ValueError, RecursionError):
        return None
    if not isinstance(items, list) or limit is None:
        return None
    return min(len(items), limit or len(items))


def run_together(one: PodGroup, other: PodGroup) -> bool | None:
    """Whether pods of two groups of an object run at the same time; ``None``: unknown."""
    if not one.runs or not other.runs or len(one.runs) * len(other.runs) > _MOST_RUNS**2:
        return None
    if 1 in (one.limit, other.limit):
        return False
    found = {_meet(a, b, across=True) for a in one.runs for b in other.runs}
    return True if True in found else None if None in found else False


def _meet(one: Run, other: Run, *, across: bool = False) -> bool | None:
    """Whether two runs overlap: not if the first calls in which they differ follow each other.

    Nor if they hold the same mutex, unless its holder is around both.

    ``across``: they may also be in two iterations of a loop around both.
    """
    pairs = list(zip(one.calls, other.calls, strict=False))
    same = next((depth for depth, (a, b) in enumerate(pairs) if a != b), len(pairs))
    if same == len(pairs):
        return True
    depths = dict(other.locks)
    apart = [name for name, depth in one.locks if name in depths and not depth == depths[name] <= same]
    if apart:
        return False if any(apart) else None
    a, b = pairs[same]
    if a.where != b.where:
        return None
    if a.name in b.after or b.name in a.after:
        loops = [call.times for call in one.calls[:same]] if across else []
        around = product(*loops[max((depth for name, depth in one.locks if name in depths), default=0) :])
        if around == 1 and "" in depths and "" in dict(one.locks) and product(*loops) != 1:
            return None
        if around is None or around <= 1:
            return None if around is None else False
    return None if a.is_conditional and b.is_conditional else True


_MOST_RUNS = 256  # of one template; beyond, unknown
_MOST_COMPARED = 12  # runs of one template for which every subset is examined


def _most(runs: Sequence[Run], limit: int | None) -> int | None:
    """The most pods of these runs at one time; ``None`` if unknown."""
    if not runs or len(runs) > _MOST_RUNS or any(run.times is None for run in runs):
        return None
    meet = {(a, b): _meet(runs[a], runs[b]) for a, b in combinations(range(len(runs)), 2)}
    times = [run.times or 0 for run in runs]
    if None in meet.values():
        return None
    if False not in meet.values():
        most = sum(times)
    elif True not in meet.values():
        most = max(times)
    elif len(runs) > _MOST_COMPARED:
        return None
    else:
        most = _heaviest(list(range(len(runs))), times, meet)
    return most if limit is None else min(most, limit)


def _heaviest(among: Sequence[int], times: Sequence[int], meet: Mapping[tuple[int, int], bool | None]) -> int:
    """The most pods of runs that all overlap pairwise."""
    if not among:
        return 0
    first, rest = among[0], among[1:]
    beside = [one for one in rest if meet[first, one]]
    return max(_heaviest(rest, times, meet), times[first] + _heaviest(beside, times, meet))


def pod_claims(data: Any, group: PodGroup) -> list[Claim]:
    """The claims that the pods of a group have as volumes, with their containers' mounts.

    ``data`` is the object, or the pair of a compiled pipeline. The existence and access modes of a named claim are in another
    object.
    """
    if group.place.form == "K":
        return list(_claims_of_executor(data, group.path))
    kind = kind_of(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
    of_object = kind.claims(data, group.path) if kind.claims is not None else ()
    mounts = list(mounts_in(value_at(data, group.spec)))
    claims = [*claims_in(data, (*group.spec, "volumes")), *of_object]
    return [one if one.mounts else one._replace(mounts=tuple(mounts_of(mounts, one.volume))) for one in claims]


def pods_with(group: PodGroup, claims: Iterable[Claim]) -> PodGroup:
    """The pods of a group that have one of these claims of it."""
    tasks: set[str] = set()
    for claim in claims:
        if claim.tasks is None:
            return group
        tasks |= claim.tasks
    return pods_of_tasks(group, tasks)


def pods_of_tasks(group: PodGroup, tasks: Container[str]) -> PodGroup:
    """The pods of a group that are those of tasks with these names."""
    runs = tuple(run for run in group.runs if run.calls[-1].name in tasks)
    return group._replace(at_once=_most(runs, group.limit), runs=runs)


def _claims_of_executor(pair: Any, settings: Path) -> Iterator[Claim]:
    """The claims of an executor that the pipeline names or that its tasks make; others come with the run."""
    mounts = value_at(pair, (*settings, "pvcMount"))
    for index, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        given = value_at(mount, ("pvcNameParameter",), mount)
        name = value_at(given, ("runtimeValue", "constant"), value_at(mount, ("constant",)))
        place = (Mount(str(value_at(mount, ("mountPath",))), str(value_at(mount, ("subPath",)) or "")),)
        path = (*settings, "pvcMount", index)
        if isinstance(name, str):
            yield Claim(name, path, mounts=place)
        elif makers := _claim_makers(value_at(pair, PIPELINE), given, str(settings[-1])):
            for maker, spec in makers.items():
                yield Claim(maker, path, Sharing.OBJECT, spec, mounts=place)


def _claim_makers(ir: Any, given: Any, label: str) -> dict[str, dict[str, Any]]:
    """The tasks that make the claim named by a parameter, each with the claim's spec.

    A parameter of a component is followed to all tasks that call the component. Source: kfp-kubernetes, ``CreatePVC``.
    """
    found: dict[str, dict[str, Any]] = {}
    calls = _calls_of(ir)
    components = value_at(ir, ("components",), {})
    here = [name for name, one in components.items() if value_at(one, ("executorLabel",)) == label]
    waiting = [(given, each, True) for component in here for each in calls.get(component, ())]
    seen: set[tuple[str, str]] = set()
    while waiting:
        one, (scope, task, tasks), is_own = waiting.pop()
        producer = value_at(one, ("taskOutputParameter", "producerTask"))
        inner = value_at(one, ("componentInputParameter",))
        if isinstance(producer, str):
            found[producer] = _asked_of_claim(value_at(tasks, (producer, "inputs", "parameters")))
        elif (
            isinstance(inner, str)
            and is_own
            and (passed := value_at(task, ("inputs", "parameters", inner))) is not None
        ):
            waiting.append((passed, (scope, task, tasks), False))  # the executor's own input
        elif isinstance(inner, str) and (scope, inner) not in seen:  # an input of the DAG around it
            seen.add((scope, inner))
            waiting += [
                (value_at(above[1], ("inputs", "parameters", inner)), above, False) for above in calls.get(scope, ())
            ]
    return found


def _calls_of(ir: Any) -> dict[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]]:
    """The tasks that call each component: the component whose DAG has the task (empty: the root), the task, and that DAG."""
    calls: dict[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {}
    for name, one in (*value_at(ir, ("components",), {}).items(), ("", value_at(ir, ("root",)))):
        tasks = value_at(one, ("dag", "tasks"))
        for task in tasks.values() if isinstance(tasks, dict) else ():
            if isinstance(task, dict):
                calls.setdefault(str(value_at(task, ("componentRef", "name"))), []).append((name, task, tasks))
    return calls


_ASKED = (("accessModes", "access_modes"), ("storageClassName", "storage_class_name"))


def _asked_of_claim(parameters: Any) -> dict[str, Any]:
    """The spec of a claim that a task makes, as far as the pipeline states it."""
    constants = {field: value_at(parameters, (key, "runtimeValue", "constant")) for field, key in _ASKED}
    return {field: value for field, value in constants.items() if value is not None}


class HeldObject(NamedTuple):
    """An object inside another: its place there, the document with its lines, its path in that, and its fields.

    ``document`` is the outer object's, or a separate one if it is in a string.
    """

    path: Path
    document: Document
    base: Path
    value: Mapping[str, Any]


def held_objects(
    document: Document, base: Path, value: Mapping[str, Any], others: Others = no_others
) -> Iterator[HeldObject]:
    """The objects inside the object at a path of a document: a trial, a manifest in a step, the parts of an AppWrapper.

    ``others`` has the objects beside it, by default none. Raises :class:`ManifestError` for invalid YAML.
    """
    holds = kind_of(str(value.get("apiVersion") or ""), str(value.get("kind") or "")).holds
    for path in holds(value, others) if holds is not None else ():
        inner, at = value_at(value, path), (*base, *path)
        if isinstance(inner, dict):
            yield HeldObject(at, document, at, inner)
        elif isinstance(inner, str):
            for each in documents_in(document, at, inner):
                if isinstance(one := each.get(()), dict):
                    yield HeldObject(at, each, (), one)


def objects_within(
    document: Document, base: Path, value: Mapping[str, Any], others: Others = no_others
) -> Iterator[HeldObject]:
    """The objects inside the object at a path of a document, at any depth, as :func:`held_objects` gives them."""
    for held in held_objects(document, base, value, others):
        yield held
        yield from objects_within(held.document, held.base, held.value, others)
