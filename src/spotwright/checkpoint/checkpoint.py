"""The class for training code: load once, iterate over the steps, end each one.

It guarantees two things that are easy to break by hand. A program that did not load the saved state cannot overwrite it with
its initial state. A step counts as finished only together with the state after it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from spotwright.checkpoint.attempt_environment import ProgressFile
from spotwright.checkpoint.errors import CheckpointError, NotLoaded, PlaceError, SaveFailed
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.save_manager import SaveManager
from spotwright.checkpoint.save_policy import Hazard, SavePolicy
from spotwright.checkpoint.store import open_store
from spotwright.checkpoint.termination import EXIT, Termination, seconds_from_environment

if TYPE_CHECKING:
    from spotwright.checkpoint.group_saves import GroupSaves
    from spotwright.notices import Notice
    from spotwright.notices.pod_hook import PodHook


__all__ = ["Checkpoint"]


_OWN_PLACE = (
    'give each training its own place, such as Checkpoint(name="fold1"). To continue the same training, '
    "use Checkpoint(again=True); to read its saves, Checkpoint(writer=False)"
)


class Checkpoint:
    """The checkpoints of one piece of work.

    - ``place`` is a folder, or a URL: ``file://``, ``s3://``, ``gs://``, ``az://`` or any other that fsspec opens. Default:
      ``SPOTWRIGHT_CHECKPOINT``, which every attempt has; if it is not set, a folder ``spotwright-checkpoint`` in the working
      directory, which a warning names. ``storage_options`` go to fsspec.
    - ``name`` distinguishes several trainings of one process, such as ``"fold1"``: its saves are below the place.
    - ``again`` continues the work of another ``Checkpoint`` of this process. Without it, the second one at a place raises.
    - ``program`` names the program of the state, with a version if you like (``"digits/2"``). The state of another
      program is not loaded.
    - ``keep`` is the number of saves to keep, the newest ones.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save and for
      ``interrupt_every``.
    - ``interrupt_every`` is the pool's mean time between interruptions in seconds (``inf``: never). Default:
      ``SPOTWRIGHT_INTERRUPT_EVERY``, else a typical value for spot.
    - ``group`` is the process group of a training with several ranks (``torch.distributed.group.WORLD``). Every rank then makes a
      ``Checkpoint`` and calls :meth:`load`, :meth:`steps` and :meth:`step_done` alike, once for each optimizer step; a notice or
      SIGTERM at any of them saves at one step of all (:mod:`spotwright.checkpoint.save_coordinator`).
    - ``writer=False`` only loads, also another training's saves. By default ranks other than 0 (``RANK``) do
      not save.
    - ``print_to`` is the file that :meth:`print` writes instead of the standard output. Each attempt rewrites it.
    - ``allow_pickle`` pickles values that cannot be stored otherwise. Loading them can run code.

    Raises :class:`PlaceError` if the place cannot be used.
    """

    def __init__(  # noqa: PLR0913  # each is named by its user
        self,
        place: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        again: bool = False,
        program: str = "",
        keep: int = 2,
        every: float | None = None,
        interrupt_every: float | None = None,
        group: Any = None,
        writer: bool | None = None,
        print_to: str | os.PathLike[str] | None = None,
        allow_pickle: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        if (every is not None and not every >= 0) or (interrupt_every is not None and not interrupt_every > 0):
            raise ValueError(
                "every and interrupt_every are seconds: every must be 0 or more, interrupt_every more than 0"
            )
        self._manager = SaveManager(
            open_store(place, storage_options, name=name),
            program=program,
            keep=keep,
            allow_pickle=allow_pickle,
            owner=PlaceOwner(self, _OWN_PLACE, again=again),
        )
        is_first = group is not None or os.environ.get("RANK", "0") == "0"
        self.writer = is_first if writer is None else writer
        """True if this process saves."""
        self._interrupt_every = _interrupt_every() if interrupt_every is None else interrupt_every
        self._policy = SavePolicy(
            Hazard(self._interrupt_every),
            notice=seconds_from_environment("SPOTWRIGHT_NOTICE", 0.0),
            every=every,
            within=seconds_from_environment("SPOTWRIGHT_SAVE_WITHIN", math.inf),
        )
        self._termination = Termination(self._may_go_on, lambda: self._policy.needed)
        self._hook = _pod_hook()
        self._progress = ProgressFile()
        self._claimed = self._handles_signals = self._loaded = self._saved = self._in_step = self._finished = False
        self._saves_by_hand = False
        self._noticed: Notice | None = None
        self._done = 0
        self._total: int | None = None
        self._print_to = print_to
        self._printed: list[str] = []
        self._began = self._step_began = self._saved_at = time.monotonic()
        self._ranks = None if group is None else self._of_group(group)
        self._saves: SaveManager | GroupSaves = self._ranks or self._manager

    # -- loading

    def load(self, default: Any = None) -> Any:
        """Return the newest whole state, or ``default`` before the first save.

        From now on this attempt is the writer, handles SIGTERM and notices, and older attempts' saves are refused. Raises
        :class:`BrokenCheckpoint` if all existing saves are broken, :class:`OtherProgram` for a save of another program, and
        :class:`PlaceError` if the place cannot be used, or another ``Checkpoint`` of this process has saved there. Repeats the
        output of :meth:`print` before that save.
        """
        began = time.monotonic()
        self._begin()
        loaded = self._saves.load()
        if not self._loaded:
            earlier = None if loaded is None else loaded.entry.data.get("printed")
            self._printed = [*map(str, earlier)] if isinstance(earlier, list) else []
            self._emit(self._printed, anew=True)
        self._loaded = True
        if loaded is None:
            return default
        for line in loaded.passed_over:
            _warn("%s: skipped an incomplete checkpoint: %s", self._manager.store.place, line)
        facts = loaded.entry.data
        self._done, self._saved = facts["step"], True
        self._policy.remember([facts["seconds"]], facts["step_seconds"])
        self._policy.restart = time.monotonic() - began
        self._saved_at = self._step_began = time.monotonic()
        return loaded.state

    @property
    def step(self) -> int:
        """Number of finished steps: before the loaded state, and since."""
        return self._done

    # -- working

    def steps(self, total: int) -> Iterator[int]:
        """Iterate over the numbers of the remaining steps, from the loaded one (or 0) to ``total - 1``.

        End each with :meth:`step_done`. The share of finished steps goes to ``SPOTWRIGHT_PROGRESS_FILE``. Raises
        :class:`NotLoaded` if :meth:`load` was not called: a later step with an initial state, or the first step with a saved
        state, would silently give a wrong result. Raises :class:`PlaceError` for the same steps a second time: they belong to
        another training, which would have none left.
        """
        if not self._loaded:
            raise NotLoaded("steps() continues after the loaded state: call load() first, and use what it returns")
        if self._total is not None and total <= self._total <= self._done:
            raise PlaceError(
                f"{self._manager.store.place}: steps({total}) has already ended, so another training here would run no steps: "
                'give it its own place, such as Checkpoint(name="fold1")'
            )
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
        """End the current step; save if that pays, after a notice, and after the last step. Returns whether it saved.

        ``state`` is the state after the step, or a function that returns it and is called only for a save: put slow work there.
        After SIGTERM this does not return: the process saves and exits with 143. A failed save is logged and retried when the
        next one is due, unless it is the first save. With a ``group``, a merely due save copies the state and is written in a
        thread, one at a time: ``True`` then means that it has begun, and a later call raises its error, on every rank. Saves
        after a notice or SIGTERM, the first and the last one are committed when this returns. Raises :class:`StaleWriter` and
        :class:`UnstorableState`.
        """
        self._begin()
        now = time.monotonic()
        self._policy.record_step(now - self._step_began)
        self._hear_of_thread()
        self._done += 1
        self._finished = self._total is not None and self._done >= self._total
        pays = self.writer and (self._pays(now) if self._ranks is None else self._is_agreed(self._ranks, now))
        saved = pays and self._try(state, later=True)
        if self._termination.terminated and (self._ranks is None or pays):
            if self.writer and not pays:  # SIGTERM came during this call
                self._try(state)
            self.stop()
        if self._finished and self._ranks is not None:
            self._close_ranks()
        if self._total is not None:
            self._progress.report(self._done / self._total if self._total else 1.0)
        self._step_began = time.monotonic()
        self._in_step = not self._finished
        return saved

    def save(self, state: Any) -> None:
        """Save now. ``state`` is the state itself, not a function. With a ``group`` all ranks call this at the same step.

        A save in the middle of a step counts for the finished steps: the next attempt repeats this step from this state. Raises
        :class:`SaveFailed` if it could not be written, and the errors of :meth:`step_done`. Does nothing in a process that is
        not a writer.
        """
        self._begin()
        self._saves_by_hand = True
        if self.writer:
            self._save(state, time.monotonic())
        if self._termination.terminated:
            self.stop()

    def print(self, *values: object) -> None:
        """Print a line as the built-in does, and again in each attempt that resumes from a later save.

        For output that is read only after the last attempt, as Katib reads a trial's metrics (``file-metricscollector`` of
        katib v0.19): it has each line of an undisturbed run once. Call it before the :meth:`step_done` of its step;
        :meth:`load` prints the earlier lines. With several ranks, rank 0 prints. Raises :class:`NotLoaded` if :meth:`load` was
        not called.
        """
        if not self._loaded:
            raise NotLoaded("print() follows the lines of earlier attempts, which load() prints: call load() first")
        line = " ".join(map(str, values))
        self._printed.append(line)
        self._emit([line])

    # -- leaving

    def should_stop(self) -> bool:
        """Return True when it is time to save and leave: after SIGTERM, or if the node ends before another step and a save.

        For loops whose steps are too long to finish: save, then call :meth:`stop`. With a ``group`` it is about this rank only,
        and the ranks save together at the end of a step: skip slow work, and continue to :meth:`step_done`.
        """
        self._handle_signals()
        self._saves_by_hand |= self._ranks is None
        if not self._in_step:
            self._in_step, self._step_began = True, time.monotonic()
        if self._termination.terminated:
            return True
        return self._termination.is_certain and self._policy.is_last_chance(self._termination.seconds_left())

    def stop(self) -> None:
        """Exit with 143, so that unfinished work does not count as a success."""
        if self._ranks is not None:
            self._ranks.agreement.end(EXIT)
        raise SystemExit(EXIT)

    def seconds_left(self) -> float:
        """Return the seconds until this process is killed, after SIGTERM or by a notice; ``inf`` without either."""
        self._handle_signals()
        return self._termination.seconds_left()

    def on_notice(self, callback: Callable[[Notice | None], object]) -> None:
        """Call back with each notice of the node, and with ``None`` after its withdrawal.

        The callback runs in a separate thread during a step: log, or set a flag, but save in the loop.
        """
        self._handle_signals()
        self._termination.add_callback(callback)

    def explain(self) -> str:
        """Return the reason for the interval between saves, with the numbers."""
        return self._policy.explain(time.monotonic() - self._began)

    def close(self) -> None:
        """Stop handling SIGTERM and notices. A save under way in a thread ends first, if time allows."""
        if self._ranks is not None:
            self._close_ranks()
        self._termination.end()
        if self._hook is not None:
            self._hook.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        terminated = self._termination.terminated
        if self._ranks is not None and not self._finished and (kind is not None or terminated):
            self._ranks.agreement.end(EXIT if terminated else 1)
        self.close()
        if kind is None and terminated and not self._finished:
            raise SystemExit(EXIT)

    # -- inside

    def _emit(self, lines: Sequence[str], *, anew: bool = False) -> None:
        """Print lines to the target of :meth:`print`. ``anew``: the file has lines of an earlier attempt in this container."""
        if not self.writer or (self._ranks is not None and self._ranks.rank != 0):
            return
        text = "".join(f"{line}\n" for line in lines)
        if self._print_to is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            with open(self._print_to, "w" if anew else "a", encoding="utf-8") as file:
                file.write(text)

    def _begin(self) -> None:
        """Claim the place and start handling SIGTERM and notices, at the first call that needs it."""
        if self.writer and not self._claimed:
            self._policy.hazard = self._saves.claim(self._interrupt_every)
            self._claimed = True
            self._began = self._step_began = self._saved_at = time.monotonic()
        self._handle_signals()

    def _handle_signals(self) -> None:
        if not self._handles_signals:
            self._handles_signals = True
            if self._ranks is not None and self.writer:
                self._ranks.agreement.on_missing = self._end_if_blocked
                self._termination.on_sigterm = self._ask
                self._termination.add_callback(lambda notice: None if notice is None else self._ask())
            self._termination.begin()
            if self._hook is not None and self.writer:
                self._register(self._hook)

    def _register(self, hook: PodHook) -> None:
        """Let the pod's preStop hook wait for a save after its notice, if there is something to save."""
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
        step = self._policy.step or 0.0
        rest = max(0.0, step - (time.monotonic() - self._step_began))
        if self._ranks is not None:
            rest += step  # the agreed step may be the next one
        return left > self._reserve() + rest

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

    def _of_group(self, group: Any) -> GroupSaves:
        """Return the saves of a process group; their module, which needs PyTorch, is imported only for a group."""
        from spotwright.checkpoint.group_saves import GroupSaves

        return GroupSaves(group, self._manager, self._reserve)

    def _reserve(self) -> float:
        """Return the seconds that a save before the end needs, including the rest of the one under way."""
        needed = self._policy.needed
        return needed + (self._ranks.rest(needed) if self._ranks is not None else 0.0)

    def _hear_of_thread(self) -> None:
        """Record the end of a save in a thread, and raise its error."""
        if self._ranks is None or (ended := self._ranks.take_ended()) is None:
            return
        if ended.error is None:
            self._policy.record_save(ended.seconds)
        elif isinstance(ended.error, SaveFailed | PlaceError):
            self._put_off(ended.error)
        else:
            raise ended.error

    def _close_ranks(self) -> None:
        """End the ranks' shared work; log a thread's unreported save error."""
        if self._ranks is not None:
            self._ranks.close(self._termination.seconds_left())
            if (ended := self._ranks.take_ended()) is not None and ended.error is not None:
                _warn("the save of step %d failed: %s", ended.step, ended.error)

    def _ask(self) -> None:
        """Ask all ranks for a save, because this one's end is near."""
        if self._ranks is not None:
            what = "SIGTERM came" if self._termination.terminated else "its node is going away"
            left = self._termination.seconds_left()
            self._ranks.agreement.ask(f"rank {self._ranks.rank}: {what}", left)

    def _end_if_blocked(self) -> None:
        """End this rank if its pod is stopping and unresponsive ranks block the current step.

        Otherwise it would stay in their collective operation until it is killed, and delay the next attempt.
        """
        is_stopped = self._termination.terminated or (self._hook is not None and self._hook.waits)
        if is_stopped and self._ranks is not None:
            step = self._policy.step or 0.0
            self._ranks.agreement.end_if_blocked("other ranks do not answer", EXIT, 1.0 + 2 * step)

    def _is_agreed(self, ranks: GroupSaves, now: float) -> bool:
        """True if all ranks save at the end of this step. Rank 0 requests due saves."""
        left, step = self._termination.seconds_left(), self._policy.step or 0.0
        waits = self._hook is not None and self._hook.waits
        if waits or self._termination.terminated or self._policy.is_last_chance(left - 2 * step):
            self._ask()
        elif ranks.rank == 0 and not ranks.is_writing and self._policy.is_due(now - self._saved_at, now - self._began):
            ranks.agreement.ask("a save is due")
        return ranks.agreement.step_done(self._done) or self._finished

    def _try(self, state: Any, *, later: bool = False) -> bool:
        began = time.monotonic()
        try:
            self._save(state, began, later=later)
        except (SaveFailed, PlaceError) as error:
            if not self._saved:
                raise
            self._put_off(error)
            return False
        return True

    def _put_off(self, error: CheckpointError) -> None:
        _warn("%s; retrying when the next save is due", error)
        self._saved_at, self._noticed = time.monotonic(), None

    def _save(self, state: Any, began: float, *, later: bool = False) -> None:
        """Save a state. ``began`` is the start of making it, which is part of its cost. ``later`` lets a thread write it."""
        if not self._saved and not self._loaded and not self._manager.is_empty():
            raise NotLoaded(
                f"{self._manager.store.place}: holds a checkpoint that was not loaded, and this save would replace it: "
                "call load() first"
            )
        facts = {
            "step": self._done, "finished": self._finished, "age": began - self._began, "step_seconds": self._policy.step,
            **({"printed": [*self._printed]} if self._printed else {}),
        }  # fmt: skip
        is_waited_for = self._hook is not None and self._hook.waits  # a notice during the save is for the next save
        with self._termination.saving():
            is_written = True
            if self._ranks is None:
                self._manager.save(state() if callable(state) else state, facts)
            else:
                make = state if callable(state) else lambda: state
                is_urgent = self._finished or is_waited_for or self._termination.terminated
                later = later and not is_urgent and not self._ranks.agreement.is_urgent
                is_written = self._ranks.save(make, facts, self._termination.seconds_left, later=later)
            self._saved, self._saved_at = True, time.monotonic()
            if not is_written:
                self._policy.record_stall(self._saved_at - began)
                return
            self._policy.record_save(self._saved_at - began)
            if is_waited_for and self._hook is not None:
                self._hook.release()


def _pod_hook() -> PodHook | None:
    """The preStop hook of this pod; its module is imported in pods that have one."""
    if "SPOTWRIGHT_GRACE_FOLDER" not in os.environ:
        return None
    from spotwright.notices.pod_hook import PodHook

    return PodHook.from_environment(os.environ)


def _interrupt_every() -> float | None:
    seconds = seconds_from_environment("SPOTWRIGHT_INTERRUPT_EVERY", math.nan)
    return seconds if seconds > 0 else None


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
