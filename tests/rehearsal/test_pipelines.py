"""Tasks at any level of a pipeline can be named and are rehearsed alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import document, step
from tests.rehearsal.conftest import Rehearse, source_of
from tests.rehearsal.sample_steps import starts_over
from tests.sampling import every

from spotwright.errors import InputError
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.rehearsal.verdict import Verdict
from spotwright.runs.bodies import is_alive

pytestmark = pytest.mark.slow

LOOPS = """
from kfp import dsl


@dsl.component
def items() -> list:
    return [1, 2]


@dsl.component
def work(n: int) -> int:
    import time

    time.sleep(0.1)
    return n * 10


@dsl.component
def total(numbers: list) -> int:
    return sum(numbers)


@dsl.component
def tidy() -> None:
    print("tidy")


@dsl.pipeline
def inner(n: int) -> int:
    return work(n=n).output


@dsl.pipeline
def outer() -> None:
    with dsl.ExitHandler(tidy()):
        with dsl.ParallelFor(items().output) as n:
            worked = work(n=n)
        summed = total(numbers=dsl.Collected(worked.output))
        with dsl.If(summed.output > 5):
            inner(n=summed.output)
        with dsl.If(summed.output > 500):
            work(n=7)
"""


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    path = tmp_path / "loops.py"
    path.write_text(LOOPS)
    return path


@pytest.mark.long
def test_an_iteration_of_a_loop_is_rehearsed_and_nothing_beside_it_runs_again(
    loops: Path, rehearse: Rehearse, tmp_path: Path
) -> None:
    rehearsal = rehearse(pipeline=loops, pipeline_name="outer", task="work-1", interruptions=1)

    (step,) = rehearsal.steps
    assert (step.task, step.verdict) == ("exit-handler-1/for-loop-2/work-1", Verdict.STARTS_OVER)
    trial = step.outcomes[0].trial
    assert trial is not None
    state = RunReader(StateFolder(rehearsal.state).find(trial.run.name), is_alive).state
    assert [path for path, task in state.tasks.items() if task.attempts] == [step.task]


@pytest.mark.long
def test_a_task_of_a_nested_pipeline_below_a_condition_is_rehearsed(loops: Path, rehearse: Rehearse) -> None:
    rehearsal = rehearse(pipeline=loops, pipeline_name="outer", task="inner/work", interruptions=1)

    assert [step.verdict for step in rehearsal.steps] == [Verdict.STARTS_OVER]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "--task nothing matches no task; the tasks are "),
        ("totla", "--task totla matches no task: did you mean 'exit-handler-1/total'"),
        ("other/work", "--task other/work matches no task: did you mean"),
        (
            "work",
            "--task work means 2 tasks: exit-handler-1/for-loop-2/work, exit-handler-1/condition-3/inner/work; name one",
        ),
    ],
)
def test_a_name_of_no_task_or_of_several_is_refused_before_anything_is_executed(
    name: str, message: str, loops: Path, rehearse: Rehearse, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        rehearse(pipeline=loops, pipeline_name="outer", task=name)
    assert str(error.value).startswith(message)
    assert not list((tmp_path / "state" / "rehearsals").iterdir())


@pytest.mark.long
def test_a_task_behind_a_condition_that_does_not_hold_is_said_to_be_not_executed(
    loops: Path, rehearse: Rehearse
) -> None:
    with pytest.raises(InputError, match="--task exit-handler-1/condition-4/work-2: this run does not execute it"):
        rehearse(pipeline=loops, pipeline_name="outer", task="work-2")


@pytest.mark.long
@pytest.mark.parametrize(("name", "path"), [("for-loop-2/work", "work-0"), ("work-1", "work-1")])
def test_a_name_of_a_task_in_a_loop_means_one_iteration(name: str, path: str, loops: Path, rehearse: Rehearse) -> None:
    rehearsal = rehearse(pipeline=loops, pipeline_name="outer", task=name, interruptions=1, budget=3.0)

    assert [step.task for step in rehearsal.steps] == [f"exit-handler-1/for-loop-2/{path}"]


CHAIN = """
import pathlib
from kfp import dsl


@dsl.component
def first(ledger: str) -> int:
    open(ledger, "a").write("first ")
    return 1


@dsl.component
def second(n: int, made: dsl.Output[dsl.Dataset]) -> int:
    import time

    time.sleep(0.05)
    open(made.path, "w").write("x")
    return n + 1


@dsl.component
def third(n: int, ledger: str) -> None:
    open(ledger, "a").write("third ")


@dsl.pipeline
def chain(ledger: str) -> None:
    third(n=second(n=first(ledger=ledger).output).outputs["Output"], ledger=ledger)
