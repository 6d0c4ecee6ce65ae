"""The items that prune deletes and keeps, in a state folder with ten runs of every kind of end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.project import QUICK

from spotwright import config
from spotwright.engine.events import EngineStarted, Event, RunCreated, RunMeta, RunReset, TaskCached, TasksUnfolded
from spotwright.errors import InputError
from spotwright.kfp.compiled import Compiled
from spotwright.records.journal import Journal
from spotwright.records.state_folder import StateFolder
from spotwright.records.stored_plan import StoredPlan
from spotwright.records.trash import Item, Sort
from spotwright.runs import bodies
from spotwright.runs.pruning import PruneOptions, delete, take_stock
from spotwright.runs.runner import begin_records

RECORDED = Path(__file__).parents[1] / "records" / "journals" / "format_1" / "state"
RUNS = {path.name for path in (RECORDED / "runs").iterdir()}
DAY = 86400.0
ALL = PruneOptions(older_than=0.0)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    """A copy of the recorded runs. ``cache-2`` has taken a result of ``cache-1`` from the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(RECORDED, tmp_path / "state", symlinks=True)
    return StateFolder(tmp_path / "state")


def of(items: list[Item], sort: Sort) -> dict[str, str]:
    """The reasons to keep the items of a sort, by name."""
    return {item.name: item.kept for item in items if item.sort is sort}


def deleted(items: list[Item], sort: Sort = Sort.RUN) -> set[str]:
    return {name for name, kept in of(items, sort).items() if not kept}


def prune(state: StateFolder, options: PruneOptions = ALL) -> set[str]:
    """Prune, and return the runs that are left."""
    assert [why for _, why in delete(state, take_stock(state, options)) if why] == []
    return {run.name for run in state.runs()}


def last_event(state: StateFolder) -> float:
    return max(item.used_at for item in take_stock(state, ALL) if item.sort is Sort.RUN)


# Age and number


def test_by_default_runs_go_30_days_after_their_last_event(state: StateFolder) -> None:
    last = last_event(state)
    assert deleted(take_stock(state, PruneOptions(), last + 29 * DAY)) == set()
    assert deleted(take_stock(state, PruneOptions(), last + 30 * DAY)) == RUNS


def test_another_age_counts_for_everything(state: StateFolder) -> None:
    last = last_event(state)
    assert deleted(take_stock(state, PruneOptions(older_than=60.0), last + 61)) == RUNS
    assert deleted(take_stock(state, PruneOptions(older_than=2 * DAY), last + DAY)) == set()


def test_the_newest_runs_stay_and_all_others_go_whatever_their_age(state: StateFolder) -> None:
    runs = state.runs()
    for number, run in enumerate(runs):
        os.utime(run.plan(1), (number, number))  # when it was made
    newest = {run.name for run in runs[-3:]}
    used = {"cache-1"} if "cache-2" in newest else set()
    assert prune(state, PruneOptions(keep_last=3)) == newest | used


def test_with_both_options_runs_go_that_are_neither_young_nor_among_the_newest(state: StateFolder) -> None:
    last = last_event(state)
    assert deleted(take_stock(state, PruneOptions(older_than=DAY, keep_last=3), last)) == set()
    assert len(deleted(take_stock(state, PruneOptions(older_than=DAY, keep_last=9), last + 2 * DAY))) <= 1


def test_no_run_is_kept_for_its_number_with_keep_last_0(state: StateFolder) -> None:
    assert prune(state, PruneOptions(keep_last=0)) == set()


def test_a_negative_number_of_runs_is_refused() -> None:
    with pytest.raises(InputError, match="--keep-last -1: expected a number from 0"):
        PruneOptions(keep_last=-1)


# What is kept


def all_but(*names: str) -> PruneOptions:
    """Everything is deleted except these runs and their dependencies."""
    return PruneOptions(older_than=0.0, keep=frozenset(names))


