"""The cost of interruptions, with redone work measured by the most reliable source, and the verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rehearsal.interrupted_points import INTERRUPTED, NOT_INTERRUPTED, POINT, attempt, succeeded, trial

from spotwright.rehearsal.attempt_trace import AttemptTrace
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import AtShare, FileActivity, Injection, InjectionKind, InjectionPoint
from spotwright.rehearsal.loaded_saves import Origin, Resume
from spotwright.rehearsal.report import outcome_text
from spotwright.rehearsal.trial_timing import LIMIT_FACTOR, LIMIT_SECONDS
from spotwright.rehearsal.trials import TrialAttempt, TrialRun
from spotwright.rehearsal.verdict import (
    MIN_KEPT_SHARE,
    Baseline,
    InterruptionCost,
    MeasuredBy,
    PointOutcome,
    StepReport,
    Verdict,
    cost_of,
    most_reliable,
    verdict_of,
)

SAVES_REGULARLY = Baseline(1.0, save_times=tuple(number / 10 for number in range(1, 10)), traced_seconds=1.0)


def interrupted(seconds: float, **progress: float) -> TrialAttempt:
    return attempt(1, seconds, "interrupted", progress.get("first"), progress.get("last"))


def measured(one: TrialRun, baseline: Baseline) -> InterruptionCost:
    cost = cost_of(one, baseline)
    assert cost is not None
    return cost


def test_a_trial_without_interruption_has_no_cost() -> None:
    assert cost_of(trial(succeeded(1.0)), Baseline(1.0)) is None


def test_the_extra_time_is_the_time_beyond_the_undisturbed_one() -> None:
    assert measured(trial(interrupted(0.6), succeeded(0.7)), Baseline(1.0)).extra_seconds == pytest.approx(0.3)


def test_by_progress_the_redone_work_is_the_gap_between_last_and_first_report() -> None:
    cost = measured(trial(interrupted(9.0, first=0.0, last=0.6), succeeded(9.0, first=0.5)), Baseline(1.0, 0.0, 1.0))

    assert cost.measured_by is MeasuredBy.PROGRESS
    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.6, 0.1))


def test_by_saves_an_attempt_that_makes_only_the_remaining_ones_resumes() -> None:
    cost = measured(trial(interrupted(0.55), succeeded(9.0), saves=(5, 4)), SAVES_REGULARLY)

    assert cost.measured_by is MeasuredBy.SAVES
    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.55, 0.05))


def test_by_saves_an_attempt_that_makes_all_of_them_starts_over() -> None:
    cost = measured(trial(interrupted(0.55), succeeded(9.0), saves=(5, 9)), SAVES_REGULARLY)

    assert cost.redone_work == cost.interrupted_work


def test_by_saves_work_after_the_last_save_counts_as_redone() -> None:
    download = Baseline(1.0, save_times=(0.01, 0.02), traced_seconds=1.0)

    cost = measured(trial(interrupted(0.8), succeeded(9.0), saves=(2, 0)), download)

    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.8, 0.78))


def test_without_progress_and_saves_redone_work_is_measured_by_processor_time() -> None:
    attempts = replace(interrupted(60.0), cpu_seconds=3.0), replace(succeeded(60.0), cpu_seconds=4.0)
    connected = replace(trial(*attempts), traces={"t": (AttemptTrace(connections=("db:5432",)),) * 2})

    cost = measured(connected, Baseline(8.0, cpu_seconds=5.0))

    assert cost.measured_by is MeasuredBy.TIME
    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((3.0, 2.0))


def test_a_step_of_which_nothing_outlives_an_attempt_redoes_everything_however_long_it_takes() -> None:
    bare = replace(trial(interrupted(0.6), succeeded(0.1)), traces={"t": (AttemptTrace(), AttemptTrace())})

    cost = measured(bare, Baseline(1.0))

    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.6, 0.6))


def untraced(*attempts: TrialAttempt, saves: tuple[int, ...] = ()) -> TrialRun:
    """The same trial, whose last attempt could not be traced."""
    one = trial(*attempts, saves=saves)
    return replace(one, traces={"t": (*one.traces["t"][:1], AttemptTrace(failure="ptrace is refused"))})


def test_an_attempt_that_was_not_traced_is_not_taken_for_one_that_made_no_saves() -> None:
    long = replace(SAVES_REGULARLY, seconds=10.0, cpu_seconds=10.0)

    assert measured(untraced(interrupted(5.5), succeeded(9.0), saves=(5, 0)), long).measured_by is MeasuredBy.TIME


@pytest.mark.parametrize(("cpu_seconds", "source"), [(0.9, MeasuredBy.NOTHING), (1.0, MeasuredBy.TIME)])
def test_without_trace_and_progress_only_a_second_of_a_processor_measures(
    cpu_seconds: float, source: MeasuredBy
) -> None:
    cost = measured(untraced(interrupted(6.0), succeeded(7.0)), Baseline(9.0, cpu_seconds=cpu_seconds))

    assert cost.measured_by is source
    assert cost.extra_seconds == pytest.approx(4.0)


def test_without_trace_progress_measures_as_ever() -> None:
    cost = measured(untraced(interrupted(9.0, first=0.0, last=0.6), succeeded(9.0, first=0.5)), Baseline(0.5, 0.0, 1.0))

    assert cost.measured_by is MeasuredBy.PROGRESS


def test_costs_by_the_most_reliable_source_count() -> None:
    by_progress, by_time = (
        InterruptionCost(1, 0.0, 1.0, 0.0, MeasuredBy.PROGRESS),
        InterruptionCost(1, 0.0, 1.0, 1.0, MeasuredBy.TIME),
    )

    assert most_reliable([by_time, by_progress]) == [by_progress]


def test_a_point_that_waited_for_an_attempt_that_was_not_traced_does_not_say_that_the_step_finished_before() -> None:
    trial = replace(NOT_INTERRUPTED, traces={"t": (AttemptTrace(failure="ptrace is refused"),)})

    assert outcome_text(PointOutcome(POINT, trial)).endswith(
        "not interrupted, because it was not traced: ptrace is refused"
    )
    assert outcome_text(PointOutcome(POINT, NOT_INTERRUPTED)).endswith("the step finished before the interruption")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([{"cost": InterruptionCost(1, 0.1, 1.0, 0.1, MeasuredBy.TIME), "trial": INTERRUPTED}], Verdict.RESUMES),
        ([{"cost": InterruptionCost(1, 1.0, 1.0, 1.0, MeasuredBy.TIME), "trial": INTERRUPTED}], Verdict.STARTS_OVER),
        ([{"cost": InterruptionCost(1, 0.1, 0.0, 0.0, MeasuredBy.NOTHING), "trial": INTERRUPTED}], Verdict.SAFE),
        (
            [
                {"cost": InterruptionCost(1, 0.1, 0.0, 0.0, MeasuredBy.NOTHING), "trial": INTERRUPTED},
                {"cost": InterruptionCost(1, 0.1, 1.0, 0.1, MeasuredBy.PROGRESS), "trial": INTERRUPTED},
            ],
            Verdict.RESUMES,
        ),
        ([{}], Verdict.UNDECIDED),
        ([{"trial": INTERRUPTED}], Verdict.STARTS_OVER),
        (
            [
                {"problem": "it hangs", "never_finishes": True, "trial": INTERRUPTED},
                {"cost": InterruptionCost(1, 0.1, 1.0, 0.1, MeasuredBy.TIME)},
            ],
            Verdict.NEVER_FINISHES,
        ),
        (
            [
                {"problem": "it hangs", "never_finishes": True, "trial": INTERRUPTED},
                {"problem": "other", "trial": INTERRUPTED},
            ],
            Verdict.UNSAFE,
        ),
        (
            [
                {"problem": "no data", "trial": NOT_INTERRUPTED},
                {"cost": InterruptionCost(1, 0.1, 1.0, 0.1, MeasuredBy.TIME)},
            ],
            Verdict.FAILS,
        ),
    ],
)
def test_the_verdict_is_the_worst_outcome(outcomes: list[dict[str, Any]], verdict: Verdict) -> None:
    step = StepReport("t", (1.0,), outcomes=tuple(PointOutcome(POINT, **each) for each in outcomes))

    assert step.verdict is verdict


def test_a_step_that_fails_undisturbed_has_the_verdict_fails() -> None:
    assert StepReport("t", (), undisturbed_failure="no data").verdict is Verdict.FAILS


def test_the_cost_per_interruption_is_the_mean() -> None:
    costs = [InterruptionCost(1, 0.3, 1, 0, MeasuredBy.TIME), InterruptionCost(3, 0.5, 1, 0, MeasuredBy.TIME)]
    step = StepReport("t", (1.0,), outcomes=tuple(PointOutcome(POINT, cost=cost) for cost in costs))

    assert step.cost_per_interruption == pytest.approx(0.2)


@pytest.mark.parametrize("page", ["explanation/rehearsal.md", "how-to/rehearse.md"])
def test_both_pages_name_the_thresholds_of_the_code(page: str) -> None:
    words = {2.0: "twice", 5.0: "five", 0.25: "a quarter"}
    text = " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split())

    limit = f"more than {words[LIMIT_FACTOR]} the undisturbed time plus {words[LIMIT_SECONDS]} seconds"
    assert limit in text
    assert f"at least {words[MIN_KEPT_SHARE]} of the interrupted work is kept" in text


@pytest.mark.parametrize(
    ("unannounced", "announced", "verdict"),
    [
        (0.1, 0.1, Verdict.RESUMES),
        (0.1, 1.0, Verdict.RESUMES),
        (1.0, 0.1, Verdict.RESUMES_WITH_NOTICE),
        (1.0, 1.0, Verdict.STARTS_OVER),
    ],
)
def test_a_step_resumes_if_it_keeps_work_without_a_notice(
    unannounced: float, announced: float, verdict: Verdict
) -> None:
    outcomes = [
        PointOutcome(
            InjectionPoint("middle", InjectionKind.MIDDLE, (Injection(InjectionKind.MIDDLE, AtShare(0.5), notice),)),
            trial=INTERRUPTED,
            cost=InterruptionCost(1, 0.1, 1.0, redone, MeasuredBy.PROGRESS),
        )
        for notice, redone in ((False, unannounced), (True, announced))
    ]

    assert StepReport("t", (1.0,), outcomes=tuple(outcomes)).verdict is verdict


@pytest.mark.parametrize(("redone", "again", "verdict"), [(0.5, 20, Verdict.STARTS_OVER), (0.9, 1, Verdict.RESUMES)])
def test_where_saves_are_counted_seconds_do_not_decide(redone: float, again: int, verdict: Verdict) -> None:
    cost = InterruptionCost(1, 0.1, 1.0, redone, MeasuredBy.SAVES, saved=21, saved_again=again)
    outcome = PointOutcome(
        InjectionPoint("middle", InjectionKind.MIDDLE, (Injection(InjectionKind.MIDDLE, AtShare(0.5)),)),
        trial=INTERRUPTED,
        cost=cost,
    )

    assert StepReport("t", (1.0,), outcomes=(outcome,)).verdict is verdict


def resume(origin: Origin, saved: int = 5, redone: int = 0) -> Resume:
    loaded = () if origin is Origin.NOTHING else ("ck-3",)
    return Resume(2, ("ck-5",), loaded, 0 if origin is Origin.NEWEST else 2, 3, saved, redone)


NEWEST, OLDER, NOTHING = (resume(origin) for origin in Origin)


@pytest.mark.parametrize(
    ("suddenly", "announced", "verdict"),
    [
        ([NEWEST, NEWEST], [NOTHING], Verdict.RESUMES),
        ([NEWEST, OLDER], [], Verdict.GOES_BACK),
        ([OLDER], [], Verdict.GOES_BACK),
        ([resume(Origin.OLDER, redone=5)], [], Verdict.GOES_BACK),
        ([NEWEST, NOTHING], [], Verdict.GOES_BACK),
        ([NOTHING, NOTHING], [], Verdict.STARTS_OVER),
        ([NOTHING], [NEWEST], Verdict.RESUMES_WITH_NOTICE),
        ([], [NEWEST], Verdict.RESUMES_WITH_NOTICE),
        ([resume(Origin.NEWEST, 10, 9)] * 2, [], Verdict.STARTS_OVER),
    ],
)
def test_a_step_resumes_if_every_attempt_loaded_the_newest_whole_save(
    suddenly: list[Resume], announced: list[Resume], verdict: Verdict
) -> None:
    outcomes = [
        PointOutcome(
            point, replace(INTERRUPTED, injected=(InjectionResult(1, point.injections[0], 0.5),)), resumes=(each,)
        )
        for notice, resumes in ((False, suddenly), (True, announced))
        for each in resumes
        for point in [
            InjectionPoint("middle", InjectionKind.MIDDLE, (Injection(InjectionKind.MIDDLE, AtShare(0.5), notice),))
        ]
    ]

    assert verdict_of(outcomes) is verdict


def test_as_many_saves_as_undisturbed_tell_nothing_of_a_step_that_saves_by_time() -> None:
    outcome = PointOutcome(POINT, INTERRUPTED, resumes=(resume(Origin.NEWEST, 10, 9),))

    assert verdict_of([outcome], counts_saves=False) is Verdict.RESUMES
    assert verdict_of([outcome], FileActivity(saves_only_early=True), counts_saves=False) is Verdict.STARTS_OVER


@pytest.mark.parametrize(("interrupted_trials", "verdict"), [(2, Verdict.UNDECIDED), (3, Verdict.RESUMES)])
def test_too_few_interrupted_trials_decide_nothing(interrupted_trials: int, verdict: Verdict) -> None:
    outcomes = [PointOutcome(POINT, INTERRUPTED, resumes=(NEWEST,))] * interrupted_trials
    step = StepReport("t", (1.0,), outcomes=(*outcomes, PointOutcome(POINT, NOT_INTERRUPTED)))

    assert step.verdict is verdict
    assert bool(step.undecided) is (verdict is Verdict.UNDECIDED)


def test_a_step_of_whose_outputs_nothing_can_be_compared_is_undecided_and_a_failing_one_is_not_safe() -> None:
    good = StepReport("t", (1.0,), outcomes=(PointOutcome(POINT, INTERRUPTED),) * 3, not_comparable="it has none")
    bad = replace(good, outcomes=(*good.outcomes, PointOutcome(POINT, INTERRUPTED, problem="attempt 2 failed")))

    assert (good.verdict, good.undecided) == (Verdict.UNDECIDED, "it has none")
    assert bad.verdict is Verdict.UNSAFE
