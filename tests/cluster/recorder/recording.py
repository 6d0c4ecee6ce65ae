"""Records one death: prepares the nodes, starts the workloads, strikes, and writes down what was seen of every victim.

Two moments of a victim may be kept. ``ended``: its first finished state, else its last state before its object vanished.
``lost``: before that, the moment at which Kubernetes had marked it while its node did not report; a lost pod may stay so for
hours, and the watcher cannot wait for its end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.building.programs import version_of
from testbed.faults import Faults
from tests.cluster.recorder.api import Api, ApiError, collection
from tests.cluster.recorder.deaths import Death, Strike
from tests.cluster.recorder.observing import Observer, State, is_finished
from tests.cluster.recorder.placing import placed, tolerant
from tests.cluster.recorder.slimming import slim
from tests.cluster.recorder.workloads import KINDS, workload

__all__ = ["Bed", "await_account", "delete_namespace", "record"]

_OTHER, _VICTIM = 2, 3  # the numbers of the two spot nodes
_STOCK = (
    "job",
    "argo",
)  # kinds that are also recorded as their controllers leave them without Spotwright's retry rules
_PRODUCTS = {
    "Kubernetes": ("kubernetes", "k8s.io/kubernetes"),
    "Argo": ("argo", "github.com/argoproj/argo-workflows/v3"),
    "JobSet": ("jobset", "sigs.k8s.io/jobset"),
    "Trainer": ("trainer", "github.com/kubeflow/trainer/v2"),
}
_LONGEST_MESSAGE = 300
_AFTERWARDS = 12  # seconds in which the controllers go on


@dataclass(frozen=True, slots=True)
class Bed:
    """The cluster on which deaths are recorded, with the faults of its nodes."""

    api: Api
    faults: Faults


@dataclass(slots=True)
class _Table:
    """The recorded objects, each once, by the name under which the endings refer to them."""

    objects: dict[str, Any] = field(default_factory=dict)

    def add(self, state: State | None) -> str | None:
        """Store an object and return its name; None without one."""
        if state is None:
            return None
        slimmed = slim(state.value)
        stem = f"{slimmed['kind']}/{slimmed['metadata']['name']}"
        number = 1
        while self.objects.setdefault(name := f"{stem}#{number}", slimmed) != slimmed:
            number += 1
        return name


def record(bed: Bed, death: Death) -> dict[str, Any]:
    """Let every kind die this death once. Returns the content of its file."""
    namespace = f"rec-{death.name}"
    _prepare_nodes(bed)
    delete_namespace(bed.api, namespace)
    level = {"pod-security.kubernetes.io/enforce": "restricted"} if death.refused else {}
    bed.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": level}}, "")
    await_account(bed.api, namespace)
    observer = Observer(bed.api, namespace)
    time.sleep(0.5)  # until every watch has listed
    names = _start(bed.api, namespace, death)
    try:
        return _observed(bed, death, observer, namespace, names)
    finally:
        delete_namespace(bed.api, namespace)


def _observed(bed: Bed, death: Death, observer: Observer, namespace: str, names: Sequence[str]) -> dict[str, Any]:
    victims: dict[str, str] = {}  # UID of the first pod by workload

    def have_begun() -> bool:
        victims.update(
            {name: uid for uid in observer.objects("Pod") if (name := _workload(observer, uid)) not in victims}
        )
        return death.refused or all(name in victims and _has_begun(observer, victims[name], death) for name in names)

    observer.wait(have_begun, 90, f"the workloads to be {death.begins}")
    _close(bed.api, _OTHER, closed=False)
    strike = Strike(bed.api, observer, namespace, _VICTIM, list(victims.values()), bed.faults)
    struck_at = time.time() if death.strikes is not None else None
    if death.strikes is not None:
        death.strikes(strike)
    observer.wait(lambda: all(_end(observer, uid) for uid in victims.values()), death.seconds, "the victims to end")
    time.sleep(_AFTERWARDS)
    observer.check()
    table = _Table()
    endings = [
        {
            "workload": name,
            **_ending(observer, table, name, victims.get(name), struck_at),
            **_afterwards(observer, name),
        }
        for name in names
    ]
    return {
        "death": death.name,
        "what": death.sentence,
        "versions": _versions(),
        "endings": endings,
        "objects": table.objects,
        "messages": _messages(observer),
    }


def _start(api: Api, namespace: str, death: Death) -> list[str]:
    """Create the workloads of all kinds, placed and as they are. Returns their names."""
    for kind in KINDS:
        for item in placed(workload(kind, kind, death.behaviour)):
            _create(api, item, namespace, death)
    for kind in _STOCK:
        for item in tolerant(workload(kind, f"{kind}-stock", death.behaviour)):
            _create(api, item, namespace, death)
    return [*KINDS, *(f"{kind}-stock" for kind in _STOCK)]


def _create(api: Api, item: Mapping[str, Any], namespace: str, death: Death) -> None:
    try:
        api.create(item, namespace)
    except ApiError:
        if not (death.refused and item["kind"] == "Pod"):
            raise


def _prepare_nodes(bed: Bed) -> None:
    """Undo earlier faults, and close the other spot node, so that every victim runs on one."""
    bed.faults.restore(_VICTIM)
    _close(bed.api, _OTHER, closed=True)


def _close(api: Api, number: int, *, closed: bool) -> None:
    api.patch(f"/api/v1/nodes/n{number}", {"spec": {"unschedulable": True if closed else None}})


def _versions() -> dict[str, str]:
    return {product: version_of(*module).removeprefix("v") for product, module in _PRODUCTS.items()}


def await_account(api: Api, namespace: str) -> None:
    """Wait for the service account without which no pod is admitted."""
    for _ in range(100):
        with contextlib.suppress(ApiError):
            api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            return
        time.sleep(0.1)
    raise TimeoutError("no default service account")


def delete_namespace(api: Api, namespace: str) -> None:
    """Delete the namespace with all that is in it, and wait until it is gone."""
    path = f"{collection('Namespace', '')}/{namespace}"
    try:
        for kind in ("Workflow", "TrainJob", "JobSet", "Job"):
            api.request("DELETE", collection(kind, namespace), {"propagationPolicy": "Background"})
        for item in api.request("GET", collection("Pod", namespace))["items"]:
            pod = f"{collection('Pod', namespace)}/{item['metadata']['name']}"
            with contextlib.suppress(ApiError):
                api.request("DELETE", pod, {"gracePeriodSeconds": 0})
        api.request("DELETE", path)
    except ApiError as error:
        if error.status != 404:
            raise
    for _ in range(600):
        try:
            api.request("GET", path)
        except ApiError:
            return
        time.sleep(0.1)
    raise TimeoutError(f"namespace {namespace} is not gone")


# What was seen


def _owners(observer: Observer, uid: str, moment: float) -> Iterator[State]:
    """The owners of an object at a moment, nearest first."""
    state = observer.at(uid, moment)
    while state is not None:
        references = state.value["metadata"].get("ownerReferences", ())
        controller = next((each for each in references if each.get("controller")), None)
        state = observer.at(controller["uid"], moment) if controller else None
        if state is not None:
            yield state


def _workload(observer: Observer, uid: str) -> str:
    """The name of the workload of a pod; empty for KFP's drivers, which are not attempts of the work."""
    pod = observer.history(uid)[0].value
    role = pod["metadata"].get("annotations", {}).get("pipelines.kubeflow.org/runtime-role")
    owners = list(_owners(observer, uid, time.time()))
    name: str = (owners[-1].value if owners else pod)["metadata"]["name"]
    return "" if role == "driver" else name


