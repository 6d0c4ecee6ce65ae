"""Admission of objects: which are placed, which are left alone, and the API server's defaults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cluster.admission_objects import KEY, a_config, a_job, a_jobset, admitted, owned_by
from tests.cluster.json_patches import apply_patch
from tests.cluster.trainjobs import RUNTIME, TRAINJOB
from tests.placing.placed import at_path

from spotwright.cluster.admit_objects import (
    ADMITTED_ANNOTATION,
    IGNORE_ANNOTATION,
    Verdict,
    admit_object,
    referenced_objects,
)
from spotwright.cluster.admit_updates import Update, restore_object
from spotwright.scheduling.budgets import MAX_MOVES

JOB_POD = "spec.template.spec"


def last_applied(data: dict[str, Any]) -> dict[str, Any]:
    """The object as ``kubectl apply`` sends it: with its user's text in an annotation."""
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(data)}
    return {**data, "metadata": {**data["metadata"], "annotations": annotation}}


def test_a_job_is_placed_and_marked() -> None:
    job, outcome = admitted(a_job())
    assert outcome.verdict == Verdict.PLACED
    assert at_path(job, f"{JOB_POD}.tolerations.0.key") == KEY
    assert json.loads(job["metadata"]["annotations"][ADMITTED_ANNOTATION])["v"] == 1


SAFE = "cluster-autoscaler@kubernetes@io/safe-to-evict"
RUN = {
    "apiVersion": "tekton.dev/v1",
    "kind": "PipelineRun",
    "metadata": {"name": "nightly", "namespace": "team-a"},
    "spec": {"pipelineSpec": {"tasks": [{"name": "a", "taskSpec": {"steps": [{"name": "s", "image": "i"}]}}]}},
}


@pytest.mark.parametrize("spot", ["never", "prefer", "require"])
@pytest.mark.parametrize(("data", "metadata"), [(a_job(), "spec.template.metadata"), (RUN, "metadata")])
def test_no_autoscaler_may_move_the_pods_be_they_on_spot_nodes_or_not(
    data: dict[str, Any], metadata: str, spot: str
) -> None:
    placed, _ = admitted(data, a_config(f"{{default: {{spot: {spot}}}}}"))
    assert at_path(placed, f"{metadata}.annotations.{SAFE}") == "false"


def test_a_marked_object_is_not_placed_again() -> None:
    job, _ = admitted(a_job())
    assert admit_object(job, a_config()).verdict == Verdict.ALREADY_PLACED


def test_a_limit_that_equals_the_default_counts_as_missing() -> None:
    job, _ = admitted(a_job(), a_config("{default: {spot: require, interruptions: {max: 3}, errors: {retries: 1}}}"))
    assert job["spec"]["backoffLimit"] == 3 + 1 + MAX_MOVES


def test_a_limit_that_kubectl_apply_has_sent_stays() -> None:
    job, outcome = admitted(last_applied(a_job()), a_config("{default: {spot: require, errors: {retries: 1}}}"))
    assert job["spec"]["backoffLimit"] == 6
    assert any("backoffLimit 6 stays" in text for text in outcome.warnings)


def test_a_limit_of_a_server_side_apply_stays() -> None:
    data = a_job()
    fields: dict[str, Any] = {"f:spec": {"f:backoffLimit": {}}}
    data["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": fields}]
    job, _ = admitted(data, a_config("{default: {spot: require, errors: {retries: 1}}}"))
    assert job["spec"]["backoffLimit"] == 6


def test_a_default_replacement_policy_gives_way_to_the_one_that_a_failure_policy_needs() -> None:
    job, _ = admitted(a_job())
    assert job["spec"]["podFailurePolicy"]["rules"]
    assert job["spec"]["podReplacementPolicy"] == "Failed"


def test_a_default_limit_gives_way_to_a_limit_for_each_index() -> None:
    job, _ = admitted(a_job(completionMode="Indexed"))
    assert job["spec"]["backoffLimitPerIndex"] == 10 + 6 + MAX_MOVES
    assert job["spec"]["backoffLimit"] == 2**31 - 1


def test_the_cluster_s_default_grace_period_gives_way_to_the_policy_s() -> None:
    job, _ = admitted(a_job(), a_config("{default: {spot: require, grace_period: 20s}}"))
    assert at_path(job, f"{JOB_POD}.terminationGracePeriodSeconds") == 20


