"""Bounds for retries: the total time of a policy's attempts, and how retry fields are written.

Interruptions that a controller does not count are bounded by a deadline over all attempts, which needs a policy with a timeout.
Otherwise they are counted together with errors. The timeout of one attempt is a deadline of its pod: the kubelet counts it from
the start of the pod on its node, so pulling the image counts too. Source: Kubernetes API, ``PodSpec``,
``activeDeadlineSeconds``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from spotwright.clouds import providers
from spotwright.clouds.pool_order import compute_class_of
from spotwright.clouds.provider import CLUSTER_AUTOSCALER, Provider
from spotwright.model.policy import Policy
from spotwright.model.pools import Pool
from spotwright.model.quantities import format_duration
from spotwright.placing.context import Level, OwnRetries, PlaceContext
from spotwright.placing.documents import Path
from spotwright.scheduling.budgets import MAX_MOVES

__all__ = [
    "DEFAULT_BACKOFF_LIMIT",
    "EXPANDER",
    "EXPANDER_MEANINGS",
    "PREFERENCE_IGNORED",
    "attempts",
    "counted_endings",
    "counting_text",
    "deadline_seconds",
    "expander_lines",
    "expander_objects",
    "expander_rules",
    "no_interruption_text",
    "own_retries_of_job",
    "preference_advice",
    "seconds_text",
    "tries_of_jobs",
    "whole_number",
    "write_pod_deadline",
    "write_unless_set",
]


DEFAULT_BACKOFF_LIMIT = 6
"""The ``backoffLimit`` of a Job whose spec has none. Source: Kubernetes, ``pkg/apis/batch/v1/defaults.go``."""


def tries_of_jobs(limit: int, restarts: int = 0) -> int:
    """The retries of a pod in a Job with this ``backoffLimit`` that a JobSet recreates ``restarts`` times."""
    return (limit + 1) * (restarts + 1) - 1


def own_retries_of_job(ctx: PlaceContext, at: Path, restarts: Path | None = None) -> OwnRetries | None:
    """The retries of the Job spec at a path, with the retries of the JobSet whose ``maxRestarts`` is at ``restarts``.

    A limit per index applies to each task. ``None`` for a placeholder, whose value is not known yet.
    """
    per_index = ctx.editor.get((*at, "backoffLimitPerIndex"))
    field = "backoffLimit" if per_index is None else "backoffLimitPerIndex"
    given = [ctx.editor.get((*at, field)), None if restarts is None else ctx.editor.get(restarts)]
    limit, more = whole_number(given[0], DEFAULT_BACKOFF_LIMIT), whole_number(given[1], 0)
    if limit is None or more is None or min(limit, more) < 0:
        return None
    fields = [name for name, value in zip((field, "maxRestarts"), given, strict=True) if value is not None]
    name = f"its own {' and '.join(fields)}" if fields else f"the default {field} of Kubernetes"
    return OwnRetries(tries_of_jobs(limit, more), name, is_default=not fields)


def attempts(policy: Policy) -> int:
    """The number of attempts that the budgets of a policy allow together: the first, and one for each unit of a budget."""
    return 1 + policy.max_interruptions + policy.retries


def counted_endings(policy: Policy, *, is_refused: bool) -> int:
    """The number of endings that are retried, for a field that counts endings of every cause.

    ``is_refused``: a webhook finally refuses the attempt that would exceed a budget. Then there is room for moves too, which
    spend no budget.
    """
    return policy.max_interruptions + policy.retries + (MAX_MOVES if is_refused else 0)


def deadline_seconds(policy: Policy, waves: int = 1) -> int | None:
    """The longest time of the work with all its attempts, in whole seconds; ``None`` if the policy has no timeout.

    Each attempt may take ``timeout``, and before it ``pending_timeout`` for its node and the policy's backoff. ``waves``: how
    many attempts follow one another without any failure (completions of a Job over its parallelism).
    """
    if policy.timeout is None:
        return None
    each = waves - 1 + attempts(policy)
    waits = each * policy.pending_timeout
    waits += sum(policy.interruption_backoff.wait(count) for count in range(1, policy.max_interruptions + 1))
    waits += sum(policy.error_backoff.wait(count) for count in range(1, policy.retries + 1))
    return math.ceil(each * policy.timeout + waits)


def counting_text(field: str, policy: Policy) -> str:
    """A sentence for findings: the cost of a field that counts interruptions and errors together."""
    total = policy.max_interruptions + policy.retries
    return (
        f"{field} {total} counts interruptions ({policy.max_interruptions}) and errors ({policy.retries}) together, "
        "so an error of the code is retried as often"
    )


def no_interruption_text(policy: Policy) -> str:
    """The effect of an interruption on a role without spot pools; empty if no policy sets ``spot``."""
    return "no interruption of spot capacity reaches it: it stays on on-demand" if policy.spot is not None else ""


def write_unless_set(ctx: PlaceContext, path: Path, wanted: Any) -> Any:
    """Write a retry field unless the user has set it (``--replace-retries`` replaces it). Returns the value in force."""
    present = ctx.editor.get(path)
    if present is None:
        ctx.editor.add(path, wanted)
        return wanted
    if present != wanted and ctx.options.replace_retries:
        ctx.editor.replace(path, wanted)
        return wanted
    return present


def write_pod_deadline(ctx: PlaceContext, spec: Path, name: str, policy: Policy) -> None:
    """Write the policy's timeout as the deadline of each pod with the spec at ``spec``. A deadline of the user stays."""
    if policy.timeout is None or policy.spot is None:
        return
    path, wanted = (*spec, "activeDeadlineSeconds"), math.ceil(policy.timeout)
    in_force = write_unless_set(ctx, path, wanted)
    if in_force != wanted:
        text = f"{name}: activeDeadlineSeconds {in_force} of the pod stays; the policy allows {seconds_text(wanted)}"
        ctx.add_finding(Level.WARNING, path, f"{text} (--replace-retries)")


