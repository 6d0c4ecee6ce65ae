"""The built-in pools place the pipelines of the providers' guides."""

from __future__ import annotations

import pytest

from spotwright.clouds import providers
from spotwright.model.pools import Pool, PriceSource
from spotwright.model.scheduling_terms import Constraints, Expression, Term


def lands_on(constraints: Constraints) -> list[str]:
    pools = providers.built_in_pools().values()
    return [pool.name for pool in pools if not constraints.refusal(providers.labels(pool), providers.taints(pool))]


def affinity(key: str, operator: str, *values: str) -> Constraints:
    return Constraints(required=(Term((Expression(key, operator, values),)),))


def test_the_pools_are_one_spot_and_one_on_demand_in_this_order() -> None:
    assert [(pool.name, pool.is_spot) for pool in providers.built_in_pools().values()] == [
        ("spot", True),
        ("on-demand", False),
    ]


def test_work_without_constraints_may_go_to_both() -> None:
    assert lands_on(Constraints()) == ["spot", "on-demand"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("cloud.google.com/gke-spot", "true"),
        ("cloud.google.com/gke-provisioning", "spot"),
        ("cloud.google.com/gke-preemptible", "true"),
        ("eks.amazonaws.com/capacityType", "SPOT"),
        ("karpenter.sh/capacity-type", "spot"),
    ],
)
def test_required_affinity_on_a_spot_label_lands_on_spot(key: str, value: str) -> None:
    assert lands_on(affinity(key, "In", value)) == ["spot"]
    assert lands_on(Constraints(selector={key: value})) == ["spot"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cloud.google.com/gke-provisioning", "standard"),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
        ("karpenter.sh/capacity-type", "on-demand"),
    ],
)
def test_required_affinity_on_an_on_demand_label_lands_on_on_demand(key: str, value: str) -> None:
    assert lands_on(affinity(key, "In", value)) == ["on-demand"]


@pytest.mark.parametrize("key", ["kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-spot"])
def test_where_on_demand_nodes_carry_no_label_its_absence_keeps_off_spot(key: str) -> None:
    assert lands_on(affinity(key, "DoesNotExist")) == ["on-demand"]


@pytest.fixture(params=["spot", "on-demand"])
def built_in(request: pytest.FixtureRequest) -> Pool:
    return providers.built_in_pools()[request.param]


def test_a_node_has_room_for_the_four_gpus_of_the_guide(built_in: Pool) -> None:
    sizes = {name: amount for name, amount in (built_in.node or {}).items() if amount != 8}
    assert sizes == {"cpu": 8_000, "memory": 32 * 2**30, "nvidia.com/gpu": 4}


@pytest.mark.parametrize("name", ["amd.com/gpu", "google.com/tpu", "cloud-tpus.google.com/v3"])
def test_a_node_has_the_devices_of_others_too(built_in: Pool, name: str) -> None:
    assert (built_in.node or {})[name] == 8


def test_by_default_no_node_is_taken(built_in: Pool) -> None:
    assert built_in.simulate.interrupt_every is None
    assert built_in.simulate.trace is None
    assert built_in.max_lifetime is None


def test_waits_are_short(built_in: Pool) -> None:
    assert (built_in.notice, built_in.simulate.boot, built_in.max_nodes) == (2.0, 0.5, 10)


def test_prices_are_examples_and_spot_costs_less(built_in: Pool) -> None:
    pools = providers.built_in_pools()
    assert pools["spot"].price is not None
    assert pools["on-demand"].price is not None
    assert pools["spot"].price < pools["on-demand"].price
    assert built_in.price_source is built_in.simulated.price_source is PriceSource.EXAMPLE
