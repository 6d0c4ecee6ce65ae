"""Decides why an attempt ended: exactly one cause, from all signals together and never from a single string.

The cause decides which budget the ending spends. The rules are tried in the order of the design's table (rows 1 to 5): cancelled,
succeeded, interrupted, disrupted, then errors of the work itself. Four principles:

- An exit code is a fact about a process, not about its node. 137 and 143 mean that the process received a signal. The node, the
  pod and the notice tell who sent it; without any of them the ending is an error of the work.
- A missing node means an interruption, unless a record shows that our side removed it (scale down, consolidation). An eviction
  through the API is ambiguous: the attempt was drained from a node that then went (interrupted), or moved off a node that still
  lives (disrupted).
- Exit code 0 says that the process returned, not that its work is done. Training frameworks save and return when SIGTERM comes
  (Hugging Face's ``enable_jit_checkpoint``, Lightning's ``SIGTERMException``), so reported progress tells the two apart.
- Memory pressure of the *node* evicts pods above their requests. Kubernetes calls that a disruption, and so does Spotwright.
  Memory or storage above the pod's *own limit* is an error.

Sources of the strings: kubernetes/kubernetes (``pkg/kubelet/eviction``, ``nodeshutdown``, ``preemption``;
``pkg/controller/podgc``, ``tainteviction``) and the threads that ``docs/failure-evidence.md`` links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from spotwright.clouds import node_signs
from spotwright.model.attempts import Cause, ContainerEnd, Ending, Signals, StatusCondition, has_work_left

__all__ = ["ROWS", "Row", "classify", "deciding", "ended_early", "row_of"]

_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

# Reasons set by the kubelet's graceful node shutdown: on pods it ended (now, before 1.22), on pods it did not admit
_NODE_SHUTDOWN = ("Terminated", "Shutdown", "NodeShutdown")
_PREEMPTED = ("PreemptionByScheduler", "PreemptionByKubeScheduler")  # the second is its name in 1.25
_DELETED_FOR_TAINT = "DeletionByTaintManager"
_DISRUPTIONS = {
    "EvictionByEvictionAPI": "it was evicted, as by kubectl drain",
    _DELETED_FOR_TAINT: "it was deleted for a NoExecute taint of its node",
}
_REJECTED = re.compile(r"(NodeAffinity|UnexpectedAdmissionError|TopologyAffinityError|OutOf\w[\w./-]*)")  # not admitted
_OVER_OWN_LIMIT = re.compile(
    r"exceed(s|ed) .*\blimit\b"
)  # the kubelet's message about storage, with the reason Evicted
_CANNOT_START = ("ContainerCannotRun", "StartError")


class Row(NamedTuple):
    """One line of "How the cause is decided" in ``docs/failure-matrix.md``: its number there, from one, and its text."""

    number: int
    text: str


def classify(signals: Signals) -> Ending:
    """Decide why an attempt ended. Every combination of signals has exactly one cause, which is never ``UNSCHEDULABLE``."""
    ending = next(ending for _, rule in _RULES if (ending := rule(signals)) is not None)
    if signals.accepted_by_kfp and ending.cause is not Cause.SUCCEEDED:
        return replace(ending, why=f"{ending.why}; KFP would have counted this as a success")
    if signals.accepted_by_controller and ending.cause is not Cause.SUCCEEDED:
        return replace(ending, why=f"{ending.why}; it exited with 0, which its controller may count as a success")
    return ending


def row_of(signals: Signals) -> Row:
    """The first row of the table that matches these signals: the one by which :func:`classify` decides."""
    return next(row for row, rule in _RULES if rule(signals) is not None)


def ended_early(signals: Signals) -> bool:
    """Whether an attempt exited with 0 with work left because it was asked to stop: orchestrators count that as done."""
    return not signals.cancelled and _ended_early(signals) is not None


def deciding(ending: Ending) -> frozenset[str]:
    """The keys of its evidence that decided an ending.

    The evidence has the exit code and the signal of the process whenever they are known. They decided only where the process
    tells its end by itself: without any other evidence, or together with its outputs. What was not observed decided nothing.
    """
    observed = {name for name, value in ending.evidence.items() if value != Signals._field_defaults.get(name)}
    return frozenset(observed - _PROCESS if observed - _OF_PROCESS else observed)


_PROCESS = frozenset(("exit_code", "signal"))
_OF_PROCESS = _PROCESS | {"outputs_complete", "missing_outputs"}


# Rows 1 and 2: cancelled, ended early, succeeded


def _cancelled(s: Signals) -> Ending | None:
    how = f": {s.moved}" if s.moved else ""
    return _ending(Cause.CANCELLED, f"it was cancelled{how}", s, cancelled=True) if s.cancelled else None


def _ended_early(s: Signals) -> Ending | None:
    """Exit 0 with work left, after a request to stop: the cause is that of the request. Without one, the code chose its end."""
    if _exit_code(s) != 0 or s.progress is None or not has_work_left(s.progress):
        return None
    request = next((ending for rule in _STOPS if (ending := rule(s)) is not None), None)
    if request is None:
        return None
    return Ending(request.cause, f"{request.why}, with work left", {**request.evidence, "progress": s.progress})


def _succeeded(s: Signals) -> Ending | None:
    """Exit 0 with every declared output, also during a notice. Outputs that were not checked count as missing."""
    if _exit_code(s) == 0 and s.outputs_complete and not s.missing_outputs:
        return _ending(Cause.SUCCEEDED, "it exited with 0 and every declared output is there", s, outputs_complete=True)
    return None


# Row 3: interrupted or lost. From here on the attempt did not succeed


def _announced(s: Signals) -> Ending | None:
    """The provider announced the interruption: by a notice, or by a taint, condition or event that a handler put on the node."""
    if s.noticed:
        why = "its node was reclaimed after a notice" if s.node_gone else f"{_how(s)} after the notice for its node"
        return _ending(Cause.INTERRUPTED, why, s, noticed=True, node_gone=s.node_gone)
    sign = _first(
        (taint for taint in s.node_taints if taint in node_signs.TAKEN_TAINTS),
        (condition.type for condition in _true(s.node_conditions) if _announces(condition)),
        (name for name in _event_names(s) if name in node_signs.TAKEN_EVENTS),
        (taint for taint in s.node_taints if taint in node_signs.AUTO_DRAIN_TAINTS and s.spot),
    )
    if sign is None:
        return None
    return _ending(
        Cause.INTERRUPTED, f"{_how(s)} after the provider announced that it is reclaiming the node", s, sign=sign
    )


def _announces(condition: StatusCondition) -> bool:
    if condition.type == node_signs.VM_EVENT_CONDITION:
        return condition.message.startswith(node_signs.TAKEN_VM_EVENTS)
    return condition.type in node_signs.TAKEN_CONDITIONS


def _node_gone(s: Signals) -> Ending | None:
    """The node is gone, and no record shows that our side removed it."""
    sign = _first(
        _if(s.node_gone, "node_gone"),
        (target.reason for target in _disruption_targets(s) if target.reason == "DeletionByPodGC"),
        (taint for taint in s.node_taints if taint in node_signs.GONE_TAINTS),
        (name for name in _event_names(s) if name in node_signs.GONE_EVENTS),
    )
    if sign is None:
        return None
    return _ending(Cause.INTERRUPTED, "its node is gone, without a notice that was seen", s, sign=sign)


def _node_shut_down(s: Signals) -> Ending | None:
    """The kubelet ended it because the machine shuts down: an interruption on spot, a disruption on any other node."""
    sign = _first(
        _if(s.reason in _NODE_SHUTDOWN, s.reason),
        (target.reason or target.type for target in _disruption_targets(s) if "node shutdown" in target.message),
        _if(any(_says_shutting_down(condition) for condition in s.node_conditions), "node is shutting down"),
    )
    if sign is None:
        return None
    if s.spot is False:
        return _ending(Cause.DISRUPTED, "its node (not spot) was shut down", s, sign=sign)
    return _ending(Cause.INTERRUPTED, "its node was shut down while it ran", s, sign=sign)


def _node_restarted(s: Signals) -> Ending | None:
    """The node lost power or restarted, and the container with it: an interruption on spot, else a disruption."""
    if not s.node_restarted:
        return None
    sign = s.node_restarted
    if s.spot is False:
        return _ending(Cause.DISRUPTED, f"its node (not spot) restarted: {sign}", s, node_restarted=sign)
    return _ending(Cause.INTERRUPTED, f"its node restarted: {sign}", s, node_restarted=sign)


def _says_shutting_down(condition: StatusCondition) -> bool:
    not_ready = condition.type == "Ready" and condition.status != "True"
    return not_ready and "node is shutting down" in (condition.reason, condition.message)


def _unreachable(s: Signals) -> Ending | None:
    """The node stopped reporting, and its exit code never arrived, or only after it was back and had ended the pod."""
    if _ended(s) and not any(target.reason == _DELETED_FOR_TAINT for target in _disruption_targets(s)):
        return None
    sign = _first(
        (taint for taint in s.node_taints if taint in node_signs.UNREACHABLE_TAINTS),
        _if(_ready(s) == "Unknown", "Ready=Unknown"),
        _if(s.reason == "NodeLost", s.reason),
    )
    why = "its node was unreachable, and ended it on its return" if _ended(s) else "its node stopped reporting"
    return _ending(Cause.LOST, why, s, sign=sign) if sign else None


def _silent_attempt(s: Signals) -> Ending | None:
    """The attempt itself stopped reporting: its pod was deleted, or it left neither a record nor a status."""
    if s.pod_deleted:
        if _ready(s) == "True":
            return _ending(Cause.DISRUPTED, "its pod was deleted while its node kept running", s, pod_deleted=True)
        return _ending(Cause.LOST, "its pod is gone, and the state of its node is unknown", s, pod_deleted=True)
    if not s.heard:
        return _ending(Cause.LOST, "it stopped reporting", s, heard=False)
    if s.phase == "Unknown" and not _ended(s):
        return _ending(Cause.LOST, "it stopped reporting", s, phase=s.phase)
    return None


# Row 4: disrupted


def _moved(s: Signals) -> Ending | None:
    """A record shows that Spotwright or Kubernetes ended it on purpose, which also explains a missing node."""
    if s.moved:
        return _ending(Cause.DISRUPTED, f"it was moved: {s.moved}", s, moved=s.moved)
    removed = _first(
        (taint for taint in s.node_taints if taint in node_signs.REMOVED_TAINTS),
        (taint for taint in s.node_taints if taint in node_signs.AUTO_DRAIN_TAINTS),
        (name for name in _event_names(s) if name in node_signs.REMOVED_EVENTS),
    )
    if removed is not None:
        why = (
            node_signs.REMOVED_TAINTS.get(removed)
            or node_signs.REMOVED_EVENTS.get(removed)
            or "the platform drained its node"
        )
        return _ending(Cause.DISRUPTED, why, s, sign=removed)
    for target in _disruption_targets(s):
        if target.reason in _PREEMPTED:
            return _ending(Cause.DISRUPTED, "a pod of higher priority took its place", s, sign=target.reason)
    for condition in _true(s.conditions):
        if condition.type == "TerminationTarget":  # set by Kueue on the pods of a workload that it stops
            return _ending(Cause.DISRUPTED, "Kueue stopped it", s, sign=condition.reason or condition.type)
    return _evicted_by_kubelet(s)


def _evicted_by_kubelet(s: Signals) -> Ending | None:
    """The kubelet evicted the pod: for a critical pod, for its own storage limit, or because the node ran short."""
    if s.reason == "Preempting":
        return _ending(Cause.DISRUPTED, "the kubelet made room for a critical pod", s, reason=s.reason)
    if s.reason != "Evicted":
        return None
    if _OVER_OWN_LIMIT.search(s.message) and not _disruption_targets(s):
        return _ending(Cause.FAILED, "it was evicted for using more storage than its own limit", s, reason=s.reason)
    return _ending(Cause.DISRUPTED, "the kubelet evicted it because its node ran short", s, reason=s.reason)


def _disrupted(s: Signals) -> Ending | None:
    """Kubernetes marked the pod for disruption, or the kubelet did not admit it; the node lives."""
    for target in _disruption_targets(s):
        why = _DISRUPTIONS.get(target.reason, "Kubernetes ended it on purpose")
        return _ending(Cause.DISRUPTED, why, s, sign=target.reason or target.type)
    if _REJECTED.fullmatch(s.reason):
        return _ending(Cause.DISRUPTED, f"its node did not admit it ({s.reason})", s, reason=s.reason)
    return None


# Row 5: errors. The node lives, and no other component ended the attempt


def _out_of_memory(s: Signals) -> Ending | None:
    """The runtime reports OOMKilled, or the kernel counted kills while it ran. Exit code 137 alone is not enough."""
    for container in s.containers:
        if container.reason == "OOMKilled":
            why = f"its container {container.name} ran out of memory"
            return _ending(Cause.OUT_OF_MEMORY, why, s, sign=container.reason)
    if s.reason == "OOMKilled":
        return _ending(Cause.OUT_OF_MEMORY, "it ran out of memory", s, reason=s.reason)
    if s.oom_kills and not s.timed_out and not s.start_error:
        return _ending(
            Cause.OUT_OF_MEMORY,
            f"{_how(s)} after the kernel killed a process because memory ran out",
            s,
            oom_kills=s.oom_kills,
        )
    return None


def _never_started(s: Signals) -> Ending | None:
    """The work never ran: its environment, image, volume or container could not be set up."""
    if s.start_error:
        return _ending(Cause.START_UP, s.start_error, s, start_error=s.start_error)
    for container in s.containers:
        if container.reason in _CANNOT_START:
            why = f"its container {container.name} could not be started"
            return _ending(Cause.START_UP, why, s, sign=container.reason)
        if container.waiting and not _ended(s):
            why = f"its container {container.name} stayed in {container.waiting}"
            return _ending(Cause.START_UP, why, s, sign=container.waiting)
    return None


def _timed_out(s: Signals) -> Ending | None:
    if s.timed_out or s.reason == "DeadlineExceeded":
        return _ending(Cause.TIMED_OUT, "its time limit passed", s, timed_out=True)
    return None


def _unknown_end(s: Signals) -> Ending | None:
    """No signal tells how the process ended. That is a gap in the evidence, not a failure of the work."""
    if _ended(s):
        return None
    untold = next((each for each in s.containers if each.is_untold), None)
    if untold is None:
        return _ending(Cause.LOST, "no signal shows how it ended", s, phase=s.phase)
    restarted = "nothing shows that its node restarted" if _ready(s) else "the state of its node is unknown"
    why = f"its container runtime lost it (exit code {untold.exit_code}, reason {untold.reason}), and {restarted}"
    return _ending(Cause.LOST, why, s, sign=untold.reason)


def _failed(s: Signals) -> Ending:
    """The work failed: a non-zero exit code, a signal, or exit 0 without its outputs."""
    if _exit_code(s) != 0:
        why = _how(s)
        if why.endswith(("SIGTERM", "SIGKILL")):
            why += ", with no sign that its node was reclaimed"
        return _ending(Cause.FAILED, why, s)
    if s.missing_outputs:
        why = f"it exited with 0 without its output {', '.join(s.missing_outputs)}"
        return _ending(Cause.FAILED, why, s, missing_outputs=list(s.missing_outputs))
    why = "without its outputs" if s.outputs_complete is False else "and its outputs were not checked"
    return _ending(Cause.FAILED, f"it exited with 0 {why}", s, outputs_complete=s.outputs_complete)


_STOPS = (_announced, _moved, _node_gone, _node_shut_down, _node_restarted, _unreachable, _disrupted, _silent_attempt)
"""The rules of lines 4 to 9: what tells an attempt to stop."""

_TABLE: tuple[tuple[str, tuple[Callable[[Signals], Ending | None], ...]], ...] = (
    ("The run was cancelled: cancelled.", (_cancelled,)),
    (
        (
            "Exit 0 with reported progress short of the end: not a success if one of lines 4 to 9 matches (a notice, an order"
            " to stop); that line decides."
        ),
        (_ended_early,),
    ),
    ("Exit 0 and every declared output is there: succeeded, also during a notice.", (_succeeded,)),
    (
        "The provider announced that it is reclaiming the node (notice, condition, taint or event): interrupted.",
        (_announced,),
    ),
    (
        (
            "A record shows that Kubernetes or Spotwright ended it (moved, scaled down, consolidated, preempted by a higher "
            "priority, evicted by a node that ran short): disrupted. Over the pod's own storage limit: failed."
        ),
        (_moved,),  # before _node_gone: scale down and consolidation remove nodes too
    ),
    (
        "The node is gone, was shut down or restarted: interrupted; disrupted if the node is alive and not spot.",
        (_node_gone, _node_shut_down, _node_restarted),
    ),
    ("No sign of life from the node: lost.", (_unreachable,)),
    ("Kubernetes marked the pod for disruption, or the node did not admit it: disrupted.", (_disrupted,)),
    ("No sign of life from the attempt: lost. If its node is alive: disrupted.", (_silent_attempt,)),
    ("Out of memory, start-up, timed out, in this order.", (_out_of_memory, _never_started, _timed_out)),
    ("No end was recorded: lost. Everything else: failed.", (_unknown_end, _failed)),
)
"""The lines of the page in their order, each with its rules. The first rule that applies decides; the last one always applies."""

ROWS = tuple(Row(number, text) for number, (text, _) in enumerate(_TABLE, 1))
"""The lines of "How the cause is decided"; ``docs/failure-matrix.md`` is made from them."""

_RULES = tuple((row, rule) for row, (_, rules) in zip(ROWS, _TABLE, strict=True) for rule in rules)


# Readers of signals


def _main(s: Signals) -> ContainerEnd | None:
    """The container that runs the user's code: the one named ``main`` (as in KFP and Argo), else the only one."""
    if len(s.containers) == 1:
        return s.containers[0]
    return next((container for container in s.containers if container.name == "main"), None)


