"""JobSet: which jobs may be interrupted, and that an interruption restarts the whole set a bounded number of times."""

from __future__ import annotations

import pytest
from tests.kinds.schemas import load, strange
from tests.placing.placed import FILE, PREFER, SHARED, a_config, at_path, place, refusal

from spotwright.kinds.jobset import SET_ALONE, SET_IN_PLACE, SET_RESTARTS
from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import References

DISRUPTION_CONDITION = [{"type": "DisruptionTarget", "status": "True"}]
FAIL = {"action": "FailJob", "onPodConditions": DISRUPTION_CONDITION}
KILLED = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137, 143, 255]}}
TWO_PODS = "\n        parallelism: 2"
JOBSET = SHARED / "crds" / "jobset-v0.12.0" / "jobset.json.gz"


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

    child = at_path(outcome.value, "spec.replicatedJobs.0.template.spec")
    assert child["podFailurePolicy"] == {"rules": [FAIL]}
    assert (child["backoffLimit"], child["template"]["spec"]["restartPolicy"]) == (0, "Never")
    policy = at_path(outcome.value, "spec.failurePolicy")
    assert policy["maxRestarts"] == 5
    assert [(rule["action"], rule["onJobFailureReasons"]) for rule in policy["rules"]] == [
        ("RestartJobSet", ["PodFailurePolicy"])
    ]
    assert outcome.roles["mnist/workers"].after_interruption.startswith("the whole set restarts, counted")


def test_restarts_are_never_left_uncounted_because_nothing_else_ends_them() -> None:
    outcome = place(a_jobset("workers", job=TWO_PODS), "{default: {spot: prefer, timeout: 1h, errors: {retries: 0}}}")

    assert "IgnoreMaxRestarts" not in outcome.text
    assert outcome.reports(
        "maxRestarts 10 counts interruptions (10) and errors (0) together", "a JobSet has no other bound"
    )


def test_in_a_set_of_one_pod_an_error_fails_the_set_and_only_interruptions_are_counted() -> None:
    outcome = place(a_jobset("workers"), "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 0}}}")

    child, policy = (
        at_path(outcome.value, path) for path in ("spec.replicatedJobs.0.template.spec", "spec.failurePolicy")
    )
    assert child["podFailurePolicy"] == {"rules": [FAIL, KILLED]}
    assert (child["backoffLimit"], policy["maxRestarts"]) == (0, 4)
    assert [(rule["action"], rule["onJobFailureReasons"]) for rule in policy["rules"]] == [
        ("RestartJobSet", ["PodFailurePolicy"]),
        ("FailJobSet", ["BackoffLimitExceeded"]),
    ]
    assert outcome.reports("note", "maxRestarts 4 counts interruptions", "any other error of the code fails the set")
    assert outcome.roles["mnist/workers"].after_interruption == (
        "the whole set restarts, counted against maxRestarts 4; an error of the code fails it at once"
    )


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (a_jobset("workers", job=TWO_PODS), PREFER),
        (a_jobset("workers", "others"), PREFER),
        (a_jobset("workers").replace("- name: workers", "- name: workers\n    replicas: 2"), PREFER),
        (a_jobset("workers"), "{default: {spot: prefer, errors: {retries: 1}}}"),
        (a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}"), PREFER),
        (a_jobset("workers", job="\n        backoffLimit: 6"), PREFER),
        (a_jobset("workers", pod="\n            restartPolicy: OnFailure"), PREFER),
    ],
)
def test_where_an_error_may_be_that_of_a_lost_peer_or_is_retried_it_restarts_the_set(text: str, policy: str) -> None:
    outcome = place(text, policy)

    assert "FailJobSet" not in outcome.text
    assert "fails it at once" not in outcome.roles["mnist/workers"].after_interruption


@pytest.mark.skipif(not JOBSET.exists(), reason="the schemas are not beside this project")
@pytest.mark.parametrize("job", ["", TWO_PODS])
def test_jobset_knows_every_field_and_type(job: str) -> None:
    assert list(strange(load(JOBSET, "v1alpha2"), place(a_jobset("workers", job=job)).value)) == []


