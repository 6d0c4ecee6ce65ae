"""The waiting pods that may be recalled, because recreating them costs their workload nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster import descheduler


def why_not_moved(made: dict[str, Any], owners: list[dict[str, Any]], *, is_admitted: bool = True) -> str:
    return descheduler.why_not_moved(made, owners, is_admitted=is_admitted)


RULE = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def rules(action: str) -> dict[str, Any]:
    return {"rules": [{"action": action, **RULE}]}


def admitted(owner: dict[str, Any] | None, **labels: str) -> dict[str, Any]:
    return pod("one", owner, labels=labels)


def workflow() -> dict[str, Any]:
    return {"kind": "Workflow", "metadata": {"name": "wf", "uid": "wf"}, "spec": {}}


def job_set(action: str = "RestartJobSet", used: int = 0) -> dict[str, Any]:
    failure = {"maxRestarts": 3, "rules": [{"action": action, "onJobFailureReasons": ["PodFailurePolicy"]}]}
    status = {"restarts": used, "restartsCountTowardsMax": used}
    return {"kind": "JobSet", "metadata": {"name": "set"}, "spec": {"failurePolicy": failure}, "status": status}


def child(action: str = "FailJob") -> dict[str, Any]:
    return job(podFailurePolicy=rules(action), backoffLimit=0)


def test_a_pod_of_argo_is_free() -> None:
    assert why_not_moved(admitted(workflow()), [workflow()]) == ""


def test_a_pod_of_a_job_that_ignores_disruptions_is_free() -> None:
    owner = job(podFailurePolicy=rules("Ignore"))
    assert why_not_moved(admitted(owner), [owner]) == ""


def test_a_pod_of_a_set_that_restarts_is_free_while_restarts_are_left() -> None:
    assert why_not_moved(admitted(child()), [child(), job_set(used=2)]) == ""
    assert "3 of maxRestarts 3 are used" in why_not_moved(admitted(child()), [child(), job_set(used=3)])
    assert why_not_moved(admitted(child()), [child(), job_set("RestartJobSetAndIgnoreMaxRestarts", used=3)]) == ""


def test_a_rule_about_other_messages_decides_nothing() -> None:
    placed = job_set()
    refused = {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    placed["spec"]["failurePolicy"]["rules"].insert(0, {**refused, "onJobFailureMessagePatterns": ["exit code 86 "]})
    assert why_not_moved(admitted(child()), [child(), placed]) == ""
    placed["spec"]["failurePolicy"]["rules"][0]["onJobFailureMessagePatterns"] = ["condition DisruptionTarget"]
    assert "FailJobSet" in why_not_moved(admitted(child()), [child(), placed])


@pytest.mark.parametrize(
    ("owners", "why"),
    [
        ([job(backoffLimit=4)], "its Job would count it against backoffLimit 4"),
        ([job(podFailurePolicy=rules("Count"))], "backoffLimit 6"),
        ([child(), job_set("FailJobSet")], "its failurePolicy says FailJobSet"),
        ([child("Ignore"), job_set()], "its JobSet would not restart"),
        ([{"kind": "PyTorchJob", "metadata": {"name": "t", "uid": "t"}}], "its PyTorchJob would count it"),
    ],
)
def test_elsewhere_the_reason_names_what_would_count_it(owners: list[dict[str, Any]], why: str) -> None:
    assert why in why_not_moved(admitted(owners[0]), owners)


def test_a_bare_pod_is_left() -> None:
    assert why_not_moved(admitted(None), []) == "a pod without a controller is not recreated"


def test_a_pod_whose_rung_nobody_enforces_is_left() -> None:
    forged = pod("one", workflow(), annotations={"spotwright.dev/rung": "gpu-spot"})
    assert "it was not pinned to a rung by the webhook" in why_not_moved(forged, [workflow()], is_admitted=False)


def test_a_pod_of_a_queue_is_left_to_kueue() -> None:
    queued = admitted(workflow(), **{"kueue.x-k8s.io/queue-name": "local"})
    assert "Kueue" in why_not_moved(queued, [workflow()])
