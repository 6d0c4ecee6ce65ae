"""Where the run of a drawn pipeline differs from what was reckoned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.reckoned import UNKNOWN, Fate, Reckoned, plain
from tests.conformance.running import Ran

__all__ = ["differences"]

_BRANCHES = re.compile(r"condition-branches-\d+")


def differences(ran: Ran, expected: Reckoned) -> list[str]:
    """What a run came to that it must not, task by task; empty where all is well."""
    return [*_of_tasks(ran, expected), *_of_run(ran, expected)]


def _of_run(ran: Ran, expected: Reckoned) -> Iterable[str]:
    if (ran.view["status"] == "succeeded") != expected.succeeds:
        yield f"the run has {ran.view['status']}"
    elif expected.succeeds and expected.outputs:
        yield from _of_outputs("the run", plain(ran.outputs), plain(expected.outputs))


def _of_tasks(ran: Ran, expected: Reckoned) -> Iterable[str]:
    tasks = {_BRANCHES.sub("*", task["path"]): task for task in ran.view["tasks"]}
    for path in tasks.keys() - expected.fates.keys() - {p for p in tasks if p.rsplit("/", 1)[-1].startswith("*")}:
        if tasks[path]["status"] not in ("waiting", "ready"):
            yield f"{path} has {tasks[path]['status']}, nobody expected it"
    for path, fate in expected.fates.items():
        yield from _of_task(path, tasks.get(path, {"status": "open"}), fate)


def _of_task(path: str, task: Mapping[str, Any], fate: Fate) -> Iterable[str]:
    status = "open" if task["status"] in ("waiting", "ready") else task["status"]
    if status not in fate.statuses:
        yield f"{path} is {status}, not {sorted(fate.statuses)}"
    elif status == "succeeded" and fate.outputs is not None and fate.outputs is not UNKNOWN:
        found = dict(task["outputs"]["parameters"])
        found |= {name: Path(each["uri"]).read_text() for name, each in task["outputs"]["artifacts"].items()}
        yield from _of_outputs(path, found, fate.outputs)


def _of_outputs(path: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterable[str]:
    for name in sorted(found.keys() | wanted.keys()):
        if repr(found.get(name)) != repr(wanted.get(name)):  # 1 is no 1.0, and no True
            yield f"{path}: {name} is {found.get(name)!r}, not {wanted.get(name)!r}"
