"""Follows the streams of a cluster: which resources, in which namespaces, and which streams are complete.

If namespaces are listed, each has its own streams, and nothing else is read; without a list the streams cover the whole
cluster, and objects outside labelled namespaces are dropped. All streams feed one queue, so that changes are recorded one at a
time.

It polls the API server for kinds that are not served yet, and watches them once their controllers are installed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from spotwright.clouds.cluster_autoscaler import STATUS
from spotwright.cluster.api_client import FORBIDDEN, Api, ApiFailed
from spotwright.cluster.autoscaler_status import PROVISIONER, SCALER, AutoscalerStatus, is_word, slim_claim, slim_word
from spotwright.cluster.kept_objects import NamespaceQuota, Sharing
from spotwright.cluster.mirror import Change, ChangeKind, Mirror, Resource
from spotwright.cluster.namespace_costs import FairQueue, NamespaceCosts
from spotwright.cluster.node_events import NodeEvents
from spotwright.cluster.served_kinds import ANSWERS, NOT_SERVED, Found, find_served
from spotwright.cluster.view import slim_node_event
from spotwright.cluster.watched import ENABLED_LABEL, WATCHED
from spotwright.kinds.kind import run_kinds
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.notices.node_event import NAMESPACE
from spotwright.pools.autoscaler_config_maps import NAMESPACE as KUBE_SYSTEM

__all__ = ["ABOUT_NODES", "CLAIM", "OWNERS", "WORDS", "Namespaces", "Stream", "Streams"]


OWNERS: Mapping[str, Resource] = {
    name if version == kind.version else f"{name} {version}": Resource(f"/apis/{kind.group}/{version}", kind.plural)
    for name, kind in run_kinds().items()
    for version in (kind.version, *kind.more_versions)
}
"""The resource of each kind, and of its further versions. An API server has one version of MPIJob or the other."""

WORDS: Mapping[str, str] = {f"Event of {source}": source for source in (SCALER, PROVISIONER)}
"""The autoscaler that writes the Events of a stream, by the kind of the stream."""

CLAIM = "NodeClaim"
"""The kind of Karpenter's orders of nodes."""

ABOUT_NODES = "Event of Node"
"""The entry beside the watched kinds: whether Events about nodes count."""

_OF_NAMESPACES = (*OWNERS, *WORDS, "Pod")  # streams of what is in namespaces
_HEARD = (*WORDS, "Event", CLAIM, "Status")  # may stay silent: recording does not wait for it
_EVENTS = Resource("/api/v1", "events")
_CLAIMS = Resource("/apis/karpenter.sh/v1", "nodeclaims")
_CONFIG_MAPS = Resource("/api/v1", "configmaps")
_NAMESPACES = Resource("/api/v1", "namespaces")

_LOG = logging.getLogger(__name__)
_DISCOVERS = 20.0  # seconds between checks for unserved kinds, which take up to 10
_LISTS = 8  # concurrent lists of entered namespaces, by namespace and kind
_GONE = 3  # requests in a row after which a kind that is no longer served counts as deleted with all its objects
_REFUSALS = (*FORBIDDEN, 404)  # permanent answers


class Stream(NamedTuple):
    """The kind and the namespace of a stream; an empty namespace: all, or cluster-wide."""

    kind: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} in {self.namespace}" if self.namespace else self.kind

    def payer(self, change: Change) -> str:
        """The namespace charged for a change of this stream; empty for objects without a namespace."""
        return str(metadata(change.data).get("namespace", "")) if self.kind in _OF_NAMESPACES else ""


class _Namespace(NamedTuple):
    """An existing namespace. ``made_at`` is in Unix seconds by the API server's clock; 0 if unknown."""

    uid: str
    made_at: float


