"""The training operator's jobs: which roles may be interrupted, their restart policies, and the bounds."""

from __future__ import annotations

import json

import pytest
from tests.placing.placed import PREFER, at_path, place, refusal

CONTAINERS = {
    "TFJob": ("tfReplicaSpecs", "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle"),
    "JAXJob": ("jaxReplicaSpecs", "jax"),
    "MPIJob": ("mpiReplicaSpecs", "mpi"),
}


def a_training(kind: str, *roles: str, spec: str = "", role: str = "", replicas: int = 1, version: str = "v1") -> str:
    field, container = CONTAINERS[kind]
    specs = "".join(
        f"""
    {name}:
      replicas: {replicas}{role}
      template:
        spec:
          containers:
          - {{name: {container}, image: trainer}}"""
        for name in roles
    )
    return f"""\
apiVersion: kubeflow.org/{version}
kind: {kind}
metadata: {{name: mnist}}
spec:{spec}
  {field}:{specs}
"""


def test_a_worker_gets_the_restart_policy_that_tells_interruptions_from_errors() -> None:
    outcome = place(a_training("TFJob", "Chief", "PS", "Worker"))

    specs = at_path(outcome.value, "spec.tfReplicaSpecs")
    assert specs["Worker"]["restartPolicy"] == "ExitCode"
    assert "restartPolicy" not in specs["Worker"]["template"]["spec"]
    assert "143" in outcome.roles["mnist/worker"].after_interruption


@pytest.mark.parametrize(
    ("kind", "kept", "goes"),
    [
        ("TFJob", ["Chief", "PS"], ["Worker", "Evaluator"]),
        ("TFJob", ["Master"], ["Worker"]),
        ("PyTorchJob", ["Master"], ["Worker"]),
        ("XGBoostJob", ["Master"], ["Worker"]),
        ("PaddleJob", ["Master"], ["Worker"]),
        ("MPIJob", ["Launcher"], ["Worker"]),
        ("JAXJob", [], ["Worker"]),
    ],
)
def test_roles_that_others_depend_on_stay_on_on_demand(kind: str, kept: list[str], goes: list[str]) -> None:
    outcome = place(a_training(kind, *kept, *goes))

    assert {name: role.pools for name, role in outcome.roles.items()} == {
        **{f"mnist/{name.lower()}": ("regular",) for name in kept},
        **{f"mnist/{name.lower()}": ("spot", "regular") for name in goes},
    }


def test_a_role_that_stays_keeps_off_spot_nodes_and_is_not_restarted_otherwise() -> None:
    specs = at_path(place(a_training("TFJob", "PS", "Worker")).value, "spec.tfReplicaSpecs")

    assert "restartPolicy" not in specs["PS"]
    assert at_path(specs, "PS.template.metadata.labels") == {"spotwright.dev/spot": "never"}
    assert (
        at_path(specs, "PS.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")
        is not None
    )


def test_a_master_that_is_the_whole_job_goes() -> None:
    outcome = place(a_training("PyTorchJob", "Master"))

    assert outcome.roles["mnist/master"].pools == ("spot", "regular")


def test_the_user_can_say_that_parameter_servers_go() -> None:
    policy = "{default: {spot: prefer}, tasks: {'*/ps': {spot: require}}}"

    assert place(a_training("TFJob", "PS", "Worker"), policy).roles["mnist/ps"].pools == ("spot",)


def test_a_policy_that_says_nothing_about_spot_moves_no_role() -> None:
    text = a_training("TFJob", "PS", "Worker")

    assert place(text, "{default: {errors: {retries: 1}}}").text == text


@pytest.mark.parametrize(
    ("given", "messages"),
    [("Never", "an interruption with a notice fails the job"), ("OnFailure", "errors of the code")],
)
def test_a_restart_policy_that_the_user_wrote_stays_and_its_effect_is_named(given: str, messages: str) -> None:
    outcome = place(a_training("TFJob", "Worker", role=f"\n      restartPolicy: {given}"))

    assert at_path(outcome.value, "spec.tfReplicaSpecs.Worker.restartPolicy") == given
    assert outcome.reports("work.yaml:8", f"restartPolicy {given} stays", messages)


@pytest.mark.parametrize("given", ["OnFailure", "Always"])
def test_a_failed_pod_of_an_xgboost_job_is_created_again_under_exit_code_alone(given: str) -> None:
    text = a_training("XGBoostJob", "Worker", role=f"\n      restartPolicy: {given}")
    outcome, other = place(text), place(text.replace("XGBoost", "Paddle").replace("xgb", "paddle"))

    expected = f"restartPolicy {given} stays (--replace-retries): an interruption with a notice fails the job"
    assert outcome.reports("work.yaml:8", expected)
    assert outcome.roles["mnist/worker"].after_interruption.startswith("the job fails; only if the node goes")
    assert other.roles["mnist/worker"].after_interruption.startswith("the pod is created again, as after any error")


def test_replace_retries_replaces_the_restart_policy() -> None:
    outcome = place(
        a_training("TFJob", "Worker", role="\n      restartPolicy: Never  # the default"), replace_retries=True
    )

    assert at_path(outcome.value, "spec.tfReplicaSpecs.Worker.restartPolicy") == "ExitCode"
    assert "# the default" in outcome.text


