"""The class for training code: load once, iterate over the steps, end each one.

It guarantees two things that are easy to break by hand. A program that did not load the saved state cannot overwrite it with
its initial state. A step counts as done only together with the state after it. A save is a state file and its entry in the
log; a load reads the newest whole save.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from spotwright.checkpoint import state_file
from spotwright.checkpoint.attempt_environment import ProgressFile
from spotwright.checkpoint.encoding import decode, encode
from spotwright.checkpoint.errors import (
    BrokenCheckpoint,
    CheckpointError,
    NotLoaded,
    OtherProgram,
    PlaceError,
    SaveFailed,
    StaleWriter,
)
from spotwright.checkpoint.save_log import LogEntry, SaveLog, describe_writer
from spotwright.checkpoint.save_policy import Hazard, SavePolicy
from spotwright.checkpoint.store import Store, open_store
from spotwright.checkpoint.termination import EXIT, Termination, seconds_from_environment

if TYPE_CHECKING:
    from spotwright.notices import Notice
    from spotwright.notices.pod_hook import PodHook


__all__ = ["Checkpoint", "Loaded", "SaveManager"]


_TRIES = 3  # a writer may have replaced a save before the reader opens it


class Loaded:
    """A loaded state with its entry. ``passed_over`` has a line for each newer save that is not whole."""

    __slots__ = ("entry", "passed_over", "state")

    def __init__(self, state: Any, entry: LogEntry, passed_over: tuple[str, ...]) -> None:
        self.state, self.entry, self.passed_over = state, entry, passed_over


class SaveManager:
    """The saves of one place, for one attempt. ``program`` must be that of the existing saves, if both are named."""

    def __init__(self, store: Store, *, program: str, keep: int, allow_pickle: bool) -> None:
        self.store, self.log = store, SaveLog(store)
        self._program, self._keep, self._allow_pickle = program, keep, allow_pickle
        self._count = 0

    def claim(self, hazard: float | None) -> Hazard:
        """Become the writer of the place. Returns the rate of interruptions with the counts of earlier attempts.

        ``hazard`` is the pool's ``taken_every``. The counts are passed on in the claim. Raises :class:`OtherProgram` before it
        claims anything, because the other program may be running.
        """
        earlier = self.log.latest_claim()
        if earlier is not None:
            self._check(earlier)
        taken, lived = earlier.data["past"] if earlier else (0, 0.0)
        prior = Hazard(hazard)
        last = next(self.log.saves(), None)
        if last is not None and earlier is not None and last.token == earlier.number:
            lived += prior.exposure(last.data["age"])
            taken += not last.data["finished"]
        past = [taken, lived]
        self.log.claim_token({"who": describe_writer(), "program": self._program, "past": past, "at": time.time()})
        self.log.prune(self._keep)
        return Hazard(hazard, taken, lived)

    def is_empty(self) -> bool:
        """True if the place has no save."""
        return next(self.log.saves(), None) is None

    def save(self, state: Any, facts: Mapping[str, Any]) -> LogEntry:
        """Save a state. ``facts`` go into its entry, with the duration of the save.

        Raises :class:`StaleWriter` if another attempt has taken over, where possible before anything is written.
        """
        began = time.monotonic()
        self.log.check()
        tree, blobs = encode(state, allow_pickle=self._allow_pickle)
        self._count += 1
        name = f"state-{self.log.token:010d}-{self._count:06d}-{os.urandom(4).hex()}"
        with self.store.write(name) as file:
            written = state_file.write(file, tree, blobs)
        own = {"state": name, "program": self._program, "seconds": time.monotonic() - began, "at": time.time()}
        try:
            entry = self.log.commit({**facts, **written, **own})
        except StaleWriter:
            self.store.remove(name)
            raise
        except CheckpointError:
            with suppress(CheckpointError):  # frees the space of the failed save; the error above matters
                self.log.prune(self._keep)
            raise
        self.log.prune(self._keep)
        return entry

    def load(self) -> Loaded | None:
        """Return the newest whole state; ``None`` if the place has no save.

        Raises :class:`BrokenCheckpoint` if it has saves, and none of them is whole.
        """
        broken: list[str] = []
        for _ in range(_TRIES):
            broken = []
            for entry in self.log.saves():
                self._check(entry)
                try:
                    return Loaded(self._read(entry), entry, tuple(broken))
                except BrokenCheckpoint as error:
                    broken.append(str(error))
            if not broken:
                return None
        raise BrokenCheckpoint(
            f"{self.store.place}: none of the checkpoints is whole: {'; '.join(broken)}. To start without them, "
            "remove the place or name another one"
        )

    def _check(self, entry: LogEntry) -> None:
        theirs = entry.data["program"]
        if theirs and self._program and theirs != self._program:
            raise OtherProgram(
                f"{self.store.place}: belongs to {theirs!r}, and this is {self._program!r}: name another "
                "place, or remove this one"
            )

    def _read(self, entry: LogEntry) -> Any:
        reader = self._open(entry)
        try:
            return decode(reader, lambda index: self._stream(entry, index), allow_pickle=self._allow_pickle)
        finally:
            reader.close()

    def _stream(self, entry: LogEntry, index: int) -> Iterator[bytes]:
        """The bytes of a file in an earlier loaded state."""
        reader = self._open(entry)
        try:
            yield from reader.stream(index)
        finally:
            reader.close()

    def _open(self, entry: LogEntry) -> state_file.Reader:
        file = self.store.open(entry.state)
        if file is None:
            raise BrokenCheckpoint(f"{entry.state} is not there any more")
        try:
            return state_file.Reader(file, entry.state, entry.data["size"], entry.data["sum"])
        except OSError as error:
            file.close()
            raise PlaceError(f"{self.store.place}: {entry.state} cannot be read ({error})") from error
        except BaseException:
            file.close()
            raise


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