def test_a_run_that_is_named_stays_with_its_checkpoints(state: StateFolder) -> None:
    run = state.find("interrupted")
    run.checkpoint("train").mkdir(parents=True)
    (run.checkpoint("train") / "model").touch()
    items = take_stock(state, all_but("interrupted"))
    assert of(items, Sort.RUN)["interrupted"] == of(items, Sort.CHECKPOINT)["interrupted"] == "named by --keep"
    assert prune(state, all_but("interrupted")) == {"interrupted"}
    assert run.checkpoint("train").is_dir()
    assert prune(state) == set()


def test_the_age_of_other_runs_counts_where_some_are_named(state: StateFolder) -> None:
    options, last = PruneOptions(keep=frozenset({"failed"})), last_event(state)
    assert deleted(take_stock(state, options, last + 29 * DAY)) == set()
    assert deleted(take_stock(state, options, last + 30 * DAY)) == RUNS - {"failed"}


def test_a_run_that_an_engine_drives_stays(state: StateFolder) -> None:
    journal = Journal.open(state.find("failed").journal)
    journal.take(bodies.this_process(), bodies.is_alive)
    assert of(take_stock(state, ALL), Sort.RUN)["failed"] == "an engine drives it"
    assert prune(state) == {"failed"}
    journal.close()


def test_a_run_that_is_resumed_after_the_list_was_made_stays(state: StateFolder) -> None:
    items = take_stock(state, ALL)
    journal = Journal.open(state.find("failed").journal)
    journal.take(bodies.this_process(), bodies.is_alive)
    outcomes = {item.name: why for item, why in delete(state, items)}
    assert "driven by another engine" in outcomes["failed"]
    assert [run.name for run in state.runs()] == ["failed"]
    journal.close()


