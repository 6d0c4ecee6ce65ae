"""A server with the REST API v2beta1 of Kubeflow Pipelines, as far as runs need it, on the loopback.

Shaped after the backend's protos and gateway (names, states, errors as ``{"code", "message", "details"}``) and after
answers of the backends 2.16 and 2.17. It executes nothing: a test says what its runs do, one :class:`Step` at each look.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.kubeflow.flows import Flow
from tests.kubeflow.metadata import executions

from spotwright.kubeflow.server import METHOD

__all__ = ["StandIn", "Step", "serving"]


class Step(NamedTuple):
    """A run's state from one look to the next; ``deleted``: it is gone. ``then`` happens after that look."""

    state: str
    flow: Flow | None = None
    then: Callable[[], None] = lambda: None


class StandIn:
    """The server's content, and its next answers."""

    def __init__(self) -> None:
        self.url = ""
        self.pipelines: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, dict[str, Any]] = {}
        self.texts: dict[str, str] = {}  # what was uploaded, by version
        self.experiments: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.steps: list[Step] = [Step("SUCCEEDED", Flow().end())]
        self.after_cancel: list[Step] = [Step("CANCELING"), Step("FAILED")]
        self.token = self.cookies = ""
        self.multi_user = False
        self.tag_name = "2.16.1"
        self.serves_v1 = self.serves_v2 = True
        self.is_login_page = False
        self.has_metadata_store = True
        self.outputs: dict[int, dict[str, Any]] = {}  # output parameters by execution, in the metadata store
        self.failures: list[int | None] = []  # of the next requests: statuses, 0 for a cut connection, None for none
        self.requests: list[str] = []
        self.run_ids: list[str] = []  # of the next runs
        self._places: dict[str, tuple[list[Step], int]] = {}
        self._lock = threading.Lock()

    # -- requests

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """The status and the content of an answer; texts are sent as pages."""
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if self.is_login_page:
            return 200, "<html>log in</html>"
        if parts.path == METHOD and self.has_metadata_store:
            return 200, executions(body, self.outputs)
        for pattern, handle in self._routes(method):
            found = re.fullmatch(pattern, parts.path)
            if found:
                with self._lock:
                    return handle(*found.groups(), query=query, body=body)
        return _error(404, 5, "Not Found") if parts.path.startswith("/apis/") else (404, "404 page not found")

    def _routes(self, method: str) -> Iterator[tuple[str, Callable[..., tuple[int, Any]]]]:
        v2 = "/apis/v2beta1"
        if self.serves_v2 and method == "GET":
            yield f"{v2}/healthz", lambda **_: (200, {"tag_name": self.tag_name, "multi_user": self.multi_user})
            yield f"{v2}/pipelines", lambda query, **_: self._list("pipelines", self.pipelines, query)
            yield f"{v2}/pipelines/([^/]+)/versions", self._versions
            yield f"{v2}/experiments", lambda query, **_: self._list("experiments", self.experiments, query)
            yield f"{v2}/runs/([^/:]+)", self._run
        if self.serves_v2 and method == "POST":
            yield f"{v2}/pipelines", self._make_pipeline
            yield f"{v2}/pipelines/upload_version", self._upload
            yield f"{v2}/experiments", self._make_experiment
            yield f"{v2}/runs", self._start
            yield f"{v2}/runs/([^/:]+):terminate", self._terminate
        if self.serves_v1 and method == "GET":
            yield "/apis/v1beta1/runs/([^/:]+)", self._run_of_v1

    # -- pipelines

    def _list(self, kind: str, all_of_them: dict[str, dict[str, Any]], query: dict[str, str]) -> tuple[int, Any]:
        wanted = [each["stringValue"] for each in json.loads(query.get("filter", "{}")).get("predicates", ())]
        space = query.get("namespace", "")
        found = [
            each
            for each in all_of_them.values()
            if each["display_name"] in (wanted or [each["display_name"]]) and each.get("namespace", "") in {"", space}
        ]
        return 200, {kind: found, "total_size": len(found)} if found else {}

    def _versions(self, pipeline: str, *, query: dict[str, str], **_: Any) -> tuple[int, Any]:
        own = {key: each for key, each in self.versions.items() if each["pipeline_id"] == pipeline}
        return self._list("pipeline_versions", own, query)

    def _make_pipeline(self, *, body: bytes, **_: Any) -> tuple[int, Any]:
        made = {**json.loads(body), "pipeline_id": str(uuid.uuid4())}
        if any(each["display_name"] == made["display_name"] for each in self.pipelines.values()):
            return _error(409, 6, "the pipeline exists already")
        self.pipelines[made["pipeline_id"]] = made
        return 200, made

    def _upload(self, *, query: dict[str, str], body: bytes, **_: Any) -> tuple[int, Any]:
        own = (each for each in self.versions.values() if each["pipeline_id"] == query["pipelineid"])
        if any(each["display_name"] == query["name"] for each in own):
            return 500, {"error_message": "Failed to create a pipeline version"}
        made = {
            "pipeline_id": query["pipelineid"],
            "pipeline_version_id": str(uuid.uuid4()),
            "display_name": query["name"],
        }
        self.versions[made["pipeline_version_id"]] = made
        content = body.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n--", 1)[0]
        self.texts[made["pipeline_version_id"]] = content.decode()
        return 200, made

    # -- runs

    def _make_experiment(self, *, body: bytes, **_: Any) -> tuple[int, Any]:
        made = {**json.loads(body), "experiment_id": str(uuid.uuid4())}
        self.experiments[made["experiment_id"]] = made
        return 200, made

    def _start(self, *, body: bytes, **_: Any) -> tuple[int, Any]:
        run_id = self.run_ids.pop(0) if self.run_ids else str(uuid.uuid4())
        made = {**json.loads(body), "run_id": run_id, "state": "PENDING", "state_history": []}
        self.runs[made["run_id"]] = made
        self._places[made["run_id"]] = (list(self.steps), -1)
        return 200, made

    def play(self, run_id: str, steps: Sequence[Step]) -> None:
        """Let a run go on with other steps."""
        self._places[run_id] = (list(steps), -1)

    def now(self, run_id: str) -> Step:
        """A run's current state."""
        steps, place = self._places[run_id]
        return steps[max(0, place)]

    def _run(self, run_id: str, **_: Any) -> tuple[int, Any]:
        if run_id not in self.runs:
            return _error(404, 5, f"Run {run_id} not found")
        steps, place = self._places[run_id]
        self._places[run_id] = (steps, min(place + 1, len(steps) - 1))
        step = self.now(run_id)
        step.then()
        if step.state == "deleted":
            del self.runs[run_id]
            return self._run(run_id)
        run = self.runs[run_id]
        if run["state"] != step.state:
            run["state_history"].append({"state": step.state})
            run["state"] = step.state
        details = {} if step.flow is None else {"run_details": {"task_details": step.flow.details()}}
        return 200, {**run, **details}

    def _run_of_v1(self, run_id: str, **_: Any) -> tuple[int, Any]:
        if run_id not in self.runs:
            return _error(404, 5, f"Run {run_id} not found")
        flow = self.now(run_id).flow
        text = "" if flow is None else json.dumps(flow.workflow())
        return 200, {"run": {"id": run_id}, "pipeline_runtime": {"workflow_manifest": text} if text else {}}

    def _terminate(self, run_id: str, **_: Any) -> tuple[int, Any]:
        if run_id not in self.runs or self.runs[run_id]["state"] in {"SUCCEEDED", "FAILED"}:
            return _error(400, 3, f"Failed to terminate a run {run_id}. Row not found")
        flow = self.now(run_id).flow
        self._places[run_id] = ([step._replace(flow=step.flow or flow) for step in self.after_cancel], -1)
        return 200, {}


