"""10,000 running pods: the controller's memory and processor time at 20 changes a second, and how soon an end has its cause.

The pods are made by Kubernetes' own Job controller, admitted by the webhook, bound by the scheduler and run by KWOK, so the
records hold all of them before anything is measured. Then, for a minute, pods change 20 times a second. Two of these changes
are ends: a pod's status is written as a kubelet writes it, and what follows from it (the Job makes a successor, which is
admitted, bound and run) comes on top. From the moment before an end is written it is timed until its cause is in its SpotAttempt,
and for some of them until ``spotwright show`` prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cluster.requests import Object, Requests, until
from benchmarks.results import Judged, Row
from tests.cluster.live.replicas import Controllers

from spotwright.cluster.run_objects import ATTEMPT, Home, object_name, records_path
from spotwright.cluster.run_records import run_name

__all__ = ["size"]

CHANGES, ENDS = 20, 2  # a second
AHEAD = 500  # pods that are made before the ones before them run: more would only queue up in a busy API server
SHOWN_EVERY = 10  # of so many ends one is looked for with `show`
_PATIENCE = 3600.0  # seconds until everything runs
_LOOK = 0.1  # seconds between two looks at an attempt
_QUIET = 0.1  # of a core: below it the controller has caught up
_TICKS = os.sysconf("SC_CLK_TCK")


def a_job(number: int, pods: int) -> Object:
    """An indexed Job of pods that run until they are ended."""
    variables = [{"name": f"VARIABLE_{each}", "value": "x" * 80} for each in range(12)]
    container = {"name": "main", "image": "none", "env": variables, "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"job-{number}"}, "spec": spec}


async def size(requests: Requests, made: Controllers, namespace: str, arguments: argparse.Namespace) -> list[Row]:
    """Fill the cluster, let the controller settle, change pods for a while, and return the cost."""
    cost = Cost(made.pids(0))
    begun = time.perf_counter()
    jobs, each = arguments.jobs, arguments.pods // arguments.jobs
    for number in range(jobs):
        await requests.send("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", a_job(number, each))
        await _recorded(requests, namespace, (number + 1) * each - AHEAD)
    await _recorded(requests, namespace, arguments.pods)

    async def running() -> list[Object] | None:
        pods = await requests.all(f"/api/v1/namespaces/{namespace}/pods")
        return pods if all(pod["status"].get("phase") == "Running" for pod in pods) else None

    pods = await until(running, "all pods run", _PATIENCE, every=10.0)
    filled = time.perf_counter() - begun
    await _rests(cost)
    print(
        f"{arguments.pods} pods run and are recorded after {filled:.0f} s; {cost.seconds():.0f} s of processor time, "
        f"{cost.memory()[0]:.0f} MB (peak {cost.memory()[1]:.0f} MB); load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    changing = Changing(requests, made.kube.kubeconfig, namespace, pods)
    used, began = cost.seconds(), time.monotonic()
    await changing.run(arguments.seconds)
    share = (cost.seconds() - used) / (time.monotonic() - began) * 100
    await changing.finish()
    resident, peak = cost.memory()
    print(
        f"{changing.changes} changes, {len(changing.caused)} of them ends, in {arguments.seconds} s; the API server took "
        f"{_quantile(changing.written, 0.5):.2f} s (p50) and {max(changing.written):.2f} s (longest) to write an end",
        flush=True,
    )
    what = f"{arguments.pods:,} pods on {arguments.nodes} nodes"
    return [
        Row("size", f"{what}: the controller's memory", [resident], "MB", Judged.VALUE, 400.0),
        Row("size", f"{what}: its highest memory so far", [peak], "MB"),
        Row("size", f"{what}: processor at {CHANGES} changes a second, of a core", [share], "%", Judged.VALUE, 30.0),
        Row(
            "size", f"{what}: from an end to its cause in its SpotAttempt, p50", [_quantile(changing.caused, 0.5)], "s"
        ),
        Row("size", f"{what}: the same, the longest", [max(changing.caused)], "s", Judged.VALUE, 2.0),
        Row("size", f"{what}: from an end to its cause in `show`, p50", [_quantile(changing.shown, 0.5)], "s"),
        Row("size", f"{what}: the same, the longest", [max(changing.shown)], "s", Judged.VALUE, 2.0),
    ]


async def _recorded(requests: Requests, namespace: str, count: int) -> None:
    """Wait until so many pods have a node in the records."""
    while True:
        attempts = await requests.all(records_path(ATTEMPT, namespace))
        bound = sum("startedAt" in (each.get("status") or {}) for each in attempts)
        if bound >= count:
            return
        print(f"  {bound} are recorded; load {os.getloadavg()[0]:.1f}", flush=True)
        await asyncio.sleep(10.0)


async def _rests(cost: Cost) -> None:
    """Wait until the controller is idle."""

    async def is_quiet() -> bool:
        before = cost.seconds()
        await asyncio.sleep(3.0)
        return cost.seconds() - before < 3.0 * _QUIET

    await until(is_quiet, "the controller rests", _PATIENCE)


class Cost:
    """What processes cost together: proc(5)."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._folders = [Path(f"/proc/{pid}") for pid in pids]

    def seconds(self) -> float:
        """Seconds of processor time so far, of all threads."""
        texts = [(folder / "stat").read_text(encoding="ascii") for folder in self._folders]
        fields = [text.rpartition(")")[2].split() for text in texts]
        return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS

    def memory(self) -> tuple[float, float]:
        """Resident memory now and at its highest, in MB of 1,000,000 bytes."""
        return self._sum("VmRSS"), self._sum("VmHWM")

    def _sum(self, field: str) -> float:
        texts = [(folder / "status").read_text(encoding="ascii") for folder in self._folders]
        lines = [line for text in texts for line in text.splitlines() if line.startswith(f"{field}:")]
        return sum(int(line.split()[1]) for line in lines) * 1024 / 1e6


