"""The retries of a compiled task: KFP has one count for all endings, one growing wait, and one window for all attempts.

So the count is the sum of both budgets; the factor is whole, because Argo reads it with ``Atoi``; and the window, after which
nothing is retried and a running attempt is killed, is long enough for all attempts. Sources: ``argocompiler/container.go`` of
kubeflow/pipelines, ``workflow/controller/operator.go`` of argo-workflows; kubeflow/pipelines#13452, #14245.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spotwright.manifests.bounds import settle
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.kinds.kfp_tasks import Task
from spotwright.manifests.pods import Placed
from spotwright.model.policy import Backoff
from spotwright.model.quantities import format_duration, parse_duration

__all__ = ["LONGEST_WAIT", "write_retries"]

_SHORTEST_WINDOW = 30 * 24 * 3600
"""Seconds from the start of the first attempt in which retries may begin: ``backoffMaxDuration``, at least."""

LONGEST_WAIT = 3600
"""Seconds one wait may take where the policy's own ceiling is lower: KFP has none, and waits grow until the last retry."""


def write_retries(ctx: Context, task: Task, placed: Placed) -> int:
    """Write the retries of a task, unless it has its own; gives how often it may be started again then."""
    policy, at = placed.policy, (*task.at, "retryPolicy")
    count = policy.retries + (policy.max_interruptions if placed.on_spot else 0)
    own = ctx.editor.get(at)
    if own is None:
        if count:
            ctx.editor.add(at, _retry_policy(placed, count))
        return count
    if not ctx.options.replace_retries:
        return _keep(ctx, task.path, at, own, placed)
    settle(ctx, (*at, "maxRetryCount"), count)
    if _is_broken(own.get("backoffFactor")):
        settle(ctx, (*at, "backoffFactor"), max(1, int(own["backoffFactor"])))
    if _seconds(ctx, (*at, "backoffMaxDuration")) < _SHORTEST_WINDOW:
        settle(ctx, (*at, "backoffMaxDuration"), f"{_window(placed, count)}s")
    return count


def _retry_policy(placed: Placed, count: int) -> dict[str, Any]:
    wait = placed.policy.interruption_backoff if placed.on_spot else placed.policy.error_backoff
    return {
        "maxRetryCount": count,
        "backoffDuration": f"{math.ceil(wait.first)}s",
        "backoffFactor": _factor(wait, count),
        "backoffMaxDuration": f"{_window(placed, count)}s",
    }


def _factor(wait: Backoff, count: int) -> int:
    """The policy's factor as a whole number, smaller where the last wait would grow too long."""
    factor = max(1, int(wait.factor))
    while factor > 1 and wait.first * float(factor) ** (count - 1) > max(wait.ceiling, LONGEST_WAIT):
        factor -= 1
    return factor


def _window(placed: Placed, count: int) -> int:
    """Whole seconds from the first start in which the last attempt still ends, where that is known."""
    policy = placed.policy
    wait = policy.interruption_backoff if placed.on_spot else policy.error_backoff
    factor = _factor(wait, count)
    waits = sum(wait.first * float(factor) ** number for number in range(count))
    attempts = (count + 1) * (policy.timeout + policy.pending_timeout) if policy.timeout is not None else 0.0
    return max(_SHORTEST_WINDOW, math.ceil(waits + attempts))


def _keep(ctx: Context, name: str, at: Path, own: Mapping[str, Any], placed: Placed) -> int:
    """Leave what the user wrote, and say what an interruption does with it; gives how often it is started again."""
    policy, said = placed.policy, []
    count = int(own.get("maxRetryCount") or 0)
    if placed.on_spot and count != policy.max_interruptions + policy.retries:
        said.append(
            f"maxRetryCount {count} counts interruptions and errors together, and the policy allows "
            f"{policy.max_interruptions} and {policy.retries}"
        )
    window = _seconds(ctx, (*at, "backoffMaxDuration"))
    if count and window < _SHORTEST_WINDOW:
        said.append(
            f"backoffMaxDuration {format_duration(window)} is a window over all attempts: none begins after it, and one that "
            "runs then is killed"
        )
    if _is_broken(own.get("backoffFactor")):
        said.append(f"backoffFactor {own['backoffFactor']} is no whole number, and the controller fails on it")
    if said:
        ctx.say(Level.WARNING, at, f"{name}: its retryPolicy stays: {'; '.join(said)}; --replace-retries changes it")
    return count


def _is_broken(factor: Any) -> bool:
    return isinstance(factor, float) and not factor.is_integer()


def _seconds(ctx: Context, path: Path) -> float:
    try:
        return parse_duration(ctx.editor.get(path) or 0)
    except ValueError as error:
        raise ctx.problem(path, str(error)) from error
