"""The order of the rules, one hard case at a time. The recorded endings stand in test_cause_corpus.py."""

from __future__ import annotations

import json

import pytest

from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.scheduling.cause import classify

DRAINED = StatusCondition("DisruptionTarget", reason="EvictionByEvictionAPI")
ALIVE = StatusCondition("Ready")


def cause(**signals: object) -> Cause:
    return classify(Signals(**signals)).cause  # type: ignore[arg-type]


def test_cancelled_stands_above_success() -> None:
    assert cause(cancelled=True, exit_code=0, outputs_complete=True) is Cause.CANCELLED


def test_unchecked_outputs_are_no_success() -> None:
    assert cause(exit_code=0) is Cause.FAILED


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"noticed": True}, Cause.INTERRUPTED),
        ({"node_taints": ("aws-node-termination-handler/spot-itn",)}, Cause.INTERRUPTED),
        ({"moved": "drained"}, Cause.DISRUPTED),
        ({"conditions": (DRAINED,), "node_conditions": (ALIVE,)}, Cause.DISRUPTED),
        ({"pod_deleted": True, "node_conditions": (ALIVE,)}, Cause.DISRUPTED),
        ({"reason": "Terminated", "spot": True}, Cause.INTERRUPTED),
        ({"pod_deleted": True}, Cause.LOST),
    ],
)
@pytest.mark.parametrize("outputs", [True, False])
def test_exit_0_with_work_left_is_what_told_the_attempt_to_stop(
    told: dict[str, object], expected: Cause, outputs: bool
) -> None:
    ending = classify(Signals(exit_code=0, outputs_complete=outputs, progress=0.25, **told))  # type: ignore[arg-type]

    assert ending.cause is expected
    assert ending.why.endswith(", with work left")
    assert ending.evidence["progress"] == 0.25


@pytest.mark.parametrize("progress", [None, 1.0, sum([0.1] * 10)])
def test_exit_0_after_a_notice_is_a_success_where_no_work_is_known_to_be_left(progress: float | None) -> None:
    assert cause(noticed=True, exit_code=0, outputs_complete=True, progress=progress) is Cause.SUCCEEDED


def test_exit_0_with_work_left_is_a_success_where_nothing_told_it_to_stop() -> None:
    assert cause(exit_code=0, outputs_complete=True, progress=0.6, spot=True) is Cause.SUCCEEDED


def test_a_missing_output_is_no_success_whatever_the_other_signals() -> None:
    assert cause(exit_code=0, outputs_complete=True, missing_outputs=("model",)) is Cause.FAILED


def test_a_signal_is_no_exit_0() -> None:
    assert cause(exit_code=0, signal=9, outputs_complete=True) is Cause.FAILED


def test_the_exit_code_of_the_container_main_counts_where_there_is_no_exit_record() -> None:
    containers = (ContainerEnd("wait", exit_code=1), ContainerEnd("main", exit_code=0))

    assert cause(containers=containers, outputs_complete=True) is Cause.SUCCEEDED


def test_a_single_container_is_the_main_one_under_any_name() -> None:
    assert cause(containers=(ContainerEnd("pytorch", exit_code=0),), outputs_complete=True) is Cause.SUCCEEDED


def test_a_failure_after_a_notice_is_an_interruption() -> None:
    assert cause(noticed=True, exit_code=1) is Cause.INTERRUPTED


def test_a_drain_that_a_notice_caused_is_an_interruption() -> None:
    assert cause(noticed=True, moved="drained", exit_code=143) is Cause.INTERRUPTED


def test_a_node_that_is_gone_because_we_moved_the_work_is_a_disruption() -> None:
    assert cause(moved="consolidated", node_gone=True, exit_code=143) is Cause.DISRUPTED


def test_an_eviction_through_the_api_is_a_disruption_while_the_node_lives() -> None:
    assert cause(conditions=(DRAINED,), node_conditions=(ALIVE,), exit_code=143, spot=True) is Cause.DISRUPTED


def test_an_eviction_through_the_api_is_an_interruption_where_the_node_is_gone() -> None:
    assert cause(conditions=(DRAINED,), node_gone=True, exit_code=143, spot=True) is Cause.INTERRUPTED


def test_a_preemption_by_priority_stays_one_although_the_node_is_gone_by_now() -> None:
    preempted = StatusCondition("DisruptionTarget", reason="PreemptionByScheduler")

    assert cause(conditions=(preempted,), node_gone=True) is Cause.DISRUPTED


def test_a_condition_that_is_no_longer_true_is_ignored() -> None:
    withdrawn = StatusCondition("DisruptionTarget", "False", "EvictionByEvictionAPI")

    assert cause(conditions=(withdrawn,), exit_code=1) is Cause.FAILED


def test_a_preemption_that_is_no_longer_scheduled_is_ignored() -> None:
    assert cause(node_conditions=(StatusCondition("PreemptionScheduled", "False"),), exit_code=1) is Cause.FAILED


