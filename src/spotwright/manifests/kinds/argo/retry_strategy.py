"""Write Argo's ``retryStrategy``: one count for all endings, and an expression that distinguishes interruptions from errors.

An interrupted pod ends as Error (``pod deleted``) or as Failed with the kubelet's or a container's message; the default policy
OnFailure retries only the latter. So the policy is Always, and an expression over the last attempt's message selects the
interruptions. A lost node is neither: the same attempt starts again, uncounted (seen on 3.7.3 and 4.0.5). Sources:
argo-workflows, ``docs/retries.md``, ``workflow/controller/operator.go`` (processNodeRetries, inferFailedReason) at v3.5.11,
v3.6.5 and v3.7.1; issues #2881, #9880, #13200.

With a webhook of pods, which holds each budget by a refusal, the limit is only the sum of both and of moves, and an expression
leaves out the refusal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.kinds.argo.templates import argo_version
from spotwright.manifests.rules.context import Level, PlaceContext
from spotwright.manifests.rules.job_failure_policy import REFUSED
from spotwright.manifests.rules.pod_rules import Placed
from spotwright.manifests.rules.retry_bounds import write_unless_set
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import BUILT_IN, Backoff, Policy
from spotwright.scheduling.budgets import MAX_MOVES

__all__ = ["Retries", "write_retries"]

# Messages of interrupted pods: graceful shutdown of the kubelet, a deleted pod, memory pressure of the node, a node that went
# before the pod ran, and containers that got SIGTERM or SIGKILL (one that exceeds its own memory says OOMKilled instead).
_MESSAGES = (
    "imminent node shutdown|node is shutting down|pod deleted|low on resource|PodInitializing|ContainerCreating"
    "|neither main nor wait container|Error .exit code 1(37|43)"
)

_NOT_REFUSED = f"lastRetry.exitCode != '{REFUSED}'"

_EFFECTS = {
    "Always": "Always retries it after an interruption",
    "OnError": "OnError does not retry it after a drain, which ends as Failed with exit code 143 (seen on Argo 4.0.5)",
    "OnFailure": "OnFailure retries it after a drain, but not where Argo records 'pod deleted' (seen on Argo 3.7.3)",
}
"""What each ``retryPolicy`` does after a drain or a delete; of the latter it is a race which of the two records Argo makes."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries in force: whether there are any, how many at most (``None``: unknown), and a sentence for the report.

    ``own_at``: the path of what has the user's own ``retryStrategy``, if that stays.
    """

    is_retried: bool
    limit: int | None
    sentence: str
    own_at: Path | None = None


def write_retries(ctx: PlaceContext, at: Path, inherited: list[Path], placed: Placed) -> Retries:
    """Write the policy's retries at ``at``, unless the user has set their own there or at one of the ``inherited`` paths."""
    policy = placed.policy
    own = next((path for path in (at, *inherited) if isinstance(ctx.editor.get(path), dict)), None)
    if own is not None and not ctx.options.replace_retries:
        return _keep(ctx, own, policy)
    wanted = _strategy(ctx, at, policy, on_spot=placed.on_spot)
    if not wanted:
        what = "an interruption" if placed.on_spot else "only a drain can interrupt it, which"
        return Retries(is_retried=False, limit=0, sentence=f"{what} ends the step: it has no retries")
    for path, value in _leaves(wanted):
        write_unless_set(ctx, (*at, *path), value)
    if ctx.editor.get((*at, "backoff", "maxDuration")) is not None:
        ctx.add_finding(
            Level.WARNING, (*at, "backoff", "maxDuration"), "maxDuration stays; it bounds all attempts together"
        )
    limit = int(wanted["limit"])
    if placed.on_spot:
        sentence = f"Argo retries it, at most {policy.max_interruptions} times"
    else:
        sentence = f"only a drain can interrupt it: Argo retries it, at most {limit} times, errors counted too"
    return Retries(is_retried=True, limit=limit, sentence=sentence)


def _leaves(value: Mapping[str, Any], path: Path = ()) -> list[tuple[Path, Any]]:
    """The scalars inside a mapping with their paths."""
    leaves: list[tuple[Path, Any]] = []
    for key, item in value.items():
        leaves += _leaves(item, (*path, key)) if isinstance(item, dict) else [((*path, key), item)]
    return leaves


