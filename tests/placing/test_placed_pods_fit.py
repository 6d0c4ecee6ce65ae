"""A placed pod fits every pool of its explanation, and none that its policy excludes: alone, and beside what it is merged with.

The pods are put together as their controllers do it: the Trainer (``strategic``), Argo (a template's field replaces that of the
workflow), Tekton (a task's field replaces that of the run), Kueue (the labels and tolerations of the assigned flavor are added).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.placing.drawn_pods import SPOT, Pod, configs, specs
from tests.placing.placed import FILE, at_path

from spotwright.clouds import node_labels, providers
from spotwright.config import Config
from spotwright.errors import SpotwrightError
from spotwright.kube.pod import scheduling_of
from spotwright.manifests.files import place_text
from spotwright.model.pools import Pool
from spotwright.placing.context import RoleReport
from spotwright.placing.documents import References, parse
from spotwright.placing.merging import strategic


def placed(
    documents: list[Any], settings: Config, beside: list[Any] | None = None
) -> tuple[list[Any], dict[str, RoleReport]]:
    """The placed documents, and the roles by their path; what is refused is left out."""
    text, more = ("\n---\n".join(json.dumps(one) for one in some) for some in (documents, beside or []))
    try:
        done = place_text(text, FILE, settings, References(parse(more, "beside.yaml")))
    except SpotwrightError:
        assume(condition=False)
        raise
    return list(plain_yaml.load_all(done.text)), {role.policy_path: role for role in done.roles}


def admits(pool: Pool, pod: Pod) -> bool:
    """Whether nodes of a pool, by the labels and taints that they are known to have or may have, admit a pod."""
    return not node_labels.refusal(pool, scheduling_of(pod), providers.taints(pool))


def surely_admits(pool: Pool, pod: Pod) -> bool:
    """The same by the labels that they are known to have alone."""
    return any(not scheduling_of(pod).refusal(labels, providers.taints(pool)) for labels in node_labels.known(pool))


def assert_fits(pod: Pod, role: RoleReport, settings: Config) -> None:
    """Check that a pod fits the pools of its role, and that its required capacity is all it gets."""
    pools, spot = settings.pools, role.policy.spot
    assert spot is not None
    lost = [name for name in role.pools if not admits(pools[name], pod)]
    assert not lost, f"{role.policy_path} does not fit {lost}: {json.dumps(pod)}"
    if spot != "prefer" and not any(scheduling_of(pod).undecided):  # beside what a run decides, the policy is a wish
        wrong = [one.name for one in pools.values() if one.is_spot != (spot == "require") and surely_admits(one, pod)]
        assert not wrong, f"{role.policy_path} is spot: {spot} and gets {wrong}: {json.dumps(pod)}"


def of(api: str, kind: str, spec: Any, **metadata: Any) -> Any:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", **metadata}, "spec": spec}


ALONE: Mapping[str, tuple[Callable[[Pod], Any], str]] = {
    "Job": (lambda pod: of("batch/v1", "Job", {"template": {"spec": pod}}), "spec.template.spec"),
    "CronJob": (
        lambda pod: of(
            "batch/v1", "CronJob", {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
        ),
        "spec.jobTemplate.spec.template.spec",
    ),
    "Deployment": (
        lambda pod: of("apps/v1", "Deployment", {"template": {"spec": pod}}, labels={"spotwright.dev/role": "worker"}),
        "spec.template.spec",
    ),
    "JobSet": (
        lambda pod: of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": pod}}}}]},
        ),
        "spec.replicatedJobs.0.template.spec.template.spec",
    ),
    "PyTorchJob": (
        lambda pod: of(
            "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}
        ),
        "spec.pytorchReplicaSpecs.Worker.template.spec",
    ),
    "Job of Volcano": (
        lambda pod: of(
            "batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "a", "replicas": 2, "template": {"spec": pod}}]}
        ),
        "spec.tasks.0.template.spec",
    ),
    "Experiment": (
        lambda pod: of(
            "kubeflow.org/v1beta1",
            "Experiment",
            {
                "parallelTrialCount": 2,
                "trialTemplate": {
                    "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
                },
            },
        ),
        "spec.trialTemplate.trialSpec.spec.template.spec",
    ),
    "RayCluster": (
        lambda pod: of(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}},
                "workerGroupSpecs": [{"groupName": "a", "template": {"spec": pod}}],
            },
        ),
        "spec.workerGroupSpecs.0.template.spec",
    ),
    "TaskRun": (
        lambda pod: of(
            "tekton.dev/v1",
            "TaskRun",
            {
                "podTemplate": {key: value for key, value in pod.items() if key != "containers"},
                "taskSpec": {"steps": [{"name": "fit", "image": "i"}]},
            },
        ),
        "spec.podTemplate",
    ),
}
"""Kinds whose pods are as their object says: an object around a pod spec, and where that stands."""

QUICK = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("kind", ALONE)
@QUICK
@given(settings=configs(), pod=specs())
def test_a_placed_pod_fits_every_pool_of_its_explanation(kind: str, settings: Config, pod: Pod) -> None:
    make, path = ALONE[kind]
    [document], roles = placed([make(pod)], settings)

    role = next(role for path, role in roles.items() if not path.endswith("/head"))
    assert_fits(at_path(document, path), role, settings)


RUNTIME_POD = "spec.template.spec.replicatedJobs.0.template.spec.template.spec"
PATCHED_POD = "spec.runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs.0.template.spec.template.spec"


@QUICK
@given(settings=configs(), pod=specs("node"), own=st.none() | SPOT, gpus=st.booleans())
def test_a_train_job_fits_the_pools_of_its_explanation_beside_its_placed_runtime(
    settings: Config, pod: Pod, own: str | None, gpus: bool
) -> None:
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    runtime = of("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", {"template": {"spec": {"replicatedJobs": [node]}}})
    trainer = {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1} if gpus else {"cpu": 2}}}
    job = of(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        {"runtimeRef": {"kind": "TrainingRuntime", "name": "w"}, "trainer": trainer},
        labels={"spotwright.dev/spot": own} if own else {},
    )
    job["metadata"]["name"] = "llm"
    (base, patched), roles = placed([runtime, job], settings)

    assert_fits(at_path(base, RUNTIME_POD), roles["w/node"], settings)
    merged = strategic(at_path(base, RUNTIME_POD), at_path(patched, PATCHED_POD) or {})
    assert_fits(merged, roles["llm/node"], settings)


OUTSIDE = ("affinity", "nodeSelector", "tolerations")


def outside(pod: Pod) -> Pod:
    return {name: pod[name] for name in OUTSIDE if name in pod}


def over(own: Pod, above: Pod) -> Pod:
    """A pod whose fields replace those of the level above as a whole."""
    return {name: own.get(name) or above.get(name) for name in OUTSIDE if own.get(name) or above.get(name)}


@QUICK
@given(settings=configs(), above=specs(), below=specs())
def test_the_pods_of_a_workflow_fit_with_what_they_take_from_it(settings: Config, above: Pod, below: Pod) -> None:
    template = {"name": "train", "container": below["containers"][0], **outside(below)}
    workflow = of(
        "argoproj.io/v1alpha1", "Workflow", {"entrypoint": "train", **outside(above), "templates": [template]}
    )
    [document], roles = placed([workflow], settings)

    pod = over(document["spec"]["templates"][0], document["spec"])
    assert_fits(pod, roles["w/train"], settings)


@QUICK
@given(settings=configs(), base=specs(), own=specs(), spot=st.none() | SPOT)
def test_the_pods_of_a_workflow_fit_beside_its_placed_template(
    settings: Config, base: Pod, own: Pod, spot: str | None
) -> None:
    template = {"name": "train", "container": base["containers"][0]}
    kept = of(
        "argoproj.io/v1alpha1",
        "WorkflowTemplate",
        {"entrypoint": "train", **outside(base), "templates": [template]},
    )
    workflow = of(
        "argoproj.io/v1alpha1",
        "Workflow",
        {"workflowTemplateRef": {"name": "w"}, **outside(own)},
        labels={"spotwright.dev/spot": spot} if spot else {},
    )
    workflow["metadata"]["name"] = "run"
    (first, second), roles = placed([kept, workflow], settings)

    spec = strategic(outside(first["spec"]), outside(second["spec"]))
    assert_fits(over(first["spec"]["templates"][0], outside(first["spec"])), roles["w/train"], settings)
    if "run/train" in roles and roles["run/train"].policy.spot is not None:
        assert_fits(over(first["spec"]["templates"][0], spec), roles["run/train"], settings)


@QUICK
@given(settings=configs(), above=specs(), below=specs())
def test_the_pods_of_a_pipeline_run_fit_with_what_they_take_from_it(settings: Config, above: Pod, below: Pod) -> None:
    spec = {
        "taskRunTemplate": {"podTemplate": outside(above)},
        "taskRunSpecs": [{"pipelineTaskName": "train", "podTemplate": outside(below)}],
        "pipelineSpec": {"tasks": [{"name": "train", "taskSpec": {"steps": [{"name": "fit", "image": "i"}]}}]},
    }
    [document], roles = placed([of("tekton.dev/v1", "PipelineRun", spec)], settings)

    run = at_path(document, "spec.taskRunTemplate.podTemplate") or {}
    own = at_path(document, "spec.taskRunSpecs.0.podTemplate") or {}
    assert_fits(over(own, run), roles["w/train"], settings)


def flavor(name: str, pool: Pool, keys: list[str], *, tolerates: bool) -> Any:
    """A flavor of Kueue for the nodes of a pool, by some of the labels that these have."""
    known = node_labels.known(pool)[0]
    spec: dict[str, Any] = {"nodeLabels": {key: known[key] for key in keys if key in known}}
    if tolerates:
        spec["tolerations"] = [{"key": taint.key, "operator": "Exists"} for taint in providers.taints(pool)]
    return of("kueue.x-k8s.io/v1beta2", "ResourceFlavor", spec) | {"metadata": {"name": name}}


FLAVOR_KEYS = [
    "agentpool",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-nodepool",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-provisioning",
    "eks.amazonaws.com/nodegroup",
    "karpenter.k8s.aws/instance-family",
    "karpenter.sh/capacity-type",
    "kubernetes.azure.com/priority",
    "kubernetes.azure.com/scalesetpriority",
    "kubernetes.io/os",
    "market",
    "node.kubernetes.io/instance-type",
]


@QUICK
@given(
    settings=configs(),
    pod=specs(),
    keys=st.lists(st.sampled_from(FLAVOR_KEYS), min_size=1, max_size=3),
    tolerates=st.booleans(),
)
def test_work_in_a_queue_fits_the_pools_of_its_explanation_with_the_flavor_that_it_gets(
    settings: Config, pod: Pod, keys: list[str], tolerates: bool
) -> None:
    """Kueue adds the labels and tolerations of the flavor. A flavor that stands for several pools is left out."""
    flavors = {
        f"of-{name}": flavor(f"of-{name}", pool, keys, tolerates=tolerates) for name, pool in settings.pools.items()
    }
    queue = of(
        "kueue.x-k8s.io/v1beta2",
        "ClusterQueue",
        {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": name} for name in flavors]}]},
    )
    local = of("kueue.x-k8s.io/v1beta2", "LocalQueue", {"clusterQueue": "w"}, namespace="n")
    job = of(
        "batch/v1",
        "Job",
        {"template": {"spec": pod}},
        namespace="n",
        labels={"kueue.x-k8s.io/queue-name": "w"},
    )
    given = [flavors[name] for name in flavors]
    documents, roles = placed([job, queue, local], settings, beside=given)

    [role] = roles.values()
    made = at_path(documents[0], "spec.template.spec")
    assert_fits(made, role, settings)
    for name in role.pools:
        spec = flavors[f"of-{name}"]["spec"]
        selector = made.get("nodeSelector") or {}
        if any(selector.get(key, value) != value for key, value in spec["nodeLabels"].items()):
            continue  # the user's own selector names another value
        merged = {
            **made,
            "nodeSelector": {**selector, **spec["nodeLabels"]},
            "tolerations": [*(made.get("tolerations") or ()), *spec.get("tolerations", ())],
        }
        assert admits(settings.pools[name], merged), f"{name} does not admit its work: {json.dumps(merged)}"
