"""Pools that a provider makes by itself have no names that anybody knows, so work is led there by the capacity alone."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, assert_unplaces, at_path

from spotwright import config
from spotwright.clouds import providers
from spotwright.errors import ConfigError, InputError
from spotwright.kinds.kueue import QueueOptions, queue_lines
from spotwright.manifests.files import place_text
from spotwright.pools.catalogue import script
from spotwright.pools.generic import compute_class_lines
from spotwright.pools.request import Request

GPU = "node: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 1}, labels: {cloud.google.com/gke-accelerator: nvidia-l4}"
SPOT_LABEL = "cloud.google.com/gke-spot"
ON_SPOT = {"key": SPOT_LABEL, "operator": "In", "values": ["true"]}
OFF_SPOT = {"key": SPOT_LABEL, "operator": "NotIn", "values": ["true"]}


def a_config(policy: str, provider: str = "gke, automatic: true", more: str = "") -> config.Config:
    return config.parse(f"""\
version: 1
pools:
  nap: {{capacity: on-demand, provider: {provider}}}
  nap-spot: {{capacity: spot, provider: {provider}}}
{more}policy: {{default: {{{policy}}}}}
""")


def with_gpus(policy: str) -> config.Config:
    return a_config(policy, more=f"  nap-l4-spot: {{capacity: spot, provider: gke, automatic: true, {GPU}}}\n")


def a_job(limits: str = "{}", labels: str = "{}") -> str:
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: train, labels: {labels}}}\nspec:\n  template:\n    spec:\n"
        f"      restartPolicy: Never\n      containers: [{{name: main, image: python, resources: {{limits: {limits}}}}}]\n"
    )


def pod_of(settings: config.Config, text: str | None = None) -> dict[str, Any]:
    placed = place_text(text or a_job(), FILE, settings)
    assert_unplaces(text or a_job(), placed.text)
    pod: dict[str, Any] = at_path(plain_yaml.load(placed.text), "spec.template.spec")
    return pod


def required(pod: dict[str, Any]) -> list[Any]:
    path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions"
    return at_path(pod, path) or []


@pytest.mark.parametrize("provider", ["gke, automatic: true", "gke"])
def test_work_that_must_not_be_on_spot_is_kept_off_by_the_capacity(provider: str) -> None:
    """GKE may make pools beside those that people make, so this holds for every pool of GKE."""
    assert required(pod_of(a_config("spot: never", provider))) == [OFF_SPOT]
    assert required(pod_of(a_config("spot: require", provider))) == [ON_SPOT]


def test_gke_taints_the_spot_pools_that_it_makes_by_itself_and_no_others() -> None:
    automatic, by_hand = (a_config("spot: require", provider) for provider in ("gke, automatic: true", "gke"))

    assert [str(one) for one in providers.taints(automatic.pools["nap-spot"])] == [f"{SPOT_LABEL}=true:NoSchedule"]
    assert providers.taints(by_hand.pools["nap-spot"]) == ()
    assert [one["key"] for one in pod_of(automatic)["tolerations"]] == [SPOT_LABEL]


@pytest.mark.parametrize(
    ("spot", "ladder", "limits"),
    [
        *product(("prefer", "require", "never"), ("", ", ladder: [nap-spot, nap]"), ("{}", "{cpu: 1}")),
        ("require", ", ladder: [nap-l4-spot]", "{nvidia.com/gpu: 1}"),
        ("prefer", "", "{nvidia.com/gpu: 1}"),
    ],
)
@pytest.mark.parametrize("labels", ["{}", "{kueue.x-k8s.io/queue-name: team}"])
def test_no_condition_names_a_pool(spot: str, ladder: str, limits: str, labels: str) -> None:
    pod = pod_of(with_gpus(f"spot: {spot}{ladder}"), a_job(limits, labels))

    assert not any(name in json.dumps(pod.get("affinity")) for name in ("nodepool", "nap"))


def test_a_ladder_excludes_the_others_by_the_labels_that_they_have() -> None:
    pod = pod_of(with_gpus("spot: require, ladder: [nap-spot]"))

    assert required(pod) == [
        {"key": "cloud.google.com/gke-accelerator", "operator": "NotIn", "values": ["nvidia-l4"]},
        ON_SPOT,
    ]


def test_a_ladder_over_pools_that_nothing_tells_apart_is_refused() -> None:
    twin = "  twin: {capacity: spot, provider: gke, automatic: true}\n"

    with pytest.raises(ConfigError, match="no label distinguishes the pools nap-spot from the others"):
        pod_of(a_config("spot: require, ladder: [nap-spot]", more=twin))


@pytest.mark.parametrize(("spot", "values"), [("never", ["on-demand"]), ("require", ["spot"])])
def test_pools_of_karpenter_are_told_apart_by_their_capacity(spot: str, values: list[str]) -> None:
    settings = a_config(f"spot: {spot}, ladder: [nap-spot, nap]", "karpenter, automatic: true")

    assert required(pod_of(settings)) == [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": values}]


def test_flavors_of_kueue_have_no_name_of_a_pool() -> None:
    lines = "\n".join(queue_lines(a_config("spot: prefer").pools, QueueOptions()))
    flavors = [one for one in plain_yaml.load_all(lines) if one["kind"] == "ResourceFlavor"]

    assert [one["spec"].get("nodeLabels") for one in flavors] == [{SPOT_LABEL: "true"}, None]


def test_a_node_of_a_pool_that_gke_made_belongs_to_the_pool_of_its_capacity() -> None:
    by_hand = "  default-pool: {capacity: on-demand, provider: gke}\n"
    pools = a_config("spot: prefer", more=by_hand).pools
    node = {"cloud.google.com/gke-nodepool": "nap-e2-standard-4-a1b2", "cloud.google.com/gke-provisioning": "standard"}

    assert providers.pool_of(node, pools) is pools["nap"]
    assert providers.pool_of({**node, "cloud.google.com/gke-nodepool": "default-pool"}, pools) is pools["default-pool"]


@pytest.mark.parametrize("provider", ["aks", "eks", "generic"])
def test_only_gke_and_karpenter_make_pools_by_themselves(provider: str) -> None:
    with pytest.raises(ConfigError, match="EKS Auto Mode and AKS node auto-provisioning are provider: karpenter"):
        a_config("spot: prefer", f"{provider}, automatic: true")


@pytest.mark.parametrize("value", ["yes please", "'true'", "1"])
def test_the_setting_is_true_or_false(value: str) -> None:
    with pytest.raises(ConfigError, match="automatic: expected true or false"):
        a_config("spot: prefer", f"gke, automatic: {value}")


def test_there_is_no_command_for_a_pool_that_its_provider_makes() -> None:
    pools = a_config("spot: prefer").pools

    with pytest.raises(InputError, match="its provider makes it by itself, without a command"):
        script(Request(pools["nap"], pools, "USD", ()))


def test_a_compute_class_says_what_machines_gke_is_to_make() -> None:
    more = "  big: {capacity: spot, provider: gke, machine: n2-standard-16}\n"
    pools = {**with_gpus("spot: prefer").pools, **a_config("spot: prefer", more=more).pools}
    text = "\n".join(compute_class_lines(pools))

    assert plain_yaml.load(text)["spec"]["priorities"] == [
        {"spot": True},
        {"nodepools": ["big"]},
        {"spot": True, "gpu": {"type": "nvidia-l4", "count": 1}},
        {"spot": False},
    ]
    assert "nodePoolAutoCreation: {enabled: true}" in text
    assert "make these pools again with it (big)" in text
