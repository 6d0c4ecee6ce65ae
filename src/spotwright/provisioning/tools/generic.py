"""What nodes of a cluster without a known provider need, so that they are the pool of the configuration: labels and taints.

Sources: Kubernetes reference, "kubelet" (``--node-labels``, ``--register-with-taints``), "kubectl label", "kubectl taint";
kubernetes/autoscaler, ``cloudprovider/clusterapi/README.md`` (annotations with which the autoscaler knows an empty group).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spotwright.clouds import providers
from spotwright.errors import InputError
from spotwright.manifests.kueue.queue_objects import quantity
from spotwright.manifests.rules.expander import expander_objects
from spotwright.model.pools import Provider
from spotwright.provisioning.making import Request, introduction
from spotwright.provisioning.script import Variable, command, comment, heredoc, section

__all__ = ["generic_script"]

_NODE = Variable("NODE", "the name of a node of the pool")
_ANNOTATION = "capacity.cluster-autoscaler.kubernetes.io"


def generic_script(request: Request) -> Iterator[str]:
    """The script for one pool. Raises :class:`InputError` if nothing would distinguish its nodes."""
    pool = request.pool
    labels = providers.own_labels(pool)
    if not labels and not pool.taints:
        raise InputError(
            f"pool {pool.name}: nothing distinguishes its nodes: set provider:, or labels: and taints: of the nodes in "
            "spotwright.yaml"
        )
    taints = [taint.with_equals for taint in pool.taints]
    label_list = ",".join(f"{key}={value}" for key, value in labels.items())
    yield from introduction(request, "a cluster without a provider that Spotwright knows")
    yield from section(
        "Nodes that register themselves: options of their kubelet.",
        "Labels and taints that are set at the start are there before the first pod is.",
    )
    flags = [f"--node-labels={label_list}"] if labels else []
    flags += [f"--register-with-taints={','.join(taints)}"] if taints else []
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
        expander_objects({name: one for name, one in request.pools.items() if one.provider is Provider.GENERIC})
    )
    if objects:
        yield from section(
            "Make spot: prefer true, once for the cluster.",
            "Start the cluster autoscaler with --expander=priority, and correct the patterns to the names of its node "
            "groups: a group that no pattern matches is never grown.",
        )
        yield from heredoc(("kubectl", "apply", "-f", "-"), objects)


def _hints(request: Request, label_list: str, taints: Sequence[str]) -> Iterator[str]:
    """Annotations of Cluster API with which the autoscaler knows a node of an empty group."""
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
