"""The ``gcloud`` commands that create a node pool of GKE, and those that show whether the region has the machine and the quota.

Sources: Google Cloud, gcloud reference, ``container node-pools create`` (the flags; ``--num-nodes``, ``--min-nodes`` and
``--max-nodes`` count for each zone, ``--total-min-nodes`` and ``--total-max-nodes`` for the pool); "Run fault-tolerant workloads
with Spot VMs" (taints, price), "Run GPUs in GKE Standard node pools" (``--accelerator`` and its driver, the taint that GKE adds),
"Spot VMs in GKE" (30 seconds, 15 of them for pods), "About custom compute classes", "Run multi-instance GPUs" (partition sizes
and how many of them a GPU has), "Deploy TPU workloads in GKE Standard" (``--tpu-topology``, the taint ``google.com/tpu``).
"""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.clouds import providers
from spotwright.clouds.machines import gpu_parts
from spotwright.clouds.node_signs import PLATFORM_TAINTS
from spotwright.clouds.provider_records import COMPUTE_CLASS, PREEMPTIBLE, PROVISIONING, machine_accelerator
from spotwright.errors import InputError
from spotwright.model.pools import Pool
from spotwright.pools.listed_forms import LOCATION_POLICIES, QUEUED, SHARED_CLIENTS, SHARING
from spotwright.pools.request import (
    Flags,
    Request,
    Variable,
    Word,
    command,
    gpus,
    introduction,
    name_at_provider,
    section,
    with_create_flags,
)

__all__ = ["accelerator", "gcloud_script"]


_CLUSTER = Variable("CLUSTER", "the name of the cluster")
_LOCATION = Variable("LOCATION", "the region or zone of the cluster")
_REGION = Variable("REGION", "the region of the cluster")
_ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
_RESERVED = ("cloud.google.com/", "kubernetes.io/", "k8s.io/")
_PARTITION_LABEL = "cloud.google.com/gke-gpu-partition-size"
_TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
_SAID_BY_MACHINE = (
    _ACCELERATOR_LABEL,
    _PARTITION_LABEL,
    _TOPOLOGY_LABEL,
    "cloud.google.com/gke-tpu-accelerator",
    PROVISIONING,
    SHARED_CLIENTS,
    SHARING,
)
_TAINTS_BY_GOOGLE = ("google.com/tpu", QUEUED.partition("=")[0], *PLATFORM_TAINTS)
_SAID_BY = {
    "spot": "capacity",
    "preemptible": "capacity",
    "machine-type": "machine",
    "node-locations": "zones",
    "total-min-nodes": "min_nodes",
    "total-max-nodes": "max_nodes",
    "min-nodes": "min_nodes",
    "max-nodes": "max_nodes",
    "node-labels": "labels",
    "node-taints": "taints",
    "max-run-duration": "max_lifetime",
}


def gcloud_script(request: Request) -> Iterator[str]:
    """The script for one pool. Raises :class:`InputError` if GKE cannot have such a pool."""
    pool = request.pool
    if not pool.machine:
        raise InputError(
            f"pool {pool.name}: gcloud needs the machine: set machine: n1-standard-8 or the like in spotwright.yaml"
        )
    if pool.max_nodes < 1:
        raise InputError(f"pool {pool.name}: max_nodes is 0, and GKE asks for at least 1")
    if pool.os == "windows" and pool.is_spot:
        raise InputError(
            f"pool {pool.name}: GKE has no Windows nodes on Spot VMs: set os: linux, or capacity: on-demand"
        )
    name = name_at_provider(request)
    flags = _flags(request)
    yield from introduction(request, "GKE")
    yield from _availability(pool)
    yield from section("Make the pool.", *_meanings(request))
    yield from command(("gcloud", "container", "node-pools", "create", name), flags)
    yield from _preference(request)
    yield from section("Compare what is there with spotwright.yaml.")
    yield f"kubectl get nodes -l cloud.google.com/gke-nodepool={name} --show-labels"
    yield "kubectl get nodes,daemonsets -A -o json | spotwright pools check -"


