"""The record that ``spotwright place`` and ``spotwright compile`` keep in a compiled pipeline, and how to undo its edits.

With the record, a local run of the file sees the user's own retries and constraints, not the backend's.
This module undoes the edits in parsed data; :mod:`spotwright.manifests.record` undoes them in the text of the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotwright.errors import PipelineError
from spotwright.model.policy import Layer, parse_policy

__all__ = [
    "POLICIES",
    "RECORD",
    "VERSION",
    "digest",
    "read_placed_policies",
    "take_out",
    "undo_placement",
    "value_digest",
]


VERSION = 1
"""The version of the record's format."""

RECORD = ("platforms", "spotwright", "config", "placed")
"""The keys of the record in the platform document of a compiled pipeline. The record is one JSON text."""

POLICIES = (*RECORD[:-1], "policies")
"""The keys of the policies beside the record: the configuration's, by the path of a task, as one JSON text."""

Path = tuple[str | int, ...]

_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def take_out(documents: list[Any], record: Mapping[str, Any], read: Callable[[str], Any]) -> None:
    """Undo the edits of a pipeline document and its platform document; values changed since then stay.

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


_SOURCE = "the configuration it was placed with"


def undo_placement(file: object, pipeline: dict[str, Any], platform: dict[str, Any]) -> None:
    """Remove the placement from the two documents. Raises :class:`PipelineError` for an unreadable record."""
    config = _mapping_at(platform, RECORD[:-1])
    if RECORD[-1] not in config:
        return
    place = f"{file}: {'.'.join(RECORD)}"
    try:
        record = json.loads(config[RECORD[-1]])
        if record["v"] > VERSION:
            raise PipelineError(f"{place}: placed by a newer version of spotwright (record {record['v']}): upgrade")
        take_out([pipeline, platform], record, _read_yaml)
    except (KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"{place}: not a record of spotwright; compile the pipeline again") from error
    del config[RECORD[-1]]


def read_placed_policies(file: object, platforms: Mapping[str, Any]) -> dict[str, Layer]:
    """The policies of the configuration with which the file was placed, by the paths of tasks; empty if it was not placed."""
    text = _mapping_at({"platforms": platforms}, POLICIES[:-1]).get(POLICIES[-1])
    if text is None:
        return {}
    try:
        return {str(path): parse_policy(policy, _SOURCE) for path, policy in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise PipelineError(f"{file}: {'.'.join(POLICIES)}: {error}") from error


def _mapping_at(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _read_yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)
