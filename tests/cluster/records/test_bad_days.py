"""Whatever an API server, an administrator or a kill does to records: nothing is lost or counted twice, and gaps are reported."""

from __future__ import annotations

import asyncio
import copy
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.cluster.records.bad_days import (
    FULL,
    SECONDS,
    STEPS,
    WHOLE,
    WORKFLOW,
    EveryThird,
    Recording,
    There,
    answer,
    ended_runs,
    quick,
    recorded,
    states,
    step_of_iris,
    twins,
)
from tests.cluster.records.following import following
from tests.cluster.records.loops import in_a_loop, until
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching.watched_objects import job
from tests.sampling import every

from spotwright.cluster import run_store
from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.attempt_numbers import Asking, Given, Numbers
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.retention import Retention
from spotwright.cluster.run_objects import KINDS
from spotwright.engine.events import RunStatus
from spotwright.errors import Fenced, StateError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch.setattr)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RecordServer, Kubernetes]]:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        yield server, kubernetes


def is_whole(server: RecordServer, kubernetes: Kubernetes, folder: Path) -> None:
    assert recorded(kubernetes, folder) == WHOLE
    assert ended_runs(server) == {"train", "serve", "iris"}
    assert twins(server) == []


def test_the_history_on_a_good_day(tmp_path: Path, served: tuple[RecordServer, Kubernetes]) -> None:
    server, kubernetes = served
    Recording(kubernetes, tmp_path).play()
    is_whole(server, kubernetes, tmp_path)


@pytest.mark.parametrize("seed", every(4, range(16)))
def test_an_api_server_that_refuses_every_third_write(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], seed: int
) -> None:
    server, kubernetes = served
    days = EveryThird(server, seed)
    made = Recording(kubernetes, tmp_path)
    made.play()
    made.catch_up()
    assert days.writes > 30
    is_whole(server, kubernetes, tmp_path)


@in_a_loop
async def test_no_number_comes_twice_beside_an_api_server_that_refuses_every_third_write(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig):
        EveryThird(server, 5)
        apis = [Api(connect(find_cluster(None, kubeconfig=str(kubeconfig)))) for _ in range(2)]
        replicas = [Numbers(api) for api in apis]

        async def number(review: int) -> int | None:
            asked = Asking(f"review-{review}", "team-a", job(), "train", is_settled=True)
            try:
                given = await replicas[review % 2].number(asked, is_last=True, ignores_doubts=True)
            except StateError:
                return None  # the pod starts without one
            assert isinstance(given, Given)
            return given.number

        found = [
            each for wave in range(5) for each in await asyncio.gather(*map(number, range(wave * 20, wave * 20 + 20)))
        ]
        given = [each for each in found if each is not None]
        assert len(given) > 20
        assert len(set(given)) == len(given)
        for replica, api in zip(replicas, apis, strict=True):
            await replica.close()
            await api.close()


def test_many_objects_at_once_beside_an_api_server_that_refuses_every_third_write(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    there = There()
    there.take([("put", "Workflow", {**WORKFLOW, "status": {"phase": "Running"}})])
    there.take([("put", "Pod", step_of_iris(f"step-{number}", node="n1", phase="Running")) for number in range(60)])
    days = EveryThird(server, 1)
    made = Recording(kubernetes, tmp_path, there)
    made.catch_up()
    assert {each.task: each.number for each in recorded(kubernetes, tmp_path)["iris"]} == {
        f"step-{number}": 1 for number in range(60)
    }
    assert twins(server) == []
    assert days.writes < 1_000


# Nothing can be written for a while


def full(_method: str, _path: str) -> web.Response | None:
    """etcd has raised its alarm: it deletes and reads, and refuses writes."""
    return None if _method == "DELETE" else answer(500, FULL)


@pytest.mark.parametrize(("first", "last"), [(0, STEPS), (3, 9), (6, 7), (1, 12)])
def test_what_happens_while_etcd_is_full_is_recorded_afterwards(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], first: int, last: int
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, first)
    server.refuse = full
    made.play(first, last)
    assert FULL in made.made.recorder.problem
    server.refuse = lambda *_: None
    made.play(last)
    made.catch_up()
    is_whole(server, kubernetes, tmp_path)


def test_a_recorder_that_ends_while_etcd_is_full_leaves_a_gap_that_is_said(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, 5)  # the second attempt runs
    server.refuse = full
    made.play(5, 8)  # it fails, and the third one runs
    made.made.close()
    server.refuse = lambda *_: None
    there = There.after(8)
    del there["Pod", "two"]  # nobody has seen how it ended
    made = Recording(kubernetes, tmp_path, there)
    made.play(8)
    made.catch_up()
    found = recorded(kubernetes, tmp_path)
    assert [each.number for each in found["train"]] == [1, 2, 3]
    assert found["train"][1].cause == "lost"
    (state,) = [each for each in states(kubernetes, tmp_path) if each.meta.arguments["name"] == "train"]
    assert state.tasks["train"].attempts[1].cause_why
    assert ended_runs(server) == {"train", "serve", "iris"}


