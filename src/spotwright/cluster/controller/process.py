"""Runs one replica: configurations, the webhook with its certificates and registration, and watching under the Lease.

The parts run side by side until SIGTERM. What may pass (an API server that is away, a lost Lease) is waited out inside the
parts; a part that ends by anything else ends the process, so that whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from spotwright import config as configuration
from spotwright.cluster.admission.configurations import Configurations
from spotwright.cluster.admission.server import Webhook, start_server
from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.controller.config_maps import ConfigMaps
from spotwright.cluster.controller.events import EventWriter
from spotwright.cluster.controller.facts import FactFinder
from spotwright.cluster.controller.histories import Histories
from spotwright.cluster.controller.leading import OpenClient, lead
from spotwright.cluster.controller.ledger import Ledger
from spotwright.cluster.controller.lookups import Lookups
from spotwright.cluster.controller.one_folder import FOLDER_ANNOTATION, FolderIdentity, OneFolder
from spotwright.cluster.controller.pods_seen import PodsSeen
from spotwright.cluster.controller.rivals import Rivals
from spotwright.cluster.controller.serving.certificates import Authority
from spotwright.cluster.controller.serving.metrics import Metrics, serve_metrics
from spotwright.cluster.controller.serving.readers import Readers
from spotwright.cluster.controller.serving.registering import Registration
from spotwright.cluster.controller.serving.renewal import Renewal
from spotwright.cluster.controller.settings import CertificateFiles, Settings
from spotwright.cluster.controller.warming import warm_up
from spotwright.cluster.moving.pool_pauses import PoolsLeftOut
from spotwright.cluster.moving.tally import Tally
from spotwright.cluster.watching.apart import apart
from spotwright.cluster.watching.lease import KubernetesLease
from spotwright.config import Config
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder

__all__ = ["run_controller"]

_LOG = logging.getLogger(__name__)
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
                await apart(lambda: lead(open_client, lease_of, state, config_of, settings.log_limit, tally))

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
    facts = FactFinder(api, lookups, Histories(state), ledger, PoolsLeftOut(state).at)
    stack.callback(facts.close)
    seen = PodsSeen(api, facts.confirm)

    def is_ready() -> bool:
        return config_maps.is_complete and seen.is_complete and one_folder.is_agreed

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
    return [seen.follow(), rivals.tell(), _serve(settings, webhook, authority, registration, readers, events, is_ready)]


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
