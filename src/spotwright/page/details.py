"""What the page says about one run: its head, one attempt with its evidence, its nodes, its history; and pools of many runs.

Each function takes a run that :class:`~spotwright.records.reader.RunReader` has folded, and returns values for JSON. Sentences
and figures are those of ``show``, ``logs``, ``explain`` and the journal. Moments are Unix seconds, ``null`` until they happen;
durations are seconds. What needs the account of the run takes it as an argument and is ``null`` without it, since the account
of a large run takes longer than everything else.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.engine.decide import judged_signals, next_pools, why_it_stays
from spotwright.engine.event_codec import DECISIONS, encode
from spotwright.engine.events import (
    ON_KFP,
    AttemptDecided,
    AttemptHalted,
    AttemptTakenBack,
    Event,
    NodeChanged,
    NoticeGiven,
    NoticeWithdrawn,
    RunReset,
    RunStatus,
    TaskStatus,
)
from spotwright.engine.fold import spent_around
from spotwright.engine.next_rung import effective_plan, outlook_without_advice
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.engine.waits import in_vain_at
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.model.attempts import Cause, ContainerEnd, Ending, Signals, StatusCondition
from spotwright.records.reader import RunReader
from spotwright.scheduling.budgets import (
    MAX_MOVES,
    BudgetUse,
    next_rung_while_pending,
    pauses_of,
)
from spotwright.scheduling.cause import ROWS, classify, deciding, row_of
from spotwright.scheduling.deadline import Outlook
from spotwright.views.account import Account, AttemptCost, Range, SpentOn, pool_of
from spotwright.views.account_report import range_json
from spotwright.views.narration import event_text
from spotwright.views.run_json import (
    attempt_view,
    environment_view,
    left_out_view,
    node_view,
    output_view,
    outputs_view,
    summary,
    unpriced_summary,
)
from spotwright.views.run_text import end_sentence, following, go_on
from spotwright.views.text import readable
from spotwright.views.waiting import booting_nodes, waiting_for

__all__ = ["attempt_panel", "expected_end", "head", "history", "line", "nodes", "pools"]


_BESIDE = 60.0
"""Seconds before and after the end of an attempt in which other ends on its node are told beside it."""

_MOST_EVENTS = 400  # of one attempt: the first and the last ones
_MOST_WAITS = 50  # reasons for which tasks wait now
_MOST_NAMED = 20  # tasks with one reason, attempts of one node
_MOST_ARTIFACTS = 200
_MOST_BUDGETS = 50
_MOST_LOOKED_AT = 200  # tasks whose last safe moment is asked for

CAUSES = "docs/failure-matrix.md#how-the-cause-is-decided"
FOLLOWING = "docs/explanation/decisions.md#the-table"


# -- the head of a run, and its line in a list


def line(reader: RunReader, costs: Account | None = None) -> dict[str, Any]:
    """One run in a list of runs: :func:`~spotwright.views.run_json.summary` and what the page adds.

    - ``driven`` (an engine drives it now), ``namespace`` (empty on this machine), ``progress`` (0 to 1: the share of its tasks
      that are done),
    - ``deadline`` (null without) and ``late`` (true, false, or null while nobody can say),
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
    at, late = _deadline(state, reader.now)
    counts = priced["tasks"]
    done = sum(counts.get(status.value, 0) for status in TaskStatus if status.is_good)
    return {
        **priced,
        "driven": reader.now is not None and state.status is RunStatus.RUNNING,
        "namespace": str(state.meta.arguments.get("namespace", "")) if _is_in_cluster(state) else "",
        "progress": done / counts["all"] if counts["all"] else 0.0,
        "deadline": at,
        "late": late,
    }


_OF_ACCOUNT = ("prices", "has_prices", "cost", "wasted", "saved")


