"""What the controllers of workloads do when a pod of theirs ends, as far as retries go, by the rules of the placed object.

These are models for orders of endings that no cluster has to go through: a test holds them against the orders that real
controllers went through. Sources: ``pkg/controller/job`` (pod_failure_policy.go, backoff) of kubernetes/kubernetes 1.35;
``pkg/controllers/failure_policy.go`` of kubernetes-sigs/jobset 0.10; ``workflow/controller/operator.go`` (processNodeRetries) of
argo-workflows 3.7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from spotwright.kinds.job import REFUSED

__all__ = ["ArgoModel", "Ended", "JobModel", "JobSetModel"]


class Ended(NamedTuple):
    """How a pod ended: its exit code, and whether Kubernetes had marked it with DisruptionTarget, or it vanished."""

    exit_code: int = 0
    is_marked: bool = False
    message: str = ""  # Argo's; empty: "Error (exit code N)"


class JobModel:
    """A Job: counts failures by its rules. :attr:`said` is empty while it goes on, else the reason of its condition."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
        self._limit = spec.get("backoffLimit", 6)
        self._failed = 0
        self.said = ""
        self.message = ""

    def end(self, ended: Ended) -> None:
        """A pod has ended."""
        if ended.exit_code == 0 and not ended.is_marked:
            self.said = "Complete"
            return
        rule = next((rule for rule in self._rules if _fits(rule, ended)), {"action": "Count"})
        if rule["action"] == "FailJob":
            self.said = "PodFailurePolicy"
            self.message = (
                f"failed with exit code {ended.exit_code} matching" if not ended.is_marked else "has condition"
            )
        elif rule["action"] == "Count":
            self._failed += 1
            if self._failed > self._limit:
                self.said = self.message = "BackoffLimitExceeded"


def _fits(rule: Mapping[str, Any], ended: Ended) -> bool:
    if "onPodConditions" in rule:
        return ended.is_marked
    codes = rule["onExitCodes"]
    return (
        not ended.is_marked
        and ended.exit_code != 0
        and (ended.exit_code in codes["values"]) is (codes["operator"] == "In")
    )


class JobSetModel:
    """A JobSet with one Job: makes it anew by its rules."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._job_spec = spec["replicatedJobs"][0]["template"]["spec"]
        self._policy = spec.get("failurePolicy") or {}
        self._restarts = 0
        self._job = JobModel(self._job_spec)
        self.said = ""

    def end(self, ended: Ended) -> None:
        """A pod has ended."""
        self._job.end(ended)
        if self._job.said in ("", "Complete"):
            self.said = self._job.said
            return
        rules = self._policy.get("rules") or ()
        action = next((rule["action"] for rule in rules if self._matches(rule)), "RestartJobSet")
        self._restarts += 1
        if action == "FailJobSet" or self._restarts > self._policy.get("maxRestarts", 0):
            self.said = "FailJobSetFailurePolicyAction" if action == "FailJobSet" else "ReachedMaxRestarts"
        self._job = JobModel(self._job_spec)

    def _matches(self, rule: Mapping[str, Any]) -> bool:
        reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
        if reasons and self._job.said not in reasons:
            return False
        return not patterns or any(re.search(pattern, self._job.message) for pattern in patterns)


class ArgoModel:
    """A step of a Workflow with a ``retryStrategy``: its expression says whether the last ending is tried again."""

    def __init__(self, strategy: Mapping[str, Any]) -> None:
        self._limit, self._expression = int(strategy["limit"]), str(strategy["expression"])
        self._retries = 0
        self.said = ""

    def end(self, ended: Ended) -> None:
        """A pod has ended."""
        if ended.exit_code == 0 and not ended.is_marked:
            self.said = "Succeeded"
        elif ended.is_marked and ended.exit_code == 0:
            return  # the pod vanished: the same attempt is made again, uncounted
        elif not self._is_retried(ended):
            self.said = "Failed"
        else:
            self._retries += 1
            self.said = "Failed" if self._retries > self._limit else ""

    def _is_retried(self, ended: Ended) -> bool:
        code = str(ended.exit_code)
        message = ended.message or f"main: Error (exit code {code})"
        if found := re.fullmatch(r"lastRetry\.message matches '(.*)'", self._expression):
            return re.search(found[1], message) is not None
        if found := re.fullmatch(r"""lastRetry\.exitCode != ['"](\d+)['"]""", self._expression):
            assert found[1] == str(REFUSED)
            return code != found[1]
        assert self._expression == 'lastRetry.status == "Error" || lastRetry.exitCode in ["143","137","255"]', (
            self._expression
        )
        return code in ("143", "137", "255")
