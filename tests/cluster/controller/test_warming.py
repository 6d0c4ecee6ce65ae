"""Imports before the first review."""

from __future__ import annotations

from spotwright.cluster.webhook_process import warm_up


def test_a_job_and_its_pod_are_placed_before_the_first_review() -> None:
    assert warm_up()
