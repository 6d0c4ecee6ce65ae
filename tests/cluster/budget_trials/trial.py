"""Runs orders of endings on a cluster: workloads of every kind, their attempts struck or ending by themselves, side by side.

An interruption is made as Kubernetes' pod garbage collector makes it when a Node is gone (``pkg/controller/podgc``): the pod gets
the condition DisruptionTarget with the reason DeletionByPodGC and the phase Failed, and is deleted without a grace period. Pods
of Argo keep their phase: Argo 3.7.3 takes a pod that is Failed while its containers run for a success, if it looks in the
milliseconds before the deletion, which are more here than in the garbage collector.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

from tests.cluster.budget_trials.kfp_shape import a_run
from tests.cluster.budget_trials.orders import STRUCK, Order
from tests.cluster.live.replicas import Controllers, configure
from tests.cluster.recorder.api import Api, ApiError, collection
from tests.cluster.recorder.recording import await_account
from tests.cluster.recorder.workloads import Behaviour, Object, workload

from spotwright.engine.state import RunState

__all__ = ["KINDS", "Result", "configuration_of", "run_orders"]

KINDS = ("job", "jobset", "trainjob", "argo", "kfp")
IMAGE = "localhost/busybox:1"
_LIMIT = "24Mi"
_SCRIPT = """
case $(echo {endings} | cut -c "$SPOTWRIGHT_ATTEMPT") in
s) exit 0;;
e) exit 1;;
k) exit 137;;
o) dd if=/dev/zero of=/dev/null bs=256M count=1; exit 99;;
i|m) while true; do sleep 1; done;;
*) exit 98;;
esac
"""
_CONFIGURATION = """\
version: 1
target: {{kubernetes: "1.35", argo: "3.7", trainer: "2.2"}}
pools:
  spot: {{capacity: spot, provider: aks, price: 1/h, node: {{cpu: 1000, memory: 8Gi}}}}
  system: {{capacity: on-demand, provider: aks, price: 3/h, node: {{cpu: 1000, memory: 8Gi}}}}
policy:
  default: {{spot: prefer, interruptions: {{max: {0}, backoff: 1s, factor: 1}}, errors: {{retries: {1}, backoff: 1s}}}}
