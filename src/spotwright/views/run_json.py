"""A run as JSON values, from which the text and notebook views are made too, and the short form for lists of runs.

:func:`run_view` has this shape (moments are Unix seconds, ``null`` until they happen; durations are seconds; ``cost`` is
``{"seconds", "money"}`` of node time):

- ``run``, ``pipeline``, ``status`` (running, stopped, succeeded, failed, cancelled), ``why``, ``seed``, ``time_scale``,
  ``engines`` (how many have driven it), ``driven`` (an engine drives it now),
  ``orchestrator`` (the kind of object whose controller makes the attempts, empty where an engine does),
  ``started_at``, ``finished_at``, ``seconds``, ``deadline`` (null without one: ``at``, ``missed``, null while that is open,
  and of a missed one ``late``, the seconds, the ``task`` that ended last after it, and ``why``: where its time went),
  ``arguments`` (references instead of secrets), ``notes``, ``currency``, ``prices`` (``simulated``,
  ``example``, ``configured`` or ``mixed``), ``has_prices``;
- ``tasks``: a list of ``path``, ``written`` (the path without iteration numbers), ``display_name``, ``is_pipeline``, ``status``,
  ``why``, ``waits_for`` (``kind``, ``text``, ``tasks``, ``pools``, ``until``; null for a task that runs or has ended),
  ``environment`` (null without a build in this run), ``needs`` (what its deadline is reckoned with; null without one, or
  without stated work),
  ``cached_from`` (``run``, ``task``), ``spent`` (``interruptions``, ``errors``, ``moves``), ``budgets``
  (``interruptions``, ``errors``), ``outputs`` (``parameters``, ``artifacts``), ``attempts``;
- an attempt: ``number``, ``status`` (pending, running, ended), ``pools`` it may wait for, ``pool``, ``node``, ``capacity``,
  ``cause``, ``why``, ``next`` (the decision that followed), ``tried`` (the reason for each rung that it left), ``placed_why``
  and ``kept_why`` (why a deadline let it wait or launch there, and stay; empty without a deadline), ``moved_why`` and
  ``moved_at`` (why and when a deadline moved it elsewhere; else empty and null), ``placed_at``, ``bound_at``,
  ``runs_since`` (later than ``bound_at`` if something held it up on its node; null if it does not start there),
  ``noticed_at``, ``goes_at``, ``ended_at``, ``ended_by`` and ``last_proof`` (if its end was not reported: it lived until
  ``ended_at``, which ``last_proof`` shows, and was known to be gone at ``ended_by``; else null and empty), ``seconds`` on its
  node, ``share`` of it, ``cost``, ``kept`` (``low``, ``high``: the part of it that was kept), ``held`` (``node``, ``since``: a
  node that does not report holds its pod; else null), ``released`` (why its pod was deleted without a status of its node,
  or empty), ``first_progress``,
  ``progress``, ``exit_code``, ``signal``, ``last_line`` of its log if its code failed, ``log`` (the command that prints it;
  null if it never had a node, or if KFP alone has it);
- the ``environment`` of a task, for its packages: ``status`` (building, ready, failed), ``packages``, ``began_at``,
  ``ended_at``, ``seconds`` (they count on no node), ``why`` it could not be built, ``last_lines`` of its log then, ``log`` (the
  command that prints it);
- ``needs``: ``work_left``, ``work`` (the whole of it) and ``launch``, each with ``expected`` and ``at_most``; ``work_from`` and
  ``launch_from`` (where these are from, in words), ``text`` (one line);
- ``left_out``: pools that new attempts pass over for a while, because an attempt of this run waited in vain for them: ``pool``,
  ``until``, ``times`` in a row;
- ``nodes``: ``name``, ``pool``, ``capacity``, ``state``, ``booted_at``, ``ready_at``, ``noticed_at``, ``gone_at``, ``why``;
- ``outputs`` of the run by name: ``{"kind": "parameter", "value"}``, ``{"kind": "artifact", "uri", "type", "metadata"}`` or
  ``{"kind": "artifacts", "artifacts"}`` for a list of them;
- ``left_behind``: tasks with attempts that the pipeline no longer has, in the shape of ``tasks``.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import Any

from spotwright.engine.events import ON_KFP, RunStatus
from spotwright.engine.io_resolution import run_outputs
from spotwright.engine.next_rung import needs_of
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.model.attempts import Signals
from spotwright.views.account import Account, AttemptCost, account, pool_of
from spotwright.views.account_report import amount_json
from spotwright.views.run_deadline import deadline_json, run_deadline
from spotwright.views.text import readable
from spotwright.views.waiting import booting_nodes, waiting_for

__all__ = [
    "attempt_view",
    "environment_view",
    "left_out_view",
    "node_view",
    "only_tasks",
    "output_view",
    "outputs_view",
    "run_view",
    "summary",
    "unpriced_summary",
]


def run_view(state: RunState, name: str, now: float | None = None) -> dict[str, Any]:
    """The whole run for people and machines. ``now`` as for :func:`~spotwright.views.account.account`."""
    costs = account(state, now)
    by_key = {(cost.task, cost.number): cost for cost in costs.attempts_by_start}
    booting = booting_nodes(state)
    left_behind = [task for task in state.retired.values() if task.attempts]
    return {
        **_head(state, name, costs.until),
        **_prices(costs),
        "engines": state.epoch,
        "driven": now is not None and state.status is RunStatus.RUNNING,
        "arguments": readable(dict(state.meta.arguments)),
        "notes": list(state.notes),
        "tasks": [_task(state, name, task, by_key, booting, costs.until) for task in state.tasks.values()],
        "left_behind": [_task(state, name, task, by_key, {}, costs.until) for task in left_behind],
        "left_out": list(left_out_view(state, costs.until)),
        "nodes": [node_view(state, node) for node in state.all_nodes],
        "outputs": outputs_view(state),
    }


def only_tasks(view: Mapping[str, Any], paths: Container[str]) -> dict[str, Any]:
    """The view of a run with only these tasks, and all that concerns the whole run."""
    kept = {key: [task for task in view[key] if task["path"] in paths] for key in ("tasks", "left_behind")}
    return {**view, **kept}


def summary(state: RunState, name: str, now: float | None = None, costs: Account | None = None) -> dict[str, Any]:
    """A run in one line: the head of :func:`run_view`, its ``cost``, and counts.

    ``tasks`` has their number in all and by status; ``attempts``, ``interruptions``, ``errors`` and ``cached`` are counts.
    ``costs``: the account, if already computed.
    """
    costs = account(state, now) if costs is None else costs
    return {**unpriced_summary(state, name, now), **_prices(costs), "cost": amount_json(costs.whole)}


def unpriced_summary(state: RunState, name: str, now: float | None = None) -> dict[str, Any]:
    """A run in one line without its account, which takes longer than all of this."""
    statuses = [task.status.value for task in state.tasks.values() if task.plan.spec.dag is None]
    causes = [a.cause for task in chain(state.tasks.values(), state.retired.values()) for a in task.attempts]
    return {
        **_head(state, name, state.known_until(now)),
        "tasks": {"all": len(statuses), **{status: statuses.count(status) for status in dict.fromkeys(statuses)}},
        "attempts": len(causes),
        "interruptions": sum(cause is not None and cause.is_interruption for cause in causes),
        "errors": sum(cause is not None and cause.is_error for cause in causes),
        "cached": sum(task.cached_from is not None for task in state.tasks.values()),
    }


def _prices(costs: Account) -> dict[str, Any]:
    return {"currency": costs.currency, "prices": costs.prices, "has_prices": not costs.unpriced}


def _head(state: RunState, name: str, until: float) -> dict[str, Any]:
    finished = state.finished_at
    return {
        "run": name,
        "pipeline": state.meta.pipeline or state.plan.graph.name,
        "orchestrator": state.meta.orchestrator,
        "status": state.status.value,
        "why": state.why,
        "deadline": deadline_json(run_deadline(state, until)),
        "seed": state.meta.seed,
        "time_scale": state.time_scale,
        "started_at": state.started_at,
        "finished_at": finished,
        "seconds": max(0.0, (finished if finished is not None else until) - state.started_at),
    }


def _task(
    state: RunState,
    name: str,
    task: TaskState,
    costs: Mapping[tuple[str, int], AttemptCost],
    booting: Mapping[str, int],
    until: float,
) -> dict[str, Any]:
    is_here = state.tasks.get(task.path) is task
    waiting = waiting_for(state, task, booting) if is_here else None
    return {
        "path": task.path,
        "written": task.plan.spec_path or task.path,
        "display_name": task.plan.spec.display_name,
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
        "environment": environment_view(name, task, until),
        "needs": _needs(state, task) if is_here else None,
        "cached_from": None if task.cached_from is None else {"run": task.cached_from[0], "task": task.cached_from[1]},
        "spent": {"interruptions": task.spent.interruptions, "errors": task.spent.errors, "moves": task.spent.moves},
        "budgets": {"interruptions": task.plan.policy.max_interruptions, "errors": task.plan.policy.retries},
        "outputs": {"parameters": readable(task.parameters), "artifacts": readable(task.artifacts)},
        "attempts": [
            attempt_view(state, name, task, attempt, costs.get((task.path, attempt.number)))
            for attempt in task.attempts
        ],
    }


def _needs(state: RunState, task: TaskState) -> dict[str, Any] | None:
    """The needs from which a task's deadline is computed; after its end, its whole work."""
    needs = needs_of(state, task)
    if needs is None:
        return None
    return {
        "work_left": needs.left._asdict(),
        "work": needs.whole._asdict(),
        "launch": needs.launch._asdict(),
        "work_from": needs.work_from,
        "launch_from": needs.launch_from,
        "text": needs.words_of_whole if task.status.is_final else needs.words,
    }


