"""The on-demand alternative to an attempt: its pool, and the share of that pool's node.

The pool is, in this order: the attempt's own pool, if that is on-demand; the pool to which the task's ladder falls back; the
cheapest on-demand pool of a rung with both kinds; and for work that requires spot, the on-demand pool with the same machine type,
else the cheapest with room for the requests. The work is assumed to take as long there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from spotwright.model.pools import Pool, Resources
from spotwright.scheduling.ladder import Ladder, too_large
from spotwright.views.account.occupancy import share_of

__all__ = ["OnDemand", "on_demand_for"]


class OnDemand(NamedTuple):
    """The alternative: an on-demand pool, and the share of its node that the work would use."""

    pool: Pool
    share: Fraction
    price: Fraction  # of a node hour


def on_demand_for(ran_on: Pool, requests: Resources, ladder: Ladder, pools: Mapping[str, Pool]) -> OnDemand | str:
    """The alternative to an attempt on ``ran_on``, or a sentence that says why there is none."""
    if not ran_on.is_spot:
        return _on(ran_on, requests)
    candidates = _on_ladder(ladder, pools) or [
        pool for pool in pools.values() if not pool.is_spot and not too_large(requests, pool.node)
    ]
    if not candidates:
        return "no on-demand pool has room for it"
    same_machine = [pool for pool in candidates if pool.machine and pool.machine == ran_on.machine]
    return _cheapest(same_machine or candidates, requests)


def _on_ladder(ladder: Ladder, pools: Mapping[str, Pool]) -> list[Pool]:
    """The pool to which the ladder falls back; several if one rung holds pools of both kinds."""
    fallback = [name for index in ladder.on_demand[:1] for name in ladder.rungs[index].pools]
    mixed = [name for rung in ladder.rungs if rung.spot is None for name in rung.pools]
    return [pools[name] for name in fallback or mixed if name in pools and not pools[name].is_spot]


def _cheapest(pools: Iterable[Pool], requests: Resources) -> OnDemand | str:
    options = [_on(pool, requests) for pool in pools]
    priced = [option for option in options if isinstance(option, OnDemand)]
    return min(priced, key=lambda option: option.price * option.share) if priced else options[0]


def _on(pool: Pool, requests: Resources) -> OnDemand | str:
    if pool.price is None:
        return f"the on-demand pool {pool.name} has no price"
    return OnDemand(pool, share_of(requests, pool.node), pool.price)
