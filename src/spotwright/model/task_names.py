"""Names of tasks, read alike in ``policy.tasks``, ``--task``, ``logs``, ``show`` and files of durations.

A name is a task's path or the end of it: ``train`` means ``exit-handler-1/for-loop-2/train`` too. It may be a pattern: ``*``
stands for characters within one name, ``**`` for any. A task in a loop also matches by its path without numbers of iterations.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

__all__ = ["NUMBER", "matches", "may_mean", "nearest_path", "no_such_task", "refusal"]

NUMBER = re.compile(r"-([0-9]{1,9})(?=/|$)")
"""The number of an iteration in the path of a task."""

_PARTS = re.compile(r"(?:(?<=/)|^)\*{2,}/|\*{2,}|\*|[^*]+")  # more than two stars count as two
_MOST_NAMED = 10  # tasks in a message


def matches(name: str, *paths: str) -> bool:
    """Whether a name or pattern means a task with these paths: it matches one whole, or from a slash to the end."""
    return any(_matches(name, path) for path in paths)


def _matches(name: str, path: str) -> bool:
    if "*" not in name:
        return path == name or path.endswith(f"/{name}")
    reached = {0, *(index + 1 for index, letter in enumerate(path) if letter == "/")}
    for part in _parts(name):  # ``reached``: the possible ends of the parts so far in the path
        reached = set(_ends(part, path, reached))
        if not reached:
            return False
    return len(path) in reached


def may_mean(name: str, path: str) -> bool:
    """Whether a name means a task that may be in a loop, or an iteration of it."""
    around, slash, last = name.rpartition("/")
    return (
        matches(name, path)
        or matches(f"{around}{slash}{NUMBER.sub('', last)}", path)
        or matches(NUMBER.sub("", name), path)
    )


def no_such_task(name: str, paths: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest path, if any, and the existing tasks."""
    every = list(paths)
    near = nearest_path(name, every)
    shown = ", ".join(every[:_MOST_NAMED]) + (", ..." if len(every) > _MOST_NAMED else "")
    return (f": did you mean {near!r}?" if near else "") + f"; the tasks are {shown or 'not known yet'}"


def nearest_path(name: str, paths: Iterable[str]) -> str:
    """The path most similar to a name that matches none; empty if none is similar.

    First one that contains the name without its stars, then one of similar spelling, whole or by its last name.
    """
    import difflib  # only a message needs it

    every = list(paths)
    text = name.replace("*", "").strip("/")
    inside = next((path for path in every if text and text in path), "")
    by_name = {candidate: path for path in every for candidate in (path, path.rpartition("/")[2])}
    spelt = (difflib.get_close_matches(each, by_name, n=1) for each in (text, text.rpartition("/")[2]))
    return inside or next((by_name[close] for found in spelt for close in found), "")


def refusal(pattern: str) -> str:
    """Return why a text is not a pattern of task paths; empty if it is one."""
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
