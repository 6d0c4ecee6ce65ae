"""One trial: a run of the pipeline in which a single task is executed, and interrupted as its point says.

Every trial is a run of its own, with journal, attempts and logs, so that ``spotwright show`` and ``logs`` tell what happened
in it. Every other task has its result from the undisturbed run: those results are facts that hold from the trial's start.
Simulated nodes boot in no time, and nobody takes them but the :class:`~spotwright.rehearsal.killer.Killer`.
"""

from __future__ import annotations

import selectors
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spotwright.engine.events import Event
from spotwright.engine.loop import Clock, Observer
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState, RunStatus, TaskState
from spotwright.errors import InputError
from spotwright.local.endings import last_line
from spotwright.local.orders import LOG, OUT, WORK, StartOrder
from spotwright.model.pools import Simulate
from spotwright.records.folders import RunFolder, StateFolder
from spotwright.rehearsal.kept import KEPT
from spotwright.rehearsal.killer import Killer, Landed, Pace, needs_look
from spotwright.rehearsal.points import Blow
from spotwright.rehearsal.tracer import Op
from spotwright.runs.early import EarlyServer
from spotwright.runs.engine import Prepared, start

__all__ = ["Attempt", "Results", "Stage", "Trial"]

_POLICY = {"interruptions": {"max": 1000, "backoff": "1ms"}, "errors": {"backoff": "1ms"}}
"""What a rehearsal says about every task: interruptions are what it is there for, and nobody waits between attempts."""

Results = Mapping[str, Mapping[str, Any]]
"""Parameters and artifacts of tasks, by path."""

