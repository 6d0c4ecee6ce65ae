"""The cache of results for later runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.errors import StateError
from spotwright.records.state_folder import Cache


def a_result(**artifacts: str) -> dict[str, Any]:
    values = {name: {"artifacts": [{"name": name, "uri": uri}]} for name, uri in artifacts.items()}
    return {"parameters": {"out": 1}, "artifacts": values, "run": "iris-1", "task": "train"}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_a_result_is_values_by_its_fingerprint(cache: Cache) -> None:
    cache.keep("abc", a_result())
    result = cache.find("abc")
    assert result is not None
    assert (result["parameters"], result["run"], result["task"]) == ({"out": 1}, "iris-1", "train")


def test_another_fingerprint_has_no_result(cache: Cache) -> None:
    cache.keep("abc", a_result())
    assert cache.find("abd") is None


def test_a_result_counts_while_its_files_exist(cache: Cache, tmp_path: Path) -> None:
    model = tmp_path / "model.bin"
    model.write_text("weights")
    cache.keep("abc", a_result(model=str(model)))
    assert cache.find("abc") is not None


def test_a_result_with_a_missing_file_is_not_used(cache: Cache, tmp_path: Path) -> None:
    model = tmp_path / "model.bin"
    model.write_text("weights")
    cache.keep("abc", a_result(model=str(model)))
    model.unlink()
    assert cache.find("abc") is None


def test_a_path_that_never_existed_does_not_invalidate_a_result(cache: Cache) -> None:
    cache.keep("abc", a_result(model="/nowhere/model.bin"))
    assert cache.find("abc") is not None


def test_a_result_at_a_remote_address_is_used_unchecked(cache: Cache) -> None:
    cache.keep("abc", a_result(model="s3://bucket/model"))
    assert cache.find("abc") is not None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "{}", '{"parameters": {}, "artifacts": {}, "run": "r"}', json.dumps(a_result())]
)
def test_an_incomplete_file_is_not_a_result(cache: Cache, tmp_path: Path, content: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "abc.json").write_text(content)
    assert cache.find("abc") is None


def test_the_last_of_two_equal_results_stays(cache: Cache) -> None:
    cache.keep("abc", a_result())
    cache.keep("abc", {**a_result(), "run": "iris-2"})
    result = cache.find("abc")
    assert result is not None
    assert result["run"] == "iris-2"


def test_a_cache_that_cannot_be_written_is_an_error_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StateError, match=r"cannot be written .*; free some space or use --cache off"):
        Cache(tmp_path / "cache").keep("abc", a_result())