class Namespaces:
    """The existing namespaces, among the listed ones or all, and which of them are enabled.

    ``enabled`` are those whose objects are watched. ``entered`` are those whose unfinished runs are not taken up yet.
    """

    def __init__(self, listed: Sequence[str] = ()) -> None:
        self.listed = tuple(listed)
        self.enabled: set[str] = set()
        self.entered: set[str] = set()
        self._known: dict[str, _Namespace] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def put(self, name: str, data: Mapping[str, Any]) -> None:
        """Take the latest state of a namespace."""
        self._known[name] = _Namespace(uid_of(data), seconds(metadata(data).get("creationTimestamp")) or 0.0)

    def remove(self, name: str) -> None:
        """Note that a namespace was deleted."""
        self._known.pop(name, None)

    def is_wanted(self, name: str, data: Mapping[str, Any]) -> bool:
        """Whether a namespace must be watched: it is listed, or without a list has the label."""
        labels = metadata(data).get("labels") or {}
        return name in self.listed if self.listed else labels.get(ENABLED_LABEL) == "true"

    def is_enabled(self, data: Mapping[str, Any]) -> bool:
        """Whether an object is in a namespace that is watched."""
        return str(metadata(data).get("namespace", "")) in self.enabled

    @property
    def uids(self) -> Mapping[str, str]:
        """The UIDs of the namespaces that are watched, by their names."""
        return {name: known.uid for name, known in self._known.items() if name in self.enabled}

    def uid_for(self, root: Mapping[str, Any]) -> str:
        """The UID of a workload's namespace; empty if the namespace is gone and another one has its name."""
        known = self._known.get(str(metadata(root).get("namespace", "")))
        made_at = seconds(metadata(root).get("creationTimestamp"))
        return "" if known is None or (made_at is not None and made_at < known.made_at) else known.uid


