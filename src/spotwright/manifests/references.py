"""Find the objects that documents refer to: in the same input, then in the files of ``--with``, also inside a ``List``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spotwright.placing.documents import Document
from spotwright.yaml_composer import SequenceNode

__all__ = ["References", "may_be_referred_to"]


_KINDS = re.compile(
    r"kind[\"']?\s*:\s*(?:[&!]\S*\s+)*[\"']?"  # perhaps with an anchor
    r"(?:ConfigMap|Experiment|Pipeline|Task|\w*Template|\w*Runtime|\w*List)\b"
)


def may_be_referred_to(text: str) -> bool:
    """Whether a text may hold objects of a kind that other documents refer to."""
    return _KINDS.search(text) is not None


@dataclass(slots=True)
class References:
    """The documents that can be referred to; of equal names the first counts. ``inputs`` are the files that the command places.

    ``beyond`` has further documents, which many files share and which are indexed once for all of them.
    """

    documents: list[Document] = field(default_factory=list)
    inputs: frozenset[str] = frozenset()
    beyond: References | None = None
    _by_kind: dict[str, list[Document]] = field(default_factory=dict)
    _by_name: dict[tuple[str, str], list[tuple[str | None, Document]]] = field(default_factory=dict)  # with namespaces
    _is_indexed: bool = False

    def find(self, kind: str, name: str, namespace: str | None = None) -> Document | None:
        """The first object of a kind and name; an object without a namespace matches every namespace."""
        self._index()
        for own, document in self._by_name.get((kind, name), ()):
            if namespace is None or own in (None, namespace):
                return document
        return None if self.beyond is None else self.beyond.find(kind, name, namespace)

    def find_all(self, kind: str) -> list[Document]:
        """Every object of a kind."""
        self._index()
        own = self._by_kind.get(kind, [])
        return own if self.beyond is None else [*own, *self.beyond.find_all(kind)]

    def _index(self) -> None:
        """Index the documents at the first call."""
        if self._is_indexed:
            return
        self._is_indexed = True
        for single in (single for document in self.documents for single in _objects(document)):
            kind, metadata = str(single.get(("kind",), "")), single.get(("metadata",), None)
            self._by_kind.setdefault(kind, []).append(single)
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if isinstance(name, str):
                self._by_name.setdefault((kind, name), []).append((metadata.get("namespace"), single))

    def is_input(self, document: Document) -> bool:
        """Whether the same command places the object too."""
        return document.file in self.inputs


def _objects(document: Document) -> Iterator[Document]:
    """The document, or each item of a ``List`` as a document whose paths begin at the item."""
    items = document.node(("items",)) if str(document.get(("kind",), "")).endswith("List") else None
    if not isinstance(items, SequenceNode):
        yield document
        return
    for node in items.value:
        start, end = node.start_mark.index, node.end_mark.index
        yield Document(document.file, document.text, node, start, end, document.index, document.above, document.shared)
