"""The command ``config schema``: the JSON schema of ``spotwright.yaml``, which editors check the file with."""

from __future__ import annotations

from importlib.resources import files

import click

from spotwright.cli import SUCCEEDED, show_content

__all__ = ["schema"]


@click.command()
def schema() -> int:
    """Print the JSON schema of spotwright.yaml.

    An editor with the YAML language server uses it where the file begins with: # yaml-language-server: $schema=FILE
    """
    show_content((files("spotwright.config") / "spotwright.schema.json").read_text(encoding="utf-8"))
    return SUCCEEDED
