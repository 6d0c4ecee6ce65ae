"""The command ``plan``: what a run will cost and when it will end; without a pipeline, policies side by side on recordings."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from spotwright.analysis import (
    DEFAULT_MARKETS,
    deadline_of,
    forecast_of,
    known_durations,
    read_share,
    spot_source,
)
from spotwright.cli import SUCCEEDED, importing, say
from spotwright.cli.options import (
    Duration,
    arguments_option,
    config_option,
    containers_option,
    interrupt_every_option,
    json_option,
    parse_arguments,
    pipeline_option,
    policy_of,
    policy_option,
    state_option,
    strict_option,
    with_strict,
)
from spotwright.errors import InputError
from spotwright.model.quantities import format_duration, parse_duration, parse_price

if TYPE_CHECKING:
    from spotwright.forecast.forecast import Forecast


__all__ = ["JobOptions", "compare_policies", "plan"]


@click.command()
@click.argument("pipeline_file", metavar="[PIPELINE]", required=False, type=click.Path(path_type=Path))
@pipeline_option
@arguments_option
@config_option("the pipeline")
@click.option(
    "--deadline",
    metavar="TIME",
    help="When all of the run must be done: a duration from its start (8h) or a time with its zone.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="[POOL=]FILE",
    help="Draw markets from this recording, for all spot pools or for one. May be repeated.",
)
@click.option(
    "--rate",
    metavar="RATE",
    help="Draw markets in which a node of spot is lost so often: 10%/h.  [default: as shipped]",
)
@interrupt_every_option
@click.option(
    "--durations",
    metavar="RUN|FILE",
    help="Durations of the tasks: those that an earlier run measured, or a YAML or JSON file.  "
    "[default: the last run of this pipeline in the state folder]",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw cost against end of every policy: .svg or .png. Needs the extra: pip install 'spotwright[plot]'.",
)
@click.option(
    "--markets",
    type=click.IntRange(1, 100_000),
    metavar="NUMBER",
    help="How many markets to draw.  [default: 1000; 300 without a pipeline]",
)
@click.option("--certainty", default="99%", show_default=True, metavar="SHARE", help="How sure the plan must be.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same markets.")
@policy_option(" Without a pipeline: a policy to compare, by its name.  [default: all]", "FIELD=VALUE|NAME", "policies")
@click.option("--work", type=Duration(), default="48h", show_default=True, help="Without a pipeline: the job's work.")
@click.option(
    "--changeover",
    type=Duration(),
    default="12m",
    show_default=True,
    help="Without a pipeline: what a launch takes before the work goes on.",
)
@click.option(
    "--prices",
    metavar="SPOT[,SPOT...],ON_DEMAND",
    help="Without a pipeline: prices an hour, of spot by recording with --pools together.  "
    "[default: from spotwright.yaml here, else 1,3]",
)
@click.option(
    "--pools",
    type=click.Choice(["apart", "together"]),
    default="apart",
    show_default=True,
    help="Without a pipeline: each recording alone, or all of them together as the spot pools of one job.",
)
@click.option(
    "--fit",
    metavar="SHARE",
    help="Without a pipeline: learn from this first part of each recording, and judge on the rest, such as 60%.",
)
@containers_option
@state_option
@strict_option
@json_option
def plan(
    pipeline_file: Path | None,
    pipeline_name: str | None,
    argument_texts: tuple[str, ...],
    config: Path | None,
    deadline: str | None,
    traces: tuple[str, ...],
    rate: str | None,
    interrupt_every: float | None,
    durations: str | None,
    picture: Path | None,
    markets: int | None,
    certainty: str,
    seed: int,
    policies: tuple[str, ...],
    work: float,
    changeover: float,
    prices: str | None,
    pools: str,
    fit: str | None,
    containers: str,
    state: Path,
    strict: bool,
    as_json: bool,
) -> int:
    """Forecast the cost and the end of a run of PIPELINE under each policy, over many simulated markets.

    Pools, prices and policy come from spotwright.yaml beside PIPELINE, or above it in its repository. No task is run;
    --containers only goes into the printed command. --interrupt-every is --rate as a mean time. A PIPELINE in Python is
    imported, with the code at its top level; a plain script is refused.

    Without PIPELINE, compare policies for one job with a deadline on the recordings that --trace names.
    """
    if seed < 0:
        raise InputError(f"--seed {seed}: expected a whole number from 0")
    if pipeline_file is None:
        _only_with(("argument_texts", "durations", "rate", "interrupt_every", "picture", "pipeline_name", "containers"))
        if not traces:
            raise click.UsageError("expected a PIPELINE, or --trace with a recording to compare policies on")
        part = 0.0 if fit is None else read_share("--fit", fit)
        job = JobOptions(policies, work, changeover, deadline, prices, pools, part, markets, seed, config)
        return compare_policies(traces, job, as_json=as_json)
    _only_without(("work", "changeover", "prices", "pools", "fit"))
    if picture is not None:
        _check_picture(picture)
    with importing():
        from spotwright.forecast.forecast import Question
        from spotwright.forecast.report import pipeline_words
        from spotwright.runs.planning import plan_run
        from spotwright.runs.run_options import PlanOptions
    from spotwright.kfp.loader import load

    policy = policy_of(policies if deadline is None else (*policies, f"deadline={deadline}"))
    source = spot_source(traces, _rate(rate, interrupt_every, traces))
    share = read_share("--certainty", certainty)
    compiled = load(pipeline_file, pipeline=pipeline_name)
    known = known_durations(durations, state, compiled.pipeline)
    options = PlanOptions(arguments=parse_arguments(argument_texts), textual=True, config=config, policy=policy)
    planned = plan_run(compiled, options, partly=True)
    seconds = deadline_of(planned, time.time())
    question = Question(planned.stored.plan.graph.name, seconds, source, markets or DEFAULT_MARKETS, seed, share)
    forecast = forecast_of(planned, known, question)
    if picture is not None:
        _draw(forecast, picture)
    configured = None if config is None else str(config)
    chosen = containers if _given(["containers"]) else None
    every = None if interrupt_every is None else format_duration(interrupt_every)
    given = [*(("--policy", text) for text in policies), ("--interrupt-every", every), ("--containers", chosen)]
    words = pipeline_words(str(pipeline_file), argument_texts, name=pipeline_name, config=configured, more=given)
    _print(forecast, words, as_json=as_json)
    return with_strict(SUCCEEDED, forecast.not_judged, strict=strict)


def _rate(rate: str | None, interrupt_every: float | None, traces: Sequence[str]) -> str | None:
    """The interruptions per hour, as :func:`spot_source` reads them, also from ``--interrupt-every``."""
    if interrupt_every is None:
        return rate
    if rate is not None or traces:
        other = "--trace" if traces else "--rate"
        raise InputError(f"{other} and --interrupt-every both say how spot comes and goes: name one of them")
    if interrupt_every <= 0:
        raise InputError(f"--interrupt-every {interrupt_every:g}s: expected a duration above 0, for example 20s")
    return f"{3600 / interrupt_every:.9f}/h"


def _check_picture(path: Path) -> None:
    """Before computing anything, refuse a picture that cannot be drawn. Raises :class:`InputError`."""
    if path.suffix not in {".svg", ".png"}:
        raise InputError(f"--picture {path}: expected a file that ends in .svg or .png")
    if find_spec("matplotlib") is None:
        raise InputError("--picture needs matplotlib: pip install 'spotwright[plot]'")


def _draw(forecast: Forecast, path: Path) -> None:
    from spotwright.cli.options import replace_file
    from spotwright.forecast.picture import draw

    replace_file(path, draw(forecast, "svg" if path.suffix == ".svg" else "png"))
    say(f"picture: {path}", err=True)


def _print(forecast: Forecast, pipeline: str, *, as_json: bool) -> None:
    from spotwright.forecast.report import forecast_json, forecast_text

    document = forecast_json(forecast, pipeline)
    say(json.dumps(document) if as_json else forecast_text(forecast, pipeline))


def _given(names: Sequence[str]) -> list[str]:
    """The options among these that the command line names."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    return [flags[name] for name in names if context.get_parameter_source(name) is typed]


