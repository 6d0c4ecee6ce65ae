"""A TrainJob changes its runtime's pods in the field of its release, and keeps all values of the runtime."""

from __future__ import annotations

from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.kubeflow.runtimes import OURS, SPOT, TEAM, TOLERANT, a_runtime
from tests.kinds.schemas import load, strange
from tests.placing.placed import PREFER, SHARED, Outcome, at_path
from tests.placing.placed import place as place_any

from spotwright.placing.documents import ManifestError

CRDS = SHARED / "crds"


def a_trainjob(spec: str = "", *, runtime: str = "{name: torch}", metadata: str = "{name: mnist}") -> str:
    return f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {metadata}
spec:
  runtimeRef: {runtime}
{spec}"""


SETTLED = a_runtime(job_set="\n      failurePolicy: {maxRestarts: 3}")


def place(text: str, policy: str = PREFER, *, trainer: str = "2.3", beside: str = TOLERANT, **more: Any) -> Outcome:
    target = f"{{kubernetes: '1.33', trainer: '{trainer}'}}" if trainer else "{kubernetes: '1.33'}"
    return place_any(text, policy, target=target, beside=beside, **more)


def refusal(text: str, policy: str = PREFER, **more: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        place(text, policy, **more)
    return str(caught.value)


def patched(outcome: Outcome, job: str = "node") -> Any:
    """The pod template that our entry in ``runtimePatches`` gives a replicated job."""
    [entry] = [one for one in outcome.value["spec"]["runtimePatches"] if one["manager"] == OURS]
    jobs = at_path(entry, "trainingRuntimeSpec.template.spec.replicatedJobs")
    [wanted] = [one for one in jobs if one["name"] == job]
    return wanted["template"]["spec"]["template"]


def a_patch(spec: str, manager: str = "example.io/mine", job: str = "node") -> str:
    pod = f"{{template: {{spec: {{template: {{spec: {spec}}}}}}}}}"
    jobs = f"[{{name: {job}, {pod[1:-1]}}}]"
    return f"  - manager: {manager}\n    trainingRuntimeSpec: {{template: {{spec: {{replicatedJobs: {jobs}}}}}}}\n"


def test_a_patch_has_what_the_runtime_tolerates_because_it_replaces_that() -> None:
    assert patched(place(a_trainjob()))["spec"]["tolerations"] == [TEAM, SPOT]


def test_a_patch_has_the_terms_of_the_runtime_because_it_replaces_them() -> None:
    term = "{weight: 1, preference: {matchExpressions: [{key: disk, operator: Exists}]}}"
    beside = a_runtime(
        pod=f"\n                affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{term}]}},"
        " podAffinity: {}}"
    )
    affinity = patched(place(a_trainjob(), beside=beside))["spec"]["affinity"]

    weights = [one["weight"] for one in affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]]
    assert weights == [1, 100]
    assert set(affinity) == {"nodeAffinity"}


def test_all_jobs_are_in_one_entry_of_ours() -> None:
    outcome = place(a_trainjob(), beside=a_runtime("dataset-initializer", "model-initializer", "node", "launcher"))

    assert len(outcome.value["spec"]["runtimePatches"]) == 1
    for job in ("dataset-initializer", "model-initializer", "node"):
        assert outcome.roles[f"mnist/{job}"].pools == ("spot", "regular")
    assert outcome.roles["mnist/launcher"].pools == ("regular",)
    assert "tolerations" not in patched(outcome, "launcher")["spec"]


@pytest.mark.parametrize(("trainer", "has_grace"), [("2.2", False), ("2.3", True), ("2.4", True)])
def test_each_release_gets_what_it_can_set(trainer: str, has_grace: bool) -> None:
    outcome = place(a_trainjob(), trainer=trainer, beside=SETTLED)

    assert set(outcome.value["spec"]) == {"runtimeRef", "trainer", "runtimePatches"}
    assert "affinity" in outcome.text
    assert ("terminationGracePeriodSeconds" in outcome.text) is has_grace
    assert outcome.reports("a TrainJob of trainer 2.2 cannot set terminationGracePeriodSeconds") is not has_grace


@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ("  runtimePatches: []\n", "trainer 2.2 (it has runtimePatches)"),
        (
            f"  runtimePatches:\n{a_patch('{terminationGracePeriodSeconds: 9}')}",
            "trainer 2.3 (it has runtimePatches)",
        ),
        ("", "trainer 2.3 (the newest known)"),
    ],
)
def test_without_a_target_the_release_is_derived_from_the_fields_with_a_note(spec: str, taken: str) -> None:
    assert place(a_trainjob(spec), trainer="").reports(f"treated as for {taken}", "target: {trainer: ...}")


@pytest.mark.parametrize("trainer", ["", "2.2", "2.3"])
@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("  podSpecOverrides: []\n", "spec.podSpecOverrides"),
        ("  podTemplateOverrides: []\n", "spec.podTemplateOverrides"),
        ("  trainer: {podTemplateOverrides: []}\n", "spec.trainer.podTemplateOverrides"),
    ],
)
def test_a_field_of_an_older_release_is_refused_because_it_would_be_dropped(spec: str, path: str, trainer: str) -> None:
    message = refusal(a_trainjob(spec), trainer=trainer)

    assert message == (
        f"work.yaml:6: {path}: trainer 2.2 and later silently drop this field; write it as spec.runtimePatches"
    )


def test_what_a_release_cannot_set_is_refused_where_it_stands() -> None:
    message = refusal(a_trainjob(f"  runtimePatches:\n{a_patch('{terminationGracePeriodSeconds: 9}')}"), trainer="2.2")

    assert "trainer 2.2 drops this field here; set it in the pod template of the runtime" in message


def test_an_entry_of_the_users_that_sets_tolerations_gets_ours_because_it_would_hide_them() -> None:
    text = a_trainjob(f"  runtimePatches:\n{a_patch('{tolerations: [{key: own, operator: Exists}]}')}")
    outcome = place(text)

    [theirs] = [one for one in outcome.value["spec"]["runtimePatches"] if one["manager"] != OURS]
    pod = at_path(theirs, "trainingRuntimeSpec.template.spec.replicatedJobs.0.template.spec.template.spec")
    assert pod["tolerations"] == [SPOT, {"key": "own", "operator": "Exists"}]
    assert "tolerations" not in patched(outcome)["spec"]
    assert "affinity" in patched(outcome)["spec"]


def test_kueues_entry_is_left_and_named() -> None:
    kueue = a_patch("{tolerations: [{key: flavor, operator: Exists}]}", "kueue.x-k8s.io/manager")
    outcome = place(a_trainjob(f"  runtimePatches:\n{kueue}"))

    assert "tolerations: [{key: flavor, operator: Exists}]" in outcome.text
    assert outcome.reports("Kueue's own entry stays")


def test_an_entry_of_ours_without_a_record_is_refused() -> None:
    message = refusal(a_trainjob(f"  runtimePatches:\n{a_patch('{}', OURS)}"))

    assert "an entry of spotwright.dev/placement without a placement record; remove it" in message


def test_a_job_that_the_runtime_has_not_is_refused_as_the_webhook_would() -> None:
    message = refusal(a_trainjob(f"  runtimePatches:\n{a_patch('{nodeSelector: {}}', job='worker')}"))

    assert "the runtime has no replicated job worker, only node" in message


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
def test_without_its_runtime_a_trainjob_stays_unchanged_with_the_missing_option_named(kind: str) -> None:
    text = a_trainjob(runtime=f"{{name: torch, kind: {kind}}}")
    outcome = place(text, beside="")

    assert outcome.text == text
    assert outcome.reports(f"{kind} torch, which was not given; pass it with --with (kubectl get {kind.lower()} torch")


def test_a_namespaced_runtime_is_that_of_the_same_namespace() -> None:
    text = a_trainjob(runtime="{name: torch, kind: TrainingRuntime}", metadata="{name: mnist, namespace: team}")
    other = a_runtime(kind="TrainingRuntime").replace("{name: torch}", "{name: torch, namespace: other}")

    assert place(text, beside=other).text == text
    assert place(text, beside=other.replace("namespace: other", "namespace: team")).text != text


def test_resources_of_the_trainer_choose_the_pools() -> None:
    spec = "  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 1}}}\n"

    assert place(a_trainjob(spec)).roles["mnist/node"].pools == ("gpu-spot", "gpu")


def test_the_environment_is_set_on_the_trainer_alone() -> None:
    spec = "  trainer: {env: [{name: SPOTWRIGHT_TASK, value: mine}]}\n"
    outcome = place(a_trainjob(spec), beside=a_runtime("dataset-initializer", "node"))

    env = {item["name"]: item for item in outcome.value["spec"]["trainer"]["env"]}
    assert env["SPOTWRIGHT_TASK"]["value"] == "mine"
    assert env["SPOTWRIGHT_RUN"]["valueFrom"]["fieldRef"]["fieldPath"].endswith("jobset-name']")
    assert "env" not in plain_yaml.dump(outcome.value["spec"]["runtimePatches"])


def test_checkpoints_are_mounted_where_the_training_runs() -> None:
    outcome = place(
        a_trainjob(),
        "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}",
        beside=a_runtime("model-initializer", "node"),
    )

    pod = patched(outcome)["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "ckpt"}
    assert pod["containers"][0]["volumeMounts"][0]["subPathExpr"] == "$(SPOTWRIGHT_RUN)/mnist"
    assert "volumes" not in patched(outcome, "model-initializer")["spec"]


def test_secrets_are_added_to_those_of_the_runtime() -> None:
    beside = a_runtime(pod="\n                imagePullSecrets: [{name: team}]")
    outcome = place(a_trainjob(), "{default: {spot: prefer, image_pull_secrets: [acr]}}", beside=beside)

    assert patched(outcome)["spec"]["imagePullSecrets"] == [{"name": "acr"}]


def test_kueue_decides_by_its_flavors() -> None:
    outcome = place(a_trainjob(metadata="{name: mnist, labels: {kueue.x-k8s.io/queue-name: team}}"))

    assert "affinity" not in patched(outcome)["spec"]


def test_a_runtime_of_the_same_file_gets_its_failure_policy_there() -> None:
    outcome = place(f"{a_runtime()}---\n{a_trainjob()}", beside="")

    assert not outcome.reports("no failure policy")
    assert outcome.documents[0]["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] == 10
    assert "torch (work.yaml) decides" in outcome.roles["mnist/node"].after_interruption


UNCOUNTED = """
      failurePolicy: {rules: [{name: r, action: RestartJobSetAndIgnoreMaxRestarts}]}"""


def test_restarts_that_the_runtime_does_not_count_end_with_a_deadline() -> None:
    policy = "{default: {spot: prefer, timeout: 1h, pending_timeout: 5m, interruptions: {max: 1, backoff: 0s}, "
    policy += "errors: {retries: 0}}}"
    outcome = place(a_trainjob(), policy, beside=a_runtime(job_set=UNCOUNTED))

    assert outcome.value["spec"]["activeDeadlineSeconds"] == 2 * (3600 + 300)
    own = place(a_trainjob("  activeDeadlineSeconds: 60\n"), policy, beside=a_runtime(job_set=UNCOUNTED))
    assert own.value["spec"]["activeDeadlineSeconds"] == 60
    assert own.reports("activeDeadlineSeconds stays; the policy allows 7800")


def test_restarts_without_an_end_are_named() -> None:
    outcome = place(a_trainjob(), beside=a_runtime(job_set=UNCOUNTED))

    assert outcome.reports("the runtime restarts it without counting: give the policy a timeout")


@pytest.mark.parametrize(
    ("spec", "right"),
    [
        ("  tolerations: []\n", "spec.runtimePatches.tolerations"),
        ("  trainer: {nodeSelector: {}}\n", "spec.runtimePatches.nodeSelector"),
        ("  backoffLimit: 3\n", "only the runtime can have it"),
        ("  failurePolicy: {}\n", "only the runtime can have it"),
    ],
)
def test_fields_at_the_wrong_level_are_refused(spec: str, right: str) -> None:
    message = refusal(a_trainjob(spec))

    assert message.startswith("work.yaml:6: ")
    assert "the API server would drop this field here" in message
    assert right in message


def test_a_trainjob_without_a_runtime_is_refused() -> None:
    assert "spec.runtimeRef: expected the name of a runtime" in refusal(a_trainjob(runtime="{}"))


def test_without_a_policy_the_job_stays_unchanged() -> None:
    text = a_trainjob()

    assert place(text, "{default: {errors: {retries: 1}}}").text == text


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_runtime_is_placed_as_the_job_set_it_will_be(kind: str) -> None:
    outcome = place(a_runtime("model-initializer", "node", "launcher", kind=kind), beside="")

    spec = outcome.value["spec"]["template"]["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == 10
    child = spec["replicatedJobs"][1]["template"]["spec"]
    assert (child["backoffLimit"], child["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert child["template"]["spec"]["tolerations"] == [SPOT]
    assert "backoffLimit" not in spec["replicatedJobs"][2]["template"]["spec"]
    assert outcome.roles["torch/launcher"].pools == ("regular",)
    assert outcome.roles["torch/node"].frozen == "TrainJobs that have started keep the old runtime"


def test_a_runtimes_field_at_the_wrong_level_is_refused() -> None:
    message = refusal(a_runtime(spec="  nodeSelector: {}\n"), beside="")

    assert "spec.template.spec.replicatedJobs[0].template.spec.template.spec.nodeSelector" in message


@pytest.mark.skipif(not CRDS.is_dir(), reason="the schemas are not beside this project")
@pytest.mark.parametrize(
    "policy", [PREFER, "{default: {spot: require, checkpoint: 'pvc://c', image_pull_secrets: [acr]}}"]
)
@pytest.mark.parametrize("trainer", ["2.2", "2.3"])
def test_what_is_written_is_known_to_the_schema_of_its_release(trainer: str, policy: str) -> None:
    schema = load(CRDS / f"trainer-v{trainer}.0" / "trainjob.json.gz", "v1alpha1")
    outcome = place(a_trainjob("  trainer: {numNodes: 2}\n"), policy, trainer=trainer)

    assert list(strange(schema, outcome.value)) == []
    runtime = load(CRDS / f"trainer-v{trainer}.0" / "clustertrainingruntime.json.gz", "v1alpha1")
    assert list(strange(runtime, place(TOLERANT, policy, trainer=trainer, beside="").value)) == []


def test_a_selector_of_the_job_against_the_policy_is_named_where_it_stands() -> None:
    patch = a_patch("{nodeSelector: {kubernetes.azure.com/scalesetpriority: nope}}")
    message = refusal(a_trainjob(f"  runtimePatches:\n{patch}"))

    assert message.startswith("work.yaml:8: ")
    assert "nodeSelector.kubernetes.azure.com/scalesetpriority: node fits no pool" in message
