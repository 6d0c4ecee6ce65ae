"""The ``pools`` command: the pools as Spotwright knows them, and Kueue's objects that go with them."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from textwrap import indent, shorten

import click
import yaml

from spotwright import clouds
from spotwright.cli import SUCCEEDED
from spotwright.cli.options import config_option
from spotwright.config import Config, find
from spotwright.errors import InputError
from spotwright.manifests.files.required_pools import require_pools
from spotwright.manifests.kueue.queue_objects import QueueOptions, queue_lines, unknown_quotas
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration, format_money, parse_resource

__all__ = ["pools"]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@click.command()
@click.option("--kueue", is_flag=True, help="Print a ResourceFlavor for each pool, a ClusterQueue and LocalQueues.")
@click.option(
    "--queue", "name", default="spotwright", show_default=True, metavar="NAME", help="With --kueue: name of the queues."
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    default=("default",),
    show_default=True,
    metavar="NAME",
    help="With --kueue: a namespace that gets a LocalQueue. May be repeated.",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="POOL:RESOURCE=AMOUNT",
    help="With --kueue: a quota, such as gpu-spot:nvidia.com/gpu=4.  [default: max_nodes times node]",
)
@click.option("--cluster", is_flag=True, help="Print the pools of a cluster, as a spotwright.yaml to start from.")
@click.option(
    "--context", metavar="NAME", help="With --cluster: a context of the kubeconfig.  [default: the current one]"
)
@click.option(
    "--prices",
    "sheet",
    metavar="FILE",
    help="Show the prices that this price sheet has for the pools; - reads it from standard input.",
)
@config_option("here")
def pools(
    kueue: bool,
    name: str,
    namespaces: tuple[str, ...],
    quotas: tuple[str, ...],
    sheet: str | None,
    cluster: bool,
    context: str | None,
    config: Path | None,
) -> int:
    """Print each pool with its price, and the labels, taints and notice that its nodes are expected to have.

    Compare them with those of your nodes (kubectl get nodes --show-labels): placement relies on them. With --kueue print
    objects of Kueue for kubectl apply instead; target.kueue in spotwright.yaml sets their version.

    With --cluster the pools are read off the labels of nodes and off Karpenter's NodePools; prices are in neither. With --cluster
    and --config the nodes that fit no pool of the file are named.

    Spotwright asks no provider for prices. Let your own command ask, and read its answer:

    aws ec2 describe-spot-price-history ... | spotwright pools --prices -
    """
    if cluster:
        return _of_cluster(context, config)
    configuration = find(Path.cwd() / "-", config)
    require_pools(configuration)
    if not kueue:
        lines = _priced(configuration, sheet) if sheet else {}
        now = time.time()
        for pool in configuration.pools.values():
            price = lines.get(pool.name) or _price(pool, configuration.currency, now)
            click.echo("\n".join(_description(pool, price)))
        return SUCCEEDED
    for one in (name, *namespaces):
        if not _NAME.fullmatch(one):
            raise InputError(f"{one!r}: expected a name of Kubernetes: small letters, digits and - inside")
    amounts = dict(_quota(text, configuration) for text in quotas)
    options = QueueOptions(name, tuple(dict.fromkeys(namespaces)), amounts, _release(configuration))
    default = configuration.policy_default
    ladder = (default.values.get("ladder") if default is not None else None) or ()
    click.echo("\n".join(queue_lines(configuration.pools, options, ladder)))
    missing = unknown_quotas(configuration.pools, options)
    if missing:
        text = f"warning: these quotas are 0, which admits nothing: {', '.join(missing)}: set node: in the pool, or --quota"
        click.echo(text, err=True)
    return SUCCEEDED


def _of_cluster(context: str | None, config: Path | None) -> int:
    """Print the pools that a cluster shows, or compare its nodes with those of a configuration."""
    try:
        from spotwright.cluster.pools.found_pools import found_pools, nodes_without_pool
        from spotwright.cluster.pools.reading import ask_for_pools
    except ModuleNotFoundError as error:
        raise InputError(f"--cluster needs {error.name}: pip install 'spotwright[cluster]'") from None
    shown = ask_for_pools(context)
    if config is not None:
        strangers = nodes_without_pool(shown.nodes, find(Path.cwd() / "-", config).pools)
        fitting = len(shown.nodes) - len(strangers)
        click.echo(f"{fitting} of {len(shown.nodes)} nodes fit a pool of {config}")
        if strangers:
            click.echo(f"these fit none by their labels: {', '.join(strangers)}")
        return SUCCEEDED
    found = found_pools(shown.nodes, shown.node_pools)
    if not found:
        raise InputError("the cluster has no nodes, and no NodePool of Karpenter: there is nothing to read pools off")
    click.echo("# Read off the nodes of a cluster. Prices, limits and times of notice are yours to add.")
    click.echo("version: 1\npools:")
    for pool in found:
        nodes = ", ".join(pool.nodes) or "no node now"
        click.echo(f"  {pool.name}:  # {shorten(nodes, width=90, placeholder=' ...')}")
        click.echo(indent(yaml.safe_dump(dict(pool.settings), sort_keys=False), "    "), nl=False)
    return SUCCEEDED


def _price(pool: Pool, currency: str, now: float) -> str:
    """The price of a pool, with its origin."""
    if pool.price is None:
        return ""
    origin = pool.quote.origin(now) if pool.quote is not None else "spotwright.yaml"
    return f"{format_money(pool.price)} {currency}/h ({origin})"


def _priced(config: Config, sheet: str) -> dict[str, str]:
    """The prices of one sheet for the pools. Raises :class:`InputError` if it has none for any of them."""
    from spotwright.config.price_sheets.matching import NoPrice
    from spotwright.config.price_sheets.quoting import named_sheet, quoted

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


def _description(pool: Pool, price: str) -> list[str]:
    lines = [f"{pool.name}: {pool.capacity}, {pool.provider}, at most {pool.max_nodes} nodes"]
    if pool.is_spot:
        lines[0] += f", notice {format_duration(pool.notice)}"
    lines += [f"  price  {price}"] if price else []
    lines += [f"  label  {key}={value}" for key, value in clouds.labels(pool).items()]
    lines += [f"  taint  {taint}" for taint in clouds.taints(pool)]
    return lines


def _quota(text: str, config: Config) -> tuple[tuple[str, str], int]:
    """A quota from ``POOL:RESOURCE=AMOUNT``."""
    target, equals, amount = text.partition("=")
    pool, colon, resource = target.partition(":")
    if not (equals and colon and resource and amount):
        raise click.BadParameter(f"{text!r}: expected POOL:RESOURCE=AMOUNT", param_hint="--quota")
    if pool not in config.pools:
        raise InputError(f"--quota {text}: no pool {pool!r}; the pools are {', '.join(config.pools)}")
    try:
        return (pool, resource), parse_resource(resource, amount)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--quota") from error


def _release(config: Config) -> tuple[int, int] | None:
    """Kueue's release, by ``target.kueue``."""
    parts = str(config.target.get("kueue", "")).split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 else None
