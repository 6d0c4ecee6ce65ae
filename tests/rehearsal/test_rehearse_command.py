"""``spotwright rehearse`` on the command line: its output, its files and its exit codes."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree as ET

import pytest
from scripts.make_reference import json_page
from tests.e2e.project import Done, Project, RunningCommand, eventually
from tests.rehearsal.conftest import pipeline_of
from tests.rehearsal.sample_steps import by_hand, torn

from spotwright.errors import StateError
from spotwright.kfp.commands import compiled_command
from spotwright.rehearsal import session
from spotwright.rehearsal.session import RehearsalOptions

SAVES_IN_PLACE = """
import json, os, pathlib, time
saved = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
step = json.loads(saved.read_text())["step"] if saved.exists() else 0
while step < 10:
    time.sleep(0.01)
    step += 1
    saved.write_text(json.dumps({"step": step}))
    with open("rows.csv", "a") as file:
        file.write(f"{step}\\n")
pathlib.Path("model.json").write_text(json.dumps({"steps": step, "at": time.time()}))
print("done in", time.time())
"""
APPENDS = """
import os, pathlib, time
saved = pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
step = int(saved.read_text()) if saved.exists() else 0
while step < 10:
    time.sleep(0.01)
    with open("rows.csv", "a") as file:
        file.write(f"{step}\\n")
    step += 1
    saved.with_suffix(".new").write_text(str(step))
    saved.with_suffix(".new").rename(saved)
