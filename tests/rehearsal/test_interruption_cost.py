"""The cost of interruptions, by the step's own measure, and the worst outcome of all points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rehearsal.interrupted_points import INTERRUPTED, NOT_INTERRUPTED, POINT, attempt, succeeded, trial

from spotwright.rehearsal.attempt_trace import AttemptTrace
from spotwright.rehearsal.lives import Life, Lives
from spotwright.rehearsal.own_work import MeasuredBy, OwnWork
from spotwright.rehearsal.report import outcome_text
from spotwright.rehearsal.trial_timing import LIMIT_FACTOR, LIMIT_SECONDS
from spotwright.rehearsal.trials import TrialRun
from spotwright.rehearsal.verdict import (
    MIN_KEPT_SHARE,
    Baseline,
    InterruptionCost,
    PointOutcome,
    StepReport,
    Verdict,
    cost_of,
)

PROGRESS = OwnWork(MeasuredBy.PROGRESS, 0.0, 1.0)
TIME = OwnWork(MeasuredBy.TIME, begin=0.2, whole=0.8)
PROCESSOR = OwnWork(MeasuredBy.PROCESSOR, begin=1.0, whole=4.0)
ENDED = Lives(1 / 3, notice=False, count=5, attempts=(Life(1, 0.3, 0.0, is_interrupted=True),))


def interrupted_once(
    own: tuple[float, float], progress: tuple[float, float] = (0.0, 0.0), cpu: tuple[float, float] = (0.0, 0.0)
) -> TrialRun:
    """A trial of two attempts that took these times without waits; the first came this far, where the second began."""
    first = replace(attempt(1, 9.0, "interrupted", 0.0, progress[0]), cpu_seconds=cpu[0])
    second = replace(succeeded(9.0, progress[1]), cpu_seconds=cpu[1])
    traces = tuple(AttemptTrace(own_seconds=seconds) for seconds in own)
    return replace(trial(first, second), traces={"t": traces})


def measured(one: TrialRun, own: OwnWork) -> InterruptionCost:
    cost = cost_of(one, Baseline(1.0, 1.0, own))
    assert cost is not None
    return cost


def test_a_trial_without_interruption_has_no_cost() -> None:
    assert cost_of(trial(succeeded(1.0)), Baseline(1.0, 1.0, TIME)) is None


def test_the_extra_time_is_that_beyond_the_undisturbed_one_without_waits_for_a_processor() -> None:
    assert measured(interrupted_once((0.6, 0.7)), TIME).extra_seconds == pytest.approx(0.3)


def test_by_progress_the_redone_work_is_the_gap_between_last_and_first_report() -> None:
    cost = measured(interrupted_once((0.6, 0.7), (0.6, 0.5)), PROGRESS)

    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.6, 0.1))


def test_by_time_the_start_is_no_work() -> None:
    cost = measured(interrupted_once((0.6, 0.8)), TIME)

    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.5, 0.25))


def test_by_processor_time_what_both_attempts_computed_beyond_the_work_was_redone() -> None:
    cost = measured(interrupted_once((9.0, 9.0), cpu=(3.0, 4.0)), PROCESSOR)

    assert (cost.interrupted_work, cost.redone_work) == pytest.approx((0.5, 0.25))


def test_more_than_was_interrupted_is_never_redone() -> None:
    cost = measured(interrupted_once((0.3, 9.0)), TIME)

    assert cost.redone_work == cost.interrupted_work


@pytest.mark.parametrize("own", [None, TIME])
def test_an_attempt_that_was_not_measured_has_no_cost(own: OwnWork | None) -> None:
    one = replace(interrupted_once((0.6, 0.7)), traces={"t": (AttemptTrace(own_seconds=0.6), AttemptTrace())})

    assert cost_of(one, Baseline(1.0, 1.0, own)) is None


def test_a_point_that_waited_for_an_attempt_that_was_not_traced_does_not_say_that_the_step_finished_before() -> None:
    trial = replace(NOT_INTERRUPTED, traces={"t": (AttemptTrace(failure="ptrace is refused"),)})

    assert outcome_text(PointOutcome(POINT, trial)).endswith(
        "not interrupted, because it was not traced: ptrace is refused"
    )
    assert outcome_text(PointOutcome(POINT, NOT_INTERRUPTED)).endswith("the step finished before the interruption")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([{"trial": INTERRUPTED, "lives": ENDED}], Verdict.RESUMES),
        ([{}], Verdict.UNDECIDED),
        (
            [{"problem": "it hangs", "never_finishes": True, "trial": INTERRUPTED}, {"lives": ENDED}],
            Verdict.NEVER_FINISHES,
        ),
        (
            [
                {"problem": "it hangs", "never_finishes": True, "trial": INTERRUPTED},
                {"problem": "other", "trial": INTERRUPTED},
            ],
            Verdict.UNSAFE,
        ),
        ([{"problem": "no data", "trial": NOT_INTERRUPTED}, {"lives": ENDED}], Verdict.FAILS),
    ],
)
def test_the_verdict_is_the_worst_outcome(outcomes: list[dict[str, Any]], verdict: Verdict) -> None:
    step = StepReport("t", (1.0,), outcomes=tuple(PointOutcome(POINT, **each) for each in outcomes))

    assert step.verdict is verdict


def test_a_step_that_fails_undisturbed_has_the_verdict_fails() -> None:
    assert StepReport("t", (), undisturbed_failure="no data").verdict is Verdict.FAILS


def test_the_cost_per_interruption_is_the_mean() -> None:
    costs = [InterruptionCost(1, 0.3, 1.0, 0.0), InterruptionCost(3, 0.5, 1.0, 0.4)]
    step = StepReport("t", (1.0,), outcomes=tuple(PointOutcome(POINT, cost=cost) for cost in costs))

    assert step.cost_per_interruption == pytest.approx(0.2)
    assert step.redone_per_interruption == pytest.approx(0.1)


def test_a_step_that_ends_within_its_lives_and_redoes_nearly_all_in_other_trials_is_undecided() -> None:
    outcome = PointOutcome(POINT, INTERRUPTED, lives=ENDED, cost=InterruptionCost(1, 0.9, 1.0, 0.99))
    step = StepReport("t", (1.0,), outcomes=(outcome,) * 3)

    assert step.verdict is Verdict.UNDECIDED
    assert "still 99% of the interrupted work was redone" in step.undecided


@pytest.mark.parametrize("page", ["explanation/rehearsal.md", "how-to/rehearse.md"])
def test_both_pages_name_the_thresholds_of_the_code(page: str) -> None:
    words = {2.0: "twice", 5.0: "five", 0.25: "a quarter"}
    text = " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split())

    limit = f"more than {words[LIMIT_FACTOR]} the undisturbed time plus {words[LIMIT_SECONDS]} seconds"
    assert limit in text
    assert f"at least {words[MIN_KEPT_SHARE]} of the interrupted work is kept" in text


@pytest.mark.parametrize(("interrupted_trials", "verdict"), [(2, Verdict.UNDECIDED), (3, Verdict.RESUMES)])
def test_too_few_interrupted_trials_decide_nothing(interrupted_trials: int, verdict: Verdict) -> None:
    outcomes = [PointOutcome(POINT, INTERRUPTED, lives=ENDED)] * interrupted_trials
    step = StepReport("t", (1.0,), outcomes=(*outcomes, PointOutcome(POINT, NOT_INTERRUPTED)))

    assert step.verdict is verdict
    assert bool(step.undecided) is (verdict is Verdict.UNDECIDED)


def test_a_step_of_whose_outputs_nothing_can_be_compared_is_undecided_and_a_failing_one_is_not_safe() -> None:
    good = StepReport(
        "t", (1.0,), outcomes=(PointOutcome(POINT, INTERRUPTED, lives=ENDED),) * 3, not_comparable="it has none"
    )
    bad = replace(good, outcomes=(*good.outcomes, PointOutcome(POINT, INTERRUPTED, problem="attempt 2 failed")))

    assert (good.verdict, good.undecided) == (Verdict.UNDECIDED, "it has none")
    assert bad.verdict is Verdict.UNSAFE
