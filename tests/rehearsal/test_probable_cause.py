"""The probable cause of a problem follows from the file operations around the interruption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.rehearsal.interrupted_points import INTERRUPTED, POINT

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.causes import probable_cause
from spotwright.rehearsal.injection_points import OUTPUTS, SAVES, summarize_activity
from spotwright.rehearsal.output_comparison import Difference
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


@pytest.mark.parametrize(("makes_folder", "is_named"), [(False, True), (True, False)])
def test_files_belong_together_where_they_are_replaced_and_not_where_each_save_makes_a_folder(
    makes_folder: bool, is_named: bool
) -> None:
    folder = FileOperation(FileCall.MAKE_FOLDER, SAVES, "save-1", 0.0)
    weights = FileOperation(FileCall.RENAME, SAVES, "save-1/weights", 0.1, "save-1/.weights")
    mark = FileOperation(FileCall.RENAME, SAVES, "save-1/mark", 0.2, "save-1/.mark")
    save = [folder, weights, mark] if makes_folder else [weights, mark]
    loads = AttemptTrace(loads=("save-1/weights", "save-1/mark"))
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace(tuple(save[:-1])), loads)})
    outcome = PointOutcome(POINT, trial, problem="attempt 2 failed")

    cause = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity(save)))
    assert ("belong together" in cause) is is_named


@pytest.mark.parametrize("saves", [1, 2])
def test_files_belong_together_also_where_the_first_save_was_cut(saves: int) -> None:
    x, step = (FileOperation(FileCall.RENAME, SAVES, name, 0.1, f"{name}.new") for name in ("x", "step"))
    before = [x, step, x][-(2 * saves - 1) :]
    there = tuple(dict.fromkeys(each.path for each in before))
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace(tuple(before)), AttemptTrace(loads=there))})
    outcome = PointOutcome(POINT, trial, problem="other", differences=(Difference("model", "", "2 instead of 1"),))

    cause = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([x, step])))
    assert cause.startswith("step and x belong together")


@pytest.mark.parametrize("interrupted_in", [1, 2])
@pytest.mark.parametrize(("folders", "cause"), [(3, "is filled in place"), (1, "is written in place")])
def test_a_folder_that_each_save_makes_is_filled_in_place_also_where_the_first_save_is_interrupted(
    folders: int, cause: str, interrupted_in: int
) -> None:
    saves: list[FileOperation] = []
    for number in range(1, 4):
        name = f"save-{min(number, folders)}"
        if number <= folders:
            saves.append(FileOperation(FileCall.MAKE_FOLDER, SAVES, name, float(number)))
        saves.append(FileOperation(FileCall.OPEN, SAVES, f"{name}/weights", number + 0.1))
        saves.append(FileOperation(FileCall.WRITE, SAVES, f"{name}/weights", number + 0.2))
    opened = [index for index, each in enumerate(saves) if each.call is FileCall.OPEN]
    before = tuple(saves[: opened[interrupted_in - 1] + 1])
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace(before), AttemptTrace(loads=(before[-1].path,)))})
    outcome = PointOutcome(POINT, trial, problem="attempt 2 failed")

    named = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity(saves)))
    assert cause in named
    assert named.startswith("save-")


@pytest.mark.parametrize(
    ("interrupted", "is_named"),
    [
        ("epoch,loss\n3,0.2\n4,0.1\n", True),
        ("4,0.1\n", True),
        ("epoch,loss\n", False),  # nothing went on
        ("epoch,loss\n1,0.4\n2,0.3\n3,0.2\n", False),  # the end is missing
        ("epoch,loss\n3,0.2\n4,0.7\n", False),  # other values
    ],
)
def test_a_log_that_begins_where_an_attempt_went_on_is_told_to_be_kept(
    tmp_path: Path, interrupted: str, is_named: bool
) -> None:
    paths = tmp_path / "old.csv", tmp_path / "new.csv"
    for path, text in zip(paths, ("epoch,loss\n1,0.4\n2,0.3\n3,0.2\n4,0.1\n", interrupted), strict=True):
        path.write_text(text)
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace(), AttemptTrace())})
    differences = (Difference("metrics.csv", "", "3 lines instead of 5"),)
    outcome = PointOutcome(POINT, trial, "metrics.csv: 3 lines", differences=differences, output_paths=paths)

    cause = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE])))
    assert ("is lost with its node: metrics.csv begins where an attempt went on" in cause) is is_named


@pytest.mark.parametrize("is_written", [True, False])
def test_a_file_that_only_the_interrupted_attempt_wrote_is_told_to_be_kept(is_written: bool) -> None:
    written = FileOperation(FileCall.OPEN, OUTPUTS, "best.ckpt", 0.5)
    trial = replace(INTERRUPTED, traces={"t": (AttemptTrace((written,) if is_written else ()), AttemptTrace())})
    outcome = PointOutcome(POINT, trial, "it is missing", differences=(Difference("best.ckpt", "", "is missing"),))

    cause = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE])))
    assert ("is lost with its node, as best.ckpt" in cause) is is_written


@pytest.mark.parametrize(
    ("log", "is_named"),
    [
        ("torch/distributed/elastic/api.py] failed (exitcode: -9)\nGloo connectFullMesh failed with refused", True),
        ("torch/distributed/elastic/api.py] failed (exitcode: -9)", False),
    ],
)
def test_ranks_that_meet_those_before_are_told_another_rendezvous(tmp_path: Path, log: str, is_named: bool) -> None:
    (tmp_path / "log.txt").write_text(log)
    attempt = replace(INTERRUPTED.attempts[0], folder=tmp_path)
    trial = replace(INTERRUPTED, executed={"t": (attempt,)}, traces={"t": (AttemptTrace(),)})
    outcome = PointOutcome(POINT, trial, problem="given up", never_finishes=True)

    cause = probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE])))
    assert ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in cause) is is_named


def test_no_cause_is_named_where_an_attempt_was_not_traced() -> None:
    untraced = AttemptTrace(failure="ptrace is refused")
    trial = replace(INTERRUPTED, traces={"t": (untraced, untraced)})
    outcome = PointOutcome(POINT, trial, problem="attempt 2 failed", never_finishes=True)

    assert probable_cause(outcome, StepReport("t", (1.0,), summarize_activity([MADE, REMOVED]))) == ""
