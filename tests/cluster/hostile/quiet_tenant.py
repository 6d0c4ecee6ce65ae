"""The quiet tenant: a fixed history in its own namespace, and everything of it that others must not change.

A training Job loses its spot node, its next pod gets no node on spot and is recalled, and the third one succeeds on demand. So
reviews, attempts, causes, a wait, a move, a pause and logs all take part.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2
from aiohttp import web
from tests.cluster.controller.controller_process import kubeconfig
from tests.cluster.hostile.cluster_server import RECORDED, ClusterServer
from tests.cluster.hostile.controller_parts import HOME, Clock, Parts, client_context
from tests.cluster.json_patches import apply_patch
from tests.cluster.watching.watched_objects import BEGIN, at, done, node
from tests.cluster.words import said

from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_parts import END
from spotwright.cluster.recorded_runs import open_runs
from spotwright.cluster.run_objects import API_VERSION, ATTEMPT, KINDS, RUN, RunRows, StoredRow, rows_of, unpacked
from spotwright.engine.events import (
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptRecalled,
    AttemptWaits,
    EngineStarted,
    Event,
    RunFinished,
)

QUIET, HOSTILE = "quiet", "hostile"
PODS, JOBS, NODES, EVENTS = "/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/nodes", "/api/v1/events"
NAMESPACES, MAPS, LEASES = "/api/v1/namespaces", "/api/v1/configmaps", "/apis/coordination.k8s.io/v1/leases"
COUNTERS, POOL_OBJECTS = f"/apis/{API_VERSION}/spotcounters", f"/apis/{API_VERSION}/spotpools"
SERVED = {
    f"/apis/{API_VERSION}": [f"{kind.lower()}s" for kind in RECORDED],
    "/apis/batch/v1": ["jobs"],
    "/apis/jobset.x-k8s.io/v1alpha2": ["jobsets"],
    "/apis/argoproj.io/v1alpha1": ["workflows", "workflowtemplates", "clusterworkflowtemplates"],
    "/apis/kubeflow.org/v1": ["pytorchjobs", "mpijobs"],
    "/apis/trainer.kubeflow.org/v1alpha1": ["trainjobs", "trainingruntimes", "clustertrainingruntimes"],
}
POOLS = """\
version: 1
pools:
  gpu-spot: {capacity: spot, provider: aks, price: 1/h, node: {cpu: 2}}
  gpu: {capacity: on-demand, provider: aks, price: 3/h, node: {cpu: 2}}
