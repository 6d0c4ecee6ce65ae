"""``pools import`` and ``pools check`` read what kubectl wrote, and refuse everything else with one clear message."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml

from spotwright import config as configuration
from spotwright.cli import cli

NODES = Path(__file__).parent.parent / "pools" / "nodes"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["pools", *arguments], input=stdin, standalone_mode=False)


def imported(text: str) -> dict[str, Any]:
    result = run("import", "-", stdin=text)
    assert result.exception is None, result.exception
    pools: dict[str, Any] = plain_yaml.load(result.stdout)["pools"]
    return pools


def node(name: str = "n1", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


@pytest.mark.parametrize(
    ("cloud", "pools"),
    [
        ("aks", {"agentpool": ("aks", "on-demand"), "gpuspot": ("aks", "spot")}),
        ("gke", {"t4-spot": ("gke", "spot"), "old": ("generic", "spot")}),
        ("eks", {"gpu-spot": ("eks", "spot"), "main": ("eks", "on-demand")}),
        (
            "oke",
            {
                "other-nodes-on-demand": ("oke", "on-demand"),
                "other-nodes-spot": ("oke", "spot"),
                "other-nodes-spot-gpu": ("oke", "spot"),
            },
        ),
    ],
)
def test_the_pools_of_each_cloud_are_read_off_its_nodes(cloud: str, pools: dict[str, tuple[str, str]]) -> None:
    found = imported((NODES / f"{cloud}.json").read_text())
    assert {name: (one.get("provider", "generic"), one["capacity"]) for name, one in found.items()} == pools
    configuration.from_mapping({"version": 1, "pools": found})


def test_labels_that_people_set_are_kept_for_selectors() -> None:
    assert imported((NODES / "aks.json").read_text())["gpuspot"]["labels"] == {"gpu": "true"}


@pytest.mark.parametrize(
    ("cloud", "said"), [("aks", "nodes: 2, 2 of them in 2 of 2 pools"), ("oke", "nodes: 4, 4 of them in 3 of 3 pools")]
)
def test_what_import_prints_check_accepts(folder: Path, cloud: str, said: str) -> None:
    result = run("import", str(NODES / f"{cloud}.json"))
    (folder / "spotwright.yaml").write_text(result.stdout)
    checked = run("check", str(NODES / f"{cloud}.json"))
    assert checked.exception is None
    assert checked.return_value == 0, checked.stdout
    assert f"{said}; DaemonSets: 0; pod templates: 0; errors: 0" in checked.stdout


def test_labels_of_the_past_are_named_with_the_form_of_today() -> None:
    text = run("import", str(NODES / "gke.json")).stdout
    assert "# cloud.google.com/gke-preemptible: preemptible VMs live 24 hours at most; Spot VMs" in text
    low = node(labels={"agentpool": "lp", "kubernetes.azure.com/scalesetpriority": "low"})
    text = run("import", "-", stdin=json.dumps(low)).stdout
    assert "low-priority VMs became Spot VMs" in text
    assert "nodes of aks-engine, which is retired" in text
    assert plain_yaml.load(text)["pools"]["lp"]["capacity"] == "spot"


def test_an_unmanaged_group_of_aws_is_spot_by_its_lifecycle_label() -> None:
    labels = {"alpha.eksctl.io/nodegroup-name": "batch", "node-lifecycle": "spot"}
    assert imported(json.dumps(node(labels=labels)))["batch"]["capacity"] == "spot"


def test_an_api_model_of_aks_engine_becomes_pools_of_aks() -> None:
    profiles = [
        {"name": "general", "count": 1, "vmSize": "Standard_D4s_v3", "customNodeLabels": {"general": "true"}},
        {
            "name": "gpuLowPriority",
            "count": 1,
            "vmSize": "Standard_NC6s_v3",
            "scaleSetPriority": "Low",
            "scaleSetEvictionPolicy": "Delete",
            "singlePlacementGroup": False,
            "vnetSubnetId": "/subscriptions/1/x",
            "customNodeLabels": {"gpu": "true"},
        },
    ]
    addons = [{"name": "cluster-autoscaler", "enabled": True, "config": {"min-nodes": "0", "max-nodes": "20"}}]
    model = {
        "apiVersion": "vlabs",
        "properties": {
            "orchestratorProfile": {"kubernetesConfig": {"addons": addons}},
            "agentPoolProfiles": profiles,
        },
    }
    result = run("import", "-", stdin=json.dumps(model))
    pools = plain_yaml.load(result.stdout)["pools"]
    assert pools["gpulowpriori"] == {
        "capacity": "spot",
        "provider": "aks",
        "machine": "Standard_NC6s_v3",
        "max_nodes": 20,
        "labels": {"gpu": "true"},
        "create_flags": {"vnet-subnet-id": "/subscriptions/1/x"},
    }
    assert "low-priority VMs became Spot VMs" in result.stdout
    assert "AKS makes several placement groups by itself" in result.stdout
    configuration.from_mapping({"version": 1, "pools": pools})


def test_a_cloud_that_is_not_known_is_named() -> None:
    text = run("import", "-", stdin=json.dumps(node(providerID="hcloud://1234"))).stdout
    assert "# providerID hcloud://: a cloud that Spotwright does not know" in text
    assert plain_yaml.load(text)["pools"]["other-nodes"]["capacity"] == "on-demand"


def test_thousands_of_nodes_are_one_pool_that_has_room_for_them() -> None:
    labels = {"eks.amazonaws.com/nodegroup": "batch", "eks.amazonaws.com/capacityType": "SPOT"}
    many = {"kind": "List", "items": [node(f"n{number}", labels) for number in range(3000)]}
    found = imported(json.dumps(many))
    assert found["batch"]["max_nodes"] == 3000


def test_hundreds_of_classes_take_no_time_to_be_told_apart() -> None:
    items = [node(f"n{number}", {"class": f"c{number // 2}"}) for number in range(1500)]
    text = json.dumps({"kind": "List", "items": items})
    start = time.process_time()
    assert len(imported(text)) == 750
    assert time.process_time() - start < 5  # 0.4 s; each class against each other took 12 s


def test_what_else_is_in_the_file_is_said() -> None:
    others = [{"kind": "Pod"}, {"kind": "Pod"}, {"kind": "Widget"}, {"name": "p", "vmSize": "D2"}]
    text = json.dumps({"kind": "List", "items": [node(), *others]})
    printed = run("import", "-", stdin=text).stdout
    assert "# Left out, because no pool can be read off it: 2 Pod, 1 Widget." in printed
    assert "# Left out a list of node pools, because nodes stand beside it." in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input: the file is empty"),
        ("{", "standard input:1: not valid JSON"),
        ("a: [", "standard input:2: not valid YAML"),
        ("just words", "expected objects of Kubernetes, found a text"),
        ('{"kind": "List", "items": []}', "expected nodes, found a List without items"),
        ('{"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Pod"}]}', "expected nodes, found 2 Pod"),
        ('{"kind": "List", "items": 3}', "expected objects of Kubernetes"),
        ('{"a": 1}', "expected nodes, found 1 object without a kind"),
        ('{"kind": "Node"}', "node 1: metadata.name is missing"),
        ('{"kind": "Node", "metadata": {"name": "a", "labels": []}}', "node 1: metadata.labels: expected a mapping"),
        ('{"kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": {}}}', "node 1: spec.taints: expected a list"),
        ('{"apiVersion": "vlabs", "properties": {}}', "whose agentPoolProfiles are not a list"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_nodes_is_refused_with_what_was_found(text: str, message: str) -> None:
    error = str(run("import", "-", stdin=text).exception)
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_file_that_is_not_there_is_named() -> None:
    assert "nodes.json: cannot be read: No such file or directory" in str(run("import", "nodes.json").exception)
    assert "name a file of nodes" in str(run("import").exception)


CONFIG = """\
version: 1
pools:
  agentpool: {capacity: on-demand, provider: aks, machine: Standard_D4s_v3}
  gpuspot: {capacity: spot, provider: aks, machine: Standard_NC6s_v3, labels: {gpu: "true"}}
