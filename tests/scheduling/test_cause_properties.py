"""Properties of the cause for any signals: exactly one cause, never decided by an exit code or a message alone."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from spotwright.clouds import node_signs
from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.scheduling.cause import classify

MESSAGES = st.sampled_from(
    [
        "",
        "pod deleted",
        "Pod was terminated in response to imminent node shutdown.",
        "The node was low on resource: memory.",
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi.",
        "Preempt Scheduled: Sat, 01 Aug 2026 05:41:02 GMT.",
        "workflow shutdown with strategy: Terminate",
    ]
) | st.text(max_size=20)
KUBELET_REASONS = ["Evicted", "Preempting", "Terminated", "Shutdown", "NodeShutdown", "NodeAffinity", "OutOfcpu"]
OTHER_REASONS = ["", "NodeLost", "UnexpectedAdmissionError", "DeadlineExceeded", "OOMKilled", "Error"]
REASONS = st.sampled_from([*KUBELET_REASONS, *OTHER_REASONS]) | st.text(max_size=8)
DISRUPTIONS = ["PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI", "DeletionByPodGC"]
STATUSES = st.sampled_from(["True", "False", "Unknown"])
TAINTS = st.sampled_from(
    [
        *sorted(
            node_signs.TAKEN_TAINTS
            | node_signs.AUTO_DRAIN_TAINTS
            | node_signs.GONE_TAINTS
            | node_signs.UNREACHABLE_TAINTS
        ),
        *node_signs.REMOVED_TAINTS,
        "node.kubernetes.io/unschedulable",
    ]
)
EVENTS = st.sampled_from(
    [*sorted(node_signs.TAKEN_EVENTS | node_signs.GONE_EVENTS), *node_signs.REMOVED_EVENTS, "NodeNotReady"]
)
POD_CONDITIONS = st.builds(
    StatusCondition,
    st.sampled_from(["DisruptionTarget", "TerminationTarget", "Ready"]),
    STATUSES,
    st.sampled_from([*DISRUPTIONS, "TerminationByKubelet", ""]),
    MESSAGES,
)
NODE_CONDITIONS = st.builds(
    StatusCondition,
    st.sampled_from(["Ready", "PreemptionScheduled", "VMEventScheduled", "MemoryPressure"]),
    STATUSES,
    st.sampled_from(["", "KubeletNotReady", "SpotEvictionIncoming"]),
    MESSAGES | st.just("node is shutting down"),
)
CODES = st.none() | st.sampled_from([0, 1, 2, 127, 128, 134, 137, 139, 143]) | st.integers(0, 255)
CONTAINERS = st.builds(
    ContainerEnd,
    st.sampled_from(["main", "wait", "init", "pytorch"]),
    exit_code=CODES,
    reason=st.sampled_from(["", "Completed", "Error", "OOMKilled", "StartError", "ContainerStatusUnknown", "Unknown"]),
    waiting=st.sampled_from(["", "ImagePullBackOff", "ContainerCreating", "PodInitializing"]),
)


def few(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(strategy, max_size=2).map(tuple)


# Only some signals are seen of any one attempt: each field is left at its default or drawn.
DRAWN = {
    "exit_code": CODES,
    "signal": st.none() | st.sampled_from([2, 9, 15]),
    "outputs_complete": st.none() | st.booleans(),
    "missing_outputs": few(st.sampled_from(["model", "metrics"])),
    "progress": st.none() | st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1),
    "accepted_by_kfp": st.booleans(),
    "accepted_by_controller": st.booleans(),
    "noticed": st.booleans(),
    "node_gone": st.booleans(),
    "heard": st.booleans(),
    "timed_out": st.booleans(),
    "oom_kills": st.integers(0, 2),
    "cancelled": st.booleans(),
    "moved": st.sampled_from(["", "drained"]),
    "start_error": st.sampled_from(["", "no such package"]),
    "phase": st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    "reason": REASONS,
    "message": MESSAGES,
    "conditions": few(POD_CONDITIONS),
    "containers": few(CONTAINERS),
    "node_conditions": few(NODE_CONDITIONS),
    "node_taints": few(TAINTS),
    "node_events": few(st.builds(StatusCondition, st.just("Warning"), reason=EVENTS)),
    "pod_deleted": st.booleans(),
    "node_restarted": st.sampled_from(["", "the boot ID of its node changed"]),
    "spot": st.none() | st.booleans(),
}
SIGNALS = st.fixed_dictionaries({}, optional=DRAWN).map(lambda drawn: Signals(**drawn))
NON_ZERO = st.integers(1, 255)


def unsuccessful(signals: Signals) -> Signals:
    return signals._replace(cancelled=False, outputs_complete=False)


def test_every_signal_is_drawn() -> None:
    assert set(DRAWN) == set(Signals._fields)


@given(SIGNALS)
def test_any_signals_have_exactly_one_cause_with_a_sentence_and_evidence_as_data(signals: Signals) -> None:
    ending = classify(signals)

    assert ending.cause in set(Cause) - {Cause.UNSCHEDULABLE}
    assert ending.why
    assert not ending.why.endswith(".")
    assert json.loads(json.dumps(ending.evidence)) == ending.evidence
    assert ending.evidence


@given(SIGNALS)
def test_the_same_signals_have_the_same_ending(signals: Signals) -> None:
    assert classify(signals) == classify(Signals(*signals))


@given(SIGNALS)
def test_cancelled_wins_over_everything(signals: Signals) -> None:
    assert classify(signals._replace(cancelled=True)).cause is Cause.CANCELLED


@given(SIGNALS)
def test_without_containers_and_work_left_success_is_exit_0_and_every_output_and_nothing_else(signals: Signals) -> None:
    seen = signals._replace(containers=(), cancelled=False, progress=None)
    done = seen.exit_code == 0 and seen.signal is None and seen.outputs_complete is True and not seen.missing_outputs

    assert (classify(seen).cause is Cause.SUCCEEDED) is done


@given(SIGNALS, st.floats(0, 0.999))
def test_there_is_no_success_after_a_notice_with_work_left(signals: Signals, progress: float) -> None:
    seen = signals._replace(noticed=True, cancelled=False, progress=progress)

    assert classify(seen).cause is Cause.INTERRUPTED


@given(SIGNALS)
def test_reported_progress_changes_nothing_but_a_success(signals: Signals) -> None:
    before, after = classify(signals._replace(progress=None)).cause, classify(signals).cause

    assert before in (after, Cause.SUCCEEDED)


@given(SIGNALS)
def test_there_is_no_success_without_outputs(signals: Signals) -> None:
    assert classify(signals._replace(outputs_complete=False)).cause is not Cause.SUCCEEDED


@given(SIGNALS)
def test_an_attempt_that_does_not_succeed_after_a_notice_is_interrupted(signals: Signals) -> None:
    assert classify(unsuccessful(signals)._replace(noticed=True)).cause is Cause.INTERRUPTED


@given(NON_ZERO, st.none() | st.booleans(), MESSAGES)
def test_an_exit_code_alone_is_the_works_own_failure(code: int, spot: bool | None, message: str) -> None:
    assert classify(Signals(exit_code=code, spot=spot, message=message, phase="Failed")).cause is Cause.FAILED


@given(SIGNALS, NON_ZERO, NON_ZERO)
def test_the_value_of_the_exit_code_changes_no_cause(signals: Signals, one: int, other: int) -> None:
    seen = signals._replace(containers=())

    assert classify(seen._replace(exit_code=one)).cause is classify(seen._replace(exit_code=other)).cause


@given(SIGNALS, MESSAGES)
def test_the_message_alone_never_decides_an_interruption(signals: Signals, message: str) -> None:
    before, after = classify(signals).cause, classify(signals._replace(message=message)).cause

    assert before.is_interruption == after.is_interruption
    if signals.reason != "Evicted":  # there it tells the node's shortage from the pod's own limit
        assert before is after


@given(SIGNALS)
def test_a_node_that_is_gone_never_costs_the_error_budget_unless_the_kubelet_had_judged_before(
    signals: Signals,
) -> None:
    seen = unsuccessful(signals)._replace(node_gone=True)

    assert not classify(seen).cause.is_error or seen.reason == "Evicted"


@given(SIGNALS)
def test_a_machine_of_our_own_needs_a_lost_node_or_silence_for_an_interruption(signals: Signals) -> None:
    local = Signals(
        exit_code=signals.exit_code,
        signal=signals.signal,
        outputs_complete=signals.outputs_complete,
        missing_outputs=signals.missing_outputs,
        timed_out=signals.timed_out,
        oom_kills=signals.oom_kills,
        start_error=signals.start_error,
    )
    silent = (
        local.exit_code is None
        and local.signal is None
        and not (local.timed_out or local.oom_kills or local.start_error)
    )

    assert classify(local).cause.is_interruption is silent
