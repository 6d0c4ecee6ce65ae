"""An API server with recorded runs on the loopback, and a controller that serves their logs over TLS."""

from __future__ import annotations

import asyncio
import io
import itertools
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import yaml
from aiohttp import web
from tests.cluster.folder_records import FolderRuns
from tests.cluster.granted_rights import is_allowed
from tests.cluster.log_keeping.stores import write_whole
from tests.cluster.records.record_server import RecordServer, login

from spotwright.cli import main
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.api_run_records import ApiRecord
from spotwright.cluster.kubernetes_login import Kubernetes as Login
from spotwright.cluster.limited_server import serve
from spotwright.cluster.log_parts import Objects
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_server import Access, LogServer, accept_certificates
from spotwright.cluster.log_store import LogStore
from spotwright.cluster.run_objects import API_VERSION, RUN, records_path
from spotwright.cluster.run_records import UID
from spotwright.cluster.shown_runs import LogsKept
from spotwright.cluster.spot_pools import KIND as SPOT_POOL
from spotwright.cluster.spot_pools import pool_objects
from spotwright.cluster.unavailable_pools import Findings
from spotwright.engine.fold import fold
from spotwright.engine.state import RunState
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import PlanVersions, RunFiles, load_plans

GROUP = "spotwright:repair"
USERS = {"anna-token": "anna", "admin-token": "admin"}
"""Users by token. Anna may get pods and their logs in team-a; Bert, who has a certificate, only pods there; admin everything."""


class Kubernetes:
    """An API server with records: it answers token reviews and subject access reviews, and notes them."""

    def __init__(self) -> None:
        self.records = RecordServer()
        self.records.served[f"/apis/{API_VERSION}"].append("spotpools")
        self.records.objects[records_path(SPOT_POOL, "")] = {}
        self.reviews: list[dict[str, Any]] = []
        self.is_down = False
        self.objects: dict[str, dict[str, Any]] = {}  # by path
        self.writes: list[str] = []  # methods of what was written
        self.refused: set[str] = set()  # tokens that have expired
        self.forbidden: tuple[
            str, ...
        ] = ()  # beginnings of paths that people may not read; with a dollar sign whole paths
        self.served: tuple[str, ...] = ("team-a", "team-b")
        self.pools_are_seen = True  # by everybody
        self._are_hidden = False

    def hide_records(self, *, hidden: bool) -> None:
        """Deny people the records, or allow them again."""
        self._are_hidden = hidden

    async def review_token(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.json_response({"message": "etcd is away"}, status=500)
        token = (await request.json())["spec"]["token"]
        user = None if token in self.refused else USERS.get(token)
        groups = ["people", GROUP] if user == "admin" else ["people"]
        status = {"authenticated": user is not None, "user": {"username": user, "groups": groups} if user else {}}
        return web.json_response({"status": status})

    async def review_access(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.json_response({"message": "etcd is away"}, status=500)
        spec = (await request.json())["spec"]
        self.reviews.append(spec)
        wanted = spec["resourceAttributes"]
        user, namespace, subresource = spec["user"], wanted.get("namespace", ""), wanted.get("subresource", "")
        allowed = user == "admin" or (
            namespace == "team-a" and (user == "anna" or (user == "bert" and not subresource))
        )
        return web.json_response({"status": {"allowed": allowed}})

    async def recorded(self, request: web.Request) -> web.StreamResponse:
        """Records within the caller's rights: the controller writes, and people read those of their namespaces."""
        login = request.headers.get("Authorization", "")
        user = USERS.get(login.removeprefix("Bearer ")) if login else "bert"  # who has a certificate sends nothing
        is_ours = login == "Bearer t"
        if user is None and not is_ours:
            return web.json_response({"message": "Unauthorized"}, status=401)
        if (
            is_ours
            and request.method == "GET"
            and not is_allowed(f"GET {request.path_qs}", "recorder", served=self.served)
        ):
            return web.json_response({"message": "forbidden"}, status=403)
        may_see = "/namespaces/team-a/" in request.path or (self.pools_are_seen and request.path.endswith("/spotpools"))
        if not is_ours and (self._are_hidden or (user != "admin" and not may_see)):
            return web.json_response({"message": "forbidden"}, status=403)
        return await self.records._handle(request)

    async def show(self, request: web.Request) -> web.Response:
        if request.path == f"/apis/{API_VERSION}":
            return web.json_response({"resources": []})
        is_ours = request.headers.get("Authorization") == "Bearer t"  # the others have rights of their own
        if is_ours and not is_allowed(f"GET {request.path_qs}", "recorder", served=self.served):
            return web.json_response({"message": "forbidden"}, status=403)
        if not is_ours and any(f"{request.path}$".startswith(each) for each in self.forbidden):
            return web.json_response({"message": "forbidden"}, status=403)
        name = parse_qs(request.query.get("fieldSelector", "")).get("metadata.name", [""])[0]
        if name:
            path = f"/api/v1/namespaces/{name}"
            return web.json_response({"items": [self.objects.get(path) or _namespace(path)]})
        found = self.objects.get(request.path) or _namespace(request.path)
        return web.json_response(found or {"message": "not found"}, status=404 if found is None else 200)

    async def write(self, request: web.Request) -> web.Response:
        body = await request.json()
        collection = request.path if request.method == "POST" else request.path.rpartition("/")[0]
        self.objects[f"{collection}/{body['metadata']['name']}"] = body
        self.writes.append(request.method)
        return web.json_response(body)

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.post("/apis/authentication.k8s.io/v1/tokenreviews", self.review_token),
                web.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.review_access),
                web.route("*", f"/apis/{API_VERSION}/{{path:.+}}", self.recorded),
                web.get("/{path:.*}", self.show),
                web.put("/{path:.*}", self.write),
                web.post("/api/{path:.*}", self.write),
            ]
        )
        return app


