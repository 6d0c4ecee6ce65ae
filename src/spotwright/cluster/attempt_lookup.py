"""Finds the history of a pod's task during its review: its records joined with the assigned numbers.

An orchestrator may make the next pod within 30 ms of the previous pod's end, which the leader needs a moment to record. So a
review waits for the record, at most half a second, and then asks the API server how the earlier pods ended
(:mod:`spotwright.cluster.unrecorded_ends`). If a pod is gone, it waits for its record once more, and then counts it as lost. So
the rung does not depend on the speed of recording, and pods are not refused for lack of facts. Every webhook watches the
recorder's records; other objects (an owner, a placement's references) are read from the API server, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from spotwright import config as configuration
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.admission_server import FACTS, AdmissionRequest
from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.attempt_numbers import Asking, Given, Numbers, Slot
from spotwright.cluster.bounded_json import MOST_MEMORY
from spotwright.cluster.descheduler import why_many_stay, why_not_made_again
from spotwright.cluster.marked_pods import CarriedNumbers, marked_pods
from spotwright.cluster.task_objects import Token
from spotwright.cluster.unrecorded_ends import Earlier, PodEnds, Unsettled
from spotwright.cluster.workloads import MOST_OWNERS, Lineage, TaskName, lineage, task_name
from spotwright.engine.attempt_history import is_settled, members_of, past_of, restarts_before, set_history
from spotwright.engine.events import RunStatus
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import AttemptState, RunState
from spotwright.errors import StateError
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.kinds.kind import Retry, run_kind, run_kinds
from spotwright.kube.object_fields import Owner, controller_of, mapping, mappings, metadata, uid_of
from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import left_out, pauses_of
from spotwright.scheduling.ladder import Ladder, PodRequirements
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["NO_PLAN", "AttemptHistoryReader", "Lookups", "before"]


_T = TypeVar("_T")
_Found = Mapping[str, Any] | None


class _NoPlan(Plan):
    """Replaces the plan of a run of which only the attempts are read: templates take megabytes."""

    def instance(self, template: str, path: str) -> PlannedTask:  # noqa: ARG002  # as that of a plan, as those below
        """A task without a plan."""
        return PlannedTask(path, _NO_TASK, _NO_POLICY, PodRequirements(), Ladder(()))

    def with_pool(self, name: str, *, is_spot: bool) -> Plan:  # noqa: ARG002
        """The same plan."""
        return self

    def with_template(self, data: Mapping[str, Any]) -> Plan:  # noqa: ARG002
        """The same plan."""
        return self


_NO_TASK, _NO_POLICY = TaskSpec("", ""), Policy()
NO_PLAN = _NoPlan(TaskGraph("", Dag("root"), {}), configuration.built_in())
"""The plan of every run of which only the attempts are read."""


_LOG = logging.getLogger(__name__)
_FRESH = 3.0  # seconds for which an answer is cached
_ANSWERS_KEPT = 32  # objects as they are
_OWNERS_KEPT = 5_000  # each with the few fields that name tasks
_LARGEST, _MEMORY = 512 * 1024, 2_000_000  # bytes of a placement's reference, as text and as Python objects
_LARGEST_OWNER = 3 * 1024 * 1024  # bytes: a Workflow has its whole status
_LARGEST_KEPT = 16 * 1024  # bytes of those fields: tenants can write many labels
_READING = 10.0  # seconds until a read is cancelled that no review awaits


class Lookups:
    """Reads objects of placeable kinds. ``clock`` is monotonic.

    An object that cannot be read, or is too large, counts as missing, and the log says why. Concurrent requests for an object
    share one read, which continues even if they give up: a pipeline's first pods arrive together and have one owner.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._answers: OrderedDict[tuple[str, ...], tuple[float, Mapping[str, Any] | None]] = OrderedDict()
        self._owners: OrderedDict[tuple[str, str], Mapping[str, Any]] = OrderedDict()  # by namespace and UID
        self._readings: dict[tuple[str, ...], asyncio.Task[Any]] = {}

    async def find_object(self, api_version: str, kind: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        """An object by name, at most three seconds old; None if it is missing or cannot be read."""
        asked = api_version, kind, name, namespace
        read_at, found = self._answers.get(asked, (float("-inf"), None))
        if self._clock() - read_at > _FRESH:
            found = await self._together(("object", *asked), lambda: self._object(*asked))
        return found

    async def _object(self, *asked: str) -> Mapping[str, Any] | None:
        found = await self._read(*asked, at_most=_LARGEST, memory=_MEMORY)
        _keep(self._answers, asked, (self._clock(), found), _ANSWERS_KEPT)
        self._drop_stale()
        asyncio.get_running_loop().call_later(_FRESH, self._drop_stale)  # no request may follow
        return found

    def _drop_stale(self) -> None:
        """Drop expired answers: whole objects take megabytes."""
        while self._answers and self._clock() - next(iter(self._answers.values()))[0] >= _FRESH:
            self._answers.popitem(last=False)

    async def owners(self, pod: Mapping[str, Any]) -> Lineage:
        """The readable owners of a pod."""
        namespace = str(metadata(pod).get("namespace", ""))
        read: dict[str, Mapping[str, Any]] = {}

        def known(_kind: str, where: str, uid: str) -> Mapping[str, Any] | None:
            return read.get(uid) or self._owners.get((where, uid))

        while not (found := lineage(pod, known)).is_complete and len(found.owners) < MOST_OWNERS:
            version, kind, name, uid = controller_of(found.root(pod)) or Owner()
            asked = version, kind, name, namespace
            owner = await self._together(("owner", uid, *asked), partial(self._owner, *asked))
            if owner is None or uid_of(owner) != uid:
                break
            read[uid] = owner
        return found

    async def _owner(self, api_version: str, kind: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        owner = await self._read(api_version, kind, name, namespace, at_most=_LARGEST_OWNER)
        if owner is None:
            return None
        slim = _slim(owner)
        if len(msgspec.json.encode(slim)) <= _LARGEST_KEPT:
            _keep(self._owners, (namespace, uid_of(owner)), slim, _OWNERS_KEPT)
        return slim

    async def _together(self, asked: tuple[str, ...], read: Callable[[], Awaitable[_Found]]) -> _Found:
        """The result of ``read()``, or of another caller's read. If cancelled, the read continues."""
        reading = self._readings.get(asked)
        if reading is None:

            async def within_time() -> _Found:
                async with asyncio.timeout(_READING):
                    return await read()

            reading = self._readings[asked] = asyncio.create_task(within_time())
            reading.add_done_callback(partial(self._has_read, asked))
        return cast(_Found, await asyncio.shield(reading))

    def _has_read(self, asked: tuple[str, ...], reading: asyncio.Task[Any]) -> None:
        del self._readings[asked]
        if not reading.cancelled():
            reading.exception()  # its caller may be gone

    async def _read(
        self, api_version: str, kind: str, name: str, namespace: str, *, at_most: int, memory: int = MOST_MEMORY
    ) -> Mapping[str, Any] | None:
        try:
            return await self._api.get_or_none(
                object_path(api_version, kind, name, namespace), at_most=at_most, memory=memory
            )
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return None


_KEPT_OF_SPEC = (
    "completions",
    "parallelism",
    "completionMode",
    "backoffLimit",
    "backoffLimitPerIndex",
    "podFailurePolicy",
    "failurePolicy",
)


def _slim(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """An owner's constant fields that name tasks: a workflow's templates and status may have megabytes."""
    meta, spec = metadata(owner), mapping(owner.get("spec"))
    return {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner.get("kind"),
        "metadata": {
            key: meta[key] for key in ("name", "namespace", "uid", "labels", "ownerReferences") if key in meta
        },
        "spec": {
            **{key: spec[key] for key in _KEPT_OF_SPEC if key in spec},
            "replicatedJobs": [
                {"name": each.get("name"), "replicas": each.get("replicas", 1)}
                for each in mappings(spec.get("replicatedJobs"))
            ],
        },
    }


def _keep(kept: OrderedDict[Any, Any], key: object, value: object, at_most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > at_most:
        kept.popitem(last=False)


_WAIT = 0.45  # seconds to wait for the previous attempt's end; with the reads around it, half a second
_LATEST = 4.5  # seconds of a review in which unrecorded ends are read; after seven the review gives up
_GONE = 1.5  # seconds to wait for the end of an attempt whose pod is gone: the recorder classifies it after 0.7 s
_NOTED = 3.0  # seconds for a write: 99 of 100 take less than 0.3 even on an overloaded API server
_POLL = 0.02
_LARGEST_LIST = 8 * 1024 * 1024  # bytes: a longer list of pods counts as unknown
_LONGEST_PATH = 2500  # characters: Argo joins the names of all steps above one
_VALUE = re.compile("[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")  # of a label: anything else would change the selector
_SELECTORS = tuple(kind.pods_label for kind in run_kinds().values() if kind.pods_label and not kind.is_gang)
"""The labels of runs' pods. A gang may have Jobs, and a Job has fewer pods."""


class _Asked(NamedTuple):
    """A pod under review. ``gang`` is the restart of its set, as SET/RESTART, and empty without a set."""

    token: str
    namespace: str
    root: Mapping[str, Any]
    name: TaskName
    gang: str

    @property
    def uid(self) -> str:
        return uid_of(self.root)

    def path(self, slot: int) -> str:
        """The path of the task of a slot."""
        return self.name.path if self.name.slots == 1 else f"{self.name.path}-{slot}"

    def asking(self, known: Mapping[int, Slot], is_settled: bool | None) -> Asking:
        """The pod's request for a number."""
        return Asking(self.token, self.namespace, self.root, self.name.path, self.name.slots, known, is_settled)


class _Review(NamedTuple):
    """A pod under review, with its owners that are runs, nearest first. ``began`` is by the clock of the event loop."""

    asked: _Asked
    pod: Mapping[str, Any]
    owners: Sequence[Mapping[str, Any]]
    began: float


class _Agreement:
    """The known pools of a gang's agreement, and the choice of this pod if it is the first."""

    def __init__(self, gang: str, known: Mapping[str, tuple[str, ...]]) -> None:
        self.gang, self.known = gang, dict(known)
        self.proposed: tuple[str, tuple[str, ...]] | None = None

    def __call__(self, rungs: Sequence[Sequence[str]], pools: tuple[str, ...]) -> tuple[str, ...]:
        """The pools agreed by pods with these rungs; ``pools`` if no pod is known to have asked."""
        key = ";".join(map(",".join, rungs))
        if key in self.known:
            return self.known[key]
        self.proposed = key, pools
        return pools


class AttemptHistoryReader:
    """Finds facts for the webhook: :meth:`find`. A background thread folds histories.

    ``history_of`` returns the current records of a workload, and raises :class:`StateError`. ``left_out`` returns the
    unavailable pools of a namespace at a time of the API server's clock, ``autoscalers`` the state of the cluster's
    autoscalers.
    """

    def __init__(
        self,
        api: Api,
        lookups: Lookups,
        history_of: Callable[[Mapping[str, Any]], RunState],
        numbers: Numbers,
        left_out: Callable[[str, float], Collection[str]] = lambda *_: (),
        autoscalers: Callable[[], Autoscalers] = lambda: UNKNOWN,
    ) -> None:
        self._api, self._lookups, self._history_of, self._numbers = api, lookups, history_of, numbers
        self._left_out, self._autoscalers = left_out, autoscalers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="histories")
        self._carried, self._ends = CarriedNumbers(api), PodEnds(api)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def find(self, request: AdmissionRequest) -> AdmissionContext:
        """The facts about the pod's task. A dry run does not assign a number."""
        pod = request.data
        lineage = await self._lookups.owners(pod)
        is_alone = controller_of(pod) is None
        if not is_alone and (not lineage.is_complete or not lineage.owners):
            return AdmissionContext(is_known=False)
        root = "" if is_alone else uid_of(lineage.owners[-1])
        try:
            if await self._numbers.is_under_review(pod, request.namespace, root):
                return AdmissionContext(is_admitted=True)
            if is_alone:
                return await self._alone(request)
            asked = _asked(request, lineage.owners)
            if len(asked.name.path) > _LONGEST_PATH:  # the API server would refuse its labels after this review
                return AdmissionContext(is_known=False)
            review = _Review(asked, pod, lineage.owners, asyncio.get_running_loop().time())
            facts = await (self._of_dry_run(asked) if request.dry_run else self._foreseen(review))
            return replace(facts, stays=await self._why_it_stays(pod, lineage.owners))
        except StateError as error:
            _LOG.warning("%s", error)
            return AdmissionContext(is_known=False)

    async def _alone(self, request: AdmissionRequest) -> AdmissionContext:
        """The facts about a pod that no controller recreates."""
        facts = AdmissionContext(autoscalers=self._autoscalers(), stays=why_not_made_again(request.data, ()))
        if request.dry_run:
            return facts
        asking, until = Asking.alone(request.uid, request.namespace), asyncio.get_running_loop().time() + FACTS

        async def given_out() -> AdmissionContext:
            async with _in_time():
                given = await self._numbers.number(asking)
            assert isinstance(given, Given)  # noqa: S101  # it never waits for an end
            return replace(facts, token=str(given.token), keep=partial(self._keep, asking, given, None))

        async with _in_time():
            foreseen = await self._numbers.foresee(asking)
        if foreseen is None:
            return await given_out()
        return replace(
            facts, token=str(foreseen.token), keep=partial(self._take, given_out, until, asking, foreseen, None)
        )

    async def _take(
        self,
        given_out: Callable[[], Awaitable[AdmissionContext]],
        until: float,
        asking: Asking,
        foreseen: Given,
        agreement: _Agreement | None,
        admission: Admission,
        facts: AdmissionContext,
    ) -> AdmissionContext | None:
        """Assign the foreseen number and store the decision; if it is out of date, return facts with a number assigned by then.

        They are found by ``until``, on the event loop's clock: after that the pod is left unchanged and keeps its placement.
        """
        try:
            if not await self._agree(asking, agreement):
                return facts
            async with _in_time():
                if await self._numbers.take(asking, foreseen, admission):
                    return None
            async with asyncio.timeout_at(until):
                return replace(await given_out(), stays=facts.stays)
        except (StateError, TimeoutError) as error:
            _LOG.warning("%s", str(error) or "the attempt number was not assigned in time")
            return replace(facts, is_known=False)

    async def _keep(
        self,
        asking: Asking,
        given: Given,
        agreement: _Agreement | None,
        admission: Admission,
        facts: AdmissionContext,
    ) -> AdmissionContext | None:
        """Store the decision about a pod whose number was assigned before."""
        try:
            if not await self._agree(asking, agreement):
                return facts
            async with _in_time():
                await self._numbers.keep(given, asking.root or None, admission)
        except StateError as error:
            _LOG.warning("%s", error)
            return replace(facts, is_known=False)
        return None

    async def _agree(self, asking: Asking, agreement: _Agreement | None) -> bool:
        """Whether a pod's gang agrees with the decision about the pod; if not, the new agreement is stored."""
        if agreement is None or agreement.proposed is None:
            return True
        rungs, pools = agreement.proposed
        async with _in_time():
            agreed = await self._numbers.agree(asking.namespace, asking.root, agreement.gang, rungs, pools)
        agreement.known[rungs], agreement.proposed = agreed, None
        return agreed == pools

    async def _why_it_stays(self, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> str:
        """Why the descheduler should leave the waiting pod alone; a JobSet counts with its current restarts."""
        now = [await self._fresh(pod, one) if run_kind(one).retry is Retry.SET else one for one in owners]
        return why_not_made_again(pod, now) or why_many_stay(now)

    async def _fresh(self, pod: Mapping[str, Any], owner: Mapping[str, Any]) -> Mapping[str, Any]:
        meta, namespace = metadata(owner), str(metadata(pod).get("namespace", ""))
        version, kind = str(owner.get("apiVersion", "")), str(owner.get("kind", ""))
        return await self._lookups.find_object(version, kind, str(meta.get("name", "")), namespace) or owner

    async def _of_dry_run(self, asked: _Asked) -> AdmissionContext:
        asking, _ = await self._asking(asked)
        async with _in_time():
            given = await self._numbers.next_number(asking)
        return await self._in_thread(self._facts, asked, given, None)

    async def _foreseen(self, review: _Review) -> AdmissionContext:
        """The facts with the next number, assigned together with the decision unless there is something to wait for."""
        asking, agreement = await self._asking(review.asked)
        async with _in_time():
            given = await self._numbers.foresee(asking)
        if given is None:
            return await self._given_out(review)
        facts = await self._in_thread(self._facts, review.asked, given, agreement)
        given_out, until = partial(self._given_out, review), review.began + FACTS
        return replace(facts, keep=partial(self._take, given_out, until, asking, given, agreement))

    async def _given_out(self, review: _Review) -> AdmissionContext:
        """The facts with a number, assigned once there are no doubts and no pending ends, or when the time is over."""
        loop = asyncio.get_running_loop()
        asked, until = review.asked, review.began + _WAIT
        settled = restored = False
        while True:
            asking, agreement = await self._asking(asked)
            is_last = loop.time() >= until
            async with _in_time():
                answer = await self._numbers.number(
                    asking, is_last=is_last, ignores_doubts=settled, ignores_loss=restored
                )
            if isinstance(answer, Given):
                left = review.began + _LATEST - loop.time()
                is_known = answer.is_settled or asked.gang or left <= 0
                seen = {} if is_known else await self._unrecorded(review, answer, left)
                facts = await self._in_thread(self._facts, asked, answer, agreement, seen)
                return replace(facts, keep=partial(self._keep, asking, answer, agreement))
            if answer.is_lost:
                restored = True
                await self._restore(asking, review.pod, review.owners)
            elif answer.doubtful:
                settled = True
                await self._settle_doubts(asking, answer.doubtful, review.pod)
            else:
                await asyncio.sleep(_POLL)

    async def _asking(self, asked: _Asked) -> tuple[Asking, _Agreement | None]:
        """The facts about earlier attempts, from the journal and from the gang."""
        agreement = None
        if asked.gang:
            async with _in_time():
                known = await self._numbers.agreed(asked.namespace, asked.uid, asked.gang)
            agreement = _Agreement(asked.gang, known)
        has_begun = agreement is not None and bool(agreement.known)
        return await self._in_thread(self._recorded, asked, has_begun), agreement

    def _recorded(self, asked: _Asked, has_begun: bool) -> Asking:
        """The journal's records of the tasks that the pod may belong to."""
        history = self._history_of(asked.root)
        known = {slot: _slot(attempts) for slot, attempts in _of_slots(history, asked.name) if attempts}
        if asked.gang:
            return asked.asking(known, has_begun or _is_gang_settled(history, asked.gang))
        return asked.asking(known, None if history.status is RunStatus.RUNNING else True)

    async def _unrecorded(self, review: _Review, given: Given, seconds: float) -> Mapping[int, Cause]:
        """The unrecorded ends of earlier attempts, by number, as shown by the API server.

        It takes at most ``seconds``.
        """
        loop, asked = asyncio.get_running_loop(), review.asked
        latest = loop.time() + seconds

        def earlier() -> Earlier:
            recorded = _attempts(self._history_of(asked.root), asked.path(given.slot))
            return Earlier(
                latest - _LATEST,
                asked.namespace,
                review.owners,
                asked.name.path,
                asked.name.slots,
                _selector(review.pod),
                _unsettled(recorded),
                range(len(recorded) + 1, given.number),
                given.seen,
                {one.key.partition("/")[0] for one in recorded},
            )

        left = await self._in_thread(earlier)
        causes, gone = await self._ends.of(left, seconds)
        until = min(loop.time() + _GONE, latest)
        while any(one.number in gone for one in left.unsettled) and loop.time() < until:
            await asyncio.sleep(_POLL)
            left = await self._in_thread(earlier)
        return {**causes, **dict.fromkeys(gone, Cause.LOST)}

    def _facts(
        self,
        asked: _Asked,
        given: Given,
        agreement: _Agreement | None,
        seen: Mapping[int, Cause] = MappingProxyType({}),
    ) -> AdmissionContext:
        """The facts of an attempt with this number. ``seen`` are unrecorded ends, by attempt number."""
        history, path, now = self._history_of(asked.root), asked.path(given.slot), self._api.now()
        past = set_history(history, asked.gang, path) if asked.gang else before(history, path, given.number, seen)
        return AdmissionContext(
            past,
            number=given.number,
            agree=agreement,
            has_begun=agreement is not None and bool(agreement.known),
            without_capacity={
                *self._left_out(asked.namespace, now),
                *_in_vain(history, asked.gang, path, now),
            },
            token="" if given.token is None else str(given.token),
            autoscalers=self._autoscalers(),
            is_late=not given.is_settled and (bool(asked.gang) or not all(map(_is_recorded, past))),
        )

    async def _restore(self, asking: Asking, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> None:
        """Adopt the numbers on a task's pods after the object with its numbers was deleted.

        They are read once, in the background, for all reviews of the same pods: a review that would wait too long continues
        without them.
        """
        found = await self._carried.of(asking.namespace, _selector(pod), patience=_WAIT)
        place = {uid_of(owner): number for number, owner in enumerate(owners)}
        carried: list[tuple[int, int]] = []
        for each in found or ():
            if each.controller in place and each.metadata:
                name = task_name(each.pod, owners[place[each.controller] :])
                if name.path == asking.path:
                    carried.append((min(name.slots, len(found or ())), int(each.number)))
        if carried:
            await self._numbers.restore(asking, carried)

    async def _settle_doubts(self, asking: Asking, doubtful: Sequence[str], pod: Mapping[str, Any]) -> None:
        """Ask the API server about numbers whose pods were never seen: a quota or another webhook may have refused them."""
        try:
            async with aclosing(
                marked_pods(self._api, asking.namespace, _selector(pod), most_bytes=_LARGEST_LIST)
            ) as pods:
                tokens = [Token.parse(each.token, asking.namespace) async for each in pods]
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return
        there = {token.review for token in tokens if token is not None}
        made = [review for review in doubtful if review in there]
        await self._numbers.settle(asking, made, [review for review in doubtful if review not in there])

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


@asynccontextmanager
async def _in_time() -> AsyncIterator[None]:
    """Limit the time of a write; a review continues without it. Raises :class:`StateError`."""
    try:
        async with asyncio.timeout(_NOTED):
            yield
    except TimeoutError:
        raise StateError(f"attempt numbers: the API server did not store them within {_NOTED:g} s") from None


def _asked(request: AdmissionRequest, owners: Sequence[Mapping[str, Any]]) -> _Asked:
    labels = metadata(request.data).get("labels") or {}
    sets = [(uid_of(owner), label) for owner in owners if (label := run_kind(owner).restart_label)]
    restarts = [
        f"{uid}/{labels[label]}" for uid, label in sets[:1] if re.fullmatch("[0-9]{1,9}", labels.get(label, ""))
    ]
    gang = restarts[0] if restarts else ""
    return _Asked(request.uid, request.namespace, owners[-1], task_name(request.data, owners), gang)


def _selector(pod: Mapping[str, Any]) -> str:
    """The selector of a pod's sibling pods; empty: all pods of its namespace."""
    labels = metadata(pod).get("labels") or {}
    return next((f"{key}={labels[key]}" for key in _SELECTORS if _VALUE.fullmatch(labels.get(key, ""))), "")


def _of_slots(history: RunState, name: TaskName) -> Iterator[tuple[int, Sequence[AttemptState]]]:
    """The attempts of the slots in the journal."""
    if name.slots == 1:
        yield 0, _attempts(history, name.path)
        return
    for path, task in history.tasks.items():
        base, _, slot = path.rpartition("-")
        if base == name.path and slot.isdecimal() and int(slot) < name.slots:
            yield int(slot), task.attempts


def _slot(recorded: Sequence[AttemptState]) -> Slot:
    last = recorded[-1]
    is_free = last.taken_back is not None or (not last.is_live and last.cause is not Cause.SUCCEEDED)
    return Slot(len(recorded), is_free, all(map(is_settled, recorded)))


def _is_gang_settled(history: RunState, gang: str) -> bool:
    """Whether all members of the restarts before this one are in the journal with their causes."""
    before = restarts_before(history, gang)
    if not all(is_settled(attempt) for members in before for attempt in members.values()):
        return False
    of_set, _, restart = gang.partition("/")
    last = f"{of_set}/{int(restart) - 1}"
    return restart == "0" or any(attempt.gang == last for members in before for attempt in members.values())


def _attempts(history: RunState, path: str) -> Sequence[AttemptState]:
    """The attempts of a task; empty if it is not in the journal."""
    return history.tasks[path].attempts if path in history.tasks else ()


def before(
    history: RunState, path: str, number: int, seen: Mapping[int, Cause] = MappingProxyType({})
) -> list[PastAttempt]:
    """The attempts of a task before this one: first the recorded ones, then those known only by number.

    ``seen`` has the causes of some unrecorded attempts, by number.
    """
    recorded = _attempts(history, path)
    found = [*map(past_of, recorded), *[PastAttempt()] * (number - 1 - len(recorded))]
    for earlier, cause in seen.items():
        if earlier > len(found):  # the record was recreated meanwhile
            continue
        past = found[earlier - 1]
        if not _is_recorded(past):
            found[earlier - 1] = past._replace(cause=cause, has_ended=True, is_recorded=False)
    return found


def _is_recorded(past: PastAttempt) -> bool:
    """Whether the decision after an attempt is recorded."""
    return past.waited_in_vain or (past.cause is not None and past.is_recorded)


def _unsettled(recorded: Sequence[AttemptState]) -> Sequence[Unsettled]:
    """The recorded attempts without a recorded end; of several in one pod, the last one."""
    found = {
        one.key.partition("/")[0]: Unsettled(one.number, one.key.partition("/")[0], one.pod, one.noticed_at is not None)
        for one in recorded
        if not is_settled(one)
    }
    return [*found.values()]


def _in_vain(history: RunState, gang: str, path: str, now: float) -> Collection[str]:
    """The pools skipped only for this task or its set, because it waited there in vain."""
    own = [attempt for _, attempt in members_of(history, gang)] if gang else _attempts(history, path)
    vain = ((one.taken_back.at, one.pools) for one in own if one.taken_back is not None)
    return left_out(pauses_of(sorted(vain)), now)
