"""Names the pool of a node: the configured pool whose labels it carries, else the pool that its provider's label names.

A node of no configured pool still needs a name in the account, and its capacity type. Its price is not known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from spotwright.clouds import providers
from spotwright.cluster.workloads.owners import metadata
from spotwright.model.pools import Pool
from spotwright.model.quantities import parse_resource

__all__ = ["NodePool", "offers_of", "pool_of_node", "strange_pools"]

_NO_NAME = "other-nodes"


class NodePool(NamedTuple):
    """The pool of a node. ``is_configured``: the configuration has it."""

    name: str
    is_spot: bool
    is_configured: bool


def pool_of_node(node: Mapping[str, Any] | None, pools: Mapping[str, Pool]) -> NodePool:
    """The pool of a node. ``None``: nothing is known of the node."""
    labels = dict(metadata(node or {}).get("labels") or {})
    pool = providers.pool_of(labels, pools)
    if pool is not None:
        return NodePool(pool.name, pool.is_spot, is_configured=True)
    taints = tuple(str(taint.get("key", "")) for taint in ((node or {}).get("spec") or {}).get("taints") or ())
    is_spot = bool(providers.is_spot_node(labels, taints))
    name = next((labels[label] for label in providers.POOL_LABELS if labels.get(label)), _NO_NAME)
    return NodePool(_unused(name.lower(), pools, is_spot=is_spot), is_spot, is_configured=False)


def strange_pools(nodes: Iterable[Mapping[str, Any]], pools: Mapping[str, Pool]) -> tuple[NodePool, ...]:
    """The pools of these nodes that the configuration does not have, each once."""
    found = (pool_of_node(node, pools) for node in nodes)
    return tuple({pool.name: pool for pool in found if not pool.is_configured}.values())


def offers_of(node: Mapping[str, Any] | None, pool: Pool) -> dict[str, int]:
    """What a node offers to pods of the resources that are paid for, where its pool's configuration does not say it."""
    allocatable = ((node or {}).get("status") or {}).get("allocatable") or {}
    offers: dict[str, int] = {}
    for name, amount in allocatable.items():
        if name in (pool.node or {}) or not (name in ("cpu", "memory") or providers.is_accelerator(name)):
            continue
        with contextlib.suppress(ValueError):  # no amount that we can read: it counts as not known
            offers[name] = parse_resource(name, amount)
    return {name: amount for name, amount in offers.items() if amount > 0}


def _unused(name: str, pools: Mapping[str, Pool], *, is_spot: bool) -> str:
    """The name, or another one where the configuration means other nodes by it."""
    taken = pools.get(name)
    return name if taken is None or taken.is_spot is is_spot else f"{name}-{'spot' if is_spot else 'on-demand'}"
