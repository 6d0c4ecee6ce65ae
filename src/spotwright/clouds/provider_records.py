"""The records of the providers: AKS, GKE, EKS, Karpenter, and the generic one without assumptions. Pure, no IO.

A new provider is one record here. An omitted field turns its feature off: without a metadata service no notices are read on the
provider's nodes, without tools no commands make its pools. The sources stand beside the facts.
"""

from __future__ import annotations

from collections.abc import Mapping

from spotwright.clouds.machines import is_of_aws, labels_of_aws_machine, labels_of_azure_machine
from spotwright.clouds.node_signs import CapacitySign
from spotwright.clouds.provider import AZURE, NVIDIA_GPU, Form, Label, NamingRule, PastForm, Provider, Setter
from spotwright.model.pools import GENERIC, Pool
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "AUTOSCALERS",
    "COMPUTE_CLASS",
    "PREEMPTIBLE",
    "PROVIDERS",
    "PROVISIONING",
    "machine_accelerator",
    "machine_tpu",
]


_SEEN = "nodes and manifests shown in public repositories"
_AKS_SOURCE = (
    'Microsoft Learn, "Use labels in an Azure Kubernetes Service (AKS) cluster"; nodes shown in public repositories'
)
_GOOGLE_CLOUD, _AMAZON = "Google Cloud", "AWS"

_AZURE = frozenset({"AKS", "Karpenter on Azure"})
_GOOGLE = frozenset({"GKE", "Karpenter on Google Cloud"})
_AWS = frozenset({"EKS", "Karpenter on AWS"})
_KARPENTER = frozenset({"Karpenter on AWS", "Karpenter on Azure", "Karpenter on Google Cloud"})
_ON_AWS = frozenset({"EKS node groups", "Karpenter on AWS"})  # EKS Auto Mode is Karpenter too

_TRUE = ("true",)
_INSTANCE = (
    "category",
    "cpu",
    "cpu-manufacturer",
    "ebs-bandwidth",
    "encryption-in-transit-supported",
    "family",
    "generation",
    "gpu-count",
    "gpu-manufacturer",
    "gpu-memory",
    "gpu-name",
    "hypervisor",
    "local-nvme",
    "memory",
    "network-bandwidth",
    "pods",
    "size",
)


# AKS: 30 s notice; sets label and taint of spot pools, and a label of GPU pools, but no GPU taint.

_PRIORITY = "kubernetes.azure.com/scalesetpriority"
_AGENT_POOL = "kubernetes.azure.com/agentpool"


def _of_aks(pool: Pool) -> dict[str, str]:
    labels = {
        "kubernetes.azure.com/priority": "spot" if pool.is_spot else "regular",
    }
    if name := pool.labels.get(_AGENT_POOL, pool.name):
        labels["agentpool"] = name
    if (pool.node or {}).get(NVIDIA_GPU):
        labels["accelerator"] = "nvidia"
    return labels


