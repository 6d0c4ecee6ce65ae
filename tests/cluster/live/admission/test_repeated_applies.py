"""On the test bed: ``kubectl apply`` of one file twice changes nothing, client-side and server-side, for each kind served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from testbed.settings import Settings
from tests.cluster.live.admission.claimed_folders import POOLS
from tests.cluster.live.controllers import Controller, controller
from tests.cluster.live.kube import Kube, Object, job, pod, pod_spec
from tests.cluster.live.runtimes import training_runtime

pytestmark = pytest.mark.cluster

GPUS = {"provider": "aks", "capacity": "spot", "node": {"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": 1}}
CONFIGURATION = {
    "version": 1,
    "target": {"kubernetes": "1.35", "trainer": "2.2", "argo": "3.7"},
    "pools": {**POOLS, "gpus": GPUS},
    "policy": {"default": {"spot": "prefer", "checkpoint": "pvc://saves", "grace_period": "20s"}},
}
WAYS = {"client": ["apply"], "server": ["apply", "--server-side"]}
NOT_FORCED = ("PipelineRun",)
"""Kinds that are applied without --force-conflicts. A Workflow needs it: Argo's controller owns its whole spec after its first
look, with and without Spotwright."""

LABEL = {"spotwright.dev/spot": "prefer"}
ARGO = "argoproj.io/v1alpha1"


@pytest.fixture(scope="module")
def leader(bed: Settings, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    folder = tmp_path_factory.mktemp("applies")
    with controller(kube, bed, folder, yaml.safe_dump(CONFIGURATION), "--log-limit", "0") as made:
        yield made


@pytest.fixture(scope="module")
def tekton(kube: Kube) -> Iterator[None]:
    """The kind PipelineRun, without Tekton's controller and webhook, and as most of its releases declare it: without fields."""
    names = {"kind": "PipelineRun", "plural": "pipelineruns", "singular": "pipelinerun", "listKind": "PipelineRunList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = "pipelineruns.tekton.dev"
    kube.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": definition},
            "spec": {"group": "tekton.dev", "names": names, "scope": "Namespaced", "versions": [version]},
        }
    )
    kube.run("wait", "--for=condition=Established", f"crd/{definition}", "--timeout=60s")
    yield
    kube.run("delete", "crd", definition, "--wait=false")


def pipeline_run() -> Object:
    """A PipelineRun whose user has a template for one of its tasks; another task asks for GPUs."""
    own = {"pipelineTaskName": "prepare", "podTemplate": {"tolerations": [{"key": "team", "operator": "Exists"}]}}
    gpu = {"limits": {"nvidia.com/gpu": 1}}
    tasks = [
        {"name": "prepare", "taskSpec": {"steps": [{"name": "load", "image": "none"}]}},
        {"name": "train", "taskSpec": {"steps": [{"name": "fit", "image": "none", "computeResources": gpu}]}},
    ]
    return an_object("tekton.dev/v1", "PipelineRun", {"taskRunSpecs": [own], "pipelineSpec": {"tasks": tasks}})


def objects(kube: Kube, namespace: str) -> dict[str, Object]:
    """An object of each kind that runs nothing, with its user's tolerations and rules; only the Pod runs."""
    spec = pod_spec(kube.container("true"))
    suspended = job("work", namespace, spec)
    suspended["spec"]["suspend"] = True
    own = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    ruled = json.loads(json.dumps(suspended))
    ruled["metadata"]["name"], ruled["spec"]["podFailurePolicy"] = "ruled", {"rules": [own]}
    replicated = [
        {"name": "node", "template": {"spec": {"completions": 2, "parallelism": 2, "template": {"spec": spec}}}}
    ]
    template = {"name": "main", "container": kube.container("true"), "tolerations": spec["tolerations"]}
    workflow = {"entrypoint": "main", "templates": [template], "podSpecPatch": "terminationGracePeriodSeconds: 3\n"}
    unplaced = training_runtime(kube, namespace, "true")
    unplaced["metadata"] |= {"name": "unplaced", "annotations": {"spotwright.dev/ignore": "true"}}
    train = {"runtimeRef": {"name": "unplaced", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}, "suspend": True}
    cron = {"schedule": "0 1 1 1 *", "suspend": True}
    made = [
        ("Job", suspended),
        ("Job with rules", ruled),
        ("CronJob", an_object("batch/v1", "CronJob", {**cron, "jobTemplate": {"spec": suspended["spec"]}})),
        ("JobSet", an_object("jobset.x-k8s.io/v1alpha2", "JobSet", {"suspend": True, "replicatedJobs": replicated})),
        ("TrainingRuntime", training_runtime(kube, namespace, "true")),
        ("", unplaced),
        ("TrainJob", an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", train, "train")),
        ("Workflow", an_object(ARGO, "Workflow", {**workflow, "suspend": True})),
        ("WorkflowTemplate", an_object(ARGO, "WorkflowTemplate", workflow)),
        ("CronWorkflow", an_object(ARGO, "CronWorkflow", {**cron, "workflowSpec": workflow})),
        ("PipelineRun", pipeline_run()),
        ("Pod", pod("work", namespace, spec)),
    ]
    for _, each in made:
        each["metadata"] |= {"namespace": namespace}
    made[-1][1]["metadata"]["labels"] = LABEL
    return dict(made)


def an_object(api_version: str, kind: str, spec: Object, name: str = "work") -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.usefixtures("tekton")
@pytest.mark.parametrize("way", WAYS)
def test_the_same_file_applied_twice_changes_nothing(kube: Kube, leader: Controller, namespace: str, way: str) -> None:
    leader.enable(namespace)
    problems = {}
    for crd in ("workflows.argoproj.io", "jobsets.jobset.x-k8s.io", "trainjobs.trainer.kubeflow.org"):
        kube.awaited(crd)
    versions = kube.run("api-versions").split()
    here = {kind: made for kind, made in objects(kube, namespace).items() if made["apiVersion"] in versions}
    assert here.keys() >= {"Job", "CronJob", "PipelineRun", "Pod"}  # other kinds come with controllers of the bed
    for kind, made in here.items():
        first = applied(kube, way, made)
        is_placed = "spotwright.dev/admitted" in first["metadata"].get("annotations", {})
        assert is_placed == bool(kind), f"{kind} is not placed"
        try:
            second = applied(kube, way, made)
        except AssertionError as error:
            problems[kind] = str(error)
            continue
        was, now = (without_node(each["spec"]) for each in (first, second))
        if was != now:
            problems[kind] = f"was {json.dumps(was)}\nis {json.dumps(now)}"
    assert not problems, "\n".join(f"{kind}: {text}" for kind, text in problems.items())


def applied(kube: Kube, way: str, made: Object) -> Object:
    """The object after an apply."""
    forced = ["--force-conflicts"] if way == "server" and made["kind"] not in NOT_FORCED else []
    kube.run(*WAYS[way], *forced, "-f", "-", text=json.dumps(made))
    found = kube.get(
        f"{made['kind']}.{group(made)}".rstrip("."), made["metadata"]["name"], made["metadata"]["namespace"]
    )
    assert found is not None
    return found


def group(made: Object) -> str:
    """The group of an object's kind, for kubectl."""
    return str(made["apiVersion"]).rpartition("/")[0]


def without_node(spec: Object) -> Object:
    """A spec without the node that the scheduler has chosen meanwhile, and the empty values that Argo's controller adds."""
    found: Object = without_empty({name: value for name, value in spec.items() if name != "nodeName"})
    return found


def without_empty(value: Any) -> Any:
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: kept for name, item in value.items() if (kept := without_empty(item)) != {}}
