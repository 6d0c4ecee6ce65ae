"""Texts that stand in a document as literal blocks (``|``): which character of the file is which of the text.

A change of the text becomes a change of the block, so that everything else in it keeps its bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from spotwright.manifests.edits import Splice
from spotwright.manifests.nodes import Node, ScalarNode

__all__ = ["within_block"]


def within_block(text: str, node: Node, value: str, inner: Sequence[Splice]) -> list[Splice] | None:
    """The changes of a block's ``value`` as changes of the file's ``text``; ``None`` where that cannot be done line for line."""
    begin = text.find("\n", node.start_mark.index) + 1
    written, lines = text[begin : node.end_mark.index].split("\n"), value.split("\n")
    margin = _margin(written, lines)
    if not isinstance(node, ScalarNode) or node.style != "|" or margin is None:
        return None
    outer_starts = [begin, *(begin + offset for offset in accumulate(len(line) + 1 for line in written))]
    inner_starts = [0, *accumulate(len(line) + 1 for line in lines)]
    newline = "\r\n" if written[0].endswith("\r") else "\n"
    changes = []
    for change in inner:
        places = []
        for position in (change.at, change.at + len(change.old)):
            row = bisect_right(inner_starts, position) - 1
            if row >= len(written):
                return None
            places.append(outer_starts[row] + (len(margin) if lines[row] else 0) + position - inner_starts[row])
        start, end = places
        changes.append(Splice(start, change.text.replace("\n", newline + margin), text[start:end]))
    return changes


def _margin(written: Sequence[str], lines: Sequence[str]) -> str | None:
    """What stands before every line of the block; ``None`` where its lines are not those of the value behind one margin."""
    for outer, line in zip(written, lines, strict=False):
        if line.strip():
            margin = " " * (len(outer.rstrip("\r")) - len(line))
            pairs = zip(written, lines, strict=False)
            return margin if all(not own or out.rstrip("\r") == margin + own for out, own in pairs) else None
    return None
