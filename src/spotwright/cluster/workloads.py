"""Translates objects of the API into runs, tasks and attempts. Pure functions on dictionaries.

The run is the topmost owner of a pod of a run's kind, or the pod itself if it has a policy. A pod of a JobSet belongs to a Job,
the Job to the JobSet, and that perhaps to a TrainJob; all may belong to a Trial of a Katib Experiment. Each Job of a CronJob is
a separate run.

For a run it reads the tasks and their pod templates, the attempts in its pods and their ends, its controller's retries, and
whether it is over. Pods that start and end together share a restart, so that a budget is charged once for all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from spotwright.cluster.signals import GOOD_ENDS, how_shut_down
from spotwright.engine.events import RunStatus
from spotwright.kinds.argo_steps import strategy_at
from spotwright.kinds.kind import Retry, may_be_run, run_kind
from spotwright.kube.object_fields import (
    ARGO_NODE,
    ARGO_NODE_ID,
    controller_of,
    mapping,
    mappings,
    metadata,
    seconds,
    uid_of,
)
from spotwright.kube.pod import REQUIRED
from spotwright.manifests.pod_graph import PodTask
from spotwright.model.pools import Resources
from spotwright.placing.context import POLICY_ANNOTATION, SPOT_LABEL
from spotwright.placing.patch import value_at
from spotwright.placing.pod_change import without_conditions
from spotwright.placing.pod_spec import PodSpecError, pod_requests
from spotwright.placing.retries import DEFAULT_BACKOFF_LIMIT, tries_of_jobs

__all__ = [
    "MOST_OWNERS",
    "MOST_RESTARTS",
    "FindOwner",
    "Lineage",
    "Outcome",
    "PodAttempt",
    "Step",
    "TaskName",
    "argo_template",
    "attempts_of",
    "failed_step",
    "gang_of",
    "has_policy",
    "is_own_run",
    "key_of",
    "last_step",
    "lineage",
    "main_container",
    "outcome_of",
    "pod_ended_at",
    "pods_of_job",
    "requests_of",
    "retries_of",
    "retries_of_job",
    "task_name",
    "template_of_pod",
    "templates_of",
    "workflow_task",
]


MOST_OWNERS = 10
"""The most levels of owners of a pod: a Job, its JobSet, TrainJob, Trial and Experiment are five."""

FindOwner = Callable[[str, str, str], Mapping[str, Any] | None]
"""Finds an object by kind, namespace and UID; None: it does not exist, or is not known yet."""


class Lineage(NamedTuple):
    """The owners of a pod of kinds that are runs, nearest first; the last one is the run. Empty: the pod is the run."""

    owners: Sequence[Mapping[str, Any]]
    is_complete: bool  # False: an owner was not found

    def root(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that is the run."""
        return self.owners[-1] if self.owners else pod


def lineage(pod: Mapping[str, Any], find: FindOwner) -> Lineage:
    """The known owners of a pod in its own namespace.

    Users can write owners: circles are cut, and only the first ten levels are read.
    """
    owners: list[Mapping[str, Any]] = []
    here: Mapping[str, Any] = pod
    while (named := controller_of(here)) is not None and named.uid not in [*map(uid_of, owners)]:
        if not may_be_run(named.api_version, named.kind):
            break
        namespace = str(metadata(pod).get("namespace", ""))
        owner = find(named.kind, namespace, named.uid)
        if owner is None or uid_of(owner) != named.uid or metadata(owner).get("namespace", "") != namespace:
            return Lineage(owners, is_complete=False)  # a reference to another namespace's object does not count
        if len(owners) == MOST_OWNERS:
            return Lineage(owners, is_complete=False)
        owners.append(owner)
        here = owner
    return Lineage(owners, is_complete=True)


