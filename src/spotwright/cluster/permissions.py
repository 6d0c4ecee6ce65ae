"""The rights of webhook and recorder on Kubernetes' API, with reasons; ``scripts/make_chart.py`` writes them into the chart.

Each process has its own account: an attacker of the webhook, whose port is open to the network, can neither delete pods nor
read their logs, and the recorder cannot change the webhook's registration. No process has rights on Secrets, or may grant
rights or impersonate others.

The default is a list of namespaces: a Role in each, and a ClusterRole for cluster-wide resources. If all labelled namespaces
are served, the rights of :data:`SERVED` are in the ClusterRole too.

Rights are limited to names (``resourceNames``) where the names are known. A list or a watch
by name is allowed if it asks for that name alone, by ``fieldSelector=metadata.name=NAME``: Kubernetes documentation, "Using RBAC
Authorization", "Referring to resources".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spotwright.clouds.cluster_autoscaler import PRIORITIES, STATUS
from spotwright.cluster.configurations import CONFIG_MAP
from spotwright.cluster.log_client import CONFIG_MAP as READING
from spotwright.cluster.node_events import SUFFIX
from spotwright.cluster.run_objects import API_VERSION, KINDS
from spotwright.kinds.kind import Reads, all_kinds

__all__ = [
    "CLAIMS",
    "CLUSTER",
    "DEFAULT",
    "HOME",
    "KUBE_SYSTEM",
    "LEASE",
    "LIBRARY",
    "NAMESPACES",
    "NAMESPACES_TO_FILL",
    "NODE_LEASES",
    "PROCESSES",
    "REGISTRATION",
    "SERVED",
    "Right",
    "account",
    "rules",
]


PROCESSES = _BOTH = ("webhook", "recorder")
_WEBHOOK, _RECORDER = ("webhook",), ("recorder",)


def account(process: str) -> str:
    """The name of the ServiceAccount of a process, in every release."""
    return f"spotwright-{process}"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of one API group, with the processes that have them, and the reason.

    ``names``: only on the objects with these names; empty: on all.
    """

    processes: tuple[str, ...]
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    reason: str
    names: tuple[str, ...] = ()

    def rule(self) -> dict[str, Any]:
        """The rule of a Role."""
        made: dict[str, Any] = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        return {**made, "resourceNames": list(self.names)} if self.names else made


def rules(rights: Sequence[Right], process: str) -> list[dict[str, Any]]:
    """The rules of a Role with a process's share of these rights."""
    return [right.rule() for right in rights if process in right.processes]


_FOLLOW = ("list", "watch")

_RECORDS, _RECORDED = API_VERSION.partition("/")[0], tuple(f"{kind.lower()}s" for kind in KINDS)
LEASE = "NAME"
"""The placeholder for the chart's name of the Lease and the registration, the prefix of other names."""


def _of_kinds(
    processes: tuple[str, ...], verbs: tuple[str, ...], reason: str, reads: Reads, *, is_cluster_wide: bool = False
) -> Iterator[Right]:
    """Reading some kinds of workloads: a right for each API group."""
    groups: dict[str, list[str]] = {}
    for kind in all_kinds().values():
        if kind.group and kind.reads is reads and kind.is_cluster_wide is is_cluster_wide:
            groups.setdefault(kind.group, []).append(kind.plural)
    yield from (Right(processes, group, tuple(plurals), verbs, reason) for group, plurals in groups.items())


SERVED: tuple[Right, ...] = (
    Right(_BOTH, "", ("pods",), ("get", *_FOLLOW), "the attempts, and which of them are numbered"),
    Right(
        _RECORDER,
        "",
        ("pods",),
        ("delete",),
        "a pod whose machine is gone is deleted, so that its successor starts",
    ),
    Right(
        _RECORDER,
        "",
        ("pods/status",),
        ("patch",),
        "such a pod has failed: otherwise its Job waits for the status of its node",
    ),
    Right(_RECORDER, "", ("pods/eviction",), ("create",), "a pod that no pool gives a node is evicted"),
    Right(_RECORDER, "", ("pods/log",), ("get",), "to store the logs of attempts"),
    Right(_RECORDER, "", ("events",), _FOLLOW, "why a pod waits, and why it ended"),
    Right(_WEBHOOK, "", ("events",), ("list",), "whether a cluster autoscaler adds nodes"),
    Right(_BOTH, "", ("events",), ("create",), "problems are reported on the objects that have them"),
    Right(_BOTH, "", ("configmaps",), _FOLLOW, "the namespace's own configuration", (CONFIG_MAP,)),
    Right(
        _BOTH,
        _RECORDS,
        ("spotcounters",),
        ("get", "create", "patch"),
        "attempt numbers, the decision about each pod, and which runs were deleted early",
    ),
    Right(_RECORDER, _RECORDS, ("spotcounters",), ("list",), "which pods were created and deleted unrecorded"),
    Right(
        _WEBHOOK,
        "",
        ("persistentvolumeclaims",),
        ("get",),
        "whether the claim of a default policy exists: pods would wait for it",
    ),
    Right(
        _RECORDER,
        _RECORDS,
        _RECORDED,
        ("get", "list", "create", "patch"),
        "each workload's progress is recorded beside it",
    ),
    Right(_RECORDER, _RECORDS, _RECORDED[:1], ("delete",), "records are deleted some time after the end of their run"),
    Right(_WEBHOOK, _RECORDS, _RECORDED, _FOLLOW, "the records decide where the next attempt goes"),
    *_of_kinds(_RECORDER, _FOLLOW, "each is a run, whose progress is recorded", Reads.RUNS),
    *_of_kinds(_WEBHOOK, ("get",), "read where it owns a pod", Reads.RUNS),
    *_of_kinds(_WEBHOOK, ("get",), "read where a pod's owner, or what is created, refers to one", Reads.OBJECTS),
)
"""In each served namespace."""

