"""Record KFP's status of a run as events of our journal, for the views of local runs.

A pipeline is unfolded as in a local run, as KFP opens its parts; each of KFP's pods is an attempt.
:func:`~spotwright.scheduling.cause.classify` decides the cause of an end from Argo's status of the pod, which is less than
Spotwright's controller sees. Every look compares the whole status with the state, so looks may be lost or repeated.

With a kubeconfig that allows it, a follower also reads the run's pods and their nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spotwright.clouds import providers
from spotwright.cluster.api_client import ApiFailed, object_path
from spotwright.cluster.observer import why_early
from spotwright.cluster.pod_starts import why_not_started
from spotwright.cluster.signals import LastSeen, bound_at, events_of_pod, has_not_started
from spotwright.cluster.signals import signals_of as signals_of_evidence
from spotwright.cluster.view import offers_of
from spotwright.cluster.workloads import PodAttempt, attempts_of, requests_of, workflow_task
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
from spotwright.errors import SpotwrightError
from spotwright.kfp.values import coerce
from spotwright.kube.object_fields import ARGO_NODE
from spotwright.kubeflow.task_status import Node, SeenTask, signals_of
from spotwright.model.attempts import Signals, has_work_left
from spotwright.model.pools import Pool, Resources
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import classify, ended_early

__all__ = ["PodsSeen", "Read", "Recorder"]


_RUN = "pipeline/runid"
_FINISHED = ("Succeeded", "Failed")

Read = Callable[[str, Mapping[str, str]], dict[str, Any]]
"""Reads a path of the Kubernetes API. Raises :class:`ApiFailed` and :class:`InputError`."""


@dataclass(slots=True)
class _Pod:
    last: Mapping[str, Any]
    is_gone: bool = False


class PodsSeen:
    """The pods of one run. ``trouble`` says why they cannot be read, if so; then the next try is after ``pause`` seconds."""

    def __init__(self, read: Read, run_id: str, pools: Mapping[str, Pool], *, pause: float = 30.0) -> None:
        self._read, self._run_id, self._pools = read, run_id, pools
        self._pause, self._again_at = pause, 0.0
        self._pods: dict[str, _Pod] = {}  # by the name of Argo's node
        self._replaced: dict[
            str, list[_Pod]
        ] = {}  # pods that Argo has recreated under the same name, until they are recorded
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._gone: set[str] = set()  # nodes that were there before
        self._no_nodes = ""  # why nodes may not be read
        self._events_again_at: dict[str, float] = {}  # by the pod's uid
        self.trouble = ""

    @property
    def are_any(self) -> bool:
        """Whether a pod of the run has been seen."""
        return bool(self._pods)

    def look(self, namespace: str) -> None:
        """Read the pods of the run and their nodes. A failed look is skipped, and ``trouble`` says why."""
        if not namespace or time.monotonic() < self._again_at:
            return
        try:
            found = self._read(
                object_path("v1", "Pod", namespace=namespace), {"labelSelector": f"{_RUN}={self._run_id}"}
            )
            self._take(found.get("items") or ())
            pods = (*self._pods.values(), *chain.from_iterable(self._replaced.values()))
            self.trouble = self._no_nodes
            for name in {host for pod in pods if (host := _host(pod.last))} if not self._no_nodes else ():
                self._look_at_node(name)
        except (ApiFailed, SpotwrightError) as error:
            self.trouble = str(error)
            self._again_at = time.monotonic() + self._pause

    def _take(self, pods: Any) -> None:
        there = set()
        for pod in pods:
            name = str((pod["metadata"].get("annotations") or {}).get(ARGO_NODE, ""))
            there.add(name)
            known = self._pods.get(name)
            is_another = known is not None and _uid(known.last) != _uid(pod)
            if known is not None and is_another:
                known.is_gone = True
                self._replaced.setdefault(name, []).append(known)
            if known is None or is_another or not _has_finished(known.last):
                self._pods[name] = _Pod(pod)
        for name, known in self._pods.items():
            known.is_gone = name not in there

    def _look_at_node(self, name: str) -> None:
        try:
            self._nodes[name] = self._read(object_path("v1", "Node", name), {})
            self._gone.discard(name)
        except ApiFailed as error:
            if error.status == 403:  # readers of a namespace's pods often may not read cluster-wide nodes
                self.trouble = self._no_nodes = str(error)
                return
            if error.status != 404:
                raise
            if name in self._nodes:
                self._gone.add(name)

    def held_up(self, now: float, after: float) -> Iterator[str]:
        """Sentences about pods that have not started on their nodes ``after`` seconds; ``now`` is a moment of the nodes' clock.

        Only events report failed mounts. Each pod's are read every ``pause`` seconds.
        """
        for name, pod in self._pods.items():
            since = bound_at(pod.last)
            if pod.is_gone or not has_not_started(pod.last) or since is None or now - since < after:
                continue
            if time.monotonic() < self._events_again_at.get(_uid(pod.last), 0.0):
                continue
            self._events_again_at[_uid(pod.last)] = time.monotonic() + self._pause
            try:
                why = why_not_started(pod.last, self._read(*events_of_pod(pod.last)).get("items") or ())
            except (ApiFailed, SpotwrightError) as error:
                why = f"its events may say why, but cannot be read: {error}"
            if why:
                yield f"{workflow_task(name, is_kfp=True).path} has not started on {_host(pod.last)}: {why}"

    def signals(self, node_name: str) -> Signals | None:
        """The signals of an Argo node's pod that ended badly; ``None`` if the pod was never seen."""
        pod = self._pods.get(node_name)
        return None if pod is None else self._signals_of(pod)

    def take_replaced(self, node_name: str) -> list[Signals]:
        """The signals of the pods that Argo has recreated since the last call, uncounted, oldest first."""
        return [self._signals_of(pod) for pod in self._replaced.pop(node_name, ())]

    def host(self, node_name: str) -> str:
        """The machine of an Argo node's pod; empty if it has none, or was never seen."""
        pod = self._pods.get(node_name)
        return "" if pod is None else _host(pod.last)

    def _signals_of(self, pod: _Pod) -> Signals:
        host = _host(pod.last)
        last = LastSeen(pod.last, self._nodes.get(host), pod_gone=pod.is_gone, node_gone=host in self._gone)
        pool = self._pools.get(self.pool(host))
        return signals_of_evidence(last, spot=None if pool is None else pool.is_spot)

    def attempt(self, node_name: str) -> PodAttempt | None:
        """The newest attempt of an Argo node's pod, with Kubernetes' times; ``None`` if the pod was never seen."""
        pod = self._pods.get(node_name)
        return None if pod is None else list(attempts_of(pod.last, is_gone=pod.is_gone))[-1]

    def requests(self, node_name: str) -> Resources:
        """The requests of an Argo node's pod."""
        pod = self._pods.get(node_name)
        return {} if pod is None else requests_of(pod.last)

    def offers(self, host: str) -> Mapping[str, int]:
        """The capacity of a configured pool's machine, if the configuration does not give it."""
        return offers_of(self._nodes.get(host), self._pools[self.pool(host)])

    def pool(self, host: str) -> str:
        """The configured pool of a machine; empty if it matches none, or cannot be read."""
        if host not in self._nodes:
            return ""
        pool = providers.pool_of((self._nodes[host].get("metadata") or {}).get("labels") or {}, self._pools)
        return pool.name if pool is not None else ""


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid", ""))


