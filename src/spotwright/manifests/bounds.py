"""No retry without an end: how long all attempts of a policy may take together, and how retry fields are written.

Where a controller does not count interruptions, the end is a deadline over all attempts, which only a policy with a timeout
can give. Otherwise interruptions are counted, and errors with them.
"""

from __future__ import annotations

import math
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.model.policy import Policy
from spotwright.model.quantities import format_duration

__all__ = ["attempts", "counting_costs", "deadline_seconds", "settle", "spoken", "undisturbed", "whole"]


def attempts(policy: Policy) -> int:
    """How many attempts the budgets of a policy allow together: the first, and one after each ending that they pay for."""
    return 1 + policy.max_interruptions + policy.retries


def deadline_seconds(policy: Policy, waves: int = 1) -> int | None:
    """How long the work may take with all its attempts, in whole seconds; ``None`` where the policy has no timeout.

    Each attempt may take ``timeout``, and before it ``pending_timeout`` for its node and the policy's wait. ``waves``: how many
    attempts follow one another when nothing goes wrong (completions of a Job over its parallelism).
    """
    if policy.timeout is None:
        return None
    each = waves - 1 + attempts(policy)
    waits = each * policy.pending_timeout
    waits += sum(policy.interruption_backoff.wait(count) for count in range(1, policy.max_interruptions + 1))
    waits += sum(policy.error_backoff.wait(count) for count in range(1, policy.retries + 1))
    return math.ceil(each * policy.timeout + waits)


def counting_costs(field: str, policy: Policy) -> str:
    """What the counting form costs, as a sentence for a finding."""
    total = policy.max_interruptions + policy.retries
    return (
        f"{field} {total} counts interruptions ({policy.max_interruptions}) and errors ({policy.retries}) together, "
        "so an error of the code is tried again as often"
    )


def undisturbed(policy: Policy) -> str:
    """What an interruption does to pods that are on no spot pool; empty where nobody said anything about spot."""
    return "nothing that spot does reaches it: it stays on on-demand" if policy.spot is not None else ""


def settle(ctx: Context, path: Path, wanted: Any) -> Any:
    """Write a retry field, and give the value that holds: the user's own, unless ``--replace-retries`` replaces it."""
    present = ctx.editor.get(path)
    if present is None:
        ctx.editor.add(path, wanted)
        return wanted
    if present != wanted and ctx.options.replace_retries:
        ctx.editor.replace(path, wanted)
        return wanted
    return present


def whole(value: Any, default: int | None = None) -> int | None:
    """A whole number; ``default`` where nothing is said; ``None`` for a placeholder, whose value is not known here."""
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def spoken(seconds: int) -> str:
    """A number of seconds as a field has it and as people say it: ``46200 (12h50m)``."""
    return f"{seconds} ({format_duration(seconds)})"
