"""The HTTPS server that API servers ask: ``/mutate``, ``/healthz`` and ``/readyz``; an answer is always "allowed".

An answer has to come within the webhook's timeout, else the API server goes on without it (``failurePolicy: Ignore``). So the
server answers "allowed, unchanged" a little before, and what an answer reads (runtimes, templates, owners, earlier attempts) has
a part of that time. Placement is plain computation and runs in threads, so that a large pipeline does not hold up others.

An AdmissionReview (``admission.k8s.io/v1``) goes to one of two deciders: objects are placed, pods are made precise, and a pod
of its user is both.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from spotwright.cluster.admit_objects import Outcome, admit_object, as_warnings, referenced_objects
from spotwright.cluster.admit_pods import PodFacts, admit_pod, wants_facts
from spotwright.cluster.admit_updates import Update, restore_object
from spotwright.cluster.configurations import Configurations
from spotwright.config import Config
from spotwright.placing.patch import patched

__all__ = [
    "DEFECT",
    "AdmissionRequest",
    "BadReview",
    "FindFacts",
    "FindObject",
    "Webhook",
    "admit",
    "answer",
    "parse_review",
    "start_server",
]


_LOG = logging.getLogger(__name__)
_API_VERSION = "admission.k8s.io/v1"

DEFECT = Outcome("defect", warnings=as_warnings(["not placed: Spotwright has failed; see the log of its controller"]))
"""The outcome where our own code has failed: the object is created as it came."""


class BadReview(ValueError):
    """The body of a request is no AdmissionReview of version v1; the sender is no API server, or a newer one."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What an API server asks: one operation on one object.

    ``data`` is the object, with its namespace filled in; ``old`` is the one that an update replaces. ``manager`` is the field
    manager that the client names (``kubectl-client-side-apply``); empty if it names none.
    """

    uid: str
    operation: str
    namespace: str
    data: Mapping[str, Any]
    subresource: str = ""
    dry_run: bool = False
    old: Mapping[str, Any] | None = None
    manager: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether an object is created or updated as a whole; everything else is allowed without a look at it."""
        updates = self.operation == "UPDATE" and self.old is not None
        return (self.operation == "CREATE" or updates) and not self.subresource and bool(self.data)


def parse_review(body: bytes) -> AdmissionRequest:
    """Read the request of a review. Raises :class:`BadReview`."""
    try:
        review = json.loads(body)
        request = review["request"]
        uid, operation = str(request["uid"]), str(request["operation"])
        version = review["apiVersion"]
    except (ValueError, TypeError, KeyError) as error:
        raise BadReview(f"expected an AdmissionReview, found {body[:80]!r}") from error
    if version != _API_VERSION:
        raise BadReview(f"expected {_API_VERSION}, found {version}")
    namespace = str(request.get("namespace") or "")
    data = request.get("object")
    data = data if isinstance(data, dict) else {}
    metadata = data.get("metadata")
    if namespace and isinstance(metadata, dict) and "namespace" not in metadata:
        data = {**data, "metadata": {**metadata, "namespace": namespace}}
    old = request.get("oldObject") if operation == "UPDATE" else None
    subresource = str(request.get("subResource") or "")
    dry_run = bool(request.get("dryRun"))
    old = old if isinstance(old, dict) else None
    options = request.get("options")
    manager = str(options.get("fieldManager") or "") if isinstance(options, dict) else ""
    return AdmissionRequest(uid, operation, namespace, data, subresource, dry_run, old, manager)


def answer(request: AdmissionRequest, admit: Callable[[AdmissionRequest], Outcome]) -> tuple[dict[str, Any], Outcome]:
    """The AdmissionReview that answers a request, as data, and the outcome for logs and metrics.

    ``admit`` decides; it is asked only about objects that are created or updated.
    """
    outcome = Outcome("no object is created")
    if request.is_decided:
        try:
            outcome = admit(request)
            patched(request.data, outcome.patch)  # an API server refuses the object with a patch that does not apply
            patch = json.dumps(list(outcome.patch)).encode() if outcome.patch else b""
            return _review(request.uid, outcome.warnings, patch), outcome
        except Exception:  # noqa: BLE001 (fail open: no defect of ours may stop the work of others)
            _LOG.exception("admission of %s failed", request.data.get("kind"))
            outcome = DEFECT
    return _review(request.uid, outcome.warnings, b""), outcome


def _review(uid: str, warnings: Sequence[str], patch: bytes) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = list(warnings)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}


def admit(
    data: Mapping[str, Any],
    config: Config | None,
    beside: Sequence[Mapping[str, Any]] = (),
    facts: PodFacts | None = None,
    *,
    update: Update | None = None,
    refusal_image: str,
    by: str = "",
) -> Outcome:
    """The outcome for an object that is about to be created, or updated if there is an ``update``; ``data`` is not changed.

    ``config`` is the configuration of its namespace. ``beside`` are the objects that
    :func:`~spotwright.cluster.admit_objects.referenced_objects` names. ``facts`` were recorded of a pod's task.
    ``by`` names this controller.
    """
    if update is not None:
        return restore_object(data, update, config, beside, by)
    if data.get("kind") != "Pod" or data.get("apiVersion") != "v1":
        return admit_object(data, config, beside, by)
    first = admit_object(data, config, by=by)
    second = admit_pod(first.placed or data, config, facts or PodFacts(), refusal_image)
    if first.placed is None:
        return second
    return Outcome(second.verdict, [*first.patch, *second.patch], [*first.warnings, *second.warnings])


