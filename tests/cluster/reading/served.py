"""A controller that serves recorded runs over TLS on the loopback, and the API server that tells it who may read what."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import yaml
from aiohttp import web
from tests.cluster.granted_rights import is_allowed

from spotwright.cli import main
from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.log_parts import Objects, StoredLogs
from spotwright.cluster.run_api import Access, ReadingServer, RunIndex, accept_certificates, serving_context
from spotwright.records.state_folder import StateFolder

USERS = {"anna-token": "anna", "admin-token": "admin"}
"""Users by token. Anna may get pods and their logs in team-a; Bert, who has a certificate, only pods there; admin everything."""


class Kubernetes:
    """Answers token reviews and subject access reviews, and notes them."""

    def __init__(self) -> None:
        self.reviews: list[dict[str, Any]] = []
        self.is_down = False
        self.objects: dict[str, dict[str, Any]] = {}  # by path
        self.writes: list[str] = []  # methods of what was written
        self.refused: set[str] = set()  # tokens that have expired
        self.forbidden: tuple[
            str, ...
        ] = ()  # beginnings of paths that people may not read; with a dollar sign whole paths
        self.served: tuple[str, ...] = ("team-a", "team-b")

    async def review_token(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.json_response({"message": "etcd is away"}, status=500)
        token = (await request.json())["spec"]["token"]
        user = None if token in self.refused else USERS.get(token)
        status = {"authenticated": user is not None, "user": {"username": user, "groups": ["people"]} if user else {}}
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

    async def show(self, request: web.Request) -> web.Response:
        is_ours = request.headers.get("Authorization") == "Bearer t"  # the others have rights of their own
        if is_ours and not is_allowed(f"GET {request.path_qs}", served=self.served):
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
                web.get("/{path:.*}", self.show),
                web.put("/{path:.*}", self.write),
                web.post("/api/{path:.*}", self.write),
                web.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self.review_access),
            ]
        )
        return app


def _namespace(path: str) -> dict[str, Any] | None:
    """The namespace that a path names: each one is there, as the one that the runs were recorded in."""
    name = path.removeprefix("/api/v1/namespaces/")
    return {"metadata": {"name": name, "uid": f"uid-{name}"}} if name != path and "/" not in name else None


class Served:
    """A controller on the loopback. ``environment`` lets the command line find it, as anna unless another token is named."""

    def __init__(self, folder: Path, state: Path, logs: str = "") -> None:
        self.folder, self.state, self.logs = folder, state, logs
        self.kubernetes = Kubernetes()
        self.api_url = self.url = ""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._fake: web.AppRunner | None = None
        self._api: Api | None = None

    def run(self) -> None:
        """Run the loop in a thread of its own until :meth:`end`."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def begin(self) -> None:
        """Start the API server, then the controller."""
        self._fake = web.AppRunner(self.kubernetes.application())
        await self._fake.setup()
        await web.TCPSite(self._fake, "127.0.0.1", 0).start()
        self.api_url = f"http://127.0.0.1:{self._fake.addresses[0][1]}"
        self._api = Api(connect(find_cluster(kubeconfig=str(self.kubeconfig("controller", token="t")))))
        await self.start()

    async def start(self) -> None:
        """Start the controller, at the port that it had before."""
        assert self._api is not None
        authority = (self.folder / "clients.crt").read_text()
        context = serving_context(self.folder / "tls.crt", self.folder / "tls.key")
        accept_certificates(context, authority)
        stored = StoredLogs(Objects(self.logs)) if self.logs else None
        index = RunIndex(StateFolder.existing(self.state), lambda _: True)
        server = ReadingServer(index, Access(self._api), logs=stored)
        self._runner = await server.start(context, host="127.0.0.1", port=self.port)
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

    def kubeconfig(self, name: str, **user: str) -> Path:
        """A kubeconfig with one context, ``bed``, and this user."""
        path = self.folder / f"{name}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bed",
            "clusters": [{"name": "bed", "cluster": {"server": self.api_url}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": name}}],
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


@contextmanager
def serving(folder: Path, state: Path, logs: str = "") -> Iterator[Served]:
    """A controller that serves a state folder. ``folder`` has the certificates of :func:`make_certificates`.

    ``logs`` is the address of a store that has the logs.
    """
    served = Served(folder, state, logs)
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        served.do(served.begin())
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
    """What a command printed, and its exit code."""

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