_GOOD = frozenset({"unfolded", "skipped", "cached", "completed", "decided"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a trial. ``seconds`` is its own time; progress as it reported it first and last."""

    number: int
    seconds: float
    cause: str
    why: str
    first: float | None
    progress: float | None
    last_line: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a trial. ``results`` are those of every task; ``attempts`` those of the tasks that were executed."""

    run: RunFolder
    status: RunStatus
    why: str
    executed: Mapping[str, tuple[Attempt, ...]]
    task: str | None
    results: Results
    pools: Mapping[str, tuple[str, ...]]  # where each task may run
    known: tuple[Event, ...] = ()
    landed: tuple[Landed, ...] = ()
    ops: tuple[tuple[Op, ...], ...] = ()
    untraced: str = ""
    overdue: bool = False

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts of its task."""
        return self.executed.get(self.task or "", ())

    def of(self, task: str) -> Attempt:
        """The last attempt of a task."""
        return self.executed[task][-1]

    @property
    def seconds(self) -> float:
        """The time of all its attempts."""
        return sum(attempt.seconds for attempt in self.attempts)

    def forget_files(self) -> None:
        """Remove what it left but logs and records: there are many trials, and nobody looks at one that went well."""
        for name in ("checkpoints", KEPT):
            shutil.rmtree(self.run.path / name, ignore_errors=True)
        for attempt in self.attempts:
            for name in (WORK, OUT):
                shutil.rmtree(attempt.folder / name, ignore_errors=True)


class Stage:
    """A pipeline with its arguments and pools, on which trials are played.

    ``prepare`` readies an attempt's folders, ``collect`` is told of every run that has ended.
    """

    def __init__(
        self,
        prepared: Prepared,
        prepare: Callable[[StartOrder], Mapping[Path, str]],
        collect: Callable[[Path, str | None], None],
    ) -> None:
        stored = prepared.stored
        pools = {
            name: replace(pool, simulate=Simulate(boot=0.0, drain=pool.simulate.drain), lifetime=None, min_nodes=0)
            for name, pool in stored.config.pools.items()
        }
        still = replace(stored, config=replace(stored.config, pools=pools), taken_every=None, traces={}, policy=_POLICY)
        options = replace(prepared.options, cache="off")  # it is there to be executed
        self._prepared = replace(prepared, stored=still, options=options, notes=())
        self._prepare, self._collect = prepare, collect
        self._state = StateFolder(prepared.options.state)

    @property
    def plan(self) -> Plan:
        """The plan of every trial."""
        return self._prepared.stored.plan

    @property
    def state(self) -> Path:
        """The state folder of the trials."""
        return self._state.path

    def undisturbed(self, name: str, task: str | None) -> Trial:
        """Execute what a task needs and the task itself; without a task everything."""
        needless = _needless(self.plan, task)
        return self._play(name, task, lambda state: _skipped(state, needless), (), None, trace=False)

    def look(self, name: str, task: str, undisturbed: Trial, pace: Pace) -> Trial:
        """Execute a task alone, and look at what it does to its files."""
        return self._play(name, task, lambda state: _known(state, task, undisturbed), (), pace, trace=True)

    def strike(self, name: str, task: str, undisturbed: Trial, blows: Sequence[Blow], pace: Pace) -> Trial:
        """Execute a task alone, with these interruptions."""
        return self._play(
            name, task, lambda state: _known(state, task, undisturbed), blows, pace, trace=any(map(needs_look, blows))
        )

    def _play(
        self,
        name: str,
        task: str | None,
        given: Callable[[RunState], Sequence[Event]],
        blows: Sequence[Blow],
        pace: Pace | None,
        *,
        trace: bool,
    ) -> Trial:
        killers: list[Killer] = []
        known: list[Event] = []

        def taker(selector: selectors.BaseSelector, clock: Clock) -> Killer:
            killers.append(Killer(selector, clock, blows=blows, pace=pace, prepare=self._prepare, trace=trace))
            return killers[0]

        prepared = replace(self._prepared, options=replace(self._prepared.options, name=name))
        try:
            with EarlyServer(self._state.run(name).path) as server:
                folder, state = start(prepared, (_structure(known),), server, given=given, taker=taker)
        finally:
            for killer in killers:
                killer.close()
        if state.status is RunStatus.STOPPED:
            raise KeyboardInterrupt
        executed = [path for path, each in state.tasks.items() if each.attempts]
        named = [path for path in executed if task is not None and (path == task or path.endswith(f"/{task}"))]
        self._collect(folder.path, named[0] if len(named) == 1 else None)
        return _trial(folder, state, task, killers[0], known)


def _structure(known: list[Event]) -> Observer:
    """Remember the decisions about the graph: what became known, was skipped, or succeeded."""

    def observe(_state: RunState, events: Sequence[Event]) -> None:
        known.extend(e for e in events if e.kind in _GOOD and e.data.get("then", "succeed") == "succeed")

    return observe


def _trial(folder: RunFolder, state: RunState, task: str | None, killer: Killer, known: Sequence[Event]) -> Trial:
    failed = state.tasks[state.failed[0]] if state.failed else None
    return Trial(
        run=folder,
        status=state.status,
        why=f"task {failed.path} fails: {failed.why}" if failed is not None else state.why,
        executed={path: tuple(_attempts(folder, each)) for path, each in state.tasks.items() if each.attempts},
        task=task,
        results={path: _result(each) for path, each in state.tasks.items()},
        pools={path: _pools(each) for path, each in state.tasks.items()},
        known=tuple(known),
        landed=tuple(killer.landed),
        ops=tuple(map(tuple, killer.ops)),
        untraced=killer.untraced,
        overdue=killer.overdue,
    )


def _pools(task: TaskState) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for rung in task.plan.ladder.rungs for name in rung.pools))


def _attempts(folder: RunFolder, task: TaskState) -> Iterator[Attempt]:
    for attempt in task.attempts:
        ended = attempt.ended or {}
        yield Attempt(
            number=attempt.number,
            seconds=float(ended.get("seconds", 0.0)),
            cause=attempt.cause.value if attempt.cause is not None else "",
            why=attempt.cause_why,
            first=attempt.first_progress,
            progress=attempt.progress,
            last_line=str(ended.get("last_line", "")) or last_line(folder.attempt(task.path, attempt.number) / LOG),
            folder=folder.attempt(task.path, attempt.number),
        )


def _result(task: TaskState) -> dict[str, Any]:
    return {"parameters": dict(task.parameters), "artifacts": dict(task.artifacts)}


def _known(state: RunState, task: str, undisturbed: Trial) -> list[Event]:
    """What the undisturbed run came to beside the task, as facts in the order in which it did.

    Pipelines that hold the task are open, whatever stands beside them or it has its result, and what is inside of that does
    not matter.
    """
    events = []
    for event in undisturbed.known:
        path, at = event.task, state.last_at
        above, _, _ = path.rpartition("/")
        if path == task or (above and not task.startswith(f"{above}/")):
            continue
        holds_task = not path or task.startswith(f"{path}/")
        if event.kind == "unfolded":
            if holds_task:
                events.append(Event("unfolded", at, path, data=event.data))
        elif event.kind == "skipped":
            events.append(Event("skipped", at, path, data=event.data))
        elif not holds_task:
            events.append(_cached(state, path, undisturbed.results[path]))
    return events


def _needless(plan: Plan, task: str | None) -> list[str]:
    """What a task does not need: nothing is known of one inside of a pipeline or loop that is named by its end alone.

    Raises :class:`InputError` for one that is not there.
    """
    if task is None:
        return []
    planned = {each.path: each for each in plan.unfold("")}
    first = task.split("/", 1)[0]
    if first not in planned and any(each.spec.dag for each in planned.values()):
        return []
    if first not in planned:
        raise InputError(f"--task {task}: the pipeline has no such task; its tasks are {', '.join(planned)}")
    needed, left = set(), [first]
    while left:
        path = left.pop()
        if path not in needed:
            needed.add(path)
            left += planned[path].spec.after
    return [path for path in planned if path not in needed]


def _skipped(state: RunState, needless: Sequence[str]) -> list[Event]:
    """What is not needed, as if it were done: nobody looks at its results."""
    if not needless:
        return []
    return [Event("unfolded", state.last_at), *(_cached(state, path, {}) for path in needless)]


def _cached(state: RunState, path: str, result: Mapping[str, Any]) -> Event:
    data = {
        "parameters": result.get("parameters", {}),
        "artifacts": result.get("artifacts", {}),
        "run": state.meta["run"],
        "task": path,
    }
    return Event("cached", state.last_at, path, data=data)
