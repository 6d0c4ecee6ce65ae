"""A short history of three workloads, a recorder that sees it, and API servers that fail in the meantime.

The history is a list of steps, each of which changes some objects. Who starts in between sees what is there then, and no more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from tests.cluster.records.record_server import RecordServer
from tests.cluster.watching.silent_watcher import SilentWatcher
from tests.cluster.watching.watched_objects import SPOT, done, job, node, pod

from spotwright.cluster import workload_recorder
from spotwright.cluster.api_run_records import ApiRecords
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader

FULL = "etcdserver: mvcc: database space exceeded"
SECONDS = 20.0

Change = tuple[str, str, dict[str, Any]]
"""``put`` or ``delete``, the kind, and the object."""

WORKFLOW = {
    "kind": "Workflow",
    "metadata": {"name": "iris", "namespace": "team-a", "uid": "uid-iris", "creationTimestamp": "2027-01-15T08:00:00Z"},
    "spec": {"templates": []},
}


def step_of_iris(name: str, **more: Any) -> dict[str, Any]:
    made = pod(f"iris-{name}", WORKFLOW, **more)
    made["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": f"iris.{name}"}
    return made


def history() -> Sequence[Sequence[Change]]:
    """A Job whose node is lost and whose code fails once, another team's Job, and a Workflow with two steps."""
    train, serve = job(backoffLimit=6), job("serve", uid="uid-serve")
    serve["metadata"]["namespace"] = "team-b"
    lost = pod("one", train, node="n1", phase="Running", deletionTimestamp="2027-01-15T08:00:40Z")
    serving = pod("serve-1", serve, node="n2", phase="Running", namespace="team-b")
    served = pod("serve-1", serve, node="n2", phase="Succeeded", exit_code=0, namespace="team-b")
    failed = pod("two", train, made=50, node="n2", phase="Failed", exit_code=1)
    ended = pod("three", train, made=70, node="n3", phase="Succeeded", exit_code=0)
    loaded = step_of_iris("load", node="n3", phase="Succeeded", exit_code=0)
    fitted = step_of_iris("fit", node="n2", phase="Succeeded", exit_code=0)
    gone = {**WORKFLOW, "status": {"phase": "Succeeded", "finishedAt": "2027-01-15T08:02:00Z"}}
    return [
        [("put", "Node", node(name, **SPOT)) for name in ("n1", "n2", "n3")],
        [("put", "Job", train), ("put", "Pod", pod("one", train, node="n1", phase="Running"))],
        [("put", "Job", serve), ("put", "Pod", serving)],
        [("put", "Node", node("n1", ready="Unknown", **SPOT)), ("put", "Pod", lost)],
        [("put", "Pod", pod("two", train, made=50, node="n2", phase="Running"))],
        [("delete", "Pod", lost), ("put", "Workflow", {**WORKFLOW, "status": {"phase": "Running"}})],
        [("put", "Pod", step_of_iris("load", node="n3", phase="Running")), ("put", "Pod", failed)],
        [("put", "Pod", pod("three", train, made=70, node="n3", phase="Running"))],
        [("put", "Pod", loaded), ("put", "Pod", step_of_iris("fit", node="n2"))],
        [("put", "Pod", step_of_iris("fit", node="n2", phase="Running")), ("put", "Pod", served)],
        [("put", "Job", {**serve, "status": done()}), ("put", "Pod", fitted)],
        [("put", "Pod", ended), ("put", "Workflow", gone)],
        [("put", "Job", {**train, "status": done()})],
    ]  # fmt: skip


STEPS = len(history())


class There(dict[tuple[str, str], dict[str, Any]]):
    """The objects of the cluster, by kind and name."""

    def take(self, changes: Sequence[Change]) -> None:
        """Change it."""
        for what, kind, data in changes:
            key = kind, str(data["metadata"]["name"])
            if what == "put":
                self[key] = data
            else:
                self.pop(key, None)

    @classmethod
    def after(cls, step: int) -> There:
        """The objects after so many steps of the history."""
        found = cls()
        for changes in history()[:step]:
            found.take(changes)
        return found


