"""Measures the watcher at size: memory, CPU at 20 changes a second, and the time from a pod's end to its cause in the journal.

Needs the kubeconfig of a real API server, on which nothing else touches the nodes and pods made here: no controller manager and
no scheduler (on the test bed both can be stopped meanwhile). Pods are bound and their status is written as a kubelet does it::

    watch_many_pods.py KUBECONFIG [--pods 10000] [--nodes 500] [--jobs 1000] [--seconds 60] [--keep] [--first 0]

Of the 20 changes a second, two are ends of pods and one a heartbeat of a node; the others change running pods. With
``--keep`` what was made stays, for a second measurement, in which other pods end: ``--first 1`` begins with the second pod of
each Job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compare_clients import Api
from fault_proxy import Upstream

NAMESPACE = "watch-many-pods"
CHANGES, ENDS, HEARTBEATS = 20, 2, 1  # a second
PODS, JOBS = f"/api/v1/namespaces/{NAMESPACE}/pods", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
TICKS = os.sysconf("SC_CLK_TCK")


def moment() -> str:
    """Now, as the API writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_node(number: int) -> dict[str, Any]:
    """A spot node of AKS."""
    labels = {"kubernetes.azure.com/agentpool": "spot", "kubernetes.azure.com/scalesetpriority": "spot"}
    return {"metadata": {"name": f"many-{number}", "labels": labels}}


def a_job(number: int, pods: int) -> dict[str, Any]:
    """An indexed Job of several pods."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "template": template}
    return {"metadata": {"name": f"job-{number}"}, "spec": spec}


def a_pod(job: dict[str, Any], index: int, node: str) -> dict[str, Any]:
    """A pod of a Job on its node, with as much in it as real ones have."""
    meta = job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    variables = [{"name": f"VARIABLE_{number}", "value": "x" * 80} for number in range(12)]
    container = {"name": "main", "image": "none", "env": variables, "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {
            "name": f"{meta['name']}-{index}",
            "ownerReferences": [owner],
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
    }


def a_status(phase: str, state: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod whose container is in this state."""
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"type": name, "status": "True", "lastTransitionTime": moment()} for name in names]
    container = {
        "name": "main",
        "restartCount": 0,
        "ready": False,
        "image": "none",
        "imageID": "sha256:" + "0" * 64,
        "state": state,
        "lastState": {},
    }
    return {"status": {"phase": phase, "conditions": conditions, "containerStatuses": [container]}}


class Cluster:
    """Nodes, Jobs and pods on the API server."""

    def __init__(self, api: Api, pods: int, nodes: int, jobs: int) -> None:
        self._api, self._pods, self._nodes, self._jobs = api, pods, nodes, jobs
        self.each = pods // jobs

    async def fill(self) -> None:
        """Create what is missing."""
        labels = {"spotwright.dev/enabled": "true"}
        await self._api.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        account = {"metadata": {"name": "default"}}
        await self._api.send("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        await together(self._api.send("POST", "/api/v1/nodes", a_node(n)) for n in range(self._nodes))
        await together(self.heartbeat(number) for number in range(self._nodes))
        await together(self._fill_job(number) for number in range(self._jobs))

    async def _fill_job(self, number: int) -> None:
        await self._api.send("POST", JOBS, a_job(number, self.each))
        job = await self._api.send("GET", f"{JOBS}/job-{number}")
        for index in range(self.each):
            node = f"many-{(number * self.each + index) % self._nodes}"
            made = await self._api.send("POST", PODS, a_pod(job, index, node))
            if made.get("reason") == "AlreadyExists":
                continue
            running = a_status("Running", {"running": {"startedAt": moment()}})
            await self._api.send("PATCH", f"{PODS}/job-{number}-{index}/status", running, patch=True)

    async def heartbeat(self, number: int) -> None:
        """Write a node's status as a kubelet does that is well."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": moment()}
        body = {"status": {"conditions": [ready]}}
        await self._api.send("PATCH", f"/api/v1/nodes/many-{number}/status", body, patch=True)

    async def touch(self, job: int, index: int) -> None:
        """Change a running pod."""
        body = {"metadata": {"annotations": {"touched": moment() + str(random.random())}}}  # noqa: S311
        await self._api.send("PATCH", f"{PODS}/job-{job}-{index}", body, patch=True)

    async def end(self, job: int, index: int) -> None:
        """Let a pod fail."""
        state = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": moment(), "finishedAt": moment()}}
        await self._api.send("PATCH", f"{PODS}/job-{job}-{index}/status", a_status("Failed", state), patch=True)

    async def remove(self) -> None:
        """Delete everything again."""
        await self._api.send("DELETE", PODS, {"gracePeriodSeconds": 0})
        await self._api.send("DELETE", JOBS, {"propagationPolicy": "Orphan"})
        await together(self._api.send("DELETE", f"/api/v1/nodes/many-{n}") for n in range(self._nodes))
        await self._api.send("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


async def together(requests: Iterable[Awaitable[Any]]) -> None:
    """Do all of these; the client limits how many at once."""
    await asyncio.gather(*requests)


class WatcherProcess:
    """The watcher as a separate process, and its cost."""

    def __init__(self, kubeconfig: str, folder: Path) -> None:
        self._state, self._log = folder / "state", folder / "log"
        command = [sys.executable, "-m", "tests.cluster.watching.watching_main", "--state", str(self._state)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--kubeconfig", kubeconfig, "-n", NAMESPACE], stderr=log, stdout=log
            )

    async def recorded(self, runs: int) -> None:
        """Wait until every run has an event of each of its pods and the watcher rests."""
        while len(list((self._state / "runs").glob("*/journal.db"))) < runs:
            self.check()
            await asyncio.sleep(0.5)
        used = -1.0
        while self.cpu() - used > 0.1:
            used = self.cpu()
            await asyncio.sleep(2.0)

    def check(self) -> None:
        """Fail with the log of a watcher that has ended."""
        if self._process.poll() is not None:
            raise SystemExit(self._log.read_text(encoding="utf-8"))

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> tuple[float, float]:
        """Resident memory and its peak in MB."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines()
        values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return int(values["VmRSS"]) / 1024, int(values["VmHWM"]) / 1024

    async def cause(self, job: int, index: int) -> None:
        """Wait until the cause of a pod's end is in the journal."""
        (folder,) = (self._state / "runs").glob(f"{NAMESPACE}.job-{job}-*")
        query = "SELECT count(*) FROM events WHERE kind = 'decided' AND task = ?"
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'journal.db'}?mode=ro", uri=True)) as journal:
            while journal.execute(query, (f"job-{job}-{index}",)).fetchone()[0] == 0:
                self.check()
                await asyncio.sleep(0.02)

    def end(self) -> None:
        """Let it end as the kubelet does."""
        self._process.terminate()
        self._process.wait()


