"""The commands and options that are gone, with what takes their place: the one table of both."""

from __future__ import annotations

from collections.abc import Mapping

import click

__all__ = ["hint_for", "told"]


_REMOVED: Mapping[str, str] = {
    "pin": "a run is kept by prune --keep RUN",
    "unpin": "a run is kept by prune --keep RUN, and by nothing else",
    "controller --state": "runs are recorded in the Kubernetes API; leave it out",
    "controller --records": "runs are recorded in the Kubernetes API; leave it out",
    "controller --no-webhook": "start spotwright controller recorder alone",
    "controller --no-watch": "start spotwright controller webhook alone",
    "controller --check": "use spotwright controller check NAMESPACE",
    "controller --unregister": "use spotwright controller unregister",
    "controller --print-rbac": "the chart has the rights: helm template charts/spotwright",
    "pools --kueue": "use spotwright pools command --as kueue",
    "run --no-cache": "use spotwright run --cache off",
    "run --taken-every": "use --interrupt-every",
}
"""A command, or an option behind the command that had it, and a clause for people."""


def hint_for(*words: str) -> str:
    """What takes the place of a command or an option, with the commands before it; empty for a word that never was."""
    return _REMOVED.get(" ".join((*words[:1], *words[1:][-1:])), "")


def told(error: click.ClickException) -> str:
    """The message of an error, which names what takes the place of an option that is gone or belongs to a subcommand."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    _, *commands = error.ctx.command_path.split()
    hint = hint_for(*commands, error.option_name) or _of_subcommands(error.ctx, error.option_name)
    return f"there is no option {error.option_name}: {hint}" if hint else error.format_message()


def _of_subcommands(ctx: click.Context, option: str) -> str:
    """Which subcommands of a command have an option, as a clause; empty: none has."""
    if not isinstance(ctx.command, click.Group) or ctx.parent is None:  # at the top all commands would be imported
        return ""
    commands = {name: ctx.command.get_command(ctx, name) for name in ctx.command.list_commands(ctx)}
    having = [
        name
        for name, command in commands.items()
        if command is not None and any(option in parameter.opts for parameter in command.params)
    ]
    return f"put it behind {' or '.join(f'{ctx.command_path} {name}' for name in having)}" if having else ""
