"""The probable cause of a problem follows from the file operations around the interruption."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.rehearsal.interrupted_points import INTERRUPTED, POINT

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.causes import probable_cause
from spotwright.rehearsal.injection_points import SAVES, summarize_activity
from spotwright.rehearsal.verdict import PointOutcome, StepReport

MADE = FileOperation(FileCall.OPEN, SAVES, "lock", 0.0)
REMOVED = FileOperation(FileCall.REMOVE, SAVES, "lock", 1.0)
LEFT = "lock of the interrupted attempt is still there: remove a lock whose owner has ended"


@pytest.mark.parametrize(
    ("before", "never_finishes", "cause"),
    [
        ((MADE,), True, LEFT),
        ((MADE,), False, LEFT),
        ((), True, LEFT),  # killed inside the call that made the lock
        ((), False, ""),
        ((MADE, REMOVED), False, ""),
    ],
)
def test_a_lock_that_the_undisturbed_step_removes_is_the_cause_where_an_attempt_leaves_it(
    before: tuple[FileOperation, ...], never_finishes: bool, cause: str
) -> None:
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace(before), AttemptTrace())})
    outcome = PointOutcome(POINT, trial, problem="attempt 2 failed", never_finishes=never_finishes)

    assert probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE, REMOVED]))) == cause


def test_no_cause_is_named_where_an_attempt_was_not_traced() -> None:
    untraced = AttemptTrace(failure="ptrace is refused")
    trial = replace(INTERRUPTED, traces={"t": (untraced, untraced)})
    outcome = PointOutcome(POINT, trial, problem="attempt 2 failed", never_finishes=True)

    assert probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE, REMOVED]))) == ""
