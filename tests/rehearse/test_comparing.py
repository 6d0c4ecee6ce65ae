"""Two executions came to the same, or it is said where they did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotwright.errors import InputError
from spotwright.rehearsal.comparing import Difference, differences, load_comparison, without_noise


def said(old: Any, new: Any, tolerance: float = 0.0) -> list[str]:
    return [str(each) for each in differences({"out": old}, {"out": new}, tolerance)]


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_equal_values_do_not_differ() -> None:
    assert said({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}) == []


def test_a_value_inside_is_named_by_its_place() -> None:
    assert said({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ["out.a[1].b: 3 instead of 2"]


def test_numbers_may_differ_by_the_tolerance() -> None:
    assert said(1.0, 1.0009, tolerance=1e-3) == []
    assert said(1.0, 1.002, tolerance=1e-3) == ["out: 1.002 instead of 1.0"]


def test_not_a_number_is_the_same_as_itself() -> None:
    assert said(float("nan"), float("nan")) == []


def test_true_is_not_one() -> None:
    assert said(1, True) == ["out: True instead of 1"]


def test_an_output_that_is_missing_or_new_differs() -> None:
    assert [str(each) for each in differences({"a": 1}, {"b": 1})] == [
        "a: is not there", "b: is there, and should not be",
    ]  # fmt: skip


def test_files_of_the_same_bytes_do_not_differ(tmp_path: Path) -> None:
    assert said(file(tmp_path, "a", b"\x00\xff"), file(tmp_path, "b", b"\x00\xff")) == []


def test_binary_files_differ_as_a_whole(tmp_path: Path) -> None:
    assert said(file(tmp_path, "a", b"\x00\xff\x01"), file(tmp_path, "b", b"\x00\xff")) == ["out: 2 bytes instead of 3"]


def test_json_in_a_file_is_compared_by_its_values(tmp_path: Path) -> None:
    assert said(file(tmp_path, "a", '{"x": 1.0, "y": 2}'), file(tmp_path, "b", '{"y": 2, "x": 1.5}')) == [
        "out.x: 1.5 instead of 1.0"
    ]


def test_a_table_is_compared_line_by_line_within_the_tolerance(tmp_path: Path) -> None:
    old, new = file(tmp_path, "a", "n,x\na,1.00\nb,2.0\n"), file(tmp_path, "b", "n,x\na,1.0001\nb,2.5\n")

    assert said(old, new, tolerance=1e-3) == ["out, line 3: 'b,2.5' instead of 'b,2.0'"]


def test_a_table_with_a_row_more_says_so(tmp_path: Path) -> None:
    assert said(file(tmp_path, "a", "1\n2\n"), file(tmp_path, "b", "1\n2\n2\n")) == ["out: 3 lines instead of 2"]


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_are_compared_within_the_tolerance(tmp_path: Path, kind: str) -> None:
    old, new = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    for path, shift in ((old, 0.0), (new, 1e-6)):
        (np.save if kind == "npy" else np.savez)(path, np.arange(5.0) + shift)

    assert said(old, new, tolerance=1e-3) == []
    assert "5 of 5 numbers differ" in said(old, new)[0]


def test_an_archive_that_holds_no_arrays_differs_as_a_whole(tmp_path: Path) -> None:
    old, new = file(tmp_path, "a.zip", b"PK\x03\x04 old"), file(tmp_path, "b.zip", b"PK\x03\x04 newer")

    assert said(old, new, tolerance=1.0) == ["out: 10 bytes instead of 8"]


def test_folders_are_compared_to_the_bottom(tmp_path: Path) -> None:
    for side, text in (("old", "1"), ("new", "2")):
        file(tmp_path, f"{side}/deep/file.txt", text)
        file(tmp_path, f"{side}/same", "same")
    file(tmp_path, "old/gone", "")
    file(tmp_path, "new/__pycache__/x.pyc", "")

    assert said(tmp_path / "old", tmp_path / "new") == ["out/deep/file.txt: 2 instead of 1", "out/gone: is not there"]


def test_a_folder_in_the_place_of_a_file_differs(tmp_path: Path) -> None:
    assert said(file(tmp_path, "a", ""), tmp_path) == ["out: is a folder instead of a file"]


def test_what_differs_undisturbed_does_not_count_and_the_rest_does() -> None:
    noise = differences({"m": {"time": 1, "score": 2}}, {"m": {"time": 2, "score": 2}})
    found = differences({"m": {"time": 1, "score": 2}}, {"m": {"time": 3, "score": 9}})

    assert without_noise(found, noise) == [Difference("m", ".score", "9 instead of 2")]


def test_a_file_that_differs_undisturbed_as_a_whole_is_left_out_with_all_that_is_in_it() -> None:
    noise = [Difference("log", "", "3 lines instead of 2")]

    assert without_noise([Difference("log", ", line 1", "x")], noise) == []


def test_a_comparison_of_the_user_decides(tmp_path: Path) -> None:
    file(tmp_path, "mine.py", "def near(name, old, new):\n    return abs(old - new) < 2 or f'{name}: too far'\n")
    compare = load_comparison("mine.py:near", tmp_path)

    assert differences({"x": 1}, {"x": 2}, compare=compare) == []
    assert [str(each) for each in differences({"x": 1}, {"x": 5}, compare=compare)] == ["x: x: too far"]


def test_a_comparison_may_be_named_by_its_module(tmp_path: Path) -> None:
    file(tmp_path, "compare_by_module.py", "def never(*_):\n    return False\n")

    (found,) = differences({"x": 1}, {"x": 1}, compare=load_comparison("compare_by_module:never", tmp_path))

    assert found.text == "is not the same, says the comparison"


def test_a_comparison_that_fails_is_wrong_input(tmp_path: Path) -> None:
    file(tmp_path, "mine.py", "def broken(name, old, new):\n    return old['x']\n")
    compare = load_comparison("mine.py:broken", tmp_path)

    with pytest.raises(InputError, match="it failed on the output a: KeyError"):
        differences({"a": {}}, {"a": {}}, compare=compare)


@pytest.mark.parametrize(
    "text", ["nothing", "no_such_module:f", "missing.py:f", "json:no_such_function", "json:__name__"]
)
def test_a_comparison_that_is_not_there_is_wrong_input(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--compare"):
        load_comparison(text, tmp_path)
