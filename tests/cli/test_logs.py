"""``logs``: of every attempt, also those whose node was taken; live with ``--follow``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.terminals import on_a_terminal, on_no_terminal
from tests.e2e.building import Of, step
from tests.e2e.inside import attempt, raise_file, say, until, work_and_hold
from tests.e2e.project import AT_WORK, PATIENCE, Project, a_project, eventually
from tests.kfp.builders import component, ir, task
from tests.page.recorded import a_story, log_of, recorded


def prints(number: int) -> int:
    say(f"attempt {attempt()} of {number}")
    if attempt() == 1:
        work_and_hold()
    return number + 1


def prints_in_steps(number: int) -> int:
    say("first")
    raise_file("first")
    until("go on")
    say("sec\u00f6nd")
    return number


def writes_half_a_letter(number: int) -> int:
    sys.stdout.buffer.write(b"a" + "\u00f6".encode()[:1])
    sys.stdout.flush()
    raise_file("first")
    until("go on")
    sys.stdout.buffer.write("\u00f6".encode()[1:] + b"\n")
    return number


def test_the_logs_of_dead_attempts_are_kept(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    steps = {"one": step(prints, {"number": 1}), "two": step(prints, {"number": Of("one")})}
    assert project.run(project.pipeline(steps)).code == 0
    assert project.here("logs", "r", "one", "1").out == "attempt 1 of 1\n"
    assert project.here("logs", "r", "one").out == (
        "==> one attempt 1 <==\nattempt 1 of 1\n==> one attempt 2 <==\nattempt 2 of 1\n"
    )
    assert project.here("logs", "r").out.count("==>") == 4


def test_follow_shows_what_is_written_while_it_is_written_and_ends_with_the_run(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(prints_in_steps, {"number": 1})})), "--name", "r")
    eventually((project.playground / "first").exists)
    follower = project.start("logs", "r", "it", "--follow")
    eventually(lambda: "first" in follower.out.read_text())
    project.raise_file("go on")
    assert follower.wait().out == "==> it attempt 1 <==\nfirst\nsec\u00f6nd\n"
    assert under.wait().code == 0


def test_follow_waits_for_the_bytes_of_a_character(project: Project) -> None:
    under = project.start(
        "run", str(project.pipeline({"it": step(writes_half_a_letter, {"number": 1})})), "--name", "r"
    )
    eventually((project.playground / "first").exists)
    follower = project.start("logs", "r", "it", "1", "--follow")
    eventually(lambda: "a" in follower.out.read_text(errors="replace"))
    project.raise_file("go on")
    assert follower.wait().out == "a\u00f6\n"
    assert under.wait().code == 0


def test_follow_of_a_run_that_has_ended_is_its_logs(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(prints_quickly, {"number": 1})})).code == 0
    assert project.spotwright("logs", "r", "it", "1", "--follow").out == "hello\n"


def prints_quickly(number: int) -> int:
    say("hello")
    return number


def test_follow_ends_when_the_engine_is_killed(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(prints_in_steps, {"number": 1})})), "--name", "r")
    eventually((project.playground / "first").exists)
    follower = project.start("logs", "r", "--follow")
    eventually(lambda: "first" in follower.out.read_text())
    under.kill()
    assert follower.wait().code == 0
    assert project.spotwright("cancel", "r").code == 0


def test_a_reader_of_progress_that_goes_away_does_not_stop_the_run(project: Project) -> None:
    """As in ``spotwright run ... | head -1``: the run goes on to its end."""
    pipeline = project.pipeline({"it": step(prints_in_steps, {"number": 1})})
    command = [sys.executable, "-m", "spotwright", "run", str(pipeline), "--name", "r"]
    with subprocess.Popen(
        command, cwd=project.folder, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as under:
        assert under.stdout is not None
        assert under.stderr is not None
        assert under.stdout.readline()
        under.stdout.close()
        eventually((project.playground / "first").exists)
        project.raise_file("go on")
        said = under.stderr.read()
    assert b"Traceback" not in said
    assert project.show()["status"] == "succeeded"


def test_a_reader_of_logs_that_goes_away_is_no_error(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(prints_a_lot, {"number": 1})})).code == 0
    command = [sys.executable, "-m", "spotwright", "logs", "r", "it", "1"]
    with subprocess.Popen(
        command, cwd=project.folder, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as under:
        assert under.stdout is not None
        assert under.stderr is not None
        under.stdout.readline()
        under.stdout.close()
        assert under.stderr.read() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_the_output_is_one_message_and_the_run_goes_on(project: Project, unbuffered: str) -> None:
    pipeline = project.pipeline({"it": step(prints_a_lot, {"number": 1})})
    for words in (["run", str(pipeline), "--name", "r"], ["show", "r"]):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "spotwright", *words],
                cwd=project.folder, env={**project.env, "PYTHONUNBUFFERED": unbuffered},
                stdout=full, stderr=subprocess.PIPE, check=False,
            )  # fmt: skip
        assert ended.stderr == b"spotwright: the output cannot be written (No space left on device)\n"
        assert ended.returncode == 1
    assert project.show()["status"] == "succeeded"


def prints_a_lot(number: int) -> int:
    for _ in range(20000):
        say("a line of some length")
    return number


LOOPED = """
from kfp import dsl

@dsl.component(install_kfp_package=False)
def tell(number: int):
    print(f"number {number}")

