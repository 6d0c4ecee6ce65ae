"""The built-in labels of nodes: which values they have, who makes such nodes, and how people misspell them.

Kubernetes, the clouds and Karpenter set them. Pure, no IO. A selector with another value or another key is met by no node, and
without a message: the pods stay Pending. What a pool is made with has precedence over this table, because people may set every
label by themselves. The facts of spot capacity are in :mod:`spotwright.clouds.providers`; here is what can be said of a label
without knowing any pool.

Sources: Kubernetes reference, "Well-Known Labels, Annotations and Taints"; golang/go ``src/internal/syslist``; Microsoft Learn,
"Use labels in an Azure Kubernetes Service (AKS) cluster"; Google Cloud, "Spot VMs" and "About GPUs in GKE"; Amazon EKS,
"Managed node groups" and "Control if a workload is deployed on EKS Auto Mode nodes"; Karpenter documentation, "Scheduling",
"Upgrade Guide" and "v1beta1 Migration".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import lru_cache

from spotwright.clouds.provider import Label
from spotwright.clouds.provider_records import PROVIDERS

__all__ = [
    "NOT_SINCE",
    "RENAMED",
    "is_region",
    "key_meant",
    "label_of",
    "makers_of",
    "region_of",
    "value_meant",
]


_ARCHITECTURES = (
    "amd64",
    "arm64",
    "386",
    "arm",
    "loong64",
    "mips64le",
    "ppc64le",
    "riscv64",
    "s390x",
)
_LABELS: tuple[Label, ...] = (
    # Kubernetes
    Label("kubernetes.io/arch", _ARCHITECTURES, is_open=True),
    Label("beta.kubernetes.io/arch", _ARCHITECTURES, is_open=True),
    Label("kubernetes.io/os", ("linux", "windows"), is_open=True),
    Label("beta.kubernetes.io/os", ("linux", "windows"), is_open=True),
    Label(
        "kubernetes.io/hostname",
        misspelt=("topology.kubernetes.io/hostname", "node.kubernetes.io/hostname", "kubernetes.io/host"),
    ),
    Label("node.kubernetes.io/instance-type", misspelt=("kubernetes.io/instance-type",)),
    Label("beta.kubernetes.io/instance-type"),
    Label(
        "topology.kubernetes.io/zone",
        misspelt=(
            "kubernetes.io/zone",
            "beta.kubernetes.io/zone",
            "failure-domain.kubernetes.io/zone",
            "topology.kubernetes.io/zones",
            "topology.kubernetes.io/availability-zone",
        ),
    ),
    Label("failure-domain.beta.kubernetes.io/zone"),
    Label(
        "topology.kubernetes.io/region",
        misspelt=("kubernetes.io/region", "beta.kubernetes.io/region", "failure-domain.kubernetes.io/region"),
    ),
    Label("failure-domain.beta.kubernetes.io/region"),
    *(one for provider in PROVIDERS.values() for one in provider.labels),
)

_BY_KEY: Mapping[str, Label] = {label.key: label for label in _LABELS}

RENAMED: Mapping[str, str] = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
}
"""Labels that nodes still have beside the current one. Source: Kubernetes reference, as in this module's docstring."""

NOT_SINCE: Mapping[str, tuple[str, str]] = {
    "karpenter.sh/provisioner-name": ("Karpenter 0.33", "karpenter.sh/nodepool"),
}
"""Labels that nodes have no longer: since when, and the current one."""


def label_of(key: str) -> Label | None:
    """The label of a key; ``None`` for one that people set, or that this table lacks."""
    return _BY_KEY.get(key)


_ALIKE = 0.93  # by SequenceMatcher: one letter too many, too few or wrong in a whole key
_SEPARATORS = re.compile(r"[-_.]")
_OWNERS = tuple(
    (one.domains, one.name) for one in sorted(PROVIDERS.values(), key=lambda one: one.has_groups) if one.domains
)
"""Patterns for domains with their owner, provisioners before clouds, whose names their domains may have as well."""


def _folded(key: str) -> str:
    """The key without what people mix up: capital letters, separators, the domains of one provider, its name as a prefix."""
    domain, _, name = key.lower().rpartition("/")
    owner = next((word for pattern, word in _OWNERS if re.search(pattern, domain)), domain)
    return f"{owner}/{_SEPARATORS.sub('', name).removeprefix(owner)}"


_MISSPELT: Mapping[str, str] = {wrong: label.key for label in _LABELS for wrong in label.misspelt}
_BY_FOLDED: Mapping[str, str] = {
    **{_folded(wrong): key for wrong, key in _MISSPELT.items() if "/" in wrong},
    **{_folded(label.key): label.key for label in _LABELS},
}
_WORTH_GUESSING = tuple(label.key for label in _LABELS if label.misspelt and "." in label.key)


