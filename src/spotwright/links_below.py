"""Resolve a name below a folder through the links that come with it, before anything is written.

Checkpoints and archives hold names and links from others. Two links that each stay in their folder may leave it together, so a
name is followed component by component, as a kernel does. Training code imports this module, so it needs only the standard
library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

__all__ = ["LONGEST_NAME", "LONGEST_PATH", "is_plain", "leads_to"]


LONGEST_NAME, LONGEST_PATH = 255, 4095
"""The most bytes of a name and of a path on Linux (``NAME_MAX``, ``PATH_MAX`` without its end)."""

_MOST_LINKS = 40  # followed for one path, as on Linux (MAXSYMLINKS)


def is_plain(path: Any) -> bool:
    """Whether a path is relative, consists of names, and is valid for a file system."""
    if not isinstance(path, str) or not _fits(path, LONGEST_PATH) or "\0" in path:
        return False
    return all(part not in ("", ".", "..") and _fits(part, LONGEST_NAME) for part in path.split("/"))


def leads_to(path: Any, links: Mapping[tuple[str, ...], str]) -> tuple[str, ...] | None:
    """The names from a folder to the end of a path from it; ``None``: it leaves the folder, or is not a path.

    ``links`` are the targets of the links in the folder, by the names of their places. The folder itself is ``()``.
    """
    if not isinstance(path, str) or not _fits(path, LONGEST_PATH) or "\0" in path or path.startswith("/"):
        return None
    waiting, here, followed = path.split("/")[::-1], list[str](), 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return None
            here.pop()
            continue
        target = links.get((*here, part))
        if target is None:
            here.append(part)
            continue
        followed += 1
        if followed > _MOST_LINKS or not _fits(target, LONGEST_PATH) or target.startswith("/"):
            return None
        waiting += target.split("/")[::-1]
    return tuple(here)


def _fits(name: str, longest: int) -> bool:
    try:
        return len(name) <= longest and len(os.fsencode(name)) <= longest
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
