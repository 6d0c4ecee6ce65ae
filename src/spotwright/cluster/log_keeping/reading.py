"""Reads one answer of the pod log endpoint: what is new in it, with secrets hidden, and how far the log is read then.

Pure: bytes in, bytes and a position out. Whoever writes the bytes keeps the position with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spotwright.cluster.log_keeping.position import Overlap, Position
from spotwright.cluster.log_keeping.redaction import Redaction
from spotwright.cluster.log_keeping.stamped_lines import Piece, StampedLines, stamp_text
from spotwright.model.quantities import format_duration

__all__ = ["Reading"]


class Reading:
    """One answer, asked for from ``position`` on. ``secrets`` are values by name."""

    def __init__(self, position: Position, secrets: Mapping[str, str]) -> None:
        self._lines, self._overlap = StampedLines(), Overlap(position)
        self._redaction = Redaction(secrets)
        self._position = position

    @property
    def words(self) -> str:
        """What the kubelet said itself instead of a line; empty: nothing."""
        return self._lines.words

    def feed(self, data: bytes) -> tuple[bytes, Position]:
        """The text that is new in these bytes of the answer, and the position behind it."""
        return self._new(self._lines.feed(data))

    def flush(self, *, is_over: bool = False) -> tuple[bytes, Position]:
        """The rest, after the answer has ended as it should. ``is_over``: so had the container when it was asked for."""
        text, position = self._new(self._lines.flush())
        if is_over and self._overlap.is_gone and not self.words:
            text += _end(position.last, is_open=position.opened >= 0)
            position = Position(tail=position.tail)  # nothing is expected any more: it is said once
        return text, position

    def _new(self, pieces: Iterable[Piece]) -> tuple[bytes, Position]:
        position, texts = self._position.copy(), []
        for piece in pieces:
            part = self._overlap.new_part(piece)
            if self._overlap.missing_from:
                texts.append(_gap(self._overlap.missing_from, piece.stamp, is_open=position.opened >= 0))
                self._overlap.missing_from, position.opened = 0, -1
            if part:
                text, length = self._redaction.hide(part, ends=piece.ends)
                texts.append(text)
                position.add(piece, length)
        self._position = position
        return b"".join(texts), position


def _end(last: int, *, is_open: bool) -> bytes:
    """The line that says what may be missing where nothing has come that was read before, nor anything new."""
    line_end = "\n" if is_open else ""
    why = "the kubelet has rotated its log"
    return f"{line_end}[spotwright: lines may be missing here, after {stamp_text(last)}: {why}]\n".encode()


def _gap(missing_from: int, until: int, *, is_open: bool) -> bytes:
    """The line that says what is missing."""
    line_end = "\n" if is_open else ""
    span = f"between {stamp_text(missing_from)} and {stamp_text(until)}"
    lasted = format_duration(max(0.0, (until - missing_from) / 1e9))
    return (
        f"{line_end}[spotwright: lines are missing here, {span} ({lasted}): the kubelet has rotated its log]\n".encode()
    )
