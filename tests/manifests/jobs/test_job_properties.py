"""Properties of placed Jobs: nothing of the user's is dropped, interruptions are bounded, and unplace restores the file."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.manifests.placing import FILE, a_config, assert_unplaces, at_path

from spotwright.manifests.files import place_text
from spotwright.placing.context import PlaceOptions

NAMES = st.sampled_from(["main", "train", "side-car"])
TOLERATIONS = st.lists(
    st.sampled_from(
        [
            {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
            {"operator": "Exists"},
            {
                "key": "kubernetes.azure.com/scalesetpriority",
                "operator": "Equal",
                "value": "spot",
                "effect": "NoSchedule",
            },
        ]
    ),
    max_size=2,
    unique_by=str,
)
ENV = st.fixed_dictionaries({"name": st.sampled_from(["A", "SPOTWRIGHT_RUN"]), "value": st.text(max_size=4)})
PODS = st.fixed_dictionaries(
    {"containers": st.lists(st.fixed_dictionaries({"name": NAMES, "image": st.just("i")}, optional={
        "env": st.lists(ENV, max_size=2),
        "command": st.just(["sh", "-c", "# no comment: {{not}} a marker"]),
    }), min_size=1, max_size=2)},
    optional={
        "restartPolicy": st.sampled_from(["Never", "OnFailure"]),
        "tolerations": TOLERATIONS,
        "nodeSelector": st.just({}),
        "imagePullSecrets": st.just([{"name": "mine"}]),
        "terminationGracePeriodSeconds": st.integers(0, 90),
        "affinity": st.sampled_from([None, {}, {"nodeAffinity": {}}, {"podAntiAffinity": {}}]),
    },
)  # fmt: skip
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


class Plain(plain_yaml.Dumper):
    """Writes equal objects out: an edit inside an anchor that another place shares is refused, which is a fact of its own."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def written(spec: Any, *, flow: bool, newline: str) -> str:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    text = str(yaml.dump(job, Dumper=Plain, sort_keys=False, default_flow_style=flow, width=80))
    return text.replace("\n", newline)


def kept(before: Any, after: Any) -> bool:
    """Whether everything of ``before`` is in ``after``, where it was; lists may have more items in front."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            key in after and kept(value, after[key]) for key, value in before.items()
        )
    if isinstance(before, list):
        tail = after[len(after) - len(before) :] if isinstance(after, list) else []
        return len(tail) == len(before) and all(kept(old, new) for old, new in zip(before, tail, strict=True))
    return before is None or bool(before == after)


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