@pytest.mark.parametrize(
    ("spot", "expected"), [(True, Cause.INTERRUPTED), (None, Cause.INTERRUPTED), (False, Cause.DISRUPTED)]
)
def test_a_node_shutdown_is_the_providers_unless_the_node_is_known_not_to_be_spot(
    spot: bool | None, expected: Cause
) -> None:
    assert cause(phase="Failed", reason="Terminated", spot=spot) is expected


def test_an_exit_code_that_came_before_the_node_fell_silent_counts() -> None:
    assert cause(exit_code=1, node_taints=("node.kubernetes.io/unreachable",)) is Cause.FAILED


def test_an_eviction_for_storage_is_a_disruption_where_kubernetes_calls_it_one() -> None:
    by_kubelet = StatusCondition("DisruptionTarget", reason="TerminationByKubelet")
    message = "Container main was using 2Gi, exceeds the local ephemeral storage limit"

    assert cause(reason="Evicted", message=message, conditions=(by_kubelet,)) is Cause.DISRUPTED
    assert cause(reason="Evicted", message=message) is Cause.FAILED


def test_a_pod_that_was_deleted_on_a_living_node_was_moved_whatever_its_exit_code() -> None:
    assert cause(pod_deleted=True, node_conditions=(ALIVE,), exit_code=1) is Cause.DISRUPTED


def test_memory_counted_by_the_kernel_does_not_outweigh_our_own_time_limit() -> None:
    assert cause(timed_out=True, oom_kills=1, signal=9) is Cause.TIMED_OUT


def test_memory_counted_by_the_kernel_does_not_outweigh_an_environment_that_was_never_there() -> None:
    assert cause(start_error="no such package", oom_kills=1) is Cause.START_UP


def test_a_start_up_error_keeps_the_words_of_its_origin() -> None:
    assert classify(Signals(start_error="no such package")).why == "no such package"


def test_a_container_that_waits_beside_one_that_ended_is_no_start_up_error() -> None:
    containers = (ContainerEnd("main", exit_code=1), ContainerEnd("proxy", waiting="ImagePullBackOff"))

    assert cause(containers=containers) is Cause.FAILED


def test_no_signal_at_all_means_lost() -> None:
    assert classify(Signals()).cause is Cause.LOST


def test_the_sentence_names_an_unexplained_signal() -> None:
    assert classify(Signals(exit_code=143)).why == "it was ended by SIGTERM, with no sign that its node was reclaimed"


def test_the_sentence_names_the_outputs_that_are_missing() -> None:
    ending = classify(Signals(exit_code=0, outputs_complete=False, missing_outputs=("model", "metrics")))

    assert ending.why == "it exited with 0 without its output model, metrics"
    assert ending.evidence == {"exit_code": 0, "missing_outputs": ["model", "metrics"]}


@pytest.mark.parametrize("noticed", [True, False])
def test_the_sentence_says_where_kfp_decides_otherwise(noticed: bool) -> None:
    ending = classify(Signals(exit_code=0, outputs_complete=False, accepted_by_kfp=True, noticed=noticed))

    assert ending.cause is (Cause.INTERRUPTED if noticed else Cause.FAILED)
    assert ending.why.endswith("; KFP would have counted this as a success")


@pytest.mark.parametrize(("node_gone", "cause"), [(True, Cause.INTERRUPTED), (False, Cause.FAILED)])
def test_the_sentence_says_where_a_controller_may_count_a_stopped_attempt_as_a_success(
    node_gone: bool, cause: Cause
) -> None:
    ending = classify(Signals(exit_code=0, accepted_by_controller=True, node_gone=node_gone))

    assert ending.cause is cause
    assert ending.why.endswith("; it exited with 0, which its controller may count as a success")


def test_a_node_that_comes_back_and_then_ends_the_pod_was_lost() -> None:
    marked = StatusCondition("DisruptionTarget", reason="DeletionByTaintManager")
    taint = "node.kubernetes.io/unreachable"

    ending = classify(Signals(exit_code=143, conditions=(marked,), node_taints=(taint,)))

    assert (ending.cause, ending.evidence["sign"]) == (Cause.LOST, taint)
    assert classify(Signals(exit_code=143, conditions=(marked,))).cause is Cause.DISRUPTED


def test_an_unknown_exit_code_above_128_stays_a_number() -> None:
    assert classify(Signals(exit_code=255)).why == "it exited with 255"


def test_the_evidence_holds_the_deciding_signals_as_plain_data() -> None:
    signals = Signals(exit_code=143, node_taints=("aws-node-termination-handler/spot-itn",), spot=True)

    assert json.loads(json.dumps(classify(signals).evidence)) == {
        "exit_code": 143,
        "sign": "aws-node-termination-handler/spot-itn",
    }
