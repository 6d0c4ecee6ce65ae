"""How much of the interrupted work was done again, by the surest sign there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotwright.engine.state import RunStatus
from spotwright.local.syscalls import Call
from spotwright.records.folders import RunFolder
from spotwright.rehearsal.killer import Landed
from spotwright.rehearsal.losses import By, Loss, Measure, best, loss_of
from spotwright.rehearsal.points import SAVES, Blow, Kind, Point, Share
from spotwright.rehearsal.tracer import Op
from spotwright.rehearsal.trials import Attempt, Trial
from spotwright.rehearsal.verdict import Outcome, Rehearsed, Verdict

POINT = Point("middle, no notice", Kind.MIDDLE, ())
SAVING = Measure(1.0, moments=tuple(number / 10 for number in range(1, 10)), watched=1.0)


def attempt(number: int, seconds: float, cause: str, first: float | None = None, last: float | None = None) -> Attempt:
    return Attempt(number, seconds, cause, "", first, last, "", Path())


def trial(*attempts: Attempt, saves: tuple[int, ...] = ()) -> Trial:
    """A trial that succeeded; ``saves`` are the operations on saves of each attempt that was looked at."""
    ops = tuple(tuple(Op(Call.WRITE, SAVES, "s", 0.0) for _ in range(count)) for count in saves)
    return Trial(RunFolder(Path("run")), RunStatus.SUCCEEDED, "", {"t": attempts}, "t", {}, {}, ops=ops)


def interrupted(seconds: float, **progress: float) -> Attempt:
    return attempt(1, seconds, "interrupted", progress.get("first"), progress.get("last"))


def succeeded(seconds: float, first: float | None = None) -> Attempt:
    return attempt(2, seconds, "succeeded", first, 1.0)


def found(one: Trial, measure: Measure) -> Loss:
    loss = loss_of(one, measure)
    assert loss is not None
    return loss


def test_an_execution_without_interruption_loses_nothing() -> None:
    assert loss_of(trial(succeeded(1.0)), Measure(1.0)) is None


def test_time_beyond_the_usual_is_lost() -> None:
    assert found(trial(interrupted(0.6), succeeded(0.7)), Measure(1.0)).seconds == pytest.approx(0.3)


def test_by_progress_it_is_what_was_reported_before_and_not_after() -> None:
    loss = found(trial(interrupted(9.0, first=0.0, last=0.6), succeeded(9.0, first=0.5)), Measure(1.0, 0.0, 1.0))

    assert loss.by is By.PROGRESS
    assert (loss.work, loss.again) == pytest.approx((0.6, 0.1))


def test_by_saves_an_attempt_that_makes_the_rest_of_them_goes_on() -> None:
    loss = found(trial(interrupted(0.55), succeeded(9.0), saves=(5, 4)), SAVING)

    assert loss.by is By.SAVES
    assert (loss.work, loss.again) == pytest.approx((0.55, 0.05))


def test_by_saves_an_attempt_that_makes_all_of_them_starts_over() -> None:
    loss = found(trial(interrupted(0.55), succeeded(9.0), saves=(5, 9)), SAVING)

    assert loss.again == loss.work


def test_by_saves_work_after_the_last_one_counts() -> None:
    download = Measure(1.0, moments=(0.01, 0.02), watched=1.0)

    loss = found(trial(interrupted(0.8), succeeded(9.0), saves=(2, 0)), download)

    assert (loss.work, loss.again) == pytest.approx((0.8, 0.78))


def test_without_reports_and_saves_it_is_the_time() -> None:
    loss = found(trial(interrupted(0.6), succeeded(1.0)), Measure(1.0))

    assert loss.by is By.TIME
    assert (loss.work, loss.again) == pytest.approx((0.6, 0.6))


def test_the_surest_measure_is_the_one_that_counts() -> None:
    sure, less = Loss(1, 0.0, 1.0, 0.0, By.PROGRESS), Loss(1, 0.0, 1.0, 1.0, By.TIME)

    assert best([less, sure]) == [sure]


UNMET = trial(succeeded(1.0))
MET = replace(UNMET, landed=(Landed(1, Blow(Kind.MIDDLE, Share(0.5)), 0.5),))


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([{"loss": Loss(1, 0.1, 1.0, 0.1, By.TIME)}], Verdict.RESUMES),
        ([{"loss": Loss(1, 1.0, 1.0, 1.0, By.TIME)}], Verdict.STARTS_OVER),
        ([{}], Verdict.STARTS_OVER),
        (
            [{"problem": "it hangs", "never": True, "trial": MET}, {"loss": Loss(1, 0.1, 1.0, 0.1, By.TIME)}],
            Verdict.NEVER,
        ),
        ([{"problem": "it hangs", "never": True, "trial": MET}, {"problem": "other", "trial": MET}], Verdict.UNSAFE),
        ([{"problem": "no data", "trial": UNMET}, {"loss": Loss(1, 0.1, 1.0, 0.1, By.TIME)}], Verdict.FAILS),
    ],
)
def test_the_worst_that_happened_is_the_verdict(outcomes: list[dict[str, Any]], verdict: Verdict) -> None:
    step = Rehearsed("t", (1.0,), outcomes=tuple(Outcome(POINT, **each) for each in outcomes))

    assert step.verdict is verdict


def test_a_step_that_fails_by_itself_says_that() -> None:
    assert Rehearsed("t", (), fails="no data").verdict is Verdict.FAILS


def test_the_cost_is_that_of_one_interruption() -> None:
    losses = [Loss(1, 0.3, 1, 0, By.TIME), Loss(3, 0.5, 1, 0, By.TIME)]
    step = Rehearsed("t", (1.0,), outcomes=tuple(Outcome(POINT, loss=loss) for loss in losses))

    assert step.cost == pytest.approx(0.2)
