"""Attempts that wait for a node, in one queue per request shape, so that a thousand equal attempts cost as little as one.

First in, first out per shape, without head-of-line blocking across shapes: a request that fits nowhere delays only its own
shape, and among shapes that fit, the attempt that was submitted first is bound first.

Several runs may wait in one queue. They have no quotas and take no turns: the order of submission decides, whichever run an
attempt belongs to. So does kube-scheduler among pods of one priority (its plugin PrioritySort orders by priority, then by the
time at which a pod was queued). Taking turns between runs was rejected: on a cluster, quotas belong to Kueue, and a simulation
that shares nodes more evenly than the cluster forecasts wrong waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from spotwright.supply.node_events import AttemptKey
from spotwright.supply.node_fit import Node, NodeRequest

__all__ = ["RequestQueue"]


class RequestQueue:
    """Attempts in the order of their submission. Requests of one shape must be one object."""

    def __init__(self) -> None:
        self._shapes: dict[NodeRequest, dict[AttemptKey, int]] = {}
        self._requests: dict[AttemptKey, NodeRequest] = {}
        self._submitted = 0

    def add(self, key: AttemptKey, request: NodeRequest) -> None:
        """Put an attempt at the end."""
        self._submitted += 1
        self._requests[key] = request
        self._shapes.setdefault(request, {})[key] = self._submitted

    def remove(self, key: AttemptKey) -> bool:
        """Take an attempt out. Returns False if it does not wait (any more)."""
        request = self._requests.pop(key, None)
        if request is None:
            return False
        waiting = self._shapes[request]
        del waiting[key]
        if not waiting:
            del self._shapes[request]
        return True

    def remove_run(self, run: str) -> None:
        """Take out every attempt of a run."""
        for key in [key for key in self._requests if key.run == run]:
            self.remove(key)

    def request_of(self, key: AttemptKey) -> NodeRequest | None:
        """The request of a waiting attempt; ``None`` if it does not wait."""
        return self._requests.get(key)

    def bind(self, find: Callable[[NodeRequest], Node | None]) -> Iterator[tuple[AttemptKey, NodeRequest, Node]]:
        """Take out the attempts for which ``find`` returns a node, one by one. The caller fills each node before it goes on."""
        heads = [self._head(request) for request in self._shapes]
        heapq.heapify(heads)
        while heads:
            _, key, request = heads[0]
            node = find(request)
            if node is None:
                heapq.heappop(heads)
                continue
            self.remove(key)
            if request in self._shapes:
                heapq.heapreplace(heads, self._head(request))
            else:
                heapq.heappop(heads)
            yield key, request, node

    def plan(self, find: Callable[[AttemptKey, NodeRequest], bool]) -> None:
        """Call ``find`` for each attempt, shape by shape, until it returns False for that shape."""
        for _, _, request in sorted(self._head(request) for request in self._shapes):
            for key in self._shapes[request]:
                if not find(key, request):
                    break

    def _head(self, request: NodeRequest) -> tuple[int, AttemptKey, NodeRequest]:
        key, order = next(iter(self._shapes[request].items()))
        return order, key, request
