"""The steps of the fold about the Python environments that tasks need before an attempt of theirs is placed.

A task whose environment is being built has no attempt yet: it holds no node and spends no budget. Tasks with the same packages
wait for the same build. An environment is ready under one engine; the next engine asks again, because it may be deleted
meanwhile.
"""

from __future__ import annotations

from spotwright.engine.dag_transitions import make_ready
from spotwright.engine.environment_events import EnvironmentAsked, EnvironmentChanged
from spotwright.engine.state import EnvironmentState, RunState
from spotwright.engine.status import TaskStatus

__all__ = ["ask_again", "environment_asked", "environment_changed"]


def ask_again(state: RunState) -> None:
    """Forget the environments of an earlier engine, and let the tasks that waited for them ask again."""
    state.environments.clear()
    for path in list(state.preparing):
        del state.preparing[path]
        make_ready(state, state.tasks[path])


def environment_asked(state: RunState, event: EnvironmentAsked) -> None:
    """Let a task wait for its environment. A build whose engine ended may have finished without it, so its begin stays."""
    task = state.tasks[event.task]
    task.status, task.due = TaskStatus.PREPARING, None
    if task.environment is None or task.environment.ended_at is not None:
        task.environment = EnvironmentState()
    state.preparing[task.path] = None
    state.todo.pop(task.path, None)


def environment_changed(state: RunState, event: EnvironmentChanged) -> None:
    """Note a build, or its end: then a task that still waits for it needs a decision. Ready also for other tasks."""
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
