"""Tasks are found wherever they stand in a pipeline, and rehearsed alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse

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
    assert sorted(path.name for path in trial.attempts[0].folder.iterdir()) == ["claim", "exit.json", "log.txt"]


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