"""


def rehearse(project: Project, *words: str) -> Done:
    return project.spotwright("rehearse", "--seed", "5", "--interruptions", "1", *words)


def of_command(project: Project, code: str, *options: str) -> dict[str, Any]:
    """Rehearse a Python program; return the only step of the JSON, and the exit code."""
    project.write("train.py", code)
    done = rehearse(project, *options, "--json", "--", sys.executable, "train.py")
    (step,) = done.json()["steps"]
    return {**step, "code": done.code}


@pytest.mark.long
@pytest.mark.slow
def test_an_unsafe_task_exits_with_1_and_names_its_log(project: Project) -> None:
    done = rehearse(project, str(pipeline_of(project.folder, torn)), "--junit", "found.xml")

    assert done.code == 1
    assert "step: not safe" in done.out
    assert "after state.json was opened: attempt 2 failed" in done.out
    (line,) = [line for line in done.out.splitlines() if "spotwright logs" in line]
    log = project.spotwright(*line.split()[2:])
    assert "JSONDecodeError" in log.out
    suite = ET.parse(project.folder / "found.xml").getroot()[0]  # noqa: S314 (we wrote it)
    assert suite.get("tests") == str(len(suite))
    assert {case.get("name") for case in suite if case.find("failure") is not None} >= {"verdict"}
    (kept,) = (project.folder / ".spotwright" / "rehearsals").glob("*/report.json")  # which the page shows
    report = json.loads(kept.read_text(encoding="utf-8"))
    assert (report["safe"], report["steps"][0]["verdict"]) == (False, "not safe")
    assert report["text"].splitlines()[0] == "step: not safe"


@pytest.mark.long
def test_the_same_seed_gives_the_same_points(project: Project) -> None:
    file = str(pipeline_of(project.folder, by_hand))

    first, second = (rehearse(project, file, "--json").json()["steps"][0] for _ in range(2))

    assert first["verdict"] == second["verdict"] == "safe and resumes"
    assert [(point["name"], [hit["where"] for hit in point["interruptions"]]) for point in first["points"]] == [
        (point["name"], [hit["where"] for hit in point["interruptions"]]) for point in second["points"]
    ]


@pytest.mark.slow
def test_a_command_gets_a_verdict_and_its_folder_is_not_changed(project: Project) -> None:
    step = of_command(project, SAVES_IN_PLACE, "--output", "model.json")

    assert (step["code"], step["verdict"]) == (1, "not safe")
    assert step["not_compared"][0].startswith("model.json.at: ")
    assert sorted(path.name for path in project.folder.glob("[!.]*.*")) == ["0.err", "0.out", "train.py"]


@pytest.mark.slow
def test_a_missing_named_output_is_a_failure(project: Project) -> None:
    step = of_command(project, APPENDS, "--output", "nothing")

    assert "did not write nothing" in str(step["fails_undisturbed"])


@pytest.mark.long
def test_a_kept_path_outlives_attempts_so_a_repeated_row_is_a_difference(project: Project) -> None:
    step = of_command(project, APPENDS, "--keep", "rows.csv", "--output", "rows.csv")

    assert (step["code"], step["verdict"]) == (1, "not safe")
    assert any("rows.csv: 11 lines instead of 10" in (point["problem"] or "") for point in step["points"])


@pytest.mark.long
def test_standard_output_is_compared_with_the_stdout_option(project: Project) -> None:
    quiet, loud = (
        of_command(project, "import os, time\ntime.sleep(0.05)\nprint(os.environ['SPOTWRIGHT_ATTEMPT'])", *options)
        for options in ((), ("--stdout",))
    )

    assert (quiet["verdict"], loud["verdict"]) == ("undecided", "not safe")
    assert (quiet["code"], quiet["undecided"]) == (1, "it has no output that could be compared: name one with --output")


@pytest.mark.long
def test_what_is_kept_is_state_and_no_output_unless_it_is_named_as_one(project: Project) -> None:
    code = APPENDS.replace("rows.csv", "kept/rows.csv").replace("import os,", "open('model', 'w').close()\nimport os,")
    (project.folder / "kept").mkdir()

    states, named = (of_command(project, code, "--keep", "kept", *more) for more in ((), ("--output", "kept/rows.csv")))

    assert (states["verdict"], named["verdict"]) == ("safe and resumes", "not safe")


class _RefusesMaps:
    """A C library of a kernel that makes user namespaces, and lets nobody write their maps."""

    def unshare(self, flags: int) -> int:
        return 0 if flags & 0x10000000 else -1


def test_a_command_runs_where_the_kernel_makes_a_user_namespace_and_refuses_its_maps(tmp_path: Path) -> None:
    container = compiled_command(["true"], ()).ir["deploymentSpec"]["executors"]["exec-command"]["container"]
    code = f"import ctypes\n{inspect.getsource(_RefusesMaps)}\nctypes.CDLL = lambda *_, **__: _RefusesMaps()\n"
    env = {**os.environ, "SPOTWRIGHT_NO_PID_NAMESPACE": str(tmp_path / "refused")}

    subprocess.run([sys.executable, "-c", f"{code}{container['command'][3]}\ncommand()"], env=env, check=True)

    assert (tmp_path / "refused").read_text() == "Operation not permitted"


def test_a_full_disk_leaves_nothing_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fill(*_: object, **__: object) -> NoReturn:
        raise StateError("journal.db: the disk is full")

    monkeypatch.setattr(session, "rehearse_steps", fill)
    with pytest.raises(StateError, match="disk is full"):
        session.run_rehearsal(RehearsalOptions(command=("true",), folder=tmp_path, state=tmp_path / "state"), print)

    assert not list((tmp_path / "state" / "rehearsals").iterdir())


@pytest.mark.long
def test_starting_over_exits_with_1_with_must_resume(project: Project) -> None:
    command = ("--", sys.executable, "-c", "import time; time.sleep(0.1); open('model', 'w').close()")

    assert [rehearse(project, *command).code, rehearse(project, "--must-resume", *command).code] == [0, 1]


@pytest.mark.slow
def test_a_command_that_fails_undisturbed_is_reported_with_its_message(project: Project) -> None:
    done = rehearse(project, "--", sys.executable, "-c", "import sys; sys.exit('no data here')")

    assert done.code == 1
    assert "command: fails without any interruption" in done.out
    assert "no data here" in done.out


def test_a_command_that_does_not_exist_fails_undisturbed(project: Project) -> None:
    done = rehearse(project, "--", "no-such-program-anywhere")

    assert done.code == 1
    assert "no-such-program-anywhere: No such file or directory" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected either a pipeline, or a command after --"),
        (("pipeline.py", "--", "true"), "expected either a pipeline, or a command after --"),
        (("--task", "train", "--", "true"), "--task: is for pipelines"),
        (("--keep", "/nowhere", "--", "true"), "--keep /nowhere: no argument names this path"),
        (("--keep", "../outside", "--", "true"), "--keep ../outside: expected a path inside the working folder"),
        (("--output", ".", "--", "true"), "--output .: expected a path inside the working folder"),
        (("--interruptions", "0", "--", "true"), "--interruptions 0: expected a number from 1"),
        (("--tolerance", "-1", "--", "true"), "--tolerance -1: expected a number from 0"),
        (("--tolerance", "inf", "--", "true"), "--tolerance inf: expected a number from 0"),
        (("--seed", "-1", "--", "true"), "--seed -1: expected a number from 0"),
        (("--notice", "0s", "--", "true"), "--notice 0s: expected a duration above 0"),
        (("--compare", "nothing", "--", "true"), "--compare nothing: expected module:function"),
        (("none.py",), "none.py: there is no such file"),
        (("--junit", "no/such/folder.xml", "--", "true"), "--junit no/such/folder.xml: cannot be written"),
        (("step.yaml", "--task", "no-such"), "--task no-such matches no task; the tasks are step"),
        (("step.yaml", "--stdout"), "--stdout: is for commands"),
        (("step.yaml", "--output", "/data/x"), "--output: name the task"),
        (
            ("step.yaml", "--task", "step", "--output", "/data/x"),
            "--output /data/x: expected a path that outlives an attempt",
        ),
        (("step.yaml", "--keep", "/data"), "--keep: name the task"),
        (("step.yaml", "--task", "step", "--keep", "data"), "--keep data: expected an absolute path"),
    ],
)
def test_wrong_input_exits_with_2_and_one_message(words: tuple[str, ...], message: str, project: Project) -> None:
    pipeline_of(project.folder, by_hand).rename(project.folder / "step.yaml")

    done = project.here("rehearse", *words)

    assert (done.code, len(done.error_lines)) == (2, 1)
    assert message in done.err


def test_ctrl_c_exits_with_130_and_leaves_no_process(project: Project) -> None:
    under = project.start("rehearse", "--", sys.executable, "-c", "open('begun', 'w'); import time; time.sleep(60)")
    eventually(lambda: any(project.folder.glob(".spotwright/rehearsals/*/runs/*/tasks/*/*/work/begun")))
    under.send(signal.SIGINT)

    assert under.wait().code == 130


def test_the_stop_button_of_a_notebook_ends_the_rehearsal_and_leaves_no_process(project: Project) -> None:
    step = [sys.executable, "-c", "open('begun', 'w'); import time; time.sleep(600)"]
    program = f"import spotwright as spot\nspot.rehearse({step!r})\n"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=project.folder, env=project.env, stderr=subprocess.PIPE
    ) as notebook:
        eventually(lambda: any(project.folder.glob(".spotwright/rehearsals/*/runs/*/tasks/*/*/work/begun")))
        notebook.send_signal(signal.SIGINT)  # to this process alone, as Jupyter does
        _, errors = notebook.communicate(timeout=600)

    assert errors.count(b"Traceback") == 1, errors
    assert errors.endswith(b"KeyboardInterrupt\n")


def test_the_reference_names_every_field_of_the_json(project: Project) -> None:
    page = json_page()
    section = page.partition("## A rehearsal")[2]
    done = rehearse(project, "--json", "--", sys.executable, "-c", "import time; time.sleep(0.05)")
    rehearsal = json.loads(done.out)
    point = rehearsal["steps"][0]["points"][0]
    documents = [rehearsal, rehearsal["steps"][0], point, point["interruptions"][0], point["attempts"][0]]

    assert [key for each in documents for key in each if f"`{key}`" not in section] == []


@pytest.mark.long
def test_on_a_narrow_terminal_lines_break_between_words(project: Project) -> None:
    project.write("save.py", SAVES_IN_PLACE)
    command = [
        sys.executable,
        "-m",
        "spotwright",
        "rehearse",
        "--seed",
        "5",
        "--interruptions",
        "1",
        "--",
        "python3",
        "save.py",
    ]

    shown = subprocess.run(
        command, cwd=project.folder, env={**project.env, "COLUMNS": "60"}, capture_output=True, text=True, check=False
    ).stdout

    assert "command: not safe" in shown
    assert max(map(len, shown.splitlines())) > 40, "the lines are filled"
    assert [line for line in shown.splitlines() if len(line) > 60 and len(line.split()) > 1] == []


def keeps_a_large_folder(project: Project) -> RunningCommand:
    """A rehearsal that is copying a folder of 40 GiB, which holds no data: nothing of it takes room before it is copied."""
    large = project.folder / "large"
    large.mkdir()
    with (large / "data").open("wb") as file:
        file.truncate(40 << 30)
    under = project.start("rehearse", "--keep", str(large), "--", "ls", str(large))
    eventually(lambda: "note: --keep" in under.out.read_text() and any(copies(project)))
    return under


def copies(project: Project) -> list[Path]:
    return list(project.folder.glob(".spotwright/rehearsals/*/kept"))


def test_the_size_of_a_large_kept_folder_is_said_before_it_is_copied_and_sigterm_leaves_nothing(
    project: Project,
) -> None:
    under = keeps_a_large_folder(project)
    under.send(signal.SIGTERM)
    done = under.wait()

    said = f"note: --keep {project.folder / 'large'} holds 40Gi: each trial begins with a copy of it"
    assert said in done.out.splitlines()
    assert done.code != 0
    assert list(project.state.glob("rehearsals/*")) == []


@pytest.mark.slow
@pytest.mark.long
def test_what_a_killed_rehearsal_has_copied_is_removed_by_the_next_one(project: Project) -> None:
    under = keeps_a_large_folder(project)
    under.kill()
    (killed,) = copies(project)
    (project.folder / "large" / "data").unlink()
    assert rehearse(project, "--", sys.executable, "-c", "open('a', 'w').write('x')").code in (0, 1)
    assert not killed.parent.exists()


@pytest.mark.long
def test_a_program_in_a_temporary_folder_gets_a_sentence(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "beside.py").write_text("")
    (elsewhere / "train.py").write_text("import beside\n")
    folder = next(each for each in ("/tmp", "/var/tmp", "/dev/shm") if str(elsewhere).startswith(each))  # noqa: S108
    done = rehearse(project, "--", sys.executable, str(elsewhere / "train.py"))

    assert f"note: {elsewhere / 'train.py'} is in {folder}, which is empty in each attempt" in done.out
    assert "No module named 'beside'" in done.out
    assert f"  {elsewhere / 'train.py'} is in {folder}, which is empty in each attempt" in done.out
    assert done.code == 1


@pytest.mark.long
def test_a_checkpoint_folder_that_no_shell_puts_in_is_pointed_out(project: Project) -> None:
    program = [sys.executable, "-c", "import sys, time; time.sleep(0.05); open('a', 'w').write(sys.argv[1])"]
    literal = rehearse(project, "--", *program, "--out=$SPOTWRIGHT_CHECKPOINT")
    shell = rehearse(project, "--", "sh", "-c", "echo $SPOTWRIGHT_CHECKPOINT > a; sleep 0.05")

    assert (
        "note: the command gets '--out=$SPOTWRIGHT_CHECKPOINT' as it stands, because no shell reads it" in literal.out
    )
    assert "as it stands" not in shell.out