def _namespace(path: str) -> dict[str, Any] | None:
    """The namespace that a path names: each one is there, as the one that the runs were recorded in."""
    name = path.removeprefix("/api/v1/namespaces/")
    return {"metadata": {"name": name, "uid": f"uid-{name}"}} if name != path and "/" not in name else None


class Served:
    """A controller on the loopback. ``environment`` lets the command line find it, as anna unless another token is named."""

    def __init__(self, folder: Path, logs: str) -> None:
        self.folder, self.logs = folder, logs
        self.kubernetes = Kubernetes()
        self.api_url = self.url = ""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._fake: web.AppRunner | None = None
        self._api: Api | None = None

    def run(self) -> None:
        """Run the loop in a separate thread until :meth:`end`."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def begin(self) -> None:
        """Start the API server, then the controller."""
        self._fake = web.AppRunner(self.kubernetes.application(), shutdown_timeout=0.1)
        await self._fake.setup()
        await web.TCPSite(self._fake, "127.0.0.1", 0).start()
        self.api_url = f"http://127.0.0.1:{self._fake.addresses[0][1]}"
        self._api = Api(connect(find_cluster(kubeconfig=str(self.kubeconfig("controller", token="t")))))
        await self.start()

    async def start(self) -> None:
        """Start the controller, at the port that it had before."""
        assert self._api is not None
        authority = (self.folder / "clients.crt").read_text()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        accept_certificates(context, authority)
        server = LogServer(Access(self._api), Objects(self.logs), GROUP)
        self._runner = await serve(server.application(), host="127.0.0.1", port=self.port, context=context)
        self.port = self._runner.addresses[0][1]
        self.url = f"https://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """End the controller, and cut its connections."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def end(self) -> None:
        """End everything."""
        await self.stop()
        assert self._api is not None
        await self._api.close()
        assert self._fake is not None
        await self._fake.cleanup()

    def record(self, state: Path, *, with_logs: bool = True) -> None:
        """Record the runs of a state folder in the API, and write their logs into the store."""
        with login(self.kubeconfig("controller", token="t")) as kubernetes:
            for at, folder in enumerate(StateFolder.existing(state).runs()):
                record_again(kubernetes, folder)
                for kept in self.kubernetes.records.kept(RUN):
                    if kept["metadata"]["name"] == folder.name:
                        made = datetime.fromtimestamp(1_700_000_000 + at, UTC)
                        kept["metadata"]["creationTimestamp"] = f"{made:%Y-%m-%dT%H:%M:%SZ}"
        if with_logs:
            asyncio.run(store_logs(StateFolder.existing(state), self.logs))

    def kubeconfig(self, name: str, **user: str) -> Path:
        """A kubeconfig with one context, ``bed``, and this user."""
        path = self.folder / f"{name}.kubeconfig"
        context = {"cluster": "bed", "user": name} | ({} if name == "admin" else {"namespace": "team-a"})
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bed",
            "clusters": [{"name": "bed", "cluster": {"server": self.api_url}}],
            "contexts": [{"name": "bed", "context": context}],
            "users": [{"name": name, "user": user}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def options(self, name: str = "anna") -> list[str]:
        """The options of a command for a user: anna and admin have tokens, bert has a certificate."""
        user = {"token": f"{name}-token"}
        if (self.folder / f"{name}.crt").exists():
            files = {"client-certificate": f"{name}.crt", "client-key": f"{name}.key"}
            user = {key: str(self.folder / file) for key, file in files.items()}
        kubeconfig = self.kubeconfig(name, **user)
        return ["--cluster", "--kubeconfig", str(kubeconfig), "--controller", self.url]


def record_again(kubernetes: Login, folder: RunFolder) -> None:
    """Record a run of a state folder in the API, event by event as it was."""
    source = RunFiles(folder, lambda _: False)
    reader = RunReader(folder, source)
    arguments = reader.state.meta.arguments
    record = ApiRecord(kubernetes, folder, str(arguments["namespace"]), LogsKept.VOLUME)
    record.uid = str(arguments[UID])
    record.create(load_plans(folder, source)[0])
    record.open()
    with source.look(0) as look:
        events = [event for _, event in look.events]
    state = RunState(PlanVersions(folder, source))
    for event in events:
        fold(state, event)
        record.append([event], state)


async def store_logs(state: StateFolder, url: str) -> None:
    """Write the logs of a state folder into a store, each in some parts."""
    store = LogStore(url, 64 << 20, FolderRuns(state))
    for folder in state.runs():
        for path in sorted(folder.path.glob("tasks/*/attempt-*/log.txt")):
            name = LogName(folder.name, path.parent.parent.name, int(path.parent.name.removeprefix("attempt-")))
            text = path.read_bytes()
            cuts = sorted({0, 5, 9, len(text) // 2, len(text)} & {*range(len(text) + 1)})
            await write_whole(store, name, *(text[begin:end] for begin, end in itertools.pairwise(cuts)))


@contextmanager
def serving(folder: Path, state: Path | None = None, logs: str = "", found: Findings | None = None) -> Iterator[Served]:
    """A controller that serves the logs of a state folder, whose runs are recorded in the API.

    ``folder`` has the certificates of :func:`make_certificates`. ``logs`` is the address of a log store. ``found`` are the
    namespaces' findings about pools.
    """
    with TemporaryDirectory() as beside:
        served = Served(folder, logs or f"file://{beside}/store")
        thread = threading.Thread(target=served.run)
        thread.start()
        try:
            served.do(served.begin())
            if state is not None:
                served.record(state, with_logs=not logs)
            for name, one in pool_objects({}, (), found or {}, time.time(), "here").items():
                served.kubernetes.records.put(records_path(SPOT_POOL, ""), name, **one)
            yield served
        finally:
            served.do(served.end())
            served._loop.call_soon_threadsafe(served._loop.stop)
            thread.join()
            served._loop.close()


def make_certificates(folder: Path) -> None:
    """The controller's certificate, an authority of clients, and the certificate of Bert that it has signed."""
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl("req", "-x509", *new, "-keyout", "tls.key", "-out", "tls.crt", *names)
    openssl("req", "-x509", *new, "-keyout", "clients.key", "-out", "clients.crt", "-subj", "/CN=clients")
    openssl("req", *new, "-keyout", "bert.key", "-out", "bert.csr", "-subj", "/O=people/CN=bert")
    signing = ["-CA", "clients.crt", "-CAkey", "clients.key", "-CAcreateserial", "-days", "2"]
    openssl("x509", "-req", "-in", "bert.csr", *signing, "-out", "bert.crt")
    openssl("req", "-x509", *new, "-keyout", "stranger.key", "-out", "stranger.crt", "-subj", "/CN=stranger")


class Printed(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


def spotwright(*arguments: str) -> Printed:
    """Run a command as the command line does, in this process."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["spotwright", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        return Printed(int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("a command ends with its exit code")
