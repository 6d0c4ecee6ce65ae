"""Runs whose files no engine writes: each is shown, or reported as unreadable, and hides no other."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.page.made_runs import Kind, make_run
from tests.page.served import Served, serving, soon

ENDED = '{"signals":{"exit_code":0,"outputs_complete":true},"seconds":300.0,%s}'


def data(kind: str, text: str) -> Callable[[Path], None]:
    """Replaces the data of events of a kind."""
    return sql("UPDATE events SET data = ? WHERE kind = ?", text, kind)


def sql(text: str, *values: object) -> Callable[[Path], None]:
    """Changes a journal."""

    def damage(run: Path) -> None:
        with closing(sqlite3.connect(run / "journal.db", isolation_level=None)) as journal:
            assert journal.execute(text, values).rowcount

    return damage


def nested(depth: int) -> str:
    """A value of so many nested lists."""
    return "[" * depth + "]" * depth


def plan(text: str) -> Callable[[Path], None]:
    """Writes a plan."""

    def damage(run: Path) -> None:
        (run / "plan-1.json").write_text(text)

    return damage


def pipe(run: Path) -> None:
    """A pipe in place of the journal: opening it blocks."""
    (run / "journal.db").unlink()
    os.mkfifo(run / "journal.db")


def at(file: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    """Something else in place of a file."""

    def damage(run: Path) -> None:
        (run / file).unlink(missing_ok=True)
        make(run / file)

    return damage


def sparse(path: Path) -> None:
    """A file of 100 GB without content."""
    with path.open("wb") as file:
        file.truncate(100_000_000_000)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"


def view(run: Path) -> None:
    """A question without an end in place of the events."""
    with closing(sqlite3.connect(run / "journal.db", isolation_level=None)) as journal:
        journal.execute("ALTER TABLE events RENAME TO others")
        journal.execute(
            f"CREATE VIEW events AS {ENDLESS} x AS seq, 0 AS at, 'x' AS kind, '' AS task FROM n WHERE x < 0"
        )


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a number that JSON does not have": data("ended", ENDED % '"parameters":{"Output":NaN,"other":[-Infinity]}'),
    "such a number as evidence": data(
        "decided", '{"cause":"succeeded","why":"","then":"succeed","next":"succeeded","evidence":{"exit_code":NaN}}'
    ),
    "a value that is nested deeply": data("ended", ENDED % f'"parameters":{{"Output":{nested(900)}}}'),
    "one that is nested too deeply to be read": data("ended", ENDED % f'"parameters":{{"Output":{nested(5000)}}}'),
    "half a character in the name of the pipeline": data(
        "created", '{"run":"bad","pipeline":"\\ud800","cache":"auto"}'
    ),
    "a moment without end": sql("UPDATE events SET at = 9e999 WHERE seq > 5"),
    "a moment that is a text": sql("UPDATE events SET at = 'yesterday' WHERE seq > 5"),
    "data that are bytes": sql("UPDATE events SET data = x'ff00' WHERE kind = 'ended'"),
    "data that are nothing": data("ended", "null"),
    "a factor that is a text": data("created", '{"run":"bad","time_scale":"x"}'),
    "no lease": sql("DELETE FROM lease"),
    "a holder that is none": sql("UPDATE lease SET owner = '5'"),
    "a plan that is a number": plan("5"),
    "a plan that is nested deeply": plan(nested(5000)),
    "a pipe as journal": pipe,
    "a pipe as plan": at("plan-1.json", os.mkfifo),
    "a pipe as rollback journal": at("journal.db-journal", os.mkfifo),
    "a device as plan": at("plan-1.json", lambda path: path.symlink_to("/dev/zero")),
    "a plan of 100 GB": at("plan-1.json", sparse),
    "a pipe as forecast": at("forecast.json", os.mkfifo),
    "a view without an end": view,
}

QUESTIONS = ("", "/tasks", "/timeline", "/graph", "/attempt?task=work-1-1&n=1", "/account", "/nodes", "/history")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run."""
    state = tmp_path_factory.mktemp("recorded")
    make_run(state, "good", Kind(1), start=1_790_000_000.0)
    return state


@pytest.fixture(params=list(DAMAGES.values()), ids=list(DAMAGES))
def page(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[Served]:
    """A page of a run, and of one that is damaged."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    state = tmp_path / "state"
    shutil.copytree(recorded, state)
    shutil.copytree(state / "runs/good", state / "runs/bad")
    request.param(state / "runs/bad")
    with serving({"state": str(state)}, tmp_path / "assets") as served:
        yield served


def test_a_damaged_run_hides_no_other_and_ends_no_worker(page: Served) -> None:
    assert page.api("runs")["of"] == 2
    before = page.workers.pids
    for path in QUESTIONS:
        answer = page.ask(f"/api/v1/runs/bad{path}")
        assert answer.status in (200, 404, 409, 500), (path, answer)
        is_gzip = answer.headers.get("content-encoding") == "gzip"
        json.loads(gzip.decompress(answer.body) if is_gzip else answer.body, parse_constant=_is_no_json)
    lines = {line["run"]: line for line in page.api("runs")["lines"]}
    assert lines["good"]["status"] == "succeeded"
    assert not lines["bad"].get("unread")
    assert page.api("runs?status=succeeded")["lines"][-1]["run"]
    assert page.ask("/api/v1/totals?since=36500d").status == 200
    for _ in soon():
        if page.api("runs")["indexed"] == 2:
            break
    assert page.workers.pids == before


def test_a_run_whose_task_returned_lists_within_lists_is_shown(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "state")
    data("ended", ENDED % f'"parameters":{{"Output":{nested(900)}}}')(tmp_path / "state/runs/good")
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets") as page:
        outputs = page.api("runs/good")["outputs"]
        assert "..." in json.dumps(outputs)
        for path in QUESTIONS:
            assert page.ask(f"/api/v1/runs/good{path}").status == 200, path


def _is_no_json(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")
