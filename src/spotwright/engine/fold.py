"""Folds events into the state: one function applies one event and updates the indexes, so no decision scans all tasks.

An event that does not fit the state (such as the end of an attempt that was never placed) raises :class:`StateError`.
:func:`fold` reads no clock and does no IO; facts about the graph and the configuration come from the state's
:class:`~spotwright.engine.plan.Plan`. Events of attempts are folded in :mod:`spotwright.engine.attempt_events`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from spotwright.engine import events as ev
from spotwright.engine.attempt_events import ATTEMPT_HANDLERS, wait_until
from spotwright.engine.dags import fail, make_ready, open_dag, open_root, reset, set_active, skip, succeed
from spotwright.engine.events import Event, RunStatus, TaskStatus
from spotwright.engine.observations import market_known, room_seen, run_taken_up
from spotwright.engine.plan import Plan
from spotwright.engine.state import EnvironmentState, NodeState, RunState
from spotwright.errors import StateError
from spotwright.scheduling.estimates import newest_boots

__all__ = ["fold", "rare_collections", "replay"]


def replay(plans: Sequence[Plan], events: Iterable[Event]) -> RunState:
    """Fold a whole journal from the start. ``plans`` are the versions of the run's plan, oldest first."""
    state = RunState(plans)
    collecting = gc.isenabled()
    gc.disable()  # all objects made here stay: garbage collection would double the time
    try:
        for event in events:
            fold(state, event)
    finally:
        if collecting:
            gc.enable()
    return state


@contextmanager
def rare_collections() -> Iterator[None]:
    """Run the garbage collector less often while a state grows.

    Nearly all objects stay, and collecting them repeatedly takes a third of the engine's time at 10,000 tasks.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def fold(state: RunState, event: Event) -> None:
    """Apply one event to the state. Raises :class:`StateError` for an event that does not fit the state."""
    try:
        _HANDLERS[type(event)](state, event)
    except (KeyError, IndexError, ValueError) as error:
        about = f"{event.kind} of {event.task or 'the run'}" + (f", attempt {event.attempt}" if event.attempt else "")
        raise StateError(
            f"event {state.events + 1} of the journal ({about}) does not fit the events before it: {error!r}"
        ) from error
    state.events += 1
    state.last_at = event.at


# The run


def _created(state: RunState, event: ev.RunCreated) -> None:
    state.meta = event.meta
    state.started_at = state.begun_at = event.at


def _engine(state: RunState, event: ev.EngineStarted) -> None:
    """Start an engine. The time without an engine does not count as waiting for a node.

    Under a deadline a wait for spot is re-decided at once: its last moment may have come.
    """
    gap = max(0.0, event.at - state.last_at) if state.epoch else 0.0
    if gap:
        state.undriven.append((state.last_at, event.at))
    state.epoch, state.caching, state.prepares, state.detached = event.epoch, event.caching, event.environments, False
    _ask_again(state)
    run_taken_up(state)
    state.begun_at += gap
    state.status, state.finished_at, state.stopping = RunStatus.RUNNING, None, ""
    for path in state.under_way:
        task = state.tasks[path]
        task.last.halted = False
        is_urgent = task.plan.policy.deadline is not None and task.last.rung not in task.plan.ladder.on_demand
        if task.last.bound_at is None and task.last.until is not None and not is_urgent:
            task.last.rung_at += gap
            wait_until(state, task, task.last.until + gap)


def _cancel(state: RunState, _event: ev.CancelRequested) -> None:
    state.cancelling = True


def _stop(state: RunState, event: ev.StopRequested) -> None:
    state.stopping = event.why


def _expired(state: RunState, event: ev.RunExpired) -> None:
    state.expired = event.why
    for task in state.tasks.values():
        if task.status in (TaskStatus.BACKOFF, TaskStatus.PREPARING) and state.is_over(task):
            state.todo[task.path] = None  # to fail at once


def _finished(state: RunState, event: ev.RunFinished) -> None:
    """End the run. No task of a cancelled workload waits for another attempt."""
    state.status, state.why, state.finished_at = event.status, event.why, event.at
    if state.meta.orchestrator and event.status is RunStatus.CANCELLED:
        for task in state.tasks.values():
            if task.attempts and task.status in (TaskStatus.READY, TaskStatus.BACKOFF):
                task.status, task.due, task.why = TaskStatus.CANCELLED, None, "the run was cancelled"
                task.last.due, task.last.following = None, "nothing: the run was cancelled"
                set_active(task, active=False)
                state.todo.pop(task.path, None)


def _note(state: RunState, event: ev.NoteAdded) -> None:
    state.notes.append(event.text)


def _detached(state: RunState, _event: ev.EngineDetached) -> None:
    state.detached = True


def _plan_extended(state: RunState, event: ev.PlanExtended) -> None:
    """Extend the plan in force, or put its next version in force."""
    if event.version:
        if event.version != state.version + 1:
            raise ValueError(f"version {event.version} of the plan does not follow version {state.version}")
        state.version = event.version
        changed = set(state.plan.graph.root.tasks)
    else:
        name = event.template.get("name", "")
        changed = {name} & state.plan.graph.root.tasks.keys()
        state.grown = _grown(state.plan, event)
    templates = state.plan.graph.root.tasks
    for task in state.tasks.values() if changed else ():
        name = task.plan.spec.name
        if name in changed and templates[name].retry != task.plan.spec.retry:
            task.plan = state.plan.instance(name, task.path)


def _grown(plan: Plan, event: ev.PlanExtended) -> Plan:
    if event.pool:
        plan = plan.with_pool(event.pool, is_spot=event.is_spot)
    return plan.with_template(event.template) if event.template else plan


def _node(state: RunState, event: ev.NodeChanged) -> None:
    node = state.nodes.get(event.node)
    if node is not None and node.state == "gone" and event.state != "gone":  # another machine with its name
        state.former_nodes.append(node)
        node = None
    if node is None:
        node = state.nodes[event.node] = NodeState(event.node, event.pool, "booting", event.at, state.version)
    node.state, node.why, node.offers = event.state, event.why, event.offers or node.offers
    if node.state == "ready":
        node.ready_at = event.at
        if event.at > node.booted_at:  # not for a node that was ready when first seen
            boot = (event.at - node.booted_at) * state.time_scale
            state.boots[node.pool] = newest_boots(state.boots.get(node.pool, ()), (boot,))
    elif node.state == "gone":
        node.gone_at = event.at


# The graph


def _unfolded(state: RunState, event: ev.TasksUnfolded) -> None:
    if not event.task:
        open_root(state, {})
        return
    state.todo.pop(event.task, None)
    open_dag(state, state.tasks[event.task], event.items, {})


def _skipped(state: RunState, event: ev.TaskSkipped) -> None:
    skip(state, state.tasks[event.task], event.why)


def _cached(state: RunState, event: ev.TaskCached) -> None:
    task = state.tasks[event.task]
    task.cached_from = (event.run, event.of_task)
    succeed(state, task, event)


def _cache_asked(state: RunState, event: ev.CacheAsked) -> None:
    task = state.tasks[event.task]
    task.cache_asked = True
    state.todo.pop(task.path, None)


def _cache_missed(state: RunState, event: ev.CacheMissed) -> None:
    make_ready(state, state.tasks[event.task])


def _completed(state: RunState, event: ev.TaskCompleted) -> None:
    """Complete a task, even after a failed last attempt if its orchestrator counts it as succeeded."""
    task = state.tasks[event.task]
    if state.meta.orchestrator and task.attempts and task.status in (TaskStatus.READY, TaskStatus.BACKOFF):
        task.due, task.last.due = None, None
        task.last.following = f"nothing: its {state.meta.orchestrator} counts it as succeeded"
    succeed(state, state.tasks[event.task], event)


def _failed(state: RunState, event: ev.TaskFailed) -> None:
    """Fail a task. The orchestrator's actual step after an attempt replaces the expected one."""
    task = state.tasks[event.task]
    if state.meta.orchestrator and task.attempts and task.status in (TaskStatus.READY, TaskStatus.BACKOFF):
        task.due, task.last.due, task.last.following = None, None, event.why
    fail(state, task, event.why)


