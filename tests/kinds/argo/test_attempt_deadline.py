"""Argo's deadline of an attempt: which templates get it, and which deadline of the user stays."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.argo.workflows import LEAF, a_workflow, patch_of, place, template
from tests.placing.placed import FILE, a_config

from spotwright.manifests.files import place_text
from spotwright.placing.context import Group, PlaceOptions

TIMED = "{default: {spot: prefer, timeout: 90.5s}}"
OWN = "{name: train, activeDeadlineSeconds: 60, container: {image: trainer}}"
PATCHED = '{name: train, podSpecPatch: "activeDeadlineSeconds: 60", container: {image: trainer}}'
DEFAULTS = "  templateDefaults: {activeDeadlineSeconds: 60}\n"


def deadline_of(text: str, policy: str = TIMED, **more: Any) -> Any:
    return template(place(text, policy, **more)).get("activeDeadlineSeconds")


@pytest.mark.parametrize(
    "code",
    [
        "container: {image: trainer}",
        "script: {image: trainer, source: train()}",
        "containerSet: {containers: [{name: main, image: trainer}]}",
    ],
)
def test_a_timeout_becomes_the_deadline_of_each_attempt_in_whole_seconds(code: str) -> None:
    assert deadline_of(a_workflow(f"{{name: train, {code}}}")) == 91


def test_an_exit_handler_that_runs_code_gets_the_deadline_too() -> None:
    assert deadline_of(a_workflow(spec="  onExit: train\n")) == 91


@pytest.mark.parametrize(
    "body",
    [
        "daemon: true, container: {image: redis}",
        "resource: {action: get, manifest: 'kind: Pod'}",
        "data: {source: {artifactPaths: {name: files}}, transformation: [{expression: data}]}",
    ],
)
def test_pods_that_run_no_code_to_its_end_get_no_deadline(body: str) -> None:
    outcome = place(a_workflow(f"{{name: train, {body}}}"), TIMED)

    assert "activeDeadlineSeconds" not in template(outcome)
    assert outcome.roles["nightly/train"].enforcement["timeout"].text.startswith("nothing")


def test_without_a_timeout_no_deadline_is_written() -> None:
    assert deadline_of(a_workflow(), "{default: {spot: prefer}}") is None


def test_without_the_group_of_retries_no_deadline_is_written() -> None:
    options = PlaceOptions(only=frozenset({Group.PLACEMENT}))

    assert "activeDeadlineSeconds" not in place_text(a_workflow(), FILE, a_config(TIMED), options=options).text


@pytest.mark.parametrize(
    ("text", "kept", "has_option"),
    [
        (a_workflow(OWN), 60, True),
        (a_workflow(LEAF, spec=DEFAULTS), None, True),
        (a_workflow(PATCHED), None, False),
    ],
)
def test_a_deadline_of_the_user_stays_with_a_warning(text: str, kept: int | None, *, has_option: bool) -> None:
    outcome = place(text, TIMED)

    assert template(outcome).get("activeDeadlineSeconds") == kept
    assert outcome.reports("train: activeDeadlineSeconds 60 stays; the policy allows 91 (1m31s)")
    assert bool(outcome.reports("91 (1m31s) (--replace-retries)")) is has_option
    enforced = outcome.roles["nightly/train"].enforcement["timeout"]
    assert enforced.text == "activeDeadlineSeconds 60 (yours), for each attempt"


def test_a_deadline_that_is_the_policys_needs_no_warning() -> None:
    assert not place(a_workflow(OWN), "{default: {spot: prefer, timeout: 1m}}").reports("stays")


@pytest.mark.parametrize("text", [a_workflow(OWN), a_workflow(LEAF, spec=DEFAULTS)])
def test_replace_retries_writes_the_policys_deadline_into_the_template(text: str) -> None:
    assert deadline_of(text, replace_retries=True) == 91


def test_a_deadline_in_the_users_patch_stays_also_with_replace_retries() -> None:
    placed = template(place(a_workflow(PATCHED), TIMED, replace_retries=True))

    assert "activeDeadlineSeconds" not in placed
    assert patch_of(placed)["activeDeadlineSeconds"] == 60


@pytest.mark.parametrize(("argo", "is_reported"), [("3.4", True), ("3.5", False)])
def test_before_argo_3_5_a_warning_reports_that_a_timeout_counts_as_an_interruption(
    argo: str, *, is_reported: bool
) -> None:
    outcome = place(a_workflow(), TIMED, argo=argo)

    assert bool(outcome.reports("a timeout counts as an interruption")) is is_reported


@pytest.mark.parametrize(
    "text",
    [
        a_workflow("{name: train, timeout: 40s, container: {image: trainer}}"),
        a_workflow(LEAF, spec="  templateDefaults: {timeout: 40s}\n"),
    ],
)
def test_argos_own_timeout_stays_because_argo_prefers_it(text: str) -> None:
    outcome = place(text, TIMED)

    assert "activeDeadlineSeconds" not in template(outcome)
    assert outcome.reports("train: its own timeout 40s stays: Argo prefers it to activeDeadlineSeconds")
    assert outcome.roles["nightly/train"].enforcement["timeout"].text == "timeout 40s (yours), for each attempt"