def _host(pod: Mapping[str, Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _has_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


_EARLIER = "an earlier run"
_NOT_TOLD = "KFP reports a failure without a reason"


class Recorder:
    """Records one run. ``add`` folds an event into ``state`` and keeps it. ``pods``: where Kubernetes shows them too."""

    def __init__(self, state: RunState, add: Callable[[Event], None]) -> None:
        self._state, self._add = state, add
        self.pods: PodsSeen | None = None
        self._now = self._ahead = 0.0

    def _past(self, moment: float | None) -> float:
        """A moment of the server on our clock."""
        return self._now if moment is None else min(max(moment - self._ahead, self._state.started_at), self._now)

    def record(self, seen: Mapping[str, SeenTask], now: float, ahead: float = 0.0) -> None:
        """Add every event that follows from these tasks: first of tasks without inner tasks, then of finished pipelines.

        ``ahead``: seconds that the clock of these tasks is ahead of ours. Events are never in the future or before the run.
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
        """Add output parameters of tasks, by path; the pipelines around them follow."""
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

    def finish(self, status: RunStatus, why: str, now: float, at: float | None = None) -> None:
        """End the run and its remaining attempts. ``at``: when KFP says that it ended, by the server's clock."""
        self._now = now
        if status is RunStatus.CANCELLED and not self._state.cancelling:
            self._add(CancelRequested(now))
        for task in self._state.tasks.values():
            if task.attempts and task.last.is_live:
                self._add(AttemptEnded(now, task.path, task.last.number))
            if task.is_unjudged and not task.status.is_final:
                self._stop(task)
            if status is RunStatus.SUCCEEDED and task.attempts and _ended_early(task.last):
                status, why = RunStatus.FAILED, f"{task.path}: {task.last.following}"
        attempts = [attempt for task in self._state.tasks.values() for attempt in task.attempts]
        ends = [attempt.ended_at for attempt in attempts if attempt.ended_at is not None]
        self._add(RunFinished(max([self._past(at), *ends]), status=status, why=why))

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
                self._add(TaskSkipped(self._now, task.path, why=seen.node.message or "KFP skipped it"))
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
            why = f"its driver failed: {seen.failed_driver or 'KFP does not say why'}"
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
        """The newest attempt of a try, which is made if missing: Argo may recreate the pod of one try.

        An answer with the tries and one with only the task mean the same attempt.
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
        """End an attempt whose pod Argo has recreated uncounted, and begin the next one."""
        if not attempt.is_live:
            return attempt
        self._add(AttemptEnded(self._now, task.path, attempt.number, signals=signals))
        following = "Argo recreates its pod, without counting a retry"
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
            self._bind(task, attempt, node)

    def _bind(self, task: TaskState, attempt: AttemptState, node: Node) -> None:
        """Record the machine of an attempt: as its pod shows it, as the controller records it, else as Argo reports it."""
        pods = self.pods
        if pods is None:
            self._add(AttemptBound(attempt.placed_at, task.path, attempt.number, node=node.host, pool=""))
            return
        host = pods.host(node.name) or node.host
        pool, made = pods.pool(host) if host else "", pods.attempt(node.name)
        bound_at = None if made is None else made.bound_at
        at = attempt.placed_at if bound_at is None else max(self._past(bound_at), attempt.placed_at)
        if pool and host not in self._state.nodes:
            self._add(NodeChanged(at, node=host, pool=pool, state="ready", offers=pods.offers(host)))
        self._add(AttemptBound(at, task.path, attempt.number, node=host, pool=pool, requests=pods.requests(node.name)))

    def _end(self, task: TaskState, attempt: AttemptState, node: Node, seen: SeenTask, *, is_last: bool) -> None:
        has_succeeded = is_last and seen.node.phase == "Succeeded"
        signals = self._signals(node, has_succeeded=has_succeeded)
        artifacts: Mapping[str, Any] = seen.artifacts if has_succeeded else {}
        made = None if self.pods is None else self.pods.attempt(node.name)
        ended_at = node.finished_at if made is None or made.ended_at is None else made.ended_at
        at = max(self._past(ended_at), attempt.bound_at or attempt.placed_at)
        progress = signals.progress
        self._add(AttemptEnded(at, task.path, attempt.number, signals=signals, artifacts=artifacts, progress=progress))
        is_explained = bool(node.message) or signals.cancelled or signals.containers or signals.pod_deleted
        if not has_succeeded and not is_explained:
            if is_last:
                self._add(TaskFailed(self._now, task.path, why=_NOT_TOLD))
            return
        then, following = FollowUp.RETRY, "KFP retries it"
        if has_succeeded:
            early = ended_early(signals)
            then, following = FollowUp.SUCCEED, why_early("KFP step") if early else "the task has succeeded"
        elif signals.cancelled:
            then, following = FollowUp.CANCEL, "nothing: the run was cancelled"
        elif is_last:
            then, following = FollowUp.FAIL, f"{classify(signals).cause}, and KFP does not retry it"
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
        """The signals of an end: of its pod and machine if Kubernetes showed them, else Argo's status."""
        argo = signals_of(node, cancelled=self._state.cancelling)
        seen = None if self.pods is None else self.pods.signals(node.name)
        if seen is None or (has_succeeded and not has_work_left(seen.progress)):
            return argo
        return seen._replace(cancelled=argo.cancelled, timed_out=seen.timed_out or argo.timed_out)


def _ended_early(attempt: AttemptState) -> bool:
    return attempt.ended is not None and ended_early(attempt.ended.signals)


def _typed(value: Any, kind: str) -> Any:
    """A value of the declared type, because the store has only one type of number."""
    try:
        return coerce(value, kind) if kind else value
    except ValueError:
        return value
