"""A supply on a clock of its own, with everything that happened and when."""

from __future__ import annotations

from typing import Any

from tests.engine.builders import SPOT, START

from spotwright.model.pools import Pool
from spotwright.supply.binding import Request
from spotwright.supply.happenings import Bound, Happening, Noticed
from spotwright.supply.nodes import Supply

ONE_CPU = Request(("spot",), {"cpu": 1000})


class Lab:
    """``until`` lets time pass; moments are seconds since the start."""

    def __init__(self, *pools: Pool, seed: int = 7, scale: float = 1.0, **said: Any) -> None:
        named = {pool.name: pool for pool in pools or (SPOT,)}
        self.supply = Supply(named, seed=seed, scale=scale, now=START, **said)
        self.now = 0.0
        self.log: list[tuple[float, Happening]] = []
        self._note()

    def submit(self, name: str, request: Request = ONE_CPU, number: int = 1) -> Lab:
        self.supply.submit((name, number), request)
        self._note()
        return self

    def release(self, name: str, number: int = 1) -> Lab:
        self.supply.release((name, number), START + self.now)
        self._note()
        return self

    def report(self, name: str, progress: float) -> Lab:
        self.supply.report((name, 1), progress, START + self.now)
        self._note()
        return self

    def take(self, name: str, notice: float) -> Lab:
        self.supply.take((name, 1), notice, "asked for", START + self.now)
        self._note()
        return self

    def until(self, seconds: float) -> Lab:
        """Go from moment to moment, as an engine would, up to and with ``seconds``."""
        while (moment := self.supply.next_moment()) is not None and moment <= START + seconds:
            self.now = max(self.now, moment - START)
            self._note()
        self.now = seconds
        self._note()
        return self

    def _note(self) -> None:
        self.log += [(round(self.now, 3), happening) for happening in self.supply.advance(START + self.now)]

    def why(self, name: str) -> str:
        return self.supply.why_pending((name, 1), START + self.now)

    def has_room(self, pool: str) -> bool:
        return self.supply.has_room(pool, START + self.now)

    def told(self, kind: type[Any]) -> list[tuple[float, str]]:
        """When each happening of a kind came, and which node it was about (or which attempt, where there is none)."""
        told = [(at, happening) for at, happening in self.log if isinstance(happening, kind)]
        return [(at, getattr(one, "node", None) or one.key[0]) for at, one in told]

    @property
    def bound(self) -> list[tuple[float, str, str]]:
        """When each attempt was bound, and to which node."""
        return [(at, one.key[0], one.node) for at, one in self.log if isinstance(one, Bound)]

    @property
    def notices(self) -> list[tuple[float, float]]:
        """When each notice came and when its node goes."""
        return [(at, round(one.goes_at - START, 3)) for at, one in self.log if isinstance(one, Noticed)]
