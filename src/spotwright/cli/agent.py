"""``node-agent``: its options."""

from __future__ import annotations

from pathlib import Path

import click

from spotwright.agent.running import Address, bound, serve
from spotwright.agent.sources import PROVIDERS, Reading, source_of
from spotwright.cli.options import Duration
from spotwright.notices.node_agent import PORT

__all__ = ["node_agent"]


class _Listen(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # before click 8.5 it takes no types
    name = "address"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        try:
            return Address.read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(name="node-agent")
@click.option("--provider", type=click.Choice(list(PROVIDERS)), required=True, help="Who says that the node goes.")
@click.option(
    "--listen",
    type=_Listen(),
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where attempts ask; beyond this machine only when told.",
)
@click.option("--approve", is_flag=True, help="Let Azure take the node early, once nothing known runs there.")
@click.option(
    "--leases",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="As long as a file is in it, something runs there.",
)
@click.option("--provider-id", default="", metavar="ID", help="spec.providerID of the node.  [default: Azure is asked]")
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where local finds the notice, and kubernetes the node as JSON.",
)
@click.option("--notice", type=Duration(), help="How long Google's preemption notice is.  [default: 30s]")
@click.option("--metadata-url", default="", metavar="URL", help="Another metadata server, to try things with.")
def node_agent(
    provider: str,
    listen: Address,
    approve: bool,
    leases: Path | None,
    provider_id: str,
    file: Path | None,
    notice: float | None,
    metadata_url: str,
) -> int:
    """Read this node's notice where its provider gives it, and pass it on to what runs on the node.

    Answers GET /notice with JSON: whether and when this node goes, and nothing else. Attempts find it through
    SPOTWRIGHT_NOTICE_URL. Runs until SIGTERM.
    """
    source = source_of(Reading(provider, metadata_url, provider_id, file, notice))
    early = getattr(source, "approve", None)
    if approve and early is None:
        raise click.UsageError(f"--approve: {provider} takes no approvals, only azure does")
    if leases is not None and not approve:
        raise click.UsageError("--leases says when --approve may approve; give both or none")
    serve(source, bound(listen), _say, approve=early if approve else None, leases=leases)
    return 0


def _say(text: str) -> None:
    click.echo(f"spotwright node-agent: {text}", err=True)
