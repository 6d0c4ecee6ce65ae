"""A source and a board put together: what one node is told, and whoever asks there is told in turn."""

from __future__ import annotations

from collections.abc import Callable

from spotwright.notices.board import Board
from spotwright.notices.notice import Notice, Source
from spotwright.notices.serving import Loop
from spotwright.notices.watching import Watch

__all__ = ["Teller"]


class Teller:
    """Watches ``source`` and shows on :attr:`board` what it says; ``loop`` serves the board, ``say`` tells people."""

    def __init__(self, source: Source, loop: Loop, say: Callable[[str], None] = lambda _: None) -> None:
        self._name, self._say, self._said = source.name, say, ""
        self._watch = Watch(source, self._on_change)
        self.board = Board(self._problem, loop.wake)
        """What is told here."""
        self._watch.start()

    def stop(self) -> None:
        """Ask the source no more."""
        self._watch.stop()

    def report(self) -> None:
        """Tell people where the source began to fail, or answers again."""
        problem = self._watch.problem
        if problem != self._said:
            self._say(problem or f"{self._name}: it answers")
            self._said = problem

    def _problem(self) -> str:
        return self._watch.problem or ("" if self._watch.answered else f"{self._name}: it has not answered yet")

    def _on_change(self, notice: Notice | None) -> None:
        self.board.update(notice)
        self._say("the notice was withdrawn" if notice is None else f"{notice.kind}: {notice.reason}")
