"""Tasks are found wherever they stand in a pipeline, and rehearsed alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import document, step
from tests.rehearse.conftest import Rehearse, source_of

from spotwright.errors import InputError
from spotwright.rehearsal.verdict import Verdict
from spotwright.runs.reading import find_run, read_state

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


def test_an_iteration_of_a_loop_is_rehearsed_and_nothing_beside_it_runs_again(
    loops: Path, rehearse: Rehearse, tmp_path: Path
) -> None:
    found = rehearse(pipeline=loops, pipeline_name="outer", task="work-1", interruptions=1)

    (step,) = found.steps
    assert (step.task, step.verdict) == ("exit-handler-1/for-loop-2/work-1", Verdict.STARTS_OVER)
    trial = step.outcomes[0].trial
    assert trial is not None
    state = read_state(find_run(found.state, trial.run.name))
    assert [path for path, task in state.tasks.items() if task.attempts] == [step.task]


def test_a_task_in_a_pipeline_below_a_condition_is_found(loops: Path, rehearse: Rehearse) -> None:
    found = rehearse(pipeline=loops, pipeline_name="outer", task="inner/work", interruptions=1)

    assert [step.verdict for step in found.steps] == [Verdict.STARTS_OVER]


@pytest.mark.parametrize(
    ("name", "said"), [("nothing", "there is no such task"), ("other/work", "there is no such task")]
)
def test_a_task_that_is_not_executed_is_named_with_those_that_are(
    name: str, said: str, loops: Path, rehearse: Rehearse
) -> None:
    with pytest.raises(InputError, match=said):
        rehearse(pipeline=loops, pipeline_name="outer", task=name)


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


def test_what_comes_before_a_task_runs_once_and_what_follows_it_not_at_all(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    ledger = tmp_path / "ledger"

    rehearse(pipeline=tmp_path / "chain.py", task="second", interruptions=1, arguments={"ledger": str(ledger)})

    assert ledger.read_text() == "first "


def test_a_trial_that_went_well_leaves_its_log_and_no_files(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)

    found = rehearse(
        pipeline=tmp_path / "chain.py", task="second", interruptions=1, arguments={"ledger": str(tmp_path / "l")}
    )

    trial = found.steps[0].outcomes[0].trial
    assert trial is not None
    assert sorted(path.name for path in trial.attempts[0].folder.iterdir()) == ["claim", "exit.jsonl", "log.txt"]


def test_a_task_whose_upstream_fails_says_which(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN.replace("return 1", "raise OSError('no such data')"))

    found = rehearse(pipeline=tmp_path / "chain.py", task="second", arguments={"ledger": str(tmp_path / "l")})

    assert found.steps[0].verdict is Verdict.FAILS
    assert "task first failed" in found.steps[0].fails
    assert "no such data" in found.steps[0].fails


def test_a_failure_undisturbed_is_json_too(rehearse: Rehearse, tmp_path: Path) -> None:
    from spotwright.rehearsal.report import as_json, as_junit, as_text

    (tmp_path / "chain.py").write_text(CHAIN.replace("return 1", "raise OSError('no such data')"))
    found = rehearse(pipeline=tmp_path / "chain.py", task="second", arguments={"ledger": str(tmp_path / "l")})

    assert json.loads(json.dumps(as_json(found)))["steps"][0]["fails_undisturbed"]
    assert "fails without any interruption" in as_junit(found, must_resume=False)
    assert "spotwright logs undisturbed first" in as_text(found)


def fills_a_claim() -> None:
    """What comes before the step: a claim with one row."""
    Path("/claimed/rows.csv").write_text("0\n")


def appends_to_a_claim() -> None:
    """Appends to a file of a claim, from its beginning each time."""
    for row in range(10):
        time.sleep(0.01)
        with Path("/claimed/rows.csv").open("a") as file:
            file.write(f"{row}\n")


def writes_a_claim_anew() -> None:
    """The same, done so that it does not matter how often."""
    lines = Path("/claimed/rows.csv").read_text().splitlines()[:1]
    for row in range(10):
        time.sleep(0.01)
        lines.append(str(row))
    beside = Path("/claimed/rows.new")
    beside.write_text("\n".join(lines))
    beside.rename("/claimed/rows.csv")


@pytest.mark.parametrize(
    ("function", "verdict"), [(appends_to_a_claim, Verdict.UNSAFE), (writes_a_claim_anew, Verdict.STARTS_OVER)]
)
def test_a_claim_outlives_attempts_and_each_trial_begins_with_what_was_in_it(
    function: Callable[..., Any], verdict: Verdict, rehearse: Rehearse, tmp_path: Path
) -> None:
    claim = {"pvcMount": [{"constant": "c", "mountPath": "/claimed"}]}
    steps = {
        "fill": step(fills_a_claim, source=source_of(fills_a_claim), kubernetes=claim),
        "work": step(function, source=source_of(function), kubernetes=claim, after=["fill"]),
    }
    (tmp_path / "claims.yaml").write_text(document(steps))

    found = rehearse(pipeline=tmp_path / "claims.yaml", task="work", interruptions=1)

    assert found.steps[0].verdict is verdict
    assert found.steps[0].noise == ()
    assert len(found.steps[0].learnt.saves) >= 1


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


@pytest.mark.parametrize(
    ("save", "verdict"),
    [("echo $n > $saved", Verdict.UNSAFE), ("echo $n > $saved.new && mv $saved.new $saved", Verdict.RESUMES)],
)
def test_the_command_of_a_container_is_stopped_inside_its_saves_too(
    save: str, verdict: Verdict, rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "counting.py").write_text(CONTAINER.replace("SAVE", save))

    found = rehearse(pipeline=tmp_path / "counting.py", interruptions=1, containers="host")

    assert found.steps[0].verdict is verdict


LUCK = """
from kfp import dsl


@dsl.component
def draw(calls: str) -> int:
    import time

    time.sleep(0.05)
    with open(calls, "a") as file:
        file.write("x")
    return int(len(open(calls).read()) > 2)


@dsl.pipeline
def luck(calls: str) -> int:
    return draw(calls=calls).output
"""


def test_what_differs_undisturbed_now_and_then_is_not_put_down_to_an_interruption(
    rehearse: Rehearse, tmp_path: Path
) -> None:
    (tmp_path / "luck.py").write_text(LUCK)

    found = rehearse(pipeline=tmp_path / "luck.py", interruptions=1, arguments={"calls": str(tmp_path / "calls")})

    assert found.steps[0].verdict is Verdict.STARTS_OVER
    assert [each.output for each in found.steps[0].noise] == ["Output"]
