"""A supply on a clock of its own, with a log of its events."""

from __future__ import annotations

from typing import Any

from tests.engine.builders import SPOT, START

from spotwright.model.pools import Pool
from spotwright.supply.node_fit import AttemptKey, Bound, NodeRequest, Noticed, SupplyEvent
from spotwright.supply.simulated_pools import Supply

ONE_CPU = NodeRequest(("spot",), {"cpu": 1000})


def key(task: str, number: int = 1, run: str = "run") -> AttemptKey:
    return AttemptKey(run, task, number)


class Lab:
    """``until`` lets time pass; moments are seconds since the start."""

    def __init__(self, *pools: Pool, seed: int = 7, scale: float = 1.0, **options: Any) -> None:
        named = {pool.name: pool for pool in pools or (SPOT,)}
        self.supply = Supply(named, seed=seed, scale=scale, now=START, **options)
        self.now = 0.0
        self.log: list[tuple[float, SupplyEvent]] = []
        self._record()

    def submit(self, task: str, request: NodeRequest = ONE_CPU, number: int = 1, run: str = "run") -> Lab:
        self.supply.submit(key(task, number, run), request)
        return self._record()

    def release(self, task: str, number: int = 1, run: str = "run") -> Lab:
        self.supply.release(key(task, number, run), START + self.now)
        return self._record()

    def report(self, task: str, progress: float) -> Lab:
        self.supply.report(key(task), progress, START + self.now)
        return self._record()

    def take(self, task: str, notice: float) -> Lab:
        self.supply.take(key(task), notice, "asked for", START + self.now)
        return self._record()

    def drain(self, node: str, why: str = "drained") -> Lab:
        assert self.supply.drain(node, why, START + self.now)
        return self._record()

    def until(self, seconds: float) -> Lab:
        """Go from moment to moment, as an engine would, up to and with ``seconds``."""
        while (moment := self.supply.next_moment()) is not None and moment <= START + seconds:
            self.now = max(self.now, moment - START)
            self._record()
        self.now = seconds
        return self._record()

    def _record(self) -> Lab:
        self.log += [(round(self.now, 3), event) for event in self.supply.advance(START + self.now)]
        return self

    def why(self, task: str) -> str:
        return self.supply.why_pending(key(task))

    def has_room(self, pool: str) -> bool:
        return self.supply.has_room(pool)

    def seen(self, kind: type[Any]) -> list[tuple[float, str]]:
        """The moment of each event of a kind, and the node that it is about (or the task, where it is about an attempt)."""
        events = [(at, event) for at, event in self.log if isinstance(event, kind)]
        return [(at, event.key.task if hasattr(event, "key") else event.node) for at, event in events]

    @property
    def bound(self) -> list[tuple[float, str, str]]:
        """When each attempt was bound, and to which node."""
        return [(at, event.key.task, event.node) for at, event in self.log if isinstance(event, Bound)]

    @property
    def notices(self) -> list[tuple[float, float]]:
        """When each notice came and when its node goes."""
        return [(at, round(event.goes_at - START, 3)) for at, event in self.log if isinstance(event, Noticed)]
