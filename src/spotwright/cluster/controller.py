"""The controller: the one process in a cluster that answers reviews, watches attempts, keeps journals and logs, and moves pods.

Every replica answers reviews; the one that holds the Lease watches and writes, on an event loop of its own in a thread. A
small Job is placed once before the first review, because placement imports its modules when they are first used.

The parts run side by side until SIGTERM. What may pass (an API server that is away, a lost Lease) is waited out inside the
parts; a part that ends by anything else ends the process, so that whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx2

from spotwright import config as configuration
from spotwright.cluster.admission_server import Webhook, admit, start_server
from spotwright.cluster.api_client import Api, ApiFailed, EventWriter
from spotwright.cluster.attempt_lookup import FactFinder, Histories, Lookups
from spotwright.cluster.attempt_numbers import Ledger, PodsSeen
from spotwright.cluster.autoscaler_reader import AutoscalerReader
from spotwright.cluster.autoscaler_words import DEFAULT_LIMIT
from spotwright.cluster.certificates import Authority, Renewal
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_settings import CertificateFiles, Settings
from spotwright.cluster.install import Registration
from spotwright.cluster.lease import KubernetesLease, while_held
from spotwright.cluster.metrics import Metrics, Readers, serve_metrics
from spotwright.cluster.run_store import RunStore, this_process
from spotwright.cluster.state_folder_guard import FOLDER_ANNOTATION, FolderIdentity, OneFolder, Rivals
from spotwright.cluster.unavailable_pools import PoolsLeftOut, Tally
from spotwright.cluster.watcher import watch_and_keep_logs
from spotwright.config import Config
from spotwright.errors import Fenced, InputError, SpotwrightError
from spotwright.records.state_folder import StateFolder

__all__ = ["apart", "lead", "run_controller", "warm_up"]


_POOLS = {"spot": {"capacity": "spot", "provider": "aks"}, "regular": {"capacity": "on-demand", "provider": "aks"}}


def warm_up() -> bool:
    """Place a Job and make its pod precise; returns whether both were. Takes up to some seconds of CPU the first time.

    The modules that this has loaded stay, so they are exempt from garbage collection from now on: a full collection stops all
    threads, and of 70,000 objects it takes 30 ms or more, which a review would wait for.
    """
    is_warm = _place_once()
    gc.collect()
    gc.freeze()
    return is_warm


def _place_once() -> bool:
    config = configuration.from_mapping({"pools": _POOLS, "policy": {"default": {"spot": "prefer"}}})
    container = {"name": "main", "image": "none"}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "warm-up"},
        "spec": {"template": template},
    }
    placed = admit(job, config, refusal_image="none").placed
    if placed is None:
        return False
    pod = {"apiVersion": "v1", "kind": "Pod", **placed["spec"]["template"]}
    return bool(admit(pod, config, refusal_image="none").patch)


_LOG = logging.getLogger(__name__)
_AGAIN = 5.0  # seconds after a failure, of the state folder for example


class OpenClient(Protocol):
    """Makes a client of the cluster; with ``many_streams`` one that opens as many connections at once as are asked for."""

    def __call__(self, *, many_streams: bool = False) -> httpx2.AsyncClient:
        """The client, which its caller closes."""


async def lead(
    open_client: OpenClient,
    lease_of: Callable[[Api], KubernetesLease],
    state: StateFolder,
    config_of: Callable[[str], Config],
    log_limit: int,
    tally: Tally,
    order_limit: float = DEFAULT_LIMIT,
) -> None:
    """Be elected and watch, again and again, until cancelled.

    ``lease_of`` makes this replica's part in an election. ``log_limit`` is in bytes, for the log of one attempt; 0 keeps none.
    ``tally`` counts what is moved and what waits. ``order_limit`` is in seconds, for a node that an autoscaler has ordered.
    """
    api = Api(open_client())
    try:
        while True:
            await _once(api, open_client, lease_of, state, config_of, log_limit, tally, order_limit)
    finally:
        await api.close()


async def _once(
    api: Api,
    open_client: OpenClient,
    lease_of: Callable[[Api], KubernetesLease],
    state: StateFolder,
    config_of: Callable[[str], Config],
    log_limit: int,
    tally: Tally,
    order_limit: float,
) -> None:
    lease = lease_of(api)

    async def watch(epoch: int) -> None:
        _LOG.info("this replica watches now, epoch %d", epoch)
        store = RunStore(state, config_of, this_process(), lease.require)
        streams = partial(open_client, many_streams=True)
        await watch_and_keep_logs(api, store, state, streams, limit=log_limit, tally=tally, order_limit=order_limit)

    try:
        await while_held(lease, watch)
    except Fenced as error:
        _LOG.warning("%s", error)
    except SpotwrightError as error:
        _LOG.error("watching failed, again in %g s: %s", _AGAIN, error)  # one line, no traceback
        await asyncio.sleep(_AGAIN)


async def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work()`` to its end; cancelled, it is cancelled there and waited for. What it raises comes out here."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work())

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner, suppress(asyncio.CancelledError):
            runner.get_loop().run_until_complete(task)

    with ThreadPoolExecutor(1, thread_name_prefix="watching") as executor:
        running = asyncio.get_running_loop().run_in_executor(executor, run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                loop.call_soon_threadsafe(task.cancel)
                await running
            raise


_FOLDER = "controller"  # of the state folder: what belongs to no run
_POLL = 0.05  # seconds
_TURN = 0.0005  # seconds after which a thread of Python lets others go on; by default 5 ms


async def run_controller(settings: Settings, api: Api, open_client: OpenClient) -> None:
    """Run until cancelled. ``open_client`` makes the clients of the part that watches, which has an event loop of its own.

    Raises :class:`SpotwrightError` for what its settings or the state folder do not allow.
    """
    sys.setswitchinterval(_TURN)
    state = StateFolder.open(settings.state)
    configurations = Configurations(settings.home)
    events = EventWriter(api)
    config_maps = ConfigMaps(api, configurations, events)
    folder = FolderIdentity.of(state)
    one_folder = OneFolder(api, events, (settings.home, settings.name), folder, watches=settings.watches)
    parts: list[Awaitable[None]] = [config_maps.follow(), one_folder.follow()]
    tally, verdicts = Tally(), Counter[str]()
    async with AsyncExitStack() as stack:
        if settings.has_webhook:
            parts += _webhook(settings, api, state, config_maps, one_folder, events, stack, verdicts)
        if settings.watches:

            def lease_of(client: Api) -> KubernetesLease:
                told = {FOLDER_ANNOTATION: folder.text}
                return KubernetesLease(client, settings.home, settings.name, annotations=told)

            def config_of(namespace: str) -> Config:
                return configurations.of(namespace) or _no_pools()

            async def watch() -> None:
                await _until(lambda: config_maps.is_complete)
                limits = settings.log_limit, tally, settings.max_node_provision_time
                await apart(lambda: lead(open_client, lease_of, state, config_of, *limits))

            parts.append(watch())
        if settings.metrics_port is not None:
            pauses = PoolsLeftOut(state)
            metrics = Metrics(tally, lambda: pauses.pauses(api.now()), lambda: verdicts)
            where = settings.metrics_host, settings.metrics_port
            runner = await serve_metrics(metrics, *where, is_asked=settings.metrics_are_asked)
            if runner is not None:
                stack.push_async_callback(runner.cleanup)
        await _together(parts)


def _webhook(
    settings: Settings,
    api: Api,
    state: StateFolder,
    config_maps: ConfigMaps,
    one_folder: OneFolder,
    events: EventWriter,
    stack: AsyncExitStack,
    verdicts: Counter[str],
) -> list[Awaitable[None]]:
    """The parts that answer reviews."""
    folder = state.path / _FOLDER
    authority = None if settings.files is not None else Authority(folder)
    ledger = Ledger(_made(folder) / "numbers.db", time.time)
    stack.callback(ledger.close)
    lookups = Lookups(api)
    autoscalers = AutoscalerReader(api)
    facts = FactFinder(api, lookups, Histories(state), ledger, PoolsLeftOut(state).at, lambda: autoscalers.seen)
    stack.callback(facts.close)
    seen = PodsSeen(api, facts.confirm)

    def is_ready() -> bool:
        return config_maps.is_complete and seen.is_complete and one_folder.is_agreed and autoscalers.is_complete

    rivals = Rivals(events, f"{settings.home}/{settings.name}")
    webhook = Webhook(
        config_maps.configurations,
        lookups.find_object,
        facts.find,
        is_ready,
        settings.refusal_image,
        name=rivals.name,
        on_rival=rivals.found,
        verdicts=verdicts,  # counted for metrics also while nothing is answered
    )
    registration = Registration(api, settings.name, settings.where)
    readers = Readers(settings, api, state)
    return [
        seen.follow(),
        autoscalers.follow(),
        rivals.tell(),
        _serve(settings, webhook, authority, registration, readers, events, is_ready),
    ]


async def _serve(
    settings: Settings,
    webhook: Webhook,
    authority: Authority | None,
    registration: Registration,
    readers: Readers,
    events: EventWriter,
    is_ready: Callable[[], bool],
) -> None:
    """Listen, register once the configurations are read, and keep the certificates in force."""
    await asyncio.to_thread(warm_up)
    about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": settings.home, "namespace": settings.home}}

    async def publish(authorities: bytes) -> None:
        await registration.put(authorities)  # before a certificate is served that a new authority has signed
        await readers.publish(authorities)

    async def warn(reason: str, text: str) -> None:
        await events.write(about, reason, text, is_warning=True)

    with tempfile.TemporaryDirectory(prefix="spotwright-") as name:
        private = Path(name)
        files = settings.files or CertificateFiles(private / "tls.crt", private / "tls.key", private / "unused")
        renewal = Renewal(files, authority, settings.served_names)
        try:
            runner = await start_server(webhook, renewal.served.context(), host=settings.host, port=settings.port)
        except OSError as error:
            raise InputError(f"{settings.host}:{settings.port}: cannot listen there ({error}); see --listen") from error
        try:
            _LOG.info("reviews are answered at https://%s:%d", settings.host, runner.addresses[0][1])
            await readers.start(renewal.served.context())
            await readers.publish(renewal.authorities)
            await _until(is_ready)
            await registration.put(renewal.authorities)
            _LOG.info("ready")
            await renewal.follow(publish, warn)
        finally:
            await readers.stop()
            await runner.cleanup()


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # two streams of their own set it
        await asyncio.sleep(_POLL)


async def _together(parts: Iterable[Awaitable[None]]) -> None:
    """Run parts until the first one fails or this is cancelled; then all have ended."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except ApiFailed as error:
        raise InputError(f"{error}; `spotwright controller --print-rbac` prints the rights that it needs") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _no_pools() -> Config:
    """A configuration for namespaces without one: every pool is read off the nodes."""
    return configuration.from_mapping({"pools": {"unknown-nodes": {"capacity": "on-demand"}}}, "pools of the cluster")
