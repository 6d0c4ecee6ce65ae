"""The ``pools`` commands: what the pools are, what makes them, and what keeps work from landing on them.

A subcommand's module is imported when it is used, because the tools and checks of one need nothing of the others.
"""

from __future__ import annotations

from importlib import import_module

import click

__all__ = ["pools"]

_COMMANDS = {
    "list": (
        "spotwright.cli.pools.listing",
        "list_pools",
        "Show the pools, with the labels and taints of their nodes.",
    ),
    "import": (
        "spotwright.cli.pools.importing",
        "import_pools",
        "Print the pools that nodes show, for spotwright.yaml.",
    ),
    "command": ("spotwright.cli.pools.making", "make_pool", "Print the command or manifest that makes a pool."),
    "check": ("spotwright.cli.pools.checking", "check_pools", "Say what would keep work from landing on the pools."),
}


class _Subcommands(click.Group):
    """A group that imports a subcommand when it is called, with the summaries above."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command = getattr(import_module(module), name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.group(cls=_Subcommands, invoke_without_command=True)
@click.pass_context
def pools(ctx: click.Context) -> int | None:
    """Show the pools, print what makes them, and check that work can land on them.

    Without a subcommand: as pools list.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from spotwright.cli.pools.listing import list_pools

    outcome: int = ctx.invoke(list_pools)
    return outcome
