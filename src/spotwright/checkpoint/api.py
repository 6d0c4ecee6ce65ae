"""The class that training code uses: load once, go through the steps, end each one.

It keeps two promises that are easy to break by hand. A program that never asked for the saved state cannot overwrite it by its
initial one; and a step counts as done only together with the state after it.
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
from spotwright.checkpoint.keeper import Keeper
from spotwright.checkpoint.leaving import EXIT, Leaving, seconds_from_environment
from spotwright.checkpoint.pace import Pace
from spotwright.checkpoint.progress import Progress
from spotwright.checkpoint.store import open_store

if TYPE_CHECKING:
    from spotwright.notices import Notice

__all__ = ["Checkpoint"]


class Checkpoint:
    """The checkpoints of one piece of work.

    ``place`` is a folder, ``file://``, ``s3://``, ``gs://``, ``az://`` or any other address that fsspec opens; by default
    ``SPOTWRIGHT_CHECKPOINT``, which every attempt has. ``storage_options`` go to fsspec. The newest ``keep`` saves are kept.
    ``program`` names what the state belongs to, with its version if you like (``"digits/2"``): another program's state is not
    loaded. ``every`` fixes the seconds of work between two saves; by default they follow from what saves cost and from
    ``taken_every``, the mean seconds between interruptions of the pool (``inf``: never), by default
    ``SPOTWRIGHT_TAKEN_EVERY``, or what is usual for spot. ``writer=False`` loads and never saves; by default ranks other
    than 0 (``RANK``) do not write. ``allow_pickle`` lets values be pickled that cannot be stored otherwise, and be loaded
    again, which runs code.

    Raises :class:`PlaceError` where the place cannot be.
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
            raise ValueError(f"keep={keep}: at least the newest checkpoint has to be kept")
        if (every is not None and not every >= 0) or (taken_every is not None and not taken_every > 0):
            raise ValueError("every and taken_every are seconds: every at least 0, taken_every more than 0")
        self._keeper = Keeper(open_store(place, storage_options), program=program, keep=keep, allow_pickle=allow_pickle)
        self.writer = os.environ.get("RANK", "0") == "0" if writer is None else writer
        """Whether this process saves."""
        self._taken_every = _taken_every() if taken_every is None else taken_every
        self._pace = Pace(
            Hazard(self._taken_every), notice=seconds_from_environment("SPOTWRIGHT_NOTICE", 0.0), every=every
        )
        self._leaving = Leaving(self._may_go_on, lambda: self._pace.needed)
        self._progress = Progress()
        self._claimed = self._listens = self._loaded = self._saved = self._in_step = self._finished = False
        self._noticed: Notice | None = None
        self._done = 0
        self._total: int | None = None
        self._began = self._step_began = self._saved_at = time.monotonic()

    # -- loading

    def load(self, default: Any = None) -> Any:
        """The newest whole state, or ``default`` where nothing was saved yet.

        From now on this attempt is the one that writes: whatever an older one still tries to save is refused. SIGTERM and
        notices are listened to from now on. Raises :class:`BrokenCheckpoint` where something was saved and none of it is
        whole, :class:`OtherProgram` for another program's, and :class:`PlaceError` where the place cannot be used.
        """
        began = time.monotonic()
        self._begin()
        found = self._keeper.load()
        self._loaded = True
        if found is None:
            return default
        for line in found.passed_over:
            _warn("%s: a checkpoint is not whole and was passed over: %s", self._keeper.store.place, line)
        facts = found.entry.data
        self._done, self._saved = facts["step"], True
        self._pace.remember([facts["seconds"]], facts["step_seconds"])
        self._pace.restart = time.monotonic() - began
        self._saved_at = self._step_began = time.monotonic()
        return found.state

    @property
    def step(self) -> int:
        """How many steps are done: those before the loaded state, and those that were ended since."""
        return self._done

    # -- working

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left, from 0 or from where the loaded state is, up to ``total - 1``.

        Each must be ended with :meth:`step_done`. The share that is done goes to ``SPOTWRIGHT_PROGRESS_FILE``. Raises
        :class:`NotLoaded` when :meth:`load` was not called, because going on at a later step with an initial state, or at the
        first step over a saved one, would be wrong without a sign.
        """
        if not self._loaded:
            raise NotLoaded("steps() goes on after the loaded state: call load() first, and use what it gives")
        self._total = total
        return self._steps(total)

    def _steps(self, total: int) -> Iterator[int]:
        try:
            while self._done < total:
                number = self._done
                self._progress.report(number, total)
                self._in_step, self._step_began = True, time.monotonic()
                yield number
                if self._done == number:
                    raise NotLoaded(f"step {number} was not ended: call step_done(state) at the end of each step")
            self._progress.report(total, total)
        finally:
            self._in_step = False

    def step_done(self, state: Any) -> bool:
        """End the step in hand; save when that pays, a notice came, or it was the last step. Gives whether it saved.

        ``state`` is the state after the step, or a function that makes it and is called only for a save. Whatever takes long
        belongs into the function. When SIGTERM has come, this does not return: the process ends with 143 after the save. A save
        that fails is logged and tried again when the next one is due, unless nothing was ever saved; what must not be ignored
        is raised: :class:`StaleWriter`, :class:`UnstorableState`.
        """
        self._begin()
        now = time.monotonic()
        self._pace.stepped(now - self._step_began)
        self._done += 1
        self._finished = self._total is not None and self._done >= self._total
        pays = self.writer and self._pays(now)
        saved = pays and self._try(state)
        if self._leaving.terminated:
            if self.writer and not pays:  # it came just now
                self._try(state)
            raise SystemExit(EXIT)
        if self._total is not None:
            self._progress.report(self._done, self._total)
        self._step_began = time.monotonic()
        self._in_step = not self._finished
        return saved

    def save(self, state: Any) -> None:
        """Save now. ``state`` is the state itself.

        In the middle of a step it is saved as belonging to the steps that were ended: the next attempt does this step again,
        from this state. Raises :class:`SaveFailed` where it could not be written, and what :meth:`step_done` raises. Does
        nothing where this process is no writer.
        """
        self._begin()
        if self.writer:
            self._save(state, time.monotonic())
        if self._leaving.terminated:
            raise SystemExit(EXIT)

    # -- going

    def should_stop(self) -> bool:
        """Whether it is time to save and leave: SIGTERM came, or the node goes and one step more with a save would not fit.

        For loops whose steps are too long to wait for their end. Save, then call :meth:`stop`.
        """
        self._listen()
        if not self._in_step:
            self._in_step, self._step_began = True, time.monotonic()
        if self._leaving.terminated:
            return True
        return self._leaving.is_certain and self._pace.is_last_chance(self._leaving.seconds_left())

    def stop(self) -> None:
        """End the process with 143, so that nobody takes what is half done for a success."""
        raise SystemExit(EXIT)

    def seconds_left(self) -> float:
        """Seconds until this process is ended, by a notice or after SIGTERM; ``inf`` where nothing says so."""
        self._listen()
        return self._leaving.seconds_left()

    def on_notice(self, callback: Callable[[Notice | None], object]) -> None:
        """Call this with each notice of the node, and with ``None`` when it is withdrawn.

        It runs in a thread of its own, while a step is under way: say it, set a flag, but save in the loop.
        """
        self._listen()
        self._leaving.tell(callback)

    def explain(self) -> str:
        """Why saves come as often as they do, with the numbers."""
        return self._pace.explain(time.monotonic() - self._began)

    def close(self) -> None:
        """Stop listening to SIGTERM and notices."""
        self._leaving.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        terminated = self._leaving.terminated
        self.close()
        if kind is None and terminated and not self._finished:
            raise SystemExit(EXIT)

    # -- inside

    def _begin(self) -> None:
        """Claim the place, and listen, when this process first does what needs it."""
        if self.writer and not self._claimed:
            self._pace.hazard = self._keeper.claim(self._taken_every)
            self._claimed = True
            self._began = self._step_began = self._saved_at = time.monotonic()
        self._listen()

    def _listen(self) -> None:
        if not self._listens:
            self._listens = True
            self._leaving.begin()

    def _may_go_on(self, left: float) -> bool:
        """Whether the step in hand is waited for, with so many seconds left."""
        if not self._in_step:
            return False
        rest = max(0.0, (self._pace.step or 0.0) - (time.monotonic() - self._step_began))
        return left > self._pace.needed + rest

    def _pays(self, now: float) -> bool:
        """Whether to save at the end of this step."""
        leaving = self._leaving
        if self._finished or leaving.terminated or self._pace.is_due(now - self._saved_at, now - self._began):
            return True
        notice, before = leaving.notice, self._noticed
        self._noticed = notice
        return notice is not None and (notice is not before or self._pace.is_last_chance(leaving.seconds_left()))

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
        """Save a state that was begun to be made at this moment: making it is part of what a save costs."""
        if not self._saved and not self._loaded and not self._keeper.is_empty():
            raise NotLoaded(
                f"{self._keeper.store.place}: holds a checkpoint that was not loaded, and this save would take its place: "
                "call load() first"
            )
        facts = {
            "step": self._done, "finished": self._finished, "age": began - self._began, "step_seconds": self._pace.step,
        }  # fmt: skip
        with self._leaving.saving():
            self._keeper.save(state, facts)
            self._saved = True
            self._saved_at = time.monotonic()
            self._pace.saved(self._saved_at - began)


def _taken_every() -> float | None:
    seconds = seconds_from_environment("SPOTWRIGHT_TAKEN_EVERY", math.nan)
    return seconds if seconds > 0 else None


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
