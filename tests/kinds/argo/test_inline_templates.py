"""Inline templates: some releases of Argo lose them when they retry them, so there they get no retries."""

from __future__ import annotations

import pytest
from tests.kinds.argo.workflows import a_workflow, place, template

INLINE = "{name: main, steps: [[{name: go, inline: {container: {image: trainer}}}]]}"


@pytest.mark.parametrize("argo", ["3.7", "4.0"])
def test_an_inline_template_gets_no_retries_where_argo_loses_it_with_them(argo: str) -> None:
    """Seen on Argo 3.7.3: a step that succeeded at once ended as Error, 'failed to get a template'."""
    outcome = place(a_workflow(INLINE), argo=argo)

    [[step]] = template(outcome, "main")["steps"]
    assert "retryStrategy" not in step["inline"]
    assert "spotwright.dev/any-node" not in outcome.text
    assert outcome.reports("main/go: an inline template gets no retries", "argo-workflows#15051")
    role = outcome.roles["nightly/main/go"]
    assert role.after_interruption.startswith("an interruption ends the step: an inline template gets no retries")


@pytest.mark.parametrize("argo", ["3.7.1", "3.7.3", "3.7.13", "4.0.0", "4.0.4"])
def test_the_patch_level_decides_whether_argo_loses_an_inline_template(argo: str) -> None:
    outcome = place(a_workflow(INLINE), argo=argo)

    assert outcome.reports("main/go: an inline template gets no retries", "move it to templates")
    assert not outcome.reports("set target.argo")


@pytest.mark.parametrize(("argo", "mended"), [("3.7", "3.7.14"), ("4.0", "4.0.5")])
def test_without_a_patch_level_the_message_names_the_release_that_keeps_it(argo: str, mended: str) -> None:
    outcome = place(a_workflow(INLINE), argo=argo)

    assert outcome.reports("an inline template gets no retries", f"set target.argo to {mended}")


@pytest.mark.parametrize("argo", ["3.6", "3.6.19", "3.7.0", "3.7.14", "3.7.18", "4.0.5", "4.0.10", "4.1", "4.1.2"])
def test_an_inline_template_gets_retries_where_argo_keeps_it(argo: str) -> None:
    outcome = place(a_workflow(INLINE), argo=argo)

    [[step]] = template(outcome, "main")["steps"]
    assert "retryStrategy" in step["inline"]
    assert not outcome.reports("#15051")


def test_retries_that_an_inline_template_inherits_are_reported() -> None:
    outcome = place(a_workflow(INLINE, spec="  retryStrategy: {limit: 2}\n"), argo="3.7")

    assert outcome.reports("main/go: with retries, Argo ends an inline template as Error", "argo-workflows#15051")
