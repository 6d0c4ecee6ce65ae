"""The page's documents about a run as a whole: its head and its line in a list; and about the pools of many runs.

Each function takes a run that :class:`~spotwright.records.reader.RunReader` has folded, and returns values for JSON. Sentences
and figures match ``show``, ``logs``, ``explain`` and the journal. Moments are Unix seconds, ``null`` until they happen;
durations are seconds. Figures of the account take it as an argument and are ``null`` without it, because a large run's account
takes longer than everything else.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.engine.events import (
    ON_KFP,
    AttemptRecalled,
    RunStatus,
    TaskStatus,
)
from spotwright.engine.next_rung import effective_plan, outlook_without_advice
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.errors import InputError, SpotwrightError
from spotwright.records.reader import RunReader
from spotwright.scheduling.budgets import (
    MAX_MOVES,
    BudgetUse,
)
from spotwright.scheduling.deadline import Outlook
from spotwright.views.account import Account, Range, SpentOn, pool_of
from spotwright.views.account_report import range_json
from spotwright.views.run_deadline import run_deadline
from spotwright.views.run_json import (
    environment_view,
    left_out_view,
    output_view,
    outputs_view,
    summary,
    unpriced_summary,
)
from spotwright.views.run_text import go_on
from spotwright.views.text import readable
from spotwright.views.waiting import booting_nodes, waiting_for

__all__ = ["budget_json", "deadline_of", "expected_end", "head", "is_in_cluster", "line", "pools", "taken_back"]


_MOST_WAITS = 50  # reasons for which tasks wait now
_MOST_NAMED = 20  # tasks with one reason
_MOST_ARTIFACTS = 200
_MOST_BUDGETS = 50
_MOST_LOOKED_AT = 200  # tasks whose last safe moment is computed


# -- the head of a run, and its line in a list


def line(reader: RunReader, costs: Account | None = None) -> dict[str, Any]:
    """One run in a list of runs: :func:`~spotwright.views.run_json.summary` and what the page adds.

    - ``driven`` (an engine drives it now), ``namespace`` (empty on this machine), ``progress`` (0 to 1: the share of its tasks
      that are done),
    - ``deadline`` (null without) and ``late`` (true, false, or null while unknown),
    - ``wasted`` (a range of amounts) and ``saved`` (a range of money, null without a comparison).

    Without ``costs`` these two, ``cost``, ``prices`` and ``has_prices`` are null.
    """
    state, name = reader.state, reader.folder.name
    if costs is None:
        priced: dict[str, Any] = {**unpriced_summary(state, name, reader.now), **dict.fromkeys(_OF_ACCOUNT)}
        priced["currency"] = state.plan.config.currency
    else:
        priced = summary(state, name, reader.now, costs)
        wasted = [amounts for spent, amounts in costs.spent.items() if spent is not SpentOn.UNDER_WAY]
        priced["wasted"] = range_json(sum(wasted, Range()))
        priced["saved"] = (
            None if costs.saved is None else dict(zip(("low", "high"), map(float, costs.saved), strict=True))
        )
    found = run_deadline(state, reader.now)
    at, late = (found.at, found.missed) if found is not None else (None, None)
    counts = priced["tasks"]
    done = sum(counts.get(status.value, 0) for status in TaskStatus if status.is_good)
    return {
        **priced,
        "driven": reader.now is not None and state.status is RunStatus.RUNNING,
        "namespace": str(state.meta.arguments.get("namespace", "")) if is_in_cluster(state) else "",
        "progress": done / counts["all"] if counts["all"] else 0.0,
        "deadline": at,
        "late": late,
    }


_OF_ACCOUNT = ("prices", "has_prices", "cost", "wasted", "saved")


def head(reader: RunReader, costs: Account | None = None) -> dict[str, Any]:
    """The head of a run, above all its views.

    - ``run``, ``made_at`` (nanoseconds: another number is another run of this name), ``seq`` (the last event);
    - ``summary``: :func:`line`;
    - ``waits``: what tasks wait for now, but for other tasks: ``kind`` (``node``, ``start``, ``environment``, ``backoff``,
      ``turn``), ``text``, ``tasks`` (the first paths) of ``of``, ``since``, ``until``;
    - ``left_out``: pools that new attempts pass over: ``pool``, ``until``, ``times``;
    - ``budgets``: tasks that have spent some, nearest to its end first: ``task``, and for ``interruptions``, ``errors`` and
      ``moves`` each ``spent`` and ``max``;
    - ``deadline``: null, or ``at``, ``last_moment`` (null if unknown), ``left`` (seconds, below 0 once it has
      passed), ``late``, ``words`` (``late``, ``in time``, or empty while it goes on), ``expected_end`` (null if
      unknown), ``task`` (the one with the first last moment) and ``reckons`` (what is reckoned with, in words);
    - ``notes``, ``arguments`` (references instead of secrets), ``outputs`` as in ``show --json``;
    - ``artifacts``: ``task``, ``name``, ``type``, ``uri``; ``artifacts_of``: how many there are in all;
    - ``environments``: builds of Python environments as in ``show --json``, each with ``tasks`` of ``of``;
    - ``links``: ``kfp`` (the page of the run on Kubeflow Pipelines, or null);
    - ``commands``: ``show``, ``logs``, ``report``, ``resume``, ``cancel``: command lines, null if there is nothing to do;
    - ``plan``: whether ``spotwright run --plan`` has put a plan beside the run.
    """
    state, name = reader.state, reader.folder.name
    said = line(reader, costs)
    until = state.known_until(reader.now)
    found = list(_artifacts(state))
    return {
        "run": name,
        "made_at": reader.source.made_at(),
        "seq": reader.seq,
        "summary": said,
        "waits": list(_waits(state)),
        "left_out": list(left_out_view(state, until)),
        "budgets": _budgets(state),
        "deadline": deadline_of(state, reader.now),
        "notes": list(state.notes),
        "arguments": readable(dict(state.meta.arguments)),
        "outputs": outputs_view(state),
        "artifacts": found[:_MOST_ARTIFACTS],
        "artifacts_of": len(found),
        "environments": list(_environments(state, name, until)),
        "links": {"kfp": _kfp_page(reader)},
        "commands": _commands(said),
        "plan": reader.folder.forecast.exists(),
    }


def is_in_cluster(state: RunState) -> bool:
    """Whether a controller recorded the run."""
    return state.meta.orchestrator not in ("", ON_KFP)


def _waits(state: RunState) -> Iterator[dict[str, Any]]:
    """The current waits of tasks, the most frequent first. A task that waits for others has their reasons."""
    booting = booting_nodes(state)
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for task in state.tasks.values():
        waiting = waiting_for(state, task, booting)
        if waiting is None or waiting.kind in ("tasks", "nothing"):
            continue
        group = groups.setdefault(
            (waiting.kind, waiting.text),
            {"kind": waiting.kind, "text": waiting.text, "tasks": [], "of": 0, "since": None, "until": None},
        )
        group["of"] += 1
        if len(group["tasks"]) < _MOST_NAMED:
            group["tasks"].append(task.path)
        for key, moment in (("since", _waits_since(task, waiting.kind)), ("until", waiting.until)):
            if moment is not None:
                group[key] = moment if group[key] is None else min(moment, group[key])
    yield from sorted(groups.values(), key=lambda group: -group["of"])[:_MOST_WAITS]


def _waits_since(task: TaskState, kind: str) -> float | None:
    """When a task's current wait began."""
    if kind == "environment":
        return task.environment.began_at if task.environment is not None else None
    if not task.attempts:
        return None
    if kind == "start":
        return task.last.waits_since
    return task.last.rung_at if kind == "node" else task.last.ended_at