_AKS = Provider(
    "aks",
    30.0,
    title="AKS",
    notice_words="AKS",
    pool_label=_AGENT_POOL,
    other_pool_labels=("agentpool",),  # aks-engine
    # On-demand pools get no label here: Microsoft's table has the value "regular", but pools made by hand were seen without the
    # label, and pipelines avoid spot with DoesNotExist.
    spot=(
        Form({_PRIORITY: "spot"}, (Taint(_PRIORITY, "spot"),)),
        Form({_PRIORITY: "low"}, (Taint(_PRIORITY, "low"),)),  # low-priority scale sets of before 2020
    ),
    gpu_labels={"kubernetes.azure.com/accelerator": "nvidia"},
    spot_taint_keys=frozenset({_PRIORITY}),
    # Microsoft Learn, "Use labels in an Azure Kubernetes Service (AKS) cluster"; beside the older scalesetpriority
    capacity_signs={"kubernetes.azure.com/priority": CapacitySign(("spot",), ("regular",))},
    past=(
        PastForm(
            _PRIORITY,
            "low",
            "low-priority VMs became Spot VMs: az aks nodepool add --priority Spot, whose nodes have the value spot",
        ),
        PastForm(
            "agentpool",
            None,
            "nodes of aks-engine, which is retired; AKS itself also sets kubernetes.azure.com/agentpool",
            instead=(_AGENT_POOL, "karpenter.sh/nodepool"),  # node auto-provisioning sets it too
        ),
    ),
    zone_labels=("topology.disk.csi.azure.com/zone",),
    marks_spot=True,
    plain_labels=frozenset({"agentpool", "storageprofile", "storagetier"}),
    setters=(
        Setter(
            "AKS",
            (
                "agentpool",
                "kubernetes.azure.com/agentpool",
                "kubernetes.azure.com/azure-cni-overlay",
                "kubernetes.azure.com/cluster",
                "kubernetes.azure.com/consolidated-additional-properties",
                "kubernetes.azure.com/ebpf-dataplane",
                "kubernetes.azure.com/fips_enabled",
                "kubernetes.azure.com/kubelet-identity-client-id",
                "kubernetes.azure.com/kubelet-serving-ca",
                "kubernetes.azure.com/localdns-state",
                "kubernetes.azure.com/mode",
                "kubernetes.azure.com/network-*",
                "kubernetes.azure.com/node-image-version",
                "kubernetes.azure.com/nodenetwork-vnetguid",
                "kubernetes.azure.com/nodepool-type",
                "kubernetes.azure.com/os-sku",
                "kubernetes.azure.com/os-sku-*",
                "kubernetes.azure.com/podnetwork-*",
                "kubernetes.azure.com/priority",
                "kubernetes.azure.com/role",
                "kubernetes.azure.com/security-type",
                "kubernetes.azure.com/sku-*",
                "kubernetes.azure.com/storageprofile",
                "kubernetes.azure.com/storagetier",
                "storageprofile",
                "storagetier",
                "topology.disk.csi.azure.com/zone",
            ),
            _AZURE,
            source=_AKS_SOURCE,
        ),
        Setter(
            "AKS",
            ("accelerator", "kubernetes.azure.com/accelerator"),
            _AZURE,
            "gpu",
            source=_SEEN,
        ),
    ),
    derived=_of_aks,
    labels=(
        # AKS. "regular" is in Microsoft's table and on nodes of node auto-provisioning; "low" is deprecated.
        Label(
            "kubernetes.azure.com/scalesetpriority",
            ("spot", "regular", "low"),
            misspelt=("scalesetpriority", "kubernetes.azure.com/spot", "kubernetes.azure.com/vmss-priority"),
        ),
        Label("kubernetes.azure.com/priority", ("spot", "regular")),
        Label(
            "kubernetes.azure.com/agentpool",
            is_small=True,
            misspelt=(
                "kubernetes.azure.com/nodepool",
                "kubernetes.azure.com/nodepool-name",
                "kubernetes.azure.com/pool",
            ),
        ),
        Label("kubernetes.azure.com/mode", is_small=True),
        Label("kubernetes.azure.com/accelerator", is_small=True),
        Label("kubernetes.azure.com/nodepool-type"),
    ),
    makers={_AGENT_POOL: frozenset({"AKS"}), "kubernetes.azure.com": _AZURE},
    machines=(r"Standard_[A-Z]", _AZURE),
    gpu_machines=("Standard_N",),
    domains=r"azure",
    clouds=(AZURE,),
    metadata_service="azure",
    billed_by="Microsoft",
    naming=NamingRule(r"[a-z][a-z0-9]{0,11}", "-", "at most 12 small letters and digits, a letter first"),
    naming_on_windows=NamingRule(
        r"[a-z][a-z0-9]{0,5}", "-", "at most 6 small letters and digits, a letter first (Windows)"
    ),
    tools=("az",),
    expander_command="az aks update -g GROUP -n CLUSTER --cluster-autoscaler-profile expander=priority",
    group=r"aks-(?P<pool>.+)-\d+-vmss",
    likely_group="aks-{name}-12345678-vmss",
    group_pattern="^aks-{name}-.*",
    marks=("kubernetes.azure.com/", "azure.workload.identity/", ".csi.azure.com"),
    first_pools=(
        "  spotpool: {capacity: spot, provider: aks}           # az aks nodepool list: scaleSetPriority Spot",
        "  agentpool: {capacity: on-demand, provider: aks}",
    ),
)


# GKE: 30 s notice, 15 s of it for pods; sets labels and the GPU taint, and a spot taint only on pools that it creates itself.
# Sources: Google Cloud, "Run fault-tolerant workloads at lower costs in Spot Pods", "About node auto-provisioning".

_SPOT = "cloud.google.com/gke-spot"
PROVISIONING = "cloud.google.com/gke-provisioning"
"""Label of GKE with a node's provisioning model."""

