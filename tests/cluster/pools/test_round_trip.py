"""Drawn clusters: what ``pools import`` reads tells their nodes apart, admits what ran there, and makes the same pools again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import plain_yaml

from spotwright import config as configuration
from spotwright.clouds import providers
from spotwright.cluster.found_pools import FoundPool, found_pools, left_out
from spotwright.config import Config
from spotwright.kube.pod import scheduling_of
from spotwright.manifests.files import place_text
from spotwright.model.pools import Pool
from spotwright.model.scheduling_terms import Taint
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import References
from spotwright.pools.catalogue import script
from spotwright.pools.cluster_inventory import labels_of, taints_of
from spotwright.pools.request import Request

GPUS = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu")
DEVICES = (*GPUS, "google.com/tpu", "aws.amazon.com/neuron", "habana.ai/gaudi", "rdma/hca_a")


class Form(NamedTuple):
    """How a provisioner marks a node of a pool: {} stands for the pool's name."""

    spot: Mapping[str, str]
    on_demand: Mapping[str, str]
    spot_taint: str = ""
    common: Mapping[str, str] = {}
    tool: str = "generic"


def form(key: str, tool: str = "generic", **marks: Any) -> Form:
    return Form(marks.get("spot", {}), marks.get("on_demand", {}), marks.get("taint", ""), {key: "{}"}, tool)


_AKS, _GKE = "kubernetes.azure.com/scalesetpriority", "cloud.google.com/gke-"
_GKE_SPOT = {f"{_GKE}spot": "true", f"{_GKE}provisioning": "spot"}
_EKS, _KARPENTER = "eks.amazonaws.com/capacityType", "karpenter.sh/capacity-type"
_GPU_LABELS = {"aks": {"kubernetes.azure.com/accelerator": "nvidia"}, "gke": {f"{_GKE}accelerator": "nvidia-l4"}}
FORMS = {
    "aks": form("kubernetes.azure.com/agentpool", "az", spot={_AKS: "spot"}, taint=f"{_AKS}=spot:NoSchedule"),
    "gke": form(f"{_GKE}nodepool", "gcloud", spot=_GKE_SPOT, on_demand={f"{_GKE}provisioning": "standard"}),
    "eks": form("eks.amazonaws.com/nodegroup", "eksctl", spot={_EKS: "SPOT"}, on_demand={_EKS: "ON_DEMAND"}),
    "karpenter": form(
        "karpenter.sh/nodepool", "karpenter", spot={_KARPENTER: "spot"}, on_demand={_KARPENTER: "on-demand"}
    ),
    "cast-ai": form(
        "scheduling.cast.ai/node-template",
        spot={"scheduling.cast.ai/spot": "true", "provisioner.cast.ai/managed-by": "cast.ai"},
        on_demand={"provisioner.cast.ai/managed-by": "cast.ai"},
        taint="scheduling.cast.ai/spot=true:NoSchedule",
    ),
    "ocean": form(
        "spotinst.io/ocean-vng-id",
        spot={"spotinst.io/node-lifecycle": "spot"},
        on_demand={"spotinst.io/node-lifecycle": "od"},
    ),
    "kops": form(
        "kops.k8s.io/instancegroup",
        spot={"node-role.kubernetes.io/spot-worker": "true"},
        on_demand={"node-lifecycle": "on-demand"},
    ),
    "eksctl": form(
        "alpha.eksctl.io/nodegroup-name", spot={"lifecycle": "Ec2Spot"}, on_demand={"lifecycle": "OnDemand"}
    ),
    "people": form("example.com/pool", spot={"example.com/spot": "true"}, on_demand={"example.com/spot": "false"}),
    "cluster-api": form("node.cluster.x-k8s.io/group", spot={"cluster.x-k8s.io/interruptible": ""}),
    "openshift": form("group", spot={"machine.openshift.io/interruptible-instance": ""}),
}


