"""Moves what waits in vain, and lets no dead machine hold up a successor. It works beside the watcher of the leading replica.

The watcher asks it about the newest attempt of each pod that it looks at (:meth:`Mover.decide`), and records the answer with
what it saw. Only after that is in the journal the deed follows (:meth:`Mover.recorded`), and whoever leads next finds it there
and goes on. The mover keeps the moments at which time alone makes a difference, and has the watcher look again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from spotwright.cluster.api.requests import Api
from spotwright.cluster.moving.deeds import Deed, Deeds
from spotwright.cluster.moving.free_moves import why_not_moved
from spotwright.cluster.moving.lost_nodes import NodeSeen, not_ready_since, why_gone
from spotwright.cluster.moving.pool_pauses import PoolPauses
from spotwright.cluster.moving.tally import Tally
from spotwright.cluster.workloads.owners import metadata, uid_of
from spotwright.engine.decide import in_vain_at, take_back
from spotwright.engine.events import AttemptBound, AttemptHeld, AttemptReleased, AttemptTakenBack, Event
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.notices.node_event import ToldNotice

__all__ = ["Mover"]

_LOG = logging.getLogger(__name__)
_PAUSE = 0.5  # seconds between two looks at what is due
_LOOK_AGAIN = (
    5.0  # seconds until the watcher looks again at a pod whose wait, or whose node, may have changed its meaning
)
_FINISHED = ("Succeeded", "Failed")


class _Seen(Protocol):
    """A pod as the watcher shows it."""

    @property
    def pod(self) -> Mapping[str, Any]: ...
    @property
    def owners(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def is_gone(self) -> bool: ...


class _View(Protocol):
    """What the watcher knows of nodes."""

    def node(self, name: str) -> Mapping[str, Any] | None: ...
    def is_node_gone(self, name: str) -> bool: ...
    def is_ready(self, name: str) -> bool: ...
    def events_of(self, node: str) -> Sequence[Mapping[str, Any]]: ...
    def told(self, name: str) -> ToldNotice | None: ...


class Mover:
    """Decides and acts for one leader. ``clock`` is monotonic; ``tally`` is for metrics."""

    def __init__(
        self,
        api: Api,
        pauses: PoolPauses,
        clock: Callable[[], float] = time.monotonic,
        tally: Tally | None = None,
    ) -> None:
        self._pauses, self._clock, self._tally = pauses, clock, tally or Tally()
        self._deeds = Deeds(api, self._tally.moved)
        self._attempts: dict[
            str, AttemptState
        ] = {}  # pod UID -> its attempt, from decision to record, where a deed may follow
        self._due: dict[str, float] = {}  # pod UID -> when to look again, by the monotonic clock

    async def run(self, look_at: Callable[[Iterable[str]], None]) -> None:
        """Work until cancelled. ``look_at`` lets the watcher look at pods again, by their UIDs."""
        while True:
            clock = self._clock()
            due = [uid for uid, at in self._due.items() if at <= clock]
            for uid in due:
                del self._due[uid]
            if due:
                look_at(due)
            await self._deeds.do(clock)
            await asyncio.sleep(_PAUSE)

    def decide(
        self, view: _View, state: RunState, seen: _Seen, task: TaskState, attempt: AttemptState, now: float
    ) -> Iterator[Event]:
        """The decisions about a pod's newest attempt, before they are in the journal. ``now`` is the API server's clock."""
        node = str((seen.pod.get("spec") or {}).get("nodeName") or "")
        if seen.is_gone or node or (seen.pod.get("status") or {}).get("phase") in _FINISHED:
            self._tally.waits_no_more(uid_of(seen.pod))
        if seen.is_gone or (seen.pod.get("status") or {}).get("phase") in _FINISHED:
            if attempt.held is not None:
                yield AttemptHeld(now, task.path, attempt.number)
        elif node:
            yield from self._about_its_node(view, node, seen, task, attempt, now)
        elif attempt.is_live and attempt.bound_at is None:
            yield from self._while_it_waits(state, seen, task, attempt, now)

    def recorded(self, pod: Mapping[str, Any], *, is_gone: bool) -> None:
        """Hear that what was decided about a pod is in the journal: now it may be done."""
        uid = uid_of(pod)
        attempt = self._attempts.pop(uid, None)
        if is_gone or attempt is None:
            self._deeds.forget(uid)
            if is_gone:
                self._due.pop(uid, None)
            return
        if attempt.taken_back is not None:
            self._pauses.take(attempt.taken_back)
            self._want("evict", pod, attempt.taken_back.why)
        elif attempt.released:
            self._want("delete", pod, attempt.released)

    def _while_it_waits(
        self, state: RunState, seen: _Seen, task: TaskState, attempt: AttemptState, now: float
    ) -> Iterator[Event]:
        uid = uid_of(seen.pod)
        reason = attempt.waits.partition(":")[0]
        self._tally.waits(uid, str(metadata(seen.pod).get("namespace", "")), reason)
        if attempt.taken_back is None:
            due = in_vain_at(task, attempt)
            if due is None or why_not_moved(seen.pod, seen.owners):
                self._due.pop(uid, None)
                return
            self._due[uid] = self._clock() + (due - now if due > now else _LOOK_AGAIN)
            for event in take_back(state, task, attempt, self._pauses.pauses, self._pauses.taken, now):
                if isinstance(event, AttemptTakenBack):
                    self._tally.moved("taken-back")
                yield event
        self._attempts[uid] = attempt

    def _about_its_node(
        self, view: _View, name: str, seen: _Seen, task: TaskState, attempt: AttemptState, now: float
    ) -> Iterator[Event]:
        uid = uid_of(seen.pod)
        if attempt.bound_at is not None and attempt.pool is not None:
            self._pauses.take(AttemptBound(attempt.bound_at, node=name, pool=attempt.pool))
        node = NodeSeen(name, view.node(name), view.events_of(name), view.told(name), view.is_node_gone(name))
        if view.is_ready(name):
            if attempt.held is not None:
                yield AttemptHeld(now, task.path, attempt.number)
            return
        self._attempts[uid] = attempt
        self._due[uid] = self._clock() + _LOOK_AGAIN
        why = why_gone(node, now)
        if why:
            if not attempt.released:
                yield AttemptReleased(now, task.path, attempt.number, why=why)
        elif metadata(seen.pod).get("deletionTimestamp") and attempt.held is None and not attempt.released:
            yield AttemptHeld(now, task.path, attempt.number, node=name, since=not_ready_since(node.state))

    def _want(self, what: Any, pod: Mapping[str, Any], why: str) -> None:
        meta = metadata(pod)
        version = str(meta.get("resourceVersion", ""))
        self._deeds.want(Deed(what, str(meta.get("namespace", "")), str(meta["name"]), uid_of(pod), version, why))