"""


@pytest.mark.long
def test_upstream_tasks_run_once_and_downstream_tasks_never(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    ledger = tmp_path / "ledger"

    rehearsal = rehearse(
        pipeline=tmp_path / "chain.py", task="second", interruptions=1, arguments={"ledger": str(ledger)}
    )

    executed = [path.parent.name for path in rehearsal.state.glob("runs/*/tasks/*/attempt-1")]
    assert executed.count("first") == 1
    assert executed.count("third") == 0
    assert not ledger.exists(), "a rehearsal changes no file of the machine"


@pytest.mark.long
def test_a_successful_trial_keeps_its_log_and_its_generators_and_removes_its_files(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)

    rehearsal = rehearse(
        pipeline=tmp_path / "chain.py", task="second", interruptions=1, arguments={"ledger": str(tmp_path / "l")}
    )

    trial = rehearsal.steps[0].outcomes[0].trial
    assert trial is not None
    kept = sorted(path.name for path in trial.attempts[0].folder.iterdir())
    assert kept == ["claim", "exit.jsonl", "generators", "log.txt"]


def test_a_failing_upstream_task_is_named_in_the_report(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN.replace("return 1", "raise OSError('no such data')"))

    rehearsal = rehearse(pipeline=tmp_path / "chain.py", task="second", arguments={"ledger": str(tmp_path / "l")})

    assert rehearsal.steps[0].verdict is Verdict.FAILS
    assert "task first failed" in rehearsal.steps[0].undisturbed_failure
    assert "no such data" in rehearsal.steps[0].undisturbed_failure


def test_an_undisturbed_failure_is_reported_in_every_format(rehearse: Rehearse, tmp_path: Path) -> None:
    from spotwright.rehearsal.report import as_json, as_junit, as_text

    (tmp_path / "chain.py").write_text(CHAIN.replace("return 1", "raise OSError('no such data')"))
    rehearsal = rehearse(pipeline=tmp_path / "chain.py", task="second", arguments={"ledger": str(tmp_path / "l")})

    assert json.loads(json.dumps(as_json(rehearsal)))["steps"][0]["fails_undisturbed"]
    assert "fails without any interruption" in as_junit(rehearsal, must_resume=False)
    assert "spotwright logs undisturbed first" in as_text(rehearsal)


def fills_a_claim() -> None:
    """The upstream task: writes a claim with one row."""
    Path("/claimed/rows.csv").write_text("0\n")


def appends_to_a_claim() -> None:
    """Appends to a file of a claim, from the first row in every attempt."""
    for row in range(10):
        time.sleep(0.01)
        with Path("/claimed/rows.csv").open("a") as file:
            file.write(f"{row}\n")


def replaces_a_claim_file() -> None:
    """Replaces the file of a claim atomically, so repeated attempts give the same result."""
    lines = Path("/claimed/rows.csv").read_text().splitlines()[:1]
    for row in range(10):
        time.sleep(0.01)
        lines.append(str(row))
    beside = Path("/claimed/rows.new")
    beside.write_text("\n".join(lines))
    beside.rename("/claimed/rows.csv")


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "verdict"),
    every(2, [(appends_to_a_claim, Verdict.UNSAFE), (replaces_a_claim_file, Verdict.STARTS_OVER)]),
)
def test_a_claim_outlives_attempts_and_is_reset_for_each_trial(
    function: Callable[..., Any], verdict: Verdict, rehearse: Rehearse, tmp_path: Path
) -> None:
    claim = {"pvcMount": [{"constant": "c", "mountPath": "/claimed"}]}
    steps = {
        "fill": step(fills_a_claim, source=source_of(fills_a_claim), kubernetes=claim),
        "work": step(function, source=source_of(function), kubernetes=claim, after=["fill"]),
    }
    (tmp_path / "claims.yaml").write_text(document(steps))

    rehearsal = rehearse(
        pipeline=tmp_path / "claims.yaml", task="work", interruptions=1, outputs=("/claimed/rows.csv",)
    )

    assert rehearsal.steps[0].verdict is verdict
    assert rehearsal.steps[0].noise == ()
    activity = rehearsal.steps[0].activity
    assert activity.saves or activity.unread == ("rows.csv",)  # what is only appended to, and never read, is no save


CONTAINER = '''
from kfp import dsl

COUNT = """
saved=$SPOTWRIGHT_CHECKPOINT/n
n=$(cat $saved 2>/dev/null || echo 0)
while [ $n -lt 10 ]; do
  sleep 0.02
  n=$((n + 1))
  SAVE
done
mkdir -p "$(dirname "$0")"
echo $n > "$0"
"""


@dsl.container_component
def count(result: dsl.OutputPath(str)):
    return dsl.ContainerSpec(image="busybox", command=["sh", "-c", COUNT], args=[result])


@dsl.pipeline
def counting():
    count()
'''


@pytest.mark.long
@pytest.mark.parametrize(
    ("save", "verdict"),
    every(2, [("echo $n > $saved", Verdict.UNSAFE), ("echo $n > $saved.new && mv $saved.new $saved", Verdict.RESUMES)]),
)
def test_a_container_command_is_interrupted_inside_its_saves(
    save: str, verdict: Verdict, rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "counting.py").write_text(CONTAINER.replace("SAVE", save))

    rehearsal = rehearse(pipeline=tmp_path / "counting.py", interruptions=1, containers="host")

    assert rehearsal.steps[0].verdict is verdict


LUCK = """
from kfp import dsl


@dsl.component
def draw_points() -> int:
    import os, pathlib, time

    time.sleep(0.05)
    runs = pathlib.Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).parents[4]
    return int(len(list(runs.iterdir())) > 2)  # the third execution is the first to differ


@dsl.pipeline
def luck() -> int:
    return draw_points().output
"""


@pytest.mark.long
def test_a_difference_that_occurs_undisturbed_now_and_then_is_noise(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "luck.py").write_text(LUCK)

    rehearsal = rehearse(pipeline=tmp_path / "luck.py", interruptions=1)

    assert rehearsal.steps[0].verdict is Verdict.UNDECIDED
    assert "differs without any interruption" in rehearsal.steps[0].undecided
    assert [each.output for each in rehearsal.steps[0].noise] == ["Output"]


@pytest.mark.long
def test_a_share_of_the_time_is_counted_from_the_start_of_the_code(rehearse: Rehearse) -> None:
    """Not from that of its shim, which first prepares what the attempt sees."""
    rehearsal = rehearse(starts_over)

    (middle,) = [each for each in rehearsal.steps[0].outcomes if each.point.name == "middle, no notice"]
    assert middle.trial is not None
    assert middle.trial.attempts[0].seconds >= middle.trial.injected[0].age >= 0.35 * 0.2