PREEMPTIBLE = "cloud.google.com/gke-preemptible"
"""Label (``true``) of preemptible VMs, used by older guides."""

COMPUTE_CLASS = "cloud.google.com/compute-class"
"""Label by which pods select a ComputeClass, and node pools join it."""

_ACCELERATORS = {
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-edgegpu-": "nvidia-h100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
    "a4-highgpu-": "nvidia-b200",
    "a4x-highgpu-": "nvidia-gb200",
    "g2-standard-": "nvidia-l4",
    "g4-standard-": "nvidia-rtx-pro-6000",
}
_TPUS = {
    "ct4p-": "tpu-v4-podslice",
    "ct5l-": "tpu-v5-lite-device",
    "ct5lp-": "tpu-v5-lite-podslice",
    "ct5p-": "tpu-v5p-slice",
    "ct6e-": "tpu-v6e-slice",
    "tpu7x-": "tpu7x",
}


def machine_accelerator(machine: str) -> str:
    """GKE's name of a machine's built-in GPUs (``g2-standard-8``: ``nvidia-l4``); empty if it has none.

    Source: Google Cloud, "GPU machine types" and "About GPUs in GKE".
    """
    return next((name for prefix, name in _ACCELERATORS.items() if machine.startswith(prefix)), "")


def machine_tpu(machine: str) -> str:
    """GKE's name of a machine's TPUs (``ct6e-standard-4t``: ``tpu-v6e-slice``); empty if it has none.

    Source: Google Cloud, "Plan TPUs in GKE".
    """
    return next((name for prefix, name in _TPUS.items() if machine.startswith(prefix)), "")


def _of_gke(pool: Pool) -> dict[str, str]:
    labels = {}
    if pool.machine:
        labels["cloud.google.com/machine-family"] = pool.machine.partition("-")[0]
    if accelerator := machine_accelerator(pool.machine):
        labels["cloud.google.com/gke-accelerator"] = accelerator
        if count := (pool.node or {}).get(NVIDIA_GPU):
            labels["cloud.google.com/gke-accelerator-count"] = str(count)
    if tpu := machine_tpu(pool.machine):
        labels["cloud.google.com/gke-tpu-accelerator"] = tpu
    return labels