def _exit_code(s: Signals) -> int | None:
    """The exit code of the user's process: from the exit record, else from its container unless it is made up."""
    main = _main(s)
    of_container = main.exit_code if main is not None else None
    code = s.exit_code if s.exit_code is not None else of_container
    if main is not None and main.is_untold and code == of_container:
        return None
    return None if s.signal is not None and code == 0 else code


def _signal(s: Signals) -> int | None:
    if s.signal is not None:
        return s.signal
    main = _main(s)
    return main.signal if main is not None else None


def _ended(s: Signals) -> bool:
    """True if an exit code or a signal of the process was recorded."""
    return _exit_code(s) is not None or _signal(s) is not None


def _how(s: Signals) -> str:
    """Return the end of the process as the beginning of a sentence: ``it exited with 1``, ``it was ended by SIGKILL``."""
    code, number = _exit_code(s), _signal(s)
    if number is None and code is not None and code > 128:
        number = code - 128  # shells and container runtimes report a signal as 128 + its number
    if number is not None and (number in _SIGNALS or code is None):
        return f"it was ended by {_SIGNALS.get(number, f'signal {number}')}"
    if code is not None:
        return f"it exited with {code}"
    return "it ended"


def _true(conditions: Iterable[StatusCondition]) -> Iterable[StatusCondition]:
    return (condition for condition in conditions if condition.status == "True")


def _disruption_targets(s: Signals) -> tuple[StatusCondition, ...]:
    return tuple(condition for condition in _true(s.conditions) if condition.type == "DisruptionTarget")


def _event_names(s: Signals) -> Iterable[str]:
    """Names of events. Depending on the reader, an event's reason stands in ``type`` or in ``reason``."""
    return (name for event in s.node_events for name in (event.reason, event.type))


def _ready(s: Signals) -> str:
    """Status of the node's condition Ready; empty where it was not observed."""
    return next((condition.status for condition in s.node_conditions if condition.type == "Ready"), "")


def _if(holds: bool, sign: str) -> tuple[str, ...]:
    return (sign,) if holds else ()


def _first(*signs: Iterable[str]) -> str | None:
    return next(chain.from_iterable(signs), None)


def _ending(cause: Cause, why: str, s: Signals, **evidence: Any) -> Ending:
    """An ending with its evidence: the signals that decided it, and the exit code or signal of the process if known."""
    observed = {"exit_code": _exit_code(s), "signal": _signal(s), **evidence}
    return Ending(cause, why, {name: value for name, value in observed.items() if value is not None})