def _has_begun(observer: Observer, uid: str, death: Death) -> bool:
    pod = observer.history(uid)[-1].value
    states = [each.get("state", {}) for each in pod["status"].get("containerStatuses", ())]
    if death.begins == "running":
        return bool(states) and all("running" in state for state in states)
    if death.begins == "waiting":
        return any(state.get("waiting", {}).get("reason") == "ImagePullBackOff" for state in states)
    return is_finished(pod)


def _end(observer: Observer, uid: str) -> State | None:
    """The first finished state of a pod, else its last one before it vanished; None while it has neither."""
    states = observer.history(uid)
    return next((state for state in states if is_finished(state.value) or state.gone), None)


def _lost(observer: Observer, uid: str, end: State) -> State | None:
    """The state in which a pod was marked to go while its node did not report."""
    for state in observer.history(uid):
        node = observer.at(_node_uid(observer, state), state.at)
        if state.at < end.at and state.value["metadata"].get("deletionTimestamp") and node and not _reports(node.value):
            return state
    return None


def _reports(node: Mapping[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))


def _node_uid(observer: Observer, pod: State) -> str:
    name = pod.value["spec"].get("nodeName")
    uids = (uid for uid in observer.objects("Node") if observer.history(uid)[0].value["metadata"]["name"] == name)
    return next(uids, "")


