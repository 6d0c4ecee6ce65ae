"""Records workloads: each is a run, and each look at its pods adds the new events to its journal.

A workload is looked at as a whole when its streams are complete, which finds unwatched changes; from then on a change of a pod,
its owner or its node causes a look at only that pod. Events that cannot be written are written later, and an object that cannot
become a run is set aside, so that all others are still recorded.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from spotwright.cluster.autoscaler_status import DEFAULT_LIMIT
from spotwright.cluster.kept_objects import Quarantine
from spotwright.cluster.namespace_costs import NamespaceCosts
from spotwright.cluster.observer import Decide, FindAdmission, OnRecorded, PodReconciler
from spotwright.cluster.run_records import RecordGone
from spotwright.cluster.run_store import RunStore, WorkloadRun
from spotwright.cluster.unseen_pods import UnseenPod, UnseenPods
from spotwright.cluster.view import ClusterView, SeenPod, is_finished, strange_pools
from spotwright.cluster.watch_streams import Namespaces, Streams
from spotwright.cluster.workloads import Lineage, is_own_run, pod_ended_at, templates_of
from spotwright.engine.events import NoteAdded
from spotwright.errors import Fenced, SpotwrightError, StateError
from spotwright.kinds.kind import Retry, run_kind
from spotwright.kube.object_fields import Owner, controller_of, mapping, metadata, seconds, uid_of

__all__ = ["WorkloadRecorder"]


_LOG = logging.getLogger(__name__)
_RETRY = 5.0  # seconds until a run with an unwritable journal is retried
_MENDING, _TELLING = (
    2.0,
    0.5,
)  # seconds for rereading runs, and for publishing states: recording waits then
_ORPHANED = 30.0  # seconds for which a deleted pod waits for its owner
_REFUSED_KEPT = 10_000  # remembered workloads that cannot become runs


class WorkloadRecorder:
    """Records the workloads of ``view`` in ``store``, once ``streams`` have delivered all that is needed for them.

    ``costs`` are the namespaces' costs; ``aside`` logs unreadable objects; ``now`` is the API server's clock. ``decide``,
    ``order_limit`` and ``admission`` are passed to each :class:`~spotwright.cluster.observer.PodReconciler`. A pod for which
    ``is_admission_known`` is false is skipped until its next look. ``on_recorded`` gets each recorded pod, ``on_forgotten`` the
    UID of each forgotten pod, ``on_cut`` each run whose recording was cut, ``on_defect`` each workload that is set aside
    because of a defect, and an empty object for one that is gone. ``unseen`` are pods that came and went earlier.
    """

    def __init__(  # noqa: PLR0913  # its inputs and listeners, each with its own default
        self,
        store: RunStore,
        view: ClusterView,
        streams: Streams,
        namespaces: Namespaces,
        costs: NamespaceCosts,
        aside: Quarantine,
        now: Callable[[], float],
        *,
        on_recorded: OnRecorded = lambda *_: None,
        on_forgotten: Callable[[str], None] = lambda _: None,
        decide: Decide = lambda *_: (),
        order_limit: float = DEFAULT_LIMIT,
        admission: FindAdmission = lambda *_: None,
        is_admission_known: Callable[[Mapping[str, Any], str], bool] = lambda *_: True,
        on_cut: Callable[[WorkloadRun], None] = lambda _: None,
        on_defect: Callable[[Mapping[str, Any]], None] = lambda _: None,
        unseen: UnseenPods | None = None,
    ) -> None:
        self._store, self._view, self._streams, self._namespaces = store, view, streams, namespaces
        self._costs, self._aside, self._now = costs, aside, now
        self._on_recorded, self._on_forgotten = on_recorded, on_forgotten
        self._decide, self._order_limit, self._admission = decide, order_limit, admission
        self._is_admission_known = is_admission_known
        self._unlooked: set[str] = set()  # namespaces with a workload that could not be looked at as a whole yet
        self._awaited: dict[str, set[str]] = {}  # workload UID -> UIDs of its pods that are still to be looked at
        self._homeless: dict[
            tuple[str, str], set[str]
        ] = {}  # by namespace and UID of an owner that was not found: its pods
        self._orphans: dict[
            str, float
        ] = {}  # UIDs of deleted pods whose owners were not found, and until when they wait
        self._run_of_pod: dict[str, str] = {}  # pod UID -> UID of the workload
        self._unwritten: dict[
            str, None
        ] = {}  # UIDs of workloads whose run cannot be written now, the next to try first
        self._refused: OrderedDict[str, None] = OrderedDict()  # UIDs of workloads that cannot become runs
        self._try_again_at = 0.0
        self._on_cut, self._on_defect, self._unseen = on_cut, on_defect, unseen or UnseenPods()
        store.on_cut = self._heard_of_cut
        self.problem = ""
        """Why the store cannot be written now; empty if it can."""

    def next_moment(self) -> float | None:
        """When timed work is due, by the monotonic clock, or None."""
        moments = [*self._orphans.values(), *([self._try_again_at] if self._unwritten else [])]
        return min(moments, default=None)

    # Runs

    def take_up(self, is_wanted: Callable[[str], bool]) -> None:
        """Open the unfinished runs of the wanted namespaces."""
        for problem in self._store.open_unfinished(self._now(), is_wanted):
            _LOG.warning("%s", problem)
            self.problem = problem if self._store.unopened else ""
        self._unwritten |= dict.fromkeys(self._store.unopened)
        self._try_again_at = time.monotonic() + _RETRY
        for uid, run in self._store.runs.items():
            self._note_pods(uid, run)

    def end_runs(self, namespace: str) -> None:
        """Forget a deleted namespace, and end its runs."""
        self._forget_all(self._view.drop_namespace(namespace))
        for uid, _ in self._store.runs_of(namespace):
            self._record(uid, (), are_all=True, is_gone=True)

    def release_runs(self, namespace: str, why: str) -> None:
        """Forget a namespace that is no longer watched. Its runs stay unfinished, with a note in their journals."""
        self._forget_all(self._view.drop_namespace(namespace))
        for uid, run in self._store.runs_of(namespace):
            with self._setting_aside(uid):
                run.add(NoteAdded(self._now(), text=why))
                run.commit()
                self._store.release(run)

    def note(self, run_name: str, text: str) -> None:
        """Add a note to the journal of an active run; for an ended one, only our log has it."""
        for uid, run in list(self._store.runs.items()):
            if run.folder.name == run_name and not run.is_over:
                with self._setting_aside(uid):
                    run.add(NoteAdded(self._now(), text=text))
                    run.commit()

    def mend(self) -> None:
        """Reread runs that could not be written, and look at everything, so that the API's current state is recorded."""
        if not self._unwritten or time.monotonic() < self._try_again_at:
            return
        self._try_again_at = time.monotonic() + _RETRY
        waiting, ends = list(self._unwritten), time.monotonic() + _MENDING
        for uid in waiting:
            if not self._is_open_again(uid):
                self._unwritten[uid] = self._unwritten.pop(uid)  # the others come first the next time
            if time.monotonic() >= ends:
                break
        if len(self._unwritten) < len(waiting):
            self.look_at_everything()
        if not self._unwritten and self.problem:
            self.problem = ""
            _LOG.warning("runs can be written again: %d caught up", len(waiting))

    def _is_open_again(self, uid: str) -> bool:
        """Read the run of a workload again; false while it cannot be read or written."""
        record = self._store.unopened.get(uid)
        try:
            if record is not None:
                self._note_pods(uid, self._store.open_again(record, self._now()))
        except Fenced:
            raise
        except RecordGone as error:  # it is recorded again if its workload exists
            _LOG.warning("%s", error)
            self._store.unopened.pop(uid, None)
        except SpotwrightError as error:
            self.problem = str(error)
            return False
        except Exception:  # noqa: BLE001  # a defect, or a hostile object: go on with all others
            _LOG.exception("workload %s is no longer watched, because of a defect in Spotwright", uid)
            self._store.unopened.pop(uid, None)
            self._refuse(uid)
            self._on_defect(self._view.workload(uid))
        self._unwritten.pop(uid, None)
        return True

    # Looks

    def look(self, pods: Iterable[str]) -> None:
        """Look at pods, by UID, and record changes."""
        for pod in pods:
            with self._setting_pod_aside(pod):
                seen = self._seen(pod)
                if seen is None or not self._streams.is_ready(str(metadata(seen.pod).get("namespace", ""))):
                    continue
                uid = self._workload_of(seen)
                if uid:
                    self._record(uid, (seen,), are_all=False)

    def look_at_owner(self, owner: Mapping[str, Any], *, is_deleted: bool) -> None:
        """Look at the pods that waited for an owner, and at the workload that it is."""
        namespace, uid = str(metadata(owner).get("namespace", "")), uid_of(owner)
        self.look(self._homeless.pop((namespace, uid), ()))
        if uid in self._store.runs and self._streams.is_ready(namespace):
            self._record(uid, (), are_all=False)
        if run_kind(owner).retry is Retry.TRIAL and self._streams.is_ready(namespace):
            experiment = (controller_of(owner) or Owner()).uid
            if (run := self._store.runs.get(experiment)) is not None and run.namespace == namespace:
                self._record(experiment, (), are_all=False, trial=owner)
        if is_deleted:
            self._refused.pop(uid, None)

    def settle(self) -> None:
        """Look at pods that had to settle, and forget pods that waited long enough."""
        self.look(self._view.ending())
        self._forget_orphans()

    def look_at_everything(self, namespace: str = "") -> None:
        """Look at each workload as a whole, in one namespace or in all, if everything needed is known."""
        if self._streams.waiting and not self._namespaces.listed:
            return
        ready: dict[str, bool] = {}

        def is_due(of: str) -> bool:
            if of not in ready:
                ready[of] = namespace in ("", of) and self._streams.is_ready(of)
            return ready[of]

        by_run: dict[str, list[SeenPod]] = {uid: [] for uid, run in self._store.runs.items() if is_due(run.namespace)}
        for known in (self._view.pods, self._view.gone_pods):
            for uid in [uid for uid, pod in known.items() if is_due(str(metadata(pod).get("namespace", "")))]:
                with self._setting_pod_aside(uid):
                    if (seen := self._seen(uid)) is not None:
                        by_run.setdefault(self._workload_of(seen), []).append(seen)
        for uid, pods in by_run.items():
            if uid:
                self._record(uid, pods, are_all=True)

    def look_at_unlooked(self) -> None:
        """Look at whole workloads that waited for the decision about a pod."""
        namespaces, self._unlooked = self._unlooked, set()
        for namespace in namespaces:
            self.look_at_everything(namespace)

    def _seen(self, uid: str) -> SeenPod | None:
        """A pod by UID, with its known owners; None: it is no longer known."""
        gone = self._view.gone_pods.get(uid)
        pod = gone if gone is not None else self._view.pods.get(uid)
        return None if pod is None else SeenPod(pod, self._view.lineage(pod).owners, is_gone=gone is not None)

    @contextlib.contextmanager
    def _setting_pod_aside(self, uid: str) -> Iterator[None]:
        """Set a pod aside if it or its owners are unreadable: it is skipped until it changes."""
        try:
            yield
        except SpotwrightError:
            raise
        except Exception as error:  # noqa: BLE001  # a defect, or a hostile object
            pod = self._view.gone_pods.get(uid) or self._view.pods.get(uid) or {}
            self._aside.say("Pod", pod, because=error)
            self._view.settle_pod(uid)
            if uid in self._view.gone_pods:
                self._forget_all([uid])

    def _workload_of(self, seen: SeenPod) -> str:
        """The UID of a pod's watched workload; empty without one."""
        pod_uid = uid_of(seen.pod)
        if (known := self._run_of_pod.get(pod_uid)) is not None:
            return known
        found: Lineage = self._view.lineage(seen.pod)
        if not found.is_complete:
            self._wait_for_owner(seen, found)
            return ""
        if not found.owners and not is_own_run(seen.pod):
            self._forget([seen])
            return ""
        uid = uid_of(found.root(seen.pod))
        self._run_of_pod[pod_uid] = uid
        return uid

    def _wait_for_owner(self, seen: SeenPod, found: Lineage) -> None:
        """Look at a pod again when its owner arrives; a deleted one waits only for a while."""
        missing = controller_of(found.root(seen.pod)) or Owner()
        key = str(metadata(seen.pod).get("namespace", "")), missing.uid
        uid = uid_of(seen.pod)
        self._homeless.setdefault(key, set()).add(uid)
        self._view.settle_pod(uid)
        if seen.is_gone:
            self._orphans.setdefault(uid, time.monotonic() + _ORPHANED)

    def _forget_orphans(self) -> None:
        """Forget deleted pods whose owners are unknown: pods may name owners that do not exist."""
        now = time.monotonic()
        over = {uid for uid, until in self._orphans.items() if until <= now}
        if not over:
            return
        for uid in over:
            del self._orphans[uid]
        self._homeless = {key: left for key, pods in self._homeless.items() if (left := pods - over)}
        self._forget_all(uid for uid in over if uid in self._view.gone_pods)

    # Records

    def _record(
        self,
        uid: str,
        pods: Sequence[SeenPod],
        *,
        are_all: bool,
        is_gone: bool = False,
        trial: Mapping[str, Any] | None = None,
    ) -> None:
        """Record these pods of a workload, in one transaction. Failed writes are kept and retried.

        ``trial``: a Trial of it that has changed.

        ``is_gone``: the workload and its namespace are gone.
        """
        if self._store.is_over(uid) or uid in self._refused:
            self._awaited.pop(uid, None)
            self._forget(pods)
            return
        if uid in self._unwritten or self._have_to_wait(uid, pods, are_all=are_all):
            return
        may_end = is_gone or not self._awaits_more(uid, pods)
        now = self._now()
        run = self._store.runs.get(uid)
        namespace = metadata(pods[0].pod).get("namespace") if pods else run.namespace if run else ""
        with self._costs.counting((str(namespace), ""), max(1, len(pods))), self._setting_aside(uid):
            run = run or self._begun(pods, now)
            if run is None:
                self._forget(pods)
                return
            root = None if is_gone else self._root(run, pods)
            config = self._store.config(run.namespace)
            unseen = self._unseen_of(run, pods) if are_all else ()
            recorder = PodReconciler(
                run, self._view, now, self._decide, self._order_limit, self._admission, config, unseen
            )
            if trial is not None:
                recorder.tell_trial(trial)
            recorder.record(pods, root, are_all=are_all, may_end=may_end)
            for event in run.commit():
                _LOG.debug("%s: %s %s %s", run.folder.name, event.kind, event.task, event.attempt or "")
            for seen in pods:
                self._on_recorded(run, seen, self._view.is_cut_off(seen.pod))
            if run.is_over:
                for key in run.attempts:
                    self._run_of_pod.pop(key.partition("/")[0], None)
                self._store.finish(run)
            self._forget([seen for seen in pods if run.is_over or self._view.is_settled(seen.pod)])
        self._keep_limits(str(namespace), now)

    def _keep_limits(self, namespace: str, now: float) -> None:
        self._store.keep_limits(now)
        why = self._store.shares.flood(namespace)
        if why:
            self._costs.put_aside((namespace, ""), why)

    def tell_people(self, most: int) -> None:
        """Publish the current state of at most ``most`` changed runs, those with the oldest published state first.

        Recording waits meanwhile, so a slow API server gets fewer at once.
        """
        ends = time.monotonic() + _TELLING
        for uid in [uid for uid, run in self._store.runs.items() if not run.is_shown][:most]:
            with self._setting_aside(uid):
                run = self._store.runs.pop(uid)
                self._store.runs[uid] = run  # the others come first the next time
                run.tell(self._now())
            if time.monotonic() >= ends:
                break

    def _have_to_wait(self, uid: str, pods: Sequence[SeenPod], *, are_all: bool) -> bool:
        """Whether the decision about one of these pods is still unknown."""
        unknown = [seen for seen in pods if not self._is_admission_known(seen.pod, uid)]
        if unknown:
            self._awaited.setdefault(uid, set()).update(uid_of(seen.pod) for seen in (pods if are_all else unknown))
        if unknown and are_all:
            self._unlooked.add(str(metadata(unknown[0].pod).get("namespace", "")))
        return bool(unknown)

    def _awaits_more(self, uid: str, pods: Sequence[SeenPod]) -> bool:
        """Whether other pods of the workload are still to be looked at, so that its run does not end before."""
        known = self._view.pods.keys() | self._view.gone_pods.keys() if uid in self._awaited else set()
        left = (self._awaited.pop(uid, set()) & known) - {uid_of(seen.pod) for seen in pods}
        if left:
            self._awaited[uid] = left
        return bool(left)

    def cut_largest(self, namespace: str, why: str) -> bool:
        """Cut the recording of the largest active run of a namespace; false: there is none. ``why`` is a clause."""
        return self._store.cut_largest(namespace, why, self._now())

    def _heard_of_cut(self, run: WorkloadRun) -> None:
        for key in run.attempts:
            self._run_of_pod.pop(key.partition("/")[0], None)
        self._on_cut(run)

    @contextlib.contextmanager
    def _setting_aside(self, uid: str) -> Iterator[None]:
        """Set a workload aside whose run cannot be written, until :meth:`mend`; report the store's problem once."""
        try:
            yield
        except StateError as error:
            self._store.forget(uid)
            self._unwritten[uid] = None
            self._try_again_at = time.monotonic() + _RETRY
            if not self.problem:
                _LOG.warning("keeping events in memory until they can be written: %s", error)
            self.problem = str(error)
        except Fenced:
            raise
        except SpotwrightError as error:
            self._refuse(uid)
            _LOG.warning("cannot watch workload %s: %s", uid, error)
            self._store.cut_refused(uid, error, self._now())
        except Exception:  # noqa: BLE001  # a defect: one odd object must not stop the recording of all others
            self._refuse(uid)
            self._store.forget(uid)
            _LOG.exception("workload %s is no longer watched, because of a defect in Spotwright", uid)
            self._on_defect(self._view.workload(uid))

    def _refuse(self, uid: str) -> None:
        self._refused[uid] = None
        if len(self._refused) > _REFUSED_KEPT:
            self._refused.popitem(last=False)

    def _is_long_over(self, pods: Sequence[SeenPod], now: float) -> bool:
        """Whether these pods ended before runs whose records were deleted for age or lack of space."""
        records = self._store.records
        if records.kept is None or not all(is_finished(seen.pod) for seen in pods):
            return False
        deleted = records.deleted_until(str(metadata(pods[0].pod).get("namespace", "")))
        until = max(now - records.kept, deleted + 1.0 if deleted else 0.0)  # both are whole seconds there
        return all(_ended_before(seen.pod, until) for seen in pods)

    def _may_be_begun_anew(self, root: Mapping[str, Any], now: float) -> bool:
        """Whether an earlier record of this workload may have been deleted, with attempts that are now unknown."""
        records = self._store.records
        made_at = seconds(metadata(root).get("creationTimestamp"))
        if records.kept is None or made_at is None:
            return True
        return made_at <= max(now - records.kept, records.deleted_until(str(metadata(root).get("namespace", ""))))

    def _unseen_of(self, run: WorkloadRun, pods: Sequence[SeenPod]) -> Sequence[UnseenPod]:
        """The pods of a run that came and went unrecorded."""
        recorded = (key.partition("/")[0] for key in run.attempts)
        there = (uid_of(seen.pod) for seen in pods)
        known = chain(recorded, there, self._view.pods, self._view.gone_pods)
        return self._unseen.of(run.namespace, run.uid, known)

    def _begun(self, pods: Sequence[SeenPod], now: float) -> WorkloadRun | None:
        """A new run for the workload of these pods; None: it is over, and its record may have been deleted."""
        root = _root_of(pods)
        if self._store.has_ended(root) or self._is_long_over(pods, now):
            return None
        if self._may_be_begun_anew(root, now):
            self._unseen.drop(str(metadata(root).get("namespace", "")), uid_of(root))
        return self._begin(pods, now)

    def _begin(self, pods: Sequence[SeenPod], now: float) -> WorkloadRun:
        owners, root = pods[0].owners, _root_of(pods)
        used = {str((seen.pod.get("spec") or {}).get("nodeName", "")) for seen in pods}
        nodes = [node for node in self._view.nodes() if str(metadata(node).get("name")) in used] or self._view.nodes()
        pools = strange_pools(nodes, self._store.pools(str(metadata(root).get("namespace", ""))))
        return self._store.create(root, templates_of(owners), pools, now, self._namespaces.uid_for(root))

    def _root(self, run: WorkloadRun, pods: Sequence[SeenPod]) -> Mapping[str, Any] | None:
        """The workload's object; for a bare pod, the pod until it is gone. None: it is gone.

        For a kind that cannot be read now, it is an empty object.
        """
        kind, namespace = str(run.state.meta.arguments.get("kind", "")), run.namespace
        if kind != "Pod":
            found = self._view.owner(kind, namespace, run.uid)
            return {"kind": kind} if found is None and not self._streams.has_all(kind, namespace) else found
        for seen in pods:
            if uid_of(seen.pod) == run.uid:
                return seen.pod
        return self._view.pods.get(run.uid)

    def _note_pods(self, uid: str, run: WorkloadRun) -> None:
        for task in run.state.tasks.values():
            for attempt in task.attempts[-2:]:
                self._run_of_pod[attempt.key.partition("/")[0]] = uid

    def _forget(self, pods: Iterable[SeenPod]) -> None:
        """Forget these pods, whose state is recorded or need not be."""
        gone = []
        for seen in pods:
            if seen.is_gone:
                gone.append(uid_of(seen.pod))
            else:
                self._view.settle_pod(uid_of(seen.pod))
        self._forget_all(gone)

    def _forget_all(self, pods: Iterable[str]) -> None:
        """Forget pods that are gone, by their UIDs."""
        for uid in pods:
            self._view.forget_pod(uid)
            self._run_of_pod.pop(uid, None)
            self._on_forgotten(uid)


def _root_of(pods: Sequence[SeenPod]) -> Mapping[str, Any]:
    """The workload of some pods."""
    return pods[0].owners[-1] if pods[0].owners else pods[0].pod


def _ended_before(pod: Mapping[str, Any], at: float) -> bool:
    """Whether a pod had ended at a time, by its own status; by default it had not."""
    ended_at = pod_ended_at(mapping(pod.get("status")))
    return ended_at is not None and ended_at < at
