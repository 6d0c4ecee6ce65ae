"""The stages of the Kubeflow spot tutorials run where they run on the cluster, with their manual steps done here."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.project import Project, eventually
from tests.examples.conftest import Server

pytestmark = pytest.mark.long

# With this seed the downloader's node is taken after 1.2s, 1.1s and then not for 17s, that of the merge not for 13s.
TAKEN = ("--seed", "1640", "--interrupt-every", "5s", "--time-scale", "1000")


def ran(project: Project, stage: str, server: Server, *options: str) -> dict[str, Any]:
    """Run a stage to its end; return its --json document."""
    done = project.spotwright("run", f"{stage}.py", "--arg", f"url={server.url}", "--json", *options)
    assert done.code == 0, done
    view: dict[str, Any] = done.json()
    return view


def attempts(view: dict[str, Any], what: str) -> dict[str, list[str]]:
    """One fact of every attempt, by task."""
    return {task["path"]: [attempt[what] for attempt in task["attempts"]] for task in view["tasks"]}


def fewer_attempts(project: Project, number: int) -> Callable[[], bool]:
    """Whether the downloader has had fewer attempts than that; so it does not matter which of them came as far as a request."""
    return lambda: not any(project.state.glob(f"runs/*/tasks/web-downloader/attempt-{number}"))


@pytest.mark.parametrize(
    ("stage", "pool"),
    [("base", "agentpool"), ("spot", "spotpool"), ("spot_retries", "spotpool"), ("with_policy", "spotpool")],
)
def test_a_stage_lands_on_the_pool_of_the_tutorial(tutorial: Project, server: Server, stage: str, pool: str) -> None:
    view = ran(tutorial, stage, server)

    assert attempts(view, "pool") == {"web-downloader": [pool], "merge-csv": [pool]}
    assert view["outputs"] == {"Output": {"kind": "parameter", "value": 150}}


def test_retries_by_hand_survive_interruptions_and_never_fall_back(tutorial: Project, server: Server) -> None:
    server.holds = fewer_attempts(tutorial, 3)
    view = ran(tutorial, "spot_retries", server, *TAKEN)

    assert attempts(view, "cause") == {
        "web-downloader": ["interrupted", "interrupted", "succeeded"],
        "merge-csv": ["succeeded"],
    }
    assert {pool for pools in attempts(view, "pool").values() for pool in pools} == {"spotpool"}


def test_the_policy_falls_back_where_retries_by_hand_do_not(tutorial: Project, server: Server) -> None:
    server.holds = fewer_attempts(tutorial, 3)
    view = ran(tutorial, "with_policy", server, *TAKEN, "--policy", "fall_back_after=2")

    assert attempts(view, "pool")["web-downloader"] == ["spotpool", "spotpool", "agentpool"]


def test_a_run_whose_engine_is_killed_is_taken_up_again(tutorial: Project, server: Server) -> None:
    server.holds = fewer_attempts(tutorial, 2)
    under = tutorial.start("run", "base.py", "--arg", f"url={server.url}", "--name", "r")
    eventually(lambda: server.requests == 1)
    under.send(signal.SIGKILL)
    under.wait()

    assert tutorial.spotwright("show", "r", "--json").json()["driven"] is False
    resumed = tutorial.spotwright("resume", "r", "--json")
    assert resumed.code == 0, resumed
    assert attempts(resumed.json(), "cause") == {"web-downloader": ["lost", "succeeded"], "merge-csv": ["succeeded"]}