def environment_view(name: str, task: TaskState, until: float) -> dict[str, Any] | None:
    """The build of a task's Python environment; ``None`` if it existed. A running build counts until ``until``."""
    built = task.environment
    if built is None or built.began_at is None:
        return None
    ended_at = built.ended_at
    return {
        "status": "building" if ended_at is None else "failed" if built.why else "ready",
        "packages": list(built.packages),
        "began_at": built.began_at,
        "ended_at": ended_at,
        "seconds": max(0.0, (until if ended_at is None else ended_at) - built.began_at),
        "why": built.why,
        "last_lines": list(built.last_lines),
        "log": f"spotwright logs {shlex.join([name, task.path, 'environment'])}",
    }


def attempt_view(
    state: RunState, name: str, task: TaskState, attempt: AttemptState, cost: AttemptCost | None
) -> dict[str, Any]:
    """One attempt, in the shape of :func:`run_view`. Without its ``cost`` the figures of the account are null."""
    signals = attempt.ended.signals if attempt.ended is not None else Signals()
    has_log = attempt.bound_at and attempt.pool and state.meta.orchestrator != ON_KFP
    return {
        "number": attempt.number,
        "status": "ended" if not attempt.is_live else "pending" if attempt.runs_since is None else "running",
        "pools": list(attempt.pools),
        "pool": attempt.pool,
        "node": attempt.node,
        "capacity": pool_of(state, attempt.pool).capacity.value if attempt.pool else None,
        "cause": attempt.cause.value if attempt.cause is not None else None,
        "why": attempt.cause_why,
        "next": attempt.following,
        "tried": list(attempt.tried),
        "placed_why": attempt.why,
        "kept_why": attempt.kept,
        "moved_why": attempt.moving,
        "moved_at": attempt.moved_at,
        "placed_at": attempt.placed_at,
        "bound_at": attempt.bound_at,
        "runs_since": attempt.runs_since,
        "noticed_at": attempt.noticed_at,
        "goes_at": attempt.goes_at,
        "ended_at": attempt.ended_at,
        "ended_by": attempt.ended.ended_by if attempt.ended is not None else None,
        "last_proof": attempt.ended.proof if attempt.ended is not None else "",
        "seconds": float(cost.seconds) if cost is not None else _told_seconds(attempt),
        "share": float(cost.share) if cost is not None else None,
        "cost": amount_json(cost.cost) if cost is not None else None,
        "kept": {"low": float(cost.kept.low), "high": float(cost.kept.high)} if cost is not None else None,
        "held": None if attempt.held is None else {"node": attempt.held.node, "since": attempt.held.since},
        "released": attempt.released,
        "first_progress": attempt.first_progress,
        "progress": attempt.progress,
        "exit_code": signals.exit_code,
        "signal": signals.signal,
        "last_line": attempt.ended.last_line if attempt.ended is not None else "",
        "log": _log_command(name, task, attempt) if has_log else None,
    }


