"""A controller's retention: `prune` deletes ended runs with their logs, and none that is watched."""

from __future__ import annotations

import time
from pathlib import Path

from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.engine.events import RunStatus
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.trash import Item, Sort
from spotwright.runs.pruning import DEFAULT_AGE, PruneOptions, delete, take_stock

DAY = 86_400.0


async def two_runs(made: Day) -> tuple[RunFolder, RunFolder]:
    """An ended run and an active one, each with the log of its attempt."""
    over, live = job("over", uid="uid-over", status=done()), job("live", uid="uid-live")
    made.put(JOBS, over)
    made.put(PODS, pod("one", over, node="n1", phase="Succeeded", exit_code=0))
    made.put(JOBS, live)
    made.put(PODS, pod("two", live, node="n1", phase="Running"))
    await made.start()
    await made.until(lambda: made.is_recorded("live") and has_ended(made, "over"), "both are recorded")
    folders = {str(made.runs()[name].meta.run): name for name in ("over", "live")}
    found = {folders[folder.name]: folder for folder in StateFolder.open(made.folder).runs()}
    for name, folder in found.items():
        log = folder.log(name, 1)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("epoch 1\n", encoding="utf-8")
    return found["over"], found["live"]


def has_ended(made: Day, name: str) -> bool:
    run = made.runs().get(name)
    return run is not None and run.status is RunStatus.SUCCEEDED


def stock(made: Day, after: float, options: PruneOptions | None = None) -> list[Item]:
    """The runs as `prune` sees them so many seconds from now."""
    items = take_stock(StateFolder.open(made.folder), options or PruneOptions(), time.time() + after)
    return [item for item in items if item.sort is Sort.RUN]


def test_a_run_that_ended_a_month_ago_is_deleted_with_its_logs_and_one_that_is_watched_stays(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        over, live = await two_runs(made)
        items = stock(made, DEFAULT_AGE + DAY)
        assert {item.name: item.kept for item in items} == {over.name: "", live.name: "an engine drives it"}
        assert [why for _, why in delete(StateFolder.open(made.folder), items)] == [""]
        assert not over.path.exists()
        assert live.log("live", 1).read_text(encoding="utf-8") == "epoch 1\n"
        made.put(JOBS, job("live", uid="uid-live", status=done()))
        made.put(PODS, pod("two", job("live", uid="uid-live"), node="n1", phase="Succeeded", exit_code=0))
        await made.until(lambda: has_ended(made, "live"), "it is watched as before")
        assert set(made.runs()) == {"live"}

    day(tmp_path / "state", test)


def test_a_run_that_is_younger_than_what_is_asked_for_stays_with_its_logs(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        over, _ = await two_runs(made)
        kept = {item.name: item.kept for item in stock(made, 0.0, PruneOptions(older_than=1e9))}
        assert kept[over.name]
        assert over.log("over", 1).exists()

    day(tmp_path / "state", test)


def test_a_workload_that_is_still_in_the_cluster_is_recorded_again_by_the_next_controller(tmp_path: Path) -> None:
    async def test(made: Day) -> None:
        over, _ = await two_runs(made)
        list(delete(StateFolder.open(made.folder), stock(made, DEFAULT_AGE + DAY)))
        await made.stop()
        assert not over.path.exists()
        await made.start()
        await made.until(lambda: has_ended(made, "over"), "it is recorded again")
        assert not over.log("over", 1).exists()

    day(tmp_path / "state", test)
