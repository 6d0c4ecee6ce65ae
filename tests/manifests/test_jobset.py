"""JobSet: which jobs go, and that an interrupted one starts the whole set again, so often and no more."""

from __future__ import annotations

import pytest
from tests.manifests.placing import PREFER, found, place, refusal

DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]
FAIL = {"action": "FailJob", "onPodConditions": DISRUPTED}


def a_jobset(*names: str, spec: str = "", job: str = "", pod: str = "") -> str:
    members = "".join(
        f"""
  - name: {name}
    template:
      spec:{job}
        template:
          spec:{pod}
            containers: [{{name: main, image: trainer}}]"""
        for name in names
    )
    return f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: mnist}}
spec:{spec}
  replicatedJobs:{members}
"""


def test_an_interruption_fails_the_child_job_at_once_and_restarts_the_set() -> None:
    outcome = place(a_jobset("workers"), "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 1}}}")

    child = found(outcome.value, "spec.replicatedJobs.0.template.spec")
    assert child["podFailurePolicy"] == {"rules": [FAIL]}
    assert (child["backoffLimit"], child["template"]["spec"]["restartPolicy"]) == (0, "Never")
    policy = found(outcome.value, "spec.failurePolicy")
    assert policy["maxRestarts"] == 5
    assert [(rule["action"], rule["onJobFailureReasons"]) for rule in policy["rules"]] == [
        ("RestartJobSet", ["PodFailurePolicy"])
    ]
    assert outcome.roles["mnist/workers"].after_interruption.startswith("the whole set starts again, counted")


def test_restarts_are_never_left_uncounted_because_nothing_else_ends_them() -> None:
    outcome = place(a_jobset("workers"), "{default: {spot: prefer, timeout: 1h}}")

    assert "IgnoreMaxRestarts" not in outcome.text
    assert outcome.says("maxRestarts 10 counts interruptions (10) and errors (0) together", "no other end")


def test_a_timeout_bounds_each_round_of_the_set() -> None:
    outcome = place(a_jobset("workers"), "{default: {spot: prefer, timeout: 1h, pending_timeout: 5m}}")

    assert found(outcome.value, "spec.replicatedJobs.0.template.spec.activeDeadlineSeconds") == 3900


@pytest.mark.parametrize("leader", ["leader", "driver", "coordinator", "mpi-launcher", "master-0", "ps", "Chief"])
def test_the_job_that_all_others_depend_on_stays_on_on_demand(leader: str) -> None:
    outcome = place(a_jobset(leader, "workers"))

    assert outcome.roles[f"mnist/{leader.lower()}"].pools == ("regular",)
    assert outcome.roles["mnist/workers"].pools == ("spot", "regular")
    assert found(outcome.value, "spec.replicatedJobs.0.template.spec.podFailurePolicy") is None


def test_a_job_called_leader_that_is_alone_goes() -> None:
    assert place(a_jobset("leader")).roles["mnist/leader"].pools == ("spot", "regular")


def test_the_user_can_say_that_a_leader_goes() -> None:
    policy = "{default: {spot: prefer}, tasks: {mnist/leader: {spot: require}}}"

    assert place(a_jobset("leader", "workers"), policy).roles["mnist/leader"].pools == ("spot",)


def test_a_coordinator_with_one_pod_stays_and_one_with_many_goes() -> None:
    one = a_jobset("first", "others", spec="\n  coordinator: {replicatedJob: first}")
    many = a_jobset("first", "others", spec="\n  coordinator: {replicatedJob: first}", job="\n        parallelism: 4")

    assert place(one).roles["mnist/first"].pools == ("regular",)
    assert place(many).roles["mnist/first"].pools == ("spot", "regular")


def test_a_limit_of_restarts_that_the_user_wrote_stays_and_is_named() -> None:
    outcome = place(a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}"))

    assert found(outcome.value, "spec.failurePolicy.maxRestarts") == 3
    assert outcome.says("work.yaml:5: warning", "maxRestarts 3 stays, the policy says 10")
    assert outcome.roles["mnist/workers"].after_interruption.endswith("maxRestarts 3")


def test_replace_retries_replaces_the_limit_of_restarts() -> None:
    outcome = place(a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}"), replace_retries=True)

    assert found(outcome.value, "spec.failurePolicy.maxRestarts") == 10


IGNORING = """
  failurePolicy:
    maxRestarts: 3
    rules:
    - {name: own, action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}"""


def test_a_rule_of_the_users_that_counts_nothing_stays_and_is_named() -> None:
    outcome = place(a_jobset("workers", spec=IGNORING))

    assert len(found(outcome.value, "spec.failurePolicy.rules")) == 1
    assert outcome.says("RestartJobSetAndIgnoreMaxRestarts", "have no end")
    assert "not counted" in outcome.roles["mnist/workers"].after_interruption


def test_replace_retries_puts_the_counted_rule_first() -> None:
    rules = found(place(a_jobset("workers", spec=IGNORING), replace_retries=True).value, "spec.failurePolicy.rules")

    assert [rule["action"] for rule in rules] == ["RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]


def test_a_rule_for_another_job_does_not_speak_for_this_one() -> None:
    spec = (
        "\n  failurePolicy: {maxRestarts: 10, rules: [{name: a, action: FailJobSet, targetReplicatedJobs: [leader]}]}"
    )
    outcome = place(a_jobset("leader", "workers", spec=spec))

    assert outcome.roles["mnist/workers"].after_interruption.startswith("the whole set starts again, counted")


def test_a_rule_that_fails_the_set_at_an_interruption_is_named() -> None:
    spec = "\n  failurePolicy: {maxRestarts: 10, rules: [{name: a, action: FailJobSet}]}"
    outcome = place(a_jobset("workers", spec=spec))

    assert outcome.says("this rule says FailJobSet for an interruption")
    assert outcome.roles["mnist/workers"].after_interruption == "the set fails"


def test_a_child_that_restarts_its_containers_is_left_and_named() -> None:
    outcome = place(a_jobset("workers", pod="\n            restartPolicy: OnFailure"))

    child = found(outcome.value, "spec.replicatedJobs.0.template.spec")
    assert "podFailurePolicy" not in child
    assert outcome.says("restartPolicy OnFailure stays", "made again alone")


def test_replace_retries_makes_a_child_fail_at_once() -> None:
    text = a_jobset("workers", job="\n        backoffLimit: 4", pod="\n            restartPolicy: OnFailure")
    child = found(place(text, replace_retries=True).value, "spec.replicatedJobs.0.template.spec")

    assert child["podFailurePolicy"] == {"rules": [FAIL]}
    assert (child["backoffLimit"], child["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_a_child_that_ignores_interruptions_is_left_and_named() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"
    outcome = place(a_jobset("workers", job=own))

    assert outcome.says("this rule says Ignore", "made again alone")
    assert outcome.roles["mnist/workers"].after_interruption.startswith(
        "the pod alone is made again, which is not counted"
    )


def test_pods_that_restart_in_place_keep_the_job_fields_that_need_it() -> None:
    outcome = place(a_jobset("workers", spec="\n  failurePolicy: {restartStrategy: InPlaceRestart}"))

    assert set(found(outcome.value, "spec.replicatedJobs.0.template.spec")) == {"template"}
    assert found(outcome.value, "spec.failurePolicy.maxRestarts") == 10
    assert found(outcome.value, "spec.failurePolicy.rules") is None


def test_all_jobs_of_a_set_share_one_place_for_checkpoints() -> None:
    outcome = place(a_jobset("leader", "workers"), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")

    mounts = [
        found(
            outcome.value,
            f"spec.replicatedJobs.{index}.template.spec.template.spec.containers.0.volumeMounts.0.subPathExpr",
        )
        for index in (0, 1)
    ]
    assert mounts == ["$(SPOTWRIGHT_RUN)/mnist"] * 2


@pytest.mark.parametrize(
    ("spec", "job", "right"),
    [
        ("\n  tolerations: []", "", "spec.replicatedJobs[0].template.spec.template.spec.tolerations"),
        ("\n  maxRestarts: 3", "", "spec.failurePolicy.maxRestarts"),
        ("\n  backoffLimit: 3", "", "spec.replicatedJobs[0].template.spec.backoffLimit"),
        ("", "\n        nodeSelector: {a: b}", "spec.replicatedJobs[0].template.spec.template.spec.nodeSelector"),
    ],
)
def test_a_field_at_the_wrong_level_is_refused_with_the_right_path(spec: str, job: str, right: str) -> None:
    assert refusal(a_jobset("workers", spec=spec, job=job)).endswith(f"it belongs under {right}")


def test_a_queued_set_gets_tolerations_and_no_affinity() -> None:
    text = a_jobset("workers").replace("{name: mnist}", "{name: mnist, labels: {kueue.x-k8s.io/queue-name: team}}")
    pod = found(place(text, PREFER).value, "spec.replicatedJobs.0.template.spec.template.spec")

    assert pod["tolerations"]
    assert "affinity" not in pod
