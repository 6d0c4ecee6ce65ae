"""Rehearsals on the page: finished ones, an active one, and foreign files."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spotwright.page.answers import answer
from spotwright.page.kept_runs import KeptRuns
from spotwright.records.state_folder import StateFolder

REPORT = {
    "name": "train",
    "safe": False,
    "steps": [{"task": "train", "verdict": "not safe"}],
    "text": "train: not safe",
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    StateFolder.open(tmp_path / "state")
    return tmp_path / "state"


def kept(state: Path, name: str, text: str | None) -> None:
    folder = StateFolder.open(state / "rehearsals" / name)
    if text is not None:
        folder.rehearsal_report.write_text(text, encoding="utf-8")


def asked(state: Path, name: str = "") -> tuple[int, Any]:
    with closing(KeptRuns({"source": {"state": str(state)}})) as runs:
        return answer(runs, {"ask": "rehearsals", "name": name})


def test_a_report_is_listed_with_its_verdicts_and_shown(state: Path) -> None:
    kept(state, "train-1", json.dumps(REPORT))
    status, listed = asked(state)
    assert (status, listed["of"], listed["report"]) == (200, 1, None)
    (line,) = listed["rehearsals"]
    assert (line["name"], line["steps"], line["safe"], line["problem"]) == ("train-1", REPORT["steps"], False, "")
    assert asked(state, "train-1")[1]["report"] == REPORT


def test_one_that_goes_on_is_listed_and_has_no_report(state: Path) -> None:
    kept(state, "train-1", None)
    (line,) = asked(state)[1]["rehearsals"]
    assert (line["steps"], line["safe"]) == ([], None)
    status, told = asked(state, "train-1")
    assert (status, told["message"]) == (
        404,
        "rehearsal 'train-1' has no report: it is still running, was stopped, or is from an earlier version",
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"steps": 3}', '{"steps": [{}]}', "[" * 100_000])
def test_a_damaged_report_hides_no_other(state: Path, text: str) -> None:
    kept(state, "good", json.dumps(REPORT))
    kept(state, "bad", text)
    lines = {line["name"]: line for line in asked(state)[1]["rehearsals"]}
    assert lines["good"]["problem"] == ""
    assert lines["bad"]["problem"] != ""


@pytest.mark.parametrize("name", ["nosuch", "..", "../..", "../../../etc", "\0", "x" * 5000])
def test_a_name_leads_to_no_other_folder(state: Path, name: str) -> None:
    kept(state, "good", json.dumps(REPORT))
    assert asked(state, name)[0] == 404