def whole_number(value: Any, default: int | None = None) -> int | None:
    """A whole number; ``default`` if the field is not set; ``None`` for a placeholder, whose value is not known yet."""
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def seconds_text(seconds: Any) -> str:
    """Seconds as a number and as a duration: ``46200 (12h50m)``; a placeholder as it is."""
    number = whole_number(seconds)
    return str(seconds) if number is None else f"{number} ({format_duration(number)})"


EXPANDER = "the expander 'priority' with the spot pools first (spotwright explain prints it)"
"""The expander as findings name it."""

EXPANDER_MEANINGS = (
    (
        "The autoscaler ignores preferred affinity when it chooses the group of nodes to grow. With the expander "
        "'priority' it takes the highest number in this ConfigMap whose group fits."
    ),
    (
        "Where that group is at its maximum, or the cloud refuses a machine, the next scan takes the next group "
        "(10 seconds); a refused group is tried again after 5 minutes. Only where the cloud accepts and no machine "
        "comes it takes max-node-provision-time, 15 minutes."
    ),
    (
        "A group that no pattern matches comes after those that one matches, and where none that fits is matched the "
        "choice is random: add the pools of the cluster that spotwright.yaml does not have."
    ),
)
"""The effect of the ConfigMap, for people. Sources: kubernetes/autoscaler, ``expander/priority/priority.go`` (groups without a
priority are left out beside any with one; if none has one, all stay) and the FAQ (``scan-interval``,
``initial-node-group-backoff-duration``, ``max-node-provision-time``).
"""

PREFERENCE_IGNORED = "the cluster autoscaler ignores preferred affinity when it chooses a pool to grow"
"""The clause of place, explain and lint on work that prefers spot, where :func:`preference_advice` has advice."""

