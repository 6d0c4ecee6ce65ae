"""The controller: what answers reviews in a cluster, watches attempts, keeps journals and logs, and moves pods.

Every replica answers reviews; the one that holds the Lease watches and writes, in a process of its own that this one starts. A
small Job is placed once before the first review, because placement imports its modules when they are first used.

The parts run side by side until SIGTERM. What may pass (an API server that is away, a lost Lease) is waited out inside the
parts; a part that ends by anything else ends the process, so that whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from spotwright import config as configuration
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.cluster.admission_server import Webhook, admit, start_server
from spotwright.cluster.admit_pods import RefusalPods
from spotwright.cluster.api_client import Api, ApiFailed, EventWriter
from spotwright.cluster.attempt_lookup import NO_PLAN, FactFinder, Histories, Lookups
from spotwright.cluster.attempt_numbers import Numbers, PodsSeen
from spotwright.cluster.autoscaler_reader import AutoscalerReader
from spotwright.cluster.certificates import Authority, Renewal
from spotwright.cluster.checkpoint_objects import CheckpointObjects, ClaimForm
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_settings import CertificateFiles, Settings
from spotwright.cluster.install import Registration
from spotwright.cluster.log_server import accept_certificates
from spotwright.cluster.metrics import Metrics, Readers, serve_metrics
from spotwright.cluster.missing_claims import ClaimLookup, none_is_missing
from spotwright.cluster.namespace_costs import ANSWER, AsideEvents, NamespaceCosts
from spotwright.cluster.parts import until_one_ends
from spotwright.cluster.recorded_histories import RecordedHistories
from spotwright.cluster.recording_process import RecordingProcess
from spotwright.cluster.spot_pools import FollowedPools
from spotwright.cluster.state_folder_guard import FOLDER_ANNOTATION, FolderIdentity, OneFolder, Rivals
from spotwright.cluster.unavailable_pools import Findings, FindingsFile, PoolsLeftOut
from spotwright.errors import InputError
from spotwright.records.state_folder import StateFolder

__all__ = ["Health", "run_controller", "warm_up"]


_PROVIDER = next(iter(PROVIDERS))
_POOLS = {name: {"capacity": name, "provider": _PROVIDER} for name in ("spot", "on-demand")}


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
_BEAT = 1.0  # seconds
_STUCK = 10.0  # seconds without a beat: answers to API servers are too late after ten


class Health:
    """Whether this process should go on, or be started again; await :meth:`beat` on the event loop that answers reviews.

    ``recording`` says why what records cannot go on; empty while it can. ``clock`` is monotonic.
    """

    def __init__(self, recording: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._recording, self._clock = recording, clock
        self._beat_at = clock()

    async def beat(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat_at = self._clock()
            await asyncio.sleep(_BEAT)

    @property
    def problem(self) -> str:
        """Why this process should be started again; empty while it is well. From any thread."""
        silent = self._clock() - self._beat_at
        return f"the event loop was held up for {silent:.0f} s" if silent >= _STUCK else self._recording()


_FOLDER = "controller"  # of the state folder: what belongs to no run
_POLL = 0.05  # seconds
_LOOK = 5.0  # seconds between two looks at what is told in Events
_TURN = 0.0005  # seconds after which a thread of Python lets others go on; by default 5 ms


class _Common(NamedTuple):
    """What all parts of a replica share."""

    settings: Settings
    api: Api
    state: StateFolder
    config_maps: ConfigMaps
    one_folder: OneFolder | None  # None: each replica has a folder of its own
    events: EventWriter
    health: Health
    verdicts: Counter[str]
    costs: NamespaceCosts
    aside: AsideEvents
    findings: Callable[[], Findings]
    pools: FollowedPools | None


async def run_controller(settings: Settings, api: Api) -> None:
    """Run until cancelled. ``api`` is for all but what watches, which connects by itself.

    Raises :class:`SpotwrightError` for what its settings or the state folder do not allow.
    """
    sys.setswitchinterval(_TURN)
    state = StateFolder.open(settings.state)
    _make_private(state.path)
    events = EventWriter(api)
    config_maps = ConfigMaps(api, Configurations(settings.home), events, settings.namespaces)
    one_folder, annotations = None, dict[str, str]()
    if not settings.is_stateless:
        folder = FolderIdentity.of(state)
        one_folder = OneFolder(api, events, (settings.home, settings.name), folder, watches=settings.watches)
        annotations[FOLDER_ANNOTATION] = folder.text
    recording = RecordingProcess(settings, annotations)
    health = Health(lambda: recording.problem)
    aside = AsideEvents(events, "what is created there is not placed until then", settings.home)
    costs = NamespaceCosts(ANSWER, on_set_aside=aside.heard)
    pools = FollowedPools(api, settings.release) if settings.records_in_api else None
    findings = FindingsFile(state).read if pools is None else pools.findings
    common = _Common(
        settings, api, state, config_maps, one_folder, events, health, Counter(), costs, aside, findings, pools
    )
    parts: list[Awaitable[None]] = [health.beat(), config_maps.follow()]
    parts += [] if one_folder is None else [one_folder.follow()]
    parts += [] if pools is None else [pools.follow()]
    async with AsyncExitStack() as stack:
        if settings.has_webhook:
            parts += _webhook(common, stack)
        if settings.watches:
            parts.append(recording.run())
        if settings.metrics_port is not None:
            pauses = PoolsLeftOut(common.findings)
            asides = lambda: [*((name, "webhook") for name, _ in costs.aside), *recording.told.aside]  # noqa: E731
            metrics = Metrics(recording.told, lambda: pauses.all(api.now()), lambda: common.verdicts, asides)
            where = settings.metrics_host, settings.metrics_port
            runner = await serve_metrics(metrics, *where, is_asked=settings.metrics_are_asked)
            if runner is not None:
                stack.push_async_callback(runner.cleanup)
        try:
            await until_one_ends(parts)
        except ApiFailed as error:
            raise InputError(
                f"{error}; helm upgrade gives the rights that it needs: docs/how-to/cluster/install.md"
            ) from error


def _webhook(common: _Common, stack: AsyncExitStack) -> list[Awaitable[None]]:
    """The parts that answer reviews."""
    settings, api, state, config_maps, one_folder, events, health, verdicts, costs, aside, _, pools = common
    folder = state.path / _FOLDER
    authority = None if settings.files is not None else Authority(folder)
    numbers = Numbers(api)
    stack.push_async_callback(numbers.close)
    lookups = Lookups(api)
    autoscalers = AutoscalerReader(api, settings.namespaces)
    pauses = PoolsLeftOut(common.findings)

    def left_out(namespace: str, now: float) -> Collection[str]:
        config = config_maps.configurations.of(namespace)
        return () if config is None else pauses.of(namespace, config.pools, now)

    recorded = RecordedHistories(api, NO_PLAN, settings.namespaces) if settings.records_in_api else None
    histories = Histories(state) if recorded is None else recorded
    facts = FactFinder(api, lookups, histories, numbers, left_out, lambda: autoscalers.seen)
    stack.callback(facts.close)
    seen = PodsSeen(api, numbers.confirm, settings.namespaces)

    def is_ready() -> bool:
        is_known = (recorded is None or recorded.is_complete) and (pools is None or pools.is_complete)
        return (
            config_maps.is_complete
            and seen.is_complete
            and (one_folder is None or one_folder.is_agreed)
            and autoscalers.is_complete
            and is_known
        )

    rivals = Rivals(events, f"{settings.home}/{settings.name}", lookups.find_object)
    webhook = Webhook(
        config_maps.configurations,
        lookups.find_object,
        facts.find,
        is_ready,
        RefusalPods(settings.refusal_image, settings.refusal_user, settings.argo_executor_images),
        health=lambda: health.problem,
        asks_for_certificates=settings.client_authority is not None,
        name=rivals.name,
        on_rival=rivals.found,
        verdicts=verdicts,  # counted for metrics also while nothing is answered
        costs=costs,
        missing_claims=none_is_missing if settings.claim_size else ClaimLookup(api).missing,  # or they are made soon
    )
    registration = Registration(
        api,
        settings.name,
        settings.where,
        namespaces=settings.namespaces,
        writes=settings.registers,
        unites=settings.is_stateless,
    )
    readers = Readers(settings, api)
    form = ClaimForm(settings.claim_size, settings.claim_class, settings.claim_access_mode)
    made = CheckpointObjects(
        api,
        config_maps.configurations,
        settings.namespaces,
        library=settings.makes_library,
        claims=form if settings.claim_size else None,
    )
    return [
        *([made.follow()] if settings.makes_library or settings.claim_size else []),
        seen.follow(),
        *([] if recorded is None else [recorded.follow()]),
        numbers.run(),
        autoscalers.follow(),
        rivals.tell(),
        _tell_of_problems(numbers, events, settings.home),
        aside.tell(),
        registration.follow(),
        _serve(settings, webhook, authority, registration, readers, events, is_ready),
    ]


async def _tell_of_problems(numbers: Numbers, events: EventWriter, home: str) -> None:
    """Write an Event in the controller's namespace each time that numbers begin to be refused, or were deleted by others."""
    about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home, "namespace": home}}
    while True:
        for text in numbers.take_problems():
            await events.write(about, "NumbersNotGivenOut", text, is_warning=True)
        await asyncio.sleep(_LOOK)


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
            context = renewal.served.context()
            if settings.client_authority is not None:
                _ask_for_certificates(context, settings.client_authority)
            runner = await start_server(webhook, context, host=settings.host, port=settings.port)
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
            await webhook.drain()
            await runner.cleanup()


def _ask_for_certificates(context: ssl.SSLContext, authority: Path) -> None:
    """Let the webhook's port ask for client certificates. Raises :class:`InputError` for a file that has no authority."""
    try:
        content = authority.read_bytes()
    except OSError as error:
        raise InputError(f"{authority}: cannot be read ({error.strerror}); see --client-authority") from error
    try:
        accept_certificates(context, content.decode("ascii") or "it is empty")
    except (OSError, ValueError) as error:  # an SSLError is an OSError, and text of another encoding a ValueError
        raise InputError(f"{authority}: is no authority of client certificates as PEM ({error})") from error


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # two streams of their own set it
        await asyncio.sleep(_POLL)


def _make_private(folder: Path) -> None:
    """Let nobody else read a folder: logs and journals of all teams are in it."""
    try:
        folder.chmod(0o700)
    except OSError as error:  # the root of a volume may belong to root
        _LOG.info("%s: its mode stays as it is (%s)", folder, error.strerror)
