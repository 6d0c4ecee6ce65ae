"""Under a deadline, markets and kills of the engine that are drawn: no run is late that on-demand could have met.

Nobody can make up for a kill that nobody could foresee, so a run is judged where on-demand was possible in time at its start and
each time an engine took it up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, assume, example, given, seed, settings
from hypothesis import strategies as st
from tests.engine.builders import a_config, a_plan, a_pool, a_task
from tests.engine.driving import Crash, CrashingJournal
from tests.simulation.handover import Handover
from tests.simulation.simulated_attempts import SUCCEEDED, AttemptModel, AttemptStart, Behavior

from spotwright.engine.events import Event, RunStatus
from spotwright.engine.fold import replay
from spotwright.engine.loop import replay_decisions
from spotwright.engine.state import RunState
from spotwright.model.pools import Trace

HOUR = 3600.0
MOST_EVENTS = 30_000
WORK, LAUNCH, LEAVES = 1.02, 1.25, 0.5
"""What the engine may leave free: 2 % of work that was measured briefly, a quarter of a launch, half a second after a grace."""


class SpotPool(NamedTuple):
    """The price of a spot pool, and its nodes in each step of its trace."""

    price: Fraction
    counts: list[int]


class Kill(NamedTuple):
    """An engine dies before or after it has committed an event: the first one of a kind, or with the commit of this number.

    Then there is no engine for ``away`` seconds. The attempts go on meanwhile, or end with their engine (``adopts``).
    """

    at: int | str
    before: bool
    away: float
    adopts: bool


class Case(NamedTuple):
    """A run and its adversary. ``every`` is the work between two saves, ``None`` for unsaved work."""

    hours: float
    slack: float
    boot: float
    grace: float
    every: float | None
    stops_in: float | None
    saves_on_sigterm: bool
    notice: float
    gap: float
    pools: list[SpotPool]
    kills: list[Kill]

    @property
    def work(self) -> float:
        return self.hours * HOUR

    @property
    def deadline(self) -> float:
        return self.work + self.boot + self.slack

    def behaves(self) -> AttemptModel:
        """Attempts that go on at the last save; each report is one."""

        def behavior(start: AttemptStart) -> Behavior:
            if self.every is None:
                return Behavior(self.work, SUCCEEDED, reports=10, stops_in=self.stops_in)
            left = self.work * (1.0 - start.saved)
            reports = max(1, int(left / self.every))
            every = max(left / reports * (1 - 1e-9), 1e-9)
            return Behavior(
                left, SUCCEEDED, reports, done_before=start.saved, checkpoint_every=every, stops_in=self.stops_in,
                saves_on_sigterm=self.saves_on_sigterm,
            )  # fmt: skip

        return behavior


MINUTES = st.floats(0.0, 600.0)
KILLS = st.builds(
    Kill,
    at=st.sampled_from(["placed", "bound", "halt", "ended", "decided", "notice"]) | st.integers(1, 120),
    before=st.booleans(),
    away=st.sampled_from([0.0, 5.0]) | MINUTES,
    adopts=st.sampled_from([True, True, False]),
)


def cases(every: st.SearchStrategy[float | None]) -> st.SearchStrategy[Case]:
    """Cases with this work between two saves."""
    return st.builds(
        Case,
        hours=st.floats(0.1, 24.0),
        slack=st.sampled_from([0.0, 1.0]) | st.floats(0.0, HOUR) | st.floats(0.0, 20 * HOUR),
        boot=st.sampled_from([2.0, 180.0, 540.0]),
        grace=st.sampled_from([1.0, 30.0, 120.0]),
        every=every,
        stops_in=st.none() | st.floats(0.0, 40.0),
        saves_on_sigterm=st.booleans(),
        notice=st.sampled_from([0.0, 30.0, 120.0]),
        gap=st.floats(60.0, 4 * HOUR),
        pools=st.lists(
            st.builds(
                SpotPool,
                st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)]),
                st.lists(st.integers(0, 2), min_size=1, max_size=30),
            ),
            min_size=1,
            max_size=4,
        ),
        kills=st.lists(KILLS, max_size=2),
    )


CASES_OF = {True: cases(st.sampled_from([300.0, 1800.0, 3 * HOUR])), False: cases(st.none())}
CASES = CASES_OF[True] | CASES_OF[False]


class ShortJournal(CrashingJournal):
    """A journal that notices a run which never ends: its attempts go to and fro at one moment."""

    def append(self, events: Sequence[Event]) -> None:
        super().append(events)
        assert len(self.events) < MOST_EVENTS


class Killed:
    """A run of a case, driven to its end by one engine after another."""

    def __init__(self, case: Case) -> None:
        self.case = case
        given: dict[str, Any] = {"node": None, "boot": case.boot, "simulate": {"boot": case.boot}}
        pools = [
            a_pool(f"spot-{number}", price=price, notice=case.notice, **given)
            for number, (price, _) in enumerate(case.pools)
        ]
        on_demand = a_pool("on-demand", spot=False, price=Fraction(3), **given)
        policy = {
            "spot": "prefer", "expected_duration": f"{case.work}s",
            "deadline": f"{case.deadline}s", "grace_period": f"{case.grace}s"
        }  # fmt: skip
        if case.every is not None:
            policy["checkpoint"] = "pvc://ckpt"
        plan = a_plan([a_task("a")], a_config(*pools, on_demand, policy=policy))
        traces = {f"spot-{number}": Trace(case.gap, tuple(counts)) for number, (_, counts) in enumerate(case.pools)}
        self.run = Handover(plan, case.behaves(), traces=traces)
        self.run.journal = ShortJournal()
        self.possible = True
        self.state = self._drive()

    def _drive(self) -> RunState:
        journal = self.run.journal
        for kill in self.case.kills:
            journal.crash_at = journal.batches + kill.at if isinstance(kill.at, int) else None
            journal.crash_on, journal.before = kill.at if isinstance(kill.at, str) else "", kill.before
            try:
                return self.run.drive()
            except Crash:
                self.run.pass_time(self.run.cluster.clock.now + kill.away)
                self.run.adopts = kill.adopts
                self.possible = self.possible and self._is_possible()
        journal.crash_at, journal.crash_on = None, ""
        return self.run.drive()

    def _is_possible(self) -> bool:
        """Whether on-demand can finish in time from now on, as the attempt that runs there or after a launch."""
        case, attempts = self.case, self.run.attempts
        state = replay([self.run.plan], self.run.journal.events)
        started = next((event.at for event in self.run.journal.events if event.kind == "created"), None)
        if started is None:
            return True  # there is no run yet
        now, last = self.run.cluster.clock.now, state.tasks["a"].last if state.tasks["a"].attempts else None
        time = started + case.deadline - now
        if any(record.signals == SUCCEEDED for record in attempts.storage.records.values()):
            return time >= 0.0
        saved, leaves = attempts.storage.saved.get("a", 0.0), 0.0
        for live in attempts.live.values():
            since = now - (last.bound_at if last is not None and last.bound_at is not None else now)
            saved = live.saved(since, by_sigterm=False)
            if self.run.adopts:
                leaves = case.grace + LEAVES
                if last is not None and last.pool == "on-demand" and not last.moving and time >= live.seconds - since:
                    return True
        return time >= leaves + case.boot * LAUNCH + case.work * (1.0 - saved) * WORK


def in_time(case: Case) -> Handover:
    """Check that the run of a case is in time where it is judged."""
    killed = Killed(case)
    assert killed.state.status is RunStatus.SUCCEEDED, killed.state.why
    assume(killed.possible)
    started = killed.run.journal.events[0].at
    assert (killed.state.finished_at or 0.0) - started <= case.deadline + 1e-3
    return killed.run


SHORT_SPELLS, NO_SPOT = [SpotPool(Fraction(1, 2), [1, 0])], [SpotPool(Fraction(1, 2), [0])]
UNTIL_TOO_LATE = [Kill("bound", True, 182.0, True), Kill("bound", True, 183.0, True)]


@settings(max_examples=40)
@given(CASES)
@example(Case(1.0, 4765.0, 2.0, 1.0, None, None, False, 0.0, 60.0, SHORT_SPELLS, []))
@example(Case(1.0, 3677.0, 2.0, 1.0, None, None, False, 30.0, 60.0, SHORT_SPELLS, [Kill("placed", True, 5.0, True)]))
@example(Case(0.1011, 0.0, 2.0, 1.0, 300.0, None, False, 0.0, 60.0, NO_SPOT, UNTIL_TOO_LATE))
def test_no_drawn_market_and_no_drawn_kill_makes_a_run_late_that_on_demand_could_have_met(case: Case) -> None:
    run = in_time(case)
    replay_decisions([run.plan], run.journal.events)


PARTS = [*range(4), *(pytest.param(part, marks=pytest.mark.many) for part in range(4, 20))]
"""Parts of 500 cases each, so that processes share them and each is done in a minute; most of them are for ``-m many``."""


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_no_market_and_no_kill_of_ten_thousand_makes_a_run_late_that_on_demand_could_have_met(part: int) -> None:
    """To explain a failure, all cases would be traced."""

    @seed(part)
    @settings(max_examples=500, phases=[Phase.generate, Phase.shrink])
    @given(CASES_OF[part % 2 == 0])
    def check(case: Case) -> None:
        in_time(case)

    check()
