"""Bursts of work while others use the processors: the Lease stays, pods are placed and recorded, and what came late is named.

The processors are shared as on a node: by the weights of control groups, which come from the requests of pods. Each process of
the bed, as ``etcd``, the API server and the kubelets, has those of a whole CPU, the controller those of the request in the
chart's values. How long pods took to make, and how many were made without an answer of ours, the API server itself has counted.

``SPOTWRIGHT_LOAD=WORKFLOWS,BUSY,SECONDS`` lets the test with Workflows measure more than it asks for: so many Workflows of five
steps beside so many busy pods, for at most so long.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testbed.settings import Settings
from tests.cluster.conftest import Measured, Require
from tests.cluster.live.kube import Kube, Object, pod_spec
from tests.cluster.live.processor_shares import BEST_EFFORT, Busy, busy_beside, can_share
from tests.cluster.live.replicas import Controllers, configure, controllers

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.engine.state import RunState

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not can_share(), reason="no control groups with weights can be made here"),
]

CONFIGURATION = """\
version: 1
target: {kubernetes: "1.35"}
pools:
  spot: {capacity: spot, provider: aks, node: {cpu: 1000, memory: 8Gi}}
  system: {capacity: on-demand, provider: aks, node: {cpu: 1000, memory: 8Gi}}
policy: {default: {spot: prefer, interruptions: {max: 3}, errors: {retries: 1}}}
"""
STEPS = [["first"], ["second", "third"], ["fourth", "fifth"]]
BUSY_100M = 102  # the shares of a pod that requests a tenth of a CPU
JOBS, MEMBERS, BURSTS, PAUSE = 20, 5, 2, 15.0  # Jobs in a burst, pods of each, bursts, and seconds from one to the next
RECORDED = 60.0  # seconds
LONGEST = 600.0  # seconds: busy processes of the longest test end by themselves
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Load(NamedTuple):
    """The load: Workflows, pods that never pause, and seconds after which the state counts."""

    workflows: int
    busy: int
    seconds: float


class Seen(NamedTuple):
    """The measurements. Pods are by UID; ``late`` are reviews that were answered too late, ``behind`` is in seconds."""

    pods: list[Object]
    unplaced: list[str]
    unrecorded: list[str]
    twice: list[str]
    unnamed: list[str]
    late: int
    lost: int
    transitions: int
    behind: float


class Served(NamedTuple):
    """The API server's counts: created pods, by the longest time that took, and pods created without our answer."""

    created: dict[float, int]
    without_answer: int


def load() -> Load:
    told = os.environ.get("SPOTWRIGHT_LOAD", "")
    return Load(*(int(each) for each in told.split(","))) if told else Load(4, 20, 100)


def with_requests(count: int) -> Busy:
    """Busy pods that request a tenth of a CPU each: on two processors twenty of them ask for all that there is."""
    return {f"busy-{number}": (BUSY_100M, 1) for number in range(count)}


def a_job(name: str) -> Object:
    """A Job whose pods the test makes itself, at once, and which no scheduler takes."""
    container = {"name": "main", "image": "none", "command": ["true"], "resources": {"requests": {"cpu": "10m"}}}
    template = {"spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [container]}}
    counts = {"completionMode": "Indexed", "completions": MEMBERS, "parallelism": MEMBERS}
    spec = {"managedBy": "testbed.spotwright.dev/under-load", **counts, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def a_pod(job: Object, index: int) -> Object:
    """A pod as Kubernetes' Job controller makes it."""
    name, template = job["metadata"]["name"], job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": name, "uid": job["metadata"]["uid"]}
    annotations = {**marks(template), "batch.kubernetes.io/job-completion-index": str(index)}
    meta = {**template["metadata"], "generateName": f"{name}-{index}-", "ownerReferences": [owner]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "annotations": annotations},
        "spec": template["spec"],
    }


async def create_bursts(settings: Settings, namespace: str) -> list[str]:
    """Create the Jobs of each burst at once, with their pods. Returns the Jobs that were not placed."""
    cluster = find_cluster(kubeconfig=str(settings.kubeconfig))
    api = Api(connect(cluster, many_streams=True))

    async def create(name: str) -> Object:
        job = await api.send("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", a_job(name))
        pods: Any = (
            api.send("POST", f"/api/v1/namespaces/{namespace}/pods", a_pod(job, each)) for each in range(MEMBERS)
        )
        await asyncio.gather(*pods)
        return job

    jobs: list[Object] = []
    try:
        for burst in range(BURSTS):
            next_at = time.monotonic() + PAUSE
            jobs += await asyncio.gather(*(create(f"job-{burst}-{number}") for number in range(JOBS)))
            await asyncio.sleep(max(0.0, next_at - time.monotonic()) if burst + 1 < BURSTS else 0.0)
    finally:
        await api.close()
    return [job["metadata"]["name"] for job in jobs if "spotwright.dev/policy" not in marks(job["spec"]["template"])]


def a_workflow(kube: Kube, namespace: str, number: int) -> Object:
    """Five steps of some seconds."""
    steps = [[{"name": name, "template": "step"} for name in group] for group in STEPS]
    templates = [{"name": "all", "steps": steps}, {"name": "step", "container": kube.container("sleep 2")}]
    spec = {"entrypoint": "all", "templates": templates, "tolerations": pod_spec({})["tolerations"]}
    meta = {"name": f"pipeline-{number}", "namespace": namespace}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}


