"""The ``spotwright`` command: a thin layer that reads options, calls :mod:`spotwright.runs` and prints views.

A command's module is imported when the command is used, so ``spotwright --help`` needs only the table below. Exit codes:
0 succeeded, 1 the run failed, 2 wrong usage or input, 130 stopped by the user.
"""

from __future__ import annotations

import errno
import gc
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, TextIO

import click

from spotwright.errors import InputError, SpotwrightError
from spotwright.interrupts import forget_handled_interrupt, lost_interrupts_repeated
from spotwright.visible_text import visible

__all__ = [
    "FAILED",
    "STOPPED",
    "SUCCEEDED",
    "WRONG",
    "cluster_extra",
    "importing",
    "main",
    "needs_extra",
    "say",
    "show_content",
]

SUCCEEDED, FAILED, WRONG, STOPPED = 0, 1, 2, 130

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("spotwright.cli.run", "Run a pipeline on spot pools, on this machine."),
    "plan": ("spotwright.cli.plan", "Forecast what a run will cost and when it will end."),
    "resume": ("spotwright.cli.run", "Continue a run that was stopped or failed."),
    "rehearse": ("spotwright.cli.rehearse", "Test how a task or a command survives interruptions."),
    "runs": ("spotwright.cli.inspect", "List the runs of the state folder."),
    "show": ("spotwright.cli.inspect", "Show the tasks and attempts of a run, and why each ended."),
    "logs": ("spotwright.cli.inspect", "Print the logs of a run, a task or an attempt."),
    "page": ("spotwright.cli.page", "Show runs in a browser: graph, timeline, logs, cost."),
    "report": ("spotwright.cli.report", "Report what runs cost, what was wasted and what spot saved."),
    "cancel": ("spotwright.cli.inspect", "Cancel a run."),
    "prune": ("spotwright.cli.prune", "Delete unneeded runs and caches."),
    "place": ("spotwright.cli.place", "Place manifests on the pools, as the policy says."),
    "unplace": ("spotwright.cli.place", "Remove from manifests what place has added."),
    "krm-function": ("spotwright.cli.krm_function", "Place the items of a ResourceList, for kustomize."),
    "compile": ("spotwright.cli.compile", "Compile a pipeline to KFP YAML, placed on the pools."),
    "explain": ("spotwright.cli.place", "Explain where each role of a manifest may run, and why."),
    "lint": ("spotwright.cli.lint", "Find what is unsafe on spot in manifests and pipelines."),
    "pools": ("spotwright.cli", "Show the pools, print what makes them, check that work lands there."),
    "config": ("spotwright.cli", "Print what describes spotwright.yaml to editors."),
    "checkpoint-file": ("spotwright.cli.checkpoint_file", "Write the checkpoint library as one file, for any image."),
    "mcp": ("spotwright.cli.mcp", "Serve runs, logs and findings to editors and agents."),
    "node-agent": ("spotwright.cli.node_agent", "Pass this node's interruption notice on to its pods."),
    "controller": ("spotwright.cli.controller", "Place and watch what runs in a cluster."),
}

