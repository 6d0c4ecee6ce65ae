"""A pipeline of three steps on Argo loses the node of its training: what is read agrees with what Kubernetes recorded.

The cost is reckoned a second time here, from the raw pods as ``kubectl get --watch`` saw them: a pod pays its share of its node
from the moment in which it was scheduled to the moment in which its container ended. Of the pod on the node without power nobody
knows that moment: Kubernetes marks the pod for deletion some time later, and the watcher ends its attempt when it sees the mark.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from testbed.building.images import PYTHON
from testbed.faults import Faults
from tests.cluster.conftest import Require
from tests.cluster.live.kube import Kube, Object, pod_spec
from tests.cluster.reading import on_the_bed as bed_pods
from tests.cluster.reading.bed_readers import read
from tests.cluster.reading.saves import is_saved

pytestmark = [pytest.mark.cluster, pytest.mark.cluster_ci]

ENDED = 600.0  # seconds for the pipeline, with a node that is lost, on a busy machine
HEARTBEAT = 15.0  # seconds from one word of a node to the next, at most
MARKED = 60.0  # seconds from the mark on the lost pod until the watcher has seen it, at most
CLOCK = (
    1.0  # seconds: the watcher knows the API server's clock from whole seconds, and lets nothing happen in its future
)
PRICES = {"spot": Fraction("1.10"), "system": Fraction("3.30")}  # an hour; those of the controller's configuration
CPUS = 2
_MARKED = "first mark for deletion"
TRAIN = """
import time
from spotwright.checkpoint import Checkpoint
ckpt = Checkpoint("/checkpoint", program="sum/1", every=0.2)
state = ckpt.load(default={"sum": 0})
with open("/checkpoint/begins", "a") as begins:
    print(ckpt.step, file=begins)
for step in ckpt.steps(60):
    time.sleep(0.5)
    state["sum"] += step
    ckpt.step_done(state)
