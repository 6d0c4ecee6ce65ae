"""Workloads as users write them, with retries of their own, and how each ended: the same objects for every way of running them.

A script runs for a time once the file ``go`` is in the folder that all pods share, and then ends well. Members of a gang fail
when their peer is silent, as NCCL and gloo do, so that the peer of a lost node fails before Kubernetes has noticed the loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.cluster.live.kube import Kube, Object, has_condition, pod_spec
from tests.cluster.live.runtimes import training_runtime

__all__ = ["GANGS", "KINDS", "SINGLE", "WORK", "Outcome", "Program", "make", "outcomes", "pods_of"]

WORK = 20  # seconds that a script works in each attempt, at least until the test says go
_CRDS = {
    "workflow": "workflows.argoproj.io",
    "jobset": "jobsets.jobset.x-k8s.io",
    "trainjob": "trainjobs.trainer.kubeflow.org",
}
_RETRIES = 3  # what the author of a Workflow, a JobSet or a runtime allows; a Job has Kubernetes' default of six

_ALONE = f"""
trap 'exit 143' TERM
i=0
while [ $i -lt {WORK} ]; do sleep 1 & wait $!; [ ! -e /saves/go ] || i=$((i + 1)); done
"""

_ERRORS = """
count=/saves/$NAME-${JOB_COMPLETION_INDEX:-0}.errors
errors=$(cat $count 2> /dev/null || echo 0)
if [ ${JOB_COMPLETION_INDEX:-0} = 0 ] && [ $errors -lt ERRORS ]; then echo $((errors + 1)) > $count; sleep 2; exit 3; fi
"""

# Each member writes the time into a file each half second. It waits for its peer, works while the peer is alive, and exits with 1
# after eight seconds without a sign of it. A member that is done stays a sign of life for its peer.
_GANG = f"""
trap 'exit 143' TERM
me=/saves/$NAME-${{JOB_COMPLETION_INDEX:-0}} peer=/saves/$NAME-$((1 - ${{JOB_COMPLETION_INDEX:-0}}))
rm -f $me.done
beat() {{ date +%s > $me.new; mv $me.new $me; sleep 0.5 & wait $!; }}
silent() {{ [ -e $peer.done ] && echo 0 || echo $(($(date +%s) - $(cat $peer 2> /dev/null || echo 0))); }}
waits=0
while [ $(silent) -gt 1 ]; do beat; waits=$((waits + 1)); [ $waits -lt 360 ] || exit 1; done
i=0
while [ $i -lt {2 * WORK} ]; do
    beat
    [ ! -e /saves/go ] || i=$((i + 1))
    [ $(silent) -lt 8 ] || {{ echo "the peer is silent"; exit 1; }}
done
touch $me.done
"""


class Program(NamedTuple):
    """The pods' script: the first ``errors`` attempts of a workload's first pod work briefly and exit with 3."""

    errors: int = 0

    def of(self, script: str) -> str:
        """The script of a pod."""
        return (_ERRORS.replace("ERRORS", str(self.errors)) if self.errors else "") + script


class Outcome(NamedTuple):
    """How a workload ended: well or not, None while it is active; and the seconds from the event to its end."""

    well: bool | None
    seconds: float
    pods: int  # that were seen

    def __str__(self) -> str:
        """A cell of the table."""
        word = {True: "done", False: "FAILED", None: "hangs"}[self.well]
        return f"{word} {self.seconds:.0f} s, {self.pods} pods"


def _job(kube: Kube, namespace: str, program: Program) -> list[Object]:
    container, volumes = _container(kube, "job", program.of(_ALONE))
    spec = {"template": {"spec": pod_spec(container, volumes=volumes)}}
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": _named("job", namespace), "spec": spec}]


def _workflow(kube: Kube, namespace: str, program: Program) -> list[Object]:
    retry = {"limit": _RETRIES, "retryPolicy": "Always"}
    container, volumes = _container(kube, "workflow", program.of(_ALONE))
    template = {"name": "main", "container": container, "retryStrategy": retry, "volumes": volumes}
    spec = {"entrypoint": "main", "templates": [template], "tolerations": pod_spec({})["tolerations"]}
    meta = _named("workflow", namespace)
    return [{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}]


def _job_gang(kube: Kube, namespace: str, program: Program) -> list[Object]:
    pod = _member(kube, "job-gang", program, {"batch.kubernetes.io/job-name": "job-gang"})
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": {"spec": pod}}
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": _named("job-gang", namespace), "spec": spec}]


def _jobset(kube: Kube, namespace: str, program: Program) -> list[Object]:
    pod = _member(kube, "jobset", program, {"jobset.sigs.k8s.io/jobset-name": "jobset"})
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": {"spec": pod}}
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": spec}}]
    made = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": _RETRIES}}
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": _named("jobset", namespace),
            "spec": made,
        }
    ]


def _trainjob(kube: Kube, namespace: str, program: Program) -> list[Object]:
    runtime = training_runtime(kube, namespace, "true")
    (member,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = _member(kube, "trainjob", program, {"jobset.sigs.k8s.io/jobset-name": "trainjob"})
    pod["containers"][0]["name"] = "node"
    member["template"]["spec"]["template"]["spec"] = pod
    runtime["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": _RETRIES}
    spec = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}}
    meta = _named("trainjob", namespace)
    return [
        runtime,
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": spec},
    ]


def _container(kube: Kube, name: str, script: str) -> tuple[Object, list[Object]]:
    """A container that knows its workload's name and sees the folder that all pods share, and the pod's volumes."""
    container = kube.container(script)
    container["env"] = [{"name": "NAME", "value": name}]
    container["volumeMounts"] = [{"name": "saves", "mountPath": "/saves"}]
    return container, [{"name": "saves", "persistentVolumeClaim": {"claimName": "saves"}}]


def _named(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace}


def _member(kube: Kube, gang: str, program: Program, peers: Mapping[str, str]) -> Object:
    """The pod of a gang's member, rather on another node than its peer, with the folder of their signs of life."""
    container, volumes = _container(kube, gang, program.of(_GANG))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(peers)}}
    wish = [{"weight": 100, "podAffinityTerm": term}]
    apart = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
    return pod_spec(container, affinity=apart, volumes=volumes)


