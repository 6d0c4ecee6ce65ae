"""Ends this process in time after SIGTERM, by the time that its node's notice leaves.

A signal handler runs between any two lines of the program, perhaps in the middle of an update of the weights, so it does not
save. It decides whether the current step may finish, where the state is consistent and is saved. The step may continue while a
save still fits after it. After that, and at once if no step is under way or the step is too long, the process exits with 143,
and the last committed save counts. A step inside one long call into C can only be ended by SIGKILL; the same save counts.

143 is 128 + SIGTERM, which shells and Kubernetes show for a process ended by the signal. It never counts as success.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotwright.notices import Notice, NoticeWatch


__all__ = ["EXIT", "Termination", "let_workers_outlive_sigterm", "notice", "seconds_from_environment"]


EXIT = 143
"""Exit code of a process ended by SIGTERM."""

_GRACE = 30.0
"""Default seconds between SIGTERM and SIGKILL: Kubernetes' ``terminationGracePeriodSeconds``."""

_REPEAT = 0.5  # seconds until the next SIGTERM to a program that caught the exit and continues

_NOTICE_VARIABLES = frozenset({"SPOTWRIGHT_NOTICE_FILE", "SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_HOST"})
"""Variables that name a source of notices. Without them no source module is imported."""


class Termination:
    """The expected end of this process.

    ``may_go_on(left)`` decides, with ``left`` seconds to go, whether the current step may finish. ``needed`` returns the
    seconds that a save needs.
    """

    def __init__(self, may_go_on: Callable[[float], bool], needed: Callable[[], float]) -> None:
        self.notice: Notice | None = None
        self.terminated = False
        self._may_go_on, self._needed = may_go_on, needed
        self.on_sigterm: Callable[[], object] | None = None
        """Called in the signal handler at the first SIGTERM: it must neither block nor fail."""
        self._end = math.inf  # of the monotonic clock
        self._notice_end = math.inf
        self._callbacks: list[Callable[[Notice | None], object]] = []
        self._watch: NoticeWatch | None = None
        self._previous_handler: Any = None
        self._installed = False
        self._process = os.getpid()
        self._held: tuple[int, FrameType | None] | None = None
        self._saving = False
        self._done = threading.Event()

    def begin(self) -> None:
        """Start handling SIGTERM and notices. SIGTERM is handled only in the main thread, and not if the program ignores it."""
        if not _NOTICE_VARIABLES.isdisjoint(os.environ):
            self._watch_for_notices()
        previous = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and previous is not signal.SIG_IGN:
            self._previous_handler, self._installed = previous, True
            let_workers_outlive_sigterm()
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
            self._watch = notices.NoticeWatch(source, self._on_notice)
            self._watch.start()

    def end(self) -> None:
        """Stop handling notices and SIGTERM, and restore its previous handler."""
        self._done.set()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        ours = self._installed and signal.getsignal(signal.SIGTERM) == self._terminate
        if ours and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)
            self._installed = False

    def add_callback(self, callback: Callable[[Notice | None], object]) -> None:
        """Call back with each notice, and with ``None`` after its withdrawal; at once if a notice exists."""
        self._callbacks.append(callback)
        if self.notice is not None:
            callback(self.notice)

    @property
    def is_certain(self) -> bool:
        """True if SIGTERM or a certain notice has come."""
        return self.terminated or (self.notice is not None and self.notice.certain)

    def seconds_left(self) -> float:
        """Return the seconds until the end; ``inf`` if none is expected."""
        end = min(self._end, self._notice_end)
        return max(0.0, end - time.monotonic())

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Delay the end of the process to the end of the block, so that a save under way can finish."""
        self._saving = True
        try:
            yield
        finally:
            self._saving = False
            if self._held is not None:
                (number, frame), self._held = self._held, None
                if callable(self._previous_handler):
                    with suppress(SystemExit):
                        self._previous_handler(number, frame)
                raise SystemExit(EXIT)

    def _on_notice(self, notice: Notice | None) -> None:
        """Handle a notice, in the watch's thread. The wall clock is read only once, because it may jump."""
        self.notice = notice
        self._notice_end = math.inf if notice is None else time.monotonic() + max(0.0, notice.ends_at - time.time())
        for callback in self._callbacks:
            try:
                callback(notice)
            except Exception:  # logged; the other callbacks are still called
                import logging

                logging.getLogger("spotwright.checkpoint").exception(
                    "on_notice: %r failed; the training continues", callback
                )

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a forked child, perhaps a data loader's: it handles SIGTERM as before
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous_handler is None else self._previous_handler)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        first = not self.terminated
        if first:
            self.terminated = True
            self._end = time.monotonic() + seconds_from_environment("SPOTWRIGHT_GRACE", _GRACE)
            if self.on_sigterm is not None:
                self.on_sigterm()
        if self._saving:
            self._held = (number, frame)
            return
        self._decide(number, frame, first=first)

    def _decide(self, number: int, frame: FrameType | None, *, first: bool) -> None:
        if first and callable(self._previous_handler):
            with suppress(SystemExit):  # the process ends after a save, and never with 0
                self._previous_handler(number, frame)
        left = self.seconds_left()
        if not self._may_go_on(left):
            raise SystemExit(EXIT)
        if first:
            threading.Thread(target=self._interrupt_later, name="spotwright-term", daemon=True).start()

    def _interrupt_later(self) -> None:
        """Interrupt the step under way when a save after it would come too late."""
        self._done.wait(max(0.0, self.seconds_left() - self._needed()))
        while not self._done.wait(_REPEAT):
            os.kill(self._process, signal.SIGTERM)


