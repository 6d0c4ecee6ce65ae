"""Which rules hold in which kinds: the pod of a rule's failing example, put into an object of each kind, and linted there.

The reference page shows the table. A rule on the pods of a template holds wherever the situation has a template. Where it does
not, the kind's own fields decide: who retries, what the pods are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import yaml

from spotwright import config
from spotwright.kinds.kind import Kind, kind_in
from spotwright.kinds.unknown import read_pod_path
from spotwright.linter.linting import RULES, lint_text
from spotwright.linter.rule import Rule, kfp
from spotwright.linter.settings import settings_of
from spotwright.placing.pods import PodRole

__all__ = ["COLUMNS", "holds", "rules_of_pods"]


def _in_kind(group: str, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """An object of a kind that has the pod at its first place of work."""
    kind = kind_in(group, name)
    place = next(one for one in kind.places if one.duty is PodRole.WORKER)
    node: Any = {"metadata": pod.get("metadata", {}), "spec": pod["spec"]} if place.form == "T" else pod["spec"]
    for step in reversed(place.steps):
        if step != "*":
            node = {step: node}
        elif kind.roles:
            node = {_role(kind): {"replicas": 1, **node}}
        else:
            node = [{"name": "main", **node}]
    return {"apiVersion": kind.api_version or f"{group}/v1", "kind": name, "metadata": {"name": "train"}, **node}


def _role(kind: Kind) -> str:
    return next((role for role in kind.roles if role == "Worker"), kind.roles[0])


def _job(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inner"}, "spec": {"template": dict(pod)}}


def _workflow(pod: Mapping[str, Any], held: str = "") -> dict[str, Any]:
    spec = dict(pod["spec"])
    [container, *_] = spec.pop("containers")
    spec.pop("restartPolicy", None)
    template: dict[str, Any] = {"name": "main", "metadata": pod.get("metadata", {}), **spec, "container": container}
    if held:
        template = {"name": "main", "resource": {"action": "create", "manifest": held}}
    metadata = {"name": "train"}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": metadata,
        "spec": {"entrypoint": "main", "templates": [template]},
    }


def _resource(pod: Mapping[str, Any]) -> dict[str, Any]:
    return _workflow(pod, yaml.safe_dump(_job(pod)))


def _wrapped(pod: Mapping[str, Any]) -> dict[str, Any]:
    version = "workload.codeflare.dev/v1beta2"
    return {
        "apiVersion": version,
        "kind": "AppWrapper",
        "metadata": {"name": "train"},
        "spec": {"components": [{"template": _job(pod)}]},
    }


def _trial(pod: Mapping[str, Any]) -> dict[str, Any]:
    trial = _job(pod)
    del trial["metadata"]
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "tune"},
        "spec": {"trialTemplate": {"primaryContainerName": "main", "trialSpec": trial}},
    }


def _spark(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "train"},
        "spec": {"type": "Python", "driver": {}, "executor": {"instances": 1, "template": dict(pod)}},
    }


def _task(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The steps of a task with the containers of the pod, and its volumes."""
    steps = [
        {("computeResources" if key == "resources" else key): value for key, value in one.items()}
        for one in pod["spec"]["containers"]
    ]
    return {"steps": steps, **({"volumes": pod["spec"]["volumes"]} if "volumes" in pod["spec"] else {})}