def is_own_run(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is its own run: it has no owner and has a policy.

    A pod created while the webhook was down has only its user's label.
    """
    labels, annotations = (mapping(metadata(pod).get(part)) for part in ("labels", "annotations"))
    return controller_of(pod) is None and has_policy(labels, annotations)


def gang_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]], earlier: Sequence[str]) -> str:
    """The restart of a pod, as ``SET/RESTART``; empty: it starts and ends alone.

    ``earlier`` are the restarts of the earlier attempts of its task. A pod that its Job replaces within a restart ends for
    itself, so it is counted apart: ``SET/RESTART/2``.
    """
    labels = mapping(metadata(pod).get("labels"))
    for owner in owners:
        restart = labels.get(run_kind(owner).restart_label)
        if restart is not None:
            name = f"{uid_of(owner)}/{restart}"
            before = sum(each == name or each.startswith(f"{name}/") for each in earlier)
            return f"{name}/{before + 1}" if before else name
    return ""


_BAD = ("Failed",)
_PHASES = {"Succeeded": RunStatus.SUCCEEDED, "Failed": RunStatus.FAILED, "Error": RunStatus.FAILED}


class Outcome(NamedTuple):
    """The end of a workload as its controller reports it. ``at`` is in Unix seconds, None if unknown."""

    status: RunStatus
    why: str
    at: float | None = None


def outcome_of(root: Mapping[str, Any]) -> Outcome | None:
    """How a Job, JobSet, TrainJob, Workflow or pod ended; None while it is active."""
    status = mapping(root.get("status"))
    is_of_steps = run_kind(root).retry is Retry.STEP
    if "phase" in status and (is_of_steps or root.get("kind") == "Pod"):
        ended = _PHASES.get(str(status["phase"]))
        at = seconds(status.get("finishedAt")) if is_of_steps else pod_ended_at(status)
        if ended is RunStatus.FAILED and (how := how_shut_down(root)):
            return Outcome(RunStatus.CANCELLED, how, at)
        return None if ended is None else Outcome(ended, _words(status) if ended is RunStatus.FAILED else "", at)
    for condition in mappings(status.get("conditions")):
        if condition.get("status") == "True" and condition.get("type") in (*GOOD_ENDS, *_BAD):
            is_good = condition["type"] in GOOD_ENDS
            times = (seconds(condition.get("lastTransitionTime")), seconds(status.get("completionTime")))
            at = next((time for time in times if time is not None), None)
            return Outcome(*(RunStatus.SUCCEEDED, "") if is_good else (RunStatus.FAILED, _words(condition)), at)
    return None


def _words(source: Mapping[str, Any]) -> str:
    return ": ".join(str(source[name]) for name in ("reason", "message") if source.get(name))


_FINISHED = ("Succeeded", "Failed")


MOST_RESTARTS = 50
"""The most earlier restarts of a container that are read: each is an attempt, and a pod may have thousands."""


class PodAttempt(NamedTuple):
    """One attempt of a pod. Times are in Unix seconds by Kubernetes' clocks, None if unknown."""

    key: str
    restart: int
    made_at: float | None
    bound_at: float | None
    ended_at: float | None
    has_ended: bool
    is_known: bool = True  # False: a later restart has overwritten how it ended


def attempts_of(pod: Mapping[str, Any], *, is_gone: bool = False, is_cut_off: bool = False) -> Iterator[PodAttempt]:
    """The attempts of a pod, oldest first; of very many the newest.

    ``is_gone``: the API no longer has the pod. ``is_cut_off``: it is being deleted on a silent node, so its end is not reported
    until the node returns.
    """
    status = mapping(pod.get("status"))
    main = _main_status(pod)
    restarts = _count(main.get("restartCount"), 0)
    scheduled_at = _condition_time(status, "PodScheduled")
    made_at = seconds(metadata(pod).get("creationTimestamp"))
    started: float | None = scheduled_at
    last = mapping(mapping(main.get("lastState")).get("terminated"))
    for restart in range(max(restarts - MOST_RESTARTS, 0), restarts):
        is_last = restart == restarts - 1
        ended_at = seconds(last.get("finishedAt")) if is_last else started
        yield PodAttempt(key_of(pod, restart), restart, made_at, started, ended_at, True, is_last and bool(last))
        started = made_at = ended_at
    has_ended = is_gone or is_cut_off or status.get("phase") in _FINISHED
    bound_at = started if mapping(pod.get("spec")).get("nodeName") else None
    ended_at = _finished_at(main) if has_ended else None
    if has_ended and ended_at is None and status.get("phase") in _FINISHED:
        ended_at = pod_ended_at(status)
    yield PodAttempt(key_of(pod, restarts), restarts, made_at, bound_at, ended_at, has_ended)


def _finished_at(container: Mapping[str, Any]) -> float | None:
    return seconds(mapping(mapping(container.get("state")).get("terminated")).get("finishedAt"))


def pod_ended_at(status: Mapping[str, Any]) -> float | None:
    """When a finished pod ended: with its last container, or when it ceased to be ready if the kubelet ended it.

    A pod rejected by its kubelet has neither, and ended when it began. None if a container is last reported as running:
    something else finished the pod, such as garbage collection on nodes that are gone.
    """
    containers = (*mappings(status.get("containerStatuses")), *mappings(status.get("initContainerStatuses")))
    finished = [at for each in containers if (at := _finished_at(each)) is not None]
    if finished:
        return max(finished)
    if any(mapping(each.get("state")).get("running") is not None for each in containers):
        return None
    return _condition_time(status, "Ready", "False") or seconds(status.get("startTime"))


def key_of(pod: Mapping[str, Any], restart: int) -> str:
    """The key of an attempt."""
    return f"{uid_of(pod)}/{restart}"


def main_container(pod: Mapping[str, Any]) -> str:
    """The name of the container that runs the user's code: ``main`` in Argo and KFP, else the first of the spec."""
    names = [str(container.get("name", "")) for container in mappings(mapping(pod.get("spec")).get("containers"))]
    return "main" if "main" in names else (names or [""])[0]


def requests_of(pod: Mapping[str, Any]) -> Resources:
    """The requests of a pod as its node counts them; empty if they cannot be read."""
    try:
        return pod_requests(mapping(pod.get("spec")))
    except PodSpecError:
        return {}


def _main_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses, main = mappings(mapping(pod.get("status")).get("containerStatuses")), main_container(pod)
    return next((status for status in statuses if status.get("name") == main), {})


def _condition_time(status: Mapping[str, Any], kind: str, state: str = "True") -> float | None:
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == kind and condition.get("status") == state:
            return seconds(condition.get("lastTransitionTime"))
    return None


_LONGEST_LIMIT = 300  # characters of the limit of a retryStrategy, which may name a parameter
_INPUT = re.compile(r"\{\{inputs\.parameters\.([^}]+)\}\}")


def has_policy(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    """Whether a pod template has a policy, by its label or its annotation."""
    return SPOT_LABEL in labels or POLICY_ANNOTATION in annotations


def retries_of(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a pod's task by its controller; None: unknown."""
    if not owners:
        return 0 if mapping(pod.get("spec")).get("restartPolicy") == "Never" else None
    if run_kind(owners[-1]).retry is Retry.STEP:
        return _of_node(pod, owners[-1])
    if run_kind(owners[0]).retry is Retry.JOB:
        return retries_of_job(mapping(owners[0].get("spec")), owners[1:])
    return None


def pods_of_job(job: Mapping[str, Any]) -> int:
    """The number of a Job's pods that must succeed; 1 for another kind, which reports it differently."""
    spec = mapping(job.get("spec")) if run_kind(job).retry is Retry.JOB else {}
    return _count(spec.get("completions") or spec.get("parallelism"), 1)


def retries_of_job(spec: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> int | None:
    """The retries of a Job's pods. ``owners`` are the Job's owners: a JobSet recreates all of its Jobs."""
    limit = spec.get("backoffLimitPerIndex", spec.get("backoffLimit"))
    if not isinstance(limit, int):
        return None
    for owner in owners:
        if run_kind(owner).retry is Retry.SET:
            restarts = mapping(mapping(owner.get("spec")).get("failurePolicy")).get("maxRestarts")
            return tries_of_jobs(limit, _count(restarts, 0))
    return limit


def _of_node(pod: Mapping[str, Any], workflow: Mapping[str, Any]) -> int | None:
    node_id = str(mapping(metadata(pod).get("annotations")).get(ARGO_NODE_ID))
    node = mapping(mapping(mapping(workflow.get("status")).get("nodes")).get(node_id))
    name = node.get("templateName") or argo_template(pod)
    if not name:
        return None
    for template in _templates(workflow):
        if template.get("name") == name:
            get = partial(value_at, {**mapping(workflow.get("spec")), "template": template})
            own = strategy_at(get, (), ("template",))
            return 0 if own is None else _limit(mapping(get(own)), node)
    return None


def _templates(workflow: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The templates of a Workflow: its own, its WorkflowTemplate's, and referenced ones."""
    status = mapping(workflow.get("status"))
    for spec in (mapping(workflow.get("spec")), mapping(status.get("storedWorkflowTemplateSpec"))):
        yield from mappings(spec.get("templates"))
    yield from mappings([*mapping(status.get("storedTemplates")).values()])


def argo_template(pod: Mapping[str, Any]) -> str:
    """The name of the Workflow's template that a pod runs; empty if unknown."""
    spec = mapping(pod.get("spec"))
    for container in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers"))):
        for variable in mappings(container.get("env")):
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
    text = str(strategy.get("limit", ""))[:_LONGEST_LIMIT]
    found = _INPUT.fullmatch(text)
    if found:
        inputs = mappings(mapping(node.get("inputs")).get("parameters"))
        text = next((str(each.get("value")) for each in inputs if each.get("name") == found[1]), "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_INDEX else None


_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_ROLE, _REPLICA = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_MPI_ROLE = (
    "training.kubeflow.org/job-role"  # of mpi-operator v2; the training operator has it for masters, beside the type
)
_TRIAL = "trial"
_KFP_RUN = "pipeline/runid"
_NODE_PART = re.compile(r"\([^)]{0,1000}\)|\[[0-9]{1,9}\]|\.|[^.\[(]+")  # of an Argo node's name
_ITERATION = re.compile(r"\(([0-9]{1,9}):")
_LONGEST_NODE_NAME = 2000  # characters; Argo joins the names of all steps above a node
_LONGEST_INDEX = 9  # digits
_KFP_WRAPPERS = frozenset(("root", "executor", "iteration-item"))
_KFP_ITERATIONS = "iteration-iterations"
_KFP_HOOK = "onExit"


class TaskName(NamedTuple):
    """The task of a pod. ``slots`` above one: the pods are identical, and each takes the first free one of ``PATH-0`` ...."""

    path: str
    template: str
    slots: int = 1


def task_name(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """The task of a pod. ``owners`` as from :func:`~spotwright.cluster.workloads.lineage`."""
    labels, annotations = (mapping(metadata(pod).get(name)) for name in ("labels", "annotations"))
    if ARGO_NODE in annotations:
        return workflow_task(annotations[ARGO_NODE], is_kfp=_KFP_RUN in labels)
    if not owners:
        name = str(metadata(pod).get("name", ""))
        return TaskName(name, name)
    if run_kind(owners[-1]).retry is Retry.TRIAL:
        return _of_trial(pod, owners)
    if labels.get(_ROLE) or labels.get(_MPI_ROLE):
        return _of_role(labels, owners)
    job = owners[0]
    if _REPLICATED in labels:
        return _member(labels, annotations, job, owners)
    return _of_job(annotations, job)


def _of_trial(pod: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """The task of a Katib trial's pod. All trials have one template, which the Experiment fills in."""
    index = next(number for number, owner in enumerate(owners) if run_kind(owner).retry is Retry.TRIAL)
    trial = str(metadata(owners[index]).get("name", ""))
    if index == 0:
        return TaskName(trial, _TRIAL)
    inside = task_name(pod, owners[:index])
    if inside.path == trial:
        return TaskName(trial, _TRIAL)
    template = _TRIAL if inside.template == trial else inside.template
    return TaskName(f"{trial}/{inside.path.removeprefix(f'{trial}-')}", template, inside.slots)


def _of_role(labels: Mapping[str, str], owners: Sequence[Mapping[str, Any]]) -> TaskName:
    """The task of a training or MPI operator's pod: its role, numbered if the role has several pods."""
    role = labels.get(_ROLE) or labels[_MPI_ROLE]
    fields = (field for owner in owners for field in mapping(owner.get("spec")).items())
    replicas = mapping(next((value for key, value in fields if key.endswith("ReplicaSpecs")), {}))
    count = next(
        (mapping(each).get("replicas", 1) for name, each in replicas.items() if name.lower() == role.lower()), 1
    )
    number = labels.get(_REPLICA)
    return TaskName(role.lower() if count == 1 or number is None else f"{role.lower()}-{number}", role.lower())


def _of_job(annotations: Mapping[str, str], job: Mapping[str, Any]) -> TaskName:
    name, spec = str(metadata(job).get("name", "")), mapping(job.get("spec"))
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed" and _INDEX in annotations:
        return TaskName(name if completions == 1 else f"{name}-{_number(annotations[_INDEX])}", name)
    return TaskName(name, name, pods_of_job(job))


def _member(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    job: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
) -> TaskName:
    """The task of a JobSet's pod: its replicated job, numbered through all its Jobs if there are several pods."""
    name = labels[_REPLICATED]
    pods = _count(mapping(job.get("spec")).get("parallelism"), 1)
    replicas = 1
    for owner in owners[1:]:
        for replicated in mappings(mapping(owner.get("spec")).get("replicatedJobs")):
            if replicated.get("name") == name:
                replicas = _count(replicated.get("replicas"), 1)
    if pods * replicas == 1:
        return TaskName(name, name)
    number = _number(labels.get(_JOB_INDEX)) * pods + _number(annotations.get(_INDEX))
    return TaskName(f"{name}-{number}", name)


def _number(index: object) -> int:
    """An index that a controller writes as text; 0 for other text."""
    text = str(index)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_INDEX else 0


def _count(value: object, default: int) -> int:
    """A count in a field of an object; the default for other values, because the schemas of some kinds are open."""
    return value if isinstance(value, int) and value > 0 else default


def workflow_task(node_name: str, *, is_kfp: bool) -> TaskName:
    """The task of a Workflow's node, by the node's full name."""
    if len(node_name) > _LONGEST_NODE_NAME:  # two long names stay two
        digest = hashlib.sha256(node_name.encode(errors="replace")).hexdigest()[:12]
        node_name = f"{node_name[:_LONGEST_NODE_NAME]}.{digest}"
    segments = list(_segments(node_name))
    names: list[tuple[str, str | None]] = []
    iteration: str | None = None
    for name, number in segments[1:]:  # the first one is the workflow
        if is_kfp and name == _KFP_ITERATIONS:
            iteration = number  # that of the task inside, as in a local run: loop/train-3
        elif is_kfp and name == _KFP_HOOK:
            names = names[:-1]  # tasks in an exit handler's hook stand beside it
        elif not (is_kfp and name in _KFP_WRAPPERS):
            names.append((name, iteration if number is None else number))
            iteration = None
    names = names or [(segments[0][0] if segments else "unnamed", None)]
    path = "/".join(name if number is None else f"{name}-{number}" for name, number in names)
    return TaskName(path, ".".join(name for name, _ in names))  # a template's name holds no slash


def _segments(node_name: str) -> Iterator[tuple[str, str | None]]:
    """The names in a node's name, each with the number of its iteration; dots inside parentheses do not separate."""
    name, number, at = "", None, 0
    while at < len(node_name):
        part = _NODE_PART.match(node_name, at)
        text = part[0] if part else ""
        if text[:1] == "(":
            found = _ITERATION.match(text)
            number = number or (found[1] if found else None)
        elif not text or text == ".":  # an unclosed bracket separates like a dot
            if name:
                yield name, number
            name, number = "", None
        elif text[0] != "[":
            name += text
        at += len(text) or 1
    if name:
        yield name, number


class Step(NamedTuple):
    """Argo's status of a Workflow's whole task, with all its tries."""

    is_over: bool
    is_good: bool
    message: str


_STEP_ENDS = ("Succeeded", "Failed", "Error")
_TRIED = re.compile(r"\(\d+\)$")
_LONGEST_MESSAGE = 300


def last_step(workflow: Mapping[str, Any], path: str) -> Step | None:
    """Argo's status of a task: the outermost node of its name, the newest if an outer step was retried.

    None if the Workflow does not show it: its nodes may be compressed, or stored elsewhere.
    """
    nodes = [node for node in _nodes_of(workflow) if _path_of(node, workflow) == path]
    nodes.sort(key=lambda node: (*_outwardness(str(node.get("name", ""))), -(seconds(node.get("startedAt")) or 0.0)))
    if not nodes:
        return None
    phase = str(nodes[0].get("phase", ""))
    message = next((str(node["message"]) for node in nodes if node.get("message")), "")
    return Step(phase in _STEP_ENDS, phase == "Succeeded", message[:_LONGEST_MESSAGE])


def failed_step(workflow: Mapping[str, Any]) -> str:
    """The first failed task of a Workflow, with Argo's message; empty if it names none."""
    failed = [node for node in _nodes_of(workflow) if node.get("phase") in _STEP_ENDS[1:] and node.get("message")]
    first = min(failed, key=lambda node: (str(node.get("finishedAt", "")), str(node.get("name", ""))), default=None)
    return (
        "" if first is None else f"task {_path_of(first, workflow)} failed: {str(first['message'])[:_LONGEST_MESSAGE]}"
    )


def _nodes_of(workflow: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(mappings([*mapping(mapping(workflow.get("status")).get("nodes")).values()]))


def _path_of(node: Mapping[str, Any], workflow: Mapping[str, Any]) -> str:
    is_kfp = _KFP_RUN in mapping(metadata(workflow).get("labels"))
    return workflow_task(str(node.get("name", "")), is_kfp=is_kfp).path


def _outwardness(name: str) -> tuple[int, bool]:
    return name.count("."), _TRIED.search(name) is not None


def templates_of(owners: Sequence[Mapping[str, Any]]) -> list[PodTask]:
    """The templates of a pod's owners, nearest first; empty if templates are read from pods."""
    for owner in reversed(owners):
        spec = mapping(owner.get("spec"))
        if run_kind(owner).retry is Retry.JOB and len(owners) == 1:
            name = str(metadata(owner).get("name", ""))
            return [_task(str(owner["kind"]), name, mapping(spec.get("template")), retries_of_job(spec, ()))]
        if run_kind(owner).retry is Retry.SET:
            return [_of_replicated_job(replicated, owner) for replicated in mappings(spec.get("replicatedJobs"))]
    return []


def template_of_pod(
    name: str,
    pod: Mapping[str, Any],
    owners: Sequence[Mapping[str, Any]],
    pinned: Sequence[Sequence[Mapping[str, Any]]] = (),
) -> PodTask:
    """A pod as the template of its task, without the conditions ``pinned`` to each required term for this attempt alone."""
    kind = str(owners[-1].get("kind", "Pod")) if owners else "Pod"
    return _task(kind, name, _without_rung(pod, pinned), retries_of(pod, owners))


def _without_rung(pod: Mapping[str, Any], pinned: Sequence[Sequence[Mapping[str, Any]]]) -> Mapping[str, Any]:
    spec = mapping(pod.get("spec"))
    affinity = mapping(spec.get("affinity"))
    required, name = mapping(value_at(spec, REQUIRED)), str(REQUIRED[-1])
    if not required or not any(pinned):
        return pod
    own = without_conditions(mappings(required.get("nodeSelectorTerms")), pinned)
    rest = {key: value for key, value in affinity["nodeAffinity"].items() if key != name}
    nodes = {**rest, name: {**required, "nodeSelectorTerms": own}} if own else rest
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": nodes}}}


def _of_replicated_job(replicated: Mapping[str, Any], job_set: Mapping[str, Any]) -> PodTask:
    job = {"backoffLimit": DEFAULT_BACKOFF_LIMIT, **mapping(mapping(replicated.get("template")).get("spec"))}
    retries = retries_of_job(job, (job_set,))
    return _task(str(job_set["kind"]), str(replicated.get("name", "")), mapping(job.get("template")), retries)


def _task(kind: str, name: str, template: Mapping[str, Any], retries: int | None) -> PodTask:
    meta = metadata(template)
    labels, annotations = (dict(mapping(meta.get(name))) for name in ("labels", "annotations"))
    own = {key: value for key, value in labels.items() if key == SPOT_LABEL}
    policy = {key: value for key, value in annotations.items() if key == POLICY_ANNOTATION}
    return PodTask(
        kind,
        name,
        _what_is_planned(mapping(template.get("spec"))),
        labels=own,
        annotations=policy,
        retries=None if has_policy(own, policy) else retries,
    )


_PLANNED = ("nodeSelector", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds")
_CONTAINERS = ("containers", "initContainers")


def _what_is_planned(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod's spec that a plan reads: an Argo pod has its whole template in a variable of each container."""
    found = {key: spec[key] for key in _PLANNED if key in spec}
    nodes = mapping(spec.get("affinity")).get("nodeAffinity")
    if nodes:
        found["affinity"] = {"nodeAffinity": nodes}
    for key in _CONTAINERS:
        containers = [
            {part: each[part] for part in ("name", "resources") if part in each} for each in mappings(spec.get(key))
        ]
        if containers:
            found[key] = containers
    return found
