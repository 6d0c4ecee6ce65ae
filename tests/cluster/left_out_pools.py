"""Pauses of pools as namespaces have found them."""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.cluster.unavailable_pools import Finding, Findings, definition_of
from spotwright.model.pools import Pool
from spotwright.scheduling.budgets import Pause


def leave_out(found: Findings, namespace: str, pauses: Mapping[str, Pause], pools: Mapping[str, Pool]) -> None:
    """Add what a namespace has found to what is known."""
    for name, pause in pauses.items():
        found.setdefault(definition_of(pools[name]), {})[namespace] = Finding(name, pause, is_said=False)