def _keep(ctx: PlaceContext, path: Path, policy: Policy) -> Retries:
    """Keep the user's own strategy and report what an interruption does with it."""
    strategy = ctx.editor.get(path)
    by_default = "Always" if strategy.get("expression") and argo_version(ctx) >= (3, 5) else "OnFailure"
    kind = str(strategy.get("retryPolicy") or by_default)
    limit = strategy.get("limit")
    number = int(limit) if str(limit).isdigit() else None
    effect = _EFFECTS.get(kind, f"{kind} misses some interruptions")
    effect += f", at most {limit} times, errors counted too" if limit is not None else ", without a bound"
    text = f"your retryStrategy stays: {effect}; --replace-retries replaces it by the policy's"
    ctx.add_finding(Level.WARNING, path, text)
    if number is not None and number < policy.fall_back_after and policy.fall_back_after < policy.max_interruptions:
        ctx.add_finding(
            Level.WARNING,
            path,
            f"with limit {limit}, the fallback to on-demand after {policy.fall_back_after} interruptions is never reached",
        )
    return Retries(is_retried=True, limit=number, sentence=effect, own_at=path[:-1])


def _strategy(ctx: PlaceContext, at: Path, policy: Policy, *, on_spot: bool) -> dict[str, Any]:
    limit = (policy.max_interruptions if on_spot else 0) + policy.retries
    if not limit and not (on_spot and ctx.options.has_webhook):
        return {}
    if ctx.options.has_webhook:
        limit += MAX_MOVES
    strategy: dict[str, Any] = {"limit": str(limit), "retryPolicy": "Always"}
    expression = _expression(ctx, at, policy) if on_spot else _NOT_REFUSED if ctx.options.has_webhook else ""
    if expression:
        strategy["expression"] = expression
    wait = policy.interruption_backoff if on_spot else policy.error_backoff
    if wait.first > 0:
        factor = "interruptions.factor" if on_spot else "errors.factor"
        level = Level.NOTE if policy.sources.get(factor) == BUILT_IN.source else Level.WARNING
        strategy["backoff"] = _backoff(ctx, at, wait, limit, level)
    return strategy


def _expression(ctx: PlaceContext, at: Path, policy: Policy) -> str:
    version = argo_version(ctx)
    if version < (3, 2):
        ctx.add_finding(
            Level.WARNING,
            at,
            "Argo before 3.2 has no expression for retries, so errors of the code are retried too",
        )
        return ""
    if version < (3, 5):
        interrupted = "lastRetry.status == 'Error' || lastRetry.exitCode in ['-1', '137', '143']"
    else:
        interrupted = f"lastRetry.message matches '{_MESSAGES}'"
    if not policy.retries:
        return interrupted
    if ctx.options.has_webhook:
        return _NOT_REFUSED
    first = "the first retry" if policy.retries == 1 else f"one of the first {policy.retries} retries"
    ctx.add_finding(
        Level.WARNING, at, f"Argo counts interruptions and errors together: an error is retried only as {first}"
    )
    return f"{interrupted} || asInt(retries) < {policy.retries}"


def _backoff(ctx: PlaceContext, at: Path, wait: Backoff, limit: int, level: Level) -> dict[str, Any]:
    """The backoff: Argo's factor is a whole number, and only 3.7 and later have a ceiling; before, the factor is smaller.

    ``level``: that of the finding about another factor.
    """
    factor = max(1, round(wait.factor))
    backoff = {"duration": _duration(wait.first)}
    if argo_version(ctx) >= (3, 7):
        backoff |= {"factor": str(factor), "cap": _duration(wait.ceiling)}
    else:
        while factor > 1 and wait.first * float(factor) ** (limit - 1) > wait.ceiling:
            factor -= 1
        backoff["factor"] = str(factor)
    if factor != wait.factor:
        ctx.add_finding(
            level, at, f"waits grow by the factor {factor} instead of {wait.factor:g}, which Argo cannot do here"
        )
    return backoff


def _duration(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds))}s"
