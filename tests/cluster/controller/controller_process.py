"""``spotwright controller`` as a process beside a small API server, perhaps with a wrong clock, and who reads from it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from tests.cluster.admission_objects import a_config
from tests.cluster.watching.small_api_server import SmallApiServer

JOBS, PODS, NODES = "/apis/batch/v1/jobs", "/api/v1/pods", "/api/v1/nodes"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/spotwright/configmaps"
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


STORE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char ours[4096];
static int broken(void) { const char *flag = getenv("STORE_IS_BROKEN"); return flag && !access(flag, F_OK); }
static int fail(void) { errno = atoi(getenv("STORE_FAILS_WITH")); return -1; }
static int opened(const char *path, int flags, int file) {
  const char *store = getenv("STORE");
  if (file >= 0 && file < 4096) ours[file] = store && (flags & O_ACCMODE) && !strncmp(path, store, strlen(store));
  return file;
}
static int refused(const char *path, int flags) {
  const char *store = getenv("STORE");
  return store && (flags & (O_ACCMODE | O_CREAT)) && !strncmp(path, store, strlen(store)) && broken();
}
#define OPEN(name) int name(const char *path, int flags, ...) { \\
  static int (*real)(const char *, int, ...); va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); \\
  if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \\
  return refused(path, flags) ? fail() : opened(path, flags, real(path, flags, mode)); }
OPEN(open) OPEN(open64)
#define WRITE(name, type) ssize_t name(int file, const void *data, size_t size, type at) { \\
  static ssize_t (*real)(int, const void *, size_t, type); \\
  if (!real) real = (ssize_t (*)(int, const void *, size_t, type))dlsym(RTLD_NEXT, #name); \\
  return file < 4096 && ours[file] && broken() ? fail() : real(file, data, size, at); }
WRITE(pwrite, off_t) WRITE(pwrite64, off64_t)
"""
"""A library for LD_PRELOAD: while a file is there, nothing in a folder can be opened for writing, nor written."""


def wrong_clock(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong by so many seconds."""
    return {"LD_PRELOAD": _library(folder, CLOCK), "CLOCK_IS_WRONG_BY": str(seconds)}


def broken_store(folder: Path, store: Path, flag: Path, error: int) -> dict[str, str]:
    """The environment of a process that can write nothing in ``store`` while ``flag`` exists: it gets this error instead."""
    told = {"STORE": str(store), "STORE_IS_BROKEN": str(flag), "STORE_FAILS_WITH": str(error)}
    return {"LD_PRELOAD": _library(folder, STORE), **told}


def _library(folder: Path, text: str) -> str:
    source, library = folder / "library.c", folder / "library.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return str(library)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(each) for each in (task / "children").read_text().split()]
    return found


class Process:
    """A controller that runs. ``log`` is what it has written."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
        self.process, self.state, self._folder, self._log = process, folder / "state", folder, log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, and fail with the log if the process ends before."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found := condition()):
                    assert self.process.poll() is None, self.log
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{self.log}") from None
        return found

    def address(self, words: str) -> str:
        """The address that the log names behind these words."""
        return next(line.split(" at ")[1] for line in self.log.splitlines() if words in line)

    async def read(self, *command: str) -> Any:
        """What a command prints as JSON of the runs in the controller's folder; ``job/NAME`` is a run."""
        named = [
            next(path.name for path in (self.state / "runs").glob(f"*.{word[4:]}-*"))
            if word.startswith("job/")
            else word
            for word in command
        ]
        words = [sys.executable, "-m", "spotwright", *named, "--json", "--state", str(self.state)]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False)
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
    """A cluster with one labelled namespace, team-a, its ConfigMap and these nodes. Whoever asks may read everything."""
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
    server.served = {"/apis/batch/v1": ["jobs"]}
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


def show(server: SmallApiServer, collection: str, made: Mapping[str, Any]) -> None:
    """Add or change an object; one with a namespace can be got by its own path too."""
    server.put(collection, made["metadata"]["name"], uid=made["metadata"].get("uid", ""), **made)


def moment(seconds: float) -> str:
    """A moment as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def controller_process(
    folder: Path, server: SmallApiServer, *options: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """A controller with its state in ``folder/state`` that is ready, until the block ends."""
    command = [sys.executable, "-m", "spotwright", "controller", "--state", str(folder / "state"), "-v"]
    command += ["--kubeconfig", str(kubeconfig(folder, server)), "--webhook-url", "https://127.0.0.1:1"]
    command += ["--listen", "127.0.0.1:0", "--read-listen", "127.0.0.1:0", *options]
    log = folder / "controller.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env={**os.environ, **(environment or {})})  # noqa: ASYNC220
    made = Process(process, folder, log)
    try:
        await made.until(lambda: " ready\n" in made.log and "streams are complete" in made.log, "it is ready")
        yield made
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
