"""Admission of pods: the rung of an attempt as a requirement, its marks and variables, and pods that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.admission_objects import KEY, a_config, a_job, admitted
from tests.cluster.admitted_pods import (
    IMAGE,
    PREFER,
    PREFERRED,
    REQUIRED,
    SPENT,
    a_pod,
    conditions,
    precise,
    taken,
    variables,
)
from tests.placing.placed import at_path

from spotwright.cluster.admit_objects import ATTEMPT_ANNOTATION, IGNORE_ANNOTATION
from spotwright.cluster.admit_pods import AdmissionContext
from spotwright.model.attempts import Cause
from spotwright.scheduling.next_attempt import PastAttempt

POOL = "kubernetes.azure.com/agentpool"


@pytest.mark.parametrize(
    ("facts", "pool"),
    [
        (AdmissionContext(), "spot-a"),
        (taken("spot-a"), "spot-b"),
        (taken("spot-a", "spot-b"), "regular"),
        (AdmissionContext([PastAttempt(Cause.FAILED, ("spot-a",), "spot-a")]), "spot-a"),
        (AdmissionContext(without_capacity={"spot-a"}), "spot-b"),
        (AdmissionContext(agree=lambda *_: ("spot-b",)), "spot-b"),
    ],
)
def test_a_pod_requires_the_pool_of_its_rung(facts: AdmissionContext, pool: str) -> None:
    pod, _ = precise(a_pod(), facts)
    assert conditions(pod)[POOL] == [pool]
    assert pod["metadata"]["annotations"]["spotwright.dev/rung"] == pool


def test_the_preference_for_spot_gives_way_to_the_requirement() -> None:
    given = a_pod()
    assert at_path(given, PREFERRED)
    assert at_path(precise(given)[0], PREFERRED) is None


def test_preferences_and_conditions_of_the_user_s_stay() -> None:
    own = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    given = a_pod()
    node = given["spec"]["affinity"]["nodeAffinity"]
    node["preferredDuringSchedulingIgnoredDuringExecution"].append({"weight": 5, "preference": own})
    node["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "disk2", "operator": "Exists"}]},
        ]
    }
    config = a_config(PREFER)
    pools = {
        name: replace(pool, labels={**pool.labels, "disk": "ssd", "disk2": "x"}) for name, pool in config.pools.items()
    }
    pod, _ = precise(given, config=replace(config, pools=pools))
    assert at_path(pod, PREFERRED) == [{"weight": 5, "preference": own}]
    terms = at_path(pod, REQUIRED)
    assert [term["matchExpressions"][0]["key"] for term in terms] == ["disk", "disk2"]
    assert all(term["matchExpressions"][1]["key"] == POOL for term in terms)


def test_a_pod_is_marked_with_its_attempt_and_the_reason_of_its_rung() -> None:
    annotations = precise(a_pod(), taken("spot-a"))[0]["metadata"]["annotations"]
    assert annotations[ATTEMPT_ANNOTATION] == "2"
    assert annotations["spotwright.dev/why"] == "interruption 1 of 3: again on spot-b"


def test_a_rung_that_was_decided_before_an_end_was_recorded_says_so() -> None:
    facts = AdmissionContext([*taken("spot-a").history, PastAttempt(None, ("spot-b",))], is_late=True)
    pod, _ = precise(a_pod(), facts)
    why = "interruption 1 of 3: again on spot-b; decided before the end of an earlier attempt was recorded"
    assert (conditions(pod)[POOL], pod["metadata"]["annotations"]["spotwright.dev/why"]) == (["spot-b"], why)


def test_a_second_look_at_a_pod_changes_nothing() -> None:
    pod, _ = precise(a_pod())
    assert precise(pod, replace(taken("spot-a"), is_admitted=True))[0] == pod


def test_marks_that_no_review_has_made_are_replaced() -> None:
    forged = dict.fromkeys(("attempt", "rung", "open", "refused", "why", "admission"), "999")
    given = a_pod()
    given["metadata"]["annotations"] |= {f"spotwright.dev/{name}": text for name, text in forged.items()}
    found = precise(given, taken("spot-a"))[0]["metadata"]["annotations"]
    assert found == precise(a_pod(), taken("spot-a"))[0]["metadata"]["annotations"]


def test_variables_say_what_they_say_locally() -> None:
    pod, _ = precise(a_pod(), taken("spot-a"))
    found = variables(pod)
    assert (found["SPOTWRIGHT_ATTEMPT"], found["SPOTWRIGHT_NOTICE"]) == ("2", "30")
    assert found["SPOTWRIGHT_GRACE"] == str(pod["spec"]["terminationGracePeriodSeconds"])


def test_an_attempt_on_on_demand_has_no_notice() -> None:
    assert variables(precise(a_pod(), taken("spot-a", "spot-b"))[0])["SPOTWRIGHT_NOTICE"] == "0"


def test_the_place_of_the_checkpoint_is_the_same_for_all_attempts() -> None:
    config = a_config(PREFER.replace("spot: prefer", "spot: prefer, checkpoint: 's3://ours/ckpt'"))
    given = a_pod(config)
    first, second = (variables(precise(given, facts, config)[0]) for facts in (AdmissionContext(), taken("spot-a")))
    assert first["SPOTWRIGHT_CHECKPOINT"] == second["SPOTWRIGHT_CHECKPOINT"] == "s3://ours/ckpt/$(SPOTWRIGHT_RUN)/train"


def test_a_kfp_pod_gets_the_address_of_the_notice_that_its_pipeline_could_not_have() -> None:
    given = a_pod()
    container = given["spec"]["containers"][0]
    container["env"] = [one for one in container["env"] if one["name"] != "SPOTWRIGHT_NOTICE_URL"]
    given["metadata"]["annotations"]["workflows.argoproj.io/node-name"] = "run.root.train"
    found = variables(precise(given)[0])
    assert found["SPOTWRIGHT_NOTICE_URL"] == "http://$(SPOTWRIGHT_HOST):8788/notice"
    assert "SPOTWRIGHT_GRACE" not in found  # Argo leaves the code 0.3 s


@pytest.mark.parametrize(("policy", "seconds"), [("0s", 0), ("0.5s", 0), ("10s", 10)])
def test_a_short_grace_period_replaces_the_default_of_the_api_server(policy: str, seconds: int) -> None:
    config = a_config(f"{{default: {{spot: require, grace_period: {policy}}}}}")
    given = a_pod(a_config("{default: {spot: require}}"))
    given["spec"]["terminationGracePeriodSeconds"] = 30
    pod, outcome = precise(given, config=config)
    assert outcome.verdict == "pod is admitted"
    assert pod["spec"]["terminationGracePeriodSeconds"] == seconds


def test_the_grace_period_of_the_policy_is_kept_within_the_notice_of_the_pool() -> None:
    config = a_config("{default: {spot: require, grace_period: 300s}}")
    given = a_pod(config)
    given["spec"]["terminationGracePeriodSeconds"] = 30  # as a pod of KFP has it
    assert precise(given, config=config)[0]["spec"]["terminationGracePeriodSeconds"] == 25


def test_under_kueue_the_flavor_is_the_rung() -> None:
    given = a_pod()
    given["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "main"
    pod, _ = precise(given)
    assert pod["spec"]["affinity"] == given["spec"]["affinity"]
    assert pod["metadata"]["annotations"][ATTEMPT_ANNOTATION] == "1"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "DaemonSet"])
def test_pods_that_serve_are_left_alone(kind: str) -> None:
    given = a_pod()
    given["metadata"]["ownerReferences"][0] |= {"apiVersion": "apps/v1", "kind": kind}
    assert precise(given)[1].patch == ()


def test_pods_without_a_policy_or_that_are_ignored_are_left_alone() -> None:
    given = a_pod()
    given["metadata"]["annotations"][IGNORE_ANNOTATION] = "true"
    assert precise(given)[1].patch == ()
    given["metadata"]["annotations"] = {}
    assert precise(given)[1].patch == ()


def test_a_policy_of_the_object_s_own_reaches_its_pods() -> None:
    job = a_job()
    own = '{"spot":"prefer","ladder":["spot-b","regular"],"fall_back_after":1}'
    job["metadata"]["annotations"] = {"spotwright.dev/policy": own}
    template = admitted(job, a_config("{default: {spot: never}}"))[0]["spec"]["template"]
    given = {**a_pod(), "metadata": {**template["metadata"], "generateName": "train-"}, "spec": template["spec"]}
    rungs = [
        precise(given, facts, a_config("{default: {spot: never}}"))[0]
        for facts in (AdmissionContext(), taken("spot-b"))
    ]
    assert [one["metadata"]["annotations"]["spotwright.dev/rung"] for one in rungs] == ["spot-b", "regular"]


def test_a_missing_fact_never_refuses() -> None:
    facts = AdmissionContext([*taken("spot-a").history, *[PastAttempt(None, ("spot-b",))] * 9])
    assert conditions(precise(a_pod(), facts)[0])[POOL] == ["spot-b"]


def refused(pod: dict[str, Any]) -> dict[str, Any]:
    after, outcome = precise(pod, SPENT)
    assert outcome.verdict == "pod is refused"
    return after


def test_a_spent_budget_refuses_with_its_name_and_the_attempts_that_spent_it() -> None:
    pod = refused(a_pod())
    [main] = pod["spec"]["containers"]
    assert main["image"] == IMAGE
    assert main["env"][0]["value"] == "interrupted 4 times, interruptions.max is 3 (attempts 1, 2, 3, 4)"
    assert main["command"][2].endswith("exit 86")


def test_tolerations_of_a_pool_that_came_later_are_added() -> None:
    given = a_pod()
    given["spec"]["tolerations"] = []
    assert precise(given)[0]["spec"]["tolerations"][0]["key"] == KEY


def test_no_pod_of_a_gang_that_has_begun_is_refused_and_each_says_why_it_was_started_again() -> None:
    spent = [PastAttempt(Cause.FAILED, ("spot-a",), "spot-a")] * 3
    pod, outcome = precise(a_pod(), AdmissionContext(spent, agree=lambda *_: ("spot-b",), has_begun=True))
    assert outcome.verdict == "pod is admitted"
    assert pod["metadata"]["annotations"]["spotwright.dev/rung"] == "spot-b"

    interrupted = taken("spot-a")
    pod, _ = precise(a_pod(), AdmissionContext(interrupted.history, agree=lambda *_: ("spot-b",), has_begun=True))
    assert pod["metadata"]["annotations"]["spotwright.dev/why"].startswith("interruption 1 of")
