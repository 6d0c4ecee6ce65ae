"""Digests of components from addresses with a commit, compared from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotwright.errors import PipelineError
from spotwright.runs.planning import check_pins, keep_pins

ONE, TWO = "https://host/0a/one.yaml", "https://host/0a/two.yaml"


def test_new_content_of_a_commit_is_noted_once(tmp_path: Path) -> None:
    file = tmp_path / "components.json"
    assert [note.split()[0] for note in check_pins("p.py", {ONE: "1"}, file)] == [ONE]
    keep_pins({ONE: "1"}, file)
    assert [note.split()[0] for note in check_pins("p.py", {ONE: "1", TWO: "2"}, file)] == [TWO]
    keep_pins({ONE: "1", TWO: "2"}, file)
    assert check_pins("p.py", {ONE: "1", TWO: "2"}, file) == ()


def test_changed_content_of_a_commit_is_refused_with_both_digests(tmp_path: Path) -> None:
    file = tmp_path / "components.json"
    keep_pins({ONE: "1"}, file)
    with pytest.raises(
        PipelineError, match=f"p.py: the content of {ONE} changed although it names a commit: sha256 2, before 1"
    ):
        check_pins("p.py", {ONE: "2"}, file)


def test_a_pipeline_without_commits_writes_no_file(tmp_path: Path) -> None:
    keep_pins({}, tmp_path / "components.json")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "components.json"
    file.write_text("{")
    with pytest.raises(PipelineError, match=r"components\.json: cannot be read"):
        check_pins("p.py", {ONE: "1"}, file)
