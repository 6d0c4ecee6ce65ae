"""Compare a run of a random pipeline with its expected result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.interpreter import UNKNOWN, ExpectedRun, TaskOutcome, json_value
from tests.conformance.running import FinishedRun

__all__ = ["differences"]

_BRANCHES = re.compile(r"condition-branches-\d+")


def differences(ran: FinishedRun, expected: ExpectedRun) -> list[str]:
    """Messages for each difference between a run and its expected result; empty where there is none."""
    return [*_of_tasks(ran, expected), *_of_run(ran, expected)]


def _of_run(ran: FinishedRun, expected: ExpectedRun) -> Iterable[str]:
    if (ran.view["status"] == "succeeded") != expected.succeeds:
        yield f"the run has {ran.view['status']}"
    elif expected.succeeds and expected.outputs:
        yield from _of_outputs("the run", json_value(ran.outputs), json_value(expected.outputs))


def _of_tasks(ran: FinishedRun, expected: ExpectedRun) -> Iterable[str]:
    tasks = {_BRANCHES.sub("*", task["path"]): task for task in ran.view["tasks"]}
    for path in tasks.keys() - expected.outcomes.keys() - {p for p in tasks if p.rsplit("/", 1)[-1].startswith("*")}:
        if tasks[path]["status"] not in ("waiting", "ready"):
            yield f"{path} has {tasks[path]['status']}, which was not expected"
    for path, outcome in expected.outcomes.items():
        yield from _of_task(path, tasks.get(path, {"status": "open"}), outcome)


def _of_task(path: str, task: Mapping[str, Any], outcome: TaskOutcome) -> Iterable[str]:
    status = "open" if task["status"] in ("waiting", "ready") else task["status"]
    if status not in outcome.statuses:
        yield f"{path} is {status}, not {sorted(outcome.statuses)}"
    elif status == "succeeded" and outcome.outputs is not None and outcome.outputs is not UNKNOWN:
        found = dict(task["outputs"]["parameters"])
        found |= {name: Path(each["uri"]).read_text() for name, each in task["outputs"]["artifacts"].items()}
        yield from _of_outputs(path, found, outcome.outputs)


def _of_outputs(path: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterable[str]:
    for name in sorted(found.keys() | wanted.keys()):
        if repr(found.get(name)) != repr(wanted.get(name)):  # 1 is no 1.0, and no True
            yield f"{path}: {name} is {found.get(name)!r}, not {wanted.get(name)!r}"
