"""When the agent may tell Azure to take the node before its time: only when nothing it knows of runs there any more.

What it knows of is what asked it: an attempt keeps a question open for as long as it lives, and the kernel closes that question
with the process. So somebody must have asked, and nobody may have had a question open for a while, longer than a client takes to
ask again. A folder of leases can be named as well: as long as a file is in it, something runs. An agent that nobody ever asked
and that was given no folder knows nothing, and approves nothing. What neither asks nor leaves a lease is not protected: that is
why approval is off unless it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from spotwright.notices import SourceError
from spotwright.notices.board import Board

__all__ = ["QUIET", "Approval"]

QUIET = 6.0
"""Seconds without an open question after which nobody is taken to run here: a client that failed asks again within five."""

_AGAIN = 2.0


class Approval:
    """Approves the present notice once nothing runs. ``approve`` tells the provider; ``say`` tells people."""

    def __init__(
        self, board: Board, approve: Callable[[], bool], say: Callable[[str], None], leases: Path | None = None
    ) -> None:
        self._board, self._approve, self._say, self._leases = board, approve, say, leases
        self._done = False
        self._thread: threading.Thread | None = None
        self._again_at = 0.0

    def look(self) -> float | None:
        """Approve where it is time to. Returns in how many seconds to look again; ``None``: when the notice changes."""
        notice = self._board.notice
        if notice is None:
            self._done = False
        if notice is None or self._done or not notice.certain or notice.kind != "interruption":
            return None
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and time.monotonic() >= self._again_at and nothing_runs(self._board, self._leases):
            self._again_at = time.monotonic() + _AGAIN
            self._thread = threading.Thread(target=self._tell, name="spotwright-approval", daemon=True)
            self._thread.start()
        return 0.5

    def _tell(self) -> None:
        """Ask the provider, which may take its time, in a thread of its own."""
        try:
            approved = self._approve()
        except SourceError as error:
            self._say(f"not approved: {error}")
            return
        self._done = True
        text = "approved: nothing runs here any more"
        self._say(text if approved else "not approved: the event has begun, or names other machines too")


def nothing_runs(board: Board, leases: Path | None) -> bool:
    """Whether nothing that the agent knows of runs on this node any more."""
    quiet = board.quiet()
    if quiet is None and leases is None:
        return False
    if quiet is not None and quiet < QUIET:
        return False
    if leases is None:
        return True
    try:
        return next(leases.iterdir(), None) is None
    except OSError:
        return False  # it cannot be read: then it is not known
