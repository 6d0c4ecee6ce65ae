"""Short Jobs of a team, and whether each of them is placed and recorded whole."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.live.chart.releases import SOON
from tests.cluster.live.kube import Kube, job, pod_spec
from tests.cluster.live.recorded import runs_of

from spotwright.cluster.run_names import NamedRun
from spotwright.engine.events import RunStatus
from spotwright.engine.state import RunState

__all__ = ["WholeJobs"]

_ADMITTED = "spotwright.dev/admitted"  # of a Job
_PINNED = "spotwright.dev/attempt"  # of a pod


class WholeJobs:
    """The Jobs of one namespace; :meth:`problems` lists the ones that were not placed or recorded."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube, self._namespace = kube, namespace
        self.names: list[str] = []

    def make(self, script: str = "sleep 1", count: int = 1) -> None:
        """Create more, all at once."""
        names = [f"quiet-{len(self.names) + number}" for number in range(count)]
        spec = pod_spec(self._kube.container(script))
        self._kube.apply(*(job(name, self._namespace, spec) for name in names))
        self.names += names

    def wait_until_pods_run(self, count: int) -> None:
        """Wait until so many of their pods run."""

        def run() -> bool:
            pods = self._kube.list("pods", self._namespace)
            return sum(each["status"].get("phase") == "Running" for each in pods) >= count

        self._kube.wait(run, f"{count} pods of {self._namespace} run", SOON)

    def wait(self) -> None:
        """Wait until the ends of all of them are recorded."""

        def are_over() -> bool:
            ended = {named.name for named, run in self._runs() if run.finished_at is not None}
            return ended >= set(self.names)

        self._kube.wait(are_over, f"the Jobs of {self._namespace} have ended and are recorded", SOON)

    def _runs(self) -> list[tuple[NamedRun, RunState]]:
        return runs_of(self._kube.kubeconfig, namespace=self._namespace)

    def problems(self) -> Iterator[str]:
        """The problems."""
        runs = {named.name: run for named, run in self._runs()}
        pods = self._kube.list("pods", self._namespace)
        for name in self.names:
            of_job = [each for each in pods if each["metadata"]["labels"].get("job-name") == name]
            marks = {_ADMITTED: [self._kube.get("job", name, self._namespace) or {}], _PINNED: of_job}
            for mark, objects in marks.items():
                if not all(mark in each.get("metadata", {}).get("annotations", {}) for each in objects):
                    yield f"{name} is not placed: {mark} is missing"
            run = runs.get(name)
            if run is None or run.status is not RunStatus.SUCCEEDED:
                yield f"{name} is recorded as {run and run.status}"
                continue
            keys = [each.key.partition("/")[0] for task in run.tasks.values() for each in task.attempts]
            if keys != [each["metadata"]["uid"] for each in of_job]:
                yield f"{name} has {len(of_job)} pods and {len(keys)} attempts"