class Streams:
    """The watched streams; :meth:`begin` starts them, :meth:`next` returns their changes, one after the other.

    ``words`` learns which autoscalers are readable. ``costs`` are the namespaces' costs. ``on_gone`` takes the deletion of each
    object of a kind that is no longer served; ``on_kinds`` is called after possible changes of the watched kinds, or of whether
    Events about nodes count (``node_events``).
    """

    def __init__(
        self,
        api: Api,
        namespaces: Namespaces,
        words: AutoscalerStatus,
        costs: NamespaceCosts,
        node_events: NodeEvents,
        on_gone: Callable[[Stream, Change], None],
        on_kinds: Callable[[], None],
    ) -> None:
        self._api, self._namespaces, self._words, self._costs = api, namespaces, words, costs
        self._node_events, self._on_gone, self._on_kinds = node_events, on_gone, on_kinds
        self._queue: FairQueue[tuple[Stream, Change | Exception, asyncio.Task[None] | None]] = FairQueue(1000, costs)
        self._sharing = Sharing()
        self._rooms = (
            NamespaceQuota(self._no_room),
            NamespaceQuota(self._no_room, self._sharing.cost),
        )  # of workloads, and of pods
        self._tasks: dict[Stream, asyncio.Task[None]] = {}
        self._mirrors: dict[Stream, Mirror] = {}
        self._waiting: set[Stream] = set()
        self._complete: set[Stream] = set()  # streams with a complete first list
        self._kinds: dict[str, str] = dict.fromkeys((*OWNERS, CLAIM), NOT_SERVED)  # watched, or why it is not
        self._missing: dict[str, int] = {}  # formerly served kinds: the number of checks without them
        self._has_begun = self._has_settled = False
        self._filling: dict[tuple[Stream, str], asyncio.Task[None]] = {}  # tasks that list an entered namespace
        self._later: set[Stream] = set()  # of kinds that came later, whose first list is not there
        self._given_up: list[Stream] = []
        self._lists = asyncio.Semaphore(_LISTS)

    async def begin(self) -> None:
        """Start all streams, and look for further kinds from then on."""
        for name in self._namespaces.listed:
            mirror = Mirror(self._api, _NAMESPACES, fields=f"metadata.name={name}", slim=_slim_namespace)
            self._follow(Stream("Namespace", name), mirror)
        if not self._namespaces.listed:
            self._follow(Stream("Namespace"), Mirror(self._api, _NAMESPACES, slim=_slim_namespace))
        self._follow(Stream("Node"), Mirror(self._api, Resource("/api/v1", "nodes")))
        fields = "involvedObject.kind=Node"
        about_nodes = Mirror(self._api, _EVENTS, NAMESPACE, fields=fields, slim=slim_node_event, remember=False)
        self._follow(Stream("Event"), about_nodes)
        await self._follow_autoscalers()
        await self._look_for_kinds()
        if not self._namespaces.listed:
            self._follow_namespace("")
        self._has_begun = True
        self._tasks[Stream("kinds")] = asyncio.create_task(self._guarded(self._discover), name="watch for kinds")

    async def end(self) -> None:
        """Stop all streams."""
        tasks = (*self._tasks.values(), *self._filling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def next(self) -> tuple[Stream, Change] | None:
        """Wait for the next change of any stream. Raises the error that ended a stream.

        None: a list from before the namespace came back has ended. It did not include the namespace's pods, so it does not
        count.
        """
        stream, change, pump = await self._queue.get()
        if isinstance(change, Exception):
            raise change
        if change.kind is not ChangeKind.SYNCED:
            return stream, change
        namespace = str(metadata(change.data).get("namespace", ""))
        if pump is not (self._filling.get((stream, namespace)) if namespace else self._tasks.get(stream)):
            return None
        self._filling.pop((stream, namespace), None)
        return stream, change

    # What is known

    @property
    def waiting(self) -> Collection[Stream]:
        """The streams without a complete first list."""
        return self._waiting

    @property
    def problems(self) -> Mapping[str, str]:
        """The streams that do not work now, with the reason."""
        return {str(stream): mirror.problem for stream, mirror in self._mirrors.items() if mirror.problem}

    @property
    def kinds(self) -> Mapping[str, str]:
        """By kind :data:`~spotwright.cluster.watched.WATCHED`, or why it is not watched in any version."""
        problems: dict[str, str] = {}
        for stream, mirror in self._mirrors.items():
            if mirror.problem and stream.kind in self._kinds:
                problems.setdefault(stream.kind, mirror.problem)
        found = {ABOUT_NODES: self._node_events.state}
        for name, state in {**self._kinds, **problems}.items():
            kind = _without_version(name)
            if found.get(kind, NOT_SERVED) == NOT_SERVED:
                found[kind] = state
        return found

    def is_ready(self, namespace: str) -> bool:
        """Whether everything needed to record a namespace's objects is known."""
        if namespace in self._namespaces.entered or self.is_filling(namespace):
            return False
        return not any(stream.namespace in ("", namespace) for stream in self._waiting)

    def is_filling(self, namespace: str) -> bool:
        """Whether the objects that a namespace had when it was enabled are still being listed."""
        return any(of == namespace for _, of in self._filling)

    def has_all(self, kind: str, namespace: str) -> bool:
        """Whether every object of this kind in a namespace is known."""
        scope = namespace if self._namespaces.listed else ""
        return any(Stream(name, scope) in self._complete for name in self._kinds if _without_version(name) == kind)

    def synced(self, stream: Stream) -> bool:
        """Note that a stream has delivered all objects. Returns whether for the first time."""
        is_first = stream not in self._complete
        self._waiting.discard(stream)
        self._later.discard(stream)
        self._complete.add(stream)
        self._has_settled = self._has_settled or not self._waiting
        return is_first

    def give_up(self) -> Iterator[Stream]:
        """Stop waiting for unavailable streams: unreadable autoscalers and kinds. Yields each.

        Recording needs the pods and the nodes; an unreadable kind allows no conclusion.
        """
        given_up, self._given_up = self._given_up, []
        yield from given_up
        for stream in list(self._waiting):
            mirror = self._mirrors[stream]
            if stream.kind in WORDS and mirror.status in _REFUSALS:
                self._words.can_hear = False
            may_miss = stream.kind in _HEARD or (stream.kind == "Namespace" and stream.namespace)
            if (may_miss and mirror.problem) or (stream.kind in OWNERS and mirror.status in _REFUSALS):
                self._waiting.discard(stream)
                yield stream

    # Namespaces

    def enter(self, namespace: str) -> None:
        """Follow a newly enabled namespace: its objects are listed while other namespaces continue.

        Before everything was listed once, the streams of all namespaces list again.
        """
        if self._namespaces.listed:
            self._follow_namespace(namespace)
            return
        for stream in map(Stream, _OF_NAMESPACES):
            if self._has_settled and stream in self._mirrors:
                filling = asyncio.create_task(self._guarded(partial(self._fill, stream, namespace)))
                self._filling[stream, namespace] = filling
            else:
                self._list_again(stream)

    async def _fill(self, stream: Stream, namespace: str) -> None:
        """Enqueue a namespace's objects, and the end of the list."""
        mirror = self._mirrors[stream]
        async with self._lists:
            async for change in mirror.catch_up(namespace):
                await self._queue.put((stream, change, None), namespace, partial(mirror.is_current, change))
        synced = Change(ChangeKind.SYNCED, {"metadata": {"namespace": namespace}})
        await self._queue.put((stream, synced, asyncio.current_task()), namespace)

    def leave(self, namespace: str) -> None:
        """Forget the objects of a namespace that is no longer enabled."""
        for kind in _OF_NAMESPACES:
            if (stream := Stream(kind)) in self._mirrors:
                self._mirrors[stream].drop(namespace)
            if (own := Stream(kind, namespace)) in self._mirrors:
                self._follow_no_more(own)
            if (filling := self._filling.pop((Stream(kind), namespace), None)) is not None:
                filling.cancel()

    def drop_waiting(self, namespace: str) -> None:
        """Drop the queued changes of a namespace that is served last."""
        self._queue.drop(namespace)

    def _follow_namespace(self, name: str) -> None:
        """Follow the objects of a namespace, or of all."""
        for kind, source in WORDS.items():
            if name or self._words.can_hear:
                self._follow(Stream(kind, name), self._words_mirror(source, name))
        for kind in OWNERS:
            if self._kinds[kind] == WATCHED:
                self._follow_kind(kind, name)
        pods = Mirror(
            self._api,
            Resource("/api/v1", "pods"),
            name,
            keep=self._namespaces.is_enabled,
            slim=self._sharing.shared,
            room=self._rooms[1],
        )
        self._follow(Stream("Pod", name), pods)

    def _no_room(self, namespace: str) -> None:
        """Set a namespace aside whose objects exceed its memory quota."""
        self._costs.put_aside((namespace, ""), "its objects need more memory than a namespace may use")

    # Autoscalers

    async def _follow_autoscalers(self) -> None:
        """Watch the autoscalers' readable status of pools: without it only the clock decides."""
        fields = f"metadata.name={STATUS}"
        if await self._may_read(_CONFIG_MAPS, fields, KUBE_SYSTEM):
            self._follow(Stream("Status"), Mirror(self._api, _CONFIG_MAPS, KUBE_SYSTEM, fields=fields))
        if not self._namespaces.listed:
            for source in WORDS.values():
                if not await self._may_read(_EVENTS, f"source={source}"):
                    self._words.can_hear = False
        elif NAMESPACE not in self._namespaces.listed:  # Karpenter's words on its pools
            self._follow(Stream(f"Event of {PROVISIONER}"), self._words_mirror(PROVISIONER, NAMESPACE))

    def _words_mirror(self, source: str, namespace: str) -> Mirror:
        fields = f"source={source}"
        return Mirror(self._api, _EVENTS, namespace, fields=fields, keep=self._is_word, slim=slim_word, remember=False)

    def _is_word(self, event: Mapping[str, Any]) -> bool:
        return is_word(event, self._namespaces.enabled)

    async def _may_read(self, resource: Resource, fields: str = "", namespace: str = "") -> bool:
        """Whether these objects may be listed. If not, that is logged once; other failures may be temporary."""
        params = {"limit": "1", **({"fieldSelector": fields} if fields else {})}
        try:
            async with asyncio.timeout(ANSWERS):
                await self._api.get(resource.path(namespace), params)
        except TimeoutError:
            return True
        except ApiFailed as error:
            if error.status not in _REFUSALS:
                return True  # it may pass
            _LOG.warning(
                "some autoscalers' status cannot be read: %s; docs/how-to/cluster/install.md has the rights", error
            )
            return False
        return True

    # Kinds

    async def _discover(self) -> None:
        while True:
            await asyncio.sleep(_DISCOVERS)
            await self._look_for_kinds()

    async def _look_for_kinds(self) -> None:
        """Watch newly served kinds, and stop watching kinds that are no longer served."""
        if await self._node_events.ask() and self._has_begun:
            self._list_again(Stream("Event"))
        resources = {**OWNERS, CLAIM: _CLAIMS}
        wanted = {
            kind: resource
            for kind, resource in resources.items()
            if self._kinds[kind] != WATCHED or self._is_missing(kind)
        }
        for kind in self._missing.keys() - wanted.keys():
            del self._missing[kind]
        for kind, found in (await find_served(self._api, wanted, resources.values())).items():
            if self._kinds[kind] == WATCHED:
                self._look_at_missing(kind, found)
            elif found.why:
                self._note_kind(kind, found.why)
            elif kind == CLAIM:
                await self._follow_claims()
            else:
                self._note_kind(kind, WATCHED)
                for namespace in [stream.namespace for stream in self._mirrors if stream.kind == "Pod"]:
                    self._follow_kind(kind, namespace)  # of the others it is followed with their pods
        self._on_kinds()

    async def _follow_claims(self) -> None:
        if not await self._may_read(_CLAIMS):
            self._note_kind(CLAIM, "reading it is forbidden")
            return
        self._note_kind(CLAIM, WATCHED)
        self._words.sees_claims = True
        self._follow(Stream(CLAIM), Mirror(self._api, _CLAIMS, slim=slim_claim))

    def _follow_kind(self, kind: str, namespace: str) -> None:
        is_enabled = self._namespaces.is_enabled
        mirror = Mirror(self._api, OWNERS[kind], namespace, keep=is_enabled, room=self._rooms[0], shortens=True)
        self._follow(Stream(kind, namespace), mirror)

    def _is_missing(self, kind: str) -> bool:
        return any(mirror.status == 404 for stream, mirror in self._mirrors.items() if stream.kind == kind)

    def _look_at_missing(self, kind: str, found: Found) -> None:
        """Stop following a kind that is no longer found; if the API server gave no answer, it may return at any time."""
        if found.is_known:
            self._missing[kind] = self._missing.get(kind, 0) + 1 if found.why else 0
            if self._missing[kind] >= _GONE:
                self._end_kind(kind, found.why)

    def _end_kind(self, kind: str, why: str) -> None:
        """Stop following a kind. If it is not served, the API server has deleted all its objects.

        A kind in an unsupported version still has its objects, which are unknown from now on.
        """
        self._note_kind(kind, why)
        self._missing.pop(kind, None)
        for stream in [stream for stream in self._mirrors if stream.kind == kind]:
            left = list(self._mirrors[stream].objects.values()) if why == NOT_SERVED else ()
            for data in left:
                self._on_gone(stream, Change(ChangeKind.DELETED, data))
            self._follow_no_more(stream)
        if kind == CLAIM:
            self._words.sees_claims = False

    def _note_kind(self, kind: str, state: str) -> None:
        before, self._kinds[kind] = self._kinds[kind], state
        if before == state or (state == NOT_SERVED and not self._has_begun):
            return
        if state == WATCHED and self._has_begun:
            _LOG.info("%s is served now: starting to watch it", kind)
        elif state == NOT_SERVED and before == WATCHED:
            _LOG.warning("%s is no longer served: watching it again once it returns", kind)
        elif state not in (WATCHED, NOT_SERVED):
            _LOG.warning("cannot record %s: %s", kind, state)

    # One stream

    def _follow(self, stream: Stream, mirror: Mirror) -> None:
        self._mirrors[stream] = mirror
        self._take_from(stream)

    def _take_from(self, stream: Stream) -> None:
        is_later = self._has_begun and stream.kind in OWNERS and not self._namespaces.entered
        (self._later if is_later else self._waiting).add(stream)
        self._complete.discard(stream)
        self._tasks[stream] = asyncio.create_task(self._guarded(lambda: self._pump(stream)), name=f"watch {stream}")

    def _list_again(self, stream: Stream) -> None:
        if stream in self._mirrors:
            self._tasks[stream].cancel()
            self._mirrors[stream].list_again()
            self._take_from(stream)

    def _follow_no_more(self, stream: Stream) -> None:
        self._tasks.pop(stream).cancel()
        del self._mirrors[stream]
        self._waiting.discard(stream)
        self._later.discard(stream)
        self._complete.discard(stream)
        for key in [key for key in self._filling if key[0] == stream]:
            self._filling.pop(key).cancel()
            self._given_up.append(Stream(stream.kind, key[1]))

    async def _pump(self, stream: Stream) -> None:
        async for change in self._mirrors[stream].changes():
            await self._queue.put((stream, change, asyncio.current_task()), stream.payer(change))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # wakes the consumer, because this task's result is not read
            await self._queue.put((Stream("kinds"), error, None))


def _without_version(name: str) -> str:
    """The kind of a name of :data:`OWNERS`."""
    return name.partition(" ")[0] if name in OWNERS else name


def _slim_namespace(namespace: dict[str, Any]) -> dict[str, Any]:
    """The fields of a namespace that are read."""
    meta, kept = metadata(namespace), ("name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    label = (meta.get("labels") or {}).get(ENABLED_LABEL)
    found = {key: meta[key] for key in kept if key in meta}
    return {"kind": "Namespace", "metadata": {**found, "labels": {} if label is None else {ENABLED_LABEL: label}}}
