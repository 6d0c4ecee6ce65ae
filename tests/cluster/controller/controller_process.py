"""The two processes of a controller beside a small API server, perhaps with a wrong clock, and who reads what they keep."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.cluster.admission_objects import a_config
from tests.cluster.watching.small_api_server import SmallApiServer

JOBS, PODS, NODES = "/apis/batch/v1/jobs", "/api/v1/pods", "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/spotwright/leases"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/spotwright/configmaps"
READING = ("--read-listen", "127.0.0.1:0")
PATIENCE = 60.0
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long wrong_by(void) { const char *text = getenv("CLOCK_IS_WRONG_BY"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(clock, at);
  if (!done && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += wrong_by();
  return done;
}
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now; (void)zone;
  int done = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec; at->tv_usec = now.tv_nsec / 1000; return done;
}
time_t time(time_t *at) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec; return now.tv_sec;
}
"""
"""A library for LD_PRELOAD: to its process the wall clock is wrong by so many seconds, while the monotonic one is right."""


def wrong_clock(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong by so many seconds."""
    source, library = folder / "library.c", folder / "library.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_IS_WRONG_BY": str(seconds)}


class Controller:
    """A running webhook and recorder. ``log`` is their output."""

    def __init__(self, folder: Path, server: SmallApiServer, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, {**os.environ, **environment}
        self._kubeconfig = kubeconfig(folder, server)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[Path] = []

    def start(self, name: str, *options: str) -> None:
        """Start a process: ``webhook`` or ``recorder``."""
        command = [sys.executable, "-m", "spotwright", "controller", name, "-v", "--metrics-listen", "127.0.0.1:0"]
        command += ["--kubeconfig", str(self._kubeconfig), *options]
        self._logs.append(self._folder / f"{name}-{len(self._logs)}.log")
        with self._logs[-1].open("wb") as file:
            self.processes[name] = subprocess.Popen(command, stderr=file, env=self._environment)

    async def stop(self) -> None:
        """End both."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.to_thread(process.wait, 20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def log(self) -> str:
        return "".join(path.read_text(encoding="utf-8") for path in self._logs)

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, and fail with the log if a process ends before."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := condition()):
                    assert all(each.poll() is None for each in self.processes.values()), self.log
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{self.log}") from None
        return found

    def address(self, words: str) -> str:
        """The address that the log names behind these words."""
        return [line.split(" at ")[1] for line in self.log.splitlines() if words in line][-1]

    async def read(self, server: SmallApiServer, *command: str) -> Any:
        """The JSON that a command prints to a reader of this controller's records."""
        authority = self._folder / "authority.pem"
        authority.write_text(server.objects[MAPS]["spotwright-reading"]["data"]["ca.crt"])
        words = [sys.executable, "-m", "spotwright", *command, "--json", "--cluster"]
        words += ["--kubeconfig", str(self._kubeconfig)]
        if command[0] == "logs":
            words += ["--controller", self.address("logs are read")]
        environment = {**os.environ, "SPOTWRIGHT_CONTROLLER_CA": str(authority)}
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


def kubeconfig(folder: Path, server: SmallApiServer) -> Path:
    """A kubeconfig for the small API server."""
    path = folder / "kubeconfig"
    clusters, users = [{"name": "c", "cluster": {"server": server.url}}], [{"name": "u", "user": {"token": "t"}}]
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    document = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": clusters, "users": users}
    path.write_text(yaml.safe_dump({**document, "contexts": contexts}))
    return path


def a_cluster(server: SmallApiServer, policy: str, *nodes: Mapping[str, Any]) -> None:
    """A cluster with one labelled namespace, team-a, its ConfigMap and these nodes. Every caller may read everything."""
    for collection in (
        "/api/v1/configmaps",
        "/api/v1/namespaces",
        NODES,
        PODS,
        "/api/v1/events",
        JOBS,
        MAPS,
        REGISTRATIONS,
    ):
        server.objects[collection] = {}
    server.served["/apis/batch/v1"] = ["jobs"]
    for collection, name in made_beforehand().items():
        server.put(collection, name, metadata={"namespace": "spotwright"})
    server.put("/api/v1/namespaces", "team-a", metadata={"labels": {"spotwright.dev/enabled": "true"}})
    meta, text = {"namespace": "team-a"}, {"spotwright.yaml": a_config(policy).text}
    server.put("/api/v1/configmaps", "spotwright", data=text, kind="ConfigMap", metadata=meta)
    for node in nodes:
        show(server, NODES, node)

    async def token(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": {"authenticated": True, "user": {"username": "anna"}}}, status=201)

    async def access(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": {"allowed": True}}, status=201)

    server.pages["/apis/authentication.k8s.io/v1/tokenreviews"] = token
    server.pages["/apis/authorization.k8s.io/v1/subjectaccessreviews"] = access


def made_beforehand() -> dict[str, str]:
    """The chart's objects for the controller at home, by the path of their collection."""
    return {LEASES: "spotwright", MAPS: "spotwright-reading"}


def show(server: SmallApiServer, collection: str, made: Mapping[str, Any]) -> None:
    """Add or change an object; one with a namespace can be got by its own path too."""
    server.put(collection, made["metadata"]["name"], uid=made["metadata"].get("uid", ""), **made)


def moment(seconds: float) -> str:
    """A moment as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def controller_process(
    folder: Path, server: SmallApiServer, *recorder: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Controller]:
    """A controller whose processes are ready, until the block ends. ``recorder`` are options of that process."""
    made = Controller(folder, server, environment or {})
    made.start("webhook", "--webhook-url", "https://127.0.0.1:1", "--listen", "127.0.0.1:0")
    made.start("recorder", *READING, *recorder)
    try:
        await made.until(lambda: " ready\n" in made.log and "streams are complete" in made.log, "it is ready")
        yield made
    finally:
        await made.stop()
