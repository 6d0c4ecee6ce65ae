"""The class for training code: load once, iterate over the steps, end each one.

It guarantees two things that are easy to break by hand. A program that did not load the saved state cannot overwrite it with its
initial state. A step counts as done only together with the state after it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from spotwright.checkpoint.errors import NotLoaded, PlaceError, SaveFailed
from spotwright.checkpoint.interval import Hazard
from spotwright.checkpoint.manager import SaveManager
from spotwright.checkpoint.progress_report import ProgressFile
from spotwright.checkpoint.save_policy import SavePolicy
from spotwright.checkpoint.storage.store import open_store
from spotwright.checkpoint.termination import EXIT, Termination, seconds_from_environment

if TYPE_CHECKING:
    from spotwright.notices import Notice
    from spotwright.notices.pod_hook import PodHook

__all__ = ["Checkpoint"]


class Checkpoint:
    """The checkpoints of one piece of work.

    - ``place`` is a folder, or a URL: ``file://``, ``s3://``, ``gs://``, ``az://`` or any other that fsspec opens. Default:
      ``SPOTWRIGHT_CHECKPOINT``, which every attempt has; if it is not set, a folder ``spotwright-checkpoint`` in the working
      directory, which a warning names. ``storage_options`` go to fsspec.
    - ``program`` names the program that the state belongs to, with a version if you like (``"digits/2"``). The state of another
      program is not loaded.
    - ``keep`` is the number of saves to keep, the newest ones.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save and for
      ``taken_every``.
    - ``taken_every`` is the pool's mean time between interruptions in seconds (``inf``: never). Default:
      ``SPOTWRIGHT_TAKEN_EVERY``, else what is usual for spot.
    - ``writer=False`` loads and never saves. By default ranks other than 0 (``RANK``) do not save.
    - ``allow_pickle`` pickles values that cannot be stored otherwise. Loading them runs code.

    Raises :class:`PlaceError` if the place cannot be used.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        program: str = "",
        keep: int = 2,
        every: float | None = None,
        taken_every: float | None = None,
        writer: bool | None = None,
        allow_pickle: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        if (every is not None and not every >= 0) or (taken_every is not None and not taken_every > 0):
            raise ValueError("every and taken_every are seconds: every must be 0 or more, taken_every more than 0")
        self._manager = SaveManager(
            open_store(place, storage_options), program=program, keep=keep, allow_pickle=allow_pickle
        )
        self.writer = os.environ.get("RANK", "0") == "0" if writer is None else writer
        """True if this process saves."""
        self._taken_every = _taken_every() if taken_every is None else taken_every
        self._policy = SavePolicy(
            Hazard(self._taken_every), notice=seconds_from_environment("SPOTWRIGHT_NOTICE", 0.0), every=every
        )
        self._termination = Termination(self._may_go_on, lambda: self._policy.needed)
        self._hook = _pod_hook()
        self._progress = ProgressFile()
        self._claimed = self._handles_signals = self._loaded = self._saved = self._in_step = self._finished = False
        self._saves_by_hand = False
        self._noticed: Notice | None = None
        self._done = 0
        self._total: int | None = None
        self._began = self._step_began = self._saved_at = time.monotonic()

    # -- loading

    def load(self, default: Any = None) -> Any:
        """Return the newest whole state, or ``default`` if nothing was saved yet.

        From now on this attempt is the writer, and saves of older attempts are refused; SIGTERM and notices are handled. Raises
        :class:`BrokenCheckpoint` if there are saves and none of them is whole, :class:`OtherProgram` for a save of another
        program, and :class:`PlaceError` if the place cannot be used.
        """
        began = time.monotonic()
        self._begin()
        loaded = self._manager.load()
        self._loaded = True
        if loaded is None:
            return default
        for line in loaded.passed_over:
            _warn("%s: a checkpoint that is not whole was passed over: %s", self._manager.store.place, line)
        facts = loaded.entry.data
        self._done, self._saved = facts["step"], True
        self._policy.remember([facts["seconds"]], facts["step_seconds"])
        self._policy.restart = time.monotonic() - began
        self._saved_at = self._step_began = time.monotonic()
        return loaded.state

    @property
    def step(self) -> int:
        """Number of steps that are done: those before the loaded state, and those that were ended since."""
        return self._done

    # -- working

    def steps(self, total: int) -> Iterator[int]:
        """Iterate over the numbers of the steps that are left, from the loaded one (or 0) to ``total - 1``.

        End each with :meth:`step_done`. The share of finished steps goes to ``SPOTWRIGHT_PROGRESS_FILE``. Raises
        :class:`NotLoaded` if :meth:`load` was not called: otherwise a later step with an initial state, or the first step with a
        saved state, would give a wrong result without an error.
        """
        if not self._loaded:
            raise NotLoaded("steps() continues after the loaded state: call load() first, and use what it returns")
        self._total = total
        return self._steps(total)

    def _steps(self, total: int) -> Iterator[int]:
        try:
            while self._done < total:
                number = self._done
                self._progress.report(number / total)
                self._in_step, self._step_began = True, time.monotonic()
                yield number
                if self._done == number:
                    raise NotLoaded(f"step {number} was not ended: call step_done(state) at the end of each step")
            self._progress.report(1.0)
        finally:
            self._in_step = False

    def step_done(self, state: Any) -> bool:
        """End the step under way; save if that pays, after a notice, and after the last step. Returns whether it saved.

        ``state`` is the state after the step, or a function that returns it and is called only for a save: put slow work there.
        After SIGTERM this does not return: the process saves and exits with 143. A save that fails is logged, and tried again
        when the next one is due, unless nothing was saved before. Raises :class:`StaleWriter` and :class:`UnstorableState`.
        """
        self._begin()
        now = time.monotonic()
        self._policy.record_step(now - self._step_began)
        self._done += 1
        self._finished = self._total is not None and self._done >= self._total
        pays = self.writer and self._pays(now)
        saved = pays and self._try(state)
        if self._termination.terminated:
            if self.writer and not pays:  # SIGTERM came during this call
                self._try(state)
            raise SystemExit(EXIT)
        if self._total is not None:
            self._progress.report(self._done / self._total if self._total else 1.0)
        self._step_began = time.monotonic()
        self._in_step = not self._finished
        return saved

    def save(self, state: Any) -> None:
        """Save now. ``state`` is the state itself, not a function.

        A save in the middle of a step belongs to the steps that were ended: the next attempt does this step again, from this
        state. Raises :class:`SaveFailed` if it could not be written, and the errors of :meth:`step_done`. Does nothing in a
        process that is no writer.
        """
        self._begin()
        self._saves_by_hand = True
        if self.writer:
            self._save(state, time.monotonic())
        if self._termination.terminated:
            raise SystemExit(EXIT)

    # -- leaving

    def should_stop(self) -> bool:
        """Return True when it is time to save and leave: after SIGTERM, or if the node goes before one more step and a save.

        For loops whose steps are too long to reach their end: save, then call :meth:`stop`.
        """
        self._handle_signals()
        self._saves_by_hand = True
        if not self._in_step:
            self._in_step, self._step_began = True, time.monotonic()
        if self._termination.terminated:
            return True
        return self._termination.is_certain and self._policy.is_last_chance(self._termination.seconds_left())

    def stop(self) -> None:
        """Exit with 143, so that unfinished work does not count as a success."""
        raise SystemExit(EXIT)

    def seconds_left(self) -> float:
        """Return the seconds until this process is ended, after SIGTERM or by a notice; ``inf`` without either."""
        self._handle_signals()
        return self._termination.seconds_left()

    def on_notice(self, callback: Callable[[Notice | None], object]) -> None:
        """Call back with each notice of the node, and with ``None`` after its withdrawal.

        The callback runs in a thread of its own, while a step is under way: log, or set a flag, but save in the loop.
        """
        self._handle_signals()
        self._termination.add_callback(callback)

    def explain(self) -> str:
        """Return the reason for the interval between saves, with the numbers."""
        return self._policy.explain(time.monotonic() - self._began)

    def close(self) -> None:
        """Stop handling SIGTERM and notices."""
        self._termination.end()
        if self._hook is not None:
            self._hook.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        terminated = self._termination.terminated
        self.close()
        if kind is None and terminated and not self._finished:
            raise SystemExit(EXIT)

    # -- inside

    def _begin(self) -> None:
        """Claim the place and handle SIGTERM and notices, at the first call that needs it."""
        if self.writer and not self._claimed:
            self._policy.hazard = self._manager.claim(self._taken_every)
            self._claimed = True
            self._began = self._step_began = self._saved_at = time.monotonic()
        self._handle_signals()

    def _handle_signals(self) -> None:
        if not self._handles_signals:
            self._handles_signals = True
            self._termination.begin()
            if self._hook is not None and self.writer:
                self._register(self._hook)

    def _register(self, hook: PodHook) -> None:
        """Let the pod's preStop hook wait for a save after its notice, unless there is nothing to save then."""
        if problem := hook.register():
            _warn("%s", problem)

        def answer(_: Notice | None) -> None:
            if hook.waits and not (self._saves_by_hand or self._may_go_on(self._termination.seconds_left())):
                hook.release()

        self._termination.add_callback(answer)

    def _may_go_on(self, left: float) -> bool:
        """True if, with ``left`` seconds to go, the step under way and a save will fit."""
        if not self._in_step:
            return False
        rest = max(0.0, (self._policy.step or 0.0) - (time.monotonic() - self._step_began))
        return left > self._policy.needed + rest

    def _pays(self, now: float) -> bool:
        """True if a save at the end of this step pays."""
        termination = self._termination
        if self._hook is not None and self._hook.waits:
            return True
        if self._finished or termination.terminated or self._policy.is_due(now - self._saved_at, now - self._began):
            return True
        notice, previous = termination.notice, self._noticed
        self._noticed = notice
        return notice is not None and (
            notice is not previous or self._policy.is_last_chance(termination.seconds_left())
        )

    def _try(self, state: Any) -> bool:
        began = time.monotonic()
        try:
            self._save(state() if callable(state) else state, began)
        except (SaveFailed, PlaceError) as error:
            if not self._saved:
                raise
            _warn("%s; it is tried again when the next save is due", error)
            self._saved_at, self._noticed = time.monotonic(), None
            return False
        return True

    def _save(self, state: Any, began: float) -> None:
        """Save a state. ``began`` is when making it began, which is part of the cost of a save."""
        if not self._saved and not self._loaded and not self._manager.is_empty():
            raise NotLoaded(
                f"{self._manager.store.place}: holds a checkpoint that was not loaded, and this save would replace it: "
                "call load() first"
            )
        facts = {
            "step": self._done, "finished": self._finished, "age": began - self._began, "step_seconds": self._policy.step,
        }  # fmt: skip
        is_waited_for = self._hook is not None and self._hook.waits  # a notice during the save is for the next one
        with self._termination.saving():
            self._manager.save(state, facts)
            self._saved = True
            self._saved_at = time.monotonic()
            self._policy.record_save(self._saved_at - began)
            if is_waited_for and self._hook is not None:
                self._hook.release()


def _pod_hook() -> PodHook | None:
    """The preStop hook of this pod; its module is imported in pods that have one."""
    if "SPOTWRIGHT_GRACE_FOLDER" not in os.environ:
        return None
    from spotwright.notices.pod_hook import PodHook

    return PodHook.from_environment(os.environ)


def _taken_every() -> float | None:
    seconds = seconds_from_environment("SPOTWRIGHT_TAKEN_EVERY", math.nan)
    return seconds if seconds > 0 else None


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
