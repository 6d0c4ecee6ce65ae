"""Judge a step by its lives: whether it ends although each attempt is too short for all of its work. Pure.

Every attempt is interrupted once it has done a share of the undisturbed work. A step that resumes ends after a few lives. A
step that starts over, or goes back to the same old save each time, never ends, whatever it saves, so the judgement does not
depend on what a save is. The attempt after the last life is left alone: its remaining work shows how far the lives advanced the
step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from spotwright.model.attempts import Cause
from spotwright.rehearsal.attempt_trace import AttemptTrace
from spotwright.rehearsal.injection_points import SAVES, AtWork, InjectionKind, InjectionPoint
from spotwright.rehearsal.loaded_saves import with_databases
from spotwright.rehearsal.own_work import MeasuredBy, OwnWork
from spotwright.rehearsal.trials import TrialAttempt, TrialRun

__all__ = ["INTERRUPTED", "Life", "Lives", "lives_of", "resumes", "work_of"]


INTERRUPTED = (Cause.INTERRUPTED.value, Cause.LOST.value)
"""Causes of attempts that an interruption ended."""

_LEAST, _LEAST_BY_TIME = 0.1, 0.2
"""As a share of the work: lives that kept less count as keeping none. It exceeds the measurement error."""
_BEYOND_ONE_LIFE = 1.5
"""In lives: a step that kept more than this kept work of a later life than the first."""


@dataclass(frozen=True, slots=True)
class Life:
    """One attempt: its work, as a share of the whole, and where it began, if known."""

    attempt: int
    work: float
    began: float | None
    is_interrupted: bool

    @property
    def ended(self) -> float | None:
        """Where in the work it ended."""
        return None if self.began is None else min(1.0, self.began + self.work)


@dataclass(frozen=True, slots=True)
class Lives:
    """The attempts of one trial whose lives are limited to a ``share`` of the work. ``count``: the planned interruptions.

    ``has_saved``: an attempt changed a file that outlives it; ``has_loaded``: one read what another had saved. ``is_exact``: the
    work was not measured by its time. ``last_saved`` is the share of the undisturbed step's saves that the last
    attempt made; ``None``: unknown.
    """

    share: float
    notice: bool
    count: int
    attempts: tuple[Life, ...]
    has_saved: bool = True
    has_loaded: bool = True
    is_exact: bool = True
    last_saved: float | None = None

    @property
    def interruptions(self) -> int:
        """How many attempts were interrupted."""
        return sum(life.is_interrupted for life in self.attempts)

    @property
    def is_ended(self) -> bool:
        """Whether the step ended within its lives and had something to resume from.

        It had nothing if no file outlives an attempt. A step that loaded no file may have read its progress from file names;
        then its work must have been counted, or its last attempt must have made fewer than all saves: seconds alone do not show
        it.
        """
        all_saved = self.last_saved is None or self.last_saved > 1.0 - _LEAST
        by_names = self.is_exact or not all_saved
        return len(self.attempts) <= self.count and self.has_saved and (self.has_loaded or by_names)

    @property
    def kept(self) -> float:
        """The share of the work that the lives did and the final attempt did not repeat."""
        if self.is_ended or not self.has_loaded:
            return float(self.is_ended)
        done = self.attempts[-1].work if self.last_saved is None else self.last_saved
        return max(0.0, 1.0 - done)

    @property
    def redone(self) -> float:
        """The work done more than once, as a share of the whole."""
        return max(0.0, sum(life.work for life in self.attempts) - 1.0)

    @property
    def lost_per_life(self) -> float:
        """The share of an interrupted life's work that was lost, on average."""
        done = sum(life.work for life in self.attempts if life.is_interrupted)
        return min(1.0, self.redone / done) if done else 0.0

    @property
    def kept_something(self) -> bool:
        """Whether the last attempt began beyond the beginning of the work."""
        return self.kept >= (_LEAST if self.is_exact or self.last_saved is not None else _LEAST_BY_TIME)

    @property
    def gets_further(self) -> bool:
        """Whether a later life got further than the first one."""
        return self.is_ended or self.kept > min(_BEYOND_ONE_LIFE * self.share, (1 + self.share) / 2)

    @property
    def is_stuck(self) -> bool:
        """Whether the first life was kept in part, and later ones were lost.

        After a notice only an exact measure shows it: what an attempt does before it checks the notice is not work.
        """
        return self.kept_something and not self.gets_further and (self.is_exact or not self.notice)


