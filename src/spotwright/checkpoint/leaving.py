"""How long this process still has: notices of its node, and SIGTERM.

A signal's handler runs between any two lines of the program, perhaps in the middle of an update of the weights. So it saves
nothing. It decides one thing: whether the step in hand may go on to its end, where the state is in order and is saved. It may
while a save would still fit after it. When that time is over, and at once where no step is in hand or the step is known to be
too long, the process ends with 143, and what was committed last counts. A step inside one long call into C cannot be ended so;
SIGKILL does it, and the same commit counts.

143 is 128 + SIGTERM: what a shell and Kubernetes show for a process that the signal has ended. Nobody takes it for success.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotwright.notices import Notice, Watch

__all__ = ["EXIT", "Leaving", "seconds_from_environment"]

EXIT = 143
"""The exit code of a process that SIGTERM has ended."""

_GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL where nothing says so: Kubernetes' ``terminationGracePeriodSeconds``."""

_AGAIN = 0.5  # seconds until the program is told again, where it has caught the exit and goes on


_TOLD_BY = frozenset({"SPOTWRIGHT_NOTICE_FILE", "SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_HOST"})
"""One of these is set where notices can be heard of; without them the sources need not be imported."""


class Leaving:
    """The end of this process, as far as it is known. ``may_go_on(left)`` is asked whether the step in hand is waited for."""

    def __init__(self, may_go_on: Callable[[float], bool], needed: Callable[[], float]) -> None:
        self.notice: Notice | None = None
        self.terminated = False
        self._may_go_on, self._needed = may_go_on, needed
        self._end = math.inf  # by the monotonic clock
        self._notice_end = math.inf
        self._callbacks: list[Callable[[Notice | None], object]] = []
        self._watch: Watch | None = None
        self._before: Any = None
        self._installed = False
        self._process = os.getpid()
        self._held: tuple[int, FrameType | None] | None = None
        self._saving = False
        self._done = threading.Event()

    def begin(self) -> None:
        """Listen from now on. SIGTERM can be listened to in the main thread only, and is left alone where it is ignored."""
        if not _TOLD_BY.isdisjoint(os.environ):
            self._watch_for_notices()
        before = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN:
            self._before, self._installed = before, True
            signal.signal(signal.SIGTERM, self._terminate)

    def _watch_for_notices(self) -> None:
        from spotwright import notices

        try:
            source = notices.from_environment(os.environ)
        except notices.SourceError as error:
            import logging

            logging.getLogger("spotwright.checkpoint").warning("no notices will be seen: %s", error)
            return
        if source is not None:
            self._watch = notices.Watch(source, self._heard)
            self._watch.start()

    def end(self) -> None:
        """Stop listening, and give SIGTERM back to whoever had it."""
        self._done.set()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        ours = self._installed and signal.getsignal(signal.SIGTERM) == self._terminate
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
            self._installed = False

    def tell(self, callback: Callable[[Notice | None], object]) -> None:
        """Call this with each notice, and with ``None`` when it is taken back; at once where one is known already."""
        self._callbacks.append(callback)
        if self.notice is not None:
            callback(self.notice)

    @property
    def is_certain(self) -> bool:
        """Whether this process is going to be ended, as far as anybody knows."""
        return self.terminated or (self.notice is not None and self.notice.certain)

    def seconds_left(self) -> float:
        """Seconds until the end; ``inf`` where none is known."""
        end = min(self._end, self._notice_end)
        return max(0.0, end - time.monotonic())

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A block in which the process is not ended: a save that has begun is worth finishing."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False
            if self._held is not None:
                (number, frame), self._held = self._held, None
                if callable(self._before):
                    self._before(number, frame)
                raise SystemExit(EXIT)

    def _heard(self, notice: Notice | None) -> None:
        """The watch's thread: the wall clock is looked at once, so that it may jump afterwards."""
        self.notice = notice
        self._notice_end = math.inf if notice is None else time.monotonic() + max(0.0, notice.ends_at - time.time())
        for callback in self._callbacks:
            try:
                callback(notice)
            except Exception:  # whatever it raises is shown; the others are called all the same
                import logging

                logging.getLogger("spotwright.checkpoint").exception(
                    "on_notice: %r failed; the training goes on", callback
                )

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that was forked, of a data loader perhaps: none of our business
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        first = not self.terminated
        if first:
            self.terminated = True
            self._end = time.monotonic() + seconds_from_environment("SPOTWRIGHT_GRACE", _GRACE)
        if self._saving:
            self._held = (number, frame)
            return
        self._decide(number, frame, first=first)

    def _decide(self, number: int, frame: FrameType | None, *, first: bool) -> None:
        if first and callable(self._before):
            self._before(number, frame)
        left = self.seconds_left()
        if not self._may_go_on(left):
            raise SystemExit(EXIT)
        if first:
            threading.Thread(target=self._tell_again, name="spotwright-term", daemon=True).start()

    def _tell_again(self) -> None:
        """Interrupt the step in hand when a save after it would come too late."""
        self._done.wait(max(0.0, self.seconds_left() - self._needed()))
        while not self._done.wait(_AGAIN):
            os.kill(self._process, signal.SIGTERM)


def seconds_from_environment(name: str, otherwise: float) -> float:
    """A variable that holds seconds; ``otherwise`` where it is not there or holds something else. ``inf`` is a number too."""
    try:
        value = float(os.environ[name])
    except (KeyError, ValueError):
        return otherwise
    return value if value >= 0 else otherwise
