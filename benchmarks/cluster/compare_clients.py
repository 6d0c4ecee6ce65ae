"""Compares two Kubernetes libraries on what a watcher asks of them: 10,000 pods, and the faults that a watch must survive.

Needs the kubeconfig of a real API server that may be filled with pods, and a Python with ``kubernetes_asyncio`` and
``lightkube``::

    compare_clients.py KUBECONFIG [--pods 10000] [--seconds 30] [--only scale|faults]

No scheduler takes the pods, so they run nowhere; their status is written as a kubelet writes it, so that they have its size.
The decision: docs/design/05-watch-and-fail-open.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import aiohttp
from fault_proxy import Fault, FaultProxy, Upstream
from watch_clients import READERS

NAMESPACE = "compare-clients"
CHANGES_A_SECOND = 20
OWN = ("kubernetes_asyncio, dictionaries", "lightkube, dictionaries")


class Api:
    """The few requests that the comparison makes itself."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._limit = asyncio.Semaphore(32)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._upstream.tls, limit=32)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._upstream.headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, method: str, path: str, body: object = None, *, patch: bool = False) -> Any:
        """Send one request; 404 and 409 are answers like any other."""
        headers = {"Content-Type": "application/merge-patch+json" if patch else "application/json"}
        data = None if body is None else json.dumps(body)
        async with (
            self._limit,
            self._session.request(method, self._upstream.server + path, data=data, headers=headers) as answer,
        ):
            if answer.status not in (404, 409):
                answer.raise_for_status()
            return await answer.json()

    async def fill(self, pods: int) -> None:
        """Create the namespace with so many pods; pods of an earlier comparison are reused."""
        await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        account = {"metadata": {"name": "default"}}
        await self.send("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        began = time.monotonic()
        await asyncio.gather(*(self._create(number) for number in range(pods)))
        print(f"{pods} pods are there after {time.monotonic() - began:.0f} s")

    async def _create(self, number: int) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        answer = await self.send("POST", path, pod(number))
        if answer.get("reason") != "AlreadyExists":
            await self.send("PATCH", f"{path}/{pod(number)['metadata']['name']}/status", STATUS, patch=True)

    async def touch(self, number: int) -> None:
        """Change one pod, and let the change say when it was made."""
        body = {"metadata": {"annotations": {"at": f"{time.time():.6f}"}}}
        await self.send("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/pod-{number}", body, patch=True)

    async def delete(self, number: int) -> None:
        """Delete one pod at once."""
        await self.send("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/pod-{number}?gracePeriodSeconds=0")

    async def touch_for(self, seconds: float, pods: int) -> None:
        """Change pods at the fixed rate."""
        began, number = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            await self.touch(number * 7919 % pods)
            number += 1
            await asyncio.sleep(max(0.0, number / CHANGES_A_SECOND - now))


def pod(number: int) -> dict[str, Any]:
    """A pod as a training job's: environment, volumes, tolerations, affinity."""
    return {
        "metadata": {
            "name": f"pod-{number}",
            "labels": {"batch.kubernetes.io/job-name": f"job-{number // 10}", "app": "train", "team": "a"},
            "annotations": {"spotwright.dev/policy": '{"spot": "prefer", "interruptions": {"max": 5}}'},
        },
        "spec": {
            "schedulerName": "none",
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {
                    "name": "main",
                    "image": "python:3.11",
                    "command": ["python", "-m", "train", "--steps", "1000"],
                    "env": [{"name": f"SETTING_{index}", "value": f"value-{index}"} for index in range(12)],
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                    "volumeMounts": [{"name": "work", "mountPath": "/work"}],
                }
            ],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "tolerations": [{"key": "capacity", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}],
        },
    }


_AT = "2026-11-22T10:00:00Z"
STATUS = {
    "status": {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "startTime": _AT,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _AT}
            for kind in ("PodScheduled", "Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "python:3.11",
                "imageID": "sha256:" + "0" * 64,
                "containerID": "containerd://" + "1" * 64,
                "state": {"running": {"startedAt": _AT}},
            }
        ],
    }
}


