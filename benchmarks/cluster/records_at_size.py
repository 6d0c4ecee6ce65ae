"""Measures records at size, on a server that stands in for the API server: memory, the time of a start, and bytes in etcd.

    PYTHONPATH=.:src records_at_size.py [--runs 1000] [--pods 10] [--ended 10] [--more 3 --over 6]

Each run has so many running pods and so many attempts that have ended: by default 10,000 pods and 20,000 attempts. The recorder
is the real watcher with its store, the replica follows the records as a webhook does. The stand-in answers lists from memory, so
the seconds are those of our own processes. ``--more`` adds so many copies of all runs before the start, and ``--over`` so many
that have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from tests.cluster.records.record_server import RecordServer, login, recording_server
from tests.cluster.watching import silent_watcher
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import job, pod

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.attempt_lookup import NO_PLAN
from spotwright.cluster.recorded_histories import RecordedHistories
from spotwright.cluster.run_objects import KINDS, WORKLOAD_LABEL

TEAMS = tuple(f"team-{number}" for number in range(10))
MANAGED = 450  # bytes of metadata.managedFields that an API server adds to an object, and the stand-in does not


class QuickServer(RecordServer):
    """Lists by an index, in pages, and forgets what has changed unless somebody may watch it."""

    remembers = False

    def __init__(self) -> None:
        super().__init__()
        self.by_workload: defaultdict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)

    def put(self, collection: str, name: str, uid: str = "", **more: Any) -> dict[str, Any]:
        """Put an object, and know it by its workload."""
        found = super().put(collection, name, uid, **more)
        workload = (found["metadata"].get("labels") or {}).get(WORKLOAD_LABEL, "")
        self.by_workload[collection.rpartition("/")[2], workload][f"{collection}/{name}"] = found
        return found

    def _remember(self, collection: str, kind: str, data: dict[str, Any]) -> None:
        if self.remembers:
            super()._remember(collection, kind, data)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        if request.method != "GET" or request.query.get("watch") == "true" or plural not in self._plurals:
            return await super()._handle(request)
        selector = request.query.get("labelSelector", "")
        if selector.startswith(f"{WORKLOAD_LABEL}="):
            items = list(self.by_workload[plural, selector.partition("=")[2]].values())
        elif "/namespaces/" in request.path:
            items = list(self.objects.get(request.path, {}).values())
        else:
            items = self.kept(plural.removesuffix("s"))
        if "!=" in selector:
            key = selector.partition("!=")[0]
            items = [each for each in items if key not in (each["metadata"].get("labels") or {})]
        start = int(request.query.get("continue") or 0)
        end = start + int(request.query.get("limit") or len(items) or 1)
        meta = {"resourceVersion": str(self.version), "continue": str(end) if end < len(items) else ""}
        body = msgspec.json.encode({"kind": "List", "metadata": meta, "items": items[start:end]})
        return web.Response(body=body, content_type="application/json")

    _plurals = frozenset(f"{kind.lower()}s" for kind in KINDS)


def copy_all(server: RecordServer, copies: int, over: int) -> None:
    """Add copies of all runs, with new names and UIDs; the last ``over`` of them have ended."""
    originals = [(where, dict(known)) for where, known in server.objects.items() if "/namespaces/" in where]
    for copy in range(1, copies + over + 1):
        for where, known in originals:
            for found in known.values():
                text = re.sub(r"\b0(\d{7})\b", rf"{copy}\1", json.dumps(found))
                made = json.loads(text)
                if made["kind"] == "SpotRun" and copy > copies:
                    made["metadata"]["labels"]["spotwright.dev/ended"] = "true"
                server.put(where, made["metadata"]["name"], made["metadata"]["uid"], **made)


def memory(what: str) -> float:
    """``VmHWM`` (the highest) or ``VmRSS`` (that of now) of this process, in MiB."""
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise SystemExit("/proc/self/status does not say how much memory this process has")
    return int(found[1]) / 1024


def a_run(number: int) -> dict[str, Any]:
    """A Job of one of the namespaces."""
    made = job(f"train-{number}", uid=f"{number:08}-2222-4333-8444-555555555555", completions=10, parallelism=10)
    made["spec"]["completionMode"] = "Indexed"
    made["metadata"]["namespace"] = TEAMS[number % len(TEAMS)]
    return made


def a_pod(run: dict[str, Any], index: int, attempt: int, **more: Any) -> dict[str, Any]:
    """A pod of it."""
    name = f"{run['metadata']['name']}-{index}-{attempt}"
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    made = pod(name, run, node="n1", namespace=run["metadata"]["namespace"], annotations=annotations, **more)
    made["metadata"]["uid"] = f"{name:*<36}"
    return made


def watcher(kubernetes: Any, folder: Path) -> SilentWatcher:
    """The recorder, with all of the namespaces."""
    silent_watcher.TEAMS = TEAMS  # type: ignore[assignment]
    return SilentWatcher(folder, ApiRecords(kubernetes))


def fill(asked: argparse.Namespace) -> dict[str, Any]:
    """Record everything: for each index so many failed attempts and one that runs."""
    with login(Path(asked.kubeconfig)) as kubernetes:
        made = watcher(kubernetes, Path(asked.folder))
        began = time.monotonic()
        for number in range(asked.runs):
            run = a_run(number)
            made.put("Job", run)
            for index in range(asked.pods):
                for attempt in range(asked.ended // asked.pods + (index < asked.ended % asked.pods)):
                    ended = a_pod(run, index, attempt, phase="Failed", exit_code=1, made=attempt)
                    made.put("Pod", ended)
                    made.delete("Pod", ended)
                made.put("Pod", a_pod(run, index, asked.ended, phase="Running", made=asked.ended))
        seconds, runs = time.monotonic() - began, len(made.store.runs)
        made.close()
        return {"seconds to record all": seconds, "runs": runs, "MiB of the recorder that records all": memory("VmHWM")}


def start(asked: argparse.Namespace) -> dict[str, Any]:
    """Start a recorder with all these records, and record one more event."""
    before = memory("VmRSS")
    with login(Path(asked.kubeconfig)) as kubernetes:
        began = time.monotonic()
        made = watcher(kubernetes, Path(asked.folder))
        opened, with_runs = time.monotonic() - began, memory("VmRSS")
        for number in range(asked.runs):
            run = a_run(number)
            made.put("Job", run)
            for index in range(asked.pods):
                made.put("Pod", a_pod(run, index, asked.ended, phase="Running", made=asked.ended))
        made.put("Pod", a_pod(a_run(0), 0, asked.ended, phase="Failed", exit_code=1, made=asked.ended))
        first = time.monotonic() - began
        if made.recorder.problem:
            raise SystemExit(made.recorder.problem)
        found = {
            "seconds until all runs are open": opened,
            "seconds until the first record": first,
            "MiB of an empty recorder": before,
            "MiB with all runs": with_runs,
            "MiB with all runs and pods": memory("VmRSS"),
            "MiB at most": memory("VmHWM"),
            "runs open": len(made.store.runs),
        }
        made.close()
        return found


def follow(asked: argparse.Namespace) -> dict[str, Any]:
    """Follow the records as a webhook does, and ask for the history of each run."""
    before = memory("VmRSS")

    async def work() -> dict[str, Any]:
        api = Api(connect(find_cluster(None, kubeconfig=asked.kubeconfig)))
        histories = RecordedHistories(api, NO_PLAN)
        following = asyncio.create_task(histories.follow())
        began = time.monotonic()
        while not histories.is_complete:  # noqa: ASYNC110  # its streams say nothing
            await asyncio.sleep(0.01)
        seconds, followed = time.monotonic() - began, memory("VmRSS")
        attempts = 0
        for number in range(asked.runs):
            attempts += sum(len(task.attempts) for task in histories.of(a_run(number)).tasks.values())
        found = {
            "seconds until the replica knows all": seconds,
            "MiB of an empty replica": before,
            "MiB of the replica": followed,
            "MiB of the replica once it has read every history": memory("VmRSS"),
            "MiB of the replica at most": memory("VmHWM"),
            "attempts that it knows": attempts,
        }
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await api.close()
        return found

    return asyncio.run(work())


PARTS = {each.__name__: each for each in (fill, start, follow)}


def sizes(server: RecordServer) -> dict[str, Any]:
    """What all objects take, as they are sent and as they are counted."""
    found: dict[str, Any] = {}
    objects = {kind: server.kept(kind) for kind in KINDS}
    for kind, each in objects.items():
        found[f"objects {kind}"] = len(each)
        found[f"MB of {kind}"] = sum(len(msgspec.json.encode(one)) + MANAGED for one in each) / 1e6
    lines = sum(len(line) for each in objects.values() for one in each for line in one["journal"])
    found["MB of events alone"] = lines / 1e6
    found["bytes of an object beside its events and its plan"] = sum(
        len(msgspec.json.encode({**one, "journal": [], "plan": ""})) + MANAGED
        for each in objects.values()
        for one in each
    ) / max(1, sum(map(len, objects.values())))
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=10)
    parser.add_argument("--ended", type=int, default=10, help="attempts of a run that have ended")
    parser.add_argument("--more", type=int, default=0, help="copies of all runs")
    parser.add_argument("--over", type=int, default=0, help="copies of all runs that have ended")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--kubeconfig", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        print(json.dumps(PARTS[asked.part](asked)))
        return
    with tempfile.TemporaryDirectory() as folder, recording_server(Path(folder), QuickServer()) as (server, kubeconfig):
        numbers = [f"--{name}={getattr(asked, name)}" for name in ("runs", "pods", "ended")]
        for part in PARTS:
            more = [f"--part={part}", f"--kubeconfig={kubeconfig}", f"--folder={folder}/state"]
            done = subprocess.run([sys.executable, __file__, *numbers, *more], stdout=subprocess.PIPE, check=True)
            table = json.loads(done.stdout)
            if part == "fill":
                copy_all(server, asked.more, asked.over)
            for name, value in {**table, **(sizes(server) if part == "fill" else {})}.items():
                print(f"{value:12,.1f}  {name}" if isinstance(value, float) else f"{value:12,}  {name}", flush=True)


if __name__ == "__main__":
    main()
