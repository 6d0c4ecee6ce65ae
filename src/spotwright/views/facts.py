"""The facts of a run as JSON: one reading of the state that every view shares, and the short form for lists of runs.

:func:`run_view` answers with plain values only, in this shape (moments are Unix seconds, ``null`` until they happen; durations
are seconds; ``cost`` is ``{"seconds", "money"}`` of node time):

- ``run``, ``pipeline``, ``status`` (running, stopped, succeeded, failed, cancelled), ``why``, ``seed``, ``time_scale``,
  ``engines`` (how many drove it), ``driven`` (one does now), ``started_at``, ``finished_at``, ``seconds``, ``arguments``
  (references in the place of secrets), ``notes``, ``currency``, ``prices`` (whose: ``simulated``), ``has_prices``;
- ``tasks``: a list of ``path``, ``written`` (the same without the numbers of iterations), ``is_pipeline``, ``status``,
  ``why``, ``waits_for`` (``kind``, ``text``, ``tasks``, ``pools``, ``until``; null for what runs or has ended),
  ``cached_from`` (``run``, ``task``), ``spent`` (``interruptions``, ``errors``, ``moves``), ``budgets``
  (``interruptions``, ``errors``), ``outputs`` (``parameters``, ``artifacts``), ``attempts``;
- an attempt: ``number``, ``status`` (pending, running, ended), ``pools`` it may wait for, ``pool``, ``node``, ``capacity``,
  ``cause``, ``why``, ``next`` (what was decided to follow), ``tried`` (rungs it left, with the reason), ``placed_at``,
  ``bound_at``, ``noticed_at``, ``goes_at``, ``ended_at``, ``seconds`` on its node, ``share`` of it, ``cost``, ``kept`` (``low``,
  ``high``: the part of it that was kept), ``first_progress``, ``progress``, ``exit_code``, ``signal``, ``last_line`` of
  its log where its code failed, ``log`` (the command that prints it; null where it never had a node);
- ``nodes``: ``name``, ``pool``, ``capacity``, ``state``, ``booted_at``, ``ready_at``, ``noticed_at``, ``gone_at``, ``why``;
- ``outputs`` of the run by name: ``{"kind": "parameter", "value"}``, ``{"kind": "artifact", "uri", "type", "metadata"}`` or
  ``{"kind": "artifacts", "artifacts"}`` for a list of them;
- ``left_behind``: tasks with attempts that the pipeline no longer has, in the shape of ``tasks``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain
from typing import Any

from spotwright.engine.state import AttemptState, NodeState, RunState, RunStatus, TaskState
from spotwright.engine.values import run_outputs
from spotwright.views.account import account, pool_of
from spotwright.views.lines import Account, AttemptCost
from spotwright.views.report import amount_json
from spotwright.views.waiting import booting_nodes, waiting_for
from spotwright.views.words import readable

__all__ = ["run_view", "summary"]


def run_view(state: RunState, name: str, now: float | None = None) -> dict[str, Any]:
    """Every fact of a run for people and machines. ``now`` as for :func:`~spotwright.views.account.account`."""
    costs = account(state, now)
    by_key = {(cost.task, cost.number): cost for cost in costs.attempts_by_start}
    booting = booting_nodes(state)
    left_behind = [task for task in state.retired.values() if task.attempts]
    return {
        **_head(state, name, costs),
        "engines": state.epoch,
        "driven": now is not None and state.status is RunStatus.RUNNING,
        "arguments": readable(dict(state.meta.get("arguments", {}))),
        "notes": list(state.notes),
        "tasks": [_task(state, name, task, by_key, booting) for task in state.tasks.values()],
        "left_behind": [_task(state, name, task, by_key, {}) for task in left_behind],
        "nodes": [_node(state, node) for node in state.nodes.values()],
        "outputs": _outputs(state),
    }


def summary(state: RunState, name: str, now: float | None = None) -> dict[str, Any]:
    """A run in one line: the head of :func:`run_view`, its ``cost``, and counts.

    ``tasks`` holds how many there are in all and by status; ``attempts``, ``interruptions``, ``errors`` and ``cached`` are
    counts.
    """
    costs = account(state, now)
    statuses = [task.status.value for task in state.tasks.values() if task.plan.spec.dag is None]
    causes = [a.cause for task in chain(state.tasks.values(), state.retired.values()) for a in task.attempts]
    return {
        **_head(state, name, costs),
        "tasks": {"all": len(statuses), **{status: statuses.count(status) for status in dict.fromkeys(statuses)}},
        "attempts": len(causes),
        "interruptions": sum(cause is not None and cause.is_interruption for cause in causes),
        "errors": sum(cause is not None and cause.is_error for cause in causes),
        "cached": len(costs.cached),
        "cost": amount_json(costs.whole),
    }


def _head(state: RunState, name: str, costs: Account) -> dict[str, Any]:
    finished = state.finished_at
    return {
        "run": name,
        "pipeline": state.meta.get("pipeline", state.plan.pipeline.name),
        "status": state.status.value,
        "why": state.why,
        "seed": state.meta.get("seed"),
        "time_scale": state.time_scale,
        "started_at": state.started_at,
        "finished_at": finished,
        "seconds": (finished if finished is not None else costs.until) - state.started_at,
        "currency": costs.currency,
        "prices": costs.prices,
        "has_prices": not costs.unpriced,
    }


def _task(
    state: RunState,
    name: str,
    task: TaskState,
    costs: Mapping[tuple[str, int], AttemptCost],
    booting: Mapping[str, int],
) -> dict[str, Any]:
    is_here = state.tasks.get(task.path) is task
    waiting = waiting_for(state, task, booting) if is_here else None
    return {
        "path": task.path,
        "written": task.plan.written or task.path,
        "is_pipeline": task.plan.spec.dag is not None,
        "status": task.status.value,
        "why": task.why,
        "waits_for": None
        if waiting is None
        else {
            "kind": waiting.kind,
            "text": waiting.text,
            "tasks": list(waiting.tasks),
            "pools": list(waiting.pools),
            "until": waiting.until,
        },
        "cached_from": None if task.cached_from is None else {"run": task.cached_from[0], "task": task.cached_from[1]},
        "spent": {"interruptions": task.spent.interruptions, "errors": task.spent.errors, "moves": task.spent.moves},
        "budgets": {"interruptions": task.plan.policy.max_interruptions, "errors": task.plan.policy.retries},
        "outputs": {"parameters": readable(task.parameters), "artifacts": readable(task.artifacts)},
        "attempts": [
            _attempt(state, name, task, attempt, costs.get((task.path, attempt.number))) for attempt in task.attempts
        ],
    }


def _attempt(
    state: RunState, name: str, task: TaskState, attempt: AttemptState, cost: AttemptCost | None
) -> dict[str, Any]:
    signals = (attempt.ended or {}).get("signals", {})
    return {
        "number": attempt.number,
        "status": "ended" if not attempt.is_live else "pending" if attempt.bound_at is None else "running",
        "pools": list(attempt.pools),
        "pool": attempt.pool,
        "node": attempt.node,
        "capacity": pool_of(state, attempt.pool).capacity.value if attempt.pool is not None else None,
        "cause": attempt.cause.value if attempt.cause is not None else None,
        "why": attempt.cause_why,
        "next": attempt.next_why,
        "tried": list(attempt.tried),
        "placed_at": attempt.placed_at,
        "bound_at": attempt.bound_at,
        "noticed_at": attempt.noticed_at,
        "goes_at": attempt.goes_at,
        "ended_at": attempt.ended_at,
        "seconds": float(cost.seconds) if cost is not None else None,
        "share": float(cost.share) if cost is not None else None,
        "cost": amount_json(cost.cost) if cost is not None else None,
        "kept": {"low": float(cost.kept.low), "high": float(cost.kept.high)} if cost is not None else None,
        "first_progress": attempt.first_progress,
        "progress": attempt.progress,
        "exit_code": signals.get("exit_code"),
        "signal": signals.get("signal"),
        "last_line": (attempt.ended or {}).get("last_line", ""),
        "log": f"spotwright logs {shlex.join([name, task.path, str(attempt.number)])}" if attempt.bound_at else None,
    }


def _node(state: RunState, node: NodeState) -> dict[str, Any]:
    return {
        "name": node.name,
        "pool": node.pool,
        "capacity": pool_of(state, node.pool).capacity.value,
        "state": node.state,
        "booted_at": node.booted_at,
        "ready_at": node.ready_at,
        "noticed_at": node.noticed_at,
        "gone_at": node.gone_at,
        "why": node.why,
    }


def _outputs(state: RunState) -> dict[str, Any]:
    """What the run has produced so far, by name; only of tasks that have succeeded."""
    artifacts = state.plan.pipeline.root.artifact_outputs
    declared = bool(artifacts or state.plan.pipeline.root.parameter_outputs)
    outputs = {}
    for name, value in run_outputs(state).items() if state.unfolded else ():
        path, _, output = name.rpartition(".")
        is_artifact = name in artifacts if declared else output in state.tasks[path].artifacts
        outputs[name] = _output(readable(value), is_artifact=is_artifact)
    return outputs


def _output(value: Any, *, is_artifact: bool) -> dict[str, Any]:
    if not is_artifact:
        return {"kind": "parameter", "value": value}
    if isinstance(value, list):
        return {"kind": "artifacts", "artifacts": [_output(each, is_artifact=True) for each in value]}
    return {
        "kind": "artifact",
        "uri": value.get("uri", ""),
        "type": value.get("type", {}).get("schemaTitle", ""),
        "metadata": value.get("metadata", {}),
    }
