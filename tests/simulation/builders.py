"""Builders of simulated runs, driven to their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.engine.builders import a_chain, a_config, a_plan, a_pool
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import AttemptModel, Outputs, TaskWork, WorkModel
from tests.simulation.simulated_cluster import Drains

from spotwright.engine.events import Event
from spotwright.engine.io_resolution import Inputs
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState, TaskState
from spotwright.graph import TaskSpec
from spotwright.model.pools import Pool, Trace


def one_output(_task: TaskState, _inputs: Inputs) -> Outputs:
    """The output ``out`` that tasks of the builders read of each other."""
    return Outputs({"out": 1}, {})


def working(seconds: float, seed: int = 0, **more: Any) -> WorkModel:
    """Tasks that all work so long."""
    return WorkModel(lambda _path: TaskWork(seconds, **more), seed)


@dataclass
class Simulation:
    """Runs on the pools of one configuration."""

    pools: Sequence[Pool] = field(default_factory=lambda: [a_pool()])
    policy: Mapping[str, Any] = field(default_factory=lambda: {"spot": "require", "pending_timeout": "30d"})
    seed: int = 0
    scale: float = 1.0
    traces: Mapping[str, Trace] = field(default_factory=dict)
    drains: Drains | None = None
    horizon: float = 1e7

    def __post_init__(self) -> None:
        self.config = a_config(*self.pools, policy=self.policy)
        self.runs: list[SimulatedRun] = []

    def add(
        self, model: AttemptModel, tasks: Sequence[TaskSpec] | None = None, plan: Plan | None = None, **more: Any
    ) -> Simulation:
        """Add a run of these tasks, by default one task ``t0``."""
        name = more.pop("name", f"run-{len(self.runs) + 1}")
        plan = plan or a_plan(tasks if tasks is not None else a_chain(1), self.config)
        self.runs.append(SimulatedRun(name, plan, model, make_outputs=one_output, **more))
        return self

    def drive(self) -> list[RunState]:
        states = simulate(
            self.runs,
            self.config.pools,
            seed=self.seed,
            scale=self.scale,
            traces=self.traces,
            drains=self.drains,
            horizon=self.horizon,
        )
        assert list(states) == [run.name for run in self.runs]
        return list(states.values())

    def events(self, run: int = 0) -> list[Event]:
        journal = self.runs[run].journal
        assert isinstance(journal, MemoryJournal)
        return journal.events


def causes(state: RunState, path: str = "t0") -> list[str]:
    """Why each attempt of a task ended, in order."""
    return [str(attempt.cause) for attempt in state.tasks[path].attempts]
