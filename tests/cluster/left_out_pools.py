"""A leader's findings about pools, in the memory of a test instead of the webhook's objects of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotwright.cluster.unavailable_pools import Finding, Findings, definition_of
from spotwright.model.pools import Pool
from spotwright.scheduling.budgets import Pause


class ToldPools:
    """Takes findings, as :class:`~spotwright.cluster.spot_pools.PoolObjects` does, and publishes them."""

    def __init__(self) -> None:
        self.found: Findings = {}
        self.nodes: Callable[[], Sequence[Mapping[str, Any]] | None] = lambda: None

    def write(self, found: Findings) -> None:
        self.found = {key: dict(by_namespace) for key, by_namespace in found.items()}

    def read(self) -> Findings:
        return self.found

    async def run(self) -> None:
        await asyncio.Event().wait()

    @property
    def all(self) -> list[Finding]:
        """The pauses of all namespaces."""
        return [one for by_namespace in self.found.values() for one in by_namespace.values()]


def leave_out(told: Findings, namespace: str, pauses: Mapping[str, Pause], pools: Mapping[str, Pool]) -> None:
    """Add a namespace's finding to the existing ones."""
    for name, pause in pauses.items():
        told.setdefault(definition_of(pools[name]), {})[namespace] = Finding(name, pause, False)
