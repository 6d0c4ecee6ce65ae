"""A user's pattern cannot block others, and our own patterns take time linear in the text."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config, a_jobset

from spotwright.cluster.admit_objects import admit_object
from spotwright.cluster.descheduler import why_not_made_again
from spotwright.kinds.jobset import MOST_RULES, is_matched, why_not_matched

EVICTED = "Pod team-a/one has condition DisruptionTarget matching FailJob rule at index 0"


def a_set(*patterns: Any, rules: int = 1) -> dict[str, Any]:
    rule = {
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": [*patterns],
    }
    failure = {"maxRestarts": 3, "rules": [rule] * rules}
    return {"kind": "JobSet", "metadata": {"name": "set"}, "spec": {"failurePolicy": failure}}


def why_it_stays(job_set: dict[str, Any]) -> str:
    on_disruption = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    child = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"podFailurePolicy": {"rules": [on_disruption]}}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    return why_not_made_again({"metadata": {"ownerReferences": [owner]}}, [child, job_set])


@pytest.mark.parametrize("pattern", ["(P?o?d? ?)*(.*a){30}$", "(.*)*(.*)*(.*)*x", r"(\w+\s?)+@", "(a|a|aa)*" * 30])
def test_a_pattern_that_python_would_try_for_hours_is_answered_at_once(pattern: str) -> None:
    began = time.thread_time()
    why_it_stays(a_set(pattern))
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("condition DisruptionTarget", True),
        ("(?i)disruptiontarget", True),
        (r"^Pod \S+ has condition \pL+ matching", True),  # Go's syntax, which Python does not know
        ("exit code 86 ", False),
        ("^condition", False),
    ],
)
def test_a_pattern_has_the_meaning_that_it_has_for_the_controller_of_the_set(pattern: str, *, matches: bool) -> None:
    assert is_matched([pattern], EVICTED) is matches


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)", r"(a)\1", "[", "x{1000}" * 20, "a" * 100_000, "(" * 5_000, "\ud800", "(?:a{1000}){1000}", 7, None],
)
def test_what_is_no_pattern_matches_nothing_and_raises_nothing(pattern: Any) -> None:
    assert not is_matched([pattern], EVICTED)
    assert why_it_stays(a_set(pattern)) == ""


def test_a_pattern_that_is_refused_gets_one_warning_with_its_place() -> None:
    given = a_jobset()
    rule = {
        "action": "RestartJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": ["(?=a)"],
    }
    given["spec"]["failurePolicy"] = {"maxRestarts": 3, "rules": [rule, rule]}
    outcome = admit_object(given, a_config())
    told = [text for text in outcome.warnings if "RE2" in text]
    assert len(told) == 1
    assert "rules[0].onJobFailureMessagePatterns: '(?=a)' is an invalid pattern" in told[0]


def test_thousands_of_rules_with_patterns_cost_no_more_than_a_few() -> None:
    patterns = [f"x{{900}}{number}" for number in range(500)]
    began = time.thread_time()
    assert "FailJobSet" in why_it_stays(a_set(*patterns, rules=5_000))  # nobody knows which one matches
    assert time.thread_time() - began < 0.5
    assert "only the first" in why_not_matched(patterns)
    assert why_it_stays(a_set("nothing", rules=MOST_RULES)) == ""
