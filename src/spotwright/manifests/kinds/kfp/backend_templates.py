"""The templates of a KFP backend's Workflow: which endings of a pod are retried, of DAGs none, and where KFP's own pods run.

KFP's own pods are drivers, which read the inputs of a task, and importers: one pod of KFP's launcher without a driver of its own
(``argocompiler/importer.go``). A compiled pipeline can place neither.

Argo has one count for all endings. In a cluster with Spotwright the webhook of pods holds each budget: the pod that would exceed
one is admitted as a refusal, which exits with 86. So the count here is large enough for both budgets and for moves, and the
expression leaves out what can be no interruption. Seen on KFP 2.16.1 and 2.17.0: KFP's launcher makes every exit code of user
code 1; SIGTERM is 143; 137 is a kill, or memory; a pod that is gone is an Error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from spotwright.manifests.rules.affinity import attraction
from spotwright.manifests.rules.context import PlaceContext
from spotwright.manifests.rules.job_failure_policy import REFUSED
from spotwright.manifests.rules.pod_rules import Placed, tolerations_of
from spotwright.manifests.rules.pod_spec import REQUIRED_TERMS, pod_requests, read_constraints
from spotwright.manifests.yamltext.documents import Path
from spotwright.model.policy import Backoff, Layer, Policy, Spot, resolve
from spotwright.scheduling.budgets import MAX_MOVES
from spotwright.scheduling.ladder import Work, build

__all__ = ["bound_dags", "dag_retries", "place_own_pods", "retry_strategy"]

_INTERRUPTED = 'lastRetry.status == "Error" || lastRetry.exitCode in ["143","137"]'
_NOT_REFUSED = f'lastRetry.exitCode != "{REFUSED}"'
_DRIVERS = ("system-container-driver", "system-dag-driver")
_IMPORTERS = ("system-importer", "system-importer-workspace")
_ROLE = "pipelines.kubeflow.org/runtime-role"  # an annotation of templates since 2.17
_ON_DEMAND = Layer("KFP's own pods stay on on-demand: each holds up the rest of its pipeline", {"spot": Spot.NEVER})
_ANYWHERE = Layer("no on-demand pool admits KFP's own pods", {"spot": Spot.PREFER})


def retry_strategy(ctx: PlaceContext, placed: Placed) -> dict[str, Any]:
    """The ``retryStrategy`` of a task's pods: both budgets and the moves, and what of it can be an interruption."""
    policy = placed.policy
    interruptions = policy.max_interruptions if placed.on_spot else 0
    strategy: dict[str, Any] = {
        "limit": str(interruptions + policy.retries + MAX_MOVES),
        "retryPolicy": "Always",
        "expression": _NOT_REFUSED if policy.retries else _INTERRUPTED,
    }
    wait = policy.interruption_backoff if placed.on_spot else policy.error_backoff
    if wait.first > 0:
        strategy["backoff"] = _backoff(ctx, wait)
    return strategy


def _backoff(ctx: PlaceContext, wait: Backoff) -> dict[str, str]:
    """Waits without a window over all attempts. Before Argo 3.7 nothing limits how they grow, so they stay as they begin."""
    backoff = {"duration": f"{max(1, math.ceil(wait.first))}s"}
    if str(ctx.config.target.get("argo", "3.7")) >= "3.7":
        backoff |= {"factor": str(max(1, round(wait.factor))), "cap": f"{max(1, math.ceil(wait.ceiling))}s"}
    return backoff


def dag_retries(ctx: PlaceContext, spec: Path, templates: Iterable[Path]) -> dict[str, str]:
    """The ``retryStrategy`` that keeps a DAG from being retried; empty where nothing would retry it.

    The configuration of KFP 2.17 gives every template two retries, on four levels: 81 pods of one task were seen.
    """
    return {"limit": "0"} if _retries_by_default(ctx, spec, templates) else {}


def bound_dags(ctx: PlaceContext, templates: Iterable[Path], retries: Mapping[str, str]) -> None:
    """Give DAG templates without retries of their own these ones: each retry would start all tasks of the DAG again."""
    for path in templates if retries else ():
        if ctx.editor.get((*path, "dag")) is not None and ctx.editor.get((*path, "retryStrategy")) is None:
            ctx.editor.add((*path, "retryStrategy"), dict(retries))


def _retries_by_default(ctx: PlaceContext, spec: Path, templates: Iterable[Path]) -> bool:
    """Whether templates without retries may get some: by the Workflow's defaults, or those of the controller from 2.17 on."""
    if ctx.editor.get((*spec, "templateDefaults", "retryStrategy")) is not None:
        return True
    return any(_ROLE in (ctx.editor.get((*path, "metadata", "annotations")) or {}) for path in templates)


def place_own_pods(ctx: PlaceContext, spec: Path, templates: Mapping[str, Path]) -> None:
    """Keep drivers and importers on on-demand, with tolerations for it, and start them again where their pods are lost.

    Without an on-demand pool that admits them they may run anywhere, so that they can start at all.
    """
    retried = _IMPORTERS if _evaluates_retries(ctx, spec) else (*_DRIVERS, *_IMPORTERS)
    for name in (*_DRIVERS, *_IMPORTERS):
        if name in templates:
            _place_own_pod(ctx, templates[name])
            if name in retried and ctx.editor.get((*templates[name], "retryStrategy")) is None:
                strategy = {"limit": str(MAX_MOVES), "retryPolicy": "Always", "expression": _INTERRUPTED}
                ctx.editor.add((*templates[name], "retryStrategy"), strategy)


def _evaluates_retries(ctx: PlaceContext, spec: Path) -> bool:
    """Whether a parameter has an expression over ``retries`` that a driver with retries would replace by its own 0."""
    for parameter in ctx.editor.get((*spec, "arguments", "parameters")) or ():
        text = str(parameter.get("value"))
        if "{{=" in text and "retries in" in text and "retry-max-count" not in text:
            return True
    return False


def _place_own_pod(ctx: PlaceContext, path: Path) -> None:
    template = ctx.editor.get(path)
    work = Work(pod_requests({"containers": [template.get("container")]}), read_constraints(ctx, path))
    for layer in (_ON_DEMAND, _ANYWHERE):
        policy: Policy = resolve([layer])
        ladder = build(work, policy, ctx.config.pools)
        if ladder.rungs:
            break
    else:
        return
    ctx.editor.extend((*path, "tolerations"), tolerations_of(ladder))
    used = [ctx.config.pools[name] for rung in ladder.rungs for name in rung.pools]
    required = attraction(policy, used, ctx.config.pools).required
    terms = (*path, *REQUIRED_TERMS)
    if required and ctx.editor.get(terms) is None:
        ctx.editor.add(terms, [{"matchExpressions": [dict(one) for one in required]}])
