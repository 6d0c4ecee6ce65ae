"""CronJob: each of its Jobs is placed, and a warning names Jobs that may overlap."""

from __future__ import annotations

import pytest
from tests.kinds.jobs.jobs import IGNORED
from tests.placing.placed import REQUIRE, at_path, place, refusal


def a_cron_job(more: str = "", api_version: str = "batch/v1") -> str:
    return f"""\
apiVersion: {api_version}
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: "0 3 * * *"{more}
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{{name: main, image: report}}]
"""


def test_a_cron_job_is_placed_where_its_jobs_are_described() -> None:
    outcome = place(a_cron_job(), REQUIRE)

    job = at_path(outcome.value, "spec.jobTemplate.spec")
    assert job["podFailurePolicy"]["rules"][0] == IGNORED
    assert at_path(job, "template.spec.tolerations.0.key") == "kubernetes.azure.com/scalesetpriority"


@pytest.mark.parametrize(
    ("more", "warned"), [("", True), ("\n  concurrencyPolicy: Allow", True), ("\n  concurrencyPolicy: Forbid", False)]
)
def test_a_schedule_that_retries_may_run_into_is_named(more: str, warned: bool) -> None:
    assert place(a_cron_job(more)).reports("may overlap the next Job") is warned


def test_a_version_that_is_gone_is_named() -> None:
    assert place(a_cron_job(api_version="batch/v1beta1")).reports(
        "work.yaml:1", "Kubernetes 1.25 removed", "write batch/v1"
    )


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ("\n  backoffLimit: 3", "spec.jobTemplate.spec.backoffLimit"),
        ("\n  tolerations: []", "spec.jobTemplate.spec.template.spec.tolerations"),
        ("\n  template: {}", "spec.jobTemplate.spec.template"),
    ],
)
def test_a_field_of_the_jobs_in_the_spec_of_a_cron_job_is_refused(more: str, right: str) -> None:
    assert refusal(a_cron_job(more)).endswith(right)
