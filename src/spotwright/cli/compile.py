"""The command ``compile``: from a pipeline's Python file to placed KFP YAML, ready to upload to Kubeflow Pipelines."""

from __future__ import annotations

from pathlib import Path

import click

from spotwright.analysis import pipeline_yaml
from spotwright.cli import SUCCEEDED, say, show_content
from spotwright.cli.manifest_files import print_findings
from spotwright.cli.options import config_option, pipeline_option, replace_file, strict_option, with_strict
from spotwright.config import Config, find, require_pools
from spotwright.errors import InputError
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.loader import load
from spotwright.manifests.files import PlacedFile, place_text, refuse_unmatched
from spotwright.model.not_judged import counted
from spotwright.placing.context import Finding, Level, PlaceOptions
from spotwright.views.text import plural

__all__ = ["compile", "compiled_yaml", "placed_yaml"]


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Instead of standard output.")
@pipeline_option
@config_option("the pipeline")
@click.option("--replace-retries", is_flag=True, help="Also replace the retries of set_retry; unplace restores them.")
@strict_option
def compile(  # noqa: A001 - the command's name
    pipeline_file: Path,
    output: Path | None,
    pipeline_name: str | None,
    config: Path | None,
    replace_retries: bool,
    strict: bool,
) -> int:
    """Compile PIPELINE (a .py with @dsl.pipeline) to KFP YAML with the placement and the policy of every task.

    Pools and policy come from spotwright.yaml beside it, or above it in its repository. Upload the result as it is;
    spotwright run and spotwright unplace read the original pipeline from it. PIPELINE is imported, with the code at its top
    level; a plain script is refused.
    """
    if pipeline_file.suffix in (".yaml", ".yml", ".json"):
        raise InputError(f"{pipeline_file}: this file is compiled already: use spotwright place {pipeline_file}")
    if output is not None and output.suffix == ".json":
        raise InputError(f"{output}: placement needs a second document, which JSON cannot have: name a .yaml file")
    compiled = load(pipeline_file, pipeline=pipeline_name)
    placed = _placed(compiled, pipeline_file, find(pipeline_file, config), replace_retries=replace_retries)
    if output is None:
        show_content(placed.text)
    else:
        replace_file(output, placed.text)
    return with_strict(SUCCEEDED, placed.not_judged, strict=strict)


def placed_yaml(
    compiled: Compiled,
    pipeline_file: Path,
    configuration: Config,
    *,
    replace_retries: bool = False,
    has_controller: bool = False,
) -> str:
    """Place a compiled pipeline and print the findings. Raises :class:`InputError`.

    ``has_controller``: a controller of Spotwright runs there, so settings that only it enforces get no note.
    """
    return _placed(
        compiled, pipeline_file, configuration, replace_retries=replace_retries, has_controller=has_controller
    ).text


def _placed(
    compiled: Compiled,
    pipeline_file: Path,
    configuration: Config,
    *,
    replace_retries: bool,
    has_controller: bool = False,
) -> PlacedFile:
    require_pools(configuration)
    placed = place_text(
        pipeline_yaml(compiled),
        f"{pipeline_file} (compiled)",
        configuration,
        None,
        PlaceOptions(replace_retries=replace_retries, has_webhook=has_controller),
    )
    refuse_unmatched(configuration, placed.roles)
    notes = (Finding(Level.NOTE, "", 0, (), note) for note in (*compiled.warnings, *configuration.notes))
    printed = print_findings([*placed.findings, *notes], with_lines=False, explained=True)
    if printed.left_out:
        say(f"{plural(printed.left_out, 'more finding')}: spotwright explain {pipeline_file}", err=True)
    if left := counted(placed.not_judged):
        say(left, err=True)
    return placed


def compiled_yaml(path: Path, pipeline: str | None) -> str:
    """The KFP YAML of a pipeline's Python file, not placed. Raises :class:`PipelineError`."""
    return pipeline_yaml(load(path, pipeline=pipeline))
