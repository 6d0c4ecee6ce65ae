"""Bounds for retries: how long all attempts of a policy may take together, and how retry fields are written.

If a controller does not count interruptions, a deadline over all attempts bounds them, which needs a policy with a timeout.
Otherwise interruptions are counted together with errors. The timeout of one attempt is a deadline of its pod: the kubelet counts
it from the start of the pod on its node, so pulling the image counts too. Source: Kubernetes API, ``PodSpec``,
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
    """How often a pod is tried again by a Job of this ``backoffLimit`` that a JobSet makes again ``restarts`` times."""
    return (limit + 1) * (restarts + 1) - 1


def own_retries_of_job(ctx: PlaceContext, at: Path, restarts: Path | None = None) -> OwnRetries | None:
    """The retries of the Job spec at a path, with the retries of the JobSet whose ``maxRestarts`` is at ``restarts``.

    A limit for each index is that of each task. ``None`` for a placeholder, whose value is not known yet.
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
    """The endings after which a task is tried again, for a field that counts endings of every cause.

    ``is_refused``: a webhook refuses the attempt that would exceed a budget, and that is final. Then moves have room too: they
    spend no budget of the policy.
    """
    return policy.max_interruptions + policy.retries + (MAX_MOVES if is_refused else 0)


def deadline_seconds(policy: Policy, waves: int = 1) -> int | None:
    """How long the work may take with all its attempts, in whole seconds; ``None`` if the policy has no timeout.

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
    """A sentence for findings: what it costs that a field counts interruptions and errors together."""
    total = policy.max_interruptions + policy.retries
    return (
        f"{field} {total} counts interruptions ({policy.max_interruptions}) and errors ({policy.retries}) together, "
        "so an error of the code is retried as often"
    )


def no_interruption_text(policy: Policy) -> str:
    """What an interruption does to a role that is on no spot pool; empty if no policy sets ``spot``."""
    return "no interruption of spot capacity reaches it: it stays on on-demand" if policy.spot is not None else ""


def write_unless_set(ctx: PlaceContext, path: Path, wanted: Any) -> Any:
    """Write a retry field unless the user has set it; ``--replace-retries`` replaces theirs. Returns the value in force."""
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
"""What the ConfigMap does, for people. Sources: kubernetes/autoscaler, ``expander/priority/priority.go`` (a group without a
priority is left out beside one that has one; where none has one, all stay) and the FAQ (``scan-interval``,
``initial-node-group-backoff-duration``, ``max-node-provision-time``).
"""

PREFERENCE_IGNORED = "the cluster autoscaler ignores preferred affinity when it chooses a pool to grow"
"""What place, explain and lint say of work that prefers spot, where :func:`preference_advice` has advice."""

_ONE_AUTOSCALER = "one autoscaler for both capacities (Karpenter and the cluster autoscaler each make a node for a pod)"


def preference_advice(pools: Sequence[Pool], target: Mapping[str, str]) -> str:
    """What keeps spot before on-demand for work that fits these pools, after "use"; empty where a preference is not ignored.

    Only the cluster autoscaler ignores it, among pools of both capacities that grow. A ComputeClass has an order, and
    Karpenter reads preferences. ``target`` is that of the configuration.
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
    """Patterns by priority, the highest first, for every pool that this expander may grow; none if they have one capacity.

    ``groups`` are the names of a pool's groups by its name, where they are known: then the patterns are these names.
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
_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)  # a name that needs no quotes in YAML


def _pattern(pool: Pool) -> str:
    """A pattern for the pool's node groups: the one for ``gpu`` must not match the group of ``gpu-spot``."""
    return providers.of(pool).group_pattern.format(name=providers.pool_name(pool) or pool.name)
