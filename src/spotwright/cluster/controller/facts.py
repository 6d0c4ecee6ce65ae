"""Finds the history of a pod's task while its review waits: the journals, joined with the numbers that were given out.

An orchestrator may make the next pod within 30 ms of the end of the one before, and the leader needs a moment to record that
end. So a review waits for it, at most half a second; after that the last certain rung holds, and nothing is refused for want
of facts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from spotwright.cluster.admission.pods import PodFacts
from spotwright.cluster.admission.review import AdmissionRequest
from spotwright.cluster.api.requests import Api, ApiFailed
from spotwright.cluster.controller.histories import Histories, RecordedAttempt, RunHistory
from spotwright.cluster.controller.ledger import Ledger, Slot
from spotwright.cluster.controller.lookups import Lookups
from spotwright.cluster.controller.pods_seen import token_of
from spotwright.cluster.workloads.owners import controller_reference, metadata, uid_of
from spotwright.cluster.workloads.tasks import task_name
from spotwright.errors import StateError
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import left_out, pauses_of
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["FactFinder"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_WAIT = 0.45  # seconds for the end of the attempt before; with what is read around it, half a second
_POLL = 0.02
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
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
    root: Mapping[str, Any]
    paths: Sequence[str]
    gang: str

    @property
    def uid(self) -> str:
        return uid_of(self.root)


class _Looked(NamedTuple):
    """What is known now. ``is_settled``: the end of every earlier attempt is known, so that waiting adds nothing."""

    slots: Sequence[Slot]
    history: RunHistory
    is_settled: bool


class FactFinder:
    """Finds facts for the webhook: :meth:`find`. The journals are read in a thread of its own.

    ``left_out`` gives the pools without capacity at a moment of the API server's clock.
    """

    def __init__(
        self,
        api: Api,
        lookups: Lookups,
        histories: Histories,
        ledger: Ledger,
        left_out: Callable[[float], Collection[str]] = lambda _: (),
    ) -> None:
        self._api, self._lookups, self._histories, self._ledger = api, lookups, histories, ledger
        self._left_out = left_out
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="histories")
        self._seen: list[str] = []  # tokens of pods that exist, and that are to be confirmed together
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def confirm(self, tokens: Sequence[str]) -> None:
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
        if controller_reference(pod) is None:
            return PodFacts()  # a pod that nobody makes again
        if not lineage.is_complete or not lineage.owners:
            return PodFacts(is_known=False)
        try:
            return await self._of(_asked(request, lineage.owners), pod, is_dry=request.dry_run)
        except StateError as error:
            _LOG.warning("%s", error)
            return PodFacts(is_known=False)

    async def _of(self, asked: _Asked, pod: Mapping[str, Any], *, is_dry: bool) -> PodFacts:
        """All facts at once if no doubt is left and no end has to be waited for; else as soon as that is so, or time is over.

        Mostly one turn of the thread is enough. Each turn costs milliseconds in a burst of reviews.
        """
        loop, now = asyncio.get_running_loop(), self._api.now()
        doubtful, facts = await self._in_thread(self._first_turn, asked, is_dry, now)
        if doubtful:
            await self._settle_doubts(doubtful, pod)
        until = loop.time() + _WAIT
        while facts is None:
            await asyncio.sleep(0 if doubtful else _POLL)  # settled doubts are worth a look at once
            doubtful = ()
            facts = await self._in_thread(self._answer, asked, is_dry, now, loop.time() >= until)
        return facts

    def _first_turn(self, asked: _Asked, is_dry: bool, now: float) -> tuple[Sequence[str], PodFacts | None]:
        """Numbers whose pods nobody has seen; and the facts, if there are no such numbers and everything is settled."""
        doubtful = self._ledger.doubtful(asked.uid, asked.paths)
        return doubtful, None if doubtful else self._answer(asked, is_dry, now, is_last=False)

    def _answer(self, asked: _Asked, is_dry: bool, now: float, is_last: bool) -> PodFacts | None:
        """The facts if the end of every earlier attempt is known, or if this ``is_last``; else None."""
        looked = self._look(asked)
        return self._facts(asked, looked, is_dry, now) if looked.is_settled or is_last else None

    def _facts(self, asked: _Asked, looked: _Looked, is_dry: bool, now: float) -> PodFacts:
        """The facts of what was looked at, with the number that is given out now; a dry run gets the one that would be next."""
        if is_dry:
            slot = next((slot for slot in looked.slots if slot.is_free), looked.slots[-1])
            number = max(slot.recorded, self._ledger.highest(asked.uid, slot.path)) + 1
        else:
            slot, number = self._ledger.number(asked.token, asked.uid, looked.slots)
        history = looked.history
        return PodFacts(
            _merged(history, asked.gang, slot.path) if asked.gang else _before(history.of(slot.path), number),
            number=number,
            agree=None if is_dry or not asked.gang else partial(self._ledger.agree, asked.gang),
            has_begun=bool(asked.gang) and self._ledger.has_begun(asked.gang),
            without_capacity={*self._left_out(now), *_in_vain(history, asked.gang, slot.path, now)},
            token="" if is_dry else asked.token,
        )

    def _look(self, asked: _Asked) -> _Looked:
        history = self._histories.of(asked.root)
        slots = [_slot(path, history.of(path)) for path in asked.paths]
        if asked.gang:
            is_settled = self._ledger.has_begun(asked.gang) or _is_gang_settled(history, asked.gang)
            return _Looked(slots, history, is_settled)
        given_out = {slot.path: self._ledger.highest(asked.uid, slot.path) for slot in slots}
        return _Looked(slots, history, any(_is_settled(slot, history, given_out[slot.path]) for slot in slots))

    async def _settle_doubts(self, doubtful: Sequence[str], pod: Mapping[str, Any]) -> None:
        """Ask the API server about numbers whose pods nobody has seen: a quota or another webhook may have refused them."""
        labels = metadata(pod).get("labels") or {}
        selector = next((f"{key}={labels[key]}" for key in _SELECTORS if labels.get(key)), "")
        params = {"labelSelector": selector} if selector else {}
        try:
            listed = await self._api.get(f"/api/v1/namespaces/{metadata(pod).get('namespace')}/pods", params)
        except ApiFailed as error:
            _LOG.warning("%s", error)
            return
        made = {token_of(each) for each in listed.get("items") or ()}
        await self._in_thread(self._ledger.confirm, [token for token in doubtful if token in made])
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
    name = task_name(request.data, owners)
    paths = [f"{name.path}-{slot}" for slot in range(name.slots)] if name.slots > 1 else [name.path]
    restart = str((metadata(request.data).get("labels") or {}).get(_RESTART, ""))
    sets = [uid_of(owner) for owner in owners if owner.get("kind") == "JobSet"]
    gang = f"{sets[0]}/{restart}" if sets and restart.isdecimal() else ""
    return _Asked(request.uid, owners[-1], paths, gang)


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
    return [_as_own(_worst(members.values()), members.get(path)) for members in history.restarts_before(gang)]


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
