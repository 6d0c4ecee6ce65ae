"""Translates objects of the API into runs, tasks and attempts. Pure functions on dictionaries.

The run is the topmost owner of a pod of a kind that is a run, or the pod itself if it carries a policy. A pod of a JobSet
belongs to a Job, the Job to the JobSet, and that perhaps to a TrainJob; all of them may belong to a Trial of a Katib
Experiment. A CronJob starts Jobs again and again: each Job is a run of its own.

Of a run it is read which tasks it has and from which pod templates, which attempts its pods hold and which of them have ended,
how often its own controller tries again, and whether it is over. Pods that begin and end together share a restart, so that a
budget is charged once for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from spotwright.engine.events import RunStatus
from spotwright.kinds.kind import NAMESAKES
from spotwright.manifests.pod_graph import PodTask
from spotwright.model.pools import Pool
from spotwright.placing.affinity import rung_conditions
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL

__all__ = [
    "RUN_KINDS",
    "TRAINING_KINDS",
    "FindOwner",
    "Lineage",
    "Outcome",
    "PodAttempt",
    "TaskName",
    "attempts_of",
    "controller_reference",
    "gang_of",
    "has_policy",
    "is_own_run",
    "key_of",
    "lineage",
    "main_container",
    "metadata",
    "outcome_of",
    "retries_of",
    "retries_of_job",
    "seconds",
    "task_name",
    "template_of_pod",
    "templates_of",
    "uid_of",
    "workflow_task",
]


TRAINING_KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
"""Kinds of the training operator v1 and of the MPI operator v2."""

RUN_KINDS = ("Job", "JobSet", "TrainJob", "Workflow", *TRAINING_KINDS, "Trial", "Experiment")
"""Kinds of owners that are runs."""

FindOwner = Callable[[str, str, str], Mapping[str, Any] | None]
"""Finds an object by kind, namespace and UID; None: it is not there, or it is not known yet."""


class Lineage(NamedTuple):
    """The owners of a pod of kinds that are runs, nearest first; the last one is the run. Empty: the pod is the run."""

    owners: Sequence[Mapping[str, Any]]
    is_complete: bool  # False: an owner is named that was not found

    def root(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that is the run."""
        return self.owners[-1] if self.owners else pod


def lineage(pod: Mapping[str, Any], find: FindOwner) -> Lineage:
    """The owners of a pod, as far as they can be found. Users may write owners that own each other: the circle is left out."""
    owners: list[Mapping[str, Any]] = []
    here: Mapping[str, Any] = pod
    while (reference := controller_reference(here)) is not None and reference.get("uid") not in [*map(uid_of, owners)]:
        group = str(reference.get("apiVersion", "")).rpartition("/")[0]
        if reference.get("kind") not in RUN_KINDS or (group, reference.get("kind")) in NAMESAKES:
            break
        owner = find(str(reference["kind"]), str(metadata(pod).get("namespace", "")), str(reference.get("uid", "")))
        if owner is None:
            return Lineage(owners, is_complete=False)
        owners.append(owner)
        here = owner
    return Lineage(owners, is_complete=True)


