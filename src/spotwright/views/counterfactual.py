"""What a piece of work would have cost on on-demand capacity: which pool, and which part of its node.

The pool is, in this order: the one an attempt ran on, if that is on-demand; the one the task's ladder falls back to; the
cheapest on-demand pool on the ladder where the scheduler chooses; and for work that may not go there (it requires spot) the
on-demand pool of the same machine, else the cheapest that has room for it. The work is taken to be as fast there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from spotwright.model.pools import Pool, Resources
from spotwright.scheduling.ladder import Ladder, too_large
from spotwright.views.occupancy import share_of

__all__ = ["OnDemand", "on_demand_for"]


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The on-demand pool that stands for the alternative, and the share of its node that the work would have."""

    pool: Pool
    share: Fraction
    price: Fraction  # of a node hour


def on_demand_for(ran_on: Pool, requests: Resources, ladder: Ladder, pools: Mapping[str, Pool]) -> OnDemand | str:
    """The alternative to an attempt on ``ran_on``, or why there is none, for people."""
    if not ran_on.is_spot:
        return _on(ran_on, requests)
    found = _on_ladder(ladder, pools) or [
        pool for pool in pools.values() if not pool.is_spot and not too_large(requests, pool.node)
    ]
    if not found:
        return "no on-demand pool has room for it"
    same_machine = [pool for pool in found if pool.machine and pool.machine == ran_on.machine]
    return _cheapest(same_machine or found, requests)


def _on_ladder(ladder: Ladder, pools: Mapping[str, Pool]) -> list[Pool]:
    """The pool that the ladder falls back to; several where one rung holds pools of both kinds."""
    fallback = [name for index in ladder.on_demand[:1] for name in ladder.rungs[index].pools]
    mixed = [name for rung in ladder.rungs if rung.spot is None for name in rung.pools]
    return [pools[name] for name in fallback or mixed if name in pools and not pools[name].is_spot]


def _cheapest(found: Iterable[Pool], requests: Resources) -> OnDemand | str:
    options = [_on(pool, requests) for pool in found]
    priced = [option for option in options if isinstance(option, OnDemand)]
    return min(priced, key=lambda option: option.price * option.share) if priced else options[0]


def _on(pool: Pool, requests: Resources) -> OnDemand | str:
    if pool.price is None:
        return f"the on-demand pool {pool.name} has no price"
    return OnDemand(pool, share_of(requests, pool.node), pool.price)
