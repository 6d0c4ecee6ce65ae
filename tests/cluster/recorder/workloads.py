"""The workloads that a recording starts: one of each kind with the same behaviour, written as users write them.

The KFP-shaped Workflow has the templates that KFP's compiler of Workflows makes: drivers that write the patch of the pod, and a
launcher that starts the user's command, turns each of its exit codes other than 0 into 1 and dies of SIGTERM at once. As KFP's
launcher does (``backend/src/v2/component/launcher_v2.go``), it leaves the command in its own process group, to which Argo's
emissary passes SIGTERM on: the command hears of it as well, and lives until the emissary, which looks once a second, has seen
the launcher's end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "Behaviour", "workload"]

Object = dict[str, Any]
GRACE = 3  # seconds between SIGTERM and SIGKILL
_TRAINER = "trainer.kubeflow.org/v1alpha1"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The code of every kind's container, and the requests of its pod."""

    command: Sequence[str]
    image: str = "localhost/python:1"
    cpu: str = "50m"
    memory: str = ""  # limit; empty: none
    deadline: int | None = None  # seconds that a pod may run, in the field in which its kind has it
    node: str = ""  # node to which the pod is bound without the scheduler

    def container(self, name: str = "main") -> Object:
        """The container that runs the command."""
        limits = {"limits": {"memory": self.memory}} if self.memory else {}
        return {
            "name": name,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(self.command),
            "resources": {"requests": {"cpu": self.cpu}, **limits},
        }

    def pod(self, container: str = "main") -> Object:
        """The pod of kinds that take a pod as it is."""
        bound = {"nodeName": self.node} if self.node else {}
        return {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE,
            "containers": [self.container(container)],
            **bound,
        }

    @property
    def patch(self) -> Object:
        """The settings of a pod that a Workflow can make only by a patch."""
        bound = {"nodeName": self.node} if self.node else {}
        return {"terminationGracePeriodSeconds": GRACE, **bound}


def workload(kind: str, name: str, behaviour: Behaviour) -> list[Object]:
    """The objects of one workload; the last one is the workload itself."""
    return KINDS[kind](name, behaviour)


def _pod(name: str, behaviour: Behaviour) -> list[Object]:
    deadline = {"activeDeadlineSeconds": behaviour.deadline} if behaviour.deadline else {}
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**behaviour.pod(), **deadline}}]


def _job_spec(behaviour: Behaviour, container: str = "main") -> Object:
    deadline = {"activeDeadlineSeconds": behaviour.deadline} if behaviour.deadline else {}
    return {"template": {"spec": behaviour.pod(container)}, **deadline}


def _job(name: str, behaviour: Behaviour) -> list[Object]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": _job_spec(behaviour)}]


def _jobset(name: str, behaviour: Behaviour) -> list[Object]:
    jobs = [{"name": "work", "replicas": 1, "template": {"spec": _job_spec(behaviour)}}]
    spec = {"replicatedJobs": jobs}
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}]


def _trainjob(name: str, behaviour: Behaviour) -> list[Object]:
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": _job_spec(behaviour, "node"),
        },
    }
    runtime = {
        "apiVersion": _TRAINER,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": name}, "trainer": {"numNodes": 1}}
    return [runtime, {"apiVersion": _TRAINER, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}]


def _argo(name: str, behaviour: Behaviour) -> list[Object]:
    deadline = {"activeDeadlineSeconds": behaviour.deadline} if behaviour.deadline else {}
    template = {
        "name": "work",
        "container": _unnamed(behaviour),
        "podSpecPatch": json.dumps(behaviour.patch),
        **deadline,
    }
    return [_workflow(name, "work", [template])]


def _kfp(name: str, behaviour: Behaviour) -> list[Object]:
    launched = {**behaviour.container(), "command": ["/kfp-launcher/launch", "--"], "args": list(behaviour.command)}
    patch = json.dumps({"containers": [launched], **behaviour.patch})
    templates = [
        _dag("entrypoint", [_task("root-driver", "system-dag-driver"), _task("root", "root", after="root-driver")]),
        _driver("system-dag-driver", {"execution-id": "1", "condition": "true"}),
        _dag("root", [_task("work-driver", "system-container-driver"), _executor_task()]),
        _driver("system-container-driver", {"pod-spec-patch": patch, "cached-decision": "false", "condition": "true"}),
        {
            **_dag("system-container-executor", [_impl_task()]),
            "inputs": {"parameters": [{"name": "pod-spec-patch"}, {"name": "cached-decision", "default": "false"}]},
        },
        _implementation(),
    ]
    workflow = _workflow(name, "entrypoint", templates)
    workflow["metadata"]["labels"] = {"pipeline/runid": "00000000-0000-4000-8000-000000000001"}
    workflow["metadata"]["annotations"] = {"pipelines.kubeflow.org/run_name": name}
    if behaviour.deadline:
        workflow["spec"]["activeDeadlineSeconds"] = behaviour.deadline + 40  # its drivers run before
    return [workflow]


def _workflow(name: str, entrypoint: str, templates: Sequence[Object]) -> Object:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"entrypoint": entrypoint, "templates": list(templates)},
    }


