"""Measures what admission adds to creating a pod on a real cluster.

It is the line *latency* of ``make bench-cluster``. By itself it needs a test bed that is up (``make cluster``), and runs the real
``spotwright controller`` beside it::

    python -m benchmarks.cluster.webhook_latency [--rate 50] [--seconds 20] [--nice -15]

Pods of two namespaces are created in turns of two seconds, at the same rate: in one the webhook makes them precise, in the other
nobody asks it. They are pods of an indexed Job that Kubernetes' own controller leaves to us, and nobody schedules them, so that
nothing but their creation costs anything. ``--nice`` sets the priority of the API server, etcd, the controller and this process,
so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from benchmarks.results import Judged, Row, as_text
from testbed.building.images import BUSYBOX
from testbed.control.api import Api
from testbed.machine.processes import Processes
from testbed.settings import Settings
from tests.cluster.live.kube import Kube
from tests.cluster.live.replicas import Controllers, configure, controllers

CONFIG = """\
version: 1
target: {kubernetes: "1.35"}
pools:
  spot: {capacity: spot, provider: aks}
  system: {capacity: on-demand, provider: aks}
policy: {default: {spot: prefer, interruptions: {max: 8}, fall_back_after: 4}}
"""
LIMITS = (10.0, 40.0)  # milliseconds that admission may add: p50, p99
TURN = 2.0  # seconds in which pods of one namespace are created
CONNECTIONS = 64
Times = dict[str, list[float]]


def a_job(pods: int) -> dict[str, Any]:
    """An indexed Job whose pods only this script creates, and which are not scheduled."""
    env = [{"name": f"S_{number}", "value": "v"} for number in range(20)]
    container = {"name": "main", "image": BUSYBOX, "command": ["true"], "env": env}
    template = {"spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [container]}}
    spec = {
        "managedBy": "testbed.spotwright.dev/benchmark",
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "many"}, "spec": spec}


def pods_of(job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods of a Job as its controller makes them, one for each index."""
    template, named = job["spec"]["template"], {key: job["metadata"][key] for key in ("name", "uid")}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, **named}
    given = template["metadata"].get("annotations") or {}
    for index in range(job["spec"]["completions"]):
        annotations = {**given, "batch.kubernetes.io/job-completion-index": str(index)}
        metadata = {**template["metadata"], "generateName": f"many-{index}-", "ownerReferences": [owner]}
        metadata["annotations"] = annotations
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


class Client:
    """Creates pods over connections that stay open. ``unplaced`` counts those of ``with`` that have no number of an attempt."""

    def __init__(self, session: aiohttp.ClientSession, namespaces: Mapping[str, str]) -> None:
        self._session, self._namespaces = session, namespaces
        self.times: Times = {name: [] for name in namespaces}
        self.unplaced = 0

    async def create(self, name: str, pod: Mapping[str, Any]) -> None:
        """Create a pod in a namespace, and note how long it took, in seconds."""
        started = time.perf_counter()
        path = f"/api/v1/namespaces/{self._namespaces[name]}/pods"
        async with self._session.post(path, json=pod) as answer:
            text = await answer.text()
            if answer.status != 201:
                raise RuntimeError(text)
        self.times[name].append(time.perf_counter() - started)
        self.unplaced += name == "with" and "SPOTWRIGHT_ATTEMPT" not in text


async def at_rate(client: Client, name: str, pods: Iterator[dict[str, Any]], rate: float) -> None:
    """Create pods at a rate for one turn, each when it is due, however long the others take."""
    begin, tasks = time.perf_counter(), []
    for number in range(int(TURN * rate)):
        await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(client.create(name, next(pods))))
    await asyncio.gather(*tasks)


async def latency(
    settings: Settings, kube: Kube, arguments: argparse.Namespace, namespaces: Mapping[str, str]
) -> Times:
    """Create pods at the rate in turns, and return how long each took. Each namespace has a separate Job."""
    count = int(arguments.rate * (arguments.seconds + 2 * TURN))
    for namespace in namespaces.values():
        kube.run("create", "-n", namespace, "-f", "-", text=yaml.safe_dump(a_job(count)))
    config = yaml.safe_load(settings.kubeconfig.read_text(encoding="utf-8"))
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(cluster["server"], connector=connector, headers=headers) as session:
        client = Client(session, namespaces)
        jobs = {name: kube.get("job", "many", namespace) or {} for name, namespace in namespaces.items()}
        jobs["without"] = {**jobs["without"], "spec": jobs["with"]["spec"]}  # the same pods, which nobody makes precise
        pods = {name: pods_of(job) for name, job in jobs.items()}
        for name in namespaces:  # connections and caches
            await at_rate(client, name, pods[name], arguments.rate)
        client.times = {name: [] for name in namespaces}
        for _ in range(int(arguments.seconds / TURN)):
            for name in namespaces:
                await at_rate(client, name, pods[name], arguments.rate)
        if client.unplaced * 100 > len(client.times["with"]):  # else the figures are those of reviews that failed
            raise RuntimeError(f"{client.unplaced} of {len(client.times['with'])} pods were not made precise")
        return client.times


def rows(times: Times, rate: float) -> list[Row]:
    """The latency that admission adds, compared with creation without it."""
    pairs = [(mine, plain) for mine, plain in zip(quantiles(times["with"]), quantiles(times["without"]), strict=True)]
    what = f"a pod is created at {rate:g} a second"
    return [
        Row("latency", f"{what}, {name}", [mine], "ms", Judged.DIFFERENCE, limit, "without us", [plain])
        for name, limit, (mine, plain) in zip(("p50", "p99"), LIMITS, pairs, strict=True)
    ]


def quantiles(times: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in milliseconds."""
    return statistics.median(times) * 1000, statistics.quantiles(times, n=100)[98] * 1000


def prefer(settings: Settings, made: Controllers, nice: int) -> None:
    """Set the priority of all parts: of threads, and of their sessions where Linux groups these (sched(7))."""
    processes = Processes(settings)
    found = [os.getpid(), *(process.pid for process in made.processes.values())]
    found += [pid for name in ("apiserver", "etcd") if (pid := processes.pid(name)) is not None]
    for pid in found:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text(str(nice), encoding="ascii")


def main() -> None:
    """Measure on the test bed that is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--nice", type=int, default=0)
    arguments = parser.parse_args()
    settings = Settings.from_environment()
    kube = Kube(Api(settings).kubectl_path, settings.kubeconfig, BUSYBOX)
    namespaces = {name: f"webhook-{name}-{os.getpid()}" for name in ("with", "without")}
    with tempfile.TemporaryDirectory() as folder, controllers(settings, kube, Path(folder)) as made:
        prefer(settings, made, arguments.nice)
        try:
            for namespace in namespaces.values():
                kube.run("create", "namespace", namespace)
            configure(kube, namespaces["with"], CONFIG)
            time.sleep(1)  # until the ConfigMap is read
            times = asyncio.run(latency(settings, kube, arguments, namespaces))
            for row in rows(times, arguments.rate):
                print(f"{as_text(row)}  load {os.getloadavg()[0]:.1f}")
        finally:
            prefer(settings, made, 0)
            for namespace in namespaces.values():
                kube.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


if __name__ == "__main__":
    main()
