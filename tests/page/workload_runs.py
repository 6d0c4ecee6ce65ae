"""Any workload whose orchestrator makes the attempts: they are adopted, wait, run on nodes that come back, and end together."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, SPOT, START, a_config
from tests.engine.scripts import FAILED, LOST, SUCCEEDED, TAKEN

from spotwright.config import Config
from spotwright.engine.decide import close_ended
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptEnded,
    AttemptRecalled,
    AttemptReleased,
    AttemptWaits,
    EngineStarted,
    Event,
    NodeChanged,
    NoticeGiven,
    NoticeWithdrawn,
    PlanExtended,
    PodStuckTerminating,
    RunCreated,
    RunMeta,
)
from spotwright.engine.fold import fold
from spotwright.engine.next_rung import Snapshot
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState, TaskState
from spotwright.manifests.pod_graph import PodTask, pod_graph

POD = {"containers": [{"name": "main", "image": "train:1"}]}
OFTEN = ["adopt", "bind", "end"]
RARELY = ["wait", "notice", "withdraw", "hold", "release", "gone", "take back", "extend"]


def a_plan_of_pods(config: Config, retries: int | None) -> Plan:
    sources = [PodTask("JobSet", f"worker-{n}", POD, retries=retries) for n in range(4)]
    return Plan(pod_graph("set", sources, config.pools), config)


class Workload:
    """A JobSet of four pods, two of which restart together and one has a second task, as its watcher records it step by step."""

    def __init__(self) -> None:
        config = a_config(SPOT, ON_DEMAND, policy={"spot": "prefer", "errors": {"retries": 2}})
        self.plans = [a_plan_of_pods(config, retries) for retries in (None, 5)]
        self.state = RunState(self.plans)
        self.events: list[Event] = []
        self.at = START
        self.tell(RunCreated(self.at, meta=RunMeta(orchestrator="JobSet")), EngineStarted(self.at, epoch=1))

    def tell(self, *events: Event) -> None:
        """Fold events and the decisions about attempts that have ended."""
        for event in events:
            fold(self.state, event)
        decided = close_ended(self.state, Snapshot(), self.at)
        for event in decided:
            fold(self.state, event)
        self.events += [*events, *decided]

    def step(self, what: str, number: int, choice: int) -> None:
        """Perform a step with one task, if that is possible now."""
        self.at += 1.5
        does: dict[str, Callable[[str, TaskState | None, int], Any]] = {
            "adopt": self._adopt, "bind": self._bind, "end": self._end, "wait": self._wait, "notice": self._notice,
            "withdraw": self._withdraw, "hold": self._hold, "release": self._release, "gone": self._gone,
            "take back": self._take_back, "extend": self._extend,
        }  # fmt: skip
        path = ("worker-0", "worker-1", "worker-2", "worker-3", "worker-3-again")[number]
        does[what](path, self.state.tasks.get(path), choice)

    def _adopt(self, path: str, task: TaskState | None, choice: int) -> None:
        number = len(task.attempts) + 1 if task else 1
        gang = f"set/{number}" if path in ("worker-0", "worker-1") else ""
        pools = ("spot",) if choice else ("spot", "on-demand")
        key = f"{path}.{number}"
        self.tell(
            AttemptAdopted(self.at, path, number, key=key, template=path.removesuffix("-again"), pools=pools, gang=gang)
        )

    def _bind(self, path: str, task: TaskState | None, choice: int) -> None:
        if task is None or not task.last.is_live or task.last.bound_at is not None:
            return
        node, pool = f"node-{choice}", "spot" if choice else "on-demand"
        if choice == 3:
            self.tell(AttemptBound(self.at, path, task.last.number, node="", pool=""))
            return
        known = self.state.nodes.get(node)
        if known is None or known.state == "gone":
            self.tell(NodeChanged(self.at, node=node, pool=pool, state="ready", offers={"cpu": 4000}))
        self.tell(AttemptBound(self.at, path, task.last.number, node=node, pool=pool))

    def _end(self, path: str, task: TaskState | None, choice: int) -> None:
        if task is not None and task.last.is_live and task.last.bound_at is not None:
            signals = [SUCCEEDED, TAKEN, FAILED, LOST][choice]
            self.tell(AttemptEnded(self.at, path, task.last.number, signals=signals, progress=0.5, first_progress=0.1))

    def _wait(self, path: str, task: TaskState | None, choice: int) -> None:
        if task is not None and task.last.is_live:
            why = ["", "Unschedulable: no room", "NodeOrdered: a node is on its way", "ImagePullBackOff"][choice]
            self.tell(AttemptWaits(self.at, path, task.last.number, why=why))

    def _notice(self, _path: str, _task: TaskState | None, choice: int) -> None:
        node = self.state.nodes.get(f"node-{choice}")
        if node is not None and node.state != "gone":
            on_it = [(each.path, a.number) for each in self.state.tasks.values() for a in each.attempts]
            on_it = [(p, n) for p, n in on_it if self.state.tasks[p].attempts[n - 1].node == node.name]
            self.tell(NoticeGiven(self.at, node=node.name, goes_at=self.at + 30, attempts=on_it, id="notice"))

    def _withdraw(self, _path: str, _task: TaskState | None, choice: int) -> None:
        if f"node-{choice}" in self.state.nodes:
            self.tell(NoticeWithdrawn(self.at, node=f"node-{choice}", id="notice"))

    def _hold(self, path: str, task: TaskState | None, choice: int) -> None:
        if task is not None and task.last.node:
            node = task.last.node if choice else ""
            self.tell(PodStuckTerminating(self.at, path, task.last.number, node=node, since=self.at - 60))

    def _release(self, path: str, task: TaskState | None, _choice: int) -> None:
        if task is not None and task.last.held is not None:
            self.tell(AttemptReleased(self.at, path, task.last.number, why="its machine is gone"))

    def _gone(self, _path: str, _task: TaskState | None, choice: int) -> None:
        node = self.state.nodes.get(f"node-{choice}")
        if node is not None and node.state != "gone":
            self.tell(NodeChanged(self.at, node=node.name, pool=node.pool, state="gone", why="taken"))

    def _take_back(self, path: str, task: TaskState | None, _choice: int) -> None:
        if task is not None and task.last.is_live and task.last.bound_at is None:
            left_out = {"spot": (self.at + 300, 1)}
            self.tell(
                AttemptRecalled(
                    self.at, path, task.last.number, rung=1, pools=("on-demand",), why="in vain", left_out=left_out
                )
            )

    def _extend(self, _path: str, _task: TaskState | None, _choice: int) -> None:
        if self.state.version == 1:
            self.tell(PlanExtended(self.at, version=2))


def a_workload(seed: int) -> Workload:
    """Eighty steps in an order that the seed decides."""
    workload, chance = Workload(), Random(seed)  # noqa: S311
    for _ in range(80):
        workload.step(chance.choice(OFTEN * 3 + RARELY), chance.randrange(5), chance.randrange(4))
    return workload


def workloads() -> st.SearchStrategy[Workload]:
    """Workloads whose steps come in any order."""
    return st.integers(0, 10**6).map(a_workload)
