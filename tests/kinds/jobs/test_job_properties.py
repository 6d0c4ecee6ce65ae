"""Properties of placed Jobs: nothing of the user's is dropped, interruptions are bounded, and unplace restores the file."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.kinds.jobs.plain_jobs import PODS, Plain, kept
from tests.placing.placed import FILE, a_config, assert_unplaces, at_path

from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions

ON_EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
ON_DISRUPTION = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
RULES = st.lists(
    st.sampled_from([ON_EXIT, *({"action": action, **ON_DISRUPTION} for action in ("Ignore", "Count", "FailJob"))]),
    max_size=3,
)
JOBS = st.fixed_dictionaries(
    {
        "template": st.fixed_dictionaries(
            {"spec": PODS}, optional={"metadata": st.sampled_from([None, {"labels": {"a": "b"}}])}
        )
    },
    optional={
        "backoffLimit": st.integers(0, 6),
        "activeDeadlineSeconds": st.integers(1, 10**6),
        "completions": st.sampled_from([1, 7, "${trialParameters.n}"]),
        "parallelism": st.integers(0, 4),
        "podFailurePolicy": st.fixed_dictionaries({"rules": RULES}),
        "podReplacementPolicy": st.sampled_from(["Failed", "TerminatingOrFailed"]),
        "completionMode": st.sampled_from(["Indexed", "NonIndexed"]),
    },
)
POLICIES = st.fixed_dictionaries(
    {"spot": st.sampled_from(["prefer", "require", "never"])},
    optional={
        "timeout": st.sampled_from(["90s", "2h"]),
        "errors": st.fixed_dictionaries({"retries": st.integers(0, 3)}),
        "checkpoint": st.sampled_from(["pvc://claim/below", "s3://bucket"]),
        "image_pull_secrets": st.just(["acr"]),
    },
)


def written(spec: Any, *, flow: bool, newline: str) -> str:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    text = str(yaml.dump(job, Dumper=Plain, sort_keys=False, default_flow_style=flow, width=80))
    return text.replace("\n", newline)


@given(spec=JOBS, policy=POLICIES, flow=st.booleans(), newline=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_job_of_any_shape_keeps_what_the_user_wrote_and_comes_out_again(
    spec: Any, policy: Any, flow: bool, newline: str
) -> None:
    text = written(spec, flow=flow, newline=newline)
    config = a_config(json.dumps({"default": policy}))
    after = place_text(text, FILE, config).text

    assert kept(plain_yaml.load(text), plain_yaml.load(after))
    assert place_text(after, FILE, config).text == after
    assert_unplaces(text, after)


@given(spec=JOBS, policy=POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_with_replace_retries_interruptions_always_have_an_end(spec: Any, policy: Any) -> None:
    config = a_config(json.dumps({"default": {**policy, "spot": "require"}}))
    placement = place_text(
        written(spec, flow=False, newline="\n"), FILE, config, options=PlaceOptions(replace_retries=True)
    )
    job = plain_yaml.load(placement.text)["spec"]

    first = next((rule for rule in at_path(job, "podFailurePolicy.rules") or [] if "onPodConditions" in rule), None)
    ignored = first is not None and first["action"] == "Ignore"
    assert at_path(job, "activeDeadlineSeconds") is not None if ignored else at_path(job, "backoffLimit") is not None
    if at_path(job, "podFailurePolicy.rules"):
        assert at_path(job, "template.spec.restartPolicy") == "Never"
        assert at_path(job, "podReplacementPolicy") in (None, "Failed")
