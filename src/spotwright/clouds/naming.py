"""The names that providers allow for node pools, and the name under which a pool of the configuration can be made.

A pool of ``spotwright.yaml`` has a name of Kubernetes. AKS allows neither dashes nor more than 12 characters, so that
``gpu-spot`` becomes ``gpuspot`` there. The label with the pool's name then has that value, and the configuration must say so.

Sources: Microsoft Learn, "Create node pools in AKS" and azure-cli, ``acs/_validators.py`` (``validate_nodepool_name``); gcloud
reference, ``container node-pools create`` (names as of Compute Engine, 40 characters); Amazon EKS API, ``CreateNodegroup`` (63
characters); Karpenter's NodePool is a Kubernetes object.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from spotwright.model.pools import Pool, Provider

__all__ = ["allowed_name", "naming_rule"]


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    dropped: str  # characters that are left out where the pool's name has them
    words: str


_AKS = _Rule(re.compile(r"[a-z][a-z0-9]{0,11}"), "-", "at most 12 small letters and digits, a letter first")
_AKS_WINDOWS = _Rule(
    re.compile(r"[a-z][a-z0-9]{0,5}"), "-", "at most 6 small letters and digits, a letter first (Windows)"
)
_RULES = {
    Provider.AKS: _AKS,
    Provider.GKE: _Rule(
        re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"), "", "at most 40 small letters, digits and -, a letter first"
    ),
    Provider.EKS: _Rule(
        re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"),
        "",
        "at most 63 letters, digits, - and _, a letter or digit first",
    ),
}


def allowed_name(pool: Pool, name: str) -> str | None:
    """The name without the characters that the pool's provider does not allow; None if what is left is no name there."""
    rule = _rule(pool)
    if rule is None:
        return name
    left = name.translate(dict.fromkeys(map(ord, rule.dropped)))
    return left if rule.pattern.fullmatch(left) else None


def naming_rule(pool: Pool) -> str:
    """What a name of a pool may be at the pool's provider, in words; empty where every name of the configuration may be used."""
    rule = _rule(pool)
    return "" if rule is None else rule.words


def _rule(pool: Pool) -> _Rule | None:
    return _AKS_WINDOWS if pool.provider is Provider.AKS and pool.os == "windows" else _RULES.get(pool.provider)
