"""The engine's decisions on virtual time under a deadline: never late where it was possible, whatever the market does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engine.builders import START, a_chain, a_config, a_diamond, a_plan, a_pool, a_task
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import SUCCEEDED, AttemptModel, AttemptStart, Behavior

from spotwright.engine.events import RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.graph import TaskSpec
from spotwright.model.pools import Pool, Trace

SHAPES = {"one": [a_task("t0")], "chain": a_chain(3), "diamond": a_diamond()}
LENGTH = {"one": 1, "chain": 3, "diamond": 3}
"""The tasks on the longest path."""


def works(seconds: float, *, reports: int, stops_in: float | None) -> AttemptModel:
    """Attempts that do ``seconds`` of work, and save exactly when they report; without reports they do not save."""

    def behavior(start: AttemptStart) -> Behavior:
        saved = start.saved if reports else 0.0
        left = seconds * (1.0 - saved)
        every = max(left / reports * (1 - 1e-9), 1e-9) if reports else None
        return Behavior(left, SUCCEEDED, reports, done_before=saved, checkpoint_every=every, stops_in=stops_in)

    return behavior


def run(
    tasks: Sequence[TaskSpec], pools: Sequence[Pool], model: AttemptModel, traces: dict[str, Trace], **policy: object
) -> tuple[Plan, RunState, MemoryJournal]:
    plan = a_plan(tasks, a_config(*pools, policy={"spot": "prefer", **policy}))
    journal = MemoryJournal()
    simulated = SimulatedRun("run", plan, model, journal=journal)
    state = simulate([simulated], {pool.name: pool for pool in pools}, start=START, traces=traces)["run"]
    return plan, state, journal


class Case(NamedTuple):
    """A run and its adversary. ``reports`` is 0 for unsaved work; ``boots`` are those of spot and on-demand."""

    shape: str
    work: float
    slack: float
    reports: int
    boots: tuple[float, float]
    notice: float
    grace: str
    stops_in: float | None
    gap: float
    counts: list[list[int]]


CASES = st.builds(
    Case,
    shape=st.sampled_from(sorted(SHAPES)),
    work=st.floats(1.0, 900.0),
    slack=st.sampled_from([0.0, 1.0]) | st.floats(0.0, 4000.0),
    reports=st.just(0) | st.integers(1, 12),
    boots=st.tuples(st.sampled_from([0.0, 2.0, 90.0, 900.0]), st.sampled_from([0.0, 2.0, 90.0, 900.0])),
    notice=st.sampled_from([0.0, 10.0, 120.0]),
    grace=st.sampled_from(["1s", "30s"]),
    stops_in=st.none() | st.floats(0.0, 20.0),
    gap=st.floats(3.0, 400.0),
    counts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=2),
)


@settings(deadline=None, max_examples=60)
@given(CASES)
@example(Case("one", 100.0, 132.0, 0, (2.0, 2.0), 0.0, "30s", None, 50.0, [[1, 0]]))
def test_no_run_is_late_where_on_demand_could_meet_the_deadline(case: Case) -> None:
    """The adversary gives and takes nodes of one or two spot pools; attempts may ignore SIGTERM."""
    given: dict[str, Any] = {"node": None, "notice": case.notice, "simulate": {"boot": case.boots[0]}}
    spot = [a_pool(f"spot-{number}", max_nodes=2, **given) for number in range(len(case.counts))]
    on_demand = a_pool("on-demand", spot=False, simulate={"boot": case.boots[1]}, node=None, max_nodes=9)
    deadline = LENGTH[case.shape] * (case.work + max(case.boots)) + case.slack
    policy = {"deadline": f"{deadline}s", "expected_duration": f"{case.work}s", "grace_period": case.grace}
    if case.reports:
        policy["checkpoint"] = "pvc://ckpt"
    traces = {pool.name: Trace(case.gap, tuple(each)) for pool, each in zip(spot, case.counts, strict=True)}
    model = works(case.work, reports=case.reports, stops_in=case.stops_in)
    _, state, _ = run(SHAPES[case.shape], [*spot, on_demand], model, traces, **policy)
    assert state.status is RunStatus.SUCCEEDED
    assert state.finished_at is not None
    assert state.finished_at - START <= deadline + 1e-3


def test_a_job_of_two_days_that_is_interrupt_every_hour_stays_on_spot_and_is_in_time() -> None:
    """With the built-in policy: it is interrupted thirty times and more, and each attempt makes progress."""
    pools = [a_pool("spot", node=None), a_pool("on-demand", spot=False, node=None)]
    trace = Trace(600.0, (1, 1, 1, 1, 1, 1, 0) * 300)
    model = works(48 * 3600.0, reports=1000, stops_in=1.0)
    settings = {"checkpoint": "pvc://ckpt", "deadline": "96h", "expected_duration": "48h"}
    plan, state, journal = run([a_task("t0")], pools, model, {"spot": trace}, **settings)
    attempts = state.tasks["t0"].attempts
    assert (state.status, sum(each.cause is not None and each.cause.is_interruption for each in attempts) > 10) == (
        RunStatus.SUCCEEDED,
        True,
    )
    assert (state.finished_at or 0.0) - START <= 96 * 3600.0
    replay_decisions([plan], journal.events)


@pytest.mark.parametrize("boot", [90.0, 900.0, 2400.0])
@pytest.mark.parametrize(
    "deadline", [{}, {"deadline": "3h", "expected_duration": "100s"}], ids=["no deadline", "a deadline"]
)
def test_a_boot_longer_than_the_timeout_fails_no_task(boot: float, deadline: dict[str, str]) -> None:
    pools = [
        a_pool("spot", max_nodes=0),
        a_pool("on-demand", spot=False, boot=boot, simulate={"boot": boot}, max_nodes=2),
    ]
    model = works(100.0, reports=0, stops_in=None)
    plan, state, journal = run(a_diamond(), pools, model, {}, **deadline)
    assert state.status is RunStatus.SUCCEEDED
    replay_decisions([plan], journal.events)


@pytest.mark.parametrize("saves", [True, False])
def test_a_long_run_uses_spot_learns_from_it_meets_its_deadline_and_replays(saves: bool) -> None:
    pools = [a_pool("spot", node=None), a_pool("on-demand", spot=False, node=None)]
    trace = Trace(600.0, (1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, *[1] * 30, 0, 0))
    model = works(4000.0, reports=40 if saves else 0, stops_in=1.0)
    settings = {"checkpoint": "pvc://ckpt"} if saves else {}
    plan, state, journal = run(
        a_chain(4), pools, model, {"spot": trace}, deadline="12h", expected_duration="4000s", **settings
    )
    assert state.finished_at is not None
    assert state.finished_at - START <= 12 * 3600.0
    used = [attempt.pool for task in state.tasks.values() for attempt in task.attempts]
    assert "spot" in used
    assert sum(state.sightings["spot"].counts().up.ended) > 0
    replay_decisions([plan], journal.events)
