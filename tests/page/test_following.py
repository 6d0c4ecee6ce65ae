"""An active run, followed through the server and its worker: the stream's events, and bad days."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from tests.page.folded import apply, rows_of
from tests.page.made_runs import Kind, make_run
from tests.page.served import Served, serving, soon
from tests.simulation.simulated_attempts import TaskWork

from spotwright.engine.events import Event
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import is_alive, this_process


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run of some interruptions, to be played again."""
    state = tmp_path_factory.mktemp("recorded")
    make_run(state, "recorded", Kind(4, 2, TaskWork(300.0, spread=0.5), "6m", 3))
    return state


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    """A page of an empty state folder."""
    (tmp_path / "state/runs").mkdir(parents=True)
    with serving({"state": str(tmp_path / "state")}, tmp_path / "assets") as served:
        yield served


class Playing:
    """A run whose events are written by this process, which holds its lease as an engine does."""

    def __init__(self, recorded: Path, state: Path, name: str = "r") -> None:
        source, self.folder = StateFolder(recorded).run("recorded"), StateFolder(state).run(name)
        self.folder.path.mkdir(parents=True)
        shutil.copyfile(source.plan(1), self.folder.plan(1))
        journal = Journal.read(source.journal)
        self.events: Sequence[Event] = [event for _, event in journal.events()]
        journal.close()
        self.journal = Journal.create(self.folder.journal)
        self.journal.take(this_process(), is_alive)
        self.journal.epoch = 1

    def write(self, begin: int, end: int) -> None:
        """Write some of the events."""
        self.journal.append(self.events[begin:end])


def place_of(page: Served) -> str:
    """From where to follow the run after loading it."""
    page.api("runs/r/tasks")
    timeline = page.api("runs/r/timeline")
    return f"{timeline['made_at']}.{timeline['seq']}"


def test_columns_and_the_stream_together_are_what_a_new_window_loads(
    page: Served, recorded: Path, tmp_path: Path
) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 10)
    tables = {
        "tasks": page.api("runs/r/tasks"),
        **{name: page.api("runs/r/timeline")[name] for name in ("attempts", "nodes")},
    }
    came: list[float] = []
    with page.stream("r", place_of(page)) as events:
        seq = 0
        for begin in range(10, len(run.events), 40):
            run.write(begin, begin + 40)
            while seq < min(begin + 40, len(run.events)):
                kind, look = next(events)
                if kind != "changes":
                    continue
                came.append(time.monotonic())
                seq = look["seq"]
                for name, table in tables.items():
                    apply(table, look.get(name))
    for name, table in tables.items():
        fresh = page.api("runs/r/tasks") if name == "tasks" else page.api("runs/r/timeline")[name]
        assert sorted(map(str, rows_of(table))) == sorted(map(str, rows_of(fresh)))
    assert all(later - earlier > 0.15 for earlier, later in pairwise(came))
    run.journal.close()


def test_a_run_that_is_deleted_is_gone(page: Served, recorded: Path, tmp_path: Path) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 10)
    with page.stream("r", place_of(page)) as events:
        run.journal.close()
        shutil.rmtree(run.folder.path)
        kind, answer = next(event for event in events if event[0] == "gone")
    assert kind == "gone"
    assert "'r'" in answer["message"] or "run r" in answer["message"]
    assert page.ask("/api/v1/runs/r").status == 404
    assert page.api("runs")["lines"] == []


def test_a_run_that_is_made_anew_under_its_name_is_loaded_again(page: Served, recorded: Path, tmp_path: Path) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 30)
    with page.stream("r", place_of(page)) as events:
        run.journal.close()
        anew = Playing(recorded, tmp_path / "state", "other")
        anew.write(0, 10)
        run.folder.path.rename(tmp_path / "trash")
        anew.folder.path.rename(run.folder.path)
        assert "reset" in (kind for kind, _ in events)
    assert page.api("runs/r/tasks")["seq"] == 10
    anew.journal.close()