def is_own_run(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is a run by itself: nobody owns it, and it carries a policy."""
    return controller_reference(pod) is None and POLICY_ANNOTATION in (metadata(pod).get("annotations") or {})


def metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of an object."""
    found: Mapping[str, Any] = data.get("metadata") or {}
    return found


def uid_of(data: Mapping[str, Any]) -> str:
    """The UID of an object."""
    return str(metadata(data).get("uid", ""))


def controller_reference(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The reference to the controller that owns an object; None if a user made it."""
    references = metadata(data).get("ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


_RESTART = "jobset.sigs.k8s.io/restart-attempt"


def gang_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], earlier: Sequence[str]) -> str:
    """The restart that a pod belongs to, as ``SET/RESTART``; empty: it begins and ends alone.

    ``earlier`` are the restarts of the earlier attempts of its task. A pod that its Job replaces within a restart ends for
    itself, so it is counted apart: ``SET/RESTART/2``.
    """
    restart = (metadata(pod).get("labels") or {}).get(_RESTART)
    for owner in owners:
        if owner.get("kind") == "JobSet" and restart is not None:
            name = f"{uid_of(owner)}/{restart}"
            before = sum(each == name or each.startswith(f"{name}/") for each in earlier)
            return f"{name}/{before + 1}" if before else name
    return ""


_GOOD = ("Complete", "Completed", "Succeeded")
_BAD = ("Failed",)
_PHASES = {"Succeeded": RunStatus.SUCCEEDED, "Failed": RunStatus.FAILED, "Error": RunStatus.FAILED}


class Outcome(NamedTuple):
    """The end of a workload in the controller's own words."""

    status: RunStatus
    why: str


def outcome_of(root: Mapping[str, Any]) -> Outcome | None:
    """How a Job, JobSet, TrainJob, Workflow or pod has ended; None while it goes on."""
    status = root.get("status") or {}
    if "phase" in status and root.get("kind") in ("Workflow", "Pod"):
        ended = _PHASES.get(status["phase"])
        if ended is RunStatus.FAILED and _was_stopped(root.get("spec") or {}):
            return Outcome(RunStatus.CANCELLED, "somebody ended its Workflow")
        return None if ended is None else Outcome(ended, _words(status) if ended is RunStatus.FAILED else "")
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in (*_GOOD, *_BAD):
            is_good = condition["type"] in _GOOD
            return Outcome(*(RunStatus.SUCCEEDED, "") if is_good else (RunStatus.FAILED, _words(condition)))
    return None


def _was_stopped(spec: Mapping[str, Any]) -> bool:
    """Whether a user ended a Workflow: through Argo, or through KFP, which sets its deadline to 0 (seen on 2.16.1 and 2.17.0)."""
    return bool(spec.get("shutdown")) or spec.get("activeDeadlineSeconds") == 0


def _words(source: Mapping[str, Any]) -> str:
    return ": ".join(str(source[name]) for name in ("reason", "message") if source.get(name))


_FINISHED = ("Succeeded", "Failed")


class PodAttempt(NamedTuple):
    """One attempt of a pod. Times are in Unix seconds by Kubernetes' clocks, None where they are not known."""

    key: str
    restart: int
    made_at: float | None
    bound_at: float | None
    ended_at: float | None
    has_ended: bool
    is_known: bool = True  # False: a later restart has overwritten how it ended


def attempts_of(pod: Mapping[str, Any], *, is_gone: bool = False, is_cut_off: bool = False) -> Iterator[PodAttempt]:
    """The attempts of a pod, oldest first.

    ``is_gone``: the API has the pod no more. ``is_cut_off``: it is to be deleted, and its node does not report, so nothing about
    its end will come for as long as the node is away.
    """
    status = pod.get("status") or {}
    main = _main_status(pod)
    restarts = int(main.get("restartCount") or 0)
    scheduled_at = _condition_time(status, "PodScheduled")
    made_at = seconds(metadata(pod).get("creationTimestamp"))
    started: float | None = scheduled_at
    last = (main.get("lastState") or {}).get("terminated") or {}
    for restart in range(restarts):
        is_last = restart == restarts - 1
        ended_at = seconds(last.get("finishedAt")) if is_last else started
        yield PodAttempt(key_of(pod, restart), restart, made_at, started, ended_at, True, is_last and bool(last))
        started = made_at = ended_at
    has_ended = is_gone or is_cut_off or status.get("phase") in _FINISHED
    bound_at = started if (pod.get("spec") or {}).get("nodeName") else None
    ended_at = seconds(((main.get("state") or {}).get("terminated") or {}).get("finishedAt")) if has_ended else None
    yield PodAttempt(key_of(pod, restarts), restarts, made_at, bound_at, ended_at, has_ended)


def key_of(pod: Mapping[str, Any], restart: int) -> str:
    """The key of an attempt."""
    return f"{uid_of(pod)}/{restart}"


def seconds(text: object) -> float | None:
    """A time of the API in Unix seconds; None if it is missing or malformed."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def main_container(pod: Mapping[str, Any]) -> str:
    """The name of the container that runs the user's code: ``main`` in Argo and KFP, else the first of the spec."""
    containers: Sequence[Mapping[str, Any]] = (pod.get("spec") or {}).get("containers") or ()
    names = [str(container.get("name", "")) for container in containers]
    return "main" if "main" in names else (names or [""])[0]


def _main_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or ()
    main = main_container(pod)
    return next((status for status in statuses if status.get("name") == main), {})


def _condition_time(status: Mapping[str, Any], kind: str) -> float | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            return seconds(condition.get("lastTransitionTime"))
    return None


_NODE_ID = "workflows.argoproj.io/node-id"
_INPUT = re.compile(r"\{\{inputs\.parameters\.([^}]+)\}\}")


def has_policy(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    """Whether a pod template carries a policy, by its label or its annotation."""
    return SPOT_LABEL in labels or POLICY_ANNOTATION in annotations


def retries_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a pod's task by its controller; None: not known."""
    if not owners:
        return 0 if (pod.get("spec") or {}).get("restartPolicy") == "Never" else None
    if owners[-1].get("kind") == "Workflow":
        return _of_node(pod, owners[-1])
    if owners[0].get("kind") == "Job":
        return retries_of_job(owners[0].get("spec") or {}, owners[1:])
    return None


def retries_of_job(spec: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a Job's pods. ``owners`` are those of the Job: a JobSet makes all of its Jobs again."""
    limit = spec.get("backoffLimitPerIndex", spec.get("backoffLimit"))
    if not isinstance(limit, int):
        return None
    for owner in owners:
        if owner.get("kind") == "JobSet":
            restarts = ((owner.get("spec") or {}).get("failurePolicy") or {}).get("maxRestarts") or 0
            return (limit + 1) * (int(restarts) + 1) - 1
    return limit


def _of_node(pod: Mapping[str, Any], workflow: Mapping[str, Any]) -> int | None:
    status = workflow.get("status") or {}
    node = (status.get("nodes") or {}).get((metadata(pod).get("annotations") or {}).get(_NODE_ID)) or {}
    name = node.get("templateName") or _template_name(pod)
    if not name:
        return None
    for template in _templates(workflow):
        if template.get("name") == name:
            default = ((workflow.get("spec") or {}).get("templateDefaults") or {}).get("retryStrategy")
            strategy = template.get("retryStrategy", default)
            return 0 if strategy is None else _limit(strategy, node)
    return None


def _templates(workflow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The templates of a Workflow: its own, those of the WorkflowTemplate that it runs, and those that it refers to."""
    status = workflow.get("status") or {}
    yield from (workflow.get("spec") or {}).get("templates") or ()
    yield from (status.get("storedWorkflowTemplateSpec") or {}).get("templates") or ()
    yield from (status.get("storedTemplates") or {}).values()


def _template_name(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec") or {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for variable in container.get("env") or ():
            if variable.get("name") == "ARGO_TEMPLATE":
                return str(_as_json(variable.get("value")).get("name", ""))
    return ""


def _as_json(text: object) -> Mapping[str, Any]:
    try:
        found = json.loads(str(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _limit(strategy: Mapping[str, Any], node: Mapping[str, Any]) -> int | None:
    text = str(strategy.get("limit", ""))
    found = _INPUT.fullmatch(text)
    if found:
        inputs = (node.get("inputs") or {}).get("parameters") or ()
        text = next((str(each.get("value")) for each in inputs if each.get("name") == found[1]), "")
    return int(text) if text.isdecimal() else None


_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_NODE_NAME = "workflows.argoproj.io/node-name"
_ROLE, _REPLICA = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_MPI_ROLE = (
    "training.kubeflow.org/job-role"  # of mpi-operator v2; the training operator has it for masters, beside the type
)
_TRIAL = "trial"
_KFP_RUN = "pipeline/runid"
_ITERATION = re.compile(r"\((\d+):")
_KFP_WRAPPERS = frozenset(("root", "executor", "iteration-item"))
_KFP_ITERATIONS = "iteration-iterations"
_KFP_HOOK = "onExit"


class TaskName(NamedTuple):
    """The task of a pod. ``slots`` above one: the pods are alike, and each takes the first of ``PATH-0`` ... that is free."""

    path: str
    template: str
    slots: int = 1


def task_name(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """The task of a pod. ``owners`` are those of :func:`~spotwright.cluster.workloads.lineage`."""
    labels, annotations = (metadata(pod).get(name) or {} for name in ("labels", "annotations"))
    if _NODE_NAME in annotations:
        return workflow_task(annotations[_NODE_NAME], is_kfp=_KFP_RUN in labels)
    if not owners:
        name = str(metadata(pod).get("name", ""))
        return TaskName(name, name)
    if owners[-1].get("kind") == "Experiment":
        return _of_trial(pod, owners)
    if _ROLE in labels or _MPI_ROLE in labels:
        return _of_role(labels, owners)
    job = owners[0]
    if _REPLICATED in labels:
        return _member(labels, annotations, job, owners)
    return _of_job(annotations, job)


def _of_trial(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """A pod of a Katib trial. All trials are made from one template, which the Experiment fills in."""
    index = next((number for number, owner in enumerate(owners) if owner.get("kind") == "Trial"), len(owners) - 1)
    trial = str(metadata(owners[index]).get("name", ""))
    if index == 0:
        return TaskName(trial, _TRIAL)
    inside = task_name(pod, owners[:index])
    if inside.path == trial:
        return TaskName(trial, _TRIAL)
    template = _TRIAL if inside.template == trial else inside.template
    return TaskName(f"{trial}/{inside.path.removeprefix(f'{trial}-')}", template, inside.slots)


def _of_role(labels: Mapping[str, str], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """A pod of the training operator or of the MPI operator: its role, numbered where the role has several pods."""
    role = labels.get(_ROLE) or labels[_MPI_ROLE]
    spec = next((owner.get("spec") or {} for owner in owners if owner.get("kind") in TRAINING_KINDS), {})
    replicas: Mapping[str, Any] = next((value for key, value in spec.items() if key.endswith("ReplicaSpecs")), {})
    count = next((each.get("replicas", 1) for name, each in replicas.items() if name.lower() == role.lower()), 1)
    number = labels.get(_REPLICA)
    return TaskName(role.lower() if count == 1 or number is None else f"{role.lower()}-{number}", role.lower())


def _of_job(annotations: Mapping[str, str], job: Mapping[str, Any]) -> TaskName:
    name, spec = str(metadata(job).get("name", "")), job.get("spec") or {}
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and _INDEX in annotations:
        return TaskName(name if completions == 1 else f"{name}-{annotations[_INDEX]}", name)
    return TaskName(name, name, completions or spec.get("parallelism") or 1)


def _member(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    job: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
) -> TaskName:
    """A pod of a JobSet: its replicated job, numbered through all its Jobs where there are several pods."""
    name = labels[_REPLICATED]
    pods = (job.get("spec") or {}).get("parallelism") or 1
    replicas = 1
    for owner in owners[1:]:
        for replicated in (owner.get("spec") or {}).get("replicatedJobs") or ():
            if replicated.get("name") == name:
                replicas = replicated.get("replicas", 1)
    if pods * replicas == 1:
        return TaskName(name, name)
    number = int(labels.get(_JOB_INDEX, "0")) * pods + int(annotations.get(_INDEX, "0"))
    return TaskName(f"{name}-{number}", name)


def workflow_task(node_name: str, *, is_kfp: bool) -> TaskName:
    """The task of a node of a Workflow, by the whole name of the node."""
    segments = list(_segments(node_name))
    names: list[tuple[str, str | None]] = []
    iteration: str | None = None
    for name, number in segments[1:]:  # the first one is the workflow
        if is_kfp and name == _KFP_ITERATIONS:
            iteration = number  # that of the task inside, as in a local run: loop/train-3
        elif is_kfp and name == _KFP_HOOK:
            names = names[:-1]  # what is in the hook of an exit handler stands beside it
        elif not (is_kfp and name in _KFP_WRAPPERS):
            names.append((name, iteration if number is None else number))
            iteration = None
    names = names or [(segments[0][0], None)]
    path = "/".join(name if number is None else f"{name}-{number}" for name, number in names)
    return TaskName(path, ".".join(name for name, _ in names))  # a template's name holds no slash


def _segments(node_name: str) -> Iterator[tuple[str, str | None]]:
    """The names in a node's name, each with the number of its iteration; dots inside parentheses separate nothing."""
    for text in re.findall(r"(?:\([^)]*\)|\[\d+\]|[^.\[(])+", node_name):
        name = re.sub(r"\([^)]*\)|\[\d+\]", "", text)
        found = _ITERATION.search(text)
        if name:
            yield name, found[1] if found else None


_RUNG, _OPEN = "spotwright.dev/rung", "spotwright.dev/open"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_JOBS_DEFAULT = 6  # what the API server fills in for a Job's backoffLimit; in a JobSet it stands in the Job alone


def templates_of(owners: Sequence[Mapping[str, Any]]) -> list[PodTask]:
    """The templates that the owners of a pod hold, nearest owner first; empty where they are read off pods."""
    for owner in reversed(owners):
        spec = owner.get("spec") or {}
        if owner.get("kind") == "Job" and len(owners) == 1:
            name = str(metadata(owner).get("name", ""))
            return [_task("Job", name, spec.get("template") or {}, retries_of_job(spec, ()))]
        if owner.get("kind") == "JobSet":
            return [_of_replicated_job(replicated, owner) for replicated in spec.get("replicatedJobs") or ()]
    return []


def template_of_pod(
    name: str, pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], pools: Mapping[str, Pool]
) -> PodTask:
    """A pod as the template of its task, without what a webhook required for the rung of this attempt alone."""
    kind = str(owners[-1].get("kind", "Pod")) if owners else "Pod"
    return _task(kind, name, _without_rung(pod, pools), retries_of(pod, owners))


def _without_rung(pod: Mapping[str, Any], pools: Mapping[str, Pool]) -> Mapping[str, Any]:
    annotations = metadata(pod).get("annotations") or {}
    names = str(annotations.get(_RUNG, "")).split(",")
    spec = pod.get("spec") or {}
    affinity = spec.get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    if not required or _OPEN in annotations or not all(name in pools for name in names):
        return pod
    ours = rung_conditions([pools[name] for name in names], pools)
    terms = [
        {**term, "matchExpressions": [one for one in term.get("matchExpressions") or () if one not in ours]}
        for term in required.get("nodeSelectorTerms") or ()
    ]
    own = [term for term in terms if any(term.values())]
    rest = {key: value for key, value in affinity["nodeAffinity"].items() if key != _REQUIRED}
    nodes = {**rest, _REQUIRED: {**required, "nodeSelectorTerms": own}} if own else rest
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": nodes}}}


def _of_replicated_job(replicated: Mapping[str, Any], job_set: Mapping[str, Any]) -> PodTask:
    job = {"backoffLimit": _JOBS_DEFAULT, **((replicated.get("template") or {}).get("spec") or {})}
    retries = retries_of_job(job, (job_set,))
    return _task("JobSet", str(replicated.get("name", "")), job.get("template") or {}, retries)


def _task(kind: str, name: str, template: Mapping[str, Any], retries: int | None) -> PodTask:
    meta = metadata(template)
    labels, annotations = (dict(meta.get(name) or {}) for name in ("labels", "annotations"))
    return PodTask(
        kind,
        name,
        dict(template.get("spec") or {}),
        labels=labels,
        annotations=annotations,
        retries=None if has_policy(labels, annotations) else retries,
    )
