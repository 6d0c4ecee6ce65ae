"""Where ``pools import`` and ``pools check`` find objects: in a file, on standard input, or in a cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spotwright.errors import InputError
from spotwright.provisioning.objects import Objects, read_objects

__all__ = ["ask_cluster", "cluster_options", "read_file", "read_text"]

_MOST = 400_000_000  # bytes: 20,000 nodes as kubectl writes them are 200 MB


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
    name = "standard input" if str(path) == "-" else str(path)
    return read_objects(read_text(path), name)


def read_text(path: Path) -> str:
    """The text of a file; ``-`` is standard input. Raises :class:`InputError` with the reason."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read(_MOST + 1) if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    if len(data) > _MOST:
        raise InputError(f"{name}: more than {_MOST // 1_000_000} MB: select nodes (kubectl get nodes -l ... -o json)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}: no UTF-8 text (byte {error.start}); write the file with kubectl get nodes -o json"
        ) from None


def ask_cluster(context: str | None) -> Objects:
    """The nodes, NodePools and DaemonSets of a cluster."""
    try:
        from spotwright.cluster.pools.reading import ask_for_pools
    except ModuleNotFoundError as error:
        raise InputError(f"--cluster needs {error.name}: pip install 'spotwright[cluster]'") from None
    shown = ask_for_pools(context)
    return Objects(
        nodes=list(shown.nodes),
        node_pools=list(shown.node_pools),
        daemon_sets=list(shown.daemon_sets),
        no_daemon_sets=shown.no_daemon_sets,
    )
