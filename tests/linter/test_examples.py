"""Every rule finds its failing example and nothing in its passing one: the examples of the reference page are these tests."""

from __future__ import annotations

import pytest
from tests.linter.linting import found_in

from spotwright.linter.linting import RULES
from spotwright.linter.rule import Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_finds_its_failing_example(rule: Rule) -> None:
    found = [finding for finding in found_in(rule.fails, rule.config, python=rule.is_python) if finding.rule == rule.id]

    assert found
    assert all(finding.severity is rule.severity and finding.line > 0 for finding in found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_passing_example_of_a_rule_has_no_finding_of_any_rule(rule: Rule) -> None:
    assert found_in(rule.passes, rule.config, python=rule.is_python) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_failing_example_of_a_rule_shows_this_rule_alone(rule: Rule) -> None:
    assert {finding.rule for finding in found_in(rule.fails, rule.config, python=rule.is_python)} == {rule.id}
