"""Volcano's Jobs: which tasks may be interrupted, the policies that restart the Job, and the count that bounds restarts."""

from __future__ import annotations

import pytest
from tests.placing.placed import at_path, place, refusal

ERRORS = "{default: {spot: prefer, interruptions: {max: 4}, errors: {retries: 2}}}"


def a_job(*tasks: str, spec: str = "", task: str = "", replicas: int = 2) -> str:
    given = "".join(
        f"\n  - name: {name}\n    replicas: {replicas}{task}\n    template:\n      spec:\n        containers:\n"
        "        - {name: main, image: trainer}"
        for name in tasks or ("worker",)
    )
    head = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: v}\n"
    return f"{head}spec:{spec}\n  tasks:{given}\n"


def test_a_job_restarts_at_an_eviction_and_at_the_exit_codes_of_a_killed_pod() -> None:
    outcome = place(a_job())

    assert at_path(outcome.value, "spec.policies") == [
        {"exitCode": 137, "action": "RestartJob"},
        {"exitCode": 143, "action": "RestartJob"},
        {"exitCode": 255, "action": "RestartJob"},
        {"event": "PodEvicted", "action": "RestartJob"},
    ]
    assert outcome.roles["v/worker"].after_interruption.startswith(
        "the whole Job restarts, counted against maxRetry 11"
    )


def test_max_retry_is_one_more_than_the_restarts_because_reaching_it_fails_the_job() -> None:
    outcome = place(a_job(), ERRORS)

    assert at_path(outcome.value, "spec.maxRetry") == 7
    assert outcome.reports("warning", "maxRetry 7 allows 6 restarts: interruptions (4) and errors (2) together")


def test_a_policy_that_retries_errors_restarts_at_every_failed_pod() -> None:
    [policy] = at_path(place(a_job(), ERRORS).value, "spec.policies")

    assert policy == {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}


def test_a_job_that_may_run_with_fewer_pods_restarts_the_pod_alone() -> None:
    outcome = place(a_job(spec="\n  minAvailable: 1"))

    assert {one["action"] for one in at_path(outcome.value, "spec.policies")} == {"RestartPod"}
    assert "the others go on" in outcome.roles["v/worker"].after_interruption


@pytest.mark.parametrize(
    ("leader", "plugins"),
    [
        ("mpimaster", ""),
        ("ps", ""),
        ("launcher", ""),
        ("zero", "\n  plugins: {pytorch: ['--master=zero', '--port=23456']}"),
    ],
)
def test_a_task_that_others_depend_on_stays_on_on_demand(leader: str, plugins: str) -> None:
    roles = place(a_job(leader, "worker", spec=plugins)).roles

    assert roles[f"v/{leader}"].pools == ("regular",)
    assert roles["v/worker"].pools == ("spot", "regular")


def test_the_only_task_goes_to_spot_whatever_its_name() -> None:
    assert place(a_job("master")).roles["v/master"].pools == ("spot", "regular")


def test_policies_of_the_user_come_first_and_no_event_is_named_twice() -> None:
    outcome = place(a_job(spec="\n  policies:\n  - {event: PodEvicted, action: RestartTask}"))

    assert at_path(outcome.value, "spec.policies") == [{"event": "PodEvicted", "action": "RestartTask"}]
    assert "all pods of its task restart" in outcome.roles["v/worker"].after_interruption


def test_beside_a_policy_for_every_event_volcano_takes_no_other() -> None:
    outcome = place(a_job(spec='\n  policies:\n  - {event: "*", action: RestartJob}'), ERRORS)

    assert at_path(outcome.value, "spec.policies") == [{"event": "*", "action": "RestartJob"}]


@pytest.mark.parametrize("level", ["spec", "task"])
def test_a_policy_of_the_user_that_ends_the_job_is_named(level: str) -> None:
    indent = "\n  " if level == "spec" else "\n    "
    text = f"{indent}policies:{indent}- {{event: PodEvicted, action: TerminateJob}}"
    outcome = place(a_job(**{level: text}))  # type: ignore[arg-type]

    assert outcome.reports("warning", "worker: its own policy with action TerminateJob stays", "write RestartJob")
    assert outcome.roles["v/worker"].after_interruption.startswith(
        "after an eviction: the Job ends (its own policy: TerminateJob); "
    )


def policies(*given: str) -> str:
    """Policies of the user at the Job."""
    return "".join(["\n  policies:", *(f"\n  - {{{one}}}" for one in given)])


def test_no_restart_is_claimed_that_no_written_policy_gives() -> None:
    outcome = place(a_job(spec=policies("event: PodEvicted, action: RestartTask")))
    role = outcome.roles["v/worker"]

    assert role.after_interruption == (
        "after an eviction: all pods of its task restart, the other tasks go on, counted against maxRetry 11, which fails the "
        "Job when the count reaches it; after exit codes 137 and 143: Volcano leaves it as it is, and the other tasks wait for it"
    )
    assert outcome.reports(
        "warning: worker: no policy is for exit code 137 or 143", "write action RestartTask for exitCode 137 and 143"
    )
    assert outcome.reports("note: maxRetry 11 allows 10 restarts, after interruptions; another error")