_GKE = Provider(
    "gke",
    30.0,
    title="GKE",
    notice_words="GKE, whose kubelet keeps the other 15 seconds for system pods",
    pods_share=0.5,
    pool_label="cloud.google.com/gke-nodepool",
    # a preemptible node has no gke-spot, a Spot VM no gke-preemptible
    spot=(
        Form({_SPOT: "true", PROVISIONING: "spot"}),
        Form({PREEMPTIBLE: "true", PROVISIONING: "preemptible"}),
    ),
    on_demand_labels={PROVISIONING: "standard"},  # without gke-spot
    automatic_spot_taints=(Taint(_SPOT, "true"),),
    gpu_taints=(Taint(NVIDIA_GPU, "present"),),
    tolerates_requests=True,
    # "preemptible" is the taint in Google's own guide to preemptible pools with Kubeflow Pipelines
    spot_taint_keys=frozenset({_SPOT, PREEMPTIBLE, PROVISIONING, "preemptible"}),
    capacity_signs={PROVISIONING: CapacitySign(("preemptible",), ("flex-start", "reservation"))},
    past=(
        PastForm(
            PREEMPTIBLE,
            "true",
            "preemptible VMs live 24 hours at most; Spot VMs (gcloud container node-pools create --spot) have no such "
            "limit, and the label cloud.google.com/gke-spot=true",
        ),
    ),
    zone_labels=("topology.gke.io/zone",),
    marks_spot=True,
    chosen_labels=frozenset(
        {
            COMPUTE_CLASS,
            "cloud.google.com/gke-accelerator",
            "cloud.google.com/gke-gpu-partition-size",
            "cloud.google.com/gke-tpu-accelerator",
            "cloud.google.com/gke-tpu-topology",
        }
    ),
    setters=(
        Setter(
            "GKE",
            (
                "addon.gke.io/*",
                "cloud.google.com/gce-topology-*",
                "cloud.google.com/gke-boot-disk",
                "cloud.google.com/gke-confidential-nodes-instance-type",
                "cloud.google.com/gke-container-runtime",
                "cloud.google.com/gke-cpu-scaling-level",
                "cloud.google.com/gke-dpv2-ready",
                "cloud.google.com/gke-ephemeral-storage-local-ssd",
                "cloud.google.com/gke-image-streaming",
                "cloud.google.com/gke-local-nvme-ssd",
                "cloud.google.com/gke-logging-variant",
                "cloud.google.com/gke-max-pods-per-node",
                "cloud.google.com/gke-memory-gb-scaling-level",
                "cloud.google.com/gke-metadata-server-enabled",
                "cloud.google.com/gke-netd-ready",
                "cloud.google.com/gke-os-distribution",
                "cloud.google.com/gke-placement-group",
                "cloud.google.com/gke-queued",
                "cloud.google.com/gke-secondary-boot-disk*",
                "cloud.google.com/gke-stack-type",
                "cloud.google.com/machine-family",
                "cloud.google.com/private-node",
                "cloud.google.com/reservation-*",
                "disk-type.gke.io/*",
                "iam.gke.io/gke-metadata-server-enabled",
                "sandbox.gke.io/runtime",
                "topology.gke.io/zone",
            ),
            _GOOGLE,
            source=_SEEN,
        ),
        Setter(
            "GKE",
            (
                "cloud.google.com/gke-accelerator",
                "cloud.google.com/gke-accelerator-count",
                "cloud.google.com/gke-gpu",
                "cloud.google.com/gke-gpu-*",
                "cloud.google.com/gke-max-shared-clients-per-gpu",
            ),
            _GOOGLE,
            "gpu",
            source=_SEEN,
        ),
        Setter(
            "GKE",
            ("cloud.google.com/gke-accelerator-count", "cloud.google.com/gke-tpu-*"),
            _GOOGLE,
            "tpu",
            source=_SEEN,
        ),
    ),
    derived=_of_gke,
    labels=(
        Label(
            "cloud.google.com/gke-spot",
            _TRUE,
            misspelt=(
                "gke-spot",
                "cloud.google.com/spot-vm",
                "cloud.google.com/gke-spot-vm",
                "cloud.google.com/spot-vms",
            ),
        ),
        Label(
            "cloud.google.com/gke-preemptible",
            _TRUE,
            misspelt=("gke-preemptible", "cloud.google.com/preemptable", "cloud.google.com/gke-preemptable"),
        ),
        Label("cloud.google.com/gke-provisioning", is_small=True, misspelt=("gke-provisioning",)),
        Label(
            "cloud.google.com/gke-nodepool",
            is_small=True,
            misspelt=("gke-nodepool", "cloud.google.com/gke-nodepool-name", "cloud.google.com/nodepool-name"),
        ),
        Label("cloud.google.com/gke-accelerator", is_small=True, misspelt=("gke-accelerator",)),
        Label("cloud.google.com/gke-tpu-accelerator", is_small=True, misspelt=("gke-tpu-accelerator",)),
        Label("cloud.google.com/gke-tpu-topology", is_small=True, misspelt=("gke-tpu-topology",)),
        Label("cloud.google.com/compute-class"),
        Label("cloud.google.com/machine-family", is_small=True),
    ),
    makers={"cloud.google.com/gke-nodepool": frozenset({"GKE"}), "cloud.google.com": _GOOGLE},
    machines=(r"[a-z]\d[a-z]{0,2}-(?:standard|highmem|highcpu|highgpu|megagpu|ultragpu|custom)", _GOOGLE),
    domains=r"google|\bgke\b",
    clouds=(_GOOGLE_CLOUD,),
    arm_machines=("a4x-", "c4a-", "n4a-", "t2a-"),
    metadata_service="gcp",
    billed_by="Google Cloud",
    gpu_driver="GKE installs driver and plugin only with --accelerator ...,gpu-driver-version=default",
    naming=NamingRule(
        r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?", "", "at most 40 small letters, digits and -, a letter first"
    ),
    tools=("gcloud",),
    makes_pools="node auto-provisioning, a ComputeClass or Autopilot",
    adds_pools=True,
    orders_by="a ComputeClass",
    class_label=COMPUTE_CLASS,
    group=r"gke-(?P<cluster_and_pool>.+)-[0-9a-f]{8}-grp",
    likely_group="gke-cluster-{name}-12345678-grp",
    marks=("cloud.google.com/", ".csi.storage.gke.io", "gs://"),
    first_pools=(
        "  spot-pool: {capacity: spot, provider: gke}          # made with --spot; name its taints too, if it has any",
        "  default-pool: {capacity: on-demand, provider: gke}",
    ),
)


