"""``plan --trace`` without a pipeline: policies side by side on recordings, for one job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from spotwright.cli import SUCCEEDED
from spotwright.errors import InputError
from spotwright.model.quantities import parse_duration, parse_price

__all__ = ["JobOptions", "compare_policies"]

_WINDOWS = 300  # the floor under each takes a few milliseconds


class JobOptions(NamedTuple):
    """What the command line says of the job; durations in seconds. ``prices``: of spot and of on-demand, as one text."""

    policies: tuple[str, ...]
    work: float
    changeover: float
    deadline: str | None
    prices: str | None
    fit: float
    windows: int | None
    seed: int
    config: Path | None


def compare_policies(traces: Sequence[str], options: JobOptions, *, as_json: bool) -> int:
    """Print the comparison. Raises :class:`InputError` for what cannot be compared."""
    from spotwright.config import load_trace
    from spotwright.forecast.policy_comparison import compare, comparison_json, comparison_text, job_of

    recordings = {Path(text).stem: load_trace(text) for text in traces}
    deadline = None if options.deadline is None else _duration(options.deadline)
    job = job_of(options.work, deadline, options.changeover, _prices(options))
    found = compare(
        job, recordings, options.policies, windows=_WINDOWS if options.windows is None else options.windows,
        seed=options.seed, fit=options.fit,
    )  # fmt: skip
    click.echo(json.dumps(comparison_json(found)) if as_json else comparison_text(found))
    return SUCCEEDED


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise InputError(f"--deadline {text!r}: expected a duration such as 52h, where no pipeline is named") from None


def _prices(options: JobOptions) -> tuple[float, float]:
    """The prices of spot and on-demand: those of the option, else of the cheapest pools of the configuration, else 1 and 3."""
    if options.prices is not None:
        spot, _, on_demand = options.prices.partition(",")
        try:
            return float(parse_price(spot)), float(parse_price(on_demand))
        except ValueError:
            raise InputError(f"--prices {options.prices!r}: expected two prices, such as 0.97,3.06") from None
    from spotwright.config import find

    config = find(Path.cwd() / "-", options.config)
    found: dict[bool, float] = {}
    for pool in config.pools.values():
        if pool.price is not None and not config.is_built_in:
            found[pool.is_spot] = min(float(pool.price), found.get(pool.is_spot, float(pool.price)))
    return (found[True], found[False]) if len(found) == 2 else (1.0, 3.0)