LIBRARY: tuple[Right, ...] = (
    Right(
        _WEBHOOK,
        "",
        ("configmaps",),
        ("create",),
        "the checkpoint library for pods, if the chart is set to create it",
    ),
)
"""In each served namespace, only with ``checkpoints.library``."""

CLAIMS: tuple[Right, ...] = (
    Right(
        _WEBHOOK,
        "",
        ("persistentvolumeclaims",),
        ("create",),
        "the claims that policies name, if the chart is set to create them",
    ),
)
"""In each served namespace, only with ``checkpoints.claimSize``."""

NAMESPACES: tuple[Right, ...] = (
    Right(_RECORDER, "", ("namespaces",), _FOLLOW, "whether a namespace exists and was not recreated"),
)
"""On the served namespaces, by name; on all namespaces if all labelled ones are served."""

NAMESPACES_TO_FILL: tuple[Right, ...] = (
    Right(_WEBHOOK, "", ("namespaces",), ("list",), "where to create the library and the claims"),
)
"""On all namespaces, if all labelled ones are served, only with ``checkpoints.library`` or ``checkpoints.claimSize``."""

CLUSTER: tuple[Right, ...] = (
    Right(_RECORDER, "", ("nodes",), _FOLLOW, "the pools, and why a node is gone"),
    Right(_WEBHOOK, "", ("nodes",), ("get",), "why an earlier attempt ended, if that is not recorded yet"),
    Right(_RECORDER, "karpenter.sh", ("nodeclaims",), _FOLLOW, "what Karpenter ordered, and why it failed"),
    Right(_WEBHOOK, "karpenter.sh", ("nodepools",), ("list",), "which pools Karpenter adds nodes to"),
    *_of_kinds(_WEBHOOK, ("get",), "read where a workload refers to one", Reads.OBJECTS, is_cluster_wide=True),
    Right(_BOTH, _RECORDS, ("spotpools",), _FOLLOW, "until when attempts skip a pool"),
    Right(_RECORDER, _RECORDS, ("spotpools",), ("create", "patch", "delete"), "publishes the state of the pools"),
    Right(_RECORDER, "authentication.k8s.io", ("tokenreviews",), ("create",), "who is asking to read logs"),
    Right(_RECORDER, "authorization.k8s.io", ("subjectaccessreviews",), ("create",), "what that person may read"),
    Right(
        _RECORDER,
        "admissionregistration.k8s.io",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ("get",),
        "whether the chart's policy proves who writes Events about nodes: without it they are ignored",
        (f"{LEASE}{SUFFIX}",),
    ),
)
"""On cluster-wide resources."""

HOME: tuple[Right, ...] = (
    Right(_BOTH, "", ("configmaps",), _FOLLOW, "the configuration of the cluster", (CONFIG_MAP,)),
    Right(
        _RECORDER,
        "",
        ("configmaps",),
        ("get", "update"),
        "publishes the CA of the certificate to readers",
        (READING,),
    ),
    Right(
        _BOTH,
        "",
        ("events",),
        ("create",),
        "problems with the configuration, the certificate, attempt numbers or the log store",
    ),
    Right(_RECORDER, "coordination.k8s.io", ("leases",), ("get", "update"), "one replica records", (LEASE,)),
)
"""In the controller's own namespace."""

DEFAULT: tuple[Right, ...] = (
    Right(
        _RECORDER,
        "",
        ("events",),
        _FOLLOW,
        "Events about nodes, such as an agent's notice, once the policy proves who writes them",
    ),
)
"""In the namespace ``default``, with the Events about nodes."""

NODE_LEASES: tuple[Right, ...] = (
    Right(
        _RECORDER,
        "coordination.k8s.io",
        ("leases",),
        ("get",),
        "when a silent or missing node was last alive",
    ),
)
"""In the namespace ``kube-node-lease``, with the nodes' Leases."""

KUBE_SYSTEM: tuple[Right, ...] = (
    Right(_RECORDER, "", ("configmaps",), _FOLLOW, "what the Cluster Autoscaler reports about pools", (STATUS,)),
    Right(_WEBHOOK, "", ("configmaps",), ("get",), "which pools it knows and prefers", (STATUS, PRIORITIES)),
    Right(
        _RECORDER,
        "",
        ("configmaps",),
        ("get",),
        "the CA of people's client certificates",
        ("extension-apiserver-authentication",),
    ),
)
"""In the namespace ``kube-system``."""

REGISTRATION: tuple[Right, ...] = (
    Right(
        _WEBHOOK,
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfigurations",),
        ("get", "patch"),
        "the CA of the controller's certificate is written there",
        (LEASE,),
    ),
)
"""On the chart's registration of the webhook. Absent with a certificate from elsewhere."""
