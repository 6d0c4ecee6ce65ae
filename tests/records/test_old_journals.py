"""State folders that earlier versions wrote open for ever and show what they showed then.

``journals/format_1`` is a state folder of version 0.1 with ten runs (interrupted, on-demand in the end, failed, killed and
resumed, stopped and mended, cancelled, moved to another rung, cached, with loops and conditions) and what that version's
``show --json``, ``report --json`` and ``logs`` said of them.
"""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spotwright.cli import cli
from spotwright.errors import RunBusy, StateError
from spotwright.records.journal import FORMAT, Journal

HERE = Path(__file__).parent / "journals" / "format_1"
RUNS = sorted(path.name for path in (HERE / "state" / "runs").iterdir())


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder: SQLite may write beside a journal that it reads."""
    copy = tmp_path_factory.mktemp("old") / "state"
    shutil.copytree(HERE / "state", copy)
    return copy


def spotwright(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def lacks(now: Any, then: Any, path: str = "") -> list[str]:
    """The differences of a view from the recorded one. Additional values are allowed."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [each for key, value in then.items() for each in lacks(now.get(key), value, f"{path}.{key}")]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [each for n, (a, b) in enumerate(zip(now, then, strict=True)) for each in lacks(a, b, f"{path}[{n}]")]
    return [] if now == then else [f"{path}: {now!r} was {then!r}"]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("view", ["show", "report"])
def test_an_old_run_shows_what_it_showed(run: str, view: str, state: Path) -> None:
    then = json.loads((HERE / "expected" / run / f"{view}.json").read_text(encoding="utf-8"))
    assert lacks(json.loads(spotwright(view, run, "--state", str(state), "--json")), then) == []


@pytest.mark.parametrize(
    ("run", "following"),
    [
        ("cancelled", "again when the run is resumed: spotwright resume cancelled"),
        ("mended", "attempt 2, when the run was resumed"),
    ],
)
def test_an_attempt_that_was_stopped_with_its_run_is_repeated_by_a_resume(
    run: str, following: str, state: Path
) -> None:
    text = spotwright("show", run, "--state", str(state))

    assert f"    then  {following}\n" in text
    assert "then  cancelled" not in text


@pytest.mark.parametrize("run", RUNS)
def test_an_old_run_has_its_logs(run: str, state: Path) -> None:
    then = (HERE / "expected" / run / "logs.txt").read_text(encoding="utf-8")
    assert spotwright("logs", run, "--state", str(state)) == then


def test_reading_leaves_an_old_journal_as_it_is(state: Path) -> None:
    with closing(Journal.read(state / "runs" / "killed" / "journal.db")) as journal:
        assert sum(1 for _ in journal.events()) == 40
        assert journal._db.execute("PRAGMA user_version").fetchone()[0] == 1


def test_an_engine_that_takes_up_an_old_run_makes_its_journal_a_new_one(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copy(state / "runs" / "failed" / "journal.db", path)
    with closing(Journal.open(path)) as journal:
        journal.take({"pid": 1}, lambda _: False)
    with closing(Journal.read(path)) as journal:
        assert journal._db.execute("PRAGMA user_version").fetchone()[0] == FORMAT
        assert sum(1 for _ in journal.events()) == 19


def test_a_lease_that_is_refused_leaves_an_old_journal_in_its_format(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copy(state / "runs" / "failed" / "journal.db", path)
    with closing(Journal.open(path)) as journal:
        journal._db.execute("UPDATE lease SET owner = ?", [json.dumps({"pid": 1})])
        with pytest.raises(RunBusy):
            journal.take({"pid": 2}, lambda _: True)
    with closing(Journal.read(path)) as journal:
        assert journal._db.execute("PRAGMA user_version").fetchone()[0] == 1
        columns = {row[1] for row in journal._db.execute("PRAGMA table_info(lease)")}
        assert "expires_at" not in columns
        lease = journal.lease()
        assert lease is not None
        assert (lease.holder, lease.expires_at) == ({"pid": 1}, None)


def test_events_of_a_newer_version_are_refused_with_the_version_that_can_read_them(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    shutil.copy(state / "runs" / "failed" / "journal.db", path)
    with closing(Journal.open(path)) as journal:
        row = (9.0, "engine", "", 0, json.dumps({"epoch": 2, "pid": 1, "version": "7.1.0"}))
        journal._db.execute("INSERT INTO events (at, kind, task, attempt, data) VALUES (?, ?, ?, ?, ?)", row)
        row = (9.5, "hibernated", "", 0, "{}")
        journal._db.execute("INSERT INTO events (at, kind, task, attempt, data) VALUES (?, ?, ?, ?, ?)", row)
        with pytest.raises(
            StateError, match=r"unknown kind 'hibernated'; a newer version .* wrote it \(7\.1\.0\): upgrade"
        ):
            list(journal.events())
