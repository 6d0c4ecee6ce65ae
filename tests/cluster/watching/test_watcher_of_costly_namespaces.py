"""A namespace whose objects cost the watcher too much is served last, then set aside and taken back; others do not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.days import JOBS, LABELS, NAMESPACES, PODS, Day, day
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.cluster import watcher, workload_recorder
from spotwright.cluster.namespace_costs import LOOK, FairQueue, NamespaceCosts
from spotwright.cluster.observer import PodReconciler
from spotwright.model.attempts import Cause

HOSTILE = "hostile"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[str]:
    """The namespaces of the looks at workloads, in their order. The hostile one's looks take a second of the processor."""
    found: list[str] = []

    class Costly(PodReconciler):
        def record(self, *given: Any, **more: Any) -> None:
            namespace = str(self._state.meta.arguments["namespace"])
            found.append(namespace)
            super().record(*given, **more)
            if namespace == HOSTILE:
                spent.append(1.0)

    spent: list[float] = []  # of the processor, which a test does not burn
    monkeypatch.setattr(workload_recorder, "PodReconciler", Costly)
    monkeypatch.setattr("spotwright.cluster.namespace_costs.time.thread_time", lambda: sum(spent))
    monkeypatch.setattr(watcher, "NamespaceCosts", lambda allowed: NamespaceCosts(allowed, clock))
    return found


def put(day: Day, collection: str, made: dict[str, Any], namespace: str) -> None:
    meta = made["metadata"]
    made = {**made, "metadata": {**meta, "namespace": namespace}}
    day.server.put(collection, meta["name"], uid=meta.get("uid", ""), **made)


def hostile_changes(day: Day, count: int) -> None:
    """So many changes of one pod, each of which has to be looked at."""
    work = job("costly", uid="uid-costly")
    put(day, JOBS, work, HOSTILE)
    for number in range(count):
        changed = pod("costly-1", work, node="n1", phase="Running")
        changed["metadata"]["labels"] = {"number": str(number)}
        put(day, PODS, changed, HOSTILE)


async def train_ends(day: Day) -> None:
    """A pod of the quiet namespace runs and succeeds."""
    train = job("train", uid="uid-train")
    day.put(JOBS, train)
    day.put(PODS, pod("train-1", train, node="n1", phase="Running"))
    await day.until(lambda: day.is_recorded("train"), "the attempt")
    day.put(PODS, pod("train-1", train, node="n1", phase="Succeeded", exit_code=0))
    day.put(JOBS, {**train, "status": done()})
    await day.until(lambda: day.cause("train") is Cause.SUCCEEDED, "its end")


def test_a_namespace_that_costs_too_much_is_set_aside_and_taken_back(
    tmp_path: Path, looks: list[str], clock: Clock
) -> None:
    async def test(day: Day) -> None:
        day.put(NAMESPACES, {"kind": "Namespace", "metadata": {"name": "a", "labels": LABELS}})
        put(day, NAMESPACES, {"kind": "Namespace", "metadata": {"name": HOSTILE, "labels": LABELS}}, HOSTILE)
        await day.start()
        hostile_changes(day, 1)
        await day.until(lambda: HOSTILE in looks, "the first look")
        for _ in range(12):
            hostile_changes(day, 1)
            await asyncio.sleep(0.05)
        await day.until(lambda: day.watcher._costly == {HOSTILE}, "it is set aside")
        assert any("is set aside for 5 min" in note for note in day.runs()["costly"].notes)
        before = looks.count(HOSTILE)
        put(day, NAMESPACES, {"kind": "Namespace", "metadata": {"name": HOSTILE, "labels": LABELS}}, HOSTILE)
        hostile_changes(day, 5)
        await train_ends(day)
        assert looks.count(HOSTILE) == before, "labelling it again brings it back no sooner"
        work = job("costly", uid="uid-costly")
        put(day, PODS, pod("costly-1", work, node="n1", phase="Succeeded", exit_code=0), HOSTILE)
        put(day, JOBS, {**work, "status": done()}, HOSTILE)
        clock.now += 301.0
        await day.until(lambda: day.cause("costly") is Cause.SUCCEEDED, "what has happened meanwhile is recorded")

    day(tmp_path / "state", test)


def test_a_namespace_that_is_deleted_while_it_is_set_aside_ends_its_runs(
    tmp_path: Path, looks: list[str], clock: Clock
) -> None:
    async def test(day: Day) -> None:
        put(day, NAMESPACES, {"kind": "Namespace", "metadata": {"name": HOSTILE, "labels": LABELS}}, HOSTILE)
        await day.start()
        hostile_changes(day, 1)
        await day.until(lambda: HOSTILE in looks, "the first look")
        day.watcher._costs.put_aside((HOSTILE, ""))
        hostile_changes(day, 1)
        await day.until(lambda: day.watcher._costly == {HOSTILE}, "it is set aside")
        day.server.delete(PODS, "costly-1")
        day.server.delete(JOBS, "costly")
        day.server.delete(NAMESPACES, HOSTILE)
        await asyncio.sleep(0.2)
        clock.now += 301.0
        await day.until(lambda: day.runs()["costly"].finished_at is not None, "its end")

    day(tmp_path / "state", test)


def in_order(put_in: list[tuple[str, str]], last: set[str], most: int = 1000) -> list[str]:
    costs = NamespaceCosts(LOOK)
    for name in last:
        costs.spent((name, ""), 1.0)

    async def scenario() -> list[str]:
        queue: FairQueue[str] = FairQueue(most, costs)
        for item, namespace in put_in:
            await queue.put(item, namespace)
        return [await queue.get() for _ in range(len(put_in))]

    return asyncio.run(scenario())


def test_changes_of_costly_namespaces_wait_for_all_others_and_stay_in_order() -> None:
    given = [("h1", "h"), ("q1", "q"), ("h2", "h"), ("q2", "q"), ("node", "")]
    assert in_order(given, {"h"}) == ["q1", "q2", "h1", "h2", "node"]
    assert in_order(given, set()) == ["h1", "q1", "h2", "q2", "node"]


def test_what_belongs_to_no_namespace_overtakes_nothing() -> None:
    order = in_order([("h1", "h"), ("list is complete", ""), ("q1", "q"), ("h2", "h")], {"h"})
    assert order == ["q1", "h1", "list is complete", "h2"]


def test_whoever_waits_has_a_turn_while_changes_of_others_come_without_a_pause() -> None:
    order = in_order([("h", "h"), *((f"q{number}", "q") for number in range(200))], {"h"})
    assert order.index("h") < 60


def test_more_than_can_be_kept_sets_its_namespace_aside() -> None:
    costs = NamespaceCosts(LOOK)
    costs.spent(("h", ""), 1.0)

    async def scenario() -> None:
        queue: FairQueue[int] = FairQueue(10, costs)
        for number in range(2001):
            await queue.put(number, "h")
        assert queue.empty()
        assert list(costs.aside) == [("h", "")]

    asyncio.run(scenario())


def test_a_look_at_many_pods_is_no_offence() -> None:
    costs = NamespaceCosts(LOOK)
    costs.spent(("a", ""), 19.0, 100)
    assert not costs.is_last(("a", ""))
