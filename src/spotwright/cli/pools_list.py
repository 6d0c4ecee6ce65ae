"""``pools list``: the pools with the labels, taints, notice and limits that placement assumes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from spotwright.cli import SUCCEEDED, say
from spotwright.cli.options import config_option, json_option
from spotwright.clouds import providers
from spotwright.clouds.providers import ZONE
from spotwright.config import Config, find, own_pools
from spotwright.errors import InputError
from spotwright.kinds.kueue import quantity
from spotwright.model.pools import Pool, PriceSource
from spotwright.model.quantities import format_duration, format_money
from spotwright.pools.karpenter import longest_end

__all__ = ["list_pools", "pool_json"]


@click.command("list")
@click.option(
    "--prices",
    "sheet",
    metavar="FILE",
    help="Show the prices that this price sheet has for the pools; - reads it from standard input.",
)
@config_option("here")
@json_option
def list_pools(sheet: str | None, config: Path | None, as_json: bool) -> int:
    """Print each pool with its limits and price, and the labels, taints and notice that its nodes are expected to have.

    Compare them with your nodes' labels: placement relies on them. spotwright pools check does it for a file of nodes.

    Spotwright asks no provider for prices. Let your own command ask; the guide on pools has one for each cloud:

    aws ec2 describe-spot-price-history ... | jq ... | spotwright pools list --prices -
    """
    configuration = find(Path.cwd() / "-", config)
    if configuration.note and not as_json:
        say(f"{configuration.note}; they stand for nodes of this machine\n")
    lines = _priced(configuration, sheet) if sheet else {}
    now = time.time()
    described = []
    for pool in configuration.pools.values():
        price = lines.get(pool.name) or _price(pool, configuration.currency, now)
        if as_json:
            described.append(pool_json(pool, price))
        else:
            say("\n".join(_description(pool, price, configuration)))
    if as_json:
        say(json.dumps(described, indent=2))
    elif configuration.note:
        say(f"\n{own_pools(configuration)}")
    return SUCCEEDED


def _price(pool: Pool, currency: str, now: float) -> str:
    """The price of a pool, with its origin."""
    if pool.price is None:
        return ""
    written = "an example, no offer" if pool.price_source is PriceSource.EXAMPLE else "spotwright.yaml"
    origin = pool.quote.origin(now) if pool.quote is not None else written
    return f"{format_money(pool.price)} {currency}/h ({origin})"


def _priced(config: Config, sheet: str) -> dict[str, str]:
    """The prices of one sheet for the pools. Raises :class:`InputError` if it has none for any of them."""
    from spotwright.config.price_sheets import NoPrice, named_sheet, quoted

    now = time.time()
    read = named_sheet(sheet, sys.stdin.buffer, now)
    lines, found = {}, False
    for pool in config.pools.values():
        try:
            lines[pool.name] = _price(quoted(pool, [read], config.currency), config.currency, now)
            found = True
        except NoPrice as error:
            lines[pool.name] = f"none: {error}"
    if not found:
        raise InputError("\n".join(f"{name}: {line}" for name, line in lines.items()))
    return lines


def _description(pool: Pool, price: str, config: Config) -> list[str]:
    lines = [f"{pool.name}: {pool.capacity}, {pool.provider}, {_size(pool)}"]
    if pool.is_spot:
        lines[0] += f", notice {format_duration(pool.notice)}"
    if pool.max_lifetime is not None:
        lines[0] += f", reclaimed after {format_duration(pool.max_lifetime)}"
    lines += list(_end_of_lifetime(pool, config))
    where = [pool.machine, pool.region, " ".join(pool.zones), pool.os if pool.os != "linux" else ""]
    machine = ", ".join(part for part in where if part)
    lines += [f"  machine  {machine}"] if machine else []
    if pool.node:
        lines.append(f"  node   {', '.join(f'{name} {quantity(name, amount)}' for name, amount in pool.node.items())}")
    lines += [f"  price  {price}"] if price else []
    if pool.max_price is not None:
        lines.append(f"  at most  {format_money(pool.max_price)} {config.currency}/h")
    if config.note:
        lines.append("  note   GPUs and other devices are simulated: an attempt gets those of this machine")
        return [*lines, "  label  every provider's, so that each selector of a pipeline fits"]
    lines += [f"  label  {key}={value}" for key, value in providers.labels(pool).items()]
    lines += list(_zones(pool))
    lines += [f"  taint  {taint}" for taint in providers.taints(pool)]
    return lines


def _end_of_lifetime(pool: Pool, config: Config) -> Iterator[str]:
    """Who removes the pool's nodes at the end of their lifetime, and when the last work on them must end."""
    provider = providers.of(pool)
    if pool.max_lifetime is not None and provider.lifetime_field:
        last = format_duration(longest_end(pool, config.pools, config.longest_grace_period))
        drains = f"{provider.title} drains a node then ({provider.lifetime_field})"
        yield f"  lifetime  {drains}, and removes it {last} later at the latest"
        yield "            (terminationGracePeriod, which pools command writes); without that field work outlives it"


def _zones(pool: Pool) -> Iterator[str]:
    """The zone label, where the pool's nodes differ in it or its value is unknown."""
    unknown = providers.unknown_zones(pool)
    if unknown:
        yield f"  label  {ZONE}=REGION-{' or REGION-'.join(unknown)} (set region: of the pool)"
    elif ZONE not in providers.labels(pool) and pool.zones:
        yield f"  label  {ZONE}={' or '.join(labels[ZONE] for labels in providers.labels_by_zone(pool))}"


def _size(pool: Pool) -> str:
    return f"{pool.min_nodes} to {pool.max_nodes} nodes" if pool.min_nodes else f"at most {pool.max_nodes} nodes"


def pool_json(pool: Pool, price: str) -> dict[str, Any]:
    """A pool of the configuration.

    ``name``, ``capacity`` (``spot`` or ``on-demand``), ``provider``, ``machine``, ``region``, ``zones``; ``node``, a node's
    resources in Kubernetes' notation; ``min_nodes``, ``max_nodes``; ``notice_seconds``, null for on-demand;
    ``lifetime_seconds``; ``price``, a text with its currency and origin; ``max_price``, a number; ``labels`` and ``taints``
    (``key=value:effect``) of its nodes, including the provider's. Unknown values are null or empty. The zone is a label if the
    pool has one zone with a known label.
    """
    return {
        "name": pool.name,
        "capacity": str(pool.capacity),
        "provider": pool.provider,
        "machine": pool.machine or None,
        "region": pool.region or None,
        "zones": list(pool.zones),
        "node": {name: quantity(name, amount) for name, amount in (pool.node or {}).items()},
        "min_nodes": pool.min_nodes,
        "max_nodes": pool.max_nodes,
        "notice_seconds": pool.notice if pool.is_spot else None,
        "lifetime_seconds": pool.max_lifetime,
        "price": price or None,
        "max_price": None if pool.max_price is None else float(pool.max_price),
        "labels": dict(providers.labels(pool)),
        "taints": [str(taint) for taint in providers.taints(pool)],
    }
