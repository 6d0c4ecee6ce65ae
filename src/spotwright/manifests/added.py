"""Documents that ``place`` puts in front of one that needs them, and takes out again as a whole.

Such a document has a record of its own: the digest of its text, by which it goes without a trace, and that of what it says, by
which it is known when another tool has written it anew. It stands in front, because what refers to it is refused while it is
not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.manifests.documents import Document
from spotwright.manifests.record import ANNOTATION, AT
from spotwright.manifests.removal import Removal, remove
from spotwright.manifests.splice import block, flow
from spotwright.model.placed import VERSION, digest, value_digest

__all__ = ["Additions", "in_front", "is_added", "is_as_added", "is_untouched", "without_record"]

_TOKEN = "@"  # noqa: S105 (it stands in the record's place until the record is known)


class Additions:
    """The documents that the objects of one file need, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._waiting: list[Mapping[str, Any]] = []

    def add(self, value: Mapping[str, Any]) -> bool:
        """Ask for a document; whether there is none of its name that says something else."""
        metadata = value["metadata"]
        who = (str(value["kind"]), str(metadata.get("namespace")), str(metadata["name"]))
        known = self._known.setdefault(who, value)
        if known is value:
            self._waiting.append(value)
        return known == value

    def take(self) -> list[Mapping[str, Any]]:
        """What was asked for since the last time."""
        taken, self._waiting = self._waiting, []
        return taken


def in_front(text: str, added: Sequence[Mapping[str, Any]]) -> str:
    """A piece of a file with documents in front of it."""
    if not added:
        return text
    documents = [_written(value) for value in added]
    if text.startswith("---"):
        new = "".join(f"---\n{document}" for document in documents)
    else:
        new = "".join(f"{document}---\n" for document in documents)
    return (new.replace("\n", "\r\n") if "\r\n" in text else new) + text


def _written(value: Mapping[str, Any]) -> str:
    marked = {**value, "metadata": {**value["metadata"], "annotations": {ANNOTATION: _TOKEN}}}
    text = "\n".join(block(marked, 0)) + "\n"
    record = {"v": VERSION, "added": [digest(text), value_digest(_said(value))]}
    return text.replace(flow(_TOKEN), flow(json.dumps(record, separators=(",", ":"))), 1)


def is_added(document: Document) -> bool:
    """Whether the object is one that :func:`in_front` wrote, whatever became of it since."""
    return bool(_digests(document))


def is_untouched(document: Document) -> bool:
    """Whether the document, which is alone in its text, is to the last byte as it was added."""
    node = document.node(AT)
    digests = _digests(document)
    if node is None or not digests:
        return False
    text = document.text[: node.start_mark.index] + flow(_TOKEN) + document.text[node.end_mark.index :]
    return digest(text.replace("\r\n", "\n").removeprefix("---\n")) == digests[0]


def is_as_added(document: Document) -> bool:
    """Whether the object says what was added, however it is written."""
    return value_digest(_said(document.get((), {}))) in _digests(document)


def without_record(document: Document) -> str:
    """The text without the record of an object that somebody has made their own."""
    others = document.get(AT[:-1]).keys() - {ANNOTATION}
    return remove(document, [Removal(AT if others else AT[:-1], ())])


def _digests(document: Document) -> list[str]:
    written = document.get(AT, None)
    try:
        record = json.loads(written) if isinstance(written, str) else None
    except ValueError:
        return []  # no record of ours: whoever reads it as one says so
    found = record.get("added") if isinstance(record, dict) else None
    return [str(one) for one in found] if isinstance(found, list) else []


def _said(value: Any) -> Any:
    """What counts of an object: not what an API server adds to its metadata."""
    if not isinstance(value, Mapping):
        return None
    metadata = value.get("metadata") or {}
    return [value.get("apiVersion"), value.get("kind"), metadata.get("name"), value.get("spec")]