_REMOVED: Mapping[str, str] = {
    "pin": "a run is kept by prune --keep RUN",
    "unpin": "a run is kept only by prune --keep RUN",
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

_POOLS_COMMANDS: Mapping[str, tuple[str, str]] = {
    "list": ("spotwright.cli.pools_list:list_pools", "Show the pools, with the labels and taints of their nodes."),
    "import": ("spotwright.cli.pools_nodes:import_pools", "Print the pools that nodes show, for spotwright.yaml."),
    "command": ("spotwright.cli.pools_command:make_pool", "Print the command or manifest that makes a pool."),
    "check": ("spotwright.cli.pools_nodes:check_pools", "Say what would keep work from landing on the pools."),
}


_CONFIG_COMMANDS: Mapping[str, tuple[str, str]] = {
    "schema": ("spotwright.cli.config_schema", "Print the JSON schema of spotwright.yaml."),
}


class _LazyGroup(click.Group):
    """A group that lists its commands from a table, and imports one when it is called.

    ``table`` maps each command to its module; the function has the command's name unless ``:NAME`` follows the module.
    """

    def __init__(self, *, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(**options)
        self._table = table

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, _, function = self._table[cmd_name][0].partition(":")
        with importing():
            command = getattr(import_module(module), function or cmd_name.replace("-", "_"))
            _warn_visibly()
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names. Raises :class:`click.UsageError` with a suggestion for an unknown one."""
        if args[0] not in self._table and not args[0].startswith("-"):
            from difflib import get_close_matches  # few command lines need it

            near = [f"did you mean {name!r}?" for name in get_close_matches(args[0], self._table, n=1, cutoff=0.65)]
            hint = _hint_for(args[0]) or next(iter(near), "")
            ctx.fail(f"unknown command {args[0]!r}" + (f": {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])


def _warn_visibly() -> None:
    """Escape control characters in warnings that no command logs."""
    import logging

    from spotwright.visible_logs import VisibleFormatter

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleFormatter())


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        import spotwright

        say(f"spotwright {spotwright.__version__}")
        ctx.exit()


@click.group(
    cls=_LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Run Kubeflow work on spot capacity as if no node were ever reclaimed."""


@cli.group(cls=_LazyGroup, table=_POOLS_COMMANDS, invoke_without_command=True)
@click.pass_context
def pools(ctx: click.Context) -> int | None:
    """Show the pools, print the commands that make them, and check that work can land on them.

    Without a subcommand: as pools list.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from spotwright.cli.pools_list import list_pools

    outcome: int = ctx.invoke(list_pools)
    return outcome


@cli.group(cls=_LazyGroup, table=_CONFIG_COMMANDS)
def config() -> None:
    """Print what describes spotwright.yaml to editors."""


@contextmanager
def importing() -> Iterator[None]:
    """Exempt the block's imports from garbage collection for good: they all stay in use."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


_EXTRAS = {
    "cluster": frozenset({"cryptography", "httpx2", "lightkube", "msgspec", "obstore", "re2"}),
    "mcp": frozenset({"anyio", "jsonschema", "mcp", "mcp_types", "pydantic"}),
}


@contextmanager
def needs_extra(extra: str, need: str) -> Iterator[None]:
    """Guard imports that need an extra. Raises :class:`InputError` where it is missing.

    ``need`` names what needs it, such as ``--cluster``.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS[extra]:
            raise
        raise InputError(f"{need} needs the package {package}: pip install 'spotwright[{extra}]'") from error


def cluster_extra(need: str) -> AbstractContextManager[None]:
    """As :func:`needs_extra`, for the extra ``cluster``."""
    return needs_extra("cluster", need)


def say(text: str, *, err: bool = False, file: TextIO | None = None, nl: bool = True) -> None:
    """Print lines for people, with control characters escaped.

    Every command prints with it; file contents are written with :func:`show_content`.
    ``err``: to the error output; ``file``: to another stream; ``nl``: end with a newline.
    """
    click.echo(visible(text, block=True), err=err, file=file, nl=nl)


def show_content(text: str) -> None:
    """Write the content of a user's file, unchanged into a file or a pipe.

    On a terminal, control characters are escaped.
    """
    sys.stdout.write(visible(text, block=True) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def main() -> None:
    """Run the command line and exit with the code of its outcome."""
    _write_utf8()
    try:
        with lost_interrupts_repeated():
            code = _outcome()
    except KeyboardInterrupt:  # while the outcome of the command is printed
        code = STOPPED
    except (
        RuntimeError
    ) as error:  # Python 3.11 wraps an exception that is raised in __set_name__, while a class is made
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = STOPPED
    forget_handled_interrupt()
    gc.freeze()  # otherwise the interpreter collects garbage among all objects at exit: 20 ms
    sys.exit(code)


def _write_utf8() -> None:
    """Write UTF-8 with LF line ends on Windows too, so that logs and manifests are the same bytes everywhere."""
    if sys.platform == "win32":
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8", newline="\n")


def _outcome() -> int:
    try:
        code = cli.main(prog_name="spotwright", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        say(f"spotwright: {_told(error)}", err=True)
        say(f"see {context.command_path if context else 'spotwright'} --help", err=True)
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        return STOPPED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone, so no message can reach it
        return FAILED
    except OSError as error:
        if not _is_output_lost(error):
            raise
        say(f"spotwright: the output cannot be written ({error.strerror})", err=True)
        return FAILED
    except SpotwrightError as error:
        say(f"spotwright: {error}", err=True)
        return FAILED if error.after_start else WRONG
    return code if isinstance(code, int) else SUCCEEDED


def _is_output_lost(error: OSError) -> bool:
    """Whether standard output refuses writes, as on a full disk. The unwritten rest is dropped, so that Python can exit."""
    lost = error.errno == errno.ENOSPC and getattr(sys.stdout, "write_through", False)  # its buffer is empty
    try:
        sys.stdout.flush()
    except OSError:
        lost = True
    if lost:
        sys.stdout = None
    return lost


def _hint_for(*words: str) -> str:
    """The replacement of a removed command or option, with the commands before it; empty for an unknown word."""
    return _REMOVED.get(" ".join((*words[:1], *words[1:][-1:])), "")


def _told(error: click.ClickException) -> str:
    """The message of an error, with the replacement of a removed option or the subcommand that has it."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    _, *commands = error.ctx.command_path.split()
    hint = _hint_for(*commands, error.option_name) or _of_subcommands(error.ctx, error.option_name)
    return f"unknown option {error.option_name}: {hint}" if hint else error.format_message()


def _of_subcommands(ctx: click.Context, option: str) -> str:
    """The subcommands that have an option, as a clause; empty if none has."""
    if not isinstance(ctx.command, click.Group) or ctx.parent is None:  # at the top all commands would be imported
        return ""
    commands = {name: ctx.command.get_command(ctx, name) for name in ctx.command.list_commands(ctx)}
    having = [
        name
        for name, command in commands.items()
        if command is not None and any(option in parameter.opts for parameter in command.params)
    ]
    return f"put it behind {' or '.join(f'{ctx.command_path} {name}' for name in having)}" if having else ""
