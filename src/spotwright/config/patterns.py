"""Patterns of task paths: ``*`` stays within a segment, ``**`` does not.

A task's path names it in its run: ``train``, ``loop/train-3``. ``**/`` also stands for no folder at all, so that ``**/train*``
matches ``train`` at the top level too. Every other character means itself.

No regular expression is made of a pattern: one with many stars could be tried against a path for minutes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

__all__ = ["matches", "refusal"]

_PARTS = re.compile(r"(?:(?<=/)|^)\*{2,}/|\*{2,}|\*|[^*]+")  # more stars than two are two


def matches(pattern: str, path: str) -> bool:
    """Whether a task's path matches the whole pattern."""
    reached = {0}  # how much of the path the parts up to here may stand for
    for part in _parts(pattern):
        reached = set(_ends(part, path, reached))
        if not reached:
            return False
    return len(path) in reached


def refusal(pattern: str) -> str:
    """Why a text cannot be a pattern of task paths; empty when it can."""
    if not pattern or not pattern.isprintable() or len(pattern) > 500:
        return "expected a task's path or a pattern such as '**/train*'"
    if "" in pattern.split("/"):
        return "expected names between single slashes, such as 'loop/train'"
    return ""


def _ends(part: str, path: str, starts: set[int]) -> Iterator[int]:
    """Where a part may end that begins at one of these places."""
    if part.startswith("**") and part.endswith("/"):
        yield from starts
        yield from (index + 1 for index in range(min(starts), len(path)) if path[index] == "/")
    elif part.startswith("**"):
        yield from range(min(starts), len(path) + 1)
    elif part == "*":
        for start in starts:
            end = path.find("/", start)
            yield from range(start, (end if end >= 0 else len(path)) + 1)
    else:
        yield from (start + len(part) for start in starts if path.startswith(part, start))


@functools.lru_cache(maxsize=1024)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(_PARTS.findall(pattern))
