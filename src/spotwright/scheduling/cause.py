"""Why an attempt ended: exactly one cause, decided from every signal at hand and never from one string.

The budget an ending spends hangs on this, so the order of the rules is the order of the design's table (rows 1 to 5): cancelled,
succeeded, interrupted, disrupted, and only then what went wrong in the work itself. Three of its judgements in words:

- An exit code is a fact about a process, not about a node. 137 and 143 say that somebody sent a signal; who, is said by the
  node, the pod and the notice. Alone they are the work's own failure.
- A node that is gone is an interruption, unless it is on record that our own side removed it (scale down, consolidation). An
  eviction through the API leaves both open: with the node gone it was drained because it went, with the node alive it was
  moved.
- Memory pressure of a *node* evicts whoever is over its request: Kubernetes calls that a disruption, and so do we. Memory or
  storage over the pod's *own limit* is an error.

What the strings mean was read in kubernetes/kubernetes (``pkg/kubelet/eviction``, ``nodeshutdown``, ``preemption``;
``pkg/controller/podgc``, ``tainteviction``) and in the threads that ``docs/failure-matrix.md`` links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from spotwright.clouds import signs
from spotwright.model.attempts import Cause, Condition, ContainerEnd, Ending, Signals

__all__ = ["classify"]

_SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}

# Reasons of the kubelet's graceful node shutdown: of a pod it ended (now, before 1.22), of a pod it did not let in.
_NODE_SHUTDOWN = ("Terminated", "Shutdown", "NodeShutdown")
_PREEMPTED = ("PreemptionByScheduler", "PreemptionByKubeScheduler")  # the second is its name in 1.25
_REJECTED = re.compile(r"(NodeAffinity|UnexpectedAdmissionError|TopologyAffinityError|OutOf\w[\w./-]*)")  # not admitted
_OVER_OWN_LIMIT = re.compile(r"exceed(s|ed) .*\blimit\b")  # the kubelet's words for storage, beside the reason Evicted
_CANNOT_START = ("ContainerCannotRun", "StartError")
_STATUS_UNKNOWN = "ContainerStatusUnknown"  # the kubelet lost the container and made its exit code 137 up


def classify(signals: Signals) -> Ending:
    """Decide why an attempt ended. Total: any combination of signals has exactly one cause, never ``UNSCHEDULABLE``."""
    return next(ending for rule in _RULES if (ending := rule(signals)) is not None)


# Row 1 and 2


def _cancelled(s: Signals) -> Ending | None:
    return _ending(Cause.CANCELLED, "it was cancelled", s, cancelled=True) if s.cancelled else None


def _succeeded(s: Signals) -> Ending | None:
    """Exit 0 with every output, also while a notice was running. What nobody looked at is not there."""
    if _exit_code(s) == 0 and s.outputs_complete and not s.missing_outputs:
        return _ending(Cause.SUCCEEDED, "it exited with 0 and every declared output is there", s, outputs_complete=True)
    return None


# Row 3: from here on the attempt did not succeed


def _announced(s: Signals) -> Ending | None:
    """The provider said that it takes the node: a notice, or what a handler wrote on the node."""
    if s.noticed:
        why = "its node was taken after a notice" if s.node_gone else f"{_how(s)} after the notice for its node"
        return _ending(Cause.INTERRUPTED, why, s, noticed=True, node_gone=s.node_gone)
    sign = _first(
        (taint for taint in s.node_taints if taint in signs.TAKEN_TAINTS),
        (condition.type for condition in _true(s.node_conditions) if _announces(condition)),
        (name for name in _event_names(s) if name in signs.TAKEN_EVENTS),
        (taint for taint in s.node_taints if taint in signs.AUTO_DRAIN_TAINTS and s.spot),
    )
    if sign is None:
        return None
    return _ending(Cause.INTERRUPTED, f"{_how(s)} after the provider announced that it takes the node", s, sign=sign)


def _announces(condition: Condition) -> bool:
    if condition.type == signs.VM_EVENT_CONDITION:
        return condition.message.startswith(signs.TAKEN_VM_EVENTS)
    return condition.type in signs.TAKEN_CONDITIONS


def _node_gone(s: Signals) -> Ending | None:
    """The node is gone, and nothing on record says that our side removed it."""
    sign = _first(
        _if(s.node_gone, "node_gone"),
        (target.reason for target in _disruption_targets(s) if target.reason == "DeletionByPodGC"),
        (taint for taint in s.node_taints if taint in signs.GONE_TAINTS),
        (name for name in _event_names(s) if name in signs.GONE_EVENTS),
    )
    if sign is None:
        return None
    return _ending(Cause.INTERRUPTED, "its node is gone, without a notice that was seen", s, sign=sign)


def _node_shut_down(s: Signals) -> Ending | None:
    """The kubelet ended it because its machine is shutting down: the provider's doing on spot, somebody's elsewhere."""
    sign = _first(
        _if(s.reason in _NODE_SHUTDOWN, s.reason),
        (target.reason or target.type for target in _disruption_targets(s) if "node shutdown" in target.message),
        _if(any(_says_shutting_down(condition) for condition in s.node_conditions), "node is shutting down"),
    )
    if sign is None:
        return None
    if s.spot is False:
        return _ending(Cause.DISRUPTED, "its node was shut down, and that is no spot node", s, sign=sign)
    return _ending(Cause.INTERRUPTED, "its node was shut down under it", s, sign=sign)


def _says_shutting_down(condition: Condition) -> bool:
    not_ready = condition.type == "Ready" and condition.status != "True"
    return not_ready and "node is shutting down" in (condition.reason, condition.message)


def _unreachable(s: Signals) -> Ending | None:
    """Nothing is heard of its node, and no exit code came from there."""
    if _ended(s):
        return None
    sign = _first(
        (taint for taint in s.node_taints if taint in signs.UNREACHABLE_TAINTS),
        _if(_ready(s) == "Unknown", "Ready=Unknown"),
        _if(s.reason == "NodeLost", s.reason),
    )
    return _ending(Cause.LOST, "nothing is heard of its node any more", s, sign=sign) if sign else None


def _unheard(s: Signals) -> Ending | None:
    """Nothing is heard of the attempt itself."""
    if s.pod_deleted:
        if _ready(s) == "True":
            return _ending(Cause.DISRUPTED, "its pod was deleted while its node lived on", s, pod_deleted=True)
        return _ending(Cause.LOST, "its pod is gone, and nothing says what became of its node", s, pod_deleted=True)
    if not s.heard:
        return _ending(Cause.LOST, "nothing is heard of it any more", s, heard=False)
    if s.phase == "Unknown" and not _ended(s):
        return _ending(Cause.LOST, "nothing is heard of it any more", s, phase=s.phase)
    return None


# Row 4


def _moved(s: Signals) -> Ending | None:
    """It is on record that we or Kubernetes ended it on purpose; that explains a node that is gone as well."""
    if s.moved:
        return _ending(Cause.DISRUPTED, f"it was moved: {s.moved}", s, moved=s.moved)
    removed = _first(
        (taint for taint in s.node_taints if taint in signs.REMOVED_TAINTS),
        (taint for taint in s.node_taints if taint in signs.AUTO_DRAIN_TAINTS),
        (name for name in _event_names(s) if name in signs.REMOVED_EVENTS),
    )
    if removed is not None:
        why = signs.REMOVED_TAINTS.get(removed) or signs.REMOVED_EVENTS.get(removed) or "the platform drained its node"
        return _ending(Cause.DISRUPTED, why, s, sign=removed)
    for target in _disruption_targets(s):
        if target.reason in _PREEMPTED:
            return _ending(Cause.DISRUPTED, "a pod of higher priority took its place", s, sign=target.reason)
    for condition in _true(s.conditions):
        if condition.type == "TerminationTarget":  # Kueue, on the pods of a workload it stops
            return _ending(Cause.DISRUPTED, "Kueue stopped it", s, sign=condition.reason or condition.type)
    return _evicted_by_kubelet(s)


def _evicted_by_kubelet(s: Signals) -> Ending | None:
    if s.reason == "Preempting":
        return _ending(Cause.DISRUPTED, "the kubelet made room for a critical pod", s, reason=s.reason)
    if s.reason != "Evicted":
        return None
    if _OVER_OWN_LIMIT.search(s.message) and not _disruption_targets(s):
        return _ending(Cause.FAILED, "it was evicted for using more storage than its own limit", s, reason=s.reason)
    return _ending(Cause.DISRUPTED, "the kubelet evicted it because its node ran short", s, reason=s.reason)


def _disrupted(s: Signals) -> Ending | None:
    """Kubernetes marked it for disruption, or the kubelet refused what the scheduler had sent; the node lives."""
    for target in _disruption_targets(s):
        return _ending(Cause.DISRUPTED, "Kubernetes ended it on purpose", s, sign=target.reason or target.type)
    if _REJECTED.fullmatch(s.reason):
        return _ending(Cause.DISRUPTED, f"its node did not admit it ({s.reason})", s, reason=s.reason)
    return None


# Row 5: the node lives, and nobody else ended it


def _out_of_memory(s: Signals) -> Ending | None:
    """A container that the runtime calls OOMKilled, or kernel kills counted while it ran; not by exit code 137."""
    for container in s.containers:
        if container.reason == "OOMKilled":
            why = f"its container {container.name} ran out of memory"
            return _ending(Cause.OUT_OF_MEMORY, why, s, sign=container.reason)
    if s.reason == "OOMKilled":
        return _ending(Cause.OUT_OF_MEMORY, "it ran out of memory", s, reason=s.reason)
    if s.oom_kills and not s.timed_out and not s.start_error:
        return _ending(Cause.OUT_OF_MEMORY, f"{_how(s)} after the kernel killed for memory", s, oom_kills=s.oom_kills)
    return None


def _never_started(s: Signals) -> Ending | None:
    if s.start_error:
        return _ending(Cause.START_UP, s.start_error, s, start_error=s.start_error)
    for container in s.containers:
        if container.reason in _CANNOT_START:
            why = f"its container {container.name} could not be started"
            return _ending(Cause.START_UP, why, s, sign=container.reason)
        if container.waiting and not _ended(s):
            why = f"its container {container.name} never got past {container.waiting}"
            return _ending(Cause.START_UP, why, s, sign=container.waiting)
    return None


def _timed_out(s: Signals) -> Ending | None:
    if s.timed_out or s.reason == "DeadlineExceeded":
        return _ending(Cause.TIMED_OUT, "its time limit passed", s, timed_out=True)
    return None


def _silent(s: Signals) -> Ending | None:
    """No end of its process was recorded by anybody: that is no failure of the work, it is a hole in what is known."""
    return None if _ended(s) else _ending(Cause.LOST, "nothing says how it ended", s, phase=s.phase)


def _failed(s: Signals) -> Ending:
    if _exit_code(s) != 0:
        why = _how(s)
        if why.endswith(("SIGTERM", "SIGKILL")):
            why += ", and nothing says that its node was to go"
        return _ending(Cause.FAILED, why, s)
    if s.missing_outputs:
        why = f"it exited with 0 without its output {', '.join(s.missing_outputs)}"
        return _ending(Cause.FAILED, why, s, missing_outputs=list(s.missing_outputs))
    why = "without its outputs" if s.outputs_complete is False else "and nobody looked for its outputs"
    return _ending(Cause.FAILED, f"it exited with 0 {why}", s, outputs_complete=s.outputs_complete)


_RULES: tuple[Callable[[Signals], Ending | None], ...] = (
    _cancelled,
    _succeeded,
    _announced,
    _moved,  # before the gone node: scale down and consolidation take nodes away too
    _node_gone,
    _node_shut_down,
    _unreachable,
    _disrupted,
    _unheard,
    _out_of_memory,
    _never_started,
    _timed_out,
    _silent,
    _failed,
)
"""The first that fits decides. The last one always does."""


# What the rules read


def _main(s: Signals) -> ContainerEnd | None:
    """The container that runs the user's code: the one named ``main`` (as in KFP and Argo), else the only one."""
    if len(s.containers) == 1:
        return s.containers[0]
    return next((container for container in s.containers if container.name == "main"), None)


