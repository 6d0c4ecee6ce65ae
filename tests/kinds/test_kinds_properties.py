"""Properties of every kind with pod templates: the user's settings stay, and the additions stand beside them.

Every required term gets the condition (terms are alternatives), new tolerations stand beside the old ones, a contradiction is
refused with both lines, placing twice is placing once, and unplace restores the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.kinds.jobs.plain_jobs import PODS, Plain, kept
from tests.placing.placed import FILE, a_config, assert_unplaces, at_path

from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import ManifestError, References, parse

SPOT = "kubernetes.azure.com/scalesetpriority"
REQUIRED = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

conditions = st.sampled_from(
    [
        {"key": "team", "operator": "DoesNotExist"},
        {"key": SPOT, "operator": "Exists"},
        {"key": SPOT, "operator": "In", "values": ["spot", "regular"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    ]
)
terms = st.lists(
    st.builds(lambda some: {"matchExpressions": some}, st.lists(conditions, max_size=2)), min_size=1, max_size=3
)


def an_affinity(some: list[Any]) -> Any:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": some}}}


affinities = st.builds(an_affinity, terms.filter(lambda some: all(term["matchExpressions"] for term in some)))
specs = st.builds(
    lambda pod, affinity: {**pod, **affinity}, PODS, st.one_of(st.just({}), affinities.map(lambda a: {"affinity": a}))
)
metadata = st.sampled_from([None, {}, {"labels": {"a": "b"}}, {"annotations": {"spotwright.dev/policy": "{}"}}])
templates: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda spec, about: {"spec": spec} if about is None else {"metadata": about, "spec": spec}, specs, metadata
)
kubernetes_policies = st.fixed_dictionaries(
    {"spot": st.sampled_from(["require", "prefer"])},
    optional={
        "timeout": st.just("1h"),
        "errors": st.just({"retries": 1}),
        "checkpoint": st.sampled_from(["pvc://claim/below", "s3://bucket"]),
        "image_pull_secrets": st.just(["acr"]),
    },
)


def a_jobset(pods: list[Any]) -> Any:
    jobs = [{"name": f"job{i}", "template": {"spec": {"template": pod}}} for i, pod in enumerate(pods)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": {"replicatedJobs": jobs},
    }


def of_jobset(value: Any) -> list[Any]:
    return [at_path(job, "template.spec.template") for job in value["spec"]["replicatedJobs"]]


def a_tfjob(pods: list[Any]) -> Any:
    roles = {"Worker": {"replicas": 2, "template": pods[0]}, "Evaluator": {"template": pods[-1]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"tfReplicaSpecs": roles},
    }


def of_tfjob(value: Any) -> list[Any]:
    return [value["spec"]["tfReplicaSpecs"]["Worker"]["template"]]


def an_experiment(pods: list[Any]) -> Any:
    trial = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": "${trialParameters.n}", "template": pods[0]},
    }
    spec = {
        "parallelTrialCount": 2,
        "trialTemplate": {"trialParameters": [{"name": "n", "reference": "n"}], "trialSpec": trial},
    }
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "e"}, "spec": spec}


def of_experiment(value: Any) -> list[Any]:
    return [at_path(value, "spec.trialTemplate.trialSpec.spec.template")]


def a_runtime(pods: list[Any]) -> Any:
    spec = {"template": {"spec": a_jobset(pods)["spec"]}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "r"},
        "spec": spec,
    }


def of_runtime(value: Any) -> list[Any]:
    return of_jobset(value["spec"]["template"])


def a_cron_job(pods: list[Any]) -> Any:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pods[0]}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}


def of_cron_job(value: Any) -> list[Any]:
    return [at_path(value, "spec.jobTemplate.spec.template")]


def a_ray_cluster(pods: list[Any]) -> Any:
    groups = [{"groupName": f"group{index}", "template": pod} for index, pod in enumerate(pods)]
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    spec = {"headGroupSpec": head, "workerGroupSpecs": groups}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": spec}


def of_ray_cluster(value: Any) -> list[Any]:
    return [group["template"] for group in value["spec"]["workerGroupSpecs"]]


def a_deployment(pods: list[Any]) -> Any:
    metadata = {"name": "d", "labels": {"spotwright.dev/role": "worker"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": pods[0]}}


def of_deployment(value: Any) -> list[Any]:
    return [value["spec"]["template"]]


def a_volcano_job(pods: list[Any]) -> Any:
    tasks = [{"name": f"task{index}", "replicas": 2, "template": pod} for index, pod in enumerate(pods)]
    spec = {"schedulerName": "volcano", "tasks": tasks}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": spec}


def of_volcano_job(value: Any) -> list[Any]:
    return [task["template"] for task in value["spec"]["tasks"]]


def an_xgboost_job(pods: list[Any]) -> Any:
    roles = {f"Worker{index}": {"replicas": 2, "template": pod} for index, pod in enumerate(pods)}
    spec = {"xgbReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob", "metadata": {"name": "x"}, "spec": spec}


def of_xgboost_job(value: Any) -> list[Any]:
    return [role["template"] for role in value["spec"]["xgbReplicaSpecs"].values()]


Kind = tuple[Callable[[list[Any]], Any], Callable[[Any], list[Any]]]
KINDS: dict[str, Kind] = {
    "JobSet": (a_jobset, of_jobset),
    "TFJob": (a_tfjob, of_tfjob),
    "Experiment": (an_experiment, of_experiment),
    "TrainingRuntime": (a_runtime, of_runtime),
    "CronJob": (a_cron_job, of_cron_job),
    "RayCluster": (a_ray_cluster, of_ray_cluster),
    "Deployment": (a_deployment, of_deployment),
    "Job of Volcano": (a_volcano_job, of_volcano_job),
    "XGBoostJob": (an_xgboost_job, of_xgboost_job),
}


def written(value: Any, *, flow: bool, newline: str = "\n") -> str:
    return str(yaml.dump(value, Dumper=Plain, sort_keys=False, default_flow_style=flow, width=70)).replace(
        "\n", newline
    )


def is_joined(before: Any, after: Any, *, required: bool) -> bool:
    """Whether the required terms are those of before, each with our condition where one is required."""
    old, new = at_path(before, f"spec.{REQUIRED}") or [], at_path(after, f"spec.{REQUIRED}") or []
    if not old:
        return bool(new) or not required
    return len(old) == len(new) and all(
        all(one in now["matchExpressions"] for one in was["matchExpressions"])
        and (
            not required or any(one["key"] == SPOT and one.get("values") == ["spot"] for one in now["matchExpressions"])
        )
        for was, now in zip(old, new, strict=True)
    )


SAMPLE = [
    pytest.param(kind, id=name, marks=() if number % 3 == 0 else pytest.mark.long)
    for number, (name, kind) in enumerate(KINDS.items())
]
"""Every kind; two of three in `make test-long`, because the kinds share the rules that these properties hold for."""


@pytest.mark.parametrize("kind", SAMPLE)
@given(
    pods=st.lists(templates, min_size=1, max_size=2),
    policy=kubernetes_policies,
    flow=st.booleans(),
    newline=st.sampled_from(["\n", "\r\n"]),
)
@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_what_the_pods_say_stays_and_ours_is_joined(
    kind: Kind, pods: list[Any], policy: Any, flow: bool, newline: str
) -> None:
    make, pods_of = kind
    text = written(make(pods), flow=flow, newline=newline)
    config = a_config(json.dumps({"default": policy}))
    after = place_text(text, FILE, config).text
    before, now = plain_yaml.load(text), plain_yaml.load(after)

    assert kept(before, now)
    for old, new in zip(pods_of(before), pods_of(now), strict=True):
        tolerations = new["spec"]["tolerations"]
        assert any(
            (one.get("operator") == "Exists" and not one.get("key")) or one.get("key") == SPOT for one in tolerations
        )
        assert is_joined(old, new, required=policy["spot"] == "require")
    assert place_text(after, FILE, config).text == after
    assert_unplaces(text, after)


@pytest.mark.parametrize("kind", SAMPLE)
@given(pods=st.lists(templates, min_size=1, max_size=2), flow=st.booleans())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replaced_retries_come_back_too(kind: Kind, pods: list[Any], flow: bool) -> None:
    text = written(kind[0](pods), flow=flow)
    config = a_config("{default: {spot: require, timeout: 1h, errors: {retries: 2}}}")
    after = place_text(text, FILE, config, options=PlaceOptions(replace_retries=True)).text
    assert_unplaces(text, after)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("against", ["nodeSelector", "affinity"])
def test_a_contradiction_is_refused_with_both_lines(kind: Kind, against: str) -> None:
    condition = {"key": SPOT, "operator": "NotIn", "values": ["spot"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
    messages = {
        "nodeSelector": {SPOT: "regular"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    }
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}], against: messages[against]}}
    text = written(kind[0]([pod]), flow=False)

    with pytest.raises(ManifestError) as refused:
        place_text(text, FILE, a_config("{default: {spot: require, timeout: 1h}}"))

    line = re.match(r"work\.yaml:(\d+): ", str(refused.value))
    assert line is not None
    around = "\n".join(text.splitlines()[int(line[1]) - 1 : int(line[1]) + 4])
    assert SPOT in around
    assert re.search(r"spot: require \(spotwright\.yaml:\d+\)", str(refused.value))


RUNTIME = written(
    a_runtime(
        [
            {
                "spec": {
                    "containers": [{"name": "node", "image": "torch"}],
                    "tolerations": [{"key": "t", "operator": "Exists"}],
                }
            }
        ]
    ),
    flow=False,
).replace("job0", "node")


@given(pod=specs, policy=kubernetes_policies, flow=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_patch_of_a_train_job_keeps_what_it_says_and_what_the_runtime_says(pod: Any, policy: Any, flow: bool) -> None:
    allowed = {
        key: value
        for key, value in pod.items()
        if key in ("tolerations", "affinity", "nodeSelector", "imagePullSecrets")
    }
    patch = {"manager": "example.io/team", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [
        {"name": "node", "template": {"spec": {"template": {"spec": allowed}}}}]}}}}  # fmt: skip
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "r"}, "runtimePatches": [patch]}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "j"}, "spec": spec}
    text = written(job, flow=flow)
    config = a_config(json.dumps({"default": policy}))
    references = References(parse(RUNTIME, "runtime.yaml"))
    after = place_text(text, FILE, config, references, PlaceOptions(may_add=False)).text

    assert kept(plain_yaml.load(text), plain_yaml.load(after))
    assert place_text(after, FILE, config, references, PlaceOptions(may_add=False)).text == after
    assert_unplaces(text, after)


@given(shared=specs, own=specs, policy=kubernetes_policies, flow=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_of_tekton_keeps_its_pod_templates_and_a_tasks_own_has_what_the_task_needs(
    shared: Any, own: Any, policy: Any, flow: bool
) -> None:
    allowed = ("tolerations", "affinity", "nodeSelector", "imagePullSecrets")
    of_all, of_task = ({key: pod[key] for key in allowed if key in pod} for pod in (shared, own))
    spec = {
        "taskRunTemplate": {"podTemplate": of_all},
        "taskRunSpecs": [{"pipelineTaskName": "train", "podTemplate": of_task}],
        "pipelineSpec": {"tasks": [{"name": "train", "taskSpec": {"steps": [{"name": "fit", "image": "i"}]}}]},
    }
    run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r"}, "spec": spec}
    text, config = written(run, flow=flow), a_config(json.dumps({"default": policy}))
    after = place_text(text, FILE, config).text
    now = plain_yaml.load(after)["spec"]
    merged = {**now["taskRunTemplate"]["podTemplate"], **now["taskRunSpecs"][0]["podTemplate"]}

    assert kept(plain_yaml.load(text), plain_yaml.load(after))
    assert any(one.get("key") in (SPOT, None) for one in merged["tolerations"])
    assert is_joined({"spec": {**of_all, **of_task}}, {"spec": merged}, required=policy["spot"] == "require")
    assert place_text(after, FILE, config).text == after
    assert_unplaces(text, after)


def test_an_empty_list_of_terms_is_refused_as_the_api_server_does() -> None:
    text = written(a_jobset([{"spec": {"containers": [], "affinity": an_affinity([])}}]), flow=False)
    with pytest.raises(ManifestError, match="refuses required node affinity without a term: add a term, or remove it"):
        place_text(text, FILE, a_config("{default: {spot: require, timeout: 1h}}"))


def test_a_term_that_matches_no_node_does_not_begin_to() -> None:
    some = [{"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, {}, {"matchExpressions": []}]
    text = written(a_jobset([{"spec": {"containers": [], "affinity": an_affinity(some)}}]), flow=False)
    after = place_text(text, FILE, a_config("{default: {spot: require, timeout: 1h}}")).text

    [pod] = of_jobset(plain_yaml.load(after))
    assert len(at_path(pod, f"spec.{REQUIRED}.0.matchExpressions")) > 1
    assert at_path(pod, f"spec.{REQUIRED}")[1:] == some[1:]
    assert_unplaces(text, after)
