"""What lint says of manifests that ``place`` refuses because a value cannot be read, and of objects that it could not check."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in
from tests.placing.placed import PREFER, a_config, place, refusal

from spotwright.linter.rule import Severity

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: trainer}]
"""
WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: train}
spec:
  entrypoint: main
  nodeSelector: {gpu: true}
  templates: [{name: main, container: {image: trainer}}]
"""
TASK_RUN = """\
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: train}
spec: {taskRef: {name: train}, podTemplate: {nodeSelector: {gpu: false}}}
"""


def of_pods(field: str) -> str:
    return JOB.replace("      restartPolicy", f"      {field}\n      restartPolicy")


def of_the_job(field: str) -> str:
    return JOB.replace("{name: train}", f"{{name: train, {field}}}")


REFUSED = {
    "a truth value in a selector": (of_pods("nodeSelector: {gpu: true}"), "wrong-shape"),
    "a truth value in the selector of a workflow": (WORKFLOW, "wrong-shape"),
    "a truth value in the selector of a task": (TASK_RUN, "wrong-shape"),
    "a number in a selector that no pool has": (of_pods("nodeSelector: {pool: 1}"), "selector-matches-no-pool"),
    "a text for a selector": (of_pods("nodeSelector: gpu"), "wrong-shape"),
    "a mapping for a list": (of_pods("tolerations: {key: a}"), "wrong-shape"),
    "a truth value for a policy": (of_the_job("labels: {spotwright.dev/spot: true}"), "wrong-shape"),
    "a number for a policy": (of_the_job("labels: {spotwright.dev/spot: 1}"), "wrong-shape"),
    "a word for a policy": (of_the_job("labels: {spotwright.dev/spot: sometimes}"), "wrong-shape"),
    "a policy in an annotation that is no text": (of_the_job("annotations: {spotwright.dev/policy: 1}"), "wrong-shape"),
    "a policy in an annotation that is no JSON": (
        of_the_job("annotations: {spotwright.dev/policy: spot}"),
        "wrong-shape",
    ),
}


@pytest.mark.parametrize(("text", "rule"), REFUSED.values(), ids=list(REFUSED))
def test_a_value_that_place_refuses_is_an_error_of_lint(text: str, rule: str) -> None:
    assert refusal(text)
    assert (rule, Severity.ERROR) in {(one.rule, one.severity) for one in found_in(text, a_config(PREFER).text)}


def test_the_words_of_lint_are_those_of_place() -> None:
    text = of_pods("nodeSelector: {gpu: true}")
    [finding] = [one for one in found_in(text) if one.rule == "wrong-shape"]

    assert f"work.yaml:{finding.line}: {finding.field}: {finding.text}" == refusal(text)


def test_an_object_without_a_version_is_said_to_be_unchecked() -> None:
    text = of_pods("nodeName: a").replace("apiVersion: batch/v1\n", "")
    [finding] = found_in(text)

    assert (finding.rule, finding.severity) == ("wrong-shape", Severity.ERROR)
    assert finding.text == "Job train has no apiVersion, so it was not checked"
    assert finding.fix == "Write apiVersion: batch/v1."


@pytest.mark.parametrize(
    "text",
    [
        of_the_job("labels: {team: 1}"),
        of_pods("enableServiceLinks: true").replace("image: trainer", "image: trainer, env: [{name: A, value: 1}]"),
        JOB.replace("{name: train}", "{generateName: train}"),
    ],
    ids=["a number as a label", "a number as a variable", "a generated name without a dash"],
)
def test_what_a_schema_or_taste_says_of_values_that_place_takes_is_no_finding(text: str) -> None:
    assert place(text).text
    assert found_in(text) == []
