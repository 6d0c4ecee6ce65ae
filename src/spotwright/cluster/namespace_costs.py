"""Measures the cost of each namespace to the controller and schedules turns, so that namespaces do not delay others.

A tenant's object should cost milliseconds. The excess is charged to its namespace, which is then served last for a minute, and
after some seconds of excess is set aside, for five minutes and twice as long each time. Costs are CPU seconds, so that a busy
machine does not set namespaces aside.

Costs are counted by key. The watcher's key is the namespace; the webhook's also has the sender's address, because a pod that
reaches the port can name any namespace: so it can only set aside its own requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from spotwright.cluster.api_client import EventWriter

__all__ = ["ANSWER", "LOOK", "Aside", "AsideEvents", "FairQueue", "Key", "NamespaceCosts", "Turns"]


_LOG = logging.getLogger(__name__)


ANSWER = 0.05
"""CPU seconds that an object may cost the webhook."""

LOOK = 0.2
"""CPU seconds that an object may cost the watcher."""

_WINDOW = 60  # seconds for which costs count
_TOO_MUCH = 5.0  # excess seconds within a window until a namespace is set aside
_ASIDE, _LONGEST_ASIDE = 300.0, 3600.0  # seconds
_FORGIVEN = 3600.0  # seconds after which a set-aside is forgiven
_KEPT = 5_000  # keys: senders can invent names

Key = tuple[str, str]
"""The namespace and the sender's address, empty if irrelevant."""


class Aside(NamedTuple):
    """A namespace that is set aside. ``until`` is by the clock of its costs, ``lasts`` and ``spent`` are in seconds.

    ``spent`` is its excess within a minute, ``times`` the number of consecutive set-asides. ``reason`` is a clause about
    another reason, or empty.
    """

    until: float
    lasts: float
    spent: float
    times: int
    reason: str = ""

    @property
    def text(self) -> str:
        """For how long the namespace is set aside, and why: a clause for people."""
        return f"set aside for {self.lasts / 60:.0f} minutes, because {self.why}"

    @property
    def why(self) -> str:
        """A clause for people."""
        return (
            self.reason or f"its objects took {self.spent:.1f} s more of the processor within a minute than is allowed"
        )


class _Costs:
    """The costs of one key: seconds above the allowance, by the whole second in which they were spent."""

    __slots__ = ("aside", "spent")

    def __init__(self) -> None:
        self.spent: dict[int, float] = {}
        self.aside: Aside | None = None

    def within(self, now: float) -> float:
        """The sum of the window that ends now; older costs are forgotten."""
        begin = math.floor(now) - _WINDOW
        for second in [each for each in self.spent if each <= begin]:
            del self.spent[second]
        return sum(self.spent.values())


