"""Two policies for one object: one of them applies, and a warning names it."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.admission_objects import a_config, a_job, admitted

from spotwright.cluster.admit_objects import Verdict

NEVER, REQUIRE = json.dumps({"spot": "never"}), json.dumps({"spot": "require"})


def with_metadata(job: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**job, "metadata": {**job["metadata"], **metadata}}


def told(warnings: Any) -> str:
    return " ".join(warnings).replace("spotwright: … ", "")


def test_the_annotation_counts_and_the_label_that_says_otherwise_is_named() -> None:
    labels, annotations = {"spotwright.dev/spot": "require"}, {"spotwright.dev/policy": NEVER}
    job, outcome = admitted(with_metadata(a_job(), labels=labels, annotations=annotations))
    assert "tolerations" not in job["spec"]["template"]["spec"]
    assert "the label spotwright.dev/spot: require does not count" in told(outcome.warnings)
    assert "says spot: never" in told(outcome.warnings)


def test_a_label_that_says_the_same_as_the_annotation_is_no_news() -> None:
    labels, annotations = {"spotwright.dev/spot": "require"}, {"spotwright.dev/policy": REQUIRE}
    assert list(admitted(with_metadata(a_job(), labels=labels, annotations=annotations))[1].warnings) == []


def test_a_line_of_the_namespace_s_tasks_is_stronger_and_says_so() -> None:
    config = a_config("{default: {spot: prefer}, tasks: {train: {spot: require}}}")
    job, outcome = admitted(with_metadata(a_job(), annotations={"spotwright.dev/policy": NEVER}), config)
    assert job["spec"]["template"]["spec"]["tolerations"]
    assert "its own policy says spot: never, which does not count" in told(outcome.warnings)
    assert "says require" in told(outcome.warnings)


def test_a_policy_in_the_pod_template_beside_another_in_the_object_is_named() -> None:
    job = with_metadata(a_job(), annotations={"spotwright.dev/policy": NEVER})
    job["spec"]["template"]["metadata"] = {"annotations": {"spotwright.dev/policy": REQUIRE}}
    _, outcome = admitted(job)
    assert outcome.verdict == Verdict.ALREADY_PLACED
    assert "one policy in its own metadata and another in its pod template" in told(outcome.warnings)
