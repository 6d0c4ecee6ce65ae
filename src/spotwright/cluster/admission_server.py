"""The webhook's HTTPS server: ``/mutate``, ``/healthz`` and ``/readyz``; it always answers "allowed".

After the webhook's timeout the API server continues without the answer (``failurePolicy: Ignore``). So the server answers
"allowed, unchanged" a little earlier, and reads (runtimes, templates, owners, earlier attempts) get a part of that time.
Placement is pure computation in threads, where namespaces take turns, so that a large pipeline does not delay others. A
namespace whose objects cost too much gets "allowed, unchanged" at once for a while.

An AdmissionReview (``admission.k8s.io/v1``) goes to one of two deciders: objects are placed, pods are pinned to a rung, and a
pod without an owner gets both. So does a pod of an object that was created while no webhook answered
(:mod:`spotwright.cluster.admit_unplaced`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from spotwright.cluster.admit_objects import (
    MOST_REFERENCES,
    MOST_STEPS,
    Outcome,
    Verdict,
    admit_object,
    as_warnings,
    referenced_objects,
)
from spotwright.cluster.admit_pods import AdmissionContext, RefusalPods, admit_pod, wants_facts
from spotwright.cluster.admit_unplaced import is_of_a_run, place_at_pod, why_left, why_unplaced_retries
from spotwright.cluster.admit_updates import Update, restore_object
from spotwright.cluster.bounded_json import most_memory
from spotwright.cluster.configurations import Configurations
from spotwright.cluster.limited_server import Limits, hold, read_body, serve
from spotwright.cluster.missing_claims import (
    asks_for_a_checkpoint,
    claims_not_in,
    none_is_missing,
    why_without_checkpoint,
    without_claims,
)
from spotwright.cluster.namespace_costs import ANSWER, Aside, Key, NamespaceCosts, Turns
from spotwright.cluster.object_shapes import why_misshapen
from spotwright.cluster.workloads import MOST_OWNERS, lineage
from spotwright.config import Config
from spotwright.kube.object_fields import Owner, controller_of, uid_of
from spotwright.placing.patch import Steps, patched
from spotwright.visible_text import visible

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
"""The outcome after a failure of our own code: the object is created unchanged."""


class BadReview(ValueError):
    """The body of a request is not an AdmissionReview of version v1: the sender is not an API server, or a newer one."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The request of a review: one operation on one object.

    ``data`` is the object, with its namespace filled in; ``old`` is the object before an update. ``manager`` is the client's
    field manager (``kubectl-client-side-apply``); empty if it names none. ``about`` is the kind and name for the log. If the
    object was not read, ``data`` is empty, and ``problem`` and the short ``verdict`` say why. ``memory`` is the most memory of
    the objects, in bytes.
    """

    uid: str
    operation: str
    namespace: str
    data: Mapping[str, Any]
    subresource: str = ""
    dry_run: bool = False
    old: Mapping[str, Any] | None = None
    manager: str = ""
    about: str = ""
    problem: str = ""
    verdict: str = ""
    memory: int = 0

    @property
    def is_decided(self) -> bool:
        """Whether an object is created or updated as a whole; everything else is allowed unread."""
        updates = self.operation == "UPDATE" and self.old is not None
        return (self.operation == "CREATE" or updates) and not self.subresource and bool(self.data)


class _Kind(msgspec.Struct):
    kind: str = ""


class _Request(msgspec.Struct):
    """The relevant fields of a review's request. The objects stay bytes until their sizes are known."""

    uid: str
    operation: str
    kind: _Kind | None = None
    name: str | None = None
    namespace: str | None = None
    subresource: str | None = msgspec.field(default=None, name="subResource")
    dry_run: bool | None = msgspec.field(default=None, name="dryRun")
    data: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="object")
    old: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="oldObject")
    options: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    request: _Request


