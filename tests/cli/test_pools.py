"""``pools`` shows what placement assumes of the nodes, and prints objects that Kueue accepts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import plain_yaml
from tests.kinds.field_schemas import FIELDS, schema
from tests.kinds.schemas import strange

from spotwright.cli import cli
from spotwright.errors import InputError

CONFIG = """\
version: 1
pools:
  gpu: {capacity: on-demand, provider: aks, node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}, max_nodes: 2, price: 3/h}
  gpu-spot: {capacity: spot, provider: aks, node: {cpu: 6, memory: 112Gi, nvidia.com/gpu: 1}, max_nodes: 4, price: 1/h}
  main: {capacity: on-demand, provider: aks, node: {cpu: 3500m, memory: 14000Mi}, max_nodes: 3}
policy: {default: {spot: prefer}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spotwright.yaml").write_text(CONFIG)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pools", *arguments], standalone_mode=False)


def printed(*arguments: str) -> list[Any]:
    result = run("command", "--as", "kueue", *arguments)
    assert result.exception is None, result.exception
    return list(plain_yaml.load_all(result.stdout))


def quotas(queue: Any) -> dict[str, dict[str, Any]]:
    [group] = queue["spec"]["resourceGroups"]
    return {one["name"]: {each["name"]: each["nominalQuota"] for each in one["resources"]} for one in group["flavors"]}


def test_each_pool_is_shown_with_the_labels_and_taints_of_its_nodes() -> None:
    text = run().stdout

    assert "gpu-spot: spot, aks, at most 4 nodes, notice 30s" in text
    assert "  label  kubernetes.azure.com/scalesetpriority=spot" in text
    assert "  taint  kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in text


LIVED = """\
version: 1
pools:
  spot: {capacity: spot, provider: karpenter, max_lifetime: 24h, labels: {karpenter.sh/nodepool: both}}
  regular: {capacity: on-demand, provider: karpenter, max_lifetime: 24h, labels: {karpenter.sh/nodepool: both}}
  alone: {capacity: on-demand, provider: karpenter, max_lifetime: 24h}
  endless: {capacity: spot, provider: karpenter}
  elsewhere: {capacity: spot, provider: aks, max_lifetime: 24h}
policy: {default: {spot: prefer, grace_period: 10s}, tasks: {"big/*": {grace_period: GRACE}}}
"""


@pytest.mark.parametrize(
    ("grace", "last"),
    [
        ("15s", {"spot": 120, "regular": 120, "alone": 30}),  # the notice; Kubernetes' own grace period
        ("5m", {"spot": 300, "regular": 300, "alone": 300}),
        ("90.5s", {"spot": 120, "regular": 120, "alone": 91}),
    ],
)
def test_the_lifetime_of_a_node_of_karpenter_ends_its_work_with_every_grace_period(
    folder: Path, grace: str, last: dict[str, int]
) -> None:
    (folder / "spotwright.yaml").write_text(LIVED.replace("GRACE", grace))
    for name, seconds in last.items():
        node_pool = next(plain_yaml.load_all(run("command", name).stdout))
        made = node_pool["spec"]["template"]["spec"]

        assert (made["expireAfter"], made["terminationGracePeriod"]) == ("86400s", f"{seconds}s")
        assert {"nodes": "0", "reasons": ["Drifted"]} in node_pool["spec"]["disruption"]["budgets"]


