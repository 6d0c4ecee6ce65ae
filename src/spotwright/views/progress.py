"""What ``spotwright run`` shows while a run goes on: a live display in a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TextIO

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.views.narration import Narrator
from spotwright.views.words import span

__all__ = ["PlainProgress", "Progress", "Stream", "make_progress"]


class Stream(Protocol):
    """Where lines go: a text file, or anything that takes text."""

    def write(self, text: str, /) -> int:
        """Take a text."""

    def flush(self) -> None:
        """Let it be seen."""


class Progress(AbstractContextManager["Progress"], Protocol):
    """An observer of the engine with an end: leaving the ``with`` block leaves the terminal as it was."""

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Show what has happened."""


class PlainProgress:
    """One line per meaningful event, with the time since the engine began: no colours, nothing is ever overwritten.

    A reader that goes away does not disturb the run: nothing more is written then.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream | None = stream
        self._narrator = Narrator()

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Write the lines of a batch of events."""
        lines = [f"{f'+{span(said.offset)}':<7} {said.text}\n" for said in self._narrator.tell(state, events)]
        if not lines or self._stream is None:
            return
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except BrokenPipeError:
            self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lines need no end."""


def make_progress(stream: TextIO) -> Progress:
    """The live display where ``stream`` is a terminal that can move its cursor, else plain lines."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        from spotwright.views.live import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)
