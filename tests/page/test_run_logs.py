"""The logs of a run for the page: of one attempt, of all of a task, and while they grow."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.page.recorded import a_story, log_of, recorded, stored_plan
from tests.page.served import serving
from tests.views.builders import Story

from spotwright.errors import UnknownRun
from spotwright.page.log_lines import RunLogs
from spotwright.records.journal import Journal
from spotwright.records.reader import ENVIRONMENT, RunReader, list_logs


@pytest.fixture
def reader(tmp_path: Path) -> RunReader:
    """A run of a task that was interrupted once, and runs again."""
    reader = recorded(tmp_path / "state", a_story())
    log_of(reader.folder, 1, b"first\nsecond\nthird")
    log_of(reader.folder, 2, b"again\n\x1b[31mred\x1b[0m\n")
    return reader


def test_the_log_of_an_attempt(reader: RunReader) -> None:
    assert RunLogs(reader).page("eval", 1, 1, 5) == {
        "lines": [
            {"n": 1, "parts": [["second", ""]], "cut": None},
            {"n": 2, "parts": [["third", ""]], "cut": None},
        ],
        "first": 1,
        "total": 3,
        "ended": True,
        "left_out": "",
        "logs": [{"task": "eval", "attempt": 1, "line": 0}],
    }


def test_all_logs_of_a_task(reader: RunReader) -> None:
    logs = RunLogs(reader)
    page = logs.page("eval", None, 0, 100)
    assert [line["parts"] for line in page["lines"]] == [
        [["==> eval attempt 1 <==", "bold"]], [["first", ""]], [["second", ""]], [["third", ""]],
        [["==> eval attempt 2 <==", "bold"]], [["again", ""]], [["red", "fg-1"]],
    ]  # fmt: skip
    assert page["logs"] == [{"task": "eval", "attempt": 1, "line": 0}, {"task": "eval", "attempt": 2, "line": 4}]
    assert page["total"] == 7
    assert logs.find("eval", None, "RED", 0) == {"hits": [6], "more": None}


def test_a_negative_line_counts_from_the_end(reader: RunReader) -> None:
    logs = RunLogs(reader)
    assert [line["n"] for line in logs.page("eval", 1, -2, 100)["lines"]] == [1, 2]
    assert [line["n"] for line in logs.page("eval", 1, -99, 100)["lines"]] == [0, 1, 2]
    assert logs.page("eval", 1, 99, 100)["lines"] == []


def test_the_bytes_are_those_that_the_command_prints(reader: RunReader) -> None:
    logs = RunLogs(reader)
    for log in list_logs(reader, "eval"):
        assert b"".join(logs.raw("eval", log.attempt)) == log.read(0)
    assert b"".join(logs.raw("eval", None)).decode() == (
        "==> eval attempt 1 <==\nfirst\nsecond\nthird\n==> eval attempt 2 <==\nagain\n\x1b[31mred\x1b[0m\n"
    )


def test_a_log_that_grows(reader: RunReader) -> None:
    logs = RunLogs(reader)
    assert logs.page("eval", 2, 0, 100)["total"] == 2
    with reader.folder.log("eval", 2).open("ab") as log:
        log.write(b"more\nand mo")
    page = logs.page("eval", 2, 2, 100)
    assert [line["parts"][0][0] for line in page["lines"]] == ["more", "and mo"]


def test_an_attempt_that_waits_has_no_log_yet(tmp_path: Path) -> None:
    story = a_story()
    story.taken("cpu-spot-2", "eval").after(600)
    reader = recorded(tmp_path / "state", story)
    page = RunLogs(reader).page("eval", len(story.state.tasks["eval"].attempts), 0, 100)
    assert (page["lines"], page["left_out"]) == ([], "this attempt has no node yet")


def test_the_log_of_the_build_of_an_environment(tmp_path: Path) -> None:
    story = Story(stored_plan(with_packages=True).plan, run="a-run")
    reader = recorded(tmp_path / "state", story, with_packages=True)
    log = reader.folder.environment_log("1-packages.log")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"Collecting pandas\n\x1b[2K 10%\r\x1b[2K 100%\n")
    page = RunLogs(reader).page("eval", ENVIRONMENT, 0, 9)
    assert [line["parts"] for line in page["lines"]] == [[["Collecting pandas", ""]], [[" 100%", ""]]]
    assert RunLogs(reader).page("eval", None, 0, 1)["lines"][0]["parts"] == [["==> eval environment <==", "bold"]]


def test_a_new_attempt_of_a_run_that_goes_on_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotwright.page.log_lines._LISTED_FOR", 0.0)
    story = a_story()
    reader = recorded(tmp_path / "state", story)
    with closing(Journal.open(reader.folder.journal)) as journal:
        journal.take({"pid": 7}, lambda _: True)
        reader = RunReader(reader.folder, lambda _: True)
        logs = RunLogs(reader)
        assert len(logs.page("eval", None, 0, 9)["logs"]) == 2
        seen = len(story.events)
        story.taken("cpu-spot-2", "eval").after(600)
        journal.append(story.events[seen:])
        reader.refresh()
        page = logs.page("eval", None, 0, 9)
    assert (len(page["logs"]), page["ended"]) == (3, False)


def test_a_task_or_an_attempt_that_the_run_does_not_have(reader: RunReader) -> None:
    logs = RunLogs(reader)
    with pytest.raises(UnknownRun, match="run a-run has no task 'other'"):
        logs.page("other", None, 0, 1)
    with pytest.raises(UnknownRun, match="task eval of run a-run has 2 attempts, not an attempt 3"):
        logs.page("eval", 3, 0, 1)


def test_a_download_that_cannot_go_on_has_no_end(tmp_path: Path) -> None:
    reader = recorded(tmp_path / "state", a_story())
    log_of(reader.folder, 1, b"a line of the log\n" * 4_000_000)  # more than lies in the buffers between them
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets") as page, page.connect() as connection:
        head = f"Host: 127.0.0.1:{page.port}\r\nCookie: {page.cookie}\r\n\r\n"
        connection.sendall(f"GET /api/v1/runs/a-run/log/raw?task=eval&n=1 HTTP/1.1\r\n{head}".encode())
        came = connection.recv(65536)
        reader.folder.path.rename(tmp_path / "trash")
        while not came.endswith(b"0\r\n\r\n") and (piece := connection.recv(1 << 20)):
            came = came[-100:] + piece
        assert not came.endswith(b"0\r\n\r\n")