@lru_cache(maxsize=4096)
def key_meant(key: str) -> str | None:
    """The known label that a key is a misspelling of; ``None`` if the key is known, or resembles no label.

    Another case, other separators (``karpenter.sh/capacityType``), another domain of the same provider, a name without ``gke-``,
    and one wrong letter are misspellings. A key without a domain is the user's own, unless the name is one that only a provider
    uses.
    """
    if key in _BY_KEY or len(key) > _LONGEST:
        return None
    exact = _MISSPELT.get(key.lower())
    if exact is not None or "/" not in key:
        return exact
    return _BY_FOLDED.get(_folded(key)) or next((known for known in _WORTH_GUESSING if _is_typo(key, known)), None)


_LONGEST = 253 + 1 + 63  # Kubernetes, "Labels and Selectors": the longest key


def _is_typo(key: str, known: str) -> bool:
    match = SequenceMatcher(None, key, known, autojunk=False)
    return match.real_quick_ratio() >= _ALIKE and match.quick_ratio() >= _ALIKE and match.ratio() >= _ALIKE


_SAME: tuple[frozenset[str], ...] = (
    frozenset({"true", "yes", "y", "on", "1", "enabled", "spot"}),
    frozenset({"amd64", "x8664", "x64", "x86"}),
    frozenset({"arm64", "aarch64", "armv8"}),
    frozenset({"ondemand", "regular", "normal", "standard"}),
    frozenset({"spot", "preemptible"}),
)
"""Words, folded, that people write for one value."""


def value_meant(label: Label, value: str) -> str | None:
    """The value that nodes have where a user writes ``value``; empty if none is near.

    ``None``: nodes have the value itself, or may have it.
    """
    if value in label.values:
        return None
    if not label.values:
        return value.lower() if label.is_small and value != value.lower() else None
    short = _SEPARATORS.sub("", value.lower())
    folded = {_SEPARATORS.sub("", one.lower()): one for one in label.values}
    words = [short, *sorted(word for group in _SAME if short in group for word in group)]
    near = next((folded[word] for word in words if word in folded), "")
    return None if label.is_open and not near else near


_MAKERS: Mapping[str, frozenset[str]] = {
    key: who for provider in PROVIDERS.values() for key, who in provider.makers.items()
}
_INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_MACHINES = tuple(provider.machines for provider in PROVIDERS.values() if provider.machines)


def makers_of(key: str, values: Iterable[str] = ()) -> frozenset[str]:
    """Who makes nodes with a label, in words; empty if anyone may. ``values``: a node must have one of them.

    The type of a machine shows its cloud as well: ``Standard_NC6s_v3`` is not an AWS node.
    """
    domain = key.rpartition("/")[0]
    found = _MAKERS.get(key) or _MAKERS.get(domain, frozenset())
    if key in _INSTANCE_TYPES:
        makers = [
            next((who for pattern, who in _MACHINES if re.match(pattern, value)), frozenset[str]()) for value in values
        ]
        return frozenset().union(*makers) if makers and all(makers) else frozenset()
    return found


_LONGEST_VALUE = 63  # characters of a label's value: the time of these patterns grows with the square of it
_AWS_REGION = r"[a-z]{2}(?:-[a-z]+){1,2}-\d"
_GOOGLE_REGION = r"[a-z]+-[a-z]+\d+"
_AZURE_REGION = r"(?:(?:north|south|east|west|central)[a-z]+|[a-z]+(?:north|south|east|west|central))\d?"
_ZONES = (
    re.compile(
        rf"(?P<region>{_AWS_REGION})(?:[a-z]|-[a-z0-9]+-\d[a-z]|-wl\d-[a-z]+-wlz-\d)"
    ),  # us-east-1a, and local zones
    re.compile(rf"(?P<region>{_GOOGLE_REGION})-[a-z]"),  # us-central1-a
    re.compile(rf"(?P<region>{_AZURE_REGION})-\d"),  # eastus2-1
)
_REGION = re.compile(f"{_AWS_REGION}|{_GOOGLE_REGION}|{_AZURE_REGION}")


def region_of(zone: str) -> str | None:
    """The region in the name of a zone; ``None`` for a name that is not from AWS, Google Cloud or Azure."""
    found = (pattern.fullmatch(zone) for pattern in _ZONES if len(zone) <= _LONGEST_VALUE)
    return next((match["region"] for match in found if match), None)


def is_region(name: str) -> bool:
    """Whether a name has the form of a region of AWS, Google Cloud or Azure."""
    return len(name) <= _LONGEST_VALUE and _REGION.fullmatch(name) is not None
