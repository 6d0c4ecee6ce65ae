"""The list of runs: each is read once, filters and orders, and an index that is lost, damaged or shared."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.page.made_runs import Kind, make_run
from tests.simulation.simulated_attempts import TaskWork

from spotwright.errors import InputError, StateError
from spotwright.page.heads import line
from spotwright.page.index import RunIndex, index_path
from spotwright.page.run_sources import LocalRuns
from spotwright.views.account import account

TIME = 1_790_000_000
FAILING = Kind(2, 1, TaskWork(60.0, failure_rate=1.0))


class Project:
    """Runs whose files were written long ago, and an index of them that notes which it reads."""

    def __init__(self, folder: Path) -> None:
        self.state, self.path = folder / "state", folder / "cache" / "index.db"
        self.read: list[str] = []
        self.count = 0

    def make(self, name: str, kind: Kind) -> None:
        """Make a run, newer than those before."""
        make_run(self.state, name, kind)
        self.age(name)

    def copy(self, name: str, of: str) -> None:
        """Make a copy of a run, newer than those before."""
        shutil.copytree(self.state / "runs" / of, self.state / "runs" / name)
        self.age(name)

    def age(self, name: str) -> None:
        """Set the times of a run's files to the next minute of the past."""
        self.count += 1
        for file in (self.state / "runs" / name).iterdir():
            os.utime(file, (TIME + 60 * self.count,) * 2)

    def index(self, path: Path | None = None) -> RunIndex:
        """A new index at the file."""
        source = LocalRuns(self.state, lambda _: False)

        def read(name: str) -> dict[str, Any]:
            self.read.append(name)
            reader = source.open(name)
            causes = [a.cause for t in reader.state.tasks.values() for a in t.attempts]
            return {**line(reader, account(reader.state)), "causes": {str(cause.value): 1 for cause in causes if cause}}

        return RunIndex(source, path or self.path, read)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs: good, bad, and copies of both."""
    project = Project(tmp_path_factory.mktemp("runs"))
    project.make("good", Kind(1, 2))
    project.make("bad", FAILING)
    project.copy("good-again", "good")
    project.copy("bad-again", "bad")
    return project.state


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Project:
    """These runs, without an index."""
    project = Project(tmp_path)
    shutil.copytree(made, project.state)
    project.count = 4
    return project


def names(answer: dict[str, Any]) -> list[str]:
    """The runs of an answer."""
    return [each["run"] for each in answer["lines"]]


def test_all_runs_newest_first(project: Project) -> None:
    answer = project.index().runs({})
    assert names(answer) == ["bad-again", "good-again", "bad", "good"]
    assert (answer["total"], answer["indexed"], answer["of"], answer["next"]) == (4, 4, 4, "")
    good = answer["lines"][3]
    assert (good["status"], good["progress"], good["deadline"], good["late"]) == ("succeeded", 1.0, None, None)
    assert good["wasted"]["low"]["money"] >= 0
    assert good["saved"]["low"] <= good["saved"]["high"]


def test_a_run_is_read_once_also_by_the_next_page(project: Project) -> None:
    project.index().runs({})
    project.index().runs({})
    assert sorted(project.read) == ["bad", "bad-again", "good", "good-again"]


def test_a_run_that_has_changed_is_read_again(project: Project) -> None:
    project.index().runs({})
    project.read.clear()
    os.utime(project.state / "runs/good/journal.db", (TIME + 7200,) * 2)
    project.index().runs({})
    assert project.read == ["good"]


def test_a_run_that_was_deleted_is_gone_and_one_of_its_name_is_another(project: Project) -> None:
    project.index().runs({})
    shutil.rmtree(project.state / "runs/good")
    assert "good" not in names(project.index().runs({}))
    project.copy("good", "bad")
    assert project.index().runs({})["lines"][0]["status"] == "failed"


def test_pages_of_rows_by_name_and_by_number(project: Project) -> None:
    index = project.index()
    first = index.runs({"limit": "3"})
    assert names(first) == ["bad-again", "good-again", "bad"]
    assert first["next"] == "bad"
    assert names(index.runs({"limit": "3", "before": "bad"})) == ["good"]
    assert names(index.runs({"limit": "2", "from": "1"})) == ["good-again", "bad"]
    assert names(index.runs({"from": "100"})) == []
    assert names(index.runs({"before": "nobody"})) == []


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"status": "failed"}, ["bad-again", "bad"]),
        ({"cause": "failed"}, ["bad-again", "bad"]),
        ({"cause": "error"}, ["bad-again", "bad"]),
        ({"cause": "out of memory"}, []),
        ({"q": "AGAIN"}, ["bad-again", "good-again"]),
        ({"q": "%"}, []),
        ({"q": "_"}, []),
        ({"q": "' OR 1 --"}, []),
        ({"q": "again", "status": "succeeded"}, ["good-again"]),
        ({"namespace": "team-a"}, []),
        ({"sort": "run"}, ["bad", "bad-again", "good", "good-again"]),
        ({"sort": "-run"}, ["good-again", "good", "bad-again", "bad"]),
        ({"sort": "-errors", "limit": "2"}, ["bad-again", "bad"]),
        ({"sort": "began", "limit": "1"}, ["bad-again"]),
    ],
)
def test_filters_and_orders(project: Project, asked: dict[str, str], expected: list[str]) -> None:
    assert names(project.index().runs(asked)) == expected


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"status": "great"}, "expected one of running, "),
        ({"cause": "x"}, "expected one of interruption, error, succeeded"),
        ({"sort": "name; DROP"}, "expected one of run, status"),
        ({"limit": "ten"}, "limit=ten: expected a whole number"),
        ({"from": "-1"}, "from=-1: expected a whole number"),
    ],
)
def test_what_cannot_be_asked(project: Project, asked: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("|", "[|]")):
        project.index().runs(asked)


def test_the_rest_is_read_between_questions(project: Project) -> None:
    index = project.index()
    answer = index.runs({"limit": "1"})
    assert (answer["indexed"], answer["of"]) == (1, 4)
    assert [index.step() for _ in range(4)] == [True, True, True, False]
    assert index.runs({"limit": "1"})["indexed"] == 4
    assert project.read == ["bad-again", "good-again", "bad", "good"]


def test_a_run_that_cannot_be_read_is_a_row_with_its_problem_and_hides_no_other(project: Project) -> None:
    (project.state / "runs/bad/journal.db").write_bytes(b"no journal" * 100)
    project.age("bad")
    answer = project.index().runs({})
    assert names(answer) == ["bad", "bad-again", "good-again", "good"]
    assert "is not a database" in answer["lines"][0]["problem"]
    assert [each["run"] for each in answer["problems"]] == ["bad"]
    assert names(project.index().runs({"status": "succeeded"})) == ["good-again", "good"]


def test_a_run_whose_engine_lives_is_not_trusted_to_its_stamp(project: Project) -> None:
    index = project.index()
    line_of = index._line
    index._line = lambda name: {**line_of(name), "driven": name == "good"}
    index.runs({})
    index.runs({})
    project.read.clear()
    project.index().runs({})
    assert project.read == ["good"]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"x" * 5000),
    "cut": lambda path: os.truncate(path, 5000),
    "of another format": lambda path: _change(path, "PRAGMA user_version = 99"),
    "without its table": lambda path: _change(path, "DROP TABLE runs"),
    "with another table": lambda path: _change(path, "ALTER TABLE runs DROP COLUMN line"),
    "with a line that is none": lambda path: _change(path, "UPDATE runs SET line = '{'"),
}


def _change(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_index_that_is_lost_damaged_or_of_another_format_is_made_again(
    project: Project, damage: Callable[[Path], object]
) -> None:
    index = project.index()
    index.runs({})
    index.close()
    for beside in project.path.parent.glob("*-*"):
        beside.unlink()
    damage(project.path)
    project.index().runs({})  # where it is damaged inside, this finds it out, and the next answer has all lines
    assert [each["status"] for each in project.index().runs({})["lines"]] == ["failed", "succeeded"] * 2
    project.read.clear()
    project.index().runs({})
    assert project.read == []


def test_also_when_it_is_damaged_while_it_is_open(project: Project) -> None:
    index = project.index()
    index.runs({})
    index._db.execute("DROP TABLE runs")
    index.runs({"sort": "run"})
    assert [each["status"] for each in index.runs({})["lines"]] == ["failed", "succeeded", "failed", "succeeded"]


@pytest.mark.parametrize("place", ["a file for a folder", "a folder for a file"])
def test_without_a_place_for_it_lines_are_in_memory(project: Project, place: str) -> None:
    if place == "a file for a folder":
        project.path.parent.write_text("")
    else:
        project.path.mkdir(parents=True)
    index = project.index()
    assert len(index.runs({})["lines"]) == 4
    index.runs({})
    assert len(project.read) == 4


def test_two_pages_share_it(project: Project) -> None:
    one, other = project.index(), project.index()
    one.runs({"limit": "2"})
    other.runs({"from": "2"})
    while one.step() or other.step():
        pass
    assert names(one.runs({"sort": "run"})) == names(other.runs({"sort": "run"})) == sorted(names(one.runs({})))


def test_one_that_is_locked_for_long_is_done_without(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.index().runs({"limit": "1"})
    index = project.index()
    index._db.execute("PRAGMA busy_timeout = 10")
    lock = sqlite3.connect(project.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        answer = index.runs({})
    assert [each["status"] for each in answer["lines"]] == ["failed", "succeeded", "failed", "succeeded"]
    lock.close()
    assert project.path.exists()


def test_the_file_is_in_the_users_cache_and_for_the_user_alone(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    path = index_path(project.state)
    assert path.parent == tmp_path / "xdg/spotwright/page"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert index_path(project.state).parent == tmp_path / "home/.cache/spotwright/page"
    assert index_path(project.state) != index_path(tmp_path)
    project.index(path).runs({})
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_state_folder_of_a_newer_version_is_refused(project: Project) -> None:
    (project.state / "format").write_text("99")
    with pytest.raises(StateError, match="newer version"):
        project.index()
