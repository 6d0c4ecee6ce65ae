"""Documents that ``place`` adds in front of a document that refers to them, and ``unplace`` removes as a whole.

Such a document has a record of its own with two digests: that of its text, so that it can be removed without a trace, and that
of its content, so that it is recognized after another tool has reformatted it. It stands in front, because the API server
refuses an object whose reference is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.kfp.placed_record import VERSION, digest, value_digest
from spotwright.manifests.files.record import ANNOTATION, AT
from spotwright.manifests.yamltext.documents import Document
from spotwright.manifests.yamltext.removal import Removal, remove
from spotwright.manifests.yamltext.splice import block, flow

__all__ = ["Additions", "has_added_content", "is_added", "is_untouched", "prepend", "without_record"]

_TOKEN = "@"  # noqa: S105 (a placeholder until the record is known)


class Additions:
    """The documents that the objects of one file need, each once."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._pending: list[Mapping[str, Any]] = []

    def add(self, value: Mapping[str, Any]) -> bool:
        """Request a document. False if another one of its name was requested with other content."""
        metadata = value["metadata"]
        identity = (str(value["kind"]), str(metadata.get("namespace")), str(metadata["name"]))
        first = self._by_name.setdefault(identity, value)
        if first is value:
            self._pending.append(value)
        return first == value

    def take(self) -> list[Mapping[str, Any]]:
        """The documents requested since the last call."""
        pending, self._pending = self._pending, []
        return pending


def prepend(text: str, added: Sequence[Mapping[str, Any]]) -> str:
    """A part of a file with documents added in front of it."""
    if not added:
        return text
    documents = [_serialize(value) for value in added]
    if text.startswith("---"):
        new = "".join(f"---\n{document}" for document in documents)
    else:
        new = "".join(f"{document}---\n" for document in documents)
    return (new.replace("\n", "\r\n") if "\r\n" in text else new) + text


def _serialize(value: Mapping[str, Any]) -> str:
    """A document with its record."""
    marked = {**value, "metadata": {**value["metadata"], "annotations": {ANNOTATION: _TOKEN}}}
    text = "\n".join(block(marked, 0)) + "\n"
    record = {"v": VERSION, "added": [digest(text), value_digest(_content(value))]}
    return text.replace(flow(_TOKEN), flow(json.dumps(record, separators=(",", ":"))), 1)


def is_added(document: Document) -> bool:
    """Whether :func:`prepend` wrote the object, even if it was changed since."""
    return bool(_digests(document))


def is_untouched(document: Document) -> bool:
    """Whether the document, alone in its text, has exactly the bytes that were added."""
    node = document.node(AT)
    digests = _digests(document)
    if node is None or not digests:
        return False
    text = document.text[: node.start_mark.index] + flow(_TOKEN) + document.text[node.end_mark.index :]
    return digest(text.replace("\r\n", "\n").removeprefix("---\n")) == digests[0]


def has_added_content(document: Document) -> bool:
    """Whether the object has the content that was added, in any format."""
    return value_digest(_content(document.get((), {}))) in _digests(document)


def without_record(document: Document) -> str:
    """The text without the record: the user has changed the object, so it stays as theirs."""
    others = document.get(AT[:-1]).keys() - {ANNOTATION}
    return remove(document, [Removal(AT if others else AT[:-1], ())])


def _digests(document: Document) -> list[str]:
    """The two digests in the record of an added document; none for any other record."""
    annotation = document.get(AT, None)
    try:
        record = json.loads(annotation) if isinstance(annotation, str) else None
    except ValueError:
        return []  # not our record: reading it as one raises the error
    digests = record.get("added") if isinstance(record, dict) else None
    return [str(digest) for digest in digests] if isinstance(digests, list) else []


def _content(value: Any) -> Any:
    """The content of an object that is compared, without the metadata that an API server adds."""
    if not isinstance(value, Mapping):
        return None
    metadata = value.get("metadata") or {}
    content = [value.get("apiVersion"), value.get("kind"), metadata.get("name"), value.get("spec")]
    return [*content, value["binaryData"]] if "binaryData" in value else content
