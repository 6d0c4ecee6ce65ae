"""The autoscalers' status of a waiting pod: a table of messages and their meaning."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.watching.watched_objects import BEGIN, at
from tests.cluster.words.said import (
    AKS,
    GROUP,
    KARPENTERS,
    POD,
    claim,
    event,
    group,
    hear,
    means,
    no_offering,
    not_triggered,
    of_karpenter,
    pools,
    status,
    triggered,
)

from spotwright.cluster.signals import PodWaits
from spotwright.engine.waits import CANNOT_GROW, NO_SCALE_UP, NODE_ORDERED, ORDERS_UNKNOWN

COMING = group(target=1, state="InProgress", since=10)
BACKOFF = group(state="Backoff", since=15, error="OUT_OF_RESOURCES")
FULL_GROUP = group(target=2, ready=2, most=2)
FULL_AND_COMING = group(target=2, ready=1, most=2, state="InProgress", since=10)
IDLE = group()
TOO_FEW = "Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool=cpu-spot)"


def kind(said: PodWaits | None) -> str | None:
    return None if said is None else said.kind


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ([], None),
        ([status(COMING)], NODE_ORDERED),
        ([status(group(target=1))], NODE_ORDERED),  # after a restart the autoscaler knows no activity any more
        ([status(BACKOFF)], CANNOT_GROW),
        ([status(FULL_GROUP)], NO_SCALE_UP),  # full is not without capacity: others may get a node there
        ([status(FULL_AND_COMING)], NODE_ORDERED),
        ([status(IDLE)], None),
        ([status(group(GROUP, target=1))], None),  # the other pool's node
        ([triggered()], NODE_ORDERED),
        ([not_triggered()], NO_SCALE_UP),
        ([not_triggered(message="pod didn't trigger scale-up: 2 Insufficient cpu")], None),
        ([not_triggered(message="1 in backoff after failed scale-up")], NO_SCALE_UP),
        # where the status tells of the group, an older Event says nothing
        ([status(IDLE, when=40), triggered(10)], None),
        ([status(IDLE, when=20), triggered(10)], NODE_ORDERED),  # the status of the scan before the order
        ([status(IDLE), not_triggered()], None),
        ([status(COMING), not_triggered(20)], NODE_ORDERED),
        ([status(BACKOFF), triggered(10)], NODE_ORDERED),
        ([status(BACKOFF, when=30), triggered(10)], CANNOT_GROW),
        # without a status that is understood, Events alone count
        ([{"data": {"status": "no: [yaml"}}, triggered()], NODE_ORDERED),
        ([{"data": {"status": "Cluster-autoscaler status at 2024"}}, not_triggered()], NO_SCALE_UP),
        ([{"data": {}}, not_triggered()], NO_SCALE_UP),
        ([status(BACKOFF), None], None),
        # both in one second, in either order: the one that was heard last
        ([triggered(10), not_triggered(10)], NO_SCALE_UP),
        ([not_triggered(10), triggered(10)], NODE_ORDERED),
        ([triggered(11), not_triggered(10)], NODE_ORDERED),
    ],
)
def test_the_cluster_autoscaler_on_a_pod_of_one_pool(heard: list[Any], expected: str | None) -> None:
    assert kind(means(hear(*heard), ["cpuspot"], pools(AKS), now=45)) == expected


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ((BACKOFF, group(GROUP)), None),
        # each of them is left out for every namespace only if the provider refuses a node of each of them
        ((BACKOFF, group(GROUP, target=3, ready=3, most=3)), NO_SCALE_UP),
        ((BACKOFF, group(GROUP, state="Backoff", since=15)), CANNOT_GROW),
        ((BACKOFF,), NO_SCALE_UP),
        ((BACKOFF, group(GROUP, target=1, state="InProgress", since=10)), NODE_ORDERED),
    ],
)
def test_a_pod_of_several_pools_waits_for_any_of_them(groups: tuple[Any, ...], expected: str | None) -> None:
    assert kind(means(hear(status(*groups)), ["cpuspot", "cpu"], pools(AKS))) == expected


def test_a_backoff_tells_its_error_and_since_when() -> None:
    said = means(hear(status(BACKOFF)), ["cpuspot"], pools(AKS))
    assert said is not None
    assert "in backoff after a failed scale-up (OUT_OF_RESOURCES: refused)" in said.words
    assert said.since == BEGIN + 15


def test_nodes_that_have_just_come_are_left_to_those_who_wait_for_them() -> None:
    """When the last node of a full pool becomes ready, no pod is ruled out before the scheduler has tried each on it."""
    words, known = hear(status(FULL_AND_COMING, when=20)), pools(AKS)
    words.put_status(status(FULL_GROUP, when=30))
    assert kind(means(words, ["cpuspot"], known, 44)) == NODE_ORDERED
    assert kind(means(words, ["cpuspot"], known, 46)) == NO_SCALE_UP
    come = hear(claim(made=1), no_offering(when=20), claim(initialized=True))
    assert kind(means(come, ["cpu-spot"], pools(KARPENTERS), 24)) == NODE_ORDERED
    assert kind(means(come, ["cpu-spot"], pools(KARPENTERS), 26)) == CANNOT_GROW


def test_a_new_pod_is_left_until_the_autoscaler_has_looked_at_it() -> None:
    new = {"metadata": {**POD["metadata"], "creationTimestamp": at(0)}}
    words, known = hear(status(IDLE, when=40)), pools(AKS)
    assert kind(words.of(new, ["cpuspot"], known, BEGIN + 44)) == NODE_ORDERED
    assert words.of(new, ["cpuspot"], known, BEGIN + 46) is None
    refused = hear(status(BACKOFF, when=40))
    assert kind(refused.of(new, ["cpuspot"], known, BEGIN + 20)) == CANNOT_GROW


def test_two_autoscalers_that_write_one_status_in_turn_rule_out_only_what_neither_can_grow() -> None:
    known, other = pools(AKS), group("asg-cpuspot-2", target=0, most=0)
    for mine, expected in ((IDLE, None), (COMING, NODE_ORDERED), (BACKOFF, CANNOT_GROW)):
        words = hear(status(mine, when=20), status(other, when=30))
        assert kind(means(words, ["cpuspot"], known, 31)) == expected
    words = hear(status(IDLE, when=20), status(other, when=30))
    assert kind(means(words, ["cpuspot"], known, 46)) == NO_SCALE_UP  # the other one has written nothing since


def test_an_order_that_fails_is_no_node_that_has_come() -> None:
    words = hear(status(COMING, when=20), status(BACKOFF, when=30))
    assert kind(means(words, ["cpuspot"], pools(AKS), 31)) == CANNOT_GROW
    assert (
        kind(means(hear(claim(), no_offering(), claim(deleted=True)), ["cpu-spot"], pools(KARPENTERS))) == CANNOT_GROW
    )


def test_an_autoscaler_that_is_silent_for_ten_minutes_says_nothing_any_more() -> None:
    words, known = hear(status(BACKOFF, when=20)), pools(AKS)
    assert kind(means(words, ["cpuspot"], known, 619)) == CANNOT_GROW
    assert means(words, ["cpuspot"], known, 621) is None
    words.put_event(not_triggered(600))
    assert kind(means(words, ["cpuspot"], known, 621)) == NO_SCALE_UP


def test_what_is_said_once_in_five_minutes_is_over_after_six() -> None:
    words, known = hear(not_triggered(10)), pools(AKS)
    assert kind(means(words, ["cpuspot"], known, 369)) == NO_SCALE_UP
    assert means(words, ["cpuspot"], known, 371) is None


def test_an_event_about_a_pod_of_another_namespace_is_not_believed() -> None:
    assert means(hear(event("TriggeredScaleUp", namespace="evil")), ["cpuspot"], pools(AKS)) is None


def test_an_event_from_the_future_is_of_now() -> None:
    words, known = hear(), pools(AKS)
    words.put_event(triggered(1_000_000), BEGIN + 20)
    words.put_event(not_triggered(30), BEGIN + 30)
    assert kind(means(words, ["cpuspot"], known, 40)) == NO_SCALE_UP


def test_an_order_that_an_event_tells_of_ends_with_the_limit() -> None:
    words, known = hear(triggered(10)), pools(AKS)
    assert kind(means(words, ["cpuspot"], known, 909)) == NODE_ORDERED
    assert means(words, ["cpuspot"], known, 911) is None


def test_groups_of_others_are_counted_too_and_say_nothing_of_pools_with_a_fixed_size() -> None:
    fixed = pools(AKS, min_nodes=2, max_nodes=2)
    assert means(hear(not_triggered()), ["cpuspot"], fixed) is None
    assert kind(means(hear(not_triggered()), ["cpuspot"], pools(AKS))) == NO_SCALE_UP


@pytest.mark.parametrize(
    ("heard", "expected"),
    [
        ([claim()], NODE_ORDERED),
        ([claim(pool="od")], None),
        ([claim(deleted=True)], None),
        ([claim(), claim(deleted=True)], None),
        ([claim(initialized=True)], None),  # it came 15 s ago
        ([claim(), claim(initialized=True), claim("second", made=12)], NODE_ORDERED),
        ([of_karpenter("Nominated", "Pod should schedule on: nodeclaim/gone")], None),  # all claims are known
        ([no_offering()], CANNOT_GROW),
        ([no_offering("od")], None),
        ([claim(), no_offering()], NODE_ORDERED),
        (
            [of_karpenter("FailedScheduling", TOO_FEW)],
            NO_SCALE_UP,
        ),
        ([of_karpenter("FailedScheduling", "Failed to schedule pod, nodepools not ready")], None),
        ([claim(made=10), of_karpenter("FailedScheduling", TOO_FEW, 10)], NODE_ORDERED),
        ([claim(made=10), of_karpenter("FailedScheduling", TOO_FEW, 11)], NO_SCALE_UP),  # that node is another pod's
        ([event("FailedScheduling", "0/3 nodes are available", source="default-scheduler")], None),
    ],
)
def test_karpenter_on_a_pod_of_one_pool(heard: list[Any], expected: str | None) -> None:
    assert kind(means(hear(*heard), ["cpu-spot"], pools(KARPENTERS))) == expected


def test_a_refusal_that_is_older_than_the_pod_counts_once_karpenter_says_so_of_the_pod() -> None:
    young = {"metadata": {**POD["metadata"], "creationTimestamp": at(30)}}
    words, known = hear(no_offering(when=10)), pools(KARPENTERS)
    assert words.of(young, ["cpu-spot"], known, BEGIN + 35) is None
    words.put_event(of_karpenter("FailedScheduling", "incompatible requirements", 40))
    assert kind(words.of(young, ["cpu-spot"], known, BEGIN + 45)) == CANNOT_GROW


def test_what_karpenter_says_once_in_a_while_counts_until_it_would_have_said_it_again() -> None:
    known = pools(KARPENTERS)
    refusal, failed = hear(no_offering(when=10)), hear(of_karpenter("FailedScheduling", TOO_FEW, when=10))
    assert kind(means(refusal, ["cpu-spot"], known, 99)) == CANNOT_GROW
    assert means(refusal, ["cpu-spot"], known, 101) is None
    assert kind(means(failed, ["cpu-spot"], known, 369)) == NO_SCALE_UP
    assert means(failed, ["cpu-spot"], known, 371) is None


def test_every_pool_has_to_be_without_offerings() -> None:
    known = pools(KARPENTERS)
    assert means(hear(no_offering("cpu-spot")), ["cpu-spot", "od"], known) is None
    assert kind(means(hear(no_offering("cpu-spot"), no_offering("od")), ["cpu-spot", "od"], known)) == CANNOT_GROW


def test_a_nomination_counts_where_nobody_may_see_node_claims() -> None:
    words = hear(of_karpenter("Nominated", "Pod should schedule on: nodeclaim/x"), sees_claims=False)
    assert kind(means(words, ["cpu-spot"], pools(KARPENTERS))) == NODE_ORDERED
    assert means(words, ["cpu-spot"], pools(KARPENTERS), 911) is None


def test_each_autoscaler_speaks_for_its_own_pools_alone() -> None:
    known, both = pools(AKS, KARPENTERS), ["cpuspot", "cpu-spot"]
    assert means(hear(not_triggered(), no_offering()), both, known) is None
    assert means(hear(status(BACKOFF)), both, known) is None
    assert kind(means(hear(claim()), both, known)) == NODE_ORDERED
    assert kind(means(hear(status(COMING)), both, known)) == NODE_ORDERED
    assert means(hear(triggered()), ["cpu-spot"], known) is None
    assert means(hear(not_triggered()), ["cpu-spot"], known) is None
    assert means(hear(claim()), ["cpuspot"], known) is None


def test_where_nobody_may_read_orders_that_is_said() -> None:
    words = hear()
    words.can_hear = False
    assert kind(means(words, ["cpuspot"], pools(AKS))) == ORDERS_UNKNOWN
    words.put_status(status(BACKOFF))
    assert kind(means(words, ["cpuspot"], pools(AKS))) == CANNOT_GROW


def test_pools_that_are_not_known_any_more_say_nothing() -> None:
    words = hear(status(BACKOFF), not_triggered(), no_offering())
    assert means(words, ["gone"], pools(AKS)) is None
    assert means(words, [], pools(AKS)) is None


def test_a_pod_that_is_gone_is_forgotten() -> None:
    words = hear(triggered())
    words.forget_pod("uid-one")
    assert means(words, ["cpuspot"], pools(AKS)) is None


def test_the_group_of_a_pool_is_none_of_a_pool_with_a_shorter_name() -> None:
    known = pools({"cpu": AKS["cpu"], "cpu-spot": AKS["cpuspot"]}, provider="eks")
    words = hear(status(group("asg-cpu-spot-1234", target=1, state="InProgress"), group("asg-cpu-1234")))
    assert means(words, ["cpu"], known) is None
    assert kind(means(words, ["cpu-spot"], known)) == NODE_ORDERED


def test_what_is_said_changes_only_with_the_state_of_a_group() -> None:
    words = hear(status(COMING, when=20))
    assert words.put_status(status(COMING, when=30)) is False
    assert words.put_status(status(BACKOFF, when=40)) is True
    assert words.put_status(None) is True
    assert words.put_claim(claim()) is True
    assert words.put_claim(claim("second")) is False
    assert words.put_claim(claim(deleted=True)) is False  # the second one is still on its way
    assert words.put_claim(claim("second"), is_gone=True) is True
