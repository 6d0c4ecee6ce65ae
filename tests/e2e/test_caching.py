"""Results of earlier runs are used as KFP uses them, with a note, unless the user or the purpose of the run forbids it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.building import Of, Step, step
from tests.e2e.inside import PLAYGROUND, alone, note, raise_file, say, until
from tests.e2e.project import Project, eventually
from tests.sampling import every, only

if TYPE_CHECKING:
    from kfp import dsl


def adds_one(number: int) -> int:
    with alone():
        say(f"adding to {number}")
        return number + 1


def meets(number: int) -> int:
    """Ends only when it runs twice: in two runs, neither of which has a result of the other."""
    note("start")
    name = os.environ["SPOTWRIGHT_RUN"]
    raise_file(name)
    until({"left": "right", "right": "left"}[name])
    return number + 1


def adds_ten(number: int) -> int:
    with alone():
        return number + 10


def writes(number: int, made: dsl.Output[dsl.Dataset]) -> None:
    with alone():
        Path(made.path).write_text(str(number))


def reads(made: dsl.Input[dsl.Dataset]) -> str:
    with alone():
        return Path(made.path).read_text()


def fails(number: int) -> int:
    with alone():
        raise ValueError(number)


def chain(project: Project, **steps: Step) -> Path:
    defaults = {"one": step(adds_one, {"number": 1}), "two": step(adds_one, {"number": Of("one")})}
    return project.pipeline({**defaults, **steps})


def starts(project: Project) -> list[str]:
    return [line["task"] for line in project.ledger("start")]


def test_a_second_run_uses_the_results_of_the_first_and_says_so(project: Project) -> None:
    assert project.run(chain(project), name="first").code == 0
    done = project.run(chain(project), name="second")
    assert done.code == 0
    assert starts(project) == ["one", "two"]
    assert "one: does not run, the result from run first is used" in done.out
    shown = project.show("second")
    assert shown["outputs"]["two.Output"]["value"] == 3
    assert shown["tasks"]["two"]["cached_from"] == {"run": "first", "task": "two"}
    assert shown["tasks"]["two"]["attempts"] == []


def test_the_logs_of_a_cached_task_are_those_of_the_attempt_that_made_the_result(project: Project) -> None:
    assert project.run(chain(project), name="first").code == 0
    assert project.run(chain(project), name="second").code == 0
    assert project.here("logs", "second", "one").out == "==> one attempt 1 <==\nadding to 1\n"


@pytest.mark.parametrize(
    "options", only([["--interrupt-every", "1h"]], [["--cache", "off"], ["--interrupt-every", "1h"]])
)
def test_a_run_whose_nodes_may_be_taken_uses_no_earlier_results(project: Project, options: list[str]) -> None:
    assert project.run(chain(project), name="first").code == 0
    assert project.run(chain(project), *options, name="second").code == 0
    assert starts(project) == ["one", "two"] * 2


def test_a_run_whose_nodes_may_be_taken_uses_earlier_results_with_cache_on(project: Project) -> None:
    assert project.run(chain(project), name="first").code == 0
    assert project.run(chain(project), "--interrupt-every", "1h", "--cache", "on", name="second").code == 0
    assert starts(project) == ["one", "two"]


def test_a_task_with_caching_disabled_runs(project: Project) -> None:
    path = chain(project, one=step(adds_one, {"number": 1}, cached=False))
    for name in ("first", "second"):
        assert project.run(path, name=name).code == 0
    assert starts(project) == ["one", "two", "one"]  # what follows it was given the same value


def test_the_cache_key_of_a_task_replaces_its_inputs(project: Project) -> None:
    for name, number in (("first", 1), ("second", 5)):
        only = {"one": step(adds_one, {"number": number}, cache_key="mine")}
        assert project.run(project.pipeline(only), name=name).code == 0
    assert starts(project) == ["one"]
    assert project.show("second")["outputs"]["one.Output"]["value"] == 2


def test_concurrent_runs_share_results(project: Project) -> None:
    path, names = project.pipeline({"one": step(meets, {"number": 1})}), ("left", "right")
    running = [project.start("run", str(path), "--name", name) for name in names]
    assert [started.wait().code for started in running] == [0, 0]
    assert len(project.ledger("start")) == 2
    assert project.run(path, name="later").code == 0
    assert len(project.ledger("start")) == 2
    assert project.show("later")["tasks"]["one"]["cached_from"]["run"] in names
    assert {project.show(name)["outputs"]["one.Output"]["value"] for name in (*names, "later")} == {2}


@pytest.mark.parametrize("other", every(2, [step(adds_ten, {"number": 1}), step(adds_one, {"number": 5})]))
def test_other_code_or_other_inputs_are_not_cached(project: Project, other: Step) -> None:
    assert project.run(chain(project), name="first").code == 0
    assert project.run(chain(project, one=other), name="second").code == 0
    assert starts(project) == ["one", "two", "one", "two"]


def test_a_failed_task_is_not_cached(project: Project) -> None:
    for name in ("first", "second"):
        assert project.run(project.pipeline({"it": step(fails, {"number": 1})}), name=name).code == 1
    assert starts(project) == ["it", "it"]


def test_a_task_whose_cached_files_are_gone_runs_again(project: Project) -> None:
    path = project.pipeline(
        {"writes": step(writes, {"number": 7}), "reads": step(reads, {"made": Of("writes", "made")})}
    )
    assert project.run(path, name="first").code == 0
    shutil.rmtree(project.state / "runs" / "first")
    assert project.run(path, name="second").code == 0
    assert project.show("second")["outputs"]["reads.Output"]["value"] == "7"
    assert starts(project).count("writes") == 2


def holds(number: int) -> int:
    raise_file("begun")
    until("go on")
    return number + 1


def test_the_result_of_an_attempt_that_a_resume_started_is_used_by_later_runs(project: Project) -> None:
    path = project.pipeline({"it": step(holds, {"number": 1})})
    first = project.start("run", str(path), "--name", "first")
    eventually((project.playground / "begun").exists)
    first.send(signal.SIGINT)
    first.wait()
    project.raise_file("go on")
    assert project.spotwright("resume", "first").code == 0
    assert project.run(path, name="later").code == 0
    assert project.show("later")["tasks"]["it"]["cached_from"] == {"run": "first", "task": "it"}


def succeeds_later(number: int) -> int:
    if not (PLAYGROUND / "repaired").exists():
        raise RuntimeError("not yet")
    return number + 1


def test_the_result_of_a_task_that_failed_before_its_run_was_resumed_is_used_by_later_runs(project: Project) -> None:
    path = project.pipeline({"it": step(succeeds_later, {"number": 1}), "next": step(adds_one, {"number": Of("it")})})
    assert project.run(path, name="first").code == 1
    project.raise_file("repaired")
    assert project.spotwright("resume", "first").code == 0
    assert project.run(path, name="later").code == 0
    later = project.show("later")["tasks"]
    assert {name: later[name]["cached_from"]["run"] for name in later} == {"it": "first", "next": "first"}
    assert project.show("first")["tasks"]["it"]["cached_from"] is None
    assert {line["run"]: line["cached"] for line in project.here("runs", "--json").json()} == {"first": 0, "later": 2}