def run_workflows(kube: Kube, namespace: str, asked: Load) -> int:
    """Create the Workflows, wait for their ends for as long as the load lasts, and return how many have ended."""
    kube.apply(*(a_workflow(kube, namespace, number) for number in range(asked.workflows)))
    until = time.monotonic() + asked.seconds
    ended = 0
    while ended < asked.workflows and time.monotonic() < until:
        time.sleep(10)
        with suppress(AssertionError):  # the API server may be slow as well
            workflows = kube.list("workflows", namespace)
            ended = sum((one.get("status") or {}).get("phase") in ("Succeeded", "Failed") for one in workflows)
    return ended


def served(kube: Kube) -> Served:
    """Read the API server's own metrics (kubernetes, apiserver, pkg/endpoints/metrics and pkg/admission/metrics)."""
    created: dict[float, int] = {}
    without_answer = 0
    for line in kube.run("get", "--raw", "/metrics").splitlines():
        name, labels = line.partition("{")[0], dict(LABEL.findall(line))
        if name == "apiserver_admission_webhook_fail_open_count" and labels["name"].endswith(".spotwright.dev"):
            without_answer += int(float(line.rpartition(" ")[2]))
        if name != "apiserver_request_duration_seconds_bucket" or (labels["verb"], labels["group"]) != ("POST", ""):
            continue
        if (labels["resource"], labels["subresource"], labels["dry_run"]) == ("pods", "", ""):
            created[float(labels["le"])] = int(float(line.rpartition(" ")[2]))
    return Served(created, without_answer)


def took(before: Served, after: Served, share: float) -> float:
    """The seconds in which this share of the pods was made since ``before``: not more than this, as buckets tell it."""
    counts = {most: count - before.created.get(most, 0) for most, count in sorted(after.created.items())}
    return next((most for most, count in counts.items() if count >= share * counts[math.inf]), math.inf)


def seen(kube: Kube, made: Controllers, namespace: str, transitions_before: int) -> Seen:
    """Compare the records with Kubernetes."""
    pods = kube.list("pods", namespace)
    known = {pod["metadata"]["uid"] for pod in pods}
    began = time.monotonic()
    while (unrecorded := known - recorded(made, namespace).keys()) and time.monotonic() < began + RECORDED:
        time.sleep(0.5)
    behind = time.monotonic() - began
    unplaced = [pod["metadata"]["name"] for pod in pods if "spotwright.dev/attempt" not in marks(pod)]
    notes = [note for (where, _), state in made.runs().items() if where == namespace for note in state.notes]
    unnamed = [name for name in unplaced if not any(f"pod {name} started unplaced" in note for note in notes)]
    log = made.log(0)
    late, lost = len(re.findall(r": too late$", log, re.MULTILINE)), len(re.findall(r"was lost|is not held by", log))
    twice = [uid for uid, count in recorded(made, namespace).items() if count > 1]
    changes = transitions(kube, made) - transitions_before
    return Seen(pods, unplaced, sorted(unrecorded), twice, unnamed, late, lost, changes, behind)


def marks(pod: Object) -> Object:
    return pod["metadata"].get("annotations") or {}


