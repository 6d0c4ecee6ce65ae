"""``resume``: only tasks that did not succeed run, with new budgets; changed files are used, and their effects are noted."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.building import Of, Param, Step, step
from tests.e2e.crashes.soundness import assert_sound
from tests.e2e.inside import PLAYGROUND, alone, attempt, hold, raise_file, until
from tests.e2e.project import QUICK, Done, Project, eventually
from tests.sampling import every


def adds_one(number: int) -> int:
    with alone():
        return number + 1


def adds_ten(number: int) -> int:
    with alone():
        return number + 10


def adds_a_hundred(number: int) -> int:
    with alone():
        return number + 100


def needs_a_file(number: int) -> int:
    with alone():
        if not (PLAYGROUND / "mended").exists():
            sys.exit("it is not there")
        return number


def fails(number: int) -> int:
    with alone():
        sys.exit(f"cannot do {number}")


def holds_at_first(number: int) -> int:
    with alone():
        if attempt() == 1:
            raise_file("holding")
            hold()
        return number


def waits() -> int:
    raise_file("holding")
    until("go on")
    return 1


RETRIED = QUICK.replace("default: {spot: prefer}", "default: {spot: prefer, errors: {retries: 1, backoff: 1ms}}")


def chain(project: Project, **steps: Step) -> Path:
    """A pipeline ``one -> two -> three`` of these functions, each with the number of the previous one."""
    defaults = {
        "one": step(adds_one, {"number": 1}),
        "two": step(adds_one, {"number": Of("one")}),
        "three": step(adds_one, {"number": Of("two")}),
    }
    return project.pipeline({**defaults, **steps})


def starts(project: Project) -> dict[str, list[int]]:
    """The attempts of each task that have run."""
    attempts: dict[str, list[int]] = {}
    for line in project.ledger("start"):
        attempts.setdefault(line["task"], []).append(line["attempt"])
    return attempts


def resume(project: Project, *options: str) -> Done:
    return project.spotwright("resume", "r", *options)


def output(project: Project, name: str = "three.Output") -> object:
    return project.show()["outputs"][name]["value"]


def notes_before_the_start(done: Done) -> list[str]:
    """The lines before the engine's own, which begin with the time."""
    lines = done.out.splitlines()
    first = next(index for index, line in enumerate(lines) if re.match(r"\+[0-9.]+s ", line))
    return lines[:first]


def test_only_tasks_that_did_not_succeed_run_again(project: Project) -> None:
    assert project.run(chain(project, two=step(needs_a_file, {"number": Of("one")}))).code == 1
    project.raise_file("mended")
    assert resume(project).code == 0
    assert starts(project) == {"one": [1], "two": [1, 2], "three": [1]}
    assert output(project) == 3
    assert_sound(project)


def test_a_failed_run_is_resumed_with_new_budgets(project: Project) -> None:
    project.config(RETRIED)
    assert project.run(chain(project, two=step(needs_a_file, {"number": Of("one")}))).code == 1
    assert resume(project).code == 1
    assert project.causes("two") == ["failed"] * 4
    project.raise_file("mended")
    assert resume(project).code == 0
    assert_sound(project)


@pytest.mark.parametrize("most", every(2, [0, 1]))
def test_a_crashed_run_keeps_its_budgets_unless_they_are_used_up(project: Project, most: int) -> None:
    project.config(
        QUICK.replace("default: {spot: prefer}", f"default: {{spot: prefer, interruptions: {{max: {most}}}}}")
    )
    started = project.start("run", str(chain(project, two=step(holds_at_first, {"number": Of("one")}))), "--name", "r")
    eventually((project.playground / "holding").exists)
    started.kill()
    done = resume(project)
    assert done.code == 0
    assert project.causes("two") == ["lost", "succeeded"]
    assert project.show()["tasks"]["two"]["spent"]["interruptions"] == most
    why = "interrupted once, interruptions.max is 0"
    notes = [f"task two failed while the run had no engine ({why}): it runs again"]
    assert notes_before_the_start(done) == ([] if most else notes)


def test_changed_code_of_a_failed_task_is_used_and_noted(project: Project) -> None:
    assert project.run(chain(project, two=step(fails, {"number": Of("one")}))).code == 1
    chain(project)
    done = resume(project)
    assert done.code == 0
    assert notes_before_the_start(done) == ["task two has changed"]
    assert starts(project) == {"one": [1], "two": [1, 2], "three": [1]}


def test_changed_code_of_a_succeeded_task_runs_again_with_downstream_tasks(project: Project) -> None:
    assert project.run(chain(project)).code == 0
    chain(project, two=step(adds_ten, {"number": Of("one")}))
    done = resume(project)
    assert done.code == 0
    assert notes_before_the_start(done) == [
        "task two succeeded before and runs again: its code has changed",
        "task three succeeded before and runs again: it follows two",
    ]
    assert starts(project) == {"one": [1], "two": [1, 2], "three": [1, 2]}
    assert output(project) == 13