def _budgets(state: RunState) -> list[dict[str, Any]]:
    spenders = [task for task in state.tasks.values() if any(task.spent)]
    found = [{"task": task.path, **budget_json(task, task.spent)} for task in spenders]

    def share(each: Mapping[str, Any]) -> float:
        parts = (each["interruptions"], each["errors"], each["moves"])
        return max(float(part["spent"] / (part["max"] or 1)) for part in parts)

    return sorted(found, key=share, reverse=True)[:_MOST_BUDGETS]


def budget_json(task: TaskState, spent: BudgetUse) -> dict[str, Any]:
    """The spent part and the size of each budget of a task."""
    policy = task.plan.policy
    most = BudgetUse(policy.max_interruptions, policy.retries, MAX_MOVES)
    return {name: {"spent": one, "max": of} for name, one, of in zip(spent._fields, spent, most, strict=True)}


def deadline_of(state: RunState, now: float | None) -> dict[str, Any] | None:
    """The deadline of a run as in :func:`head`."""
    found = run_deadline(state, now)
    if found is None:
        return None
    at, late = found.at, found.missed
    until = state.known_until(now)
    reckoned = list(_reckoned(state, until))
    moments = [(outlook.last_moment, task.path, outlook.needs.words) for task, outlook in reckoned if outlook.work]
    last, path, words = min(moments, default=(None, "", ""))
    return {
        "at": at,
        "last_moment": last,
        "left": at - until,
        "late": late,
        "words": "" if late is None else "late" if late else "in time",
        "expected_end": _latest(reckoned, state.started_at),
        "task": path,
        "reckons": words,
    }


def expected_end(state: RunState, now: float | None) -> float | None:
    """The expected end of the run (Unix seconds), by the figures behind its deadline's decisions; ``None`` without.

    Each task that runs or may start needs the rest of its work, a launch unless it runs, and then its successors.
    """
    return _latest(_reckoned(state, state.known_until(now)), state.started_at)


