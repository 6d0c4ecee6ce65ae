"""Without Linux's calls, runs are read, and pipelines and manifests are compiled and placed, but not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.building import step
from tests.e2e.inside import raise_file, say, until
from tests.e2e.project import Done, Project, a_project, eventually

HIDING = Path(__file__).parent / "hiding"
PIPELINE = """
from kfp import dsl

@dsl.component
def train(rows: int) -> int:
    return rows

@dsl.pipeline
def training(rows: int = 3):
    train(rows=rows)
"""
POOLS = """
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 8, memory: 16Gi}}
  od: {capacity: on-demand, provider: aks, node: {cpu: 8, memory: 16Gi}}
policy:
  default: {spot: prefer}
"""
JOB = """\
# \N{SNOWMAN}
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: train:1}]
"""
MESSAGE = (
    "spotwright: runs on this machine need Linux, and this is {name}: use a container, made with the Dockerfile of "
    "Spotwright's repository, or WSL 2 on Windows; the README shows how. "
    "Here work: runs, show, logs, report, compile, place, unplace and explain\n"
)


def greets(number: int) -> int:
    say("hello \N{SNOWMAN}")
    return number


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose run ``r`` has succeeded."""
    with a_project(tmp_path_factory.mktemp("project")) as project:
        assert project.run(project.pipeline({"it": step(greets, {"number": 1})})).code == 0
        project.write("training.py", PIPELINE)
        project.config(POOLS)
        yield project


