"""Show a running run: a live display in a terminal, plain lines elsewhere.

``spotwright run`` observes its own engine; ``spotwright show --follow`` joins a run that another process drives.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TextIO

from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.views.narration import Narrator
from spotwright.views.text import span

__all__ = ["PlainProgress", "Progress", "Shown", "Stream", "make_progress"]


class Stream(Protocol):
    """The part of a text file that plain lines need."""

    def write(self, text: str, /) -> int:
        """Write a text."""

    def flush(self) -> None:
        """Write out the buffer."""


class Shown(Protocol):
    """An observer that may join a running run."""

    def join(self, state: RunState, /) -> None:
        """Begin with a run that is under way."""

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Show a batch of events. ``state`` is that after them."""


class Progress(Shown, AbstractContextManager["Progress"], Protocol):
    """An observer of a run that writes to a stream. Leaving the ``with`` block restores the terminal."""


class PlainProgress:
    """One line per sentence, with the time since the engine began (since the run began after :meth:`join`).

    Without colours or overwriting. If the stream's reader goes away, or its disk is full, writing stops and the run continues.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream | None = stream
        self._narrator = Narrator()

    def join(self, state: RunState, /) -> None:
        """Begin with a run that is under way: events from now on have lines."""
        self._narrator.join(state)

    def __call__(self, state: RunState, events: Sequence[Event], /) -> None:
        """Write the lines of a batch of events."""
        sentences = self._narrator.narrate(state, events)
        lines = [f"{f'+{span(sentence.offset)}':<7} {sentence.text}\n" for sentence in sentences]
        if not lines or self._stream is None:
            return
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except OSError:
            self._stream = None  # the command reports it with its outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the terminal is unchanged."""


def make_progress(stream: TextIO) -> Progress:
    """The live display if ``stream`` is a terminal that can move its cursor, else plain lines."""
    if stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        from spotwright.views.live_table import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)
