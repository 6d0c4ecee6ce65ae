"""The preStop hook on real nodes: every user's code saves before SIGTERM, and other pods do not end later."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed.settings import Settings
from tests.cluster import grace_trials
from tests.cluster.grace_trials.pod_webhook import LABEL, serving
from tests.cluster.live.kube import Kube, Object

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file

pytestmark = pytest.mark.cluster

CONFIGURATION = """\
version: 1
target: {kubernetes: "1.35", argo: "3.7"}
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 1000, memory: 8Gi}}
  system: {capacity: on-demand, provider: aks, node: {cpu: 1000, memory: 8Gi}}
"""
LONG = 600  # seconds of grace: a hook that waits for nothing would show in a test that does not end
ENDED = 120.0  # seconds for a pod, on a busy machine


@pytest.fixture
def webhook(bed: Settings, kube: Kube, namespace: str, tmp_path: Path) -> Iterator[None]:
    """A webhook of pods that serves the namespace of the test, in which the code and the library lie."""
    kube.run("label", "namespace", namespace, *(f"{key}={value}" for key, value in LABEL.items()))
    files = {"code.py": Path(grace_trials.__file__).with_name("code.py").read_bytes(), FILE_NAME: checkpoint_file()}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    metadata = {"name": "files", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data})
    with serving(bed, CONFIGURATION, tmp_path):
        yield


def a_pod(namespace: str, *command: str, image: str = "localhost/python:1") -> Object:
    """A pod such as Argo makes of a placed step, as far as the webhook looks; its code may write nowhere but in /tmp."""
    policy = json.dumps({"spot": "never", "grace_period": f"{LONG}s"})
    annotations = {"spotwright.dev/policy": policy, "workflows.argoproj.io/node-name": "run.train"}
    main = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "SPOTWRIGHT_TASK", "value": "train"}, {"name": "PYTHONPATH", "value": f"/files/{FILE_NAME}"}],
        "securityContext": {"runAsUser": 1234, "runAsNonRoot": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "files", "mountPath": "/files"}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
        **({"command": list(command)} if command else {}),
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [main],
        "volumes": [{"name": "files", "configMap": {"name": "files"}}, {"name": "tmp", "emptyDir": {}}],
    }
    metadata = {"name": "step", "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def words_until_the_end(kube: Kube, namespace: str, first: str) -> list[str]:
    """The output of the code, word by word; its pod is deleted after the first one."""
    command = [str(kube.program), f"--kubeconfig={kube.kubeconfig}", "logs", "-f", "step", "-n", namespace]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout is not None
        words = []
        for line in log.stdout:
            words.append(line.split()[-1])
            if words[-1] == first and words.count(first) == 1:
                kube.run("delete", "pod", "step", "-n", namespace, "--wait=false")
    kube.wait(lambda: kube.get("pod", "step", namespace) is None, "the pod is gone", ENDED)
    return words


@pytest.mark.usefixtures("webhook")
def test_a_step_in_hand_is_saved_before_sigterm_by_code_of_another_user_with_a_read_only_root(
    kube: Kube, namespace: str
) -> None:
    kube.apply(a_pod(namespace, "python3", "/files/code.py", "saving", "-", "/tmp/place"))  # noqa: S108
    kube.wait_for_phase("step", namespace, "Running", seconds=ENDED)
    words = [word for word in words_until_the_end(kube, namespace, "saved") if word != "alive"]
    assert words[:3] == ["saved", "notice", "saved"]
    assert "sigterm" not in words[:3]


@pytest.mark.usefixtures("webhook")
def test_code_without_the_library_is_not_waited_for(kube: Kube, namespace: str) -> None:
    kube.apply(a_pod(namespace, "python3", "/files/code.py", "quick", "-"))
    pod = kube.wait_for_phase("step", namespace, "Running", seconds=ENDED)
    assert pod["spec"]["terminationGracePeriodSeconds"] == LONG
    assert pod["spec"]["containers"][0]["lifecycle"]["preStop"]
    assert words_until_the_end(kube, namespace, "alive")[-1] == "sigterm"


@pytest.mark.usefixtures("webhook")
def test_a_pod_whose_image_has_no_shell_ends_as_well(kube: Kube, namespace: str) -> None:
    kube.apply(a_pod(namespace, image="localhost/pause:1"))
    kube.wait_for_phase("step", namespace, "Running", seconds=ENDED)
    kube.run("delete", "pod", "step", "-n", namespace, "--wait=false")
    kube.wait(lambda: kube.get("pod", "step", namespace) is None, "the pod is gone", ENDED)
    kube.wait(
        lambda: [one for one in kube.list("events", namespace) if one["reason"] == "FailedPreStopHook"],
        "the event of the hook that failed",
        ENDED,
    )