def _latest(reckoned: Iterable[tuple[TaskState, Outlook]], started_at: float) -> float | None:
    ends = []
    for task, outlook in reckoned:
        if outlook.work and task.plan.policy.deadline is not None:
            launch = 0.0 if task.status is TaskStatus.RUNNING else outlook.needs.launch.expected
            after_it = task.plan.policy.deadline.moment(started_at) - outlook.deadline
            ends.append(outlook.now + outlook.needs.left.expected + launch + after_it)
    return max(ends, default=None)


def _reckoned(state: RunState, now: float) -> Iterator[tuple[TaskState, Outlook]]:
    """The tasks with a deadline that run or may start, with the inputs of the next decision about each."""
    if state.status is not RunStatus.RUNNING:
        return
    for path in [*state.under_way, *(path for path in state.todo if path not in state.under_way)][:_MOST_LOOKED_AT]:
        task = state.tasks[path]
        try:
            planned = effective_plan(state, task)
        except InputError:  # the decision about the task reports it
            continue
        if planned.policy.deadline is not None and planned.ladder.rungs:
            yield task, outlook_without_advice(state, task, planned, now)


def _artifacts(state: RunState) -> Iterator[dict[str, Any]]:
    for task in state.tasks.values():
        if task.plan.spec.dag is not None:
            continue  # a pipeline's outputs come from a task inside
        for name, value in readable(task.artifacts).items():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Mapping):
                    seen = output_view(each, is_artifact=True)
                    yield {"task": task.path, "name": name, "type": seen["type"], "uri": seen["uri"]}


def _environments(state: RunState, name: str, until: float) -> Iterator[dict[str, Any]]:
    builds: dict[tuple[str, ...], dict[str, Any]] = {}
    for task in state.tasks.values():
        built = environment_view(name, task, until)
        if built is None:
            continue
        group = builds.setdefault(tuple(built["packages"]), {**built, "tasks": [], "of": 0})
        group["of"] += 1
        if len(group["tasks"]) < _MOST_NAMED:
            group["tasks"].append(task.path)
        group["seconds"] = max(group["seconds"], built["seconds"])
    yield from builds.values()


def _kfp_page(reader: RunReader) -> str | None:
    """The page of the run on Kubeflow Pipelines, if it was started from here."""
    if not reader.folder.kfp.exists():
        return None
    from spotwright.kubeflow.runs import load_kfp_run  # here: it needs what other runs do not

    try:
        page = load_kfp_run(reader.folder).page
    except SpotwrightError:  # then only the link is missing; commands that need the file report its fault
        return None
    return page if page.startswith(("https://", "http://")) else None


def _commands(said: Mapping[str, Any]) -> dict[str, str | None]:
    """The command lines for a run, as ``show`` gives them."""
    run, there = shlex.quote(said["run"]), _place(said["orchestrator"])
    commands = {word: f"spotwright {word} {run}{there}" for word in ("show", "logs", "report")}
    resumes = go_on(said)
    may_cancel = said["driven"] and not there
    return {
        **commands,
        "resume": resumes[0][1] if resumes else None,
        "cancel": f"spotwright cancel {run}" if may_cancel else None,
    }


def _place(orchestrator: str) -> str:
    """The option for a run that is read from a cluster."""
    return " --cluster" if orchestrator not in ("", ON_KFP) else ""


# -- pools over many runs


@dataclass(slots=True)
class _Pool:
    """The runs' figures for one pool."""

    capacity: str = ""
    price: float | None = None
    price_source: str = ""
    currency: str = ""
    runs: int = 0
    nodes: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    running: int = 0
    interruptions: int = 0
    seconds: float = 0.0
    boots: list[float] = field(default_factory=list)
    left_out: dict[str, Any] | None = None
    waiting: Counter[str] = field(default_factory=Counter)


def pools(readers: Iterable[RunReader], now: float, since: float | None = None) -> dict[str, Any]:
    """The pools over the runs that ran after a moment; by default a day before ``now`` (Unix seconds).

    ``since``, ``now`` and ``pools``, by name: ``name``, ``capacity``, ``price`` of a node hour (null without), ``price_source``,
    ``currency``, ``runs`` (that used it), ``nodes`` (``booting``, ``ready``, ``noticed``, ``gone``), ``attempts``, ``running``,
    ``interruptions``, ``hours`` (of attempts on its nodes, by the clock of the runs), ``interruptions_an_hour`` of these (null
    without any), ``boot`` (mean seconds until a node was ready, null), ``left_out`` (null, or ``until``, ``times``, ``why`` and
    the ``run``), ``waiting`` (attempts that wait for it now: ``reason``, ``count``).
    """
    since = now - 86400.0 if since is None else since
    of_runs = _Pools(since)
    for reader in readers:
        if reader.state.known_until(reader.now) >= since:
            of_runs.add(reader, now)
    found = of_runs.found
    return {"since": since, "now": now, "pools": [_pool_json(name, found[name]) for name in sorted(found)]}


