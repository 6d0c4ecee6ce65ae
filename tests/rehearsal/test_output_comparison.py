"""Outputs of two executions are equal, or each difference is named with its location."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from spotwright.errors import InputError
from spotwright.rehearsal.output_comparison import Difference, compare_outputs, load_compare_function, without_noise


def differences(old: Any, new: Any, tolerance: float = 0.0) -> list[str]:
    return [str(each) for each in compare_outputs({"out": old}, {"out": new}, tolerance)]


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_equal_values_do_not_differ() -> None:
    assert differences({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}) == []


def test_a_nested_value_is_named_by_its_path() -> None:
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ["out.a[1].b: 3 instead of 2"]


def test_numbers_may_differ_by_the_tolerance() -> None:
    assert differences(1.0, 1.0009, tolerance=1e-3) == []
    assert differences(1.0, 1.002, tolerance=1e-3) == ["out: 1.002 instead of 1.0"]


def test_nan_equals_itself() -> None:
    assert differences(float("nan"), float("nan")) == []


def test_true_differs_from_one() -> None:
    assert differences(1, True) == ["out: True instead of 1"]


def test_a_missing_and_an_unexpected_output_are_differences() -> None:
    assert [str(each) for each in compare_outputs({"a": 1}, {"b": 1})] == [
        "a: is missing", "b: is unexpected",
    ]  # fmt: skip


def test_files_with_equal_bytes_do_not_differ(tmp_path: Path) -> None:
    assert differences(file(tmp_path, "a", b"\x00\xff"), file(tmp_path, "b", b"\x00\xff")) == []


def test_binary_files_differ_as_a_whole(tmp_path: Path) -> None:
    assert differences(file(tmp_path, "a", b"\x00\xff\x01"), file(tmp_path, "b", b"\x00\xff")) == [
        "out: 2 bytes instead of 3"
    ]


def test_json_in_a_file_is_compared_by_its_values(tmp_path: Path) -> None:
    assert differences(file(tmp_path, "a", '{"x": 1.0, "y": 2}'), file(tmp_path, "b", '{"y": 2, "x": 1.5}')) == [
        "out.x: 1.5 instead of 1.0"
    ]


def test_a_table_is_compared_line_by_line_within_the_tolerance(tmp_path: Path) -> None:
    old, new = file(tmp_path, "a", "n,x\na,1.00\nb,2.0\n"), file(tmp_path, "b", "n,x\na,1.0001\nb,2.5\n")

    assert differences(old, new, tolerance=1e-3) == ["out, line 3: 'b,2.5' instead of 'b,2.0'"]


def test_a_table_with_an_extra_row_differs_in_its_number_of_lines(tmp_path: Path) -> None:
    assert differences(file(tmp_path, "a", "1\n2\n"), file(tmp_path, "b", "1\n2\n2\n")) == ["out: 3 lines instead of 2"]


def archive(folder: Path, name: str, **members: bytes) -> Path:
    """An archive as torch.save writes it: its members are no arrays."""
    with ZipFile(folder / name, "w") as made:
        for member, content in members.items():
            made.writestr(f"archive/{member}", content)
    return folder / name


def test_the_members_of_another_archive_are_compared_as_bytes(tmp_path: Path) -> None:
    old = archive(tmp_path, "a.pt", data=b"\x80pickle", weights=b"1234")
    changed = archive(tmp_path, "b.pt", data=b"\x80pickle", weights=b"1239")
    more = archive(tmp_path, "c.pt", data=b"\x80pickle", weights=b"1234", moments=b"1")

    assert differences(old, changed) == ["out.archive/weights: other bytes"]
    assert differences(old, more) == [f"out: {more.stat().st_size} bytes instead of {old.stat().st_size}"]


def test_a_damaged_archive_differs_as_a_whole(tmp_path: Path) -> None:
    old = archive(tmp_path, "a.pt", weights=b"1234" * 50)
    damaged = file(tmp_path, "b.pt", old.read_bytes().replace(b"1234", b"1235", 1))

    assert differences(old, damaged) == ["out: other bytes"]


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_are_compared_within_the_tolerance(tmp_path: Path, kind: str) -> None:
    old, new = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    for path, shift in ((old, 0.0), (new, 1e-6)):
        (np.save if kind == "npy" else np.savez)(path, np.arange(5.0) + shift)

    assert differences(old, new, tolerance=1e-3) == []
    assert "5 of 5 numbers differ" in differences(old, new)[0]


def test_an_archive_that_holds_no_arrays_differs_as_a_whole(tmp_path: Path) -> None:
    old, new = file(tmp_path, "a.zip", b"PK\x03\x04 old"), file(tmp_path, "b.zip", b"PK\x03\x04 newer")

    assert differences(old, new, tolerance=1.0) == ["out: 10 bytes instead of 8"]


def test_folders_are_compared_recursively(tmp_path: Path) -> None:
    for side, text in (("old", "1"), ("new", "2")):
        file(tmp_path, f"{side}/deep/file.txt", text)
        file(tmp_path, f"{side}/same", "same")
    file(tmp_path, "old/gone", "")
    file(tmp_path, "new/__pycache__/x.pyc", "")

    assert differences(tmp_path / "old", tmp_path / "new") == [
        "out/deep/file.txt: 2 instead of 1",
        "out/gone: is missing",
    ]


def test_a_folder_instead_of_a_file_differs(tmp_path: Path) -> None:
    assert differences(file(tmp_path, "a", ""), tmp_path) == ["out: is a folder instead of a file"]


def test_noise_is_ignored_and_differences_beside_it_count() -> None:
    noise = compare_outputs({"m": {"time": 1, "score": 2}}, {"m": {"time": 2, "score": 2}})
    found = compare_outputs({"m": {"time": 1, "score": 2}}, {"m": {"time": 3, "score": 9}})

    assert without_noise(found, noise) == [Difference("m", ".score", "9 instead of 2")]


def test_noise_of_a_whole_file_covers_everything_inside_it() -> None:
    noise = [Difference("log", "", "3 lines instead of 2")]

    assert without_noise([Difference("log", ", line 1", "x")], noise) == []


def test_a_user_comparison_decides(tmp_path: Path) -> None:
    file(tmp_path, "mine.py", "def near(name, old, new):\n    return abs(old - new) < 2 or f'{name}: too far'\n")
    compare = load_compare_function("mine.py:near", tmp_path)

    assert compare_outputs({"x": 1}, {"x": 2}, compare=compare) == []
    assert [str(each) for each in compare_outputs({"x": 1}, {"x": 5}, compare=compare)] == ["x: x: too far"]


def test_a_comparison_may_be_named_by_its_module(tmp_path: Path) -> None:
    file(tmp_path, "compare_by_module.py", "def never(*_):\n    return False\n")

    (found,) = compare_outputs({"x": 1}, {"x": 1}, compare=load_compare_function("compare_by_module:never", tmp_path))

    assert found.text == "is not the same, says the comparison"


def test_a_comparison_that_raises_is_wrong_input(tmp_path: Path) -> None:
    file(tmp_path, "mine.py", "def broken(name, old, new):\n    return old['x']\n")
    compare = load_compare_function("mine.py:broken", tmp_path)

    with pytest.raises(InputError, match="it failed on the output a: KeyError"):
        compare_outputs({"a": {}}, {"a": {}}, compare=compare)


@pytest.mark.parametrize(
    "text", ["nothing", "no_such_module:f", "missing.py:f", "json:no_such_function", "json:__name__"]
)
def test_a_comparison_that_does_not_exist_is_wrong_input(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--compare"):
        load_compare_function(text, tmp_path)
