"""A policy and the ladder of its pools."""

from __future__ import annotations

from fractions import Fraction

from spotwright.model.policy import Layer, Policy, Spot, resolve
from spotwright.model.pools import Capacity, Pool
from spotwright.scheduling.ladder import Ladder, PodRequirements, build

POOLS = {
    name: Pool(name, Capacity(capacity), provider="generic", price=Fraction(price), labels={"pool": name})
    for name, capacity, price in (("a", "spot", 1), ("b", "spot", 2), ("od", "on-demand", 3))
}


def a_policy(**values: object) -> Policy:
    return resolve([Layer("test", {"spot": Spot.PREFER, "interruptions.max": 3, "fall_back_after": 2, **values})])


LADDER: Ladder = build(PodRequirements(), a_policy(), POOLS)
