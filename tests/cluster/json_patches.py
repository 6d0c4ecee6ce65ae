"""Apply a JSON patch as an API server does, strictly: RFC 6902's add, replace, remove and test."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["apply_patch"]


def apply_patch(data: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """A patched copy. Raises :class:`LookupError` for a path that is not there, :class:`AssertionError` for a failed test."""
    result = [copy.deepcopy(data)]
    for operation in patch:
        steps = [0, *(step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])]
        parent: Any = result
        for step in steps[:-1]:
            parent = parent[int(step) if isinstance(parent, list) else step]
        _edit(parent, steps[-1], operation)
    return result[0]


def _edit(parent: Any, last: Any, operation: Mapping[str, Any]) -> None:
    key: Any = last
    if isinstance(parent, list):
        key = len(parent) if last == "-" else int(last)
        if key > len(parent) or (operation["op"] != "add" and key == len(parent)):
            raise LookupError(operation["path"])
    elif operation["op"] != "add" and key not in parent:
        raise LookupError(operation["path"])
    if operation["op"] == "test":
        assert parent[key] == operation["value"], operation["path"]
    elif operation["op"] == "remove":
        del parent[key]
    elif operation["op"] == "add" and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(operation["value"]))
    else:
        parent[key] = copy.deepcopy(operation["value"])
