"""A whole rehearsal, from the pipeline or command to the verdict of every step.

Two undisturbed executions come first. The first one is the measure: its outputs, its time, and the results that the other
tasks have in every trial. In the second one the step's files are watched. What differs between the two differs without any
interruption and is left out of every comparison. Then one trial for every point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spotwright.engine.state import RunStatus
from spotwright.errors import InputError
from spotwright.model.attempts import Cause
from spotwright.rehearsal.comparing import Comparison, Difference, differences, without_noise
from spotwright.rehearsal.grounds import Ground
from spotwright.rehearsal.killer import Pace
from spotwright.rehearsal.losses import Measure, loss_of
from spotwright.rehearsal.points import Kind, Learnt, Point, draw, learn
from spotwright.rehearsal.trials import Stage, Trial
from spotwright.rehearsal.verdict import Outcome, Rehearsed
from spotwright.runs.engine import Prepared

__all__ = ["Conditions", "Rehearsal", "Say", "rehearse"]

Say = Callable[[str | Outcome], None]
"""Told what is being done and what came of it."""

_NOTICE_SHARE = 0.25  # of the usual time: a notice that outlasts the step would interrupt nothing
_CHECKS = 2  # undisturbed executions more, before an output that differs is put down to an interruption
_LIMIT_FACTOR, _LIMIT_BEYOND = 5.0, 5.0  # an attempt may take so many times the usual time, and so many seconds more


@dataclass(frozen=True, slots=True)
class Conditions:
    """How to rehearse. ``notice`` in seconds; ``None``: the pools' own, but at most a quarter of the step's usual time."""

    seed: int
    interruptions: int = 5
    tolerance: float = 0.0
    compare: Comparison | None = None
    notice: float | None = None

    def __post_init__(self) -> None:
        """Refuse values that no rehearsal can have."""
        if not 1 <= self.interruptions <= 100:
            raise InputError(f"--interruptions {self.interruptions}: expected a number from 1 to 100")
        if not self.tolerance >= 0:
            raise InputError(f"--tolerance {self.tolerance:g}: expected a number from 0")
        if self.notice is not None and self.notice <= 0:
            raise InputError(
                f"--notice {self.notice:g}s: expected a duration above 0; points without notice come anyway"
            )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What was found out about every step. ``state`` is the state folder with the runs of all trials."""

    name: str
    conditions: Conditions
    steps: tuple[Rehearsed, ...]
    state: Path

    @property
    def is_safe(self) -> bool:
        """Whether no step was broken by an interruption."""
        return all(step.verdict.is_safe for step in self.steps)


def rehearse(prepared: Prepared, ground: Ground, conditions: Conditions, task: str | None, say: Say) -> Rehearsal:
    """Rehearse one task of a pipeline on its ground, or every one. Raises :class:`InputError` for a task that is not there."""
    stage = Stage(prepared, ground.prepare, ground.collect)
    first = stage.undisturbed("undisturbed", task)
    tasks = _tasks(task, first)
    steps = tuple(_Player(stage, ground, conditions, path, first, say).play() for path in tasks)
    return Rehearsal(prepared.stored.compiled.pipeline, conditions, steps, stage.state)


def _tasks(task: str | None, first: Trial) -> list[str]:
    """The paths of the tasks to rehearse: of the one that was named, which may be by the unique end of its path, or all."""
    if first.status is not RunStatus.SUCCEEDED:
        failed = (path for path, attempts in first.executed.items() if attempts[-1].cause != Cause.SUCCEEDED)
        return [task or next(failed, "")]
    if task is None or task in first.executed:
        return list(first.executed) if task is None else [task]
    found = [path for path in first.executed if path.endswith(f"/{task}")]
    if len(found) == 1:
        return found
    which = "there is no such task" if not found else f"{len(found)} tasks have that name"
    raise InputError(f"--task {task}: {which}; those that are executed are {', '.join(first.executed)}")


def _slug(task: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task)[:60]


