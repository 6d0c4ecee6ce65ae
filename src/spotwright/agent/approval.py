"""Decides when the agent may let Azure take the node before its time: only after all work that it knows of has gone.

The agent knows of work that asked it: an attempt keeps a request open for as long as it lives, and the kernel closes that request
with the process. So a client must have asked, and no request may have been open for a while that is longer than a client needs to
ask again. A folder of leases can be named as well: as long as it holds a file, work runs. An agent that no client ever asked and
that has no folder of leases knows nothing, and approves nothing. Work that neither asks nor leaves a lease is not protected, so
approval is off by default.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from spotwright.agent.notice_board import NoticeBoard
from spotwright.notices import SourceError

__all__ = ["IDLE_PERIOD", "Approval", "nothing_runs"]

IDLE_PERIOD = 6.0
"""Seconds without an open request after which the node counts as idle: a client whose request failed asks again within 5."""

_RETRY = 2.0  # seconds between two tries


class Approval:
    """Approves the present notice once nothing runs. ``approve`` asks the provider; ``log`` gets lines for people."""

    def __init__(
        self, board: NoticeBoard, approve: Callable[[], bool], log: Callable[[str], None], leases: Path | None = None
    ) -> None:
        self._board, self._approve, self._log, self._leases = board, approve, log, leases
        self._done = False
        self._thread: threading.Thread | None = None
        self._next_try = 0.0

    def check(self) -> float | None:
        """Approve the notice if it is time. Returns the seconds until the next check; ``None``: when the notice changes."""
        notice = self._board.notice
        if notice is None:
            self._done = False
        if notice is None or self._done or not notice.certain or notice.kind != "interruption":
            return None
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and time.monotonic() >= self._next_try and nothing_runs(self._board, self._leases):
            self._next_try = time.monotonic() + _RETRY
            self._thread = threading.Thread(target=self._ask_provider, name="spotwright-approval", daemon=True)
            self._thread.start()
        return 0.5

    def _ask_provider(self) -> None:
        """Send the approval; runs in a thread, because the provider may take its time."""
        try:
            approved = self._approve()
        except SourceError as error:
            self._log(f"not approved: {error}")
            return
        self._done = True
        text = "approved: nothing runs here any more"
        self._log(text if approved else "not approved: the event has begun, or names other machines too")


def nothing_runs(board: NoticeBoard, leases: Path | None) -> bool:
    """True if no work that the agent knows of runs on the node any more."""
    idle = board.idle_seconds()
    if idle is None and leases is None:
        return False
    if idle is not None and idle < IDLE_PERIOD:
        return False
    if leases is None:
        return True
    try:
        return next(leases.iterdir(), None) is None
    except OSError:
        return False  # the leases cannot be read, so work may run