@pytest.mark.parametrize(
    ("given", "after"),
    [
        ("event: PodFailed, action: AbortJob", "after exit codes 137 and 143: the Job ends (its own policy: AbortJob)"),
        ("exitCode: 137, action: CompleteJob", "after exit code 137: the Job ends (its own policy: CompleteJob)"),
        ("events: [PodFailed, PodPending], action: TerminateJob", "the Job ends (its own policy: TerminateJob)"),
    ],
)
def test_a_policy_for_failed_pods_decides_what_a_nodes_shutdown_does(given: str, after: str) -> None:
    outcome = place(a_job(spec=policies(given)))

    assert outcome.roles["v/worker"].after_interruption.startswith("after an eviction: the whole Job restarts")
    assert after in outcome.roles["v/worker"].after_interruption
    assert outcome.reports("warning: worker: its own policy with action", "stays: an interruption ends the Job")
    assert outcome.roles["v/worker"].enforced("interruptions.max").text == "nothing: its own policy ends the Job"


def test_a_policy_of_the_task_counts_before_those_of_the_job() -> None:
    task = "\n    policies:\n    - {event: PodFailed, action: AbortJob}"
    outcome = place(a_job(task=task, spec=policies('event: "*", action: RestartJob')))

    assert (
        "after exit codes 137 and 143: the Job ends (its own policy: AbortJob)"
        in outcome.roles["v/worker"].after_interruption
    )


def test_the_first_policy_that_matches_counts() -> None:
    given = policies("exitCode: 143, action: RestartTask", "event: PodFailed, action: RestartJob")
    after = place(a_job(spec=given)).roles["v/worker"].after_interruption

    assert "after exit code 137: the whole Job restarts" in after
    assert "after exit code 143: all pods of its task restart" in after


@pytest.mark.parametrize("given", ["event: PodFailed, action: RestartJob", 'event: "*", action: RestartJob'])
def test_an_error_that_a_policy_of_the_user_retries_is_not_said_to_restart_nothing(given: str) -> None:
    outcome = place(a_job(spec=policies(given)))

    assert not outcome.reports("another error of the code causes no restart")
    assert outcome.reports(
        "warning: worker: its own policy for failed pods (RestartJob) stays: an error of the code is retried"
    )
    assert outcome.roles["v/worker"].enforced("errors.retries").text == "nothing: its own policies decide"


def test_a_budget_for_errors_that_a_policy_of_the_user_overrides_is_named() -> None:
    outcome = place(a_job(spec=policies("event: PodFailed, action: AbortJob")), ERRORS)

    assert outcome.reports("warning: worker: its own policies stay", "so errors.retries 2 has no effect")
    assert not outcome.reports("together, so an error of the code is retried")


def test_a_limit_of_the_user_stays_unless_it_is_to_be_replaced() -> None:
    text = a_job(spec="\n  maxRetry: 3")

    assert at_path(place(text).value, "spec.maxRetry") == 3
    assert place(text).reports("maxRetry 3 stays, which allows one restart less; the policy allows 10")
    assert at_path(place(text, replace_retries=True).value, "spec.maxRetry") == 11


def test_a_timeout_is_the_deadline_of_each_pod() -> None:
    value = place(a_job(), "{default: {spot: require, timeout: 1h}}").value

    assert at_path(value, "spec.tasks.0.template.spec.activeDeadlineSeconds") == 3600


def test_a_cron_job_of_volcano_is_placed_in_its_template() -> None:
    job = a_job().split("spec:", 1)[1].replace("\n", "\n    ")
    head = (
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: CronJob\nmetadata: {name: nightly}\nspec:\n  schedule: '@daily'\n"
    )
    outcome = place(f"{head}  jobTemplate:\n    spec:{job}\n")

    assert at_path(outcome.value, "spec.jobTemplate.spec.maxRetry") == 11
    assert outcome.roles["nightly/worker"].pools == ("spot", "regular")
    assert "Jobs that are created afterwards" in outcome.roles["nightly/worker"].frozen
    misplaced = refusal(f"{head}  maxRetry: 3\n  jobTemplate:\n    spec:{job}\n")
    assert misplaced.endswith("it belongs under spec.jobTemplate.spec.maxRetry")


def test_pod_fields_at_the_level_of_a_task_are_refused_with_their_place() -> None:
    message = refusal(a_job(task="\n    tolerations: []"))

    assert "the API server would drop this field here" in message
    assert "spec.tasks[0].template.spec.tolerations" in message


def test_a_job_of_an_unknown_version_of_volcano_is_named_by_its_group() -> None:
    outcome = place(a_job().replace("v1alpha1", "v1beta9"))

    assert outcome.reports("no API server knows Job of batch.volcano.sh/v1beta9: write batch.volcano.sh/v1alpha1")
