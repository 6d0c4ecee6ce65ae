"""YAML that is a template itself: a text with ``{{...}}`` in it that is YAML only once Argo has filled it in.

In a file of its own such a marker needs quotes. In a text inside a workflow (a manifest, a patch) it does not, so there the
markers are hidden from the parser, and every position stays what it is.
"""

from __future__ import annotations

import re

import yaml

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
    documents = parse(_MARKER.sub(lambda marker: marker[0].translate(_HIDE), text), file, above)
    for document in documents:
        document.text = text
        _reveal(document.root)
    return documents


def _reveal(root: yaml.Node) -> None:
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            node.value = node.value.translate(_REVEAL)
        elif isinstance(node, yaml.MappingNode):
            stack += [part for pair in node.value for part in pair]
        else:
            stack += node.value