def lives_of(point: InjectionPoint, trial: TrialRun, own: OwnWork | None, saves: int = 0) -> Lives | None:
    """Evaluate a trial of lives; ``None`` for other points, or if its attempts were not measured or not interrupted.

    ``saves`` is the undisturbed step's number of operations on saves; 0: unknown, or it varies.
    """
    trigger, traces = point.injections[0].trigger if point.injections else None, trial.traces.get(trial.task or "", ())
    if point.kind is not InjectionKind.LIVES or not isinstance(trigger, AtWork) or own is None:
        return None
    lives = list(_measured(trial.attempts, traces, own))
    if len(lives) != len(trial.attempts) or not any(life.is_interrupted for life in lives):
        return None
    may_be_hidden = bool(trial.tracing_failure) or any(trace.connections or trace.loads is None for trace in traces)
    has_saved, has_loaded = may_be_hidden or any(trial.save_counts), may_be_hidden or _has_loaded(traces)
    notice = point.injections[0].notice
    counts = saves and not notice and not trial.tracing_failure and own.measured_by is not MeasuredBy.PROGRESS
    last_saved = trial.save_counts[-1] / saves if counts else None  # after a notice there are more
    is_exact = own.measured_by is not MeasuredBy.TIME
    made = Lives(
        trigger.share, notice, len(point.injections), tuple(lives), has_saved, has_loaded, is_exact, last_saved
    )
    return replace(made, attempts=tuple(_placed(made, traces, own)))


def _has_loaded(traces: Sequence[AttemptTrace]) -> bool:
    """Whether an attempt read a file that an earlier one wrote, or mapped one into memory, which is not seen as reading."""
    written: set[str] = set()
    for trace in traces:
        if written & {*with_databases(trace.loads or ()), *(path for _, path in trace.mapped)}:
            return True
        written |= {each.path for each in trace.operations if each.area == SAVES}
    return False


def work_of(trial: TrialRun, own: OwnWork | None) -> list[float]:
    """The share of the work that each attempt of a trial did; empty if one was not measured."""
    traces = trial.traces.get(trial.task or "", ())
    lives = list(_measured(trial.attempts, traces, own)) if own is not None else []
    return [life.work for life in lives] if len(lives) == len(trial.attempts) else []


def _measured(attempts: Sequence[TrialAttempt], traces: Sequence[AttemptTrace], own: OwnWork) -> Iterator[Life]:
    for number, attempt in enumerate(attempts):
        trace = traces[number] if number < len(traces) else None
        work = own.done(trace, attempt.cpu_seconds, (attempt.first_progress, attempt.progress))
        if work is not None:
            yield Life(attempt.number, work, own.place(attempt.first_progress), attempt.cause in INTERRUPTED)


def _placed(lives: Lives, traces: Sequence[AttemptTrace], own: OwnWork) -> Iterable[Life]:
    """Add each life's begin: as reported, else where its loaded files were saved, else by its end."""
    if all(life.began is not None for life in lives.attempts):
        return lives.attempts
    last = lives.attempts[-1]
    at_end = max(0.0, 1.0 - last.work)
    if not lives.is_ended and not lives.kept_something:
        return [replace(life, began=0.0) for life in lives.attempts]
    by_loads = list(_begun_by_loads(lives, traces, own))
    if len(by_loads) == len(lives.attempts) and abs(by_loads[-1] - at_end) <= _LEAST:
        return [replace(life, began=began) for life, began in zip(lives.attempts, by_loads, strict=True)]
    first, *between = lives.attempts[:-1]
    unknown = [replace(life, began=None) for life in between]
    return [replace(first, began=0.0), *unknown, replace(last, began=at_end)]


def _begun_by_loads(lives: Lives, traces: Sequence[AttemptTrace], own: OwnWork) -> Iterator[float]:
    """Where each attempt began: where an earlier attempt last wrote the files that it loaded."""
    written: dict[str, float] = {}  # by path: where in the work it was last written
    for life, trace in zip(lives.attempts, traces, strict=False):
        if trace.loads is None:
            return
        began = max((written[path] for path in with_databases(trace.loads) if path in written), default=0.0)
        yield began
        age = max((each.at for each in trace.operations), default=0.0)
        for each in trace.operations:
            if each.area == SAVES:
                share = max(0.0, each.at - own.start) / max(age - own.start, 1e-9)
                written[each.path] = began + min(1.0, share) * life.work


def resumes(lives: Collection[Lives]) -> bool | None:
    """Whether a step resumes, by its lives with a notice or by the others; ``None`` if none was measured.

    A step that ends only in longer lives saves too rarely for shorter ones, unless it kept only part of its first short life:
    then it returns to the same save each time.
    """
    if any(each.is_stuck for each in lives):
        return False
    return any(each.kept >= 1.0 - _LEAST for each in lives) if lives else None
