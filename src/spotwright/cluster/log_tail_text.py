"""The end of a log that an attempt's object keeps, read as a log that only grows, as readers take every log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["TailText"]


class TailText:
    """What a reader has seen of a log. Where it was away for longer than the end lasts, a line says what is left out."""

    def __init__(self) -> None:
        self.text = b""
        self._end = 0  # bytes of the whole log up to the end of the text

    def take(self, status: Mapping[str, Any]) -> None:
        """Add what an attempt's status has that is new."""
        tail = str(status.get("logTail", "")).encode()
        end = int(status.get("logBytes") or len(tail))
        begin = max(0, end - len(tail))
        if end <= self._end:
            return
        if begin > self._end:
            line_end = "\n" if self.text and not self.text.endswith(b"\n") else ""
            missing = begin - self._end
            self.text += (
                f"{line_end}[spotwright: {missing:,} bytes are left out here: no store keeps whole logs]\n".encode()
            )
        self.text += tail[max(0, self._end - begin) :]
        self._end = end
