"""A run in a state folder with one task, its outputs and its logs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.kfp.builders import compiled, ir, python_container, task
from tests.views.builders import POOLS, Story

from spotwright import config
from spotwright.engine.events import RunCreated
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import StoredPlan
from spotwright.runs.runner import begin_records

__all__ = ["a_recorded_run", "a_story", "log_of", "recorded", "stored_plan"]


_INSTALL = 'python3 -m pip install --quiet --no-warn-script-location \'pandas>=2\'  && "$0" "$@"\n'


def stored_plan(*, with_packages: bool = False) -> StoredPlan:
    """The plan of a pipeline with the task ``eval``, which needs pandas or no packages."""
    container = python_container(install=_INSTALL if with_packages else "")
    pipeline = compiled(ir({"eval": task("eval")}, containers={"exec-eval": container}))
    return StoredPlan(pipeline, config.parse(POOLS, "spotwright.yaml"), None, {})


def a_story(**created: Any) -> Story:
    """The run while ``eval`` runs, which was interrupted once. ``created``: additions to its first event."""
    story = Story(stored_plan().plan, run="a-run", **created)
    story.boots("cpu-spot-1").binds("eval", "cpu-spot-1").after(2).taken("cpu-spot-1", "eval")
    return story.after(60).boots("cpu-spot-2").binds("eval", "cpu-spot-2").after(1)


def recorded(state: Path, story: Story, *, with_packages: bool = False) -> RunReader:
    """A reader of a story that was written into a state folder."""
    folder = StateFolder.open(state).create("a-run")
    created = story.events[0]
    assert isinstance(created, RunCreated)
    begin_records(folder, stored_plan(with_packages=with_packages), created)
    with closing(Journal.open(folder.journal)) as journal:
        journal.append(story.events[1:])
    return RunReader(folder, lambda _: False)


def a_recorded_run(state: Path, artifacts: dict[str, Any]) -> RunReader:
    """A run whose task has ended with these output artifacts."""
    return recorded(state, a_story().ends("eval", {"artifacts": artifacts}).gives_back("cpu-spot-2"))


def log_of(folder: RunFolder, number: int, data: bytes) -> None:
    """Write the log of an attempt of ``eval``."""
    path = folder.log("eval", number)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
