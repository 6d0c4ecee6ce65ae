"""Matches patterns of task paths: ``*`` stays within a segment, ``**`` does not.

A task's path names it in its run: ``train``, ``loop/train-3``. ``**/`` also matches nothing, so that ``**/train*`` matches
``train`` at the top level too. Every other character means itself.

A pattern is not turned into a regular expression, because one with many stars could take minutes to match.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

__all__ = ["matches", "refusal"]

_PARTS = re.compile(r"(?:(?<=/)|^)\*{2,}/|\*{2,}|\*|[^*]+")  # more than two stars mean two


def matches(pattern: str, path: str) -> bool:
    """True if the whole path of a task matches the pattern."""
    reached = {0}  # positions in the path that the parts so far may end at
    for part in _parts(pattern):
        reached = set(_ends(part, path, reached))
        if not reached:
            return False
    return len(path) in reached


def refusal(pattern: str) -> str:
    """Return the reason for which a text is no pattern of task paths; empty if it is one."""
    if not pattern or not pattern.isprintable() or len(pattern) > 500:
        return "expected a task's path or a pattern such as '**/train*'"
    if "" in pattern.split("/"):
        return "expected names between single slashes, such as 'loop/train'"
    return ""


def _ends(part: str, path: str, starts: set[int]) -> Iterator[int]:
    """Positions at which a part may end that begins at one of ``starts``."""
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