class Truth(NamedTuple):
    """A pool of a drawn cluster."""

    name: str
    form: str
    is_spot: bool
    arch: str
    device: str
    team: str
    dedicated: bool
    size: int

    @property
    def marks(self) -> Form:
        return FORMS[self.form]

    @property
    def labels(self) -> dict[str, str]:
        marks = self.marks.spot if self.is_spot else self.marks.on_demand
        own = {"team": self.team} if self.team else {}
        named = {key: value.format(self.name) for key, value in self.marks.common.items()}
        made = {"node.kubernetes.io/instance-type": f"m-{self.name}", "kubernetes.io/arch": self.arch}
        return {
            **named,
            **marks,
            **own,
            **made,
            **(_GPU_LABELS.get(self.form, {}) if self.device.endswith("/gpu") else {}),
        }

    @property
    def taints(self) -> list[dict[str, str]]:
        given = [self.marks.spot_taint] if self.is_spot and self.marks.spot_taint else []
        given += ["dedicated=research:NoSchedule"] if self.dedicated else []
        given += ["nvidia.com/gpu=present:NoSchedule"] if self.device == "nvidia.com/gpu" else []
        parts = [one.replace(":", "=").split("=") for one in given]
        return [{"key": key, "value": value, "effect": effect} for key, value, effect in parts]

    def nodes(self) -> list[dict[str, Any]]:
        passing = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        return [
            {
                "metadata": {
                    "name": f"{self.name}-{number}",
                    "labels": {
                        **self.labels,
                        "kubernetes.io/hostname": f"{self.name}-{number}",
                        "kubernetes.io/os": "linux",
                    },
                },
                "spec": {"taints": [*self.taints, *([passing] if number else [])]},
                "status": {
                    "allocatable": {
                        "cpu": f"{4 + number}",
                        "memory": f"{16_000_000 + number}Ki",
                        **({self.device: "4"} if self.device else {}),
                    }
                },
            }
            for number in range(self.size)
        ]

    def job(self) -> dict[str, Any]:
        """Work that runs on the last, the largest of its nodes: it chooses them by their labels."""
        key, value = next(iter(self.marks.common.items()))
        marks = self.marks.spot if self.is_spot else {}
        chosen = {key: value.format(self.name), **({"team": self.team} if self.team else {})}
        chosen |= {key: value for key, value in marks.items() if "managed-by" not in key}
        limits = {"cpu": 3 + self.size, "memory": "1Gi", **({self.device: 4} if self.device else {})}
        pods = {
            "nodeSelector": chosen,
            "tolerations": [{**one, "operator": "Equal"} for one in self.taints if one["key"] == "dedicated"],
            "containers": [{"name": "main", "image": "train:1", "resources": {"limits": limits}}],
            "restartPolicy": "Never",
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {"backoffLimit": 6, "template": {"spec": pods}},
        }


TRUTHS = st.builds(
    Truth,
    st.sampled_from(["a", "b2", "gpu", "batch", "t4"]),
    st.sampled_from(sorted(FORMS)),
    st.booleans(),
    st.sampled_from(["amd64", "arm64"]),
    st.sampled_from(["", "", *DEVICES]),
    st.sampled_from(["", "x", "y"]),
    st.booleans(),
    st.integers(1, 3),
)
CLUSTERS = st.lists(TRUTHS, min_size=1, max_size=5, unique_by=lambda one: one.name)
CONTROL_PLANE = {
    "metadata": {"name": "control", "labels": {"node-role.kubernetes.io/control-plane": "", "team": "x"}},
    "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]},
}


def imported(cluster: Sequence[Truth]) -> tuple[Config, dict[str, FoundPool], dict[str, Truth]]:
    """The configuration, the found pools by name, and the pool of the cluster that each of them is."""
    nodes = [CONTROL_PLANE, *(node for truth in cluster for node in truth.nodes())]
    assert "control" in " ".join(left_out(nodes))
    found = {pool.name: pool for pool in found_pools(nodes)}
    truths = {node["metadata"]["name"]: truth for truth in cluster for node in truth.nodes()}
    config = configuration.from_mapping(
        {"version": 1, "pools": {name: dict(one.settings) for name, one in found.items()}}
    )
    return config, found, {name: truths[one.nodes[0]] for name, one in found.items()}


@settings(max_examples=80)
@given(CLUSTERS)
def test_the_same_nodes_are_told_apart_with_what_they_offer(cluster: list[Truth]) -> None:
    config, found, truths = imported(cluster)
    assert len(found) == len(cluster)
    for truth in cluster:
        pools = {providers.pool_of(labels_of(node), config.pools) for node in truth.nodes()}
        [pool] = pools
        assert pool is not None
        assert truths[pool.name] is truth
        assert pool.is_spot is truth.is_spot
        assert found[pool.name].is_known or (not truth.is_spot and not truth.marks.on_demand)
        assert (pool.node or {}).get(truth.device, 0) == (4 if truth.device else 0)
        assert pool.labels.get("kubernetes.io/arch", "amd64") == truth.arch
        assert set(providers.taints(pool)) == {Taint(**one) for one in truth.taints}
        assert not any("no label distinguishes" in note for note in found[pool.name].notes)