class Reader:
    """A process of ``watch_clients.py``."""

    def __init__(self, name: str, kubeconfig: str) -> None:
        self.name, self._kubeconfig = name, kubeconfig

    async def __aenter__(self) -> Self:
        script = Path(__file__).with_name("watch_clients.py")
        self.began = time.time()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, script, self.name, self._kubeconfig, NAMESPACE, stdin=-1, stdout=-1, limit=2**26
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        await self._process.wait()

    async def line(self) -> dict[str, Any]:
        """Its next report."""
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(self._process.stdout.readline(), 60))  # type: ignore[union-attr]
        return answer

    async def ask(self) -> dict[str, Any]:
        """Ask for a report; where its watch has ended, that report."""
        self._process.stdin.write(b"\n")  # type: ignore[union-attr]
        return await self.line()


async def scale(api: Api, kubeconfig: str, pods: int, seconds: float) -> None:
    """Print a row for each reader: time until all pods are known, memory, CPU and lag while pods change."""
    print(
        "\n| reader | until synced | CPU until then | resident (peak) | CPU of a core while pods change | lag p50 | lag p99 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in READERS:
        async with Reader(name, kubeconfig) as reader:
            synced = await reader.line()
            await api.touch_for(1, pods)
            before = await reader.ask()
            await api.touch_for(seconds, pods)
            await asyncio.sleep(0.5)
            after = await reader.ask()
            lags = sorted(1000 * lag for lag in after["lags"])
            share = (after["cpu"] - before["cpu"]) / (after["at"] - before["at"])
            print(
                f"| {name} | {synced['at'] - reader.began:.1f} s | {synced['cpu']:.1f} s | {after['rss']:.0f} MB"
                f" ({after['peak']:.0f} MB) | {100 * share:.1f} % | {statistics.median(lags):.0f} ms"
                f" | {lags[int(len(lags) * 0.99)]:.0f} ms ({len(lags)} changes) |",
                flush=True,
            )


FAULTS: dict[str, Fault | None] = {
    "stream cut (reset)": None,
    "410 as an event, changes meanwhile": Fault(gone=True, times=3),
    "429 twice, Retry-After 2": Fault(status=429, retry_after="2", times=2),
    "500 twice": Fault(status=500, times=2),
    "503 for 5 s": Fault(status=503),
    "silent stream for 20 s, then cut": Fault(silent=True),
}


async def faults(api: Api, upstream: Upstream) -> None:
    """Print a row for each fault and reader: whether it continued, and saw a change and a deletion made meanwhile."""
    print("\n| fault | reader | goes on | sees what changed meanwhile | and what was deleted meanwhile |")
    print("| --- | --- | --- | --- | --- |")
    for number, (title, fault) in enumerate(FAULTS.items()):
        for name in OWN:
            await _one_fault(api, upstream, title, fault, name, number)


async def _one_fault(api: Api, upstream: Upstream, title: str, fault: Fault | None, name: str, number: int) -> None:
    for again in (0, 1, 2):
        await api._create(number * 10 + again)  # noqa: SLF001  # where an earlier fault deleted it
    async with FaultProxy(upstream) as proxy:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(proxy.kubeconfig(), file)
            file.flush()
            async with Reader(name, file.name) as reader:
                await reader.line()
                await asyncio.sleep(0.5)
                proxy.fault = fault
                if fault is not None and fault.silent:
                    await api.touch(number * 10)
                    await asyncio.sleep(20)
                    proxy.fault = None
                proxy.cut()
                await api.touch(number * 10)
                await api.delete(number * 10 + 1)
                await asyncio.sleep(5)
                proxy.fault = None
                await asyncio.sleep(5)
                await api.touch(number * 10 + 2)
                await asyncio.sleep(2)
                seen = await reader.ask()
                goes_on = f"no: {' '.join(seen['error'].split())[:100]}" if "error" in seen else "yes"
                changed = "yes" if len(seen["lags"]) >= 2 else "no"
                deleted = "yes" if seen["deletions"] else "no"
                print(
                    f"| {title} | {name} | {goes_on} | {changed} ({len(proxy.requests)} requests) | {deleted} |",
                    flush=True,
                )


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=["scale", "faults"])
    options = parser.parse_args()
    upstream = Upstream.read(options.kubeconfig)
    async with Api(upstream) as api:
        await api.fill(options.pods)
        if options.only != "faults":
            await scale(api, options.kubeconfig, options.pods, options.seconds)
        if options.only != "scale":
            await faults(api, upstream)


if __name__ == "__main__":
    asyncio.run(_main())
