"""The shared part of the adapters for training frameworks: when to save, when to leave, and messages to other ranks.

A framework runs the loop, and calls its adapter after each optimizer step. The adapter asks here whether to save at this step,
and saves in the framework's own way between :meth:`AttendedTraining.begin_save` and :meth:`~AttendedTraining.end_save`; the
process exits with 143 after SIGTERM. Several processes save one agreed step.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from spotwright.checkpoint.attempt_environment import ProgressFile
from spotwright.checkpoint.errors import SaveFailed
from spotwright.checkpoint.save_coordinator import SaveCoordinator
from spotwright.checkpoint.save_policy import Hazard, SavePolicy
from spotwright.checkpoint.termination import EXIT, Termination, seconds_from_environment

if TYPE_CHECKING:
    from spotwright.notices import Notice
    from spotwright.notices.pod_hook import PodHook

__all__ = ["AttendedTraining"]


class AttendedTraining:
    """One training of a framework, from its first step in this attempt to its last. Its methods are for the main thread.

    ``step`` is the number of finished optimizer steps, ``total`` their total (0: unknown). ``saves_when_due`` is False if the
    framework saves by its own schedule. ``every`` is as in :class:`~spotwright.checkpoint.Checkpoint`. ``is_replicated``: each
    rank has the whole model, so rank 0, which writes, saves alone if others are dead.
    """

    def __init__(
        self,
        step: int,
        total: int,
        *,
        saves_when_due: bool,
        every: float | None = None,
        is_replicated: bool = False,
    ) -> None:
        if every is not None and not every >= 0:
            raise ValueError(f"every={every}: the seconds between two saves must be 0 or more")
        self._step, self._total, self._saves_when_due = step, total, saves_when_due
        interrupt_every = seconds_from_environment("SPOTWRIGHT_INTERRUPT_EVERY", 0.0) or None
        notice = seconds_from_environment("SPOTWRIGHT_NOTICE", 0.0)
        within = seconds_from_environment("SPOTWRIGHT_SAVE_WITHIN", math.inf)
        self._policy = SavePolicy(Hazard(interrupt_every), notice=notice, every=every, within=within)
        self._progress = ProgressFile()
        self._hook = _pod_hook()
        self._agreement = SaveCoordinator.of_group()
        self._agreement.needed = lambda: self._policy.needed
        self._agreement.on_missing = self._end_if_blocked
        self._agreement.replicas = [[0]] if is_replicated else ()
        self._reports = os.environ.get("LOCAL_RANK", "0") == "0"  # one process per node
        self._began = self._step_began = self._saved_at = time.monotonic()
        self._save_began = 0.0
        self._is_waited_for = False  # by the hook: a notice during a save is for the next save
        self._saving: AbstractContextManager[None] | None = None
        self._last_chance: Notice | None = None
        self._finished = False
        self._termination = Termination(self._may_go_on, lambda: self._policy.needed)
        self._termination.begin()
        self._termination.add_callback(self._on_notice)
        if self._hook is not None and (problem := self._hook.register()):
            _warn("%s", problem)
        self._report()

    def step_done(self, step: int) -> bool:
        """Report ``step`` finished optimizer steps. Returns True if this step must be saved, the same in all processes."""
        now = time.monotonic()
        self._policy.record_step(now - self._step_began)
        self._step, self._step_began = step, now
        self._report()
        if why := self._reason(now):
            self._agreement.ask(why, self._termination.seconds_left())
        is_agreed = self._agreement.step_done(step)
        return is_agreed or (self._saves_when_due and step == self._total)  # all know the last step

    def begin_save(self) -> None:
        """Begin a save, which delays SIGTERM. Does nothing if a save is under way."""
        if self._saving is None:
            self._save_began = time.monotonic()
            self._is_waited_for = self._hook is not None and self._hook.waits
            self._saving = self._termination.saving()
            self._saving.__enter__()

    @property
    def is_alone(self) -> bool:
        """True if this rank saves without unresponsive ranks: a collective operation would wait for them."""
        return len(self._agreement.savers) < self._agreement.size

    def end_save(self, *, committed: bool = True) -> None:
        """Report the end of the current step's save, whole or failed. Ends the process with 143 after SIGTERM."""
        saving, self._saving = self._saving, None
        self._saved_at = self._step_began = time.monotonic()
        if committed or self._policy.cost is None:
            self._policy.record_save(self._saved_at - self._save_began)
        self._agreement.saved()
        if self._hook is not None and self._is_waited_for:
            self._hook.release()
        if saving is not None:
            saving.__exit__(None, None, None)
        if self._termination.terminated:
            raise SystemExit(EXIT)

    def fail_save(self, problem: str, *, saved_before: bool) -> None:
        """Report that the current step's save failed: the training continues. Exits with 143 after SIGTERM.

        ``problem`` is a sentence for people; empty in a rank that is only notified. Raises :class:`SaveFailed` if no state was
        saved before: a read-only place should be noticed in the first minute.
        """
        if self._termination.terminated:
            start = "the checkpoint before it" if saved_before else "the beginning"
            end = f"SIGTERM received: this attempt ends, and the next one resumes from {start}"
        elif saved_before:
            end = "the training continues, and the previous checkpoint stays valid"
        else:
            self._agreement.saved()
            raise SaveFailed(f"{problem or 'another rank cannot save'}; no earlier save exists")
        if problem:
            _warn("%s; %s", problem, end)
        self.end_save(committed=False)

    def finish(self) -> None:
        """Report that the training is complete, at whatever step its rules ended it."""
        self._finished = True
        if self._reports:
            self._progress.report(1.0)

    def abandon(self) -> None:
        """Announce that this rank ends early, so that other ranks do not wait for it in a collective operation."""
        self._agreement.end(EXIT if self._termination.terminated else 1)

    def close(self) -> None:
        """Stop handling SIGTERM and notices."""
        self._termination.end()
        self._agreement.close()
        if self._hook is not None:
            self._hook.release()

    @property
    def is_unfinished(self) -> bool:
        """True if SIGTERM has ended the training before it was complete."""
        return self._termination.terminated and not self._finished

    def _reason(self, now: float) -> str:
        """The reason to save now; empty if there is none."""
        termination, notice = self._termination, self._termination.notice
        if termination.terminated:
            return "SIGTERM received"
        if self._hook is not None and self._hook.waits:
            return "the pod is about to be stopped"
        is_new = notice is not None and notice is not self._last_chance
        if is_new and self._policy.is_last_chance(termination.seconds_left()):
            self._last_chance = notice
            return "the node will be gone before another step and a save"
        if (
            self._saves_when_due
            and self._agreement.rank == 0
            and self._policy.is_due(now - self._saved_at, now - self._began)
        ):
            return "a save is due"
        return ""

    def _on_notice(self, notice: Notice | None) -> None:
        """Handle a notice, in the thread of the notices."""
        if notice is not None:
            why = f"a notice: {notice.reason}" if notice.reason else "a notice"
            self._agreement.ask(why, self._termination.seconds_left())

    def _end_if_blocked(self) -> None:
        """End this rank if its pod is stopping and unresponsive ranks block the current step."""
        if self._termination.terminated or (self._hook is not None and self._hook.waits):
            self._agreement.end_if_blocked("other ranks do not answer", EXIT, 1.0 + 2 * (self._policy.step or 0.0))

    def _may_go_on(self, left: float) -> bool:
        """True if the current step and a save fit into ``left`` seconds."""
        rest = max(0.0, (self._policy.step or 0.0) - (time.monotonic() - self._step_began))
        return left > self._policy.needed + rest

    def _report(self) -> None:
        if self._total > 0 and self._reports:
            self._progress.report(self._step / self._total)


def _pod_hook() -> PodHook | None:
    """The preStop hook of this pod; its module is imported only in pods with one."""
    if "SPOTWRIGHT_GRACE_FOLDER" not in os.environ:
        return None
    from spotwright.notices.pod_hook import PodHook

    return PodHook.from_environment(os.environ)


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
