"""Assigns every attempt its number and every gang its rung exactly once, on any replica.

API servers spread reviews over the replicas. So assigned numbers and the rungs agreed by gangs are stored in SpotCounters,
objects of the Kubernetes API that only the controller writes: all replicas share them, and they survive a node loss.

The objects also store the decision about each pod, by the token of its review: pod annotations are untrusted, because anyone
with write access to the namespace can write them. Usually one write does both: a replica foresees the next number from its copy
of the object, decides with it, and writes number and decision if the number is still free.

A number is assigned before the pod exists, and a quota may prevent the pod's creation. A number is confirmed once its pod was
seen; every replica watches pods. A number unconfirmed after :data:`PATIENCE` seconds is doubtful; it may be assigned again once
the API server confirms that the pod does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from spotwright.cluster.admit_objects import Admission
from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.cluster.api_client import Api
from spotwright.cluster.mirror import ChangeKind, FollowedNamespaces, Resource
from spotwright.cluster.task_objects import (
    Content,
    Place,
    Token,
    Waiting,
    agree_in,
    agreed_in,
    bind_in,
    counters_of,
    gangs_of,
    keep_in,
    note_seen_in,
    token_of,
)
from spotwright.cluster.task_store import TaskStore
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, uid_of

__all__ = ["PATIENCE", "Asking", "Given", "Numbers", "PodsSeen", "Seen", "Slot", "Wait"]


_LOG = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds within which replicas see an admitted pod: their watches lag by milliseconds."""

_NEVER_MADE = 3600.0  # seconds after which an unseen pod was never created; a sender of reviews can invent pods
_REVIEWED_AGAIN = 10.0  # seconds within which an API server reinvokes for a pod changed by another webhook
_GATHERS = 0.5  # seconds of seen pods that are confirmed together
_OF_OTHERS = 1.2  # seconds after which another replica's pod is confirmed, if it has not been
_OWN_KEPT = 20_000  # tokens that this replica has given out
_FORESEEN, _MOST_FORESEEN = 1.0, 1_000  # seconds for which a foreseen number is reserved for its review, and the most
# reservations


class Slot(NamedTuple):
    """The journal's record of a task that a pod may belong to. ``recorded`` is the number of its attempts.

    ``is_free``: none of these runs or succeeded. ``is_settled``: all ended with a known cause.
    """

    recorded: int = 0
    is_free: bool = True
    is_settled: bool = True


_NO_SLOT = Slot()


@dataclass(frozen=True)
class Asking:
    """A pod under review that asks for a number.

    ``root`` is the workload. ``slots`` above one: the pod takes the first free one of ``PATH-0`` ... . ``known`` are the slots
    with attempts in the journal; slot 0 is the task itself if it is a single one. ``is_settled`` says whether everything
    before this attempt is known; None: that follows from its slots.
    """

    review: str
    namespace: str
    root: Mapping[str, Any]
    path: str
    slots: int = 1
    known: Mapping[int, Slot] = field(default_factory=dict)
    is_settled: bool | None = None

    @classmethod
    def alone(cls, review: str, namespace: str) -> Asking:
        """The request of a pod that is its own run and has no UID yet: its only attempt has number 1."""
        return cls(review, namespace, {}, "", is_settled=True)

    @property
    def is_alone(self) -> bool:
        """Whether the pod is its own run."""
        return not self.root

    @property
    def has_attempts(self) -> bool:
        """Whether the journal has an attempt of it."""
        return any(slot.recorded for slot in self.known.values())

    @cached_property
    def free(self) -> Sequence[int]:
        """The known free slots, in order."""
        return sorted(slot for slot, one in self.known.items() if one.is_free)

    @property
    def place(self) -> Place:
        """The object with the counters."""
        return counters_of(self.namespace, uid_of(self.root), self.path)


class Given(NamedTuple):
    """An assigned number and its slot. A dry run has no ``token``.

    ``seen`` is the highest number of the slot with a seen pod, ``path`` the task's.
    """

    slot: int
    number: int
    token: Token | None = None
    sheet: int = 0
    is_settled: bool = True
    seen: int = 0
    path: str = ""


