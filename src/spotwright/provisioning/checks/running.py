"""Runs all checks, most severe findings first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from spotwright.provisioning.checks.daemons import check_daemon_sets
from spotwright.provisioning.checks.endings import check_endings
from spotwright.provisioning.checks.ground import Finding, Ground, Severity
from spotwright.provisioning.checks.growth import check_growth
from spotwright.provisioning.checks.landing import check_landing, check_readable
from spotwright.provisioning.checks.node_facts import (
    check_gpus,
    check_labels,
    check_leftovers,
    check_strangers,
    check_taints,
    check_zones,
)

__all__ = ["CHECKS", "check"]

CHECKS: tuple[Callable[[Ground], Iterator[Finding]], ...] = (
    check_readable,
    check_taints,
    check_labels,
    check_zones,
    check_gpus,
    check_daemon_sets,
    check_leftovers,
    check_growth,
    check_endings,
    check_landing,
    check_strangers,
)
"""All checks; each gives its findings for a ground."""


def check(ground: Ground) -> list[Finding]:
    """All findings, errors first, each once."""
    order = list(Severity)
    found = dict.fromkeys(chain.from_iterable(one(ground) for one in CHECKS))
    return sorted(found, key=lambda finding: order.index(finding.severity))
