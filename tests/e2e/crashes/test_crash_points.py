"""``kill -9`` of the engine at every point of its loop right after it decided, wrote or did something."""

from __future__ import annotations

import pytest
from tests.e2e.building import Of, step
from tests.e2e.crashes.soundness import assert_sound, attempts_of
from tests.e2e.inside import alone, attempt, work_and_hold
from tests.e2e.project import Project
from tests.local.wheels import wheel
from tests.sampling import only

TAKEN = """
pools:
  spot: {capacity: spot, node: {cpu: 8}, notice: 50ms, simulate: {boot: 10ms, interrupt_every: 1h, expected_duration: 10000h}}
  od: {capacity: on-demand, node: {cpu: 8}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, fall_back_after: 1, grace_period: 20ms, interruptions: {backoff: 10ms}}
"""
KINDS = ["engine", "unfolded", "placed", "node", "bound", "progress", "notice", "ended", "decided", "finished"]
POINTS = [(moment, kind) for kind in KINDS for moment in ("before", "committed")]
DEEDS = [("performed", kind) for kind in ("placed", "bound", "decided")]
SAMPLE = {*POINTS[::4], *POINTS[3::4], DEEDS[-1]}
"""For `make test`: every kind once, with each moment."""


def give(number: int) -> int:
    with alone():
        return number


def double(number: int) -> int:
    with alone():
        if attempt() == 1:
            work_and_hold()
        return number * 2


def started(project: Project) -> None:
    project.config(TAKEN)
    steps = {"give": step(give, {"number": 21}), "double": step(double, {"number": Of("give")})}
    project.pipeline(steps)


@pytest.mark.parametrize(("moment", "kind"), only(SAMPLE, [*POINTS, *DEEDS]))
def test_a_run_whose_engine_was_killed_at_this_point_has_the_same_end(project: Project, moment: str, kind: str) -> None:
    started(project)
    killed = project.run(project.folder / "tested.yaml", "--seed", "5", crash=(f"{moment}:{kind}", 1))
    assert killed.code == -9
    done = project.spotwright("resume", "r")
    assert done.code == 0, done
    assert_sound(project)
    assert project.show()["outputs"] == {"double.Output": {"kind": "parameter", "value": 42}}
    assert [attempts[-1]["cause"] for attempts in attempts_of(project).values()] == ["succeeded", "succeeded"]


BUILDS = [(moment, kind) for kind in ("prepare", "environment") for moment in ("before", "committed")]


def uses() -> int:
    import littlepackage  # type: ignore[import-not-found]

    return int(littlepackage.VERSION.partition(".")[0])


@pytest.mark.long
@pytest.mark.slow  # pip takes a second
@pytest.mark.parametrize(("moment", "kind"), [*BUILDS, ("performed", "prepare")])
def test_a_run_whose_engine_was_killed_while_packages_are_installed_has_the_same_end(
    project: Project, moment: str, kind: str
) -> None:
    project.config(TAKEN)
    project.extra["PIP_NO_INDEX"] = "1"
    packages = [f"littlepackage @ {wheel(project.folder / 'wheels').as_uri()}"]
    project.pipeline({"uses": step(uses, packages=packages)})
    killed = project.run(project.folder / "tested.yaml", "--seed", "5", crash=(f"{moment}:{kind}", 1))
    assert killed.code == -9
    done = project.spotwright("resume", "r")
    assert done.code == 0, done
    assert_sound(project)
    assert project.show()["tasks"]["uses"]["outputs"]["parameters"] == {"Output": 1}


@pytest.mark.parametrize("moment", ["before", "committed"])
def test_a_run_that_had_not_begun_does_not_exist(project: Project, moment: str) -> None:
    started(project)
    assert project.run(project.folder / "tested.yaml", crash=(f"{moment}:created", 1)).code == -9
    resumed = project.here("resume", "r")
    assert resumed.code == 2
    assert resumed.error_lines == [
        f"spotwright: no run 'r' in {project.folder / '.spotwright'}: none exists yet; --state names another folder"
    ]
    assert project.here("runs", "--json").json() == []
