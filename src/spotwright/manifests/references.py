"""What documents refer to: looked for in the same input, then in what ``--with`` gives, also among the items of a ``List``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spotwright.manifests.documents import Document
from spotwright.manifests.nodes import SequenceNode

__all__ = ["References", "may_be_referred_to"]


_KINDS = re.compile(r"kind[\"']?\s*:\s*[\"']?(?:ConfigMap|Experiment|\w*Template|\w*Runtime|\w*List)\b")


def may_be_referred_to(text: str) -> bool:
    """Whether a text may hold what other documents refer to."""
    return _KINDS.search(text) is not None


@dataclass(slots=True)
class References:
    """The documents that can be referred to, the first of a name first. ``inputs``: files that the same command places.

    ``beyond`` are further ones, which many files have in common and which are looked through once for all of them.
    """

    documents: list[Document] = field(default_factory=list)
    inputs: frozenset[str] = frozenset()
    beyond: References | None = None
    _kinds: dict[str, list[Document]] | None = None

    def find(self, kind: str, name: str, namespace: str | None = None) -> Document | None:
        """The first object of a kind and name; one without a namespace matches any."""
        for document in self.find_all(kind):
            metadata = document.get(("metadata",), {})
            if not isinstance(metadata, dict) or metadata.get("name") != name:
                continue
            if namespace is None or metadata.get("namespace") in (None, namespace):
                return document
        return None

    def find_all(self, kind: str) -> list[Document]:
        """Every object of a kind. The documents are looked through once, when something is first looked for."""
        if self._kinds is None:
            self._kinds = {}
            for document in self.documents:
                for found in _objects(document):
                    self._kinds.setdefault(str(found.get(("kind",), "")), []).append(found)
        own = self._kinds.get(kind, [])
        return own if self.beyond is None else [*own, *self.beyond.find_all(kind)]

    def is_input(self, document: Document) -> bool:
        """Whether an object that was found is placed itself, by the same command."""
        return document.file in self.inputs


def _objects(document: Document) -> Iterator[Document]:
    """A document, or what stands in it where it is a ``List``: each item as a document whose paths begin at the item."""
    items = document.node(("items",)) if str(document.get(("kind",), "")).endswith("List") else None
    if not isinstance(items, SequenceNode):
        yield document
        return
    for node in items.value:
        start, end = node.start_mark.index, node.end_mark.index
        yield Document(document.file, document.text, node, start, end, document.index, document.above, document.shared)