def test_a_timeout_bounds_each_round_of_the_set() -> None:
    outcome = place(a_jobset("workers"), "{default: {spot: prefer, timeout: 1h, pending_timeout: 5m}}")

    assert at_path(outcome.value, "spec.replicatedJobs.0.template.spec.activeDeadlineSeconds") == 3900


@pytest.mark.parametrize("leader", ["leader", "driver", "coordinator", "mpi-launcher", "master-0", "ps", "Chief"])
def test_the_job_that_all_others_depend_on_stays_on_on_demand(leader: str) -> None:
    outcome = place(a_jobset(leader, "workers"))

    assert outcome.roles[f"mnist/{leader.lower()}"].pools == ("regular",)
    assert outcome.roles["mnist/workers"].pools == ("spot", "regular")
    assert at_path(outcome.value, "spec.replicatedJobs.0.template.spec.podFailurePolicy") is None


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
    text = a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}", job="\n        backoffLimit: 0")
    outcome = place(text)

    assert at_path(outcome.value, "spec.failurePolicy.maxRestarts") == 3
    assert outcome.reports("work.yaml:5: warning", "maxRestarts 3 stays; the policy allows")
    assert outcome.roles["mnist/workers"].after_interruption.endswith("maxRestarts 3")


@pytest.mark.parametrize(("job", "tries"), [("", 4 * 7 - 1), ("\n        backoffLimit: 2", 4 * 3 - 1)])
def test_restarts_replace_the_tries_of_the_jobs_that_an_interruption_ends_now(job: str, tries: int) -> None:
    outcome = place(a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}", job=job))

    assert at_path(outcome.value, "spec.failurePolicy.maxRestarts") == tries
    assert outcome.reports("work.yaml:5: warning", f"maxRestarts 3 becomes {tries}", "as often as before")


def test_replace_retries_replaces_the_limit_of_restarts() -> None:
    outcome = place(a_jobset("workers", spec="\n  failurePolicy: {maxRestarts: 3}"), replace_retries=True)

    assert at_path(outcome.value, "spec.failurePolicy.maxRestarts") == 10


IGNORING = """
  failurePolicy:
    maxRestarts: 3
    rules:
    - {name: own, action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}"""


def test_a_rule_of_the_users_that_counts_nothing_stays_and_is_named() -> None:
    outcome = place(a_jobset("workers", spec=IGNORING))

    assert len(at_path(outcome.value, "spec.failurePolicy.rules")) == 1
    assert outcome.reports("RestartJobSetAndIgnoreMaxRestarts", "are not bounded")
    assert "not counted" in outcome.roles["mnist/workers"].after_interruption


def test_replace_retries_puts_the_counted_rule_first() -> None:
    rules = at_path(place(a_jobset("workers", spec=IGNORING), replace_retries=True).value, "spec.failurePolicy.rules")

    assert [rule["action"] for rule in rules] == ["RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]


def test_a_rule_for_another_job_does_not_speak_for_this_one() -> None:
    spec = (
        "\n  failurePolicy: {maxRestarts: 10, rules: [{name: a, action: FailJobSet, targetReplicatedJobs: [leader]}]}"
    )
    outcome = place(a_jobset("leader", "workers", spec=spec))

    assert outcome.roles["mnist/workers"].after_interruption.startswith("the whole set restarts, counted")


FAILING = "\n  failurePolicy: {maxRestarts: 10, rules: [{name: a, action: FailJobSet}]}"


def test_a_rule_that_fails_the_set_at_an_interruption_that_the_user_s_job_fails_at_is_named() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: FailJob, onPodConditions: [{type: DisruptionTarget}]}]}"
    outcome = place(a_jobset("workers", spec=FAILING, job=own))

    assert outcome.reports("for an interruption this rule has the action FailJobSet")
    assert outcome.roles["mnist/workers"].after_interruption == "the set fails"