@pytest.mark.long
def test_a_changed_constant_is_changed_code(project: Project) -> None:
    assert project.run(chain(project)).code == 0
    chain(project, one=step(adds_one, {"number": 5}))
    assert resume(project).code == 0
    assert output(project) == 8


def test_tasks_that_are_not_downstream_of_a_change_do_not_run_again(project: Project) -> None:
    beside = step(adds_one, {"number": 7})
    assert project.run(chain(project, beside=beside)).code == 0
    chain(project, beside=beside, one=step(adds_ten, {"number": 1}))
    assert resume(project).code == 0
    assert starts(project)["beside"] == [1]


def test_changed_resources_or_retries_are_not_changed_code(project: Project) -> None:
    assert project.run(chain(project, two=step(fails, {"number": Of("one")}))).code == 1
    chain(project, one=step(adds_one, {"number": 1}, resources={"cpuRequest": 1, "resourceCpuRequest": "1"}))
    assert resume(project).code == 0
    assert starts(project)["one"] == [1]


def test_a_changed_configuration_is_used_and_noted(project: Project) -> None:
    large = step(adds_one, {"number": Of("one")}, resources={"cpuRequest": 4, "resourceCpuRequest": "4"})
    path = chain(project, two=step(fails, {"number": Of("one")}), three=large)
    assert project.run(path).code == 1
    config = project.config(QUICK.replace("spot:", "other:", 1).replace("spot: prefer", "spot: require"))
    chain(project)
    done = resume(project)
    assert done.code == 0
    assert f"{config} has changed: its pools and policy apply from now on" in notes_before_the_start(done)
    assert [attempt["pool"] for attempt in project.show()["tasks"]["two"]["attempts"]] == ["spot", "other"]


def test_an_invalid_changed_configuration_is_refused_and_changes_nothing(project: Project) -> None:
    assert project.run(chain(project, two=step(needs_a_file, {"number": Of("one")}))).code == 1
    config = project.config("poolz: {}\n")
    done = resume(project)
    assert done.code == 2
    assert done.error_lines[0].startswith(f"spotwright: {config}:2: poolz:")
    project.config(QUICK)
    project.raise_file("mended")
    assert resume(project).code == 0
    assert starts(project)["one"] == [1]


def test_a_run_goes_on_when_its_files_are_gone(project: Project) -> None:
    path = chain(project, two=step(needs_a_file, {"number": Of("one")}))
    assert project.run(path).code == 1
    path.unlink()
    (project.folder / "spotwright.yaml").unlink()
    project.raise_file("mended")
    done = resume(project)
    assert done.code == 0
    assert notes_before_the_start(done) == [
        f"{path} is gone: continuing with the pipeline as compiled before",
        f"{project.folder / 'spotwright.yaml'} is gone: continuing with the pools and policy that the run started with",
    ]
    assert output(project) == 3


def test_a_run_whose_file_is_no_pipeline_any_more_goes_on_only_as_compiled(project: Project) -> None:
    path = chain(project, two=step(needs_a_file, {"number": Of("one")}))
    assert project.run(path).code == 1
    path.write_text("}")
    project.raise_file("mended")
    done = resume(project)
    assert done.code == 2
    assert len(done.error_lines) == 1
    assert str(path) in done.error_lines[0]
    assert resume(project, "--as-compiled").code == 0


def test_a_new_task_runs_and_downstream_tasks_run_again(project: Project) -> None:
    assert project.run(chain(project)).code == 0
    chain(project, new=step(adds_ten, {"number": Of("one")}), three=step(adds_one, {"number": Of("new")}))
    done = resume(project)
    assert done.code == 0
    assert "task new is new" in notes_before_the_start(done)
    assert starts(project) == {"one": [1], "two": [1], "new": [1], "three": [1, 2]}
    assert output(project) == 13


def test_a_removed_task_is_noted_and_its_attempts_stay_in_the_account(project: Project) -> None:
    assert project.run(chain(project)).code == 0
    project.pipeline({"one": step(adds_one, {"number": 1}), "three": step(adds_one, {"number": Of("one")})})
    done = resume(project)
    assert done.code == 0
    assert "task two is no longer in the pipeline" in notes_before_the_start(done)
    assert output(project) == 3
    assert [task["path"] for task in project.show()["left_behind"]] == ["two"]


def test_a_run_that_has_succeeded_has_nothing_to_resume(project: Project) -> None:
    assert project.run(chain(project)).code == 0
    done = resume(project)
    assert done.code == 0
    assert done.out.splitlines()[0] == "run r has succeeded already: nothing to do"
    assert starts(project) == {"one": [1], "two": [1], "three": [1]}


