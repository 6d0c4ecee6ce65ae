"""Compares the cluster's state of a workload with its journal, and records the difference.

Every look starts from the full state, so a look may be lost (kill -9, a full disk) or repeated: by the keys of attempts the
journal shows what it already has. Times are Kubernetes', adjusted only if its clocks contradict each other: an attempt never
ends before it began, and events are never in the future.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.providers import node_pool_of
from spotwright.cluster.admit_objects import ATTEMPT_ANNOTATION, MOST_STEPS, Admission
from spotwright.cluster.admit_unplaced import LATE, UNPLACED, is_of_a_run, note_of, place_at_pod, why_unplaced
from spotwright.cluster.autoscaler_status import DEFAULT_LIMIT
from spotwright.cluster.katib_trials import METRICS_NOTE, may_lose_metrics, trial_of, trial_values
from spotwright.cluster.last_proofs import End, last_proof
from spotwright.cluster.run_store import WorkloadRun
from spotwright.cluster.signals import (
    LastSeen,
    PodWaits,
    boot_of,
    given_up_at,
    has_lost_node,
    has_not_started,
    how_cancelled,
    how_suspended,
    signals_of,
    started_at,
    untold_until,
    waits_for,
)
from spotwright.cluster.task_objects import key_of_path
from spotwright.cluster.unseen_pods import UnseenPod, path_of
from spotwright.cluster.view import ClusterView, NodePool, SeenPod, offers_of, pool_of_node
from spotwright.cluster.workloads import (
    Outcome,
    PodAttempt,
    TaskName,
    attempts_of,
    failed_step,
    gang_of,
    has_policy,
    last_step,
    outcome_of,
    pods_of_job,
    requests_of,
    retries_of,
    task_name,
    template_of_pod,
)
from spotwright.config import Config
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
    OutputsRead,
    RunFinished,
    RunStatus,
    TaskCompleted,
    TaskFailed,
    TaskStatus,
)
from spotwright.engine.next_rung import Snapshot, expected_rung, rung_after
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
from spotwright.kinds.kind import Retry, run_kind
from spotwright.kube.object_fields import mapping, metadata, seconds, uid_of
from spotwright.manifests.pod_graph import PodTask
from spotwright.model.attempts import Cause, Signals
from spotwright.model.policy import BUILT_IN
from spotwright.model.quantities import format_duration
from spotwright.notices.notice import Notice
from spotwright.placing.patch import Steps
from spotwright.scheduling.budgets import FollowUp
from spotwright.scheduling.cause import classify, ended_early

__all__ = ["Decide", "FindAdmission", "OnRecorded", "PodReconciler", "why_early"]


OnRecorded = Callable[[WorkloadRun, SeenPod, bool], None]
"""Called with each recorded pod; the flag says that its node no longer reports."""

Decide = Callable[[ClusterView, RunState, SeenPod, TaskState, AttemptState, float], Iterable[Event]]
"""Decides about a pod's newest attempt at a time; the decision is recorded with the observation, in one transaction."""

FindAdmission = Callable[[Mapping[str, Any], str], Admission | None]
"""The stored decision about a pod of the workload with this UID; None: no review changed the pod."""

_LONGEST_WHY = 1000
_REFUSAL = " was refused: "
_ROUNDED = 2.0  # seconds: Kubernetes writes whole ones, of two clocks
_FORGOTTEN = "the watcher was away when it ended, and Kubernetes no longer has its pod"


_MOST_UNPLACED = 50  # notes in a run
_MOST_TRIED = 5  # pods without a policy per run that are placed tentatively: a Workflow takes a tenth of a second
_END_WITH_143 = (
    "let the code end with 143 when work is left, as spotwright.checkpoint does; spotwright rehearse shows how it ends"
)


def why_early(kind: str) -> str:
    """Why a task failed whose last attempt exited with 0 with work left, and the fix. ``kind``: the controller's kind."""
    return (
        f"it exited with 0 with work left, and its {kind} counts that as done: start it again to resume from its last "
        f"save, and {_END_WITH_143}"
    )