def parse_review(body: bytes | bytearray) -> AdmissionRequest:
    """Read the request of a review. Raises :class:`BadReview`.

    An object that is too large or malformed is not read; the request's ``problem`` says why.
    """
    try:
        review = _DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise BadReview(f"expected an AdmissionReview, found {bytes(body[:80])!r}") from error
    if review.api_version != _API_VERSION:
        raise BadReview(f"expected {_API_VERSION}, found {review.api_version[:80]!r}")
    request = review.request
    namespace, operation = request.namespace or "", request.operation
    if len(request.uid) > _LONGEST_UID or len(namespace) > _LONGEST_NAMESPACE:  # both are kept after the answer
        raise BadReview("the UID or the namespace of this AdmissionReview is too long")
    about = visible(f"{request.kind.kind if request.kind else ''} {namespace}/{request.name or ''}"[:_LONGEST_NAME])
    part, is_dry = request.subresource or "", bool(request.dry_run)
    asked = AdmissionRequest(request.uid, operation, namespace, {}, part, is_dry, about=about)
    if operation not in ("CREATE", "UPDATE") or asked.subresource:
        return asked
    try:
        data = _object(request.data)
        old = _object(request.old) if operation == "UPDATE" else None
    except _Unread as error:
        return replace(asked, problem=str(error), verdict=error.verdict)
    if data is None:
        return asked
    if namespace and "namespace" not in data["metadata"]:
        data = {**data, "metadata": {**data["metadata"], "namespace": namespace}}
    memory = sum(min(_MOST_MEMORY, most_memory(bytes(raw))) for raw in (request.data, request.old))
    return replace(asked, data=data, old=old, manager=_manager(request.options), memory=memory)


class _Unread(ValueError):
    """An object is too large or malformed; the text is a clause for its author.

    ``verdict`` is that of :class:`~spotwright.cluster.admit_objects.Verdict`.
    """

    def __init__(self, text: str, verdict: str = Verdict.TOO_LARGE) -> None:
        super().__init__(text)
        self.verdict = verdict


def _object(raw: msgspec.Raw) -> dict[str, Any] | None:
    """Decode an object as an API server sends it; None for null. Raises :class:`_Unread`.

    Its values are counted before they are decoded: 1 MB of empty lists would take 20 MB.
    """
    size = memoryview(raw).nbytes
    if size > _MOST_BYTES:
        raise _Unread(f"it has {size // 1024} KiB; Spotwright places objects of at most {_MOST_BYTES // 1024} KiB")
    text = bytes(raw)
    if _has_too_many_values(text):
        raise _Unread(f"it has more than {_MOST_VALUES} values; Spotwright does not place objects this large")
    try:
        data = msgspec.json.decode(text)
    except RecursionError:
        raise _Unread(f"it is nested deeper than {_DEEPEST} levels") from None
    except ValueError as error:
        raise _Unread(f"it cannot be read ({str(error)[:200]})", Verdict.MISSHAPEN) from None
    if data is None:
        return None
    if problem := why_misshapen(data):
        raise _Unread(problem, Verdict.MISSHAPEN)
    if text.count(b"{") + text.count(b"[") > _DEEPEST and _is_deep(data):
        raise _Unread(f"it is nested deeper than {_DEEPEST} levels")
    return dict(data)


def _has_too_many_values(text: bytes) -> bool:
    if sum(map(text.count, (b",", b"{", b"["))) <= _MOST_VALUES:  # those inside of strings included
        return False
    found = (token for token in _TOKEN.finditer(text) if text[token.start()] != _QUOTE)
    return next(islice(found, _MOST_VALUES, None), None) is not None


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(_DEEPEST):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inside for value in values if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def _manager(options: msgspec.Raw) -> str:
    """The field manager of a client, in the options of its request; empty if they name none."""
    try:
        return msgspec.json.decode(options, type=_Options).field_manager
    except (ValueError, RecursionError):
        return ""


class _Options(msgspec.Struct):
    field_manager: str = msgspec.field(default="", name="fieldManager")