assert state["sum"] == sum(range(60))
print("sum", state["sum"])
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all nodes see, as a volume of a storage that outlives them."""
    with tempfile.TemporaryDirectory(prefix="spotwright-volume-") as folder:
        yield Path(folder)


def test_show_and_report_agree_with_kubernetes_cent_by_cent(
    kube: Kube, controller: str, faults: Faults, namespace: str, shared: Path, require: Require
) -> None:
    require("workflows.argoproj.io")
    kube.run("label", "namespace", namespace, "spotwright.dev/enabled=true")
    with raw_pods(kube, namespace) as pods:
        kube.apply(pipeline(namespace, shared))
        kube.wait(lambda: begins(shared) and (shared / "begins").exists(), "the training runs", 240)
        kube.wait(lambda: is_saved(shared), "a save", 60)
        node = lost_node(kube, namespace)
        cut = time.time()
        faults.cut_power(int(node.removeprefix("n")))
        kube.wait(lambda: is_cut_off(kube, namespace, node), "the lost pod is marked", 240)
        faults.delete(int(node.removeprefix("n")))  # as a cloud does with a machine that is gone
        kube.wait(lambda: phase(kube, namespace) == "Succeeded", "the pipeline has succeeded", ENDED)
        view = kube.wait(lambda: finished(kube, controller, namespace), "its end is recorded", 120)
    report = json.loads(read(kube, controller, "report", view["run"], "--json").out)
    check_attempts(view, pods, cut)
    spent = sum((cost_of(attempt) for task in view["tasks"] for attempt in task["attempts"]), Fraction(0))
    assert round(float(spent), 2) == round(float(Fraction(report["attempts"]["money"])), 2)
    assert len(begins(shared)) == 2
    assert begins(shared)[1] > 0, "the second attempt began anew"


def check_attempts(view: Object, pods: dict[str, Object], cut: float) -> None:
    """Every pod is one attempt, on its node, with the times and the cost that the raw objects give.

    ``cut`` is when the node lost its power, in Unix seconds.
    """
    attempts = {(task["path"], each["number"]): each for task in view["tasks"] for each in task["attempts"]}
    assert sorted(attempts) == [("prepare", 1), ("report", 1), ("train", 1), ("train", 2)]
    assert attempts["train", 1]["cause"] in {
        "interrupted",
        "lost",
    }  # what is seen first: that its Node is gone, or that it is silent
    assert attempts["train", 2]["cause"] == "succeeded"
    assert len(pods) == len(attempts)
    for key, attempt in attempts.items():
        (pod,) = [
            each for each in pods.values() if step_of(each) == key[0] and each["spec"]["nodeName"] == attempt["node"]
        ]
        scheduled = condition_time(pod, "PodScheduled")
        assert abs(attempt["bound_at"] - scheduled) <= CLOCK
        ended = ended_time(pod)
        if ended is None:  # its node has not said so: it was heard last before the cut, or missed before the mark
            assert cut - HEARTBEAT <= attempt["ended_at"] <= pod[_MARKED] + MARKED
            ended = attempt["ended_at"]
        assert abs(attempt["ended_at"] - ended) <= CLOCK
        share = cpu_of(pod) / CPUS
        per_second = share * PRICES[attempt["pool"]] / 3600
        assert attempt["share"] == float(share)
        assert abs(cost_of(attempt) - Fraction(ended - scheduled) * per_second) <= 2 * Fraction(CLOCK) * per_second


def cost_of(attempt: Object) -> Fraction:
    return Fraction(attempt["cost"]["money"])


def pipeline(namespace: str, shared: Path) -> Object:
    """prepare > train > report; the training prefers spot nodes and is tried again."""
    base = {**pod_spec({}), "affinity": prefer("spot")}
    mounts = [{"name": "code", "mountPath": "/code"}, {"name": "shared", "mountPath": "/checkpoint"}]

    def container(code: str) -> Object:
        return {
            "image": PYTHON,
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", code],
            "env": [{"name": "PYTHONPATH", "value": "/code"}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
            "resources": {"requests": {"cpu": "500m", "memory": "32Mi"}},
            "volumeMounts": mounts,
        }

    steps = {"prepare": "print('ready')", "train": TRAIN, "report": "print('done')"}
    retries = {"limit": "3", "retryPolicy": "Always"}
    templates: list[Object] = [
        {"name": name, "container": container(code), "affinity": base["affinity"], "retryStrategy": retries}
        for name, code in steps.items()
    ]
    names = list(steps)
    tasks = [
        {"name": name, "template": name, **({"depends": names[number - 1]} if number else {})}
        for number, name in enumerate(names)
    ]
    volumes = [
        {"name": "code", "hostPath": {"path": str(bed_pods.CODE)}},
        {"name": "shared", "hostPath": {"path": str(shared)}},
    ]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "three-steps", "namespace": namespace},
        "spec": {
            "entrypoint": "main",
            "templates": [{"name": "main", "dag": {"tasks": tasks}}, *templates],
            "tolerations": base["tolerations"],
            "volumes": volumes,
        },
    }


def prefer(pool: str) -> Object:
    wanted = {"matchExpressions": [{"key": "agentpool", "operator": "In", "values": [pool]}]}
    term = {"weight": 100, "preference": wanted}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


@contextmanager
def raw_pods(kube: Kube, namespace: str) -> Iterator[dict[str, Object]]:
    """The last state of every pod of a namespace, by UID, with its first mark for deletion; complete after the block.

    A pod that garbage collection deletes once more gets another time of deletion, long after the first.
    """
    command = [str(kube.program), f"--kubeconfig={kube.kubeconfig}", "get", "pods", "-n", namespace]
    found: dict[str, Object] = {}
    with tempfile.TemporaryFile("w+") as output:
        watch = subprocess.Popen([*command, "--watch", "-o", "jsonpath={@}{'\\n'}"], stdout=output)
        try:
            yield found
        finally:
            watch.terminate()
            watch.wait()
        output.seek(0)
        for line in filter(str.strip, output):
            pod: Object = json.loads(line)
            known = found.get(pod["metadata"]["uid"], {})
            if not known or ended_time(known) is None:
                found[pod["metadata"]["uid"]] = pod
            if marked := known.get(_MARKED) or mark_of(pod):
                found[pod["metadata"]["uid"]][_MARKED] = marked


def mark_of(pod: Object) -> float | None:
    """When a pod was marked for deletion; None if it is not."""
    meta = pod["metadata"]
    return (
        moment(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"] if "deletionTimestamp" in meta else None
    )


def begins(shared: Path) -> list[int]:
    """The step at which each attempt of the training began."""
    path = shared / "begins"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def lost_node(kube: Kube, namespace: str) -> str:
    def running() -> Object | None:  # its phase comes a little after its first line
        pods = [pod for pod in kube.list("pods", namespace) if pod["status"]["phase"] == "Running"]
        return next((each for each in pods if step_of(each) == "train"), None)

    pod = kube.wait(running, "the training's pod is Running", 60)
    node: str = pod["spec"]["nodeName"]
    assert node != "n1", "the training did not take the spot node"
    return node


def is_cut_off(kube: Kube, namespace: str, node: str) -> bool:
    pods = [pod for pod in kube.list("pods", namespace) if pod["spec"].get("nodeName") == node]
    return any(step_of(pod) == "train" and "deletionTimestamp" in pod["metadata"] for pod in pods)


def phase(kube: Kube, namespace: str) -> str:
    return str((kube.get("workflow", "three-steps", namespace) or {}).get("status", {}).get("phase", ""))


def finished(kube: Kube, controller: str, namespace: str) -> Any:
    shown = read(kube, controller, "show", "workflow/three-steps", "-n", namespace, "--json")
    view = json.loads(shown.out) if shown.code == 0 else None
    return view if view is not None and view["finished_at"] is not None else None


def step_of(pod: Object) -> str:
    """The step that a pod executes: ``three-steps.train(0)`` is train."""
    name: str = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]
    return name.partition(".")[2].partition("(")[0]


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def condition_time(pod: Object, kind: str) -> float:
    return next(moment(each["lastTransitionTime"]) for each in pod["status"]["conditions"] if each["type"] == kind)


def ended_time(pod: Object) -> float | None:
    """When the container of the step ended; None if that was not seen."""
    for status in pod["status"].get("containerStatuses") or ():
        terminated = status["state"].get("terminated")
        if status["name"] == "main" and terminated and terminated.get("finishedAt"):
            return moment(terminated["finishedAt"])
    return None


def cpu_of(pod: Object) -> Fraction:
    """The CPUs that the containers of a pod request; Argo's own beside the step's."""
    return sum((cpus(each) for each in pod["spec"]["containers"]), Fraction(0))


def cpus(container: Object) -> Fraction:
    text = str(((container.get("resources") or {}).get("requests") or {}).get("cpu", "0"))
    return Fraction(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
