"""A task whose attempts an orchestrator makes, folded from the events that a watcher records of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.engine.builders import ON_DEMAND, SPOT, SPOT_B, START, a_config

from spotwright.cluster.attempt_lookup import NO_PLAN
from spotwright.engine.decide import close_ended
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptRecalled,
    AttemptWaits,
    Event,
    NodeChanged,
)
from spotwright.engine.fold import fold
from spotwright.engine.next_rung import Snapshot, expected_rung
from spotwright.engine.plan import Plan
from spotwright.engine.state import AttemptState, RunState, TaskState
from spotwright.manifests.pod_graph import PodTask, pod_graph
from spotwright.model.attempts import Signals
from spotwright.model.pools import Pool

POD = {"containers": [{"name": "main", "image": "train:1"}]}


class AdoptedTask:
    """A task of a Job, by its ``path``. ``history`` is what the webhook reads. Moments are in seconds after the start."""

    def __init__(self, pools: Sequence[Pool] = (SPOT, SPOT_B, ON_DEMAND), **policy: Any) -> None:
        config = a_config(*pools, policy={"spot": "prefer", **policy})
        source = PodTask("Job", "work", POD)
        plan = Plan(pod_graph("work", [source], config.pools), config, keeps_deadlines=False)  # as that of any workload
        self.state = RunState([plan])
        self.history = RunState([NO_PLAN])
        self.path = "work"

    @property
    def task(self) -> TaskState:
        """The task, once it has an attempt."""
        return self.state.tasks[self.path]

    @property
    def last(self) -> AttemptState:
        """Its newest attempt."""
        return self.task.last

    def add(self, event: Event) -> None:
        """Fold an event, and let the webhook read it."""
        fold(self.state, event)
        fold(self.history, event)

    def adopt(self, pools: tuple[str, ...], at: float = 0, *, is_open: bool = False, gang: str = "") -> None:
        """The next attempt, admitted for these pools: for all rungs, or for one."""
        number = len(self.task.attempts) + 1 if self.path in self.state.tasks else 1
        planned = self.state.plan.instance("work", "work")
        expected = expected_rung(self.state.tasks.get(self.path), planned)
        rung = next((index for index, one in enumerate(planned.ladder.rungs) if one.pools == pools), expected)
        made = AttemptAdopted(
            START + at,
            self.path,
            number,
            key=f"uid-{self.path}-{number}",
            template="work",
            rung=rung,
            pools=pools,
            is_open=is_open,
            gang=gang,
        )
        self.add(made)

    def wait(self, at: float, why: str) -> None:
        """The newest attempt waits for this reason."""
        self.add(AttemptWaits(START + at, self.path, self.last.number, why=why))

    def bind(self, pool: str, at: float) -> None:
        """The newest attempt gets a node of this pool."""
        node = f"{pool}-{at:g}"
        self.add(NodeChanged(START + at, node=node, pool=pool, state="ready", offers={}))
        self.add(AttemptBound(START + at, self.path, self.last.number, node=node, pool=pool))

    def end(self, signals: Signals, at: float) -> AttemptDecided | None:
        """The newest attempt ends; returns the decision about its task."""
        self.add(AttemptEnded(START + at, self.path, self.last.number, signals=signals))
        decisions = close_ended(self.state, Snapshot(), START + at)
        for event in decisions:
            self.add(event)
        return next((event for event in decisions if isinstance(event, AttemptDecided)), None)

    def take_back(self, decided: Event) -> None:
        """Record the decision to take the newest attempt back."""
        assert isinstance(decided, AttemptRecalled)
        self.add(decided)
