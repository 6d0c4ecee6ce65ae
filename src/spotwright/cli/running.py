"""``run`` and ``resume``: their options, and no more than is needed to know which run is meant.

The rest (:mod:`spotwright.cli.driving`) is imported while the run's fork server boots.
"""

from __future__ import annotations

from pathlib import Path

import click

from spotwright.cli import importing
from spotwright.cli.options import (
    Duration,
    arguments_of,
    arguments_option,
    config_option,
    containers_option,
    json_option,
    pipeline_option,
    policy_of,
    state_option,
)
from spotwright.pipelines.source import load
from spotwright.records.folders import StateFolder
from spotwright.runs.early import EarlyServer, new_name
from spotwright.runs.options import CACHE_MODES, RunOptions

__all__ = ["resume", "run"]


@click.command()
@click.argument("pipeline_file", metavar="PIPELINE", type=click.Path(path_type=Path))
@pipeline_option
@arguments_option(
    "An argument, of an artifact its path or address; @env:VAR and @file:PATH keep the value out of every record."
)
@config_option("the pipeline")
@click.option("--seed", type=int, help="Decides every simulated interruption.  [default: drawn, and said]")
@click.option("--taken-every", type=Duration(), help="Take spot nodes away, on average this often.")
@click.option(
    "--time-scale",
    type=float,
    default=1.0,
    show_default=True,
    help="Waits of the simulated world pass this many times faster; work does not.",
)
@click.option(
    "--cache",
    type=click.Choice(CACHE_MODES),
    default="auto",
    show_default=True,
    help="Use earlier results; auto: unless nodes are taken.",
)
@containers_option("What container components run in; auto: podman, else docker; host: as processes of this machine.")
@click.option(
    "--policy",
    "policy_texts",
    metavar="FIELD=VALUE",
    multiple=True,
    help="A policy field for every task, stronger than anything else: spot=never, interruptions.max=3.",
)
@click.option("--no-cache", is_flag=True, help="The same as --cache off.")
@click.option("--name", help="The run's name.  [default: the pipeline's with five letters]")
@state_option
@json_option
def run(
    pipeline_file: Path,
    pipeline_name: str | None,
    texts: tuple[str, ...],
    config: Path | None,
    seed: int | None,
    taken_every: float | None,
    time_scale: float,
    cache: str,
    containers: str,
    policy_texts: tuple[str, ...],
    no_cache: bool,
    name: str | None,
    state: Path,
    as_json: bool,
) -> int:
    """Run PIPELINE (a .py with @dsl.pipeline, or compiled KFP YAML) on spot pools, on this machine.

    Pools and policy come from spotwright.yaml beside it. Each attempt is a real process; simulated nodes are taken away
    only where the pools or --taken-every say so.
    """
    compiled = load(pipeline_file, pipeline=pipeline_name)
    name = name if name is not None else new_name(compiled.pipeline)
    options = RunOptions(
        arguments=arguments_of(texts), textual=True, config=config, seed=seed, taken_every=taken_every,
        time_scale=time_scale, cache="off" if no_cache else cache, containers=containers, state=state,
        name=name, policy=policy_of(policy_texts),
    )  # fmt: skip
    with EarlyServer(StateFolder(state).run(name).path) as server:
        with importing():
            from spotwright.cli.driving import begin
        return begin(compiled, options, server, as_json=as_json)


@click.command()
@click.argument("name", metavar="RUN")
@click.option("--as-compiled", is_flag=True, help="Do not look at the pipeline and configuration files again.")
@state_option
@json_option
def resume(name: str, as_compiled: bool, state: Path, as_json: bool) -> int:
    """Go on with RUN after a crash, a stop or a failure; what succeeded is not run again.

    Where the pipeline's code changed since, what changed and what follows it runs again. A run that failed starts its
    unfinished tasks with fresh budgets. RUN is a name, its unique beginning, or 'last'.
    """
    with importing():
        from spotwright.cli.driving import go_on
    return go_on(state, name, mended=not as_compiled, as_json=as_json)
