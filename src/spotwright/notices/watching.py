"""A thread that keeps asking a source, so that the code that trains never has to.

It outlives everything a source can do: a server that hangs, lies, or answers 500 changes nothing of what is known. A notice that
was seen stays while its source cannot be asked, because a node that goes takes its servers with it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from spotwright.notices.notice import Notice, Source, SourceError

__all__ = ["Watch"]

_TURN = 10.0
"""Seconds of one question. A source that can wait for an answer does, so this is also how long it takes to end the thread."""

_BREATH = 0.2
"""The shortest turn, seconds: a source that answers at once where it was asked to wait must not keep a processor busy."""

_RETRY, _LONGEST_RETRY = 0.25, 5.0
"""Seconds until a source that failed is asked again; each failure in a row doubles them."""


class Watch:
    """Calls ``on_change`` whenever what ``source`` says changes: with the notice, or ``None`` when it was withdrawn.

    The callback runs in the watching thread: what takes long, and what is not safe in a thread, it should leave to others. An
    error in it is shown and changes nothing else.
    """

    def __init__(self, source: Source, on_change: Callable[[Notice | None], None]) -> None:
        self._source, self._on_change = source, on_change
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.current: Notice | None = None
        """What is known now."""
        self.problem = ""
        """Why the source could not be asked the last time; empty when it answered."""
        self.answered = False
        """Whether it ever answered."""

    def start(self) -> None:
        """Begin to watch, in a thread that keeps nobody from ending. Once is enough; more does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="spotwright-notice", daemon=True)
            self._thread.start()

    def stop(self, timeout: float = 0.0) -> None:
        """Call nobody any more; wait up to ``timeout`` seconds until the question under way is answered."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = _RETRY
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                notice = self._source.wait(_TURN)
            except SourceError as error:
                self.problem = str(error)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_RETRY)
                continue
            self.problem, self.answered, pause = "", True, _RETRY
            self._tell(notice)
            self._stopped.wait(max(0.0, began + _BREATH - time.monotonic()))

    def _tell(self, notice: Notice | None) -> None:
        if notice == self.current or self._stopped.is_set():
            return
        self.current = notice
        try:
            self._on_change(notice)
        except Exception:  # noqa: BLE001  # whatever the user's code raises: the next notice must still arrive
            sys.excepthook(*sys.exc_info())
