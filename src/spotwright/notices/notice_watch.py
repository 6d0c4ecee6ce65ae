"""Watches a source of notices in a thread, so that training code never has to ask.

No failure of a source ends the thread: after a server that hangs, lies or answers 500, the last known notice stays. It stays also
while its source cannot be asked, because a node that goes takes its servers with it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from spotwright.notices.notice import Notice, Source, SourceError

__all__ = ["NoticeWatch"]

_WAIT = 10.0
"""Seconds of one call of :meth:`Source.wait`, and so the longest time until a stopped thread ends."""

_SHORTEST_TURN = 0.2
"""Seconds between two calls at least: a source that answers at once although it should wait must not keep a processor busy."""

_RETRY, _LONGEST_RETRY = 0.25, 5.0
"""Seconds until a source that failed is asked again; each failure in a row doubles them, up to the second number."""


class NoticeWatch:
    """Calls ``on_change`` for each change that ``source`` reports: with the notice, or ``None`` after its withdrawal.

    The callback runs in the watching thread, so it should be short and safe in a thread. An error in it is printed and changes
    nothing else.
    """

    def __init__(self, source: Source, on_change: Callable[[Notice | None], None]) -> None:
        self._source, self._on_change = source, on_change
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.current: Notice | None = None
        """The present notice."""
        self.problem = ""
        """Why the last call of the source failed; empty if it answered."""
        self.answered = False
        """True after the source has answered once."""

    def start(self) -> None:
        """Start watching, in a daemon thread. Further calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spotwright-notice", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 0.0) -> None:
        """Stop calling back; wait up to ``timeout`` seconds for the end of the call under way."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = _RETRY
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                notice = self._source.wait(_WAIT)
            except SourceError as error:
                self.problem = str(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                continue
            self.problem, self.answered, pause = "", True, _RETRY
            self._update(notice)
            self._stopped.wait(max(0.0, began + _SHORTEST_TURN - time.monotonic()))

    def _update(self, notice: Notice | None) -> None:
        if notice == self.current or self._stopped.is_set():
            return
        self.current = notice
        try:
            self._on_change(notice)
        except Exception:  # noqa: BLE001  # an error of the user's code: the next notice must still arrive
            sys.excepthook(*sys.exc_info())
