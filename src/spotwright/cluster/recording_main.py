"""``python -m spotwright.cluster.recording_main``: what records, keeps logs and moves pods, started by the controller.

Its input begins with the settings in a line of JSON; each further line says until when this process may write, because the
process that has started it holds the Lease until then (:mod:`spotwright.cluster.recording_process`). It ends with its input. Each
second it writes a line of JSON: that it lives, and what it counts. It leaves the processor to those who answer reviews.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.lease import lease_path, uptime
from spotwright.cluster.log_store import FolderRuns, LogRuns, LogStore
from spotwright.cluster.namespace_costs import LOOK, AsideEvents, NamespaceCosts
from spotwright.cluster.observer import noted_unplaced, why_unplaced
from spotwright.cluster.parts import until_one_ends
from spotwright.cluster.recording import watch_and_keep_logs, without_pools
from spotwright.cluster.retention import RecordedLogRuns, Retention
from spotwright.cluster.run_api import publish_watched
from spotwright.cluster.run_records import FolderRecords, RunRecords
from spotwright.cluster.run_store import RunStore, WorkloadRun, this_process
from spotwright.cluster.served_kinds import NOT_SERVED
from spotwright.cluster.spot_pools import PoolObjects
from spotwright.cluster.unavailable_pools import Tally
from spotwright.cluster.view import SeenPod
from spotwright.cluster.watched import WATCHED, Watched
from spotwright.errors import Fenced, SpotwrightError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.model.pools import Pool
from spotwright.records.state_folder import StateFolder
from spotwright.visible_logs import log_visibly

__all__ = ["Fence", "Troubles", "Unplaced", "UnreadKinds", "main"]


_LOG = logging.getLogger(__name__)
_PDEATHSIG = 1  # of prctl(2)
_NICE = 5  # a third of the processor that others have who want it at the same time
_TELLS = 1.0  # seconds between two lines
_POLL = 0.05  # seconds
_NEWS, _MINUTE = 600.0, 60.0  # seconds
_LASTS = 30.0  # seconds until what cannot be read is told: an API server that starts has not everything at once
_SEEN_KEPT = 10_000  # UIDs of pods
_AT_ONCE = 65_536  # bytes of a pipe


class Fence:
    """Until when this process may write, as its input says. ``file`` is that input; it is not waited for any more."""

    def __init__(self, file: int, rest: bytes = b"", clock: Callable[[], float] = uptime) -> None:
        os.set_blocking(file, False)
        self._file, self._rest, self._clock = file, rest, clock
        self.until = 0.0
        self.has_ended = False
        self.on_require: Callable[[], None] = lambda: None

    def hear(self) -> None:
        """Take what has been said by now."""
        with contextlib.suppress(BlockingIOError):
            while not self.has_ended:
                said = os.read(self._file, _AT_ONCE)
                self.has_ended, self._rest = not said, self._rest + said
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self.until = float(lines[-1])

    def require(self) -> None:
        """Call before each write. Raises :class:`Fenced` unless the Lease is held."""
        self.hear()
        self.on_require()
        if self._clock() >= self.until:
            raise Fenced("the lease is not held any more: this process writes nothing more")

    async def ended(self) -> None:
        """Wait until the input has ended."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def hear() -> None:
            self.hear()
            if self.has_ended:
                loop.remove_reader(self._file)
                over.set()

        loop.add_reader(self._file, hear)
        await over.wait()


class Unplaced:
    """Tells each namespace of its pods that started unplaced; await :meth:`tell`. ``tally`` counts them.

    ``now`` is the API server's clock: what was made long before is no news to anybody.
    """

    def __init__(self, events: EventWriter, now: Callable[[], float], tally: Tally) -> None:
        self._events, self._now, self._tally = events, now, tally
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._new: dict[str, list[tuple[Mapping[str, Any], str]]] = {}  # by namespace: each with what is known of it
        self._told_at: dict[str, float] = {}

    def look(self, run: WorkloadRun, seen: SeenPod, _is_cut_off: bool) -> None:
        """Hear of a pod that is recorded."""
        pod = seen.pod
        made_at = seconds(metadata(pod).get("creationTimestamp")) or 0.0
        if uid_of(pod) in self._seen or made_at < self._now() - _NEWS:
            return
        why = why_unplaced(pod) or noted_unplaced(run, pod)
        if not why:
            return
        self._seen[uid_of(pod)] = None
        if len(self._seen) > _SEEN_KEPT:
            self._seen.popitem(last=False)
        self._tally.unplaced += 1
        self._new.setdefault(str(metadata(pod).get("namespace", "")), []).append((pod, why))

    async def tell(self) -> None:
        """Write an Event about the first of them, for each namespace at most once a minute, until cancelled."""
        while True:
            for namespace in [each for each in self._new if self._now() >= self._told_at.get(each, 0.0) + _MINUTE]:
                pods = self._new.pop(namespace)
                self._told_at[namespace] = self._now()
                more = f", and {len(pods) - 1} more" if len(pods) > 1 else ""
                pod, why = pods[0]
                text = f"pod {metadata(pod).get('name', '')}{more} started unplaced: {why}"
                _LOG.warning("namespace %s: %s", namespace, text)
                await self._events.write(pod, "StartedUnplaced", text, is_warning=True)
            await asyncio.sleep(_TELLS)


