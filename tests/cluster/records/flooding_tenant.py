"""A process that records two tenants in the API: ``python -m ... KUBECONFIG FOLDER FORM COUNT SHARE``.

One makes what fills records, the other one a Job with an attempt after each ten objects of the first. Watcher, recorder, store
and retention are the real ones; retention looks after each hundred objects. One line of JSON is printed: ``rss``, the highest
resident set in bytes, ``cut``, the names of runs whose recording was cut, ``aside``, the namespaces that were set aside, ``live``
and ``kept``, the bytes of runs that go on and of all records of the first tenant, and ``seconds``.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.limits.flooded_recorder import highest_memory, step, workflow
from tests.cluster.records.record_server import login
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import done, job, pod

from spotwright.cluster.api_client import Api, EventWriter, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.namespace_costs import LOOK, AsideEvents, NamespaceCosts
from spotwright.cluster.record_shares import Shares
from spotwright.cluster.retention import Retention
from spotwright.cluster.run_store import WorkloadRun

HOSTILE, QUIET = "team-a", "team-b"
BETWEEN_LOOKS = 100

Put = Callable[[str, Mapping[str, Any]], None]


def gated_pods(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pods that are separate runs and wait forever, each with an incompressible template of 600 kB."""
    chance = random.Random(1)  # noqa: S311
    for number in range(count):
        made = pod(f"gated-{number}", namespace=HOSTILE, labels={"spotwright.dev/spot": "true"})
        keys = [{"key": chance.randbytes(30).hex(), "operator": "Exists", "effect": "NoSchedule"} for _ in range(5_000)]
        variables = [{"name": f"V{each}", "value": chance.randbytes(500).hex()} for each in range(50)]
        made["spec"] = {
            "schedulingGates": [{"name": "example.org/never"}],
            "tolerations": keys,
            "containers": [{"name": "main", "env": variables, "resources": {"requests": {"cpu": "1"}}}],
        }
        assert len(json.dumps(made)) > 600_000
        yield "Pod", made


def distinct_steps(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pods of one Workflow, each with a separate template."""
    run = workflow("flood", HOSTILE)
    yield "Workflow", run
    for number in range(count):
        yield "Pod", step(run, number, tolerations=50, phase="Running")


def live_runs(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Workflows that go on, each with a pod."""
    for number in range(count):
        run = workflow(f"flood-{number:03}", HOSTILE)
        yield "Workflow", run
        yield "Pod", step(run, 0, tolerations=50, phase="Running")


def nothing(_count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Only reopen the earlier records."""
    yield from ()


FORMS: Mapping[str, Callable[[int], Iterator[tuple[str, dict[str, Any]]]]] = {
    each.__name__: each for each in (gated_pods, distinct_steps, live_runs, nothing)
}


def quiet_job(number: int, *, is_over: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """A Job of the other tenant and its pod."""
    train = job(f"quiet-{number}", uid=f"{f'quiet-{number}':*<36}", status=done() if is_over else None)
    train["metadata"]["namespace"] = QUIET
    yield "Job", train
    if is_over:
        yield "Pod", pod(f"quiet-{number}-0", train, node="n1", namespace=QUIET, phase="Succeeded", exit_code=0)
    else:
        yield "Pod", pod(f"quiet-{number}-0", train, node="n1", namespace=QUIET, phase="Running")


class Recording:
    """A recorder with its retention. One loop runs the parts beside the watcher in a controller."""

    def __init__(self, kubeconfig: str, folder: str, shares: Shares, kubernetes: Kubernetes) -> None:
        self._runner = asyncio.Runner()
        self._api = Api(connect(find_cluster(None, kubeconfig=kubeconfig)))
        events = EventWriter(self._api)
        self._aside = AsideEvents(events, "its events are not recorded until then")
        self.costs = NamespaceCosts(LOOK, on_set_aside=self._aside.heard)
        self._retention = Retention(self._api, events, shares=shares)
        self.cut: list[str] = []
        records = ApiRecords(kubernetes)
        self.made = SilentWatcher(Path(folder), records, shares, on_cut=self._heard, costs=self.costs)
        self._retention.cut = self.made.watcher.cut_largest

    def _heard(self, run: WorkloadRun) -> None:
        self.cut.append(run.folder.name)
        self._retention.heard(run)

    def look(self) -> None:
        """Let retention look, and publish its reports."""
        self._runner.run(self._look())
        self.made.watcher._set_costly_aside()

    async def _look(self) -> None:
        telling = asyncio.create_task(self._aside.tell())
        await self._retention.look()
        while not self._aside._new.empty():  # noqa: ASYNC110  # its queue says nothing when it is empty
            await asyncio.sleep(0.01)
        telling.cancel()

    def close(self) -> None:
        self.made.close()
        self._runner.run(self._api.close())
        self._runner.close()


def main(kubeconfig: str, folder: str, form: str, count: str, share: str) -> None:
    began = time.monotonic()
    shares = Shares(int(share), 6 * int(share))
    with login(Path(kubeconfig)) as kubernetes:
        recording = Recording(kubeconfig, folder, shares, kubernetes)
        for number, (kind, data) in enumerate(FORMS[form](int(count))):
            recording.made.put(kind, data)
            if number % 10 == 0:
                for is_over in (False, True):
                    for quiet, what in quiet_job(number // 10, is_over=is_over):
                        recording.made.put(quiet, what)
            if number % BETWEEN_LOOKS == BETWEEN_LOOKS - 1:
                recording.look()
        recording.look()
        aside = [namespace for namespace, _ in recording.costs.aside]
        told = {"cut": recording.cut, "aside": aside, "live": dict(shares.live), "kept": shares.of(HOSTILE)}
        recording.close()
    sys.stdout.write(json.dumps({**told, "rss": highest_memory(), "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
