"""What lives of a share of the work show, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rehearsal.interrupted_points import INTERRUPTED, POINT, attempt, trial

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import SAVES, AtWork, InjectionKind, lives_point, longer_lives
from spotwright.rehearsal.lives import Life, Lives, lives_of, resumes
from spotwright.rehearsal.loaded_saves import Resume
from spotwright.rehearsal.own_work import MeasuredBy, OwnWork, own_work
from spotwright.rehearsal.rehearsal_settings import RehearsalSettings
from spotwright.rehearsal.report import as_text
from spotwright.rehearsal.session import Rehearsal
from spotwright.rehearsal.trials import TrialRun
from spotwright.rehearsal.verdict import InterruptionCost, PointOutcome, StepReport, Verdict
from spotwright.rehearsal.work_phase import SeenBy, WorkPhase

THIRD, HALF, LONG = 1 / 3, 1 / 2, 3 / 5
BY_TIME = OwnWork(MeasuredBy.TIME, begin=1.0, whole=3.0, start=1.0, seconds=3.0)


def lives(share: float, *works: float, notice: bool = False, began: float | None = 0.0, saved: bool = True) -> Lives:
    """Lives that did this work each; the last attempt was left alone where there are more than lives."""
    count = len(lives_point(share, notice=False).injections)
    attempts = [Life(number, work, began, number < len(works)) for number, work in enumerate(works, 1)]
    return Lives(share, notice, count, tuple(attempts), saved, saved)


RESUMES = lives(THIRD, 0.33, 0.33, 0.33, 0.1)
STARTS_OVER = lives(THIRD, *[0.33] * 5, 1.0)
STUCK = lives(THIRD, *[0.33] * 5, 0.67)
SAVES_RARELY = [STARTS_OVER, lives(LONG, 0.6, 0.5)]
GETS_ON_SLOWLY = lives(THIRD, *[0.33] * 5, 0.3)


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        ([RESUMES], True),
        ([STARTS_OVER], False),
        ([STARTS_OVER, lives(LONG, 0.6, 0.6, 0.6, 0.6, 1.0)], False),
        ([STARTS_OVER, lives(LONG, 0.6, 0.6, 0.6, 0.6, 0.02)], True),
        ([STUCK], False),
        ([STUCK, lives(HALF, 0.5, 0.5)], False),
        (SAVES_RARELY, True),
        ([GETS_ON_SLOWLY], False),
        ([GETS_ON_SLOWLY, lives(HALF, 0.5, 0.5, 0.2)], True),
        ([], None),
    ],
)
def test_a_step_resumes_if_it_ends_although_no_attempt_lives_long(shown: list[Lives], verdict: bool | None) -> None:
    assert resumes(shown) is verdict


def outcome(shown: Lives | None, **fields: object) -> PointOutcome:
    share, notice = (shown.share, shown.notice) if shown is not None else (THIRD, False)
    fields.setdefault("trial", INTERRUPTED)
    return PointOutcome(lives_point(share, notice=notice), lives=shown, **fields)  # type: ignore[arg-type]


OLDER = Resume(2, ("ck-10",), ("ck-9",), 2, 3)
UNANSWERED = replace(INTERRUPTED, executed={"t": (attempt(1, 1.0, "interrupted"), attempt(2, 1.0, "succeeded"))})
ANSWERED = replace(
    INTERRUPTED,
    executed={"t": (replace(attempt(1, 1.0, "interrupted"), ended_by_itself=True), attempt(2, 1.0, "succeeded"))},
)
NOTICED = lives(THIRD, 0.5, 0.5, 0.1, notice=True)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([outcome(RESUMES)], Verdict.RESUMES),
        ([outcome(each) for each in SAVES_RARELY], Verdict.RESUMES),
        ([outcome(STARTS_OVER)], Verdict.STARTS_OVER),
        ([outcome(STUCK)], Verdict.GOES_BACK),
        ([outcome(lives(THIRD, 0.33, 0.33, 0.01, saved=False))], Verdict.STARTS_OVER),
        ([outcome(STARTS_OVER), outcome(NOTICED)], Verdict.RESUMES_WITH_NOTICE),
        ([outcome(STARTS_OVER), outcome(lives(3 / 5, 0.8, 1.0, notice=True))], Verdict.STARTS_OVER),
        ([outcome(STARTS_OVER), outcome(replace(NOTICED, has_loaded=False))], Verdict.STARTS_OVER),
        ([outcome(STUCK), outcome(NOTICED, trial=UNANSWERED)], Verdict.GOES_BACK),
        ([outcome(STUCK), outcome(NOTICED, trial=ANSWERED)], Verdict.RESUMES_WITH_NOTICE),
        ([outcome(RESUMES, resumes=(OLDER,))], Verdict.GOES_BACK),
        ([PointOutcome(POINT, INTERRUPTED)], Verdict.UNDECIDED),
        ([outcome(NOTICED)], Verdict.UNDECIDED),
        ([outcome(RESUMES), PointOutcome(POINT, INTERRUPTED, problem="a row is there twice")], Verdict.UNSAFE),
        ([outcome(STARTS_OVER), PointOutcome(lives_point(LONG, notice=False))], Verdict.UNDECIDED),
    ],
)
def test_lives_decide_the_verdict_on_a_safe_step(outcomes: list[PointOutcome], verdict: Verdict) -> None:
    step = StepReport("t", (1.0,), outcomes=(*outcomes, *[PointOutcome(POINT, INTERRUPTED)] * 2))

    assert step.verdict is verdict
    assert bool(step.undecided) == (verdict is Verdict.UNDECIDED)


def test_work_that_is_too_short_to_be_interrupted_decides_nothing() -> None:
    own = OwnWork(MeasuredBy.TIME, 0.0, 0.05, 0.0, 0.05)
    step = StepReport("t", (9.0,), outcomes=(outcome(STARTS_OVER),) * 3, own=own)

    assert step.verdict is Verdict.UNDECIDED
    assert step.undecided == "its work takes only 50ms, too short to be interrupted: give the step more work"


def test_saves_that_were_loaded_never_make_a_step_resume() -> None:
    newest = Resume(2, ("ck-10",), ("ck-10",), 0, 3)
    step = StepReport("t", (1.0,), outcomes=(outcome(STARTS_OVER, resumes=(newest,)),) * 3)

    assert step.verdict is Verdict.STARTS_OVER


shares = st.floats(0.0, 1.5)
all_lives = st.builds(
    lives, st.sampled_from([THIRD, HALF, LONG]), *[shares] * 3, notice=st.booleans(), saved=st.booleans()
)
costs = st.builds(
    lambda interrupted, redone: InterruptionCost(1, 0.3, interrupted, min(redone, interrupted)), shares, shares
)


@given(st.lists(st.tuples(all_lives, costs), min_size=3, max_size=8))
def test_a_step_that_redoes_nearly_everything_never_resumes(shown: list[tuple[Lives, InterruptionCost]]) -> None:
    step = StepReport("t", (1.0,), outcomes=tuple(outcome(each, cost=cost) for each, cost in shown))

    if step.verdict is Verdict.RESUMES and step.redone_share is not None:
        assert step.redone_share <= 0.75
        text = as_text(Rehearsal("t", RehearsalSettings(1), (step,), INTERRUPTED.run.path))
        assert not any(f"{percent}% of the interrupted work was redone" in text for percent in range(76, 101))


def traced(*own_seconds: float, saves: Sequence[int] = (), loads: Sequence[tuple[str, ...]] = ()) -> TrialRun:
    """A trial whose attempts took these times without waits; all but the last were interrupted."""
    causes = ["interrupted"] * (len(own_seconds) - 1) + ["succeeded"]
    attempts = [attempt(number, 9.0, cause) for number, cause in enumerate(causes, 1)]
    done = trial(*attempts)
    result = InjectionResult(1, lives_point(THIRD, notice=False).injections[0], 1.0)
    traces = []
    for number, seconds in enumerate(own_seconds):
        count = saves[number] if saves else 1
        operations = tuple(FileOperation(FileCall.WRITE, SAVES, "s", seconds) for _ in range(count))
        traces.append(AttemptTrace(operations, own_seconds=seconds, loads=loads[number] if loads else ("s",)))
    return replace(done, traces={"t": tuple(traces)}, injected=(result,))


def test_the_work_of_an_attempt_is_its_time_without_waits_and_without_its_start() -> None:
    shown = lives_of(lives_point(THIRD, notice=False), traced(2.0, 2.0, 2.5), BY_TIME)

    assert shown is not None
    assert [life.work for life in shown.attempts] == pytest.approx([1 / 3, 1 / 3, 0.5])
    assert shown.is_ended


def test_the_work_of_an_attempt_begins_where_its_own_imports_end() -> None:
    slow = traced(3.0, 2.0)
    traces = tuple(replace(each, own_begin=begin) for each, begin in zip(slow.traces["t"], (2.0, None), strict=True))
    shown = lives_of(lives_point(THIRD, notice=False), replace(slow, traces={"t": traces}), BY_TIME)

    assert shown is not None
    assert [life.work for life in shown.attempts] == pytest.approx([1 / 3, 1 / 3])


def test_what_lives_kept_is_what_the_attempt_that_was_left_alone_did_not_do() -> None:
    shown = lives_of(lives_point(THIRD, notice=False), traced(*[2.0] * 5, 3.0), BY_TIME)

    assert shown is not None
    assert (shown.is_ended, shown.is_stuck) == (False, True)
    assert shown.kept == pytest.approx(1 / 3)


def test_saves_count_what_the_last_attempt_did_again_where_a_start_takes_longer() -> None:
    slow = traced(*[2.0] * 5, 2.5, saves=[2] * 5 + [10])
    shown = lives_of(lives_point(THIRD, notice=False), slow, BY_TIME, saves=10)

    assert shown is not None
    assert shown.kept == 0.0


def test_a_step_that_loads_nothing_keeps_nothing_however_short_its_last_attempt_is() -> None:
    shown = lives_of(lives_point(THIRD, notice=False), traced(*[2.0] * 5, 2.5, loads=((),) * 6), BY_TIME)

    assert shown is not None
    assert (shown.kept, shown.has_saved) == (0.0, True)


def test_a_step_of_which_nothing_outlives_an_attempt_keeps_nothing_however_short_its_last_one_is() -> None:
    shown = lives_of(lives_point(THIRD, notice=False), traced(*[2.0] * 5, 1.5, saves=[0] * 6), BY_TIME)

    assert shown is not None
    assert (shown.kept, shown.has_saved) == (0.0, False)


@pytest.mark.parametrize(("saved", "is_ended"), [(2, True), (10, False)])
def test_a_step_that_loads_nothing_and_makes_all_its_saves_again_has_not_ended_within_its_lives(
    saved: int, is_ended: bool
) -> None:
    by_names = traced(2.0, 2.0, 2.0, saves=[4, 4, saved], loads=((),) * 3)
    shown = lives_of(lives_point(THIRD, notice=False), by_names, BY_TIME, saves=10)

    assert shown is not None
    assert shown.is_ended is is_ended


def test_an_attempt_began_where_what_it_loaded_was_written() -> None:
    trials = traced(2.0, 2.0, 2.0, loads=((), ("s",), ("s",)))
    shown = lives_of(lives_point(THIRD, notice=False), trials, BY_TIME)

    assert shown is not None
    assert [life.began for life in shown.attempts] == pytest.approx([0.0, 1 / 3, 2 / 3])


def test_a_trial_in_which_no_attempt_was_interrupted_shows_no_lives() -> None:
    assert lives_of(lives_point(THIRD, notice=False), traced(4.0), BY_TIME) is None


def test_attempts_that_were_not_measured_show_no_lives() -> None:
    unmeasured = replace(traced(2.0, 2.0), traces={"t": (AttemptTrace(), AttemptTrace())})

    assert lives_of(lives_point(THIRD, notice=False), unmeasured, BY_TIME) is None


@pytest.mark.parametrize(
    ("kept", "notice", "share"), [(False, False, LONG), (True, False, HALF), (False, True, LONG), (True, True, LONG)]
)
def test_longer_lives_follow_those_of_a_third(kept: bool, notice: bool, share: float) -> None:
    longer = longer_lives(lives_point(THIRD, notice=notice), kept=kept)

    assert longer is not None
    assert longer.kind is InjectionKind.LIVES
    assert {(each.trigger, each.notice) for each in longer.injections} == {(AtWork(share), notice)}
    assert longer_lives(longer, kept=kept) is None


# -- the measure

SAMPLES = ((0.5, 0.1, 0.4), (1.0, 0.2, 0.8), (2.0, 0.2, 0.9), (5.0, 0.2, 1.2))
PHASE = WorkPhase(1.0, 5.0, SeenBy.READS)


def saved_at(*moments: float) -> AttemptTrace:
    calls = (FileCall.OPEN, FileCall.WRITE, FileCall.RENAME)
    operations = tuple(FileOperation(call, SAVES, "state", at) for at in moments for call in calls)
    return AttemptTrace(operations, own_seconds=4.8, used=SAMPLES)


def test_progress_measures_before_all_else() -> None:
    own = own_work(saved_at(1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5), replace(PHASE, seen_by=SeenBy.PROGRESS), 4.0, 0.0, 0.8)

    assert own is not None
    assert (own.measured_by, own.whole) == (MeasuredBy.PROGRESS, 0.8)
    assert own.done(None, 0.0, (0.2, 0.6)) == pytest.approx(0.5)
    assert own.done(None, 0.0, (None, None)) == 0.0
    assert own.place(0.4) == pytest.approx(0.5)


def test_regular_saves_measure_before_seconds() -> None:
    own = own_work(saved_at(1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5), PHASE, 4.0, None, None)

    assert own is not None
    assert (own.measured_by, own.whole) == (MeasuredBy.FILES, 21)
    assert own.last_operation(1 / 3) == 5  # the rename of the second save
    operation, after = own.last_save(0.5)
    assert operation == 9
    assert after == pytest.approx(0.5 - 9 / 21)  # so other interruptions come between two saves


@pytest.mark.parametrize(
    "moments", [(2.0, 3.0), (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4), (1.0, 1.1, 1.2, 1.3, 1.4, 4.9)]
)
def test_few_saves_or_irregular_ones_measure_nothing(moments: tuple[float, ...]) -> None:
    own = own_work(saved_at(*moments), PHASE, 1.2, None, None)

    assert own is not None
    assert own.measured_by is MeasuredBy.TIME


@pytest.mark.parametrize(
    ("cpu_seconds", "measured_by", "begin"), [(4.5, MeasuredBy.PROCESSOR, 0.8), (1.2, MeasuredBy.TIME, 0.8)]
)
def test_a_step_that_computes_is_measured_by_processor_time_and_one_that_waits_by_its_time(
    cpu_seconds: float, measured_by: MeasuredBy, begin: float
) -> None:
    own = own_work(AttemptTrace(own_seconds=4.8, used=SAMPLES), PHASE, cpu_seconds, None, None)

    assert own is not None
    assert own.measured_by is measured_by
    assert own.begin == pytest.approx(begin)
    assert own.target(0.5) == pytest.approx(own.begin + own.whole / 2)


def test_a_picture_has_a_bar_for_each_life_and_fits_a_terminal() -> None:
    shown = replace(
        RESUMES, attempts=tuple(replace(each, began=0.3 * number) for number, each in enumerate(RESUMES.attempts))
    )
    step = StepReport("t", (1.0,), outcomes=(outcome(shown),) * 3)
    lines = as_text(Rehearsal("t", RehearsalSettings(1), (step,), INTERRUPTED.run.path), points=False).splitlines()

    bars = [line for line in lines if "|" in line]
    assert bars[:2] == [
        "    1 |============x...........................| 0% to 33%",
        "    2 |............============x...............| 30% to 63%",
    ]
    assert max(map(len, bars)) <= 80
