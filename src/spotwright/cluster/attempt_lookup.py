"""Finds the history of a pod's task while its review waits: the journals, joined with the numbers that were given out.

An orchestrator may make the next pod within 30 ms of the end of the one before, and the leader needs a moment to record that
end. So a review waits for it, at most half a second; after that the last certain rung holds, and nothing is refused for want
of facts. The leader writes the journals and all replicas read them; what they do not say (an owner, what a placement refers
to) is asked of the API server, one object at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_pods import Admission, PodFacts
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.attempt_numbers import Ledger, Seen, Slot, token_of
from spotwright.cluster.bounded_json import MOST_MEMORY
from spotwright.cluster.descheduler import why_many_stay, why_not_made_again
from spotwright.cluster.marked_pods import CarriedNumbers, marked_pods
from spotwright.cluster.run_store import folder_of, workload_of
from spotwright.cluster.signals import mapping, mappings
from spotwright.cluster.workloads import (
    MOST_OWNERS,
    Lineage,
    TaskName,
    controller_reference,
    lineage,
    metadata,
    task_name,
    uid_of,
)
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptTakenBack,
    Event,
    RunFinished,
)
from spotwright.errors import StateError
from spotwright.kinds.kind import Retry, run_kind
from spotwright.model.attempts import Cause
from spotwright.records.journal import Journal, JournalStamp, journal_stamp
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import left_out, pauses_of
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["FactFinder", "Histories", "Lookups", "RecordedAttempt", "RunHistory"]


_T = TypeVar("_T")
_Found = Mapping[str, Any] | None
_HISTORIES_KEPT = 5_000  # runs whose histories stay in memory


@dataclass(slots=True)
class RecordedAttempt:
    """One attempt as the journal has it. ``cause`` is None until it is decided; ``gang`` is the restart of a set, SET/RESTART."""

    key: str
    pools: tuple[str, ...]
    gang: str = ""
    pool: str | None = None
    has_ended: bool = False
    cause: Cause | None = None
    moved_to: tuple[str, ...] | None = None  # it was taken back, and the next attempt waits for a node of these pools
    moved_at: float = 0.0  # when that was decided, in Unix seconds

    @property
    def past(self) -> PastAttempt:
        """The attempt as the decision about the next one reads it."""
        waited, then = self.moved_to is not None, self.moved_to or ()
        return PastAttempt(
            self.cause, self.pools, self.pool, waited_in_vain=waited, then=then, has_ended=self.has_ended or waited
        )

    @property
    def is_settled(self) -> bool:
        """Whether what followed it is known: its cause, or the decision to take it back, which comes before its end."""
        return self.cause is not None or self.moved_to is not None


@dataclass(slots=True)
class RunHistory:
    """The attempts of one run by the path of their task, in order."""

    tasks: dict[str, list[RecordedAttempt]] = field(default_factory=dict)
    is_over: bool = False  # nothing more is recorded: its recording may have been cut while the workload goes on

    def of(self, path: str) -> Sequence[RecordedAttempt]:
        """The attempts of a task; none if it is not in the journal."""
        return self.tasks.get(path, ())

    def members(self, gang: str) -> Iterator[tuple[str, RecordedAttempt]]:
        """The attempts of all restarts of the set that ``gang``, as SET/RESTART, belongs to, each with the path of its task."""
        of_set = f"{gang.partition('/')[0]}/"
        for path, attempts in self.tasks.items():
            yield from ((path, attempt) for attempt in attempts if attempt.gang.startswith(of_set))

    def restarts_before(self, gang: str) -> Sequence[Mapping[str, RecordedAttempt]]:
        """The restarts of a set before this one, in order, each with its members by the path of their task.

        A restart may have ended before all of its pods were made, and a Job may have replaced a pod within one: a task need not
        have as many attempts as its set has restarts.
        """
        restarts: dict[tuple[int, ...], dict[str, RecordedAttempt]] = {}
        for path, attempt in self.members(gang):
            place = _place(attempt.gang)
            if place[0] < _place(gang)[0]:
                restarts.setdefault(place, {})[path] = attempt
        return [restarts[place] for place in sorted(restarts)]

    def take(self, event: Event) -> None:
        """Add what an event says."""
        if isinstance(event, RunFinished):
            self.is_over = True
        elif isinstance(event, AttemptAdopted):
            adopted = RecordedAttempt(event.key, tuple(event.pools), event.gang)
            self.tasks.setdefault(event.task, []).append(adopted)
        elif isinstance(event, (AttemptBound, AttemptEnded, AttemptDecided, AttemptTakenBack)):
            attempt = self.tasks[event.task][event.attempt - 1]
            if isinstance(event, AttemptBound):
                attempt.pool, attempt.moved_to = event.pool, None
            elif isinstance(event, AttemptTakenBack):
                attempt.moved_to, attempt.moved_at = tuple(event.pools), event.at
            elif isinstance(event, AttemptEnded):
                attempt.has_ended = True
            else:
                attempt.has_ended, attempt.cause = True, event.cause


def _place(gang: str) -> tuple[int, ...]:
    """The place of a restart in the order of its set: its number, and that of a pod that was replaced within it."""
    return tuple(int(number) for number in gang.split("/")[1:] if number.isdecimal()) or (0,)


class _Reader:
    """The journal of one workload, read as far as it went at the last look."""

    def __init__(self, state: StateFolder, root: Mapping[str, Any]) -> None:
        self._state, self._root = state, root
        self._path: Path | None = None  # known once the run has begun: until then another workload may take the folder
        self._stamp: JournalStamp | None = None
        self._last = 0
        self.history = RunHistory()

    def refresh(self) -> RunHistory:
        """Read what was written since the last look. Raises :class:`StateError`."""
        path = self._path or folder_of(self._state, self._root).journal
        stamp = journal_stamp(path)
        if (stamp is not None and stamp == self._stamp) or not path.exists():
            return self.history
        with closing(Journal.read(path)) as journal:
            if self._path is None and workload_of(journal) != uid_of(self._root):
                return self.history
            self._path = path
            for number, event in journal.events(self._last):
                self.history.take(event)
                self._last = number
        self._stamp = stamp
        return self.history


class Histories:
    """The histories of the runs of a state folder. For one thread at a time."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._readers: OrderedDict[str, _Reader] = OrderedDict()  # by the UID of the workload

    def of(self, root: Mapping[str, Any]) -> RunHistory:
        """What the journal of a workload has now; empty if there is none yet. Raises :class:`StateError`."""
        uid = uid_of(root)
        reader = self._readers.pop(uid, None) or _Reader(self._state, _named(root))
        self._readers[uid] = reader
        while len(self._readers) > _HISTORIES_KEPT:
            self._readers.popitem(last=False)
        return reader.refresh()


