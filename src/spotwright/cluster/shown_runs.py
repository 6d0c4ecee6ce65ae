"""The status of recorded runs for people: ``kubectl get`` and ``kubectl describe`` show it without reading events.

Conditions have the form that every controller's have, so ``kubectl wait --for=condition=Complete`` works:
https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties.
They are part of the status, and written with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from spotwright.cluster.run_objects import Home
from spotwright.engine.events import RunStatus
from spotwright.engine.state import AttemptState, RunState
from spotwright.views.account import account
from spotwright.views.account_report import amount_json, cost, each_second, money_range, with_unit
from spotwright.views.run_json import summary

__all__ = [
    "Condition",
    "Conditions",
    "LogsKept",
    "complete",
    "conditions",
    "known_conditions",
    "line_at",
    "part_status",
    "recorded",
    "run_status",
]


EACH_SECOND = "each_second"
"""The key in a run's line for the cost of each further second."""

Conditions = Sequence[Mapping[str, str]]
"""The conditions of a run, as in its object."""

_RECORDED, _LOGS, _COMPLETE = "Recorded", "LogsKept", "Complete"
_LONGEST = 1024  # characters of a message


class Condition(NamedTuple):
    """One condition. ``reason`` is a word in CamelCase, ``message`` a sentence."""

    type: str
    holds: bool
    reason: str
    message: str = ""


class LogsKept(Enum):
    """The place of ended attempts' logs; the value is the reason of the condition."""

    OBJECT_STORE = "ObjectStore"
    VOLUME = "Volume"
    TAIL_ONLY = "TailOnly"
    NONE = "None"

    @classmethod
    def of(cls, logs: str, limit: int) -> LogsKept:
        """The place for a recorder with this store address and this log limit in bytes."""
        if not limit:
            return cls.NONE
        if not logs:
            return cls.TAIL_ONLY
        return cls.VOLUME if logs.startswith("file:") else cls.OBJECT_STORE

    @property
    def condition(self) -> Condition:
        """The condition for an ended run."""
        return Condition(_LOGS, self in (LogsKept.OBJECT_STORE, LogsKept.VOLUME), self.value, _KEPT[self])


_KEPT = {
    LogsKept.OBJECT_STORE: "logs of ended attempts are in the object store of the controller",
    LogsKept.VOLUME: "logs of ended attempts are on the volume of the controller",
    LogsKept.TAIL_ONLY: "the end of each log is in its SpotAttempt; to keep whole logs, set logs.url",
    LogsKept.NONE: "logs are deleted with their pods; to keep them, set controller.logLimit",
}


def recorded(before: Conditions, incomplete: tuple[str, str]) -> Condition:
    """Whether a run is fully recorded. ``incomplete`` is the reason why not, with a sentence, and is permanent."""
    reason, message = incomplete
    if reason:
        return Condition(_RECORDED, False, reason, message)
    known = next((each for each in before if each["type"] == _RECORDED and each["status"] == "False"), None)
    if known is not None:
        return Condition(_RECORDED, False, known["reason"], known["message"])
    return Condition(_RECORDED, True, "Whole", "every observed event is recorded")


def complete(state: RunState) -> Condition:
    """Whether a run has ended, and how."""
    has_ended = state.status is not RunStatus.RUNNING
    return Condition(_COMPLETE, has_ended, state.status.value.capitalize(), state.why)


def conditions(before: Conditions, wanted: Iterable[Condition], now: float) -> Conditions:
    """The conditions at a time. Each keeps its last transition time."""
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in before}
    found = []
    for one in wanted:
        status = "True" if one.holds else "False"
        shown = {"type": one.type, "status": status, "reason": one.reason, "message": one.message[:_LONGEST]}
        found.append({**shown, "lastTransitionTime": since.get((one.type, status)) or _moment(now)})
    return found


def known_conditions(run: Mapping[str, Any]) -> Conditions:
    """The conditions that a SpotRun shows."""
    fields = ("type", "status", "reason", "message", "lastTransitionTime")
    shown = (run.get("status") or {}).get("conditions") or ()
    return [{name: str(each.get(name, "")) for name in fields} for each in shown]


def run_status(state: RunState, name: str, now: float) -> dict[str, Any]:
    """A run's status for ``kubectl get spotruns``, with its line for other readers."""
    costs = account(state, now)
    line = {**summary(state, name, now, costs), EACH_SECOND: amount_json(each_second(costs))}
    status: dict[str, Any] = {
        "phase": state.status.value,
        "attempts": line["attempts"],
        "interruptions": line["interruptions"],
        "errors": line["errors"],
        "cost": "unknown" if costs.unpriced else with_unit(cost(costs.whole, costs.whole), costs),
        "saved": "unknown" if costs.saved is None else with_unit(money_range(*costs.saved, costs.whole), costs),
        "startedAt": _moment(state.started_at),
        "line": json.dumps(line, separators=(",", ":")),
    }
    if state.why:
        status["message"] = state.why
    if state.finished_at is not None:
        status["finishedAt"] = _moment(state.finished_at)
    return status


def line_at(line: Mapping[str, Any], now: float | None) -> dict[str, Any]:
    """The line of a run, with an active run's use and cost up to ``now``; None: as written."""
    rate, found = line.get(EACH_SECOND) or {}, {name: value for name, value in line.items() if name != EACH_SECOND}
    if now is None or line["finished_at"] is not None:
        return found
    more = max(0.0, now - line["started_at"] - line["seconds"])
    cost = {
        name: None if amount is None else amount + more * (rate.get(name) or 0.0)
        for name, amount in line["cost"].items()
    }
    return {**found, "seconds": line["seconds"] + more, "cost": cost}


def part_status(state: RunState, home: Home) -> dict[str, Any]:
    """A task, or an attempt of it, as ``kubectl`` shows it."""
    task = state.tasks.get(home.task) or state.retired.get(home.task)
    if task is None:
        return {}
    if not home.attempt:
        return {"phase": task.status.value, "attempts": len(task.attempts)}
    attempt = next((each for each in reversed(task.attempts) if each.number == home.attempt), None)
    return {} if attempt is None else _attempt_status(attempt)


def _attempt_status(attempt: AttemptState) -> dict[str, Any]:
    phase = "ended" if attempt.ended_at is not None else "running" if attempt.bound_at is not None else "pending"
    known: dict[str, Any] = {
        "phase": phase,
        "pod": attempt.pod,
        "pool": attempt.pool,
        "node": attempt.node,
        "cause": attempt.cause.value if attempt.cause is not None else None,
        "message": attempt.cause_why or attempt.waits,
        "startedAt": None if attempt.bound_at is None else _moment(attempt.bound_at),
        "finishedAt": None if attempt.ended_at is None else _moment(attempt.ended_at),
    }
    return {name: value for name, value in known.items() if value}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
