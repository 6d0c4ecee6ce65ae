"""Questions about a run: numbers are checked, the newest attempt is the one without a number, logs come whole and in pieces."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.page.recorded import a_story, log_of, recorded

from spotwright.page.answers import answer
from spotwright.page.kept_runs import KeptRuns
from spotwright.records.reader import RunReader


@pytest.fixture
def reader(tmp_path: Path) -> RunReader:
    return recorded(tmp_path / "state", a_story().ends("eval", exit_code=1).gives_back("cpu-spot-2"))


def asked(reader: RunReader, ask: str, **question: Any) -> tuple[int, Any]:
    with closing(KeptRuns({"source": {"state": str(reader.folder.path.parent.parent)}})) as runs:
        return answer(runs, {"ask": ask, "run": "a-run", **question})


@pytest.mark.parametrize(
    ("question", "status", "message"),
    [
        ({"ask": "attempt", "task": "eval", "n": "two"}, 400, "expected a whole number for n, not 'two'"),
        ({"ask": "attempt", "task": "eval", "n": "-1"}, 400, "expected a whole number for n, not '-1'"),
        ({"ask": "attempt", "task": "eval", "n": "٣"}, 400, "expected a whole number for n"),
        ({"ask": "attempt", "n": "1"}, 400, "expected task=TASK, the path of a task"),
        ({"ask": "attempt", "task": "eval", "n": "7"}, 404, "task eval of run a-run has 2 attempts, not an attempt 7"),
        ({"ask": "attempt", "task": "other"}, 404, "run a-run has no task 'other'"),
        ({"ask": "history", "kind": "decided,sent"}, 400, "unknown kind of event 'sent': the kinds are "),
        ({"ask": "history", "after": "1e9"}, 400, "expected a whole number for after, not '1e9'"),
        ({"ask": "log", "task": "eval", "line": "9" * 40}, 400, "expected a whole number for line"),
        ({"ask": "log", "task": "eval", "environment": "1"}, 404, "did not build a Python environment for task eval"),
        ({"ask": "artifact", "task": "eval", "name": "model"}, 404, "has no output artifact 'model'"),
        ({"ask": "artifacts", "task": "none"}, 404, "run a-run has no task 'none'"),
        ({"ask": "everything"}, 404, "address not found"),
        ({"ask": "head", "run": "b-run"}, 404, "no run 'b-run'"),
    ],
)
def test_what_cannot_be_answered_says_why(
    reader: RunReader, question: dict[str, Any], status: int, message: str
) -> None:
    found, document = asked(reader, **question)
    assert found == status
    assert message in document["message"]


def test_an_attempt_without_a_number_is_the_newest_one(reader: RunReader) -> None:
    assert asked(reader, "attempt", task="eval")[1]["attempt"]["number"] == 2


def test_a_history_tells_the_kinds_that_can_be_asked_for(reader: RunReader) -> None:
    _, document = asked(reader, "history", kind="bound,placed", after="1", limit="3")
    assert {row["kind"] for row in document["rows"]} <= {"bound", "placed"}
    assert {"bound", "placed", "decided"} <= set(document["kinds"])


def test_a_log_is_given_out_in_pieces_that_are_its_bytes(reader: RunReader) -> None:
    data = b"".join(b"line %d\xff\n" % number for number in range(300_000))
    log_of(reader.folder, 2, data)
    with closing(KeptRuns({"source": {"state": str(reader.folder.path.parent.parent)}})) as runs:
        found = b""
        while piece := answer(runs, {"ask": "log/raw", "run": "a-run", "task": "eval", "n": "2", "offset": len(found)})[
            1
        ]:
            found += piece
        again = answer(runs, {"ask": "log/raw", "run": "a-run", "task": "eval", "n": "2", "offset": 1_500_001})[1]
    assert found == data
    assert data[1_500_001:].startswith(again[:100_000])


def test_a_log_is_read_from_its_end_and_found_in(reader: RunReader) -> None:
    log_of(reader.folder, 2, b"one\ntwo\nthree\n")
    _, page = asked(reader, "log", task="eval", n="2", line="-1", count="1")
    assert (page["first"], page["total"], page["lines"][0]["parts"]) == (2, 3, [["three", ""]])
    _, found = asked(reader, "log/find", task="eval", n="2", q="T")
    assert found == {"hits": [1, 2], "more": None}


def test_a_head_is_told_once_to_each_follower(reader: RunReader) -> None:
    with closing(KeptRuns({"source": {"state": str(reader.folder.path.parent.parent)}})) as runs:
        _, head = answer(runs, {"ask": "head", "run": "a-run"})
        place = {"ask": "changes", "run": "a-run", "made_at": head["made_at"], "after": head["seq"]}
        _, first = answer(runs, place)
        _, second = answer(runs, {**place, "head": first["head_number"]})
        _, whole = answer(runs, {"ask": "timeline", "run": "a-run"})
    assert first["head"]["summary"]["status"] == "failed"
    assert first["head"]["bands"] == whole["bands"]
    assert {**whole["marks"], **first["head"]["marks"]} == whole["marks"]
    assert "head" not in second


def test_a_follower_gets_the_costs_of_a_large_run_once_somebody_has_asked_for_them(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.page.kept_runs._LARGE", 1)
    monkeypatch.setattr("spotwright.page.kept_runs._HEAD_EVERY", 0.0)
    monkeypatch.setattr("spotwright.page.kept_runs._HEAD_SHARE", 0.0)
    with closing(KeptRuns({"source": {"state": str(reader.folder.path.parent.parent)}})) as runs:
        _, head = answer(runs, {"ask": "head", "run": "a-run"})
        place = {"ask": "changes", "run": "a-run", "made_at": head["made_at"], "after": head["seq"]}
        _, before = answer(runs, place)
        _, priced = answer(runs, {"ask": "head", "run": "a-run", "costs": "1"})
        _, after = answer(runs, {**place, "head": before["head_number"]})
    assert head["summary"]["cost"] is None
    assert before["head"]["summary"]["cost"] is None
    assert after["head"]["summary"]["cost"] == priced["summary"]["cost"] is not None


def test_a_run_that_is_deleted_while_a_document_is_made_is_gone(
    reader: RunReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deletes(run: RunReader, *_: object) -> object:
        shutil.rmtree(run.folder.path)
        return run.source.made_at()

    monkeypatch.setattr("spotwright.page.answers.nodes", deletes)
    status, told = asked(reader, "nodes")
    assert (status, told["message"]) == (404, "run a-run was deleted")
