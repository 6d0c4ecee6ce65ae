"""A notice in a file: the form that attempts on this machine get, and the simplest one for a handler of your own.

The file appears when the node is about to go, and is removed if the node stays after all. Spotwright writes JSON: ``goes_at``
(Unix seconds) and ``why``; ``kind`` and ``certain`` are optional. Any other content, or none, still means that the node goes, at
an unknown time: then the shortest notice of all providers is assumed.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from spotwright.notices.notice import KINDS, SHORTEST, Notice, PollingSource, SourceError

__all__ = ["FileSource"]

_MAX_SIZE = 1 << 16  # bytes of a notice that are read


class FileSource(PollingSource):
    """Reads a file five times a second, which costs one system call while there is none."""

    name = "file"
    interval = 0.2

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def poll(self, timeout: float) -> Notice | None:  # noqa: ARG002  # reading a file does not wait
        """Read the file. Raises :class:`SourceError` where it cannot be read."""
        try:
            with self.path.open("rb") as file:
                written_at = os.fstat(file.fileno()).st_mtime
                text = file.read(_MAX_SIZE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(f"file: {self.path} cannot be read ({error.strerror})") from error
        return _read(text, written_at)


def _read(text: bytes, written_at: float) -> Notice:
    """The notice in a file's content."""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {}
    kind, why = given.get("kind"), given.get("why")
    return Notice(
        ends_at=_moment(given.get("goes_at"), written_at + SHORTEST),
        kind=kind if kind in KINDS else "interruption",
        source="file",
        certain=given.get("certain") is not False,
        reason=why if isinstance(why, str) and why else "the notice file exists",
    )


def _moment(given: Any, otherwise: float) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and given > 0:
        return float(given)
    return otherwise
