"""Simulated runs of one long task under a deadline, on pools whose spot follows a trace."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tests.engine.builders import START, a_config, a_plan, a_pool, a_task
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import SUCCEEDED, AttemptModel, AttemptStart, Behavior

from spotwright.engine.events import AttemptHalted, Event
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.graph import TaskSpec
from spotwright.model.pools import Pool, Trace

HOUR = 3600.0


def saving(
    hours: float, *, every: float = 600.0, stops_in: float | None = 5.0, on_sigterm: bool = True
) -> AttemptModel:
    """Attempts of so many hours of work that save every ten minutes, and when they are told to stop."""

    def behavior(start: AttemptStart) -> Behavior:
        left = hours * HOUR * (1.0 - start.saved)
        reports = max(1, int(left / every))
        every_saved = max(left / reports * (1 - 1e-9), 1e-9)
        return Behavior(
            left, SUCCEEDED, reports, done_before=start.saved, stops_in=stops_in, checkpoint_every=every_saved,
            saves_on_sigterm=on_sigterm,
        )  # fmt: skip

    return behavior


class Simulated:
    """One simulated run, and what it did."""

    def __init__(
        self,
        pools: list[Pool],
        traces: dict[str, Trace],
        *,
        hours: float,
        model: AttemptModel | None = None,
        tasks: Sequence[TaskSpec] = (),
        **policy: object,
    ) -> None:
        given: dict[str, Any] = {
            "spot": "prefer",
            "checkpoint": "pvc://ckpt",
            "expected_duration": f"{hours}h",
            **policy,
        }
        policy = {name: value for name, value in given.items() if value is not None}
        self.plan: Plan = a_plan(tasks or [a_task("a")], a_config(*pools, policy=policy))
        self.journal = MemoryJournal()
        run = SimulatedRun("run", self.plan, model or saving(hours), journal=self.journal)
        self.state: RunState = simulate([run], {pool.name: pool for pool in pools}, start=START, traces=traces)["run"]

    @property
    def pools(self) -> list[str | None]:
        """The pool of each attempt of the task."""
        return [attempt.pool for attempt in self.state.tasks["a"].attempts]

    @property
    def events(self) -> list[Event]:
        return list(self.journal.events)

    @property
    def moves(self) -> list[AttemptHalted]:
        return [event for event in self.events if isinstance(event, AttemptHalted) and event.moves]

    @property
    def hours(self) -> float:
        """How long it took."""
        return ((self.state.finished_at or 0.0) - START) / HOUR


def spot(name: str = "spot", price: float = 1.0) -> Pool:
    return a_pool(name, node=None, price=Fraction(str(price)), boot=180.0, simulate={"boot": 180.0})


ON_DEMAND = a_pool("on-demand", spot=False, node=None, price=Fraction(3), boot=180.0, simulate={"boot": 180.0})


def hours_of(*counts: int) -> Trace:
    """A trace with a number of nodes for each hour."""
    return Trace(HOUR, counts)
