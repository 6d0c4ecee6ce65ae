"""Rules on what is left of an attempt: pods that are deleted with their logs before anyone can read why they ended.

Spotwright's controller keeps logs by itself; without it the pod is the only place. Sources: argo-workflows, "Pod GC";
Kubernetes, "TTL-after-finished Controller", "CronJob"; KEDA, "ScaledJob"; kubeflow/trainer v1.9, ``cleanPodPolicy``.
"""

from __future__ import annotations

from collections.abc import Iterator

from spotwright.kinds.kind import Retry
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity
from spotwright.linter.rules.timing import has_policy
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import KubeObject, Pods, mapping_of, pods_of
from spotwright.placing.documents import Path

__all__ = ["RULES"]


_DELETED_AT_0: tuple[Path, ...] = (
    ("spec", "failedJobsHistoryLimit"),
    ("spec", "jobTemplate", "spec", "ttlSecondsAfterFinished"),
    ("spec", "ttlSecondsAfterFinished"),
)
_CLEANED: tuple[Path, ...] = (("spec", "runPolicy", "cleanPodPolicy"), ("spec", "cleanPodPolicy"))


def _removed(subject: KubeObject) -> Iterator[tuple[Path, str]]:
    """The fields by which pods go with their logs as soon as they have ended, each with what it says in words."""
    top = subject.record.top
    if subject.record.retry is Retry.STEP:
        strategy = mapping_of(subject.get(*top, "podGC")).get("strategy")
        if strategy in ("OnPodCompletion", "OnWorkflowCompletion") and subject.get(*top, "archiveLogs") is not True:
            yield (*top, "podGC", "strategy"), f"podGC {strategy} deletes pods that failed"
    for at in _DELETED_AT_0:
        if subject.get(*at) == 0:
            yield at, f"{at[-1]} 0 deletes failed Jobs with their pods"
    for at in _CLEANED:
        if subject.get(*at) == "All" and subject.record.roles:
            yield at, "cleanPodPolicy All deletes the pods as soon as the work has ended"


def _logs_go(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    every = (one for one in pods_of(subject, settings) if isinstance(one, Pods) and one.wish != "never")
    if any(one.asks_for_spot or has_policy(one, settings) for one in every):
        for path, text in _removed(subject):
            yield Problem(subject.at(*path), f"{subject.label}: {text}, so the log of an interrupted attempt is gone")


_WORKFLOW = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: train}}\nspec:\n  entrypoint: main\n"
    "  podGC: {{strategy: {strategy}}}\n  templates:\n  - name: main\n    retryStrategy: {{limit: 3, retryPolicy: Always}}\n"
    "    metadata:\n      annotations:\n        cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'\n"
    "        karpenter.sh/do-not-disrupt: 'true'\n"
    "    container: {{image: 'trainer:1'}}\n"
)
_SPOT_STEP = "".join(f"    {line}\n" for line in ON_SPOT.splitlines())

RULES = (
    Rule(
        id="logs-go-with-pod",
        severity=Severity.NOTE,
        title="The log of an interrupted attempt goes with its pod",
        why="Why an attempt ended stands in its pod and its log. If the pod is deleted at once, nobody can tell an interruption "
        "from an error of the code.",
        fix="Keep failed pods (podGC OnPodSuccess, a TTL above 0), archive logs, or let Spotwright's controller record the run.",
        fails=_WORKFLOW.format(strategy="OnPodCompletion") + _SPOT_STEP,
        passes=_WORKFLOW.format(strategy="OnPodSuccess") + _SPOT_STEP,
        checks=Checks(objects=_logs_go),
        source='argo-workflows, "Pod GC"; Kubernetes documentation, "TTL-after-finished Controller"',
    ),
)
"""The rules of this module."""
