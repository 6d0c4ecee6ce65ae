"""The page's documents about one attempt with its evidence, about the nodes of a run, and about its history.

The rules of :mod:`spotwright.page.heads` for its functions apply to these too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotwright.engine.charges import spent_around
from spotwright.engine.decide import judged_signals, next_pools, why_it_stays
from spotwright.engine.event_codec import DECISIONS, encode
from spotwright.engine.events import (
    AttemptDecided,
    AttemptHalted,
    Event,
    NodeChanged,
    NoticeGiven,
    NoticeWithdrawn,
)
from spotwright.engine.state import AttemptState, NodeState, RunState, TaskState
from spotwright.engine.waits import in_vain_at
from spotwright.errors import UnknownRun
from spotwright.model.attempts import Cause, ContainerEnd, Ending, Signals, StatusCondition
from spotwright.page.heads import budget_json, is_in_cluster, taken_back
from spotwright.records.reader import RunReader
from spotwright.scheduling.budgets import (
    next_rung_while_pending,
    pauses_of,
)
from spotwright.scheduling.cause import ROWS, classify, deciding, row_of
from spotwright.views.account import Account, AttemptCost
from spotwright.views.narration import event_text
from spotwright.views.run_json import (
    attempt_view,
    node_view,
)
from spotwright.views.run_text import end_sentence, following
from spotwright.views.text import readable
from spotwright.views.waiting import booting_nodes, waiting_for

__all__ = ["attempt_panel", "history", "nodes"]


_BESIDE = 60.0
"""Seconds around the end of an attempt in which other ends on its node are shown."""

_MOST_EVENTS = 400  # of one attempt: the first and the last ones
_MOST_NAMED = 20  # attempts of one node


CAUSES = "docs/failure-matrix.md#how-the-cause-is-decided"
FOLLOWING = "docs/explanation/decisions.md#the-table"


# -- one attempt


@dataclass(slots=True)
class _Seen:
    """The journal's records of one attempt: its events with their numbers, and the decision about its end."""

    events: list[tuple[int, Event]] = field(default_factory=list)
    decided: AttemptDecided | None = None
    halted_at: float | None = None
    agent: bool = False  # a notice came with its source's id, so the node's agent posted it


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
    - ``waiting``: null, or ``why``, ``since``, ``until`` (when it is recalled, or leaves its pools; null: not for waiting),
      ``pools`` it may have a node of, ``next_pools`` for which the next wait is, ``stays`` (why it is not sent elsewhere, or
      empty), ``command``;
    - ``log``: whether it has one; ``commands``: ``logs`` and ``explain``, null if there is nothing to print.
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
    """Read the journal for one attempt: its events, the notices that name it, and its node's end."""
    seen = _Seen()
    with reader.source.look(0, task.path) as look:
        for seq, event in look.events:
            if seq > reader.seq:
                break
            if not event.task:
                if _concerns(event, task, attempt):
                    seen.events.append((seq, event))
                    seen.agent |= isinstance(event, NoticeGiven) and bool(event.id) and is_in_cluster(reader.state)
            elif event.attempt == attempt.number and event.task == task.path:
                seen.events.append((seq, event))
                if isinstance(event, AttemptDecided):
                    seen.decided = event
                elif isinstance(event, AttemptHalted):
                    seen.halted_at = event.at
    return seen


def _concerns(event: Event, task: TaskState, attempt: AttemptState) -> bool:
    """Whether an event without a task is a notice to this attempt, or about its node during the attempt and just after."""
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
        return f"{task.path} attempt {attempt.number}{where} has ended; its cause is not known yet"
    waiting = waiting_for(state, task, booting_nodes(state)) if attempt is task.last else None
    if waiting is not None:
        return f"{task.path} attempt {attempt.number} {waiting.text}"
    return f"{task.path} attempt {attempt.number} runs{where}"


def _rule(task: TaskState, attempt: AttemptState) -> dict[str, Any] | None:
    """The deciding row. ``None`` if the current table has another cause for these signals: an earlier version decided."""
    if attempt.cause is None or attempt.ended is None:
        return None
    recorded = attempt.ended.signals._replace(progress=attempt.progress)
    for signals in (judged_signals(task, attempt), recorded):  # KFP's own record is judged unchanged
        if classify(signals).cause is attempt.cause:
            row = row_of(signals)
            return {"row": row.number, "text": row.text, "link": CAUSES, "table": [each.text for each in ROWS]}
    return None


