"""The retries of a compiled task: KFP has one count for all endings, one growing backoff, and one window for all attempts.

So the count is the sum of both budgets. The factor is a whole number, because Argo reads it with ``Atoi``. The window, after
which nothing is retried and a running attempt is killed, is long enough for all attempts. Sources:
``argocompiler/container.go`` of kubeflow/pipelines, ``workflow/controller/operator.go`` of argo-workflows;
kubeflow/pipelines#13452, #14245.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spotwright.manifests.kinds.kfp.pipeline_tasks import CompiledTask
from spotwright.manifests.rules.context import Group, Level, PlaceContext
from spotwright.manifests.rules.pod_rules import Placed
from spotwright.manifests.rules.retry_bounds import write_unless_set
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import Backoff
from spotwright.model.quantities import format_duration, parse_duration

__all__ = ["LONGEST_WAIT", "write_retries"]

_SHORTEST_WINDOW = 30 * 24 * 3600
"""The least ``backoffMaxDuration``: seconds after the start of the first attempt in which retries may begin."""

LONGEST_WAIT = 3600
"""Seconds that one wait may take even if the policy's ceiling is lower: in KFP waits grow until the last retry."""


def write_retries(ctx: PlaceContext, task: CompiledTask, placed: Placed) -> int:
    """Write the retries of a task unless it has its own; returns how often the task may be retried."""
    policy, at = placed.policy, (*task.at, "retryPolicy")
    count = policy.retries + (policy.max_interruptions if placed.on_spot else 0)
    own = ctx.editor.get(at)
    if not ctx.writes(Group.RETRIES):
        return int((own or {}).get("maxRetryCount") or 0)
    if own is None:
        if count:
            ctx.editor.add(at, _retry_policy(placed, count))
        return count
    if not ctx.options.replace_retries:
        return _keep(ctx, task.path, at, own, placed)
    write_unless_set(ctx, (*at, "maxRetryCount"), count)
    if _is_broken(own.get("backoffFactor")):
        write_unless_set(ctx, (*at, "backoffFactor"), max(1, int(own["backoffFactor"])))
    if _seconds(ctx, (*at, "backoffMaxDuration")) < _SHORTEST_WINDOW:
        write_unless_set(ctx, (*at, "backoffMaxDuration"), f"{_window(placed, count)}s")
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
    """The policy's factor as a whole number, smaller if the last wait would be too long."""
    factor = max(1, int(wait.factor))
    while factor > 1 and wait.first * float(factor) ** (count - 1) > max(wait.ceiling, LONGEST_WAIT):
        factor -= 1
    return factor


def _window(placed: Placed, count: int) -> int:
    """Whole seconds after the first start in which the last attempt still ends, as far as the policy has a timeout."""
    policy = placed.policy
    wait = policy.interruption_backoff if placed.on_spot else policy.error_backoff
    factor = _factor(wait, count)
    waits = sum(wait.first * float(factor) ** number for number in range(count))
    attempts = (count + 1) * (policy.timeout + policy.pending_timeout) if policy.timeout is not None else 0.0
    return max(_SHORTEST_WINDOW, math.ceil(waits + attempts))


def _keep(ctx: PlaceContext, name: str, at: Path, own: Mapping[str, Any], placed: Placed) -> int:
    """Keep the user's own retries and report their effects; returns how often the task may be retried."""
    policy, problems = placed.policy, []
    count = int(own.get("maxRetryCount") or 0)
    if placed.on_spot and count != policy.max_interruptions + policy.retries:
        problems.append(
            f"maxRetryCount {count} counts interruptions and errors together, and the policy allows "
            f"{policy.max_interruptions} and {policy.retries}"
        )
    window = _seconds(ctx, (*at, "backoffMaxDuration"))
    if count and window < _SHORTEST_WINDOW:
        problems.append(
            f"backoffMaxDuration {format_duration(window)} is a window over all attempts: no attempt begins after it, and a "
            "running one is killed (read in kubeflow/pipelines#13452)"
        )
    if _is_broken(own.get("backoffFactor")):
        problems.append(
            f"backoffFactor {own['backoffFactor']} is not a whole number, on which Argo fails (read in Argo 4.0)"
        )
    if problems:
        ctx.add_finding(
            Level.WARNING, at, f"{name}: its retryPolicy stays: {'; '.join(problems)}; --replace-retries changes it"
        )
    return count


def _is_broken(factor: Any) -> bool:
    return isinstance(factor, float) and not factor.is_integer()


def _seconds(ctx: PlaceContext, path: Path) -> float:
    try:
        return parse_duration(ctx.editor.get(path) or 0)
    except ValueError as error:
        raise ctx.problem(path, str(error)) from error
