"""The records of controllers on a test bed: objects of its API, and logs in a folder that replaces their store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.chart.rendered import CHART
from tests.cluster.live.kube import Kube
from tests.cluster.log_keeping.stores import read_whole
from tests.cluster.records.record_server import login

from spotwright.cluster.api_run_records import ApiRun
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_place import LogName
from spotwright.cluster.run_names import NamedRun, named_run
from spotwright.cluster.run_objects import RUN
from spotwright.cluster.run_records import RecordGone
from spotwright.cluster.spot_pools import RELEASE_LABEL, findings_in
from spotwright.engine.events import Event
from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder
from spotwright.scheduling.budgets import Pause

__all__ = ["events_of", "forget_pools", "install_kinds", "kept_log", "left_out", "log_is_complete", "runs_of"]

_ESTABLISHED = "60s"


def install_kinds(kube: Kube) -> None:
    """Give the cluster the kinds in which is recorded, as the chart does; they stay for other tests."""
    folder = CHART / "crds"
    kube.run("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    names = [f"crd/{path.stem}s.spotwright.dev" for path in sorted(folder.iterdir())]
    kube.run("wait", "--for=condition=Established", *names, f"--timeout={_ESTABLISHED}")


def runs_of(kubeconfig: Path, name: str = "", namespace: str = "") -> list[tuple[NamedRun, RunState]]:
    """The runs that have begun; only those of workloads of this name, or of this namespace, if one is given."""
    with login(kubeconfig) as kubernetes:
        found = _whole(kubernetes, name, namespace)
        return [(named, RunReader(RunFolder(Path(named.run)), run).state) for named, run in found]


def events_of(kubeconfig: Path) -> list[Event]:
    """The events of all runs."""
    with login(kubeconfig) as kubernetes:
        found: list[Event] = []
        for _, run in _whole(kubernetes):
            with run.look(0) as look:
                found += [event for _, event in look.events]
        return found


def _whole(kubernetes: Kubernetes, name: str = "", namespace: str = "") -> Iterator[tuple[NamedRun, ApiRun]]:
    """The readable runs, each with its names. A run whose namespace is being deleted is skipped."""
    for found in ApiRun(kubernetes.get, namespace, "all").listed(RUN, {}):
        named = named_run(found)
        if named is None or name not in ("", named.name):
            continue
        run = ApiRun(kubernetes.get, named.namespace, named.run)
        with contextlib.suppress(RecordGone):
            run.read_all()
            yield named, run


def left_out(kube: Kube, release: str) -> dict[str, Pause]:
    """The pauses that a release published, by the name of the pool."""
    found = findings_in(kube.list("spotpools", selector=f"{RELEASE_LABEL}={release}"))
    return {one.pool: one.pause for by_namespace in found.values() for one in by_namespace.values()}


def forget_pools(kube: Kube, release: str) -> None:
    """Delete a release's published pools, which are not deleted with a namespace."""
    kube.run("delete", "spotpools", "-l", f"{RELEASE_LABEL}={release}", "--wait=false", "--ignore-not-found")


def kept_log(logs: Path, run: str, task: str, attempt: int = 1) -> bytes:
    """The stored log of an attempt, as readers find it; empty without any."""
    name = LogName.of(RunFolder(Path(run)), task, attempt)
    return asyncio.run(read_whole(f"file://{logs.absolute()}", name)) or b""


def log_is_complete(logs: Path, run: str, task: str, attempt: int = 1) -> bool:
    """Whether this log is complete."""
    name = LogName.of(RunFolder(Path(run)), task, attempt)
    return (logs / name.namespace / name.run / name.task / str(attempt) / "end").exists()
