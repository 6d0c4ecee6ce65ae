"""Attempts under a deadline leave on-demand for spot, and a dear spot pool for a cheaper one, where that pays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.builders import START, a_config, a_plan, a_pool, a_task
from tests.simulation.run import MemoryJournal, SimulatedRun, simulate
from tests.simulation.simulated_attempts import SUCCEEDED, AttemptModel, AttemptStart, Behavior

from spotwright.engine.events import AttemptHalted, Event, RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.engine.plan import Plan
from spotwright.engine.state import RunState
from spotwright.graph import TaskSpec
from spotwright.model.pools import Pool, Trace
from spotwright.scheduling.budgets import BudgetUse
from spotwright.supply.node_fit import uniform
from spotwright.views.account import account
from spotwright.views.account_report import money_lines
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text

HOUR = 3600.0


def saving(
    hours: float, *, every: float = 600.0, stops_in: float | None = 5.0, on_sigterm: bool = True
) -> AttemptModel:
    """Attempts of so many hours of work that save every ten minutes, and when asked to stop."""

    def behavior(start: AttemptStart) -> Behavior:
        left = hours * HOUR * (1.0 - start.saved)
        reports = max(1, int(left / every))
        every_saved = max(left / reports * (1 - 1e-9), 1e-9)
        return Behavior(
            left, SUCCEEDED, reports, done_before=start.saved, stops_in=stops_in, checkpoint_every=every_saved,
            saves_on_sigterm=on_sigterm,
        )  # fmt: skip

    return behavior


def restarting(hours: float) -> AttemptModel:
    """Attempts that do not save."""
    return lambda _start: Behavior(hours * HOUR, SUCCEEDED, stops_in=5.0)


class Simulated:
    """One simulated run, and its events."""

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


LONG: dict[str, Any] = {"hours": 40, "deadline": "56h"}
"""Work that moves to on-demand after some hours without spot, and still has slack then."""


def comes_and_goes(number: int) -> tuple[int, ...]:
    """Spells with and without a node, hours long and shorter, for 120 hours."""
    lengths = [[uniform(number, "up", turn) * 24, uniform(number, "down", turn) * 36] for turn in range(100)]
    spells = [[up] * (1 + int(length)) for pair in lengths for up, length in zip((1, 0), pair, strict=True)]
    return tuple(count for spell in spells for count in spell)[:720]


def test_an_attempt_on_on_demand_leaves_it_for_spot_when_the_pool_comes_up_and_goes_on_there() -> None:
    run = Simulated([spot(), ON_DEMAND], {"spot": hours_of(*[0] * 30, *[1] * 90)}, **LONG)
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.pools == ["on-demand", "spot"]
    [move] = run.moves
    assert 30.0 < (move.at - START) / HOUR < 30.1
    assert move.why.startswith("to spot: 2h4")
    assert "expected to save" in move.why
    assert run.state.tasks["a"].spent == BudgetUse()
    assert run.hours < 56
    replay_decisions([run.plan], run.events)


def test_a_task_that_saves_nothing_never_moves_to_spot() -> None:
    run = Simulated(
        [spot(), ON_DEMAND], {"spot": hours_of(*[0] * 30, *[1] * 90)}, **LONG, checkpoint=None, model=restarting(40)
    )
    assert run.pools == ["on-demand"]
    assert run.moves == []


@pytest.mark.parametrize("minutes", [1, 3, 6, 9, 20])
def test_a_move_to_a_pool_that_is_gone_again_costs_a_launch_and_never_the_deadline(minutes: int) -> None:
    counts = [0] * (30 * 60) + [1] * minutes
    run = Simulated([spot(), ON_DEMAND], {"spot": Trace(60.0, (*counts, *[0] * 3000))}, **LONG)
    assert run.state.status is RunStatus.SUCCEEDED
    assert len(run.moves) <= 1
    assert set(run.pools[1:]) <= {"spot", "on-demand"}
    assert run.pools[-1] == "on-demand"
    assert run.hours < 56
    replay_decisions([run.plan], run.events)


def test_an_attempt_on_a_dear_spot_pool_goes_to_a_cheaper_one_that_comes_up() -> None:
    pools = [spot("dear", 2.5), spot("cheap", 0.5), ON_DEMAND]
    run = Simulated(pools, {"cheap": hours_of(0, *[1] * 90)}, hours=20, deadline="48h")
    assert run.pools[-1] == "cheap"
    assert run.state.status is RunStatus.SUCCEEDED
    assert len(run.moves) <= 1


def test_no_attempt_leaves_a_pool_for_one_that_is_hardly_cheaper_or_for_the_rest_of_an_hour() -> None:
    pools = [spot("dear", 1.0), spot("cheap", 0.99), ON_DEMAND]
    run = Simulated(pools, {"cheap": hours_of(0, *[1] * 90)}, hours=5, deadline="48h")
    assert (run.pools, run.moves) == (["dear"], [])


def test_no_attempt_leaves_a_pool_for_one_of_the_same_price_beside_a_dear_one() -> None:
    """Half an hour of work in fifteen: the steps of the costs are nearly as long as the work."""
    pools = [spot("spot-0"), spot("spot-1"), spot("dear", 4.0), ON_DEMAND]
    run = Simulated(pools, {}, hours=0.55, model=saving(0.55, every=300.0), deadline="15.4h")
    assert (run.pools, run.moves) == (["spot-0"], [])


def test_an_attempt_that_left_a_pool_for_another_one_goes_on_there() -> None:
    """Its old place is free only once the next one is chosen: it must not wait there, and be moved again."""
    pools = [spot("dear", 2.0), spot("cheap", 0.5), spot("rare", 0.5), ON_DEMAND]
    again = 9 * 4 * 3  # the recordings go on for as long as the run
    traces = {"dear": (2, 1) * again, "cheap": (1, 1, 2, 1, 0, 1, 2, 0) * again, "rare": (0, 0, 2, 1) * again}
    run = Simulated(
        pools, {name: Trace(1200.0, counts) for name, counts in traces.items()}, hours=14.7113,
        model=saving(14.7113, every=3 * HOUR, stops_in=1.0, on_sigterm=False), deadline="28.5h",
    )  # fmt: skip
    assert run.state.status is RunStatus.SUCCEEDED
    assert 0 < len(run.moves) < 20
    for move in run.moves:
        assert run.state.tasks["a"].attempts[move.attempt].rung == (3 if move.rung is None else move.rung)


def test_a_pool_that_comes_and_goes_every_three_minutes_makes_few_moves() -> None:
    flapping = Trace(180.0, tuple([1, 0] * 1200))
    run = Simulated([spot(), ON_DEMAND], {"spot": flapping}, **LONG)
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours < 56
    assert len(run.moves) < 25


def test_two_tasks_with_deadlines_share_one_pool() -> None:
    small = a_pool("spot", node=None, max_nodes=1, price=Fraction(1), boot=180.0, simulate={"boot": 180.0})
    run = Simulated(
        [small, ON_DEMAND],
        {"spot": hours_of(*[0] * 30, *[1] * 90)},
        **LONG,
        tasks=[a_task("a"), a_task("b")],
    )
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours < 56
    replay_decisions([run.plan], run.events)


def test_eight_pools_that_come_and_go_make_few_moves_and_quick_decisions() -> None:
    pools = [spot(f"spot-{number}", 0.8 + 0.1 * number) for number in range(8)]
    traces = {pool.name: Trace(600.0, comes_and_goes(number)) for number, pool in enumerate(pools)}
    run = Simulated([*pools, ON_DEMAND], traces, hours=40, deadline="70h")
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours < 70
    assert len(run.moves) <= 10
    assert len(run.pools) <= 40


def test_show_and_the_account_say_what_moves_save_and_cost() -> None:
    run = Simulated([spot(), ON_DEMAND], {"spot": hours_of(*[0] * 30, *[1] * 90)}, **LONG)
    shown = " ".join(show_text(run_view(run.state, "run")).split())
    assert "waits for spot: 15h57m of slack, expected to save " in shown
    assert "left on-demand for spot at +30h03m: 2h44m of slack, expected to save 0." in shown
    costs = account(run.state)
    assert (costs.moves, costs.relaunches.money) == (1, Fraction(180, 3600))
    text = " ".join(" ".join(money_lines(costs)).split())
    assert "moved the deadline moved 1 attempt, and the launches after that cost 0.050 USD of boot" in text


def test_without_prices_a_move_says_how_long_on_demand_what_it_saves_would_pay() -> None:
    boots: dict[str, Any] = {"node": None, "boot": 180.0, "simulate": {"boot": 180.0}}
    pools = [a_pool("spot", **boots), a_pool("on-demand", spot=False, **boots)]
    run = Simulated(pools, {"spot": hours_of(*[0] * 30, *[1] * 90)}, **LONG)
    [move] = run.moves
    assert re.search(r"expected to save the price of [0-9ms]+ on on-demand", move.why)


class Case(NamedTuple):
    """A market with an adversary, and attempts that save rarely or often, and stop at once, late or not at all."""

    hours: float
    slack: float
    boot: float
    gap: float
    counts: list[list[int]]
    every: float
    stops_in: float | None
    saves_on_sigterm: bool


CASES = st.builds(
    Case,
    hours=st.floats(1.0, 30.0),
    slack=st.floats(0.05, 20.0),
    boot=st.sampled_from([2.0, 180.0, 540.0]),
    gap=st.floats(60.0, 4 * HOUR),
    counts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=3),
    every=st.sampled_from([300.0, 1800.0, 3 * HOUR]),
    stops_in=st.none() | st.floats(0.0, 20.0),
    saves_on_sigterm=st.booleans(),
)


@settings(deadline=None, max_examples=40)
@given(CASES)
def test_no_run_that_may_move_back_and_forth_is_late(case: Case) -> None:
    pools = [
        a_pool(f"spot-{number}", node=None, price=Fraction(1 + number, 2), boot=case.boot, simulate={"boot": case.boot})
        for number in range(len(case.counts))
    ]
    on_demand = a_pool(
        "on-demand", spot=False, node=None, price=Fraction(3), boot=case.boot, simulate={"boot": case.boot}
    )
    traces = {
        pool.name: Trace(case.gap, tuple(each) * (1 + int(80 * HOUR / case.gap / len(each))))
        for pool, each in zip(pools, case.counts, strict=True)
    }
    deadline = case.hours * HOUR + case.boot + case.slack * HOUR
    model = saving(case.hours, every=case.every, stops_in=case.stops_in, on_sigterm=case.saves_on_sigterm)
    run = Simulated([*pools, on_demand], traces, hours=case.hours, model=model, deadline=f"{deadline}s")
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.hours * HOUR <= deadline + 1e-3