def accelerator(pool: Pool) -> str:
    """The type of the pool's GPUs as Google names it: from the label, else from the machine."""
    kind = pool.labels.get(_ACCELERATOR_LABEL) or machine_accelerator(pool.machine)
    if not kind:
        raise InputError(
            f"pool {pool.name}: {pool.machine} has GPUs of several types: name one with labels: "
            f"{{{_ACCELERATOR_LABEL}: nvidia-tesla-t4}}, a label that GKE sets on its nodes"
        )
    return kind


def _flags(request: Request) -> dict[str, tuple[Word, ...]]:
    pool = request.pool
    labels = {key: value for key, value in providers.own_labels(pool).items() if _is_ours(key)}
    by_google = providers.taints(Pool(pool.name, pool.capacity, pool.provider, node=pool.node))
    taints = [
        taint.with_equals for taint in pool.taints if taint not in by_google and taint.key not in _TAINTS_BY_GOOGLE
    ]
    topology, is_preemptible = pool.labels.get(_TOPOLOGY_LABEL), PREEMPTIBLE in pool.labels
    flags: dict[str, tuple[Word, ...]] = {
        "cluster": (request.cluster or _CLUSTER,),
        "location": (_LOCATION,),
        "machine-type": (pool.machine,),
        **({"accelerator": (_accelerators(pool),)} if gpus(pool) else {}),
        **({"tpu-topology": (topology,)} if topology else {}),
        **({"preemptible" if is_preemptible else "spot": ()} if pool.is_spot else {}),
        **({"image-type": ("WINDOWS_LTSC_CONTAINERD",)} if pool.os == "windows" else {}),
        **({"node-locations": (",".join(pool.zones),)} if pool.zones else {}),
        "enable-autoscaling": (),
        "num-nodes": (-(-pool.min_nodes // max(len(pool.zones), 1)),),
        "total-min-nodes": (pool.min_nodes,),
        "total-max-nodes": (pool.max_nodes,),
        **({"max-run-duration": (f"{int(pool.max_lifetime)}s",)} if pool.max_lifetime and not is_preemptible else {}),
        "location-policy": (LOCATION_POLICIES[pool.is_spot],),
        **({"node-labels": (",".join(f"{key}={value}" for key, value in labels.items()),)} if labels else {}),
        **({"node-taints": (",".join(taints),)} if taints else {}),
    }
    return with_create_flags(request, flags, _SAID_BY, separator=",")


def _is_ours(key: str) -> bool:
    return key == COMPUTE_CLASS or not key.startswith(_RESERVED)


def _accelerators(pool: Pool) -> str:
    """The value of ``--accelerator``. Partitions are offered as GPUs; their size begins with their slices (1g.5gb)."""
    size, clients = pool.labels.get(_PARTITION_LABEL, ""), pool.labels.get(SHARED_CLIENTS, "")
    partition = f",gpu-partition-size={size}" if size else ""
    strategy = pool.labels.get(SHARING, "time-sharing")
    sharing = f",gpu-sharing-strategy={strategy},max-shared-clients-per-gpu={clients}" if clients else ""
    offered = gpu_parts(size) * (int(clients) if clients.isdecimal() and int(clients) else 1)
    count = max(gpus(pool) // offered, 1)
    return f"type={accelerator(pool)},count={count},gpu-driver-version=default{partition}{sharing}"


def _availability(pool: Pool) -> Iterator[str]:
    region: Word = pool.region or _REGION
    quotas = ["PREEMPTIBLE_CPUS" if pool.is_spot else "CPUS, and the row of the machine's family where there is one"]
    if gpus(pool):
        kind = accelerator(pool).replace("nvidia-tesla-", "nvidia-").replace("-", "_").upper()
        quotas.append(f"{'PREEMPTIBLE_' if pool.is_spot else ''}{kind}_GPUS")
    spot_quota = (
        " Without a separate preemptible quota, spot is counted against the ordinary quota." if pool.is_spot else ""
    )
    yield from section(
        "Does the region have the machine, and is quota left?",
        "A zone that is not listed does not offer the machine or the GPU.",
        f"Quota: the rows {', '.join(quotas)}.{spot_quota}",
    )
    zones: Flags = {"zones": (",".join(pool.zones),)} if pool.zones else {}
    listed = ("gcloud", "compute", "machine-types", "list")
    yield from command(listed, {"filter": (f"name={pool.machine}",), **zones})
    if gpus(pool):
        yield from command(
            ("gcloud", "compute", "accelerator-types", "list"), {"filter": (f"name={accelerator(pool)}",)}
        )
    table = "table(quotas.metric,quotas.limit,quotas.usage)"
    yield from command(
        ("gcloud", "compute", "regions", "describe", region), {"flatten": ("quotas",), "format": (table,)}
    )


def _meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    yield from request.warnings
    if pool.is_spot:
        yield from _spot_meanings(request)
    elif PROVISIONING in pool.labels:
        yield f"On-demand: the flags below make nodes with the label {PROVISIONING}={pool.labels[PROVISIONING]}."
    else:
        yield (
            "On-demand: without --spot the nodes are standard VMs, with the label "
            "cloud.google.com/gke-provisioning=standard."
        )
    yield (
        f"--num-nodes counts for each zone, and gcloud's default is 3 for each; here it is what {pool.min_nodes} nodes "
        "in all need. --total-min-nodes and --total-max-nodes bound the whole pool, as min_nodes and max_nodes do; "
        "--min-nodes and --max-nodes would count for each zone. In a regional cluster without zones in spotwright.yaml "
        "the pool has three."
    )
    yield (
        "--location-policy ANY takes the zone that has capacity; BALANCED spreads the nodes. GKE passes labels, "
        "taints and GPUs of the pool to its autoscaler, so that a pool of 0 nodes is known to fit."
    )
    reserved = [
        key for key in providers.own_labels(pool) if not _is_ours(key) and key not in (*_SAID_BY_MACHINE, PREEMPTIBLE)
    ]
    if reserved:
        yield request.warn(f"not given to gcloud, because Google reserves their prefix: {', '.join(reserved)}")
    if gpus(pool):
        yield (
            "--accelerator: GKE installs the driver (gpu-driver-version) and the device plugin, and adds the taint "
            "nvidia.com/gpu=present:NoSchedule; pods that ask for GPUs tolerate it without a word of theirs."
        )
    yield "Scopes, disks and the like come from create_flags, and stand last."


def _spot_meanings(request: Request) -> Iterator[str]:
    pool = request.pool
    notice = (
        "They have no SLA. The notice is 30 seconds, of which pods have the first 15: a longer grace period is cut."
    )
    if PREEMPTIBLE in pool.labels:
        yield f"--preemptible: preemptible VMs, with the label {PREEMPTIBLE}=true, which end after 24 hours. {notice}"
        yield request.warn(
            "preemptible VMs are a form of the past: Spot VMs cost the same and have no limit of 24 hours: remove the label "
            f"{PREEMPTIBLE} and lifetime from the pool, and --spot makes them"
        )
    else:
        labels = "cloud.google.com/gke-spot=true and gke-provisioning=spot"
        yield f"--spot: Spot VMs, with the labels {labels}, and no maximum age. {notice}"
    if not any(providers.is_spot_taint(pool, taint) for taint in pool.taints):
        yield request.warn(
            "GKE sets no spot taint on a pool that is made by hand: add taints: "
            '["cloud.google.com/gke-spot=true:NoSchedule"] to the pool '
            "in spotwright.yaml, or any work may land on it"
        )
    if pool.max_price is not None:
        yield request.warn("max_price is not given to gcloud: Spot VMs of Google have no price ceiling")


def _preference(request: Request) -> Iterator[str]:
    on_gke = {pool.is_spot for pool in request.pools.values() if pool.provider == request.pool.provider}
    if on_gke != {True, False}:
        return
    yield from section(
        "Make spot: prefer true, once for the cluster.",
        "GKE's autoscaler has no priority expander, and ignores preferred affinity when it chooses the pool to grow. A "
        "ComputeClass orders the pools; it is printed with the labels and taints that they then need.",
    )
    yield "spotwright pools command --as computeclass | kubectl apply -f -"
