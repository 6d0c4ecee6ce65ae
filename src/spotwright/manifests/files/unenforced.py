"""List the values of a role's policy, each with its enforcer, and report those that the user set and nothing keeps.

``explain`` shows every value; ``place`` and ``compile`` show only the finding, so that a promise of ``spotwright.yaml`` that a
kind cannot keep is seen where the manifest is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spotwright.manifests.enforcement.facts import Enforcer
from spotwright.manifests.enforcement.mechanisms import Mechanism
from spotwright.manifests.rules.context import Finding, Group, Level, PlaceOptions, RoleReport
from spotwright.model.policy import BUILT_IN, Deadline, Policy
from spotwright.model.quantities import format_duration

__all__ = ["policy_values", "settle"]

_DERIVED = (BUILT_IN.source, "interruptions.max")
"""Sources of values that the user did not set."""


def settle(roles: Sequence[RoleReport], file: str, options: PlaceOptions) -> Iterator[Finding]:
    """Report the values in the policies of an object's roles that the user set and nothing enforces, equal ones together.

    Nothing is reported if only some groups of changes are written. The roles keep the enforcers of all values for ``explain``,
    otherwise only those of the values that the user set.
    """
    if options.only != frozenset(Group):
        return
    without: dict[str, list[RoleReport]] = {}
    for role in roles:
        own = [name for name, source in role.policy.sources.items() if source not in _DERIVED]
        own = [name for name in own if not (options.has_webhook and name in HELD_BY_WEBHOOK)]
        role.settle([*BUILT_IN.values, "fall_back_after", *own] if options.only_explain else own)
        lost = [f"{name} ({role.policy.sources[name]})" for name in own if _is_lost(role, name, options)]
        if lost:
            without.setdefault(f"nothing enforces {', '.join(lost)} here", []).append(role)
    for text, among in without.items():
        names = ", ".join(dict.fromkeys(role.policy_path for role in among[:_NAMED]))
        more = f" and {len(among) - _NAMED} more" if len(among) > _NAMED else ""
        yield Finding(
            Level.WARNING, file, among[0].line, (), f"{names}{more}: {text}; explain says who enforces what", text
        )


HELD_BY_WEBHOOK = frozenset(
    {"spot", "ladder", "fall_back_after", "interruptions.max", "errors.retries", "grace_period"}
)
"""The fields of a policy that a webhook of pods enforces attempt by attempt."""

_NAMED = 3  # roles whose names a finding has


_HELD_BY_JOB_SET = frozenset({"pending_timeout", "timeout"})
"""The fields that hold on a TrainJob through its JobSet, which a webhook places when Trainer creates it."""


def _is_lost(role: RoleReport, name: str, options: PlaceOptions) -> bool:
    enforced = role.enforcement[name]
    is_kept = enforced.by in (Enforcer.OBJECT, Enforcer.KIND)
    if options.has_webhook:
        of_runtime = role.mechanism in (Mechanism.RUNTIME_DECIDES, Mechanism.RUNTIME_PLACED)
        is_kept |= enforced.by is Enforcer.CONTROLLER or (of_runtime and name in _HELD_BY_JOB_SET)
    return role.policy.spot is not None and not is_kept and not enforced.is_silent


def policy_values(policy: Policy) -> Iterator[tuple[str, str, str]]:
    """Every value of a policy with its source, by the names of the configuration."""
    interruptions, errors = policy.interruption_backoff, policy.error_backoff
    values: dict[str, Any] = {
        "spot": policy.spot,
        "ladder": ", ".join(policy.ladder) if policy.ladder is not None else None,
        "interruptions.max": policy.max_interruptions,
        "interruptions.backoff": _short(interruptions.first),
        "interruptions.factor": f"{interruptions.factor:g}",
        "interruptions.ceiling": _short(interruptions.ceiling),
        "errors.retries": policy.retries,
        "errors.backoff": _short(errors.first),
        "errors.factor": f"{errors.factor:g}",
        "errors.ceiling": _short(errors.ceiling),
        "fall_back_after": policy.fall_back_after,
        "pending_timeout": _short(policy.pending_timeout),
        "deadline": _deadline_text(policy.deadline),
        "work": _short(policy.work),
        "grace_period": _short(policy.grace_period),
        "timeout": _short(policy.timeout),
        "checkpoint": policy.checkpoint,
        "image_pull_secrets": ", ".join(policy.image_pull_secrets) or None,
    }
    for field, value in values.items():
        if value is not None:
            yield field, str(value), policy.sources.get(field, BUILT_IN.source)


def _short(seconds: float | None) -> str | None:
    """A duration without empty parts: ``10m`` and not ``10m00s``."""
    if seconds is None:
        return None
    text = format_duration(seconds)
    return text.replace("h00m", "h") if text.endswith("h00m") else text.removesuffix("00s") if "m" in text else text


def _deadline_text(deadline: Deadline | None) -> str | None:
    if deadline is None:
        return None
    when = f"{_short(deadline.after)} after the start" if deadline.after is not None else f"at {deadline.at:.0f}"
    return f"{when}, best-effort" if deadline.best_effort else when
