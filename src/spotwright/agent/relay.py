"""Connects a source of notices to a notice board: each change of the source is published to the attempts on the node."""

from __future__ import annotations

from collections.abc import Callable

from spotwright.agent.http_server import HttpServer
from spotwright.agent.notice_board import NoticeBoard
from spotwright.notices.notice import Notice, Source
from spotwright.notices.notice_watch import NoticeWatch

__all__ = ["NoticeRelay"]


class NoticeRelay:
    """Watches ``source`` and publishes its notices on :attr:`board`, which ``server`` serves; ``log`` gets lines for people.

    ``tell`` is called with each change as well, after it was published.
    """

    def __init__(
        self,
        source: Source,
        server: HttpServer,
        log: Callable[[str], None] = lambda _: None,
        tell: Callable[[Notice | None], None] = lambda _: None,
    ) -> None:
        self._name, self._log, self._logged_problem = source.name, log, ""
        self._tell = tell
        self._watch = NoticeWatch(source, self._on_change)
        self.board = NoticeBoard(self._problem, server.wake)
        """The board to serve."""
        self._watch.start()

    def stop(self) -> None:
        """Stop watching the source."""
        self._watch.stop()

    def log_problem(self) -> None:
        """Log that the source has begun to fail, or answers again, once for each change."""
        problem = self._watch.problem
        if problem != self._logged_problem:
            self._log(problem or f"{self._name}: it answers")
            self._logged_problem = problem

    def _problem(self) -> str:
        return self._watch.problem or ("" if self._watch.answered else f"{self._name}: it has not answered yet")

    def _on_change(self, notice: Notice | None) -> None:
        self.board.update(notice)
        self._tell(notice)
        self._log("the notice was withdrawn" if notice is None else f"{notice.kind}: {notice.reason}")