def test_a_node_pool_without_a_lifetime_waits_for_its_work(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(LIVED.replace("GRACE", "15s"))
    spec = next(plain_yaml.load_all(run("command", "endless").stdout))["spec"]

    assert {"expireAfter", "terminationGracePeriod"}.isdisjoint(spec["template"]["spec"])
    assert "budgets" not in spec["disruption"]


def test_a_pool_of_karpenter_says_who_ends_its_nodes(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(LIVED.replace("GRACE", "5m"))
    shown = {block.partition(":")[0]: block for block in re.split(r"\n(?=\S)", run("list").stdout)}

    assert "reclaimed after 24h00m\n" in shown["spot"]
    assert "expireAfter), and removes it 5m00s later at the latest" in shown["spot"]
    assert "without that field work outlives it" in shown["spot"]
    assert "expireAfter" not in shown["endless"] + shown["elsewhere"]


def test_there_is_a_flavor_for_each_pool_a_queue_and_a_queue_in_each_namespace() -> None:
    documents = printed("-n", "ml", "-n", "research", "--queue", "team")

    assert [(one["kind"], one["metadata"]["name"]) for one in documents] == [
        *(("ResourceFlavor", name) for name in ("main", "gpu-spot", "gpu")),
        *(("ClusterQueue", "team"), ("LocalQueue", "team"), ("LocalQueue", "team")),
    ]
    assert [one["metadata"].get("namespace") for one in documents[-2:]] == ["ml", "research"]
    assert documents[3]["spec"]["namespaceSelector"]["matchExpressions"][0]["values"] == ["ml", "research"]


def test_every_object_has_the_fields_of_its_kind_alone() -> None:
    for one in printed():
        assert one["apiVersion"] == "kueue.x-k8s.io/v1beta2"
        assert list(strange(schema(FIELDS[one["kind"]]), one)) == []


def test_a_flavor_has_the_labels_of_its_nodes_and_taints_that_its_pods_must_tolerate() -> None:
    spec = next(one["spec"] for one in printed() if one["metadata"]["name"] == "gpu-spot")

    assert spec["nodeLabels"] == {
        "kubernetes.azure.com/agentpool": "gpu-spot",
        "kubernetes.azure.com/scalesetpriority": "spot",
        "kubernetes.azure.com/accelerator": "nvidia",
    }
    assert spec["nodeTaints"] == [
        {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    ]
    assert "tolerations" not in spec


def test_quotas_are_the_size_of_the_pools_and_every_flavor_lists_every_resource() -> None:
    queue = printed()[3]

    assert quotas(queue) == {
        "main": {"cpu": "10500m", "memory": "42000Mi", "nvidia.com/gpu": 0},
        "gpu-spot": {"cpu": 24, "memory": "448Gi", "nvidia.com/gpu": 4},
        "gpu": {"cpu": 12, "memory": "224Gi", "nvidia.com/gpu": 2},
    }
    assert queue["spec"]["resourceGroups"][0]["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu"]


def test_a_given_quota_replaces_the_size_of_the_pool() -> None:
    queue = printed("--quota", "gpu-spot:nvidia.com/gpu=1", "--quota", "main:cpu=1500m", "--quota", "main:memory=1Gi")[
        3
    ]

    assert quotas(queue)["gpu-spot"]["nvidia.com/gpu"] == 1
    assert quotas(queue)["main"]["cpu"] == "1500m"


def test_a_quota_that_nothing_says_is_zero_and_named(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace("node: {cpu: 3500m, memory: 14000Mi}, ", ""))
    result = run("command", "--as", "kueue")

    assert quotas(list(plain_yaml.load_all(result.stdout))[3])["main"] == {"cpu": 0, "memory": 0, "nvidia.com/gpu": 0}
    assert "{name: cpu, nominalQuota: 0}  # SET THIS: node: of main does not say it" in result.stdout
    assert "warning: these quotas are 0, which admits no pods: main:cpu, main:memory" in result.stderr


def test_work_goes_to_the_next_flavor_before_it_preempts_and_borrows_spot_before_on_demand() -> None:
    assert printed()[3]["spec"]["flavorFungibility"] == {
        "whenCanPreempt": "TryNextFlavor",
        "whenCanBorrow": "MayStopSearch",
    }


def test_the_flavors_follow_the_ladder_of_the_default_policy_spot_first(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(
        CONFIG.replace("spot: prefer", "spot: prefer, ladder: [gpu-spot, gpu, main]")
    )

    assert list(quotas(printed()[3])) == ["gpu-spot", "gpu", "main"]


def test_an_older_kueue_gets_the_objects_of_its_version(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(f"{CONFIG}target: {{kueue: '0.14'}}\n")
    documents = printed()

    assert {one["apiVersion"] for one in documents} == {"kueue.x-k8s.io/v1beta1"}
    assert documents[3]["spec"]["flavorFungibility"]["whenCanBorrow"] == "Borrow"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quota", "gpu=1"), "expected POOL:RESOURCE=AMOUNT"),
        (("--quota", "gpux:cpu=1"), "no pool 'gpux'; the pools are gpu, gpu-spot, main"),
        (("--quota", "gpu:cpu=many"), "many"),
        (("--queue", "Team A"), "'Team A': expected a name of Kubernetes"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(arguments: tuple[str, ...], message: str) -> None:
    assert message in str(run("command", "--as", "kueue", *arguments).exception)


def test_without_pools_of_ones_own_it_offers_some(folder: Path) -> None:
    (folder / "spotwright.yaml").unlink()

    assert "start spotwright.yaml with" in str(run("command", "--as", "kueue").exception)


PRICED = """\
version: 1
pools:
  spot: {capacity: spot, machine: m5.xlarge, price: 0.4/h}
  main: {capacity: on-demand, machine: m5.xlarge}
"""


def test_a_sheet_on_standard_input_shows_its_prices_beside_the_reason_where_there_is_none(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(PRICED)
    sheet = "machine,capacity,price,zone\nm5.xlarge,spot,0.31,us-east-1a\n"

    result = CliRunner().invoke(cli, ["pools", "list", "--prices", "-"], input=sheet, standalone_mode=False)

    assert result.exception is None
    assert "  price  0.31 USD/h (standard input from today, us-east-1a" in result.stdout
    assert "  price  none: standard input: m5.xlarge has no on-demand price for linux" in result.stdout


def test_a_sheet_without_a_price_for_any_pool_is_refused(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(PRICED.replace("m5", "m9"))
    sheet = "machine,capacity,price,zone\nm5.xlarge,spot,0.31,us-east-1a\n"

    result = CliRunner().invoke(cli, ["pools", "list", "--prices", "-"], input=sheet, standalone_mode=False)

    assert isinstance(result.exception, InputError)


def test_a_configured_price_is_shown() -> None:
    assert "  price  1.00 USD/h (spotwright.yaml)" in run().stdout


def test_a_pool_without_its_machine_is_refused_with_the_fix() -> None:
    result = run("command", "gpu-spot", "--as", "az", "--cluster-name", "my cluster")

    assert str(result.exception) == "pool gpu-spot: az needs the machine: set machine: Standard_... in spotwright.yaml"


def test_the_tool_is_that_of_the_pools_provider(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace("price: 1/h", "price: 1/h, machine: Standard_NC6s_v3"))
    result = run("command", "gpu-spot", "--cluster-name", "my cluster")

    assert result.exception is None
    assert "az aks nodepool add \\\n" in result.stdout
    assert "  --cluster-name 'my cluster' \\\n" in result.stdout
    assert "warning: gpu-spot: the pool is called gpuspot there" in result.stderr


def test_a_pool_that_is_not_there_is_named_beside_those_that_are() -> None:
    assert "the pools are gpu, gpu-spot, main" in str(run("command", "gpux").exception)
    assert "name a pool: gpu, gpu-spot, main" in str(run("command").exception)


def test_the_list_is_json_for_programs() -> None:
    [_, spot, _] = json.loads(run("list", "--json").stdout)

    assert (spot["name"], spot["notice_seconds"], spot["node"]["memory"]) == ("gpu-spot", 30.0, "112Gi")
    assert "kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in spot["taints"]


def test_a_compute_class_orders_the_pools_of_gke(folder: Path) -> None:
    (folder / "spotwright.yaml").write_text(CONFIG.replace("provider: aks", "provider: gke"))
    [document] = plain_yaml.load_all(run("command", "--as", "computeclass").stdout)

    assert [one["nodepools"] for one in document["spec"]["priorities"]] == [["gpu-spot"], ["main"], ["gpu"]]
    assert "leave POOL out" in str(run("command", "gpu", "--as", "computeclass").exception)


def test_without_a_configuration_the_built_in_pools_are_shown_with_the_lines_to_begin_with(folder: Path) -> None:
    (folder / "spotwright.yaml").unlink()
    text = run().output
    assert text.startswith("no spotwright.yaml: using the built-in pools spot (spot), on-demand (on-demand)")
    assert "\nspot: spot, generic, at most 10 nodes, notice 2s\n  node   cpu 8, memory 32Gi, nvidia.com/gpu 4" in text
    assert "\n  price  0.30 USD/h (an example, no offer)\n" in text
    assert "gke" not in text.split("placing needs")[0]
    assert [pool["name"] for pool in json.loads(run("list", "--json").output)] == ["spot", "on-demand"]
    (folder / "spotwright.yaml").write_text(text.split("start spotwright.yaml with\n\n")[1])
    assert "built-in" not in run().output
