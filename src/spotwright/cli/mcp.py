"""The command ``mcp``: the server for editors and agents."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from spotwright.cli import SUCCEEDED, needs_extra, say
from spotwright.cli.options import state_option
from spotwright.errors import InputError
from spotwright.records.state_folder import nearest_state

__all__ = ["mcp"]


@click.command()
@click.option(
    "--project",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="The folder whose files may be read.  [default: the current one]",
)
@click.option(
    "--write", is_flag=True, help="Also cancel runs, write placed files, and run pipelines in Python to read them."
)
@state_option
def mcp(project: Path, state: Path, write: bool) -> int:
    """Serve runs, logs and findings to editors and agents, by the Model Context Protocol on standard input and output.

    A client starts it. It reads only the state folder and files of the project. Needs the extra: pip install
    'spotwright[mcp]'.
    """
    with needs_extra("mcp", "spotwright mcp"):
        from spotwright.mcp_server.bounds import Project
        from spotwright.mcp_server.mcp_stdio import serve

    folder = project.resolve()
    if not folder.is_dir():
        raise InputError(f"--project {project}: folder not found")
    if sys.stdin.isatty():
        say("spotwright mcp: waiting for a client on standard input; Ctrl-C ends it", err=True)
    if click.get_current_context().get_parameter_source("state") is click.core.ParameterSource.DEFAULT:
        state = nearest_state(folder)
    serve(Project(folder, (folder / state).resolve(), write))
    return SUCCEEDED