class UnreadKinds:
    """Tells of kinds that the API server has and that cannot be read, by Events in the controller's namespace ``home``.

    ``tally`` gets by kind whether it is read. Await :meth:`tell`.
    """

    def __init__(self, events: EventWriter, home: str, tally: Tally) -> None:
        self._events, self._home, self._tally = events, home, tally
        self._told: set[tuple[str, str]] = set()
        self._before: set[tuple[str, str]] = set()
        self._now: set[tuple[str, str]] = set()

    def hear(self, kinds: Mapping[str, str]) -> None:
        """Hear by kind that it is watched, or why it is not."""
        there = {kind: state for kind, state in kinds.items() if state not in ("", NOT_SERVED)}
        self._tally.kinds = {kind: state == WATCHED for kind, state in there.items()}
        self._now = {(kind, state) for kind, state in there.items() if state != WATCHED}

    async def tell(self) -> None:
        """Write an Event about each that lasts, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LASTS)

    async def look(self) -> None:
        """Write an Event about what was so at the last look, too, and is not told yet."""
        now = set(self._now)
        self._told &= now
        for kind, why in sorted((now & self._before) - self._told):
            about = {"name": self._home, "namespace": self._home}
            event = {"apiVersion": "v1", "kind": "Namespace", "metadata": about}
            await self._events.write(event, "KindNotRead", f"{kind} is not read: {why}", is_warning=True)
            self._told.add((kind, why))
        self._before = now


class Troubles:
    """Writes an Event in the controller's own namespace about what it cannot do now; await :meth:`tell`."""

    def __init__(self, events: EventWriter, home: str) -> None:
        self._events, self._home = events, home
        self._new = asyncio.Queue[str]()

    def heard(self, text: str) -> None:
        """Hear a sentence about the store of logs."""
        self._new.put_nowait(text)

    async def tell(self) -> None:
        """Write, until cancelled."""
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._home, "namespace": self._home}}
        while True:
            await self._events.write(about, "LogsNotKept", await self._new.get(), is_warning=True)


class _Telling:
    """Writes what is counted, at most once a second."""

    def __init__(self, file: int, tally: Tally, costs: NamespaceCosts) -> None:
        self._file, self._tally, self._costs, self._told_at = file, tally, costs, 0.0

    def tell(self) -> None:
        """Write a line, unless one was written within the last second."""
        now = time.monotonic()
        if now < self._told_at + _TELLS:
            return
        self._told_at = now
        waiting = [(namespace, reason, count) for (namespace, reason), count in self._tally.waiting.items()]
        aside = [namespace for namespace, _ in self._costs.aside]
        said = {
            "moves": self._tally.moves,
            "waiting": waiting,
            "aside": aside,
            "unplaced": self._tally.unplaced,
            "kinds": self._tally.kinds,
        }
        line = msgspec.json.encode(said) + b"\n"
        while line:
            line = line[os.write(self._file, line) :]

    async def run(self) -> None:
        """Tell again and again: an event loop that is held up says nothing."""
        while True:
            self.tell()
            await asyncio.sleep(_TELLS)


