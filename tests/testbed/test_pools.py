"""Pools of the test bed against the facts of `spotwright.clouds`: two readings of the clouds' documentation."""

from __future__ import annotations

import pytest
from testbed.pools import identity

from spotwright.clouds import providers
from spotwright.model.pools import Capacity, Pool
from spotwright.notices.metadata_services import resource_of


@pytest.mark.parametrize("cloud", ["aks", "gke", "eks"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_node_carries_the_labels_and_taints_that_spotwright_expects_of_its_pool(cloud: str, number: int) -> None:
    node = identity(cloud, number)
    capacity = Capacity.SPOT if node.spot else Capacity.ON_DEMAND
    pool = Pool(name=node.pool, provider=cloud, capacity=capacity)
    assert providers.labels(pool).items() <= node.labels.items()
    expected = {f"{taint.key}={taint.value}:{taint.effect}" for taint in providers.taints(pool)}
    assert expected <= set(node.taints)


@pytest.mark.parametrize("cloud", ["aks", "gke", "eks"])
def test_the_first_node_is_on_demand_and_the_others_are_spot(cloud: str) -> None:
    assert [identity(cloud, number).spot for number in (1, 2, 3)] == [False, True, True]


def test_the_metadata_server_of_azure_knows_the_machine_by_the_name_in_its_provider_id() -> None:
    node = identity("aks", 2)
    assert resource_of(node.provider_id) == node.resource