class _Pools:
    """Pools by name, with the runs' figures."""

    def __init__(self, since: float) -> None:
        self.found: dict[str, _Pool] = {}
        self._since = since

    def add(self, reader: RunReader, now: float) -> None:
        """Add the figures of one run."""
        state = reader.state
        goes_on = state.status is RunStatus.RUNNING and (reader.now is not None or is_in_cluster(state))
        until = state.known_until(reader.now)
        used: dict[str, None] = {}
        for node in state.all_nodes:
            if node.gone_at is None or node.gone_at >= self._since:
                self._add_node(self._pool(state, node.pool), node, goes_on=goes_on)
                used[node.pool] = None
        for task in (*state.tasks.values(), *state.retired.values()):
            for attempt in task.attempts:
                if attempt.pool and attempt.bound_at is not None:
                    if self._add_attempt(state, attempt, until, goes_on=goes_on):
                        used[attempt.pool] = None
                elif attempt.is_live and goes_on:
                    for name in attempt.pools:
                        self._pool(state, name).waiting[_reason(attempt)] += 1
        for name in used:
            self.found[name].runs += 1
        self._add_left_out(reader, now)

    def _pool(self, state: RunState, name: str) -> _Pool:
        if name not in self.found:
            self.found[name] = _Pool()
        each, seen = self.found[name], pool_of(state, name)
        each.capacity, each.currency = seen.capacity.value, state.plan.config.currency
        each.price, each.price_source = None if seen.price is None else float(seen.price), seen.price_source.value
        return each

    def _add_node(self, of: _Pool, node: NodeState, *, goes_on: bool) -> None:
        is_noticed = node.state != "gone" and node.noticed_at is not None
        of.nodes["gone" if not goes_on else "noticed" if is_noticed else node.state] += 1
        if node.ready_at is not None and node.ready_at > node.booted_at:
            of.boots.append(node.ready_at - node.booted_at)

    def _add_attempt(self, state: RunState, attempt: AttemptState, until: float, *, goes_on: bool) -> bool:
        """Add an attempt that had a node, unless it ended before the requested time."""
        ended_at = until if attempt.ended_at is None else attempt.ended_at
        if ended_at < self._since:
            return False
        of = self._pool(state, attempt.pool or "")
        of.attempts += 1
        of.running += attempt.is_live and goes_on and not attempt.is_held_up
        of.seconds += max(0.0, ended_at - max(attempt.runs_since or ended_at, self._since))
        of.interruptions += attempt.cause is not None and attempt.cause.is_interruption
        return True

    def _add_left_out(self, reader: RunReader, now: float) -> None:
        state = reader.state
        paused = list(left_out_view(state, now))
        reasons: dict[str, str] = {}
        for decision in taken_back(state) if paused else ():
            reasons.update(dict.fromkeys(decision.left_out, decision.why))
        for each in paused:
            of = self._pool(state, each["pool"])
            if of.left_out is None or of.left_out["until"] < each["until"]:
                why = reasons.get(each["pool"], "")
                of.left_out = {
                    "until": each["until"],
                    "times": each["times"],
                    "why": why,
                    "run": reader.folder.name,
                }


def taken_back(state: RunState) -> list[AttemptRecalled]:
    """The decisions to recall attempts that got no node, in order."""
    taken = (each.taken_back for task in state.tasks.values() for each in task.attempts)
    return sorted((each for each in taken if each is not None), key=lambda each: each.at)


def _reason(attempt: AttemptState) -> str:
    """Kubernetes' or an autoscaler's reason for which an attempt waits; on one machine a fixed text."""
    return attempt.waits.partition(":")[0] or "no node yet"


def _pool_json(name: str, pool: _Pool) -> dict[str, Any]:
    hours = pool.seconds / 3600.0
    return {
        "name": name,
        "capacity": pool.capacity,
        "price": pool.price,
        "price_source": pool.price_source,
        "currency": pool.currency,
        "runs": pool.runs,
        "nodes": {state: pool.nodes[state] for state in ("booting", "ready", "noticed", "gone")},
        "attempts": pool.attempts,
        "running": pool.running,
        "interruptions": pool.interruptions,
        "hours": hours,
        "interruptions_an_hour": pool.interruptions / hours if hours else None,
        "boot": sum(pool.boots) / len(pool.boots) if pool.boots else None,
        "left_out": pool.left_out,
        "waiting": [{"reason": reason, "count": count} for reason, count in pool.waiting.most_common()],
    }