def test_a_job_set_s_default_restart_policy_gives_way_to_never() -> None:
    jobset, _ = admitted(a_jobset())
    path = "spec.replicatedJobs.0.template.spec.template.spec.restartPolicy"
    assert at_path(jobset, path) == "Never"


def test_an_object_that_asks_for_it_is_left_alone() -> None:
    data = a_job()
    data["metadata"]["annotations"] = {IGNORE_ANNOTATION: "true"}
    assert admit_object(data, a_config()).verdict == Verdict.IGNORED


def a_cron_job(**annotations: str) -> dict[str, Any]:
    metadata = {"name": "nightly", "annotations": annotations}
    spec = {"schedule": "0 1 * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": a_job()["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def job_of(cron: dict[str, Any]) -> dict[str, Any]:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly-1"}}
    return owned_by({**job, "spec": cron["spec"]["jobTemplate"]["spec"]}, "batch/v1", "CronJob", "nightly")


def test_a_job_of_an_ignored_cron_job_is_left_alone() -> None:
    cron = a_cron_job(**{IGNORE_ANNOTATION: "true"})
    job = job_of(cron)
    assert referenced_objects(job) == [("batch/v1", "CronJob", "nightly")]
    assert admit_object(job, a_config(), [cron]).verdict == Verdict.IGNORED


def test_a_job_of_a_placed_cron_job_is_not_placed_twice() -> None:
    cron, _ = admitted(a_cron_job())
    assert admit_object(job_of(cron), a_config()).verdict == Verdict.ALREADY_PLACED


def test_a_job_of_a_cron_job_that_is_older_than_the_webhook_is_placed() -> None:
    assert admit_object(job_of(a_cron_job()), a_config()).verdict == Verdict.PLACED


def test_a_job_of_a_job_set_follows_the_set() -> None:
    job = owned_by(a_job(), "jobset.x-k8s.io/v1alpha2", "JobSet", "train")
    assert admit_object(job, a_config()).verdict == Verdict.OWNED


def test_the_retries_of_a_train_job_are_placed_on_its_job_set() -> None:
    config = a_config("{default: {interruptions: {max: 7}}}")
    trainjob, outcome = admitted(TRAINJOB, config, RUNTIME)
    assert outcome.verdict == Verdict.PLACED
    assert referenced_objects(TRAINJOB) == [("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "torch")]
    jobset = owned_by(a_jobset(), "trainer.kubeflow.org/v1alpha1", "TrainJob", "train")
    placed, outcome = admitted(jobset, config, trainjob)
    assert outcome.verdict == Verdict.PLACED
    assert placed["spec"]["failurePolicy"]["maxRestarts"] == 7 + 6 + MAX_MOVES


def test_a_policy_of_the_train_job_s_own_holds_on_its_job_set_which_has_no_annotations() -> None:
    policy = '{"spot":"require","interruptions":{"max":9}}'
    trainjob = {**TRAINJOB, "metadata": {"name": "train", "annotations": {"spotwright.dev/policy": policy}}}
    jobset = owned_by(a_jobset(), "trainer.kubeflow.org/v1alpha1", "TrainJob", "train")
    placed, _ = admitted(jobset, a_config("{default: {spot: never}}"), trainjob)
    assert placed["spec"]["failurePolicy"]["maxRestarts"] == 9 + 6 + MAX_MOVES
    assert list(placed["metadata"]["annotations"]) == [ADMITTED_ANNOTATION]


def test_a_train_job_has_no_warnings_of_what_its_job_set_will_get() -> None:
    assert list(admitted(TRAINJOB, a_config(), RUNTIME)[1].warnings) == []


def test_a_train_job_without_its_runtime_is_placed_on_its_job_set_without_a_warning() -> None:
    outcome = admit_object(TRAINJOB, a_config())
    assert (outcome.verdict, list(outcome.warnings)) == (Verdict.NOTHING_TO_DO, [])


@pytest.mark.parametrize(
    ("api_version", "kind", "verdict"),
    [
        ("example.com/v1", "Job", Verdict.UNKNOWN_KIND),
        ("v1", "ConfigMap", Verdict.UNKNOWN_KIND),
        ("batch/v2", "Job", Verdict.UNKNOWN_VERSION),
        ("jobset.x-k8s.io/v1beta9", "JobSet", Verdict.UNKNOWN_VERSION),
    ],
)
def test_unknown_kinds_and_generations_stay_as_they_are(api_version: str, kind: str, verdict: str) -> None:
    outcome = admit_object({**a_job(), "apiVersion": api_version, "kind": kind}, a_config())
    assert (outcome.verdict, outcome.patch) == (verdict, ())


def test_a_pod_without_a_policy_of_its_own_is_not_placed() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "debug"}, "spec": {"containers": [{"name": "sh"}]}}
    assert admit_object(pod, a_config()).verdict == Verdict.NO_POLICY
    pod["metadata"] = {"name": "debug", "labels": {"spotwright.dev/spot": "require"}}
    assert admit_object(pod, a_config()).verdict == Verdict.PLACED


