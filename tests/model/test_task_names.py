"""Which tasks a name or a pattern means."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.task_names import matches, may_mean, no_such_task, refusal


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
        ("train*", "exit-handler-1/for-loop-3/train-0"),
        ("loop/train", "exit-handler-1/loop/train"),
        ("*", "loop/train"),
        ("*/train", "a/b/train"),
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
        ("loop*", "loop/train"),
        ("*/train", "train"),
        ("op/train", "loop/train"),
        ("*op/train", "a/lo/p/train"),
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


@pytest.mark.parametrize("name", ["train-3", "for-loop-1/train-3", "inner-0/train-12", "for-loop-1/train"])
def test_a_name_may_mean_an_iteration_of_a_task_that_may_be_in_a_loop(name: str) -> None:
    path = "inner/train" if "inner" in name else "exit-handler-2/for-loop-1/train"
    assert may_mean(name, path)
    assert not may_mean(name, "for-loop-1/eval")


def test_a_sentence_about_no_task_names_the_nearest_and_the_first_ten() -> None:
    assert (
        no_such_task("trian", ["loop/train", "eval"]) == ": did you mean 'loop/train'?; the tasks are loop/train, eval"
    )
    assert no_such_task("x", [f"task-{number}" for number in range(11)]).endswith("task-9, ...")
