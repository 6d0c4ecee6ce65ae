"""Pools outside the commands of a cloud: labels and taints for nodes of any cluster, and GKE's ComputeClass.

Without a known provider, labels and taints make nodes a pool of the configuration. A ComputeClass orders
the pools: spot first, on-demand where spot has no capacity.

Sources: Kubernetes reference, "kubelet" (``--node-labels``, ``--register-with-taints``), "kubectl label", "kubectl taint";
kubernetes/autoscaler, ``cloudprovider/clusterapi/README.md`` (annotations with which the autoscaler knows an empty group).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.provider_records import COMPUTE_CLASS, PROVIDERS
from spotwright.errors import InputError
from spotwright.kinds.kueue import quantity
from spotwright.model.pools import Pool
from spotwright.placing.kueue_flavors import flavor_order
from spotwright.placing.retries import EXPANDER_MEANINGS, expander_objects
from spotwright.placing.yaml_writer import flow
from spotwright.pools.gcloud import accelerator
from spotwright.pools.request import (
    Request,
    Variable,
    command,
    comment,
    gpus,
    heredoc,
    introduction,
    items,
    labels_at_start,
    section,
)

__all__ = ["DEFAULT_CLASS", "compute_class_lines", "generic_script"]


_NODE = Variable("NODE", "the name of a node of the pool")
_ANNOTATION = "capacity.cluster-autoscaler.kubernetes.io"


def generic_script(request: Request) -> Iterator[str]:
    """The script for one pool. Raises :class:`InputError` if its nodes would be indistinguishable."""
    pool = request.pool
    labels = providers.own_labels(pool)
    if not labels and not pool.taints:
        raise InputError(
            f"pool {pool.name}: its nodes are indistinguishable: set provider:, or labels: and taints: of the nodes in "
            "spotwright.yaml"
        )
    taints = [taint.with_equals for taint in pool.taints]
    label_list, start_list = (
        ",".join(f"{key}={value}" for key, value in some.items()) for some in (labels, labels_at_start(request))
    )
    yield from introduction(request, "a cluster without a provider that Spotwright knows")
    yield from section(
        "Nodes that register themselves: options of their kubelet.",
        "Labels and taints that are set at the start are there before the first pod is.",
    )
    flags = [f"--node-labels={start_list}"] if start_list else []
    flags += [f"--register-with-taints={','.join(taints)}"] if taints else []
    if flags:
        yield from comment(f"kubelet {' '.join(flags)}")
    yield from section("Nodes that are there already.")
    if labels:
        yield from command(
            ("kubectl", "label", "node", _NODE, *(f"{key}={value}" for key, value in labels.items())), {"overwrite": ()}
        )
    if taints:
        yield from command(("kubectl", "taint", "node", _NODE, *taints), {"overwrite": ()})
    yield from _hints(request, label_list, taints)
    objects = list(
        expander_objects({name: one for name, one in request.pools.items() if one.provider == request.pool.provider})
    )
    if objects:
        yield from section(
            "Make spot: prefer true, once for the cluster.",
            "Start the cluster autoscaler with --expander=priority, and correct the patterns to the names of its node "
            "groups.",
            *EXPANDER_MEANINGS,
        )
        yield from heredoc(("kubectl", "apply", "-f", "-"), objects)


def _hints(request: Request, label_list: str, taints: Sequence[str]) -> Iterator[str]:
    """Cluster API annotations that describe the nodes of an empty group to the autoscaler."""
    pool = request.pool
    yield from section(
        "From zero, with Cluster API: annotations of the MachineDeployment.",
        "Without them the autoscaler does not know what a node of an empty group would be.",
    )
    node = pool.node or {}
    amounts: dict[str, int | str] = {name: quantity(name, node.get(name, 0)) for name in ("cpu", "memory")}
    for device, count in list(providers.gpus_of(pool).items())[:1]:
        amounts |= {"gpu-type": device, "gpu-count": count}
    annotations = [f"{_ANNOTATION}/{name}={amount}" for name, amount in amounts.items() if amount]
    annotations += [f"{_ANNOTATION}/labels={label_list}"] if label_list else []
    annotations += [f"{_ANNOTATION}/taints={','.join(taints)}"] if taints else []
    deployment = Variable("MACHINE_DEPLOYMENT", "the MachineDeployment of the pool")
    yield from command(("kubectl", "annotate", "machinedeployment", deployment, *annotations), {"overwrite": ()})


DEFAULT_CLASS = "spotwright"
"""Name of the class if the pools name none."""


def compute_class_lines(pools: Mapping[str, Pool], ladder: Sequence[str] = ()) -> Iterator[str]:
    """The ComputeClass of each name in the labels of the GKE pools, or one for all of them if none has the label.

    Raises :class:`InputError` without a pool of GKE.
    """
    ours = {name: pool for name, pool in pools.items() if providers.of(pool).class_label}
    if not ours:
        ordered_by_class = next(one for one in PROVIDERS.values() if one.class_label)
        raise InputError(
            f"no pool has provider: {ordered_by_class.name}, and a ComputeClass orders pools of {ordered_by_class.title}"
        )
    ordered = sorted(flavor_order(ours, ladder), key=lambda pool: not pool.is_spot)
    named = list(dict.fromkeys(pool.labels[COMPUTE_CLASS] for pool in ordered if COMPUTE_CLASS in pool.labels))
    for number, name in enumerate(named or [DEFAULT_CLASS]):
        members = [pool for pool in ordered if pool.labels.get(COMPUTE_CLASS) == name] if named else ordered
        yield from () if number == 0 else ("---",)
        yield from _class(name, members)


def _class(name: str, members: Sequence[Pool]) -> Iterator[str]:
    yield from items(_meanings(name, members))
    yield "apiVersion: cloud.google.com/v1"
    yield "kind: ComputeClass"
    yield f"metadata: {flow({'name': name})}"
    yield "spec:"
    yield "  priorities:"
    for pool in members:
        yield f"  - {flow(_rule(pool))}  # {pool.capacity}"
    if any(pool.automatic for pool in members):
        yield "  nodePoolAutoCreation: {enabled: true}  # GKE makes the pools that have no name above"
    else:
        yield "  nodePoolAutoCreation: {enabled: false}  # the pools above are there; true lets GKE make others"
    yield "  activeMigration: {optimizeRulePriority: false}  # true would drain running work to bring it back to spot"
    yield "  whenUnsatisfiable: DoNotScaleUp  # wait for one of these pools, instead of any machine that GKE finds"


def _rule(pool: Pool) -> dict[str, Any]:
    """The rule of a class for a pool: by its name, or by its machines if GKE makes it by itself."""
    if not pool.automatic:
        name = providers.pool_name(pool)
        if not name:
            raise InputError(f"pool {pool.name}: GKE allows no pool of that name: rename it in spotwright.yaml")
        return {"nodepools": [name]}
    devices = {"gpu": {"type": accelerator(pool), "count": gpus(pool)}} if gpus(pool) else {}
    return {
        **({"machineType": pool.machine} if pool.machine else {}),
        "spot": pool.is_spot,
        **devices,
        **({"location": {"zones": list(pool.zones)}} if pool.zones else {}),
        **({"maxRunDurationSeconds": int(pool.max_lifetime)} if pool.max_lifetime else {}),
        **pool.create_flags,
    }


def _meanings(name: str, members: Sequence[Pool]) -> Iterator[str]:
    taint = f"{COMPUTE_CLASS}={name}:NoSchedule"
    lacking = [
        pool.name
        for pool in members
        if not pool.automatic and (pool.labels.get(COMPUTE_CLASS) != name or taint not in map(str, pool.taints))
    ]
    unlabelled = [pool.name for pool in members if pool.automatic and pool.labels.get(COMPUTE_CLASS) != name]
    yield (
        f"Pods belong to the class by the label {COMPUTE_CLASS}={name}. A ladder that names these pools makes place "
        f"require it: policy: {{default: {{spot: prefer, ladder: {flow([pool.name for pool in members])}}}}}."
    )
    if lacking:
        yield (
            f"SET THIS in spotwright.yaml, and make these pools again with it ({', '.join(lacking)}): "
            f'labels: {{{COMPUTE_CLASS}: {name}}} and taints: ["{taint}"]. A pool without them is not part of the '
            "class."
        )
    if unlabelled:
        yield (
            f"SET THIS in spotwright.yaml for {', '.join(unlabelled)}, which GKE makes with the label and its taint: "
            f"labels: {{{COMPUTE_CLASS}: {name}}}."
        )
    if {pool.is_spot for pool in members} != {True, False}:
        yield "All pools of the class have one capacity, so there is no fallback."
