"""A label without quotes, such as ``gpu: true``: the pool that was meant is known, and the mistake is named once."""

from __future__ import annotations

from tests.linter.linting import found_in
from tests.placing.placed import PREFER, refusal

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {gpu: true}
      containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
POOLS = 'version: 1\npools:\n  a: {capacity: on-demand, labels: {gpu: "true"}}\n'


def test_place_refuses_a_truth_value_in_a_selector_and_says_what_to_write() -> None:
    assert 'true is a truth value, and labels are texts: write "true" in quotes' in refusal(JOB, PREFER)


def test_lint_names_the_truth_value_and_not_a_pool_that_is_missing() -> None:
    assert {one.rule for one in found_in(JOB, POOLS)} == {"wrong-shape"}
