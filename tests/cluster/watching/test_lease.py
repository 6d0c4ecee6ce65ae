"""The Lease has one holder at a time, whatever the replicas' wall clocks, and a replica that loses it stops writing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from aiohttp import web
from tests.cluster.watching.small_api_server import SmallApiServer, serving

from spotwright.cluster.api_client import Api
from spotwright.cluster.lease import KubernetesLease, while_held
from spotwright.errors import Fenced

LEASES = "/apis/coordination.k8s.io/v1/namespaces/spotwright/leases"


class Bench:
    """A server and replicas, whose monotonic clocks the test moves."""

    def __init__(self, server: SmallApiServer) -> None:
        self.server = server
        self.clocks: dict[str, float] = {}
        self.clients: list[httpx2.AsyncClient] = []

    def replica(self, name: str, lasts: float = 150.0, renew_within: float = 100.0) -> KubernetesLease:
        self.clocks.setdefault(name, 1000.0 * (len(self.clocks) + 1))  # no two machines count from the same moment
        self.clients.append(httpx2.AsyncClient(base_url=self.server.url))
        api = Api(self.clients[-1])
        times: dict[str, Any] = {"lasts": lasts, "renew_within": renew_within, "retry": 0.05}
        return KubernetesLease(api, "spotwright", "watcher", name, clock=lambda: self.clocks[name], **times)

    def pass_time(self, seconds: float) -> None:
        for name in self.clocks:
            self.clocks[name] += seconds

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects[LEASES]["watcher"]["spec"]
        return found


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with serving() as server:
        made = Bench(server)
        yield made
        for client in made.clients:
            await client.aclose()


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def within() -> None:
        async with bench() as made, asyncio.timeout(60):
            await test(made)

    asyncio.run(within())


def test_the_first_replica_creates_the_lease_and_the_second_waits() -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.replica("first"), bench.replica("second")
        assert await first.acquire() == 1
        assert not await second._try("take")
        assert (first.is_held, second.is_held, second.holder) == (True, False, "first")
        with pytest.raises(Fenced, match=r"spotwright/watcher is not held by second"):
            second.require()

    run(test)


def test_a_lease_that_does_not_change_is_taken_after_its_time_by_the_replicas_own_clock() -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.replica("first"), bench.replica("second")
        await first.acquire()
        assert not await second._try("take")
        bench.pass_time(140.0)
        assert not await second._try("take")
        bench.pass_time(20.0)
        assert not first.is_held  # it had stopped by itself before that
        assert await second._try("take")
        assert (second.epoch, bench.spec["holderIdentity"], bench.spec["leaseTransitions"]) == (2, "second", 2)

    run(test)


@pytest.mark.parametrize("year", [1999, 2077])
def test_wall_clocks_that_are_wrong_give_no_lease_and_take_none(year: int) -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.replica("first"), bench.replica("second")
        await first.acquire()
        for number in range(12):  # ten minutes in which the holder renews, with a wrong wall clock
            assert await first._try("renew")
            stamp = f"{year}-01-01T00:00:{number:02}.000000Z"
            held = bench.server.objects[LEASES]["watcher"]
            bench.server.put(LEASES, "watcher", **{**held, "spec": {**held["spec"], "renewTime": stamp}})
            assert not await second._try("take")
            bench.pass_time(50.0)
        assert first.is_held

    run(test)


def test_a_replica_that_was_frozen_knows_at_once_that_it_may_not_write() -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.replica("first"), bench.replica("second")
        await first.acquire()
        bench.clocks["first"] += 110.0
        with pytest.raises(Fenced):
            first.require()
        await second._try("take")
        bench.pass_time(160.0)
        assert await second._try("take")
        assert not await first._try("renew")
        assert bench.spec["holderIdentity"] == "second"

    run(test)


def test_of_two_that_write_at_once_one_is_the_holder() -> None:
    async def test(bench: Bench) -> None:
        bench.server.put(LEASES, "watcher", spec={"holderIdentity": "", "leaseTransitions": 7})
        replicas = [bench.replica(f"replica-{number}") for number in range(8)]
        won = await asyncio.gather(*(replica._try("take") for replica in replicas))
        assert won.count(True) == 1
        assert bench.spec["leaseTransitions"] == 8
        assert [replica.is_held for replica in replicas] == won

    run(test)


def test_an_answer_that_was_lost_after_the_server_wrote_costs_no_epoch() -> None:
    async def test(bench: Bench) -> None:
        first = bench.replica("first")
        written = {"holderIdentity": "first", "leaseTransitions": 5}
        bench.server.put(LEASES, "watcher", spec=written)
        assert await first.acquire() == 5

    run(test)


def test_a_lease_that_is_given_up_is_taken_at_once_with_the_next_epoch() -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.replica("first"), bench.replica("second")
        await first.acquire()
        assert not await second._try("take")
        await first.give_up()
        assert not first.is_held
        assert await second._try("take")
        assert second.epoch == 2
        await first.give_up()  # what it does not hold it does not touch
        assert bench.spec["holderIdentity"] == "second"

    run(test)


def test_a_holder_whose_lease_was_deleted_stops() -> None:
    async def test(bench: Bench) -> None:
        first = bench.replica("first")
        await first.acquire()
        bench.server.delete(LEASES, "watcher")
        assert not await first._try("renew")
        assert not first.is_held
        assert await first.acquire() == 2  # it never counts backwards by itself

    run(test)


def test_a_failure_of_the_api_is_no_loss_before_the_time_is_over() -> None:
    async def test(bench: Bench) -> None:
        first = bench.replica("first")
        await first.acquire()
        bench.pass_time(50.0)
        bench.server.answers.append(web.json_response({"message": "no"}, status=403))
        assert not await first._try("renew")
        assert first.is_held
        bench.pass_time(55.0)
        assert not first.is_held

    run(test)


def test_work_is_cancelled_when_the_lease_is_lost() -> None:
    async def test(bench: Bench) -> None:
        first = bench.replica("first")
        began, ended = asyncio.Event(), asyncio.Event()

        async def work(epoch: int) -> None:
            assert epoch == 1
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        running = asyncio.ensure_future(while_held(first, work))
        await began.wait()
        held = bench.server.objects[LEASES]["watcher"]
        taken = {**held["spec"], "holderIdentity": "second", "leaseTransitions": 2}
        bench.server.put(LEASES, "watcher", **{**held, "spec": taken})
        with pytest.raises(Fenced, match="was lost to second"):
            await running
        assert ended.is_set()
        assert bench.spec["holderIdentity"] == "second"  # a lease that was lost is not given up

    run(test)


@pytest.mark.parametrize("ending", ["returns", "fails", "is cancelled"])
def test_the_lease_is_given_up_after_the_work_has_ended(ending: str) -> None:
    async def test(bench: Bench) -> None:
        first, began = bench.replica("first"), asyncio.Event()
        holders: list[str] = []

        async def work(_epoch: int) -> None:
            began.set()
            if ending == "is cancelled":
                try:
                    await asyncio.Event().wait()
                finally:
                    holders.append(bench.spec["holderIdentity"])
            holders.append(bench.spec["holderIdentity"])
            if ending == "fails":
                raise ValueError("the work failed")

        running = asyncio.ensure_future(while_held(first, work))
        await began.wait()
        if ending == "is cancelled":
            running.cancel()
        expected = {"returns": None, "fails": ValueError, "is cancelled": asyncio.CancelledError}[ending]
        if expected is None:
            await running
        else:
            with pytest.raises(expected):
                await running
        assert holders == ["first"]
        assert bench.spec["holderIdentity"] == ""

    run(test)


def test_times_that_would_leave_two_holders_are_refused() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(ValueError, match="renew_within < lasts"):
            bench.replica("first", lasts=10.0)

    run(test)


def test_a_lease_that_nobody_has_changed_is_renewed_by_one_request() -> None:
    async def test(bench: Bench) -> None:
        first = bench.replica("first")
        await first.acquire()
        for _ in range(3):
            bench.server.asked.clear()
            assert await first._try("renew")
            assert [line.partition(" ")[0] for line in bench.server.asked] == ["PUT"]
        held = bench.server.objects[LEASES]["watcher"]
        bench.server.put(LEASES, "watcher", **{**held, "metadata": {**held["metadata"], "labels": {"by": "hand"}}})
        bench.server.asked.clear()
        assert await first._try("renew")
        assert [line.partition(" ")[0] for line in bench.server.asked] == ["PUT", "GET", "PUT"]
        assert bench.server.objects[LEASES]["watcher"]["metadata"]["labels"] == {"by": "hand"}

    run(test)
