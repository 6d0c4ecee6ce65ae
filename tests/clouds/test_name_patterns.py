"""Patterns of Go: what Python's ``re`` finds where both know the syntax, and never in more than linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from spotwright.clouds.name_patterns import LONGEST, name_pattern

PIECES = (
    "a",
    "b",
    "-",
    ".",
    "[ab]",
    "[^a-c]",
    r"\d",
    r"\w",
    r"\.",
    "^",
    "$",
    r"\b",
    "(a|b-)",
    "(?:ab)?",
    "|",
    "a*",
    "b+?",
    "-{2}",
    "a{1,2}",
)


@given(some.lists(some.sampled_from(PIECES), max_size=8).map("".join), some.text("ab-1. ", max_size=12))
def test_a_name_matches_where_python_finds_the_pattern(text: str, name: str) -> None:
    assert name_pattern(text).is_in(name) is (re.search(text.replace("$", r"\Z"), name) is not None)


@pytest.mark.parametrize(
    ("text", "name", "is_in"),
    [
        (".*spot.*", "aks-cpuspot-12345678-vmss", True),
        ("^aks-cpu-.*", "aks-cpuspot-12345678-vmss", False),
        ("^eks-gpu-[0-9a-f]{8}-", "eks-gpu-1234abcd-1234-1234-1234-123456789abc", True),
        ("(?i)SPOT", "my-Spot-nodes", True),
        ("(?i:GPU)-SPOT", "gpu-SPOT", True),
        ("(?i:GPU)-SPOT", "gpu-spot", False),
        ("(?P<kind>spot|preemptible)$", "pool-preemptible", True),
        (r"\Qa.b\E", "axb", False),
        (r"\Qa.b\E-c", "a.b-c", True),
        ("[[:digit:]]+-vmss", "aks-1-vmss", True),
        ("[]x-]$", "a-", True),
        (r"\x2dspot", "a-spot", True),
        ("a{,3}", "a{,3}", True),
        ("", "anything", True),
    ],
)
def test_patterns_of_the_field_and_of_go(text: str, name: str, is_in: bool) -> None:
    assert name_pattern(text).is_in(name) is is_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(?=x)", "Go has no such group"),
        (r"(a)\1", r"Go has no \1"),
        ("(a", "ends too early"),
        ("a)", "has no ("),
        ("[a", "ends too early"),
        ("[z-a]", "no range"),
        ("*", "nothing stands before"),
        ("a**", "one repetition follows another"),
        ("a{1001}", "no number of repetitions"),
        ("((a{100}){100}){100}", "too long with its repetitions"),
        ("(((){1000}){1000}){1000}", "too long with its repetitions"),
        ("(" * 200 + ")" * 200, "groups stand in one another"),
        ("a" * 501, "more than 500 characters"),
    ],
)
def test_what_go_refuses_is_refused_with_the_reason(text: str, words: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=re.escape(words)):
        name_pattern(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("text", ["(a+)+$", "a(a*)*(a*)*b", "(.*a){20}b", "a?" * 100 + "a" * 100 + "b", "(a|a)+b"])
def test_no_pattern_takes_long(text: str) -> None:
    """In Python's ``re`` the first of them takes years."""
    start = time.process_time()
    assert not name_pattern(text).is_in("b" + "a" * (LONGEST - 2) + "c")
    assert time.process_time() - start < 5