def _ending(observer: Observer, table: _Table, name: str, uid: str | None, struck_at: float | None) -> dict[str, Any]:
    """The moments of a victim, each with its pod, its node and its owners as they were then."""
    if uid is None:
        owners = [
            observer.history(uid)[-1]
            for kind in ("Job", "JobSet", "TrainJob", "Workflow")
            for uid in observer.objects(kind)
        ]
        return {"moments": [], "owners": [table.add(state) for state in owners if _is_of(observer, state, name)]}
    end = _end(observer, uid)
    assert end is not None
    lost = _lost(observer, uid, end)
    moments = [("lost", lost)] if lost is not None else []
    moments.append(("ended", end))
    return {"moments": [_moment(observer, table, moment, state, struck_at) for moment, state in moments]}


def _is_of(observer: Observer, state: State, name: str) -> bool:
    return _workload(observer, state.value["metadata"]["uid"]) == name


def _moment(observer: Observer, table: _Table, name: str, state: State, struck_at: float | None) -> dict[str, Any]:
    node = observer.at(_node_uid(observer, state), state.at)
    waited = _waited(observer, state)
    return {
        "moment": name,
        "seconds": None if struck_at is None else round(state.at - struck_at, 1),
        "pod": table.add(state),
        "pod_gone": state.gone,
        "waited": table.add(waited),
        "node": table.add(node),
        "node_gone": node is not None and node.gone,
        "owners": [table.add(owner) for owner in _owners(observer, state.value["metadata"]["uid"], state.at)],
    }


def _waited(observer: Observer, end: State) -> State | None:
    """The last state in which a container waited with an error, if the pod ended without a start."""
    states = [state for state in observer.history(end.value["metadata"]["uid"]) if state.at < end.at]
    return next((state for state in reversed(states) if _is_stuck(state.value)), None)


def _is_stuck(pod: Mapping[str, Any]) -> bool:
    reasons = [
        each.get("state", {}).get("waiting", {}).get("reason", "")
        for each in pod["status"].get("containerStatuses", ())
    ]
    return any(reason.startswith(("ErrImage", "ImagePull")) for reason in reasons)


def _afterwards(observer: Observer, name: str) -> dict[str, Any]:
    """The controllers' next actions: how many pods the workload had in all, and its state at the end."""
    pods = [uid for uid in observer.objects("Pod") if _workload(observer, uid) == name]
    kinds = ("TrainJob", "JobSet", "Job", "Workflow", "Pod")
    last = [observer.history(uid)[-1] for kind in kinds for uid in observer.objects(kind)]
    workloads = [state.value for state in last if state.value["metadata"]["name"] == name]
    status = workloads[0].get("status", {}) if workloads else {}
    true = [each for each in status.get("conditions", ()) if each["status"] == "True"]
    conditions = [{key: each.get(key, "") for key in ("type", "reason", "message")} for each in true]
    return {"pods": len(pods), "phase": status.get("phase", ""), "conditions": conditions}


def _messages(observer: Observer) -> list[str]:
    """The warnings among the events, one of each kind of object and reason."""
    events = [observer.history(uid)[-1].value for uid in observer.objects("Event")]
    warnings = [each for each in events if each.get("type") == "Warning" and each["reason"] != "MissingClusterDNS"]
    said = {(each["involvedObject"]["kind"], each["reason"]): each.get("message", "") for each in warnings}
    return sorted(f"{kind} {reason}: {message[:_LONGEST_MESSAGE]}" for (kind, reason), message in said.items())
