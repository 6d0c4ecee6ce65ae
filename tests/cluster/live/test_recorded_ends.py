"""The records of ends on a real cluster: who ended it, when Kubernetes says so, and the cost of a pod that does not start."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from tests.cluster.conftest import Require
from tests.cluster.live.kube import Kube, Object, has_condition, job, pod_spec
from tests.cluster.watching.started_watcher import start_watcher, states

from spotwright.engine.events import RunStatus, TaskStatus
from spotwright.engine.state import RunState, TaskState
from spotwright.model.attempts import Cause
from spotwright.scheduling.budgets import BudgetUse
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text

pytestmark = pytest.mark.cluster

ENDED = 120.0  # seconds, on a busy machine


class Watched:
    """A namespace and the watcher of it, which may be away."""

    def __init__(self, kube: Kube, namespace: str, folder: Path) -> None:
        self.kube, self.namespace, self.state = kube, namespace, folder / "state"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = start_watcher(self.state, self.namespace, "--kubeconfig", str(self.kube.kubeconfig))

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
        self._process = None

    def run(self, name: str) -> RunState | None:
        return states(self.state).get(name) if self.state.exists() else None

    def wait_until_it_runs(self, name: str) -> None:
        self.when(name, lambda run: _task(run).status is TaskStatus.RUNNING, f"{name} is recorded as running")

    def held_up(self, name: str) -> RunState:
        """The run whose pod has a node and does not start, once that is recorded."""

        def is_held_up(run: RunState) -> bool:
            return _task(run).status is TaskStatus.PENDING and bool(_task(run).last.is_held_up)

        return self.when(name, is_held_up, f"the pod of {name} is recorded as held up")

    def ended(self, name: str) -> RunState:
        return self.when(name, lambda run: run.finished_at is not None, f"the end of {name} is recorded")

    def when(self, name: str, holds: Callable[[RunState], bool], what: str) -> RunState:
        """The run of this workload, once it has a task and the condition holds."""
        found: list[RunState] = []

        def is_so() -> bool:
            run = self.run(name)
            found[:] = [run] if run is not None and run.tasks and holds(run) else []
            return bool(found)

        self.kube.wait(is_so, what, ENDED)
        return found[0]


def _task(run: RunState) -> TaskState:
    return next(iter(run.tasks.values()))


@pytest.fixture
def watched(kube: Kube, namespace: str, tmp_path: Path) -> Iterator[Watched]:
    """A namespace with a watcher."""
    made = Watched(kube, namespace, tmp_path)
    made.start()
    yield made
    made.stop()


def assert_cancelled(run: RunState, how: str) -> None:
    (task,) = run.tasks.values()
    assert (run.status, task.status) == (RunStatus.CANCELLED, TaskStatus.CANCELLED)
    assert ([attempt.cause for attempt in task.attempts], task.spent) == ([Cause.CANCELLED], BudgetUse())
    assert how in task.last.cause_why


def workflow(kube: Kube, namespace: str, script: str) -> Object:
    """A Workflow of one step that Argo tries again after signals alone, as KFP's drivers are placed."""
    strategy = {
        "limit": "20",
        "retryPolicy": "Always",
        "expression": 'lastRetry.status == "Error" || lastRetry.exitCode in ["143", "137"]',
    }
    step = {"name": "main", "retryStrategy": strategy, "container": kube.container(script)}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "flow", "namespace": namespace},
        "spec": {"entrypoint": "main", "templates": [step], "tolerations": pod_spec({})["tolerations"]},
    }


@pytest.mark.parametrize(
    ("patch", "how"),
    [
        ('{"spec": {"activeDeadlineSeconds": 0}}', "its run was terminated through KFP"),
        ('{"spec": {"shutdown": "Terminate"}}', "its Workflow was shut down"),
    ],
)
def test_a_workflow_that_is_ended_is_cancelled(
    kube: Kube, watched: Watched, require: Require, patch: str, how: str
) -> None:
    require("workflows.argoproj.io")
    kube.apply(workflow(kube, watched.namespace, "sleep 600"))
    watched.wait_until_it_runs("flow")
    kube.run("patch", "workflow", "flow", "-n", watched.namespace, "--type=merge", "-p", patch)
    run = watched.ended("flow")
    assert_cancelled(run, how)
    found = kube.get("workflow", "flow", watched.namespace)
    assert found is not None
    (task,) = run.tasks.values()
    assert task.last.ended_at is not None
    assert run.finished_at == max(moment(found["status"]["finishedAt"]), task.last.ended_at)


