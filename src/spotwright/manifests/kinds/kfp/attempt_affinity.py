"""Send a compiled task to on-demand after some retries: node affinity with an expression that Argo evaluates for each attempt.

The backend has no field for it, but Argo replaces ``{{=retries ...}}`` in the pod that the driver describes. Earlier attempts
get the condition on a label that no node has, so they may run anywhere and prefer spot. Argo's ``retries`` counts errors as
well, and after a lost node the same attempt starts again, so such attempts stay on spot. Seen on KFP 2.16.1 and 2.17.0 with
the operator of a condition; with operator and key, Argo 3.7.3's ``util/template`` gave the same. The backend escapes ``<``,
``>`` and ``&``, so the expression compares with lists of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.manifests.kinds.kfp.backend import Backend
from spotwright.manifests.kinds.kfp.pipeline_tasks import CompiledTask, PipelinePaths, mapping_at
from spotwright.manifests.rules.affinity import Expression, capacity_expressions, conditions_from_attempt
from spotwright.manifests.rules.context import QUEUE_LABEL, Level, PlaceContext
from spotwright.manifests.rules.pod_rules import Placed
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import Spot

__all__ = ["later_conditions", "on_demand_from", "on_demand_text", "queue_of"]

_DERIVED = "interruptions.max"
"""The source of a ``fall_back_after`` that no policy sets: it follows the budget, so that the last attempt is on on-demand."""


def queue_of(ctx: PlaceContext, settings: Path) -> str:
    """The queue of Kueue that admits the executor's pods, by their label; empty if there is none."""
    return str(mapping_at(ctx, (*settings, "podMetadata", "labels")).get(QUEUE_LABEL) or "")


def on_demand_from(
    ctx: PlaceContext,
    paths: PipelinePaths,
    backend: Backend,
    tasks: Sequence[CompiledTask],
    tries: Mapping[Path, int],
    placed: Placed,
) -> int | None:
    """The number of the retry from which an executor's tasks require on-demand; ``None`` if none does, with a finding if needed.

    ``tries`` are the retries of each task, by its path in the document. A task with fewer retries than the fallback that
    follows from the policy's budget falls back with its last one.
    """
    policy, fewest = placed.policy, min(tries[task.at] for task in tasks)
    both = {rung.spot for rung in placed.ladder.rungs} == {True, False}
    if policy.spot is not Spot.PREFER or not both or not fewest or queue_of(ctx, paths.settings(tasks[0].label)):
        return None
    if backend.attempt_guard is None:
        text = "KFP before 2.15 is not known to place attempts differently: every attempt prefers spot, none requires on-demand"
        ctx.add_finding(Level.WARNING, (*paths.pipeline, "pipelineInfo"), text)
        return None
    if policy.fall_back_after <= fewest:
        return policy.fall_back_after
    if policy.sources.get("fall_back_after") == _DERIVED:
        return fewest
    text = f"{tasks[0].path}: with {fewest} retries, the fallback to on-demand after {policy.fall_back_after} is never reached"
    ctx.add_finding(Level.WARNING, tasks[0].at, text)
    return None


def on_demand_text(backend: Backend, first: int | None) -> str:
    """What moves an executor's attempts to on-demand, for ``explain``; empty if nothing does."""
    if first is None:
        return ""
    counted = (
        "only endings that Argo calls Error count here" if backend.is_stock else "errors of the code count as well"
    )
    return (
        f"from retry {first} on, it requires on-demand: {counted}, and after lost nodes it stays on spot, as nothing but a "
        "controller in the cluster could count them"
    )


def later_conditions(
    ctx: PlaceContext, backend: Backend, placed: Placed, first: int | None, last: int
) -> list[Expression]:
    """The conditions that hold from the retry ``first`` on; ``last`` is the number of the last one. None if ``first`` is."""
    if first is None:
        return []
    pools = ctx.config.pools
    used = [pools[name] for rung in placed.ladder.rungs for name in rung.pools]
    early, late = range(first), range(first, last + 1)

    def choose(before: str, after: str) -> str:
        if len(early) <= len(late):
            numbers, texts = early, (before, after)
        else:
            numbers, texts = late, (after, before)
        listed = ",".join(f"'{number}'" for number in numbers)
        inner = f"retries in [{listed}] ? '{texts[0]}' : '{texts[1]}'"
        return f"{{{{={backend.attempt_guard}({inner})}}}}" if backend.attempt_guard else f"{{{{={inner}}}}}"

    conditions: list[Mapping[str, Any]] = list(capacity_expressions(used, tuple(pools.values()), spot=False))
    return conditions_from_attempt(conditions, choose)
