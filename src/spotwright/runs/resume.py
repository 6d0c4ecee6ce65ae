"""Taking a run up again: after a crash, a stop or a failure, also with code that was mended meanwhile.

The lease is taken first, which fences the engine of before. Then every attempt that may still live is settled: its exit
record counts if there is one, otherwise it is ended and lost. Only then does anything new start. A run that had failed begins
its unfinished tasks with fresh budgets; where the pipeline or the configuration changed, the next version of the plan counts,
and tasks whose code changed run again together with what follows them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from spotwright import config as configuration
from spotwright.config import Config
from spotwright.engine.decide import decide
from spotwright.engine.events import Event
from spotwright.engine.fold import fold, replay
from spotwright.engine.loop import Clock, Observer
from spotwright.engine.plan import Plan, Planned, Scope
from spotwright.engine.snapshot import StillSnapshot
from spotwright.engine.state import RunState, RunStatus, TaskState, TaskStatus
from spotwright.errors import InputError
from spotwright.local.attempts import Places
from spotwright.local.clock import steady_clock
from spotwright.local.endings import Seen, end_data, hide_secrets
from spotwright.local.orders import OUT, ExitRecord
from spotwright.local.recovery import settle_all, sweep
from spotwright.pipelines.compiled import Compiled, digests
from spotwright.pipelines.identity import code_fingerprint
from spotwright.pipelines.secrets import Secrets
from spotwright.pipelines.source import load
from spotwright.pipelines.spec import DagInput, TaskSpec
from spotwright.records.folders import RunFolder, StateFolder
from spotwright.records.journal import Journal
from spotwright.runs.engine import bind_again, containers_of, execute, is_alive, owner, places_of
from spotwright.runs.pins import check_pins, keep_pins
from spotwright.runs.plans import StoredPlan, load_plans, save_plan, traces_of

__all__ = ["Resumption", "Say", "cancel_dead", "resume"]

Say = Callable[[str], None]
"""Tells the user something before it happens."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a resumed run ended; ``nothing_to_do`` where it had succeeded already."""

    state: RunState
    nothing_to_do: bool = False


def resume(folder: RunFolder, say: Say, observers: Sequence[Observer] = (), *, mended: bool = True) -> Resumption:
    """Take a run up again and drive it to its end.

    ``mended``: look at the pipeline and configuration files again. Raises :class:`RunBusy` while another engine drives the run.
    """
    plans = load_plans(folder)
    journal = Journal.open(folder.journal)
    try:
        epoch = journal.take(owner(), is_alive)
        clock = steady_clock()
        state = replay([stored.plan for stored in plans], (event for _, event in journal.events()))
        current = plans[state.version - 1]  # a later one was written by an engine that went before it counted
        newer = _mended(current, state, say) if mended else None
        if newer is not None:
            _check_pins(folder, newer.compiled, say)
        if state.status is RunStatus.SUCCEEDED and newer is None:
            journal.give_up()
            return Resumption(state, nothing_to_do=True)
        had_failed = frozenset(state.failed)
        arguments, secrets = _bound(state, (newer or current).plan)
        containers_of(state, newer or current)  # asked before anything is changed
        recovery = _settled_attempts(folder, state, epoch, secrets)
        recovery.append(Event("engine", clock(), data={"epoch": epoch, "pid": os.getpid()}))
        _settle_into(state, journal, recovery, clock)
        _hide_secrets(state, places_of(folder, epoch, secrets))
        for path in [path for path in state.failed if path not in had_failed]:
            say(f"task {path} has failed since the engine went ({state.tasks[path].why}): it begins again")
        if state.failed or state.cancelling or state.expired or newer is not None:
            # before the world looks at the state
            _commit(state, journal, _reset(folder, state, newer, arguments, clock, say))
        execute(folder, journal, state, (), newer or current, secrets, observers)
    finally:
        journal.close()
    return Resumption(state)


def _settled_attempts(folder: RunFolder, state: RunState, epoch: int, secrets: Secrets | None) -> list[Event]:
    """End every attempt that had a node when the last engine went, and say how and when each ended.

    An attempt that came to its own end did so at the moment of its record. For every other, and for the nodes, it is the
    last moment that the journal knows: nobody pays for the time in which no engine was there. Nothing that the run had
    started lives afterwards. Where the run's secrets are not known (``None``) the attempts count as cancelled, and nothing
    of their outputs stays.
    """
    places = places_of(folder, epoch, secrets or Secrets())
    bound = [task for task in map(state.tasks.__getitem__, state.under_way) if task.last.bound_at is not None]
    directories = [places.attempt(task.path, task.last.number) for task in bound]
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    events = []
    for task, directory, record in zip(
        bound, directories, settle_all(directories, run=folder.name, epoch=epoch), strict=True
    ):
        attempt = task.last
        seen = Seen(noticed=attempt.noticed_at is not None, spot=_is_spot(state, attempt.pool), engine_gone=True)
        if secrets is None:
            shutil.rmtree(directory / OUT, ignore_errors=True)
            data: dict[str, Any] = {"signals": {"cancelled": True}}
        else:
            data = end_data(task.plan.spec, directory, record, seen, places)
        data["settled"] = True
        events.append(Event("ended", _ended_at(state, record), task.path, attempt.number, data))
    sweep(folder.path)
    events.sort(key=lambda event: event.at)
    return [*events, *_lost_nodes(state, events[-1].at if events else state.last_at)]