class Recording:
    """A recorder of the cluster. ``there`` are the objects at its start; it retries failed writes at once."""

    def __init__(
        self, kubernetes: Kubernetes, folder: Path, there: Mapping[tuple[str, str], dict[str, Any]] = {}, **options: Any
    ) -> None:
        assert workload_recorder._RETRY == 0.0, "call quick() first"
        self.made = SilentWatcher(folder, ApiRecords(kubernetes), **options)
        for kind in ("Node", "Job", "Workflow", "Pod"):
            for (of, _), data in there.items():
                if of == kind:
                    self.made.put(kind, data)

    def see(self, changes: Sequence[Change]) -> None:
        """See a step of the history, and let it settle."""
        for what, kind, data in changes:
            (self.made.put if what == "put" else self.made.delete)(kind, data)
        self.made.pass_time(1.0)
        self.made.recorder.mend()
        self.made.recorder.tell_people(20)

    def catch_up(self) -> None:
        """Retry failed writes, until all succeed."""
        ends = time.monotonic() + SECONDS
        while self.made.recorder._unwritten or self.made.recorder.problem:
            assert time.monotonic() < ends, self.made.recorder.problem
            self.made.recorder.mend()
        self.made.recorder.look_at_everything()

    def play(self, first: int = 0, last: int = STEPS) -> None:
        """See the steps from one on, up to another."""
        for changes in history()[first:last]:
            self.see(changes)


def quick(set_: Callable[[Any, str, float], None]) -> None:
    """Let recorders try again without a pause."""
    assert workload_recorder._RETRY > 0.0
    set_(workload_recorder, "_RETRY", 0.0)


class Attempt(NamedTuple):
    """The records of an attempt."""

    task: str
    number: int
    pod: str | None
    node: str | None
    cause: str


WHOLE = {
    "train": [
        Attempt("train", 1, "one", "n1", "lost"),
        Attempt("train", 2, "two", "n2", "failed"),
        Attempt("train", 3, "three", "n3", "succeeded"),
    ],
    "serve": [Attempt("serve", 1, "serve-1", "n2", "succeeded")],
    "iris": [Attempt("fit", 1, "iris-fit", "n2", "succeeded"), Attempt("load", 1, "iris-load", "n3", "succeeded")],
}
"""The attempts of the whole history."""


def recorded(kubernetes: Kubernetes, folder: Path) -> dict[str, list[Attempt]]:
    """The attempts of each run, by the name of its workload, as a reader finds them."""
    return {
        str(state.meta.arguments["name"]): [
            Attempt(path, each.number, each.pod, each.node, each.cause.value if each.cause else "")
            for path, task in sorted(state.tasks.items())
            for each in task.attempts
        ]
        for state in states(kubernetes, folder)
    }


def states(kubernetes: Kubernetes, folder: Path) -> Iterator[RunState]:
    """Every run as a reader finds it."""
    for record in ApiRecords(kubernetes).recent(0.0):
        yield RunReader(record.folder, record.source()).state


def ended_runs(server: RecordServer) -> set[str]:
    """The runs that have ended, by the names of their workloads."""
    return {
        str(each["metadata"]["name"]).split(".")[1].partition("-")[0]
        for each in server.kept("SpotRun")
        if each["status"]["phase"] == "succeeded"
    }


def twins(server: RecordServer) -> list[tuple[Any, ...]]:
    """Attempts that have two objects."""
    seen = [
        (each["spec"]["run"], each["spec"]["task"], each["spec"]["attempt"], each["spec"].get("page"))
        for each in server.kept("SpotAttempt")
    ]
    return [each for each in set(seen) if seen.count(each) > 1]


def answer(status: int, message: str, **headers: str) -> web.Response:
    """An answer of an API server that refuses the request."""
    return web.json_response({"kind": "Status", "message": message, "code": status}, status=status, headers=headers)


class EveryThird:
    """Refuses every third write with one of the answers of an API server that has too much to do."""

    def __init__(self, server: RecordServer, seed: int) -> None:
        self._server, self._chance, self.writes = server, random.Random(seed), 0  # noqa: S311
        server.refuse = self

    def __call__(self, _method: str, _path: str) -> web.Response | None:
        self.writes += 1
        self._server.is_blind = False
        if self.writes % 3:
            return None
        kind = self._chance.choice(("409", "429", "500", "heard"))
        if kind == "heard":  # it is done, and the answer is lost
            self._server.is_blind = True
            return None
        if kind == "429":
            return answer(429, "too many requests, please try again later", **{"Retry-After": "0"})
        return answer(int(kind), "Operation cannot be fulfilled" if kind == "409" else "etcdserver: request timed out")
