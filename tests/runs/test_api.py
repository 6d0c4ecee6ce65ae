"""The Python API: the same runs as the command line's, driven by a process of their own."""

# No annotations as texts here: the SDK reads the types of components and pipelines when they are defined.

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl
from tests.e2e.building import Param, step
from tests.e2e.inside import attempt, hold, raise_file
from tests.e2e.project import PATIENCE, Project, eventually

import spotwright as spot
from spotwright.errors import ConfigError, InputError, PipelineError, StateError, UnknownRun


@dsl.component
def twice(number: int) -> int:
    return 2 * number


@dsl.pipeline(name="doubling")
def doubling(number: int = 4) -> int:
    return twice(number=number).output


def adds_one(number: int) -> int:
    sys.stdout.write(f"adding to {number}\n")
    return number + 1


def fails_at_first(number: int) -> int:
    if attempt() == 1:
        sys.exit("not yet")
    return number


def holds(number: int) -> int:
    raise_file("holding")
    hold()


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project as the current folder and environment of this process."""
    monkeypatch.chdir(project.folder)
    for name in ("HOME", "PLAYGROUND"):
        monkeypatch.setenv(name, project.env[name])
    return project


def file(project: Project, function: Any = adds_one) -> Path:
    return project.pipeline({"it": step(function, {"number": Param("number")})}, {"number": ("int", 1)})


def test_a_function_is_run(here: Project) -> None:
    run = spot.run(doubling, {"number": 21}, name="r", progress=False)
    assert (run.name, run.status) == ("r", "succeeded")
    assert list(run.outputs.values()) == [42]
    assert list(run.tasks) == ["twice"]


def test_a_path_is_run_and_arguments_are_values(here: Project) -> None:
    run = spot.run(file(here), {"number": 4}, progress=False)
    assert run.outputs == {"it.Output": 5}
    assert run.name.startswith("tested-")


def test_the_logs_tasks_and_report_of_a_run(here: Project) -> None:
    run = spot.run(file(here), progress=False)
    assert run.logs("it", 1) == "adding to 1\n"
    assert run.logs() == "==> it attempt 1 <==\nadding to 1\n"
    assert [each["cause"] for each in run.tasks["it"]["attempts"]] == ["succeeded"]
    assert "node-hours" in str(run.report())
    assert "it" in repr(run)
    with pytest.raises(UnknownRun, match="has no task 'nothing'"):
        run.logs("nothing")


def test_a_run_looks_good_in_a_notebook(here: Project) -> None:
    run = spot.run(file(here), progress=False)
    for shown in (run, run.tasks, run.report()):
        assert "<table" in shown._repr_html_()


def test_progress_is_printed_where_it_is_wanted(here: Project, capsys: pytest.CaptureFixture[str]) -> None:
    spot.run(file(here), name="r")
    assert "it: attempt 1" in capsys.readouterr().out
    spot.run(file(here), progress=False)
    assert capsys.readouterr().out == ""


def test_a_run_that_is_not_waited_for_goes_on(here: Project) -> None:
    run = spot.run(file(here, holds), name="r", wait=False)
    eventually((here.playground / "holding").exists)
    assert run.status == "running"
    assert run.cancel().status == "cancelled"
    run.wait()


def test_a_run_that_was_started_elsewhere_can_be_opened(here: Project) -> None:
    assert here.run(file(here)).code == 0
    assert spot.open_run("r").outputs == {"it.Output": 2}
    assert spot.open_run().name == "r"
    with pytest.raises(UnknownRun, match="no run 'nothing'"):
        spot.open_run("nothing")


def test_a_run_that_fails_raises_nothing_and_can_be_resumed(here: Project) -> None:
    run = spot.run(file(here, fails_at_first), name="r", progress=False)
    assert run.status == "failed"
    assert run.resume(progress=False).status == "succeeded"
    assert here.causes("it") == ["failed", "succeeded"]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"arguments": {"nmber": 1}}, PipelineError, "did you mean 'number'"),
        ({"arguments": {"number": "1"}}, PipelineError, "argument number: expected a whole number, got '1'"),
        ({"arguments": {"number": object()}}, InputError, "a parameter is a string, number, boolean, list or mapping"),
        ({"config": "missing.yaml"}, ConfigError, "missing.yaml"),
        ({"time_scale": 0}, InputError, "expected a number above 0"),
        ({"taken_every": "soon"}, InputError, "soon"),
        ({"seed": -1}, InputError, "seed"),
        ({"cache": "perhaps"}, InputError, "perhaps"),
        ({"name": "../x"}, InputError, "cannot be the name of a run"),
        ({"policy": {"spot": "maybe"}}, InputError, "require, prefer or never"),
    ],
)
def test_what_is_wrong_is_raised_before_anything_begins(
    here: Project, given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(InputError if error is ConfigError else error, match=said):
        spot.run(file(here), progress=False, **given)
    assert not list(here.state.glob("runs/*"))
    assert here.processes() == {}


def test_what_is_no_pipeline_is_refused(here: Project) -> None:
    with pytest.raises(PipelineError, match=r"adds_one: expected a function under @dsl\.pipeline"):
        spot.run(adds_one)
    with pytest.raises(PipelineError, match="there is no such file"):
        spot.run("missing.yaml")


def test_a_state_folder_of_a_newer_version_is_refused(here: Project) -> None:
    here.state.mkdir()
    (here.state / "format").write_text("99\n")
    with pytest.raises(StateError, match="written by a newer version"):
        spot.run(file(here), progress=False)


def test_a_run_that_is_driven_is_not_driven_twice(here: Project) -> None:
    run = spot.run(file(here, holds), name="r", wait=False)
    eventually((here.playground / "holding").exists)
    with pytest.raises(StateError, match="is driven by another engine"):
        spot.open_run("r").resume(progress=False)
    run.cancel().wait()


def test_ctrl_c_stops_the_run_cleanly(here: Project) -> None:
    script = f"import spotwright as spot\nspot.run({str(file(here, holds))!r}, name='r')\n"
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=here.folder, env=here.env, stderr=subprocess.PIPE
    ) as user:
        eventually((here.playground / "holding").exists)
        user.send_signal(signal.SIGINT)
        _, said = user.communicate(timeout=PATIENCE)
    assert b"KeyboardInterrupt" in said
    assert here.processes() == {}
    assert here.show()["status"] == "stopped"


def test_a_run_goes_on_where_its_kernel_dies(here: Project) -> None:
    script = f"import spotwright as spot\nspot.run({str(file(here, holds))!r}, name='r')\n"
    with subprocess.Popen([sys.executable, "-c", script], cwd=here.folder, env=here.env) as kernel:
        eventually((here.playground / "holding").exists)
        kernel.kill()
    run = spot.open_run("r")
    assert run.status == "running"
    assert run.cancel().status == "cancelled"
    eventually(lambda: here.processes() == {})
