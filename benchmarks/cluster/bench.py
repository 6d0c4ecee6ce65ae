"""``make bench-cluster``: the controller at size, on a real control plane whose nodes KWOK pretends.

The exit code is 1 if a target is missed.

::

    python -m benchmarks.cluster.bench [--only at-once|size|latency] [--pods 10000] [--nodes 500] [--seconds 60] [--json FILE]

It brings up a test bed of its own, ``TESTBED_NAME`` or *figures*, with etcd, API server, scheduler, controller manager and
KWOK, and runs the real ``spotwright controller`` beside it. One that is up already is used, and stays. What other work the
machine does counts: each line is printed with the load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster.at_once import at_once
from benchmarks.cluster.requests import connected
from benchmarks.cluster.size import size
from benchmarks.cluster.webhook_latency import latency, rows
from benchmarks.results import Row, as_text
from testbed.building.images import BUSYBOX
from testbed.cluster import bring_down, bring_up, build
from testbed.control.api import Api
from testbed.settings import Settings
from tests.cluster.live.kube import Kube
from tests.cluster.live.replicas import Controllers, configure, controllers

CONFIG = """\
version: 1
target: {kubernetes: "1.35"}
pools:
  spot: {capacity: spot, provider: aks, price: 0.10/h}
  system: {capacity: on-demand, provider: aks, price: 0.40/h}
policy: {default: {spot: prefer, interruptions: {max: 8}, errors: {retries: 3}, fall_back_after: 4}}
"""
_REMOVED = 300.0  # seconds
LINES = ("latency", "at-once", "size")


def main() -> int:
    """Measure what was asked for. Exit code 1 when a target is missed."""
    arguments = _arguments()
    settings = _settings(arguments.nodes)
    found: list[Row] = []
    with _bed(settings):
        kube = Kube(Api(settings).kubectl_path, settings.kubeconfig, BUSYBOX)
        for line in arguments.only or LINES:
            for row in _measure(line, settings, kube, arguments):
                found.append(row)
                print(f"{as_text(row)}  load {os.getloadavg()[0]:.1f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([row.as_json() for row in found], indent=1), encoding="utf-8")
    missed = sum(not row.passed for row in found)
    print(f"{missed} of {len(found)} lines missed their target" if missed else "every target was reached")
    return 1 if missed else 0


def _measure(line: str, settings: Settings, kube: Kube, arguments: argparse.Namespace) -> list[Row]:
    """The rows of one line, with a separate controller and namespace."""
    namespace = f"bench-{line}-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, controllers(settings, kube, Path(folder), options=()) as made:
        kube.run("create", "namespace", namespace)
        try:
            configure(kube, namespace, CONFIG)
            if line == "latency":
                return _latency(settings, kube, namespace, arguments)
            return asyncio.run(_line(line, settings, made, namespace, arguments))
        except BaseException:
            print(made.log(0)[-4000:], file=sys.stderr)
            raise
        finally:
            _remove(kube, namespace)


def _latency(settings: Settings, kube: Kube, namespace: str, arguments: argparse.Namespace) -> list[Row]:
    """Creation with admission, and without it in a second namespace."""
    plain = f"{namespace}-plain"
    kube.run("create", "namespace", plain)
    try:
        time.sleep(1.0)  # until the ConfigMap is read
        times = asyncio.run(latency(settings, kube, arguments, {"with": namespace, "without": plain}))
        return rows(times, arguments.rate)
    finally:
        _remove(kube, plain)


def _remove(kube: Kube, namespace: str) -> None:
    """Delete a namespace, and wait until its pods are gone: the next line begins without them."""
    kube.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
    ends = time.monotonic() + _REMOVED
    while json.loads(kube.run("get", "--raw", f"/api/v1/namespaces/{namespace}/pods?limit=1"))["items"]:
        if time.monotonic() > ends:
            print(f"pods of {namespace} are left: what is measured next has them beside it", file=sys.stderr)
            return
        time.sleep(2.0)


async def _line(
    line: str, settings: Settings, made: Controllers, namespace: str, arguments: argparse.Namespace
) -> list[Row]:
    await asyncio.sleep(1.0)  # until the ConfigMap and the label are read
    async with connected(settings) as requests:
        if line == "at-once":
            return await at_once(requests, made, namespace, arguments.burst)
        return await size(requests, made, namespace, arguments)


@contextmanager
def _bed(settings: Settings) -> Iterator[None]:
    """A running test bed; one that was started here is taken down."""
    if settings.kubeconfig.exists() and Api(settings).ready():
        yield
        return
    build(settings, print)
    try:
        bring_up(settings, print)
        yield
    finally:
        bring_down(settings)


def _settings(nodes: int) -> Settings:
    own = {"NAME": "figures", "PORT": "16643", "NODES": "0", "CONTROLLERS": "kwok", "PRETENDED": str(nodes)}
    return Settings.from_environment({**{f"TESTBED_{name}": value for name, value in own.items()}, **os.environ})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=LINES, action="append", help="measure this line (may be given again)")
    parser.add_argument("--burst", type=int, default=1000, help="pods that are created at once")
    parser.add_argument("--pods", type=int, default=10_000, help="running pods")
    parser.add_argument("--nodes", type=int, default=500, help="nodes that KWOK pretends")
    parser.add_argument("--jobs", type=int, default=100, help="Jobs of which the pods are")
    parser.add_argument("--seconds", type=int, default=60, help="how long changes are made")
    parser.add_argument("--rate", type=float, default=50, help="pods that are created in a second")
    parser.add_argument("--json", type=Path, help="file for every sample")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
