"""The recorded ways to die: the containers' code, and the fault.

One death strikes the workloads of all kinds at once, because all of them run on one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.faults import Faults
from tests.cluster.recorder.api import Api, ApiError, collection
from tests.cluster.recorder.observing import Observer
from tests.cluster.recorder.workloads import Behaviour

__all__ = ["DEATHS", "SPOT_TAINT", "Death", "Strike"]

SPOT_TAINT = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Strike:
    """The means of a death: the API, the node on which all victims run, and the faults of the test bed."""

    api: Api
    observer: Observer
    namespace: str
    number: int  # of the node on which all victims run
    victims: Sequence[str]  # UIDs of the pods
    faults: Faults

    @property
    def node(self) -> str:
        """The name of the node."""
        return f"n{self.number}"

    def each_pod(self, do: Callable[[str], object]) -> None:
        """Do something to the path of each victim that is still there."""
        for uid in self.victims:
            path = f"{collection('Pod', self.namespace)}/{self.observer.history(uid)[-1].value['metadata']['name']}"
            try:
                do(path)
            except ApiError as error:
                if error.status != 404:
                    raise

    def change_node(self, change: dict[str, object]) -> None:
        """Merge a change into the Node object."""
        self.api.patch(f"/api/v1/nodes/{self.node}", change)

    def are_told(self) -> bool:
        """True once every victim is marked for disruption or deletion."""
        last = [self.observer.history(uid)[-1] for uid in self.victims]
        return all(state.gone or state.value["metadata"].get("deletionTimestamp") for state in last)


@dataclass(frozen=True, slots=True)
class Death:
    """A way to die. ``strikes``: the action once every victim runs; None: the work ends by itself."""

    name: str
    group: str  # the folder of its recording: work | objects | nodes
    sentence: str  # what happens, for people
    behaviour: Behaviour
    strikes: Callable[[Strike], None] | None = None
    begins: str = "running"  # the state of every victim in which it strikes: running | waiting | finished | none
    seconds: float = 60  # time in which every victim ends
    refused: bool = False  # the API server admits no pod


def _shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


_WAIT = "while :; do sleep 0.2; done"
_WORKS = Behaviour(_shell(f"trap 'exit 143' TERM; {_WAIT}"))
_ANSWERS_0 = Behaviour(_shell(f"trap 'exit 0' TERM; {_WAIT}"))
_IGNORES = Behaviour(_shell(f"trap '' TERM; {_WAIT}"))


def _delete(strike: Strike) -> None:
    strike.each_pod(lambda path: strike.api.request("DELETE", path))


def _delete_by_force(strike: Strike) -> None:
    strike.each_pod(lambda path: strike.api.request("DELETE", path, {"gracePeriodSeconds": 0}))


def _drain(strike: Strike) -> None:
    """The actions of ``kubectl drain``: cordon the node, then evict its pods."""
    strike.change_node({"spec": {"unschedulable": True}})
    body = {"apiVersion": "policy/v1", "kind": "Eviction"}
    strike.each_pod(
        lambda path: strike.api.request(
            "POST",
            f"{path}/eviction",
            {**body, "metadata": {"name": path.rpartition("/")[2], "namespace": strike.namespace}},
        )
    )


def _taint(strike: Strike) -> None:
    ours = {"key": "example.com/maintenance", "value": "true", "effect": "NoExecute"}
    strike.change_node({"spec": {"taints": [SPOT_TAINT, ours]}})


def _cut_power(strike: Strike) -> None:
    """The machine goes; once Kubernetes has noticed it, the cloud's controller deletes the Node object."""
    strike.faults.cut_power(strike.number)
    strike.observer.wait(strike.are_told, 60, "the end of the pods' tolerations")
    strike.api.request("DELETE", f"/api/v1/nodes/{strike.node}")


def _cut_network(strike: Strike) -> None:
    strike.faults.unplug(strike.number)
    strike.observer.wait(strike.are_told, 60, "the end of the pods' tolerations")
    strike.faults.plug(strike.number)


