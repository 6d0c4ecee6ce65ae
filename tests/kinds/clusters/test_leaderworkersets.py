"""LeaderWorkerSets serve unless they say that they work; then leaders stay on on-demand, and nothing bounds their restarts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import PREFER, REQUIRE, at_path, place

from spotwright.kinds.kind import Reads, all_kinds

SPOT = "kubernetes.azure.com/scalesetpriority"
WORKER = "spotwright.dev/role: worker"
LEADERS = "    leaderTemplate: {spec: {containers: [{name: head, image: s}]}}\n"
WORKERS = "spec.leaderWorkerTemplate.workerTemplate.spec"


def a_set(labels: str = WORKER, more: str = "", leaders: str = LEADERS, replicas: int = 2) -> str:
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: llama, labels: {{{labels}}}}}
spec:
  replicas: {replicas}
  leaderWorkerTemplate:
    size: 3
{more}{leaders}    workerTemplate: {{spec: {{containers: [{{name: worker, image: s}}]}}}}
"""


def findings(text: str) -> set[str]:
    return {one.rule for one in found_in(text)}


def test_a_set_that_serves_stays_unchanged_and_learns_the_label() -> None:
    outcome = place(a_set(""), PREFER)

    assert outcome.text == a_set("")
    assert outcome.reports("warning", "it serves requests", "label it spotwright.dev/role: worker")


@pytest.mark.parametrize("labels", [WORKER, "spotwright.dev/spot: require"])
def test_workers_follow_the_policy_and_leaders_stay_on_on_demand(labels: str) -> None:
    outcome = place(a_set(labels), REQUIRE)

    assert at_path(outcome.value, f"{WORKERS}.tolerations.0.key") == SPOT
    assert at_path(outcome.value, "spec.leaderWorkerTemplate.leaderTemplate.spec.tolerations") is None
    assert (outcome.roles["llama/worker"].pools, outcome.roles["llama/leader"].pools) == (("spot",), ("regular",))
    assert "the workers of its group belong to it" in outcome.roles["llama/leader"].on_demand_reason


def test_leaders_without_a_template_are_on_spot_and_named() -> None:
    outcome = place(a_set(leaders="", replicas=1), REQUIRE)

    assert list(outcome.roles) == ["llama/worker"]
    assert outcome.reports("note", "its leaders have the template of the workers", "write a leaderTemplate")
    assert outcome.reports("note", "no work is done while its only group is made again")


@pytest.mark.parametrize(
    ("policy", "lost"),
    [
        ("", "all pods of its group are made again; retries are not counted"),
        ("RecreateGroupOnPodRestart", "all pods of its group are made again; retries are not counted"),
        ("RecreateGroupAfterStart", "all pods of its group are made again if all of them have begun"),
        ("None", "its StatefulSet makes the pod again; retries are not counted"),
    ],
)
def test_an_interruption_does_what_the_restart_policy_says_and_nothing_bounds_it(policy: str, lost: str) -> None:
    more = f"    restartPolicy: {policy}\n" if policy else ""
    bounded = "{default: {spot: require, interruptions: {max: 3}, errors: {retries: 2}}}"
    role = place(a_set(more=more), bounded).roles["llama/worker"]

    assert role.after_interruption.startswith(lost)
    assert {role.enforcement[name].text for name in ("interruptions.max", "errors.retries")} == {
        "nothing: its pods are made again without a bound, whatever ended them"
    }


def test_lint_knows_the_words_of_its_restart_policy_and_that_a_worker_does_not_serve() -> None:
    assert findings(a_set(more="    restartPolicy: RecreateGroupOnPodRestart\n")) <= {"churn-not-shielded"}
    assert "retry-value-unknown" in findings(a_set(more="    restartPolicy: recreateGroup\n"))
    placed = place(a_set(), REQUIRE).text
    assert "serving-on-spot" not in findings(placed)
    served = placed.replace(f"{WORKER}", "a: b").replace("spotwright.dev/spot: require", "a: b")
    assert "serving-on-spot" in findings(served)


def test_it_is_asked_about_when_it_is_created_and_the_controller_needs_no_right_on_it() -> None:
    record: Any = all_kinds()["leaderworkerset.x-k8s.io", "LeaderWorkerSet"]

    assert record.is_admitted
    assert record.reads is Reads.NOTHING
