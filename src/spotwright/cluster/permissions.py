"""The rights of the controller on Kubernetes' API, each with its reason; ``scripts/make_chart.py`` writes them into the chart.

The default is a list of namespaces: a Role in each of them, and a ClusterRole with what has no namespace. Where all labelled
namespaces are served, the rights of :data:`SERVED` are in the ClusterRole too. No right is on Secrets, and none lets the
controller grant rights, or act as somebody else.

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
    "NODE_LEASES",
    "REGISTRATION",
    "SERVED",
    "Right",
    "rules",
]


@dataclass(frozen=True, slots=True)
class Right:
    """Some verbs on some resources of one API group, and what the controller does with them.

    ``names``: on the objects with these names alone; empty: on all of them.
    """

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


def rules(rights: Sequence[Right]) -> list[dict[str, Any]]:
    """The rules of a Role with these rights."""
    return [right.rule() for right in rights]


_FOLLOW = ("list", "watch")
_READ = ("get", *_FOLLOW)

_RECORDS, _RECORDED = API_VERSION.partition("/")[0], tuple(f"{kind.lower()}s" for kind in KINDS)
LEASE = "NAME"
"""Stands for the name of the Lease and of the registration, which the chart chooses; other names begin with it."""


def _of_kinds(verbs: Sequence[str], reason: str, reads: Reads, *, is_cluster_wide: bool = False) -> Iterator[Right]:
    """Reading some kinds of workloads: a right for each API group."""
    groups: dict[str, list[str]] = {}
    for kind in all_kinds().values():
        if kind.group and kind.reads is reads and kind.is_cluster_wide is is_cluster_wide:
            groups.setdefault(kind.group, []).append(kind.plural)
    yield from (Right(group, tuple(plurals), tuple(verbs), reason) for group, plurals in groups.items())


SERVED: tuple[Right, ...] = (
    Right("", ("pods",), _READ, "the attempts: what becomes of them is recorded"),
    Right("", ("pods",), ("delete",), "a pod of a machine that is gone is deleted, so that its successor starts"),
    Right("", ("pods/status",), ("patch",), "such a pod has failed: otherwise its Job waits for the word of its node"),
    Right("", ("pods/eviction",), ("create",), "a pod that waits for a node in vain is evicted"),
    Right("", ("pods/log",), ("get",), "the logs of attempts are kept"),
    Right("", ("events",), _FOLLOW, "why a pod waits, and why it ended"),
    Right("", ("events",), ("create",), "what is wrong with a configuration is said where its author looks"),
    Right("", ("configmaps",), _FOLLOW, "the namespace's own configuration", (CONFIG_MAP,)),
    Right(
        "spotwright.dev",
        ("spotcounters",),
        ("get", "create", "patch"),
        "the numbers of attempts, what was decided of each pod, and which runs were deleted early",
    ),
    Right(
        "",
        ("persistentvolumeclaims",),
        ("get",),
        "whether the claim of a default policy is there: pods would wait for it",
    ),
    Right(_RECORDS, _RECORDED, (*_READ, "create", "patch"), "what becomes of a workload is recorded beside it"),
    Right(_RECORDS, _RECORDED[:1], ("delete",), "records are deleted some time after the end of their run"),
    *_of_kinds(_READ, "each is a run: what becomes of it is recorded", Reads.RUNS),
    *_of_kinds(("get",), "read where a pod's owner, or what is created, refers to one", Reads.OBJECTS),
)
"""In each namespace that is served."""

LIBRARY: tuple[Right, ...] = (
    Right("", ("configmaps",), ("create",), "the checkpoint library for pods, where the chart is told to make it"),
)
"""In each namespace that is served, with ``checkpoints.library`` alone."""

CLAIMS: tuple[Right, ...] = (
    Right(
        "",
        ("persistentvolumeclaims",),
        ("create",),
        "the claims that policies name, where the chart is told to make them",
    ),
)
"""In each namespace that is served, with ``checkpoints.claimSize`` alone."""

NAMESPACES = Right("", ("namespaces",), _FOLLOW, "whether a namespace is there, and is still the one that it was")
"""On the namespaces that are served, by name; where all labelled ones are, on all."""

CLUSTER: tuple[Right, ...] = (
    Right("", ("nodes",), _FOLLOW, "the pools, and why a node went"),
    Right("karpenter.sh", ("nodeclaims", "nodepools"), _FOLLOW, "what Karpenter has ordered, and why it could not"),
    *_of_kinds(("get",), "read where a workload refers to one", Reads.OBJECTS, is_cluster_wide=True),
    Right(
        _RECORDS,
        ("spotpools",),
        (*_FOLLOW, "create", "patch", "delete"),
        "the pools, and until when attempts pass one over",
    ),
    Right("authentication.k8s.io", ("tokenreviews",), ("create",), "who asks to read logs"),
    Right("authorization.k8s.io", ("subjectaccessreviews",), ("create",), "what that person may read"),
    Right(
        "admissionregistration.k8s.io",
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ("get",),
        "whether the chart's policy proves who writes Events about nodes: without it none is believed",
        (f"{LEASE}{SUFFIX}",),
    ),
)
"""On what has no namespace."""

HOME: tuple[Right, ...] = (
    Right("", ("configmaps",), _FOLLOW, "the configuration of the cluster", (CONFIG_MAP,)),
    Right("", ("configmaps",), ("get", "update"), "readers find the authority of the certificate there", (READING,)),
    Right("", ("events",), ("create",), "what is wrong with the configuration, the certificate or the store of logs"),
    Right("coordination.k8s.io", ("leases",), ("get", "update"), "one replica records", (LEASE,)),
)
"""In the controller's own namespace."""

DEFAULT: tuple[Right, ...] = (
    Right(
        "",
        ("events",),
        _FOLLOW,
        "what is said of nodes, such as an agent's notice: believed by the policy's proof",
    ),
)
"""In the namespace ``default``, which has the Events about nodes."""

NODE_LEASES: tuple[Right, ...] = (
    Right("coordination.k8s.io", ("leases",), ("get",), "until when a node lived that has fallen silent or is gone"),
)
"""In the namespace ``kube-node-lease``, which has the Lease of each node."""

KUBE_SYSTEM: tuple[Right, ...] = (
    Right("", ("configmaps",), _READ, "what the Cluster Autoscaler says of pools", (STATUS, PRIORITIES)),
    Right(
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
        "admissionregistration.k8s.io",
        ("mutatingwebhookconfigurations",),
        ("get", "patch"),
        "the authority of its own certificate is written there",
        (LEASE,),
    ),
)
"""On the chart's registration of the webhook. With a certificate that somebody else makes there is no such right."""