async def measure(cluster: Cluster, watcher: WatcherProcess, arguments: argparse.Namespace) -> list[float]:
    """Make changes for a while; the seconds from each pod's end to its cause."""
    lags: list[float] = []
    waiting: set[asyncio.Task[None]] = set()
    ends = targets(arguments.jobs, cluster.each, arguments.first)

    async def end(job: int, index: int) -> None:
        await cluster.end(job, index)
        began = time.monotonic()
        await watcher.cause(job, index)
        lags.append(time.monotonic() - began)

    for second in range(arguments.seconds):
        began = time.monotonic()
        jobs = [
            *(end(*next(ends)) for _ in range(ENDS)),
            *(cluster.heartbeat((second + n) % arguments.nodes) for n in range(HEARTBEATS)),
            *(
                cluster.touch(random.randrange(arguments.jobs // 2), random.randrange(cluster.each))  # noqa: S311
                for _ in range(CHANGES - ENDS - HEARTBEATS)
            ),
        ]
        for job in jobs:
            task = asyncio.create_task(job)
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(max(0.0, 1.0 / CHANGES - (time.monotonic() - began) / CHANGES))
        await asyncio.sleep(max(0.0, began + 1.0 - time.monotonic()))
    await asyncio.gather(*waiting)
    return sorted(lags)


def targets(jobs: int, each: int, first: int) -> Iterator[tuple[int, int]]:
    """Pods of the second half of the Jobs, one after the other, those of the index ``first`` first."""
    for index in range(first, each):
        yield from ((job, index) for job in range(jobs // 2, jobs))


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig")
    for name, default in (("pods", 10_000), ("nodes", 500), ("jobs", 1000), ("seconds", 60), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    async with Api(Upstream.read(arguments.kubeconfig)) as api:
        cluster = Cluster(api, arguments.pods, arguments.nodes, arguments.jobs)
        await cluster.fill()
        print(f"filled; load {os.getloadavg()[0]:.0f}", flush=True)
        with tempfile.TemporaryDirectory() as name:
            watcher = WatcherProcess(arguments.kubeconfig, Path(name))
            try:
                began = time.monotonic()
                await watcher.recorded(arguments.jobs)
                synced, used = time.monotonic() - began, watcher.cpu()
                print(f"recorded after {synced:.0f} s, {used:.1f} s of CPU, {watcher.memory()[0]:.0f} MB", flush=True)
                began = time.monotonic()
                lags = await measure(cluster, watcher, arguments)
                share = (watcher.cpu() - used) / (time.monotonic() - began)
                resident, peak = watcher.memory()
                print(f"{share:.1%} of a core, {resident:.0f} MB (peak {peak:.0f} MB)")
                print(f"from a pod's end to its cause, {len(lags)} ends: p50 {statistics.median(lags):.2f} s,", end=" ")
                print(
                    f"p99 {lags[int(len(lags) * 0.99)]:.2f} s, longest {lags[-1]:.2f} s; load {os.getloadavg()[0]:.0f}"
                )
            finally:
                watcher.end()
        if not arguments.keep:
            await cluster.remove()


if __name__ == "__main__":
    asyncio.run(_main())