def _named(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the name of a run is made of: a workload has megabytes."""
    meta = metadata(root)
    return {"metadata": {key: meta.get(key) or "" for key in ("namespace", "name", "uid")}}


_LOG = logging.getLogger(__name__)
_FRESH = 3.0  # seconds in which an answer is given again: a template that was changed counts for what comes after
_ANSWERS_KEPT = 32  # objects as they are
_OWNERS_KEPT = 5_000  # of each the few fields that name tasks
_LARGEST, _MEMORY = 512 * 1024, 2_000_000  # bytes of an object that a placement refers to, as text and as Python's
_LARGEST_OWNER = 3 * 1024 * 1024  # bytes: a Workflow has its whole status
_LARGEST_KEPT = 16 * 1024  # bytes of those fields: tenants write labels of any number
_READING = 10.0  # seconds until a reading is given up for which no review waits any more


class Lookups:
    """Reads objects of kinds that are placed. ``clock`` is monotonic.

    An object that cannot be read, or is too large, counts as missing, and the log says why. All who ask for an object while it
    is being read get that reading, which goes on without them: a pipeline's first pods come at once, and all have one owner.
    """

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._answers: OrderedDict[tuple[str, ...], tuple[float, Mapping[str, Any] | None]] = OrderedDict()
        self._owners: OrderedDict[tuple[str, str], Mapping[str, Any]] = OrderedDict()  # by namespace and UID
        self._readings: dict[tuple[str, ...], asyncio.Task[Any]] = {}

    async def find_object(self, api_version: str, kind: str, name: str, namespace: str) -> Mapping[str, Any] | None:
        """An object by its name, up to three seconds old; None if it is missing or cannot be read."""
        asked = api_version, kind, name, namespace
        read_at, found = self._answers.get(asked, (float("-inf"), None))
        if self._clock() - read_at > _FRESH:
            found = await self._together(("object", *asked), lambda: self._object(*asked))
        return found

    async def _object(self, *asked: str) -> Mapping[str, Any] | None:
        found = await self._read(*asked, at_most=_LARGEST, memory=_MEMORY)
        _keep(self._answers, asked, (self._clock(), found), _ANSWERS_KEPT)
        self._drop_stale()
        asyncio.get_running_loop().call_later(_FRESH, self._drop_stale)  # perhaps nobody asks any more
        return found

    def _drop_stale(self) -> None:
        """Drop answers that are not given again: objects as they are take megabytes."""
        while self._answers and self._clock() - next(iter(self._answers.values()))[0] >= _FRESH:
            self._answers.popitem(last=False)

    async def owners(self, pod: Mapping[str, Any]) -> Lineage:
        """The owners of a pod, as far as they can be read."""
        namespace = str(metadata(pod).get("namespace", ""))
        read: dict[str, Mapping[str, Any]] = {}

        def known(_kind: str, where: str, uid: str) -> Mapping[str, Any] | None:
            return read.get(uid) or self._owners.get((where, uid))

        while not (found := lineage(pod, known)).is_complete and len(found.owners) < MOST_OWNERS:
            reference = controller_reference(found.root(pod)) or {}
            version, kind, name, uid = (str(reference.get(key, "")) for key in ("apiVersion", "kind", "name", "uid"))
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
        """What ``read()`` finds, or what the reading finds that others have begun. Cancelled, the reading goes on."""
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
            reading.exception()  # perhaps nobody waits for it any more

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
    """An owner with what never changes and names tasks: a workflow's templates and status may have megabytes."""
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


_WAIT = 0.45  # seconds for the end of the attempt before; with what is read around it, half a second
_POLL = 0.02
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
_LARGEST_LIST = 8 * 1024 * 1024  # bytes: of pods that are more together, nothing is known
_LONGEST_PATH = 2500  # characters: Argo joins the names of all steps above one
_VALUE = re.compile("[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")  # of a label: anything else would be another selector
_SELECTORS = ("batch.kubernetes.io/controller-uid", "workflows.argoproj.io/workflow")
_WORST_FIRST = (
    *(cause for cause in Cause if cause.is_interruption),
    *(cause for cause in Cause if cause.is_error),
    Cause.UNSCHEDULABLE,
    Cause.DISRUPTED,
)
"""Of the members of a gang, which one's ending counts for all: the others ended because their set was started again."""


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

    def has(self, path: str) -> bool:
        """Whether a task is one that the pod may belong to."""
        return path == self.name.path if self.name.slots == 1 else path.startswith(f"{self.name.path}-")

    def paths(self, used: int) -> Sequence[str]:
        """The tasks that the pod may belong to: of slots as many as are used, and one that is free if there is one."""
        return _paths(self.name, used)


class _Looked(NamedTuple):
    """What is known now. ``is_settled``: the end of every earlier attempt is known, so that waiting adds nothing."""

    slots: Sequence[Slot]
    history: RunHistory
    is_settled: bool


class FactFinder:
    """Finds facts for the webhook: :meth:`find`. The journals are read in a thread of its own.

    ``left_out`` gives the pools without capacity for a namespace at a moment of the API server's clock, ``autoscalers`` what the
    cluster shows of what adds nodes to the pools.
    """

    def __init__(
        self,
        api: Api,
        lookups: Lookups,
        histories: Histories,
        ledger: Ledger,
        left_out: Callable[[str, float], Collection[str]] = lambda *_: (),
        autoscalers: Callable[[], Autoscalers] = lambda: UNKNOWN,
    ) -> None:
        self._api, self._lookups, self._histories, self._ledger = api, lookups, histories, ledger
        self._left_out, self._autoscalers = left_out, autoscalers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="histories")
        self._carried = CarriedNumbers(api)
        self._seen: list[Seen] = []  # tokens of pods that exist, and that are to be confirmed together
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def confirm(self, tokens: Sequence[Seen]) -> None:
        """Note that the pods with these tokens exist, soon and in the background."""
        with self._lock:
            is_first = not self._seen
            self._seen += tokens
        if is_first:  # what comes until its turn is done with it
            self._thread.submit(self._confirm)

    async def find(self, request: AdmissionRequest) -> PodFacts:
        """What is known of the pod's task. A dry run gives out no number."""
        pod = request.data
        lineage = await self._lookups.owners(pod)
        is_alone = controller_reference(pod) is None
        if not is_alone and (not lineage.is_complete or not lineage.owners):
            return PodFacts(is_known=False)
        root = "" if is_alone else uid_of(lineage.owners[-1])
        try:
            token = token_of(pod)
            if token != "" and await self._in_thread(self._ledger.is_under_review, token, request.namespace, root):
                return PodFacts(is_admitted=True)
            if is_alone:
                return await self._in_thread(self._alone, request)
            asked = _asked(request, lineage.owners)
            if len(asked.name.path) > _LONGEST_PATH:  # labels that the API server refuses after this review
                return PodFacts(is_known=False)
            facts = await self._of(asked, pod, lineage.owners, is_dry=request.dry_run)
            return replace(facts, stays=await self._why_it_stays(pod, lineage.owners))
        except StateError as error:
            _LOG.warning("%s", error)
            return PodFacts(is_known=False)

    def _alone(self, request: AdmissionRequest) -> PodFacts:
        """The facts about a pod that nobody makes again."""
        facts = PodFacts(autoscalers=self._autoscalers(), stays=why_not_made_again(request.data, ()))
        if request.dry_run:
            return facts
        self._ledger.alone(request.uid, request.namespace)
        return replace(facts, token=request.uid, keep=partial(self._keep, request.uid))

    def _keep(self, token: str, admission: Admission) -> bool:
        """Note what was decided of a pod; false: it cannot be noted."""
        try:
            self._ledger.keep(token, admission)
        except StateError as error:
            _LOG.warning("%s", error)
            return False
        return True

    async def _why_it_stays(self, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> str:
        """Why nobody should have to take the pod back where it waits; of a JobSet the restarts of now count."""
        now = [await self._fresh(pod, one) if run_kind(one).retry is Retry.SET else one for one in owners]
        return why_not_made_again(pod, now) or why_many_stay(now)

    async def _fresh(self, pod: Mapping[str, Any], owner: Mapping[str, Any]) -> Mapping[str, Any]:
        meta, namespace = metadata(owner), str(metadata(pod).get("namespace", ""))
        version, kind = str(owner.get("apiVersion", "")), str(owner.get("kind", ""))
        return await self._lookups.find_object(version, kind, str(meta.get("name", "")), namespace) or owner

    async def _of(
        self, asked: _Asked, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], *, is_dry: bool
    ) -> PodFacts:
        """All facts at once if no doubt is left and no end has to be waited for; else as soon as that is so, or time is over.

        Mostly one turn of the thread is enough. Each turn costs milliseconds in a burst of reviews.
        """
        loop, now = asyncio.get_running_loop(), self._api.now()
        doubtful, facts = await self._in_thread(self._first_turn, asked, is_dry, now)
        if not self._ledger.is_restored(asked.uid):
            await self._restore(asked, pod, owners)
        if doubtful:
            await self._settle_doubts(doubtful, pod)
        until = loop.time() + _WAIT
        while facts is None:
            await asyncio.sleep(0 if doubtful else _POLL)  # settled doubts are worth a look at once
            doubtful = ()
            facts = await self._in_thread(self._answer, asked, is_dry, now, loop.time() >= until)
        return facts

    def _first_turn(self, asked: _Asked, is_dry: bool, now: float) -> tuple[Sequence[str], PodFacts | None]:
        """Numbers whose pods nobody has seen; and the facts, if there are none, nothing was lost, and everything is settled."""
        doubtful = [token for token, path in self._ledger.doubtful(asked.uid) if asked.has(path)]
        is_whole = not doubtful and self._ledger.is_restored(asked.uid)
        return doubtful, self._answer(asked, is_dry, now, is_last=False) if is_whole else None

    def _answer(self, asked: _Asked, is_dry: bool, now: float, is_last: bool) -> PodFacts | None:
        """The facts if the end of every earlier attempt is known, or if this ``is_last``; else None."""
        looked = self._look(asked)
        return self._facts(asked, looked, is_dry, now) if looked.is_settled or is_last else None

    def _facts(self, asked: _Asked, looked: _Looked, is_dry: bool, now: float) -> PodFacts:
        """The facts of what was looked at, with the number that is given out now; a dry run gets the one that would be next."""
        if is_dry:
            slot = next((slot for slot in looked.slots if slot.is_free), looked.slots[-1])
            number = max(slot.recorded, self._ledger.highest(asked.uid, [slot.path]).get(slot.path, 0)) + 1
        else:
            slot, number = self._ledger.number(asked.token, asked.namespace, asked.uid, looked.slots)
        history = looked.history
        return PodFacts(
            _merged(history, asked.gang, slot.path) if asked.gang else _before(history.of(slot.path), number),
            number=number,
            agree=None if is_dry or not asked.gang else partial(self._ledger.agree, asked.namespace, asked.gang),
            has_begun=bool(asked.gang) and self._ledger.has_begun(asked.namespace, asked.gang),
            without_capacity={
                *self._left_out(asked.namespace, now),
                *_in_vain(history, asked.gang, slot.path, now),
            },
            token="" if is_dry else asked.token,
            keep=(lambda _: True) if is_dry else partial(self._keep, asked.token),
            autoscalers=self._autoscalers(),
        )

    def _look(self, asked: _Asked) -> _Looked:
        history = self._histories.of(asked.root)
        paths = asked.paths(self._used(asked, history))
        slots = [_slot(path, history.of(path)) for path in paths]
        if asked.gang:
            is_settled = self._ledger.has_begun(asked.namespace, asked.gang) or _is_gang_settled(history, asked.gang)
            return _Looked(slots, history, is_settled)
        given_out = self._ledger.highest(asked.uid, paths)
        is_settled = any(_is_settled(slot, history, given_out.get(slot.path, 0)) for slot in slots)
        return _Looked(slots, history, is_settled or history.is_over)

    def _used(self, asked: _Asked, history: RunHistory) -> int:
        """How many of the slots that a pod may take have an attempt or a number."""
        if asked.name.slots == 1:
            return 1
        return len({path for path in (*history.tasks, *self._ledger.paths(asked.uid)) if asked.has(path)})

    async def _restore(self, asked: _Asked, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> None:
        """Take over the numbers that the pods of a workload carry, because the table of numbers was lost.

        They are read once for all reviews that ask for the same pods, beside them: one that they hold up goes on without them.
        """
        found = await self._carried.of(asked.namespace, _selector(pod), patience=_WAIT)
        if found is None:
            return
        place = {uid_of(owner): number for number, owner in enumerate(owners)}
        numbers: list[tuple[str, Sequence[str], int]] = []
        for each in found:
            if each.controller in place and each.metadata:
                name = task_name(each.pod, owners[place[each.controller] :])
                numbers.append((each.token, _paths(name, len(found)), int(each.number)))
        await self._in_thread(self._ledger.restore, asked.namespace, asked.uid, numbers)

    async def _settle_doubts(self, doubtful: Sequence[str], pod: Mapping[str, Any]) -> None:
        """Ask the API server about numbers whose pods nobody has seen: a quota or another webhook may have refused them."""
        namespace = str(metadata(pod).get("namespace", ""))
        try:
            async with aclosing(marked_pods(self._api, namespace, _selector(pod), most_bytes=_LARGEST_LIST)) as pods:
                made = {each.token async for each in pods} & {*doubtful}
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return
        await self._in_thread(self._ledger.confirm, [Seen(namespace, token) for token in doubtful if token in made])
        await self._in_thread(self._ledger.withdraw, [token for token in doubtful if token not in made])

    def _confirm(self) -> None:
        with self._lock:
            tokens, self._seen = self._seen, []
        try:
            self._ledger.confirm(tokens)
        except StateError as error:
            _LOG.warning("%s", error)

    async def _in_thread(self, function: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _asked(request: AdmissionRequest, owners: Sequence[Mapping[str, Any]]) -> _Asked:
    restart = str((metadata(request.data).get("labels") or {}).get(_RESTART, ""))
    sets = [uid_of(owner) for owner in owners if run_kind(owner).retry is Retry.SET]
    gang = f"{sets[0]}/{restart}" if sets and re.fullmatch("[0-9]{1,9}", restart) else ""
    return _Asked(request.uid, request.namespace, owners[-1], task_name(request.data, owners), gang)


def _selector(pod: Mapping[str, Any]) -> str:
    """The selector of the pods beside a pod; empty: all of its namespace."""
    labels = metadata(pod).get("labels") or {}
    return next((f"{key}={labels[key]}" for key in _SELECTORS if _VALUE.fullmatch(labels.get(key, ""))), "")


def _paths(name: TaskName, used: int) -> Sequence[str]:
    """The paths that a task's name stands for, at most one more than are ``used``: a Job may have two billion slots."""
    return [name.path] if name.slots == 1 else [f"{name.path}-{slot}" for slot in range(min(name.slots, used + 1))]


def _slot(path: str, recorded: Sequence[RecordedAttempt]) -> Slot:
    last = recorded[-1] if recorded else None
    is_free = last is None or last.moved_to is not None or (last.has_ended and last.cause is not Cause.SUCCEEDED)
    return Slot(path, len(recorded), is_free)


def _is_settled(slot: Slot, history: RunHistory, given_out: int) -> bool:
    """Whether the pod before this one is in the journal with its cause."""
    recorded = history.of(slot.path)
    return slot.is_free and len(recorded) >= given_out and all(attempt.is_settled for attempt in recorded)


def _is_gang_settled(history: RunHistory, gang: str) -> bool:
    """Whether all members of the restarts before this one are in the journal with their causes."""
    before = history.restarts_before(gang)
    if not all(attempt.is_settled for members in before for attempt in members.values()):
        return False
    of_set, _, restart = gang.partition("/")
    last = f"{of_set}/{int(restart) - 1}"
    return restart == "0" or any(attempt.gang == last for members in before for attempt in members.values())


def _before(recorded: Sequence[RecordedAttempt], number: int) -> list[PastAttempt]:
    """The attempts before this one: those of the journal, then those that only their numbers tell of."""
    return [*(attempt.past for attempt in recorded), *[PastAttempt()] * (number - 1 - len(recorded))]


def _in_vain(history: RunHistory, gang: str, path: str, now: float) -> Collection[str]:
    """The pools that are left out for a task or its set alone, because it has waited for them in vain itself."""
    own = [attempt for _, attempt in history.members(gang)] if gang else history.of(path)
    return left_out(pauses_of(sorted((one.moved_at, one.pools) for one in own if one.moved_to is not None)), now)


def _merged(history: RunHistory, gang: str, path: str) -> list[PastAttempt]:
    """The restarts of a gang before this one, each with the ending of the member that ended it, as this task's past."""
    return [_past_of(members, members.get(path)) for members in history.restarts_before(gang)]


def _past_of(members: Mapping[str, RecordedAttempt], own: RecordedAttempt | None) -> PastAttempt:
    """The ending of a restart. An error is not certain while the cause of a peer is not known: that peer may have been lost."""
    past = _as_own(_worst(members.values()), own)
    is_certain = past.cause is None or not past.cause.is_error or all(one.is_settled for one in members.values())
    return past if is_certain else replace(past, cause=None)


def _as_own(worst: RecordedAttempt, own: RecordedAttempt | None) -> PastAttempt:
    """The ending of the member that ended a restart, on the rung of this task's own attempt.

    A member with other rungs, a leader on on-demand say, moves nobody: who waited in vain beside it stays on its own rung.
    """
    past = worst.past
    if own is None or own.pools == worst.pools:
        return past
    return replace(past, pools=own.pools, pool=own.pool, then=own.pools if past.waited_in_vain else ())


def _worst(members: Iterable[RecordedAttempt]) -> RecordedAttempt:
    """The member whose ending counts for all."""
    order = {cause: place for place, cause in enumerate(_WORST_FIRST)}

    def place(member: RecordedAttempt) -> int:
        cause = Cause.UNSCHEDULABLE if member.moved_to is not None else member.cause
        return len(order) if cause is None else order.get(cause, len(order))

    return min(members, key=place)
