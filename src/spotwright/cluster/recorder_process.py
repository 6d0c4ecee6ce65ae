"""The recorder: records attempts, stores their logs, evicts pods while this replica holds the Lease, and serves logs to people.

A look at a workload may take long, so recording has a separate thread and event loop, while the Lease is renewed and probes and
readers are answered.

After an error recording is retried, with growing pauses; if it fails for minutes or hangs, probes fail, so that the process is
restarted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

from spotwright.cluster.api_client import Api, ApiFailed, EventWriter, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.certificates import READERS, are_same, united
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_events import Defects, Troubles, Unplaced, UnreadKinds
from spotwright.cluster.controller_settings import RecorderSettings
from spotwright.cluster.health import SWITCH_INTERVAL, Health, ServedCertificate, own_certificate
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.lease import KubernetesLease, lease_path, while_held
from spotwright.cluster.log_place import LogPlace
from spotwright.cluster.log_server import publish_authority, publish_watched, start_log_server
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.log_tails import LogTails
from spotwright.cluster.metrics import Metrics, serve_metrics
from spotwright.cluster.namespace_costs import LOOK, AsideEvents, NamespaceCosts
from spotwright.cluster.parts import in_own_thread, until, until_one_ends
from spotwright.cluster.recording import watch_and_keep_logs, without_pools
from spotwright.cluster.retention import RecordedLogRuns, Retention
from spotwright.cluster.run_archives import Archiver
from spotwright.cluster.run_objects import TAIL
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.shown_runs import LogsKept
from spotwright.cluster.spot_pools import FollowedPools, PoolObjects
from spotwright.cluster.unavailable_pools import PoolsLeftOut, Tally
from spotwright.cluster.watched import Watched
from spotwright.errors import Fenced, InputError, SpotwrightError
from spotwright.kube.object_fields import uid_of
from spotwright.model.pools import Pool

__all__ = ["Recorder", "run_recorder"]


_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0  # seconds until recording is retried; doubled each time
_WELL = 60.0  # seconds after which it counts as healthy, and the wait is reset
_FAILING = 300.0  # seconds without health until this process counts as broken
_PATIENCE = 10.0  # seconds for an API server's answer, and until a retry
_STUCK = 120.0  # seconds without a sign of life: longer than any look on a busy machine


async def run_recorder(settings: RecorderSettings, api: Api) -> None:
    """Record, whenever this replica holds the Lease, until cancelled. ``api`` is for everything except recording.

    Raises :class:`SpotwrightError` for unusable settings.
    """
    sys.setswitchinterval(SWITCH_INTERVAL)
    events, recorder = EventWriter(api), Recorder(settings)
    pools = FollowedPools(api, settings.release)
    metrics = Metrics(
        tally=recorder.tally, pauses=lambda: PoolsLeftOut(pools.findings).all(api.now()), aside=lambda: recorder.aside
    )
    async with AsyncExitStack() as stack:
        await serve_metrics(metrics, settings, recorder.health, lambda: recorder.has_begun, stack)
        certificate = stack.enter_context(own_certificate(settings, settings.served_names, events, READERS))
        parts = [recorder.run(api), pools.follow()]
        if settings.read_port is not None:
            parts.append(await _serve_logs(settings, api, certificate, stack))
        await until_one_ends(parts)


async def _serve_logs(
    settings: RecorderSettings, api: Api, certificate: ServedCertificate, stack: AsyncExitStack
) -> Coroutine[Any, Any, None]:
    """Listen until ``stack`` is closed. Returns the task that keeps the certificate valid."""
    host, port = settings.read_host, settings.read_port or 0
    try:
        store = {"logs": settings.logs, "repair_group": settings.repair_group}
        runner = await start_log_server(api, certificate.context(), host=host, port=port, **store)
    except OSError as error:
        raise InputError(f"{host}:{port}: cannot listen there ({error}); see --read-listen") from error
    stack.push_async_callback(runner.cleanup)
    _LOG.info("logs are read at https://%s:%d", host, runner.addresses[0][1])
    problem = ""

    async def publish(authority: bytes) -> None:
        """Publish the authority for readers. Without the right to do so, readers name a file."""
        nonlocal problem
        try:
            await publish_authority(api, settings.home, authority.decode(), _united)
            problem = ""
        except ApiFailed as error:
            if problem != str(error):
                _LOG.warning("cannot publish the CA of our certificate to readers: %s", error)
            problem = str(error)

    await certificate.publish_first(publish)
    return certificate.follow(publish)


def _united(own: str, known: str) -> str:
    """The authorities of all replicas: each may have a separate one."""
    found = united(own.encode(), known.encode(), datetime.now(UTC)).decode()
    return known if are_same(found.encode(), known.encode()) else found


class Recorder:
    """Records repeatedly, whenever this replica holds the Lease: await :meth:`run`. ``clock`` is monotonic.

    ``tally`` counts its actions; ``health`` says whether the process should be restarted. ``has_begun``: it holds the Lease,
    or waits for it.
    """

    def __init__(self, settings: RecorderSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._failures = 0  # in a row
        self._failing_since: float | None = None
        self._failed_at: float | None = None
        self._costs: NamespaceCosts | None = None  # while it records
        self.tally, self.health, self.has_begun = Tally(), Health(_STUCK), False

    @property
    def aside(self) -> list[tuple[str, str]]:
        """The set-aside namespaces, each with the name of this part."""
        costs = self._costs  # the thread that records sets it
        return [] if costs is None else [(name, "watcher") for name, _ in costs.aside]

    async def run(self, api: Api) -> None:
        """Be elected and record, until cancelled; then the recording has ended."""
        lease = KubernetesLease(api, self._settings.home, self._settings.name)
        self.has_begun = True
        while True:
            idle = asyncio.ensure_future(self.health.beat())  # idle is healthy

            async def record(epoch: int, idle: asyncio.Future[None] = idle) -> None:
                _LOG.info("this replica is recording now, epoch %d", epoch)
                idle.cancel()
                began = self._clock()
                if self._failed_at is not None and began >= self._failed_at + _FAILING:
                    self._forget_failures()  # others have recorded since
                try:
                    await in_own_thread(partial(self._record, lease))
                finally:
                    if self._clock() >= began + _WELL:
                        self._forget_failures()

            try:
                await while_held(lease, record)
            except Fenced as error:
                _LOG.warning("%s", error)
            except SpotwrightError as error:
                _LOG.error("recording failed: %s", error)  # one line, no traceback
                await self._wait()
            except Exception:  # noqa: BLE001  # a defect, or a hostile object
                _LOG.exception("recording failed")
                await self._wait()
            finally:
                idle.cancel()

    def _forget_failures(self) -> None:
        self._failures, self._failing_since, self._failed_at, self.health.failure = 0, None, None, ""

    async def _wait(self) -> None:
        """Wait until the next retry of recording, and report after minutes that it fails."""
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._failures, 10))
        self._failures += 1
        now = self._failed_at = self._clock()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now >= self._failing_since + _FAILING:
            self.health.failure = f"the recording has failed {self._failures} times in a row"
        _LOG.info("retrying the recording in %g s", wait)
        beating = asyncio.ensure_future(self.health.beat())
        await asyncio.sleep(wait)
        beating.cancel()

    async def _record(self, lease: KubernetesLease) -> None:
        """Record until cancelled, on the event loop of a separate thread."""
        settings, tally = self._settings, self.tally
        cluster = find_cluster(settings.context, kubeconfig=settings.kubeconfig)
        api = Api(connect(cluster, many_streams=True))  # each listed namespace has its own streams
        kubernetes = Kubernetes(settings.context, settings.kubeconfig)
        configurations = Configurations(settings.home)
        config_maps = ConfigMaps(api, configurations, None, settings.namespaces)
        events = EventWriter(api)
        aside = AsideEvents(events, "its events are not recorded until then")
        self._costs = costs = NamespaceCosts(LOOK, on_set_aside=aside.heard)
        unplaced, unread = Unplaced(events, api.now, tally), UnreadKinds(events, settings.home, tally)
        troubles, defects = Troubles(events, settings.home), Defects(events, api.now, tally)

        def require() -> None:
            self.health.alive()
            lease.require()

        pools = PoolObjects(kubernetes, settings.release, partial(_pools_of, configurations), api.now, require)
        of_attempt = TAIL if settings.log_limit and not settings.logs else 0
        retention = Retention(api, events, settings.namespaces, of_attempt=of_attempt, outcomes=tally.archives)
        store = RunStore(
            ApiRecords(
                kubernetes,
                settings.namespaces,
                LogsKept.of(settings.logs, settings.log_limit),
                f"{settings.home}/{settings.name}",
            ),
            lambda namespace: configurations.of(namespace) or without_pools(),
            require,
            retention.shares,
        )

        publishing = _Publishing(api, settings.home)

        def heard_of_problem(problem: str) -> None:
            tally.problem = problem
            if problem:
                troubles.heard(f"recording waits until writes succeed: {problem}", "NotRecorded")

        async def watch() -> None:
            place = await self._place(api, require, troubles)
            if isinstance(place, LogStore):
                retention.archiver = Archiver(api, place.objects, place.owner)
                retention.on_archived = place.archived
            await until(lambda: config_maps.is_complete)
            await watch_and_keep_logs(
                api,
                store,
                partial(connect, cluster, many_streams=True),
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
                on_watched=publishing.heard,
                retention=retention,
                on_problem=heard_of_problem,
                on_defect=defects.heard,
            )

        try:
            await until_one_ends(
                [
                    self.health.beat(),
                    aside.tell(),
                    unplaced.tell(),
                    defects.tell(),
                    unread.tell(),
                    troubles.tell(),
                    publishing.run(),
                    config_maps.follow(),
                    watch(),
                ]
            )
        finally:
            self._costs = None
            await api.close()
            kubernetes.close()

    async def _place(self, api: Api, require: Callable[[], None], troubles: Troubles) -> LogPlace | None:
        """Where logs are stored; None: nowhere."""
        settings = self._settings
        if not settings.log_limit:
            return None
        if not settings.logs:
            return LogTails(api, require, settings.namespaces)
        owner = uid_of(await api.get(lease_path(settings.home, settings.name)))
        return LogStore(settings.logs, settings.log_limit, RecordedLogRuns(api, owner), troubles.heard)


class _Publishing:
    """Publishes the watched scope to readers: await :meth:`run`.

    After a failure they see an older state until a retry succeeds.
    """

    def __init__(self, api: Api, home: str) -> None:
        self._api, self._home = api, home
        self._watched, self._is_new = Watched(), asyncio.Event()

    def heard(self, watched: Watched) -> None:
        """Publish this state from now on."""
        self._watched = watched
        self._is_new.set()

    async def run(self) -> None:
        """Write each new state, until cancelled."""
        problem = ""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await publish_watched(self._api, self._home, self._watched)
                problem = ""
            except (SpotwrightError, TimeoutError) as error:
                if problem != repr(error):
                    _LOG.warning("cannot publish for explain what is watched: %r", error)
                problem = repr(error)
                await asyncio.sleep(_PATIENCE)
                self._is_new.set()


def _pools_of(configurations: Configurations) -> Mapping[str, Pool]:
    """The pools of the cluster's configuration; empty without one."""
    config = configurations.of(configurations.home)
    return {} if config is None else config.pools
