"""Map positions in the text of a literal block (``|``) to positions in the file.

So a change of the text becomes a change inside the block, and everything else in the block keeps its bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from spotwright.manifests.yamltext.edits import Splice
from spotwright.yaml_composer import Node, ScalarNode

__all__ = ["within_block"]


def within_block(text: str, node: Node, value: str, inner: Sequence[Splice]) -> list[Splice] | None:
    """Changes of a block's ``value`` as changes of the file's ``text``; ``None`` if the lines of the two do not correspond."""
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
        positions = []
        for position in (change.at, change.at + len(change.old)):
            row = bisect_right(inner_starts, position) - 1
            if row >= len(written):
                return None
            positions.append(outer_starts[row] + (len(margin) if lines[row] else 0) + position - inner_starts[row])
        start, end = positions
        changes.append(Splice(start, change.text.replace("\n", newline + margin), text[start:end]))
    return changes


def _margin(written: Sequence[str], lines: Sequence[str]) -> str | None:
    """The indentation of the block; ``None`` if its lines are not the value's lines, all indented alike."""
    for outer, line in zip(written, lines, strict=False):
        if line.strip():
            margin = " " * (len(outer.rstrip("\r")) - len(line))
            pairs = zip(written, lines, strict=False)
            return margin if all(not own or out.rstrip("\r") == margin + own for out, own in pairs) else None
    return None
