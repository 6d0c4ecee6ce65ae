"""A recorder whose watches are cut again and again, inside of lines and with a history that is gone, records each end once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.admission_objects import a_config
from tests.cluster.controller.controller_process import JOBS, NODES, PODS, a_cluster, kubeconfig
from tests.cluster.controller.processes import MAPS, POLICY, recording, until
from tests.cluster.records.bad_days import WHOLE, Change, ended_runs, history, recorded, twins
from tests.cluster.records.record_server import RecordServer, login
from tests.cluster.watching.small_api_server import serving
from tests.sampling import every

WORKFLOWS = "/apis/argoproj.io/v1alpha1/workflows"
COLLECTIONS = {"Node": NODES, "Job": JOBS, "Pod": PODS, "Workflow": WORKFLOWS}
STEP = 0.4  # seconds between two steps of the history


class Cuts:
    """Cuts all watches at moments that follow from a seed, each in one of the ways in which connections end."""

    def __init__(self, server: RecordServer, seed: int) -> None:
        self._server, self._chance, self.count = server, random.Random(seed), 0  # noqa: S311

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.02, 0.5))
            how = self._chance.random()
            if how < 0.2:  # what happened until now is not told again: everything is listed anew
                self._server.expire()
            await self._server.cut(b'{"type": "MODIFIED", "obj' if how > 0.7 else b"")
            self.count += 1


def change(server: RecordServer, changes: Sequence[Change]) -> None:
    """One step of the history, in the cluster."""
    for what, kind, data in changes:
        meta = data["metadata"]
        if what == "put":
            server.put(COLLECTIONS[kind], meta["name"], uid=meta["uid"], **data)
        else:
            server.delete(COLLECTIONS[kind], meta["name"])


def running(changes: Sequence[Change]) -> set[str]:
    """The pods that begin to run: a pod that came and went while all watches were cut cannot be known."""
    return {
        str(data["metadata"]["name"])
        for what, kind, data in changes
        if kind == "Pod" and what == "put" and is_running(data)
    }


def is_running(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] == "Running"


def attempts(server: RecordServer) -> set[str]:
    return {str(each["status"].get("pod")) for each in server.kept("SpotAttempt")}


@pytest.mark.parametrize("seed", every(2, range(8)))
def test_nothing_is_lost_and_nothing_recorded_twice(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spotwright")

    async def test() -> None:
        async with serving(RecordServer) as server:
            a_cluster(server, POLICY)
            server.served["/apis/argoproj.io/v1alpha1"] = ["workflows"]
            server.objects[WORKFLOWS] = {}
            server.put("/api/v1/namespaces", "team-b", metadata={"labels": {"spotwright.dev/enabled": "true"}})
            meta, text = {"namespace": "team-b"}, {"spotwright.yaml": a_config(POLICY).text}
            server.put(MAPS, "spotwright-b", data=text, kind="ConfigMap", metadata=meta)
            cuts = Cuts(server, seed)
            async with recording(server, tmp_path):
                await until(lambda: "all streams are complete" in caplog.text)
                cutting = asyncio.create_task(cuts.run())
                for changes in history():
                    change(server, changes)
                    await asyncio.sleep(STEP)
                    await until(lambda changes=changes: running(changes) <= attempts(server))  # type: ignore[misc]
                try:
                    await until(lambda: ended_runs(server) == {"train", "serve", "iris"})
                finally:
                    cutting.cancel()
                    with suppress(asyncio.CancelledError):
                        await cutting
                    assert cuts.count > 5
                with login(kubeconfig(tmp_path, server)) as kubernetes:
                    assert await asyncio.to_thread(recorded, kubernetes, tmp_path) == WHOLE
                assert twins(server) == []

    asyncio.run(test())