def _unnamed(behaviour: Behaviour) -> Object:
    return {name: value for name, value in behaviour.container().items() if name != "name"}


def _dag(name: str, tasks: Sequence[Object]) -> Object:
    return {"name": name, "dag": {"tasks": list(tasks)}}


def _task(name: str, template: str, after: str = "") -> Object:
    return {"name": name, "template": template, **({"depends": f"{after}.Succeeded"} if after else {})}


def _executor_task() -> Object:
    outputs = "{{tasks.work-driver.outputs.parameters.%s}}"
    parameters = [{"name": name, "value": outputs % name} for name in ("pod-spec-patch", "cached-decision")]
    return {**_task("work", "system-container-executor", after="work-driver"), "arguments": {"parameters": parameters}}


def _impl_task() -> Object:
    patch = {"name": "pod-spec-patch", "value": "{{inputs.parameters.pod-spec-patch}}"}
    return {
        **_task("executor", "system-container-impl"),
        "arguments": {"parameters": [patch]},
        "when": "{{inputs.parameters.cached-decision}} != true",
    }


def _driver(name: str, outputs: Mapping[str, str]) -> Object:
    script = "mkdir -p /outputs; " + "; ".join(
        f"""printf %s "${key.replace("-", "_").upper()}" > /outputs/{key}""" for key in outputs
    )
    return {
        "name": name,
        "metadata": {"annotations": {"pipelines.kubeflow.org/runtime-role": "driver"}},
        "container": {
            "image": "localhost/python:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "env": [{"name": key.replace("-", "_").upper(), "value": value} for key, value in outputs.items()],
        },
        "outputs": {"parameters": [{"name": key, "valueFrom": {"path": f"/outputs/{key}"}} for key in outputs]},
    }


_LAUNCHER = """cat > /kfp-launcher/launch <<'END'
#!/bin/sh
shift
"$@" || exit 1
END
chmod 755 /kfp-launcher/launch"""


def _implementation() -> Object:
    mount = [{"name": "kfp-launcher", "mountPath": "/kfp-launcher"}]
    image = {"image": "localhost/python:1", "imagePullPolicy": "IfNotPresent"}
    copier = {"name": "kfp-launcher", **image, "command": ["sh", "-c", _LAUNCHER], "volumeMounts": mount}
    return {
        "name": "system-container-impl",
        "metadata": {"annotations": {"pipelines.kubeflow.org/runtime-role": "launcher"}},
        "inputs": {"parameters": [{"name": "pod-spec-patch"}]},
        "container": {**image, "command": ["should-be-overridden-during-runtime"], "volumeMounts": mount},
        "initContainers": [copier],
        "podSpecPatch": "{{inputs.parameters.pod-spec-patch}}",
        "volumes": [{"name": "kfp-launcher", "emptyDir": {}}],
    }


KINDS: Mapping[str, Callable[[str, Behaviour], list[Object]]] = {
    "pod": _pod,
    "job": _job,
    "jobset": _jobset,
    "trainjob": _trainjob,
    "argo": _argo,
    "kfp": _kfp,
}
"""The builders of each kind by the name that it has in a recording."""
