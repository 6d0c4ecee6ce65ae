"""Decides about attempts that wait in vain for a node, and about the pools that had none: row 7 where an orchestrator makes pods.

The local engine moves a waiting attempt to another rung. A pod cannot be moved: it is taken back, and the pod that its controller
makes next waits on another rung. So that not every attempt waits for ``pending_timeout`` on the same empty pool, such a pool is
left out for a while, then tried again; each time in a row that it has no node the pause is twice as long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from spotwright.model.policy import Policy
from spotwright.scheduling.budgets import BudgetUse, allowed_rungs
from spotwright.scheduling.ladder import Ladder

__all__ = ["CEILING", "FIRST_PAUSE", "Pause", "left_out", "pause_after", "pauses_of", "rung_after_waiting"]

FIRST_PAUSE = 300.0
"""Seconds for which a pool is left out after the first attempt that waited in vain for it."""

CEILING = 3600.0
"""The longest pause in seconds."""

_FORGOTTEN = 4 * CEILING  # seconds after a pause: then an attempt that waits in vain is the first one again


class Pause(NamedTuple):
    """The time for which a pool is left out. ``times`` counts the pauses in a row; moments are Unix seconds."""

    times: int
    since: float
    until: float


def pause_after(before: Pause | None, at: float) -> Pause:
    """The pause of a pool after an attempt has waited in vain for it until ``at``. ``before`` is its last pause.

    An attempt that was waiting already when the pause began does not make it longer.
    """
    if before is not None and at < before.until:
        return before
    times = 1 if before is None or at > before.until + _FORGOTTEN else before.times + 1
    return Pause(times, at, at + min(CEILING, FIRST_PAUSE * 2.0 ** min(times - 1, 30)))


def pauses_of(vain: Iterable[tuple[float, Collection[str]]]) -> Mapping[str, Pause]:
    """The pauses after attempts that waited in vain: for each the moment at which it was taken back, and its pools."""
    pauses: dict[str, Pause] = {}
    for at, pools in vain:
        for pool in pools:
            pauses[pool] = pause_after(pauses.get(pool), at)
    return pauses


def left_out(pauses: Mapping[str, Pause], now: float) -> frozenset[str]:
    """The pools that are left out now."""
    return frozenset(pool for pool, pause in pauses.items() if now < pause.until)


def rung_after_waiting(
    rung: int, spent: BudgetUse, policy: Policy, ladder: Ladder, without: Collection[str]
) -> int | None:
    """The rung for the attempt after one that waited in vain on ``rung``: the next allowed one, after the last the first.

    A rung all of whose pools are ``without`` capacity is passed over. ``None``: there is no other rung to try now.
    """
    allowed = allowed_rungs(spent, policy, ladder)
    below, above = (index for index in allowed if index > rung), (index for index in allowed if index < rung)
    return next((i for i in (*below, *above) if any(pool not in without for pool in ladder.rungs[i].pools)), None)
