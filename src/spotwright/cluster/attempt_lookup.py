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
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from spotwright import config as configuration
from spotwright.clouds.pool_order import UNKNOWN, Autoscalers
from spotwright.cluster.admission_server import AdmissionRequest
from spotwright.cluster.admit_pods import Admission, PodFacts
from spotwright.cluster.api_client import Api, ApiFailed, object_path
from spotwright.cluster.attempt_numbers import Ledger, Seen, Slot, token_of
from spotwright.cluster.bounded_json import MOST_MEMORY
from spotwright.cluster.descheduler import why_many_stay, why_not_made_again
from spotwright.cluster.marked_pods import CarriedNumbers, marked_pods
from spotwright.cluster.recorded_histories import RecordedHistories
from spotwright.cluster.run_records import folder_of, workload_of
from spotwright.cluster.workloads import MOST_OWNERS, Lineage, TaskName, lineage, task_name
from spotwright.engine.attempt_history import is_settled, members_of, past_of, restarts_before, set_history
from spotwright.engine.events import RunStatus
from spotwright.engine.fold import fold
from spotwright.engine.plan import Plan, PlannedTask
from spotwright.engine.state import AttemptState, RunState
from spotwright.errors import StateError
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.kinds.kind import Retry, run_kind, run_kinds
from spotwright.kube.object_fields import Owner, controller_of, mapping, mappings, metadata, uid_of
from spotwright.model.attempts import Cause
from spotwright.model.policy import Policy
from spotwright.records.journal import Journal, JournalStamp, journal_stamp
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import left_out, pauses_of
from spotwright.scheduling.ladder import Ladder, Work
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["NO_PLAN", "FactFinder", "Histories", "Lookups", "before"]


_T = TypeVar("_T")
_Found = Mapping[str, Any] | None
_EVENTS_KEPT = 60_000  # of the runs whose histories stay in memory: each takes 400 to 800 bytes of it


class _NoPlan(Plan):
    """Stands for the plan of a run of which the attempts alone are read: templates take megabytes, and a review waits."""

    def instance(self, template: str, path: str) -> PlannedTask:  # noqa: ARG002  # as that of a plan, as those below
        """A task of which nothing is planned."""
        return PlannedTask(path, _NO_TASK, _NO_POLICY, Work(), Ladder(()))

    def with_pool(self, name: str, *, is_spot: bool) -> Plan:  # noqa: ARG002
        """The same plan."""
        return self

    def with_template(self, data: Mapping[str, Any]) -> Plan:  # noqa: ARG002
        """The same plan."""
        return self


_NO_TASK, _NO_POLICY = TaskSpec("", ""), Policy()
NO_PLAN = _NoPlan(TaskGraph("", Dag("root"), {}), configuration.built_in())
"""The plan of every run whose attempts alone are read."""


class _Reader:
    """The journal of one workload, read as far as it went at the last look."""

    def __init__(self, state: StateFolder, root: Mapping[str, Any]) -> None:
        self._state, self._root = state, root
        self._path: Path | None = None  # known once the run has begun: until then another workload may take the folder
        self._stamp: JournalStamp | None = None
        self._last = 0
        self.history = RunState([NO_PLAN])

    def refresh(self) -> RunState:
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
                fold(self.history, event)
                self._last = number
        self._stamp = stamp
        return self.history