# EKS: 120 s notice; sets labels, no taint.

_EKS_CAPACITY = "eks.amazonaws.com/capacityType"

_EKS = Provider(
    "eks",
    120.0,
    title="EKS",
    notice_words="AWS",
    pool_label="eks.amazonaws.com/nodegroup",
    other_pool_labels=("alpha.eksctl.io/nodegroup-name",),  # unmanaged groups of eksctl
    spot=(Form({_EKS_CAPACITY: "SPOT"}),),
    on_demand_labels={_EKS_CAPACITY: "ON_DEMAND"},
    # "spot" and "spotInstance" are the taints in Amazon's own guides and examples
    spot_taint_keys=frozenset({_EKS_CAPACITY, "spot", "spotInstance"}),
    capacity_signs={_EKS_CAPACITY: CapacitySign((), ("CAPACITY_BLOCK",))},
    zone_labels=("topology.ebs.csi.aws.com/zone",),
    setters=(
        Setter(
            "EKS",
            (
                "alpha.eksctl.io/cluster-name",
                "alpha.eksctl.io/instance-id",
                "alpha.eksctl.io/nodegroup-name",
                "eks.amazonaws.com/capacityBlockId",
                "eks.amazonaws.com/compute-type",
                "eks.amazonaws.com/nodegroup-image",
                "eks.amazonaws.com/sourceLaunchTemplateId",
                "eks.amazonaws.com/sourceLaunchTemplateVersion",
            ),
            frozenset({"EKS"}),
            source=_SEEN,
        ),
        Setter(
            "AWS",
            (
                "k8s.io/cloud-provider-aws",
                "topology.ebs.csi.aws.com/zone",
                "topology.k8s.aws/*",
                "vpc.amazonaws.com/*",
            ),
            _AWS,
            source=_SEEN,
        ),
        Setter("eksctl", ("k8s.amazonaws.com/accelerator",), _AWS, "gpu", source=_SEEN),
    ),
    labels=(
        Label(
            "eks.amazonaws.com/capacityType",
            ("SPOT", "ON_DEMAND", "CAPACITY_BLOCK"),
            misspelt=("eks.amazonaws.com/capacity", "eks.amazonaws.com/spot"),
        ),
        Label(
            "eks.amazonaws.com/nodegroup", misspelt=("eks.amazonaws.com/nodegroup-name", "eks.amazonaws.com/nodepool")
        ),
        Label("eks.amazonaws.com/nodegroup-image"),
        Label("alpha.eksctl.io/nodegroup-name", misspelt=("eksctl.io/nodegroup-name", "alpha.eksctl.io/nodegroup")),
        # EKS Auto Mode
        Label("eks.amazonaws.com/compute-type", is_small=True),
        *(Label(f"eks.amazonaws.com/instance-{name}", is_small=True) for name in _INSTANCE),
    ),
    makers={
        _EKS_CAPACITY: frozenset({"EKS node groups"}),
        "eks.amazonaws.com/nodegroup": frozenset({"EKS node groups"}),
        "eks.amazonaws.com": _ON_AWS,
        "k8s.amazonaws.com": _ON_AWS,
        "alpha.eksctl.io": frozenset({"EKS node groups"}),
    },
    gpu_machines=("g3", "g4", "g5", "g6", "g7", "gr6", "p2", "p3", "p4", "p5", "p6", "inf", "trn", "dl1", "dl2", "vt1"),
    machines=(r"[a-z][a-z0-9-]*\.(?:nano|micro|small|medium|large|\d*xlarge|metal)", _ON_AWS),
    domains=r"amazonaws|\beks\b",
    clouds=(_AMAZON,),
    metadata_service="aws",
    billed_by="AWS",
    naming=NamingRule(
        r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "", "at most 63 letters, digits, - and _, a letter or digit first"
    ),
    tools=("eksctl", "aws"),
    machines_setting="instanceTypes",
    group=r"eks-(?P<pool>.+)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    likely_group="eks-{name}-12345678-1234-1234-1234-123456789abc",
    group_pattern="^eks-{name}-[0-9a-f]{{8}}-.*",
    hints_at_zero=True,
    marks=("eks.amazonaws.com/", ".csi.aws.com", "alpha.eksctl.io/", "s3://"),
    first_pools=(
        "  spot: {capacity: spot, provider: eks}               # a managed node group with capacityType SPOT",
        "  main: {capacity: on-demand, provider: eks}",
    ),
)


