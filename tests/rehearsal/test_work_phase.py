"""When a step is at work follows from its undisturbed execution, and nodes are taken then: imports are not the middle."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.e2e.project import Project
from tests.rehearsal.interrupted_points import INTERRUPTED, POINT
from tests.sampling import every

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import AttemptTrace, FileOperation
from spotwright.rehearsal.fault_injector import InjectionResult
from spotwright.rehearsal.injection_points import OUTPUTS, SAVES, AtWork, Injection, InjectionKind
from spotwright.rehearsal.lives import Life, Lives
from spotwright.rehearsal.rehearsal_settings import TrialBudget
from spotwright.rehearsal.trial_timing import TrialTiming
from spotwright.rehearsal.verdict import PointOutcome, StepReport, Verdict
from spotwright.rehearsal.work_phase import ReadSampler, SeenBy, WorkPhase, work_phase


def writes(area: str, *moments: float) -> tuple[FileOperation, ...]:
    return tuple(FileOperation(FileCall.WRITE, area, f"file-{at}", at) for at in moments)


IMPORTS_THEN_QUIET = tuple(
    (second / 2, min(second * 500, 10_000)) for second in range(1, 41)
)  # 10 s of imports, 10 s of work
LONG_IMPORTS = tuple((second / 2, min(second * 500, 18_000)) for second in range(1, 41))
READS_ALL_THE_TIME = tuple((second / 2, second * 500) for second in range(1, 41))


@pytest.mark.parametrize(
    ("trace", "begin", "end", "seen_by"),
    [
        (AttemptTrace(progress_at=(8.0, 19.0), operations=writes(SAVES, 12.0, 15.0)), 8.0, 19.0, SeenBy.PROGRESS),
        (AttemptTrace(progress_at=(19.5,), operations=writes(SAVES, 11.0, 15.0)), 11.0, 20.0, SeenBy.SAVES),
        (AttemptTrace(operations=writes(SAVES, 19.0, 19.5), reads=IMPORTS_THEN_QUIET), 10.0, 20.0, SeenBy.READS),
        (AttemptTrace(operations=writes(OUTPUTS, 0.1, 9.0, 13.0, 17.0)), 9.0, 20.0, SeenBy.OUTPUTS),
        (AttemptTrace(operations=writes(OUTPUTS, 19.0, 19.2), reads=IMPORTS_THEN_QUIET), 10.0, 20.0, SeenBy.READS),
        (AttemptTrace(reads=LONG_IMPORTS), 18.0, 20.0, SeenBy.READS),
        (AttemptTrace(reads=READS_ALL_THE_TIME), 0.0, 20.0, SeenBy.NOTHING),
        (AttemptTrace(reads=((0.5, 3), (1.0, 3), (10.0, 3), (20.0, 3))), 0.0, 20.0, SeenBy.NOTHING),
        (AttemptTrace(), 0.0, 20.0, SeenBy.NOTHING),
    ],
)
def test_the_work_begins_where_progress_files_or_reads_show_it(
    trace: AttemptTrace, begin: float, end: float, seen_by: SeenBy
) -> None:
    phase = work_phase(trace, 20.0)

    assert (phase.begin, phase.end, phase.seen_by) == (begin, end, seen_by)


def test_the_last_point_with_notice_leaves_time_for_the_work_after_it_and_for_what_follows_the_last_step() -> None:
    timing = TrialTiming(20.0, notice=4.0, phase=WorkPhase(10.0, 19.0, SeenBy.PROGRESS))

    assert timing.environment["SPOTWRIGHT_INTERRUPT_EVERY"] == "9"  # or the saves of a short training would not pay
    assert timing.environment["SPOTWRIGHT_SAVE_WITHIN"] == "0.9"

    assert timing.before_end(0.5) == pytest.approx(1 - 1 / 9)  # of 2 s the step needs 1 s after its last step


def test_the_phase_of_a_step_that_gets_faster_gets_as_much_shorter() -> None:
    phase = WorkPhase(2.0, 8.0, SeenBy.SAVES, (2.0, 4.0, 8.0)).within(0.5)

    assert phase == WorkPhase(1.0, 4.0, SeenBy.SAVES, (1.0, 2.0, 4.0))


def test_the_sampler_knows_how_long_an_attempt_waited_for_a_processor() -> None:
    seen = threading.Event()
    delays = iter((1.0, 3.0))

    def run_delay() -> float:
        delay = next(delays, 2.0)  # a thread that has ended no longer counts
        if delay == 2.0:
            seen.set()
        return delay

    sampler = ReadSampler(os.getpid, run_delay)
    sampler.start()
    assert seen.wait(60)
    sampler.finish()

    assert sampler.waited == 3.0


def outcomes(*at_work: bool) -> tuple[PointOutcome, ...]:
    injection = Injection(InjectionKind.MIDDLE, AtWork(0.5))
    results = [InjectionResult(1, injection, 1.0, at_work=each) for each in at_work]
    return tuple(PointOutcome(POINT, replace(INTERRUPTED, injected=(each,))) for each in results)


def test_trials_that_were_interrupted_in_the_imports_alone_decide_nothing() -> None:
    report = StepReport("t", (20.0,), outcomes=outcomes(False, False, False, True), phase=WorkPhase(8.0, 20.0))

    assert report.verdict is Verdict.UNDECIDED
    assert report.undecided == (
        "only 1 of 4 trials were interrupted after the first step of its work, which begins after 8s: give the step more "
        "work"
    )


def test_a_rehearsal_that_ends_before_three_trials_says_which_budget_would_do() -> None:
    (tried,) = outcomes(True)
    advice = TrialBudget(60.0, 20.0, 20.0, longest_trial=30.0).advice
    report = StepReport("t", (20.0,), outcomes=(tried, *[PointOutcome(POINT)] * 3), budget_advice=advice)

    assert report.verdict is Verdict.UNDECIDED
    assert report.undecided == (
        "only 1 of 4 trials were interrupted: undisturbed it takes 20s of the budget of 1m00s, and a verdict needs 3 trials of "
        "up to 1m00s: --budget 4m has room for them"
    )


def test_three_trials_at_work_decide_with_lives() -> None:
    ended = Lives(1 / 3, notice=False, count=5, attempts=(Life(1, 0.3, 0.0, is_interrupted=True),))
    tried = (*outcomes(True, True, True, False), PointOutcome(POINT, INTERRUPTED, lives=ended))

    assert StepReport("t", (20.0,), outcomes=tried).undecided == ""
    assert StepReport("t", (20.0,), outcomes=tried[:-1]).undecided.startswith(
        "whether it ends although no attempt lives"
    )


IMPORTS = """
import json, os, pathlib, time
time.sleep(1.5)
folder = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
saved = folder / "state.json"
step = json.loads(saved.read_text())["step"] if saved.exists() else 0
def report():
    beside = pathlib.Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"] + ".new")
    beside.write_text(str(step / 40))
    beside.rename(os.environ["SPOTWRIGHT_PROGRESS_FILE"])