def main() -> int:
    """Work until the input ends. Returns the exit code."""
    told, said = os.dup(1), os.dup(0)
    os.dup2(2, 1)  # whatever prints must not write among the lines
    _end_with_the_parent()
    head, rest = _first_line(said)
    if not head:
        return 0
    given = msgspec.json.decode(head)
    settings = Settings.from_json(msgspec.json.encode(given["settings"]))
    _start_logging(given["level"])
    os.setpriority(os.PRIO_PROCESS, 0, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent gets it too, and ends this process
    try:
        asyncio.run(_record(settings, Fence(said, rest), told))
    except Fenced as error:
        _LOG.warning("%s", error)
    except (BrokenPipeError, asyncio.CancelledError):
        return 0
    except SpotwrightError as error:
        _LOG.error("%s", error)  # one line, no traceback
        return 1
    return 0


async def _record(settings: Settings, fence: Fence, told: int) -> None:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    cluster = find_cluster(settings.context, kubeconfig=settings.kubeconfig)
    api = Api(connect(cluster, many_streams=True))  # each listed namespace has streams of its own
    state, tally = StateFolder.open(settings.state), Tally()
    configurations = Configurations(settings.home)
    config_maps = ConfigMaps(api, configurations, None, settings.namespaces)
    aside = AsideEvents(EventWriter(api), "nothing that happens there is recorded until then")
    costs = NamespaceCosts(LOOK, on_set_aside=aside.heard)
    unplaced = Unplaced(EventWriter(api), api.now, tally)
    unread = UnreadKinds(EventWriter(api), settings.home, tally)
    troubles = Troubles(EventWriter(api), settings.home)
    telling = _Telling(told, tally, costs)
    fence.on_require = telling.tell
    kubernetes = Kubernetes(settings.context, settings.kubeconfig) if settings.records_in_api else None
    records: RunRecords = FolderRecords(state)
    retention, pools, on_watched = None, None, None
    if kubernetes is not None:
        on_watched = partial(_publish, kubernetes, settings.home) if settings.is_stateless else None
        pools = PoolObjects(kubernetes, settings.release, lambda: _pools_of(configurations), api.now, fence.require)
        records = ApiRecords(kubernetes, state, settings.namespaces)
        retention = Retention(api, EventWriter(api), settings.namespaces, state)
    place = None
    if settings.logs:
        runs: LogRuns = FolderRuns(state)
        if settings.records_in_api:
            runs = RecordedLogRuns(api, uid_of(await api.get(lease_path(settings.home, settings.name))))
        place = LogStore(settings.logs, settings.log_limit, runs, troubles.heard)
    store = RunStore(
        records,
        lambda namespace: configurations.of(namespace) or without_pools(),
        this_process(),
        fence.require,
        None if retention is None else retention.shares,
    )

    async def watch() -> None:
        while not config_maps.is_complete:  # noqa: ASYNC110  # a stream of its own sets it
            await asyncio.sleep(_POLL)
        await watch_and_keep_logs(
            api,
            store,
            state,
            partial(connect, cluster, many_streams=True),
            limit=settings.log_limit,
            place=place,
            namespace_limit=settings.namespace_log_limit,
            namespaces=settings.namespaces,
            tally=tally,
            order_limit=settings.max_node_provision_time,
            costs=costs,
            on_recorded=unplaced.look,
            pools=pools,
            name=settings.name,
            on_kinds=unread.hear,
            on_watched=on_watched,
            retention=retention,
        )

    try:
        await until_one_ends(
            [
                fence.ended(),
                telling.run(),
                aside.tell(),
                unplaced.tell(),
                unread.tell(),
                troubles.tell(),
                config_maps.follow(),
                watch(),
            ]
        )
    finally:
        await api.close()
        if kubernetes is not None:
            kubernetes.close()


def _publish(kubernetes: Kubernetes, home: str, watched: Watched) -> None:
    """Tell other replicas what is watched. They know less where that fails, and nothing stops."""
    try:
        kubernetes.call(publish_watched(kubernetes.api, home, watched))
    except SpotwrightError as error:
        _LOG.warning("explain does not know at other replicas what is watched: %s", error)


def _pools_of(configurations: Configurations) -> Mapping[str, Pool]:
    """The pools of the cluster's configuration; none without one."""
    config = configurations.of(configurations.home)
    return {} if config is None else config.pools


def _first_line(file: int) -> tuple[bytes, bytes]:
    """The first line of the input, and what has come after it; empty if the input ends before."""
    found = b""
    while b"\n" not in found:
        said = os.read(file, _AT_ONCE)
        if not said:
            return b"", b""
        found += said
    head, _, rest = found.partition(b"\n")
    return head, rest


def _end_with_the_parent() -> None:
    """Let Linux kill this process when the thread ends that has started it: then nobody renews the Lease for it."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit(0)


def _start_logging(level: int) -> None:
    log_visibly(level)
    for noisy in ("httpx2", "httpcore2", "asyncio", "spotwright.cluster.configurations"):  # the parent says the same
        logging.getLogger(noisy).setLevel(logging.WARNING)


if __name__ == "__main__":
    raise SystemExit(main())
