"""The ``spotwright`` command: a thin layer that reads options, calls :mod:`spotwright.runs` and prints views.

Commands are imported when they are used, so ``spotwright --help`` reads a table and nothing else. Exit codes: 0 succeeded,
1 the run failed, 2 wrong usage or input, 130 stopped by the user.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import click

from spotwright.errors import SpotwrightError

__all__ = ["FAILED", "STOPPED", "SUCCEEDED", "WRONG", "importing", "main"]

SUCCEEDED, FAILED, WRONG, STOPPED = 0, 1, 2, 130

_COMMANDS = {
    "run": ("spotwright.cli.running", "Run a pipeline on spot pools, on this machine."),
    "resume": ("spotwright.cli.running", "Go on with a run that stopped or failed."),
    "rehearse": ("spotwright.cli.rehearsing", "Interrupt a task or command on purpose: is it safe, does it go on?"),
    "runs": ("spotwright.cli.looking", "List the runs."),
    "show": ("spotwright.cli.looking", "Show a run: every task and attempt, and why each ended."),
    "logs": ("spotwright.cli.looking", "Print the logs of a run, a task or one attempt."),
    "report": ("spotwright.cli.looking", "Say what a run cost, what was wasted and what spot saved."),
    "cancel": ("spotwright.cli.looking", "Cancel a run."),
    "place": ("spotwright.cli.placing", "Put what the policy asks for into manifests."),
    "unplace": ("spotwright.cli.placing", "Take out of manifests what place put in."),
    "compile": ("spotwright.cli.compiling", "Compile a pipeline to KFP YAML, placed on the pools."),
    "explain": ("spotwright.cli.placing", "Say where each role of a manifest goes, and why."),
    "node-agent": ("spotwright.cli.agent", "Read this node's notice and pass it on to what runs there."),
}


class _LazyGroup(click.Group):
    """A group that knows its commands' names and one line each, and imports a command when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        with importing():
            command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name.replace("-", "_"))
        return command if isinstance(command, click.Command) else None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        import spotwright

        click.echo(f"spotwright {spotwright.__version__}")
        ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Run Kubeflow work on spot capacity as if no node were ever taken away."""


@contextmanager
def importing() -> Iterator[None]:
    """Keep the garbage collector away from what the block imports, now and later: all of it stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main() -> None:
    """Run the command line and exit with the code that the outcome has."""
    code = _outcome()
    gc.freeze()  # an interpreter that ends looks for garbage in everything there is: 20 ms
    sys.exit(code)


def _outcome() -> int:
    try:
        code = cli.main(prog_name="spotwright", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        click.echo(f"spotwright: {error.format_message()}", err=True)
        click.echo(f"see {context.command_path if context else 'spotwright'} --help", err=True)
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        return STOPPED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing to say, and nobody to say it to
        return FAILED
    except SpotwrightError as error:
        click.echo(f"spotwright: {error}", err=True)
        return FAILED if error.begun else WRONG
    return code if isinstance(code, int) else SUCCEEDED