def test_a_new_parameter_has_its_default(project: Project) -> None:
    steps = {"it": step(fails, {"number": Param("number")})}
    assert project.run(project.pipeline(steps, {"number": "int"}), "--arg", "number=1").code == 1
    mended = {"it": step(adds_one, {"number": Param("other")})}
    project.pipeline(mended, {"number": "int", "other": ("int", 41)})
    assert resume(project).code == 0
    assert output(project, "it.Output") == 42


def test_tasks_that_use_a_changed_default_run_again(project: Project) -> None:
    steps = {"one": step(adds_one, {"number": Param("number")}), "two": step(adds_ten, {"number": Of("one")})}
    steps["beside"] = step(adds_one, {"number": 1})
    assert project.run(project.pipeline(steps, {"number": ("int", 1)})).code == 0
    project.pipeline(steps, {"number": ("int", 5)})
    done = resume(project)
    assert notes_before_the_start(done) == [
        "task one succeeded before and runs again: the default of number has changed",
        "task two succeeded before and runs again: it follows one",
    ]
    assert output(project, "two.Output") == 16
    assert starts(project)["beside"] == [1]


def test_a_new_parameter_without_a_default_is_refused(project: Project) -> None:
    steps = {"it": step(fails, {"number": Param("number")})}
    assert project.run(project.pipeline(steps, {"number": "int"}), "--arg", "number=1").code == 1
    project.pipeline({"it": step(adds_one, {"number": Param("other")})}, {"number": "int", "other": "int"})
    done = resume(project)
    assert done.code == 2
    assert len(done.error_lines) == 1
    assert "other" in done.error_lines[0]


def test_changed_code_is_used_for_tasks_that_ran_when_the_engine_was_killed(project: Project) -> None:
    started = project.start("run", str(chain(project, two=step(holds_at_first, {"number": Of("one")}))), "--name", "r")
    eventually((project.playground / "holding").exists)
    started.kill()
    chain(project, two=step(adds_ten, {"number": Of("one")}))
    assert resume(project).code == 0
    assert project.causes("two") == ["lost", "succeeded"]
    assert output(project) == 13
    assert_sound(project)


@pytest.mark.long
@pytest.mark.parametrize(
    ("moment", "kind"),
    every(2, [("before", "reset"), ("before", "engine"), ("committed", "engine"), ("committed", "reset")]),
)
def test_changed_code_is_used_after_a_kill_during_the_resume(project: Project, moment: str, kind: str) -> None:
    assert project.run(chain(project)).code == 0
    chain(project, two=step(adds_ten, {"number": Of("one")}))
    assert project.spotwright("resume", "r", crash=(f"{moment}:{kind}", 1)).code == -9
    chain(project, two=step(adds_a_hundred, {"number": Of("one")}))
    assert project.spotwright("resume", "r", crash=(f"{moment}:{kind}", 1)).code == -9
    assert resume(project).code == 0
    assert output(project) == 103
    assert_sound(project, again={"two", "three"})


def test_an_attempt_that_outlived_its_engine_is_charged_until_its_end(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"it": step(waits)})), "--name", "r")
    eventually((project.playground / "holding").exists)
    started.kill()
    killed_at = time.time()
    eventually(lambda: time.time() > killed_at + 0.3)
    project.raise_file("go on")
    eventually((project.attempt("it") / "exit.jsonl").exists)
    assert resume(project).code == 0
    attempt = project.show()["tasks"]["it"]["attempts"][0]
    assert attempt["cause"] == "succeeded"
    assert attempt["ended_at"] >= killed_at + 0.3
    [node] = project.show()["nodes"]
    assert node["gone_at"] == attempt["ended_at"]


def test_time_without_an_engine_is_not_charged(project: Project) -> None:
    project.config(
        QUICK.replace("spot, node", "spot, price: 1/h, node").replace("demand, node", "demand, price: 2/h, node")
    )
    started = project.start("run", str(chain(project, two=step(holds_at_first, {"number": Of("one")}))), "--name", "r")
    eventually((project.playground / "holding").exists)
    started.kill()
    days = 3 * 86400
    path = project.state / "runs" / "r" / "journal.db"
    with contextlib.closing(sqlite3.connect(path)) as journal, journal:  # the engine went three days ago
        journal.execute("UPDATE events SET at = at - ?", (days,))
        journal.execute(
            "UPDATE events SET data = json_set(data, '$.goes_at', json_extract(data, '$.goes_at') - ?)"
            " WHERE json_extract(data, '$.goes_at') IS NOT NULL",
            (days,),
        )
    assert resume(project).code == 0
    assert project.here("report", "r", "--json").json()["whole"]["seconds"] < 3600
