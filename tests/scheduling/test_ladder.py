"""Which pools a task may go to, in which order, and why not to the others."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, SPOT, SPOT_B, a_policy, a_pool

from spotwright.clouds.providers import built_in_pools
from spotwright.model.policy import Policy
from spotwright.model.pools import Pool, Resources
from spotwright.model.scheduling_terms import Constraints, Expression, Taint, Term, Toleration
from spotwright.scheduling.ladder import Ladder, PodRequirements, build, too_large

GPU = {"cpu": 4000, "nvidia.com/gpu": 1}


def ladder(*pools: Pool, work: PodRequirements | None = None, policy: Policy | None = None) -> Ladder:
    return build(work or PodRequirements(), policy or a_policy(spot="prefer"), {pool.name: pool for pool in pools})


def order(made: Ladder) -> list[str]:
    return [pool for rung in made.rungs for pool in rung.pools]


def priced(name: str, price: float | None, *, spot: bool = True, **fields: Any) -> Pool:
    return a_pool(name, spot=spot, price=None if price is None else Fraction(str(price)), **fields)


# Order


def test_spot_pools_come_before_on_demand_pools_each_by_price() -> None:
    pools = [priced("d", 2, spot=False), priced("b", 0.3), priced("c", 1, spot=False), priced("a", 0.2)]
    assert order(ladder(*pools)) == ["a", "b", "c", "d"]


def test_a_pool_without_a_price_comes_after_those_with_one() -> None:
    assert order(ladder(priced("unknown", None), priced("known", 9))) == ["known", "unknown"]


def test_pools_of_one_price_keep_the_order_of_the_configuration() -> None:
    assert order(ladder(priced("z", 1), priced("a", 1))) == ["z", "a"]


def test_a_named_ladder_keeps_its_order_spot_first() -> None:
    policy = a_policy(spot="prefer", ladder=["on-demand", "spot-b", "spot"])
    assert order(ladder(SPOT, SPOT_B, ON_DEMAND, policy=policy)) == ["spot-b", "spot", "on-demand"]


def test_a_named_ladder_without_spot_keeps_its_order() -> None:
    policy = a_policy(ladder=["on-demand", "spot"])
    assert order(ladder(SPOT, ON_DEMAND, policy=policy)) == ["on-demand", "spot"]


# What the policy wants


def test_required_spot_refuses_on_demand_with_a_reason() -> None:
    made = ladder(SPOT, ON_DEMAND, policy=a_policy(spot="require"))
    assert (order(made), made.refusals) == (["spot"], {"on-demand": "the policy requires spot"})


def test_never_spot_refuses_spot_with_a_reason() -> None:
    made = ladder(SPOT, ON_DEMAND, policy=a_policy(spot="never"))
    assert (order(made), made.refusals) == (["on-demand"], {"spot": "the policy forbids spot"})


def test_preferred_spot_without_an_on_demand_pool_has_a_note() -> None:
    assert "has no fallback" in ladder(SPOT).note


def test_preferred_spot_without_a_spot_pool_has_a_note() -> None:
    assert "no spot pool fits" in ladder(ON_DEMAND).note


def test_a_price_above_max_price_is_refused() -> None:
    made = ladder(priced("dear", 2, max_price=Fraction(1)), SPOT)
    assert made.refusals == {"dear": "its price is above max_price (2/h > 1/h)"}


# Taints


def test_the_taint_of_a_spot_pool_is_tolerated_by_a_spot_policy() -> None:
    pool = a_pool("aks", provider="aks")
    added = ladder(pool).rungs[0].tolerations
    assert any(t.key == "kubernetes.azure.com/scalesetpriority" for t in added)


def test_another_taint_is_not_tolerated_by_a_spot_policy() -> None:
    pool = a_pool("team", spot=False, taints=(Taint("team", "data"),))
    assert "does not tolerate the taint team=data" in ladder(pool, SPOT).refusals["team"]


def test_all_taints_of_a_pool_that_the_ladder_names_are_tolerated() -> None:
    pool = a_pool("team", spot=False, taints=(Taint("team", "data"),))
    made = ladder(pool, policy=a_policy(spot="never", ladder=["team"]))
    assert made.rungs[0].tolerations == (Toleration("team", "Equal", "data", "NoSchedule"),)


@pytest.mark.parametrize(
    ("fields", "silent"),
    [
        ({}, ["spot", "base"]),
        ({"node": {"cpu": 4000, "nvidia.com/gpu": 1}}, ["spot"]),
        ({"machine": "a2-highgpu-1g"}, ["spot"]),
    ],
)
def test_pools_that_do_not_say_whether_they_have_the_gpus_of_the_work_are_named(
    fields: dict[str, Any], silent: list[str]
) -> None:
    pools = a_pool("spot", node=None), a_pool("base", spot=False, **{"node": None, **fields})
    with_gpu = ladder(*pools, work=PodRequirements({"nvidia.com/gpu": 1}))
    said = (
        f"it asks for nvidia.com/gpu, and {', '.join(silent)} in spotwright.yaml do not say whether their nodes have it"
    )
    assert [text.split(":")[0] for text in with_gpu.warnings("train")] == [said]
    assert not ladder(*pools, work=PodRequirements({"cpu": 1000})).unstated


def test_that_the_built_in_pools_only_simulate_the_gpus_of_the_work_is_said() -> None:
    pools = built_in_pools().values()
    said = ladder(*pools, work=PodRequirements({"nvidia.com/gpu": 1})).unstated
    assert said.startswith("it asks for nvidia.com/gpu, which the built-in pools do not have: they simulate it")
    assert not ladder(*pools, work=PodRequirements({"cpu": 1000})).unstated


def a_team_pool(name: str, **fields: Any) -> Pool:
    return a_pool(name, provider="eks", taints=(Taint("team", "data"),), **fields)


def test_a_pool_that_only_its_taint_keeps_away_is_named_with_the_ladder_that_tolerates_it() -> None:
    pools = {pool.name: pool for pool in (a_pool("small", spot=False, node={"cpu": 1000}), a_team_pool("big"))}
    work = PodRequirements(requests={"cpu": 4000})
    refused = build(work, a_policy(spot="prefer"), pools)

    assert order(refused) == []
    assert refused.remedy("loop/it").endswith('(policy: {tasks: {"loop/it": {ladder: [big]}}} in spotwright.yaml)')
    assert order(build(work, a_policy(spot="prefer", ladder=["big"]), pools)) == ["big"]


def test_the_ladder_that_a_note_names_keeps_the_pools_that_fit() -> None:
    made = ladder(ON_DEMAND, a_team_pool("team"))

    assert made.note == "no spot pool fits: it runs on on-demand"
    assert "ladder: [team, on-demand]" in made.remedy("it")


@pytest.mark.parametrize(
    "pools",
    [
        [SPOT, ON_DEMAND, a_team_pool("team")],  # there are others of its capacity
        [ON_DEMAND, a_team_pool("gpu", node=GPU)],  # its GPUs would stand idle
        [
            ON_DEMAND,
            a_team_pool("large", max_price=Fraction(1), price=Fraction(2)),
        ],  # not for its taint alone
    ],
)
def test_a_ladder_is_no_remedy_for_a_pool_that_the_work_should_not_have(pools: list[Pool]) -> None:
    assert ladder(*pools).remedy("it") == ""


def test_a_toleration_of_the_task_is_not_added_again() -> None:
    work = PodRequirements(constraints=Constraints(tolerations=(Toleration(operator="Exists"),)))
    made = ladder(a_pool("tainted", taints=(Taint("spot", "true"),)), work=work)
    assert made.rungs[0].tolerations == ()


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "gpu.intel.com/i915"])
def test_the_taint_of_a_gpu_pool_is_tolerated_for_work_that_asks_for_gpus_or_parts_of_them(resource: str) -> None:
    pool = a_pool("gpu", node={"cpu": 4000, resource: 1}, taints=(Taint("sku", "gpu"),))
    assert order(ladder(pool, work=PodRequirements({resource: 1}))) == ["gpu"]


def test_the_taint_of_a_gpu_pool_repels_other_work() -> None:
    pool = a_pool("gpu", spot=False, node=GPU, taints=(Taint("sku", "gpu"),))
    assert order(ladder(pool, SPOT)) == ["spot"]


# What the task says itself


def test_a_selector_refuses_pools_without_the_label() -> None:
    work = PodRequirements(constraints=Constraints(selector={"disk": "ssd"}))
    made = ladder(a_pool("ssd", labels={"disk": "ssd"}), SPOT, work=work)
    assert (order(made), made.refusals["spot"]) == (["ssd"], "its node selector asks for disk=ssd")


def test_required_affinity_refuses_pools_that_do_not_match() -> None:
    term = Term((Expression("disk", "In", ("ssd", "nvme")),))
    made = ladder(
        a_pool("ssd", labels={"disk": "ssd"}), SPOT, work=PodRequirements(constraints=Constraints(required=(term,)))
    )
    assert order(made) == ["ssd"]


def test_a_zone_of_aks_is_selected_by_its_label_and_not_by_its_number() -> None:
    aks = a_pool("aks", zones=("1", "2"), region="eastus", provider="aks")
    fits = PodRequirements(constraints=Constraints(selector={"topology.kubernetes.io/zone": "eastus-2"}))
    number = PodRequirements(constraints=Constraints(selector={"topology.kubernetes.io/zone": "2"}))
    assert order(ladder(aks, work=fits)) == ["aks"]
    assert order(ladder(aks, work=number)) == []


def test_a_pool_of_aks_without_a_region_may_be_in_the_zone() -> None:
    work = PodRequirements(constraints=Constraints(selector={"topology.kubernetes.io/zone": "eastus-1"}))
    assert order(ladder(a_pool("aks", zones=("1",), provider="aks"), work=work)) == ["aks"]


def test_a_pool_of_several_zones_fits_where_one_of_them_does() -> None:
    work = PodRequirements(constraints=Constraints(selector={"topology.kubernetes.io/zone": "b"}))
    made = ladder(a_pool("two", zones=("a", "b")), a_pool("one", zones=("a",)), work=work)
    assert order(made) == ["two"]


def test_a_task_larger_than_a_node_is_refused_with_both_sizes() -> None:
    made = ladder(SPOT, work=PodRequirements({"cpu": 8000}))
    assert (made.rungs, made.refusals) == ((), {"spot": "it asks for 8 cpu, a node has 4 cpu"})


def test_a_node_of_unknown_size_is_never_too_small() -> None:
    assert too_large({"cpu": 10**9}, a_pool("spot", node=None)) == ""


def test_a_size_without_memory_tells_nothing_about_memory_and_one_without_gpus_has_none() -> None:
    assert too_large({"cpu": 1000, "memory": 2**40}, a_pool("spot", node={"cpu": 2000})) == ""
    assert (
        too_large({"nvidia.com/gpu": 1}, a_pool("spot", node={"cpu": 2000}))
        == "it asks for 1 nvidia.com/gpu, a node has 0 nvidia.com/gpu"
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"memory": 2**34}, "it asks for 16Gi memory, a node has 8Gi memory"),
        ({"nvidia.com/gpu": 2}, "it asks for 2 nvidia.com/gpu, a node has 0 nvidia.com/gpu"),
        ({"cpu": 500}, ""),
    ],
)
def test_sizes_are_written_in_their_own_units(asked: Resources, message: str) -> None:
    assert too_large(asked, a_pool("spot", node={"cpu": 1000, "memory": 2**33})) == message


# GPUs that would stand idle


def test_work_without_gpus_is_kept_off_gpu_pools_under_a_policy() -> None:
    made = ladder(a_pool("gpu", node=GPU), SPOT)
    assert made.refusals == {"gpu": "its GPUs would be idle: the task requests none"}


def test_work_without_gpus_goes_to_gpu_pools_if_no_other_pool_fits() -> None:
    assert order(ladder(a_pool("gpu", node=GPU))) == ["gpu"]


def test_work_that_selects_a_gpu_node_goes_there() -> None:
    work = PodRequirements(constraints=Constraints(selector={"gpu": "true"}))
    assert order(ladder(a_pool("gpu", node=GPU, labels={"gpu": "true"}), SPOT, work=work)) == ["gpu"]


# No policy at all


def test_without_a_policy_one_rung_holds_every_pool_that_fits() -> None:
    made = ladder(SPOT, ON_DEMAND, policy=Policy())
    assert [(rung.pools, rung.spot) for rung in made.rungs] == [(("spot", "on-demand"), None)]


def test_without_a_policy_no_toleration_is_added() -> None:
    made = ladder(a_pool("aks", provider="aks"), ON_DEMAND, policy=Policy())
    assert order(made) == ["on-demand"]


def test_without_a_policy_a_gpu_pool_is_the_last_to_grow() -> None:
    assert order(ladder(a_pool("gpu", node=GPU), SPOT, policy=Policy())) == ["spot", "gpu"]


def test_without_a_policy_and_a_fitting_pool_there_is_no_rung() -> None:
    made = ladder(SPOT, work=PodRequirements({"cpu": 8000}), policy=Policy())
    assert (made.rungs, list(made.refusals)) == ((), ["spot"])


# For any pools and any policy

POOLS = st.lists(
    st.builds(lambda spot, price: (spot, price), st.booleans(), st.one_of(st.none(), st.integers(0, 9))),
    min_size=1,
    max_size=6,
)


@given(POOLS, st.sampled_from(["require", "prefer", "never"]))
def test_every_pool_is_a_rung_or_has_a_reason(kinds: list[tuple[bool, int | None]], spot: str) -> None:
    pools = [priced(f"p{n}", price, spot=is_spot) for n, (is_spot, price) in enumerate(kinds)]
    made = ladder(*pools, policy=a_policy(spot=spot))
    assert sorted([*order(made), *made.refusals]) == sorted(pool.name for pool in pools)


@given(POOLS, st.sampled_from(["require", "prefer", "never"]))
def test_rungs_are_only_of_the_wanted_kind_spot_first(kinds: list[tuple[bool, int | None]], spot: str) -> None:
    pools = [priced(f"p{n}", price, spot=is_spot) for n, (is_spot, price) in enumerate(kinds)]
    rungs = [rung.spot for rung in ladder(*pools, policy=a_policy(spot=spot)).rungs]
    assert set(rungs) <= {"require": {True}, "prefer": {True, False}, "never": {False}}[spot]
    assert rungs == sorted(rungs, key=lambda is_spot: not is_spot)


# What the cluster adds by itself

_GKE = a_pool("gke", spot=False, provider="gke", node={"cpu": 8000, "nvidia.com/gpu": 1})


def test_gke_lets_work_with_gpus_tolerate_the_gpu_taint_without_any_policy() -> None:
    made = ladder(_GKE, work=PodRequirements(GPU), policy=Policy())
    assert [rung.tolerations for rung in made.rungs] == [(Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),)]


def test_gke_keeps_work_without_gpus_away_from_tainted_gpus() -> None:
    assert "nvidia.com/gpu" in ladder(_GKE, work=PodRequirements({"cpu": 1000}), policy=Policy()).refusals["gke"]


def test_no_other_provider_adds_tolerations() -> None:
    taint = Taint("nvidia.com/gpu", "present")
    pool = a_pool("aks", spot=False, provider="aks", node={"cpu": 8000, "nvidia.com/gpu": 1}, taints=(taint,))
    assert "nvidia.com/gpu" in ladder(pool, work=PodRequirements(GPU), policy=Policy()).refusals["aks"]
