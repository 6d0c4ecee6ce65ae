"""Watches a cluster and records the changes of its streams, one after the other.

Recording of a namespace begins once each of its streams has delivered its first list. A namespace is entered when it is
labelled or created, and left when it loses its label, is deleted, or exceeds its cost limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spotwright.cluster.api_client import Api
from spotwright.cluster.autoscaler_status import DEFAULT_LIMIT, is_word
from spotwright.cluster.kept_objects import Quarantine
from spotwright.cluster.last_proofs import NodeLeases
from spotwright.cluster.mirror import Change, ChangeKind
from spotwright.cluster.namespace_costs import LOOK, NamespaceCosts
from spotwright.cluster.node_events import NodeEvents
from spotwright.cluster.observer import Decide, FindAdmission, OnRecorded
from spotwright.cluster.pod_starts import PodStarts
from spotwright.cluster.run_store import RunStore, WorkloadRun
from spotwright.cluster.unseen_pods import UnseenPods
from spotwright.cluster.view import ClusterView, LastLine, node_of_event
from spotwright.cluster.watch_streams import CLAIM, WORDS, Namespaces, Stream, Streams
from spotwright.cluster.watched import Watched
from spotwright.cluster.workload_recorder import WorkloadRecorder
from spotwright.errors import SpotwrightError
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.notices.node_event import notice_in, withdrawal_in

__all__ = ["Watcher"]


_LOG = logging.getLogger(__name__)
_TELLS, _TOLD = 2.0, 20  # seconds between publications, and the most changed runs in one
_PAUSE = 0.1  # seconds between checks of settling pods
_CLOSES = 5.0  # seconds in which the last changes of a deleted namespace come


class Watcher:
    """Watches the listed namespaces; without a list all that are labelled ``spotwright.dev/enabled=true``. Call :meth:`run`.

    ``on_recorded`` gets each recorded pod, ``on_forgotten`` the UID of each forgotten pod, ``on_watched`` each change of the
    watched scope, ``on_cut`` each run whose recording was cut, ``on_defect`` each workload that is set aside because of a
    defect. ``costs`` are the namespaces' costs. ``last_line`` is the view's. ``name`` is the registration's, from which the
    name of the policy for Events about nodes follows.
    """

    def __init__(  # noqa: PLR0913  # its listeners, each with its own default
        self,
        api: Api,
        store: RunStore,
        namespaces: Sequence[str] = (),
        on_recorded: OnRecorded = lambda *_: None,
        decide: Decide = lambda *_: (),
        order_limit: float = DEFAULT_LIMIT,
        on_forgotten: Callable[[str], None] = lambda _: None,
        on_watched: Callable[[Watched], None] = lambda _: None,
        *,
        on_cut: Callable[[WorkloadRun], None] = lambda _: None,
        on_defect: Callable[[Mapping[str, Any]], None] = lambda _: None,
        admission: FindAdmission = lambda *_: None,
        is_admission_known: Callable[[Mapping[str, Any], str], bool] = lambda *_: True,
        costs: NamespaceCosts | None = None,
        last_line: LastLine = lambda _key: None,
        name: str = "spotwright",
    ) -> None:
        self._api, self._store, self._view, self._aside = api, store, ClusterView(last_line), Quarantine()
        self._leases = NodeLeases(api, self._view)
        self._costs = costs or NamespaceCosts(LOOK)
        self._namespaces = Namespaces(namespaces)
        self._node_events = NodeEvents(api, name)
        self._streams = Streams(
            api,
            self._namespaces,
            self._view.words,
            self._costs,
            self._node_events,
            on_gone=self._apply,
            on_kinds=self._tell_watched,
        )
        self._unseen = UnseenPods(api, namespaces)
        self._recorder = WorkloadRecorder(
            store,
            self._view,
            self._streams,
            self._namespaces,
            self._costs,
            self._aside,
            api.now,
            on_recorded=on_recorded,
            on_forgotten=on_forgotten,
            decide=decide,
            order_limit=order_limit,
            admission=admission,
            is_admission_known=is_admission_known,
            on_cut=on_cut,
            on_defect=on_defect,
            unseen=self._unseen,
        )
        self._on_watched, self._published = on_watched, Watched()
        self._costly: set[str] = set()  # namespaces that are set aside
        self._closing: dict[str, float] = {}  # deleted namespaces, and when all their changes have surely come
        self._has_taken_up = False
        self._looked_at = 0.0

    async def run(self) -> None:
        """Watch until cancelled. Raises :class:`Fenced` once another watcher records."""
        await self._unseen.read()  # before pods are listed: missing ones are gone
        await self._streams.begin()
        try:
            while True:
                await self._turn()
        finally:
            await self._streams.end()
            self._store.close()

    @property
    def problems(self) -> Mapping[str, str]:
        """The failing streams, and the failing store, with the reason, for readiness checks."""
        return {**self._streams.problems, **({"store": self._recorder.problem} if self._recorder.problem else {})}

    @property
    def watched(self) -> Watched:
        """The current scope. A kind that is unreadable or not served in a supported version is not recorded."""
        return Watched(self._namespaces.uids, self._streams.kinds)

    async def hear_of_starts(self) -> None:
        """Find out why pods do not start on their nodes, until cancelled."""
        await PodStarts(self._api, self._view).run(self.look_at)

    async def read_leases(self) -> None:
        """Read the last Lease renewals of silent and deleted nodes, until cancelled."""
        await self._leases.run()

    def nodes(self) -> Sequence[Mapping[str, Any]] | None:
        """The nodes of the cluster; None while they are unknown."""
        return self._view.nodes() if self._view.nodes_are_complete else None

    async def tell_people(self) -> None:
        """Show the current state of runs beside their records, until cancelled."""
        while True:
            await asyncio.sleep(_TELLS)
            self._recorder.tell_people(_TOLD)

    def look_at(self, pods: Iterable[str]) -> None:
        """Look at pods again, by UID, because time has passed."""
        self._view.clock = time.monotonic()
        self._recorder.look(pods)

    def look_again(self, pods: Iterable[str]) -> None:
        """Look at pods whose decisions are known now."""
        self._view.clock = time.monotonic()
        self._recorder.look_at_unlooked()  # first, in the order in which pods were made
        self._recorder.look(pods)

    def note(self, run_name: str, text: str) -> None:
        """Add a note to the journal of an active run; for an ended one, only our log has it."""
        self._recorder.note(run_name, text)

    def cut_largest(self, namespace: str, why: str) -> bool:
        """Cut the recording of the largest active run of a namespace; false: there is none. ``why`` is a clause."""
        return self._recorder.cut_largest(namespace, why)

    def _tell_watched(self) -> None:
        now = self.watched
        if self._node_events.since is None:
            self._view.drop_node_events()
        if now != self._published:
            self._published = now
            self._on_watched(now)

    # One change

    async def _turn(self) -> None:
        """Apply the next change, or look again at settling pods, even during a continuous stream of changes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until_the_next_look()):  # wait_for loses a cancellation beside a change
                found = await self._streams.next()
            self._view.clock = time.monotonic()
            if found is not None:
                stream, change = found
                if change.kind is ChangeKind.SYNCED:
                    self._synced(stream, str(metadata(change.data).get("namespace", "")))
                else:
                    with self._costs.counting((stream.payer(change), "")):
                        self._apply(stream, change)
        self._view.clock = time.monotonic()
        if self._view.clock >= self._looked_at + _PAUSE:
            self._looked_at = self._view.clock
            for stream in self._streams.give_up():
                self._waits_no_more(stream)
            self._recorder.settle()
            self._close_namespaces()
            self._set_costly_aside()
            self._recorder.mend()
            self._tell_watched()

    def _until_the_next_look(self) -> float | None:
        """Seconds until timed work is due, or None."""
        moments = [*self._closing.values()]
        if self._costly or self._costs.aside or self._streams.waiting:  # an unreadable stream does not produce changes
            moments.append(time.monotonic() + 1.0)
        moments += [at for at in (self._recorder.next_moment(), self._view.unsettled_until()) if at is not None]
        return max(_PAUSE, min(moments) - time.monotonic() + 0.01) if moments else None

    def _synced(self, stream: Stream, entered: str = "") -> None:
        """Note that a stream has delivered all objects, of one namespace if one was ``entered``."""
        if entered:
            if not self._streams.is_filling(entered):
                self._recorder.look_at_everything(entered)
            return
        is_first = self._streams.synced(stream)
        self._view.nodes_are_complete = self._view.nodes_are_complete or stream.kind == "Node"
        if stream.kind == "Namespace" and is_first and stream.namespace and stream.namespace not in self._namespaces:
            _LOG.warning("namespace %s does not exist yet; watching it once it exists", stream.namespace)
            self._namespaces.entered.add(stream.namespace)  # runs from before its deletion end
        if is_first:
            self._waits_no_more(stream)

    def _waits_no_more(self, stream: Stream) -> None:
        """Look at the workloads that waited for a stream's first list, once it came or will not come."""
        self._take_up_entered()
        if not self._streams.waiting:
            _LOG.info("all streams are complete: %d pods, %d runs", len(self._view.pods), len(self._store.runs))
        self._recorder.look_at_everything(stream.namespace)

    def _apply(self, stream: Stream, change: Change) -> None:
        """Apply one change. An unforeseen object is set aside: it must not stop the recording of all others."""
        try:
            self._take(stream, change.data, is_deleted=change.kind is ChangeKind.DELETED)
        except SpotwrightError:
            raise
        except Exception as error:  # noqa: BLE001  # a defect, or a hostile object
            self._aside.say(stream.kind, change.data, because=error)

    def _take(self, stream: Stream, data: Mapping[str, Any], *, is_deleted: bool) -> None:
        if stream.kind == "Namespace":
            self._put_namespace(data, is_deleted=is_deleted)
        elif stream.kind == "Node":
            self._apply_node(data, is_deleted=is_deleted)
        elif stream.kind in WORDS or stream.kind in (CLAIM, "Status"):
            self._apply_word(stream.kind, data, is_deleted=is_deleted)
        elif stream.kind == "Event":
            if not is_deleted and self._node_events.counts(data):
                self._apply_node_event(data)
        elif not self._namespaces.is_enabled(data):
            return  # its namespace has just lost the label
        elif stream.kind == "Pod":
            (self._view.delete_pod if is_deleted else self._view.put_pod)(data)
            self._recorder.look([uid_of(data)])
        else:
            (self._view.delete_owner if is_deleted else self._view.put_owner)(data)
            self._recorder.look_at_owner(data, is_deleted=is_deleted)

    def _apply_node(self, node: Mapping[str, Any], *, is_deleted: bool) -> None:
        name = str(metadata(node)["name"])
        if is_deleted:
            self._view.delete_node(node)
        elif not self._view.put_node(node):
            return  # a heartbeat
        if self._view.is_lost(name) and self._view.pods_on(name):
            self._leases.ask(name)
        self._recorder.look(self._view.pods_on(name))

    def _apply_node_event(self, event: Mapping[str, Any]) -> None:
        self._view.put_node_event(event)
        if notice_in(event) is not None or withdrawal_in(event) is not None:
            name = node_of_event(event)
            self._recorder.look(self._view.pods_on(name) if name else ())

    def _apply_word(self, kind: str, data: Mapping[str, Any], *, is_deleted: bool) -> None:
        """Apply an autoscaler's status, and look at the affected pods."""
        words = self._view.words
        if kind == "Status":
            if words.put_status(None if is_deleted else data):
                self.look_at(self._view.waiting())
            if words.problem:
                _LOG.debug("%s", words.problem)
        elif kind == CLAIM:
            if words.put_claim(data, is_gone=is_deleted):
                self.look_at(self._view.waiting())
        elif is_word(data, self._namespaces.enabled):  # it may have waited in the queue while its namespace was left
            about_pods = (data.get("involvedObject") or {}).get("kind") == "Pod"
            if about_pods or self._node_events.counts(data):
                pod = words.put_event(data, self._api.now())
                self.look_at([pod] if about_pods else self._view.waiting())

    # Namespaces

    def _put_namespace(self, data: Mapping[str, Any], *, is_deleted: bool) -> None:
        """Start or stop watching a namespace. A deleted one is watched until its last changes have come."""
        name = self._view.put_namespace(data)
        is_wanted = self._namespaces.is_wanted(name, data)
        if is_deleted:
            self._namespaces.remove(name)
            if name in self._namespaces.enabled:
                self._closing[name] = time.monotonic() + _CLOSES
            else:
                self._view.forget_namespace(name)
            return
        self._namespaces.put(name, data)
        if is_wanted and (name, "") in self._costs.aside:
            self._costly.add(name)
        elif is_wanted:
            self._enter(name)
        else:
            self._costly.discard(name)
        if name in self._namespaces.enabled and not is_wanted:
            self._leave(name, "its namespace lost the label spotwright.dev/enabled=true; unknown from here on")

    def _enter(self, namespace: str) -> None:
        """Resume the runs of a namespace, and let the streams that filter by namespace list again."""
        self._closing.pop(namespace, None)
        if namespace in self._namespaces.enabled:
            return
        self._namespaces.enabled.add(namespace)
        self._namespaces.entered.add(namespace)
        self._streams.enter(namespace)
        if not self._namespaces.listed:
            self._take_up_entered()

    def _take_up_entered(self) -> None:
        """Open the unfinished runs of newly enabled namespaces, once the existing namespaces are known.

        Without a list, runs of deleted namespaces are opened too: they end.
        """
        if not self._namespaces.entered or any(stream.kind == "Namespace" for stream in self._streams.waiting):
            return
        entered, self._namespaces.entered = self._namespaces.entered, set()
        is_first = not self._has_taken_up
        self._has_taken_up = True

        def is_wanted(namespace: str) -> bool:
            return namespace in entered or (
                is_first and not self._namespaces.listed and namespace not in self._namespaces
            )

        self._recorder.take_up(is_wanted)
        for run in self._store.runs.values():
            if run.namespace not in self._namespaces:
                self._closing.setdefault(run.namespace, time.monotonic())

    def _set_costly_aside(self) -> None:
        """Forget namespaces whose objects cost too much, and re-enter those that have been set aside long enough."""
        aside = {name: each for (name, _), each in self._costs.aside.items()}
        for name in aside.keys() & self._namespaces.enabled:
            self._streams.drop_waiting(name)
            self._leave(name, f"its namespace is {aside[name].text}; unknown from here on")
            self._costly.add(name)
        for name in self._costly - aside.keys():
            self._costly.discard(name)
            if name in self._namespaces:
                self._enter(name)
            else:  # deleted in the meantime: its runs end
                self._namespaces.entered.add(name)
                self._take_up_entered()

    def _leave(self, namespace: str, why: str) -> None:
        """Forget a namespace. Its runs stay unfinished: they continue when it is labelled again."""
        self._namespaces.enabled.discard(namespace)
        self._namespaces.entered.discard(namespace)
        self._streams.leave(namespace)
        self._recorder.release_runs(namespace, why)

    def _close_namespaces(self) -> None:
        """End the runs of deleted namespaces whose last changes have come: no more will."""
        for namespace in [name for name, at in self._closing.items() if time.monotonic() >= at]:
            del self._closing[namespace]
            self._recorder.end_runs(namespace)
            self._leave(namespace, "its namespace was deleted")
            self._view.forget_namespace(namespace)