@in_a_loop
async def test_records_are_deleted_while_etcd_is_full(tmp_path: Path) -> None:
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        await asyncio.to_thread(lambda: Recording(kubernetes, tmp_path).play())
        server.refuse = full
        api = Api(connect(find_cluster(None, kubeconfig=str(kubeconfig))))
        try:
            await Retention(api, EventWriter(api), shares=Shares(10_000)).look()
        finally:
            await api.close()
        left = {each["metadata"]["namespace"] for each in server.kept("SpotRun")}
        assert len(server.kept("SpotRun")) == 1 + ("team-a" in left)


# Somebody changes records by hand


def edited(server: RecordServer, kind: str, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let an administrator edit the object of this kind whose name has a part."""
    for collection, known in server.objects.items():
        for found in list(known.values()):
            if collection.endswith(f"/{kind.lower()}s") and name in found["metadata"]["name"]:
                made = copy.deepcopy(found)
                change(made)
                server.put(collection, made["metadata"]["name"], made["metadata"]["uid"], **made)


def label(found: dict[str, Any]) -> None:
    found["metadata"]["labels"]["example.org/checked"] = "yes"


def forge_status(found: dict[str, Any]) -> None:
    found["status"] = {"phase": "succeeded", "attempts": 99}


@pytest.mark.parametrize("change", [label, forge_status])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [3, 6])
def test_an_edit_beside_the_events_changes_nothing(
    tmp_path: Path,
    served: tuple[RecordServer, Kubernetes],
    kind: str,
    step: int,
    change: Callable[[dict[str, Any]], None],
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, step)
    edited(server, kind, "train", change)
    made.play(step)
    made.catch_up()
    is_whole(server, kubernetes, tmp_path)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("step", range(3, 13))
def test_no_number_comes_twice_where_an_administrator_deletes_an_attempt(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], step: int, is_restarted: bool
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, step)
    names = [each["metadata"]["name"] for each in server.kept("SpotAttempt") if "train" in each["metadata"]["name"]]
    server.take_away("SpotAttempt", names[-1])
    if is_restarted:
        made = Recording(kubernetes, tmp_path, There.after(step))
    made.play(step)
    made.catch_up()
    found = recorded(kubernetes, tmp_path)
    assert {name: found[name] for name in ("serve", "iris")} == {name: WHOLE[name] for name in ("serve", "iris")}
    assert [(each.number, each.cause) for each in found["train"] if each.pod] == [
        (each.number, each.cause) for each in WHOLE["train"] if each in found["train"]
    ]
    numbers = [each.number for each in found["train"]]
    assert numbers == [1, 2, 3][: len(numbers)]
    is_unknown = len(numbers) < 3 or not all(each.pod for each in found["train"])
    assert is_unknown is any("deleted from outside" in note for note in notes(kubernetes, tmp_path, "train"))
    assert ended_runs(server) == {"train", "serve", "iris"}
    assert twins(server) == []


def notes(kubernetes: Kubernetes, folder: Path, name: str) -> list[str]:
    (state,) = [each for each in states(kubernetes, folder) if each.meta.arguments["name"] == name]
    return list(state.notes)


def take_lines(found: dict[str, Any]) -> None:
    found["journal"] = []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_task_that_an_administrator_deletes_or_empties_keeps_its_attempts(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], is_deleted: bool
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, 10)
    if is_deleted:
        for name in [
            each["metadata"]["name"] for each in server.kept("SpotTask") if "load" in each["metadata"]["name"]
        ]:
            server.take_away("SpotTask", name)
    else:
        edited(server, "SpotTask", "load", take_lines)
    made = Recording(kubernetes, tmp_path, There.after(10))
    made.play(10)
    made.catch_up()
    assert recorded(kubernetes, tmp_path) == WHOLE
    assert any("deleted from outside" in note for note in notes(kubernetes, tmp_path, "iris"))
    assert twins(server) == []


def garble(found: dict[str, Any]) -> None:
    found["journal"] = [f"garbled {found['journal'][0]}", *found["journal"][1:]]


def mend(found: dict[str, Any]) -> None:
    found["journal"] = [found["journal"][0].removeprefix("garbled "), *found["journal"][1:]]


def test_what_an_administrator_garbles_is_named_and_goes_on_once_it_is_mended(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    made = Recording(kubernetes, tmp_path)
    made.play(0, 7)
    edited(server, "SpotAttempt", "train", garble)
    made = Recording(kubernetes, tmp_path, There.after(7))
    made.play(7, 11)
    assert "SpotAttempt team-a.train" in made.made.recorder.problem
    assert "its journal cannot be read" in made.made.recorder.problem
    assert ended_runs(server) == {"serve"}
    edited(server, "SpotAttempt", "train", mend)
    made.play(11)
    made.catch_up()
    is_whole(server, kubernetes, tmp_path)


# Streams


@in_a_loop
async def test_a_replica_whose_watches_are_cut_at_random_knows_what_is_recorded(tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311
    with recording_server(tmp_path) as (server, kubeconfig), login(kubeconfig) as kubernetes:
        assert server.loop is not None
        async with following(kubeconfig) as histories:
            made = Recording(kubernetes, tmp_path)
            for step in range(STEPS):
                if chance.random() < 0.5:
                    asyncio.run_coroutine_threadsafe(server.cut(chance.choice((b"", b'{"type": "MOD'))), server.loop)
                if chance.random() < 0.3:
                    server.loop.call_soon_threadsafe(server.expire)
                await asyncio.to_thread(made.play, step, step + 1)
            await until(lambda: histories.of(job()).status is not RunStatus.RUNNING)
            assert histories.is_complete


# Two processes


class Frozen:
    """Holds the next write of one kind until :meth:`wake`; all later ones of other processes go through."""

    def __init__(self, server: RecordServer, method: str, kind: str) -> None:
        self._server, self._what, self.is_held = server, (method, f"/{kind.lower()}s"), threading.Event()
        self._free = threading.Event()
        server.hold = self._hold

    async def _hold(self, method: str, path: str) -> None:
        if method == self._what[0] and self._what[1] in path and not self.is_held.is_set():
            self.is_held.set()
            await asyncio.to_thread(self._free.wait, SECONDS)

    def wake(self) -> None:
        """Let it go on."""
        self._free.set()


@pytest.mark.parametrize(("method", "kind"), [("PATCH", "SpotAttempt"), ("POST", "SpotAttempt"), ("PATCH", "SpotRun")])
@pytest.mark.parametrize("step", [3, 7])
def test_a_leader_that_freezes_in_a_write_and_wakes_after_another_has_begun_counts_for_nothing(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], method: str, kind: str, step: int
) -> None:
    server, kubernetes = served
    with login(tmp_path / "kubeconfig") as of_the_frozen_one:
        is_leader = [True]

        def require() -> None:
            if not is_leader[0]:
                raise Fenced("the lease is not held any more")

        frozen = Recording(of_the_frozen_one, tmp_path, require=require)
        frozen.play(0, step)
        held = Frozen(server, method, kind)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(frozen.play, step)
            is_frozen = held.is_held.wait(SECONDS)
            assert is_frozen
            is_leader[0] = False
            other = Recording(kubernetes, tmp_path, There.after(step + 1))
            held.wake()
            with pytest.raises(Fenced):
                late.result(SECONDS)
            other.play(step + 1)
            other.catch_up()
    assert recorded(kubernetes, tmp_path)["train"][-1] == WHOLE["train"][-1]
    is_whole_but_for_ends(server, kubernetes, tmp_path)


def is_whole_but_for_ends(server: RecordServer, kubernetes: Kubernetes, folder: Path) -> None:
    """Every attempt is recorded once; for one whose end was not seen, the record says so."""
    for name, attempts in recorded(kubernetes, folder).items():
        for found, expected in zip(attempts, WHOLE[name], strict=True):
            assert found._replace(cause="") == expected._replace(cause="")
            assert found.cause in (expected.cause, "lost")
    assert ended_runs(server) == {"train", "serve", "iris"}
    assert twins(server) == []


def test_two_releases_one_after_the_other_go_on_with_the_same_records(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, kubernetes = served
    versions = {0: "1.0", 4: "2.0", 8: "1.0"}
    for first, last in zip(versions, [*list(versions)[1:], STEPS], strict=True):
        monkeypatch.setattr(run_store, "__version__", versions[first])
        made = Recording(kubernetes, tmp_path, There.after(first))
        made.play(first, last)
        made.catch_up()
        made.made.close()
    is_whole(server, kubernetes, tmp_path)
    (run,) = [each for each in server.kept("SpotRun") if "train" in each["metadata"]["name"]]
    started = [line for line in run["journal"] if " engine " in line or "started" in line]
    assert [version for line in started for version in ("1.0", "2.0") if f'"{version}"' in line] == [
        "1.0",
        "2.0",
        "1.0",
    ]


def test_an_older_release_leaves_what_it_does_not_know_and_records_all_others(
    tmp_path: Path, served: tuple[RecordServer, Kubernetes]
) -> None:
    server, kubernetes = served
    Recording(kubernetes, tmp_path).play(0, 7)

    def of_a_newer_one(found: dict[str, Any]) -> None:
        head, _, _ = found["journal"][-1].partition("\n")
        numbers, rest = head.split(" ")[:5], head.split(" ")[6:]
        found["journal"][-1] = " ".join([*numbers, "of-tomorrow", *rest]) + "\n{}"

    edited(server, "SpotRun", "train", of_a_newer_one)
    before = [each for each in server.kept("SpotAttempt") if "train" in each["metadata"]["name"]]
    made = Recording(kubernetes, tmp_path, There.after(7))
    made.play(7)
    assert "a newer version of spotwright wrote it" in made.made.recorder.problem
    assert [each for each in server.kept("SpotAttempt") if "train" in each["metadata"]["name"]] == before
    assert ended_runs(server) == {"serve", "iris"}
