"""Objects that grow in one respect, each of a kind that is placed, as a hostile author would write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster.kfp_workflows import a_workflow

__all__ = ["GROWING", "an_object"]


def an_object(api_version: str, kind: str, spec: Any, **metadata: Any) -> dict[str, Any]:
    meta = {"name": "x", "namespace": "team-a", **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def _containers(count: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"c{number}", "image": "train:1", "command": ["python"], **more} for number in range(count)]


def _pod(count: int = 1, **more: Any) -> dict[str, Any]:
    return {"containers": _containers(count), "restartPolicy": "Never", **more}


def _job(pod: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return an_object("batch/v1", "Job", {"template": {"spec": pod}}, **metadata)


def _nodes(**affinity: Any) -> dict[str, Any]:
    return _job(_pod(affinity={"nodeAffinity": affinity}))


def _workflow(templates: list[Any], **spec: Any) -> dict[str, Any]:
    return an_object("argoproj.io/v1alpha1", "Workflow", {"entrypoint": "t0", "templates": templates, **spec})


def _template(number: int) -> dict[str, Any]:
    return {"name": f"t{number}", "container": {"name": "main", "image": "a:1", "command": ["python"]}}


def _expression(number: int) -> dict[str, Any]:
    return {"key": f"k{number}", "operator": "In", "values": ["a"]}


def _dag(count: int) -> dict[str, Any]:
    tasks = [{"name": f"s{number}", "template": "t0", "depends": f"s{number - 1}"} for number in range(count)]
    return _workflow([_template(0), {"name": "d", "dag": {"tasks": tasks}}])


def _chain(count: int) -> dict[str, Any]:
    steps = [
        {
            "name": f"d{number}",
            "steps": [[{"name": "a", "template": f"d{number + 1}"}, {"name": "b", "template": "t0"}]],
        }
        for number in range(count)
    ]
    return _workflow([_template(0), *steps])


def _of_roles(api_version: str, kind: str, field: str) -> Callable[[int], dict[str, Any]]:
    def make(count: int) -> dict[str, Any]:
        roles = {f"R{number}": {"replicas": 1, "template": {"spec": _pod()}} for number in range(count)}
        return an_object(api_version, kind, {field: roles})

    return make


def _job_set(count: int) -> dict[str, Any]:
    jobs = [
        {"name": f"r{n}", "replicas": 1, "template": {"spec": {"template": {"spec": _pod()}}}} for n in range(count)
    ]
    return an_object("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})


def _rules(count: int) -> dict[str, Any]:
    made = _job_set(1)
    made["spec"]["failurePolicy"] = {
        "rules": [{"action": "FailJobSet", "targetReplicatedJobs": [f"a{n}"]} for n in range(count)]
    }
    return made


def _ray(count: int) -> dict[str, Any]:
    groups = [{"groupName": f"g{n}", "replicas": 1, "template": {"spec": _pod()}} for n in range(count)]
    return an_object(
        "ray.io/v1", "RayCluster", {"headGroupSpec": {"template": {"spec": _pod()}}, "workerGroupSpecs": groups}
    )


def _pipeline_run(count: int) -> dict[str, Any]:
    tasks = [{"name": f"t{n}", "taskSpec": {"steps": [{"name": "a", "image": "b"}]}} for n in range(count)]
    specs = [{"pipelineTaskName": f"t{n}"} for n in range(count)]
    return an_object("tekton.dev/v1", "PipelineRun", {"pipelineSpec": {"tasks": tasks}, "taskRunSpecs": specs})


def _volcano(count: int) -> dict[str, Any]:
    tasks = [{"name": f"t{n}", "replicas": 1, "template": {"spec": _pod()}} for n in range(count)]
    return an_object("batch.volcano.sh/v1alpha1", "Job", {"minAvailable": 1, "tasks": tasks})


def _spark(count: int) -> dict[str, Any]:
    conf, env = {f"spark.a{n}": "b" for n in range(count)}, [{"name": f"E{n}", "value": "v"} for n in range(count)]
    spec = {"type": "Python", "sparkVersion": "3.5.0", "sparkConf": conf, "driver": {"env": env}, "executor": {}}
    return an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec)


def _train_job(count: int) -> dict[str, Any]:
    pod = {"template": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}}
    jobs = [{"name": f"n{n}", **pod} for n in range(count)]
    patch = {"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    spec = {"runtimeRef": {"name": "torch"}, "runtimePatches": [patch]}
    return an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def _experiment(count: int) -> dict[str, Any]:
    trial = {
        "trialParameters": [{"name": f"p{n}", "reference": f"p{n}"} for n in range(count)],
        "trialSpec": _job(_pod()),
    }
    spec = {"parameters": [{"name": f"p{n}"} for n in range(count)], "trialTemplate": trial}
    return an_object("kubeflow.org/v1beta1", "Experiment", spec)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

GROWING: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "templates of a workflow": lambda count: _workflow([_template(number) for number in range(count)]),
    "tasks of a DAG": _dag,
    "steps below steps": _chain,
    "labels": lambda count: _job(_pod(), labels={f"l{number}": "v" for number in range(count)}),
    "annotations": lambda count: _job(_pod(), annotations={f"a{number}": "v" * 50 for number in range(count)}),
    "owners": lambda count: _job(
        _pod(), ownerReferences=[{"apiVersion": "v1", "kind": "Job", "name": "a", "uid": str(n)} for n in range(count)]
    ),
    "containers": lambda count: _job(_pod(count)),
    "variables": lambda count: _job(
        {
            "restartPolicy": "Never",
            "containers": _containers(env=[{"name": f"E{n}", "value": "v"} for n in range(count)]),
        }
    ),
    "volumes": lambda count: _job(_pod(volumes=[{"name": f"v{number}", "emptyDir": {}} for number in range(count)])),
    "tolerations": lambda count: _job(_pod(tolerations=[{"key": f"v{n}", "operator": "Exists"} for n in range(count)])),
    "terms": lambda count: _nodes(
        **{_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [_expression(n)]} for n in range(count)]}}
    ),
    "expressions": lambda count: _nodes(
        **{_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [_expression(n) for n in range(count)]}]}}
    ),
    "values": lambda count: _nodes(
        **{
            _REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{**_expression(0), "values": [f"a{n}" for n in range(count)]}]}
                ]
            }
        }
    ),
    "preferences": lambda count: _nodes(
        **{_PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [_expression(n)]}} for n in range(count)]}
    ),
    "selectors": lambda count: _job(_pod(nodeSelector={f"k{number}": "v" for number in range(count)})),
    "arguments": lambda count: _job(
        {"restartPolicy": "Never", "containers": _containers(args=["--checkpoint-dir=/a"] * count)}
    ),
    "jobs of a set": _job_set,
    "rules of a set": _rules,
    "roles": _of_roles("kubeflow.org/v1", "PyTorchJob", "pytorchReplicaSpecs"),
    "roles of MPI": _of_roles("kubeflow.org/v1", "MPIJob", "mpiReplicaSpecs"),
    "groups of workers": _ray,
    "tasks of Tekton": _pipeline_run,
    "tasks of Volcano": _volcano,
    "settings of Spark": _spark,
    "overrides": _train_job,
    "parameters of Katib": _experiment,
    "tasks of KFP": lambda count: a_workflow(*(f"t{number}" for number in range(min(count, 1_500)))),
    "pod of many containers": lambda count: an_object(
        "v1", "Pod", _pod(count), labels={"spotwright.dev/spot": "prefer"}
    ),
    "empty lists": lambda count: _workflow([_template(0)], x=[[] for _ in range(count)]),
    "one long text": lambda count: _job({**_pod(), "hostname": "x" * (count * 50)}),
    "a long text where a list is expected": lambda count: _job({**_pod(), "tolerations": "x" * (count * 50)}),
}
"""Makers of objects by the part that grows with their argument."""
