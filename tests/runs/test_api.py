"""The Python API: the same runs as those of the command line, driven by a separate process."""

# No annotations as texts here: the SDK reads the types of components and pipelines when they are defined.

import linecache
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
from tests.sampling import every

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


def test_a_run_has_logs_tasks_and_a_report(here: Project) -> None:
    run = spot.run(file(here), progress=False)
    assert run.logs("it", 1) == "adding to 1\n"
    assert run.logs() == "==> it attempt 1 <==\nadding to 1\n"
    assert [each["cause"] for each in run.tasks["it"]["attempts"]] == ["succeeded"]
    assert "node-hours" in str(run.report())
    assert "it" in repr(run)
    with pytest.raises(UnknownRun, match="has no task 'nothing'"):
        run.logs("nothing")


def test_a_first_run_without_a_configuration_shows_money_and_calls_it_an_example(here: Project) -> None:
    (here.folder / "spotwright.yaml").unlink()
    assert here.run(file(here)).code == 0
    report = str(spot.open_run("r").report())
    assert "Example USD" in report
    assert "node-hours" not in report
    assert "Example cost" in here.spotwright("runs").out


def test_a_run_looks_good_in_a_notebook(here: Project) -> None:
    run = spot.run(file(here), progress=False)
    for shown in (run, run.tasks, run.report()):
        assert "<table" in shown._repr_html_()


def test_progress_is_printed_if_asked_for(here: Project, capsys: pytest.CaptureFixture[str]) -> None:
    spot.run(file(here), name="r")
    assert "it: attempt 1" in capsys.readouterr().out
    spot.run(file(here), progress=False)
    assert capsys.readouterr().out == ""


def test_a_run_goes_on_without_being_waited_for(here: Project) -> None:
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


def test_a_cancel_that_comes_too_late_does_not_keep_the_run_from_being_resumed(here: Project) -> None:
    run = spot.run(file(here, fails_at_first), name="r", progress=False)
    with pytest.raises(InputError, match="has ended already: it failed"):
        run.cancel()
    assert run.resume(progress=False).status == "succeeded"


def test_a_run_that_fails_raises_nothing_and_can_be_resumed(here: Project) -> None:
    run = spot.run(file(here, fails_at_first), name="r", progress=False)
    assert run.status == "failed"
    assert run.resume(progress=False).status == "succeeded"
    assert here.causes("it") == ["failed", "succeeded"]


def test_pools_and_policy_can_be_given_as_a_mapping(here: Project) -> None:
    pools = {"own": {"capacity": "on-demand", "simulate": {"boot": "0s"}}}
    run = spot.run(file(here), config={"pools": pools}, name="r", progress=False)
    assert [each["pool"] for each in run.tasks["it"]["attempts"]] == ["own"]


def test_a_run_whose_configuration_was_a_mapping_is_resumed_with_it(here: Project) -> None:
    pools = {"own": {"capacity": "on-demand", "simulate": {"boot": "0s"}}}
    spot.run(file(here, fails_at_first), config={"pools": pools}, name="r", progress=False)
    (here.folder / "spotwright.yaml").write_text("version: 1\npools: {other: {capacity: spot}}\n")
    resumed = here.spotwright("resume", "r")
    assert resumed.code == 0
    assert "gone" not in resumed.out + resumed.err
    assert [each["pool"] for each in spot.open_run("r").tasks["it"]["attempts"]] == ["own", "own"]


@pytest.mark.parametrize(("cache", "cached"), every(3, [(True, True), (False, False), ("on", True), ("off", False)]))
def test_the_cache_is_switched_with_a_boolean_or_a_text(here: Project, cache: bool | str, cached: bool) -> None:
    spot.run(file(here), cache="on", name="first", progress=False)
    again = spot.run(file(here), cache=cache, name="second", progress=False)
    assert (again.tasks["it"]["attempts"] == []) == cached


NOTEBOOK = """
from kfp import dsl

@dsl.component
def fails_at_first(flag: str) -> int:
    import os
    if not os.path.exists(flag):
        raise SystemExit(3)
    return 4

@dsl.pipeline(name="cell")
def cell(flag: str) -> int:
    return fails_at_first(flag=flag).output
"""
POOLS = "version: 1\npools: {own: {capacity: on-demand, simulate: {boot: 0s}}}\n"