def _outputs_read(state: RunState, event: ev.OutputsRead) -> None:
    """Add output parameters to a task's outputs."""
    task = state.tasks[event.task]
    task.parameters = {**task.parameters, **event.parameters}


# Environments


def _ask_again(state: RunState) -> None:
    """Forget an earlier engine's environments, and let tasks that waited for them ask again."""
    state.environments.clear()
    for path in list(state.preparing):
        del state.preparing[path]
        make_ready(state, state.tasks[path])


def _environment_asked(state: RunState, event: ev.EnvironmentAsked) -> None:
    """Let a task wait for its environment. A build may finish after its engine has ended, so its start is kept."""
    task = state.tasks[event.task]
    task.status, task.due = TaskStatus.PREPARING, None
    if task.environment is None or task.environment.ended_at is not None:
        task.environment = EnvironmentState()
    state.preparing[task.path] = None
    state.todo.pop(task.path, None)


def _environment_changed(state: RunState, event: ev.EnvironmentChanged) -> None:
    """Note a build or its end, after which a waiting task needs a decision. A ready environment serves other tasks too."""
    task = state.tasks[event.task]
    environment = task.environment
    if environment is None:
        raise ValueError("no environment was asked for")
    if event.state == "building":
        environment.began_at, environment.packages, environment.log = event.at, tuple(event.packages), event.log
        return
    environment.ended_at, environment.why, environment.last_lines = event.at, event.why, tuple(event.last_lines)
    executor = task.plan.spec.executor
    if event.state == "ready" and executor is not None:
        state.environments.add(executor.environment)
    if task.status is TaskStatus.PREPARING:
        del state.preparing[task.path]
        make_ready(state, task)


_HANDLERS: Mapping[type[Event], Callable[[RunState, Any], None]] = {  # each handler takes the event of its key
    ev.RunCreated: _created,
    ev.EngineStarted: _engine,
    ev.EngineDetached: _detached,
    ev.PlanExtended: _plan_extended,
    ev.MarketKnown: market_known,
    ev.SnapshotTaken: room_seen,
    ev.NodeChanged: _node,
    ev.CancelRequested: _cancel,
    ev.StopRequested: _stop,
    ev.RunExpired: _expired,
    ev.RunFinished: _finished,
    ev.RunReset: reset,
    ev.NoteAdded: _note,
    ev.TasksUnfolded: _unfolded,
    ev.TaskSkipped: _skipped,
    ev.TaskCached: _cached,
    ev.CacheAsked: _cache_asked,
    ev.CacheMissed: _cache_missed,
    ev.TaskCompleted: _completed,
    ev.TaskFailed: _failed,
    ev.OutputsRead: _outputs_read,
    ev.EnvironmentAsked: _environment_asked,
    ev.EnvironmentChanged: _environment_changed,
    **ATTEMPT_HANDLERS,
}
