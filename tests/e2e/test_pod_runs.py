"""A run of pod templates on this machine: stored, interrupted, resumed after its engine was killed, and replayed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest
from tests.e2e.project import AT_WORK, Project, RunningCommand, eventually

from spotwright.engine.loop import replay_decisions
from spotwright.errors import PipelineError
from spotwright.manifests.pod_graph import PodSource, PodTask
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import load_plans
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare

START = """
import json, sys
from spotwright.manifests.pod_graph import PodSource
from spotwright.runs.run_options import PlanOptions, RunOptions
from spotwright.runs.runner import prepare, start

source = PodSource.from_data(json.loads(sys.argv[1]))
start(prepare(source, PlanOptions(), RunOptions(containers="host", name="r")))
"""
TAKEN = """
echo "attempt $SPOTWRIGHT_ATTEMPT of $NAME"
[ $SPOTWRIGHT_ATTEMPT = 1 ] || exit 0
for share in 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1; do echo $share > $SPOTWRIGHT_PROGRESS_FILE; sleep 0.2; done
sleep 60
"""


def a_pod(script: str, **container: Any) -> dict[str, Any]:
    settings = {"command": ["sh", "-c", script], "resources": {"requests": {"cpu": "1"}}, **container}
    return {"containers": [{"name": "main", "image": "alpine:3", **settings}]}


def a_waiting_pod(project: Project) -> dict[str, Any]:
    """A pod that raises ``waits`` and ends once ``go on`` is raised; a variable names the folder, so it is not hidden."""
    script = 'touch "$PLAYGROUND/waits"; until [ -e "$PLAYGROUND/go on" ]; do sleep 0.05; done'
    return a_pod(script, env=[{"name": "PLAYGROUND", "value": str(project.playground)}])


def start(project: Project, source: PodSource) -> RunningCommand:
    out, err = project.folder / "start.out", project.folder / "start.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        command = [sys.executable, "-c", START, json.dumps(source.to_data())]
        process = subprocess.Popen(command, cwd=project.folder, env=project.env, stdout=stdout, stderr=stderr)
    started = RunningCommand(process, out, err)
    project.started.append(started)
    return started


def test_pods_run_as_processes_are_interrupted_and_go_on_after_a_crash_of_the_engine(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    worker = PodTask("Job", "worker", a_pod(TAKEN, env=[{"name": "NAME", "value": "the worker"}]))
    source = PodSource("set", (worker, PodTask("Job", "report", a_waiting_pod(project), after=("worker",))))
    under = start(project, source)
    eventually((project.playground / "waits").exists)
    assert project.causes("worker") == ["interrupted", "succeeded"]
    under.kill()
    project.raise_file("go on")
    resumed = project.spotwright("resume", "r")
    assert (resumed.code, project.show()["status"]) == (0, "succeeded")
    assert project.causes("worker") == ["interrupted", "succeeded"]
    assert project.causes("report")[-1] == "succeeded"
    assert project.here("logs", "r", "worker", "2").out == "attempt 2 of the worker\n"
    plans = load_plans(StateFolder(project.state).find("r"))
    assert [stored.source for stored in plans] == [source]
    replay_decisions([stored.plan for stored in plans], project.events())


def test_a_stop_of_the_engine_by_ctrl_c_ends_pods_and_a_resume_starts_them_again(project: Project) -> None:
    under = start(project, PodSource("one", (PodTask("Pod", "it", a_waiting_pod(project)),)))
    eventually((project.playground / "waits").exists)
    under.send(signal.SIGINT)
    under.wait()
    assert project.show()["status"] == "stopped"
    project.raise_file("go on")
    assert project.spotwright("resume", "r").code == 0
    assert project.causes("it") == ["cancelled", "succeeded"]


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (a_pod("true", volumeMounts=[{"name": "v", "mountPath": "/v"}]), "mounts volumes"),
        (a_pod("true", envFrom=[{"secretRef": {"name": "s"}}]), "reads environment variables from other objects"),
        ({"containers": [*a_pod("true")["containers"], {"name": "side", "image": "b"}]}, "more containers than one"),
        (a_pod("true", command=["no-such-program"]), "which is not on the PATH of this machine"),
        (a_pod("true", command=None), "has no command: that of the image alpine:3 is not known on this machine"),
    ],
)
def test_a_pod_that_this_machine_cannot_run_is_refused_before_the_run(
    pod: dict[str, Any], why: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    with pytest.raises(PipelineError, match=why) as refused:
        prepare(PodSource("set", (PodTask("Job", "worker", pod),)), PlanOptions(), RunOptions(containers="host"))
    assert str(refused.value).startswith("Job worker: task worker")
    assert not project.state.exists()
