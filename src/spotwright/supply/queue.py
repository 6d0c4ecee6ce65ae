"""Attempts that wait for a node: one queue for each kind of request, so that a thousand equal attempts cost as little as one.

What does not fit keeps only its own kind waiting; among kinds that fit, the attempt that was submitted first comes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from spotwright.supply.binding import Node, Request
from spotwright.supply.happenings import Key

__all__ = ["Queue"]


class Queue:
    """Attempts in the order of their submission."""

    def __init__(self) -> None:
        self._kinds: dict[Request, dict[Key, int]] = {}
        self._requests: dict[Key, Request] = {}
        self._count = 0

    def add(self, key: Key, request: Request) -> None:
        """Put an attempt at the end."""
        self._count += 1
        self._requests[key] = request
        self._kinds.setdefault(request, {})[key] = self._count

    def remove(self, key: Key) -> bool:
        """Take an attempt out; False where it does not wait (any more)."""
        request = self._requests.pop(key, None)
        if request is None:
            return False
        waiting = self._kinds[request]
        del waiting[key]
        if not waiting:
            del self._kinds[request]
        return True

    def request_of(self, key: Key) -> Request | None:
        """What an attempt asks for; ``None`` where it does not wait."""
        return self._requests.get(key)

    def bind(self, find: Callable[[Request], Node | None]) -> Iterator[tuple[Key, Request, Node]]:
        """Take out one attempt after another that ``find`` has a node for; the caller fills the node before it goes on."""
        heads = [self._head(request) for request in self._kinds]
        heapq.heapify(heads)
        while heads:
            _, key, request = heads[0]
            node = find(request)
            if node is None:
                heapq.heappop(heads)
                continue
            self.remove(key)
            if request in self._kinds:
                heapq.heapreplace(heads, self._head(request))
            else:
                heapq.heappop(heads)
            yield key, request, node

    def plan(self, find: Callable[[Request], bool]) -> None:
        """Ask ``find`` for a place for each attempt, kind by kind, until it has none for that kind."""
        for _, _, request in sorted(self._head(request) for request in self._kinds):
            for _ in self._kinds[request]:
                if not find(request):
                    break

    def _head(self, request: Request) -> tuple[int, Key, Request]:
        key, order = next(iter(self._kinds[request].items()))
        return order, key, request
