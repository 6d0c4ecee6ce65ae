"""YAML that is a template itself: a text with ``{{...}}`` in it that is YAML only once Argo has filled it in.

In a file of its own such a marker needs quotes. In a text inside a workflow (a manifest, a patch) it does not, so there the
markers are hidden from the parser, and every position stays what it is.
"""

from __future__ import annotations

import re

from spotwright.manifests.documents import Document, parse

__all__ = ["parse_marked"]

_MARKER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_PRIVATE = 0xE000  # a private use area of Unicode, which YAML takes for letters
_HIDE = {code: code + _PRIVATE for code in range(0x20, 0x7F)}
_REVEAL = {hidden: code for code, hidden in _HIDE.items()}


def parse_marked(text: str, file: str, above: int = 0) -> list[Document]:
    """The documents of a text, as :func:`~spotwright.manifests.documents.parse` gives them, each ``{{...}}`` a part of a text."""
    if "{{" not in text:
        return parse(text, file, above)
    hidden = _MARKER.sub(lambda marker: marker[0].translate(_HIDE), text)
    documents = parse(hidden, file, above, _reveal)
    for document in documents:
        document.text = text
    return documents


def _reveal(text: str) -> str:
    return text.translate(_REVEAL)
