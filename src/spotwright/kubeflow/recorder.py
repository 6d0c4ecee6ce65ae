"""Records what KFP tells of a run as the events of our journal, so that the views of a local run show it.

A pipeline is unfolded as in a local run, when KFP opens its parts; each pod that KFP made is an attempt. The cause of
an end is decided by :func:`~spotwright.scheduling.cause.classify` on what Argo says of the pod, which is less than the controller
of Spotwright sees. Every look compares the whole picture with the state, so a look may be lost or come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptWaits,
    CancelRequested,
    Event,
    NodeChanged,
    OutputsRead,
    RunFinished,
    RunStatus,
    TaskCached,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStatus,
    TasksUnfolded,
)
from spotwright.engine.io_resolution import dag_outputs
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.kubeflow.nodes import Node
from spotwright.kubeflow.pods_seen import PodsSeen
from spotwright.kubeflow.seen_tasks import SeenTask
from spotwright.kubeflow.task_ends import signals_of
from spotwright.model.attempts import Signals
from spotwright.pipelines.values.parameter_values import coerce
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import classify

__all__ = ["Recorder"]

_EARLIER = "an earlier run"
_NOT_TOLD = "KFP says that it failed, and not why"


class Recorder:
    """Records one run. ``add`` folds an event into ``state`` and keeps it. ``pods``: where Kubernetes shows them too."""

    def __init__(self, state: RunState, add: Callable[[Event], None]) -> None:
        self._state, self._add = state, add
        self.pods: PodsSeen | None = None
        self._now = self._ahead = 0.0

    def _past(self, moment: float | None) -> float:
        """A moment of the server's on our clock."""
        return self._now if moment is None else min(max(moment - self._ahead, self._state.started_at), self._now)

    def record(self, seen: Mapping[str, SeenTask], now: float, ahead: float = 0.0) -> None:
        """Add every event that follows from these tasks: first of tasks without tasks inside, then of pipelines that are done.

        ``ahead``: seconds that the clock of these tasks is ahead of ours. Nothing happens in the future or before the run.
        """
        self._now, self._ahead = now, ahead
        if not self._state.unfolded:
            self._add(TasksUnfolded(now))
        while True:
            before = self._state.events
            for path, task in list(self._state.tasks.items()):
                if path in seen and not task.status.is_final:
                    self._task(task, seen[path])
            if self._state.events == before and not self._close_one(seen):
                return

    def outputs(self, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        """Add output parameters of tasks, by path; those of the pipelines around them follow."""
        for path, values in parameters.items():
            self._add_outputs(path, values)
        for path in sorted(self._state.tasks, key=lambda each: -each.count("/")):
            task = self._state.tasks[path]
            if task.plan.spec.dag is not None and task.status is TaskStatus.SUCCEEDED:
                self._add_outputs(path, dag_outputs(self._state, task)["parameters"])

    def _add_outputs(self, path: str, values: Mapping[str, Any]) -> None:
        task = self._state.tasks.get(path)
        if task is None or task.status is not TaskStatus.SUCCEEDED:
            return
        specs = task.plan.spec.outputs.parameters
        new = {name: _typed(value, specs[name].type if name in specs else "") for name, value in values.items()}
        if new and new != {name: task.parameters.get(name) for name in new}:
            self._add(OutputsRead(self._now, path, parameters=new))

    def finish(self, status: RunStatus, why: str, now: float) -> None:
        """End the run, and what is left of its attempts."""
        self._now = now
        if status is RunStatus.CANCELLED and not self._state.cancelling:
            self._add(CancelRequested(now))
        for task in self._state.tasks.values():
            if task.attempts and task.last.is_live:
                self._add(AttemptEnded(now, task.path, task.last.number))
            if task.is_unjudged and not task.status.is_final:
                self._stop(task)
        self._add(RunFinished(now, status=status, why=why))

    def _stop(self, task: TaskState) -> None:
        ending = classify(signals_of(Node("", "Failed"), cancelled=True))
        self._add(
            AttemptDecided(
                self._now, task.path, task.last.number, cause=ending.cause, why=ending.why, then=FollowUp.CANCEL,
                following="nothing: the run has ended",
            )
        )  # fmt: skip

    # One task

    def _task(self, task: TaskState, seen: SeenTask) -> None:
        if task.plan.spec.dag is not None:
            self._open(task, seen)
        elif seen.node.was_left_out and seen.failed_driver is None:
            if not seen.is_cached:
                self._add(TaskSkipped(self._now, task.path, why=seen.node.message or "KFP left it out"))
        elif seen.is_cached:
            if seen.node.has_ended:
                self._cached(task, seen)
        else:
            self._attempts(task, seen)

    def _open(self, task: TaskState, seen: SeenTask) -> None:
        if task.status is TaskStatus.OPEN:
            return
        if seen.node.was_left_out:
            self._add(TaskSkipped(self._now, task.path, why=seen.node.message or "its condition does not hold"))
        elif task.plan.spec.loop is None:
            self._add(TasksUnfolded(self._now, task.path))
        elif seen.iterations is not None:
            self._add(TasksUnfolded(self._now, task.path, items=[None] * seen.iterations))

    def _close_one(self, seen: Mapping[str, SeenTask]) -> bool:
        """End one pipeline or loop that KFP says has ended; those inside come first."""
        for path in sorted(self._state.tasks, key=lambda each: -each.count("/")):
            task = self._state.tasks[path]
            node = seen[path].node if path in seen else None
            if task.status is not TaskStatus.OPEN or node is None or not node.has_ended:
                continue
            if node.phase == "Succeeded":
                self._add(TaskCompleted(self._now, path, **dag_outputs(self._state, task)))
            else:
                self._add(TaskFailed(self._now, path, why=self._failed_inside(path) or node.message or _NOT_TOLD))
            return True
        return False

    def _failed_inside(self, path: str) -> str:
        inside = (failed for failed in self._state.failed if failed.startswith(f"{path}/"))
        return next((f"{failed} failed" for failed in inside), "")

    def _cached(self, task: TaskState, seen: SeenTask) -> None:
        name = task.plan.spec.name
        self._add(TaskCached(self._now, task.path, run=_EARLIER, of_task=name, artifacts=dict(seen.artifacts)))

    # Attempts

    def _attempts(self, task: TaskState, seen: SeenTask) -> None:
        tries = seen.tries or ((seen.node,) if seen.node.started_at is not None else ())
        if (not tries and seen.node.has_ended) or (seen.failed_driver is not None and not seen.tries):
            why = f"its driver failed: {seen.failed_driver or 'KFP does not tell why'}"
            self._add(TaskFailed(self._now, task.path, why=why))
            return
        for place, node in enumerate(tries, 1):
            attempt = self._attempt_of(task, seen, node)
            for signals in () if self.pods is None else self.pods.take_replaced(node.name):
                attempt = self._made_again(task, attempt, signals)
            if attempt.is_live:
                self._follow(task, attempt, node)
            if attempt.is_live and node.has_ended and (place < len(tries) or seen.node.has_ended):
                self._end(task, attempt, node, seen, is_last=place == len(tries))

    def _attempt_of(self, task: TaskState, seen: SeenTask, node: Node) -> AttemptState:
        """The newest attempt of a try, which is made if there is none: Argo may make the pod of one try several times.

        Where one answer tells the tries and another one the task alone, both mean the same attempt.
        """
        made = [attempt for attempt in task.attempts if attempt.key.startswith(f"{node.name}#")]
        if not made and node is seen.node:
            made = task.attempts
        elif not made and node is seen.tries[0]:
            made = [attempt for attempt in task.attempts if attempt.key.startswith(f"{seen.node.name}#")]
        return made[-1] if made else self._adopt(task, self._past(node.started_at), f"{node.name}#1")

    def _adopt(self, task: TaskState, at: float, key: str) -> AttemptState:
        template = task.plan.spec.name
        self._add(AttemptAdopted(at, task.path, len(task.attempts) + 1, key=key, template=template))
        return task.last

    def _made_again(self, task: TaskState, attempt: AttemptState, signals: Signals) -> AttemptState:
        """End an attempt whose pod Argo has made again without counting a try, and begin the next one."""
        if not attempt.is_live:
            return attempt
        self._add(AttemptEnded(self._now, task.path, attempt.number, signals=signals))
        following = "Argo makes its pod again, without counting a try"
        self._decide(task, attempt, signals, FollowUp.RETRY, following)
        name, _, number = attempt.key.rpartition("#")
        return self._adopt(task, self._now, f"{name}#{int(number) + 1}")

    def _follow(self, task: TaskState, attempt: AttemptState, node: Node) -> None:
        if node.phase == "Pending" and node.message and node.message != attempt.waits:
            self._add(AttemptWaits(self._now, task.path, attempt.number, why=node.message))
        elif node.phase == "Running" and attempt.waits:
            self._add(AttemptWaits(self._now, task.path, attempt.number, why=""))
        has_begun = node.phase == "Running" or (node.has_ended and node.started_at is not None)
        if attempt.bound_at is None and has_begun:
            self._bind(task, attempt, (self.pods.host(node.name) if self.pods is not None else "") or node.host)

    def _bind(self, task: TaskState, attempt: AttemptState, host: str) -> None:
        pool = "" if self.pods is None or not host else self.pods.pool(host)
        at = attempt.placed_at
        if pool and host not in self._state.nodes:
            self._add(NodeChanged(at, node=host, pool=pool, state="ready"))
        self._add(AttemptBound(at, task.path, attempt.number, node=host, pool=pool))

    def _end(self, task: TaskState, attempt: AttemptState, node: Node, seen: SeenTask, *, is_last: bool) -> None:
        has_succeeded = is_last and seen.node.phase == "Succeeded"
        signals = self._signals(node, has_succeeded=has_succeeded)
        artifacts: Mapping[str, Any] = seen.artifacts if has_succeeded else {}
        at = max(self._past(node.finished_at), attempt.bound_at or attempt.placed_at)
        self._add(AttemptEnded(at, task.path, attempt.number, signals=signals, artifacts=artifacts))
        is_explained = bool(node.message) or signals.cancelled or signals.containers or signals.pod_deleted
        if not has_succeeded and not is_explained:
            if is_last:
                self._add(TaskFailed(self._now, task.path, why=_NOT_TOLD))
            return
        then, following = FollowUp.RETRY, "KFP tries it again"
        if has_succeeded:
            then, following = FollowUp.SUCCEED, "the task has succeeded"
        elif signals.cancelled:
            then, following = FollowUp.CANCEL, "nothing: the run was cancelled"
        elif is_last:
            then, following = FollowUp.FAIL, f"{classify(signals).cause}, and KFP does not try it again"
        self._decide(task, attempt, signals, then, following)

    def _decide(self, task: TaskState, attempt: AttemptState, signals: Signals, then: FollowUp, following: str) -> None:
        ending = classify(signals)
        cause, why, evidence = ending.cause, ending.why, ending.evidence
        self._add(
            AttemptDecided(
                self._now,
                task.path,
                attempt.number,
                cause=cause,
                why=why,
                then=then,
                following=following,
                evidence=evidence,
            )
        )

    def _signals(self, node: Node, *, has_succeeded: bool) -> Signals:
        """The signals of an end: of its pod and machine where Kubernetes showed them, else what Argo says."""
        told = signals_of(node, cancelled=self._state.cancelling)
        seen = None if self.pods is None or has_succeeded else self.pods.signals(node.name)
        if seen is None:
            return told
        return seen._replace(cancelled=told.cancelled, timed_out=seen.timed_out or told.timed_out)


def _typed(value: Any, kind: str) -> Any:
    """A value of the declared type: the store has one type of number."""
    try:
        return coerce(value, kind) if kind else value
    except ValueError:
        return value
