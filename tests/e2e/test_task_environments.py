"""Packages of tasks: the environment is built before an attempt has a node, is shown and logged, and survives its engine."""

from __future__ import annotations

import json
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, step
from tests.e2e.inside import attempt, say, work_and_hold
from tests.e2e.project import AT_WORK, Project, eventually
from tests.local.wheels import wheel

pytestmark = pytest.mark.slow  # pip takes seconds


def uses(number: int) -> int:
    import littlepackage  # type: ignore[import-not-found]

    say(f"{littlepackage.VERSION}, attempt {attempt()}")
    return number + 1


def uses_and_is_taken(number: int) -> int:
    import littlepackage

    say(littlepackage.VERSION)
    if attempt() == 1:
        work_and_hold()
    return number + 1


def needs_nothing() -> None:
    """Never runs."""


def a_package(project: Project) -> list[str]:
    """The requirement of a small package, installed without a network."""
    project.extra["PIP_NO_INDEX"] = "1"
    return [f"littlepackage @ {wheel(project.folder / 'wheels').as_uri()}"]


def a_slow_package(project: Project, name: str = "littlepackage") -> list[str]:
    """The requirement of a package whose build waits for the file ``go on`` of the playground and raises ``building``."""
    project.extra |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    source = project.folder / name
    source.mkdir()
    made = wheel(project.folder / "wheels")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "1.0"\n'
    )
    (source / "backend.py").write_text(
        f"""
import pathlib, shutil, time
PLAYGROUND = pathlib.Path({str(project.playground)!r})

def build_wheel(directory, config_settings=None, metadata_directory=None):
    (PLAYGROUND / "building").touch()
    while not (PLAYGROUND / "go on").exists():
        time.sleep(0.02)
    return shutil.copy({str(made)!r}, directory).rpartition("/")[2]
"""
    )
    return [f"{name} @ {source.as_uri()}"]


def environment_of(project: Project, task: str = "it", name: str = "r") -> dict[str, Any]:
    built: dict[str, Any] = project.show(name)["tasks"][task]["environment"]
    return built


def test_the_build_is_shown_timed_and_logged_apart_from_the_task(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(uses, {"number": 1}, packages=a_package(project))}))
    assert done.code == 0
    built, task = environment_of(project), project.show()["tasks"]["it"]
    (only,) = task["attempts"]
    assert (built["status"], task["status"]) == ("ready", "succeeded")
    assert built["began_at"] < built["ended_at"] <= only["placed_at"] <= only["bound_at"]
    assert all(node["booted_at"] >= built["ended_at"] for node in project.show()["nodes"])
    assert only["seconds"] <= only["ended_at"] - built["ended_at"]
    lines = [line for line in done.out.splitlines() if "Python environment" in line]
    assert ["being built, on no node: littlepackage" in lines[0], "is ready after" in lines[1]] == [True, True]
    assert "Python environments\n  it  littlepackage" in project.here("show", "r").out
    log = project.here("logs", "r", "it", "environment").out
    assert "Successfully installed littlepackage-1.0" in log
    whole = project.here("logs", "r").out
    assert whole == f"==> it environment <==\n{log}==> it attempt 1 <==\n1.0, attempt 1\n"


def test_a_later_run_builds_nothing_and_says_nothing_of_it(project: Project) -> None:
    pipeline = project.pipeline({"it": step(uses, {"number": 1}, packages=a_package(project))})
    assert project.run(pipeline).code == 0
    done = project.run(pipeline, "--cache", "off", name="again")
    assert done.code == 0
    assert "environment" not in done.out
    assert environment_of(project, name="again") is None
    refused = project.here("logs", "again", "it", "environment")
    assert (refused.code, refused.err) == (2, "spotwright: run again did not build a Python environment for task it\n")


@pytest.mark.long
def test_tasks_with_the_same_packages_wait_for_one_build(project: Project) -> None:
    packages = a_package(project)
    steps = {name: step(uses, {"number": 1}, packages=packages) for name in ("one", "two", "three")}
    done = project.run(project.pipeline(steps))
    assert done.code == 0
    assert done.out.count("is being built") == done.out.count("is ready after") == 1
    (log,) = (project.state / "runs" / "r" / "environments").iterdir()
    assert log.read_text().count("Successfully installed") == 1
    assert project.here("logs", "r").out.count("environment <==") == 1
    assert [project.here("logs", "r", name, "environment").out for name in steps] == [log.read_text()] * 3


