"""Each check finds its fault in nodes modelled on what the clouds return, and is silent where the fault is not there."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests import plain_yaml
from tests.pools.checked_pools import (
    GPU_TOLERATION,
    NODES,
    PLACED,
    POOLS,
    SPOT_TOLERATION,
    aks,
    config_of,
    daemon_set,
    errors,
    found,
    job,
    with_plugin,
)

from spotwright import config as configuration
from spotwright.clouds.node_signs import REMOVED_TAINTS
from spotwright.pools.checks import check
from spotwright.pools.cluster_inventory import Objects, PodWork, ground_of, pod_works, read_objects


def spot_node(data: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = data["items"][1]
    return node


def test_nodes_as_configured_have_no_finding() -> None:
    assert found(with_plugin(aks()), PLACED) == {}


def test_a_taint_that_the_configuration_does_not_know_is_an_error() -> None:
    data = aks()
    spot_node(data)["spec"]["taints"].append({"key": "team", "value": "a", "effect": "NoExecute"})
    finding = found(data)["taint-no-work-tolerates"]
    assert finding.where == "pool gpuspot"
    assert 'taints: ["team=a:NoExecute"]' in finding.fix


def test_a_taint_of_the_node_that_passes_is_no_finding() -> None:
    data = with_plugin(aks())
    for key in ("node.kubernetes.io/not-ready", "ebs.csi.aws.com/agent-not-ready", *REMOVED_TAINTS):
        spot_node(data)["spec"]["taints"].append({"key": key, "effect": "NoSchedule"})
    assert errors(data) == set()


def test_a_configured_taint_that_no_node_has_is_a_warning() -> None:
    data = aks()
    spot_node(data)["spec"]["taints"].pop()
    assert found(data)["taint-missing"].severity == "warning"


def test_work_that_tolerates_no_taint_of_the_pool_does_not_land_there() -> None:
    codes = found(with_plugin(aks()), job(nodeSelector={"gpu": "true"}))
    assert "does not tolerate the taint" in codes["work-lands-nowhere"].text
    assert codes["taint-no-work-tolerates"].severity == "error"


def test_a_label_that_nodes_lack_is_one_that_no_selector_can_match() -> None:
    data = aks()
    spot_node(data)["metadata"]["labels"]["gpu"] = "“true”"
    finding = found(data)["label-no-selector-can-match"]
    assert "gpu=true (there is gpu=“true”)" in finding.text


def test_the_name_that_aks_made_of_the_pools_name_still_finds_its_nodes() -> None:
    pools = {"gpu-spot": copy.deepcopy(POOLS["gpuspot"]), "agentpool": POOLS["agentpool"]}
    config = configuration.from_mapping({"version": 1, "pools": pools})
    text = found(aks(), config=config)["label-no-selector-can-match"].text
    assert "kubernetes.azure.com/agentpool=gpu-spot (there is kubernetes.azure.com/agentpool=gpuspot)" in text


def test_a_machine_with_gpus_that_offers_none_is_an_error() -> None:
    data = aks()
    del spot_node(data)["status"]["allocatable"]["nvidia.com/gpu"]
    assert "aks-gpuspot-22222222-vmss000003" in found(data)["gpu-not-allocatable"].text


def test_a_part_of_a_gpu_is_offered_too() -> None:
    data = aks()
    del spot_node(data)["status"]["allocatable"]["nvidia.com/gpu"]
    spot_node(data)["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "7"
    assert "gpu-not-allocatable" not in found(data)


def test_another_machine_or_the_label_of_a_zone_is_no_finding() -> None:
    data = with_plugin(aks())
    spot_node(data)["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "Standard_NC12s_v3"
    assert found(data, config=config_of(zones=["1"], region="eastus")) == {}


def test_a_zone_of_aks_without_its_region_is_told_with_the_region_of_the_nodes() -> None:
    finding = found(with_plugin(aks()), config=config_of(zones=["1"]))["zone-without-region"]
    assert finding.severity == "note"
    assert finding.fix == "set region: eastus in spotwright.yaml"


def test_nodes_in_a_zone_that_the_pool_does_not_have_are_a_warning() -> None:
    finding = found(with_plugin(aks()), config=config_of(zones=["2", "3"], region="eastus"))["zone-not-configured"]
    assert "vmss000003 is labelled eastus-1" in finding.text
    assert "eastus-2, eastus-3" in finding.text


@pytest.mark.parametrize(("zone", "lands"), [("eastus-2", True), ("eastus-3", False), ("2", False)])
def test_work_for_a_zone_lands_in_an_empty_pool_that_has_it(zone: str, lands: bool) -> None:  # a parameter
    data = with_plugin(aks())
    data["items"] = [item for item in data["items"] if "gpuspot" not in str(item["metadata"])]
    work = copy.deepcopy(PLACED)
    work["spec"]["template"]["spec"]["nodeSelector"]["topology.kubernetes.io/zone"] = zone
    codes = errors(data, work, config=config_of(zones=["1", "2"], region="eastus"))
    assert ("work-lands-nowhere" not in codes) is lands


def test_fewer_gpus_than_configured_are_a_warning() -> None:
    config = config_of(node={"cpu": 6, "memory": "112Gi", "nvidia.com/gpu": 2})
    assert found(aks(), config=config)["gpu-fewer-than-configured"].severity == "warning"


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("nvidia-device-plugin", "error"),
        ("nvidia-driver-installer", "error"),
        ("fluent-bit", "warning"),
        ("promtail", "warning"),
    ],
)
def test_a_daemon_set_that_does_not_tolerate_the_pool_is_found(name: str, severity: str) -> None:
    data = aks()
    data["items"].append(daemon_set(name, GPU_TOLERATION))
    finding = found(data)["daemonset-does-not-tolerate"]
    assert (finding.severity, finding.where) == (severity, "pool gpuspot")
    assert "kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in finding.text


def test_a_daemon_set_that_tolerates_everything_or_is_of_another_sort_is_no_finding() -> None:
    assert errors(with_plugin(aks(), daemon_set("fluent-bit", {"operator": "Exists"}), daemon_set("kured"))) == set()


def test_a_second_device_plugin_for_other_machines_is_no_finding() -> None:
    other = daemon_set("nvidia-device-plugin-large", {"operator": "Exists"}, nodeSelector={"size": "large"})
    assert errors(with_plugin(aks(), other)) == set()


def test_gpu_pools_without_any_device_plugin_are_found() -> None:
    data = aks()
    data["items"].append(daemon_set("kured", {"operator": "Exists"}))
    assert "device-plugin-missing" in errors(data)


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "gpu.intel.com/i915"])
def test_parts_of_gpus_and_gpus_of_intel_need_a_device_plugin_too(resource: str) -> None:
    data = aks()
    data["items"].append(daemon_set("kured", {"operator": "Exists"}))
    spot_node(data)["status"]["allocatable"][resource] = "2"
    assert "device-plugin-missing" in errors(data, config=config_of(node={resource: 2}))


@pytest.mark.parametrize(
    ("key", "code", "severity"),
    [
        ("remediator.kubernetes.azure.com/unschedulable", "eviction-leftover", "error"),
        ("remediator.aks.microsoft.com/unschedulable", "eviction-leftover", "error"),
        ("node.cloudprovider.kubernetes.io/shutdown", "machine-is-gone", "warning"),
        ("node.kubernetes.io/unreachable", "node-unreachable", "warning"),
    ],
)
def test_what_an_eviction_leaves_on_a_node_is_found(key: str, code: str, severity: str) -> None:
    data = aks()
    spot_node(data)["spec"]["taints"].append({"key": key, "effect": "NoSchedule"})
    codes = found(data)
    assert codes[code].severity == severity
    assert "taint-no-work-tolerates" not in codes


def test_a_label_that_comes_after_boot_is_not_known_at_zero_nodes() -> None:
    labels = {"gpu": "true", "nvidia.com/gpu.product": "Tesla-V100"}
    data = aks()
    spot_node(data)["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-V100"
    assert "label-unknown-at-zero" in errors(data, config=config_of(labels=labels))
    assert "label-unknown-at-zero" not in errors(data, config=config_of(labels=labels, min_nodes=1))


def test_a_selector_of_such_a_label_waits_for_ever() -> None:
    data = aks()
    spot_node(data)["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-V100"
    work = job(SPOT_TOLERATION, GPU_TOLERATION, nodeSelector={"nvidia.com/gpu.product": "Tesla-V100"})
    assert "selector-unknown-at-zero" in errors(data, work)
    assert "selector-unknown-at-zero" not in errors(data, work, config=config_of(min_nodes=1))


def test_templates_of_an_argo_workflow_inherit_nothing_that_they_replace() -> None:
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"generateName": "w-"},
        "spec": {
            "tolerations": [SPOT_TOLERATION, GPU_TOLERATION],
            "templates": [
                {"name": "a", "container": {"image": "b"}},
                {"name": "c", "container": {"image": "b"}, "tolerations": [GPU_TOLERATION]},
                {"name": "d", "nodeSelector": {"e": "f"}, "steps": [[{"name": "g", "template": "h"}]]},
                {"name": "h", "container": {"image": "b"}},
            ],
        },
    }
    first, second, third = (
        one for one in pod_works(workflow, "w.yaml", configuration.built_in()) if isinstance(one, PodWork)
    )
    assert len(first.constraints.tolerations) == 2
    assert len(second.constraints.tolerations) == 1
    assert (len(third.constraints.tolerations), third.constraints.selector) == (2, {"e": "f"})


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("nodeSelector", "gpu", "spec.template.spec.nodeSelector: expected a mapping, found 'gpu'"),
        ("tolerations", ["x"], "spec.template.spec.tolerations[0]: expected a mapping, found 'x'"),
        (
            "containers",
            [{"name": "a", "resources": {"requests": {"cpu": "two"}}}],
            "spec.template.spec.containers[0].resources.requests.cpu: 'two' is not a quantity",
        ),
        ("containers", [{"name": "a"}, "b"], "spec.template.spec.containers[1]: expected a mapping, found 'b'"),
        (
            "affinity",
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": "x"}}},
            "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: ",
        ),
    ],
)
def test_a_pod_that_cannot_be_read_is_found_with_its_field(field: str, value: Any, text: str) -> None:
    finding = found(with_plugin(aks()), job(**{field: value}))["pod-not-readable"]
    assert (finding.severity, finding.where) == ("error", "work.yaml: Job train")
    assert text in finding.text


def test_a_daemon_set_of_the_cluster_that_cannot_be_read_is_found_too() -> None:
    assert (
        found(with_plugin(aks(), daemon_set("kured", nodeSelector=["a"])))["pod-not-readable"].where
        == "DaemonSet kured"
    )


def test_a_field_that_a_template_has_from_its_workflow_is_found_where_it_stands() -> None:
    templates = [{"name": "a", "container": {"image": "b", "resources": {"limits": {"cpu": "x"}}}}]
    workflow: dict[str, Any] = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}}
    workflow["spec"] = {"templates": templates}
    assert found(aks(), workflow)["pod-not-readable"].text.startswith(
        "spec.templates[0].container.resources.limits.cpu: "
    )
    workflow["spec"] = {"tolerations": "x", "templates": [{"name": "a", "script": {"image": "b"}}]}
    assert found(aks(), workflow)["pod-not-readable"].text.startswith("spec.tolerations: expected a list")


def test_eks_needs_hints_at_zero_and_its_gpu_node_offers_no_gpu() -> None:
    pools = {
        "gpu-spot": {
            "capacity": "spot",
            "provider": "eks",
            "machine": "g4dn.xlarge",
            "node": {"nvidia.com/gpu": 1},
            "labels": {"gpu": "true"},
            "taints": ["spot=true:NoSchedule", "nvidia.com/gpu:NoSchedule"],
        },
        "main": {"capacity": "on-demand", "provider": "eks", "machine": "m5.xlarge"},
    }
    codes = found(json.loads((NODES / "eks.json").read_text()), config=configuration.from_mapping({"pools": pools}))
    assert set(codes) == {"hints-at-zero", "gpu-not-allocatable"}


def test_five_thousand_nodes_are_checked_within_seconds() -> None:
    import time

    data = aks()
    data["items"] = [copy.deepcopy(spot_node(data)) for _ in range(5000)]
    for number, node in enumerate(data["items"]):
        node["metadata"]["name"] = f"n{number}"
    started = time.process_time()
    del data["items"][7]["status"]["allocatable"]["nvidia.com/gpu"]
    assert "n7:" in found(data)["gpu-not-allocatable"].text
    assert time.process_time() - started < 10


def test_the_findings_are_ordered_errors_first() -> None:
    data = aks()
    spot_node(data)["metadata"]["labels"].pop("gpu")
    order = ["error", "warning", "note"]
    spot_node(data)["spec"]["taints"].pop()
    findings = list(found(data, config=config_of(min_nodes=0)).values())
    assert len({one.severity for one in findings}) > 1, findings
    assert [order.index(one.severity) for one in findings] == sorted(order.index(one.severity) for one in findings)


def test_objects_may_be_yaml_too() -> None:
    assert len(read_objects(plain_yaml.dump(aks()), "nodes.yaml").nodes) == 2


@pytest.mark.parametrize(("argo", "selector"), [("3.5.0", {"level": "workflow"}), ("3.6.0", {"level": "caller"})])
def test_a_step_inherits_the_selector_that_the_configured_version_of_argo_hands_down(
    argo: str, selector: dict[str, str]
) -> None:
    main = {"name": "main", "nodeSelector": {"level": "caller"}, "steps": [[{"name": "a", "template": "code"}]]}
    called = {"name": "code", "container": {"image": "i"}}
    spec = {"entrypoint": "main", "nodeSelector": {"level": "workflow"}, "templates": [main, called]}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec}
    config = configuration.from_mapping({"target": {"argo": argo}})
    [work] = pod_works(workflow, "w.yaml", config)
    assert isinstance(work, PodWork)
    assert work.constraints.selector == selector


def test_work_that_asks_for_gpus_lands_on_gke_whose_taint_the_cluster_tolerates_for_it() -> None:
    pools = {"gpu": {"capacity": "spot", "provider": "gke", "node": {"cpu": 8, "memory": "30Gi", "nvidia.com/gpu": 1}}}
    config = configuration.from_mapping({"pools": pools})
    limits = {"cpu": 1, "nvidia.com/gpu": 1}

    def codes(limits: dict[str, int]) -> set[str]:
        pod = {"containers": [{"name": "a", "image": "b", "resources": {"limits": limits}}]}
        work = list(
            pod_works({"kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {"spec": pod}}}, "a.yaml", config)
        )
        return {one.code for one in check(ground_of(config, Objects(), work))}

    landing = {"work-lands-nowhere", "taint-no-work-tolerates"}
    assert codes(limits) & landing == set()
    assert codes({"cpu": 1}) & landing == {"work-lands-nowhere"}


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ({}, "spotwright place adds the tolerations"),
        ({"nodeSelector": {"team": "nobody"}}, "correct what it asks of nodes"),
        ({"containers": [{"name": "a", "resources": {"requests": {"memory": "9Ti"}}}]}, "make a pool of larger nodes"),
    ],
)
def test_work_that_lands_nowhere_is_sent_to_place_only_where_place_helps(spec: dict[str, Any], advice: str) -> None:
    config = configuration.parse(
        "version: 1\npools:\n  spot: {capacity: spot, provider: aks, node: {cpu: 4, memory: 16Gi, nvidia.com/gpu: 1}}\n"
        "policy: {default: {spot: prefer}}\n"
    )
    assert found({"kind": "List", "items": []}, job(**spec), config=config)["work-lands-nowhere"].fix.startswith(advice)


def test_work_that_a_custom_taint_keeps_out_is_sent_to_a_ladder() -> None:
    config = configuration.parse(
        'version: 1\npools:\n  own: {capacity: spot, provider: aks, taints: ["team=a:NoSchedule"]}\n'
        "policy: {default: {spot: prefer}}\n"
    )
    codes = found({"kind": "List", "items": []}, job(), config=config)
    assert codes["work-lands-nowhere"].fix.startswith("name own in the ladder of its policy")
