"""A controller in this process, each part in a separate thread, so that the cost of an object can be measured.

The parts are the real ones: the webhook behind TLS, its numbers and lookups, the watcher with recorder, descheduler and log
keeper, the port for logs and the metrics. Records and pools are objects of the API, whole logs are in a folder. The rest of
the two processes (elections, renewal of certificates) has separate tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from aiohttp import web
from tests.cluster.controller.authorities import Pair, an_authority, issued
from tests.cluster.controller.controller_process import kubeconfig
from tests.cluster.hostile.cluster_server import ClusterServer

from spotwright.cluster.admission_server import Webhook, start_server
from spotwright.cluster.admit_pods import RefusalPods
from spotwright.cluster.api_client import Api, EventWriter
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.attempt_lookup import NO_PLAN, AttemptHistoryReader, Lookups
from spotwright.cluster.attempt_numbers import Numbers, PodsSeen
from spotwright.cluster.autoscaler_reader import AutoscalerReader
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_settings import Settings
from spotwright.cluster.health import Health
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_server import start_log_server
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.metrics import Metrics, serve_metrics
from spotwright.cluster.namespace_costs import LOOK, NamespaceCosts
from spotwright.cluster.recorded_histories import RecordedHistories
from spotwright.cluster.recording import watch_and_keep_logs, without_pools
from spotwright.cluster.retention import RecordedLogRuns
from spotwright.cluster.run_objects import API_VERSION
from spotwright.cluster.run_store import RunStore
from spotwright.cluster.spot_pools import FollowedPools, PoolObjects
from spotwright.cluster.unavailable_pools import PoolsLeftOut, Tally
from spotwright.cluster.webhook_process import warm_up
from spotwright.config import Config
from spotwright.engine.events import RunStatus

PATIENCE = 60.0
HOME, RELEASE = "spotwright", "spotwright.spotwright"
LOG_LIMIT = 1 << 20
_RECORDS = "requests to Kubernetes"  # the thread that writes what the watcher records
_T = TypeVar("_T")


class Loop:
    """An event loop in a separate thread, for the whole session."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self.thread.start()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run something there, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def call(self, function: Callable[[], _T]) -> _T:
        """Call something there, and wait for it."""

        async def called() -> _T:
            return function()

        return self.do(called())


class Clock:
    """The clock of the API server, which stands where the test has put it: a history has the same times in every run."""

    moment = 0.0

    @classmethod
    @contextlib.contextmanager
    def in_force(cls) -> Iterator[None]:
        """Let all parts read it."""
        before = Api.now
        Api.now = lambda _self: cls.moment  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Api.now = before  # type: ignore[method-assign]