def _ended_at(state: RunState, record: ExitRecord | None) -> float:
    if record is None or any(order.what == "kill" for order in record.ordered):
        return state.last_at
    return max(state.last_at, record.ended_at)


def _lost_nodes(state: RunState, at: float) -> list[Event]:
    """The simulated nodes went with the engine that simulated them, or with the last attempt that went on without it."""
    gone = [node for node in state.nodes.values() if node.gone_at is None]
    return [
        Event("node", at, data={"node": n.name, "pool": n.pool, "state": "gone", "why": "the engine went"})
        for n in gone
    ]


def _is_spot(state: RunState, pool: str | None) -> bool | None:
    known = state.plan.config.pools.get(pool or "")
    return known.is_spot if known is not None else None


def _settle_into(state: RunState, journal: Journal, recovery: Sequence[Event], clock: Clock) -> None:
    """Fold and commit what became of the old attempts, with the decisions that close them."""
    for event in recovery:
        fold(state, event)
    closed = [event for event in decide(state, StillSnapshot(), clock()) if event.kind == "decided"]
    for event in closed:
        fold(state, event)
    journal.append([*recovery, *closed])


def _hide_secrets(state: RunState, places: Places) -> None:
    """In what every attempt left: the last engine may have gone before it came to that."""
    if places.secrets:
        for task in chain(state.tasks.values(), state.retired.values()):
            for attempt in task.attempts:
                hide_secrets(places.attempt(task.path, attempt.number), places.secrets)


def _commit(state: RunState, journal: Journal, events: Sequence[Event]) -> None:
    for event in events:
        fold(state, event)
    journal.append(events)


def _reset(
    folder: RunFolder, state: RunState, newer: StoredPlan | None, arguments: Mapping[str, Any], clock: Clock, say: Say
) -> list[Event]:
    """Begin afresh what did not succeed, because the run had ended or its plan changed."""
    if newer is None:
        return [Event("reset", clock(), data={"version": state.version, "again": []})]
    save_plan(folder, state.version + 1, newer)
    state.plans = [*state.plans[: state.version], newer.plan]
    again = list(_again(state, newer.plan, _changed(state.meta["arguments"], arguments), say))
    if not again and not state.failed:
        say("nothing that has succeeded needs to run again")
    return [Event("reset", clock(), data={"version": state.version + 1, "again": again, "arguments": arguments})]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """The parameters of the pipeline that have another value, because their default or their type is another one."""
    return frozenset(name for name in now if name not in before or before[name] != now[name])


def _mended(stored: StoredPlan, state: RunState, say: Say) -> StoredPlan | None:
    """The plan from the user's files as they are now, where it differs from the run's; ``None`` where nothing changed."""
    compiled, config = _compiled_now(stored.compiled, say), _config_now(stored, state, say)
    same_code = (compiled.ir, compiled.platform) == (stored.compiled.ir, stored.compiled.platform)
    if same_code and config.text == stored.config.text:
        return None
    newer = replace(stored, compiled=compiled, config=config, traces=traces_of(config, stored.taken_every))
    newer.plan.check()
    return newer


def _check_pins(folder: RunFolder, compiled: Compiled, say: Say) -> None:
    file = StateFolder(folder.path.parents[1]).components
    for note in check_pins(compiled.source, compiled.commits, file):
        say(note)
    keep_pins(compiled.commits, file)


def _compiled_now(compiled: Compiled, say: Say) -> Compiled:
    """The pipeline from its source; as it was while no file that it was made from has changed."""
    if not compiled.source or (compiled.files and digests(compiled.files) == compiled.files):
        return compiled
    if not Path(compiled.source).exists():
        say(f"{compiled.source} is gone: going on with the pipeline as it was compiled")
        return compiled
    return load(Path(compiled.source), pipeline=compiled.pipeline)


def _config_now(stored: StoredPlan, state: RunState, say: Say) -> Config:
    """The configuration from its file, or the built-in one again where there was and is none."""
    explicit = state.meta.get("explicit_config")
    path = Path(stored.config.path)
    if path.is_absolute() and not path.exists():
        say(f"{path} is gone: going on with the pools and policy that the run was started with")
        return stored.config
    config = configuration.find(stored.compiled.source or Path.cwd(), Path(explicit) if explicit else None)
    if config.text != stored.config.text:
        say(f"{config.path} has changed: its pools and policy count from now on")
    return config


