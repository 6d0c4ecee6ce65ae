"""One meaning, one severity: what the user asked for and does not hold is a warning, information is a note."""

from __future__ import annotations

import pytest
from tests.kinds.kfp.compiled import one_task
from tests.placing.placed import place

POD = "spec: {containers: [{name: pytorch, image: python}]}"
TIMED = "{default: {spot: require, timeout: 1h}}"
JOB = f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: a}}\nspec:\n  backoffLimit: 9\n  template: {{{POD}}}\n"
JOBSET = (
    "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n  FAILURES\n  replicatedJobs:\n"
    f"  - {{name: w, template: {{spec: {{parallelism: 2, LIMIT template: {{{POD}}}}}}}}}\n"
)
PYTORCH = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  ELASTIC\n  pytorchReplicaSpecs:\n"
    f"    Worker: {{RESTART template: {{{POD}}}}}\n"
)
WORKFLOW = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n"
    "  - {name: main, RETRY container: {image: python}}\n"
)
REFERENCE = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\nspec:\n  entrypoint: main\n  templates:\n"
    "  - {name: main, steps: [[{name: one, templateRef: {name: others, template: train}}]]}\n"
)
EXPERIMENT = (
    "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata: {name: e}\nspec:\n  trialTemplate:\n"
    "    configMap: {configMapName: trials, configMapNamespace: a, templatePath: job.yaml}\n"
)
TRAINJOB = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: t}\nspec:\n  runtimeRef: {name: torch}\n"


def filled(text: str, **values: str) -> str:
    """The manifest with a value for each word in capitals; the others are left out."""
    for word in ("FAILURES", "LIMIT", "ELASTIC", "RESTART", "RETRY"):
        text = text.replace(word, values.get(word, ""))
    return text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (JOB, "backoffLimit 9 stays"),
        (filled(JOBSET, LIMIT="backoffLimit: 2,"), "backoffLimit 2 stays"),
        (filled(JOBSET, FAILURES="failurePolicy: {maxRestarts: 1}", LIMIT="backoffLimit: 0,"), "maxRestarts 1 stays"),
        (filled(JOBSET, FAILURES="failurePolicy: {maxRestarts: 1}"), "maxRestarts 1 becomes"),
        (filled(PYTORCH, RESTART="restartPolicy: OnFailure,"), "restartPolicy OnFailure stays"),
        (filled(PYTORCH, RESTART="restartPolicy: Never,"), "restartPolicy Never stays"),
        (filled(PYTORCH, ELASTIC="elasticPolicy: {maxRestarts: 1}"), "maxRestarts 1 stays"),
        (filled(WORKFLOW, RETRY="retryStrategy: {limit: 3},"), "your retryStrategy stays"),
        (one_task({}).replace("taskInfo:", "retryPolicy: {maxRetryCount: 3}\n        taskInfo:"), "its retryPolicy stays"),
    ],
)  # fmt: skip
def test_a_value_of_the_user_that_stays_against_the_policy_is_a_warning(text: str, part: str) -> None:
    assert place(text, TIMED).reports(": warning: ", part)


@pytest.mark.parametrize("text", [REFERENCE, EXPERIMENT, TRAINJOB], ids=["argo", "katib", "trainer"])
def test_work_whose_document_was_not_given_is_a_warning(text: str) -> None:
    assert place(text).reports(": warning: ", "which was not given")


@pytest.mark.parametrize(
    ("text", "field", "part"),
    [
        (filled(PYTORCH), "grace_period: 60s", "the grace period of"),
        (one_task({}), "grace_period: 60s", "cannot set a grace period"),
    ],
    ids=["pod", "pipeline"],
)
def test_a_value_that_does_not_hold_is_a_warning_if_the_user_set_it_and_a_note_if_it_is_built_in(
    text: str, field: str, part: str
) -> None:
    assert place(text, "{default: {spot: require}}").reports(": note: ", part)
    assert place(text, f"{{default: {{spot: require, {field}}}}}").reports(": warning: ", part)


def test_a_factor_that_argo_cannot_use_is_a_warning_if_the_user_set_it_and_a_note_if_it_is_built_in() -> None:
    growing = "{default: {spot: require, interruptions: {max: 12, backoff: 1m, factor: 2, max_backoff: 5m}}}"
    built_in = "{default: {spot: require, interruptions: {max: 12, backoff: 1m, max_backoff: 5m}}}"
    old = "{argo: '3.5'}"

    assert place(filled(WORKFLOW), growing, target=old).reports(": warning: ", "waits grow by the factor")
    assert place(filled(WORKFLOW), built_in, target=old).reports(": note: ", "waits grow by the factor")
