"""Read values of any shape: a document under lint may hold anything anywhere, and no rule may fail on that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.placing.documents import Path
from spotwright.placing.patch import value_at

__all__ = ["Shape", "is_whole", "items_of", "mapping_at", "mapping_of", "matching", "texts_of"]

Shape = Mapping[str, Any]
"""A mapping of a document."""

_EMPTY: Shape = {}


def mapping_of(value: Any) -> Shape:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else _EMPTY


def mapping_at(value: Any, *path: str | int) -> Shape:
    """The mapping at a path, else an empty one."""
    return mapping_of(value_at(value, path))


def items_of(value: Any) -> Sequence[Any]:
    """The items if the value is a list, else none."""
    return value if isinstance(value, list) else ()


def is_whole(value: Any) -> bool:
    """Whether the value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def texts_of(value: Any) -> Iterator[str]:
    """The texts in a list; a text counts as a list of one."""
    for item in [value] if isinstance(value, str) else items_of(value):
        if isinstance(item, str):
            yield item


def matching(value: Any, pattern: Sequence[str], path: Path = ()) -> Iterator[Path]:
    """The paths of the values that a pattern leads to: ``*`` is every item of a list or every key of a mapping."""
    if not pattern:
        yield path
        return
    step, rest = pattern[0], pattern[1:]
    if step != "*":
        if isinstance(value, dict) and value.get(step) is not None:
            yield from matching(value[step], rest, (*path, step))
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from matching(child, rest, (*path, key))
    else:
        for index, child in enumerate(items_of(value)):
            yield from matching(child, rest, (*path, index))