@contextlib.contextmanager
def a_sleeper(python: str, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of an interpreter that lives until the end of the block."""
    command = [python, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, env={**os.environ, **variables}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def survivor(state: StateFolder) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the marks of the run ``killed``, as an attempt has them that outlived its engine."""
    marks = {"_SPOTWRIGHT_FOLDER": os.path.realpath(state.find("killed").path)}
    with a_sleeper(sys.executable, marks) as process:
        yield process


def test_a_run_whose_attempts_outlived_their_engine_stays_until_they_end(
    state: StateFolder, survivor: subprocess.Popen[bytes]
) -> None:
    assert of(take_stock(state, ALL), Sort.RUN)["killed"] == "its attempts still run"
    assert prune(state) == {"killed"}
    survivor.kill()
    survivor.wait()
    assert prune(state) == set()


def test_a_run_stays_while_a_run_that_is_kept_uses_its_cached_results(state: StateFolder) -> None:
    assert of(take_stock(state, all_but("cache-2")), Sort.RUN)["cache-1"] == "run cache-2 uses its results"
    assert prune(state, all_but("cache-2")) == {"cache-1", "cache-2"}
    assert prune(state) == set()


def test_a_run_that_a_link_leads_to_keeps_the_run_whose_results_it_uses(state: StateFolder, tmp_path: Path) -> None:
    shutil.move(state.find("cache-2").path, tmp_path / "disk")
    (state.path / "runs" / "cache-2").symlink_to(tmp_path / "disk")
    assert of(take_stock(state, ALL), Sort.RUN)["cache-1"] == "run cache-2 uses its results"
    assert prune(state) == {"cache-1", "cache-2"}


LOOP = {
    "pipelineInfo": {"name": "looping"},
    "schemaVersion": "2.1.0",
    "components": {
        "comp-it": {"executorLabel": "exec-it", "inputDefinitions": {"parameters": {"item": {"parameterType": "STRING"}}}},
        "comp-loop": {
            "dag": {"tasks": {"it": {
                "taskInfo": {"name": "it"}, "componentRef": {"name": "comp-it"},
                "inputs": {"parameters": {"item": {"componentInputParameter": "item"}}},
            }}},
            "inputDefinitions": {"parameters": {"item": {"parameterType": "STRING"}}},
        },
    },
    "deploymentSpec": {"executors": {"exec-it": {"container": {"image": "python:3.11", "command": ["true"]}}}},
    "root": {"dag": {"tasks": {"loop": {
        "taskInfo": {"name": "loop"}, "componentRef": {"name": "comp-loop"}, "iteratorPolicy": {"parallelismLimit": 1},
        "parameterIterator": {"itemInput": "item", "items": {"raw": '["a", "b"]'}},
    }}}},
}  # fmt: skip


def a_run(state: StateFolder, name: str, *events: Event, arguments: Mapping[str, Any] | None = None) -> None:
    """A run of one loop, of whose iterations one at a time is open, with these events."""
    created = RunCreated(0.0, meta=RunMeta(run=name, arguments=arguments or {}))
    begin_records(
        state.create(name),
        StoredPlan(Compiled(LOOP), config.parse(f"version: 1\n{QUICK}", "spotwright.yaml"), None, {}),
        created,
    )
    with contextlib.closing(Journal.open(state.run(name).journal)) as journal:
        journal.append([EngineStarted(0.0, epoch=1, pid=1), *events])


def test_a_run_keeps_the_runs_whose_results_its_loop_takes_over_in_iterations_that_are_not_open_yet(
    state: StateFolder,
) -> None:
    cached = [
        TaskCached(1.0, f"loop/it-{number}", run=run, of_task="good", parameters={}, artifacts={})
        for number, run in enumerate(("failed", "cache-1"))
    ]
    unfolded = [TasksUnfolded(1.0), TasksUnfolded(1.0, "loop", items=["a", "b"])]
    a_run(state, "looping", *unfolded, *cached, RunReset(2.0, again=("loop/it-0",)))
    assert prune(state, all_but("looping")) == {"looping", "cache-1"}


@pytest.mark.parametrize("text", ["{}", "file://{}", "--from={}"])
def test_a_run_keeps_the_runs_whose_files_its_arguments_name_also_through_a_link_to_the_folder(
    state: StateFolder, tmp_path: Path, text: str
) -> None:
    (tmp_path / "runs").symlink_to(state.path.parent)
    direct, linked = (folder / "state" / "runs" for folder in (tmp_path, tmp_path / "runs"))
    given = {
        "data": {"uri": text.format(linked / "failed" / "plan-1.json")},
        "more": [text.format(direct / "moved" / "x")],
    }
    a_run(state, "last-one", arguments=given)
    assert prune(state, all_but("last-one")) == {"last-one", "failed", "moved"}


def test_a_damaged_run_stays_and_says_why(state: StateFolder) -> None:
    state.find("moved").journal.write_text("no database")
    assert of(take_stock(state, ALL), Sort.RUN)["moved"].startswith("cannot be read: ")


# Cached results


def a_result(state: StateFolder, name: str, run: str, *files: Path) -> Path:
    state.cache.mkdir(exist_ok=True)
    path = state.cache / f"{name}.json"
    content = {"parameters": {}, "artifacts": {}, "run": run, "task": "good", "files": [str(file) for file in files]}
    path.write_text(json.dumps(content))
    return path


def test_a_cached_result_goes_with_the_run_that_holds_its_files(state: StateFolder) -> None:
    last = last_event(state)
    a_result(state, "own", "failed", state.find("failed").journal)
    a_result(state, "other", "interrupted", state.find("interrupted").journal)
    options = PruneOptions(keep=frozenset({"interrupted"}), keep_last=0)
    items = take_stock(state, options, last)
    assert of(items, Sort.RESULT) == {"own": "", "other": "used in the last 30d"}
    assert prune(state, options) == {"interrupted"}
    assert [path.stem for path in state.cache.iterdir()] == ["other"]


def test_a_run_stays_while_the_cached_result_of_another_run_uses_its_files(state: StateFolder) -> None:
    options = PruneOptions(keep=frozenset({"fallback"}), keep_last=0)
    a_result(state, "result", "fallback", state.find("failed").journal)
    items = take_stock(state, options)
    assert of(items, Sort.RUN)["failed"] == "a cached result of run fallback uses its files"
    assert of(items, Sort.RESULT)["result"]
    assert prune(state, options) == {"failed", "fallback"}


@pytest.mark.parametrize("content", ["{", "[]", '{"files": ["/nothing/there"]}', '{"files": [1]}'])
def test_a_cached_result_that_counts_no_more_goes_at_any_age(state: StateFolder, content: str) -> None:
    state.cache.mkdir()
    (state.cache / "dead.json").write_text(content)
    assert deleted(take_stock(state, PruneOptions()), Sort.RESULT) == {"dead"}


def test_a_cached_result_without_files_goes_after_30_days_without_use(state: StateFolder) -> None:
    path = a_result(state, "result", "gone")
    assert deleted(take_stock(state, PruneOptions()), Sort.RESULT) == set()
    os.utime(path, (time.time() - 31 * DAY,) * 2)
    assert deleted(take_stock(state, PruneOptions()), Sort.RESULT) == {"result"}


# Checkpoints


def test_checkpoints_go_a_day_after_their_run_has_succeeded(state: StateFolder) -> None:
    for name in ("interrupted", "failed"):
        state.find(name).checkpoint("train").mkdir(parents=True)
        (state.find(name).checkpoint("train") / "model").write_text("x" * 50_000)
    early = of(take_stock(state, PruneOptions()), Sort.CHECKPOINT)
    assert early == {"interrupted": "used in the last 1d", "failed": "resume needs them"}
    later = time.time() + 1.1 * DAY
    items = take_stock(state, PruneOptions(), later)
    assert deleted(items, Sort.CHECKPOINT) == {"interrupted"}
    assert deleted(items) == set()
    sizes = {item.name: item.size for item in items if item.sort is Sort.CHECKPOINT}
    assert sizes["interrupted"] >= 50_000
    assert [why for _, why in delete(state, items)] == [""]
    assert not state.find("interrupted").checkpoints.exists()
    assert state.find("failed").checkpoint("train").is_dir()
    journal = Journal.open(state.find("interrupted").journal)
    assert journal.lease() is None  # it was given back: the run can be resumed
    journal.close()


def test_a_run_whose_checkpoints_cannot_be_deleted_can_be_resumed(state: StateFolder) -> None:
    run = state.find("interrupted")
    run.checkpoint("train").mkdir(parents=True)
    (run.checkpoint("train") / "model").touch()
    (state.path / "trash").symlink_to(state.path)
    items = take_stock(state, PruneOptions(), time.time() + 1.1 * DAY)
    (why,) = [why for item, why in delete(state, items) if item.sort is Sort.CHECKPOINT]
    assert "is a symbolic link" in why
    with contextlib.closing(Journal.open(run.journal)) as journal:
        assert journal.lease() is None


# Rehearsals, environments, leftovers


def a_rehearsal(state: StateFolder, name: str) -> StateFolder:
    folder = StateFolder.open(state.rehearsals / name)
    shutil.copytree(RECORDED / "runs" / "moved", folder.path / "runs" / "moved")
    return folder


def test_a_rehearsal_goes_when_it_was_not_used_for_long_and_its_process_has_ended(state: StateFolder) -> None:
    ended, under_way = a_rehearsal(state, "ended"), a_rehearsal(state, "under-way")
    gone = {**bodies.this_process(), "starttime": 1}
    ended.driver.write_text(json.dumps(gone))
    under_way.driver.write_text(json.dumps(bodies.this_process()))
    items = take_stock(state, ALL)
    assert of(items, Sort.REHEARSAL) == {"ended": "", "under-way": "under way"}
    assert of(take_stock(state, PruneOptions()), Sort.REHEARSAL)["ended"] == "used in the last 30d"
    prune(state)
    assert [path.name for path in state.rehearsals.iterdir()] == ["under-way"]


def an_environment(name: str, *, unused_for: float) -> Path:
    path = bodies.environments_folder() / name
    (path / "bin").mkdir(parents=True)
    marker = path / "spotwright-built.json"
    marker.write_text("{}")
    os.utime(marker, (time.time() - unused_for,) * 2)
    return path


def test_environments_go_that_were_not_used_for_long_and_are_not_in_use(state: StateFolder) -> None:
    old, used, young = (
        an_environment(letter * 32, unused_for=days * DAY) for letter, days in (("a", 31), ("b", 31), ("c", 1))
    )
    (bodies.environments_folder() / f"{'a' * 32}.lock").touch()
    (used / "bin" / "python").symlink_to(sys.executable)
    with a_sleeper(str(used / "bin" / "python"), {}):
        items = take_stock(state, PruneOptions())
        assert list(of(items, Sort.ENVIRONMENT).values()) == ["", "in use", "used in the last 30d"]
        prune(state, PruneOptions())
    assert (old.exists(), used.exists(), young.exists()) == (False, True, True)


def test_an_environment_that_was_used_a_moment_ago_stays_whatever_the_age(state: StateFolder) -> None:
    an_environment("a" * 32, unused_for=60.0)
    assert of(take_stock(state, ALL), Sort.ENVIRONMENT) == {"a" * 32: "used in the last 10min"}


def test_leftovers_of_killed_prunes_and_of_runs_that_never_began_are_deleted(state: StateFolder) -> None:
    for folder in (state.trash / "r.0a1b2c3d", bodies.environments_folder() / "trash" / "e.0a1b2c3d"):
        (folder / "inside").mkdir(parents=True)
    unbegun = state.path / "runs" / "unbegun"
    unbegun.mkdir()
    assert of(take_stock(state, PruneOptions()), Sort.LEFTOVER) == {
        "r.0a1b2c3d": "", "e.0a1b2c3d": "", "unbegun": "a run may be starting there",
    }  # fmt: skip
    os.utime(unbegun, (time.time() - 3601,) * 2)
    prune(state, PruneOptions())
    assert of(take_stock(state, PruneOptions()), Sort.LEFTOVER) == {}
    assert not unbegun.exists()


# Links and kills


@pytest.mark.parametrize("linked", ["runs", "runs/elsewhere", "rehearsals", "cache"])
def test_what_a_link_leads_to_stays(state: StateFolder, tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(RECORDED / "runs" / "moved", outside)
    if linked == "runs":
        shutil.move(state.path / "runs", tmp_path / "disk")
        outside = tmp_path / "disk"
    before = {path.relative_to(outside) for path in outside.rglob("*") if "journal.db-" not in path.name}
    (state.path / linked).symlink_to(outside)
    items = take_stock(state, ALL)
    assert any(item.kept.endswith("is a symbolic link") for item in items)
    list(delete(state, items))
    assert {path.relative_to(outside) for path in outside.rglob("*") if "journal.db-" not in path.name} == before
    assert (state.path / linked).is_symlink()


KILLED = """
import os, signal, sys

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
left = int(sys.argv.pop(1))

def count(event, _given):
    global left
    if event not in CHANGES:
        return
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

from spotwright.cli import main
sys.addaudithook(count)
main()
"""


def prune_until_killed(state: StateFolder, point: int) -> bool:
    """Prune in a process that is killed before its change number ``point`` of the file system; whether it was killed."""
    command = ["prune", "--older-than", "0s", "--yes", "--state", str(state.path)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(point), *command], check=False, capture_output=True, timeout=600
    )
    return done.returncode == -signal.SIGKILL


def content(folder: Path) -> set[str]:
    """The files of a folder, without those that SQLite makes beside a journal."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "journal.db-" not in path.name}


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_every_run_whole_or_gone_and_the_next_prune_removes_the_rest(
    state: StateFolder, tmp_path: Path
) -> None:
    point, kills, with_leftovers = 1, 0, 0
    while True:
        copy = StateFolder(tmp_path / f"copy-{point}")
        shutil.copytree(state.path, copy.path, symlinks=True)
        if not prune_until_killed(copy, point):
            break
        kills += 1
        for run in copy.runs():
            assert content(run.path) == content(RECORDED / "runs" / run.name), f"killed before change {point}"
        with_leftovers += bool(list(copy.trash.glob("*")))
        assert prune(copy) == set()
        assert not list(copy.trash.iterdir())
        assert not list((copy.path / "runs").iterdir())
        shutil.rmtree(copy.path)
        point += 1 if point < 12 else 29
    assert kills > 15
    assert with_leftovers > 10
