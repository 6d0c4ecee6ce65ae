"""The combined evidence of pods, nodes and owners, in cases without a recorded death."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.cluster.signals import LastSeen, as_gone, signals_of
from spotwright.model.attempts import Cause, Ending
from spotwright.notices.notice import Notice
from spotwright.scheduling.cause import classify

Object = dict[str, Any]


def at(second: int) -> str:
    """A moment of the API, so many seconds after noon."""
    return f"2026-11-22T12:00:{second:02d}Z"


def a_condition(kind: str, second: int, reason: str = "", status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at(second)}


def a_container(code: int | None = None, second: int = 30, **more: Any) -> Object:
    """The status of the main container: ended at a second with a code, or still running."""
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": at(second)}}
    return {"name": "main", "restartCount": 0, "state": state, **more}


def a_pod(*statuses: Object, deleted: int | None = None, conditions: tuple[Object, ...] = (), **status: Any) -> Object:
    """A pod on a node. ``deleted``: the second in which it was deleted, with a grace period of 5 s."""
    metadata = {"deletionTimestamp": at(deleted + 5), "deletionGracePeriodSeconds": 5} if deleted is not None else {}
    spec = {"nodeName": "n1", "containers": [{"name": "main"}]}
    return {
        "metadata": {"ownerReferences": [{"kind": "Job"}], **metadata},
        "spec": spec,
        "status": {"phase": "Failed", "containerStatuses": list(statuses), "conditions": list(conditions), **status},
    }


def a_node(ready_since: int = 0, *, ready: str = "True", labels: Mapping[str, str] | None = None) -> Object:
    status = {"conditions": [a_condition("Ready", ready_since, status=ready)]}
    return {"metadata": {"labels": labels or {}}, "status": status}


def an_owner(kind: str = "Job", *conditions: Object, deleted: int | None = None, **spec: Any) -> Object:
    metadata = {} if deleted is None else {"deletionTimestamp": at(deleted)}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)}}


def judged(pod: Mapping[str, Any], node: Mapping[str, Any] | None = None, *owners: Object, **seen: Any) -> Ending:
    return classify(signals_of(LastSeen(pod, node or a_node(), owners, **seen)))


@pytest.mark.parametrize(
    ("owners", "kind"),
    [
        ((an_owner(suspend=True),), "Job"),
        ((an_owner(suspend=True), an_owner("JobSet", suspend=True)), "JobSet"),
        ((an_owner(deleted=25), an_owner("JobSet"), an_owner("TrainJob", suspend=True)), "TrainJob"),
        ((an_owner("PyTorchJob", runPolicy={"suspend": True}),), "PyTorchJob"),
    ],
)
def test_a_suspended_job_cancels_its_pods(owners: tuple[Object, ...], kind: str) -> None:
    ending = judged(a_pod(a_container(143), deleted=25), a_node(), *owners)

    assert (ending.cause, ending.why) == (Cause.CANCELLED, f"it was cancelled: its {kind} was suspended")


def test_kueue_suspends_what_it_preempts_which_is_no_move() -> None:
    queued = an_owner(suspend=True)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}

    ending = judged(a_pod(a_container(143), deleted=25), a_node(), queued)

    assert (ending.cause, ending.why) == (Cause.CANCELLED, "it was cancelled: its Job was suspended by Kueue")


@pytest.mark.parametrize("pod_gone", [False, True])
def test_an_owner_that_left_at_once_was_deleted(pod_gone: bool) -> None:
    owners = (as_gone(an_owner()), as_gone(an_owner("JobSet")))
    pod = a_pod(a_container(143), deleted=None if pod_gone else 25)

    ending = classify(signals_of(LastSeen(pod, a_node(), owners, pod_gone=pod_gone)))

    assert (ending.cause, ending.why) == (Cause.CANCELLED, "it was cancelled: its JobSet was deleted")


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        ({"shutdown": "Stop"}, "its Workflow was shut down"),
        ({"activeDeadlineSeconds": 0}, "its run was terminated through KFP"),
    ],
)
def test_a_workflow_that_was_ended_kills_its_pods_by_a_signal_and_deletes_none(spec: Object, how: str) -> None:
    workflow = an_owner("Workflow", **spec)

    assert judged(a_pod(a_container(143)), a_node(), workflow).why == f"it was cancelled: {how}"
    assert judged(a_pod(a_container(3)), a_node(), workflow).cause is Cause.FAILED
    assert judged(a_pod(a_container(0)), a_node(), workflow).cause is Cause.SUCCEEDED


def test_a_job_that_failed_takes_its_other_pods_with_it() -> None:
    job = an_owner("Job", a_condition("FailureTarget", 25, "BackoffLimitExceeded"))

    assert judged(a_pod(a_container(143), deleted=25), a_node(), job).why == "it was moved: its Job failed"


def test_what_happens_to_a_job_after_its_pod_was_deleted_does_not_explain_the_deletion() -> None:
    job = an_owner("Job", a_condition("Failed", 31, "DeadlineExceeded"), deleted=31)

    assert judged(a_pod(a_container(143), deleted=25), a_node(), job).cause is Cause.DISRUPTED


def test_a_deleted_owner_was_cancelled() -> None:
    assert judged(a_pod(a_container(143), deleted=25), a_node(), an_owner(deleted=25)).cause is Cause.CANCELLED


def test_a_jobset_that_replaces_its_jobs_cancels_nothing() -> None:
    owners = (an_owner(deleted=25), an_owner("JobSet"))

    assert (
        judged(a_pod(a_container(143), deleted=25), a_node(), *owners).why
        == "it was moved: its JobSet replaced its Job"
    )


def test_the_mark_on_a_pod_says_more_than_what_its_jobset_did_next() -> None:
    marked = a_condition("DisruptionTarget", 25, "DeletionByPodGC")
    owners = (an_owner("Job", a_condition("FailureTarget", 25, "PodFailurePolicy"), deleted=25), an_owner("JobSet"))

    assert judged(a_pod(conditions=(marked,)), a_node(), *owners, node_gone=True).cause is Cause.INTERRUPTED


@pytest.mark.parametrize("stopped", [{"shutdown": "Terminate"}, {"activeDeadlineSeconds": 0}])
def test_a_stopped_workflow_was_cancelled(stopped: Object) -> None:
    workflow = an_owner("Workflow", **stopped)

    assert judged(a_pod(a_container(143), deleted=25), a_node(), workflow).cause is Cause.CANCELLED


@pytest.mark.parametrize(("code", "cause"), [(1, Cause.FAILED), (143, Cause.DISRUPTED), (137, Cause.DISRUPTED)])
def test_a_pod_that_is_deleted_in_the_second_of_its_end_is_judged_by_its_exit_code(code: int, cause: Cause) -> None:
    assert judged(a_pod(a_container(code, second=25), deleted=25)).cause is cause


def test_a_pod_that_failed_before_it_was_deleted_has_failed() -> None:
    assert judged(a_pod(a_container(3, second=20), deleted=25)).cause is Cause.FAILED


def test_a_drain_that_the_code_answers_with_an_error_is_no_error() -> None:
    drained = a_pod(
        a_container(1), deleted=25, conditions=(a_condition("DisruptionTarget", 25, "EvictionByEvictionAPI"),)
    )

    assert judged(drained).why == "it was evicted, as by kubectl drain"


def test_a_failed_init_container_is_a_failed_start() -> None:
    init = {"name": "fetch", "state": {"terminated": {"exitCode": 4}}}
    waiting = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}

    ending = judged(a_pod(waiting, initContainerStatuses=[init]))

    assert (ending.cause, ending.why) == (Cause.START_UP, "its init container fetch exited with 4")


def test_a_sidecar_that_fails_is_no_failed_start() -> None:
    pod = a_pod(a_container(0), initContainerStatuses=[{"name": "proxy", "state": {"terminated": {"exitCode": 1}}}])
    pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]

    assert judged(pod).cause is Cause.SUCCEEDED


def test_each_restart_in_place_has_its_own_end() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": at(20)}}
    pod = a_pod(a_container(143, restartCount=1, lastState=last), deleted=25)

    assert classify(signals_of(LastSeen(pod, a_node()), restart=0)).cause is Cause.OUT_OF_MEMORY
    assert classify(signals_of(LastSeen(pod, a_node()), restart=1)).cause is Cause.DISRUPTED


def test_a_node_that_went_after_the_code_had_failed_does_not_excuse_it() -> None:
    assert judged(a_pod(a_container(3)), node_gone=True).cause is Cause.FAILED
    assert judged(a_pod(a_container(143)), node_gone=True).cause is Cause.INTERRUPTED


@pytest.mark.parametrize(("ready_since", "cause"), [(28, Cause.LOST), (10, Cause.DISRUPTED)])
def test_a_taint_removed_a_pod_from_a_lost_node_if_the_node_was_ready_only_later(
    ready_since: int, cause: Cause
) -> None:
    marked = a_condition("DisruptionTarget", 25, "DeletionByTaintManager")

    assert judged(a_pod(a_container(143), deleted=25, conditions=(marked,)), a_node(ready_since)).cause is cause


def test_a_pod_that_never_had_a_node_was_moved() -> None:
    pod = {"metadata": {"deletionTimestamp": at(5)}, "spec": {"containers": []}, "status": {"phase": "Pending"}}

    assert classify(signals_of(LastSeen(pod, pod_gone=True))).why == "it was moved: deleted before it had a node"


@pytest.mark.parametrize(("kind", "cause"), [("interruption", Cause.INTERRUPTED), ("rebalance", Cause.FAILED)])
def test_only_a_notice_of_an_interruption_counts_as_one(kind: str, cause: Cause) -> None:
    notice = Notice(0, kind, "aws", certain=True, reason="")

    assert classify(signals_of(LastSeen(a_pod(a_container(143)), a_node()), notice=notice)).cause is cause


@pytest.mark.parametrize(
    ("labels", "spot"),
    [
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, True),
        ({"eks.amazonaws.com/capacityType": "ON_DEMAND"}, False),
        ({"kubernetes.io/hostname": "n1"}, None),
    ],
)
def test_the_capacity_of_a_node_is_read_off_its_labels(labels: Mapping[str, str], spot: bool | None) -> None:
    assert signals_of(LastSeen(a_pod(), a_node(labels=labels))).spot is spot
    assert signals_of(LastSeen(a_pod(), a_node(labels=labels)), spot=True).spot is True


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "status",
                    "spec",
                    "conditions",
                    "containerStatuses",
                    "state",
                    "terminated",
                    "exitCode",
                    "signal",
                    "type",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(pod=st.dictionaries(st.sampled_from(["metadata", "status", "spec"]), JSON), other=JSON)
def test_no_object_however_odd_stops_the_watcher(pod: Object, other: Any) -> None:
    more = other if isinstance(other, dict) else {}

    assert classify(signals_of(LastSeen(pod, more, (more,), waited=more))).cause in Cause
