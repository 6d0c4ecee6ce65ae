"""What a task waits for: upstream tasks, a node, the end of a backoff, or nothing any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotwright.engine.state import RunState, RunStatus, TaskState, TaskStatus
from spotwright.views.words import plural

__all__ = ["Waiting", "booting_nodes", "waiting_for"]

_NAMED = 3  # how many upstream tasks are named before the others are only counted


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a task waits for. ``kind``: ``tasks``, ``node``, ``backoff``, ``turn``, or ``nothing`` where the run is over.

    ``tasks`` are the upstream tasks that have not succeeded, ``pools`` those that may give it a node; ``until`` (Unix seconds)
    is the end of the backoff, or of the patience with these pools. ``text`` says it without that moment.
    """

    kind: str
    text: str
    tasks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    until: float | None = None


def booting_nodes(state: RunState) -> Mapping[str, int]:
    """How many nodes of each pool boot."""
    booting: dict[str, int] = {}
    for node in state.nodes.values():
        if node.state == "booting":
            booting[node.pool] = booting.get(node.pool, 0) + 1
    return booting


def waiting_for(state: RunState, task: TaskState, booting: Mapping[str, int]) -> Waiting | None:
    """What a task waits for; ``None`` where it runs or has ended. ``booting`` is :func:`booting_nodes`."""
    if task.status.is_final or task.status in (TaskStatus.RUNNING, TaskStatus.OPEN):
        return None
    if state.status is not RunStatus.RUNNING:
        after = "when the run is resumed" if state.status is RunStatus.STOPPED else "any more: the run has ended"
        begun = "goes on" if task.attempts else "starts"
        return Waiting(
            "nothing", f"{begun} {after}" if state.status is RunStatus.STOPPED else f"does not start {after}"
        )
    if not task.may_start and task.status in (TaskStatus.WAITING, TaskStatus.READY, TaskStatus.BACKOFF):
        return Waiting("nothing", f"does not start any more: {task.scope.failed} failed")
    if task.status is TaskStatus.WAITING:
        return _for_tasks(state, task)
    if task.status is TaskStatus.PENDING:
        return _for_node(task, booting)
    if task.status is TaskStatus.BACKOFF:
        return Waiting("backoff", f"waits before attempt {len(task.attempts) + 1}", until=task.due)
    return Waiting("turn", "is about to start")


def _for_tasks(state: RunState, task: TaskState) -> Waiting:
    paths = [task.scope.place.child(name) for name in task.plan.spec.after]
    open_paths = tuple(path for path in paths if not state.tasks[path].status.is_good)
    more = f" and {len(open_paths) - _NAMED} more" if len(open_paths) > _NAMED else ""
    return Waiting("tasks", f"waits for {', '.join(open_paths[:_NAMED])}{more}", tasks=open_paths)


def _for_node(task: TaskState, booting: Mapping[str, int]) -> Waiting:
    attempt = task.last
    count = sum(booting.get(pool, 0) for pool in attempt.pools)
    text = f"waits for a node of {' or '.join(attempt.pools)}"
    if count:
        text += f" ({plural(count, 'node')} booting)"
    return Waiting("node", text, pools=attempt.pools, until=attempt.until)
