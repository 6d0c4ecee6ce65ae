"""The zone label of a pool's nodes: on Azure it is not the zone's number that the commands of the provider take.

Azure numbers the zones of a region (``1``), and labels its nodes with the region before the number (``eastus-1``). A pool of
``spotwright.yaml`` may name either form; without its region the label of a number is not known. Machines outside of zones have a
label too, with the number of their fault domain (``0``), which is no zone.

Source: kubernetes-sigs/cloud-provider-azure, ``docs/book/content/en/topics/availability-zones.md`` (``{region}-{zone}``, and the
fault domain for machines without a zone); Microsoft Learn, "Use availability zones in AKS".
"""

from __future__ import annotations

import re

from spotwright.model.pools import Pool, Provider

__all__ = ["azure_zone", "is_azure", "zone_label"]

_LABEL = re.compile(r"(?P<region>[a-z][a-z0-9]*)-(?P<number>[0-9])")
_MACHINE = "Standard_"
_NODE_CLASS = "karpenter.azure.com/"


def is_azure(pool: Pool) -> bool:
    """Whether the nodes are machines of Azure: those of AKS, and those that Karpenter makes there."""
    if pool.provider is Provider.KARPENTER:
        return pool.machine.startswith(_MACHINE) or any(_NODE_CLASS in key for key in pool.labels)
    return pool.provider is Provider.AKS


def zone_label(pool: Pool, zone: str) -> str | None:
    """Return the zone label of the pool's nodes in one of its zones; None: a number without the pool's region."""
    if not zone.isdigit() or not is_azure(pool):
        return zone
    return f"{pool.region.lower()}-{zone}" if pool.region else None


def azure_zone(label: str) -> tuple[str, str] | None:
    """Return the region and the number of a zone label of Azure; None if it names no zone."""
    match = _LABEL.fullmatch(label)
    return (match["region"], match["number"]) if match else None
