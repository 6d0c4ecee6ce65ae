"""A tenant cannot fill the memory: plans grow only by new parts, and records that need too much are cut, its own first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.folder_records import FolderHistories
from tests.cluster.limits.flooded_recorder import step, workflow
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster import run_store
from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.trash import disk_use
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text

MEMORY = 512 << 20
SMALL_MEMORY, SMALL_DISK = 160 << 20, 8 << 20
"""Of a tenth of each story: before, 300 steps took 754 MB of memory and 287 MB of the disk."""


def told(folder: Path, story: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.cluster.limits.flooded_recorder", str(folder), story, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "count"), [("distinct_steps", 300), ("templates_without_end", 200), ("runs_without_end", 40)]
)
def test_a_recorder_stays_small_beside_many_templates_and_after_a_restart(
    tmp_path: Path, story: str, count: int
) -> None:
    for found in (told(tmp_path / "state", story, count), told(tmp_path / "state", "nothing", 0)):
        assert found["rss"] < SMALL_MEMORY
        assert found["runs"] == (count if story == "runs_without_end" else 1)
    assert disk_use(tmp_path / "state")[0] < SMALL_DISK


@pytest.mark.slow
@pytest.mark.many
@pytest.mark.parametrize(
    ("story", "count", "runs"),
    [("distinct_steps", 5_000, 1), ("templates_without_end", 3_500, 0), ("runs_without_end", 1_500, None)],
)
def test_a_recorder_is_within_its_memory_whatever_one_tenant_makes(
    tmp_path: Path, story: str, count: int, runs: int | None
) -> None:
    for found in (told(tmp_path / "state", story, count), told(tmp_path / "state", "nothing", 0)):
        assert found["rss"] < MEMORY
        assert runs in (None, found["runs"])


# What is cut


def states(folder: Path) -> Mapping[str, RunState]:
    read = [RunReader(each, lambda _: False).state for each in StateFolder.existing(folder).runs()]
    return {state.meta.arguments["name"]: state for state in read}


def flood(made: SilentWatcher, name: str, namespace: str, count: int) -> None:
    run = workflow(name, namespace)
    made.put("Workflow", run)
    for number in range(count):
        made.put("Pod", step(run, number, tolerations=50, phase="Running"))


def test_the_largest_run_of_a_namespace_is_cut_and_nobody_else_loses_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "NAMESPACE_LIMIT", 600_000)
    cut: list[str] = []
    made = SilentWatcher(tmp_path / "state", on_cut=lambda run: cut.append(run.folder.name))
    for namespace in ("team-a", "team-b"):
        train = job(f"small-{namespace}", uid=f"uid-small-{namespace}")
        train["metadata"]["namespace"] = namespace
        made.put("Job", train)
        made.put("Pod", pod(f"small-{namespace}-0", train, node="n1", phase="Running", namespace=namespace))
    flood(made, "flood", "team-a", 60)
    assert [name.split(".")[1][:5] for name in cut] == ["flood"]
    flood(made, "flood", "team-a", 80)  # what it makes from now on is not recorded, and begins no other run
    after = workflow("after", "team-a")
    made.put("Workflow", after)
    made.put("Pod", step(after, 0, phase="Running"))
    assert made.recorder.problem == ""
    made.close()
    found = states(tmp_path / "state")
    assert {name: state.status for name, state in found.items()} == {
        "small-team-a": RunStatus.RUNNING,
        "small-team-b": RunStatus.RUNNING,
        "flood": RunStatus.STOPPED,
        "after": RunStatus.RUNNING,
    }
    text = " ".join(show_text(run_view(found["flood"], "flood")).split())
    assert "its recording stopped here, because the records of its namespace need more than" in text
    assert "The workload itself goes on. To have all of it recorded, run fewer at once" in text
    assert "resume" not in text


def test_a_restart_does_not_take_up_what_was_cut_and_cuts_what_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = SilentWatcher(tmp_path / "state")
    flood(made, "flood", "team-a", 60)
    flood(made, "quiet", "team-b", 2)
    made.close()
    monkeypatch.setattr(run_store, "LIMIT", 600_000)
    for _ in range(2):
        made = SilentWatcher(tmp_path / "state")
        assert [run.namespace for run in made.watcher._store.runs.values()] == ["team-b"]
        made.close()
    why = states(tmp_path / "state")["flood"].why
    assert "all records need more than 585.9Ki of memory, and this namespace needs the most" in why


def test_of_runs_alike_the_newest_ones_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_store, "NAMESPACE_LIMIT", 400_000)
    made = SilentWatcher(tmp_path / "state")
    for number in range(20):
        run = workflow(f"run-{number:02}", "team-a")
        run["metadata"]["creationTimestamp"] = f"2027-01-15T08:00:{number:02}Z"
        made.put("Workflow", run)
        made.put("Pod", step(run, 0, phase="Running", made=number))
    made.close()
    live = sorted(name for name, state in states(tmp_path / "state").items() if state.status is RunStatus.RUNNING)
    assert 1 < len(live) < 20
    assert live == [f"run-{number:02}" for number in range(len(live))]


def test_a_review_waits_for_no_end_of_a_run_whose_recording_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "NAMESPACE_LIMIT", 600_000)
    made = SilentWatcher(tmp_path / "state")
    flood(made, "flood", "team-a", 5)
    histories = FolderHistories(StateFolder.existing(tmp_path / "state"))
    assert histories.of(workflow("flood", "team-a")).status is RunStatus.RUNNING
    flood(made, "flood", "team-a", 60)
    assert histories.of(workflow("flood", "team-a")).status is RunStatus.STOPPED
    made.close()


def test_a_template_is_written_once_and_the_plan_that_is_read_is_the_one_that_was_made(tmp_path: Path) -> None:
    made = SilentWatcher(tmp_path / "state")
    flood(made, "flood", "team-a", 5)
    (run,) = made.watcher._store.runs.values()
    folder = RunFolder(run.folder.path)
    read = RunReader(folder, lambda _: False).state
    assert folder.plan_count() == 1
    assert {name: spec.constraints for name, spec in read.plan.graph.root.tasks.items()} == {
        name: spec.constraints for name, spec in run.state.plan.graph.root.tasks.items()
    }
    assert len(read.plan.graph.root.tasks) == 5
    assert read.tasks == run.state.tasks
    for number in range(5):
        rows = Journal.read(run.folder.journal).rows()
        (written,) = [row for row in rows if f'"name":"step-{number}"' in row[5].replace(" ", "")]
        assert "ARGO_TEMPLATE" not in written[5]
    made.close()
