"""The checkpoint library on a cluster: created and mounted for pods that need it, without disturbing others; and a deadline.

KFP itself is not on the test bed: its runs are Workflows with the shape that its backend makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from testbed.building.images import PYTHON
from testbed.settings import Settings
from tests.cluster.budget_trials.kfp_shape import a_run
from tests.cluster.live.kube import Kube, Object, has_condition, job
from tests.cluster.live.replicas import Controllers, configure, controllers

from spotwright.checkpoint_file import config_map_name
from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause

pytestmark = pytest.mark.cluster

CONFIGURATION = """\
version: 1
target: {{kubernetes: "1.35", argo: "3.7"{package}}}
pools:
  spot: {{capacity: spot, provider: aks, node: {{cpu: 1000, memory: 8Gi}}}}
  system: {{capacity: on-demand, provider: aks, node: {{cpu: 1000, memory: 8Gi}}}}
policy:
  default: {{spot: prefer, interruptions: {{max: 3, backoff: 1s}}, fall_back_after: 1{policy}}}
"""
TRAIN = """
import time
from spotwright.checkpoint import Checkpoint

ckpt = Checkpoint(program="train/1", every=1)
state = ckpt.load(default={"begun": []})
state["begun"].append(ckpt.step)
for step in ckpt.steps(15):
    time.sleep(1)
    ckpt.step_done(state)
print("begun at", *state["begun"], flush=True)
"""
ENDS = 150.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def made(bed: Settings, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """A controller that makes the library and the claims of policies."""
    webhook = ["--make-library", "--make-claims", "1Gi"]
    with controllers(bed, kube, tmp_path_factory.mktemp("library"), webhook=webhook) as controller:
        yield controller


def the_run(made: Controllers, namespace: str, name: str) -> RunState | None:
    found = made.runs().get((namespace, name))
    return found if found is not None and found.finished_at is not None else None


def test_work_that_asks_for_no_checkpoint_starts_where_the_library_is_missing(
    kube: Kube, namespace: str, made: Controllers
) -> None:
    configure(
        kube, namespace, CONFIGURATION.format(package=", package: configmap", policy=", checkpoint: 's3://saves'")
    )
    kube.wait(lambda: kube.get("configmap", config_map_name(), namespace), "the ConfigMap is made", 60)
    kube.run("delete", "configmap", config_map_name(), "-n", namespace)
    spec = {"restartPolicy": "Never", "containers": [kube.container("sleep 1")]}
    kube.apply(job("plain", namespace, spec))
    kube.wait(lambda: has_condition(kube.get("job", "plain", namespace), "Complete"), "the Job is complete", ENDS)
    [pod] = kube.list("pods", namespace)
    [source] = [each["configMap"] for each in pod["spec"]["volumes"] if each["name"] == "spotwright-library"]
    assert source["optional"] is True


def test_a_component_of_kfp_s_own_client_imports_the_library_and_resumes_after_an_eviction(
    kube: Kube, namespace: str, made: Controllers, tmp_path: Path
) -> None:
    folder = tmp_path / "saves"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    volume = f"saves-{namespace}"
    spec = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": "saves"},
    }
    kube.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": spec})
    try:
        configure(kube, namespace, CONFIGURATION.format(package="", policy=", checkpoint: 'pvc://saves'"))
        for kind, name in (("configmap", config_map_name()), ("persistentvolumeclaim", "saves")):
            kube.wait(partial(kube.get, kind, name, namespace), f"{kind} {name} is made", 60)
        command = ["sh", "-ec", 'python3 -c "$0"', TRAIN]
        kube.run("create", "-n", namespace, "-f", "-", text=json.dumps(a_run("own", command, image=PYTHON)))
        first = kube.wait(lambda: working(kube, namespace, 1), "the first attempt runs", ENDS)
        kube.wait(lambda: len(list(folder.rglob("*"))) > 5, "it has saved", ENDS)
        kube.run("delete", "pod", first["metadata"]["name"], "-n", namespace, "--wait=false")
        run = kube.wait(lambda: the_run(made, namespace, "own"), "the run has ended", ENDS)
    finally:
        kube.run("delete", "persistentvolume", volume, "--wait=false")
    [task] = [task for task in run.tasks.values() if not task.path.endswith("-driver")]
    assert [attempt.cause for attempt in task.attempts] == [Cause.DISRUPTED, Cause.SUCCEEDED]
    second = next(pod for pod in kube.list("pods", namespace) if pod["metadata"]["uid"] in task.attempts[1].key)
    said = kube.run("logs", second["metadata"]["name"], "-n", namespace, "-c", "main")
    begun = [int(each) for each in said.partition("begun at ")[2].split()[:2]]
    assert begun[0] == 0
    assert begun[1] > 0


def working(kube: Kube, namespace: str, attempt: int) -> Object | None:
    """The pod of an attempt of the executor, once it runs."""
    for pod in kube.list("pods", namespace):
        marks = pod["metadata"].get("annotations") or {}
        if marks.get("spotwright.dev/attempt") == str(attempt) and pod["status"]["phase"] == "Running":
            return pod
    return None


def test_a_deadline_of_the_namespace_changes_nothing_and_its_author_is_told(
    kube: Kube, namespace: str, made: Controllers
) -> None:
    text = CONFIGURATION.format(package="", policy=", timeout: 1h, deadline: 8h").replace(", fall_back_after: 1", "")
    configure(kube, namespace, text)
    event = ["events", "-n", namespace, "--field-selector=reason=NoEffect", "-o", "json"]
    [said] = kube.wait(lambda: json.loads(kube.run("get", *event))["items"], "the Event", 60)
    assert "deadline" in said["message"]
    assert "has no effect on a cluster" in said["message"]
    script = 'if [ "$SPOTWRIGHT_ATTEMPT" = 1 ]; then sleep 600; fi'
    train = job("train", namespace, {"restartPolicy": "Never", "containers": [kube.container(script)]})
    del train["spec"]["backoffLimit"]
    kube.apply(train)
    first = kube.wait(lambda: working(kube, namespace, 1), "the first attempt runs", ENDS)
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    status = json.dumps({"status": {"phase": "Failed", "conditions": [gone]}})
    name = first["metadata"]["name"]
    kube.run("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=strategic", "-p", status)
    kube.run("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force")
    run = kube.wait(lambda: the_run(made, namespace, "train"), "the run has ended", ENDS)
    [task] = run.tasks.values()
    second = next(pod for pod in kube.list("pods", namespace) if pod["metadata"]["uid"] in task.attempts[1].key)
    assert task.attempts[0].following == "interruption 1 of 3: again on spot"
    assert task.attempts[1].pools == ("spot",)
    assert second["metadata"]["annotations"]["spotwright.dev/rung"] == ",".join(task.attempts[1].pools)
