"""Runs of recorded Workflows, as the recorder sees them."""

from __future__ import annotations

from collections.abc import Callable

import yaml
from tests.kubeflow.flows import BEGIN, Flow
from tests.kubeflow.pipelines import POOLS, compiled, loop_over, task

from spotwright import config
from spotwright.engine.events import Event, RunCreated, RunMeta
from spotwright.engine.fold import fold
from spotwright.engine.state import RunState, TaskState
from spotwright.kfp.compiled import Compiled, sorted_json
from spotwright.kubeflow.recorder import Recorder
from spotwright.kubeflow.task_status import Node, nodes_of_workflow, seen_tasks
from spotwright.model.attempts import Cause
from spotwright.records.stored_plan import StoredPlan

Read = Callable[[Flow], list[Node]]


TASKS = {
    "train": task("train"),
    "inner": task("inner"),
    "loop": loop_over("body", "[1, 2]"),
    "maybe": task("maybe", triggerPolicy={"condition": "1 == 2"}),
    "evaluate": task("evaluate", model="train"),
}


INSIDE = {"inner": {"env": task("env")}, "body": {"env": task("env")}, "maybe": {"env": task("env")}}


class Recorded:
    """A run of the pipeline above, as it is recorded."""

    def __init__(self, read: Read, pools: str = POOLS) -> None:
        plan = StoredPlan(a_pipeline(), config.parse(pools, "spotwright.yaml"), None, {}).plan
        self.state, self.events, self._read = RunState([plan]), list[Event](), read
        self._add(RunCreated(BEGIN, meta=RunMeta(run="first", orchestrator="KFP run")))
        self.recorder = Recorder(self.state, self._add)

    def _add(self, event: Event) -> None:
        fold(self.state, event)
        self.events.append(event)

    def look(self, flow: Flow, ahead: float = 0.0) -> None:
        self.recorder.record(seen_tasks(self._read(flow)), BEGIN + 60, ahead)

    def task(self, path: str) -> TaskState:
        return self.state.tasks[path]

    def statuses(self) -> dict[str, str]:
        return {path: each.status.value for path, each in self.state.tasks.items()}

    def causes(self, path: str) -> list[Cause | None]:
        return [attempt.cause for attempt in self.task(path).attempts]


def a_pipeline() -> Compiled:
    return Compiled(sorted_json(yaml.safe_load(compiled(TASKS, INSIDE))), pipeline="digits")


def of_workflow(flow: Flow) -> list[Node]:
    return nodes_of_workflow(flow.workflow())
