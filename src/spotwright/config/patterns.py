"""Patterns of task paths: ``*`` stays within a segment, ``**`` does not.

A task's path names it in its run: ``train``, ``loop/train-3``. ``**/`` also stands for no folder at all, so that ``**/train*``
matches ``train`` at the top level too. Every other character means itself.
"""

from __future__ import annotations

import functools
import re

__all__ = ["matches", "refusal"]

_MOST_STARS = 8  # each may be tried at every character of a path, so their number bounds the time a match takes
_PARTS = re.compile(r"(?:(?<=/)|^)\*\*/|\*\*|\*|[^*]+")
_MEANING = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}


def matches(pattern: str, path: str) -> bool:
    """Whether a task's path matches the whole pattern."""
    return _compiled(pattern).fullmatch(path) is not None


def refusal(pattern: str) -> str:
    """Why a text cannot be a pattern of task paths; empty when it can."""
    if not pattern or not pattern.isprintable() or len(pattern) > 500:
        return "expected a task's path or a pattern such as '**/train*'"
    if "" in pattern.split("/"):
        return "expected names between single slashes, such as 'loop/train'"
    if "***" in pattern or len([part for part in _PARTS.findall(pattern) if part in _MEANING]) > _MOST_STARS:
        return f"expected at most {_MOST_STARS} times * or **"
    return ""


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_MEANING.get(part) or re.escape(part) for part in _PARTS.findall(pattern)), re.DOTALL)
