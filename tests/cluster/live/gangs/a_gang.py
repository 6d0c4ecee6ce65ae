"""Gangs for tests on the test bed: JobSets and TrainJobs of a few pods, and what their controllers and ours made of them."""

from __future__ import annotations

from tests.cluster.live.controllers import Controller
from tests.cluster.live.kube import Kube, Object, has_condition, pod_spec
from tests.cluster.live.runtimes import training_runtime

from spotwright.engine.state import RunState
from spotwright.model.attempts import Cause

__all__ = [
    "ALONE",
    "CRDS",
    "STARTS",
    "a_gang",
    "charged",
    "created",
    "is_done",
    "logs",
    "of_restart",
    "recorded",
    "rung",
    "running",
    "why",
]

STARTS = 180.0  # seconds until pods run, on a busy machine
CRDS = {"JobSet": "jobsets.jobset.x-k8s.io", "TrainJob": "trainjobs.trainer.kubeflow.org"}
ALONE = (
    ", only on spot: the cluster autoscaler reads no preferences, and its ConfigMap cluster-autoscaler-priority-expander is "
    "not there"
)
"""The addition to the reason why a pod was admitted for spot, if no interruption decided its rung."""
_DONE = {"JobSet": "Completed", "TrainJob": "Complete"}
_API = {"JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1"}


def a_gang(
    kube: Kube, kind: str, namespace: str, script: str, *, name: str = "gang", pods: int = 2, cpu: str = "10m"
) -> list[Object]:
    """A gang of pods that run a script, on different nodes if there is room; and the runtime that a TrainJob needs."""
    meta = {"name": name, "namespace": namespace}
    if kind == "TrainJob":
        runtime = training_runtime(kube, namespace, script)
        runtime["metadata"]["name"] = f"{name}-runtime"
        (member,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        _spread(member["template"]["spec"]["template"]["spec"], name, cpu)
        reference = {"name": f"{name}-runtime", "kind": "TrainingRuntime"}
        spec: Object = {"runtimeRef": reference, "trainer": {"numNodes": pods}}
        return [runtime, {"apiVersion": _API[kind], "kind": kind, "metadata": meta, "spec": spec}]
    template = {"spec": pod_spec(kube.container(script))}
    _spread(template["spec"], name, cpu)
    spec = {"completions": pods, "parallelism": pods, "template": template}
    jobs = [{"name": "workers", "template": {"spec": spec}}]
    return [{"apiVersion": _API[kind], "kind": kind, "metadata": meta, "spec": {"replicatedJobs": jobs}}]


def _spread(spec: Object, name: str, cpu: str) -> None:
    """Let the pods of a gang ask for so much CPU, and rather run on different nodes."""
    spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
    peers = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": peers}
    wish = [{"weight": 100, "podAffinityTerm": term}]
    spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def of_restart(kube: Kube, namespace: str, restart: int, name: str = "gang") -> list[Object]:
    """The pods of one restart of the set."""
    pods = kube.list("pods", namespace, f"jobset.sigs.k8s.io/jobset-name={name}")
    number = "jobset.sigs.k8s.io/restart-attempt"
    return [each for each in pods if each["metadata"]["labels"].get(number) == str(restart)]


def running(kube: Kube, namespace: str, restart: int, *, pods: int = 2, name: str = "gang") -> list[Object] | None:
    """The pods of one restart once all of them run."""
    made = of_restart(kube, namespace, restart, name)
    return made if [each["status"].get("phase") for each in made] == ["Running"] * pods else None


def created(kube: Kube, namespace: str, restart: int, *, pods: int = 2, name: str = "gang") -> list[Object] | None:
    """The pods of one restart once all of them are made."""
    made = of_restart(kube, namespace, restart, name)
    return made if len(made) == pods else None


def is_done(kube: Kube, kind: str, namespace: str, name: str = "gang") -> bool:
    """Whether the gang has completed."""
    return has_condition(kube.get(kind, name, namespace), _DONE[kind])


def rung(made: Object) -> str:
    """The pools for which a pod was admitted."""
    return str(made["metadata"]["annotations"]["spotwright.dev/rung"])


def why(made: Object) -> str:
    """Why a pod was admitted for its rung."""
    return str(made["metadata"]["annotations"]["spotwright.dev/why"])


def logs(kube: Kube, made: Object) -> str:
    """The output of a pod's code."""
    meta, (container,) = made["metadata"], made["spec"]["containers"]
    return kube.run("logs", "-n", meta["namespace"], meta["name"], "-c", container["name"])


def recorded(kube: Kube, leader: Controller, name: str = "gang") -> RunState:
    """The run of a gang that is over, once its end is in the journal."""
    kube.wait(lambda: leader.has_ended(name), f"the end of {name} is recorded", 60)
    run = leader.run(name)
    assert run is not None
    return run


def charged(run: RunState) -> list[Cause]:
    """The cause that each restart of the gang is charged for, in order."""
    (restarts,) = run.gangs.values()
    return [restarts[restart] for restart in sorted(restarts)]