@dsl.pipeline
def looped():
    with dsl.ParallelFor([7, 8], name="loop") as number:
        tell(number=number)
"""


def test_a_task_in_a_loop_is_selected_by_its_name_its_path_or_its_loop(project: Project) -> None:
    assert project.run(project.write("looped.py", LOOPED)).code == 0
    one = "==> loop/tell-1 attempt 1 <==\nnumber 8\n"
    both = "==> loop/tell-0 attempt 1 <==\nnumber 7\n" + one
    for called, expected in (("tell", both), ("loop", both), ("tell-1", one), ("loop/tell-1", one)):
        printed = project.here("logs", "r", called).out
        assert sorted(printed.splitlines()) == sorted(expected.splitlines()), called
    refused = project.here("logs", "r", "tell", "1")
    assert refused.code == 2
    assert "tell matches several tasks: loop/tell-0, loop/tell-1" in refused.err


def waits_for_its_turn(number: int) -> int:
    until(f"turn {number}")
    return number


def test_show_follows_a_run_that_another_process_drives(project: Project) -> None:
    """Tasks end one by one until the follower, which begins when it begins, has shown one of them."""
    steps = {f"task-{number}": step(waits_for_its_turn, {"number": number}) for number in range(8)}
    under = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually(lambda: project.state.joinpath("runs", "r", "journal.db").exists())
    follower = project.start("show", "r", "--follow")
    for number in range(8):
        project.raise_file(f"turn {number}")
        deadline = time.monotonic() + (2 if number < 7 else PATIENCE)
        while time.monotonic() < deadline and not follower.out.read_text():
            time.sleep(0.05)
    assert under.wait().code == 0
    shown = follower.wait().out
    followed = [line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("+")]
    assert re.fullmatch(r"task-\d: attempt 1 on spot-1 succeeded after .*", followed[0])
    assert followed[-1] == "the run has succeeded"
    assert shown.endswith(project.spotwright("show", "r").out)


def test_a_terminal_is_shown_every_control_character_and_a_pipe_gets_all_that_was_written(tmp_path: Path) -> None:
    reader = recorded(tmp_path / "state", a_story())
    written = b"\r50%\r100%\n\x1b[31mred\x1b[0m\x1b]0;a title\x07\x1b[2J \xe2\x80\xaegnp.exe \xff\x9b2J\n"
    log_of(reader.folder, 1, written)
    state = "--state", str(tmp_path / "state")
    piped = on_no_terminal("logs", "a-run", "eval", "1", *state)
    assert piped == written
    assert on_a_terminal("logs", "a-run", "eval", "1", *state) == (
        "<U+000D>50%<U+000D>100%\n<U+001B>[31mred<U+001B>[0m<U+001B>]0;a title<U+0007><U+001B>[2J <U+202E>gnp.exe"
        " \ufffd\ufffd2J\n".encode()
    )
    assert on_a_terminal("logs", "a-run", "eval", "1", "--raw", *state) == written
    coloured = on_a_terminal("logs", "a-run", "eval", "1", "--colours", *state)
    assert coloured.startswith(b"\r50%\r100%\n\x1b[31mred\x1b[0m <U+202E>gnp.exe")


@pytest.fixture(scope="module")
def looped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A run in which ``work`` is in a loop of two, below the pipeline ``inner``, and ``works`` beside the loop."""
    loop = task("each", taskInfo={"name": "loop"}, parameterIterator={"itemInput": "item", "items": {"raw": "[1, 2]"}})
    works, work = task("step", taskInfo={"name": "works"}), task("step", taskInfo={"name": "work"})
    components = {
        "comp-inner": {"dag": {"tasks": {"loop": loop, "works": works}}},
        "comp-each": {
            "inputDefinitions": {"parameters": {"item": {"parameterType": "NUMBER_INTEGER"}}},
            "dag": {"tasks": {"work": work}},
        },
        "comp-step": component("step"),
    }
    with a_project(tmp_path_factory.mktemp("looped")) as project:
        file = project.folder / "looped.json"
        file.write_text(json.dumps(ir({"inner": task("inner")}, components)))
        ran = project.here("run", str(file), "--name", "r")
        assert ran.code == 0, ran
        yield project


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("work", ["inner/loop/work-0", "inner/loop/work-1"]),
        ("loop/work", ["inner/loop/work-0", "inner/loop/work-1"]),
        ("work-1", ["inner/loop/work-1"]),
        ("loop", ["inner/loop", "inner/loop/work-0", "inner/loop/work-1"]),
        ("works", ["inner/works"]),
        ("work*", ["inner/works", "inner/loop/work-0", "inner/loop/work-1"]),
    ],
)
def test_show_and_logs_mean_the_same_tasks_by_a_name(looped: Project, name: str, paths: list[str]) -> None:
    shown = json.loads(looped.here("show", "r", name, "--json").out)["tasks"]
    printed = json.loads(looped.here("logs", "r", name, "--json").out)
    assert [task["path"] for task in shown] == paths
    assert sorted(log["task"] for log in printed) == sorted(path for path in paths if path != "inner/loop")


@pytest.mark.parametrize("command", ["show", "logs"])
def test_a_name_that_means_no_task_of_a_run_is_answered_with_the_nearest(looped: Project, command: str) -> None:
    done = looped.here(command, "r", "wrok")
    assert (done.code, done.out) == (2, "")
    assert "run r has no task 'wrok': did you mean 'inner/works'?; the tasks are inner, " in done.err
