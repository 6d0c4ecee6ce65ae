"""Watches a cluster and records what its streams show, one change after the other.

All streams end in one queue, so that no two changes are recorded at once. Nothing is recorded before every stream has delivered
its first list. Then each workload is looked at as a whole, which finds what happened while nobody looked; from then on a change
of a pod, its owner or its node looks at that pod alone.

The same process keeps the log of each attempt that is recorded, and moves what waits in vain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx2

from spotwright.clouds.cluster_autoscaler import STATUS
from spotwright.cluster.api_client import Api, ApiFailed
from spotwright.cluster.autoscaler_words import DEFAULT_LIMIT, KARPENTER, SCALER, is_word, slim_claim, slim_word
from spotwright.cluster.descheduler import Mover
from spotwright.cluster.log_keeper import LogKeeper
from spotwright.cluster.mirror import Change, ChangeKind, Mirror, Resource, Sharing, is_served
from spotwright.cluster.observer import Decide, OnRecorded, Recorder
from spotwright.cluster.run_store import RunStore, WorkloadRun
from spotwright.cluster.unavailable_pools import PoolPauses, Tally
from spotwright.cluster.view import ClusterView, SeenPod, strange_pools
from spotwright.cluster.workloads import TRAINING_KINDS, Lineage, is_own_run, metadata, templates_of, uid_of
from spotwright.engine.events import NoteAdded
from spotwright.errors import Fenced, SpotwrightError, StateError
from spotwright.notices.node_event import notice_in, withdrawal_in
from spotwright.pools.autoscaler_config_maps import NAMESPACE as KUBE_SYSTEM
from spotwright.records.state_folder import StateFolder

__all__ = ["OWNERS", "Watcher", "watch_and_keep_logs"]


OWNERS: Mapping[str, Resource] = {
    "Job": Resource("/apis/batch/v1", "jobs"),
    "JobSet": Resource("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "TrainJob": Resource("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "Workflow": Resource("/apis/argoproj.io/v1alpha1", "workflows"),
    **{kind: Resource("/apis/kubeflow.org/v1", f"{kind.lower()}s") for kind in TRAINING_KINDS},
    "MPIJob v2": Resource("/apis/kubeflow.org/v2beta1", "mpijobs"),
    "Trial": Resource("/apis/kubeflow.org/v1beta1", "trials"),
    "Experiment": Resource("/apis/kubeflow.org/v1beta1", "experiments"),
}
"""The resource of each kind. An API server has one version of MPIJob or the other."""


_WORDS = {f"Event of {source}": source for source in (SCALER, KARPENTER)}
_OF_NAMESPACES = (*OWNERS, *_WORDS, "Pod")  # streams that are filtered by namespace
_EVENTS = Resource("/api/v1", "events")
_CLAIMS = Resource("/apis/karpenter.sh/v1", "nodeclaims")
_CONFIG_MAPS = Resource("/api/v1", "configmaps")

_LOG = logging.getLogger(__name__)
_ENABLED = "spotwright.dev/enabled=true"
_RETRY = 5.0  # seconds until a run is tried again whose journal could not be written
_BLOCKED = 20  # runs that are tried in vain, until the store counts as blocked
_PAUSE = 0.1  # seconds between two looks at what had to settle
_CLOSES = 5.0  # seconds in which the last changes of a deleted namespace come


class Watcher:
    """Watches one namespace, or all that are labelled ``spotwright.dev/enabled=true``. Call :meth:`run`."""

    def __init__(
        self,
        api: Api,
        store: RunStore,
        namespace: str = "",
        on_recorded: OnRecorded = lambda *_: None,
        decide: Decide = lambda *_: (),
        order_limit: float = DEFAULT_LIMIT,
    ) -> None:
        self._api, self._store, self._namespace = api, store, namespace
        self._on_recorded, self._decide, self._view = on_recorded, decide, ClusterView()
        self._order_limit = order_limit
        self._queue: asyncio.Queue[tuple[str, Change | Exception, asyncio.Task[None] | None]] = asyncio.Queue(1000)
        self._enabled: set[str] = {namespace} if namespace else set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._mirrors: dict[str, Mirror] = {}
        self._waiting: set[str] = set()  # streams whose first list is not there
        self._homeless: set[str] = set()  # pods whose owners were not found
        self._run_of_pod: dict[str, str] = {}  # pod UID -> UID of the workload
        self._unwritten: set[str] = set()  # UIDs of workloads whose run cannot be written now
        self._refused: set[str] = set()  # UIDs of workloads that no run can be made of
        self._store_problem = ""
        self._try_again_at = 0.0
        self._looked_at = 0.0
        self._closing: dict[str, float] = {}  # deleted namespaces, and when all of their changes have surely come

    async def run(self) -> None:
        """Watch until cancelled. Raises :class:`Fenced` once another watcher records."""
        self._take_up("")
        if not self._namespace:
            await self._follow("Namespace", Mirror(self._api, Resource("/api/v1", "namespaces"), labels=_ENABLED))
        await self._follow_all()
        try:
            while True:
                await self._turn()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._store.close()

    @property
    def problems(self) -> Mapping[str, str]:
        """The streams that do not work now, and the store, with the reason: for readiness checks."""
        streams = {kind: mirror.problem for kind, mirror in self._mirrors.items() if mirror.problem}
        return {**streams, **({"store": self._store_problem} if self._store_problem else {})}

    def look_at(self, pods: Iterable[str]) -> None:
        """Look at pods again, by their UIDs, because time has passed."""
        self._view.clock = time.monotonic()
        self._look([self._seen(uid) for uid in pods if uid in self._view.pods])

    # Streams

    async def _follow_all(self) -> None:
        await self._follow("Node", Mirror(self._api, Resource("/api/v1", "nodes")))
        await self._follow("Event", Mirror(self._api, _EVENTS, fields="involvedObject.kind=Node"))
        await self._follow_autoscalers()
        for kind, resource in OWNERS.items():
            if await is_served(self._api, resource):
                await self._follow(kind, Mirror(self._api, resource, self._namespace, keep=self._is_enabled))
        share = Sharing().shared
        pods = Mirror(self._api, Resource("/api/v1", "pods"), self._namespace, keep=self._is_enabled, slim=share)
        await self._follow("Pod", pods)

    async def _follow_autoscalers(self) -> None:
        """Follow what autoscalers say, as far as it may be read: without it the clock alone decides."""
        words, kept = self._view.words, self._namespace or ""
        for kind, source in _WORDS.items():
            fields = f"source={source}"
            if await self._may_read(_EVENTS, fields, kept):
                mirror = Mirror(self._api, _EVENTS, kept, fields=fields, keep=self._is_word, slim=slim_word)
                await self._follow(kind, mirror)
            else:
                words.can_hear = False
        fields = f"metadata.name={STATUS}"
        if await self._may_read(_CONFIG_MAPS, fields, KUBE_SYSTEM):
            await self._follow("Status", Mirror(self._api, _CONFIG_MAPS, KUBE_SYSTEM, fields=fields))
        if await is_served(self._api, _CLAIMS) and await self._may_read(_CLAIMS):
            words.sees_claims = True
            await self._follow("NodeClaim", Mirror(self._api, _CLAIMS, slim=slim_claim))

    async def _may_read(self, resource: Resource, fields: str = "", namespace: str = "") -> bool:
        """Whether these objects may be listed. Where they may not, the log says it once; other failures may pass."""
        params = {"limit": "1", **({"fieldSelector": fields} if fields else {})}
        try:
            await self._api.get(resource.path(namespace), params)
        except ApiFailed as error:
            if error.status not in (403, 404):
                return True  # it may pass
            _LOG.warning(
                "autoscalers are heard only in part: %s; spotwright controller --print-rbac has the rights", error
            )
            return False
        return True

    def _is_word(self, event: Mapping[str, Any]) -> bool:
        return is_word(event, self._enabled)

    async def _follow(self, kind: str, mirror: Mirror) -> None:
        self._mirrors[kind] = mirror
        self._take_from(kind)

    def _take_from(self, kind: str) -> None:
        self._waiting.add(kind)
        self._tasks[kind] = asyncio.create_task(self._pump(kind), name=f"watch {kind}")

    async def _pump(self, kind: str) -> None:
        try:
            async for change in self._mirrors[kind].changes():
                await self._queue.put((kind, change, asyncio.current_task()))
        except Exception as error:  # noqa: BLE001  # the watcher ends by it: nobody else looks at this task
            await self._queue.put((kind, error, None))

    def _is_enabled(self, data: Mapping[str, Any]) -> bool:
        return str(metadata(data).get("namespace", "")) in self._enabled

    # One change

    async def _turn(self) -> None:
        """Take the next change, or look again at what had to settle, also while changes come without a pause."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until_the_next_look()):  # wait_for loses a cancellation beside a change
                kind, change, pump = await self._queue.get()
            if isinstance(change, Exception):
                raise change
            self._view.clock = time.monotonic()
            if change.kind is not ChangeKind.SYNCED:
                self._apply(kind, change)
            elif pump is self._tasks[kind]:  # a list from before a namespace came back lacks its pods: they seem gone
                self._synced(kind)
        self._view.clock = time.monotonic()
        if self._view.clock >= self._looked_at + _PAUSE:
            self._looked_at = self._view.clock
            self._wait_for_no_word()
            self._look_at_ending()
            self._close_namespaces()
            self._mend()

    def _until_the_next_look(self) -> float | None:
        """Seconds until something is due that no change announces; None: nothing is."""
        moments = [*self._closing.values(), *([self._try_again_at] if self._unwritten else [])]
        if self._waiting:
            moments.append(time.monotonic() + 1.0)  # a stream that cannot be read says so without a change
        settles = self._view.unsettled_until()
        if settles is not None:
            moments.append(settles)
        return max(_PAUSE, min(moments) - time.monotonic() + 0.01) if moments else None

    def _synced(self, kind: str) -> None:
        self._view.nodes_are_complete = self._view.nodes_are_complete or kind == "Node"
        if kind in self._waiting:
            self._waiting.discard(kind)
            if not self._waiting:
                _LOG.info("all streams are complete: %d pods, %d runs", len(self._view.pods), len(self._store.runs))
                self._look_at_everything()

    def _wait_for_no_word(self) -> None:
        """Hear autoscalers no more than is to be heard: what cannot be read holds up nothing that is recorded."""
        silent = {kind for kind in self._waiting & {*_WORDS, "NodeClaim", "Status"} if self._mirrors[kind].problem}
        if silent:
            self._waiting -= silent
            if not self._waiting:
                self._look_at_everything()

    def _apply(self, kind: str, change: Change) -> None:
        data, is_deleted = change.data, change.kind is ChangeKind.DELETED
        if kind == "Namespace":
            self._put_namespace(data, is_labelled=not is_deleted)
        elif kind == "Node":
            self._apply_node(data, is_deleted=is_deleted)
        elif kind in _WORDS or kind in ("NodeClaim", "Status"):
            self._apply_word(kind, data, is_deleted=is_deleted)
        elif kind == "Event":
            if not is_deleted:
                self._view.put_node_event(data)
                if notice_in(data) is not None or withdrawal_in(data) is not None:
                    self._look_at_node(str((data.get("involvedObject") or {}).get("name", "")))
        elif not self._is_enabled(data):
            return  # its namespace has just lost the label: nothing is known of it any more
        elif kind == "Pod":
            (self._view.delete_pod if is_deleted else self._view.put_pod)(data)
            self._look([self._seen(uid_of(data))])
        else:
            (self._view.delete_owner if is_deleted else self._view.put_owner)(data)
            self._look_at_owner(data)

    def _apply_node(self, node: Mapping[str, Any], *, is_deleted: bool) -> None:
        if is_deleted:
            self._view.delete_node(node)
        elif not self._view.put_node(node):
            return  # a heartbeat
        self._look_at_node(str(metadata(node)["name"]))

    def _apply_word(self, kind: str, data: Mapping[str, Any], *, is_deleted: bool) -> None:
        """Take what an autoscaler says, and look at the pods about which it says something new."""
        words = self._view.words
        if kind == "Status":
            if words.put_status(None if is_deleted else data):
                self.look_at(self._view.waiting())
            if words.problem:
                _LOG.debug("%s", words.problem)
        elif kind == "NodeClaim":
            if words.put_claim(data, is_gone=is_deleted):
                self.look_at(self._view.waiting())
        elif not is_deleted:  # Events are deleted by their age alone
            pod = words.put_event(data, self._api.now())
            self.look_at([pod] if pod else self._view.waiting())

    # Namespaces

    def _put_namespace(self, data: Mapping[str, Any], *, is_labelled: bool) -> None:
        """Watch a namespace from now on, or no more. One that is deleted is watched until its last changes have come."""
        name = self._view.put_namespace(data)
        if is_labelled:
            self._enter(name)
        elif name in self._enabled and metadata(data).get("deletionTimestamp"):
            self._closing[name] = time.monotonic() + _CLOSES
        elif name in self._enabled:
            self._leave(
                name, "its namespace has lost the label spotwright.dev/enabled=true: nothing is known from here on"
            )

    def _enter(self, namespace: str) -> None:
        """Take up the runs of a namespace, and let the streams that filter by namespace list again."""
        self._closing.pop(namespace, None)
        if namespace in self._enabled:
            return
        self._enabled.add(namespace)
        if not self._waiting:
            self._take_up(namespace)
        for kind in _OF_NAMESPACES:
            if kind in self._mirrors:
                self._tasks[kind].cancel()
                self._mirrors[kind].list_again()
                self._take_from(kind)

    def _leave(self, namespace: str, why: str) -> None:
        """Forget a namespace. Its runs stay unfinished: they go on when somebody labels it again."""
        self._enabled.discard(namespace)
        self._view.drop_namespace(namespace)
        for kind in _OF_NAMESPACES:
            if kind in self._mirrors:
                self._mirrors[kind].drop(namespace)
        for uid, run in self._store.runs_of(namespace):
            with self._setting_aside(uid):
                run.add(NoteAdded(self._api.now(), text=why))
                run.commit()
                self._store.release(run)

    def _close_namespaces(self) -> None:
        """End the runs of deleted namespaces whose last changes have come: what they did not tell, nobody will."""
        for namespace in [name for name, at in self._closing.items() if time.monotonic() >= at]:
            del self._closing[namespace]
            self._view.drop_namespace(namespace)
            for uid, _ in self._store.runs_of(namespace):
                self._record(uid, (), are_all=True)
            self._leave(namespace, "its namespace was deleted")

    # Looks

    def _seen(self, uid: str) -> SeenPod:
        """A pod by UID, with the owners that are known."""
        gone = self._view.gone_pods.get(uid)
        pod = gone if gone is not None else self._view.pods[uid]
        return SeenPod(pod, self._view.lineage(pod).owners, is_gone=gone is not None)

    def _look_at_everything(self) -> None:
        by_run: dict[str, list[SeenPod]] = {uid: [] for uid in self._store.runs}
        for uid in (*self._view.pods, *self._view.gone_pods):
            seen = self._seen(uid)
            by_run.setdefault(self._workload_of(seen), []).append(seen)
        for uid, pods in by_run.items():
            if uid:
                self._record(uid, pods, are_all=True)

    def _look_at_node(self, name: str) -> None:
        if self._waiting:
            return
        self._look([self._seen(uid) for uid in self._view.pods_on(name)])

    def _look_at_owner(self, owner: Mapping[str, Any]) -> None:
        homeless = [uid for uid in self._homeless if uid in self._view.pods or uid in self._view.gone_pods]
        self._homeless.clear()
        self._look([self._seen(uid) for uid in homeless])
        if uid_of(owner) in self._store.runs and not self._waiting:
            self._record(uid_of(owner), (), are_all=False)

    def _look_at_ending(self) -> None:
        ending = (uid for uid in self._view.ending() if uid in self._view.pods or uid in self._view.gone_pods)
        self._look([self._seen(uid) for uid in ending])

    def _look(self, pods: Iterable[SeenPod]) -> None:
        if self._waiting:
            return
        for seen in pods:
            uid = self._workload_of(seen)
            if uid:
                self._record(uid, (seen,), are_all=False)

    def _workload_of(self, seen: SeenPod) -> str:
        """The UID of a pod's workload, where it has one that is watched."""
        pod_uid = uid_of(seen.pod)
        if (known := self._run_of_pod.get(pod_uid)) is not None:
            return known
        found: Lineage = self._view.lineage(seen.pod)
        if not found.is_complete:
            self._homeless.add(pod_uid)
            return ""
        if not found.owners and not is_own_run(seen.pod):
            self._view.forget_pod(pod_uid)
            return ""
        uid = uid_of(found.root(seen.pod))
        self._run_of_pod[pod_uid] = uid
        return uid

    # Records

    def _record(self, uid: str, pods: Sequence[SeenPod], *, are_all: bool) -> None:
        """Record these pods of a workload, in one transaction. What cannot be written now is kept, and written later."""
        if self._store.is_over(uid) or uid in self._refused:
            self._forget(pods)
            return
        if uid in self._unwritten:
            return
        now = self._api.now()
        with self._setting_aside(uid):
            run = self._store.runs.get(uid) or self._begin(pods, now)
            Recorder(run, self._view, now, self._decide, self._order_limit).record(
                pods, self._root(run, pods), are_all=are_all
            )
            for event in run.commit():
                _LOG.debug("%s: %s %s %s", run.folder.name, event.kind, event.task, event.attempt or "")
            for seen in pods:
                self._on_recorded(run, seen, self._view.is_cut_off(seen.pod))
            if run.is_over:
                self._store.finish(run)
            self._forget([seen for seen in pods if run.is_over or self._view.is_settled(seen.pod)])

    @contextlib.contextmanager
    def _setting_aside(self, uid: str) -> Iterator[None]:
        """Set a workload aside whose run cannot be written, until :meth:`_mend`; the store's problem is said once."""
        try:
            yield
        except StateError as error:
            self._store.forget(uid)
            self._unwritten.add(uid)
            self._try_again_at = time.monotonic() + _RETRY
            if not self._store_problem:
                _LOG.warning("what happens is kept until it can be written: %s", error)
            self._store_problem = str(error)
        except Fenced:
            raise
        except SpotwrightError as error:
            self._refused.add(uid)
            _LOG.warning("workload %s is not watched: %s", uid, error)
        except Exception:  # noqa: BLE001  # a defect: one odd object must not end the records of all others, for ever
            self._refused.add(uid)
            self._store.forget(uid)
            _LOG.exception("workload %s is not watched any more, because of a defect in Spotwright", uid)

    def _begin(self, pods: Sequence[SeenPod], now: float) -> WorkloadRun:
        owners = pods[0].owners
        root = owners[-1] if owners else pods[0].pod
        used = {str((seen.pod.get("spec") or {}).get("nodeName", "")) for seen in pods}
        nodes = [node for node in self._view.nodes() if metadata(node).get("name") in used] or self._view.nodes()
        pools = strange_pools(nodes, self._store.pools(str(metadata(root).get("namespace", ""))))
        return self._store.create(root, templates_of(owners), pools, now)

    def _root(self, run: WorkloadRun, pods: Sequence[SeenPod]) -> Mapping[str, Any] | None:
        """The workload's object; of a pod that is a run of its own, the pod until it is gone."""
        kind = str(run.state.meta.arguments.get("kind", ""))
        if kind != "Pod":
            return self._view.owner(kind, run.uid)
        for seen in pods:
            if uid_of(seen.pod) == run.uid:
                return seen.pod
        return self._view.pods.get(run.uid)

    def _note_pods(self, uid: str, run: WorkloadRun) -> None:
        for task in run.state.tasks.values():
            for attempt in task.attempts[-2:]:
                self._run_of_pod[attempt.key.partition("/")[0]] = uid

    def _forget(self, pods: Iterable[SeenPod]) -> None:
        for seen in pods:
            (self._view.forget_pod if seen.is_gone else self._view.settle_pod)(uid_of(seen.pod))
            if seen.is_gone:
                self._run_of_pod.pop(uid_of(seen.pod), None)

    def _take_up(self, namespace: str) -> None:
        """Open the unfinished runs of a namespace, or all; those that cannot be written now are set aside."""
        for problem in self._store.open_unfinished(self._api.now(), namespace):
            _LOG.warning("%s", problem)
            self._store_problem = problem if self._store.unopened else ""
        self._unwritten |= self._store.unopened.keys()
        self._try_again_at = time.monotonic() + _RETRY
        for uid, run in self._store.runs.items():
            self._note_pods(uid, run)

    def _mend(self) -> None:
        """Read runs again that could not be written, and look at everything: all that the API still has is recorded."""
        if not self._unwritten or time.monotonic() < self._try_again_at:
            return
        self._try_again_at = time.monotonic() + _RETRY
        blocked, waiting = 0, sorted(self._unwritten)
        for uid in waiting:
            folder = self._store.unopened.get(uid)
            try:
                if folder is not None:
                    self._note_pods(uid, self._store.open_again(folder, self._api.now()))
            except Fenced:
                raise
            except SpotwrightError as error:
                self._store_problem, blocked = str(error), blocked + 1
                if blocked >= _BLOCKED:
                    break
            else:
                self._unwritten.discard(uid)
        if len(self._unwritten) < len(waiting) and not self._waiting:
            self._look_at_everything()
        if not self._unwritten and self._store_problem:
            self._store_problem = ""
            _LOG.warning("the runs can be written again: %d have caught up", len(waiting))