class _Player:
    """Plays all points of one task."""

    def __init__(self, stage: Stage, ground: Ground, conditions: Conditions, task: str, first: Trial, say: Say) -> None:
        self._stage, self._conditions, self._task, self._first, self._say = stage, conditions, task, first, say
        self._outputs = ground.outputs
        self._measure = Measure(0.0)
        self._noise: list[Difference] = []
        self._checked = False
        alike = [path for path in first.executed if _slug(path) == _slug(task)]
        self._slug = _slug(task) if alike[:1] in ([], [task]) else f"{_slug(task)}-{alike.index(task) + 1}"

    def play(self) -> Rehearsed:
        """Everything about the task."""
        if self._first.status is not RunStatus.SUCCEEDED:
            return self._fails(self._first, "")
        measure = self._first.of(self._task)
        second = self._stage.look(f"{self._slug}-undisturbed", self._task, self._first, Pace(measure.seconds))
        if second.status is not RunStatus.SUCCEEDED:
            return self._fails(second, "it succeeded once, and then ")
        self._say(
            f"{self._task}: undisturbed in {measure.seconds:.2g}s and {second.attempts[-1].seconds:.2g}s; interrupted:"
        )
        self._noise = self._differences(second)
        ops = second.ops[0] if second.ops else ()
        learnt = learn(ops, traced=not second.untraced) if ops or not second.untraced else Learnt(looked=False)
        usual = min(measure.seconds, second.attempts[-1].seconds)
        self._measure = Measure.of(usual, measure, second.attempts[-1], ops)
        points = draw(self._conditions.seed, self._task, learnt, self._conditions.interruptions)
        outcomes = [self._say_it(outcome) for outcome in self._outcomes(points)]
        return Rehearsed(
            task=self._task,
            usual=(measure.seconds, second.attempts[-1].seconds),
            learnt=learnt,
            noise=tuple(self._noise),
            outcomes=tuple(self._measured(outcome) for outcome in outcomes),
            notices=tuple(self._notices()),
            notice=self._pace.notice,
        )

    def _say_it(self, outcome: Outcome) -> Outcome:
        self._say(outcome)
        return outcome

    @property
    def _pace(self) -> Pace:
        usual = self._measure.usual
        return Pace(usual, self._notice(usual), _LIMIT_FACTOR * usual + _LIMIT_BEYOND)

    def _fails(self, trial: Trial, before: str) -> Rehearsed:
        """Nothing can be rehearsed of a step that fails by itself, or whose upstream tasks do."""
        for task, attempts in trial.executed.items():
            last = attempts[-1]
            if last.cause != Cause.SUCCEEDED:
                said = f": {last.last_line}" if last.last_line else ""
                return Rehearsed(
                    self._task, (), fails=f"{before}task {task} {last.cause}, {last.why}{said}", failed=trial
                )
        return Rehearsed(self._task, (), fails=f"{before}{trial.why}", failed=trial)

    def _outcomes(self, points: Sequence[Point]) -> Iterator[Outcome]:
        given_up = False
        for number, point in enumerate(points, start=1):
            if given_up:
                yield Outcome(point)
                continue
            name = f"{self._slug}-{number:02d}-{re.sub('[^a-z0-9]+', '-', point.name)}"
            trial = self._stage.strike(name, self._task, self._first, point.blows, self._pace)
            outcome = self._judge(point, trial)
            if outcome.differences and not self._checked:
                self._check()
                outcome = self._judge(point, trial)
            if not outcome.problem:
                trial.forget_files()
            given_up = outcome.never  # every further point would take as long, to say the same
            if (
                point.kind is Kind.START and not outcome.problem
            ):  # a whole execution more: the machine may be warm by now
                usual = min(self._measure.usual, trial.attempts[-1].seconds)
                self._measure = replace(self._measure, usual=usual)
            yield self._measured(outcome)

    def _measured(self, outcome: Outcome) -> Outcome:
        if outcome.trial is None or outcome.problem:
            return outcome
        return replace(outcome, loss=loss_of(outcome.trial, self._measure))

    def _check(self) -> None:
        """Before a step is blamed for the first time: whether it comes to something else by itself, if not each time."""
        self._checked = True
        for number in range(3, 3 + _CHECKS):
            again = self._stage.look(
                f"{self._slug}-undisturbed-{number}", self._task, self._first, Pace(self._measure.usual)
            )
            if again.status is RunStatus.SUCCEEDED:
                self._noise += without_noise(self._differences(again), self._noise)
                again.forget_files()

    def _judge(self, point: Point, trial: Trial) -> Outcome:
        if trial.overdue:
            took, usual = trial.attempts[-1].seconds, self._measure.usual
            why = (
                f"attempt {trial.attempts[-1].number} was given up after {took:.3g}s; undisturbed it takes {usual:.3g}s"
            )
            return Outcome(point, trial, why, never=True)
        if trial.status is not RunStatus.SUCCEEDED:
            last = trial.attempts[-1]
            said = f": {last.last_line}" if last.last_line else ""
            return Outcome(point, trial, f"attempt {last.number} {last.cause}, {last.why}{said}")
        found = without_noise(self._differences(trial), self._noise)
        if found and trial.landed:  # without an interruption it differs by itself, if rarely
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            where = self._places(trial, found[0].output)
            return Outcome(point, trial, f"{found[0]}{more}", differences=tuple(found), outputs=where)
        return Outcome(point, trial)

    def _differences(self, trial: Trial) -> list[Difference]:
        old, new = self._outputs(self._first, self._task), self._outputs(trial, self._task)
        return differences(old, new, self._conditions.tolerance, self._conditions.compare)

    def _places(self, trial: Trial, output: str) -> tuple[Path, ...]:
        both = (self._outputs(each, self._task).get(output) for each in (self._first, trial))
        return tuple(each for each in both if isinstance(each, Path))

    def _notices(self) -> Iterator[tuple[str, float]]:
        pools = self._stage.plan.config.pools
        for name in self._first.pools[self._task]:
            if pools[name].is_spot:
                yield name, pools[name].notice

    def _notice(self, usual: float) -> float:
        if self._conditions.notice is not None:
            return self._conditions.notice
        own = [notice for _, notice in self._notices() if notice > 0]
        return min([max(0.05, usual * _NOTICE_SHARE), *own])
