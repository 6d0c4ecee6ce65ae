"""1,000 pods that are created at once: each gets its rung, its number and a node, and is recorded once.

The pods are those of one indexed Job that Kubernetes' own controller leaves to us (``managedBy``), so that all of them come
in the same moment. The real scheduler binds them, KWOK runs them, and the watcher records them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.cluster.requests import Object, Requests, until
from benchmarks.results import Judged, Row
from tests.cluster.live.replicas import Controllers

__all__ = ["at_once"]

_PATIENCE = 300.0  # seconds until all pods run and are recorded, on a busy machine
_POOLS = {"spot": "spot", "system": "system"}  # of the configuration, and the label of their nodes


def a_job(pods: int) -> Object:
    """An indexed Job whose pods only this module creates."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "managedBy": "testbed.spotwright.dev/benchmark",
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "at-once"}, "spec": spec}


def pods_of(job: Object) -> Iterator[Object]:
    """The pods of a Job as its controller makes them."""
    template, named = job["spec"]["template"], {key: job["metadata"][key] for key in ("name", "uid")}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, **named}
    given = template["metadata"].get("annotations") or {}
    for index in range(job["spec"]["completions"]):
        metadata = {**template["metadata"], "generateName": f"{named['name']}-{index}-", "ownerReferences": [owner]}
        metadata["annotations"] = {**given, "batch.kubernetes.io/job-completion-index": str(index)}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


async def at_once(requests: Requests, made: Controllers, namespace: str, count: int) -> list[Row]:
    """Create the pods, wait until all of them run, and compare Kubernetes' pods with the records."""
    job = await requests.send("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", a_job(count))
    path = f"/api/v1/namespaces/{namespace}/pods"
    begun = time.perf_counter()
    await asyncio.gather(*(requests.send("POST", path, pod) for pod in pods_of(job)))
    created = time.perf_counter() - begun

    async def running() -> list[Object] | None:
        pods = await requests.all(path)
        return pods if all(pod["status"].get("phase") == "Running" for pod in pods) else None

    pods = await until(running, "all pods run", _PATIENCE, every=1.0)
    run_after = time.perf_counter() - begun

    async def recorded() -> Any:
        state = made.runs().get((namespace, "at-once"))
        is_whole = state is not None and sum(one.bound_at is not None for one in _attempts(state)) >= count
        return state if is_whole else None

    state = await until(recorded, "all pods are recorded", _PATIENCE, every=1.0)
    recorded_after = time.perf_counter() - begun
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in await requests.all("/api/v1/nodes")}
    print(
        f"{count} pods at once: created in {created:.1f} s ({count / created:.0f} a second), all run after "
        f"{run_after:.1f} s, all recorded after {recorded_after:.1f} s"
    )
    return [
        _row("pods that are missing", count - len(pods)),
        _row("pods without a rung, or on a node of another pool", sum(not _is_placed(pod, nodes) for pod in pods)),
        _row("indexes and numbers that were given out twice", _twice(pods)),
        _row("recorded attempts beyond one for each pod", _unequal(pods, state)),
        Row("at-once", f"{count} pods at once: until all are created", [created], "s"),
        Row("at-once", f"{count} pods at once: until all run and are recorded", [recorded_after], "s"),
    ]


def _row(what: str, found: int) -> Row:
    return Row("at-once", f"1,000 pods at once: {what}", [float(found)], "", Judged.VALUE, 0.0)


def _is_placed(pod: Object, nodes: dict[str, dict[str, str]]) -> bool:
    """Whether a pod has a rung and is on a node of that rung."""
    rung = (pod["metadata"].get("annotations") or {}).get("spotwright.dev/rung", "")
    pool = nodes[pod["spec"]["nodeName"]].get("kubernetes.azure.com/agentpool", "")
    return bool(rung) and pool in {_POOLS.get(each) for each in rung.split(",")}


def _twice(pods: list[Object]) -> int:
    """How many pods have an index or a token that another one has, or are not the first attempt of their task."""
    marks = [pod["metadata"].get("annotations") or {} for pod in pods]
    indexes = Counter(mark["batch.kubernetes.io/job-completion-index"] for mark in marks)
    tokens = Counter(mark.get("spotwright.dev/admission") for mark in marks if mark.get("spotwright.dev/admission"))
    repeated = sum(number - 1 for counts in (indexes, tokens) for number in counts.values())
    return repeated + sum(mark.get("spotwright.dev/attempt", "1") != "1" for mark in marks)


def _unequal(pods: list[Object], state: Any) -> int:
    """The keys that are recorded and not in Kubernetes, or the reverse, and duplicates."""
    there, recorded = (
        {f"{pod['metadata']['uid']}" for pod in pods},
        [one.key.partition("/")[0] for one in _attempts(state)],
    )
    return len(recorded) - len(set(recorded)) + len(there ^ set(recorded))


def _attempts(state: Any) -> list[Any]:
    return [attempt for task in state.tasks.values() for attempt in task.attempts]
