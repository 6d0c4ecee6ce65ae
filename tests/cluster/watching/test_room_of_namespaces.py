"""The objects of one namespace may take so much of the memory and no more; then the namespace is set aside."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.watching.days import JOBS, PODS, Day, day
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster import watch_streams
from spotwright.cluster.kept_objects import NamespaceQuota, Sharing
from spotwright.cluster.namespace_costs import NamespaceCosts


def a_key(number: int, namespace: str = "team") -> tuple[str, str, str]:
    return ("/api/v1/pods", namespace, f"pod-{number}")


def a_pod(text: str) -> dict[str, Any]:
    env = [{"name": "TEXT", "value": text}]
    return {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "main", "image": "none", "env": env}]}}


def test_a_namespace_has_room_until_its_limit_and_again_when_objects_go() -> None:
    full: list[str] = []
    room = NamespaceQuota(full.append, limit=10_000)
    assert room.take(a_key(1), a_pod("a" * 6000))
    assert not room.take(a_key(2), a_pod("b" * 6000))
    assert full == ["team"]
    assert room.take(a_key(2, "other"), a_pod("b" * 6000))
    room.leave(a_key(1))
    assert room.take(a_key(2), a_pod("b" * 6000))


def test_an_object_that_changes_takes_the_room_of_what_it_was() -> None:
    room = NamespaceQuota(limit=10_000)
    for text in "abc":
        assert room.take(a_key(1), a_pod(text * 6000))


def test_what_pods_share_counts_once() -> None:
    sharing = Sharing()
    room = NamespaceQuota(weigh=sharing.cost, limit=45_000)
    assert all(room.take(a_key(number), sharing.shared(a_pod("a" * 20_000))) for number in range(50))
    assert not room.take(a_key(50), sharing.shared(a_pod("b" * 40_000)))


def keys_of(number: int) -> dict[str, str]:
    return {f"{number:06d}.{key:03d}.{'k' * 240}": "" for key in range(250)}


@pytest.mark.parametrize(
    "odd",
    [{"metadata": {"annotations": keys_of(1)}}, {"spec": {"text": "a" * 15_000 + "\N{GRINNING FACE}"}}],
    ids=["long keys", "wide characters"],
)
@pytest.mark.parametrize("shares", [True, False])
def test_the_bytes_of_keys_and_of_wide_characters_take_room(odd: dict[str, Any], shares: bool) -> None:
    sharing = Sharing()
    room = NamespaceQuota(weigh=sharing.cost if shares else None, limit=60_000)
    assert not room.take(a_key(1), sharing.shared(odd) if shares else odd)


def test_keys_of_pods_that_are_gone_do_not_fill_the_memory() -> None:
    sharing = Sharing()
    tracemalloc.start()
    try:
        for number in range(600):
            sharing.shared({"metadata": {"annotations": keys_of(number)}})
        assert tracemalloc.get_traced_memory()[0] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_namespace_whose_objects_fill_the_memory_is_set_aside_and_the_watcher_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "NamespaceQuota", partial(NamespaceQuota, limit=200_000))
    put_aside, reasons = NamespaceCosts.put_aside, list[tuple[str, str]]()

    def heard(costs: NamespaceCosts, key: tuple[str, str], reason: str = "") -> None:
        reasons.append((key[0], reason))
        put_aside(costs, key, reason)

    monkeypatch.setattr(NamespaceCosts, "put_aside", heard)

    async def test(made: Day) -> None:
        await made.start()
        big = job("big", uid="big-uid")
        made.put(JOBS, big)
        for number in range(4):
            heavy = pod(f"big-{number}", big, node="n1", phase="Running")
            heavy["spec"]["containers"][0]["env"] = [{"name": "TEXT", "value": str(number) * 100_000}]
            made.put(PODS, heavy)
        await made.until(lambda: bool(reasons), "it is set aside")
        await made.until(lambda: not made.watcher.watched.namespaces, "it is not served")
        assert made.task is not None
        assert not made.task.done()

    day(tmp_path, test)
    assert set(reasons) == {("a", "its objects need more memory than a namespace may use")}