_ONE_AUTOSCALER = "one autoscaler for both capacities (Karpenter and the cluster autoscaler each make a node for a pod)"


def preference_advice(pools: Sequence[Pool], target: Mapping[str, str]) -> str:
    """The remedy, after "use", that keeps spot before on-demand on these pools; empty if preferences are not ignored.

    Only the cluster autoscaler ignores them, among growing pools of both capacities. A ComputeClass has an order, and Karpenter
    reads preferences. ``target`` is the configuration's.
    """
    if target.get("autoscaler", CLUSTER_AUTOSCALER) != CLUSTER_AUTOSCALER or compute_class_of(pools):
        return ""
    growing = [pool for pool in pools if pool.min_nodes < pool.max_nodes]
    groups = [pool for pool in growing if providers.of(pool).has_groups]
    if not groups or not _have_both_capacities(growing):
        return ""
    of_groups = dict.fromkeys(map(providers.of, groups))
    ways = [] if all(one.orders_by for one in of_groups) else [EXPANDER]
    is_one = len(of_groups) == 1
    ways += [_order_by(one) if is_one else f"on {one.title} {_order_by(one)}" for one in of_groups if one.orders_by]
    if not _have_both_capacities(groups):
        ways = [_ONE_AUTOSCALER]
    elif len(groups) < len(growing):
        ways.append(_ONE_AUTOSCALER)
    return ", and ".join(ways)


def _order_by(provider: Provider) -> str:
    return f"{provider.orders_by} with spot first ({provider.title}'s autoscaler has no priority expander)"


def _have_both_capacities(pools: Iterable[Pool]) -> bool:
    return {pool.is_spot for pool in pools} == {True, False}


def expander_lines(pools: Mapping[str, Pool]) -> Iterator[str]:
    """The command and the ConfigMap, ready to apply; empty if the pools have only one kind of capacity."""
    autoscaled = [pool for pool in pools.values() if providers.of(pool).has_groups]
    if not _have_both_capacities(autoscaled):
        return
    for one in dict.fromkeys(map(providers.of, autoscaled)):
        yield f"# on {one.title} use {_order_by(one)}" if one.orders_by else f"# {one.expander_command}"
    yield from expander_objects(pools)


def expander_objects(
    pools: Mapping[str, Pool], groups: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Iterator[str]:
    """The ConfigMap alone, as :func:`expander_rules` has it; empty if the pools have only one capacity."""
    rules = expander_rules(pools, groups)
    if not rules:
        return
    yield from (
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}",
        "data:",
        "  priorities: |",
    )
    for priority, patterns in rules.items():
        yield f"    {priority}:"
        yield from (f"      - {pattern}" for pattern in patterns)


def expander_rules(
    pools: Mapping[str, Pool], groups: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> dict[int, list[str]]:
    """Patterns by priority, the highest first, for every pool that the expander may grow; empty for one capacity.

    ``groups`` has known group names by pool name; then these are the patterns.
    """
    autoscaled = [pool for pool in pools.values() if providers.of(pool).has_groups]
    expanded = [pool for pool in autoscaled if not providers.of(pool).orders_by]
    if not expanded or not _have_both_capacities(autoscaled):
        return {}
    ordered = sorted(expanded, key=lambda pool: (pool.is_spot, -(pool.price or Fraction(0))))
    rules: dict[int, list[str]] = {}
    for priority, pool in reversed(list(enumerate(ordered, start=1))):
        named = [f"^{one.replace('.', _DOT)}$" for one in groups.get(pool.name, ()) if _PLAIN.fullmatch(one)]
        rules[priority * 10] = named or [_pattern(pool)]
    return rules


_DOT = r"\."
_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)  # names that need no quotes in YAML


def _pattern(pool: Pool) -> str:
    """A pattern for the pool's node groups: the one for ``gpu`` must not match the group of ``gpu-spot``."""
    return providers.of(pool).group_pattern.format(name=providers.pool_name(pool) or pool.name)