def test_a_stream_from_a_place_that_nobody_knows_begins_with_reset(
    page: Served, recorded: Path, tmp_path: Path
) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 10)
    for place in ("", "1.5", f"{place_of(page)}9"):
        with page.stream("r", place) as events:
            assert next(events)[0] == "reset"
    with page.stream("nobody", "1.5") as events:
        assert next(events)[0] == "gone"
    run.journal.close()


def test_a_worker_that_is_killed_starts_again_and_its_windows_load_again(
    page: Served, recorded: Path, tmp_path: Path
) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 10)
    place = place_of(page)
    (first,) = page.workers.pids
    with page.stream("r", place) as events:
        os.kill(first, signal.SIGKILL)
        assert any(
            kind in ("problem", "reset") for kind, _ in events
        )  # reset: it was asked when the next one was there
    for _ in soon():
        if page.ask("/api/v1/runs/r").status == 200:
            break
    assert page.workers.pids != [first]
    with page.stream("r", place) as events:
        assert next(events)[0] == "reset"  # its rows may have other numbers now
    run.journal.close()


def test_a_worker_that_hangs_does_not_keep_the_page_from_ending(recorded: Path, tmp_path: Path) -> None:
    with serving({"state": str(recorded)}, tmp_path / "assets") as page:
        page.api("runs")
        (worker,) = page.workers.pids
        with page.stream("recorded", place_of_recorded(page)) as events:
            os.kill(worker, signal.SIGSTOP)
            began = time.monotonic()
            page.end()
            assert "changes" not in (kind for kind, _ in events)  # and the stream ends
    assert time.monotonic() - began < 10
    assert not Path(f"/proc/{worker}").exists()


def place_of_recorded(page: Served) -> str:
    """The end of the run that is over."""
    timeline = page.api("runs/recorded/timeline")
    return f"{timeline['made_at']}.{timeline['seq']}"


def test_a_window_that_reads_nothing_holds_no_more_than_its_queue(page: Served, recorded: Path, tmp_path: Path) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 10)
    place = place_of(page)
    with page.stream("r", place), page.stream("r", place) as events:
        run.write(10, len(run.events))
        assert "changes" in (kind for kind, _ in events)
        (windows,) = page.server._followers._windows.values()
        assert len(windows) == 2
        assert all(window.maxsize <= 40 for window in windows)
    for _ in soon():
        if not page.server._followers._windows:
            break
    run.journal.close()


def test_of_many_large_runs_a_worker_keeps_the_last(
    monkeypatch: pytest.MonkeyPatch, recorded: Path, tmp_path: Path
) -> None:
    from spotwright.page import kept_runs

    for number in range(3):
        shutil.copytree(recorded / "runs/recorded", tmp_path / f"runs/r{number}")
    made = kept_runs.KeptRuns({"source": {"state": str(tmp_path)}})
    events = made.run("r0").seq
    monkeypatch.setattr(kept_runs, "_KEPT_EVENTS", events * 3 // 2)
    places = [made.run(name).place["made_at"] for name in ("r1", "r0", "r1", "r0")]  # as two windows do
    assert places[:2] == places[2:]
    monkeypatch.setattr(kept_runs, "_FOLLOWED", -1.0)
    monkeypatch.setattr(kept_runs, "_KEPT_EVENTS", 2 * events)
    for name in ("r1", "r0", "r2"):
        made.run(name)
    assert list(made._runs) == ["r0", "r2"]
    monkeypatch.setattr(kept_runs, "_KEPT_EVENTS", 0)
    made.run("r1")
    assert list(made._runs) == ["r1"]
    made.close()


def test_an_answer_is_compressed_only_for_whoever_can_read_it(page: Served, recorded: Path, tmp_path: Path) -> None:
    run = Playing(recorded, tmp_path / "state")
    run.write(0, 30)
    plain = page.ask("/api/v1/runs/r/tasks")
    packed = page.ask("/api/v1/runs/r/tasks", Accept_Encoding="gzip, br")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(plain.body)["columns"] == json.loads(gzip.decompress(packed.body))["columns"]
    run.journal.close()