class PodReconciler:
    """Records one workload. ``now`` is the API server's clock.

    ``order_limit`` is in seconds: an attempt whose nodes were being provisioned for that long does not wait for later orders.
    ``admission`` finds the decision about a pod, whose annotations are untrusted. ``config`` is its namespace's current
    configuration, for pods that should have been placed. ``unseen`` are pods that were created and deleted unrecorded, in the
    order of their numbers.
    """

    def __init__(
        self,
        run: WorkloadRun,
        view: ClusterView,
        now: float,
        decide: Decide = lambda *_: (),
        order_limit: float = DEFAULT_LIMIT,
        admission: FindAdmission = lambda *_: None,
        config: Config | None = None,
        unseen: Sequence[UnseenPod] = (),
    ) -> None:
        self._run, self._view, self._now, self._decide = run, view, now, decide
        self._order_limit, self._admission, self._config = order_limit, admission, config
        self._unseen = [*unseen]
        self._root: Mapping[str, Any] = {}  # the workload's object
        self._outcome: Outcome | None = None
        self._how_ended = ""  # how the user ended the workload, in words
        self._was_cancelled = False  # before this look

    @property
    def _state(self) -> RunState:
        return self._run.state

    @property
    def _known(self) -> Mapping[str, tuple[TaskState, AttemptState]]:
        return self._run.attempts

    def record(
        self, pods: Sequence[SeenPod], root: Mapping[str, Any] | None, *, are_all: bool, may_end: bool = True
    ) -> None:
        """Add all events from these pods of the workload, in order of the pods' creation.

        ``are_all``: the workload has no other pods, so an attempt without one has ended. ``root`` is the workload's object;
        None: the API no longer has it. ``may_end``: False while other pods of it are still to be recorded.
        """
        self._root = root or {}
        self._outcome, self._how_ended = _end_of(root, self._state)
        self._was_cancelled = self._state.cancelling
        if self._view.is_going(str(self._state.meta.arguments.get("namespace", ""))):
            self._how_ended = "its namespace was deleted"  # a Job reports the deletion of its pods as its failure
        if self._how_ended and root is not None and not self._run.is_over:
            self._cancel()
        for seen in sorted(pods, key=_made_first):
            admission = self._admission(seen.pod, self._run.uid)
            if admission is not None and admission.is_refused:
                self._note_refusal(seen, admission)
                continue
            is_cut_off = not seen.is_gone and self._view.is_cut_off(seen.pod)
            for attempt in attempts_of(seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off):
                self._one(seen, attempt, admission)
            self.tell_trial(trial_of(seen.owners))
            for event in self._decide(self._view, self._state, seen, *self._known[attempt.key], self._now):
                self._run.add(event)
        self._adopt_unseen()
        if are_all:
            self._end_forgotten({key for seen in pods for key in _keys(seen)})
        self._notices(self._state.nodes if are_all else {_node_of(seen) for seen in pods})
        self._nodes_gone()
        if may_end:
            self._finish(root)

    # An attempt

    def _one(self, seen: SeenPod, attempt: PodAttempt, admission: Admission | None) -> None:
        if attempt.key not in self._known:
            self._adopt(seen, attempt, admission)
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

    def _adopt(self, seen: SeenPod, attempt: PodAttempt, admission: Admission | None) -> None:
        name = task_name(seen.pod, seen.owners)
        at = self._past(attempt.made_at)
        if admission is not None and self._unseen:
            self._adopt_unseen(key_of_path(name.path), admission.number, at)
        path = self._free_slot(name)
        if name.template not in self._state.plan.graph.root.tasks:
            template = template_of_pod(
                name.template, seen.pod, seen.owners, () if admission is None else admission.pinned
            )
            self._run.add_template(at, template)
        earlier = self._state.tasks[path].attempts if path in self._state.tasks else ()
        gang = gang_of(seen.pod, seen.owners, [attempt.gang for attempt in earlier])
        rung, pools = self._rung(admission, path, name.template)
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
                is_open=admission is not None and admission.is_open,
                why="" if admission is None else admission.why[:_LONGEST_WHY],
            )
        )
        self._note_unplaced(seen)
        if earlier:
            self._note_metrics(seen)

    def _adopt_unseen(self, task: str = "", before: float = math.inf, at: float | None = None) -> None:
        """Add a task's attempts with unrecorded pods, below this number; without a task, all tasks'."""
        due = [one for one in self._unseen if task in ("", one.task) and one.number < before]
        for one in due:
            self._unseen.remove(one)
            path = path_of(one, self._state.tasks)
            known = self._state.tasks.get(path)
            template = one.task if known is None else known.plan.spec.name
            if template not in self._state.plan.graph.root.tasks:
                self._run.add_template(self._past(at), PodTask("Pod", template, {"containers": []}))
            number = 1 if known is None else len(known.attempts) + 1
            rung, pools = self._rung(None, path, template)
            self._run.add(
                AttemptAdopted(self._past(at), path, number, key=one.attempt, template=template, rung=rung, pools=pools)
            )

    def _note_metrics(self, seen: SeenPod) -> None:
        """Note once per run that Katib reads the metrics of a trial's last attempt, if that attempt may resume from a save."""
        trial = trial_of(seen.owners)
        if may_lose_metrics(trial, seen.pod) and not any(METRICS_NOTE in note for note in self._state.notes):
            text = f"trial {metadata(trial).get('name', '')} {METRICS_NOTE}"
            self._run.add(NoteAdded(self._now, text=text))

    def tell_trial(self, trial: Mapping[str, Any]) -> None:
        """Record the parameters and metrics of a Katib trial beside its tasks."""
        name, values = str(metadata(trial).get("name", "")), trial_values(trial)
        for path, task in self._state.tasks.items() if name else ():
            new = {key: value for key, value in values.items() if task.parameters.get(key) != value}
            if new and path.partition("/")[0] == name:
                self._run.add(OutputsRead(self._now, path, parameters=new))

    def _note_unplaced(self, seen: SeenPod) -> None:
        """Note a pod that was not placed by a review, and which parts are placed; only the first of very many."""
        noted = sum(UNPLACED in note for note in self._state.notes)
        why = why_unplaced(seen.pod)
        if not why and not noted and len(self._known) <= _MOST_TRIED:
            why = self._why_without_policy(seen)
        if why and noted < _MOST_UNPLACED:
            self._run.add(NoteAdded(self._now, text=f"{note_of(seen.pod)}{why}"))

    def _why_without_policy(self, seen: SeenPod) -> str:
        """The same for a pod without a policy that a review would have placed by its namespace's default policy."""
        if (
            self._config is None
            or ATTEMPT_ANNOTATION in (metadata(seen.pod).get("annotations") or {})
            or not is_of_a_run(seen.pod)
        ):
            return ""
        if place_at_pod(seen.pod, seen.owners, self._config, (), steps=Steps(MOST_STEPS)).placed is None:
            return ""
        return f"{LATE}, and so did its owner's: the owner's next pods will be placed, with the owner's own retries"

    def _free_slot(self, name: TaskName) -> str:
        """The path of the task: for identical pods, the first slot without a success or a live attempt."""
        if name.slots == 1:
            return name.path
        for slot in range(name.slots):
            task = self._state.tasks.get(f"{name.path}-{slot}")
            if task is None or (task.status is not TaskStatus.SUCCEEDED and not task.last.is_live):
                return f"{name.path}-{slot}"
        return f"{name.path}-{name.slots - 1}"

    def _rung(self, admission: Admission | None, path: str, template: str) -> tuple[int, tuple[str, ...]]:
        """The rung of the pod's admission; without a webhook the decided one, which is not enforced."""
        planned = self._state.plan.instance(template, path)
        rungs, rung = planned.ladder.rungs, expected_rung(self._state.tasks.get(path), planned)
        if admission is not None and admission.pools:
            index = next((index for index, one in enumerate(rungs) if one.pools == admission.pools), rung)
            return index, admission.pools
        return (rung, rungs[rung].pools) if rung < len(rungs) else (0, tuple(self._state.plan.config.pools))

    def _bind(self, seen: SeenPod, task: TaskState, recorded: AttemptState, bound_at: float) -> None:
        at = max(self._past(bound_at), recorded.placed_at)
        name = str(seen.pod["spec"]["nodeName"])
        pool = pool_of_node(self._view.node(name), self._state.plan.config.pools)
        if pool.name not in self._state.plan.config.pools:
            self._run.add_pool(at, pool)
        known = self._state.nodes.get(name)
        if known is None or known.state == "gone":
            offers = offers_of(self._view.node(name), self._state.plan.config.pools[pool.name])
            self._run.add(NodeChanged(at, node=name, pool=pool.name, state="ready", offers=offers))
        self._name_stranger(name, pool)
        requests = requests_of(seen.pod)
        own = {} if requests == task.plan.work.requests else requests
        self._run.add(
            AttemptBound(
                at,
                task.path,
                recorded.number,
                node=name,
                pool=self._state.nodes[name].pool,
                requests=own,
                boot=boot_of(self._view.node(name)),
            )
        )

    def _name_stranger(self, node: str, pool: NodePool) -> None:
        """Note once per run that a node matches no configured pool, if the configuration has its pools' labels."""
        if pool.is_configured or not any(providers.labels(each) for each in self._state.plan.config.pools.values()):
            return
        begin = "matches no configured pool by its labels"
        if not any(begin in note and f"pool {pool.name}," in note for note in self._state.notes):
            text = f"node {node} {begin}: it counts as pool {pool.name}, whose price is unknown"
            self._run.add(NoteAdded(self._now, text=text))

    def _note_return(self, task: TaskState, recorded: AttemptState) -> None:
        """Note once that a lost attempt's node is back. The attempt stays lost: its successor already exists."""
        begin = f"attempt {recorded.number} of {task.path} counts as lost, and its node"
        if recorded.node is None or not self._view.is_ready(recorded.node):
            return
        if not any(note.startswith(begin) for note in self._state.notes):
            ran_on = "it may have run beside the next attempt until its pod was stopped"
            self._run.add(NoteAdded(self._now, text=f"{begin} {recorded.node} reports again: {ran_on}"))

    def _note_refusal(self, seen: SeenPod, admission: Admission) -> None:
        """Note once which budget is spent. The pod is not an attempt: it runs no user code and spends no budget."""
        path = task_name(seen.pod, seen.owners).path
        text = f"attempt {admission.number} of {path}{_REFUSAL}{admission.why}"
        if text not in self._state.notes:
            self._run.add(NoteAdded(self._now, text=text))
        task = self._state.tasks.get(path)
        if task is not None and _awaits_another(task):
            self._run.add(TaskFailed(self._now, path, why=text.replace(f" of {path} was", " was", 1)))
        waits = waits_for(seen.pod)
        begin = f"the pod that shows this refusal of {path} does not start: {waits.kind}"
        if waits.kind and not any(note.startswith(begin) for note in self._state.notes):
            mend = "; start the controller with an image that the nodes can pull (--refusal-image)"
            text = f"{waits.words[:_LONGEST_WHY]}{mend if 'Image' in waits.kind else ''}"
            self._run.add(NoteAdded(self._now, text=f"{begin}: {text}"))

    def _note_wait(self, seen: SeenPod, task: TaskState, recorded: AttemptState) -> None:
        """Record why an attempt waits. The scheduler's message changes with each try, so only a new kind of reason counts."""
        waits = self._view.waits_of(seen.pod)
        if recorded.is_held_up and not waits.kind and has_not_started(seen.pod):
            return  # the obstacle may be gone, but it has not started yet
        if waits.kind == NO_NODE:
            waits = self._with_autoscaler_status(seen, recorded, waits)
        is_another_order = waits.kind == NODE_ORDERED and str(waits) != recorded.waits
        if waits.kind != recorded.waits.partition(":")[0] or is_another_order:
            is_first, is_from_autoscaler = not recorded.waits, waits.kind in (NODE_ORDERED, CANNOT_GROW, NO_SCALE_UP)
            earliest = max(recorded.placed_at, recorded.waits_since or 0.0)
            at = max(earliest, self._past(waits.since)) if is_first or is_from_autoscaler else self._now
            if recorded.is_held_up and not waits.kind:
                at = max(recorded.bound_at or 0.0, self._past(started_at(seen.pod)))
            self._run.add(AttemptWaits(at, task.path, recorded.number, why=str(waits)))

    def _with_autoscaler_status(self, seen: SeenPod, recorded: AttemptState, waits: PodWaits) -> PodWaits:
        """The autoscalers' status of an unschedulable pod; the scheduler's message if they have no relevant one."""
        pools = self._state.plan.described
        status = self._view.words.of(seen.pod, recorded.pools, pools, self._now)
        if status is None:
            return waits
        if status.kind == NODE_ORDERED and ordered_for(recorded, self._now) >= self._order_limit:
            goes_on = any(not node_pool_of(pools[name]) for name in recorded.pools if name in pools)
            if not (recorded.is_open and goes_on):  # the cluster autoscaler gives up an order, and tries the next pool
                return PodWaits(
                    NEVER_COMES, f"{status.words} for {format_duration(self._order_limit)}, without success"
                )
        return waits._replace(kind=status.kind) if status.kind == ORDERS_UNKNOWN else status

    def _learn_retries(self, seen: SeenPod, task: TaskState) -> None:
        """Add a task's retries to the plan, if its controller's objects show them only now."""
        spec = task.plan.spec
        is_known = spec.retry is not None and "errors.retries" in spec.retry.values
        if not is_known and not has_policy(spec.labels, spec.annotations):
            retries = retries_of(seen.pod, seen.owners)
            if retries is not None:
                self._run.learn_retries(self._now, spec.name, retries)

    def _end(self, seen: SeenPod, task: TaskState, recorded: AttemptState, attempt: PodAttempt) -> None:
        end = self._when_ended(seen, recorded, attempt)
        at, signals = end.at, Signals(heard=False)
        if attempt.is_known:
            signals = self._signals(seen, recorded, attempt.restart, end.by or at)
        if self._was_cancelled and not signals.outputs_complete:
            signals = signals._replace(cancelled=True, moved=self._how_ended)
        if signals.cancelled and self._how_ended:
            self._cancel()
        began_at = started_at(seen.pod) if recorded.is_held_up and attempt.is_known else None
        if began_at is not None:  # it was never seen running
            began_at = min(max(self._past(began_at), recorded.bound_at or 0.0), at)
            self._run.add(AttemptWaits(began_at, task.path, recorded.number, why=""))
        progress = signals.progress
        self._close(
            AttemptEnded(
                at,
                task.path,
                recorded.number,
                signals=signals,
                started_at=attempt.bound_at,
                progress=progress,
                ended_by=end.by,
                proof=end.proof,
            )
        )
        if signals.accepted_by_controller and recorded.cause is Cause.SUCCEEDED and progress is None:
            self._note_reported_success(task, recorded)

    def _note_reported_success(self, task: TaskState, recorded: AttemptState) -> None:
        """Note a success that only the controller reports: the code exited with 0 because it was asked to stop."""
        kind = self._state.meta.orchestrator or "controller"
        how = f"exited with 0 after SIGTERM, which its {kind} counts as done"
        text = f"attempt {recorded.number} of {task.path} {how}; unknown whether work was left: {_END_WITH_143}"
        self._run.add(NoteAdded(self._now, text=text))

    def _when_ended(self, seen: SeenPod, recorded: AttemptState, attempt: PodAttempt) -> End:
        """When an attempt ended: by its containers, else from the last proof of life until it was surely gone."""
        begun = recorded.bound_at or recorded.placed_at
        restarted_at = self._restarted_at(seen, attempt, begun)
        if restarted_at is None and attempt.ended_at is not None:
            return End(max(self._past(attempt.ended_at), begun))
        told_until = seconds(metadata(seen.pod).get("deletionTimestamp")) if seen.is_gone else None
        node = recorded.node
        is_lost = restarted_at is not None or has_lost_node(seen.pod) or (node is not None and self._view.is_lost(node))
        if not is_lost:
            return End(max(self._past(told_until), begun))
        marked_at = given_up_at(seen.pod)
        return self._last_proof(recorded, (marked_at, told_until), started_at(seen.pod), restarted_at)

    def _restarted_at(self, seen: SeenPod, attempt: PodAttempt, begun: float) -> float | None:
        """When an attempt's machine or container runtime restarted, if the attempt ended by then."""
        if not attempt.has_ended or not attempt.is_known:
            return None
        if unreported_at := untold_until(seen.pod, attempt.restart):
            return unreported_at
        node = self._view.node(str(mapping(seen.pod.get("spec")).get("nodeName", ""))) or {}
        created_at = seconds(metadata(node).get("creationTimestamp"))
        is_another = attempt.ended_at is None and created_at is not None and created_at > begun
        return created_at if is_another else None

    def _last_proof(
        self,
        recorded: AttemptState,
        absences: Iterable[float | None],
        began_at: float | None = None,
        restarted_at: float | None = None,
    ) -> End:
        """The end of an attempt that was not reported by a kubelet."""
        begun, node = recorded.bound_at or recorded.placed_at, recorded.node or ""
        proofs = {
            "its start": began_at,
            "its last report of progress": recorded.reported_at,
            "the last line of its log": self._view.last_line(recorded.key),
            "the Lease of its node": self._view.renewed_at(node),
            "the heartbeat of its node": self._view.heartbeat(node),
        }
        named = [each for each in self._state.all_nodes if each.name == node]
        gone = [each.gone_at for each in named if each.gone_at is not None and each.gone_at >= begun]
        absences = (*absences, *gone, self._view.silent_since(node))
        return last_proof(begun, proofs, absences, max(self._now, begun), restarted_at=restarted_at)

    def _signals(self, seen: SeenPod, recorded: AttemptState, restart: int, ended_at: float) -> Signals:
        node = self._view.node(recorded.node) if recorded.node else None
        last = LastSeen(
            seen.pod,
            node,
            seen.owners,
            pod_gone=seen.is_gone,
            node_gone=recorded.node is not None and self._view.is_node_gone(recorded.node),
            node_events=self._view.events_of(recorded.node) if recorded.node else (),
            waited=self._view.waited(uid_of(seen.pod)),
            boot=recorded.boot,
        )
        notice = self._notice(recorded, ended_at)
        pool = self._state.plan.config.pools.get(recorded.pool or "")
        return signals_of(last, notice=notice, restart=restart, spot=None if pool is None else pool.is_spot)

    def _close(self, ended: AttemptEnded) -> None:
        """Record an end and its cause. If the task's next attempt exists already, no decision is left."""
        task = self._state.tasks[ended.task]
        if ended.attempt < task.last.number:
            following = task.attempts[ended.attempt]
            early = following.placed_at + _ROUNDED < ended.at
            how = "was created before it ended" if early else f"is attempt {following.number}"
            self._judge(ended, FollowUp.RETRY, f"the next attempt {how}")
            return
        self._run.add(ended)
        for decision in close_ended(self._state, Snapshot(), max(self._now, ended.at)):
            self._run.add(_with_pools(task, self._honest(task, decision)))

    def _honest(self, task: TaskState, decision: Event) -> Event:
        """The decision, reworded where the controller decides instead.

        A suspended workload continues when its user resumes it; if the retries of a task are unknown, its last error ends it
        only by our count.
        """
        if isinstance(decision, AttemptDecided) and decision.cause is Cause.CANCELLED and not self._state.cancelling:
            return decision.replaced(following="again, once it is resumed")
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
        following = f"its {kind} decides whether to retry it: its retries are unknown"
        return decision.replaced(then=FollowUp.RETRY, rung=task.last.rung, following=following)

    def _judge(self, ended: AttemptEnded, then: FollowUp, following: str) -> None:
        """Record an end with its cause, and the next step if another component decides it."""
        self._run.add(ended)
        signals = ended.signals
        if signals.outputs_complete is None:
            signals = signals._replace(outputs_complete=True)
        task = self._state.tasks[ended.task]
        attempt = task.attempts[ended.attempt - 1]
        ending = after_waiting(attempt) or classify(signals)
        decided = AttemptDecided(
            max(self._now, ended.at),
            ended.task,
            ended.attempt,
            cause=ending.cause,
            why=ending.why,
            then=then,
            following=following,
            rung=rung_after(self._state, task, attempt, ending.cause) if then is FollowUp.RETRY else None,
            evidence=ending.evidence,
        )
        self._run.add(_with_pools(task, decided))

    def _end_forgotten(self, keys: set[str]) -> None:
        """End attempts whose pods are gone and whose end was not seen: at the last proof that they ran."""
        for key, (task, recorded) in list(self._known.items()):
            if recorded.is_live and key not in keys:
                signals = Signals(heard=False, message=_FORGOTTEN)
                self._run.add(NoteAdded(self._now, text=f"attempt {recorded.number} of {task.path}: {_FORGOTTEN}"))
                end = self._when_forgotten(task, recorded)
                if self._how_ended:
                    self._cancel()
                    signals = signals._replace(cancelled=True, moved=self._how_ended)
                elif self._root and (how := how_suspended([self._root], recorded.placed_at)):
                    signals = signals._replace(cancelled=True, moved=how)
                ended = AttemptEnded(
                    end.at,
                    task.path,
                    recorded.number,
                    signals=signals,
                    settled=True,
                    ended_by=end.by,
                    proof=end.proof,
                )
                if self._how_ended and recorded is task.last:
                    self._judge(ended, FollowUp.CANCEL, f"nothing: {self._how_ended}")
                else:
                    self._close(ended)

    def _when_forgotten(self, task: TaskState, recorded: AttemptState) -> End:
        """The end of an attempt whose pod vanished unseen: before the next attempt began, or the run ended."""
        after = [attempt.placed_at for attempt in task.attempts[recorded.number : recorded.number + 1]]
        end = None if self._outcome is None else self._outcome.at
        return self._last_proof(recorded, (*after, end))

    # Nodes

    def _notices(self, names: Iterable[str]) -> None:
        """Record the notices of these nodes. A node's change triggers a look at each of its pods, so other nodes are not due."""
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
        """An unrecorded notice of a node: its agent's, by the source's id, else from the node's conditions."""
        found = self._view.notice_of(name)
        if found is not None and found.notice.kind == "interruption" and found.id not in node.notices:
            return found.notice
        return self._view.notice(name) if node.noticed_at is None else None

    def _notice(self, recorded: AttemptState, ended_at: float) -> Notice | None:
        """The notice of an attempt before its end, even if its signs have since left the node."""
        if recorded.node is None or recorded.noticed_at is None:
            return None
        found = self._view.notice_of(recorded.node)
        if found is None:
            return self._view.notice(recorded.node)
        return found.notice if found.at <= ended_at + _ROUNDED else None

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
        """Record the end of the workload once all its attempts have ended."""
        live = any(attempt.is_live for task in self._state.tasks.values() for attempt in task.attempts)
        if self._run.is_over:
            return
        if root is not None and run_kind(root).retry is Retry.STEP:
            self._settle_steps(root)
        if live:
            return
        outcome = self._outcome
        if outcome is None and root is None:
            outcome = self._without_word()
        if outcome is not None and outcome.status is RunStatus.FAILED and self._state.cancelling:
            outcome = outcome._replace(status=RunStatus.CANCELLED, why=self._how_ended or outcome.why)
        if outcome is not None:
            self._settle(outcome)
            if outcome.status is RunStatus.SUCCEEDED and self._state.failed:  # it counts an exit with work left as done
                path = self._state.failed[0]
                why = f"task {path} failed: {self._state.tasks[path].why}"
                outcome = outcome._replace(status=RunStatus.FAILED, why=why)
            self._run.add(RunFinished(self._ends_at(outcome), status=outcome.status, why=self._why(outcome, root)))

    def _without_word(self) -> Outcome:
        """The outcome of a deleted object: from its last state, or if that was not seen, from its tasks.

        A Job whose tasks all succeeded may be deleted before it reports it. An object that would have created more pods did not
        succeed.
        """
        kind, namespace = self._state.meta.orchestrator, str(self._state.meta.arguments.get("namespace", ""))
        last = self._view.last_of_owner(kind, namespace, self._run.uid)
        outcome = None if last is None else outcome_of(last)
        if outcome is not None:
            return outcome
        tasks = self._state.tasks.values()
        are_all_good = bool(tasks) and all(task.status.is_good for task in tasks)
        makes_more = run_kind({"kind": kind}).retry in (Retry.STEP, Retry.TRIAL)
        if are_all_good and not makes_more and (last is None or len(tasks) >= pods_of_job(last)):
            return Outcome(RunStatus.SUCCEEDED, "")
        so_far = f": {len(tasks)} of its tasks succeeded" if are_all_good else ""
        return Outcome(RunStatus.CANCELLED, f"{self._state.meta.pipeline} was deleted before it ended{so_far}")

    def _ends_at(self, outcome: Outcome) -> float:
        """When the run ended: by its object or its last pod, whichever is later."""
        ends = [
            each.ended_at for task in self._state.tasks.values() for each in task.attempts if each.ended_at is not None
        ]
        return max([self._state.started_at, *ends, *([] if outcome.at is None and ends else [self._past(outcome.at)])])

    def _settle_steps(self, workflow: Mapping[str, Any]) -> None:
        """End the tasks that Argo does not retry, regardless of budgets: only Argo decides about drivers and importers."""
        paths = dict.fromkeys([*self._state.todo, *(path for _, path in self._state.timers)])
        tasks = [self._state.tasks[path] for path in paths if path in self._state.tasks]
        for task in filter(_awaits_another, tasks):  # only these: a look at one pod of thousands needs none
            step = last_step(workflow, task.path)
            if step is not None and step.is_over:
                self._end_task(task, is_good=step.is_good, words=step.message)

    def _settle(self, outcome: Outcome) -> None:
        """End the tasks that wait for another attempt, which a finished run will not have."""
        if outcome.status is RunStatus.CANCELLED:
            self._cancel()  # the end of the run ends them
            return
        for task in filter(_awaits_another, list(self._state.tasks.values())):
            self._end_task(task, is_good=outcome.status is RunStatus.SUCCEEDED, words=outcome.why)

    def _end_task(self, task: TaskState, *, is_good: bool, words: str) -> None:
        kind = self._state.meta.orchestrator or "controller"
        if is_good and task.last.ended is not None and ended_early(task.last.ended.signals):
            self._run.add(TaskFailed(self._now, task.path, why=why_early(kind)))
        elif is_good:
            self._run.add(TaskCompleted(self._now, task.path))
        else:
            self._run.add(
                TaskFailed(self._now, task.path, why=f"its {kind} does not retry it" + (f" ({words})" if words else ""))
            )

    def _why(self, outcome: Outcome, root: Mapping[str, Any] | None) -> str:
        """Why the run failed: its first failed task, unless its object names a reason other than a child or our exit code."""
        was_refused = any(_REFUSAL in note for note in self._state.notes)
        names_none = run_kind({"kind": self._state.meta.orchestrator}).retry is Retry.STEP or was_refused
        if outcome.status is not RunStatus.FAILED or not names_none:
            return outcome.why
        for task in (self._state.tasks[path] for path in self._state.failed):
            how = f"{task.last.cause_why}; " if task.attempts and task.last.cause_why else ""
            return f"task {task.path} failed: {how}{task.why}"
        return outcome.why if not outcome.why.startswith("child ") else failed_step(root or {}) or outcome.why

    def _cancel(self) -> None:
        if not self._state.cancelling:
            self._run.add(CancelRequested(self._now))

    def _past(self, at: float | None) -> float:
        """A Kubernetes time, or now, limited to the time from the run's start to now: clocks may be wrong."""
        return self._now if at is None else min(max(at, self._state.started_at), self._now)


