"""``compile``: a pipeline's Python file as the file that is uploaded to Kubeflow Pipelines, placed already."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from spotwright import config as configuration
from spotwright.cli import SUCCEEDED
from spotwright.cli.options import config_option, pipeline_option
from spotwright.cli.writing import replace_file
from spotwright.errors import InputError
from spotwright.manifests.context import Options
from spotwright.manifests.files import place_text
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.source import load

__all__ = ["compile"]


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of standard output.")
@pipeline_option
@config_option("the pipeline")
@click.option("--replace-retries", is_flag=True, help="Also change what set_retry says; the record keeps it.")
def compile(  # noqa: A001 - the command's name
    pipeline_file: Path, output: Path | None, pipeline_name: str | None, config: Path | None, replace_retries: bool
) -> int:
    """Compile PIPELINE (a .py with @dsl.pipeline) to KFP YAML with the placement and the policy of every task in it.

    Pools and policy come from spotwright.yaml beside it. The result is uploaded as it is; spotwright run and
    spotwright unplace see in it what the pipeline says itself.
    """
    if pipeline_file.suffix in (".yaml", ".yml", ".json"):
        raise InputError(f"{pipeline_file}: this is compiled already: use spotwright place {pipeline_file}")
    if output is not None and output.suffix == ".json":
        raise InputError(
            f"{output}: a JSON file holds one document, and placement stands in a second one: name a .yaml"
        )
    compiled = load(pipeline_file, pipeline=pipeline_name)
    found = configuration.find(pipeline_file, config)
    placed = place_text(
        _written(compiled), f"{pipeline_file} (compiled)", found, None, Options(replace_retries=replace_retries)
    )
    for note in (*compiled.warnings, found.note):
        if note:
            click.echo(f"note: {note}", err=True)
    for finding in placed.findings:
        click.echo(f"{finding.level}: {finding.text}", err=True)  # its line is one of a text that nobody has
    if output is None:
        sys.stdout.write(placed.text)
        sys.stdout.flush()
    else:
        replace_file(output, placed.text)
    return SUCCEEDED


class _Dumper(yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper):  # type: ignore[misc]
    """Writes source code as people read it, and equal parts each in its place."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> yaml.Node:
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)
    return node


_Dumper.add_representer(str, _text)


def _written(compiled: Compiled) -> str:
    """A compiled pipeline as KFP's YAML: one document, and a second one where platforms say something."""
    documents: list[Any] = [compiled.ir]
    if compiled.platform:
        documents.append({"platforms": compiled.platform})
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=10**6))
