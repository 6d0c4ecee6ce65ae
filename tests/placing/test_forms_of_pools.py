"""Work is led to the labels that the nodes of its pools carry, in whatever form the provider sells them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import assert_unplaces

from spotwright import config
from spotwright.clouds import node_labels, providers
from spotwright.kube.pod import scheduling_of
from spotwright.manifests.files import place_text
from spotwright.model.pools import Capacity, Pool
from spotwright.model.scheduling_terms import Expression
from spotwright.placing.affinity import rung_conditions

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: i, resources: {requests: {cpu: 2}}}]}}}
"""
REGULAR = "{capacity: on-demand, provider: gke, node: {cpu: 4}}"
SPOT = "{capacity: spot, provider: gke, node: {cpu: 8}}"
PREEMPTIBLE = '{capacity: spot, provider: gke, node: {cpu: 8}, labels: {cloud.google.com/gke-preemptible: "true"}}'
LOW = "{capacity: spot, provider: aks, node: {cpu: 8}, labels: {kubernetes.azure.com/scalesetpriority: low}}"
AKS = "{capacity: on-demand, provider: aks, node: {cpu: 8}}"


def pod(spot: str, pools: dict[str, str], text: str = JOB) -> Any:
    """The pod spec of a Job that is placed with these pools."""
    listed = "".join(f"  {name}: {text}\n" for name, text in pools.items())
    settings = config.parse(f"version: 1\npools:\n{listed}policy: {{default: {{spot: {spot}, timeout: 1h}}}}\n")
    whole = place_text(text, "work.yaml", settings).text
    assert_unplaces(text, whole)
    placed = plain_yaml.load(whole)["spec"]["template"]["spec"]
    for (
        name,
        one,
    ) in settings.pools.items():  # whatever was written, it leads to the pools that it is for and to no other
        wanted = one.is_spot if spot == "require" else not one.is_spot
        reached = node_labels.refusal(one, scheduling_of(placed), providers.taints(one)) == ""
        assert reached is wanted or spot == "prefer", name
    return placed


def required(spec: Any) -> list[Expression]:
    [term] = scheduling_of(spec).required
    return list(term.expressions)


def test_a_preemptible_pool_is_led_to_by_the_label_of_preemptible_nodes() -> None:
    spec = pod("require", {"regular": REGULAR, "old": PREEMPTIBLE})
    assert required(spec) == [Expression("cloud.google.com/gke-preemptible", "In", ("true",))]


def test_work_that_prefers_spot_prefers_that_label() -> None:
    [wish] = scheduling_of(pod("prefer", {"regular": REGULAR, "old": PREEMPTIBLE})).preferred
    assert wish.term.expressions == (Expression("cloud.google.com/gke-preemptible", "In", ("true",)),)


def test_two_forms_in_one_policy_are_one_condition_with_both_values() -> None:
    spec = pod("require", {"regular": REGULAR, "old": PREEMPTIBLE, "new": SPOT})
    assert required(spec) == [Expression("cloud.google.com/gke-provisioning", "In", ("preemptible", "spot"))]


@pytest.mark.parametrize(
    ("pools", "forms"),
    [
        ({"old": PREEMPTIBLE}, ["gke-preemptible"]),
        ({"new": SPOT}, ["gke-spot"]),
        ({"old": PREEMPTIBLE, "new": SPOT}, ["gke-spot", "gke-preemptible"]),
    ],
)
def test_work_that_never_uses_spot_is_kept_off_each_form_and_not_bound_to_a_pool_by_name(
    pools: dict[str, str], forms: list[str]
) -> None:
    spec = pod("never", {"regular": REGULAR, **pools})
    assert required(spec) == [Expression(f"cloud.google.com/{form}", "NotIn", ("true",)) for form in forms]


MIXED = {
    "regular": "{capacity: on-demand, provider: aks, node: {cpu: 8}}",
    "spot": "{capacity: spot, provider: aks, node: {cpu: 8}}",
    "auto": "{capacity: on-demand, provider: karpenter, machine: Standard_D8s_v5, node: {cpu: 8}}",
    "auto-spot": "{capacity: spot, provider: karpenter, machine: Standard_D8s_v5, node: {cpu: 8}}",
}
EITHER = [
    [Expression("kubernetes.azure.com/scalesetpriority", "In", ("spot",))],
    [Expression("karpenter.sh/capacity-type", "In", ("spot",))],
]


def test_forms_without_a_common_label_are_alternatives() -> None:
    assert [list(term.expressions) for term in scheduling_of(pod("require", MIXED)).required] == EITHER


def test_each_alternative_has_the_conditions_of_the_user() -> None:
    given = "{key: kubernetes.io/os, operator: In, values: [linux]}, {key: kubernetes.io/arch, operator: Exists}"
    terms = f"nodeSelectorTerms: [{{matchExpressions: [{given}]}}]"
    own = f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{{terms}}}}}}}, restartPolicy"
    placed = scheduling_of(pod("require", MIXED, JOB.replace("restartPolicy", own)))
    kept = [Expression("kubernetes.io/os", "In", ("linux",)), Expression("kubernetes.io/arch", "Exists")]
    assert {frozenset(term.expressions) for term in placed.required} == {frozenset([*kept, *form]) for form in EITHER}


def test_work_that_prefers_spot_prefers_each_form() -> None:
    wishes = scheduling_of(pod("prefer", MIXED)).preferred
    assert [list(wish.term.expressions) for wish in wishes] == EITHER


def test_work_that_never_uses_spot_is_kept_off_all_forms() -> None:
    assert [one.operator for one in required(pod("never", MIXED))] == ["NotIn", "NotIn"]


def test_a_low_priority_pool_is_led_to_by_its_own_value_and_taint() -> None:
    spec = pod("require", {"regular": AKS, "low": LOW})
    assert required(spec) == [Expression("kubernetes.azure.com/scalesetpriority", "In", ("low",))]
    assert [one["value"] for one in spec["tolerations"]] == ["low"]


@pytest.mark.parametrize("provider", ["aks", "gke", "eks", "oke", "karpenter", "generic"])
@pytest.mark.parametrize("others", [0, 1])
def test_the_conditions_of_a_rung_hold_none_twice(provider: str, others: int) -> None:
    """The webhook of a cluster writes them into each pod."""
    pools = {
        name: Pool(name, capacity, provider, labels={"market": name})
        for name, capacity in [("spot", Capacity.SPOT), ("regular", Capacity.ON_DEMAND), ("more", Capacity.SPOT)][
            : 2 + others
        ]
    }
    for pool in pools.values():
        conditions = [json.dumps(one) for one in rung_conditions([pool], pools)]
        assert conditions
        assert len(conditions) == len(set(conditions))