"""


def test_check_ends_with_one_on_errors_and_names_the_fix(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG)
    result = run("check", str(NODES / "aks.json"))
    assert result.return_value == 1
    assert "error: pool gpuspot: the taint sku=gpu:NoSchedule on aks-gpuspot" in result.stdout
    assert '  add taints: ["sku=gpu:NoSchedule"] to the pool' in result.stdout
    [finding, *_] = json.loads(run("check", str(NODES / "aks.json"), "--json").stdout)["findings"]
    assert (finding["code"], finding["severity"]) == ("taint-no-work-tolerates", "error")


def test_settings_of_a_kubelet_that_cannot_be_read_are_refused_with_their_place(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG)
    (folder / "kubelet.yaml").write_text("kubeletconfig: {shutdownGracePeriod: soon}\n")
    refused = str(run("check", str(NODES / "aks.json"), "kubelet.yaml").exception)
    assert (
        refused == "kubelet.yaml: kubelet 1: shutdownGracePeriod: expected a duration such as 30s, found a text (soon)"
    )


def test_check_reads_work_and_the_settings_of_a_kubelet(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace('"true"}', '"true"}, taints: ["sku=gpu:NoSchedule"]'))
    (folder / "job.yaml").write_text(
        "kind: Job\nmetadata: {name: train}\nspec: {template: {spec: {nodeSelector: {gpu: 'yes'}, containers: [{image: a}]}}}\n"
    )
    (folder / "kubelet.yaml").write_text("kind: KubeletConfiguration\nshutdownGracePeriod: 2m\n")
    result = run("check", str(NODES / "aks.json"), "job.yaml", "kubelet.yaml")
    assert (
        "error: job.yaml: Job train: no pool admits it: agentpool: its node selector asks for gpu=yes" in result.stdout
    )
    assert "[kubelet-shutdown-longer-than-notice]" in result.stdout


def test_a_manifest_without_pods_is_refused(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG)
    (folder / "service.yaml").write_text("kind: Service\nmetadata: {name: a}\n")
    assert "service.yaml: neither pods nor settings" in str(
        run("check", str(NODES / "aks.json"), "service.yaml").exception
    )


FITTING = """\
kind: Job
metadata: {name: fits}
spec: {template: {spec: {containers: [{image: a}]}}}
"""


def test_check_goes_on_after_a_manifest_that_cannot_be_read(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace('"true"}', '"true"}, taints: ["sku=gpu:NoSchedule"]'))
    (folder / "service.yaml").write_text("kind: Service\nmetadata: {name: a}\n")
    (folder / "chart.yaml").write_text("kind: Job\nspec: {{ .Values.spec }}\n  x: [\n")
    (folder / "selects.yaml").write_text(
        FITTING.replace("spec: {containers", "spec: {nodeSelector: {a: b}, containers")
    )
    (folder / "fits.yaml").write_text(FITTING)
    manifests = ("service.yaml", "chart.yaml", "missing.yaml", "selects.yaml", "fits.yaml")
    result = run("check", str(NODES / "aks.json"), *manifests)
    assert result.return_value == 1
    assert "error: service.yaml: neither pods nor settings of a kubelet are in it" in result.stdout
    assert "error: chart.yaml:" in result.stdout
    assert "error: missing.yaml: cannot be read: No such file" in result.stdout
    assert result.stdout.count("[manifest-not-readable]") == 3
    assert "error: selects.yaml: Job fits: no pool admits it" in result.stdout
    assert "pod templates: 2; errors: 4" in result.stdout
    refused = str(run("check", str(NODES / "aks.json"), "service.yaml", "missing.yaml").exception)
    assert len(refused.splitlines()) == 2


def test_a_cpu_manifest_is_not_blamed_for_the_taints_of_gpu_pools(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace('"true"}', '"true"}, taints: ["sku=gpu:NoSchedule"]'))
    (folder / "cpu.yaml").write_text(FITTING)
    result = run("check", str(NODES / "aks.json"), "cpu.yaml")
    assert result.return_value == 0, result.stdout
    limits = "{image: a, resources: {limits: {nvidia.com/gpu: 1}}}"
    (folder / "gpu.yaml").write_text(FITTING.replace("{image: a}", limits))
    result = run("check", str(NODES / "aks.json"), "cpu.yaml", "gpu.yaml")
    assert "none of the 1 pod templates that fit there tolerates the taint sku=gpu:NoSchedule" in result.stdout


def test_the_listed_pools_and_the_unknown_capacity_are_said(folder: Path) -> None:
    eksctl = {"Cluster": "c", "Name": "ng", "InstanceType": "m5.large", "MaxSize": 4, "MinSize": 0, "Type": "managed"}
    result = run("import", "-", stdin=json.dumps([eksctl]))
    assert result.stdout.startswith("# Read from -, node pools as described by eksctl.")
    assert plain_yaml.load(result.stdout)["pools"]["ng"]["max_nodes"] == 4
    assert result.stderr.startswith("warning: pool ng: capacity unknown")
    (folder / "spotwright.yaml").write_text(CONFIG)
    refused = str(run("check", "-", stdin=json.dumps([eksctl])).exception)
    assert "expected nodes, found a list of node pools, which pools import reads" in refused


def test_nodes_that_are_left_out_and_unknown_capacities_stand_above_the_pools() -> None:
    control = node("c1", {"node-role.kubernetes.io/control-plane": ""})
    items = [control, node("w1", {"kops.k8s.io/instancegroup": "nodes"})]
    result = run("import", "-", stdin=json.dumps({"kind": "List", "items": items}))
    assert "# Left out, because they are the control plane: c1." in result.stdout
    assert "    # capacity unknown; assumed on-demand" in result.stdout
    assert result.stderr.startswith("warning: pool nodes: capacity unknown")
    tainted = node("c1", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}])
    refused = str(run("import", "-", stdin=json.dumps(tainted)).exception)
    assert "none of the 1 nodes is one to place work on" in refused


def test_a_nodepool_of_both_capacities_is_made_as_one_object_again(folder: Path) -> None:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    made = {"requirements": [requirement], "nodeClassRef": reference}
    node_pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"limits": {"cpu": 100}, "template": {"spec": made}},
    }
    (folder / "spotwright.yaml").write_text(run("import", "-", stdin=json.dumps(node_pool)).stdout)
    texts = [run("command", f"general-{capacity}").stdout for capacity in ("spot", "on-demand")]
    assert plain_yaml.load(texts[0]) == plain_yaml.load(texts[1])
    spec = plain_yaml.load(texts[0])["spec"]
    assert spec["template"]["spec"]["nodeClassRef"] == reference
    assert sorted(spec["template"]["spec"]["requirements"][0]["values"]) == ["on-demand", "spot"]
    assert spec["limits"] == {"cpu": 100}


ORDERED = """\
version: 1
pools:
  cpuspot: {capacity: spot, provider: aks}
  cpu: {capacity: on-demand, provider: aks, min_nodes: 1}