def head(reader: RunReader, costs: Account | None = None) -> dict[str, Any]:
    """What stands above all views of a run.

    - ``run``, ``made_at`` (nanoseconds: another number is another run of this name), ``seq`` (the last event);
    - ``summary``: :func:`line`; ``title``: the status in one sentence, as ``show`` has it;
    - ``waits``: what tasks wait for now, but for other tasks: ``kind`` (``node``, ``start``, ``environment``, ``backoff``,
      ``turn``), ``text``, ``tasks`` (the first paths) of ``of``, ``since``, ``until``;
    - ``left_out``: pools that new attempts pass over: ``pool``, ``until``, ``times``;
    - ``budgets``: tasks that have spent some, nearest to its end first: ``task``, and for ``interruptions``, ``errors`` and
      ``moves`` each ``spent`` and ``max``;
    - ``deadline``: null, or ``at``, ``last_moment`` (null where none can be told), ``left`` (seconds, below 0 once it has
      passed), ``late``, ``words`` (``late``, ``in time``, or empty while it goes on), ``expected_end`` (null where none can be
      told), ``task`` (the one with the first last moment) and ``reckons`` (what is reckoned with, in words);
    - ``notes``, ``arguments`` (references instead of secrets), ``outputs`` as in ``show --json``;
    - ``artifacts``: ``task``, ``name``, ``type``, ``uri``; ``artifacts_of``: how many there are in all;
    - ``environments``: builds of Python environments as in ``show --json``, each with ``tasks`` of ``of``;
    - ``links``: ``kfp`` (the page of the run on Kubeflow Pipelines, or null);
    - ``commands``: ``show``, ``logs``, ``report``, ``resume``, ``cancel``: command lines, null where there is nothing to do;
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


def _is_in_cluster(state: RunState) -> bool:
    return state.meta.orchestrator not in ("", ON_KFP)


def _waits(state: RunState) -> Iterator[dict[str, Any]]:
    """What tasks wait for now, the reason of most tasks first. Whoever waits for other tasks waits for what those wait for."""
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
    """When a task began to wait as it does now."""
    if kind == "environment":
        return task.environment.began_at if task.environment is not None else None
    if not task.attempts:
        return None
    if kind == "start":
        return task.last.waits_since
    return task.last.rung_at if kind == "node" else task.last.ended_at


def _budgets(state: RunState) -> list[dict[str, Any]]:
    spenders = [task for task in state.tasks.values() if any(task.spent)]
    found = [{"task": task.path, **_budget_json(task, task.spent)} for task in spenders]

    def share(each: Mapping[str, Any]) -> float:
        parts = (each["interruptions"], each["errors"], each["moves"])
        return max(float(part["spent"] / (part["max"] or 1)) for part in parts)

    return sorted(found, key=share, reverse=True)[:_MOST_BUDGETS]


def _budget_json(task: TaskState, spent: BudgetUse) -> dict[str, Any]:
    policy = task.plan.policy
    most = BudgetUse(policy.max_interruptions, policy.retries, MAX_MOVES)
    return {name: {"spent": one, "max": of} for name, one, of in zip(spent._fields, spent, most, strict=True)}


def _deadline(state: RunState, now: float | None) -> tuple[float | None, bool | None]:
    """The deadline of a run, and whether it is late; ``None`` while that is open.

    Where tasks have deadlines of their own it is the first one that is missed or still to be met, else the last one.
    """
    moments: dict[float, bool | None] = {}
    until = state.known_until(now)
    for task in state.tasks.values():
        deadline = task.plan.policy.deadline
        if deadline is None or task.plan.spec.dag is not None:
            continue
        at = deadline.moment(state.started_at)
        late = _is_late(task, at, until)
        known = moments.get(at, False)
        moments[at] = True if True in (known, late) else None if None in (known, late) else False
    if not moments:
        return None, None
    at = min((at for at, late in moments.items() if late is not False), default=max(moments))
    return at, moments[at]


def _is_late(task: TaskState, at: float, until: float) -> bool | None:
    """Whether a task missed its deadline; ``None`` for one that is not done, as long as the moment has not passed."""
    if not task.status.is_good:
        return True if until > at else None
    ended_at = task.attempts[-1].ended_at if task.attempts else None
    return ended_at is not None and ended_at > at


def deadline_of(state: RunState, now: float | None) -> dict[str, Any] | None:
    """The deadline of a run as :func:`head` tells it."""
    at, late = _deadline(state, now)
    if at is None:
        return None
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
    """When the run is expected to end (Unix seconds), with the figures of the decisions about its deadline; None without.

    Each task that is under way or may start needs the rest of its work, a launch unless it runs, and then what follows it.
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
    """The tasks with a deadline that are under way or may start, with what the next decision about each reckons with."""
    if state.status is not RunStatus.RUNNING:
        return
    for path in [*state.under_way, *(path for path in state.todo if path not in state.under_way)][:_MOST_LOOKED_AT]:
        task = state.tasks[path]
        try:
            planned = effective_plan(state, task)
        except InputError:  # the decision about the task says so
            continue
        if planned.policy.deadline is not None and planned.ladder.rungs:
            yield task, outlook_without_advice(state, task, planned, now)