def recorded(made: Controllers, namespace: str) -> Counter[str]:
    """The UIDs of the pods that are recorded, and of how many attempts each is."""
    states: list[RunState] = []
    with suppress(KeyError):  # a run that is being made has no workload yet
        states = [state for (where, _), state in made.runs().items() if where == namespace]
    attempts = (attempt for state in states for task in state.tasks.values() for attempt in task.attempts)
    return Counter(attempt.key.partition("/")[0] for attempt in attempts)


def transitions(kube: Kube, made: Controllers) -> int:
    """How often the holder of the Lease has changed."""
    lease = kube.get("lease", made.home, made.home) or {}
    return int((lease.get("spec") or {}).get("leaseTransitions") or 0)


def memory(pids: Sequence[int]) -> int:
    """The resident memory of processes, in MB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def turns(pids: Sequence[int]) -> tuple[float, float]:
    """Seconds that the threads of processes have run and have waited for a processor."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    here = [(task / "schedstat").read_text(encoding="ascii").split() for task in tasks]  # linux, sched-stats.rst
    return sum(int(each[0]) for each in here) / 1e9, sum(int(each[1]) for each in here) / 1e9


def note(measured: Measured, what: str, found: Seen, made: Controllers, before: Served, after: Served) -> None:
    """Note the measurements for the end of the suite."""
    numbers = {"pods": len(found.pods), "unplaced": len(found.unplaced), "unrecorded": len(found.unrecorded)}
    numbers |= {"recorded twice": len(found.twice), "late": found.late, "lease lost": found.lost}
    numbers |= {
        "transitions": found.transitions,
        "made without an answer": after.without_answer - before.without_answer,
    }
    numbers["memory in MB"] = memory(made.pids(0))
    ran, waited = turns(made.pids(0))
    times = {
        "made in, p50": took(before, after, 0.5),
        "made in, p99": took(before, after, 0.99),
        "behind": found.behind,
        "the controller ran": ran,
        "its threads waited for a processor": waited,
    }
    for name, number in {**numbers, **times}.items():
        measured(f"under load, {what}: {name}", number)


@pytest.mark.parametrize(
    ("what", "busy"),
    [("best-effort", {"busy": (BEST_EFFORT, 16)}), ("requests", with_requests(20))],
)
def test_bursts_of_jobs_under_load_are_placed_and_recorded(
    bed: Settings, kube: Kube, tmp_path: Path, namespace: str, measured: Measured, what: str, busy: Busy
) -> None:
    with controllers(bed, kube, tmp_path) as made:
        configure(kube, namespace, CONFIGURATION)
        made.leader()
        time.sleep(3)  # its first lists
        before, counted = transitions(kube, made), served(kube)
        with busy_beside(bed, made.pids(0), busy):
            unplaced_jobs = asyncio.run(create_bursts(bed, namespace))
            found = seen(kube, made, namespace, before)
        note(measured, what, found, made, counted, served(kube))
    assert (found.lost, found.transitions) == (0, 0)
    assert len(found.pods) == JOBS * MEMBERS * BURSTS
    assert (found.unrecorded, found.twice) == ([], [])
    assert (unplaced_jobs, found.unplaced) == ([], [])


def test_many_workflows_under_load_lose_no_lease_and_no_pod(
    bed: Settings, kube: Kube, tmp_path: Path, namespace: str, measured: Measured, require: Require
) -> None:
    require("workflows.argoproj.io")
    asked = load()
    with controllers(bed, kube, tmp_path) as made:
        configure(kube, namespace, CONFIGURATION)
        made.leader()
        time.sleep(3)  # its first lists
        before, counted = transitions(kube, made), served(kube)
        began, seconds = time.monotonic(), min(LONGEST, asked.seconds + 20)
        with busy_beside(bed, made.pids(0), with_requests(asked.busy), seconds=seconds):
            ended = run_workflows(kube, namespace, asked)
            measured("under load, Workflows: until all have ended", time.monotonic() - began)
        measured("under load, Workflows: have ended", ended)
        found = seen(kube, made, namespace, before)
        note(measured, "Workflows", found, made, counted, served(kube))
    kube.run("delete", "workflows", "--all", "-n", namespace, "--wait=false")
    assert (found.lost, found.transitions) == (0, 0)
    assert (found.unrecorded, found.twice) == ([], [])
    assert found.unnamed == []
