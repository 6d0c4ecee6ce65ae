"""What the controllers of workloads do when a pod of theirs ends, as far as retries go, by the rules of the object.

These are models for orders of endings that no cluster has to go through: a test holds them against the orders that real
controllers went through. Sources: ``pkg/controller/job`` of kubernetes/kubernetes 1.35 (pod_failure_policy.go: the first rule
that matches; job_controller.go: ``failed > backoffLimit``, ``pastBackoffLimitOnFailure``; indexed_job_utils.go:
``backoffLimitPerIndex``); ``pkg/controllers/failure_policy.go`` of kubernetes-sigs/jobset 0.10; of argo-workflows 3.7
``workflow/controller/operator.go`` (processNodeRetries, buildRetryStrategyLocalScope) and ``RetryPolicyActual``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["ArgoModel", "Ended", "JobModel", "JobSetModel"]


class Ended(NamedTuple):
    """How a pod ended, as the controller of its kind sees it.

    ``exit_code``: that of its container; None: no container reported an end, because Kubernetes gave the pod up. ``is_marked``:
    Kubernetes had marked it with DisruptionTarget. ``is_whole``: the pod as a whole has failed, so that no container starts again
    in it whatever its ``restartPolicy``.
    """

    exit_code: int | None = 0
    is_marked: bool = False
    message: str = ""  # Argo's; empty: "Error (exit code N)"
    phase: str = "Failed"  # Argo's
    is_whole: bool = False

    @property
    def is_good(self) -> bool:
        """Whether the pod succeeded."""
        return self.exit_code == 0


class JobModel:
    """A Job: counts failures by its rules. :attr:`said` is empty while it goes on, else the reason of its condition."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
        self._each: int | None = spec.get("backoffLimitPerIndex")
        self._limit: float = spec.get("backoffLimit", 6 if self._each is None else float("inf"))
        self._most_failed: float = spec.get("maxFailedIndexes", float("inf"))
        self._in_place = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
        self._to_do = set(range(spec.get("completions") or spec.get("parallelism") or 1))
        self._failed_indexes: set[int] = set()
        self._failed: Counter[int] = Counter()  # by index
        self._restarts: Counter[int] = Counter()  # of the container in the pod that an index has now
        self.said = ""
        self.message = ""

    @property
    def to_do(self) -> Sequence[int]:
        """The indexes that want a pod."""
        return sorted(self._to_do) if self.said == "" else ()

    def stays(self, ended: Ended) -> bool:
        """Whether a pod that ended so starts its container again."""
        return self._in_place and not (ended.is_good or ended.is_marked or ended.is_whole)

    def end(self, ended: Ended, index: int = 0) -> None:
        """A pod has ended, or its container has."""
        if ended.is_good:
            self._restarts[index] = 0
            self._to_do.remove(index)
            self._finish()
        elif self.stays(ended):
            self._restarts[index] += 1
            restarts = self._restarts.total()
            if restarts >= max(1, self._limit):  # of limit 0 and of limit 1 the first
                self.said = self.message = "BackoffLimitExceeded"
        else:
            self._restarts[index] = 0
            self._count(ended, index)

    def _count(self, ended: Ended, index: int) -> None:
        rule = next((rule for rule in self._rules if _fits(rule, ended)), {"action": "Count"})
        if rule["action"] == "FailJob":
            self.said = "PodFailurePolicy"
            code = f"failed with exit code {ended.exit_code}"
            self.message = f"{code if 'onExitCodes' in rule else 'has condition DisruptionTarget'} matching"
        elif rule["action"] != "Ignore":
            self._failed[index] += 1
            if self._failed.total() > self._limit:
                self.said = self.message = "BackoffLimitExceeded"
            elif rule["action"] == "FailIndex" or (self._each is not None and self._failed[index] > self._each):
                self._to_do.remove(index)
                self._failed_indexes.add(index)
                self._finish()

    def _finish(self) -> None:
        if len(self._failed_indexes) > self._most_failed:
            self.said = self.message = "MaxFailedIndexesExceeded"
        elif not self._to_do:
            self.said = self.message = "FailedIndexes" if self._failed_indexes else "Complete"


def _fits(rule: Mapping[str, Any], ended: Ended) -> bool:
    if "onPodConditions" in rule:
        return ended.is_marked
    codes = rule["onExitCodes"]
    return not (ended.exit_code is None or ended.is_good) and (
        (ended.exit_code in codes["values"]) is (codes["operator"] == "In")
    )