def test_what_no_pool_fits_is_created_as_it_is_with_a_warning() -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "elsewhere"}
    outcome = admit_object(job, a_config())
    assert (outcome.verdict, outcome.patch) == (Verdict.UNPLACEABLE, ())
    assert outcome.warnings[0].startswith(
        "spotwright: not placed: spec.template.spec.nodeSelector.pool: job fits no pool"
    )


def test_malformed_fields_are_left_to_the_api_server() -> None:
    job = a_job()
    job["spec"]["template"]["spec"]["tolerations"] = "all"
    assert admit_object(job, a_config()).verdict == Verdict.UNPLACEABLE


def test_without_a_configuration_nothing_happens() -> None:
    assert admit_object(a_job(), None).verdict == Verdict.NO_CONFIGURATION


def a_volcano_job(**spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "main", "image": "train:1"}]}
    tasks = [{"name": "worker", "replicas": 2, "template": {"spec": pod}}]
    metadata = {"name": "v", "namespace": "team-a"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": {**spec, "tasks": tasks}
    }  # fmt: skip


@pytest.mark.parametrize("own", [{}, {"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}])
def test_a_job_of_volcano_is_placed_as_such_and_a_refused_pod_ends_it(own: dict[str, Any]) -> None:
    job, outcome = admitted(a_volcano_job(**own))

    assert outcome.verdict == Verdict.PLACED
    assert job["spec"]["policies"][0] == {"exitCode": 86, "action": "TerminateJob"}
    assert at_path(job, "spec.tasks.0.template.spec.tolerations.0.key") == KEY
    assert admitted(job)[1].verdict == Verdict.ALREADY_PLACED


@pytest.mark.parametrize(
    ("version", "kind", "owner"),
    [("ray.io/v1", "RayCluster", "RayService"), ("tekton.dev/v1", "TaskRun", "PipelineRun")],
)
def test_what_a_service_or_a_run_makes_follows_it(version: str, kind: str, owner: str) -> None:
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": "m", "namespace": "team-a"}, "spec": {}}

    assert admitted(owned_by(made, version, owner, "s"))[1].verdict == Verdict.OWNED


def test_a_run_of_tekton_reads_the_pipeline_that_it_names() -> None:
    run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r"}}

    assert referenced_objects({**run, "spec": {"pipelineRef": {"name": "p"}}}) == [("tekton.dev/v1", "Pipeline", "p")]
    assert referenced_objects({**run, "spec": {"pipelineRef": "p"}}) == []


PENDING = "{default: {spot: prefer, pending_timeout: 5m, timeout: 1h}}"


def test_what_the_controller_moves_has_no_warning_that_nothing_enforces_pending_timeout() -> None:
    assert list(admitted(a_job(), a_config(PENDING))[1].warnings) == []
    assert list(admitted(a_jobset(), a_config(PENDING))[1].warnings) == []
    assert list(admitted(TRAINJOB, a_config(PENDING), RUNTIME)[1].warnings) == []


def test_a_job_that_would_count_a_move_is_told_that_nothing_enforces_pending_timeout() -> None:
    job = a_job()
    own = [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    job["spec"]["podFailurePolicy"] = {"rules": own}
    (warning,) = admitted(job, a_config(PENDING))[1].warnings
    assert "pending_timeout" in warning
    assert "no effect here" in warning


EXPERIMENT = {
    "apiVersion": "kubeflow.org/v1beta1",
    "kind": "Experiment",
    "metadata": {"name": "grid", "namespace": "team-a", "labels": {"team": "a"}},
    "spec": {
        "parallelTrialCount": 2,
        "trialTemplate": {
            "primaryContainerName": "main",
            "trialSpec": {"apiVersion": "batch/v1", "kind": "Job", "spec": a_job()["spec"]},
        },
    },
}
TRIAL = "spec.trialTemplate.trialSpec"


def a_trial_s_job(experiment: dict[str, Any]) -> dict[str, Any]:
    """The Job that Katib makes of a trialSpec: with its annotations, a name, and the Trial as its owner."""
    job = at_path(experiment, TRIAL)
    owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "name": "grid-x", "uid": "u", "controller": True}
    metadata = {"name": "grid-x", "namespace": "team-a", "ownerReferences": [owner]}
    return {**job, "metadata": {**job.get("metadata", {}), **metadata}}


def a_suggestion_s_deployment(experiment: dict[str, Any]) -> dict[str, Any]:
    """The Deployment of the suggestion service: it and its pods have the labels and annotations of the Experiment.

    Source: kubeflow/katib v0.19.0, ``pkg/controller.v1beta1/suggestion/composer/composer.go`` and ``.../util/labels.go``.
    """
    labels, annotations = (experiment["metadata"].get(name, {}) for name in ("labels", "annotations"))
    owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Suggestion", "name": "grid", "uid": "s", "controller": True}
    pods = {"labels": {**labels, "katib.kubeflow.org/suggestion": "grid"}, "annotations": annotations}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "grid-random",
            "namespace": "team-a",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "selector": {"matchLabels": pods["labels"]},
            "template": {"metadata": pods, "spec": {"containers": [{"name": "suggestion", "image": "goptuna"}]}},
        },
    }


def test_nothing_of_an_experiment_s_placement_stands_where_katib_copies_it_to_the_suggestion() -> None:
    placed, outcome = admitted(EXPERIMENT)
    assert outcome.verdict == Verdict.PLACED
    assert placed["metadata"] == EXPERIMENT["metadata"]
    assert json.loads(at_path(placed, f"{TRIAL}.metadata.annotations")[ADMITTED_ANNOTATION])["v"] == 1
    assert "spotwright" not in json.dumps(a_suggestion_s_deployment(placed))


def test_a_marked_experiment_is_not_placed_again() -> None:
    assert admit_object(admitted(EXPERIMENT)[0], a_config()).verdict == Verdict.ALREADY_PLACED


def test_the_job_of_a_placed_trial_is_left_as_it_is() -> None:
    job = a_trial_s_job(admitted(EXPERIMENT)[0])
    assert admit_object(job, a_config()).verdict == Verdict.ALREADY_PLACED


def test_the_trainjob_of_a_placed_trial_is_placed_by_its_runtime_which_the_experiment_does_not_name() -> None:
    trial = {name: value for name, value in TRAINJOB.items() if name != "metadata"}
    experiment = {**EXPERIMENT, "spec": {"trialTemplate": {"trialSpec": trial}}}
    config = a_config("{default: {spot: require, grace_period: 20s}}")
    job = a_trial_s_job(admitted(experiment, config)[0])
    alone = {**job, "metadata": {**job["metadata"], "annotations": {}}}

    outcome = admit_object(job, config, [RUNTIME])

    assert outcome.verdict == admit_object(alone, config, [RUNTIME]).verdict
    assert not any("not placed" in warning for warning in outcome.warnings)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"spotwright.dev/spot": "require"}},
        {"annotations": {"spotwright.dev/policy": '{"spot": "require"}'}},
        {"labels": {"spotwright.dev/role": "worker"}},
    ],
)
def test_a_suggestion_that_has_its_experiment_s_policy_is_left_alone(metadata: dict[str, Any]) -> None:
    made = a_suggestion_s_deployment({"metadata": {"name": "grid", **metadata}})
    assert admit_object(made, a_config()).verdict == Verdict.OWNED


def test_an_experiment_that_is_applied_again_gets_back_what_the_apply_took_away() -> None:
    own = {"key": "dedicated", "operator": "Exists"}
    experiment = json.loads(json.dumps(EXPERIMENT))
    at_path(experiment, f"{TRIAL}.spec.template.spec")["tolerations"] = [own]
    placed, _ = admitted(experiment)
    applied = json.loads(json.dumps(placed))
    at_path(applied, f"{TRIAL}.spec.template.spec")["tolerations"] = [own]
    replaced = json.loads(json.dumps(experiment))  # kubectl replace takes the mark away too

    for update in (applied, replaced):
        outcome = restore_object(update, Update(placed), a_config())
        assert apply_patch(update, outcome.patch)["spec"] == placed["spec"]
