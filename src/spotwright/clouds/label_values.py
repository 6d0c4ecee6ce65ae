"""The built-in labels of nodes: their values, the provisioners of such nodes, and common misspellings.

Kubernetes, the clouds and Karpenter set them. Pure, no IO. A selector with another key or value matches no node, silently: the
pods stay Pending. A pool's configuration takes precedence over this table, because people can set any label. Facts about spot
capacity are in :mod:`spotwright.clouds.providers`; this module knows labels without any pool.

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
"""Deprecated labels that nodes still have beside the current one.

Source: Kubernetes reference, as in this module's docstring.
"""

NOT_SINCE: Mapping[str, tuple[str, str]] = {
    "karpenter.sh/provisioner-name": ("Karpenter 0.33", "karpenter.sh/nodepool"),
}
"""Labels removed from nodes: since when, and the current one."""


def label_of(key: str) -> Label | None:
    """The label of a key; ``None`` for a user's label or one that this table lacks."""
    return _BY_KEY.get(key)


_ALIKE = 0.93  # by SequenceMatcher: one letter too many, too few or wrong in a whole key
_SEPARATORS = re.compile(r"[-_.]")
_OWNERS = tuple(
    (one.domains, one.name) for one in sorted(PROVIDERS.values(), key=lambda one: one.has_groups) if one.domains
)
"""Patterns for domains with their owner; provisioners precede clouds, because their domains may contain a cloud's name."""


def _folded(key: str) -> str:
    """The key without commonly confused parts: capitals, separators, a provider's domains, and its name as a prefix."""
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
    """The known label that a key misspells; ``None`` if the key is known, or resembles no label.

    Another case, other separators (``karpenter.sh/capacityType``), another domain of the same provider, a name without
    ``gke-``, and one wrong letter are misspellings. A key without a domain is the user's, unless only a provider uses its name.
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
"""Folded words that people use for the same value."""


def value_meant(label: Label, value: str) -> str | None:
    """The nodes' value that a user means by ``value``; empty if none is similar.

    ``None``: nodes have, or may have, ``value`` itself.
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
    """The provisioners whose nodes have a label, in words; empty if any may. ``values``: a node must have one of them.

    A machine type also shows its cloud: ``Standard_NC6s_v3`` is not an AWS node.
    """
    domain = key.rpartition("/")[0]
    found = _MAKERS.get(key) or _MAKERS.get(domain, frozenset())
    if key in _INSTANCE_TYPES:
        makers = [
            next((who for pattern, who in _MACHINES if re.match(pattern, value)), frozenset[str]()) for value in values
        ]
        return frozenset().union(*makers) if makers and all(makers) else frozenset()
    return found


_LONGEST_VALUE = 63  # characters of a label's value: matching time grows with their square
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
    """The region of a zone, by its name; ``None`` if it is not of AWS, Google Cloud or Azure."""
    found = (pattern.fullmatch(zone) for pattern in _ZONES if len(zone) <= _LONGEST_VALUE)
    return next((match["region"] for match in found if match), None)


def is_region(name: str) -> bool:
    """Whether a name has the form of a region of AWS, Google Cloud or Azure."""
    return len(name) <= _LONGEST_VALUE and _REGION.fullmatch(name) is not None