@pytest.mark.parametrize("spec", ["", "\n  elasticPolicy: {rdzvHost: mnist-master-0}"])
@pytest.mark.parametrize(
    ("kind", "stays"), [("PyTorchJob", True), ("PaddleJob", True), ("JAXJob", False), ("TFJob", False)]
)
def test_an_error_that_the_operator_would_retry_is_retried(kind: str, stays: bool, spec: str) -> None:
    outcome = place(a_training(kind, "Worker", spec=spec), "{default: {spot: prefer}}")
    [worker] = [one["Worker"] for name, one in outcome.value["spec"].items() if name.endswith("ReplicaSpecs")]

    assert worker.get("restartPolicy") == (None if stays else "ExitCode")
    assert outcome.reports("restartPolicy OnFailure, the operator's default, stays") is stays


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_a_policy_without_retries_ends_the_job_at_an_error(kind: str) -> None:
    outcome = place(a_training(kind, "Worker"), "{default: {spot: prefer, errors: {retries: 0}}}")
    [worker] = [one["Worker"] for name, one in outcome.value["spec"].items() if name.endswith("ReplicaSpecs")]

    assert worker["restartPolicy"] == "ExitCode"


@pytest.mark.parametrize(
    ("given", "role", "retries"),
    [
        ("", "", 10_000),
        ("", "\n      restartPolicy: OnFailure", 10_000),
        ("\n  runPolicy: {backoffLimit: 4}", "\n      restartPolicy: Always", 4),
        ("\n  runPolicy: {backoffLimit: 4}", "", 4),
    ],
)
def test_pods_may_fail_as_often_as_the_operator_alone_lets_them(given: str, role: str, retries: int) -> None:
    outcome = place(a_training("PyTorchJob", "Worker", spec=given, role=role), "{default: {spot: prefer}}")
    pod = at_path(outcome.value, "spec.pytorchReplicaSpecs.Worker.template")

    assert json.loads(pod["metadata"]["annotations"]["spotwright.dev/policy"])["errors"] == {"retries": retries}
    assert at_path(outcome.value, "spec.runPolicy.backoffLimit") == (None if retries == 10_000 else 4)


@pytest.mark.parametrize("role", ["", "\n      restartPolicy: OnFailure"])
@pytest.mark.parametrize("policy", ["fall_back_after: 1", "interruptions: {max: 10}"])
def test_the_deadline_of_endless_retries_has_room_for_the_interruptions_of_the_policy_and_six_errors(
    role: str, policy: str
) -> None:
    outcome = place(
        a_training("PyTorchJob", "Worker", role=role), f"{{default: {{spot: prefer, timeout: 1h, {policy}}}}}"
    )

    assert 17 * 3600 < at_path(outcome.value, "spec.runPolicy.activeDeadlineSeconds") < 25 * 3600
    assert outcome.reports("has room for 10 interruptions and 6 errors", "the operator alone bounds neither")


@pytest.mark.parametrize(("kind", "errors"), [("TFJob", 0), ("PyTorchJob", 6)])
def test_with_a_timeout_the_deadline_ends_interruptions_and_nothing_is_counted(kind: str, errors: int) -> None:
    policy = "{default: {spot: prefer, timeout: 1h, interruptions: {max: 1, backoff: 5s}, pending_timeout: 10m}}"
    run = at_path(place(a_training(kind, "Worker"), policy).value, "spec.runPolicy")

    between = sum(2**number for number in range(errors))
    tries = 2 + errors
    assert run == {"activeDeadlineSeconds": tries * 3600 + tries * 600 + 5 + between, "cleanPodPolicy": "Running"}


def test_without_a_timeout_the_limit_is_written_with_a_warning_about_uncounted_pods() -> None:
    outcome = place(a_training("PyTorchJob", "Master", "Worker"), "{default: {spot: prefer, errors: {retries: 2}}}")

    assert at_path(outcome.value, "spec.runPolicy.backoffLimit") == 12
    assert outcome.reports("backoffLimit 12", "no pods that are created again", "give the policy a timeout")


def test_a_deadline_that_the_user_wrote_is_the_bound() -> None:
    text = a_training("TFJob", "Worker", spec="\n  runPolicy: {activeDeadlineSeconds: 900}")
    outcome = place(text)

    assert at_path(outcome.value, "spec.runPolicy") == {"activeDeadlineSeconds": 900, "cleanPodPolicy": "Running"}
    assert not outcome.reports("backoffLimit")


def test_retries_of_errors_that_exit_code_cannot_give_are_named() -> None:
    assert place(a_training("TFJob", "Worker"), "{default: {spot: prefer, errors: {retries: 2}}}").reports(
        "errors.retries 2 has no effect here"
    )


def test_pods_that_would_hold_their_nodes_after_the_end_are_named() -> None:
    outcome = place(a_training("TFJob", "Worker", spec="\n  runPolicy: {cleanPodPolicy: None}"))

    assert at_path(outcome.value, "spec.runPolicy.cleanPodPolicy") == "None"
    assert outcome.reports("keep their nodes")


