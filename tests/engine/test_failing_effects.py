"""Effects that a body cannot do, for a while or for good, and engines that lost their run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.engine.builders import ON_DEMAND, START, a_chain, a_config, a_plan, a_pool
from tests.engine.driving import Run, ScriptedWorld
from tests.engine.scripts import Behavior, always

from spotwright.engine.events import AttemptBound, AttemptDecided, AttemptEnded, AttemptHalted, Event, RunStatus
from spotwright.engine.loop import drive, replay_decisions
from spotwright.engine.ports import Outcome, Refused, TryAgain
from spotwright.engine.state import RunState
from spotwright.errors import Fenced
from spotwright.model.attempts import Signals
from spotwright.model.pools import Pool

CONFLICT = TryAgain(5.0, "409 Conflict")


class Flaky(ScriptedWorld):
    """A world whose first effects of a kind have these outcomes; later ones are done."""

    starts: list[Outcome]
    halts: list[Outcome]
    conclusions: list[Outcome]
    detached = False

    def start(self, state: RunState, event: AttemptBound) -> Outcome:
        return (self.starts.pop(0) if self.starts else None) or super().start(state, event)

    def halt(self, state: RunState, event: AttemptHalted) -> Outcome:
        return (self.halts.pop(0) if self.halts else None) or super().halt(state, event)

    def cleanup(self, _state: RunState, _event: AttemptDecided) -> Outcome:
        return self.conclusions.pop(0)

    def detach(self) -> None:
        self.detached = True
        super().detach()


def flaky(
    *pools: Pool,
    starts: list[Outcome] | None = None,
    halts: list[Outcome] | None = None,
    conclusions: list[Outcome] | None = None,
    seconds: float = 10.0,
    **policy: object,
) -> Run:
    """A run of one task of this many seconds; its node is ready after 2 s."""
    config = a_config(*(pools or (a_pool(), ON_DEMAND)), policy={"spot": "prefer", **policy})
    run = Run(a_plan(a_chain(1), config), always(Behavior(seconds)), world_type=Flaky)
    assert isinstance(run.world, Flaky)
    run.world.starts, run.world.halts = starts or [], halts or []
    run.world.conclusions = [*(conclusions or []), *[None] * 9]
    return run


def test_a_start_that_fails_for_a_while_is_tried_again_and_charges_nothing() -> None:
    run = flaky(starts=[CONFLICT, CONFLICT])
    assert run.start().status is RunStatus.SUCCEEDED
    assert (run.causes("t0"), run.world.now - START) == (["succeeded"], 2 + 5 + 5 + 10)
    assert run.state.tasks["t0"].spent.errors == 0


def test_a_body_that_asks_for_no_delay_does_not_keep_the_engine_busy() -> None:
    run = flaky(starts=[TryAgain(0.0, "busy")] * 3)
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.world.now - START == pytest.approx(2 + 3 * 0.05 + 10)


def test_an_attempt_that_ends_at_the_moment_of_a_second_try_is_not_started() -> None:
    run = flaky(starts=[CONFLICT])
    signals = Signals(node_gone=True, signal=9)
    run.world.schedule(START + 2 + 5, lambda at: AttemptEnded(at, "t0", 1, signals=signals))
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.causes("t0") == ["interrupted", "succeeded"]


def test_a_start_that_fails_for_ten_minutes_is_a_start_up_error() -> None:
    run = flaky(starts=[CONFLICT] * 1000)
    assert run.start().status is RunStatus.FAILED
    assert run.causes("t0") == ["start-up"]
    assert run.state.tasks["t0"].last.cause_why == "409 Conflict (for 600s)"
    assert run.world.now - START == pytest.approx(600, abs=10)


def test_a_start_that_is_refused_spends_the_error_budget() -> None:
    run = flaky(starts=[Refused("no such image"), None], errors={"retries": 1})
    assert run.start().status is RunStatus.SUCCEEDED
    assert (run.causes("t0"), run.state.tasks["t0"].spent.errors) == (["start-up", "succeeded"], 1)


def test_a_node_that_goes_before_its_attempt_could_start_is_an_interruption() -> None:
    short_lived = a_pool(max_lifetime=7.0, notice=1.0)
    run = flaky(short_lived, ON_DEMAND, starts=[TryAgain(30.0, "429 Too Many Requests")], seconds=1.0)
    assert run.start().status is RunStatus.SUCCEEDED
    assert run.causes("t0") == ["interrupted", "succeeded"]


def test_an_attempt_that_is_stopped_before_it_could_start_never_works() -> None:
    run = flaky(starts=[TryAgain(30.0, "429 Too Many Requests")])
    run.world.at(10, "cancel")
    assert run.start().status is RunStatus.CANCELLED
    assert (run.causes("t0"), run.world.now - START) == (["cancelled"], 32)


def test_a_halt_that_fails_for_a_while_is_tried_again() -> None:
    run = flaky(halts=[CONFLICT], seconds=500.0)
    run.world.at(60, "cancel")
    assert run.start().status is RunStatus.CANCELLED
    assert run.world.now - START == 60 + 5 + 1


def test_a_halt_that_is_refused_is_a_note_and_the_attempt_goes_on_to_its_end() -> None:
    run = flaky(halts=[Refused("403 Forbidden")], seconds=100.0)
    run.world.at(60, "cancel")
    assert run.start().status is RunStatus.CANCELLED
    assert run.state.notes == ["attempt 1 of t0: it could not be asked to end: 403 Forbidden"]


def test_tidying_up_that_failed_for_a_while_is_tried_again_when_the_run_ends() -> None:
    run = flaky(conclusions=[CONFLICT, None])
    assert run.start().status is RunStatus.SUCCEEDED
    assert (run.world.now - START, run.state.notes) == (2 + 10, [])
    assert isinstance(run.world, Flaky)
    assert len(run.world.conclusions) == 9  # the second try was made


def test_tidying_up_that_fails_again_when_the_run_ends_is_a_note_in_the_journal() -> None:
    run = flaky(conclusions=[CONFLICT, CONFLICT])
    assert run.start().status is RunStatus.SUCCEEDED
    text = "attempt 1 of t0: what it left could not be tidied up: 409 Conflict"
    assert run.state.notes == [text]
    assert [event.kind for event in run.events][-3:].count("note") == 1


# An engine that lost its run


class LostAt:
    """A lease that another engine takes at a moment."""

    def __init__(self, moment: float) -> None:
        self.moment = moment

    def renew(self, now: float) -> float:
        if now >= self.moment:
            raise Fenced("taken over")
        return self.moment


def drive_until_fenced(run: Run, moment: float) -> Flaky:
    assert isinstance(run.world, Flaky)
    lease = LostAt(START + moment)
    facts: Sequence[Event] = run.first_facts()
    with pytest.raises(Fenced):
        drive(run.state, run.journal, run.world, run.world.clock, facts=facts, lease=lease)
    return run.world


def test_an_engine_that_lost_its_run_leaves_its_attempts_to_the_next_engine() -> None:
    world = drive_until_fenced(flaky(seconds=500.0), moment=60)
    assert (world.now - START, world.detached) == (60, True)
    assert [key.task for key in world.attempts.live] == ["t0"]


def test_an_engine_that_lost_its_run_tries_no_effect_again() -> None:
    world = drive_until_fenced(flaky(starts=[TryAgain(30.0, "429 Too Many Requests")]), moment=32)
    assert (world.now - START, dict(world.attempts.live)) == (32, {})


@pytest.mark.parametrize("make", [
    lambda: flaky(starts=[CONFLICT]), lambda: flaky(starts=[Refused("no")], errors={"retries": 1}),
])  # fmt: skip
def test_runs_with_failing_effects_replay_from_their_journals(make: Callable[[], Run]) -> None:
    run = make()
    run.start()
    replay_decisions(run.plans, run.events)
