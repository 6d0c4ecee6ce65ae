"""``pools import``: the pools that nodes show, as a configuration to start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import indent, shorten
from typing import Any

import click
import yaml

from spotwright.cli import SUCCEEDED
from spotwright.cli.pools.inputs import ask_cluster, cluster_options, read_file
from spotwright.cluster.found_pools import found_pools
from spotwright.errors import InputError
from spotwright.pools.azure import pools_of_api_model
from spotwright.pools.ground import Objects
from spotwright.pools.node_facts import notes_on

__all__ = ["import_pools"]


@click.command("import")
@click.argument("nodes", required=False, type=click.Path(path_type=Path))
@cluster_options
def import_pools(nodes: Path | None, cluster: bool, context: str | None) -> int:
    """Print the pools that the nodes of a cluster show, as a spotwright.yaml to start from.

    NODES is what kubectl get nodes -o json wrote; - is standard input. Pools are read off the labels of nodes and off Karpenter's
    NodePools; prices, limits and times of notice are in neither. Labels of the past are named with the form of today, and the API
    model of aks-engine is read as pools of AKS.
    """
    if cluster == (nodes is not None):
        raise click.UsageError("name a file of nodes (- for standard input), or --cluster")
    objects = ask_cluster(context) if nodes is None else read_file(nodes)
    name = "the cluster" if nodes is None else str(nodes)
    if objects.api_models:
        past = [pool for model in objects.api_models for pool in pools_of_api_model(model, name)]
        _print(
            f"Read from {name}, an API model of aks-engine. AKS took its place; the forms are those of today.",
            ((pool.name, "", pool.settings, pool.notes) for pool in past),
        )
        return SUCCEEDED
    if nodes is None and not objects.nodes and not objects.node_pools:
        raise InputError("the cluster has no nodes, and no NodePool of Karpenter: there is nothing to read pools off")
    if not objects.node_pools:
        objects.require_nodes(name)
    _print("Read off the nodes of a cluster. Prices, limits and times of notice are yours to add.", _found(objects))
    return SUCCEEDED


_Described = tuple[str, str, Mapping[str, Any], Iterable[str]]


def _found(objects: Objects) -> Iterable[_Described]:
    by_name = {str((node.get("metadata") or {}).get("name")): node for node in objects.nodes}
    for pool in found_pools(objects.nodes, objects.node_pools):
        shown = ", ".join(pool.nodes) or "no node now"
        notes = notes_on([by_name[name] for name in pool.nodes])
        yield pool.name, shorten(shown, width=90, placeholder=" ..."), pool.settings, notes


def _print(title: str, pools: Iterable[_Described]) -> None:
    click.echo(f"# {title}")
    click.echo("version: 1\npools:")
    for name, remark, settings, notes in pools:
        click.echo(f"  {name}:  # {remark}" if remark else f"  {name}:")
        for note in notes:
            click.echo(f"    # {note}")
        click.echo(indent(yaml.safe_dump(dict(settings), sort_keys=False), "    "), nl=False)