def test_a_warning_names_the_exit_codes_for_workers_that_lose_a_peer() -> None:
    together = place(a_training("PyTorchJob", "Master", "Worker", replicas=1))
    with_servers = place(a_training("TFJob", "PS", "Worker", replicas=4))
    alone = place(a_training("PyTorchJob", "Master"))

    assert together.reports("Worker: if one pod is lost, the others lose their peer", "128 or more")
    assert not with_servers.reports("lose their peer")
    assert not alone.reports("lose their peer")


def test_an_elastic_job_gets_restarts_for_the_members_it_loses() -> None:
    outcome = place(a_training("PyTorchJob", "Worker", spec="\n  elasticPolicy: {rdzvBackend: c10d}"))

    assert at_path(outcome.value, "spec.elasticPolicy.maxRestarts") == 10
    assert not outcome.reports("lose their peer")


@pytest.mark.parametrize(
    ("policy", "warned"),
    [("rdzvBackend: c10d", True), ("rdzvBackend: etcd-v2", False), ("rdzvHost: mnist-master-0", False)],
)
def test_an_elastic_job_that_meets_at_a_worker_is_warned(policy: str, warned: bool) -> None:
    outcome = place(a_training("PyTorchJob", "Worker", spec=f"\n  elasticPolicy: {{{policy}}}"))

    assert outcome.reports("worker-0", "rdzvHost") is warned


def test_a_container_that_the_webhook_demands_is_missed() -> None:
    text = a_training("TFJob", "Worker").replace("name: tensorflow", "name: my-training-process")

    assert place(text).reports("work.yaml:10", "a container named tensorflow")


def test_a_warning_reports_that_a_restart_policy_in_the_pod_template_is_replaced() -> None:
    text = a_training("TFJob", "Worker").replace(
        "          containers:", "          restartPolicy: Never\n          containers:"
    )
    outcome = place(text)

    assert outcome.reports("the operator replaces this")
    assert at_path(outcome.value, "spec.tfReplicaSpecs.Worker.template.spec.restartPolicy") == "Never"


def test_a_pod_spec_without_its_template_is_refused_as_in_the_tutorial() -> None:
    text = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {generateName: tfjob}
spec:
  tfReplicaSpecs:
    Worker:
      spec:
        nodeSelector: {a-custom-key.io/my-key: a-custom-value}
"""
    assert refusal(text).startswith("work.yaml:7: spec.tfReplicaSpecs.Worker.spec: ")
    assert refusal(text).endswith("it belongs under spec.tfReplicaSpecs.Worker.template.spec")


@pytest.mark.parametrize(
    ("spec", "role", "right"),
    [
        ("\n  nodeSelector: {a: b}", "", "spec.tfReplicaSpecs.Worker.template.spec.nodeSelector"),
        ("\n  cleanPodPolicy: Running", "", "spec.runPolicy.cleanPodPolicy"),
        ("\n  backoffLimit: 3", "", "spec.runPolicy.backoffLimit"),
        ("", "\n      affinity: {}", "spec.tfReplicaSpecs.Worker.template.spec.affinity"),
        ("", "\n      backoffLimit: 3", "spec.runPolicy.backoffLimit"),
    ],
)
def test_a_field_at_the_wrong_level_is_refused_with_the_right_path(spec: str, role: str, right: str) -> None:
    assert refusal(a_training("TFJob", "Worker", spec=spec, role=role)).endswith(f"it belongs under {right}")


def test_a_job_without_roles_is_refused() -> None:
    assert "tfReplicaSpecs" in refusal("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {}\n")


def test_an_mpi_job_of_version_1_is_warned_of_evictions_and_tries_nothing_again() -> None:
    outcome = place(a_training("MPIJob", "Launcher", "Worker"))

    assert "restartPolicy" not in at_path(outcome.value, "spec.mpiReplicaSpecs.Worker")
    assert at_path(outcome.value, "spec.runPolicy") == {"cleanPodPolicy": "Running"}
    assert outcome.reports("ends as Evicted fails the whole job")


def test_an_mpi_job_of_version_1_may_have_its_clean_pod_policy_in_the_spec() -> None:
    text = a_training("MPIJob", "Launcher", "Worker", spec="\n  cleanPodPolicy: Running")

    assert at_path(place(text).value, "spec.runPolicy") is None


def test_the_launcher_of_an_mpi_job_of_version_2_starts_again_so_often_and_no_more() -> None:
    outcome = place(a_training("MPIJob", "Launcher", "Worker", version="v2beta1"), PREFER)

    assert at_path(outcome.value, "spec.runPolicy.backoffLimit") == 10
    assert outcome.roles["mnist/launcher"].pools == ("regular",)
    assert "the launcher restarts" in outcome.roles["mnist/worker"].after_interruption


def test_another_version_of_a_training_job_is_named_and_left_alone() -> None:
    text = a_training("TFJob", "Worker", version="v1beta2")
    outcome = place(text)

    assert outcome.text == text
    assert outcome.reports("work.yaml:1", "write kubeflow.org/v1")
