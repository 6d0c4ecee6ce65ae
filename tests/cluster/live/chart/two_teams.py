"""Work of two teams on an installed chart: short workloads of several kinds, and how each ends by its policy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.cluster.live.kube import Kube, Object, has_condition, job, pod, pod_spec
from tests.cluster.live.workloads import is_served, objects_of

__all__ = ["PRICES", "Seen", "Work", "config", "create", "outcome", "watched", "work_of"]

PRICES = {"spot": 1100.0, "system": 3300.0}
"""An hour of a node, by pool: so much that seconds of a small pod are more than rounding."""

_WAVES = 4

_SHARE = {"requests": {"cpu": "40m", "memory": "8Mi"}}
_FAILS_TWICE = 'test "${SPOTWRIGHT_ATTEMPT:-9}" -ge 3 || exit 3; sleep 10'


class Work(NamedTuple):
    """A workload: its kind, the name of its run, its objects, whether it succeeds, and the wave in which it is created."""

    kind: str
    name: str
    objects: list[Object]
    succeeds: bool = True
    wave: int = 0


def config() -> str:
    """The configuration of the cluster: work prefers spot, some stays away from it, and some has one retry alone."""
    pools = {
        "spot": {"capacity": "spot", "provider": "aks", "node": {"cpu": 2, "memory": "4Gi"}},
        "system": {"capacity": "on-demand", "provider": "aks", "node": {"cpu": 2, "memory": "4Gi"}},
    }
    priced = {name: {**pool, "price": f"{PRICES[name]}/h"} for name, pool in pools.items()}
    default = {
        "spot": "prefer",
        "pending_timeout": "45s",
        "timeout": "20m",
        "grace_period": "5s",
        "interruptions": {"max": 8},
        "errors": {"retries": 2},
    }
    tasks = {"steady*": {"spot": "never"}, "broken*": {"errors": {"retries": 1}}}
    return yaml.safe_dump({"version": 1, "pools": priced, "policy": {"default": default, "tasks": tasks}})


def _job(kube: Kube, team: str, name: str, script: str, **spec: Any) -> Object:
    made = job(name, team, pod_spec({**kube.container(script), "resources": _SHARE}))
    del made["spec"]["backoffLimit"]  # the policy's counts
    made["spec"].update(spec)
    return made


def _workflow(kube: Kube, team: str, name: str, seconds: int) -> Object:
    def step(called: str, wait: int) -> Object:
        return {"name": called, "container": {**kube.container(f"sleep {wait}"), "resources": _SHARE}}

    tasks: list[Object] = [
        {"name": "first", "template": "first"},
        {"name": "left", "template": "left", "depends": "first"},
        {"name": "right", "template": "right", "depends": "first"},
        {"name": "last", "template": "last", "depends": "left && right"},
    ]
    steps = [step("first", 5), step("left", seconds), step("right", seconds), step("last", 5)]
    spec = {
        "entrypoint": "main",
        "templates": [{"name": "main", "dag": {"tasks": tasks}}, *steps],
        "tolerations": pod_spec({})["tolerations"],
    }
    meta = {"name": name, "namespace": team}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}


def work_of(kube: Kube, team: str) -> list[Work]:
    """The workloads of one team, each with the wave in which it is created; only of kinds that the cluster has."""
    jobs: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("sleep-5", "sleep 5", {}),
        ("sleep-40", "sleep 40", {}),
        ("three", "sleep 25", {"completions": 3, "parallelism": 3}),
        ("four", "sleep 20", {"completions": 4, "parallelism": 2}),
        ("indexed", "sleep 25", {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}),
        ("steady", "sleep 45", {}),
        ("twice", _FAILS_TWICE, {}),
        ("broken", "sleep 3; exit 3", {}),
    )
    found = [
        Work("job", name, [_job(kube, team, name, script, **spec)], name != "broken", number % _WAVES)
        for number, (name, script, spec) in enumerate(jobs)
    ]
    found += [
        Work("workflow", name, [_workflow(kube, team, name, seconds)], wave=wave)
        for name, seconds, wave in (("flow", 30, 0), ("short", 8, 1))
    ]
    sets = (("jobset", "set", 0), ("jobset", "set-later", 1), ("trainjob", "train", 0))
    found += [Work(kind, name, objects_of(kube, kind, team, "sleep 20", name), wave=wave) for kind, name, wave in sets]
    found.append(Work("cronjob", "nightly-now", [_cron_job(kube, team)], wave=1))
    found.append(
        Work("pod", "alone", [_pod(kube, team)], wave=2)
    )  # no power cut may meet it, because it is not made anew
    return [each for each in found if is_served(kube, each.kind)]


def _cron_job(kube: Kube, team: str) -> Object:
    """A CronJob whose schedule never comes: its Job is made by hand."""
    meta = {"name": "nightly", "namespace": team}
    spec = {"schedule": "0 0 31 2 *", "jobTemplate": {"spec": _job(kube, team, "", "sleep 20")["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}


def _pod(kube: Kube, team: str) -> Object:
    made = pod("alone", team, pod_spec({**kube.container("sleep 5"), "resources": _SHARE}))
    made["metadata"]["labels"] = {"spotwright.dev/spot": "prefer"}
    return made


def create(kube: Kube, work: list[Work]) -> None:
    """Create workloads, all at once, and a Job of each CronJob."""
    kube.apply(*(each for one in work for each in one.objects))
    for one in work:
        if one.kind == "cronjob":
            meta = one.objects[0]["metadata"]
            kube.run("create", "job", one.name, f"--from=cronjob/{meta['name']}", "-n", meta["namespace"])


def outcome(kube: Kube, team: str, work: Work) -> str:
    """How a workload has ended, as its own controller says; empty while it has not."""
    found = kube.get("job" if work.kind == "cronjob" else work.kind, work.name, team)
    if work.kind in ("workflow", "pod"):
        phase = str((found or {}).get("status", {}).get("phase", ""))
        return {"Succeeded": "succeeded", "Failed": "failed", "Error": "failed"}.get(phase, "")
    if any(has_condition(found, name) for name in ("Complete", "Completed")):
        return "succeeded"
    return "failed" if has_condition(found, "Failed") else ""


class Seen:
    """The states that a watch of a namespace's pods has reported: the newest of each, also of deleted ones."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pods(self) -> dict[str, Object]:
        """The pods by their UIDs, each with the key ``isGone``."""
        text, decoder, at = self._path.read_text(encoding="utf-8"), json.JSONDecoder(), 0
        found: dict[str, Object] = {}
        while (at := text.find("{", at)) >= 0:
            try:
                event, at = decoder.raw_decode(text, at)
            except ValueError:
                break  # the rest is still to be written
            pod = event["object"]
            if pod["kind"] == "Pod":
                found[pod["metadata"]["uid"]] = {**pod, "isGone": event["type"] == "DELETED"}
        return found


@contextmanager
def watched(kube: Kube, namespace: str, folder: Path) -> Iterator[Seen]:
    """Watch the pods of a namespace while the block runs."""
    path = folder / f"{namespace}.json"
    command = [str(kube.program), f"--kubeconfig={kube.kubeconfig}", "get", "pods", "-n", namespace]
    with path.open("wb") as output:
        process = subprocess.Popen([*command, "--watch", "--output-watch-events", "-o", "json"], stdout=output)
        try:
            yield Seen(path)
        finally:
            process.terminate()
            process.wait(30)
