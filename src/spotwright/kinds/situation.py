"""What pods an object makes: where their templates stand, how many of each there are at once, and whether they need each other.

Lint and the reviews of objects ask it, so that what holds of a shared claim or of a gang holds for every kind. The facts stand in
the records of kinds. What an object does not tell, such as the number of a loop's pods, is not known, and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spotwright.kinds.kind import PodPlace, kind_of
from spotwright.placing.documents import Path

__all__ = ["PodGroup", "matching", "pod_groups"]


class PodGroup(NamedTuple):
    """The pods of one template. ``path`` leads to the template or the holder, as ``place.form`` says.

    ``at_once`` is the most pods that there are at one time; ``None``: the object does not tell it. ``is_gang``: they and the
    other groups of the object run together or not at all.
    """

    place: PodPlace
    path: Path
    at_once: int | None
    is_gang: bool


def pod_groups(data: Mapping[str, Any], path: Path = ()) -> Iterator[PodGroup]:
    """The pods of an object by their templates, in the order of its record; none of a kind that is not known.

    ``path`` is where the object stands, and is put before the paths.
    """
    kind = kind_of(str(data.get("apiVersion") or ""), str(data.get("kind") or ""))
    for place in kind.places:
        for at in matching(data, place.steps):
            at_once = None if place.at_once is None else place.at_once(data, at)
            yield PodGroup(place, (*path, *at), at_once, kind.is_gang)


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
