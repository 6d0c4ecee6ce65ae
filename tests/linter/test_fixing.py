"""--fix mends what is safe, place leaves that alone, and unplace gives the same bytes back."""

from __future__ import annotations

import pytest
from tests import plain_yaml
from tests.linter.linting import linted, settings
from tests.placing.placed import a_config

from spotwright.linter.linting import RULES, fixed_text, relinted
from spotwright.linter.rule import ON_SPOT, Rule, job
from spotwright.manifests.files import place_text, unfix_text, unplace_text

MENDED = [rule for rule in RULES if rule.mends and not rule.is_python]
GRACE = job(ON_SPOT + "terminationGracePeriodSeconds: 300  # too long\n")


def fixed(text: str, configuration: str = "") -> str:
    return fixed_text(text, linted(text, configuration), settings(configuration))


@pytest.mark.parametrize("rule", MENDED, ids=lambda rule: rule.id)
def test_fix_removes_what_a_rule_says_it_mends(rule: Rule) -> None:
    text = fixed(rule.fails, rule.config)

    assert rule.id not in {finding.rule for finding in linted(text, rule.config).findings}


@pytest.mark.parametrize("rule", MENDED, ids=lambda rule: rule.id)
def test_what_was_mended_comes_out_again_to_the_same_bytes(rule: Rule) -> None:
    assert unfix_text(fixed(rule.fails, rule.config), "work.yaml").text == rule.fails


@pytest.mark.parametrize("rule", MENDED, ids=lambda rule: rule.id)
def test_a_rule_that_mends_nothing_says_so(rule: Rule) -> None:
    assert any(finding.can_fix for finding in linted(rule.fails, rule.config).findings if finding.rule == rule.id)


def test_only_the_value_that_was_wrong_changes() -> None:
    lines = [
        line for line in fixed(GRACE).splitlines() if "spotwright.dev/fixed" not in line and line != "  annotations:"
    ]

    assert lines == GRACE.replace("300", "25").splitlines()


def test_mending_twice_is_mending_once() -> None:
    once = fixed(GRACE)
    more = once.replace("      restartPolicy: Never\n", "")

    assert fixed(once) == once
    assert "restartPolicy" not in more
    assert "restartPolicy: Never" in fixed(more)
    assert "terminationGracePeriodSeconds: 25" in fixed(more)


def test_place_leaves_what_was_mended_and_unplace_takes_both_out() -> None:
    config = a_config("{default: {spot: prefer}}")
    placed = place_text(fixed(GRACE), "work.yaml", config).text

    assert "terminationGracePeriodSeconds: 25" in placed
    assert unplace_text(placed, "work.yaml").text == fixed(GRACE)
    assert unfix_text(unplace_text(placed, "work.yaml").text, "work.yaml").text == GRACE


def test_after_a_reformatting_the_values_come_out_again() -> None:
    reformatted = plain_yaml.dump(plain_yaml.load(fixed(GRACE)))

    assert plain_yaml.load(unfix_text(reformatted, "work.yaml").text) == plain_yaml.load(GRACE)


def test_placed_objects_are_not_mended() -> None:
    placed = place_text(job(""), "work.yaml", a_config("{default: {spot: prefer}}")).text
    changed = placed.replace("terminationGracePeriodSeconds: 25", "terminationGracePeriodSeconds: 300")

    assert changed != placed
    assert {one.can_fix for one in linted(changed).findings if one.rule == "grace-longer-than-notice"} == {False}
    assert fixed(changed) == changed


def test_items_of_a_list_are_mended() -> None:
    items = "".join(f"  {line}\n" for line in GRACE.splitlines())
    text = "apiVersion: v1\nkind: List\nitems:\n-" + items[1:]

    assert plain_yaml.load(fixed(text))["items"][0]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 25
    assert unfix_text(fixed(text), "work.yaml").text == text


@pytest.mark.parametrize("line", ["<<: *long", "terminationGracePeriodSeconds: *seconds"])
def test_a_value_that_an_alias_shares_is_mended_in_its_own_place(line: str) -> None:
    shared = "seconds: &long {terminationGracePeriodSeconds: &seconds 300}\n"
    text = shared + GRACE.replace("terminationGracePeriodSeconds: 300  # too long", line)

    assert "      terminationGracePeriodSeconds: 25\n" in fixed(text)
    assert fixed(text).startswith(shared)
    assert "grace-longer-than-notice" not in {finding.rule for finding in linted(fixed(text)).findings}
    assert fixed(fixed(text)) == fixed(text)
    assert unfix_text(fixed(text), "work.yaml").text == text


def test_an_object_without_a_finding_does_not_change_with_an_anchor_of_another_one() -> None:
    item = GRACE.replace("metadata:", "metadata: &all", 1).replace("\n", "\n  ").rstrip(" ")
    text = f"apiVersion: v1\nkind: List\nitems:\n- {item}- apiVersion: v1\n  kind: Service\n  metadata: *all\n"

    assert fixed(text) == text
    assert fixed(text.replace("*all", "{name: a}")) != text.replace("*all", "{name: a}")


def test_a_misspelt_argument_is_renamed_beside_letters_of_several_bytes() -> None:
    text = (
        "from kfp import dsl\n\n\n@dsl.pipeline\ndef main():\n    t = f('ä'); t.set_retry(2, backoff_dureation='5m')\n"
    )
    before = linted(text, python=True)
    new = fixed_text(text, before, settings())
    after, gone = relinted(new, before, settings())

    assert new == text.replace("dureation", "duration")
    assert {finding.rule for finding in gone} == {"unknown-argument"}
    assert "unknown-argument" not in {finding.rule for finding in after.findings}
