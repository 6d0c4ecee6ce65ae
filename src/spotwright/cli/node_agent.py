"""The ``node-agent`` command: its options, and the agent made from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from spotwright.cli import say
from spotwright.cli.options import Duration, Listen
from spotwright.notices import Notice
from spotwright.notices.agent import PROVIDERS, Address, SourceOptions, bind, make_source, serve
from spotwright.notices.sources import PORT

__all__ = ["node_agent"]


@click.command(name="node-agent")
@click.option("--provider", type=click.Choice(list(PROVIDERS)), required=True, help="The source of notices.")
@click.option(
    "--listen",
    type=Listen(),
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Address for the attempts; the default is reached from this machine only.",
)
@click.option(
    "--approve", is_flag=True, help="Let Azure take the node early, once all work that the agent knows of has gone."
)
@click.option(
    "--leases",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="A folder whose files stand for running work.",
)
@click.option("--provider-id", default="", metavar="ID", help="spec.providerID of the node.  [default: Azure is asked]")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file with the notice (local), or with the node as JSON (kubernetes).",
)
@click.option("--notice", type=Duration(), help="Length of Google's preemption notice.  [default: 30s]")
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="Post each notice as an Event on this Node of Kubernetes.  [default: none is posted]",
)
@click.option("--metadata-url", default="", metavar="URL", help="Another metadata server, for trials.")
def node_agent(
    provider: str,
    listen: Address,
    approve: bool,
    leases: Path | None,
    provider_id: str,
    file: Path | None,
    notice: float | None,
    node: str,
    metadata_url: str,
) -> int:
    """Read this node's interruption notice from its provider, and pass it on to the attempts on the node.

    Answers GET /notice with JSON: whether and when this node will be reclaimed. Attempts find the agent through
    SPOTWRIGHT_NOTICE_URL. Runs until SIGTERM.
    """
    source = make_source(SourceOptions(provider, metadata_url, provider_id, file, notice))
    early = getattr(source, "approve", None)
    if approve and early is None:
        raise click.UsageError(f"--approve: {provider} takes no approvals, only azure does")
    if leases is not None and not approve:
        raise click.UsageError("--leases says when --approve may approve; give both or none")
    serve(source, bind(listen), _log, approve=early if approve else None, leases=leases, tell=_teller(node))
    return 0


def _teller(node: str) -> Callable[[Notice | None], None]:
    if not node:
        return lambda _: None
    from spotwright.notices.agent import NodeEvents

    return NodeEvents(node, _log).tell


def _log(text: str) -> None:
    say(f"spotwright node-agent: {text}", err=True)
