"""Where ``pools import`` and ``pools check`` find objects: in a file, on standard input, or in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spotwright.config.document import name_of, read_input
from spotwright.errors import InputError
from spotwright.pools.ground import Objects, read_objects

__all__ = ["ask_cluster", "cluster_options", "read_file"]

_MOST = 400 * 2**20  # bytes: 20,000 nodes as kubectl writes them are 200 MB


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--cluster`` and ``--context``."""
    for option in (
        click.option(
            "--context", metavar="NAME", help="With --cluster: a context of the kubeconfig.  [default: the current one]"
        ),
        click.option("--cluster", is_flag=True, help="Ask the cluster instead of reading a file."),
    ):
        command = option(command)
    return command


def read_file(path: Path) -> Objects:
    """The objects of a file; ``-`` is standard input."""
    text = read_input(path, _MOST, "select nodes (kubectl get nodes -l ... -o json)")
    return read_objects(text.removeprefix("\ufeff"), name_of(path))


def ask_cluster(context: str | None) -> Objects:
    """The nodes, NodePools and DaemonSets of a cluster."""
    try:
        from spotwright.cluster.run_api_client import ask_for_pools
    except ModuleNotFoundError as error:
        raise InputError(f"--cluster needs {error.name}: pip install 'spotwright[cluster]'") from None
    shown = ask_for_pools(context)
    return Objects(
        nodes=list(shown.nodes),
        node_pools=list(shown.node_pools),
        daemon_sets=list(shown.daemon_sets),
        no_daemon_sets=shown.no_daemon_sets,
    )