def test_a_step_that_argo_does_not_try_again_has_failed_as_argo_says(
    kube: Kube, watched: Watched, require: Require
) -> None:
    require("workflows.argoproj.io")
    kube.apply(workflow(kube, watched.namespace, "exit 1"))
    run = watched.ended("flow")
    (task,) = run.tasks.values()
    assert (run.status, task.status) == (RunStatus.FAILED, TaskStatus.FAILED)
    assert task.last.following.startswith("its Workflow does not retry it")
    assert run.why.startswith("task flow failed: it exited with 1; its Workflow does not retry it")
    assert "retry 1 of" not in show_text(run_view(run, "flow"))


def test_a_job_that_is_deleted_is_cancelled(kube: Kube, watched: Watched) -> None:
    kube.apply(job("work", watched.namespace, pod_spec(kube.container("sleep 600"))))
    watched.wait_until_it_runs("work")
    kube.run("delete", "job", "work", "-n", watched.namespace, "--wait=false")
    assert_cancelled(watched.ended("work"), "its Job was deleted")


def job_set(kube: Kube, namespace: str) -> Object:
    template = {"spec": {"backoffLimit": 0, "template": {"spec": pod_spec(kube.container("sleep 600"))}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]},
    }


def test_a_jobset_that_is_suspended_waits_and_one_that_is_deleted_is_cancelled(
    kube: Kube, watched: Watched, require: Require
) -> None:
    require("jobsets.jobset.x-k8s.io")
    kube.apply(job_set(kube, watched.namespace))
    watched.wait_until_it_runs("set")
    suspend = ("patch", "jobset", "set", "-n", watched.namespace, "--type=merge", "-p")
    kube.run(*suspend, '{"spec": {"suspend": true}}')
    run = watched.when(
        "set", lambda run: _task(run).attempts[0].cause is not None, "the end of the attempt is recorded"
    )
    task = _task(run)
    assert (run.status, task.attempts[0].cause, task.spent) == (RunStatus.RUNNING, Cause.CANCELLED, BudgetUse())
    assert "was suspended" in task.attempts[0].cause_why
    kube.run(*suspend, '{"spec": {"suspend": false}}')
    watched.wait_until_it_runs("set")
    kube.run("delete", "jobset", "set", "-n", watched.namespace, "--wait=false")
    run = watched.ended("set")
    (task,) = run.tasks.values()
    assert (run.status, task.last.cause, task.spent) == (RunStatus.CANCELLED, Cause.CANCELLED, BudgetUse())


def test_a_job_that_ended_while_nobody_looked_has_the_times_of_kubernetes(kube: Kube, watched: Watched) -> None:
    kube.apply(job("work", watched.namespace, pod_spec(kube.container("sleep 8"))))
    watched.wait_until_it_runs("work")
    watched.stop()
    kube.wait(lambda: has_condition(kube.get("job", "work", watched.namespace), "Complete"), "the Job ends", ENDED)
    subprocess.run(["sleep", "10"], check=True)
    watched.start()
    run = watched.ended("work")
    found = kube.get("job", "work", watched.namespace)
    assert found is not None
    assert run.finished_at == moment(found["status"]["completionTime"])
    (task,) = run.tasks.values()
    assert task.last.ended_at is not None
    assert task.last.ended_at <= run.finished_at


def test_a_pod_whose_volume_is_missing_waits_costs_nothing_and_says_why(kube: Kube, watched: Watched) -> None:
    container = {**kube.container("sleep 3"), "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = pod_spec(container, volumes=[{"name": "data", "configMap": {"name": "data"}}])
    kube.apply(job("work", watched.namespace, spec))
    run = watched.held_up("work")
    view = run_view(run, "work", run.last_at + 100)
    text = " ".join(show_text(view).split())
    assert 'has a node and does not start: FailedMount: MountVolume.SetUp failed for volume "data"' in text
    assert 'configmap "data" not found' in text
    assert view["tasks"][0]["attempts"][0]["seconds"] == 0.0
    kube.run("create", "configmap", "data", "-n", watched.namespace)
    ended = run_view(watched.ended("work"), "work")
    assert ended["status"] == "succeeded"
    assert 3.0 <= ended["tasks"][0]["attempts"][0]["seconds"] < 10.0


def test_a_pod_whose_image_is_missing_waits_and_costs_nothing(kube: Kube, watched: Watched) -> None:
    container = {**kube.container("true"), "image": "localhost/no-such-image:1", "imagePullPolicy": "Never"}
    kube.apply(job("work", watched.namespace, pod_spec(container)))
    run = watched.held_up("work")
    view = run_view(run, "work", run.last_at + 100)
    assert "has a node and does not start: ErrImageNeverPull" in " ".join(show_text(view).split())
    assert view["tasks"][0]["attempts"][0]["seconds"] == 0.0


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