# Karpenter on AWS: 120 s notice; sets labels, no taint. It also runs on Azure and Google Cloud, and the machine shows which.

_KARPENTER_CAPACITY = "karpenter.sh/capacity-type"


def _cloud_of_karpenter(pool: Pool) -> tuple[str, ...]:
    if pool.machine.startswith("Standard_") or any("karpenter.azure.com/" in key for key in pool.labels):
        return (AZURE,)
    if not pool.machine:
        return (_AMAZON, AZURE, _GOOGLE_CLOUD)
    return (_AMAZON if is_of_aws(pool.machine) else _GOOGLE_CLOUD,)


def _of_karpenter(pool: Pool) -> dict[str, str]:
    return labels_of_azure_machine(pool) if _cloud_of_karpenter(pool) == (AZURE,) else labels_of_aws_machine(pool)


_KARPENTER_RECORD = Provider(
    "karpenter",
    120.0,
    title="Karpenter",
    notice_words="Karpenter on AWS",
    pool_label="karpenter.sh/nodepool",
    other_pool_labels=("karpenter.sh/provisioner-name",),  # before 0.32
    spot=(Form({_KARPENTER_CAPACITY: "spot"}),),
    on_demand_labels={_KARPENTER_CAPACITY: "on-demand"},
    spot_taint_keys=frozenset({_KARPENTER_CAPACITY}),
    capacity_signs={_KARPENTER_CAPACITY: CapacitySign((), ("reserved",))},
    past=(
        PastForm(
            "karpenter.sh/provisioner-name",
            None,
            "a Provisioner is a NodePool since Karpenter 0.32: karpenter.sh/nodepool",
        ),
    ),
    setters=(
        Setter(
            "Karpenter",
            ("karpenter.sh/do-not-sync-taints", "karpenter.sh/initialized", "karpenter.sh/registered"),
            frozenset({"Karpenter on AWS", "Karpenter on Azure", "Karpenter on Google Cloud"}),
            source="karpenter, pkg/apis/v1/labels.go",
        ),
        Setter(
            "EKS Auto Mode",
            ("eks.amazonaws.com/compute-type", "eks.amazonaws.com/instance-*", "eks.amazonaws.com/nodeclass"),
            frozenset({"Karpenter on AWS"}),
            source=_SEEN,
        ),
        Setter(
            "Karpenter",
            ("karpenter.k8s.aws/*",),
            frozenset({"Karpenter on AWS"}),
            source="karpenter-provider-aws, pkg/apis/v1/labels.go",
        ),
        Setter(
            "Karpenter",
            ("karpenter.azure.com/*",),
            frozenset({"Karpenter on Azure"}),
            source="karpenter-provider-azure, pkg/apis/v1beta1/labels.go",
        ),
        Setter(
            "Karpenter",
            ("karpenter.k8s.gcp/*",),
            frozenset({"Karpenter on Google Cloud"}),
            source="karpenter-provider-gcp, pkg/apis/v1alpha1",
        ),
    ),
    derived=_of_karpenter,
    labels=(
        Label(
            "karpenter.sh/capacity-type",
            ("spot", "on-demand", "reserved"),
            misspelt=("karpenter.sh/capacity", "karpenter.sh/spot"),
        ),
        Label("karpenter.sh/nodepool", misspelt=("karpenter.sh/nodepool-name", "karpenter.sh/pool")),
        Label("karpenter.sh/provisioner-name", misspelt=("karpenter.sh/provisioner",)),
        *(Label(f"karpenter.k8s.aws/instance-{name}", is_small=True) for name in _INSTANCE),
    ),
    makers={
        "karpenter.azure.com": frozenset({"Karpenter on Azure"}),
        "karpenter.k8s.aws": frozenset({"Karpenter on AWS"}),
        "karpenter.sh": _KARPENTER,
    },
    domains=r"karpenter",
    clouds=(_AMAZON, AZURE, _GOOGLE_CLOUD),
    cloud_of=_cloud_of_karpenter,
    metadata_service="aws",
    tools=("karpenter",),
    makes_pools="EKS Auto Mode, AKS node auto-provisioning, or a NodePool of both capacities",
    makes_pools_of="EKS Auto Mode and AKS node auto-provisioning",
    mixes_capacities=True,
    lifetime_field="expireAfter",
    autoscaler="karpenter",
    marks=("karpenter.sh/", "karpenter.k8s.aws/", "karpenter.azure.com/"),
    first_pools=(
        "  general-spot: {capacity: spot, provider: karpenter}",
        "  general: {capacity: on-demand, provider: karpenter}",
    ),
)