class Changing:
    """Changes running pods, and times how soon their ends are known."""

    def __init__(self, requests: Requests, kubeconfig: Path, namespace: str, pods: list[Object]) -> None:
        self._requests, self._kubeconfig, self._namespace = requests, kubeconfig, namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        random.Random(1).shuffle(pods)  # noqa: S311  # the same pods each time
        half = len(pods) // 2
        self._touched, self._ended = pods[:half], iter(pods[half:])
        self._waiting: set[asyncio.Task[None]] = set()
        self.changes = 0
        self.written: list[float] = []
        self.caused: list[float] = []
        self.shown: list[float] = []

    async def run(self, seconds: int) -> None:
        """Change pods at the rate, each when it is due, however long the others take."""
        begun = time.monotonic()
        for number in range(seconds * CHANGES):
            await asyncio.sleep(max(0.0, begun + number / CHANGES - time.monotonic()))
            is_end = number % (CHANGES // ENDS) == 0
            work = self._end(number // (CHANGES // ENDS)) if is_end else self._touch()
            task = asyncio.create_task(work)
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            self.changes += 1
        await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))

    async def finish(self) -> None:
        """Wait for started changes; raise their failures."""
        await asyncio.gather(*self._waiting)

    async def _touch(self) -> None:
        name = random.choice(self._touched)["metadata"]["name"]  # noqa: S311  # which pod does not matter
        body = {"metadata": {"annotations": {"touched": str(time.time())}}}
        await self._requests.send("PATCH", f"{self._path}/{name}", body)

    async def _end(self, number: int) -> None:
        """Let a pod fail, and wait for its cause."""
        pod = next(self._ended)
        name, begun = pod["metadata"]["name"], time.monotonic()
        await self._requests.send("PATCH", f"{self._path}/{name}/status", _failed(pod))
        self.written.append(time.monotonic() - begun)
        task = name.rpartition("-")[0]
        run = _run_of(pod, self._namespace)
        path = records_path(ATTEMPT, self._namespace, object_name(run, Home(task, 1)))
        while "cause" not in ((await self._requests.send("GET", path)).get("status") or {}):
            await asyncio.sleep(_LOOK)
            if time.monotonic() - begun > 60.0:
                raise RuntimeError(f"{task} of {run} has no cause after a minute")
        self.caused.append(time.monotonic() - begun)
        if number % SHOWN_EVERY == 0:
            await self._show(run, task)
            self.shown.append(time.monotonic() - begun)

    async def _show(self, run: str, task: str) -> None:
        """Print the run as a person does, and find the cause."""
        command = ["-m", "spotwright", "show", run, "--cluster", "--kubeconfig", str(self._kubeconfig), "--json"]
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        text, _ = await process.communicate()
        if b'"code-error"' not in text and b'"cause"' not in text:
            raise RuntimeError(f"show {run} says no cause of {task}")


def _run_of(pod: Object, namespace: str) -> str:
    """The name of the run of a pod of a Job."""
    owner = pod["metadata"]["ownerReferences"][0]
    return run_name({"metadata": {"namespace": namespace, "name": owner["name"], "uid": owner["uid"]}})


def _failed(pod: Object) -> Object:
    """The status of a pod whose code exited with 1, as its kubelet writes it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    container = pod["status"]["containerStatuses"][0]
    started = container["state"]["running"]["startedAt"]
    state = {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": started, "finishedAt": now}}
    ended = {**container, "ready": False, "started": False, "state": state}
    conditions = [
        {**each, "status": "False", "reason": "PodFailed", "lastTransitionTime": now}
        if each["type"] in ("Ready", "ContainersReady")
        else each
        for each in pod["status"]["conditions"]
    ]
    return {"status": {"phase": "Failed", "conditions": conditions, "containerStatuses": [ended]}}


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]
