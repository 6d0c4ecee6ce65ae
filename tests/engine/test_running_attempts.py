"""Attempts that run on spot under a deadline: they are moved to on-demand at the last safe moment, and not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.engine.builders import START, a_config, a_plan, a_pool, a_task
from tests.engine.driving import Crash, CrashingJournal, Run
from tests.engine.scripts import TAKEN, Behavior, Script, always, scripted
from tests.events import data_of

from spotwright.engine.events import Event, RunStatus
from spotwright.engine.loop import replay_decisions
from spotwright.model.pools import Trace
from spotwright.scheduling.budgets import BudgetUse

ENDLESS = Behavior(10_000.0, stops_in=1.0)


def a_run(script: Script, *, deadline: str = "1000s", **settings: object) -> Run:
    """A task with 100 s of work; spot and on-demand boot in 2 s, and spot is left within its grace period of 30 s."""
    policy = {
        "spot": "prefer",
        "deadline": deadline,
        "expected_duration": "100s",
        "checkpoint": "pvc://ckpt",
        **settings,
    }
    config = a_config(policy={key: value for key, value in policy.items() if value})
    return Run(a_plan([a_task("a")], config), script)


def moves(run: Run) -> list[Event]:
    return [event for event in run.events_of("halt") if data_of(event).get("moves")]


def seconds(event: Event) -> float:
    return round(event.at - START, 3)


def test_an_attempt_that_gets_nowhere_is_moved_at_the_last_safe_moment_and_the_deadline_is_kept() -> None:
    run = a_run(scripted({"a": [ENDLESS]}, Behavior(100)))
    assert run.start().status is RunStatus.SUCCEEDED
    assert [seconds(event) for event in moves(run)] == [
        866.0
    ]  # 1000 s less 101 s of work at most, 2.5 s to boot at most, 30.5 s to leave spot
    assert run.pools("a") == ["spot", "on-demand"]
    assert run.world.now - START <= 1000


def test_a_move_is_explained_with_its_numbers() -> None:
    run = a_run(scripted({"a": [ENDLESS]}, Behavior(100)))
    run.start()
    assert data_of(moves(run)[0])["why"] == (
        "to on-demand, at the last safe moment: 1m41s of work is left, on-demand needs 2.5s more to launch and spot "
        "30s to be left, and the deadline is in 2m14s"
    )
    decided = data_of(run.events_of("decided")[0])
    assert (decided["cause"], decided["next"]) == ("disrupted", "goes on on on-demand; the move spends no budget")
    assert decided["why"].startswith("it was moved: to on-demand, at the last safe moment")


def test_a_move_goes_to_the_on_demand_pool_that_has_room_and_the_deadline_is_kept() -> None:
    policy = {"spot": "prefer", "deadline": "1000s", "expected_duration": "100s", "checkpoint": "pvc://ckpt"}
    pools = [a_pool(), a_pool("full", spot=False), a_pool("with-room", spot=False)]
    script = scripted({"a": [ENDLESS]}, Behavior(100))
    run = Run(a_plan([a_task("a")], a_config(*pools, policy=policy)), script, traces={"full": Trace(10_000.0, (0,))})
    run.start()
    assert [seconds(event) for event in moves(run)] == [866.0]
    assert run.pools("a") == ["spot", "with-room"]
    assert run.world.now - START <= 1000


def test_a_move_spends_no_budget() -> None:
    run = a_run(scripted({"a": [ENDLESS]}, Behavior(100)))
    assert run.start().tasks["a"].spent == BudgetUse()


def test_reported_progress_that_is_saved_puts_the_last_moment_off() -> None:
    run = a_run(always(Behavior(960.0, reports=96)), deadline="1050s")
    run.start()
    assert (run.pools("a"), moves(run), run.causes("a")) == (["spot"], [], ["succeeded"])


def test_progress_that_is_not_saved_does_not() -> None:
    """All 960 s that the work is seen to take would have to be done again."""
    run = a_run(scripted({"a": [Behavior(960.0, reports=96, stops_in=1.0)]}, Behavior(100)), checkpoint=None)
    run.start()
    assert [seconds(event) for event in moves(run)] == [22.0]
    assert run.world.now - START <= 1000


@pytest.mark.parametrize(("first", "saves"), [(0.1, False), (0.5, True)])
def test_without_a_checkpoint_work_is_saved_only_if_a_later_attempt_reports_more_than_it_can_have_done(
    first: float, saves: bool
) -> None:
    """The second attempt reports first after 10 s of 100 s of work: what it has done alone, or much more."""
    second = Behavior(100.0, reports=10) if first == 0.1 else Behavior(60.0, reports=6, done_before=0.4)
    run = a_run(scripted({"a": [Behavior(5.0, TAKEN), second]}), checkpoint=None)
    run.start()
    assert run.pools("a") == ["spot", "spot"]
    assert run.state.tasks["a"].goes_on == saves


def test_an_attempt_that_reports_too_rarely_is_moved_although_it_works() -> None:
    """The rule knows what is saved, not what will be."""
    run = a_run(scripted({"a": [Behavior(130.0, reports=1, stops_in=1.0)]}, Behavior(100)), deadline="150s")
    run.start()
    assert [seconds(event) for event in moves(run)] == [16.0]
    assert run.world.now - START <= 150


def test_an_attempt_that_ignores_its_end_is_killed_after_its_grace_period_and_the_deadline_is_kept() -> None:
    run = a_run(scripted({"a": [Behavior(10_000.0)]}, Behavior(100)))
    run.start()
    assert (run.causes("a"), run.world.now - START) == (["disrupted", "succeeded"], 998.0)


def test_an_attempt_that_finishes_while_it_leaves_counts() -> None:
    run = a_run(scripted({"a": [Behavior(880.0)]}))
    run.start()
    assert (run.causes("a"), len(moves(run))) == (["succeeded"], 1)


def test_a_node_that_is_taken_while_the_attempt_leaves_is_an_interruption() -> None:
    run = a_run(scripted({"a": [Behavior(880.0, TAKEN)]}, Behavior(100)))
    run.start()
    assert (run.causes("a"), run.pools("a")) == (["interrupted", "succeeded"], ["spot", "on-demand"])


def test_an_attempt_that_a_move_could_not_save_any_more_stays() -> None:
    """Another task has shown meanwhile that on-demand takes ten minutes to boot: spot can still keep the deadline."""
    slow = a_pool("on-demand", spot=False, boot=2.0, simulate={"boot": 600.0})
    tasks = {
        "a": {"deadline": "1000s", "expected_duration": "100s", "checkpoint": "pvc://ckpt"},
        "b": {"spot": "never"},
    }
    run = Run(a_plan([a_task("a"), a_task("b")], a_config(a_pool(), slow, tasks=tasks)), always(Behavior(990.0)))
    run.start()
    assert data_of(run.events_of("kept")[-1])["why"].startswith(
        "stays on spot: on-demand could not finish in time any more; 1m41s of work is left, on-demand needs 12m30s"
    )
    assert (run.pools("a"), moves(run)) == (["spot"], [])


def test_an_attempt_under_a_deadline_is_looked_at_a_bounded_number_of_times() -> None:
    run = a_run(always(Behavior(140.0, reports=1400)), deadline="150s")
    run.start()
    assert len(run.events_of("kept")) < 500


def test_a_run_that_moves_an_attempt_replays() -> None:
    run = a_run(scripted({"a": [Behavior(50, TAKEN), ENDLESS]}, Behavior(100)))
    run.start()
    assert moves(run)
    replay_decisions(run.plans, run.events)


@pytest.mark.parametrize("append", range(2, 9))
@pytest.mark.parametrize("before", [True, False])
def test_a_move_survives_a_crash_of_the_engine(append: int, before: bool) -> None:
    run = a_run(scripted({"a": [ENDLESS]}, Behavior(100)))
    run.start_with_crashes([(append, before)])
    assert (run.state.status, run.state.tasks["a"].spent.errors) == (RunStatus.SUCCEEDED, 0)
    assert run.world.now - START <= 1000


# From on-demand to spot, because it costs less

HOURS = 3600.0


def a_long_run(*attempts: Behavior, then: Behavior) -> Run:
    """40 h of work in 56 h: it goes to on-demand after hours without spot, which comes back at 30 h."""
    policy = {"spot": "prefer", "deadline": "56h", "expected_duration": "40h", "checkpoint": "pvc://ckpt"}
    config = a_config(a_pool(node=None), a_pool("on-demand", spot=False, node=None), policy=policy)
    traces = {"spot": Trace(HOURS, (*[0] * 30, *[1] * 60))}
    return Run(a_plan([a_task("a")], config), scripted({"a": list(attempts)}, then), traces=traces)


ON_DEMAND_ATTEMPT = Behavior(40 * HOURS, reports=400, stops_in=1.0, checkpoint_every=360.0)
REST = Behavior(22 * HOURS, reports=200, stops_in=1.0, done_before=0.45)


@pytest.mark.parametrize("on", ["halt", "ended", "decided", "placed", "bound"])
@pytest.mark.parametrize("before", [True, False])
def test_an_engine_killed_around_a_move_to_spot_is_followed_by_one_that_goes_on_in_time(on: str, before: bool) -> None:
    run = a_long_run(ON_DEMAND_ATTEMPT, then=REST)
    count = {"halt": 1, "ended": 1, "decided": 1, "placed": 2, "bound": 2}[on]
    run.journal = CrashingJournal()
    kinds: list[str] = []

    def crash_after(_state: object, events: Sequence[Event]) -> None:
        kinds.extend(event.kind for event in events)
        if count == 1 or kinds.count(on) == count - 1:
            run.journal.crash_on, run.journal.before = on, before

    if count == 1:
        run.journal.crash_on, run.journal.before = on, before
    run.observers = [crash_after] if count > 1 else []
    with pytest.raises(Crash):
        run.start()
    run.observers = []
    run.traces = {"spot": Trace(HOURS, (1,) * 60)}  # a new world begins its traces anew
    run.resume()
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.pools("a")[-1] == "spot"
    assert run.state.tasks["a"].spent.errors == 0
    assert run.world.now - START <= 56 * HOURS


@pytest.mark.parametrize("hours", [-3.0, 0.0, 0.25])  # there are 24 minutes of slack then
def test_a_clock_that_jumps_keeps_no_attempt_from_a_move_and_makes_no_run_late(hours: float) -> None:
    """The next engine finds another time: the world begins its traces anew, and spot comes up an hour later."""
    run = a_long_run(then=REST)
    saves: dict[str, Any] = {"stops_in": 1.0, "checkpoint_every": 360.0, "reports": 400}

    def from_its_checkpoint(path: str, _number: int) -> Behavior:
        saved = run.storage.saved.get(path, 0.0)
        return Behavior(40 * HOURS * (1.0 - saved), done_before=saved, **saves)

    run.script = from_its_checkpoint
    run.journal = CrashingJournal(crash_at=260)
    with pytest.raises(Crash):
        run.start()
    run.storage.saved["a"] = run.state.tasks["a"].last.progress or 0.0
    run.traces = {"spot": Trace(HOURS, (0, *[1] * 60))}
    run.resume(after=hours * HOURS)
    assert run.state.status is RunStatus.SUCCEEDED
    assert run.pools("a")[0] == "on-demand"
    assert run.world.now - START <= 56 * HOURS


def test_an_attempt_that_takes_longer_to_save_than_its_grace_is_killed_and_its_run_is_in_time() -> None:
    run = a_long_run(Behavior(40 * HOURS, reports=400), then=REST)
    run.start()
    assert run.pools("a") == ["on-demand", "spot"]
    [move] = moves(run)
    [ended] = [event for event in run.events_of("ended") if event.attempt == 1]
    assert ended.at - move.at == 30.0  # its grace period
    assert run.world.now - START <= 56 * HOURS
