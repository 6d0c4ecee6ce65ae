"""The record that ``spotwright place`` keeps in a compiled pipeline, and how to undo its edits.

With the record, a run of the file on this machine sees the user's own retries and constraints, not those for a backend.
This module undoes the edits in parsed data; :mod:`spotwright.manifests.files.record` undoes them in the text of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["POLICIES", "RECORD", "VERSION", "digest", "take_out", "value_digest"]

VERSION = 1
"""The version of the record's format."""

RECORD = ("platforms", "spotwright", "config", "placed")
"""The keys of the record in the platform document of a compiled pipeline. The record is one JSON text."""

POLICIES = (*RECORD[:-1], "policies")
"""The keys of the policies beside the record: those of the configuration, by the path of a task, as one JSON text."""

Path = tuple[str | int, ...]

_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def take_out(documents: list[Any], record: Mapping[str, Any], read: Callable[[str], Any]) -> None:
    """Undo the edits of a pipeline document and its platform document; values that were changed since stay.

    ``read`` parses the YAML of a value that was replaced. Raises ``KeyError``, ``TypeError`` or ``ValueError`` where the
    record is not valid.
    """
    edits = [(str(kind), tuple(path), old, digests) for kind, path, _, _, old, digests in record["edits"]]
    edits += [("add", tuple(path), "", [part_digest]) for path, part_digest in record.get("parts", ())]
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
            parent[key] = old  # the value that was replaced, or the null that was filled


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step] if _has(value, step) else None
    return value


def _has(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and 0 <= step < len(value)
    return isinstance(value, Mapping) and step in value


def value_digest(value: Any) -> str:
    """A short digest of JSON data that identifies a value: 2 and 2.0 are one value, as in JSON."""
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
    """The first 16 hexadecimal digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