class Histories:
    """The histories of the runs of a state folder. For one thread at a time."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._readers: OrderedDict[str, _Reader] = OrderedDict()  # by the UID of the workload
        self._events = 0

    def of(self, root: Mapping[str, Any]) -> RunState:
        """What the journal of a workload has now; empty if there is none yet. Raises :class:`StateError`."""
        uid = uid_of(root)
        reader = self._readers.pop(uid, None) or _Reader(self._state, _named(root))
        self._readers[uid] = reader
        known = reader.history.events
        try:
            return reader.refresh()
        finally:
            self._events += reader.history.events - known
            while self._events > _EVENTS_KEPT and len(self._readers) > 1:
                self._events -= self._readers.popitem(last=False)[1].history.events


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
_LARGEST_LIST = 8 * 1024 * 1024  # bytes: of pods that are more together, nothing is known
_LONGEST_PATH = 2500  # characters: Argo joins the names of all steps above one
_VALUE = re.compile("[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")  # of a label: anything else would be another selector
_SELECTORS = tuple(kind.pods_label for kind in run_kinds().values() if kind.pods_label and not kind.is_gang)
"""A gang may have Jobs, and the pods of a Job are fewer."""


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
    history: RunState
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
        histories: Histories | RecordedHistories,
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
        is_alone = controller_of(pod) is None
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
            set_history(history, asked.gang, slot.path) if asked.gang else before(history, slot.path, number),
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
            is_late=not looked.is_settled,
        )

    def _look(self, asked: _Asked) -> _Looked:
        history = self._histories.of(asked.root)
        paths = asked.paths(self._used(asked, history))
        slots = [_slot(path, _attempts(history, path)) for path in paths]
        if asked.gang:
            is_settled = self._ledger.has_begun(asked.namespace, asked.gang) or _is_gang_settled(history, asked.gang)
            return _Looked(slots, history, is_settled)
        given_out = self._ledger.highest(asked.uid, paths)
        is_settled = any(_is_settled(slot, history, given_out.get(slot.path, 0)) for slot in slots)
        return _Looked(slots, history, is_settled or history.status is not RunStatus.RUNNING)

    def _used(self, asked: _Asked, history: RunState) -> int:
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
    labels = metadata(request.data).get("labels") or {}
    sets = [(uid_of(owner), label) for owner in owners if (label := run_kind(owner).restart_label)]
    restarts = [
        f"{uid}/{labels[label]}" for uid, label in sets[:1] if re.fullmatch("[0-9]{1,9}", labels.get(label, ""))
    ]
    gang = restarts[0] if restarts else ""
    return _Asked(request.uid, request.namespace, owners[-1], task_name(request.data, owners), gang)


def _selector(pod: Mapping[str, Any]) -> str:
    """The selector of the pods beside a pod; empty: all of its namespace."""
    labels = metadata(pod).get("labels") or {}
    return next((f"{key}={labels[key]}" for key in _SELECTORS if _VALUE.fullmatch(labels.get(key, ""))), "")


def _paths(name: TaskName, used: int) -> Sequence[str]:
    """The paths that a task's name stands for, at most one more than are ``used``: a Job may have two billion slots."""
    return [name.path] if name.slots == 1 else [f"{name.path}-{slot}" for slot in range(min(name.slots, used + 1))]


def _slot(path: str, recorded: Sequence[AttemptState]) -> Slot:
    last = recorded[-1] if recorded else None
    is_free = last is None or last.taken_back is not None or (not last.is_live and last.cause is not Cause.SUCCEEDED)
    return Slot(path, len(recorded), is_free)


def _is_settled(slot: Slot, history: RunState, given_out: int) -> bool:
    """Whether the pod before this one is in the journal with its cause."""
    recorded = _attempts(history, slot.path)
    return slot.is_free and len(recorded) >= given_out and all(map(is_settled, recorded))


def _is_gang_settled(history: RunState, gang: str) -> bool:
    """Whether all members of the restarts before this one are in the journal with their causes."""
    before = restarts_before(history, gang)
    if not all(is_settled(attempt) for members in before for attempt in members.values()):
        return False
    of_set, _, restart = gang.partition("/")
    last = f"{of_set}/{int(restart) - 1}"
    return restart == "0" or any(attempt.gang == last for members in before for attempt in members.values())


def _attempts(history: RunState, path: str) -> Sequence[AttemptState]:
    """The attempts of a task; none if it is not in the journal."""
    return history.tasks[path].attempts if path in history.tasks else ()


def before(history: RunState, path: str, number: int) -> list[PastAttempt]:
    """The attempts of a task before this one: those of the journal, then those that only their numbers tell of."""
    recorded = _attempts(history, path)
    return [*map(past_of, recorded), *[PastAttempt()] * (number - 1 - len(recorded))]


def _in_vain(history: RunState, gang: str, path: str, now: float) -> Collection[str]:
    """The pools that are left out for a task or its set alone, because it has waited for them in vain itself."""
    own = [attempt for _, attempt in members_of(history, gang)] if gang else _attempts(history, path)
    vain = ((one.taken_back.at, one.pools) for one in own if one.taken_back is not None)
    return left_out(pauses_of(sorted(vain)), now)