class JobSetModel:
    """A JobSet with one Job: makes it anew by its rules."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._job_spec = spec["replicatedJobs"][0]["template"]["spec"]
        self._policy = spec.get("failurePolicy") or {}
        self._counted = 0
        self.restarts = 0
        self._job = JobModel(self._job_spec)
        self.said = ""

    @property
    def to_do(self) -> Sequence[int]:
        """The indexes of its Job that want a pod."""
        return () if self.said else self._job.to_do

    def stays(self, ended: Ended) -> bool:
        """Whether a pod that ended so starts its container again."""
        return self._job.stays(ended)

    def end(self, ended: Ended, index: int = 0) -> None:
        """A pod has ended."""
        self._job.end(ended, index)
        if self._job.said in ("", "Complete"):
            self.said = self._job.said
            return
        rules = self._policy.get("rules") or ()
        action = next((rule["action"] for rule in rules if self._matches(rule)), "RestartJobSet")
        self.restarts += 1
        self._counted += action == "RestartJobSet"
        if action == "FailJobSet" or self._counted > self._policy.get("maxRestarts", 0):
            self.said = "FailJobSetFailurePolicyAction" if action == "FailJobSet" else "ReachedMaxRestarts"
        self._job = JobModel(self._job_spec)

    def _matches(self, rule: Mapping[str, Any]) -> bool:
        reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
        if reasons and self._job.said not in reasons:
            return False
        return not patterns or any(re.search(pattern, self._job.message) for pattern in patterns)


class ArgoModel:
    """A step of a Workflow, with its ``retryStrategy`` or without one; its expression says whether an ending is tried again."""

    def __init__(self, strategy: Mapping[str, Any] | None) -> None:
        self._is_retried = strategy is not None
        given = strategy or {}
        self._limit = float(given["limit"]) if "limit" in given else float("inf")
        self._expression = str(given.get("expression") or "")
        self._policy = given.get("retryPolicy") or ("Always" if self._expression else "OnFailure")
        self._ends = 0
        self.said = ""

    @property
    def to_do(self) -> Sequence[int]:
        """Its one pod while it goes on."""
        return () if self.said else (0,)

    def stays(self, _ended: Ended) -> bool:
        """Argo's pods never start a container again."""
        return False

    def end(self, ended: Ended, _index: int = 0) -> None:
        """A pod has ended."""
        if ended.is_good:
            self.said = "Succeeded"
            return
        if ended.is_marked and ended.exit_code is None and not ended.message:
            return  # the pod vanished before Argo saw an end: the same attempt is made again, uncounted
        self._ends += 1
        by_policy = self._policy in ("Always", {"Failed": "OnFailure", "Error": "OnError"}[ended.phase])
        if not (self._is_retried and by_policy and self._ends <= self._limit and self._is_true(ended)):
            self.said = ended.phase

    def _is_true(self, ended: Ended) -> bool:
        return not self._expression or _any(self._expression, ended, self._ends - 1)


def _any(expression: str, ended: Ended, retries: int) -> bool:
    return any(_all(part, ended, retries) for part in _split(expression, "||"))


def _all(expression: str, ended: Ended, retries: int) -> bool:
    return all(_is_true(part, ended, retries) for part in _split(expression, "&&"))


def _split(expression: str, operator: str) -> list[str]:
    """The parts between the operators that stand in no parentheses and no quotes."""
    parts, depth, quoted = [""], 0, ""
    for sign in expression.replace(operator, "\0"):
        quoted = "" if sign == quoted else quoted or (sign if sign in "'\"" else "")
        depth += 0 if quoted else (sign == "(") - (sign == ")")
        if sign == "\0" and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += sign.replace("\0", operator)
    return [part.strip() for part in parts]


def _is_true(atom: str, ended: Ended, retries: int) -> bool:
    """Whether a comparison holds. ``retries`` are those before this ending; a missing exit code is -1."""
    if atom.startswith("(") and atom.endswith(")"):
        return _any(atom[1:-1], ended, retries)
    code = -1 if ended.exit_code is None else ended.exit_code
    message = ended.message or f"main: Error (exit code {code})"
    if found := re.fullmatch(r"lastRetry\.message matches '(.*)'", atom):
        return re.search(found[1], message) is not None
    if found := re.fullmatch(r"""lastRetry\.exitCode != ['"](-?\d+)['"]""", atom):
        return str(code) != found[1]
    if found := re.fullmatch(r"lastRetry\.exitCode in \[(.*)\]", atom):
        return str(code) in re.findall(r"-?\d+", found[1])
    if found := re.fullmatch(r"""lastRetry\.status == ['"](\w+)['"]""", atom):
        return ended.phase == found[1]
    if found := re.fullmatch(r"asInt\(lastRetry\.exitCode\) > (\d+)", atom):
        return code > int(found[1])
    found = re.fullmatch(r"asInt\(retries\) < (\d+)", atom)
    assert found is not None, f"no model of {atom!r}"
    return retries < int(found[1])