def _artifacts(state: RunState) -> Iterator[dict[str, Any]]:
    for task in state.tasks.values():
        if task.plan.spec.dag is not None:
            continue  # the outputs of a pipeline are those of a task inside
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
    """The page of the run on Kubeflow Pipelines, where it was started there from here."""
    if not reader.folder.kfp.exists():
        return None
    from spotwright.kubeflow.runs import load_kfp_run  # here: it needs what other runs do not

    try:
        page = load_kfp_run(reader.folder).page
    except SpotwrightError:  # the link alone is missing then; the commands that need the file say what is wrong with it
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


# -- one attempt


@dataclass(slots=True)
class _Seen:
    """What the journal says about one attempt: its events with their numbers, and the decision about its end."""

    events: list[tuple[int, Event]] = field(default_factory=list)
    decided: AttemptDecided | None = None
    halted_at: float | None = None
    agent: bool = False  # a notice came with the id that its source gave it, so the agent of the node told it
    budgets_since: float = 0.0


def attempt_panel(reader: RunReader, path: str, number: int, costs: Account | None = None) -> dict[str, Any]:
    """Why one attempt ended, or what it waits for. Raises :class:`UnknownRun` for a task or attempt that is not there.

    - ``task``, ``attempt``: as in ``show --json``; without ``costs`` its ``cost``, ``share`` and ``kept`` are null;
    - ``sentence``: how it ended, as ``show`` says it; of one that goes on where it runs or what it waits for;
    - ``rule``: null, or ``row`` (the line of "How the cause is decided" that fits, from 1), ``text``, ``link`` (the page) and
      ``table`` (the texts of all lines);
    - ``evidence``: all signals of its end: ``signal``, ``value``, ``told_by`` (``process``, ``pod``, ``node``, ``notice``,
      ``event``, ``agent``, or ``run`` for what we did ourselves), ``at``, ``decided`` (it is why the row fits);
    - ``followed``: null until its cause is decided, else ``row`` and ``link`` of the table of what follows, ``text``,
      ``budget_before`` and ``budget_after`` (for ``interruptions``, ``errors`` and ``moves`` each ``spent`` and ``max``),
      ``then`` (``succeed``, ``retry``, ``fail``, ``cancel``), ``rung`` (from 1) with its ``pools``, ``due`` (end of the backoff)
      and ``wait`` (its seconds, before time scaling);
    - ``beside``: what else of this run ended on its node within a minute: ``run``, ``task``, ``attempt``, ``at``, ``cause``;
    - ``events``: ``seq``, ``at``, ``kind``, ``decision``, ``text``, ``json``; ``events_left_out``: so many in the middle;
    - ``measures``: ``first_progress``, ``progress``, ``reported_at``, ``exit_code``, ``signal``, ``last_line``, ``seconds``,
      ``cpu_seconds``, ``max_rss`` (bytes), ``outputs_missing``;
    - ``waiting``: null, or ``why``, ``since``, ``until`` (when it is taken back, or leaves its pools; null: not for waiting),
      ``pools`` it may have a node of, ``next_pools`` for which the next wait is, ``stays`` (why it is not sent elsewhere, or
      empty), ``command``;
    - ``log``: whether it has one; ``commands``: ``logs`` and ``explain``, null where there is nothing to print.
    """
    state, name = reader.state, reader.folder.name
    task, attempt = _find(state, name, path, number)
    seen = _look(reader, task, attempt)
    view = attempt_view(state, name, task, attempt, _cost(costs, path, number))
    ended = attempt.ended
    shown = seen.events
    if len(shown) > _MOST_EVENTS:
        shown = [*shown[: _MOST_EVENTS // 2], *shown[-_MOST_EVENTS // 2 :]]
    waiting = _waiting(state, name, task, attempt)
    return {
        "task": path,
        "attempt": view,
        "sentence": _sentence(state, task, attempt, view),
        "rule": _rule(task, attempt),
        "evidence": list(_evidence(state, attempt, seen)),
        "followed": _followed(state, name, task, attempt, view, seen),
        "beside": list(_beside(state, name, attempt)),
        "events": [_event(state, seq, event) for seq, event in shown],
        "events_left_out": len(seen.events) - len(shown),
        "measures": {
            "first_progress": attempt.first_progress,
            "progress": attempt.progress,
            "reported_at": attempt.reported_at,
            "exit_code": view["exit_code"],
            "signal": view["signal"],
            "last_line": view["last_line"],
            "seconds": view["seconds"] if ended is None or ended.seconds is None else ended.seconds,
            "cpu_seconds": None if ended is None else ended.cpu_seconds,
            "max_rss": None if ended is None else ended.max_rss,
            "outputs_missing": [] if ended is None else list(ended.signals.missing_outputs),
        },
        "waiting": waiting,
        "log": view["log"] is not None,
        "commands": {"logs": view["log"], "explain": None if waiting is None else waiting["command"]},
    }


def _cost(costs: Account | None, path: str, number: int) -> AttemptCost | None:
    """The cost of one attempt; None without an account, and for an attempt that never had a node."""
    attempts = () if costs is None else costs.attempts_by_start
    return next((each for each in attempts if each.number == number and each.task == path), None)


def _find(state: RunState, name: str, path: str, number: int) -> tuple[TaskState, AttemptState]:
    task = state.tasks.get(path) or state.retired.get(path)
    if task is None:
        raise UnknownRun(f"run {name} has no task {path!r}")
    if not 1 <= number <= len(task.attempts):
        count = len(task.attempts)
        raise UnknownRun(f"task {path} of run {name} has {count} attempt{'s' * (count != 1)}, not an attempt {number}")
    return task, task.attempts[number - 1]


def _look(reader: RunReader, task: TaskState, attempt: AttemptState) -> _Seen:
    """Read the journal for one attempt: its own events, the notices that name it, and what became of its node."""
    seen = _Seen()
    with reader.source.look(0, task.path) as look:
        for seq, event in look.events:
            if seq > reader.seq:
                break
            if not event.task:
                if _concerns(event, task, attempt):
                    seen.events.append((seq, event))
                    seen.agent |= isinstance(event, NoticeGiven) and bool(event.id) and _is_in_cluster(reader.state)
                elif isinstance(event, RunReset) and event.at <= attempt.placed_at:
                    seen.budgets_since = event.at
            elif event.attempt == attempt.number and event.task == task.path:
                seen.events.append((seq, event))
                if isinstance(event, AttemptDecided):
                    seen.decided = event
                elif isinstance(event, AttemptHalted):
                    seen.halted_at = event.at
    return seen


def _concerns(event: Event, task: TaskState, attempt: AttemptState) -> bool:
    """Whether an event of no task is a notice to this attempt, or about its node while it was there and just after."""
    if isinstance(event, NoticeGiven):
        return (task.path, attempt.number) in {(path, number) for path, number in event.attempts}
    if not isinstance(event, NodeChanged | NoticeWithdrawn) or event.node != attempt.node:
        return False
    began = attempt.placed_at if attempt.bound_at is None else attempt.bound_at
    return began <= event.at and (attempt.ended_at is None or event.at <= attempt.ended_at + _BESIDE)


def _event(state: RunState, seq: int, event: Event) -> dict[str, Any]:
    row = encode(event)
    return {
        "seq": seq,
        "at": event.at,
        "kind": row.kind,
        "decision": isinstance(event, DECISIONS),
        "text": event_text(state, event),
        "json": readable(dict(row.data)),
    }


def _sentence(state: RunState, task: TaskState, attempt: AttemptState, view: Mapping[str, Any]) -> str:
    if attempt.cause is not None:
        return end_sentence(task.path, view)
    where = f" on {attempt.node}" if attempt.node else ""
    if not attempt.is_live:
        return f"{task.path} attempt {attempt.number}{where} has ended; its cause is not decided yet"
    waiting = waiting_for(state, task, booting_nodes(state)) if attempt is task.last else None
    if waiting is not None:
        return f"{task.path} attempt {attempt.number} {waiting.text}"
    return f"{task.path} attempt {attempt.number} runs{where}"


def _rule(task: TaskState, attempt: AttemptState) -> dict[str, Any] | None:
    """The row that decided. None where today's table has another cause for these signals: an earlier version decided."""
    if attempt.cause is None or attempt.ended is None:
        return None
    recorded = attempt.ended.signals
    for signals in (judged_signals(task, recorded), recorded):  # KFP's own record is judged as it is
        if classify(signals).cause is attempt.cause:
            row = row_of(signals)
            return {"row": row.number, "text": row.text, "link": CAUSES, "table": [each.text for each in ROWS]}
    return None


_TOLD_BY: Mapping[str, str] = {
    **dict.fromkeys(
        ("exit_code", "signal", "outputs_complete", "missing_outputs", "accepted_by_kfp", "accepted_by_controller"),
        "process",
    ),
    **dict.fromkeys(("timed_out", "oom_kills", "start_error"), "process"),
    **dict.fromkeys(("phase", "reason", "message", "conditions", "containers", "pod_deleted", "heard"), "pod"),
    **dict.fromkeys(("node_gone", "node_conditions", "node_taints", "spot"), "node"),
    "node_events": "event",
    "noticed": "notice",
    "cancelled": "run",
    "moved": "run",
}
"""Who tells each signal of an end."""


def _evidence(state: RunState, attempt: AttemptState, seen: _Seen) -> Iterator[dict[str, Any]]:
    if attempt.ended is None and seen.decided is None:
        return
    signals = attempt.ended.signals if attempt.ended is not None else Signals()
    recorded = seen.decided.evidence if seen.decided is not None else {}
    ending = Ending(attempt.cause or Cause.LOST, "", recorded)
    decided = deciding(ending)
    sign = recorded.get("sign") if "sign" in decided else None
    told: set[str] = set()
    for name, value in signals._asdict().items():
        if value == Signals._field_defaults[name]:
            continue
        for each in value if isinstance(value, tuple) and name != "missing_outputs" else [value]:
            is_sign = sign is not None and _says(each, name, str(sign))
            told.update([name], ["sign"] if is_sign else [])
            yield _signal(state, attempt, seen, name, _shown(each), decided=name in decided or is_sign)
    for name, value in recorded.items():  # what the rules read from several signals together
        if name not in told and value != Signals._field_defaults.get(name):
            yield _signal(state, attempt, seen, name, value, decided=name in decided)


def _says(value: Any, name: str, sign: str) -> bool:
    """Whether one observed value is the sign by which a rule decided."""
    if name == "node_gone":
        return sign == name
    if isinstance(value, StatusCondition):
        return sign in (value.type, value.reason, value.message, f"{value.type}={value.status}")
    if isinstance(value, ContainerEnd):
        return sign in (value.reason, value.waiting)
    return bool(value == sign)


def _shown(value: Any) -> Any:
    """An observed value for people: a condition or a container in one line."""
    if isinstance(value, StatusCondition):
        reason = f" {value.reason}" if value.reason else ""
        return f"{value.type}={value.status}{reason}{f': {value.message}' if value.message else ''}"
    if isinstance(value, ContainerEnd):
        parts = [value.name]
        parts += [f"exit code {value.exit_code}"] if value.exit_code is not None else []
        parts += [f"signal {value.signal}"] if value.signal is not None else []
        parts += [f"waiting: {value.waiting}"] if value.waiting else []
        parts += [value.reason] if value.reason else []
        return ", ".join(parts) + (f": {value.message}" if value.message else "")
    return list(value) if isinstance(value, tuple) else value


def _signal(
    state: RunState, attempt: AttemptState, seen: _Seen, name: str, value: Any, *, decided: bool
) -> dict[str, Any]:
    told_by = _TOLD_BY.get(name, "pod")
    if name == "heard" and not attempt.key:
        told_by = "process"
    ended_at = attempt.ended_at
    if told_by == "notice":
        at, told_by = attempt.noticed_at, "agent" if seen.agent else told_by
    elif told_by == "process":
        at = attempt.ended.ended_at if attempt.ended is not None else None
    elif told_by == "run":
        at = seen.halted_at
    else:
        at = _gone_at(state, attempt) if name == "node_gone" else None
    return {
        "signal": name,
        "value": value,
        "told_by": told_by,
        "at": ended_at if at is None else at,
        "decided": decided,
    }


def _gone_at(state: RunState, attempt: AttemptState) -> float | None:
    """When the node of an attempt was gone: the first node of that name that went after the attempt had it."""
    began = attempt.bound_at or 0.0
    named = [node for node in state.former_nodes if node.name == attempt.node]
    named += [state.nodes[attempt.node]] if attempt.node in state.nodes else []
    return next((node.gone_at for node in named if node.gone_at is not None and node.gone_at >= began), None)


def _followed(
    state: RunState, name: str, task: TaskState, attempt: AttemptState, view: Mapping[str, Any], seen: _Seen
) -> dict[str, Any] | None:
    if attempt.cause is None:
        return None
    decided = seen.decided
    before, after = spent_around(state, task, attempt, seen.budgets_since)
    rungs = task.plan.ladder.rungs
    rung = decided.rung if decided is not None else None
    run = {"run": name, "orchestrator": state.meta.orchestrator}
    numbers = {"attempts": [{"number": each.number} for each in task.attempts]}
    return {
        "row": attempt.cause.row,
        "link": FOLLOWING,
        "text": following(run, numbers, view),
        "then": None if decided is None else decided.then.value,
        "budget_before": _budget_json(task, before),
        "budget_after": _budget_json(task, after),
        "rung": None if rung is None else rung + 1,
        "pools": list(rungs[rung].pools) if rung is not None and rung < len(rungs) else [],
        "due": None if decided is None else decided.due,
        "wait": 0.0 if decided is None else decided.wait,
    }


def _beside(state: RunState, name: str, attempt: AttemptState) -> Iterator[dict[str, Any]]:
    """The other attempts of the run that ended on the same node within a minute, in the order of their ends."""
    if not attempt.node or attempt.ended_at is None:
        return
    found = []
    for other in (*state.tasks.values(), *state.retired.values()):
        for each in other.attempts:
            if each.node != attempt.node or each is attempt or each.ended_at is None:
                continue
            if abs(each.ended_at - attempt.ended_at) <= _BESIDE:
                cause = None if each.cause is None else each.cause.value
                found.append(
                    {"run": name, "task": other.path, "attempt": each.number, "at": each.ended_at, "cause": cause}
                )
    yield from sorted(found, key=lambda each: (each["at"], each["task"]))


def _waiting(state: RunState, name: str, task: TaskState, attempt: AttemptState) -> dict[str, Any] | None:
    """What the newest attempt of a task waits for, and what becomes of it."""
    if attempt is not task.last or not attempt.is_live or state.tasks.get(task.path) is not task:
        return None
    waiting = waiting_for(state, task, booting_nodes(state))
    if waiting is None:
        return None
    until, next_, stays = _move(state, task, attempt) if waiting.kind == "node" else (waiting.until, [], "")
    return {
        "why": waiting.text,
        "since": attempt.waits_since if attempt.waits_since is not None else attempt.rung_at,
        "until": until,
        "pools": list(waiting.pools),
        "next_pools": list(next_),
        "stays": stays,
        "command": _explain(state, name),
    }


def _move(state: RunState, task: TaskState, attempt: AttemptState) -> tuple[float | None, Sequence[str], str]:
    """When an attempt that waits for a node is sent to other pools, which these are, and why it is not."""
    if attempt.taken_back is not None:
        return attempt.taken_back.at, attempt.taken_back.pools, ""
    policy, ladder = task.plan.policy, task.plan.ladder
    if not state.meta.orchestrator:
        if policy.deadline is not None:
            return attempt.until, (), "a deadline decides about its rung"
        rung = next_rung_while_pending(attempt.rung, task.spent, policy, ladder)
        return attempt.until, () if rung is None else ladder.rungs[rung].pools, ""
    pauses = pauses_of((each.at, tuple(each.left_out)) for each in _taken_back(state))
    stays = why_it_stays(state, task, attempt, pauses, state.last_at)
    if stays:
        return None, (), stays
    return in_vain_at(task, attempt), next_pools(state, task, attempt, pauses, state.last_at), ""


def _explain(state: RunState, name: str) -> str | None:
    """The command that explains where the pods of a run may go, or its source; null where only this machine is meant."""
    if _is_in_cluster(state):
        return f"spotwright explain {shlex.quote(name)} --cluster"
    return f"spotwright explain {shlex.quote(state.meta.source)}" if state.meta.source else None


# -- nodes and history


def nodes(reader: RunReader) -> dict[str, Any]:
    """The nodes of a run: ``t0`` (its start), and ``nodes`` as in ``show --json``, in the order of their requests.

    Each has ``attempts`` (how many ran on it), and ``ended`` (``task``, ``attempt``, ``at``, ``cause``): those that an
    interruption or a move ended there, the first of ``ended_of``.
    """
    state = reader.state
    on: dict[int, list[tuple[TaskState, AttemptState]]] = {}
    by_name: dict[str, list[NodeState]] = {}
    for node in state.all_nodes:
        by_name.setdefault(node.name, []).append(node)
    for task in (*state.tasks.values(), *state.retired.values()):
        for attempt in task.attempts:
            if attempt.node in by_name and attempt.bound_at is not None:
                on.setdefault(id(_node_of(by_name[attempt.node], attempt.bound_at)), []).append((task, attempt))
    rows = [_node(state, node, on.get(id(node), [])) for node in state.all_nodes]
    return {"t0": state.started_at, "nodes": sorted(rows, key=lambda row: row["booted_at"])}


def _node_of(named: Sequence[NodeState], bound_at: float) -> NodeState:
    """The one of the nodes of a name that an attempt was bound to: each is gone before the next one comes."""
    return next((node for node in named if node.gone_at is None or bound_at <= node.gone_at), named[-1])


def _node(state: RunState, node: NodeState, on: Sequence[tuple[TaskState, AttemptState]]) -> dict[str, Any]:
    ended = [
        {"task": task.path, "attempt": attempt.number, "at": attempt.ended_at, "cause": attempt.cause.value}
        for task, attempt in on
        if attempt.cause is not None and (attempt.cause.is_interruption or attempt.cause is Cause.DISRUPTED)
    ]
    return {**node_view(state, node), "attempts": len(on), "ended": ended[:_MOST_NAMED], "ended_of": len(ended)}


def history(
    reader: RunReader, after: int = 0, limit: int = 200, *, task: str = "", kinds: Iterable[str] = ()
) -> dict[str, Any]:
    """Events of a run after a sequence number, in order: ``rows`` and ``next`` (the ``after`` of the next page, or null).

    A row has ``seq``, ``at``, ``kind``, ``task``, ``attempt`` (0: of none), ``decision`` (else it is a fact), ``text`` and
    ``json``. ``task``: only events of this task, or of the tasks in it. ``kinds``: only events of these kinds.
    """
    wanted = frozenset(kinds)
    rows: list[dict[str, Any]] = []
    inside = f"{task}/"
    with reader.source.look(after, task) as look:
        for seq, event in look.events:
            if seq > reader.seq:  # it is not folded yet, and its sentence needs the state
                break
            if (wanted and event.kind not in wanted) or (
                task and event.task != task and not event.task.startswith(inside)
            ):
                continue
            if len(rows) == limit:
                return {"rows": rows, "next": rows[-1]["seq"]}
            told = _event(reader.state, seq, event)
            rows.append({**told, "task": event.task, "attempt": event.attempt})
    return {"rows": rows, "next": None}


# -- pools over many runs


@dataclass(slots=True)
class _Pool:
    """What runs say about one pool."""

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
    """The pools over the runs that were under way since a moment; by default a day before ``now`` (Unix seconds).

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
    """Pools by name, with what runs say about them."""

    def __init__(self, since: float) -> None:
        self.found: dict[str, _Pool] = {}
        self._since = since

    def add(self, reader: RunReader, now: float) -> None:
        """Add what one run says."""
        state = reader.state
        goes_on = state.status is RunStatus.RUNNING and (reader.now is not None or _is_in_cluster(state))
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
        """Add an attempt that had a node, unless it ended before the time that is asked for."""
        ended_at = until if attempt.ended_at is None else attempt.ended_at
        if ended_at < self._since:
            return False
        of = self._pool(state, attempt.pool or "")
        of.attempts += 1
        of.running += attempt.is_live and goes_on
        of.seconds += max(0.0, ended_at - max(attempt.bound_at or ended_at, self._since))
        of.interruptions += attempt.cause is not None and attempt.cause.is_interruption
        return True

    def _add_left_out(self, reader: RunReader, now: float) -> None:
        state = reader.state
        paused = list(left_out_view(state, now))
        reasons: dict[str, str] = {}
        for decision in _taken_back(state) if paused else ():
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


def _taken_back(state: RunState) -> list[AttemptTakenBack]:
    """The decisions to take attempts back that had waited in vain, in the order in which they were made."""
    taken = (each.taken_back for task in state.tasks.values() for each in task.attempts)
    return sorted((each for each in taken if each is not None), key=lambda each: each.at)


def _reason(attempt: AttemptState) -> str:
    """The word for why an attempt waits: that of Kubernetes or of an autoscaler; nothing is said on one machine."""
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