# OKE: about 120 s notice, in which OKE drains the node; sets label and taint of preemptible nodes, and the GPU taint. No label
# names the pool. Not tried on a real OKE. Sources: Oracle Cloud Infrastructure documentation, "Using Preemptible
# Capacity to Provision Worker Nodes" (label, key of the taint, drain), "Supported Labels for Different Usecases", "Using the
# Kubernetes Cluster Autoscaler" (groups are OCIDs of pools); oracle/karpenter-provider-oci, ``docs/guide/faqs.md`` (value and
# effect of the taints that OKE starts nodes with); Oracle's blog, "Reduce your Kubernetes costs with preemptible nodes" (two
# minutes).

_OKE_PREEMPTIBLE = "oci.oraclecloud.com/oke-is-preemptible"

_OKE = Provider(
    "oke",
    120.0,
    title="OKE",
    remark=(
        "From Oracle's documentation; not tried on a real OKE. No label there names a pool: give pools that differ in "
        "neither machine nor capacity, and pools of Kueue's flavors, a distinct label. OKE drains a node before its end; no "
        "notice is read on it."
    ),
    notice_words="Oracle Cloud",
    spot=(Form({_OKE_PREEMPTIBLE: "true"}, (Taint(_OKE_PREEMPTIBLE, "present"),)),),
    gpu_taints=(Taint(NVIDIA_GPU, "present"),),
    spot_taint_keys=frozenset({_OKE_PREEMPTIBLE}),
    marks_spot=True,
    node_prefix="oci.oraclecloud.com/",
    plain_labels=frozenset({"displayName", "hostname", "internal_addr"}),
    setters=(
        Setter(
            "OKE",
            ("oci.oraclecloud.com/fault-domain", "displayName", "hostname", "internal_addr"),
            frozenset({"OKE"}),
            source='Oracle Cloud Infrastructure documentation, "Supported Labels for Different Usecases"; ' + _SEEN,
        ),
    ),
    labels=(
        Label(
            _OKE_PREEMPTIBLE,
            _TRUE,
            misspelt=("oke-is-preemptible", "oci.oraclecloud.com/is-preemptible", "oci.oraclecloud.com/preemptible"),
        ),
        Label("oci.oraclecloud.com/fault-domain"),
    ),
    domains=r"oraclecloud",
    clouds=("Oracle Cloud",),
    billed_by="Oracle",
    expander_command=(
        "start the cluster autoscaler with --expander=priority; its groups are called by the OCID of their pool: correct the "
        "patterns"
    ),
    marks=("oci.oraclecloud.com/",),
    first_pools=(
        "  preemptible: {capacity: spot, provider: oke, machine: VM.Standard.E5.Flex}",
        "  regular: {capacity: on-demand, provider: oke, machine: VM.Standard.E5.Flex}",
    ),
)


_KNOWN = (_AKS, _GKE, _EKS, _OKE, _KARPENTER_RECORD)


_ANY = f"{', '.join(one.name for one in _KNOWN[:-1])} or {_KNOWN[-1].name}"


_GENERIC = Provider(  # 30 s notice; sets neither labels nor taints
    GENERIC,
    30.0,
    tools=("generic",),
    hints_at_zero=True,
    first_pools=(
        f"  # provider: {_ANY} knows the labels of its nodes; for generic, write those that your nodes have",
        "  spot: {capacity: spot, provider: generic, labels: {capacity: spot}}",
        "  on-demand: {capacity: on-demand, provider: generic, labels: {capacity: on-demand}}",
    ),
)

PROVIDERS: Mapping[str, Provider] = {one.name: one for one in (*_KNOWN, _GENERIC)}
"""The records by the name in ``spotwright.yaml``, in the order in which messages list them; the generic one is the last."""

AUTOSCALERS: tuple[str, ...] = tuple(dict.fromkeys(one.autoscaler for one in PROVIDERS.values()))
"""The autoscalers of all providers, the cluster autoscaler first."""