def _error(status: int, code: int, message: str) -> tuple[int, Any]:
    return status, {"code": code, "message": message, "details": []}


@contextmanager
def serving(steps: Sequence[Step] = ()) -> Iterator[StandIn]:
    """A server on the loopback, until the block ends."""
    content = StandIn()
    content.steps = list(steps) or content.steps

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer in one piece: two would wait for each other's acknowledgement

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            content.requests.append(f"{self.command} {urlsplit(self.path).path}")
            failure = content.failures.pop(0) if content.failures else None
            if failure == 0:
                self.close_connection = True
                self.connection.close()
                return
            status, answer = content.answer(self.command, self.path, body)
            if content.token and self.headers.get("authorization") != f"Bearer {content.token}":
                status, answer = _error(401, 16, "Request header error: there is no user identity header")
            if content.cookies and self.headers.get("Cookie") != content.cookies:
                status, answer = 200, "<html>log in</html>"
            if failure:
                status, answer = _error(failure, 14, "the database is away")
            self._send(status, answer)

        def _send(self, status: int, answer: Any) -> None:
            is_page = isinstance(answer, str)
            data = answer if isinstance(answer, bytes) else (answer if is_page else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_page else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _handle  # noqa: N815 - the base class's names

        def log_message(self, *_: object) -> None:
            """Do not log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="KFP")
    thread.start()
    content.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield content
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