def test_a_rule_of_the_users_about_failed_jobs_does_not_fail_the_set_at_an_interruption() -> None:
    """Its Jobs made an interrupted pod again: they fail at it by our rule alone, and keep their tries after errors."""
    outcome = place(a_jobset("workers", spec=FAILING))
    child = at_path(outcome.value, "spec.replicatedJobs.0.template.spec")
    ours, own = at_path(outcome.value, "spec.failurePolicy.rules")

    assert ours == {
        "name": "spotwright_interrupted",
        "action": "RestartJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    assert own["action"] == "FailJobSet"
    assert "backoffLimit" not in child
    assert outcome.reports("the default backoffLimit 6 stays beside your rules")


def test_our_rules_for_several_jobs_have_names_of_their_own() -> None:
    uncounted = "{name: mine, action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [BackoffLimitExceeded], "
    rules = f"[{uncounted}targetReplicatedJobs: [a]}}, {{name: ends, action: FailJobSet}}]"
    for names in (("a", "b"), ("b", "a")):
        text = a_jobset(*names, spec=f"\n  failurePolicy: {{maxRestarts: 9, rules: {rules}}}", job=TWO_PODS)
        found = at_path(place(text).value, "spec.failurePolicy.rules")
        ours = [rule for rule in found if rule["name"].startswith("spotwright")]
        assert len({rule["name"] for rule in found}) == len(found)
        assert {rule["targetReplicatedJobs"][0]: rule["action"] for rule in ours} == {
            "a": "RestartJobSetAndIgnoreMaxRestarts",
            "b": "RestartJobSet",
        }


def test_a_rule_that_restarts_the_job_alone_stays_and_is_named() -> None:
    rules = "[{name: mine, action: RestartJob, onJobFailureReasons: [PodFailurePolicy]}]"
    outcome = place(a_jobset("workers", spec=f"\n  failurePolicy: {{maxRestarts: 9, rules: {rules}}}", job=TWO_PODS))

    assert [rule["name"] for rule in at_path(outcome.value, "spec.failurePolicy.rules")] == ["mine"]
    assert outcome.reports("this rule has the action RestartJob, and it stays")


PER_INDEX = ("completions: 4", "completionMode: Indexed", "backoffLimitPerIndex: 2")


@pytest.mark.parametrize(
    ("spec", "job", "restarts"),
    [
        ("\n  failurePolicy: {maxRestarts: 0}", "\n        backoffLimit: 3", 30),
        ("", "", 60),
        ("\n  failurePolicy: {maxRestarts: 0}", "".join(f"\n        {each}" for each in PER_INDEX), 80),
    ],
)
def test_a_set_of_many_jobs_may_restart_as_often_as_these_together_made_pods_again(
    spec: str, job: str, restarts: int
) -> None:
    text = a_jobset("workers", spec=spec, job=job).replace("- name: workers", "- name: workers\n    replicas: 10")

    assert at_path(place(text, "{default: {spot: prefer}}").value, "spec.failurePolicy.maxRestarts") == restarts


def test_our_rule_names_interruptions_where_the_user_s_job_fails_at_an_exit_code_too() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [3]}}]}"
    ours, _ = at_path(place(a_jobset("workers", spec=FAILING, job=own)).value, "spec.failurePolicy.rules")

    assert ours["onJobFailureMessagePatterns"] == ["has condition DisruptionTarget"]


def test_a_child_that_restarts_its_containers_is_left_and_named() -> None:
    outcome = place(a_jobset("workers", pod="\n            restartPolicy: OnFailure"))

    child = at_path(outcome.value, "spec.replicatedJobs.0.template.spec")
    assert "podFailurePolicy" not in child
    assert outcome.reports("restartPolicy OnFailure stays", "replaced alone")


def test_replace_retries_makes_a_child_fail_at_once() -> None:
    text = a_jobset("workers", job="\n        backoffLimit: 4", pod="\n            restartPolicy: OnFailure")
    child = at_path(place(text, replace_retries=True).value, "spec.replicatedJobs.0.template.spec")

    assert child["podFailurePolicy"] == {"rules": [FAIL]}
    assert (child["backoffLimit"], child["template"]["spec"]["restartPolicy"]) == (0, "Never")