target: {kubernetes: '1.35'}
policy: {default: {spot: prefer, interruptions: {max: 3}, fall_back_after: 2, pending_timeout: 2m}}
"""
OWN = "version: 1\npolicy: {tasks: {train: {errors: {retries: 1}}}}\n"
SPOT = {"kubernetes.azure.com/agentpool": "gpu-spot", "kubernetes.azure.com/scalesetpriority": "spot"}
DEMAND = {"kubernetes.azure.com/agentpool": "gpu"}
LOG = b"2027-01-15T08:00:04.000000001Z epoch 1 of 3\n"


def furnish(server: ClusterServer) -> None:
    """Nodes, two labelled namespaces, the configuration of the cluster and that of the quiet tenant."""
    server.served = SERVED
    for base, names in SERVED.items():
        server.objects |= {f"{base}/{name}": {} for name in names}
    for collection in (PODS, EVENTS, MAPS, LEASES, NODES, NAMESPACES):
        server.objects[collection] = {}
    for name, labels in (("n1", SPOT), ("n2", DEMAND)):
        server.add(NODES, node(name, **labels))
    for name in (QUIET, HOSTILE):
        server.add(NAMESPACES, {"kind": "Namespace", "metadata": {"name": name, "labels": {_ENABLED: "true"}}})
    for namespace, text in ((HOME, POOLS), (QUIET, OWN)):
        meta = {"name": "spotwright", "namespace": namespace}
        server.add(MAPS, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"spotwright.yaml": text}})
    status = said.status(when=20)  # a cluster autoscaler, so that pods are sent to one rung and are taken back
    stale = status["data"]["status"].replace("2027-", "2020-")  # of no moment: when it is read makes no difference
    server.add(MAPS, {**status, "data": {"status": stale}})
    server.pages["/apis/authentication.k8s.io/v1/tokenreviews"] = _token
    server.pages["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = _access
    for name in ("train-1", "train-3"):
        server.pages[f"/api/v1/namespaces/{QUIET}/pods/{name}/log"] = _log


_ENABLED = "spotwright.dev/enabled"


async def _token(request: web.Request) -> web.StreamResponse:
    user = {"quiet-token": "quinn", "hostile-token": "mallory"}.get((await request.json())["spec"]["token"])
    return web.json_response({"status": {"authenticated": user is not None, "user": {"username": user}}}, status=201)


async def _access(request: web.Request) -> web.StreamResponse:
    spec = (await request.json())["spec"]
    own = {"quinn": QUIET, "mallory": HOSTILE}.get(spec["user"])
    allowed = own is not None and spec["resourceAttributes"].get("namespace") == own
    return web.json_response({"status": {"allowed": allowed}}, status=201)


async def _log(request: web.Request) -> web.StreamResponse:
    return web.Response(body=LOG)


class QuietTenant:
    """Plays the history step by step: :meth:`steps`. ``answers`` are the webhook's, which belong to the tenant too."""

    def __init__(self, parts: Parts, server: ClusterServer, put: Callable[[str, Mapping[str, Any]], Any]) -> None:
        self._parts, self._server, self._put = parts, server, put
        self.answers: list[Any] = []
        self._job: dict[str, Any] = {}
        self._reviews = 0

    def steps(self) -> Iterator[str]:
        """Do one step after the other; between them others may act."""
        Clock.moment = BEGIN + 60.0
        self._job = self._reviewed(_a_job())
        self._put(JOBS, self._job)
        yield "the Job is made"
        one = self._pod("train-1", 1)
        self._put(PODS, one)
        self._until(AttemptAdopted, 1)
        yield "its first pod waits"
        self._put(PODS, _on(one, "n1", 2))
        self._until(AttemptBound, 1)
        yield "it runs on spot"
        Clock.moment = BEGIN + 120.0
        lost = _ended(_on(one, "n1", 2), 143, 100)
        lost["status"]["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "shut down"}
        )
        self._put(PODS, lost)
        self._until(AttemptDecided, 1)
        yield "its node was taken"
        two = self._pod("train-2", 121)
        two["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(122)}
        ]
        self._put(PODS, two)
        self._until(AttemptWaits, 1)
        yield "its second pod waits"
        Clock.moment = BEGIN + 400.0
        self._put(
            PODS, {**two, "metadata": {**two["metadata"], "labels": {**two["metadata"]["labels"], "look": "again"}}}
        )
        self._until(AttemptRecalled, 1)
        self._parts.until(lambda: any("train-2/eviction" in line for line in self._server.asked), "the eviction")
        yield "it is taken back"
        self._server_remove(PODS, "train-2")
        self._until(AttemptDecided, 2)
        yield "it is gone"
        three = self._pod("train-3", 401)
        self._put(PODS, _on(three, "n2", 402))
        self._until(AttemptBound, 2)
        Clock.moment = BEGIN + 500.0
        yield "the third runs on demand"
        self._put(PODS, _ended(_on(three, "n2", 402), 0, 480))
        self._until(AttemptDecided, 3)
        yield "it has succeeded"
        self._put(JOBS, {**self._job, "status": done()})
        self._until(RunFinished, 1)
        self._parts.until(lambda: self._kept_logs() == 2, "both logs")
        yield "all is over"

    # What nobody else may change

    def facts(self) -> dict[str, Any]:
        """Everything of the quiet tenant, without the differences between processes."""
        config = self._parts.configurations.of(QUIET)
        return {
            "events": self.events(),
            "plans": [unpacked(run["plan"]) for run in self._server.records(RUN, QUIET)],
            "shown": {
                each["metadata"]["name"]: _shown(each) for kind in KINDS for each in self._server.records(kind, QUIET)
            },
            "numbers": self._numbers(),
            "pauses": self._pauses(),
            "logs": self._logs(),
            "answers": self.answers,
            "configuration": None if config is None else (config.text, repr(config.policy_default), list(config.pools)),
            "read": self._read(),
        }

    def events(self) -> list[tuple[Any, ...]]:
        """The rows of its journal; that an engine began names its process."""
        return [row.journal_row[1:] for row in self._rows() if row.kind != EngineStarted.kind]

    def _rows(self) -> list[StoredRow]:
        rows = RunRows()
        for kind in KINDS:
            for found in self._server.records(kind, QUIET):
                rows.take(rows_of(found))
        return rows.after(0)

    def _numbers(self) -> list[tuple[Any, ...]]:
        """The content of its SpotCounters without the times of writing, which unconfirmed numbers have."""
        return sorted(
            (meta["name"], review, record["number"], record["decided"])
            for made in self._server.objects[COUNTERS].values()
            if (meta := made["metadata"])["namespace"] == QUIET
            for review, record in made["spec"].get("records", {}).items()
        )

    def _pauses(self) -> Any:
        """The pools as people and webhooks see them."""
        return {key: (each["spec"], each["status"]) for key, each in sorted(self._server.objects[POOL_OBJECTS].items())}

    def _logs(self) -> list[tuple[int, str]]:
        """The logs of all attempts as its user reads them."""
        return [
            self._log_of(run["metadata"]["name"], each["spec"]["task"], each["spec"]["attempt"])
            for run in self._server.records(RUN, QUIET)
            for each in self._server.records(ATTEMPT, QUIET)
        ]

    def _kept_logs(self) -> int:
        """How many of its logs are kept whole, of those that have text."""
        ends = (self._parts.folder / "logs" / QUIET).rglob(END)
        return sum(len(list(path.parent.iterdir())) > 1 for path in ends)

    def _log_of(self, run: str, task: str, attempt: int) -> tuple[int, str]:
        headers = {"Authorization": "Bearer quiet-token"}
        with httpx2.Client(verify=client_context(), base_url=self._parts.reading_url, headers=headers) as client:
            answer = client.get(f"/v1/runs/{run}/log", params={"task": task, "attempt": attempt}, timeout=30)
        return answer.status_code, answer.text

    def _read(self) -> Any:
        """The lines of its runs, as its user reads them."""
        kubernetes = Kubernetes(None, str(kubeconfig(self._parts.folder, self._server)))
        try:
            with open_runs(kubernetes) as runs:
                return runs.lines(QUIET)
        finally:
            kubernetes.close()

    # Steps

    def _until(self, event: type[Event], times: int) -> None:
        kind = event.kind
        self._parts.until(lambda: self._is_known(kind, times), f"{kind} of the quiet tenant")

    def _is_known(self, kind: str, times: int) -> bool:
        """Whether an event is recorded so many times, and the webhook has seen all that is recorded so far."""
        rows = self._rows()
        return sum(row.kind == kind for row in rows) >= times and self._parts.is_seen(self._job, len(rows))

    def _server_remove(self, collection: str, name: str) -> None:
        self._parts.on_server(lambda: self._server.remove(collection, QUIET, name))

    def _pod(self, name: str, made: float) -> dict[str, Any]:
        template = self._job["spec"]["template"]
        meta = template.get("metadata") or {}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": UID, "controller": True}
        given = {
            "name": name,
            "namespace": QUIET,
            "uid": f"quiet-{name}",
            "creationTimestamp": at(made),
            "labels": {**(meta.get("labels") or {}), "batch.kubernetes.io/controller-uid": UID},
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": template["spec"]}
        return {**self._reviewed(pod), "status": {"phase": "Pending", "conditions": []}}

    def _reviewed(self, made: dict[str, Any]) -> dict[str, Any]:
        """The object as the API server stores it after the webhook's answer."""
        self._reviews += 1
        asked = {"uid": f"quiet-review-{self._reviews}", "operation": "CREATE", "namespace": QUIET, "object": made}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        with httpx2.Client(verify=client_context()) as client:
            answer = client.post(f"{self._parts.webhook_url}/mutate", json=review, timeout=30).json()["response"]
        self.answers.append(answer)
        patch = answer.get("patch")
        return made if patch is None else dict(apply_patch(made, json.loads(base64.b64decode(patch))))


def _shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """A record as people see it, without its bytes, which name a process."""
    return {name: value for name, value in found["status"].items() if name != "bytes"}


UID = "11111111-aaaa-bbbb-cccc-000000000001"


def _a_job() -> dict[str, Any]:
    container = {"name": "main", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": QUIET, "uid": UID, "creationTimestamp": at(0)},
        "spec": {
            "backoffLimit": 6,
            "completions": 1,
            "parallelism": 1,
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {}, "spec": spec},
        },
    }


def _on(pod: Mapping[str, Any], name: str, bound: float) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound)}
    statuses = [{"name": "main", "restartCount": 0, "state": {"running": {}}}]
    status = {"phase": "Running", "conditions": [condition], "containerStatuses": statuses}
    return {**pod, "spec": {**pod["spec"], "nodeName": name}, "status": status}


def _ended(pod: Mapping[str, Any], code: int, ended: float) -> dict[str, Any]:
    terminated = {"exitCode": code, "finishedAt": at(ended), "reason": "Error" if code else "Completed"}
    statuses = [{"name": "main", "restartCount": 0, "state": {"terminated": terminated}}]
    conditions = list(pod["status"]["conditions"])
    return {
        **pod,
        "status": {"phase": "Failed" if code else "Succeeded", "conditions": conditions, "containerStatuses": statuses},
    }