def _exit_code(s: Signals) -> int | None:
    """The exit code of the user's process, from the exit record first, then from its container; a made-up one is none."""
    main = _main(s)
    of_container = main.exit_code if main is not None else None
    code = s.exit_code if s.exit_code is not None else of_container
    if main is not None and main.reason == _STATUS_UNKNOWN and code == of_container:
        return None
    return None if s.signal is not None and code == 0 else code


def _signal(s: Signals) -> int | None:
    if s.signal is not None:
        return s.signal
    main = _main(s)
    return main.signal if main is not None else None


def _ended(s: Signals) -> bool:
    """Whether somebody saw the process end."""
    return _exit_code(s) is not None or _signal(s) is not None


def _how(s: Signals) -> str:
    code, number = _exit_code(s), _signal(s)
    if number is None and code is not None and code > 128:
        number = code - 128  # a shell or a runtime says 128 + the signal
    if number is not None and (number in _SIGNALS or code is None):
        return f"it was ended by {_SIGNALS.get(number, f'signal {number}')}"
    if code is not None:
        return f"it exited with {code}"
    return "it ended"


def _true(conditions: Iterable[Condition]) -> Iterable[Condition]:
    return (condition for condition in conditions if condition.status == "True")


def _disruption_targets(s: Signals) -> tuple[Condition, ...]:
    return tuple(condition for condition in _true(s.conditions) if condition.type == "DisruptionTarget")


def _event_names(s: Signals) -> Iterable[str]:
    """Events come with their reason as type or as reason, depending on who told them."""
    return (name for event in s.node_events for name in (event.reason, event.type))


def _ready(s: Signals) -> str:
    """The status of the node's condition Ready; empty where it was not seen."""
    return next((condition.status for condition in s.node_conditions if condition.type == "Ready"), "")


def _if(holds: bool, sign: str) -> tuple[str, ...]:
    return (sign,) if holds else ()


def _first(*found: Iterable[str]) -> str | None:
    return next(chain.from_iterable(found), None)


def _ending(cause: Cause, why: str, s: Signals, **evidence: Any) -> Ending:
    """An ending with its evidence: what decided it, and how the process ended where that is known."""
    seen = {"exit_code": _exit_code(s), "signal": _signal(s), **evidence}
    return Ending(cause, why, {name: value for name, value in seen.items() if value is not None})
