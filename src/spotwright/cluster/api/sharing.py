"""Keeps what is equal in many objects once, so that ten thousand pods fit into a few dozen megabytes.

The pods of a workload differ in a few fields. As dictionaries of their own, 10,000 of them with 6 kB of JSON each take 270
MB; with their equal parts shared they take 60. What is shared must not be changed, which nobody does with an object of the
API here.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Sharing"]

_KEPT = 50_000  # parts that are remembered; after that the table begins anew, and costs one more copy of each
_FIELDS = ("spec", "status")
_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


class Sharing:
    """A table of the parts that were seen. For one thread."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: dict[Any, Any] = {}

    def shared(self, item: dict[str, Any]) -> dict[str, Any]:
        """The same object, whose parts are those of earlier objects where they are equal. The object itself is changed."""
        if len(self._known) > self._kept:
            self._known.clear()
        for name in _FIELDS:
            part = item.get(name)
            if isinstance(part, dict):
                item[name] = {key: self._of(value) for key, value in part.items()}
        metadata = item.get("metadata")
        if isinstance(metadata, dict):
            for name in _METADATA:
                if name in metadata:
                    metadata[name] = self._of(metadata[name])
        return item

    def _of(self, value: Any) -> Any:
        """The first part that was equal to this one. Equal means of the same types too: ``True`` is no 1."""
        if isinstance(value, str):
            return self._known.setdefault(value, value)
        if isinstance(value, dict):
            value = {key: self._of(each) for key, each in value.items()}
            return self._known.setdefault((dict, *((key, _name_of(each)) for key, each in value.items())), value)
        if isinstance(value, list):
            value = [self._of(each) for each in value]
            return self._known.setdefault((list, *map(_name_of, value)), value)
        return value


def _name_of(value: Any) -> Any:
    """What stands for a part in the name of what holds it. A part that is in the table lives as long as that name."""
    return id(value) if isinstance(value, (str, dict, list)) else (type(value), value)
