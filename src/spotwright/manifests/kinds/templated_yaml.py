"""Parse YAML with template markers (``{{...}}``), which is valid YAML only after Argo has replaced them.

In a file such a marker needs quotes. In a text inside a workflow (a manifest, a patch) it does not, so there the markers are
hidden from the parser behind texts of the same length, and every position stays the same.
"""

from __future__ import annotations

import re

from spotwright.manifests.yamltext.documents import Document, parse

__all__ = ["parse_marked"]

_MARKER = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_PRIVATE = 0xE000  # a private use area of Unicode, which YAML takes for letters
_HIDE = {code: code + _PRIVATE for code in range(0x20, 0x7F)}
_REVEAL = {hidden: code for code, hidden in _HIDE.items()}


def parse_marked(text: str, file: str, above: int = 0) -> list[Document]:
    """Parse a text into documents; each ``{{...}}`` is a part of a scalar."""
    if "{{" not in text:
        return parse(text, file, above)
    hidden = _MARKER.sub(lambda marker: marker[0].translate(_HIDE), text)
    documents = parse(hidden, file, above, _reveal)
    for document in documents:
        document.text = text
    return documents


def _reveal(text: str) -> str:
    return text.translate(_REVEAL)