FindObject = Callable[[str, str, str, str], Awaitable[Mapping[str, Any] | None]]
"""Finds an object by API version, kind, name and namespace; ``None`` if it does not exist or cannot be read."""

FindFacts = Callable[[AdmissionRequest], Awaitable[PodFacts]]
"""Finds what was recorded of a pod's task. It may wait for the end of the attempt before, up to :data:`LOOK_UP` seconds."""

ANSWER_AFTER = 1.7
"""Seconds after which an answer is given in any case: the webhook's timeout is 2 s, and the way back takes time too."""

LOOK_UP = 0.5
"""Seconds for all that an answer reads. Without it a TrainJob is placed on its JobSet."""

FACTS = 1.0
"""Seconds after which a pod is left as it is, because neither its history nor its owners could be read."""

_MAX_BODY = 8 * 1024 * 1024  # an object has at most 3 MiB, an update sends two


@dataclass(slots=True)
class Webhook:
    """Answers reviews.

    ``find_object`` reads from the cluster, ``find_facts`` from the journal. ``is_ready`` says whether the configurations have
    been read. ``refusal_image`` is a small image with a shell. ``on_rival`` hears of a namespace and of the other controller
    that has placed an object there.
    """

    configurations: Configurations
    find_object: FindObject
    find_facts: FindFacts
    is_ready: Callable[[], bool]
    refusal_image: str
    threads: int = 4
    name: str = ""  # of this controller, NAMESPACE/NAME, in the marks of what it places
    on_rival: Callable[[str, str], None] = lambda _namespace, _rival: None
    verdicts: Counter[str] = field(default_factory=Counter)  # of the reviews that were answered
    _executor: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        """Start no thread yet: the pool starts them when they are needed."""
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="admission")

    def application(self) -> web.Application:
        """The routes of the server."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.add_routes(
            [
                web.post("/mutate", self._mutate),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        return app

    def close(self) -> None:
        """Wait for no thread: an answer that nobody waits for any more is lost."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready = self.is_ready()
        return web.Response(text="ok" if ready else "configurations are not read yet", status=200 if ready else 503)

    async def _mutate(self, request: web.Request) -> web.Response:
        try:
            asked = parse_review(await request.read())
        except BadReview as error:
            return web.Response(text=str(error), status=400)
        try:
            async with asyncio.timeout(ANSWER_AFTER):
                review, outcome = await self._answer(asked)
        except TimeoutError:
            late = Outcome("too late", warnings=as_warnings(["not placed: Spotwright had no time; create it again"]))
            review, outcome = answer(asked, lambda _: late)
        except Exception:  # noqa: BLE001  # a defect in what is looked up before the decision
            _LOG.exception("review of %s %s/%s failed", asked.data.get("kind"), asked.namespace, _name(asked.data))
            review, outcome = answer(asked, lambda _: DEFECT)
        self.verdicts[outcome.verdict] += 1
        if outcome.rival:
            self.on_rival(asked.namespace, outcome.rival)
        _LOG.info("%s %s/%s: %s", asked.data.get("kind"), asked.namespace, _name(asked.data), outcome.verdict)
        return web.json_response(review)

    async def _answer(self, asked: AdmissionRequest) -> tuple[dict[str, Any], Outcome]:
        config = self.configurations.of(asked.namespace)
        beside: Sequence[Mapping[str, Any]] = []
        facts = PodFacts()
        if asked.is_decided and config is not None:
            beside, facts = await asyncio.gather(self._beside(asked), self._facts(asked))

        def decide(request: AdmissionRequest) -> Outcome:
            update = None if request.old is None else Update(request.old, request.manager)
            return admit(
                request.data, config, beside, facts, update=update, refusal_image=self.refusal_image, by=self.name
            )

        return await asyncio.get_running_loop().run_in_executor(self._executor, answer, asked, decide)

    async def _facts(self, asked: AdmissionRequest) -> PodFacts:
        """What was recorded of a pod's task; nothing is known if it is not found in time."""
        if asked.data.get("kind") != "Pod" or asked.old is not None or not wants_facts(asked.data):
            return PodFacts()
        try:
            async with asyncio.timeout(FACTS):
                return await self.find_facts(asked)
        except TimeoutError:
            _LOG.warning("the attempts before Pod %s/%s were not read in time", asked.namespace, _name(asked.data))
            return PodFacts(is_known=False)

    async def _beside(self, asked: AdmissionRequest) -> list[Mapping[str, Any]]:
        """The objects that a placement reads, as far as they are found in time."""
        wanted = [] if asked.data.get("kind") == "Pod" else referenced_objects(asked.data)
        if not wanted:
            return []
        looks = [
            self.find_object(version, kind, name, "" if kind.startswith("Cluster") else asked.namespace)
            for version, kind, name in wanted
        ]
        try:
            async with asyncio.timeout(LOOK_UP):
                return [found for found in await asyncio.gather(*looks) if found is not None]
        except TimeoutError:
            _LOG.warning("objects beside %s %s were not read in time", asked.data.get("kind"), _name(asked.data))
            return []


def _name(data: Mapping[str, Any]) -> str:
    metadata = data.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "")


async def start_server(
    webhook: Webhook, context: ssl.SSLContext, *, host: str | None = None, port: int = 9443
) -> web.AppRunner:
    """Listen with TLS; ``await runner.cleanup()`` ends it. Raises :class:`OSError` where the port cannot be listened on."""
    app = webhook.application()

    async def close(_app: web.Application) -> None:
        webhook.close()

    app.on_cleanup.append(close)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=3.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=context, backlog=512).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
