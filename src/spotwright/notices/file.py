"""A notice as a file: how an attempt on this machine is told, and the simplest thing a handler of one's own can write.

The file appears when the node is about to go, and is removed if it stays after all. What Spotwright writes is JSON: ``goes_at``
(Unix seconds) and ``why``; ``kind`` and ``certain`` may stand beside them. Anything else in the file, or nothing, still says
that the node goes, but not when: the shortest notice that any provider gives is assumed.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from spotwright.notices.notice import KINDS, SHORTEST, Notice, Polling, SourceError

__all__ = ["FileSource"]

_MOST = 1 << 16  # bytes of a notice that are read


class FileSource(Polling):
    """Looks at a file five times a second, which costs one system call while there is none."""

    name = "file"
    interval = 0.2

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def ask(self, patience: float) -> Notice | None:  # noqa: ARG002  # a file answers at once
        """Read the file. Raises :class:`SourceError` where it cannot be read."""
        try:
            with self.path.open("rb") as file:
                seen = os.fstat(file.fileno()).st_mtime
                text = file.read(_MOST)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(f"file: {self.path} cannot be read ({error.strerror})") from error
        return _read(text, seen)


def _read(text: bytes, seen: float) -> Notice:
    """A notice from what the file holds; ``seen`` is when it was written."""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {}
    kind, why = given.get("kind"), given.get("why")
    return Notice(
        ends_at=_moment(given.get("goes_at"), seen + SHORTEST),
        kind=kind if kind in KINDS else "interruption",
        source="file",
        certain=given.get("certain") is not False,
        reason=why if isinstance(why, str) and why else "the notice file is there",
    )


def _moment(given: Any, otherwise: float) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and given > 0:
        return float(given)
    return otherwise
