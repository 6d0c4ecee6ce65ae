"""The rights of webhook and recorder on Kubernetes' API, with reasons; ``scripts/make_chart.py`` writes them into the chart.

Each process has its own account: whoever takes over the webhook, whose port is open to the network, can neither end pods nor
read their logs, and the recorder cannot change the webhook's registration. No process has rights on Secrets, or may grant
rights or impersonate others.

The default is a list of namespaces: a Role in each of them, and a ClusterRole with what has no namespace. Where all labelled
namespaces are served, the rights of :data:`SERVED` are in the ClusterRole too.

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
    """Some verbs on some resources of one API group, which processes have it, and what they do with it.

    ``names``: on the objects with these names alone; empty: on all of them.
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
"""Stands for the name of the Lease and of the registration, which the chart chooses; other names begin with it."""


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
    Right(_BOTH, "", ("pods",), ("get", *_FOLLOW), "the attempts, and which of them have their numbers"),
    Right(
        _RECORDER,
        "",
        ("pods",),
        ("delete",),
        "a pod of a machine that is gone is deleted, so that its successor starts",
    ),
    Right(
        _RECORDER,
        "",
        ("pods/status",),
        ("patch",),
        "such a pod has failed: otherwise its Job waits for the status of its node",
    ),
    Right(_RECORDER, "", ("pods/eviction",), ("create",), "a pod that waits for a node in vain is evicted"),
    Right(_RECORDER, "", ("pods/log",), ("get",), "the logs of attempts are kept"),
    Right(_RECORDER, "", ("events",), _FOLLOW, "why a pod waits, and why it ended"),
    Right(_WEBHOOK, "", ("events",), ("list",), "whether a cluster autoscaler adds nodes"),
    Right(_BOTH, "", ("events",), ("create",), "what is wrong is said where its author looks"),
    Right(_BOTH, "", ("configmaps",), _FOLLOW, "the namespace's own configuration", (CONFIG_MAP,)),
    Right(
        _BOTH,
        _RECORDS,
        ("spotcounters",),
        ("get", "create", "patch"),
        "the numbers of attempts, what was decided of each pod, and which runs were deleted early",
    ),
    Right(_RECORDER, _RECORDS, ("spotcounters",), ("list",), "which pods came and went unrecorded"),
    Right(
        _WEBHOOK,
        "",
        ("persistentvolumeclaims",),
        ("get",),
        "whether the claim of a default policy is there: pods would wait for it",
    ),
    Right(
        _RECORDER,
        _RECORDS,
        _RECORDED,
        ("get", "list", "create", "patch"),
        "what becomes of a workload is recorded beside it",
    ),
    Right(_RECORDER, _RECORDS, _RECORDED[:1], ("delete",), "records are deleted some time after the end of their run"),
    Right(_WEBHOOK, _RECORDS, _RECORDED, _FOLLOW, "what was recorded decides where the next attempt goes"),
    *_of_kinds(_RECORDER, _FOLLOW, "each is a run: what becomes of it is recorded", Reads.RUNS),
    *_of_kinds(_WEBHOOK, ("get",), "read where it owns a pod", Reads.RUNS),
    *_of_kinds(_WEBHOOK, ("get",), "read where a pod's owner, or what is created, refers to one", Reads.OBJECTS),
)
"""In each namespace that is served."""

LIBRARY: tuple[Right, ...] = (
    Right(
        _WEBHOOK,
        "",
        ("configmaps",),
        ("create",),
        "the checkpoint library for pods, where the chart is set to make it",
    ),
)
"""In each namespace that is served, with ``checkpoints.library`` alone."""

CLAIMS: tuple[Right, ...] = (
    Right(
        _WEBHOOK,
        "",
        ("persistentvolumeclaims",),
        ("create",),
        "the claims that policies name, where the chart is set to make them",
    ),
)
"""In each namespace that is served, with ``checkpoints.claimSize`` alone."""

NAMESPACES: tuple[Right, ...] = (
    Right(_RECORDER, "", ("namespaces",), _FOLLOW, "whether a namespace is there, and is still the one that it was"),
)
"""On the namespaces that are served, by name; where all labelled ones are, on all."""

NAMESPACES_TO_FILL: tuple[Right, ...] = (
    Right(_WEBHOOK, "", ("namespaces",), ("list",), "where the library and claims are made"),
)
"""On all namespaces, where all labelled ones are served, with ``checkpoints.library`` or ``checkpoints.claimSize`` alone."""

CLUSTER: tuple[Right, ...] = (
    Right(_RECORDER, "", ("nodes",), _FOLLOW, "the pools, and why a node went"),
    Right(_WEBHOOK, "", ("nodes",), ("get",), "why an earlier attempt ended, where that is not recorded yet"),
    Right(_RECORDER, "karpenter.sh", ("nodeclaims",), _FOLLOW, "what Karpenter has ordered, and why it could not"),
    Right(_WEBHOOK, "karpenter.sh", ("nodepools",), ("list",), "which pools Karpenter adds nodes to"),
    *_of_kinds(_WEBHOOK, ("get",), "read where a workload refers to one", Reads.OBJECTS, is_cluster_wide=True),
    Right(_BOTH, _RECORDS, ("spotpools",), _FOLLOW, "until when attempts pass a pool over"),
    Right(_RECORDER, _RECORDS, ("spotpools",), ("create", "patch", "delete"), "the pools are shown as they are found"),
    Right(_RECORDER, "authentication.k8s.io", ("tokenreviews",), ("create",), "who asks to read logs"),
    Right(_RECORDER, "authorization.k8s.io", ("subjectaccessreviews",), ("create",), "what that person may read"),
    Right(
        _RECORDER,
        "admissionregistration.k8s.io",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ("get",),
        "whether the chart's policy proves who writes Events about nodes: without it none is believed",
        (f"{LEASE}{SUFFIX}",),
    ),
)
"""On what has no namespace."""

HOME: tuple[Right, ...] = (
    Right(_BOTH, "", ("configmaps",), _FOLLOW, "the configuration of the cluster", (CONFIG_MAP,)),
    Right(
        _RECORDER,
        "",
        ("configmaps",),
        ("get", "update"),
        "readers find the authority of the certificate there",
        (READING,),
    ),
    Right(
        _BOTH,
        "",
        ("events",),
        ("create",),
        "what is wrong with the configuration, the certificate, numbers or the store of logs",
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
        "what is said of nodes, such as an agent's notice: believed by the policy's proof",
    ),
)
"""In the namespace ``default``, which has the Events about nodes."""

NODE_LEASES: tuple[Right, ...] = (
    Right(
        _RECORDER,
        "coordination.k8s.io",
        ("leases",),
        ("get",),
        "until when a node lived that has fallen silent or is gone",
    ),
)
"""In the namespace ``kube-node-lease``, which has the Lease of each node."""

KUBE_SYSTEM: tuple[Right, ...] = (
    Right(_RECORDER, "", ("configmaps",), _FOLLOW, "what the Cluster Autoscaler says of pools", (STATUS,)),
    Right(_WEBHOOK, "", ("configmaps",), ("get",), "which pools it knows, and prefers", (STATUS, PRIORITIES)),
    Right(
        _RECORDER,
        "",
        ("configmaps",),
        ("get",),
        "the authority of people's client certificates",
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
        "the authority of the process's certificate is written there",
        (LEASE,),
    ),
)
"""On the chart's registration of the webhook. Absent with a certificate from elsewhere."""