@pytest.mark.long
def test_an_interruption_of_the_node_neither_builds_again_nor_charges_for_the_build(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    done = project.run(project.pipeline({"it": step(uses_and_is_taken, {"number": 1}, packages=a_package(project))}))
    assert done.code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert project.kinds().count("prepare") == 1
    assert project.show()["tasks"]["it"]["spent"] == {"interruptions": 1, "errors": 0, "moves": 0}
    costs = json.loads(project.here("report", "r", "--json").out)
    built, nodes = environment_of(project), project.show()["nodes"]
    assert all(cost["started_at"] >= built["ended_at"] for cost in costs["attempts_by_start"])
    assert costs["whole"]["seconds"] <= sum(node["gone_at"] - built["ended_at"] for node in nodes)


def test_a_package_that_does_not_exist_fails_its_task_once_with_pips_last_lines(project: Project) -> None:
    project.config("policy:\n  default: {errors: {retries: 5, backoff: 1ms}}\n")
    project.extra["PIP_NO_INDEX"] = "1"
    done = project.run(project.pipeline({"it": step(needs_nothing, packages=["no-such-package-here"])}))
    assert done.code == 1
    task = project.show()["tasks"]["it"]
    assert (task["status"], task["attempts"], project.show()["nodes"]) == ("failed", [], [])
    assert task["why"] == ("its Python environment cannot be built: no package index has no-such-package-here")
    assert any("No matching distribution found" in line for line in task["environment"]["last_lines"])
    shown = project.here("show", "r").out
    assert "it: its Python environment cannot be built: no package index has no-such-package-here" in shown
    assert "said  ERROR: No matching distribution found for no-such-package-here" in shown
    assert "log   spotwright logs r it environment" in shown
    assert project.kinds().count("prepare") == 1


def test_an_index_that_cannot_be_reached_is_named_as_the_cause(project: Project) -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        project.extra |= {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple", "PIP_RETRIES": "1"}
        done = project.run(project.pipeline({"it": step(needs_nothing, packages=["littlepackage"])}))
    assert done.code == 1
    assert project.show()["tasks"]["it"]["why"] == (
        "its Python environment cannot be built: the package index cannot be reached, for littlepackage"
    )


@pytest.mark.long
def test_the_log_of_a_build_can_be_followed_while_it_goes_on(project: Project) -> None:
    steps = {"it": step(uses, {"number": 1}, packages=a_slow_package(project))}
    under = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "building").exists)
    assert environment_of(project)["status"] == "building"
    waits = project.show()["tasks"]["it"]
    assert (waits["status"], waits["waits_for"]["kind"], project.show()["nodes"]) == ("preparing", "environment", [])
    follower = project.start("logs", "r", "it", "environment", "--follow")
    eventually(lambda: "installing littlepackage" in follower.out.read_text())
    project.raise_file("go on")
    assert "Successfully installed littlepackage-1.0" in follower.wait().out
    assert under.wait().code == 0


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_run_whose_engine_ends_during_a_build_goes_on_with_a_resume(project: Project, end: signal.Signals) -> None:
    steps = {"it": step(uses, {"number": 1}, packages=a_slow_package(project))}
    under = project.start("run", str(project.pipeline(steps)), "--name", "r")
    eventually((project.playground / "building").exists)
    under.send(end)
    under.wait()
    (project.playground / "building").unlink()
    project.raise_file("go on")
    resumed = project.spotwright("resume", "r")
    assert resumed.code == 0
    task = project.show()["tasks"]["it"]
    assert (task["environment"]["status"], task["spent"]["errors"], len(task["attempts"])) == ("ready", 0, 1)
    assert project.kinds().count("prepare") == 2
    assert project.here("logs", "r", "it").out.endswith("==> it attempt 1 <==\n1.0, attempt 1\n")


@pytest.mark.long
def test_a_task_that_follows_is_built_while_no_node_is_held(project: Project) -> None:
    steps = {
        "first": step(uses, {"number": 1}, packages=a_package(project)),
        "second": step(uses, {"number": Of("first")}, packages=[*a_package(project), str(other(project))]),
    }
    assert project.run(project.pipeline(steps)).code == 0
    second = project.show()["tasks"]["second"]
    assert second["attempts"][0]["placed_at"] >= second["environment"]["ended_at"]


def other(project: Project) -> Path:
    return wheel(project.folder / "wheels", "otherpackage", module="otherpackage.py")
