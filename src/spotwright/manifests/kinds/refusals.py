"""Make the exit code of a refused pod final, for Jobs and JobSets.

In a cluster with Spotwright the pod that would exceed a budget is admitted as a refusal: it writes which budget is spent and
exits with 86. Its controller must not try again then. These rules are for objects that a webhook places; a file is placed for
clusters without one. Sources: Kubernetes documentation, "Pod failure policy"; kubernetes-sigs/jobset v0.10,
``pkg/controllers/failure_policy.go`` (the first matching rule counts, and a pattern may match a part of the message).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.job_failure_policy import REFUSED
from spotwright.manifests.yamltext.documents import Path

__all__ = ["refuse_in_job_spec", "refuse_in_set"]

_MAX_RULES = 20
_SET_RULE = "spotwright_refused"


def refuse_in_job_spec(ctx: PlaceContext, at: Path) -> bool:
    """Let the Job spec at a path end at the exit code of a refusal; returns whether it does.

    It cannot where pods are restarted in place, where they are replaced before they have failed, or beside 20 other rules.
    """
    rules = ctx.editor.get((*at, "podFailurePolicy", "rules")) or []
    if ctx.editor.get((*at, "template", "spec", "restartPolicy")) != "Never":
        return False
    if ctx.editor.get((*at, "podReplacementPolicy")) not in (None, "Failed") or len(rules) >= _MAX_RULES:
        return False
    if any(_fails_at_refusal(rule) for rule in rules):
        return True
    action = "FailIndex" if ctx.editor.get((*at, "backoffLimitPerIndex")) is not None else "FailJob"
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [REFUSED]}}
    _put_first(ctx, (*at, "podFailurePolicy", "rules"), rule)
    return True


def refuse_in_set(ctx: PlaceContext, at: Path) -> None:
    """Let the JobSet spec at a path fail at a refusal in one of its jobs, before any other of its rules counts."""
    jobs = range(len(ctx.editor.get((*at, "replicatedJobs")) or ()))
    final = [refuse_in_job_spec(ctx, (*at, "replicatedJobs", index, "template", "spec")) for index in jobs]
    if any(final):
        rule = {
            "name": _SET_RULE,
            "action": "FailJobSet",
            "onJobFailureReasons": ["PodFailurePolicy"],
            "onJobFailureMessagePatterns": [f"exit code {REFUSED} "],
        }
        _put_first(ctx, (*at, "failurePolicy", "rules"), rule)


def _fails_at_refusal(rule: Any) -> bool:
    given = rule.get("onExitCodes") if isinstance(rule, dict) else None
    if not isinstance(given, dict) or not str(rule.get("action")).startswith("Fail"):
        return False
    return (REFUSED in (given.get("values") or ())) is (given.get("operator") == "In")


def _put_first(ctx: PlaceContext, path: Path, rule: Mapping[str, Any]) -> None:
    """Insert a rule before all others, also before those that were added since the object came."""
    present: Sequence[Any] = ctx.editor.get(path) or []
    if ctx.editor.document.get(path, None) is None and present:
        ctx.editor.replace(path, [rule, *present])
    else:
        ctx.editor.extend(path, [rule])
