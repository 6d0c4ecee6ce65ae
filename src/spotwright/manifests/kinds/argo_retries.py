"""How Argo tries a step again: one ``retryStrategy`` with one count for all endings, told apart by an expression.

A pod that was taken away ends as Error (``pod deleted``) or as Failed with the kubelet's or a container's message; the default
policy OnFailure retries only the second. So the policy is Always, and an expression over the last attempt's message says which
endings are interruptions. Sources: argo-workflows, ``docs/retries.md``, ``workflow/controller/operator.go``
(processNodeRetries, inferFailedReason) at v3.5.11, v3.6.5 and v3.7.1; issues #2881, #9880, #13200.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.manifests.bounds import settle
from spotwright.manifests.context import Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.kinds.argo_templates import argo_version
from spotwright.manifests.pods import Placed
from spotwright.model.policy import Backoff, Policy

__all__ = ["Retries", "write_retries"]

# What the messages of such endings hold: the kubelet's graceful shutdown, a deleted pod, a node's memory pressure, a pod whose
# node went before it ran, and containers that got SIGTERM or SIGKILL (a container over its own memory says OOMKilled instead).
_MESSAGES = (
    "imminent node shutdown|node is shutting down|pod deleted|low on resource|PodInitializing|ContainerCreating"
    "|neither main nor wait container|Error .exit code 1(37|43)"
)


@dataclass(frozen=True, slots=True)
class Retries:
    """What holds for a template: whether it is tried again at all, how often at most (``None``: unknown), in a sentence."""

    is_retried: bool
    limit: int | None
    sentence: str


def write_retries(ctx: Context, at: Path, inherited: list[Path], placed: Placed) -> Retries:
    """Write the policy's retries at ``at``, unless the user's own hold there: at ``at`` or at a place of ``inherited``."""
    policy = placed.policy
    own = next((path for path in (at, *inherited) if isinstance(ctx.editor.get(path), dict)), None)
    if own is not None and not ctx.options.replace_retries:
        return _of_the_user(ctx, own, policy)
    wanted = _strategy(ctx, at, policy, on_spot=placed.on_spot)
    if not wanted:
        return Retries(is_retried=False, limit=0, sentence="nothing can interrupt it but a drain, which ends the step")
    for path, value in _leaves(wanted):
        settle(ctx, (*at, *path), value)
    if ctx.editor.get((*at, "backoff", "maxDuration")) is not None:
        ctx.say(Level.WARNING, (*at, "backoff", "maxDuration"), "maxDuration stays: it ends all attempts together")
    limit = int(wanted["limit"])
    return Retries(
        is_retried=True, limit=limit, sentence=f"Argo starts it again, {policy.max_interruptions} times at most"
    )


def _leaves(value: Mapping[str, Any], path: Path = ()) -> list[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []
    for key, item in value.items():
        found += _leaves(item, (*path, key)) if isinstance(item, dict) else [((*path, key), item)]
    return found


def _of_the_user(ctx: Context, path: Path, policy: Policy) -> Retries:
    """Leave it, and say what an interruption does with it."""
    strategy = ctx.editor.get(path)
    by_default = "Always" if strategy.get("expression") and argo_version(ctx) >= (3, 5) else "OnFailure"
    kind = str(strategy.get("retryPolicy") or by_default)
    limit = strategy.get("limit")
    known = int(limit) if str(limit).isdigit() else None
    if kind in ("Always", "OnError", "OnTransientError"):
        then = (
            f"{kind} starts it again after an interruption" if kind == "Always" else f"{kind} misses some interruptions"
        )
    else:
        then = f"{kind} does not start it again when its pod was deleted (argo-workflows#2881)"
    then += f", {limit} times at most, errors counted with it" if limit is not None else ", without an end"
    text = f"this retryStrategy is yours and stays: {then}; --replace-retries writes the policy's"
    ctx.say(Level.WARNING, path, text)
    if known is not None and known < policy.fall_back_after and policy.fall_back_after < policy.max_interruptions:
        ctx.say(
            Level.WARNING,
            path,
            f"on-demand after {policy.fall_back_after} interruptions is never reached with limit {limit}",
        )
    return Retries(is_retried=True, limit=known, sentence=then)


def _strategy(ctx: Context, at: Path, policy: Policy, *, on_spot: bool) -> dict[str, Any]:
    limit = (policy.max_interruptions if on_spot else 0) + policy.retries
    if not limit:
        return {}
    strategy: dict[str, Any] = {"limit": str(limit), "retryPolicy": "Always"}
    expression = _expression(ctx, at, policy) if on_spot else ""
    if expression:
        strategy["expression"] = expression
    wait = policy.interruption_backoff if on_spot else policy.error_backoff
    if wait.first > 0:
        strategy["backoff"] = _backoff(ctx, at, wait, limit)
    return strategy


def _expression(ctx: Context, at: Path, policy: Policy) -> str:
    version = argo_version(ctx)
    if version < (3, 2):
        ctx.say(
            Level.WARNING,
            at,
            "Argo before 3.2 has no expression for retries: errors of the code are tried again as well",
        )
        return ""
    if version < (3, 5):
        told = "lastRetry.status == 'Error' || lastRetry.exitCode in ['-1', '137', '143']"
    else:
        told = f"lastRetry.message matches '{_MESSAGES}'"
    if not policy.retries:
        return told
    first = "the first retry" if policy.retries == 1 else f"one of the first {policy.retries} retries"
    ctx.say(Level.NOTE, at, f"Argo counts interruptions and errors together: an error is tried again only as {first}")
    return f"{told} || asInt(retries) < {policy.retries}"


def _backoff(ctx: Context, at: Path, wait: Backoff, limit: int) -> dict[str, Any]:
    """Argo's factor is a whole number, and only 3.7 has a ceiling: before, the factor keeps the last wait below it."""
    factor = max(1, round(wait.factor))
    backoff = {"duration": _duration(wait.first)}
    if argo_version(ctx) >= (3, 7):
        backoff |= {"factor": str(factor), "cap": _duration(wait.ceiling)}
    else:
        while factor > 1 and wait.first * float(factor) ** (limit - 1) > wait.ceiling:
            factor -= 1
        backoff["factor"] = str(factor)
    if factor != wait.factor:
        ctx.say(Level.NOTE, at, f"waits grow by {factor}, not by {wait.factor:g}: that is what Argo can do here")
    return backoff


def _duration(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds))}s"