def test_a_child_that_ignores_interruptions_is_left_and_named() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"
    outcome = place(a_jobset("workers", job=own))

    assert outcome.reports("this rule with action Ignore stays", "replaced alone")
    assert "backoffLimit" not in at_path(outcome.value, "spec.replicatedJobs.0.template.spec")
    assert outcome.roles["mnist/workers"].after_interruption.startswith(
        "only this pod is created again, which is not counted"
    )


def test_a_child_that_ignores_exit_codes_is_left_and_named() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [143]}}]}"
    outcome = place(a_jobset("workers", job=own))

    assert len(at_path(outcome.value, "spec.replicatedJobs.0.template.spec.podFailurePolicy.rules")) == 1
    assert outcome.reports("your podFailurePolicy ignores exit codes", "replaced alone")


IN_PLACE = "\n  failurePolicy: {restartStrategy: InPlaceRestart}"
AGENT = """
            initContainers:
            - name: agent
              image: agent:1
              restartPolicy: Always
              restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]"""


def test_a_set_whose_pods_restart_in_place_says_what_that_needs_and_what_happens_without_it() -> None:
    outcome = place(a_jobset("workers", spec=IN_PLACE, pod=AGENT))

    said = outcome.roles["mnist/workers"]
    assert said.after_interruption == (
        "this pod alone is made again, and the others stay and start their containers again, counted, with errors, "
        "against maxRestarts 10"
    )
    assert said.mechanism is SET_IN_PLACE
    assert outcome.reports("JobSet 0.11 or newer with its feature gate InPlaceRestart", "all its pods are made again")
    assert not outcome.reports("needs JobSet's agent")


def test_pods_that_restart_in_place_without_the_agent_are_named() -> None:
    outcome = place(a_jobset("workers", spec=IN_PLACE))

    assert outcome.reports("workers: InPlaceRestart needs JobSet's agent in each pod", "the whole set restarts")
    assert outcome.roles["mnist/workers"].mechanism is SET_ALONE


def test_a_rule_that_fails_the_job_restarts_the_whole_set_also_in_place() -> None:
    own = "\n        podFailurePolicy: {rules: [{action: FailJob, onPodConditions: [{type: DisruptionTarget}]}]}"
    outcome = place(a_jobset("workers", spec=IN_PLACE, job=own, pod=AGENT))

    said = outcome.roles["mnist/workers"]
    assert (said.mechanism, said.after_interruption) == (
        SET_RESTARTS,
        "the whole set restarts, counted, with errors, against maxRestarts 10",
    )


def test_restarts_in_place_leave_no_room_for_moves_as_nobody_refuses_pods_that_stay() -> None:
    never = "\n            restartPolicy: Never"
    options = PlaceOptions(has_webhook=True)
    whole, in_place = (
        place_text(a_jobset("workers", spec=spec, pod=never + AGENT), FILE, a_config(PREFER), References([]), options)
        for spec in ("", IN_PLACE)
    )
    assert "maxRestarts: 30" in whole.text
    assert "maxRestarts: 10" in in_place.text
    assert any("maxRestarts 10 counts interruptions" in str(one) for one in in_place.findings)


def test_pods_that_restart_in_place_keep_the_job_fields_that_need_it() -> None:
    outcome = place(a_jobset("workers", spec=IN_PLACE))

    assert set(at_path(outcome.value, "spec.replicatedJobs.0.template.spec")) == {"template"}
    assert at_path(outcome.value, "spec.failurePolicy.maxRestarts") == 10
    assert at_path(outcome.value, "spec.failurePolicy.rules") is None


def test_all_jobs_of_a_set_share_one_place_for_checkpoints() -> None:
    outcome = place(a_jobset("leader", "workers"), "{default: {spot: prefer, checkpoint: 'pvc://ckpt'}}")

    mounts = [
        at_path(
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
    pod = at_path(place(text, PREFER).value, "spec.replicatedJobs.0.template.spec.template.spec")

    assert pod["tolerations"]
    assert "affinity" not in pod