def _pod_template(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What a pod template of Tekton has of the pod."""
    steps = ("containers", "initContainers", "restartPolicy", "volumes")
    return {key: value for key, value in pod["spec"].items() if key not in steps}


def _tekton(kind: str, pod: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {**pod.get("metadata", {}), "name": "train"}
    return {"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _pipeline_run(pod: Mapping[str, Any]) -> dict[str, Any]:
    tasks = [{"name": "main", "taskSpec": _task(pod)}]
    spec = {"pipelineSpec": {"tasks": tasks}, "taskRunTemplate": {"podTemplate": _pod_template(pod)}}
    return _tekton("PipelineRun", pod, spec)


def _task_run(pod: Mapping[str, Any]) -> dict[str, Any]:
    return _tekton("TaskRun", pod, {"taskSpec": _task(pod), "podTemplate": _pod_template(pod)})


def _worker_set(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "train", "labels": {"spotwright.dev/role": "worker"}},
        "spec": {"leaderWorkerTemplate": {"size": 1, "workerTemplate": dict(pod)}},
    }


def _train_job(pod: Mapping[str, Any]) -> dict[str, Any]:
    jobs = [{"name": "node", "template": {"spec": {"template": dict(pod)}}}]
    patch = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": "torch"}, "runtimePatches": [{"manager": "example.com/user", **patch}]},
    }


def _compiled(pod: Mapping[str, Any]) -> list[Any]:
    """The two documents of a compiled pipeline with the pod as its only task."""
    container = pod["spec"]["containers"][0]
    executor = {key: container[key] for key in ("command", "args", "env") if key in container}
    devices = [one for one in container.get("resources", {}).get("limits", {}).items() if "/" in one[0]]
    for name, count in devices[:1]:
        executor["resources"] = {"accelerator": {"resourceType": name, "resourceCount": str(count)}}
    text = kfp(
        platform=yaml.safe_dump(_kubernetes(pod, container)), executor=yaml.safe_dump(executor) if executor else ""
    )
    return list(yaml.safe_load_all(text))


def _kubernetes(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of kfp-kubernetes with what they can have of the pod."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ()))
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ())
    terms += [{"weight": one["weight"], **one["preference"]} for one in preferred]
    volumes = {one["name"]: one for one in spec.get("volumes", ())}
    mounts = [(volumes.get(one["name"], {}), one) for one in container.get("volumeMounts", ())]
    settings = {
        "podMetadata": pod.get("metadata"),
        "tolerations": spec.get("tolerations"),
        "nodeSelector": {"labels": spec["nodeSelector"]} if "nodeSelector" in spec else None,
        "nodeAffinity": terms,
        "pvcMount": [
            {"constant": volume["persistentVolumeClaim"]["claimName"], "mountPath": one["mountPath"]}
            for volume, one in mounts
            if "persistentVolumeClaim" in volume
        ],
        "emptyDirMounts": [
            {"volumeName": one["name"], "mountPath": one["mountPath"]} for volume, one in mounts if "emptyDir" in volume
        ],
    }
    return {name: value for name, value in settings.items() if value}


def _unknown(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Runner",
        "metadata": {"name": "train"},
        "spec": {"template": dict(pod)},
    }


COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any] | list[Any]]] = {
    "Job": _job,
    "CronJob": partial(_in_kind, "batch", "CronJob"),
    "JobSet": partial(_in_kind, "jobset.x-k8s.io", "JobSet"),
    "PyTorchJob": partial(_in_kind, "kubeflow.org", "PyTorchJob"),
    "TrainingRuntime": partial(_in_kind, "trainer.kubeflow.org", "TrainingRuntime"),
    "Experiment": _trial,
    "Workflow": _workflow,
    "resource.manifest": _resource,
    "RayJob": partial(_in_kind, "ray.io", "RayJob"),
    "Volcano Job": partial(_in_kind, "batch.volcano.sh", "Job"),
    "ScaledJob": partial(_in_kind, "keda.sh", "ScaledJob"),
    "AppWrapper": _wrapped,
    "SparkApplication": _spark,
    "PipelineRun": _pipeline_run,
    "TaskRun": _task_run,
    "LeaderWorkerSet": _worker_set,
    "TrainJob": _train_job,
    "KFP": _compiled,
    "PodTemplate": partial(_in_kind, "", "PodTemplate"),
    "--pod-path": _unknown,
}
"""The kinds of the table, each with what makes an object of it around a pod, or the documents of a compiled pipeline."""


def rules_of_pods() -> Iterator[tuple[Rule, list[dict[str, Any]], Mapping[str, Any]]]:
    """The rules whose failing example is a Job with something in its pod alone: the objects beside it, and the pod."""
    for rule in RULES:
        if rule.checks.pods is None or rule.is_python:
            continue
        documents = [one for one in yaml.safe_load_all(rule.fails) if isinstance(one, dict)]
        jobs = [one for one in documents if (one.get("apiVersion"), one.get("kind")) == ("batch/v1", "Job")]
        if (
            len(jobs) == 1
            and jobs[0].get("spec", {}).keys() == {"template"}
            and jobs[0]["spec"]["template"].get("spec")
        ):
            yield rule, [one for one in documents if one is not jobs[0]], jobs[0]["spec"]["template"]


def holds(rule: Rule, beside: list[dict[str, Any]], pod: Mapping[str, Any], column: str) -> bool:
    """Whether lint finds in an object of a kind what it finds in the rule's example."""
    made = COLUMNS[column](pod)
    text = yaml.safe_dump_all([*beside, *(made if isinstance(made, list) else [made])])
    given = config.parse(rule.config) if rule.config else config.built_in()
    settings = settings_of(given, (read_pod_path("spec.template.spec"),) if column == "--pod-path" else ())
    return any(one.rule == rule.id for one in lint_text(text, "work.yaml", settings).findings)