_MAKERS: Mapping[str, Callable[[Kube, str, Program], list[Object]]] = {
    "job": _job,
    "workflow": _workflow,
    "job-gang": _job_gang,
    "jobset": _jobset,
    "trainjob": _trainjob,
}
_SELECTORS = {
    "job": ("batch.kubernetes.io/job-name", "job"),
    "workflow": ("workflows.argoproj.io/workflow", "workflow"),
    "job-gang": ("batch.kubernetes.io/job-name", "job-gang"),
    "jobset": ("jobset.sigs.k8s.io/jobset-name", "jobset"),
    "trainjob": ("jobset.sigs.k8s.io/jobset-name", "trainjob"),
}
SINGLE = ("job", "workflow")
"""Workloads of one pod."""
GANGS = ("job-gang", "jobset", "trainjob")
"""Workloads of two pods, each of which fails without the other."""
KINDS = (*SINGLE, *GANGS)
_RESOURCES = {"job": "jobs", "job-gang": "jobs", "jobset": "jobsets", "trainjob": "trainjobs", "workflow": "workflows"}
_WELL = {"Job": "Complete", "JobSet": "Completed", "TrainJob": "Complete"}
"""The condition with which an object of this kind ends well; its opposite is Failed for each."""


def make(kube: Kube, kind: str, namespace: str, program: Program) -> list[Object]:
    """The objects of a workload, which has the name of its kind; empty if the cluster lacks the kind."""
    crd = _CRDS.get(kind)
    return [] if crd is not None and kube.lacks(crd) else _MAKERS[kind](kube, namespace, program)


def pods_of(kube: Kube, kind: str, namespace: str) -> list[Object]:
    """The pods of a workload that are there now."""
    return kube.list("pods", namespace, "=".join(_SELECTORS[kind]))


def outcomes(kube: Kube, kinds: Sequence[str], namespace: str, since: float) -> dict[str, tuple[Outcome, set[str]]]:
    """How the workloads of a namespace stand now, each with the UIDs of its pods; all with one look.

    ``since`` is the time of the event by ``time.monotonic()``.
    """
    resources = ",".join({"pods", *(_RESOURCES[kind] for kind in kinds)})
    items = kube.list(resources, namespace)
    seconds, found = time.monotonic() - since, {}
    for kind in kinds:
        label, value = _SELECTORS[kind]
        pods = [each for each in items if each["kind"] == "Pod" and each["metadata"]["labels"].get(label) == value]
        made = [each for each in items if each["kind"] != "Pod" and each["metadata"]["name"] == kind]
        uids = {str(pod["metadata"]["uid"]) for pod in pods}
        found[kind] = (Outcome(_ended_well(made), seconds, len(uids)), uids)
    return found


def _ended_well(made: Sequence[Object]) -> bool | None:
    """Whether the object of a workload ended well; None while it is active. A TrainJob has a JobSet of the same name."""
    for each in made:
        if each["kind"] == "Workflow":
            return {"Succeeded": True, "Failed": False, "Error": False}.get(
                str((each.get("status") or {}).get("phase"))
            )
        well = _WELL.get(each["kind"])
        if well and (each["kind"] != "JobSet" or each["metadata"]["name"] == "jobset"):
            return True if has_condition(each, well) else False if has_condition(each, "Failed") else None
    return None