"""
_ROOTS = {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "argo": "Workflow", "kfp": "Workflow"}
_ATTEMPT, _REFUSED = "spotwright.dev/attempt", "spotwright.dev/refused"
_DRIVER = "pipelines.kubeflow.org/runtime-role"
_POLL = 0.3
_PATIENCE = 400.0  # seconds for the longest order: a Job waits 10, 20, 40 seconds before it makes its pods again


@dataclass(frozen=True, slots=True)
class Result:
    """How one workload of one kind went through an order.

    ``causes`` and ``pools`` are those of its attempts as recorded, ``refusal`` what is noted about the pod that was refused,
    ``end`` the recorded status of its run, ``said`` what its controller wrote, ``counted`` how many retries the controller
    counted, ``seconds`` the time until the controller had ended it, and ``later`` the pods that were made after that.
    """

    kind: str
    interruptions: int
    errors: int
    endings: str
    causes: Sequence[str]
    pools: Sequence[str]
    refusal: str
    end: str
    said: str
    counted: int
    seconds: float
    later: int


def run_orders(
    api: Api, made: Controllers, orders: Sequence[Order], kinds: Sequence[str] = KINDS, *, watch_for: float = 2.0
) -> list[Result]:
    """Run all orders on workloads of these kinds at once; returns when all have ended, and ``watch_for`` seconds are over."""
    for order in orders:
        _prepare(api, made, order)
    started = time.time()
    for order, kind in product(orders, kinds):
        for item in _objects(kind, order):
            api.create(item, _namespace(order))
    try:
        ended = _follow(api, orders, kinds)
        runs = _recorded(made, [(_namespace(order), kind) for order, kind in ended])
        time.sleep(max(0.0, max(ended.values()) + watch_for - time.time()))
        return [
            _result(kind, order, runs[_namespace(order), kind], started, ended[order, kind], api)
            for order, kind in product(orders, kinds)
        ]
    finally:
        for order in orders:
            made.kube.run("delete", "namespace", _namespace(order), "--wait=false")


def _follow(api: Api, orders: Sequence[Order], kinds: Sequence[str]) -> dict[tuple[Order, str], float]:
    """Strike attempts until all workloads have ended. Returns when each has."""
    waiting = set(product(orders, kinds))
    ended: dict[tuple[Order, str], float] = {}
    struck: set[str] = set()
    deadline = time.monotonic() + _PATIENCE
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not ended after {_PATIENCE:g} s: {sorted(waiting)}")
        for order in {order for order, _ in waiting}:
            _strike(api, _namespace(order), order, struck)
        for order, kind in sorted(waiting):
            if _has_ended(api, _namespace(order), kind):
                ended[order, kind] = time.time()
                waiting.discard((order, kind))
        time.sleep(_POLL)
    return ended


def configuration_of(interruptions: int, errors: int) -> str:
    """The ``spotwright.yaml`` of a namespace with these budgets."""
    return _CONFIGURATION.format(interruptions, errors)


def _namespace(order: Order) -> str:
    return f"budget-{order.name}-{os.getpid()}"


def _prepare(api: Api, made: Controllers, order: Order) -> None:
    namespace = _namespace(order)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, "")
    await_account(api, namespace)
    configure(made.kube, namespace, configuration_of(order.interruptions, order.errors))


def _objects(kind: str, order: Order) -> list[Object]:
    script = ["sh", "-c", _SCRIPT.format(endings=order.endings)]
    command = ["/absent"] if order.endings == "c" else script
    memory = _LIMIT if "o" in order.endings else ""
    if kind == "kfp":
        return [a_run(kind, command, image=IMAGE, memory=memory)]
    return workload(kind, kind, Behaviour(command, image=IMAGE, cpu="10m", memory=memory))


def _strike(api: Api, namespace: str, order: Order, struck: set[str]) -> None:
    """Interrupt or move the attempts whose turn it is, each once."""
    for pod in api.request("GET", collection("Pod", namespace))["items"]:
        annotations = pod["metadata"].get("annotations") or {}
        number = int(annotations.get(_ATTEMPT, "0"))
        letter = order.endings[number - 1 : number] if number else ""
        uid = pod["metadata"]["uid"]
        if letter not in tuple(STRUCK) or uid in struck or _REFUSED in annotations or not _is_working(pod):
            continue
        if annotations.get(_DRIVER) == "driver":
            continue
        struck.add(uid)
        (_interrupt if letter == "i" else _move)(api, pod)


def _is_working(pod: Mapping[str, Any]) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    begun = any("running" in each.get("state", {}) for each in statuses if each["name"] in ("main", "node"))
    return begun and "deletionTimestamp" not in pod["metadata"]


def _interrupt(api: Api, pod: Mapping[str, Any]) -> None:
    path = f"{collection('Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    gone = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": now,
    }
    kept = [each for each in pod["status"].get("conditions") or () if each["type"] != gone["type"]]
    phase = {} if "workflows.argoproj.io/workflow" in pod["metadata"]["labels"] else {"phase": "Failed"}
    with suppress(ApiError):  # the pod may have gone since it was listed
        api.patch(f"{path}/status", {"status": {**phase, "conditions": [*kept, gone]}})
        api.request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}})


def _move(api: Api, pod: Mapping[str, Any]) -> None:
    path = f"{collection('Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}"
    with suppress(ApiError):
        api.request("DELETE", path, {"preconditions": {"uid": pod["metadata"]["uid"]}})


def _root(api: Api, namespace: str, kind: str) -> Object:
    root: Object = api.request("GET", f"{collection(_ROOTS[kind], namespace)}/{kind}")
    return root


def _has_ended(api: Api, namespace: str, kind: str) -> bool:
    status = _root(api, namespace, kind).get("status") or {}
    if "phase" in status:
        return status["phase"] in ("Succeeded", "Failed", "Error")
    ends = ("Complete", "Completed", "Failed")
    return any(each["type"] in ends and each["status"] == "True" for each in status.get("conditions") or ())


def _recorded(made: Controllers, wanted: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], RunState]:
    def all_have_ended() -> Mapping[tuple[str, str], RunState] | None:
        runs = made.runs()
        return runs if all(key in runs and runs[key].finished_at is not None for key in wanted) else None

    return made.kube.wait(all_have_ended, "the ends are recorded", 60)


def _result(kind: str, order: Order, run: RunState, started: float, ended: float, api: Api) -> Result:
    tasks = [task for task in run.tasks.values() if not task.path.endswith("-driver")]
    attempts = [attempt for task in tasks for attempt in task.attempts]
    refusals = [note for note in run.notes if "was refused" in note]
    return Result(
        kind, *order,
        causes=[attempt.cause.value if attempt.cause else "" for attempt in attempts],
        pools=[str(attempt.pool) for attempt in attempts],
        refusal="; ".join(refusals),
        end=run.status.value,
        said=_said(_root(api, _namespace(order), kind)),
        counted=_counted(api, _namespace(order), kind),
        seconds=round(ended - started, 1),
        later=_made_after(api, _namespace(order), kind, ended),
    )  # fmt: skip


def _made_after(api: Api, namespace: str, kind: str, ended: float) -> int:
    """The pods of a workload that were made after its controller had ended it."""
    pods = api.request("GET", collection("Pod", namespace))["items"]
    made = [pod for pod in pods if _of(pod) == kind]
    return sum(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp() > ended + 1 for pod in made)


def _of(pod: Mapping[str, Any]) -> str:
    """The workload of a pod, which is called like its kind."""
    labels = pod["metadata"].get("labels") or {}
    names = ("workflows.argoproj.io/workflow", "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name")
    return next((str(labels[name]) for name in names if name in labels), "")


def _said(root: Mapping[str, Any]) -> str:
    status = root.get("status") or {}
    if "phase" in status:
        return ": ".join(str(each) for each in (status["phase"], status.get("message")) if each)
    for each in status.get("conditions") or ():
        if each["type"] in ("Complete", "Completed", "Failed") and each["status"] == "True":
            return ": ".join(filter(None, (each["type"], each.get("reason"), each.get("message"))))
    return ""


def _counted(api: Api, namespace: str, kind: str) -> int:
    """The retries that the kind's controller has counted."""
    if kind == "job":
        return int((_root(api, namespace, kind)["status"]).get("failed", 0))
    if kind in ("jobset", "trainjob"):
        sets = api.request("GET", collection("JobSet", namespace))["items"]
        return sum(int(each["status"].get("restarts", 0)) for each in sets if each["metadata"]["name"] == kind)
    nodes = (_root(api, namespace, kind)["status"].get("nodes") or {}).values()
    retried = [node for node in nodes if node["type"] == "Retry" and "driver" not in node["displayName"]]
    return sum(len(node.get("children") or ()) - 1 for node in retried)


def as_data(result: Result) -> dict[str, Any]:
    """The result as it is written to the file."""
    return asdict(result)