_DECODER = msgspec.json.Decoder(_Review)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[,\[{]', re.DOTALL)  # a string, or the character before a value
_QUOTE = ord('"')
_MOST_BYTES = 1024 * 1024  # of an object; etcd holds 1.5 MiB by default
_MOST_VALUES, _MOST_MEMORY = 20_000, 5_000_000  # values of an object, and bytes of as many as Python's
_DEEPEST = 100  # levels
_LONGEST_UID, _LONGEST_NAMESPACE = 100, 63  # characters: a UID has 36, and a namespace is a DNS label
_LONGEST_NAME = 300  # characters of a kind with a namespace and a name, in the log


def answer(request: AdmissionRequest, admit: Callable[[AdmissionRequest], Outcome]) -> tuple[dict[str, Any], Outcome]:
    """The answering AdmissionReview, as data, and the outcome for logs and metrics.

    ``admit`` decides; it is called only for objects that are created or updated.
    """
    outcome = Outcome("no object is created")
    if request.problem:
        outcome = Outcome(request.verdict, warnings=as_warnings([f"not placed: {request.problem}"]))
    elif request.is_decided:
        try:
            outcome = admit(request)
            if outcome.patch:
                patched(
                    request.data, outcome.patch
                )  # an API server refuses the object with a patch that does not apply
            patch = json.dumps(list(outcome.patch)).encode() if outcome.patch else b""
            return _review(request.uid, outcome.warnings, patch), outcome
        except RecursionError:  # in an embedded JSON or YAML text: the object itself is not nested so deeply
            text = f"not placed: a text in it is nested deeper than {_DEEPEST} levels"
            outcome = Outcome(Verdict.UNPLACEABLE, warnings=as_warnings([text]))
        except Exception:  # noqa: BLE001 (fail open: our defects must not block others' work)
            _LOG.exception("admission of %s failed", request.about)
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
    facts: AdmissionContext | None = None,
    *,
    update: Update | None = None,
    refusal_image: RefusalPods | str,
    by: str = "",
) -> Outcome:
    """The outcome for an object that is about to be created, or updated if there is an ``update``; ``data`` is not changed.

    ``config`` is the configuration of its namespace. ``beside`` are the objects that
    :func:`~spotwright.cluster.admit_objects.referenced_objects` names. ``facts`` are the records of a pod's task. ``by`` names
    this controller.
    """
    steps = Steps(MOST_STEPS)
    if update is not None:
        return restore_object(data, update, config, beside, by, steps=steps)
    if data.get("kind") != "Pod" or data.get("apiVersion") != "v1":
        return admit_object(data, config, beside, by, steps=steps)
    first = admit_object(data, config, by=by, steps=steps)
    second = admit_pod(first.placed or data, config, facts or AdmissionContext(), refusal_image)
    if first.placed is None:
        return first if first.warnings and not second.patch else second
    patch, warnings = [*first.patch, *second.patch], [*first.warnings, *second.warnings]
    return Outcome(second.verdict, patch, warnings, kept=second.kept)


FindObject = Callable[[str, str, str, str], Awaitable[Mapping[str, Any] | None]]
"""Finds an object by API version, kind, name and namespace; ``None`` if it does not exist or cannot be read."""

FindMissingClaims = Callable[[Config, str], Awaitable[Sequence[str]]]
"""Finds the claims that a configuration's policies name and that a namespace does not have."""


FindFacts = Callable[[AdmissionRequest], Awaitable[AdmissionContext]]
"""Finds the records of a pod's task. It may wait for the end of the previous attempt, usually half a second."""

ANSWER_AFTER = 9.0
"""Seconds after which every review is answered: the webhook's timeout is 10 s, and the network takes time too."""

LOOK_UP = 2.0
"""Seconds to read a placement's references. Without them a TrainJob is placed on its JobSet."""

FACTS = 7.0
"""Seconds after which a pod is left unchanged because its history or its owners could not be read.

The rest of :data:`ANSWER_AFTER` is for pinning pods to a rung, one namespace after the other.
"""

_DECIDED = 4  # decisions about a pod: each with a new number, or another agreement of its gang
_LOOKING = 4  # concurrent reviews that read other objects: each up to twenty, of two megabytes

_TOO_LATE = "too late"  # the verdict if the API server continues without the answer

_LIMITS = Limits(
    arrival=10.0,  # as long as an API server waits: on busy nodes it is slow, and its review would be lost
    idle=100.0,  # API servers close connections idle for 90 s (Go's http.DefaultTransport), and do not retry requests that we
    # cut off
    body=4 * 1024 * 1024,  # an object has at most 3 MiB; a larger update is not read
    memory=96 * 1024 * 1024,  # a thousand ordinary reviews
)


_POLL = 0.05  # seconds between checks for reviews on a stopping replica
_QUIET, _DRAIN = 20, 10.0
"""Consecutive checks without a review after which such a replica stops, and the seconds after which it stops anyway."""


@dataclass(slots=True)
class Webhook:
    """Answers reviews.

    ``find_object`` reads from the cluster, ``find_facts`` from the records. ``is_ready``: whether the configurations have been
    read; ``health``: why this process should be restarted, if it should. ``refusal_image`` is the image of refused pods, or
    their :class:`RefusalPods`. ``missing_claims`` finds missing claims of default policies. ``on_rival`` gets the API version,
    kind, name and namespace of an object, and the other controller that placed it; the object may still be refused by others.
    """

    configurations: Configurations
    find_object: FindObject
    find_facts: FindFacts
    is_ready: Callable[[], bool]
    refusal_image: RefusalPods | str
    threads: int = 6
    health: Callable[[], str] = str
    asks_for_certificates: bool = False  # reviews need a client certificate, checked by the server's context
    name: str = ""  # of this controller, NAMESPACE/NAME, for its annotations
    on_rival: Callable[[tuple[str, ...], str], None] = lambda _object, _rival: None
    verdicts: Counter[str] = field(default_factory=Counter)  # of answered reviews
    costs: NamespaceCosts = field(default_factory=lambda: NamespaceCosts(ANSWER))
    missing_claims: FindMissingClaims = none_is_missing
    _executor: ThreadPoolExecutor = field(init=False)
    _turns: Turns = field(init=False)
    _reading: Turns = field(init=False)  # of addresses: their namespace is not known yet
    _looking: Turns = field(init=False)  # of reviews that read other objects, which take memory until the answer
    _ends: bool = False
    _asked: int = 0  # unanswered reviews
    _quiet: int = _QUIET  # consecutive checks without a review

    def __post_init__(self) -> None:
        """Create the pool; it starts threads on demand."""
        self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="admission")
        self._turns = Turns(self.threads, self.costs)
        self._reading = Turns(1, self.costs)
        self._looking = Turns(_LOOKING, self.costs)

    def application(self) -> web.Application:
        """The routes of the server."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/mutate", self._mutate),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        return app

    def close(self) -> None:
        """Shut down without waiting for threads: answers still being computed are lost."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def drain(self) -> None:
        """Move API servers to another replica: close each connection with its next answer, until none is open.

        A review sent on a connection just as it closes is lost: Go's net/http retries a POST only if no byte of it was written.
        So a caller behind a Service removes this replica from it first.
        """
        self._ends = True
        ends = time.monotonic() + _DRAIN
        while time.monotonic() < ends and (self._asked or self._quiet < _QUIET):
            self._quiet = 0 if self._asked else self._quiet + 1
            await asyncio.sleep(_POLL)  # a process that was starved of CPU must first read its pending input

    async def _healthz(self, _request: web.Request) -> web.Response:
        problem = self.health()
        return web.Response(text=problem or "ok", status=500 if problem else 200)

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready = self.is_ready()
        return web.Response(
            text="ok" if ready else "configurations have not been read yet", status=200 if ready else 503
        )

    async def _mutate(self, request: web.Request) -> web.Response:
        """Answer a review. If the client disconnects, work that has not begun is dropped."""
        if self.asks_for_certificates and not _has_certificate(request):
            return web.Response(text="the request has no client certificate of an API server", status=403)
        self._asked, self._quiet = self._asked + 1, 0
        try:
            response = await self._reviewed(request)
        except (asyncio.CancelledError, ConnectionError) as error:
            self.verdicts[_TOO_LATE] += 1
            if isinstance(error, asyncio.CancelledError):
                raise
            return web.Response(status=400)
        finally:
            self._asked, self._quiet = self._asked - 1, 0
        if self._ends:
            response.force_close()
        return response

    async def _reviewed(self, request: web.Request) -> web.Response:
        began, body, address = time.monotonic(), await read_body(request), request.remote or ""
        try:
            async with asyncio.timeout(ANSWER_AFTER):
                await self._reading.take(("", address))
        except TimeoutError:
            self.verdicts[_TOO_LATE] += 1
            return web.Response(text="too many reviews at once", status=503)
        try:
            await asyncio.sleep(0)  # so that other addresses' requests take their turn
            used = time.thread_time()
            asked = parse_review(body)
            hold(request, asked.memory)
        except BadReview as error:
            return web.Response(text=str(error), status=400)
        finally:
            self._reading.give_back(("", address))
        key = asked.namespace, address
        self.costs.spent(key, time.thread_time() - used)
        try:
            async with asyncio.timeout(ANSWER_AFTER - (time.monotonic() - began)):
                review, outcome = await self._answer(asked, key)
        except TimeoutError:
            late = Outcome(_TOO_LATE, warnings=as_warnings(["not placed: the review timed out; create it again"]))
            review, outcome = answer(asked, lambda _: late)
        except Exception:  # noqa: BLE001  # a defect in the reads before the decision
            _LOG.exception("review of %s failed", asked.about)
            review, outcome = answer(asked, lambda _: DEFECT)
        is_waited_for = request.transport is not None and not request.transport.is_closing()
        verdict = outcome.verdict if is_waited_for else _TOO_LATE
        self.verdicts[verdict] += 1
        if outcome.rival and not asked.dry_run:
            metadata = asked.data["metadata"]
            names = asked.data.get("apiVersion"), asked.data.get("kind"), metadata.get("name"), asked.namespace
            self.on_rival(tuple(str(each or "") for each in names), outcome.rival)
        _LOG.info("%s: %s", asked.about, verdict)
        return web.json_response(review)

    async def _answer(self, asked: AdmissionRequest, key: Key) -> tuple[dict[str, Any], Outcome]:
        if (aside := self.costs.set_aside(key)) is not None:
            return _unchanged(asked, aside)
        config = self.configurations.of(asked.namespace)
        if not asked.is_decided:
            return answer(asked, lambda _: Outcome(Verdict.NOTHING_TO_DO))
        missing: Sequence[str] = ()
        if config is not None:
            is_new = asked.old is None
            missing = await self._missing(config, asked.namespace) if is_new else claims_not_in(asked.old or {}, config)
            config = without_claims(config, missing)
        if config is not None and asked.old is None and is_of_a_run(asked.data):
            return await self._answer_unplaced(asked, key, config)
        wanted: Sequence[tuple[str, str, str]] = []
        facts = AdmissionContext()
        if config is not None:
            wanted = [] if asked.data.get("kind") == "Pod" else referenced_objects(asked.data)
            if len(wanted) > MOST_REFERENCES:
                text = (
                    f"not placed: it refers to {len(wanted)} other objects; Spotwright reads at most {MOST_REFERENCES}"
                )
                return answer(asked, lambda _: Outcome(Verdict.TOO_LARGE, warnings=as_warnings([text])))
            facts = await self._facts(asked)

        def decide(beside: Sequence[Mapping[str, Any]], facts: AdmissionContext, request: AdmissionRequest) -> Outcome:
            update = None if request.old is None else Update(request.old, request.manager)
            outcome = admit(
                request.data, config, beside, facts, update=update, refusal_image=self.refusal_image, by=self.name
            )
            if not missing or request.old is not None or outcome.placed is None or asks_for_a_checkpoint(request.data):
                return outcome
            warnings = as_warnings([why_without_checkpoint(missing, request.namespace)])
            return replace(outcome, warnings=[*outcome.warnings, *warnings])

        if not wanted:
            return await self._noted(asked, key, facts, partial(decide, ()))
        async with self._looking.turn(key):
            return await self._noted(asked, key, facts, partial(decide, await self._beside(asked, wanted)))

    async def _missing(self, config: Config, namespace: str) -> Sequence[str]:
        """The missing claims of a configuration that are known in time."""
        try:
            async with asyncio.timeout(LOOK_UP):
                return await self.missing_claims(config, namespace)
        except TimeoutError:
            _LOG.warning("the claims of namespace %s were not read in time", namespace)
            return ()

    async def _answer_unplaced(
        self, asked: AdmissionRequest, key: Key, config: Config
    ) -> tuple[dict[str, Any], Outcome]:
        """The answer for a pod without a policy whose controller is a run: placed if the run was created unplaced.

        A number is assigned only if the pod is placed, so it is placed first, and then pinned to a rung.
        """
        async with self._looking.turn(key):
            review, first, retries = await self._placed_at_pod(asked, key, config)
        if first.placed is None:
            return review, first
        placed, facts = first.placed, await self._found(asked)

        def decide(facts: AdmissionContext, _: AdmissionRequest) -> Outcome:
            second = admit_pod(placed, config, facts, self.refusal_image, retries)
            patch, warnings = [*first.patch, *second.patch], [*first.warnings, *second.warnings]
            return Outcome(second.verdict, patch, warnings, kept=second.kept)

        return await self._noted(asked, key, facts, decide)

    async def _placed_at_pod(
        self, asked: AdmissionRequest, key: Key, config: Config
    ) -> tuple[dict[str, Any], Outcome, str]:
        """The answer that places such a pod, with the clause about its owner's retries."""
        pod, steps = asked.data, Steps(MOST_STEPS)
        owners = await self._owners(asked)
        left = why_left(owners)
        wanted = [] if left else referenced_objects(owners[-1])
        if left or len(wanted) > MOST_REFERENCES:
            return *answer(asked, lambda _: Outcome(left or Verdict.TOO_LARGE)), ""
        beside = await self._beside(asked, wanted)
        review, first = await self._in_turn(
            asked, key, lambda _: place_at_pod(pod, owners, config, beside, steps=steps)
        )
        return review, first, why_unplaced_retries(owners[-1])

    async def _owners(self, asked: AdmissionRequest) -> Sequence[Mapping[str, Any]]:
        """All owners of a pod that are runs, nearest first, in their current state; none if one cannot be read in time."""
        read: dict[str, Mapping[str, Any]] = {}
        try:
            async with asyncio.timeout(FACTS):
                while not (found := lineage(asked.data, lambda _kind, _where, uid: read.get(uid))).is_complete:
                    version, kind, name, uid = controller_of(found.root(asked.data)) or Owner()
                    owner = await self.find_object(version, kind, name, asked.namespace)
                    if owner is None or uid_of(owner) != uid or len(found.owners) == MOST_OWNERS:
                        return []
                    read[uid] = owner
        except TimeoutError:
            _LOG.warning("the owners of %s were not read in time", asked.about)
            return []
        return found.owners

    async def _noted(
        self,
        asked: AdmissionRequest,
        key: Key,
        facts: AdmissionContext,
        decide: Callable[[AdmissionContext, AdmissionRequest], Outcome],
    ) -> tuple[dict[str, Any], Outcome]:
        """Answer by ``decide`` once the decision about the pod is stored; if that fails, its history counts as unknown."""
        for _ in range(_DECIDED):
            review, outcome = await self._in_turn(asked, key, partial(decide, facts))
            again = None if outcome.kept is None else await facts.keep(outcome.kept, facts)
            if again is None:
                return review, outcome
            facts = again
        return await self._in_turn(asked, key, partial(decide, replace(facts, is_known=False)))

    async def _in_turn(
        self, asked: AdmissionRequest, key: Key, decide: Callable[[AdmissionRequest], Outcome]
    ) -> tuple[dict[str, Any], Outcome]:
        """The answer by ``decide`` in a thread, when it is the namespace's turn."""

        def decided() -> tuple[dict[str, Any], Outcome, float]:
            used = time.thread_time()
            return *answer(asked, decide), time.thread_time() - used

        def is_over(done: asyncio.Future[tuple[dict[str, Any], Outcome, float]]) -> None:
            """Answer even if the client is gone: a worker thread is busy, and its cost counts."""
            self._turns.give_back(key)
            if not done.cancelled() and done.exception() is None:
                self.costs.spent(key, done.result()[2])

        await self._turns.take(key)
        if (aside := self.costs.set_aside(key)) is not None:  # meanwhile, by earlier reviews
            self._turns.give_back(key)
            return _unchanged(asked, aside)
        working = asyncio.get_running_loop().run_in_executor(self._executor, decided)
        working.add_done_callback(is_over)
        review, outcome, _ = await asyncio.shield(working)
        return review, outcome

    async def _facts(self, asked: AdmissionRequest) -> AdmissionContext:
        """The records of a pod's task; unknown if they are not found in time."""
        if asked.data.get("kind") != "Pod" or asked.old is not None or not wants_facts(asked.data):
            return AdmissionContext()
        return await self._found(asked)

    async def _found(self, asked: AdmissionRequest) -> AdmissionContext:
        try:
            async with asyncio.timeout(FACTS):
                return await self.find_facts(asked)
        except TimeoutError:
            _LOG.warning("the attempts before %s were not read in time", asked.about)
            return AdmissionContext(is_known=False)

    async def _beside(self, asked: AdmissionRequest, wanted: Sequence[tuple[str, str, str]]) -> list[Mapping[str, Any]]:
        """The objects that a placement reads, if found in time."""
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
            _LOG.warning("objects that %s refers to were not read in time", asked.about)
            return []


def _unchanged(asked: AdmissionRequest, aside: Aside) -> tuple[dict[str, Any], Outcome]:
    """The answer for a namespace that costs too much."""
    text = f"not placed: this namespace is {aside.text}"
    return answer(asked, lambda _: Outcome("namespace is set aside", warnings=as_warnings([text])))


async def start_server(
    webhook: Webhook, context: ssl.SSLContext, *, host: str | None = None, port: int = 9443
) -> web.AppRunner:
    """Listen with TLS; ``await runner.cleanup()`` ends it. Raises :class:`OSError` where the port cannot be listened on."""
    app = webhook.application()

    async def close(_app: web.Application) -> None:
        webhook.close()

    app.on_cleanup.append(close)
    return await serve(app, host=host, port=port, context=context, limits=_LIMITS, shutdown_timeout=ANSWER_AFTER)


def _has_certificate(request: web.Request) -> bool:
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))
