"""The real controller as separate processes: a hostile tenant cannot end them or fill their memory.

Memory is the growth of the resident set at its highest, which Linux notes for each process and resets on command
(proc_pid_clear_refs(5)), so that the test itself does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cluster.controller.controller_process import Controller, controller_process
from tests.cluster.hostile.cluster_server import ClusterServer
from tests.cluster.hostile.controller_parts import Cost, serve
from tests.cluster.hostile.hostile_tenant import CORPUS, HostileTenant, read_deeds
from tests.cluster.hostile.quiet_tenant import furnish

WEBHOOK = 5_000_000  # bytes an object in the process that answers: one of 1 MB takes up to 4
WATCHER = 7_000_000  # the same in the one that records: a pod that begins a run takes up to 6, whatever its size
REST = 0.3  # seconds without CPU, after which nothing is left to do
WARM = 12  # plays of a history without harm, after which a process has all that it keeps anyway


class Processes:
    """The processes of a controller, as :class:`~tests.cluster.hostile.hostile_tenant.Controller` wants them."""

    def __init__(self, process: Controller, server: ClusterServer, loop: asyncio.AbstractEventLoop) -> None:
        self._process, self._loop, self.server = process, loop, server
        self.webhook_url = process.address("reviews are answered")
        self.reading_url = process.address("logs are read")
        self.metrics_url = process.address("metrics are served").removesuffix(
            "/metrics"
        )  # the recorder's, who began last
        self.context = ssl._create_unverified_context()  # noqa: S323  # the loopback; certificates have tests of their own

    def on_server(self, change: Callable[[], Any]) -> None:
        async def changed() -> None:
            change()

        asyncio.run_coroutine_threadsafe(changed(), self._loop).result(60)

    @contextlib.contextmanager
    def measuring(self, cost: Cost) -> Iterator[None]:
        members = self.members()
        before = {}
        for member in members:
            Path(f"/proc/{member}/clear_refs").write_text("5")
            before[member] = status(member, "VmRSS")
        yield
        self.rest()
        grown = [status(member, "VmHWM") - before[member] for member in members]
        cost.webhook_memory = max(cost.webhook_memory, grown[0])
        cost.watcher_memory = max(cost.watcher_memory, *grown[1:])

    def members(self) -> list[int]:
        """The numbers of the processes, that which answers first."""
        return [self._process.processes[name].pid for name in ("webhook", "recorder")]

    def all_live(self) -> bool:
        return all(each.poll() is None for each in self._process.processes.values())

    def rest(self) -> None:
        """Wait until the processes use no more CPU."""
        limit = time.monotonic() + 60
        before = -1
        while (now := sum(map(ticks, self.members()))) != before:
            assert time.monotonic() < limit, "the processes do not come to rest"
            before = now
            time.sleep(REST)


def status(process: int, field: str) -> int:
    """A field of a process in bytes."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def ticks(process: int) -> int:
    """The CPU that a process has used, in hundredths of a second; two of them are what it uses at rest."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) // 4


@contextlib.asynccontextmanager
async def a_controller(folder: Path) -> AsyncIterator[Processes]:
    server = ClusterServer()
    furnish(server)
    for collection in ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",):
        server.objects[collection] = {}
    runner = await serve(server)
    try:
        async with controller_process(folder, server) as process:
            yield Processes(process, server, asyncio.get_running_loop())
    finally:
        await runner.cleanup()


@pytest.mark.slow
@pytest.mark.long
def test_no_finding_of_the_corpus_ends_a_process_or_costs_more_memory_than_an_object_may(tmp_path: Path) -> None:
    def play(processes: Processes) -> list[str]:
        hostile = HostileTenant(processes, processes.server)
        for _ in range(WARM):
            for _, deed in read_deeds("owners-in-a-circle")[:5]:
                hostile.do(deed)
        dear = []
        for name in CORPUS:
            for _, deed in read_deeds(name):
                cost = hostile.do(deed)
                if cost is not None and (cost.webhook_memory > WEBHOOK or cost.watcher_memory > WATCHER):
                    dear.append(f"{name}: {cost} for {str(deed)[:200]}")
            assert processes.all_live(), f"a process has ended: {name}"
        health = httpx2.get(f"{processes.webhook_url}/healthz", verify=processes.context, timeout=30)
        assert health.text == "ok"
        return dear

    async def scenario() -> list[str]:
        async with a_controller(tmp_path) as processes:
            return await asyncio.to_thread(play, processes)

    assert not asyncio.run(scenario())