class NamespaceCosts:
    """The costs of all namespaces. ``allowed`` is in seconds, for one object; ``clock`` is monotonic.

    ``on_set_aside`` is called with each namespace that is set aside. For one thread, or behind a lock.
    """

    def __init__(
        self,
        allowed: float,
        clock: Callable[[], float] = time.monotonic,
        on_set_aside: Callable[[Key, Aside], None] = lambda _key, _aside: None,
    ) -> None:
        self._allowed, self._clock, self._on_set_aside = allowed, clock, on_set_aside
        self._costs: OrderedDict[Key, _Costs] = OrderedDict()
        self._counted = 0.0  # seconds of the blocks that have been counted

    @contextlib.contextmanager
    def counting(self, key: Key, objects: int = 1) -> Iterator[None]:
        """Charge the block's cost for a number of objects, without inner blocks' costs; an empty namespace is free."""
        began, before = time.thread_time(), self._counted
        try:
            yield
        finally:
            whole = time.thread_time() - began
            if key[0]:
                self.spent(key, whole - (self._counted - before), objects)
            self._counted = before + whole

    def spent(self, key: Key, seconds: float, objects: int = 1) -> None:
        """Charge the cost of ``objects`` objects above their allowance: a burst of ordinary objects is free."""
        above = seconds - self._allowed * objects
        if above <= 0.0 or self.set_aside(key) is not None:
            return
        now = self._clock()
        costs = self._of(key)
        costs.spent[math.floor(now)] = costs.spent.get(math.floor(now), 0.0) + above
        if costs.within(now) >= _TOO_MUCH:
            self.put_aside(key)
        while len(self._costs) > _KEPT:
            self._costs.popitem(last=False)

    def put_aside(self, key: Key, reason: str = "") -> None:
        """Set a namespace aside regardless of its cost, unless it already is. ``reason`` is a clause."""
        if self.set_aside(key) is None:
            now, costs = self._clock(), self._of(key)
            total = costs.within(now)
            before = costs.aside
            times = 1 if before is None or now >= before.until + _FORGIVEN else before.times + 1
            lasts = min(_LONGEST_ASIDE, _ASIDE * 2.0 ** min(times - 1, 10))
            costs.aside = Aside(now + lasts, lasts, total, times, reason)
            costs.spent.clear()
            self._on_set_aside(key, costs.aside)

    def _of(self, key: Key) -> _Costs:
        costs = self._costs.setdefault(key, _Costs())
        self._costs.move_to_end(key)
        return costs

    def is_last(self, key: Key) -> bool:
        """Whether a namespace is served last: one of its objects exceeded the allowance within the last minute."""
        costs = self._costs.get(key)
        return costs is not None and costs.within(self._clock()) > 0.0

    def set_aside(self, key: Key) -> Aside | None:
        """Why and until when a namespace is set aside; None if it is served."""
        costs = self._costs.get(key)
        aside = None if costs is None else costs.aside
        return aside if aside is not None and self._clock() < aside.until else None

    @property
    def aside(self) -> Mapping[Key, Aside]:
        """All namespaces that are not served now."""
        return {key: aside for key in tuple(self._costs) if (aside := self.set_aside(key)) is not None}


class AsideEvents:
    """Reports namespaces that are set aside; await :meth:`tell`.

    ``consequence`` is a clause. ``into`` is the namespace of the Events; empty: the set-aside namespace, if others cannot forge
    it.
    """

    def __init__(self, events: EventWriter, consequence: str, into: str = "") -> None:
        self._events, self._consequence, self._into = events, consequence, into
        self._new: asyncio.Queue[tuple[Key, Aside]] = asyncio.Queue()

    def heard(self, key: Key, aside: Aside) -> None:
        """Note a namespace that was set aside."""
        self._new.put_nowait((key, aside))

    async def tell(self) -> None:
        """Write a line and an Event about each, until cancelled."""
        while True:
            (namespace, address), aside = await self._new.get()
            asked = f" as {address} asks for it" if address else ""
            text = f"namespace {namespace}{asked} is {aside.text}; {self._consequence}"
            _LOG.warning("%s", text)
            about: dict[str, Any] = {"name": namespace, "namespace": self._into or namespace}
            event = {"apiVersion": "v1", "kind": "Namespace", "metadata": about}
            await self._events.write(event, "SetAside", text, is_warning=True)