class Parts:
    """The parts of one controller. :meth:`begin` starts them, :meth:`end` ends them and says whether one had ended itself."""

    def __init__(self, folder: Path, server: ClusterServer, api: Loop, answering: Loop, watching: Loop) -> None:
        self.folder, self.server = folder, server
        self._api, self._answering, self._watching = api, answering, watching
        self.logs = f"file://{folder.absolute()}/logs"
        self.verdicts = Counter[str]()
        self.tally = Tally()
        self.configurations = Configurations(HOME)
        self._tasks: list[tuple[Loop, asyncio.Task[Any]]] = []
        self._closing: list[tuple[Loop, Callable[[], Awaitable[Any]]]] = []
        self.context = client_context()
        self.webhook_url = self.reading_url = self.metrics_url = ""
        self.told: list[str] = []  # what was said of a part that has ended by itself

    # Start and end

    def begin(self) -> None:
        """Start everything, and wait until the streams are complete."""
        heard, logger = _Heard(), logging.getLogger("spotwright.cluster.watcher")
        logger.addHandler(heard)
        logger.setLevel(logging.INFO)
        self._closing.append((self._api, _later(lambda: logger.removeHandler(heard))))
        self._answering.do(self._begin_answering())
        self._watching.do(self._begin_watching())
        self.until(lambda: heard.is_complete and all(part.is_complete for part in self._followed), "all streams")
        self.until(lambda: self.server.objects[f"/apis/{API_VERSION}/spotpools"], "the pools of the cluster")

    def _client(self) -> Api:
        return Api(self._http())

    def _http(self) -> httpx2.AsyncClient:
        """A client of the API server. The context is shared: to read the authorities of the system takes 20 ms each time."""
        return httpx2.AsyncClient(base_url=self.server.url, timeout=60, verify=self.context)

    async def _begin_answering(self) -> None:
        api = self._client()
        self.config_maps = ConfigMaps(api, self.configurations, EventWriter(api))
        self.recorded, self.pools = RecordedHistories(api, NO_PLAN), FollowedPools(api, RELEASE)
        numbers = Numbers(api)
        lookups, autoscalers = Lookups(api), AutoscalerReader(api)
        pauses = PoolsLeftOut(self.pools.findings)

        def left_out(namespace: str, now: float) -> Collection[str]:
            config = self.configurations.of(namespace)
            return () if config is None else pauses.of(namespace, config.pools, now)

        facts = AttemptHistoryReader(api, lookups, self.recorded.of, numbers, left_out, lambda: autoscalers.seen)
        seen = PodsSeen(api, numbers.confirm)
        self._followed = self.config_maps, seen, autoscalers, self.recorded, self.pools
        webhook = Webhook(
            self.configurations,
            lookups.find_object,
            facts.find,
            lambda: True,
            RefusalPods("busybox:1"),
            name="spotwright/spotwright",
            verdicts=self.verdicts,
        )
        runner = await start_server(webhook, _server_context(self.folder), host="127.0.0.1", port=0)
        self.webhook_url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        reader = await start_log_server(api, _server_context(self.folder), host="127.0.0.1", port=0, logs=self.logs)
        self.reading_url = f"https://127.0.0.1:{reader.addresses[0][1]}"
        stack = AsyncExitStack()
        metrics = Metrics(tally=self.tally, pauses=lambda: pauses.all(api.now()), verdicts=lambda: self.verdicts)
        self.metrics_url = await _serve_metrics(metrics, self.folder, stack)
        for part in (*(each.follow() for each in self._followed), numbers.run()):
            self._start(self._answering, part)
        for end in (runner.cleanup, reader.cleanup, stack.aclose, _later(facts.close), numbers.close, api.close):
            self._closing.append((self._answering, end))

    async def _begin_watching(self) -> None:
        api = self._client()

        recorded = Configurations(HOME)
        self.maps_of_recorder = ConfigMaps(api, recorded, None)
        self._start(self._watching, self.maps_of_recorder.follow())
        while not self.maps_of_recorder.is_complete:  # noqa: ASYNC110  # its stream sets it
            await asyncio.sleep(0.005)

        def config_of(namespace: str) -> Config:
            return recorded.of(namespace) or without_pools()

        kubernetes = Kubernetes(None, str(kubeconfig(self.folder, self.server)))
        pools = PoolObjects(kubernetes, RELEASE, lambda: config_of(HOME).pools, api.now)
        self._start(
            self._watching,
            watch_and_keep_logs(
                api,
                RunStore(ApiRecords(kubernetes), config_of),
                self._http,
                place=LogStore(self.logs, LOG_LIMIT, RecordedLogRuns(api, "hostile-tests")),
                tally=self.tally,
                order_limit=900.0,
                costs=NamespaceCosts(LOOK),
                pools=pools,
            ),
        )
        self._closing += [(self._watching, api.close), (self._watching, _later(kubernetes.close))]

    def _start(self, loop: Loop, part: Coroutine[Any, Any, Any]) -> None:
        self._tasks.append((loop, asyncio.get_running_loop().create_task(part)))

    def end(self) -> None:
        """End all parts."""
        for loop, task in self._tasks:
            loop.do(_cancelled(task))
        for loop, close in self._closing:
            loop.do(_awaited(close))

    # What it does

    def on_server(self, change: Callable[[], Any]) -> None:
        """Change the cluster, in the thread of its API server."""
        self._api.call(change)

    def is_seen(self, root: Mapping[str, Any], events: int) -> bool:
        """Whether the webhook knows all that is recorded: so many events of a workload, or its end, and the same pools."""
        run = self.recorded.of(root)
        is_over = run.status is not RunStatus.RUNNING
        pools = self.server.objects[f"/apis/{API_VERSION}/spotpools"].values()
        told = sum(len(each["status"].get("found", ())) for each in pools)
        return (is_over or run.events >= events) and sum(map(len, self.pools.findings().values())) == told

    def ended(self) -> list[str]:
        """The parts that ended by themselves, with the reason."""
        return [
            f"{task.get_coro()}: {task.exception()!r}" if not task.cancelled() else f"{task.get_coro()}: cancelled"
            for _, task in self._tasks
            if task.done()
        ]

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for a condition; fail if a part ends before it holds."""
        limit = time.monotonic() + PATIENCE
        while not holds():
            ended = self.ended()
            assert not ended, f"before {what}: {ended}"
            assert time.monotonic() < limit, f"not within {PATIENCE:g} s: {what}"
            time.sleep(0.005)

    def settle(self) -> None:
        """Wait until both loops are idle: they turn, and use no more CPU."""
        quiet = 0
        before: tuple[int, ...] = (-1, -1)
        limit = time.monotonic() + PATIENCE
        while quiet < 2:
            for loop in (self._api, self._answering, self._watching):
                loop.do(asyncio.sleep(0.002))
            now = tuple(cpu_of(loop.thread) // 1_000_000 for loop in (self._answering, self._watching))
            quiet = quiet + 1 if now[0] - before[0] <= 1 and now[1] - before[1] <= 1 else 0
            before = now
            assert time.monotonic() < limit, "the loops do not come to rest"

    @contextlib.contextmanager
    def measuring(self, cost: Cost) -> Iterator[None]:
        """Add to ``cost`` the cost of the block for the threads of each part."""
        begun = {thread.ident: cpu_of(thread) for thread in threading.enumerate()}
        try:
            yield
        finally:
            self.settle()
            for thread in threading.enumerate():
                spent = (cpu_of(thread) - begun.get(thread.ident, 0)) / 1e9
                if thread is self._watching.thread or thread.name == _RECORDS:
                    cost.watcher += spent
                elif thread is self._answering.thread or thread.name.startswith(("admission", "histories")):
                    cost.webhook += spent


@dataclass
class Cost:
    """The cost of one object: seconds of CPU of the webhook and of the watcher, and bytes of memory if known."""

    webhook: float = 0.0
    watcher: float = 0.0
    webhook_memory: int = 0
    watcher_memory: int = 0

    def __str__(self) -> str:
        both = self.webhook_memory, self.watcher_memory
        memory = f", {both[0] / 1e6:.1f} MB and {both[1] / 1e6:.1f} MB" if any(both) else ""
        return f"{self.webhook * 1000:.0f} ms in the webhook, {self.watcher * 1000:.0f} ms in the watcher{memory}"


def cpu_of(thread: threading.Thread) -> int:
    """Nanoseconds of CPU of a thread that lives; 0 where it has just ended."""
    assert thread.ident is not None
    try:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
    except OSError:
        return 0


def warm() -> None:
    """Load the imports of the first review, and exclude the test suite's heap from the measured garbage collections."""
    warm_up()
    gc.collect()
    gc.freeze()


