"""Workflows that take their templates from another object: what their own fields place and bound, and what they leave."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.argo.workflows import FALL_BACK, LEAF, a_workflow, patch_of, place
from tests.placing.placed import FILE, a_config

from spotwright.manifests.files import place_text
from spotwright.placing.context import Group, PlaceOptions
from spotwright.placing.documents import References, parse

REFERENCE = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: mine}
spec:
  workflowTemplateRef: {name: shared}
"""


def explained(text: str, policy: str, beside: str = "", role: str = "mine/train") -> dict[str, str]:
    """Who enforces each value of a role's policy, as ``explain`` says."""
    config, references = a_config(policy, "{kubernetes: '1.33', argo: '4.0'}"), References(parse(beside, "beside.yaml"))
    placed = place_text(text, FILE, config, references, PlaceOptions(only_explain=True))
    [report] = [one for one in placed.roles if one.policy_path == role]
    return {name: enforced.text for name, enforced in report.enforcement.items()}


def shared(*templates: str, spec: str = "") -> str:
    return a_workflow(*templates, spec=spec, kind="WorkflowTemplate", metadata="{name: shared}")


def test_a_workflow_by_reference_is_placed_at_its_own_spec() -> None:
    outcome = place(REFERENCE, "{default: {spot: prefer, image_pull_secrets: [acr]}}", beside=shared())

    spec = outcome.value["spec"]
    assert [one["value"] for one in spec["tolerations"]] == ["spot"]
    assert patch_of(spec) == {"terminationGracePeriodSeconds": 25}
    assert spec["podMetadata"]["labels"] == {"spotwright.dev/spot": "prefer"}
    assert spec["imagePullSecrets"] == [{"name": "acr"}]
    assert spec["retryStrategy"]["limit"] == "10"
    assert "keeps its templates" in outcome.roles["mine/train"].frozen


@pytest.mark.parametrize(
    ("beside", "patch", "enforced"),
    [
        (shared(), {"activeDeadlineSeconds": 3600}, "activeDeadlineSeconds 3600, for each attempt"),
        (
            shared(spec="  podSpecPatch: 'hostNetwork: true'\n"),
            {"activeDeadlineSeconds": 3600, "hostNetwork": True},
            "activeDeadlineSeconds 3600, for each attempt",
        ),
        (
            shared("{name: train, activeDeadlineSeconds: 60, container: {image: x}}"),
            {},
            "activeDeadlineSeconds 60 (yours), for each attempt",
        ),
        (shared("{name: train, timeout: 1m, container: {image: x}}"), {}, "timeout 1m (yours), for each attempt"),
        (
            shared("{name: train, podSpecPatch: 'activeDeadlineSeconds: 60', container: {image: x}}"),
            {},
            "activeDeadlineSeconds 60 (yours), for each attempt",
        ),
    ],
)
def test_a_workflow_by_reference_gets_the_timeout_in_its_patch_unless_the_templates_have_one(
    beside: str, patch: dict[str, Any], enforced: str
) -> None:
    outcome = place(REFERENCE, "{default: {spot: prefer, timeout: 1h}}", beside=beside)

    assert patch_of(outcome.value["spec"]) == {"terminationGracePeriodSeconds": 25, **patch}
    explanation = explained(REFERENCE, "{default: {spot: prefer, timeout: 1h}}", beside)
    assert explanation["timeout"] == enforced
    assert explanation["interruptions.max"] == "retryStrategy.limit 10, errors count there too, lost nodes do not"


def test_a_deadline_in_the_patch_of_a_workflow_by_reference_stays() -> None:
    own = REFERENCE + "  podSpecPatch: 'activeDeadlineSeconds: 60'\n"
    outcome = place(own, "{default: {spot: prefer, timeout: 1h}}", beside=shared())

    assert patch_of(outcome.value["spec"])["activeDeadlineSeconds"] == 60
    enforced = outcome.roles["mine/train"].enforcement["timeout"]
    assert enforced.text == "activeDeadlineSeconds 60 (yours), for each attempt"


def test_templates_with_different_timeouts_get_no_common_deadline() -> None:
    policy = "{default: {spot: prefer, timeout: 1h}, tasks: {'*/other': {timeout: 2h}}}"
    outcome = place(REFERENCE, policy, beside=shared(LEAF, "{name: other, container: {image: x}}"))

    assert "activeDeadlineSeconds" not in patch_of(outcome.value["spec"])
    assert outcome.roles["mine/other"].enforcement["timeout"].text.startswith("nothing")


def test_only_the_placement_of_a_workflow_by_reference() -> None:
    options = PlaceOptions(only=frozenset({Group.PLACEMENT}))
    config = a_config("{default: {spot: prefer, timeout: 1h}}", "{argo: '4.0'}")
    text = place_text(REFERENCE, FILE, config, References(parse(shared(), "beside.yaml")), options).text

    assert "tolerations" in text
    assert "retryStrategy" not in text
    assert "activeDeadlineSeconds" not in text


def test_a_workflow_whose_templates_are_placed_too_has_their_retries() -> None:
    explanation = explained(shared() + "---\n" + REFERENCE, "{default: {spot: prefer, timeout: 1h}}")

    for name in ("timeout", "interruptions.max", "interruptions.backoff", "fall_back_after"):
        assert explanation[name] == "its templates, as their own policy says"


def test_retries_of_the_templates_are_shown_as_the_users() -> None:
    own = "{name: train, retryStrategy: {limit: 3}, container: {image: x}}"
    explanation = explained(REFERENCE, "{default: {spot: prefer}}", shared(own))

    assert explanation["interruptions.max"].startswith("retryStrategy.limit 3 (yours)")


def test_its_retries_are_left_where_they_would_repeat_whole_steps() -> None:
    steps = "{name: main, steps: [[{name: go, template: train}]]}"
    outcome = place(REFERENCE, beside=shared(steps, LEAF))

    assert "retryStrategy" not in outcome.value["spec"]
    assert outcome.reports("an interruption ends the workflow", "place beside.yaml too")


@pytest.mark.parametrize(
    ("beside", "why"),
    [
        ("", "was not given: pass its file with --with"),
        (shared(LEAF, "{name: db, daemon: true, container: {image: x}}"), "template db must stay on on-demand"),
        (
            shared("{name: train, tolerations: [{operator: Exists}], container: {image: x}}"),
            "its own scheduling fields",
        ),
        (
            shared(LEAF, "{name: gpu, container: {image: x, resources: {limits: {nvidia.com/gpu: 1}}}}"),
            "its templates need different nodes",
        ),
    ],
)
def test_nothing_is_written_where_the_workflows_own_fields_would_not_do(beside: str, why: str) -> None:
    taints = "{default: {spot: prefer, ladder: [gpu-spot, spot, regular, gpu]}}" if "gpu:" in beside else FALL_BACK
    outcome = place(REFERENCE, taints, beside=beside)

    assert outcome.text == REFERENCE
    assert outcome.reports(why)