class Turns:
    """Runs several tasks concurrently, with namespaces taking turns: a burst of one does not delay another. For one event loop.

    Addresses take turns, and the namespaces of an address in each of its turns. At most ``most`` run at once, two of a
    namespace, and one of all namespaces served last, so that there is always room for cheap ones.
    """

    def __init__(self, most: int, costs: NamespaceCosts) -> None:
        self._most, self._costs = most, costs
        self._waiting: OrderedDict[str, OrderedDict[Key, deque[asyncio.Future[None]]]] = OrderedDict()
        self._working: dict[Key, int] = {}

    @contextlib.asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """Wait for a turn, which lasts for the block."""
        await self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    async def take(self, key: Key) -> None:
        """Wait for a turn, which :meth:`give_back` ends; if cancelled, leave the queue."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key[1], OrderedDict()).setdefault(key, deque()).append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(key)
            else:
                self._forget(key, turn)
            raise

    def give_back(self, key: Key) -> None:
        """End a turn: the next one begins."""
        self._working[key] -= 1
        if not self._working[key]:
            del self._working[key]
        self._give()

    def _give(self) -> None:
        while sum(self._working.values()) < self._most:
            key = self._next()
            if key is None:
                return
            turn = self._waiting[key[1]][key][0]
            self._forget(key, turn)
            if not turn.done():  # cancelled, and its waiter has not removed it yet
                self._working[key] = self._working.get(key, 0) + 1
                turn.set_result(None)

    def _next(self) -> Key | None:
        """The key of the next turn, cheap ones first; None if none may run now."""
        last: Key | None = None
        is_free = not any(self._costs.is_last(each) for each in self._working)
        for address, keys in self._waiting.items():
            for key in keys:
                if self._working.get(key, 0) >= min(2, self._most):
                    continue
                if not self._costs.is_last(key):
                    self._waiting.move_to_end(address)
                    keys.move_to_end(key)
                    return key
                last = last or key
        if last is None or not is_free:
            return None
        self._waiting.move_to_end(last[1])
        self._waiting[last[1]].move_to_end(last)
        return last

    def _forget(self, key: Key, turn: asyncio.Future[None]) -> None:
        keys = self._waiting.get(key[1], OrderedDict())
        turns = keys.get(key)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del keys[key]
            if not keys:
                del self._waiting[key[1]]


_PATIENCE = 50  # changes of others after which one waiting item is served anyway
_MOST_LAST = 2_000  # the most changes of namespaces served last

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which items of costly namespaces wait for all others. For one event loop.

    Items of one namespace stay in order, and items without a namespace do not overtake earlier changes. ``most`` is the number
    of queued items of others from which producers wait.
    """

    def __init__(self, most: int, costs: NamespaceCosts) -> None:
        self._most, self._costs = most, costs
        self._first: deque[T] = deque()
        self._last: deque[tuple[str, T]] = deque()
        self._names: dict[str, int] = {}  # the number of each namespace's items in ``_last``
        self._passed = 0
        self._changed = asyncio.Condition()

    async def put(self, item: T, namespace: str = "", still: Callable[[], bool] = lambda: True) -> None:
        """Add an item of a namespace, or of none. A namespace set aside for its queued changes loses new ones.

        An item that is outdated once there is space is not added: see ``still``.
        """
        async with self._changed:
            while len(self._first) >= self._most:
                await self._changed.wait()
            if not still():
                return
            key = namespace, ""
            if (not namespace and self._last) or namespace in self._names or (namespace and self._costs.is_last(key)):
                self._last.append((namespace, item))
                self._names[namespace] = self._names.get(namespace, 0) + 1
                if namespace and self._names[namespace] > _MOST_LAST:
                    self._costs.put_aside(key)
                    self.drop(namespace)
            else:
                self._first.append(item)
            self._changed.notify_all()

    async def get(self) -> T:
        """Take the next item."""
        async with self._changed:
            while not (self._first or self._last):
                await self._changed.wait()
            self._changed.notify_all()
            self._passed += 1
            if self._first and not (self._last and self._passed >= _PATIENCE):
                return self._first.popleft()
            self._passed = 0
            namespace, item = self._last.popleft()
            self._left(namespace, 1)
            return item

    def empty(self) -> bool:
        """Whether no change waits."""
        return not (self._first or self._last)

    def drop(self, namespace: str) -> None:
        """Drop the queued items of a namespace that is served last."""
        kept = [each for each in self._last if each[0] != namespace]
        self._left(namespace, len(self._last) - len(kept))
        self._last = deque(kept)

    def _left(self, namespace: str, count: int) -> None:
        left = self._names.pop(namespace, 0) - count
        if left > 0:
            self._names[namespace] = left