@pytest.fixture(params=["<ipython-input-3-0a1b2c>", "/tmp/ipykernel_7/123.py"])  # noqa: S108 (a name, not a file)
def notebook_pipeline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipeline from the cell of a notebook: IPython keeps its source in ``linecache`` under a name that is no file."""
    monkeypatch.setitem(
        linecache.cache, request.param, (len(NOTEBOOK), None, NOTEBOOK.splitlines(keepends=True), request.param)
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, request.param, "exec"), names)  # noqa: S102 (as IPython does)
    return names["cell"]


def test_the_pipeline_of_a_notebook_is_run_with_the_file_beside_the_notebook_and_resumed(
    here: Project, notebook_pipeline: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    (here.folder / "spotwright.yaml").write_text(POOLS)
    flag = here.folder / "flag"
    run = spot.run(notebook_pipeline, {"flag": str(flag)}, name="r", progress=False)
    assert (run.status, run.tasks["fails-at-first"]["attempts"][0]["pool"]) == ("failed", "own")
    flag.touch()
    assert run.resume().status == "succeeded"
    assert "a function without a file: continuing with the pipeline as compiled before" in capfd.readouterr().out
    assert run.outputs == {"Output": 4}


def test_the_run_of_a_notebook_is_resumed_from_another_folder_with_its_own_pools(
    here: Project, notebook_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.folder / "spotwright.yaml").unlink(missing_ok=True)
    flag = here.folder / "flag"
    spot.run(notebook_pipeline, {"flag": str(flag)}, name="r", progress=False)
    elsewhere = here.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "spotwright.yaml").write_text(POOLS)
    flag.touch()
    monkeypatch.chdir(elsewhere)
    resumed = spot.open_run("r", state=here.state).resume(progress=False)
    assert resumed.status == "succeeded"
    assert [each["pool"] for each in resumed.tasks["fails-at-first"]["attempts"]] == ["spot", "spot"]


SCRIPT = """
import spotwright as spot
from kfp import dsl

@dsl.component
def twice(number: int) -> int:
    return 2 * number

def make():
    @dsl.pipeline(name="made")
    def made(number: int = 4) -> int:
        return twice(number=number).output
    return made

if __name__ == "__main__":
    spot.run(make(), name="r", progress=False)
"""


@pytest.mark.long
def test_a_pipeline_that_a_function_of_a_script_makes_is_resumed_as_it_was_compiled(here: Project) -> None:
    script = here.write("script.py", SCRIPT)
    subprocess.run([sys.executable, script], check=True, env=here.env)
    resumed = here.spotwright("resume", "r")
    assert resumed.code == 0, resumed.err
    assert "script.py: no pipeline here" in resumed.out
    assert "continuing with the pipeline as compiled before" in resumed.out


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"arguments": {"nmber": 1}}, PipelineError, "did you mean 'number'"),
        ({"arguments": {"number": "1"}}, PipelineError, "argument number: expected a whole number, got '1'"),
        ({"arguments": {"number": object()}}, InputError, "a parameter is a string, number, boolean, list or mapping"),
        ({"config": "missing.yaml"}, ConfigError, "missing.yaml"),
        ({"time_scale": 0}, InputError, "expected a number above 0"),
        ({"interrupt_every": "soon"}, InputError, "soon"),
        ({"seed": -1}, InputError, "seed"),
        ({"config": {"pools": {"it": {"capacity": "sport"}}}}, ConfigError, "<config>:1: pools.it.capacity: .*'sport'"),
        ({"config": {"pools": object()}}, ConfigError, "a parameter is a string"),
        ({"cache": "perhaps"}, InputError, "perhaps"),
        ({"name": "../x"}, InputError, "cannot be the name of a run"),
        ({"policy": {"spot": "maybe"}}, InputError, "require, prefer or never"),
    ],
)
def test_wrong_input_is_raised_before_the_run_begins(
    here: Project, given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(InputError if error is ConfigError else error, match=message):
        spot.run(file(here), progress=False, **given)
    assert not list(here.state.glob("runs/*"))
    assert here.processes() == {}


def test_an_object_that_is_no_pipeline_is_refused(here: Project) -> None:
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
        _, stderr = user.communicate(timeout=PATIENCE)
    assert b"KeyboardInterrupt" in stderr
    assert here.processes() == {}
    assert here.show()["status"] == "stopped"


def test_a_run_goes_on_when_the_kernel_of_its_notebook_dies(here: Project) -> None:
    script = f"import spotwright as spot\nspot.run({str(file(here, holds))!r}, name='r')\n"
    with subprocess.Popen([sys.executable, "-c", script], cwd=here.folder, env=here.env) as kernel:
        eventually((here.playground / "holding").exists)
        kernel.kill()
    run = spot.open_run("r")
    assert run.status == "running"
    assert run.cancel().status == "cancelled"
    eventually(lambda: here.processes() == {})
