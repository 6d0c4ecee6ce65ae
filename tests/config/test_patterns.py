"""Which task paths a pattern matches."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.config.sections import matches, refusal


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("train", "train"),
        ("train", "loop/train"),
        ("train", "a/b/train"),
        ("*", "train"),
        ("train*", "train-3"),
        ("*/train", "loop/train"),
        ("**", "loop/inner/train"),
        ("**/train*", "train"),
        ("**/train*", "loop/train-3"),
        ("**/train*", "a/b/train"),
        ("loop/**", "loop/inner/train"),
        ("loop/**/train", "loop/train"),
        ("loop/**/train", "loop/a/b/train"),
        ("lo**in", "loop/train"),
        ("a.b", "a.b"),
        ("[x]", "[x]"),
        ("*a*b*", "xxaxxbxx"),
        ("**/a*b", "a/ab"),
    ],
)
def test_a_pattern_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("train", "loop/retrain"),
        ("train", "train/eval"),
        ("train", "train-3"),
        ("*", "loop/train"),
        ("loop*", "loop/train"),
        ("*/train", "train"),
        ("*/train", "a/b/train"),
        ("**/train", "retrain"),
        ("loop/**", "loop"),
        ("loop/**/train", "loop/retrain"),
        ("a.b", "axb"),
        ("[x]", "x"),
        ("train", "train\n"),
    ],
)
def test_a_pattern_does_not_match(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


@pytest.mark.parametrize("pattern", ["", "/train", "train/", "a//b", "a\nb", "a" * 501])
def test_a_pattern_that_matches_no_path_is_refused(pattern: str) -> None:
    assert refusal(pattern)


@pytest.mark.parametrize("pattern", ["train", "**/train*", "**", "a b", "*a" * 250])
def test_a_pattern_that_matches_a_path_is_not_refused(pattern: str) -> None:
    assert not refusal(pattern)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_within_one_name_a_star_means_what_it_means_in_a_shell(pattern: str, name: str) -> None:
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@given(st.text("ab*/", max_size=8), st.text("ab/", max_size=8))
def test_two_stars_match_at_least_what_one_does(pattern: str, path: str) -> None:
    assert matches(pattern.replace("*", "**"), path) or not matches(pattern, path)


def test_many_stars_take_no_time() -> None:
    assert not matches("*a" * 100 + "b", "a" * 250)