def _only_with(names: Sequence[str]) -> None:
    """Refuse options that only apply with a pipeline."""
    for flag in _given(names):
        raise click.UsageError(f"{flag} belongs to the plan of a pipeline: name PIPELINE too")


def _only_without(names: Sequence[str]) -> None:
    """Refuse options that only apply without a pipeline."""
    for flag in _given(names):
        raise click.UsageError(f"{flag} compares policies on recordings: leave PIPELINE out")


_WINDOWS = 300  # the lower bound of each takes a few milliseconds


class JobOptions(NamedTuple):
    """The job's options; durations in seconds.

    ``prices``: of spot, one or one for each recording, and of on-demand, as one text. ``pools``: ``apart`` or ``together``.
    """

    policies: tuple[str, ...]
    work: float
    changeover: float
    deadline: str | None
    prices: str | None
    pools: str
    fit: float
    windows: int | None
    seed: int
    config: Path | None


def compare_policies(traces: Sequence[str], options: JobOptions, *, as_json: bool) -> int:
    """Print the comparison. Raises :class:`InputError` for options or recordings that cannot be compared."""
    from spotwright.config import load_trace
    from spotwright.forecast.policy_comparison import Pools, compare, comparison_json, comparison_text, job_of

    stems = [Path(text).stem for text in traces]
    names = [stem if stems.count(stem) == 1 else text for stem, text in zip(stems, traces, strict=True)]
    recordings = {name: load_trace(text) for name, text in zip(names, traces, strict=True)}
    deadline = None if options.deadline is None else _duration(options.deadline)
    spot, on_demand = _prices(options)
    job = job_of(options.work, deadline, options.changeover, (spot[0], on_demand))
    found = compare(
        job, recordings, options.policies, windows=_WINDOWS if options.windows is None else options.windows,
        seed=options.seed, fit=options.fit, pools=Pools(options.pools), prices=spot if len(spot) > 1 else (),
    )  # fmt: skip
    say(json.dumps(comparison_json(found)) if as_json else comparison_text(found))
    return SUCCEEDED


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise InputError(f"--deadline {text!r}: expected a duration such as 52h, where no pipeline is named") from None


def _prices(options: JobOptions) -> tuple[tuple[float, ...], float]:
    """The prices of spot and on-demand: from the option, else of the cheapest pools of the configuration, else 1 and 3."""
    if options.prices is not None:
        try:
            *spot, on_demand = [float(parse_price(text)) for text in options.prices.split(",")]
        except ValueError:
            spot = []
        if not spot:
            raise InputError(f"--prices {options.prices!r}: expected two prices, such as 0.97,3.06") from None
        if len(spot) > 1 and options.pools == "apart":
            raise InputError(f"--prices {options.prices!r}: several prices of spot need --pools together")
        return tuple(spot), on_demand
    from spotwright.config import find

    config = find(Path.cwd() / "-", options.config)
    found: dict[bool, float] = {}
    for pool in config.pools.values():
        if pool.price is not None and not config.is_built_in:
            found[pool.is_spot] = min(float(pool.price), found.get(pool.is_spot, float(pool.price)))
    return ((found[True],), found[False]) if len(found) == 2 else ((1.0,), 3.0)
