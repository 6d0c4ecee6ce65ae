"""Which on-demand pool stands for the alternative, and which part of its node."""

from __future__ import annotations

from fractions import Fraction

from tests.views.builders import CPU, a_config

from spotwright.config import Config
from spotwright.model.policy import Policy, Spot
from spotwright.model.pools import Pool, Resources
from spotwright.scheduling.ladder import Ladder, PodRequirements, build
from spotwright.views.account import OnDemand, on_demand_for

CONFIG = """\
version: 1
pools:
  spot: {capacity: spot, machine: D4, node: {cpu: 4}, price: 0.1/h}
  small: {capacity: on-demand, machine: D2, node: {cpu: 2}, price: 0.3/h}
  large: {capacity: on-demand, machine: D4, node: {cpu: 4}, price: 0.8/h}
  huge: {capacity: on-demand, machine: D64, node: {cpu: 64}, price: 9/h}
"""


def alternative(
    spot: Spot | None, requests: Resources, config: Config | None = None, ran_on: str = "spot"
) -> OnDemand | str:
    pools: dict[str, Pool] = dict((config or a_config(CONFIG)).pools)
    ladder: Ladder = build(PodRequirements(requests), Policy(spot=spot), pools)
    return on_demand_for(pools[ran_on], requests, ladder, pools)


def test_the_alternative_is_the_fallback_pool_of_the_ladder_at_the_share_on_its_node() -> None:
    found = alternative(Spot.PREFER, {"cpu": 1 * CPU})
    assert isinstance(found, OnDemand)
    assert (found.pool.name, found.share, found.price) == ("small", Fraction(1, 2), Fraction("0.3"))


def test_required_spot_is_compared_with_the_same_machine() -> None:
    found = alternative(Spot.REQUIRE, {"cpu": 1 * CPU})
    assert isinstance(found, OnDemand)
    assert (found.pool.name, found.share) == ("large", Fraction(1, 4))


def test_on_a_rung_with_both_kinds_the_same_machine_is_the_alternative() -> None:
    found = alternative(None, {"cpu": 1 * CPU})
    assert isinstance(found, OnDemand)
    assert found.pool.name == "large"


def test_without_the_same_machine_the_cheapest_pool_is_the_alternative() -> None:
    config = a_config(
        CONFIG.replace("machine: D4, node: {cpu: 4}, price: 0.8/h", "machine: E4, node: {cpu: 4}, price: 0.5/h")
    )
    found = alternative(Spot.REQUIRE, {"cpu": 2 * CPU}, config)
    assert isinstance(found, OnDemand)
    assert found.pool.name == "large"  # half a node at 0.5 is less than a whole one at 0.3


def test_an_attempt_on_on_demand_is_its_own_alternative() -> None:
    found = alternative(Spot.PREFER, {"cpu": 1 * CPU}, ran_on="huge")
    assert isinstance(found, OnDemand)
    assert found.pool.name == "huge"


def test_a_pool_without_a_price_is_named() -> None:
    config = a_config(CONFIG.replace(", price: 0.3/h", "").replace(", price: 0.8/h", "").replace(", price: 9/h", ""))
    assert alternative(Spot.REQUIRE, {"cpu": 1 * CPU}, config) == "the on-demand pool large has no price"


def test_work_that_fits_no_on_demand_pool_has_no_alternative() -> None:
    assert alternative(Spot.REQUIRE, {"cpu": 100 * CPU}) == "no on-demand pool has room for it"