_TOLD_BY: Mapping[str, str] = {
    **dict.fromkeys(
        ("exit_code", "signal", "outputs_complete", "missing_outputs", "accepted_by_kfp", "accepted_by_controller"),
        "process",
    ),
    **dict.fromkeys(("progress", "timed_out", "oom_kills", "start_error"), "process"),
    **dict.fromkeys(("phase", "reason", "message", "conditions", "containers", "pod_deleted", "heard"), "pod"),
    **dict.fromkeys(("node_gone", "node_conditions", "node_taints", "node_restarted", "spot"), "node"),
    "node_events": "event",
    "noticed": "notice",
    "cancelled": "run",
    "moved": "run",
}
"""Who reports each signal of an end."""


def _evidence(state: RunState, attempt: AttemptState, seen: _Seen) -> Iterator[dict[str, Any]]:
    if attempt.ended is None and seen.decided is None:
        return
    signals = attempt.ended.signals if attempt.ended is not None else Signals()
    recorded = seen.decided.evidence if seen.decided is not None else {}
    ending = Ending(attempt.cause or Cause.LOST, "", recorded)
    decided = deciding(ending)
    sign = recorded.get("sign") if "sign" in decided else None
    listed: set[str] = set()
    for name, value in signals._asdict().items():
        if value == Signals._field_defaults[name]:
            continue
        for each in value if isinstance(value, tuple) and name != "missing_outputs" else [value]:
            is_sign = sign is not None and _says(each, name, str(sign))
            listed.update([name], ["sign"] if is_sign else [])
            yield _signal(state, attempt, seen, name, _shown(each), decided=name in decided or is_sign)
    for name, value in recorded.items():  # values that the rules derive from several signals
        if name not in listed and value != Signals._field_defaults.get(name):
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
    """When an attempt's node was gone: the first node of that name to end after the attempt was bound."""
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
    before, after = spent_around(state, task, attempt)
    rungs = task.plan.ladder.rungs
    rung = decided.rung if decided is not None else None
    run = {"run": name, "orchestrator": state.meta.orchestrator}
    numbers = {"attempts": [{"number": each.number} for each in task.attempts]}
    return {
        "row": attempt.cause.row,
        "link": FOLLOWING,
        "text": following(run, numbers, view),
        "then": None if decided is None else decided.then.value,
        "budget_before": budget_json(task, before),
        "budget_after": budget_json(task, after),
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
    """The newest attempt's wait, and the next step."""
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
    """When an attempt that waits for a node is sent to which other pools, or why it is not."""
    if attempt.taken_back is not None:
        return attempt.taken_back.at, attempt.taken_back.pools, ""
    policy, ladder = task.plan.policy, task.plan.ladder
    if not state.meta.orchestrator:
        if policy.deadline is not None:
            return attempt.until, (), "a deadline decides its rung"
        rung = next_rung_while_pending(attempt.rung, task.spent, policy, ladder)
        return attempt.until, () if rung is None else ladder.rungs[rung].pools, ""
    pauses = pauses_of((each.at, tuple(each.left_out)) for each in taken_back(state))
    stays = why_it_stays(state, task, attempt, pauses, state.last_at)
    if stays:
        return None, (), stays
    return in_vain_at(task, attempt), next_pools(state, task, attempt, pauses, state.last_at), ""


def _explain(state: RunState, name: str) -> str | None:
    """The command that explains where a run's pods may go, or its source; ``None`` for local runs."""
    if is_in_cluster(state):
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
    """The node of a name that an attempt was bound to: each is gone before the next one comes."""
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
            if seq > reader.seq:  # not folded yet: its sentence needs the state
                break
            if (wanted and event.kind not in wanted) or (
                task and event.task != task and not event.task.startswith(inside)
            ):
                continue
            if len(rows) == limit:
                return {"rows": rows, "next": rows[-1]["seq"]}
            row = _event(reader.state, seq, event)
            rows.append({**row, "task": event.task, "attempt": event.attempt})
    return {"rows": rows, "next": None}