class _Heard(logging.Handler):
    """Whether the watcher has said that its streams are complete."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.is_complete = False

    def emit(self, record: logging.LogRecord) -> None:
        self.is_complete = self.is_complete or "streams are complete" in record.getMessage()


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


async def _awaited(close: Callable[[], Awaitable[Any]]) -> None:
    await close()


def _later(function: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def run() -> None:
        await asyncio.to_thread(function)

    return run


async def _serve_metrics(metrics: Metrics, folder: Path, stack: AsyncExitStack) -> str:
    """Serve them until ``stack`` is closed. Returns their address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(authority_folder=folder, metrics_port=port)
    await serve_metrics(metrics, settings, Health(), lambda: True, stack)
    return f"http://127.0.0.1:{port}"


async def serve(server: ClusterServer) -> web.AppRunner:
    """Let the server listen on the loopback."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server._handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


@functools.cache
def _serving() -> tuple[Pair, Pair]:
    """An authority and a certificate for the loopback, made once."""
    authority = an_authority("hostile tests")
    return authority, issued(authority)


def _server_context(folder: Path) -> ssl.SSLContext:
    _, pair = _serving()
    files = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(files, (pair.pem, pair.key_pem), strict=True):
        path.write_bytes(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


@functools.cache
def client_context() -> ssl.SSLContext:
    """Trusts the certificate of the parts."""
    return ssl.create_default_context(cadata=_serving()[0].pem.decode())
