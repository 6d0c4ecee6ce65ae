"""The ``checkpoint-file`` command: the checkpoint library as one file, for images without Spotwright."""

from __future__ import annotations

import json
from pathlib import Path

import click

from spotwright.checkpoint_file import FILE_NAME, config_map
from spotwright.checkpoint_file import checkpoint_file as file_content
from spotwright.cli import SUCCEEDED, say

__all__ = ["checkpoint_file"]


@click.command(name="checkpoint-file")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path(FILE_NAME),
    show_default=True,
    metavar="FILE",
    help="The file to write.",
)
@click.option(
    "--config-map",
    "as_config_map",
    is_flag=True,
    help="Print a ConfigMap with the file instead, for kubectl: target: {package: configmap} mounts it.",
)
def checkpoint_file(output: Path, *, as_config_map: bool) -> int:
    """Write the checkpoint library as one FILE that Python imports from: put its path into PYTHONPATH.

    For images without Spotwright and without a network. It needs Python 3.11 or later and the standard library.
    """
    if as_config_map:
        say(json.dumps(config_map()))
        return SUCCEEDED
    from spotwright.cli.options import replace_file

    content = file_content()
    replace_file(output, content)
    say(f"{output}: {len(content) / 1000:.0f} kB; PYTHONPATH={output.absolute()} makes it importable", err=True)
    return SUCCEEDED
