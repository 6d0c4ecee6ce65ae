"""Compares what the cluster shows of a workload with what its journal has, and records the difference.

Every look begins with the whole picture, so a look may be lost (kill -9, a full disk) or happen twice: the journal tells by the
keys of attempts what it has already. Times are those that Kubernetes wrote, moved only where its clocks contradict each other: an
attempt never ends before it began, and nothing happens in the future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import node_pool_of
from spotwright.cluster.autoscaler_words import DEFAULT_LIMIT
from spotwright.cluster.run_store import WorkloadRun
from spotwright.cluster.signals import LastSeen, PodWaits, signals_of, waits_for
from spotwright.cluster.view import ClusterView, NodePool, SeenPod, offers_of, pool_of_node
from spotwright.cluster.workloads import (
    PodAttempt,
    TaskName,
    attempts_of,
    gang_of,
    has_policy,
    metadata,
    outcome_of,
    retries_of,
    task_name,
    template_of_pod,
    uid_of,
)
from spotwright.engine.decide import after_waiting, close_ended
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptWaits,
    CancelRequested,
    Event,
    NodeChanged,
    NoteAdded,
    NoticeGiven,
    NoticeWithdrawn,
    RunFinished,
    RunStatus,
    TaskStatus,
)
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.engine.waits import (
    CANNOT_GROW,
    NEVER_COMES,
    NO_NODE,
    NO_SCALE_UP,
    NODE_ORDERED,
    ORDERS_UNKNOWN,
    ordered_for,
)
from spotwright.model.attempts import Cause, Signals
from spotwright.model.policy import BUILT_IN
from spotwright.model.quantities import format_duration
from spotwright.notices.notice import Notice
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import classify

__all__ = ["Decide", "OnRecorded", "Recorder"]


OnRecorded = Callable[[WorkloadRun, SeenPod, bool], None]
"""Hears of each pod whose state the journal has; the flag says that its node does not report any more."""

Decide = Callable[[ClusterView, RunState, SeenPod, TaskState, AttemptState, float], Iterable[Event]]
"""Decides about the newest attempt of a pod at a moment; the answer is recorded with what was seen, in one transaction."""

_ATTEMPT, _OPEN, _REFUSED, _RUNG, _WHY = (
    f"spotwright.dev/{name}" for name in ("attempt", "open", "refused", "rung", "why")
)
_LONGEST_WHY, _LONGEST_NAME, _MOST_POOLS = 1000, 63, 100  # annotations are of whoever makes the pod
_FORGOTTEN = "the watcher was away when it ended, and Kubernetes no longer has its pod"


class Recorder:
    """Records one workload. ``now`` is the API server's clock.

    ``order_limit`` is in seconds: an attempt for which nodes were on their way for so long waits for none that are ordered later.
    """

    def __init__(
        self,
        run: WorkloadRun,
        view: ClusterView,
        now: float,
        decide: Decide = lambda *_: (),
        order_limit: float = DEFAULT_LIMIT,
    ) -> None:
        self._run, self._view, self._now, self._decide = run, view, now, decide
        self._order_limit = order_limit

    @property
    def _state(self) -> RunState:
        return self._run.state

    @property
    def _known(self) -> Mapping[str, tuple[TaskState, AttemptState]]:
        return self._run.attempts

    def record(self, pods: Sequence[SeenPod], root: Mapping[str, Any] | None, *, are_all: bool) -> None:
        """Add all events that follow from these pods of the workload, in the order in which the pods were made.

        ``are_all``: the workload has no other pods, so an attempt without one has ended. ``root`` is the workload's object; None:
        the API does not have it any more.
        """
        if self._view.is_going(str(self._state.meta.arguments.get("namespace", ""))):
            self._cancel()  # a Job calls it a failure of its own that somebody else deletes its pods
        for seen in sorted(pods, key=_made_first):
            if _is_refused(seen.pod):
                self._note_refusal(seen)
                continue
            is_cut_off = not seen.is_gone and self._view.is_cut_off(seen.pod)
            for attempt in attempts_of(seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off):
                self._one(seen, attempt)
            for event in self._decide(self._view, self._state, seen, *self._known[attempt.key], self._now):
                self._run.add(event)
        if are_all:
            self._end_forgotten({key for seen in pods for key in _keys(seen)}, is_deleted=root is None)
        self._notices(self._state.nodes if are_all else {_node_of(seen) for seen in pods})
        self._nodes_gone()
        self._finish(root)

    # An attempt

    def _one(self, seen: SeenPod, attempt: PodAttempt) -> None:
        if attempt.key not in self._known:
            self._adopt(seen, attempt)
        task, recorded = self._known[attempt.key]
        if recorded.bound_at is None and recorded.is_live and attempt.bound_at is not None:
            self._bind(seen, task, recorded, attempt.bound_at)
        if recorded.cause is Cause.LOST:
            self._note_return(task, recorded)
        if recorded.is_live and not attempt.has_ended:
            self._note_wait(seen, task, recorded)
        if recorded.is_live and attempt.has_ended and self._view.is_settled(seen.pod):
            self._learn_retries(seen, task)
            self._end(seen, task, recorded, attempt)

    def _adopt(self, seen: SeenPod, attempt: PodAttempt) -> None:
        name = task_name(seen.pod, seen.owners)
        path = self._free_slot(name)
        at = self._past(attempt.made_at)
        if name.template not in self._state.plan.graph.root.tasks:
            known = self._state.plan.described
            self._run.extend(at, template=template_of_pod(name.template, seen.pod, seen.owners, known))
        earlier = self._state.tasks[path].attempts if path in self._state.tasks else ()
        gang = gang_of(seen.pod, seen.owners, [attempt.gang for attempt in earlier])
        rung, pools = self._rung(seen.pod, path, name.template)
        annotations = metadata(seen.pod).get("annotations") or {}
        pod = str(metadata(seen.pod).get("name", ""))
        self._run.add(
            AttemptAdopted(
                at,
                path,
                len(earlier) + 1,
                key=attempt.key,
                template=name.template,
                pod=pod,
                rung=rung,
                pools=pools,
                gang=gang,
                is_open=_OPEN in annotations,
                why=str(annotations.get(_WHY, ""))[:_LONGEST_WHY],
            )
        )

    def _free_slot(self, name: TaskName) -> str:
        """The path of the task: of pods that are alike, the first that has not succeeded and has no live attempt."""
        if name.slots == 1:
            return name.path
        for slot in range(name.slots):
            task = self._state.tasks.get(f"{name.path}-{slot}")
            if task is None or (task.status is not TaskStatus.SUCCEEDED and not task.last.is_live):
                return f"{name.path}-{slot}"
        return f"{name.path}-{name.slots - 1}"

    def _rung(self, pod: Mapping[str, Any], path: str, template: str) -> tuple[int, tuple[str, ...]]:
        """The rung that the pod was admitted for; without a webhook the one that was decided, which nothing enforces."""
        planned = self._state.plan.instance(template, path)
        rungs = planned.ladder.rungs
        given = str((metadata(pod).get("annotations") or {}).get(_RUNG, "")).split(",")
        admitted = tuple(dict.fromkeys(name[:_LONGEST_NAME] for name in given if name))[:_MOST_POOLS]
        if admitted:
            return next((index for index, rung in enumerate(rungs) if rung.pools == admitted), 0), admitted
        task = self._state.tasks.get(path)
        rung = (task.next_rung or 0) if task is not None else 0
        return (rung, rungs[rung].pools) if rung < len(rungs) else (0, tuple(self._state.plan.config.pools))

    def _bind(self, seen: SeenPod, task: TaskState, recorded: AttemptState, bound_at: float) -> None:
        at = max(self._past(bound_at), recorded.placed_at)
        name = str(seen.pod["spec"]["nodeName"])
        pool = pool_of_node(self._view.node(name), self._state.plan.config.pools)
        if pool.name not in self._state.plan.config.pools:
            self._run.extend(at, pool=pool)
        known = self._state.nodes.get(name)
        if known is None or known.state == "gone":
            offers = offers_of(self._view.node(name), self._state.plan.config.pools[pool.name])
            self._run.add(NodeChanged(at, node=name, pool=pool.name, state="ready", offers=offers))
        self._name_stranger(name, pool)
        self._run.add(AttemptBound(at, task.path, recorded.number, node=name, pool=self._state.nodes[name].pool))

    def _name_stranger(self, node: str, pool: NodePool) -> None:
        """Say once in a run that a node fits no pool of the configuration, where the configuration tells its pools' labels."""
        if pool.is_configured or not any(providers.labels(each) for each in self._state.plan.config.pools.values()):
            return
        begin = "fits no pool of the configuration by its labels"
        if not any(begin in note and f"pool {pool.name}," in note for note in self._state.notes):
            text = f"node {node} {begin}: it counts as pool {pool.name}, whose price is not known"
            self._run.add(NoteAdded(self._now, text=text))

    def _note_return(self, task: TaskState, recorded: AttemptState) -> None:
        """Say once that the node of a lost attempt is back. The attempt stays lost: its successor exists by that decision."""
        begin = f"attempt {recorded.number} of {task.path} counts as lost, and its node"
        if recorded.node is None or not self._view.is_ready(recorded.node):
            return
        if not any(note.startswith(begin) for note in self._state.notes):
            ran_on = "it may have run on, beside the next attempt, until its pod was stopped"
            self._run.add(NoteAdded(self._now, text=f"{begin} {recorded.node} reports again: {ran_on}"))

    def _note_refusal(self, seen: SeenPod) -> None:
        """Say once which budget is spent. The pod is no attempt: nothing of the user's runs in it, and it spends no budget."""
        annotations = metadata(seen.pod).get("annotations") or {}
        path = task_name(seen.pod, seen.owners).path
        text = f"attempt {annotations.get(_ATTEMPT, '')} of {path} was refused: {annotations.get(_WHY, '')}"
        if text not in self._state.notes:
            self._run.add(NoteAdded(self._now, text=text))

    def _note_wait(self, seen: SeenPod, task: TaskState, recorded: AttemptState) -> None:
        """Record why an attempt waits. Words change with each try of the scheduler: there only another kind of reason is news."""
        waits = waits_for(seen.pod)
        if waits.kind == NO_NODE:
            waits = self._told(seen, recorded, waits)
        is_another_order = waits.kind == NODE_ORDERED and str(waits) != recorded.waits
        if waits.kind != recorded.waits.partition(":")[0] or is_another_order:
            is_first, is_told = not recorded.waits, waits.kind in (NODE_ORDERED, CANNOT_GROW, NO_SCALE_UP)
            earliest = max(recorded.placed_at, recorded.waits_since or 0.0)
            at = max(earliest, self._past(waits.since)) if is_first or is_told else self._now
            self._run.add(AttemptWaits(at, task.path, recorded.number, why=str(waits)))

    def _told(self, seen: SeenPod, recorded: AttemptState, waits: PodWaits) -> PodWaits:
        """What the autoscalers say of a pod that is unschedulable; the scheduler's word if they say nothing that counts."""
        pools = self._state.plan.described
        told = self._view.words.of(seen.pod, recorded.pools, pools, self._now)
        if told is None:
            return waits
        if told.kind == NODE_ORDERED and ordered_for(recorded, self._now) >= self._order_limit:
            goes_on = any(not node_pool_of(pools[name]) for name in recorded.pools if name in pools)
            if not (recorded.is_open and goes_on):  # the cluster autoscaler gives an order up, and takes the next pool
                return PodWaits(
                    NEVER_COMES, f"{told.words} for {format_duration(self._order_limit)}, and none has come"
                )
        return waits._replace(kind=told.kind) if told.kind == ORDERS_UNKNOWN else told

    def _learn_retries(self, seen: SeenPod, task: TaskState) -> None:
        """Take the retries of a task into the plan, where its controller's objects tell them only now."""
        template = self._run.template(task.plan.spec.name)
        if template is not None and template.retries is None and not has_policy(template.labels, template.annotations):
            retries = retries_of(seen.pod, seen.owners)
            if retries is not None:
                self._run.extend(self._now, template=replace(template, retries=retries))

    def _end(self, seen: SeenPod, task: TaskState, recorded: AttemptState, attempt: PodAttempt) -> None:
        at = max(self._past(attempt.ended_at), recorded.bound_at or recorded.placed_at)
        signals = self._signals(seen, recorded, attempt.restart) if attempt.is_known else Signals(heard=False)
        self._close(AttemptEnded(at, task.path, recorded.number, signals=signals, started_at=attempt.bound_at))

    def _signals(self, seen: SeenPod, recorded: AttemptState, restart: int) -> Signals:
        node = self._view.node(recorded.node) if recorded.node else None
        last = LastSeen(
            seen.pod,
            node,
            seen.owners,
            pod_gone=seen.is_gone,
            node_gone=recorded.node is not None and self._view.is_node_gone(recorded.node),
            node_events=self._view.events_of(recorded.node) if recorded.node else (),
            waited=self._view.waited(uid_of(seen.pod)),
        )
        notice = self._notice(recorded)
        pool = self._state.plan.config.pools.get(recorded.pool or "")
        return signals_of(last, notice=notice, restart=restart, spot=None if pool is None else pool.is_spot)

    def _close(self, ended: AttemptEnded) -> None:
        """Record an end and its cause. The task's next attempt may be there already; then nothing is left to decide."""
        task = self._state.tasks[ended.task]
        if ended.attempt < task.last.number:
            self._judge(ended, FollowUp.RETRY, "the next attempt had been made before it ended")
            return
        self._run.add(ended)
        for decision in close_ended(self._state, Snapshot(), max(self._now, ended.at)):
            self._run.add(self._honest(task, decision))

    def _honest(self, task: TaskState, decision: Event) -> Event:
        """The decision, with other words where the last error ends the task by our count alone: nobody said how many it has."""
        if (
            not isinstance(decision, AttemptDecided)
            or decision.then is not FollowUp.FAIL
            or not decision.cause.is_error
        ):
            return decision
        spec = task.plan.spec
        is_known = task.plan.policy.sources.get("errors.retries") != BUILT_IN.source
        if is_known or has_policy(spec.labels, spec.annotations):
            return decision
        kind = self._state.meta.orchestrator or "controller"
        return decision.replaced(following=f"whether it is tried again, its {kind} decides: its retries are not known")

    def _judge(self, ended: AttemptEnded, then: FollowUp, following: str) -> None:
        """Record an end with its cause, and what follows where that is no decision of ours."""
        self._run.add(ended)
        signals = ended.signals
        if signals.outputs_complete is None:
            signals = signals._replace(outputs_complete=True)
        waited = after_waiting(self._state.tasks[ended.task].attempts[ended.attempt - 1])
        ending = classify(signals) if waited is None else waited[0]
        self._run.add(
            AttemptDecided(
                max(self._now, ended.at),
                ended.task,
                ended.attempt,
                cause=ending.cause,
                why=ending.why,
                then=then,
                following=following,
                evidence=ending.evidence,
            )
        )

    def _end_forgotten(self, keys: set[str], *, is_deleted: bool) -> None:
        """End attempts whose pods are gone, and whose end nobody saw. ``is_deleted``: the workload is gone as well."""
        for key, (task, recorded) in list(self._known.items()):
            if recorded.is_live and key not in keys:
                signals = Signals(heard=False, message=_FORGOTTEN)
                self._run.add(NoteAdded(self._now, text=f"attempt {recorded.number} of {task.path}: {_FORGOTTEN}"))
                ended = AttemptEnded(self._now, task.path, recorded.number, signals=signals, settled=True)
                if is_deleted:
                    self._cancel()
                    self._judge(ended, FollowUp.CANCEL, f"nothing: {self._state.meta.pipeline} was deleted")
                else:
                    self._close(ended)

    # Nodes

    def _notices(self, names: Iterable[str]) -> None:
        """Record the notices of these nodes. A change of a node looks at each of its pods, so no other node is due."""
        for name in names:
            node = self._state.nodes.get(name)
            if node is None:
                continue
            if node.noticed_at is not None and node.notices and node.notices[-1] in self._view.withdrawn(name):
                self._run.add(NoticeWithdrawn(self._now, node=name, id=node.notices[-1]))
            notice = self._news(name, node)
            if notice is None or node.state == "gone":
                continue
            live = tuple(
                (task.path, attempt.number)
                for task in self._state.tasks.values()
                for attempt in task.attempts
                if attempt.is_live and attempt.node == name and (attempt.bound_at or 0.0) <= notice.ends_at
            )
            if live:
                goes_at, why = notice.ends_at, notice.reason
                self._run.add(NoticeGiven(self._now, node=name, goes_at=goes_at, attempts=live, why=why, id=notice.id))

    def _news(self, name: str, node: NodeState) -> Notice | None:
        """A notice of a node that is not recorded: its agent's, by the source's id, else what the node's conditions say."""
        told = self._view.told(name)
        if told is not None and told.notice.kind == "interruption" and told.id not in node.notices:
            return told.notice
        return self._view.notice(name) if node.noticed_at is None else None

    def _notice(self, recorded: AttemptState) -> Notice | None:
        """The notice of an ended attempt, if it was told one: also one whose signs have left the node since."""
        if recorded.node is None or recorded.noticed_at is None:
            return None
        told = self._view.told(recorded.node)
        return told.notice if told is not None else self._view.notice(recorded.node)

    def _nodes_gone(self) -> None:
        gone = [node for name, node in self._state.nodes.items() if self._view.is_node_gone(name)]
        for node in gone:
            if node.state != "gone":
                self._run.add(
                    NodeChanged(
                        self._now, node=node.name, pool=node.pool, state="gone", why="its Node object was deleted"
                    )
                )

    # The run

    def _finish(self, root: Mapping[str, Any] | None) -> None:
        """Record the end of the workload once all of its attempts have ended."""
        live = any(attempt.is_live for task in self._state.tasks.values() for attempt in task.attempts)
        if self._run.is_over or live:
            return
        outcome = outcome_of(root) if root is not None else None
        if outcome is not None and outcome.status is RunStatus.FAILED and self._state.cancelling:
            self._run.add(RunFinished(self._now, status=RunStatus.CANCELLED, why="its namespace was deleted"))
        elif outcome is not None:
            if outcome.status is RunStatus.CANCELLED:
                self._cancel()
            self._run.add(RunFinished(self._now, status=outcome.status, why=outcome.why))
        elif root is None:
            self._finish_without_word()

    def _finish_without_word(self) -> None:
        """The object is gone, and nobody saw its end: it has succeeded if all of its tasks have."""
        tasks = self._state.tasks.values()
        if tasks and all(task.status.is_good for task in tasks):
            self._run.add(RunFinished(self._now, status=RunStatus.SUCCEEDED))
            return
        self._cancel()
        why = f"{self._state.meta.pipeline} was deleted before it had ended"
        self._run.add(RunFinished(self._now, status=RunStatus.CANCELLED, why=why))

    def _cancel(self) -> None:
        if not self._state.cancelling:
            self._run.add(CancelRequested(self._now))

    def _past(self, at: float | None) -> float:
        """A time that Kubernetes wrote, or now; a clock that is ahead cannot put anything into the future."""
        return self._now if at is None else min(at, self._now)


def _is_refused(pod: Mapping[str, Any]) -> bool:
    """Whether the webhook admitted the pod in the place of an attempt for which no budget is left."""
    return (metadata(pod).get("annotations") or {}).get(_REFUSED) == "true"


def _keys(seen: SeenPod) -> list[str]:
    return [attempt.key for attempt in attempts_of(seen.pod)]


def _node_of(seen: SeenPod) -> str:
    return str((seen.pod.get("spec") or {}).get("nodeName", ""))


def _made_first(seen: SeenPod) -> tuple[str, str]:
    meta = metadata(seen.pod)
    return str(meta.get("creationTimestamp", "")), str(meta.get("name", ""))