def _told_seconds(attempt: AttemptState) -> float | None:
    """The seconds of an ended attempt whose pool is unknown."""
    if attempt.pool or attempt.runs_since is None or attempt.ended_at is None:
        return None
    return max(0.0, attempt.ended_at - attempt.runs_since)


def _log_command(name: str, task: TaskState, attempt: AttemptState) -> str:
    """The command that prints a log; for an orchestrator's attempt, from the cluster."""
    words = [name, task.path, str(attempt.number), *(["--cluster"] if attempt.key else [])]
    return f"spotwright logs {shlex.join(words)}"


def node_view(state: RunState, node: NodeState) -> dict[str, Any]:
    """One node, in the shape of :func:`run_view`."""
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


def left_out_view(state: RunState, now: float) -> Iterator[dict[str, Any]]:
    """The last pause of each pool of this run, if it continues and no attempt has got a node there since."""
    attempts = [attempt for task in state.tasks.values() for attempt in task.attempts]
    decisions = sorted((each.taken_back for each in attempts if each.taken_back is not None), key=lambda each: each.at)
    for pool, (at, until, times) in {
        pool: (each.at, *pause) for each in decisions for pool, pause in each.left_out.items()
    }.items():
        if now < until and not any(each.pool == pool and (each.bound_at or 0.0) >= at for each in attempts):
            yield {"pool": pool, "until": until, "times": times}


def outputs_view(state: RunState) -> dict[str, Any]:
    """The outputs of the run by name, of tasks that have succeeded."""
    artifacts = state.plan.graph.root.artifact_outputs
    declared = bool(artifacts or state.plan.graph.root.parameter_outputs)
    outputs = {}
    for name, value in run_outputs(state).items() if state.unfolded else ():
        path, _, output = name.rpartition(".")
        is_artifact = name in artifacts if declared else output in state.tasks[path].artifacts
        outputs[name] = output_view(readable(value), is_artifact=is_artifact)
    return outputs


def output_view(value: Any, *, is_artifact: bool) -> dict[str, Any]:
    """One output, in the shape of :func:`run_view`."""
    if not is_artifact:
        return {"kind": "parameter", "value": value}
    if isinstance(value, list):
        return {"kind": "artifacts", "artifacts": [output_view(each, is_artifact=True) for each in value]}
    return {
        "kind": "artifact",
        "uri": value.get("uri", ""),
        "type": value.get("type", {}).get("schemaTitle", ""),
        "metadata": value.get("metadata", {}),
    }