"""
STATUS_TEXT = json.dumps({"nodeGroups": [{"name": f"aks-{one}-12345678-vmss"} for one in ("cpuspot", "cpu")]})


def config_map(name: str, key: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text}}


STATUS_MAP = config_map("cluster-autoscaler-status", "status", STATUS_TEXT)
EQUAL_MAP = config_map("cluster-autoscaler-priority-expander", "priorities", "10:\n- .*\n")


def listed(*items: dict[str, Any], kind: str = "List") -> str:
    return json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": ""}, "items": list(items)})


@pytest.mark.parametrize(
    "text", [listed(), listed(kind="NodeList"), "[]", "apiVersion: v1\nitems: []\nkind: List\nmetadata: {}\n"]
)
def test_a_cluster_without_nodes_is_checked(folder: Path, text: str) -> None:
    (folder / "spotwright.yaml").write_text(ORDERED)
    result = run("check", "-", stdin=text)
    assert result.exception is None, result.exception
    assert "nodes: 0, 0 of them in 0 of 2 pools" in result.stdout
    assert "pool cpu: min_nodes is 1, and no node has the pool's labels" in result.stdout
    assert "no nodes were given" not in result.stdout


@pytest.mark.parametrize(
    "text",
    [
        listed(STATUS_MAP, EQUAL_MAP),
        listed(STATUS_MAP, EQUAL_MAP, kind="ConfigMapList"),
        listed(config_map("coredns", "a", "b"), STATUS_MAP, EQUAL_MAP),
        f"{json.dumps(STATUS_MAP)}\n---\n{json.dumps(EQUAL_MAP)}\n",
        f"# two documents\n{json.dumps(EQUAL_MAP)}\n---\n{json.dumps(STATUS_MAP)}\n---\n",
    ],
)
def test_the_config_maps_of_the_autoscaler_are_read_alone_and_beside_nodes(folder: Path, text: str) -> None:
    (folder / "spotwright.yaml").write_text(ORDERED)
    (folder / "maps.yaml").write_text(text)
    (folder / "nodes.json").write_text(listed(node("n1", {"kubernetes.azure.com/agentpool": "cpu"})))
    for files in (["maps.yaml"], ["maps.yaml", "nodes.json"], ["nodes.json", "maps.yaml"]):
        result = run("check", *files)
        assert result.exception is None, result.exception
        assert result.return_value == 0
        assert "gives cpuspot the priority 10, and cpu 10 ('10: .*' for cpu) [preference-ignored]" in result.stdout
        assert "  start the autoscaler with the expander 'priority'" in result.stdout
        assert "  kind: ConfigMap\n" in result.stdout
        assert "groups of the cluster autoscaler: 2" in result.stdout
        assert ("no nodes were given" in result.stdout) is (len(files) == 1)
        assert "min_nodes is 1" not in result.stdout


def test_two_config_maps_of_one_name_are_refused_with_both_places(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(ORDERED)
    (folder / "a.yaml").write_text(listed(EQUAL_MAP))
    (folder / "b.yaml").write_text(listed({**EQUAL_MAP, "data": {"priorities": "5: []"}}))
    error = str(run("check", "a.yaml", "b.yaml").exception)
    assert error == (
        "b.yaml: ConfigMap cluster-autoscaler-priority-expander: another one stands in a.yaml: leave one of them out"
    )
    assert run("check", "a.yaml", "a.yaml").exception is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({**STATUS_MAP, "data": ["a"]}, "ConfigMap cluster-autoscaler-status: data: expected a mapping, found a list"),
        ({**STATUS_MAP, "data": {"status": 3}}, "data.status: expected a text, found a number (3)"),
        ({**STATUS_MAP, "metadata": "x"}, "expected nodes, found 1 ConfigMap"),
        ({"kind": "ConfigMap"}, "expected nodes, found 1 ConfigMap"),
    ],
)
def test_a_config_map_of_another_form_is_refused(folder: Path, value: dict[str, Any], message: str) -> None:
    (folder / "spotwright.yaml").write_text(ORDERED)
    assert message in str(run("check", "-", stdin=json.dumps(value)).exception)


def test_names_of_a_cluster_cannot_write_on_the_terminal(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(ORDERED)
    evil = json.dumps({"nodeGroups": [{"name": "aks-x\x1b[31m\nerror: pool cpu: gone"}]})
    hostile = config_map("cluster-autoscaler-status", "status", evil)
    printed = run("check", "-", stdin=listed(hostile, node("n\x1b[2J"))).stdout
    assert "\x1b" not in printed
    assert r"groups of no pool: aks-x<U+001B>[31m<U+000A>error: pool cpu: gone: no pool" in printed
