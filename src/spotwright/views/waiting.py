"""Say why a task waits: for upstream tasks, its Python environment, a node or a backoff; or that it will not start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.state import RunState, TaskState
from spotwright.engine.waits import told
from spotwright.views.text import plural, time_of_day

__all__ = ["Waiting", "booting_nodes", "status_word", "waiting_for"]


_BEFORE_AN_ATTEMPT = (TaskStatus.WAITING, TaskStatus.READY, TaskStatus.PREPARING, TaskStatus.BACKOFF)


_NAMED = 3  # upstream tasks that are named at most; others are counted


class Waiting(NamedTuple):
    """The reason why a task waits.

    ``kind``: ``tasks``, ``environment``, ``node``, ``start`` (it has a node), ``backoff``, ``turn``, or ``nothing`` once the run
    has ended.

    ``tasks`` are the unfinished upstream tasks, ``pools`` the pools of the rung; ``until`` (Unix seconds) is the end of the
    backoff or of the wait for these pools. ``text`` is a phrase without that moment.
    """

    kind: str
    text: str
    tasks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    until: float | None = None


def booting_nodes(state: RunState) -> Mapping[str, int]:
    """The number of booting nodes by pool."""
    booting: dict[str, int] = {}
    for node in state.nodes.values():
        if node.state == "booting":
            booting[node.pool] = booting.get(node.pool, 0) + 1
    return booting


def status_word(status: str, waits_for: str | None, attempts: int) -> str:
    """A task's status for people: ``not started`` if it had no attempt and waits for nothing (a kind of :class:`Waiting`)."""
    return "not started" if waits_for == "nothing" and not attempts else status


def waiting_for(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Waiting | None:
    """Why a task waits; ``None`` if it runs or has ended. ``booting`` is the result of :func:`booting_nodes`."""
    if task.status.is_final or task.status in (TaskStatus.RUNNING, TaskStatus.OPEN):
        return None
    if state.status is not RunStatus.RUNNING:
        if state.status is RunStatus.STOPPED and state.meta.orchestrator:
            return Waiting("nothing", "is not recorded any more")
        after = "when the run is resumed" if state.status is RunStatus.STOPPED else "any more: the run has ended"
        begun = "goes on" if task.attempts else "starts"
        return Waiting(
            "nothing", f"{begun} {after}" if state.status is RunStatus.STOPPED else f"does not start {after}"
        )
    if not task.may_start and task.status in _BEFORE_AN_ATTEMPT:
        return Waiting("nothing", f"does not start any more: {task.scope.failed} failed")
    if task.status is TaskStatus.WAITING:
        return _for_tasks(state, task)
    if task.status is TaskStatus.PREPARING:
        packages = task.environment.packages if task.environment is not None else ()
        return Waiting("environment", f"builds its Python environment{_listed(packages)}")
    if task.status is TaskStatus.PENDING:
        return _for_node(task, booting)
    if state.meta.orchestrator and task.attempts:
        return Waiting("turn", _for_successor(state.meta.orchestrator, task))
    if task.status is TaskStatus.BACKOFF:
        return Waiting("backoff", f"waits before attempt {len(task.attempts) + 1}", until=task.due)
    return Waiting("turn", "is about to start")


def _for_tasks(state: RunState, task: TaskState) -> Waiting:
    paths = [task.scope.place.child(name) for name in task.plan.spec.after]
    open_paths = tuple(path for path in paths if not state.tasks[path].status.is_good)
    more = f" and {len(open_paths) - _NAMED} more" if len(open_paths) > _NAMED else ""
    return Waiting("tasks", f"waits for {', '.join(open_paths[:_NAMED])}{more}", tasks=open_paths)


def _for_successor(orchestrator: str, task: TaskState) -> str:
    """Who makes the next attempt; and the remedy for a silent node that holds the pod of the last one."""
    text = f"waits until its {orchestrator} makes attempt {len(task.attempts) + 1}"
    held = task.last.held
    if held is None:
        return text
    since = "" if held.since is None else f" since {time_of_day(held.since)}"
    from spotwright.clouds.providers import commands_to_free  # here: only for runs in a cluster

    taint, delete = commands_to_free(held.node)
    return (
        f"{text}; node {held.node}, which holds the pod of attempt {task.last.number}, does not report{since}: "
        f"if its machine is gone, free it: {taint}, or {delete}"
    )


def _listed(packages: Sequence[str]) -> str:
    more = f" and {len(packages) - _NAMED} more" if len(packages) > _NAMED else ""
    return f" ({', '.join(packages[:_NAMED])}{more})" if packages else ""


def _for_node(task: TaskState, booting: Mapping[str, int]) -> Waiting:
    attempt = task.last
    if attempt.is_held_up:
        return Waiting("start", f"has a node and does not start: {attempt.waits}")
    if attempt.taken_back is not None:
        return Waiting("node", f"is recalled: {attempt.taken_back.why}", pools=attempt.pools)
    count = sum(booting.get(pool, 0) for pool in attempt.pools)
    text = f"waits for a node of {' or '.join(attempt.pools)}" if attempt.pools else "waits for a node"
    if count:
        text += f" ({plural(count, 'node')} booting)"
    if attempt.waits:
        text += f"; {told(attempt)}"
    return Waiting("node", text, pools=attempt.pools, until=attempt.until)