def let_workers_outlive_sigterm() -> None:
    """Let PyTorch's data loader workers forked from now on ignore one SIGTERM; a second one ends them.

    A process group receives it together. Without its workers a training reaches neither its next batch nor its next save:
    PyTorch raises an error between any two lines (handler of SIGCHLD, ``torch/utils/data/_utils/signal_handling.py``). Workers
    end with their training in any case. Does nothing if PyTorch is not imported.
    """
    module = sys.modules.get("torch.utils.data._utils.signal_handling")
    set_handlers = getattr(module, "_set_worker_signal_handlers", None)
    if module is None or set_handlers is None or isinstance(set_handlers, _WorkerHandlers):
        return
    module._set_worker_signal_handlers = _WorkerHandlers(set_handlers)  # type: ignore[attr-defined]  # noqa: SLF001


class _WorkerHandlers:
    """Sets the signal handlers of a worker, which calls it at its start."""

    def __init__(self, set_handlers: Callable[[], None]) -> None:
        self._set_handlers = set_handlers

    def __call__(self) -> None:
        self._set_handlers()
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._set_handlers())


def seconds_from_environment(name: str, default: float) -> float:
    """Read seconds (``inf`` allowed) from an environment variable; ``default`` if it is not set or holds anything else."""
    try:
        value = float(os.environ[name])
    except (KeyError, ValueError):
        return default
    return value if value >= 0 else default


_FIRST_ANSWER = 1.0  # seconds that the first call waits for an answer

_VARIABLES = ("SPOTWRIGHT_NOTICE_URL", "SPOTWRIGHT_NOTICE_FILE", "SPOTWRIGHT_HOST")

_watches: dict[tuple[object, ...], NoticeWatch | None] = {}  # by process and variables: a fork has no threads


def notice() -> Notice | None:
    """Return the notice of this node's end, or ``None``: none, withdrawn, or no source is configured.

    ``ends_at`` of the notice is the end in Unix seconds. The first call asks the source and waits at most a second; later calls
    return at once a thread's latest notice. Never raises.
    """
    key = (os.getpid(), *(os.environ.get(name, "") for name in _VARIABLES))
    if key not in _watches:
        _watches[key] = _watch() if any(key[1:]) else None
    watch = _watches[key]
    return None if watch is None else watch.current


def _watch() -> NoticeWatch | None:
    """Start watching the source that the environment names; ``None`` if it cannot be used."""
    from spotwright import notices

    try:
        source = notices.from_environment(os.environ)
    except notices.SourceError as error:
        import logging

        logging.getLogger("spotwright.checkpoint").warning("no notices will be seen: %s", error)
        return None
    if source is None:
        return None
    watch = notices.NoticeWatch(source, lambda _notice: None)
    watch.start()
    deadline = time.monotonic() + _FIRST_ANSWER
    while not (watch.answered or watch.problem) and time.monotonic() < deadline:
        time.sleep(0.002)
    return watch