def imported(project: Project, *command: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    script = (
        f"import json, sys\nsys.argv = {['spotwright', *command]!r}\nfrom spotwright.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project.folder, env=project.env, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


READING = {
    "runs": ("runs",),
    "show": ("show", "r"),
    "show --json": ("show", "r", "--json"),
    "logs": ("logs", "r"),
    "logs --follow": ("logs", "r", "--follow"),
    "report": ("report", "r"),
}


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_reading_a_run_imports_nothing_of_what_runs_it(ended: Project, command: tuple[str, ...]) -> None:
    modules = imported(ended, *command)
    packages = {name.split(".")[1] for name in modules if name.startswith("spotwright.")}
    assert (
        packages & {"local", "supply", "rehearsal", "manifests", "kinds", "placing", "notices", "checkpoint"} == set()
    )
    assert {name for name in modules if name.startswith("spotwright.runs.")} == {
        "spotwright.runs.bodies",
        "spotwright.runs.run_options",
    }
    assert modules & {"kfp", "ctypes", "resource", "subprocess", "rich"} == set()


def waits(number: int) -> int:
    raise_file("begun")
    until("go on")
    return number


def test_reading_a_run_that_goes_on_imports_only_the_identity_of_processes(tmp_path: Path) -> None:
    """Whether its engine is alive is a question about a process of this machine."""
    with a_project(tmp_path) as project:
        under = project.start("run", str(project.pipeline({"it": step(waits, {"number": 1})})), "--name", "r")
        eventually((project.playground / "begun").exists)
        for command in (("runs",), ("show", "r"), ("logs", "r"), ("report", "r")):
            assert {name for name in imported(project, *command) if name.startswith("spotwright.local")} == {
                "spotwright.local",
                "spotwright.local.supervisor",
                "spotwright.local.supervisor.process_identity",
            }
        project.raise_file("go on")
        assert under.wait().code == 0


@pytest.fixture(params=["darwin", "win32"])
def elsewhere(request: pytest.FixtureRequest, ended: Project) -> Project:
    """The same project on a platform without Linux's calls."""
    paths = [str(HIDING), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {"PYTHONPATH": os.pathsep.join(paths), "HIDE_LINUX": request.param}
    if request.param == "win32":
        env |= {"PYTHONIOENCODING": "cp1252", "PYTHONWARNDEFAULTENCODING": "1"}
    return Project(ended.folder, env)


def python(project: Project, script: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project.folder, env=project.env | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def test_what_runs_attempts_cannot_even_be_imported_there(elsewhere: Project) -> None:
    """Otherwise the tests below would be meaningless."""
    assert python(elsewhere, "import spotwright.local.backend").code == 1
    assert python(elsewhere, "open('/proc/self/stat', 'rb')").code == 1


@pytest.mark.parametrize("command", READING.values(), ids=READING)
def test_a_run_reads_the_same_there(ended: Project, elsewhere: Project, command: tuple[str, ...]) -> None:
    there, here = elsewhere.spotwright(*command), ended.here(*command)
    assert (there.code, there.err) == (0, "")
    assert there.out == here.out


def test_a_run_whose_engine_was_killed_reads_there_too(ended: Project, elsewhere: Project) -> None:
    folder = elsewhere.state / "runs"
    assert python(ended, LEFT_BEHIND).code == 0
    shown = elsewhere.spotwright("show", "left", "--json")
    assert shown.json()["driven"] is False
    assert "left" in elsewhere.spotwright("runs").out
    for file in sorted((folder / "left").iterdir()):
        file.unlink()
    (folder / "left").rmdir()


LEFT_BEHIND = """
import shutil
from pathlib import Path
from spotwright.records.journal import Journal
runs = Path(".spotwright/runs")
(runs / "left").mkdir()
shutil.copyfile(runs / "r" / "plan-1.json", runs / "left" / "plan-1.json")
whole, part = Journal.read(runs / "r" / "journal.db"), Journal.create(runs / "left" / "journal.db")
part.take({"pid": 1, "starttime": 1, "boot_id": "of another machine"}, lambda _: False)
part.append([event for _, event in whole.events()][:2])
"""


def test_manifests_are_placed_explained_and_unplaced_there(ended: Project, elsewhere: Project) -> None:
    job = elsewhere.write("job.yaml", JOB)
    assert elsewhere.spotwright("place", "job.yaml").out == ended.spotwright("place", "job.yaml").out
    assert "train" in elsewhere.spotwright("explain", "job.yaml").out
    placed = elsewhere.spotwright("place", "job.yaml", "--in-place")
    assert placed.code == 0, placed.err
    assert job.read_text() != JOB
    assert elsewhere.spotwright("unplace", "job.yaml", "--in-place").code == 0
    assert job.read_text() == JOB


def test_a_pipeline_is_compiled_there(ended: Project, elsewhere: Project) -> None:
    there = elsewhere.spotwright("compile", "training.py", "-o", "there.yaml")
    assert there.code == 0, there.err
    assert ended.spotwright("compile", "training.py", "-o", "here.yaml").code == 0
    assert (elsewhere.folder / "there.yaml").read_text() == (ended.folder / "here.yaml").read_text()


RUNNING = {
    "run": ("run", "training.py"),
    "resume": ("resume", "r"),
    "rehearse": ("rehearse", "training.py"),
    "cancel": ("cancel", "r"),
}


@pytest.mark.parametrize("command", RUNNING.values(), ids=RUNNING)
def test_what_needs_linux_ends_with_one_message_that_names_the_ways_out(
    elsewhere: Project, command: tuple[str, ...]
) -> None:
    done = elsewhere.spotwright(*command)
    name = {"darwin": "macOS", "win32": "Windows"}[elsewhere.extra["HIDE_LINUX"]]
    assert (done.code, done.out, done.err) == (2, "", MESSAGE.format(name=name))


@pytest.mark.parametrize("command", [*RUNNING, "node-agent"])
def test_every_command_has_its_help_there(elsewhere: Project, command: str) -> None:
    done = elsewhere.spotwright(command, "--help")
    assert done.code == 0, done.err
    assert "Usage:" in done.out


def test_the_python_api_reads_there_and_refuses_to_run(elsewhere: Project) -> None:
    done = python(
        elsewhere,
        "import spotwright as spot\nrun = spot.open_run('r')\nprint(run.status, run.logs('it', 1), run.outputs)\n"
        "for start in (lambda: spot.run('tested.yaml'), lambda: spot.rehearse('tested.yaml'), run.resume, run.cancel):\n"
        "    try:\n        start()\n    except spot.SpotwrightError as error:\n        print(type(error).__name__)\n",
    )
    assert done.err == ""
    assert done.out.splitlines()[0] == "succeeded hello \N{SNOWMAN}"
    assert done.out.splitlines()[-4:] == ["UnsupportedPlatform"] * 4


def test_pytest_loads_the_plugin_there(elsewhere: Project) -> None:
    assert python(elsewhere, "import spotwright.rehearsal.pytest_plugin").err == ""