def _again(state: RunState, plan: Plan, arguments: frozenset[str], say: Say) -> Iterator[str]:
    """The tasks that succeeded and must run again: their code changed, or something they follow runs again.

    ``arguments`` are the parameters of the pipeline whose value has changed.
    """
    again: set[str] = set()
    there: set[str] = set()
    told: dict[str, None] = {}  # one line for all iterations of a loop
    for scope, planned in _walk(state, plan, plan.root):
        there.add(planned.path)
        before = state.tasks.get(planned.path)
        if before is None:
            told[f"task {planned.written} is new"] = None
            again.add(planned.path)
            continue
        if planned.spec.dag is None and not before.status.is_good:
            if _has_changed(planned.spec, before.plan.spec):
                told[f"task {planned.written} has changed"] = None
            continue
        why = _why_again(scope, planned, before, again, arguments)
        if why:
            if before.status.is_good and scope.path not in again:
                did = "succeeded" if before.status is TaskStatus.SUCCEEDED else "was skipped"
                told[f"task {planned.written} {did} before and runs again: {why}"] = None
            again.add(planned.path)
            yield planned.path
    gone = (task.plan.written for path, task in state.tasks.items() if path not in there)
    told.update(dict.fromkeys(f"task {path} is no longer in the pipeline" for path in gone))
    for line in told:
        say(line)


def _why_again(scope: Scope, planned: Planned, before: TaskState, again: set[str], arguments: frozenset[str]) -> str:
    if _has_changed(planned.spec, before.plan.spec):
        return "its code has changed" if planned.spec.dag is None else "it is called in another way"
    sources = () if scope.path else planned.spec.parameters.values()
    given = [each.name for each in sources if isinstance(each, DagInput) and each.name in arguments]
    if given:
        return f"the default of {', '.join(given)} has changed"
    changed = [name for name in planned.spec.after if scope.child(name) in again]
    if scope.path in again:
        changed.append(scope.path)
    return f"it follows {', '.join(changed)}" if changed else ""


def _has_changed(spec: TaskSpec, before: TaskSpec) -> bool:
    """Whether a task would do something else now. For a pipeline only what it is given counts: its tasks look for themselves."""
    if spec.dag is None or before.dag is None:
        return code_fingerprint(spec) != code_fingerprint(before)
    given = (spec.condition, spec.loop, dict(spec.parameters), dict(spec.artifacts))
    return given != (before.condition, before.loop, dict(before.parameters), dict(before.artifacts))


def _walk(state: RunState, plan: Plan, scope: Scope) -> Iterator[tuple[Scope, Planned]]:
    """The tasks of the new plan as far as the run has unfolded them: a loop with its iterations."""
    for planned in plan.unfold(scope):
        yield scope, planned
        before = state.tasks.get(planned.path)
        if planned.spec.dag is None or before is None:
            continue
        if planned.spec.loop is None and before.inside is not None:
            yield from _walk(state, plan, plan.inside(planned))
        elif planned.spec.loop is not None and before.loop is not None:
            for iteration in range(len(before.loop.scopes)):
                yield from _walk(state, plan, plan.inside(planned, iteration))


def _bound(state: RunState, plan: Plan) -> tuple[dict[str, Any], Secrets]:
    """The run's arguments for its pipeline as it is now; secrets are read again from where they are."""
    return bind_again(plan, state.meta["given"], textual=state.meta["textual"])


def cancel_dead(folder: RunFolder) -> RunState:
    """Cancel a run that no engine drives: end what may still live, and write that it is cancelled.

    What finished since the engine went counts as finished, unless the run has secrets that cannot be read here: nobody could
    hide them in its outputs, so those are forgotten, and the task runs again if the run is ever resumed.
    """
    plans = load_plans(folder)
    with closing(Journal.open(folder.journal)) as journal:
        epoch = journal.take(owner(), is_alive)
        clock = steady_clock()
        state = replay([stored.plan for stored in plans], (event for _, event in journal.events()))
        if state.status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED):
            raise InputError(f"run {folder.name} has ended already: it {_word(state.status)}")
        try:
            secrets: Secrets | None = _bound(state, state.plan)[1]
        except InputError:
            secrets = None
        events = _settled_attempts(folder, state, epoch, secrets)
        events.append(Event("engine", clock(), data={"epoch": epoch, "pid": os.getpid()}))
        events.append(Event("cancel", clock()))
        for path in state.under_way:
            task = state.tasks[path]
            if task.last.bound_at is None:
                events.append(Event("ended", clock(), path, task.last.number, {"signals": {"cancelled": True}}))
        for event in events:
            fold(state, event)
        while decisions := decide(state, StillSnapshot(), clock()):
            for event in decisions:
                fold(state, event)
            events += decisions
        journal.append(events)
        _hide_secrets(state, places_of(folder, epoch, secrets or Secrets()))
        journal.give_up()
    return state


def _word(status: RunStatus) -> str:
    return {RunStatus.SUCCEEDED: "succeeded", RunStatus.FAILED: "failed"}.get(status, "was cancelled")
