"""Rules on who recreates an interrupted pod: no controller, one that gives up, or one that never does.

Sources: Kubernetes documentation, "Jobs", "Pod failure policy"; jobset v0.12, ``pkg/webhooks``; kuberay v1.7; spark-operator
v2.5; kubernetes/api ``batch/v1/types.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spotwright.kinds.kind import Reads, Retry, matching
from spotwright.linter.api_types import nearly
from spotwright.linter.rule import ON_SPOT, Checks, Mend, Problem, Rule, Severity, job, training_job
from spotwright.linter.rules.python import exit_on_sigterm
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import (
    KubeObject,
    Pods,
    Shape,
    items_of,
    mapping_at,
    mapping_of,
    pods_of,
    texts_of,
)
from spotwright.model.scheduling_terms import is_placeholder
from spotwright.placing.documents import Path
from spotwright.placing.pods import PodRole

__all__ = ["RULES"]

_KILLED = (137, 143)
_TRAP = re.compile(r"""trap\s+(?P<quote>['"]).*?\bexit\s+(?P<code>\d+)\s*;?\s*(?P=quote)\s+[^;&|\n]*\b(?:SIG)?TERM\b""")


def _job_spec(pods: Pods) -> Shape:
    """The Job spec around the pods, empty if they have none."""
    return mapping_at(pods.document.get(()), *pods.job) if pods.job is not None else {}


def _rules(spec: Shape) -> list[Shape]:
    return [mapping_of(rule) for rule in items_of(mapping_of(spec.get("podFailurePolicy")).get("rules"))]


def _disruption(spec: Shape) -> tuple[int, str] | None:
    """The first rule on interrupted pods: its index and its action."""
    for index, rule in enumerate(_rules(spec)):
        for pattern in items_of(rule.get("onPodConditions")):
            if mapping_of(pattern).get("type") == "DisruptionTarget":
                return index, str(rule.get("action"))
    return None


def _bare_pods(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    is_owned = pods.owner is not None and pods.owner.is_owned
    if pods.retry is Retry.NONE and pods.asks_for_spot and not is_owned:
        yield Problem(pods.at(), f"{pods.label} is a bare Pod, which is not recreated after an interruption")


def _no_retries(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Jobs that end with their first failed pod, though an interruption fails pods."""
    spec = _job_spec(pods)
    if not pods.asks_for_spot or not spec or pods.retry is not Retry.JOB or pods.duty is PodRole.HOOK:
        return
    found = _disruption(spec)
    if spec.get("backoffLimit") == 0 and (found is None or found[1] == "Count"):
        path = (*(pods.job or ()), "backoffLimit")
        text = f"{pods.label} has no retries (backoffLimit 0), so the first interruption fails it"
        yield Problem(path, text, _KEPT if pods.is_placed else "")
    elif found is not None and found[1].startswith("Fail"):
        path = (*(pods.job or ()), "podFailurePolicy", "rules", found[0], "action")
        yield Problem(path, f"{pods.label} ends at the first interruption, by its own rule ({found[1]})")


def _no_retries_of_kind(subject: KubeObject, settings: Settings) -> Iterator[Problem]:
    """Sets, Ray jobs and Spark applications that end with the first pod they lose."""
    text, path, fix = _ends_with_first_loss(subject)
    if text and any(isinstance(one, Pods) and one.asks_for_spot for one in pods_of(subject, settings)):
        yield Problem(subject.at(*path), f"{subject.label} {text}", fix)


_KEPT = "Raise the limit; place keeps what is written, and --replace-retries replaces it by the policy's retries."


def _ends_with_first_loss(subject: KubeObject) -> tuple[str, tuple[str, ...], str]:
    if subject.record.retry is Retry.SET and subject.record.reads is Reads.RUNS:
        policy = subject.mapping("spec", "failurePolicy")
        retried = all(
            mapping_at(one, "template", "spec").get("backoffLimit", 6)
            for one in subject.items("spec", "replicatedJobs")
        )
        if not policy.get("maxRestarts") and not items_of(policy.get("rules")) and not retried:
            return (
                "has no failurePolicy, so the first failed Job fails the set",
                ("spec",),
                "Write failurePolicy.maxRestarts.",
            )
    if "spec.restartPolicy" in subject.record.retries.types and subject.get("spec", "restartPolicy", "type") == "Never":
        fix = "Write restartPolicy: {type: OnFailure, onFailureRetries: NUMBER}."
        return "is never restarted (restartPolicy Never)", ("spec", "restartPolicy"), fix
    return "", (), ""


def _unbounded_ignore(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    spec = _job_spec(pods)
    found = _disruption(spec)
    if found is None or found[1] != "Ignore" or spec.get("activeDeadlineSeconds") is not None:
        return
    path = (*(pods.job or ()), "podFailurePolicy", "rules", found[0])
    yield Problem(path, f"{pods.label} ignores interrupted pods without any bound")


def _sigterm_fails(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A rule on exit codes that fails the Job at 143 or 137, before any rule on interrupted pods counts."""
    spec = _job_spec(pods)
    found = _disruption(spec)
    if found is None and not pods.on_spot:
        return
    for index, rule in enumerate(_rules(spec)):
        if found is not None and index >= found[0]:
            return
        if _fails_at_sigterm(rule):
            text = f"{pods.label} fails at exit code 143 or 137, which an interrupted pod has, before the "
            text += "interruption counts"
            yield Problem((*(pods.job or ()), "podFailurePolicy", "rules", index), text)
            return


def _fails_at_sigterm(rule: Shape) -> bool:
    codes = mapping_of(rule.get("onExitCodes"))
    values = items_of(codes.get("values"))
    if not codes or not str(rule.get("action")).startswith("Fail"):
        return False
    is_in = codes.get("operator") == "In"
    return any((code in values) is is_in for code in _KILLED)


def _refused_policy(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A podFailurePolicy that the API server refuses. Source: kubernetes, ``pkg/apis/batch/validation``."""
    spec, at = _job_spec(pods), pods.job or ()
    rules = _rules(spec)
    if not rules:
        return
    policy = pods.value.get("restartPolicy")
    is_set = pods.owner is not None and pods.owner.record.default_policy == "OnFailure"
    if policy != "Never" and (policy is not None or is_set):
        text = f"{pods.label} has a podFailurePolicy, which needs restartPolicy Never" + (
            "" if policy else " (default: OnFailure)"
        )
        path = pods.at("restartPolicy")
        mends = () if policy else (Mend("add", path, "Never"),)
        yield Problem(path, text, mends=mends)
    if spec.get("podReplacementPolicy") not in (None, "Failed"):
        yield Problem(
            (*at, "podReplacementPolicy"),
            f"{pods.label} has a podFailurePolicy, which needs podReplacementPolicy Failed",
        )
    if len(rules) > 20:
        yield Problem((*at, "podFailurePolicy", "rules"), f"{pods.label} has {len(rules)} rules, and 20 are allowed")
    for index, rule in enumerate(rules):
        wrong = _refusal(rule, spec)
        if wrong:
            yield Problem((*at, "podFailurePolicy", "rules", index), f"the API server refuses this rule: {wrong}")


def _refusal(rule: Shape, spec: Shape) -> str:
    kinds = [name for name in ("onExitCodes", "onPodConditions") if rule.get(name)]
    if len(kinds) != 1:
        return "it needs exactly one of onExitCodes and onPodConditions"
    if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        return "FailIndex needs backoffLimitPerIndex"
    if rule.get("action") not in ("FailJob", "FailIndex", "Ignore", "Count"):
        return f"the action is FailJob, FailIndex, Ignore or Count, not {rule.get('action')}"
    codes = mapping_of(rule.get("onExitCodes"))
    if codes and 0 in items_of(codes.get("values")) and codes.get("operator") == "In":
        return "operator In cannot name exit code 0"
    return ""


def _restart_policy(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A Job whose pods may not have the default restart policy, or have none."""
    if pods.retry is not Retry.JOB:
        return
    policy = pods.value.get("restartPolicy")
    if policy is None:
        path = pods.at("restartPolicy")
        yield Problem(
            path,
            f"{pods.label} has no restartPolicy, and the default (Always) is refused",
            mends=(Mend("add", path, "Never"),),
        )
    elif policy not in ("Never", "OnFailure") and "{" not in str(policy):
        yield Problem(pods.at("restartPolicy"), f"{pods.label} has restartPolicy {policy}, which is refused")


_POLICIES = ("Always", "OnFailure", "Never")
_OF_JOBS = ("OnFailure", "Never")
_ALIKE, _SURE = 0.7, 0.85  # similarity of a word to the one that may be meant, or is


def _unknown_policy(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A restart policy that pods of this kind may not have. Jobs and roles of the training operator have separate rules."""
    policy = pods.value.get("restartPolicy")
    owner = pods.owner
    if owner is None or not isinstance(policy, str) or is_placeholder(policy) or pods.form == "H":
        return
    if pods.retry in (Retry.JOB, Retry.ROLE) or owner.group == "kubeflow.org":
        return
    known = _OF_JOBS if pods.job is not None else ("Always",) if owner.group == "apps" else _POLICIES
    if policy not in known:
        text = f"{pods.label} has restartPolicy {policy}, which is refused: it is {' or '.join(known)}"
        yield Problem(pods.at("restartPolicy"), text, *_meant(policy, known, pods.at("restartPolicy")))


def _meant(given: str, known: Sequence[str], path: Path) -> tuple[str, tuple[Mend, ...]]:
    """The advice for an unknown value, and the fix where only one can be meant."""
    near = known[0] if len(known) == 1 else nearly(given, known, _ALIKE)
    sure = nearly(given, known, _SURE)
    return f"Write {near}." if near else "", (Mend("replace", path, sure),) if sure else ()


def _unknown_values(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Retry fields with a value that the kind does not have."""
    version = subject.api_version.rpartition("/")[2]
    for path, words, only in subject.record.retries.values:
        for at in matching(subject.value, tuple(path.split("."))) if only in ("", version) else ():
            given = subject.get(*at)
            if isinstance(given, dict | list) or is_placeholder(given) or given in words:
                continue
            name = next(str(step) for step in reversed(at) if isinstance(step, str))
            text = f"{subject.label} has {name} {given}; the values are {', '.join(words)}"
            yield Problem(subject.at(*at), text, *_meant(str(given), words, subject.at(*at)))


def _trapped(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A shell that ends with a code below 128 on SIGTERM, so that an interruption looks like success or like an error."""
    if not pods.on_spot or pods.duty is not PodRole.WORKER:
        return
    for container in pods.containers:
        for name in ("command", "args"):
            for index, word in enumerate(texts_of(container.value.get(name))):
                match = _TRAP.search(word)
                if match is not None and int(match["code"]) < 128:
                    what = "success, and the pod is not recreated" if match["code"] == "0" else "an error of the code"
                    text = f"{pods.label} exits with {match['code']} on SIGTERM, so an interruption counts as {what}"
                    yield Problem((*container.path, name, index), text)


def _never_restarts(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """Roles of the training operator on spot that are not recreated after an interruption with notice."""
    if pods.retry is not Retry.ROLE or not pods.asks_for_spot or pods.owner is None:
        return
    at = pods.spec[:-2]
    policy = mapping_at(pods.document.get(()), *at).get("restartPolicy")
    if (policy or pods.owner.record.default_policy) == "Never":
        said = "has restartPolicy Never" + ("" if policy else ", by default")
        yield Problem((*at, "restartPolicy"), f"{pods.label} {said}, so one interruption fails the job")


_IGNORE = (
    "podFailurePolicy:\n  rules:\n  - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}\n"
)
_BOUND = "activeDeadlineSeconds: 3600\n"
_EXITS = "  - {action: FailJob, onExitCodes: {operator: NotIn, values: [0]}}\n"
_POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: train\nspec:\n"

RULES = (
    Rule(
        id="bare-pod-on-spot",
        severity=Severity.WARNING,
        title="A bare Pod on spot nodes",
        why="A bare Pod is not recreated: after an interruption its work is lost in silence.",
        fix="Make it the template of a Job.",
        fails=_POD
        + "".join(f"  {line}\n" for line in ON_SPOT.splitlines())
        + "  containers:\n  - {name: main, image: 'trainer:1'}\n",
        passes=job(ON_SPOT),
        checks=Checks(pods=_bare_pods),
        place_says=True,
    ),
    Rule(
        id="no-retries",
        severity=Severity.WARNING,
        title="Work on spot without retries",
        why="An interruption fails the pod. With no retry left it fails the work too.",
        fix="Ignore interrupted pods with a podFailurePolicy and a bound, or raise the limit; spotwright place writes "
        "both.",
        fails=job(ON_SPOT, spec="backoffLimit: 0\n"),
        passes=job(ON_SPOT, spec="backoffLimit: 0\n" + _BOUND + _IGNORE),
        checks=Checks(pods=_no_retries, objects=_no_retries_of_kind),
    ),
    Rule(
        id="unbounded-ignore",
        severity=Severity.WARNING,
        title="Interrupted pods are ignored without a bound",
        why="Ignored pods do not count against backoffLimit, so a Job on a pool that is reclaimed again and again never "
        "ends, and is paid for.",
        fix="Set activeDeadlineSeconds of the Job, or use the action Count.",
        fails=job(ON_SPOT, spec=_IGNORE),
        passes=job(ON_SPOT, spec=_BOUND + _IGNORE),
        checks=Checks(pods=_unbounded_ignore),
    ),
    Rule(
        id="sigterm-fails-job",
        severity=Severity.ERROR,
        title="A rule on exit codes fails the Job at an interruption",
        why="The first rule that matches counts. An interrupted pod exits with 143 or 137, so a rule such as NotIn [0] "
        "that stands before the one on DisruptionTarget fails the Job at the first interruption.",
        fix="Put the rule on DisruptionTarget first.",
        fails=job(ON_SPOT, spec=_BOUND + "podFailurePolicy:\n  rules:\n" + _EXITS + _IGNORE.partition("rules:\n")[2]),
        passes=job(ON_SPOT, spec=_BOUND + _IGNORE + _EXITS),
        checks=Checks(pods=_sigterm_fails),
    ),
    Rule(
        id="sigterm-exit-code",
        severity=Severity.WARNING,
        title="A shell ends SIGTERM with another exit code",
        why="Controllers recognize an interruption by 143. With 0 the pod has succeeded and its work is not done; with 1 it "
        "has failed by an error of the code, which the training operator's ExitCode never retries.",
        fix="Save, then exit with 143.",
        fails=job(ON_SPOT, container="command: [sh, -c, \"trap 'save; exit 1' TERM; train & wait $!\"]\n"),
        passes=job(ON_SPOT, container="command: [sh, -c, \"trap 'save; exit 143' TERM; train & wait $!\"]\n"),
        checks=Checks(pods=_trapped, python=exit_on_sigterm),
    ),
    Rule(
        id="failure-policy-refused",
        severity=Severity.ERROR,
        title="A podFailurePolicy that the API server refuses",
        why="The whole object is refused. JobSet and Trainer make restartPolicy OnFailure where it is missing, and "
        "then refuse it too.",
        fix="Write restartPolicy: Never, podReplacementPolicy: Failed or none, and rules with one condition each.",
        fails=job(ON_SPOT, spec=_BOUND + _IGNORE).replace("restartPolicy: Never", "restartPolicy: OnFailure"),
        passes=job(ON_SPOT, spec=_BOUND + _IGNORE),
        checks=Checks(pods=_refused_policy),
        source="kubernetes, pkg/apis/batch/validation",
    ),
    Rule(
        id="job-restart-policy",
        severity=Severity.ERROR,
        title="A Job without restartPolicy Never or OnFailure",
        why="The default of a pod is Always, which the API server refuses in a Job.",
        fix="Write restartPolicy: Never into the pod template.",
        fails=job().replace("      restartPolicy: Never\n", ""),
        passes=job(),
        checks=Checks(pods=_restart_policy),
        mends=True,
    ),
    Rule(
        id="retry-value-unknown",
        severity=Severity.ERROR,
        title="A restart or a retry policy that the kind does not have",
        why="The API server or the operator refuses the object, or does not retry: each kind has its own words, and "
        "ExitCode, OnError and PodEvicted are words of one kind each.",
        fix="Write one of the values that the kind has.",
        fails=training_job("", role="restartPolicy: OnExitCode\n"),
        passes=training_job("", role="restartPolicy: ExitCode\n"),
        checks=Checks(objects=_unknown_values, pods=_unknown_policy),
        mends=True,
        source="the custom resource definitions of the kinds; kubernetes, pkg/apis/core/validation",
    ),
    Rule(
        id="role-never-restarts",
        severity=Severity.WARNING,
        title="A role of a training job on spot that is not restarted",
        why="The training operator makes a pod again whose object is gone, and leaves one that failed: after an "
        "interruption with notice the kubelet fails it, and Never, the default of TFJob, XGBoostJob and JAXJob, fails "
        "the job.",
        fix="Write restartPolicy: ExitCode into the role, and let the code exit with 143 on SIGTERM.",
        fails=training_job(ON_SPOT),
        passes=training_job(ON_SPOT, role="restartPolicy: ExitCode\n"),
        checks=Checks(pods=_never_restarts),
        source="kubeflow/trainer v1.9, pkg/controller.v1/common/pod.go",
    ),
)
"""The rules of this module."""