def _shut_down(strike: Strike) -> None:
    strike.faults.shut_down(strike.number)


def _delete_node(strike: Strike) -> None:
    strike.api.request("DELETE", f"/api/v1/nodes/{strike.node}")


def _preempt(strike: Strike) -> None:
    """A pod of a higher priority asks for all that the node has."""
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    try:
        strike.api.create({**priority, "value": 1000}, "")
    except ApiError as error:
        if error.status != 409:
            raise
    allocatable = strike.api.request("GET", f"/api/v1/nodes/{strike.node}")["status"]["allocatable"]["cpu"]
    container = {**_WORKS.container(), "resources": {"requests": {"cpu": f"{int(allocatable) * 1000 - 20}m"}}}
    spec = {
        "priorityClassName": "urgent",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"kubernetes.io/hostname": strike.node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "urgent"}, "spec": spec}
    strike.api.create(pod, strike.namespace)


DEATHS: Sequence[Death] = (
    Death("exit-0", "work", "the code exits with 0", Behaviour(_shell("sleep 3")), begins="finished"),
    Death("exit-1", "work", "the code exits with 1", Behaviour(_shell("sleep 3; exit 1")), begins="finished"),
    Death(
        "exit-137", "work", "the code itself exits with 137", Behaviour(_shell("sleep 3; exit 137")), begins="finished"
    ),
    Death(
        "out-of-memory",
        "work",
        "the code exceeds its memory limit",
        Behaviour(_shell("sleep 3; exec tail /dev/zero"), memory="100Mi"),
        begins="finished",
    ),
    Death("start-crash", "work", "the command does not exist", Behaviour(("/absent",)), begins="finished"),
    Death("delete-exit-143", "objects", "kubectl delete pod, SIGTERM answered with 143", _WORKS, _delete),
    Death("delete-exit-0", "objects", "kubectl delete pod, SIGTERM answered with 0", _ANSWERS_0, _delete),
    Death("delete-ignored", "objects", "kubectl delete pod, SIGTERM ignored", _IGNORES, _delete),
    Death("delete-forced", "objects", "kubectl delete pod --force --grace-period=0", _WORKS, _delete_by_force),
    Death("drain-exit-143", "objects", "kubectl drain, SIGTERM answered with 143", _WORKS, _drain),
    Death("drain-exit-0", "objects", "kubectl drain, SIGTERM answered with 0", _ANSWERS_0, _drain),
    Death("taint", "objects", "a NoExecute taint on the node", _WORKS, _taint),
    Death("preemption", "objects", "a pod of a higher priority needs the node", _WORKS, _preempt),
    Death("node-shutdown", "nodes", "the machine shuts down gracefully", _WORKS, _shut_down),
    Death(
        "power-cut",
        "nodes",
        "a power cut, later the Node object is deleted",
        _WORKS,
        _cut_power,
        seconds=150,
    ),
    Death("network-cut", "nodes", "the network is cut, and comes back", _WORKS, _cut_network),
    Death(
        "node-deleted", "nodes", "the Node object is deleted, the machine runs on", _WORKS, _delete_node, seconds=150
    ),
    Death(
        "deadline",
        "work",
        "the deadline (activeDeadlineSeconds) passes",
        Behaviour(_WORKS.command, deadline=8),
        begins="finished",
    ),
    Death(
        "image-missing",
        "work",
        "the image is missing, the pod is deleted at last",
        Behaviour(_WORKS.command, image="127.0.0.1:1/absent:1"),
        _delete,
        begins="waiting",
    ),
    Death(
        "refused-by-kubelet",
        "work",
        "the kubelet has no room for the pod",
        Behaviour(_WORKS.command, cpu="900", node="n3"),
        begins="finished",
    ),
    Death("refused-by-api", "work", "pod security refuses the pod", _WORKS, begins="none", refused=True),
)
"""All deaths, in the order of the table."""
