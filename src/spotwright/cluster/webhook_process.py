"""The webhook: answers reviews in a cluster, so that new objects are placed. Every replica answers.

It is stateless: it reads records, numbers and pools from the Kubernetes API. A small Job is placed once before the
first review, because placement imports its modules when they are first used.

Its parts run side by side until SIGTERM. Each part retries while the API server is away; any other error in a part ends the
process, so that it is restarted.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from spotwright import config as configuration
from spotwright.clouds.provider_records import PROVIDERS
from spotwright.cluster.admission_server import Webhook, admit, start_server
from spotwright.cluster.admit_pods import RefusalPods
from spotwright.cluster.api_client import Api, EventWriter, about_namespace
from spotwright.cluster.attempt_lookup import NO_PLAN, AttemptHistoryReader, Lookups
from spotwright.cluster.attempt_numbers import Numbers, PodsSeen
from spotwright.cluster.autoscaler_reader import AutoscalerReader
from spotwright.cluster.certificates import API_SERVERS
from spotwright.cluster.checkpoint_objects import CheckpointObjects, ClaimForm
from spotwright.cluster.configurations import ConfigMaps, Configurations
from spotwright.cluster.controller_events import ConflictingControllers
from spotwright.cluster.controller_settings import WebhookSettings
from spotwright.cluster.health import SWITCH_INTERVAL, Health, own_certificate
from spotwright.cluster.install import Registration
from spotwright.cluster.log_server import accept_certificates
from spotwright.cluster.metrics import Metrics, serve_metrics
from spotwright.cluster.missing_claims import ClaimLookup, none_is_missing
from spotwright.cluster.namespace_costs import ANSWER, AsideEvents, NamespaceCosts
from spotwright.cluster.parts import until, until_one_ends
from spotwright.cluster.recorded_histories import RecordedHistories
from spotwright.cluster.spot_pools import FollowedPools
from spotwright.cluster.unavailable_pools import PoolsLeftOut
from spotwright.errors import InputError

__all__ = ["run_webhook", "warm_up"]


_PROVIDER = next(iter(PROVIDERS))
_POOLS = {name: {"capacity": name, "provider": _PROVIDER} for name in ("spot", "on-demand")}


def warm_up() -> bool:
    """Place a Job and pin its pod to a rung; returns whether both were. Takes up to some seconds of CPU the first time.

    The loaded modules stay, so they are exempt from garbage collection from now on: a full collection of 70,000 objects would
    stop all threads, and delay a review, for 30 ms or more.
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
_LOOK = 5.0  # seconds between checks for new Events to write


async def run_webhook(settings: WebhookSettings, api: Api) -> None:
    """Answer reviews until cancelled. Raises :class:`SpotwrightError` for unusable settings or missing rights."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    events, health, verdicts = EventWriter(api), Health(), Counter[str]()
    config_maps = ConfigMaps(api, Configurations(settings.home), events, settings.namespaces)
    aside = AsideEvents(events, "new objects there are not placed until then", settings.home)
    costs = NamespaceCosts(ANSWER, on_set_aside=aside.heard)
    pools, recorded = FollowedPools(api, settings.release), RecordedHistories(api, NO_PLAN, settings.namespaces)
    pauses = PoolsLeftOut(pools.findings)
    lookups, autoscalers = Lookups(api), AutoscalerReader(api, settings.namespaces)
    numbers = Numbers(api)
    seen = PodsSeen(api, numbers.confirm, settings.namespaces)

    def left_out(namespace: str, now: float) -> Collection[str]:
        config = config_maps.configurations.of(namespace)
        return () if config is None else pauses.of(namespace, config.pools, now)

    followed = (config_maps, seen, autoscalers, recorded, pools)

    def is_ready() -> bool:
        return all(each.is_complete for each in followed)

    conflicts = ConflictingControllers(events, f"{settings.home}/{settings.name}", lookups.find_object)
    facts = AttemptHistoryReader(api, lookups, recorded.of, numbers, left_out, lambda: autoscalers.seen)
    webhook = Webhook(
        config_maps.configurations,
        lookups.find_object,
        facts.find,
        is_ready,
        RefusalPods(settings.refusal_image, settings.refusal_user, settings.argo_executor_images),
        health=lambda: health.problem,
        asks_for_certificates=settings.client_authority is not None,
        name=conflicts.name,
        on_rival=conflicts.found,
        verdicts=verdicts,  # counted for metrics also while idle
        costs=costs,
        missing_claims=none_is_missing
        if settings.claim_size
        else ClaimLookup(api).missing,  # with a claim size, they are
        # created soon
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(numbers.close)
        stack.callback(facts.close)
        metrics = Metrics(
            pauses=lambda: pauses.all(api.now()),
            verdicts=lambda: verdicts,
            aside=lambda: ((name, "webhook") for name, _ in costs.aside),
        )
        await serve_metrics(metrics, settings, health, is_ready, stack)
        made = _checkpoint_objects(settings, api, config_maps.configurations)
        await until_one_ends(
            [
                health.beat(),
                *(each.follow() for each in followed),
                *([] if made is None else [made.follow()]),
                numbers.run(),
                conflicts.tell(),
                _tell_of_problems(numbers, events, settings.home),
                aside.tell(),
                _serve(settings, webhook, Registration.of(settings, api), events, is_ready),
            ]
        )


def _checkpoint_objects(
    settings: WebhookSettings, api: Api, configurations: Configurations
) -> CheckpointObjects | None:
    """The task that creates the library and claims in served namespaces; None if the settings ask for neither."""
    if not (settings.makes_library or settings.claim_size):
        return None
    form = ClaimForm(settings.claim_size, settings.claim_class, settings.claim_access_mode)
    claims = form if settings.claim_size else None
    return CheckpointObjects(api, configurations, settings.namespaces, library=settings.makes_library, claims=claims)


async def _tell_of_problems(numbers: Numbers, events: EventWriter, home: str) -> None:
    """Write an Event in the controller's namespace whenever numbers start to be refused, or were deleted by others."""
    about = about_namespace(home)
    while True:
        for text in numbers.take_problems():
            await events.write(about, "NumbersNotGivenOut", text, is_warning=True)
        await asyncio.sleep(_LOOK)


async def _serve(
    settings: WebhookSettings,
    webhook: Webhook,
    registration: Registration,
    events: EventWriter,
    is_ready: Callable[[], bool],
) -> None:
    """Listen, register once all is read, and keep the certificate and the registration in force."""
    await asyncio.to_thread(warm_up)
    with own_certificate(settings, settings.served_names, events, API_SERVERS) as certificate:
        try:
            context = certificate.context()
            if settings.client_authority is not None:
                _ask_for_certificates(context, settings.client_authority)
            runner = await start_server(webhook, context, host=settings.host, port=settings.port)
        except OSError as error:
            raise InputError(f"{settings.host}:{settings.port}: cannot listen there ({error}); see --listen") from error
        try:
            _LOG.info("reviews are answered at https://%s:%d", settings.host, runner.addresses[0][1])
            await until(is_ready)
            await certificate.publish_first(registration.put)
            _LOG.info("ready")
            await until_one_ends([certificate.follow(registration.put), registration.follow()])
        finally:
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
        raise InputError(f"{authority}: not a PEM authority of client certificates ({error})") from error
