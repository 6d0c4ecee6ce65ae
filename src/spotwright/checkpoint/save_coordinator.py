"""Lets all ranks of a training save the same step, after a notice to only one of them, without a collective per step.

A thread in each rank waits for the next *event*. The rank that asks for a save makes the event; then every thread publishes the
first step at whose end its rank can save, and the asking rank decides on the highest of them. A main thread holds only if it
would pass its published step before the decision, so that no rank is beyond the step when it is known. If a rank does not
publish in time (it is frozen or dead), the decision is that no rank saves, unless some ranks hold the whole state: these save
without it. Each decision is one write that only one rank can make, so it is the same for all.

The ranks communicate through write-once *keys*: in the store of the process group, or without one, in the place of the
checkpoints.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Self

import torch
import torch.distributed as dist

from spotwright.checkpoint.errors import CheckpointError
from spotwright.checkpoint.rank_keys import KEPT_EVENTS, LOST_AFTER, GroupKeys, Keys, PlaceKeys
from spotwright.checkpoint.store import Store
from spotwright.checkpoint.termination import EXIT

__all__ = ["SaveCoordinator"]

_LIMIT = 2.0  # seconds until a decision without unpublished ranks
_SHARE_OF_NOTICE = 0.25
_MARGIN = 1.0  # seconds in which only the asking rank may decide
_TURN = 0.005  # additional seconds for each next rank, because each reads all published steps
_REPEAT = 5.0  # seconds until an unmet request is repeated, doubled each time, because each may hold a step
_BLOCKED_AFTER = 1.0  # seconds without a step after which a rank of an ended training ends itself
_GONE_AFTER = 3.0  # the same, at least, after the announced end of another rank
_WATCHED = 120.0  # seconds for which a rank's announced end is watched

_log = logging.getLogger("spotwright.checkpoint")


class _Decision:
    """The saving ranks and their step. ``step`` is ``None`` for each rank's next one; without ``ranks`` none saves."""

    __slots__ = ("ranks", "reason", "step")

    def __init__(self, step: int | None, ranks: Sequence[int], reason: str = "") -> None:
        self.step, self.ranks, self.reason = step, ranks, reason

    @property
    def is_unanswered(self) -> bool:
        """Whether no rank saves because some ranks are unresponsive, perhaps temporarily."""
        return not self.ranks and self.reason.startswith("ranks ")

    def to_bytes(self) -> bytes:
        return json.dumps({"step": self.step, "ranks": list(self.ranks), "reason": self.reason}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        data = json.loads(text)
        return cls(data["step"], data["ranks"], data["reason"])


class _Round:
    """One event that asks for a save, as seen by this rank."""

    __slots__ = ("decision", "ends", "is_urgent", "number", "why")

    def __init__(self, number: int, why: str, *, is_urgent: bool = False, ends: float | None = None) -> None:
        self.number, self.why, self.is_urgent = number, why, is_urgent
        self.ends = ends  # this rank's end, if that is why it asked
        self.decision: _Decision | None = None


class SaveCoordinator:
    """The agreement of a process group's ranks on the step that they save. Made by :meth:`of_group`.

    The main thread calls :meth:`step_done` and :meth:`saved`, any thread the other methods; :meth:`ask` may also be called in a
    signal handler.
    """

    def __init__(self, keys: Keys | None, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.why = ""
        """The reason for the save, from the rank that asked first."""
        self.needed: Callable[[], float] = lambda: 0.0
        """Seconds that this rank reserves for a save. If less than any rank's need is left, the ranks do not save."""
        self.replicas: Sequence[Sequence[int]] = ()
        """Sets of ranks that each hold the whole state: one such set saves alone if other ranks are dead."""
        self.savers: Sequence[int] = range(size)
        """The ranks of the save started by :meth:`step_done`, until :meth:`saved`: all, or one set of :attr:`replicas`."""
        self.is_writing: Callable[[], bool] = lambda: False
        """Whether a save of this rank is under way in another thread; a blocked rank finishes it before it ends."""
        self.on_missing: Callable[[], None] = lambda: None
        """Called in a thread when a decision leaves ranks out, or is impossible: some are dead, or unreachable."""
        self.decided_at = 0.0
        """When this rank learned the last decision, in Unix seconds."""
        self.reason = ""
        """Why the last round decided against a save; empty if it decided for one."""
        self._keys = keys
        self._condition = threading.Condition()  # its lock may be acquired again in a signal handler
        self._done: int | None = None
        self._calls = 0  # of step_done
        self._called_at: float | None = None
        self._slowest = 0.0  # seconds between two recent calls
        self._ends: dict[int, float] = {}  # the announced ends of other ranks
        self._rounds: deque[_Round] = deque()
        self._saving: _Round | None = None
        self._decided: int | None = None  # number of the last round whose steps were published
        self._called: dict[int, tuple[int, float]] = {}  # by rank: the last call to it, and when it was seen
        self._forgotten = 0  # number of the first event whose keys are kept
        self._together = 0  # saves of all ranks without a round
        self._next = 0  # number of the next event
        self._wish: tuple[str, float] | None = None  # an ask without an event yet, and its rank's end
        self._unanswered: tuple[str, float, float] | None = (
            None  # the same for an unmet request, and the time of its repetition
        )
        self._in_vain = 0  # asks in a row without a save
        self._urgent: int | None = None  # number of the last event that grants an ask because of this rank's near end
        self._hurried = False  # this rank's end is near, and its round has not begun
        self._holding = False  # the main thread waits for that round at the end of a step
        self._asks: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._closed = self._lost = False
        self._ended = threading.Event()
        self._told_end = False
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        if keys is not None:
            self._thread = threading.Thread(target=self._follow, args=(keys,), name="spotwright-agreement", daemon=True)
            self._thread.start()
            threading.Thread(target=self._answer_asks, args=(keys,), name="spotwright-asking", daemon=True).start()
            self._at_exit = _closing_at_exit(weakref.ref(self))

    @classmethod
    def of_group(cls, group: Any = None, *, store: Store | None = None) -> Self:
        """Return the agreement of a process group. This is a collective operation: all its ranks must call it.

        ``group`` defaults to the global group. Without any, or with one rank, each :meth:`ask` is granted at the next step.
        ``store`` is the place of the checkpoints, which all ranks use if one of them cannot use the store of the group. Call it
        again after the process group was destroyed and recreated. Raises :class:`CheckpointError`, on all ranks, if there is no
        store.
        """
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) <= 1:
            return cls(None, 0, 1)
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        prefix = _common_name(group)
        keys, problem = _keys_of_group(group, prefix, rank, size)
        if not problem:
            return cls(keys, rank, size)
        if keys is not None:
            keys.close()
        if store is None:
            raise CheckpointError(
                f"the ranks cannot communicate: this process group has no store ({problem}); pass the place of the checkpoints"
            )
        if keys is None:
            text = "rank %d has no process group store (%s): all ranks communicate through %s"
            _log.warning(text, rank, problem, store.place)
        return cls(PlaceKeys(store, prefix, rank), rank, size)

    # -- asking

    def ask(self, why: str, left: float = math.inf) -> None:
        """Ask for a save of all ranks. ``why`` is for people; ``left`` is the number of seconds until this rank's end.

        Returns at once. An ask during a decision is granted with it, an ask during a save after it.
        """
        ends = time.monotonic() + left
        with self._condition:
            if self._rounds:
                self._rounds[-1].is_urgent |= math.isfinite(left)
            if self._closed or self._rounds or (self._wish is not None and self._wish[1] <= ends):
                return
            self._wish = (why, ends)
            self._hurried = self._keys is not None and not self._saving and math.isfinite(left)
            if not self._saving:
                self._asks.put(True)  # in a signal handler only this may wake a thread

    def _answer_asks(self, keys: Keys) -> None:
        """Make an event of each wish, in a separate thread, because the other one waits."""
        try:
            while self._asks.get():
                self._announce(keys)
        except (RuntimeError, CheckpointError) as error:
            self.lose(error)

    def _announce(self, keys: Keys) -> None:
        while True:
            with self._condition:
                if self._wish is None or self._closed or self._lost:
                    return
                (why, ends), number = self._wish, self._next
            left = max(0.0, ends - time.monotonic())
            event = {"kind": "save", "rank": self.rank, "why": why, "limit": min(_LIMIT, left * _SHARE_OF_NOTICE)}
            if math.isfinite(left):
                event["left"] = left
            made = json.loads(keys.announce(number, json.dumps(event).encode()))
            with self._condition:
                self._next = max(self._next, number + 1)
                if made["kind"] == "save":
                    self._wish = None
                    if math.isfinite(left):
                        self._urgent = number  # also if the event's rank only asked for a due save
                        for each in self._rounds:
                            each.is_urgent |= each.number == number

    def answers(self, rank: int, within: float = _LIMIT, unless: threading.Event | None = None) -> bool:
        """Return whether the process of a rank answers within these seconds, or until an event is set.

        Many ranks wait for one at the same time, so another rank's call in the last ``within`` seconds counts: a check by all
        ranks costs each a few store operations, instead of one per rank.
        """
        if rank == self.rank or self._keys is None or self._lost:
            return rank == self.rank
        end = time.monotonic() + within
        with self._condition:
            number, made_at = self._called.get(rank, (-1, -math.inf))
        if made_at < end - 2 * within:
            number = self._make({"kind": "call", "rank": self.rank, "whom": rank})
        pause = 0.005
        while not (found := self._keys.read(f"{number}/step/{rank}") is not None) and time.monotonic() < end:
            if unless is not None and unless.is_set():
                break
            time.sleep(pause)
            pause = min(1.5 * pause, 0.1)
            with self._condition:  # a later call drops the answer to this one
                number = max(number, self._called.get(rank, (-1, 0.0))[0])
        return found

    def end(self, code: int) -> None:
        """Announce that this rank ends early, so that other ranks do not wait for it.

        A rank without a step or a save in the next second, perhaps blocked in a collective operation, ends with this exit code.
        """
        if self._keys is not None and not (self._lost or self._closed or self._told_end):
            self._told_end = True
            try:
                self._make({"kind": "end", "rank": self.rank, "code": code})
            except (RuntimeError, CheckpointError) as error:
                self.lose(error)

    def _make(self, event: dict[str, Any]) -> int:
        """Make an event that another one does not grant; return its number."""
        while self._keys is not None:
            with self._condition:
                number = self._next
            made = json.loads(self._keys.announce(number, json.dumps(event).encode()))
            with self._condition:
                self._next = max(self._next, number + 1)
            if made["kind"] == event["kind"] and made.get("whom") == event.get("whom"):
                break
        return number

    def end_if_blocked(self, why: str, code: int, after: float = _BLOCKED_AFTER) -> None:
        """Exit with this code, from a thread, unless the process makes progress every ``after`` seconds.

        For a collective operation that will never return: Python does not handle signals inside it.
        """
        threading.Thread(
            target=self._end_if_blocked, args=(why, code, after), name="spotwright-end", daemon=True
        ).start()

    def _end_if_blocked(self, why: str, code: int, after: float) -> None:
        calls = -1
        while self._calls != calls or self._saving is not None or self.is_writing():
            calls = self._calls
            if self._ended.wait(after):
                return
        self._leave(why, code)

    def _leave(self, why: str, code: int) -> NoReturn:
        _log.error("%s, so rank %d ends too: the training cannot continue", why, self.rank)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # whatever the program has made of it
                stream.flush()
        os._exit(code)

    def _expect_end(self, event: dict[str, Any]) -> None:
        """Watch another rank's announced end in a thread, if an event announces one."""
        rank = event["rank"]
        if "left" not in event or rank == self.rank:
            return
        is_watched, self._ends[rank] = rank in self._ends, time.monotonic() + event["left"]
        if not is_watched:
            threading.Thread(target=self._watch_end, args=(rank,), name="spotwright-gone", daemon=True).start()

    def _watch_end(self, rank: int) -> None:
        """End this rank if it is blocked after the announced end of another, unresponsive rank.

        A node without power does not close its connections, so the collective operation would wait for its time-out.
        """
        while (left := self._ends[rank] - time.monotonic()) > 0:
            if self._ended.wait(left):
                return
        calls = -1
        while self._calls != calls or self._saving is not None or self.is_writing() or self._answers(rank):
            if time.monotonic() > self._ends[rank] + _WATCHED:
                break
            calls = self._calls
            if self._ended.wait(max(_GONE_AFTER, 2 * self._slowest)):
                return
        else:
            self._leave(f"rank {rank} was lost with its node", EXIT)
        del self._ends[rank]

    def _answers(self, rank: int) -> bool:
        try:
            return self.answers(rank)
        except (RuntimeError, CheckpointError):  # the lost rank may have hosted the group's store
            return False

    # -- in the main thread

    def step_done(self, step: int) -> bool:
        """Return True if this rank saves now. ``step`` is the number of finished optimizer steps.

        It is True at the same step in all ranks. Then save, and call :meth:`saved`. It waits only between a rank's request and
        the decision, for at most 2 s or a quarter of the notice, and 10 s if the store of the group is silent.
        """
        with self._condition:
            self._done = step
            self._calls += 1
            now = time.monotonic()
            if self._called_at is not None:
                self._slowest = max(now - self._called_at, 0.9 * self._slowest)
            self._called_at = now
            if self._keys is None or self._lost:
                return self._grant_alone()
            self._ask_again()
            if self._hurried:
                self._holding = True  # this step can still be saved
                self._condition.wait_for(lambda: not self._hurried or self._lost, _LIMIT)
                self._holding = self._hurried = False  # an unresponsive rank holds only one step
            while self._rounds:
                first = self._rounds[0]
                decision = self._await_decision(first)
                if decision is not None and self.rank in decision.ranks:
                    if decision.step is not None and step < decision.step:
                        return False
                    self._saving = self._rounds.popleft()
                    self.savers, self.reason = decision.ranks, ""
                    return True
                if first in self._rounds:
                    self._rounds.remove(first)
            return False

    def _grant_alone(self) -> bool:
        if self.size > 1 or self._wish is None:
            return False
        self.why, self._wish = self._wish[0], None
        self._saving = _Round(0, self.why)
        return True

    def _repeat_later(self, over: _Round) -> None:
        """Note an unmet request of this rank, if its end is near. The lock is held."""
        if over.ends is not None:
            now = time.monotonic()
            pause = min(_REPEAT, (over.ends - now) / 8) * 2**self._in_vain
            self._in_vain += 1
            self._unanswered = over.why, over.ends, now + pause

    def _ask_again(self) -> None:
        """Repeat an unmet request, because this rank's end is still near. The lock is held."""
        now = time.monotonic()
        if self._unanswered is None or self._rounds or now < self._unanswered[2]:
            return
        (why, ends, _), self._unanswered = self._unanswered, None
        if (left := ends - now) > self.needed():
            self.ask(why, left)

    def _await_decision(self, current: _Round) -> _Decision | None:
        """Wait for a decision, with the lock held. A store that stays silent counts as lost."""
        end = time.monotonic() + _LIMIT + LOST_AFTER
        while current.decision is None and not self._lost:
            if not self._condition.wait(end - time.monotonic()) and current.decision is None:
                self.lose(RuntimeError(f"no answer in {_LIMIT + LOST_AFTER:.0f} s"))
        return current.decision

    @property
    def is_urgent(self) -> bool:
        """Whether the save started by :meth:`step_done` was requested because a rank's end is near.

        The rank is the first one that asked, or this one.
        """
        return self._saving is not None and self._saving.is_urgent

    @property
    def keys(self) -> Keys | None:
        """The keys of these ranks for a save's messages; ``None`` for one rank."""
        return self._keys

    def begin_save(self) -> str:
        """Return a key name for the save that begins, the same on all its ranks.

        The save was started by :meth:`step_done`, or all ranks make it at a step known without it.
        """
        with self._condition:
            if self._saving is not None:
                return f"{self._saving.number}"
            self._together += 1
            return f"together/{self._together}"

    def saved(self, *, committed: bool = True) -> None:
        """Report that this rank's main thread continues after a save, so that the next round may begin.

        If this rank asked because its end is near, and the save was not ``committed``, it asks again later.
        """
        with self._condition:
            over, self._saving = self._saving, None
            if committed:
                self._in_vain = 0
            elif over is not None:
                self._repeat_later(over)
            self.savers = range(self.size)
            wish: tuple[str, float] | None = None
            if over is not None:
                wish, self._wish = self._wish, None
        if wish is not None:
            why, ends = wish
            self.ask(why, ends - time.monotonic())

    def close(self) -> None:
        """End the thread of the agreement. Later asks are not granted."""
        with self._condition:
            if self._closed or os.getpid() != self._process:  # a forked child has no thread
                return
            self._closed = True
            self._ended.set()
            self._asks.put(False)
            self._condition.notify_all()
        if self._keys is not None and self._thread is not None:
            atexit.unregister(self._at_exit)
            self._keys.close()
            if self._thread is not threading.current_thread():
                self._thread.join(_BLOCKED_AFTER)

    # -- in the thread

    def _follow(self, keys: Keys) -> None:
        """Take part in each event until the end."""
        number = 0
        try:
            while (event := keys.next_event(number)) is not None:
                self._take_part(keys, number, json.loads(event))
                number += 1
        except (RuntimeError, CheckpointError) as error:
            self.lose(error)
        except Exception as error:  # noqa: BLE001  # the training goes on, without agreements
            _log.exception("the ranks can no longer coordinate saves")
            self.lose(error)

    def _take_part(self, keys: Keys, number: int, event: dict[str, Any]) -> None:
        with self._condition:
            self._next = max(self._next, number + 1)
        if event["kind"] == "end":
            self._take_end(event)
            return
        if event["kind"] == "call":
            self._take_call(keys, number, event)
            return
        ends = time.monotonic() + event["left"] if event["rank"] == self.rank and "left" in event else None
        is_urgent = "left" in event or number == self._urgent
        current = _Round(number, event.get("why", ""), is_urgent=is_urgent, ends=ends)
        with self._condition:
            first = None if self._done is None else self._done + (not self._holding)
            if self._rounds and (pending := self._rounds[-1].decision) is not None and pending.step is not None:
                first = max(first or 0, pending.step + 1)  # its main thread reaches that step in any case
            self._rounds.append(current)
            self.why, self._hurried = current.why, False
            self._condition.notify_all()
        mine = json.dumps([first, self.needed()]).encode()
        keys.create(f"{number}/step/{self.rank}", mine)
        self._expect_end(event)
        decision = self._decide(keys, number, event)
        with self._condition:
            current.decision, self.decided_at = decision, time.time()
            if self.rank not in decision.ranks:
                self.reason = decision.reason
                if decision.is_unanswered:
                    self._repeat_later(current)
                if current in self._rounds:
                    self._rounds.remove(current)
            self._condition.notify_all()
        if len(decision.ranks) < self.size:
            self.on_missing()
        self._forget_rounds(keys, number, event, is_of_all=len(decision.ranks) == self.size)
        self._decided = number

    def _take_call(self, keys: Keys, number: int, event: dict[str, Any]) -> None:
        """Answer a call to this rank, or note a call to another, which has answered the previous call or never will."""
        whom = event["whom"]
        if whom == self.rank:
            keys.create(f"{number}/step/{whom}", b"1")
        with self._condition:
            before, self._called[whom] = self._called.get(whom), (number, time.monotonic())
        if before is not None and event["rank"] == self.rank:
            keys.remove([f"{before[0]}/step/{whom}"])

    def _forget_rounds(self, keys: Keys, number: int, event: dict[str, Any], *, is_of_all: bool) -> None:
        """Remove the unneeded keys of earlier events, if this rank asked for this one.

        A decision of all ranks shows that each took part in every earlier event. A few are kept: a thread that has chosen its
        next event's number must find it used, however late it creates the event.
        """
        is_mine = event["rank"] == self.rank
        old: list[str] = []
        if is_mine and self._decided is not None:
            old = [f"{self._decided}/step/{rank}" for rank in range(self.size)]
        if is_of_all:
            first, self._forgotten = self._forgotten, max(self._forgotten, number - KEPT_EVENTS)
            if is_mine:
                old += [f"{each}/{what}" for each in range(first, self._forgotten) for what in ("event", "decision")]
        if old:
            keys.remove(old)

    def _take_end(self, event: dict[str, Any]) -> None:
        if event["rank"] != self.rank:
            self.end_if_blocked(f"rank {event['rank']} has ended", int(event["code"]))

    def _decide(self, keys: Keys, number: int, event: dict[str, Any]) -> _Decision:
        """Return the decision of a round: make it, if this rank asked or the asking one is late."""
        steps = [f"{number}/step/{rank}" for rank in range(self.size)]
        if event["rank"] == self.rank:
            keys.wait(steps, event["limit"])
        elif keys.wait([f"{number}/decision"], event["limit"] + _MARGIN + self.rank * _TURN):
            return _Decision.from_bytes(keys.read(f"{number}/decision") or b"")
        published = {
            rank: json.loads(found) for rank, name in enumerate(steps) if (found := keys.read(name)) is not None
        }
        proposal = self._propose(published, event.get("left", math.inf))
        return _Decision.from_bytes(keys.create(f"{number}/decision", proposal.to_bytes()))

    def _propose(self, published: dict[int, tuple[int | None, float]], left: float) -> _Decision:
        ranks: Sequence[int] = range(self.size)
        missing = [rank for rank in ranks if rank not in published]
        if missing:
            whole = [replica for replica in self.replicas if published.keys() >= set(replica)]
            if not whole:
                return _Decision(None, (), f"ranks {missing} do not answer")
            ranks = max(whole, key=lambda replica: max(published[rank][0] or 0 for rank in replica))
        needed = max(published[rank][1] for rank in ranks)
        if needed > left:
            return _Decision(None, (), f"a save takes {needed:.1f} s, and {left:.1f} s are left")
        steps = [step for rank in ranks if (step := published[rank][0]) is not None]
        return _Decision(max(steps, default=None), ranks)

    def lose(self, error: Exception) -> None:
        """Give up, once, because the keys are unreachable: a decision without them would not be shared by all ranks."""
        with self._condition:
            if self._closed or self._lost:
                return
            self._lost = True
            self._rounds.clear()
            self._condition.notify_all()
        self.on_missing()
        _log.warning("the ranks can no longer coordinate saves: %s", str(error).strip().partition("\n")[0])


def _common_name(group: Any) -> str:
    """Return a new name that all ranks of the group know: random bytes of its first rank."""
    device = dist.distributed_c10d._get_object_coll_device(group)  # noqa: SLF001  # where its collectives take tensors
    name = torch.frombuffer(bytearray(os.urandom(8)), dtype=torch.uint8).to(device)
    dist.broadcast(name, group=group, group_src=0)
    return bytes(name.tolist()).hex()


def _keys_of_group(group: Any, prefix: str, rank: int, size: int) -> tuple[GroupKeys | None, str]:
    """Return keys in the process group's store, and in words why some ranks lack such keys; empty if none does.

    A rank with different keys would turn every decision into one that no rank saves.
    """
    keys, problem = None, ""
    try:
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  # PyTorch has no public way to it
        keys = GroupKeys(store, f"spotwright/{prefix}", rank, size)
    except (AttributeError, NotImplementedError, RuntimeError) as error:
        problem = str(error).strip().partition("\n")[0] or type(error).__name__
    device = dist.distributed_c10d._get_object_coll_device(group)  # noqa: SLF001  # where its collectives take tensors
    first = torch.tensor([rank if problem else size], device=device)
    dist.all_reduce(first, dist.ReduceOp.MIN, group=group)
    if not problem and first.item() < size:
        problem = f"rank {first.item()} cannot use it, and says why"
    return keys, problem


def _closing_at_exit(agreement: weakref.ref[SaveCoordinator]) -> Callable[[], None]:
    """Close an agreement before the interpreter ends: a thread inside PyTorch would abort the process then."""

    def close() -> None:
        if (found := agreement()) is not None:
            found.close()

    atexit.register(close)
    return close