class Wait(NamedTuple):
    """Why a number is not assigned yet: the end of the previous attempt is unknown, unless one of these fields is set.

    ``doubtful`` are reviews whose pods should have been seen by now. ``is_lost``: attempts exist, but the object with their
    numbers was deleted.
    """

    doubtful: Sequence[str] = ()
    is_lost: bool = False


class _Foreseen(NamedTuple):
    """A number reserved for a review. ``at`` is by the event loop's clock."""

    at: float
    place: Place
    path: str
    slot: int
    number: int


class Seen(NamedTuple):
    """The token of a pod in this namespace, and the pod's UID."""

    namespace: str
    token: str
    pod: str


class Numbers:
    """The numbers assigned by all replicas; await :meth:`run` to confirm the numbers of seen pods.

    All methods raise :class:`StateError` if the API server is unreachable or refuses. ``clock`` gives Unix seconds by the API
    server's clock, which the replicas share.
    """

    def __init__(self, api: Api, clock: Callable[[], float] | None = None) -> None:
        self._store, self._clock = TaskStore(api), clock or api.now
        self._own: OrderedDict[str, None] = OrderedDict()  # tokens that this replica has given out
        self._foreseen: OrderedDict[str, _Foreseen] = OrderedDict()  # by the UID of the review, in order of time
        self._seen: dict[Place, dict[Token, str]] = {}  # by the object with the counters: UIDs of seen pods
        self._later: list[tuple[float, Token, str]] = []  # other replicas' numbers, and when to confirm them
        self._news = asyncio.Event()

    def take_problems(self) -> Sequence[str]:
        """A sentence for each failed use or foreign deletion of the objects since the last call."""
        found, self._store.problems = self._store.problems, []
        return found

    async def close(self) -> None:
        """Cancel pending work."""
        await self._store.close()

    async def number(
        self, asked: Asking, *, is_last: bool = False, ignores_doubts: bool = False, ignores_loss: bool = False
    ) -> Given | Wait:
        """Assign the next number of the first free slot, or of the last slot if none is free; one number per review.

        ``is_last``: assign it even if the end of the previous attempt is unknown. Doubts and a loss are reported first, unless
        ignored.
        """

        def make(content: Content, is_new: bool) -> Given | Wait:
            before = content.given_before(asked.place, asked.review, asked.path)
            if before is not None:
                return Given(before[0].slot, before[0].number, before[1], before[0].sheet, path=asked.path)
            if is_new and not ignores_loss and asked.has_attempts:
                return Wait(is_lost=True)
            doubtful = self._doubtful(content, asked)
            if doubtful and not ignores_doubts:
                return Wait(doubtful)
            chosen = _chosen(content, asked)
            if not chosen.is_settled and not is_last:
                return Wait()
            content.drop_unmade(self._clock() - _NEVER_MADE)
            return self._give(content, asked, chosen)

        answer = await self._store.change(
            asked.place, make, root=asked.root or None, may_be_old=lambda answer: answer == Wait()
        )
        if isinstance(answer, Wait) and answer.is_lost:
            where = f"SpotCounter {asked.namespace}/{asked.place.name}"
            self._store.say(
                f"{where} is missing: was it deleted? Numbering continues from the journal and from existing pods"
            )
        return self._noted(answer)

    async def foresee(self, asked: Asking) -> Given | None:
        """Foresee the number that :meth:`number` would assign, for :meth:`take`; ``None`` if it may have to wait.

        Concurrent retries foresee different numbers.
        """
        content, is_new = await self._store.known(asked.place)
        try:
            if not self._is_certain(content, asked, is_new=is_new):
                return None
            chosen = _chosen(content, asked)
            if chosen.number > 1:  # first attempts of all slots are decided alike
                chosen = self._beside_others(content, asked)
            return self._give(content, asked, chosen) if chosen.is_settled else None
        except StateError:  # no room, or an object changed by others: number() reports it
            return None

    def _beside_others(self, content: Content, asked: Asking) -> Given:
        """Reserve the next slot and number after those foreseen for other reviews."""
        now = asyncio.get_running_loop().time()
        self._foreseen.pop(asked.review, None)
        while self._foreseen and (
            len(self._foreseen) >= _MOST_FORESEEN or next(iter(self._foreseen.values())).at < now - _FORESEEN
        ):
            self._foreseen.popitem(last=False)
        task = content.task(asked.path)
        for review, one in self._foreseen.items():
            if (one.place, one.path) == (asked.place, asked.path):
                task.waiting[review] = Waiting(one.slot, one.number, self._clock())
        chosen = _chosen(content, asked)
        self._foreseen[asked.review] = _Foreseen(now, asked.place, asked.path, chosen.slot, chosen.number)
        return chosen

    def _is_certain(self, content: Content, asked: Asking, *, is_new: bool) -> bool:
        """Whether the object alone determines the next number: it is not lost, and no pod is overdue."""
        is_lost = is_new and asked.has_attempts
        has_number = content.given_before(asked.place, asked.review, asked.path) is not None
        return not is_lost and not has_number and not self._doubtful(content, asked)

    async def take(self, asked: Asking, foreseen: Given, admission: Admission) -> bool:
        """Assign a foreseen number and store the decision about its pod; false if the decision is outdated."""
        token = foreseen.token
        assert token is not None  # noqa: S101  # a foreseen number has one
        has_own_page = token.place != asked.place

        def make(content: Content, is_new: bool) -> Given | None:
            if not self._is_certain(content, asked, is_new=is_new):
                return None
            content.drop_unmade(self._clock() - _NEVER_MADE)
            next_ = _next_like(foreseen, content, asked)
            if next_ is None:
                return None
            given = self._give(content, asked, next_)
            if not has_own_page:
                keep_in(content, token.place, token.review, given.sheet, admission, given.path, given.slot)
            return given

        try:
            given = await self._store.change(asked.place, make, root=asked.root or None)
        finally:
            self._foreseen.pop(asked.review, None)
        if given is None:
            return False
        self._noted(given)
        if has_own_page:
            await self.keep(given, asked.root, admission)
        return True

    async def next_number(self, asked: Asking) -> Given:
        """The number that would be assigned, for a dry run."""
        return await self._store.read(asked.place, lambda content: _chosen(content, asked))

    def _give(self, content: Content, asked: Asking, chosen: Given) -> Given:
        now = self._clock()
        token, sheet = content.give(asked.place, asked.review, asked.path, chosen.slot, chosen.number, now)
        return chosen._replace(token=token, sheet=sheet, path=asked.path)

    def _noted(self, answer: Given | Wait) -> Given | Wait:
        if isinstance(answer, Given):
            self._own[str(answer.token)] = None
            while len(self._own) > _OWN_KEPT:
                self._own.popitem(last=False)
        return answer

    async def keep(self, given: Given, root: Mapping[str, Any] | None, admission: Admission) -> None:
        """Store the decision about the pod with this number, before answering the API server."""
        token, sheet = given.token, given.sheet
        assert token is not None  # noqa: S101  # a dry run is not kept

        def make(content: Content, _: bool) -> None:
            keep_in(content, token.place, token.review, sheet, admission, given.path, given.slot)

        await self._store.change(token.place, make, root=root)

    async def is_under_review(self, pod: Mapping[str, Any], namespace: str, root: str) -> bool:
        """Whether a new pod was just pinned to a rung, and no pod was seen with its token."""
        token = token_of({"metadata": {**metadata(pod), "namespace": namespace}})
        if token is None or token.place.workload != root:
            return False
        since = self._clock() - _REVIEWED_AGAIN
        found = await self._store.read(token.place.counters, lambda content: content.waiting(token.review))
        return found is not None and found[1].at > since

    def _doubtful(self, content: Content, asked: Asking) -> Sequence[str]:
        task = None if asked.is_alone else content.task_or_none(asked.path)
        before = self._clock() - PATIENCE
        return [] if task is None else sorted(review for review, one in task.waiting.items() if one.at < before)

    async def settle(self, asked: Asking, made: Sequence[str], unmade: Sequence[str]) -> None:
        """Note which reviews' pods exist, and which were never made: their numbers may be assigned again."""

        def make(content: Content, _: bool) -> None:
            note_seen_in(content, made)
            if (task := content.task_or_none(asked.path)) is not None:
                for review in unmade:
                    task.waiting.pop(review, None)

        await self._store.change(asked.place, make, root=asked.root)

    async def restore(self, asked: Asking, carried: Sequence[tuple[int, int]]) -> None:
        """Adopt the numbers on a task's pods, after their object was deleted.

        For each pod, ``carried`` has the number of slots that it may belong to, and its number.

        A pod's number is trusted only for its own workload and only for later attempts. Each pod takes the first slot that
        does not have this number yet.
        """

        def make(content: Content, _: bool) -> None:
            for slots, number in carried:
                task = content.task(asked.path)
                highest = task.highest()
                free = (slot for slot in range(slots) if slot >= len(highest) or highest[slot] < number)
                task.note_seen([(next(free, 0), number)])

        await self._store.change(asked.place, make, root=asked.root)

    # Gangs

    async def agreed(self, namespace: str, root: str, gang: str) -> Mapping[str, tuple[str, ...]]:
        """The pools agreed by a gang's pods, by their rungs; empty before the first request."""
        return await self._store.read(gangs_of(namespace, root), lambda content: agreed_in(content, gang))

    async def agree(
        self, namespace: str, root: Mapping[str, Any], gang: str, rungs: str, pools: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The pools agreed by a gang's pods with these rungs; ``pools`` if this pod is the first.

        A leader that must stay on on-demand has other rungs than its workers, so neither decides for the other.
        """
        place = gangs_of(namespace, uid_of(root))
        return await self._store.change(place, lambda content, _: agree_in(content, gang, rungs, pools), root=root)

    # Pods that are seen

    def confirm(self, seen: Sequence[Seen]) -> None:
        """Note soon that the pods with these tokens exist; a token counts only in its review's namespace."""
        now = asyncio.get_running_loop().time()
        for one in seen:
            token = Token.parse(one.token, one.namespace)
            if token is None:
                continue
            if one.token in self._own:
                self._seen.setdefault(token.place.counters, {}).setdefault(token, one.pod)
            else:
                self._later.append((now + _OF_OTHERS, token, one.pod))
            self._news.set()

    async def run(self) -> None:
        """Confirm the numbers of seen pods, object by object, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._seen and not self._later:
                self._news.clear()
                await self._news.wait()
            await asyncio.sleep(_GATHERS)
            self._take_later(loop.time())
            while self._seen:
                place = next(iter(self._seen))
                try:
                    await self._confirm(place, self._seen.pop(place))
                except StateError as error:  # a review asks the API server for such pods
                    _LOG.warning("cannot note the pods that were seen: %s", error)

    def _take_later(self, now: float) -> None:
        due = [one for one in self._later if one[0] <= now]
        self._later = self._later[len(due) :]  # they come in order
        for _, token, pod in due:
            self._seen.setdefault(token.place.counters, {}).setdefault(token, pod)

    async def _confirm(self, counters: Place, pods: Mapping[Token, str]) -> None:
        by_page: dict[Place, dict[str, str]] = {}
        for token, pod in pods.items():
            by_page.setdefault(token.place, {})[token.review] = pod
        reviews = [token.review for token in pods]
        for place, bound in {**by_page, counters: by_page.get(counters, {})}.items():

            def make(content: Content, _: bool, bound: Mapping[str, str] = bound, place: Place = place) -> None:
                bind_in(content, bound)
                if place == counters:
                    note_seen_in(content, reviews)

            await self._store.change(place, make)


def _chosen(content: Content, asked: Asking) -> Given:
    """The next slot and number, and whether everything before them is known."""
    if asked.is_alone:
        return Given(0, 1)
    task = content.task_or_none(asked.path)
    given = [] if task is None else task.highest()

    def highest(slot: int) -> int:
        return given[slot] if slot < len(given) else 0

    unused = _first_unused(given, asked)
    candidates = [slot for slot in asked.free if highest(slot) <= asked.known[slot].recorded][:1]
    slot = min(candidates if unused is None else [*candidates, unused], default=asked.slots - 1)
    is_settled = asked.is_settled
    if is_settled is None:
        ended = (asked.known[each] for each in asked.free if asked.known[each].recorded >= highest(each))
        is_settled = unused is not None or any(one.is_settled for one in ended)
    number = _next_number(content, asked, slot)
    return Given(slot, number, is_settled=is_settled, seen=0 if task is None else task.seen_of(slot))


def _next_like(foreseen: Given, content: Content, asked: Asking) -> Given | None:
    """The slot and number to assign if a decision made with a foreseen number is still valid; ``None`` if it is not.

    A first attempt has no history, so its decision is the same for each slot; another replica may have assigned the foreseen
    one.
    """
    is_first = foreseen.number == 1 and not asked.is_alone
    found = _chosen(content, asked) if is_first else foreseen
    next_ = _next_number(content, asked, found.slot), content.next_sheet
    is_like = found.is_settled and next_ == (foreseen.number, foreseen.sheet)
    return foreseen._replace(slot=found.slot) if is_like else None


def _next_number(content: Content, asked: Asking, slot: int) -> int:
    """The number after all earlier ones of a slot."""
    if asked.is_alone:
        return 1
    task = content.task_or_none(asked.path)
    given = [] if task is None else task.highest()
    highest = given[slot] if slot < len(given) else 0
    return max(highest, asked.known.get(slot, _NO_SLOT).recorded) + 1


def _first_unused(given: Sequence[int], asked: Asking) -> int | None:
    """The first slot that has neither a number nor an attempt; a Job may have two billion."""
    slot = 0
    while slot < asked.slots:
        if slot < len(given) and given[slot]:
            with contextlib.suppress(ValueError):
                slot = given.index(0, slot)
                continue
            slot = len(given)
        elif slot in asked.known:
            slot += 1
        else:
            return slot
    return None


_TOKENS_KEPT = 50_000  # confirmed tokens


class PodsSeen:
    """The pinned pods of these namespaces, or of all; await :meth:`follow`.

    ``confirm`` gets each pod's token once, when the pod is seen.
    """

    def __init__(self, api: Api, confirm: Callable[[Sequence[Seen]], None], namespaces: Sequence[str] = ()) -> None:
        self._confirm = confirm
        self._followed = FollowedNamespaces(
            api, Resource("/api/v1", "pods"), namespaces, keep=_has_token, slim=_slim, remember=False
        )
        self._reported: OrderedDict[Seen, None] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """Whether every readable pinned pod was seen."""
        return self._followed.is_complete

    @property
    def problem(self) -> str:
        """Why the pods cannot be watched now; empty if they can."""
        return self._followed.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._followed.changes():
            if change.kind is not ChangeKind.PUT:
                continue
            token = Seen(
                str(metadata(change.data).get("namespace", "")), str(token_of(change.data)), uid_of(change.data)
            )
            if token not in self._reported:
                self._reported[token] = None
                self._confirm([token])
            while len(self._reported) > _TOKENS_KEPT:
                self._reported.popitem(last=False)


def _has_token(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has a token of the webhook's form: the pod's author can write anything."""
    return token_of(pod) is not None


def _slim(pod: dict[str, Any]) -> dict[str, Any]:
    """The compact record of a pod: ten thousand of them fit into a few megabytes."""
    meta = metadata(pod)
    kept = {key: meta[key] for key in ("name", "namespace", "resourceVersion") if key in meta}
    return {"metadata": {**kept, "uid": uid_of(pod), "annotations": {ADMISSION_ANNOTATION: str(token_of(pod))}}}
