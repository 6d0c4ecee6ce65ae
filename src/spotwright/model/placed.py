"""How a compiled pipeline reads without what ``spotwright place`` put into it.

A placed file keeps a record of its edits, so that nobody takes them for the user's own words: a run of it on this machine sees
the user's retries and constraints, and not what a backend needs. The text of the file is taken apart in
:mod:`spotwright.manifests.record`; this is the same for its data alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["POLICIES", "RECORD", "VERSION", "digest", "take_out", "value_digest"]

VERSION = 1
"""Of the record's format."""

RECORD = ("platforms", "spotwright", "config", "placed")
"""Where the platform document of a compiled pipeline keeps its record: one JSON text."""

POLICIES = (*RECORD[:-1], "policies")
"""Beside it: by the path of a task, what the configuration said of it when it was placed, as one JSON text."""

Path = tuple[str | int, ...]

_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def take_out(documents: list[Any], record: Mapping[str, Any], read: Callable[[str], Any]) -> None:
    """Change a pipeline document and its platform document to what they were; values that somebody changed since stay.

    ``read`` reads the YAML of a value that was replaced. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for a record that
    is none.
    """
    edits = [(str(kind), tuple(path), old, digests) for kind, path, _, _, old, digests in record["edits"]]
    edits += [("add", tuple(path), "", [known]) for path, known in record.get("parts", ())]
    for kind, path, old, digests in sorted(edits, key=lambda edit: -len(edit[1])):
        parent = _at(documents, path[:-1])
        if digests and _has(parent, path[-1]):
            _undo(parent, path[-1], kind, digests, read(old) if kind == "replace" else None)


def _undo(parent: Any, key: Any, kind: str, digests: Sequence[str], old: Any) -> None:
    present = parent[key]
    if kind == "extend":
        items = present if isinstance(present, list) else []
        kept = [item for item in items if value_digest(item) not in digests]
        if len(items) - len(kept) == len(digests):
            parent[key] = kept
    elif value_digest(present) == digests[0]:
        if kind == "add":
            del parent[key]
        else:
            parent[key] = old  # what was replaced, or the null that was filled


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step] if _has(value, step) else None
    return value


def _has(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and 0 <= step < len(value)
    return isinstance(value, Mapping) and step in value


def value_digest(value: Any) -> str:
    """A short digest of JSON data by which a value is known again: 2 and 2.0 are one value, as in JSON."""
    text = _JSON.encode(value)
    if ".0" in text or "e+" in text:  # perhaps a whole number written as a float
        text = _JSON.encode(_plain(value))
    return digest(text)[:8]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