async def watch_and_keep_logs(
    api: Api,
    store: RunStore,
    state: StateFolder,
    open_streams: Callable[[], httpx2.AsyncClient],
    *,
    limit: int,
    namespace: str = "",
    tally: Tally | None = None,
    order_limit: float = DEFAULT_LIMIT,
) -> None:
    """Watch until cancelled. ``open_streams`` makes a client for many streams at once; every log has one while it is followed.

    ``limit`` is in bytes, for each log; 0 keeps none. ``namespace`` is the only one that is watched; by default it is all that
    are labelled. ``tally`` counts what is moved and what waits. ``order_limit`` is how long, in seconds, a pod is left where it
    waits because an autoscaler has ordered its node.
    """
    tally = tally or Tally()
    pauses = PoolPauses(state)
    pauses.begin(state, api.now())
    mover = Mover(api, pauses, tally=tally)
    tally.begin()
    streams = Api(open_streams())
    keeper = LogKeeper(streams, limit)

    def look(run: WorkloadRun, seen: SeenPod, is_cut_off: bool) -> None:
        mover.recorded(seen.pod, is_gone=seen.is_gone)
        if limit:
            keeper.look(run.folder, run.state, seen.pod, is_gone=seen.is_gone, is_cut_off=is_cut_off)

    watcher = Watcher(api, store, namespace, look, mover.decide, order_limit)
    parts = [watcher.run(), mover.run(watcher.look_at), *([keeper.run(state)] if limit else [])]
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        tally.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await streams.close()