def _with_pools(task: TaskState, decision: Event) -> Event:
    """The decision with the pools of the next attempt's rung, for the webhook to find the rung on its ladder."""
    if not isinstance(decision, AttemptDecided) or decision.rung is None:
        return decision
    return decision.replaced(pools=task.plan.ladder.rungs[decision.rung].pools)


def _end_of(root: Mapping[str, Any] | None, state: RunState) -> tuple[Outcome | None, str]:
    """How a workload ended by its controller's status, and how its user ended it; None and empty while it is active."""
    if root is None:
        return None, f"{state.meta.pipeline} was deleted"
    outcome = outcome_of(root)
    if root.get("kind") == "Pod" or (outcome is not None and outcome.status is not RunStatus.CANCELLED):
        return outcome, ""  # drains delete pods too; an ended object is only cleaned up
    return outcome, how_cancelled(root)


def _awaits_another(task: TaskState) -> bool:
    """Whether a task's last attempt is judged, the task has not ended, and the next attempt does not exist."""
    return bool(task.attempts) and not (task.last.is_live or task.status.is_final) and task.last.cause is not None


def _keys(seen: SeenPod) -> list[str]:
    return [attempt.key for attempt in attempts_of(seen.pod)]


def _node_of(seen: SeenPod) -> str:
    return str((seen.pod.get("spec") or {}).get("nodeName", ""))


def _made_first(seen: SeenPod) -> tuple[str, str]:
    meta = metadata(seen.pod)
    return str(meta.get("creationTimestamp", "")), str(meta.get("name", ""))
