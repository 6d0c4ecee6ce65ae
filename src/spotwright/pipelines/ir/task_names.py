"""Name the tasks of a compiled pipeline: by their keys, except loops and conditions to which the user gave a name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["group_names", "is_group"]

_GROUP = re.compile(r"(?:for-loop|condition|condition-branches|exit-handler)-\d+")


def group_names(tasks: Mapping[str, Any]) -> dict[str, str]:
    """The names of a DAG's tasks by their keys: a named loop, condition or exit handler (a group) has its own name.

    The compiler keys a group ``for-loop-12`` and keeps ``ParallelFor(name="loop")`` as its display name. A name that another
    task has too, or that cannot be a part of a path, does not count.
    """
    shown = {key: _display_name(task) or key for key, task in tasks.items()}
    groups = {key for key, task in tasks.items() if is_group(key, task)}
    taken = Counter(shown[key] if key in groups else key for key in tasks)
    return {
        key: shown[key]
        if key in groups and taken[shown[key]] == 1 and shown[key] not in tasks and _is_path_part(shown[key])
        else key
        for key in tasks
    }


def is_group(key: str, task: Mapping[str, Any]) -> bool:
    """Whether a task is a loop, condition or exit handler that the compiler made, by its key in the document."""
    return _GROUP.fullmatch(key) is not None and "cachingOptions" not in task


def _display_name(task: Mapping[str, Any]) -> str:
    info = task.get("taskInfo")
    return str(info.get("name") or "") if isinstance(info, Mapping) else ""


def _is_path_part(text: str) -> bool:
    return "/" not in text and text not in (".", "..") and text.isprintable() and len(text) <= 100