@settings(max_examples=60)
@given(CLUSTERS)
def test_work_that_ran_there_is_placed_on_the_same_nodes(cluster: list[Truth]) -> None:
    _, found, truths = imported(cluster)
    pools = {name: dict(one.settings) for name, one in found.items()}
    for name, truth in truths.items():
        policy = {"default": {"spot": "require" if truth.is_spot else "never", "grace_period": "10s"}}
        own = configuration.from_mapping({"version": 1, "pools": pools, "policy": policy})
        placed = place_text(plain_yaml.dump(truth.job()), "job.yaml", own, References([]), PlaceOptions())
        spec = plain_yaml.load(placed.text)["spec"]["template"]["spec"]
        last = truth.nodes()[-1]
        lasting = tuple(taint for taint in taints_of(last) if not taint.key.startswith("node.kubernetes.io/"))
        assert scheduling_of(spec).refusal(labels_of(last), lasting) == "", (name, pools)


def arguments(text: str, command: str) -> dict[str, list[str]]:
    """The flags of a command in a script, with their values."""
    body = text.replace("\\\n", " ")
    [line] = [one for one in body.splitlines() if one.startswith(command)]
    flags: dict[str, list[str]] = {}
    words = shlex.split(line)[len(command.split()) :]
    for word in words:
        if word.startswith("--"):
            flags[word[2:]] = []
        elif flags:
            flags[list(flags)[-1]].append(word)
    return {**flags, "": [words[0]]}


def request_for(pool: Pool, config: Config) -> Request:
    return Request(pool, config.pools, config.currency, config.default_ladder, "")


@settings(max_examples=60)
@given(CLUSTERS)
def test_pools_command_makes_what_was_there(cluster: list[Truth]) -> None:
    config, _, truths = imported(cluster)
    for name, truth in truths.items():
        pool = config.pools[name]
        text = "\n".join(script(request_for(pool, config)))
        own = [one for one in truth.taints if one["key"] == "dedicated"]
        machine = f"m-{truth.name}"
        if truth.marks.tool == "az":
            flags = arguments(text, "az aks nodepool add")
            assert (flags["name"], flags["node-vm-size"]) == ([truth.name], [machine])
            assert flags.get("priority", []) == (["Spot"] if truth.is_spot else [])
            assert ("dedicated=research:NoSchedule" in ",".join(flags.get("node-taints", []))) is truth.dedicated
            assert flags.get("labels", []) == ([f"team={truth.team}"] if truth.team else [])
        elif truth.marks.tool == "gcloud":
            flags = arguments(text, "gcloud container node-pools create")
            assert (flags[""], flags["machine-type"]) == ([truth.name], [machine])
            assert ("spot" in flags) is truth.is_spot
            assert ("dedicated=research:NoSchedule" in ",".join(flags.get("node-taints", []))) is truth.dedicated
        elif truth.marks.tool == "eksctl":
            [group] = plain_yaml.load(text)["managedNodeGroups"]
            assert (group["name"], group["spot"], group["instanceTypes"]) == (truth.name, truth.is_spot, [machine])
            assert [one for one in group.get("taints", []) if one["key"] == "dedicated"] == own
            assert group.get("labels", {}) == ({"team": truth.team} if truth.team else {})
        elif truth.marks.tool == "karpenter":
            node_pool = plain_yaml.load(text.partition("\n---\n")[0])
            made = node_pool["spec"]["template"]["spec"]
            asked = {one["key"]: one["values"] for one in made["requirements"]}
            assert node_pool["metadata"]["name"] == truth.name
            assert asked["karpenter.sh/capacity-type"] == ["spot" if truth.is_spot else "on-demand"]
            assert asked["node.kubernetes.io/instance-type"] == [machine]
            assert asked.get("kubernetes.io/arch", ["amd64"]) == [truth.arch]
            assert [one for one in made.get("taints", []) if one["key"] == "dedicated"] == own
        else:
            words = [word.strip("'") for word in text.split()]
            assert all(f"{key}={value}" in words for key, value in providers.own_labels(pool).items())
