"""What pods an object makes: where their templates stand, how many of each there are at once, and whether they need each other.

Lint and the reviews of objects ask it, so that what holds of a shared claim or of a gang holds for every kind, also for an object
inside another one. The facts stand in the records of kinds. What an object does not tell, such as the number of a loop's pods, is
not known, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from spotwright.kinds.katib import documents_in
from spotwright.kinds.kind import Claim, Mount, Others, PodPlace, Run, claims_in, kind_of, matching, mounts_in, product
from spotwright.kinds.unknown import duty_of_named, find_pod_specs, replicas_above, template_of
from spotwright.placing.documents import Document, Path
from spotwright.placing.patch import data_document, value_at

__all__ = ["HeldObject", "PodGroup", "held_objects", "mounted_claims", "pod_claims", "pod_groups", "run_together"]


class PodGroup(NamedTuple):
    """The pods of one template. ``path`` leads to the template or the holder, as ``place.form`` says.

    ``at_once`` is the most pods that there are at one time; ``None``: the object does not tell it. ``is_gang``: they and the
    other groups of the object run together or not at all. ``runs`` are the ways by which the object comes to them, none
    where that is not known. ``limit`` is the most pods of the object at one time, if it has a limit.
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


def pod_groups(data: Mapping[str, Any], pod_paths: Sequence[Path] = ()) -> Iterator[PodGroup]:
    """The pods of an object by their templates, in the order of its record, then those at ``pod_paths``, as users name them.

    None of a kind that is not known and has no such path. Objects inside it are asked by themselves: :func:`held_objects`.
    """
    api_version, name = str(data.get("apiVersion") or ""), str(data.get("kind") or "")
    kind, known = kind_of(api_version, name), set()
    order = kind.order(data) if kind.order is not None else None
    for place in kind.places:
        for at in matching(data, place.steps):
            if place.is_there is None or place.is_there(value_at(data, at)):
                at_once = None if place.at_once is None else place.at_once(data, at)
                runs = (Run((), at_once),) if order is None else tuple(order.runs.get(at, ()))
                limit = None if order is None else order.limit
                group = PodGroup(place, at, _most(runs, limit), kind.is_gang, runs, limit)
                known.add(group.spec)
                yield group
    for spec in find_pod_specs(data, pod_paths, may_be_partial=kind.place is None) if pod_paths else ():
        if spec not in known:
            template = template_of(spec)
            place = PodPlace((), "S" if template is None else "T", duty_of_named(api_version, name))
            at_once = replicas_above(data, spec)
            yield PodGroup(place, spec if template is None else template, at_once, runs=(Run((), at_once),))


def run_together(one: PodGroup, other: PodGroup) -> bool | None:
    """Whether there are pods of two groups of an object at one time; ``None``: the object does not tell it."""
    if not one.runs or not other.runs:
        return None
    if 1 in (one.limit, other.limit):
        return False
    found = {_meet(a, b, across=True) for a in one.runs for b in other.runs}
    return True if True in found else None if None in found else False


def _meet(one: Run, other: Run, *, across: bool = False) -> bool | None:
    """Whether two runs are there at one time: they are not where the first calls in which they differ follow each other.

    ``across``: or in two iterations of a loop around both.
    """
    pairs = list(zip(one.calls, other.calls, strict=False))
    same = next((depth for depth, (a, b) in enumerate(pairs) if a != b), len(pairs))
    if same == len(pairs):
        return True
    a, b = pairs[same]
    if a.where != b.where:
        return None
    if a.name in b.after or b.name in a.after:
        around = product(*(call.times for call in one.calls[:same])) if across else 1
        return None if around is None else around > 1
    return None if a.is_conditional and b.is_conditional else True


_MOST_COMPARED = 12  # runs of one template, of which every choice is looked at


def _most(runs: Sequence[Run], limit: int | None) -> int | None:
    """The most pods of these runs at one time; ``None`` where it is not known."""
    if not runs or any(run.times is None for run in runs):
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
    """The most pods of runs of which every two meet."""
    if not among:
        return 0
    first, rest = among[0], among[1:]
    beside = [one for one in rest if meet[first, one]]
    return max(_heaviest(rest, times, meet), times[first] + _heaviest(beside, times, meet))


def pod_claims(data: Mapping[str, Any], group: PodGroup) -> list[Claim]:
    """The claims that the pods of a group have as volumes, with the places at which their containers mount them.

    Whether the claim is there, and how it may be mounted, another object tells where the claim is named.
    """
    kind = kind_of(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
    of_object = kind.claims(data, group.path) if kind.claims is not None else ()
    mounts = list(mounts_in(value_at(data, group.spec)))
    claims = [*claims_in(data, (*group.spec, "volumes")), *of_object]
    return [one if one.mounts else one._replace(mounts=tuple(_mounts(mounts, one.volume))) for one in claims]


def _mounts(mounts: Iterable[Mapping[str, Any]], volume: str) -> Iterator[Mount]:
    for one in mounts:
        if one.get("name") == volume:
            folder = one.get("subPath") or one.get("subPathExpr") or ""
            yield Mount(str(one.get("mountPath")), str(folder), one.get("readOnly") is True)


def mounted_claims(data: Mapping[str, Any]) -> Iterator[Claim]:
    """The claims that pods of an object have, and those of the objects that it holds."""
    return _mounted(data_document(data, ""), (), data)


def _mounted(document: Document, base: Path, value: Mapping[str, Any]) -> Iterator[Claim]:
    for group in pod_groups(value):
        yield from pod_claims(value, group)
    for held in held_objects(document, base, value):
        yield from _mounted(held.document, held.base, held.value)


class HeldObject(NamedTuple):
    """An object inside another: where that holds it, the document that has its lines, its path there, and its fields.

    ``document`` is that of the outer object, or one of its own where it stands in a text.
    """

    path: Path
    document: Document
    base: Path
    value: Mapping[str, Any]


def held_objects(
    document: Document, base: Path, value: Mapping[str, Any], others: Others | None = None
) -> Iterator[HeldObject]:
    """The objects inside the object at a path of a document: a trial, a manifest in a step, the parts of an AppWrapper.

    ``others`` has the objects beside it, by default none. Raises :class:`ManifestError` for a text that is no YAML.
    """
    holds = kind_of(str(value.get("apiVersion") or ""), str(value.get("kind") or "")).holds
    for path in holds(value, others or _no_others) if holds is not None else ():
        inner, at = value_at(value, path), (*base, *path)
        if isinstance(inner, dict):
            yield HeldObject(at, document, at, inner)
        elif isinstance(inner, str):
            for each in documents_in(document, at, inner):
                if isinstance(one := each.get(()), dict):
                    yield HeldObject(at, each, (), one)


def _no_others(_kind: str) -> Iterable[Mapping[str, Any]]:
    return ()