"""
REPORTS = """
report()
while step < 40:
    time.sleep(0.05)
    step += 1
    report()
    if step % 5 == 0:
        (folder / "new").write_text(json.dumps({"step": step}))
        (folder / "new").rename(saved)
pathlib.Path("model.json").write_text(str(step))
"""
SAVES_ONLY = REPORTS.replace("report()\n", "\n").replace("    \n", "")
READS = """
import os, pathlib, time
for _ in range(15):
    for _ in range(200):
        pathlib.Path(os.__file__).open("rb", buffering=0).read(10)
    time.sleep(0.1)
time.sleep(1.5)
pathlib.Path("model.json").write_text("1")
"""


def rehearsed(project: Project, code: str) -> dict[str, Any]:
    project.write("train.py", code)
    done = project.spotwright(
        "rehearse", "--seed", "5", "--interruptions", "2", "--json", "--", sys.executable, "train.py"
    )
    (step,) = json.loads(done.out)["steps"]
    return dict(step)


SLOWER_LATER = IMPORTS.replace(
    "time.sleep(1.5)",
    "runs = pathlib.Path(os.environ['SPOTWRIGHT_PROGRESS_FILE']).parents[4]\n"
    "time.sleep(0.5 if len(list(runs.iterdir())) == 1 else 6)",
)


@pytest.mark.long
def test_imports_that_take_longer_than_undisturbed_are_no_work(project: Project) -> None:
    step = rehearsed(project, SLOWER_LATER + REPORTS)
    middle = [each for point in step["points"] if point["kind"] == "middle" for each in point["interruptions"]]

    assert step["work_begins"] < 5
    assert len(middle) == 2
    assert all(each["at_work"] and each["age"] > 6 for each in middle), middle


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "seen_by", "verdict"),
    every(
        3,
        [
            (IMPORTS + REPORTS, SeenBy.PROGRESS, "safe and resumes"),
            (IMPORTS + SAVES_ONLY, SeenBy.SAVES, "safe and resumes"),
            (READS, SeenBy.READS, "safe but starts over"),
        ],
    ),
)
def test_nodes_are_taken_between_the_first_step_and_the_last(
    code: str, seen_by: SeenBy, verdict: str, project: Project
) -> None:
    step = rehearsed(project, code)
    middle = [
        each for point in step["points"] if point["kind"] in ("middle", "several") for each in point["interruptions"]
    ]

    assert (step["work_seen_by"], step["verdict"]) == (seen_by.value, verdict)
    assert step["work_begins"] >= 1.2
    assert middle
    assert all(each["at_work"] and each["age"] >= 1.2 for each in middle), middle
