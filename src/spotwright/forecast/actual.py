"""Compares a run with the plan that was made of it: the document of ``spotwright plan --json`` against the account of the run.

The plan's cost is that of attempts and boots, so that is what stands beside it; idle and unfilled time are lines of the account.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.config.text_files import read_text
from spotwright.engine.state import RunState
from spotwright.errors import InputError
from spotwright.forecast.making import DEADLINE, ON_DEMAND, SPOT
from spotwright.forecast.report import NAMES, length, money
from spotwright.model.policy import Spot
from spotwright.views.account.account_model import Account
from spotwright.views.table import wrapped

__all__ = ["Beside", "StoredForecast", "beside", "beside_json", "beside_lines", "read_forecast"]

_MOST_BYTES = 50_000_000
_QUANTILES = ("p10", "p50", "p90")
_VERSION = 1


class StoredForecast(NamedTuple):
    """A plan as it was saved: by policy the p10, p50 and p90 of cost and end (``None``: the run does not end so often)."""

    name: str
    currency: str | None
    costs: Mapping[str, tuple[float | None, ...]]
    ends: Mapping[str, tuple[float | None, ...]]


class Beside(NamedTuple):
    """A run beside its plan. ``cost`` and ``end`` are the planned p10, p50 and p90; the others what the run had.

    ``actual_cost`` is ``None`` without prices, ``actual_end`` before the run has ended and where its waits passed faster than
    those of the plan; ``why`` says so.
    """

    plan: str
    policy: str
    currency: str | None
    cost: tuple[float | None, ...]
    end: tuple[float | None, ...]
    actual_cost: float | None
    actual_end: float | None
    why: str


def read_forecast(path: Path) -> StoredForecast:
    """Read what ``spotwright plan --json`` printed. Raises :class:`InputError` for anything else."""
    text = read_text(path, _MOST_BYTES)
    try:
        document = json.loads(text)
        version = document["plan"]
        policies = {policy["name"]: policy for policy in document["policies"]} if version == _VERSION else {}
        stored = StoredForecast(
            path.name,
            document["currency"],
            {name: tuple(policy["cost"][each] for each in _QUANTILES) for name, policy in policies.items()},
            {name: tuple(policy["finish"][each] for each in _QUANTILES) for name, policy in policies.items()},
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path}: expected what 'spotwright plan PIPELINE --json' prints") from None
    if version != _VERSION:
        raise InputError(f"{path}: a plan of version {version}: a newer Spotwright made it, use that one")
    return stored


def beside(plan: StoredForecast, account: Account, state: RunState) -> Beside:
    """The run beside its plan, under the policy that the run had. Raises :class:`InputError` for a plan without that policy."""
    policy = _policy(state)
    if policy not in plan.costs:
        raise InputError(
            f"{plan.name} has no forecast of the policy of this run ({NAMES[policy]}): plan with --deadline"
        )
    paid = (account.attempts.money, account.boot.money)
    actual = None if account.unpriced or plan.currency is None else float(sum(each or 0 for each in paid))
    ended = None if state.finished_at is None else state.finished_at - state.started_at
    why = ""
    if actual is None:
        why = "no cost to compare: a pool has no price"
    elif plan.currency != account.currency:
        raise InputError(
            f"{plan.name} is in {plan.currency}, the run in {account.currency}: plan with its configuration"
        )
    if ended is None:
        why = "the run has not ended"
    elif state.time_scale != 1:
        ended, why = (
            None,
            f"waits passed {state.time_scale:g} times faster in this run, so its end says nothing about the plan",
        )
    return Beside(plan.name, policy, plan.currency, plan.costs[policy], plan.ends[policy], actual, ended, why)


def _policy(state: RunState) -> str:
    """The policy of a forecast that the run followed."""
    policies = [task.plan.policy for task in state.tasks.values() if task.plan.ladder.rungs]
    if any(policy.deadline is not None for policy in policies):
        return DEADLINE
    return ON_DEMAND if policies and all(policy.spot is Spot.NEVER for policy in policies) else SPOT


def beside_lines(found: Beside) -> list[str]:
    """Plan against actual as text."""
    lines = [f"Plan against actual ({found.plan}, {NAMES[found.policy]})"]
    rows = []
    if found.actual_cost is not None:
        shown = [_or_none(value, money) for value in found.cost]
        place = _place(found.actual_cost, found.cost)
        rows.append(
            (
                "cost",
                f"{money(found.actual_cost)} {found.currency} on attempts and boots; planned {_range(shown)}: {place}",
            )
        )
    if found.actual_end is not None:
        shown = [_or_none(value, length) for value in found.end]
        rows.append(
            ("end", f"after {length(found.actual_end)}; planned {_range(shown)}: {_place(found.actual_end, found.end)}")
        )
    rows += [("note", found.why)] if found.why else []
    return [*lines, *(line for word, text in rows for line in wrapped(text, indent=f"  {word:<8}", hang=" " * 10))]


def _range(shown: list[str]) -> str:
    low, middle, high = shown
    return f"{middle} (p50), {low} to {high} (p10 to p90)"


def _or_none(value: float | None, words: Any) -> str:
    return "no end" if value is None else str(words(value))


def _place(actual: float, planned: tuple[float | None, ...]) -> str:
    """Where the actual figure lies in the planned ones; a figure at an end is within them."""
    low, _, high = planned
    slack = 1e-9 + 0.001 * abs(actual)
    if low is not None and actual < low - slack:
        return "below the plan"
    return "above the plan" if high is not None and actual > high + slack else "within the plan"


def beside_json(found: Beside) -> dict[str, Any]:
    """Plan against actual for machines, the key ``planned`` of an account.

    ``plan`` (the file), ``policy``, ``cost`` and ``end`` with ``p10``, ``p50``, ``p90`` and ``actual`` (null: not known, with the
    reason in ``why``), in seconds and in the currency of the account.
    """
    return {
        "plan": found.plan,
        "policy": found.policy,
        "cost": {**dict(zip(_QUANTILES, found.cost, strict=True)), "actual": found.actual_cost},
        "end": {**dict(zip(_QUANTILES, found.end, strict=True)), "actual": found.actual_end},
        "why": found.why,
    }
