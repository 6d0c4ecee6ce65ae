"""``pools command``: prints the command that makes a pool with a provider's tool, and Kueue's objects for all pools."""

from __future__ import annotations

import re
from pathlib import Path

import click

from spotwright.cli import SUCCEEDED, say
from spotwright.cli.options import config_option
from spotwright.config import Config, find, require_pools
from spotwright.errors import InputError
from spotwright.kinds.kueue import QueueOptions, queue_lines, unknown_quotas
from spotwright.model.quantities import parse_resource
from spotwright.pools.catalogue import TOOLS, script
from spotwright.pools.generic import compute_class_lines
from spotwright.pools.request import Request

__all__ = ["make_pool"]


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


_KUEUE, _COMPUTE_CLASS = "kueue", "computeclass"


@click.command("command")
@click.argument("pool", required=False)
@click.option(
    "--as",
    "tool",
    type=click.Choice([*TOOLS, _KUEUE, _COMPUTE_CLASS]),
    help="The tool.  [default: that of the pool's provider]",
)
@click.option(
    "--cluster-name",
    default="",
    metavar="NAME",
    help="Name of the cluster, where a command needs it.  [default: a variable]",
)
@click.option(
    "--queue", "name", default="spotwright", show_default=True, metavar="NAME", help="For Kueue: name of the queues."
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    default=("default",),
    show_default=True,
    metavar="NAME",
    help="For Kueue: a namespace that gets a LocalQueue. May be repeated.",
)
@click.option(
    "--quota",
    "quotas",
    multiple=True,
    metavar="POOL:RESOURCE=AMOUNT",
    help="For Kueue: a quota, such as gpu-spot:nvidia.com/gpu=4.  [default: max_nodes times node]",
)
@config_option("here")
def make_pool(
    pool: str | None,
    tool: str | None,
    cluster_name: str,
    name: str,
    namespaces: tuple[str, ...],
    quotas: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print the exact command or manifest that makes POOL, with the meaning of each setting, without running it.

    Also prints the commands that show whether the region has the machine and the quota, and the autoscaler settings that prefer
    spot.

    Two kinds cover all pools, and so take no POOL: --as kueue prints a ResourceFlavor for each, a ClusterQueue and LocalQueues
    (target.kueue in spotwright.yaml sets their version), --as computeclass the ComputeClass of GKE.
    """
    configuration = find(Path.cwd() / "-", config)
    require_pools(configuration)
    if tool in (_KUEUE, _COMPUTE_CLASS):
        if pool is not None:
            raise click.UsageError(
                f"--as {tool} prints the objects of all pools, because they order them: leave POOL out"
            )
        if tool == _KUEUE:
            return _kueue(configuration, name, namespaces, quotas)
        say("\n".join(compute_class_lines(configuration.pools, configuration.default_ladder)))
        return SUCCEEDED
    if pool is None:
        raise click.UsageError(f"name a pool: {', '.join(configuration.pools)}")
    if pool not in configuration.pools:
        raise InputError(f"no pool {pool!r}; the pools are {', '.join(configuration.pools)}")
    chosen = configuration.pools[pool]
    request = Request(
        chosen,
        configuration.pools,
        configuration.currency,
        configuration.default_ladder,
        cluster_name,
        configuration.longest_grace_period,
    )
    lines = script(request, tool)
    say("\n".join(lines))
    for warning in request.warnings:
        say(f"warning: {pool}: {warning}", err=True)
    return SUCCEEDED


def _kueue(configuration: Config, name: str, namespaces: tuple[str, ...], quotas: tuple[str, ...]) -> int:
    for one in (name, *namespaces):
        if not _NAME.fullmatch(one):
            raise InputError(f"{one!r}: expected a name of Kubernetes: small letters, digits and - inside")
    amounts = dict(_quota(text, configuration) for text in quotas)
    options = QueueOptions(name, tuple(dict.fromkeys(namespaces)), amounts, _release(configuration))
    say("\n".join(queue_lines(configuration.pools, options, configuration.default_ladder)))
    missing = unknown_quotas(configuration.pools, options)
    if missing:
        text = f"warning: these quotas are 0, which admits no pods: {', '.join(missing)}: set node: in the pool, or --quota"
        say(text, err=True)
    return SUCCEEDED


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
