"""Reads Katib's Trials, and the pods in which Katib wraps a trial's code.

Katib reads metrics from a container's output, and wraps the code in a shell for it. So a trial's metrics, log and SIGTERM
differ from other workloads'. Facts are of katib v0.19.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotwright.cluster.workloads import main_container
from spotwright.kinds.katib import LAST_ATTEMPT_COLLECTORS
from spotwright.kinds.kind import Retry, run_kind
from spotwright.kube.object_fields import mapping, mappings

__all__ = ["METRICS_NOTE", "is_wrapped_by_katib", "may_lose_metrics", "redirected_to", "trial_of", "trial_values"]

METRICS_NOTE = (
    "was retried, and Katib reads only the metrics that a trial's last attempt prints: a resumed attempt must print the earlier"
    " ones again, as Checkpoint.print of spotwright.checkpoint does, or Katib may choose the wrong best trial"
)
"""The note about a trial with :func:`may_lose_metrics`, after its name."""

_FILE, _COLLECTOR = "/var/log/katib/metrics.log", "metrics-logger-and-collector"
_MARK = " && echo completed > "
_MOST_VALUES, _LONGEST_VALUE = 50, 100  # of a Trial; users write them


def trial_of(owners: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The Katib Trial among the owners of a pod, or empty."""
    return next((owner for owner in owners if run_kind(owner).retry is Retry.TRIAL), {})


def trial_values(trial: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a Trial, and its metrics once Katib has collected them, by name.

    A metric has the value compared by its experiment: by its strategy, else the best one (katib v0.19.0, ``TrialSpec`` and
    ``Observation``).
    """
    spec, status = mapping(trial.get("spec")), mapping(trial.get("status"))
    objective = mapping(spec.get("objective"))
    default = "min" if objective.get("type") == "minimize" else "max"
    strategies = {str(one.get("name")): str(one.get("value")) for one in mappings(objective.get("metricStrategies"))}
    pairs = [(one.get("name"), one.get("value")) for one in mappings(spec.get("parameterAssignments"))]
    pairs += [
        (metric.get("name"), metric.get(strategies.get(str(metric.get("name")), default)))
        for metric in mappings(mapping(status.get("observation")).get("metrics"))
    ]
    known = [(str(name), str(value)) for name, value in pairs if name is not None and value is not None]
    return {name[:_LONGEST_VALUE]: value[:_LONGEST_VALUE] for name, value in known[:_MOST_VALUES]}


def may_lose_metrics(trial: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether Katib reads a Trial's metrics from the output of its last attempt, while its pods resume from checkpoints."""
    kind = mapping(mapping(mapping(trial.get("spec")).get("metricsCollector")).get("collector")).get("kind")
    variables = mappings(_main(pod).get("env"))
    return kind in LAST_ATTEMPT_COLLECTORS and any(one.get("name") == "SPOTWRIGHT_CHECKPOINT" for one in variables)


def redirected_to(pod: Mapping[str, Any]) -> str:
    """The container that prints the main container's output, in a Katib trial with the StdOut collector; empty elsewhere.

    Katib makes the main container's command ``sh -c "COMMAND 1>FILE 2>&1 && ..."``, so its own log is empty, and adds a container
    that prints each line of the file (katib v0.19.0, ``pkg/webhook/v1beta1/pod/utils.go``, ``wrapWorkerContainer``;
    ``cmd/metricscollector/v1beta1/file-metricscollector/main.go``, ``printMetricsFile``).
    """
    is_redirected = any(f"1>{_FILE} 2>&1" in str(arg) for arg in _arguments(_main(pod)))
    has_collector = any(each.get("name") == _COLLECTOR for each in _containers(pod))
    return _COLLECTOR if is_redirected and has_collector else ""


def is_wrapped_by_katib(pod: Mapping[str, Any]) -> bool:
    """Whether Katib wrapped a pod's code in a shell, which does not pass SIGTERM on (``wrapWorkerContainer``)."""
    return any(_MARK in str(arg) for each in _containers(pod) for arg in _arguments(each))


def _containers(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return mappings(mapping(pod.get("spec")).get("containers"))


def _main(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((each for each in _containers(pod) if each.get("name") == main_container(pod)), {})


def _arguments(container: Mapping[str, Any]) -> Sequence[object]:
    arguments = container.get("args")
    return arguments if isinstance(arguments, list) else ()
