"""Measures the keeper of logs at size: memory, CPU and lag with hundreds of logs followed at once.

No cluster is needed: a process of its own serves the log endpoints of the pods over TLS, one stream a pod, as an API server does,
and the keeper is a process beside it with the client that a controller has. Every line holds the time at which it was written, so
the lag is read from the store: from a line's birth until it is in a part of its log::

    python -m benchmarks.cluster.follow_many_logs [--logs 500] [--rate 2] [--seconds 30] [--cuts 20]

``--cuts`` streams are broken off in the middle of the time and taken up again; in the end every log is held against what was
sent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from spotwright.cluster.api_client import Api, connect, find_cluster
from spotwright.cluster.log_keeper import DEFAULT_LIMIT, LogKeeper, SeenAttempt
from spotwright.cluster.log_place import LogName
from spotwright.cluster.log_store import FolderRuns, LogStore
from spotwright.records.state_folder import StateFolder

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLED = 25  # logs whose lag is looked at: looking costs time as well
WIDTH = 100  # bytes of a line
LOOKS = 0.02  # seconds between two looks at a file


def a_pod(name: str, *, has_ended: bool = False) -> dict[str, Any]:
    """A pod that runs, or has ended."""
    state = {"terminated": {"exitCode": 0}} if has_ended else {"running": {"startedAt": "2026-05-28T20:26:40Z"}}
    status = {
        "phase": "Succeeded" if has_ended else "Running",
        "containerStatuses": [{"name": "main", "restartCount": 0, "state": state}],
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "main"}]}
    return {"metadata": {"namespace": "a", "name": name, "uid": f"uid-{name}"}, "spec": spec, "status": status}


# The API server


class Log:
    """A log that grows by ``rate`` lines a second until ``ends_at``; a line is its number and the time of its birth."""

    def __init__(self, began_at: float, rate: float, ends_at: float) -> None:
        self.began_at, self.rate, self.ends_at = began_at, rate, ends_at

    def born_at(self, number: int) -> float:
        """When a line is written."""
        return self.began_at + number / self.rate

    def stamped(self, number: int) -> bytes:
        """A line as the endpoint sends it."""
        at = self.born_at(number)
        stamp = f"{datetime.fromtimestamp(int(at), tz=UTC):%Y-%m-%dT%H:%M:%S}.{int(at % 1 * 1e9):09d}Z "
        return stamp.encode() + f"{number} {at:.6f} ".encode().ljust(WIDTH - 1, b"x") + b"\n"

    @property
    def last(self) -> int:
        """The number of lines by now."""
        return int((min(time.time(), self.ends_at) - self.began_at) * self.rate) + 1


class Server:
    """Serves logs whose lines arrive at separate times."""

    def __init__(self, options: argparse.Namespace) -> None:
        now, moments = time.time(), random.Random(2)  # noqa: S311  # when lines come
        self.ends_at = now + options.seconds
        self.logs = {
            f"/api/v1/namespaces/a/pods/pod-{number}/log": Log(now - moments.random(), options.rate, self.ends_at)
            for number in range(options.logs)
        }
        self.cut: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The endpoint of a pod."""
        log, since = self.logs[request.path], request.query.get("sinceTime", "")
        begins = datetime.fromisoformat(since).timestamp() if since else 0.0
        number = next((n for n in range(log.last) if log.born_at(n) >= begins), log.last)
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            last = log.last
            if number < last:
                await response.write(b"".join(map(log.stamped, range(number, last))))
                number = last
            if request.query.get("follow") is None or time.time() >= self.ends_at:
                return response
            if request.path in self.cut and request.transport is not None:
                self.cut.discard(request.path)
                request.transport.close()
                return response
            await asyncio.sleep(max(0.0, log.born_at(number) - time.time()))


async def serve(folder: Path, options: argparse.Namespace) -> None:
    """Serve until the logs have ended, and a while longer for those who ask once more."""
    server = Server(options)
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/a/pods/{name}/log", server.answer)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context, backlog=1024).start()
    address = f"https://127.0.0.1:{runner.addresses[0][1]}"
    cluster = {"name": "c", "cluster": {"server": address, "certificate-authority": str(folder / "tls.crt")}}
    login = {"clusters": [cluster], "users": [{"name": "u", "user": {}}], "current-context": "c"}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    (folder / "part").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": contexts, **login}))
    (folder / "part").rename(folder / "kubeconfig")
    await asyncio.sleep(options.seconds / 2)
    chosen = random.Random(1).sample(range(options.logs), options.cuts)  # noqa: S311  # which streams are cut
    server.cut = {list(server.logs)[number] for number in chosen}
    await asyncio.sleep(options.seconds / 2 + 60)


# The keeper


async def keep(folder: Path, options: argparse.Namespace) -> None:
    """Follow every log until all are complete."""
    api = Api(connect(find_cluster(kubeconfig=str(folder / "kubeconfig")), many_streams=True))
    state = StateFolder.open(folder / "state")
    keeper = LogKeeper(api, LogStore(f"file://{folder}/store", DEFAULT_LIMIT, FolderRuns(state)))
    task = asyncio.create_task(keeper.run())
    names = [f"pod-{number}" for number in range(options.logs)]

    def tell(*, has_ended: bool) -> None:
        for name in names:
            log = LogName.of(state.run("run"), name, 1)
            keeper.follow(SeenAttempt(f"uid-{name}/0", log, a_pod(name, has_ended=has_ended), 0))

    tell(has_ended=False)
    while not (folder / "ended").exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.2)
    tell(has_ended=True)
    while keeper.open_logs:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.05)
    task.cancel()
    await api.close()


# The measurement


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int, name: str) -> float:
    """``VmRSS`` or ``VmHWM`` of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000


def lags(logs: list[Path], until: float) -> list[float]:
    """Seconds from the birth of the newest line of each log (its first part) to the moment when it was first seen there."""
    seen, found = dict.fromkeys(logs, b""), []
    while time.time() < until:
        for path in logs:
            line = text_of(path.with_name(parts_of(path)[-1]))[-WIDTH:]
            if line != seen[path]:
                seen[path] = line
                found.append(time.time() - float(line.split()[1]))
        time.sleep(LOOKS)
    return found


def parts_of(first: Path) -> list[str]:
    """The names of the parts of a log, given the first one, in their order."""
    return sorted(each.name for each in first.parent.iterdir() if each.name.isdecimal())


def text_of(part: Path) -> bytes:
    """The text of a part, which is followed by a line of JSON."""
    data = part.read_bytes()
    return data[: data.rindex(b"\n[")]


def whole(first: Path) -> bytes:
    """A whole log, given its first part."""
    return b"".join(text_of(first.with_name(name)) for name in parts_of(first))


def main() -> None:
    """Run the processes and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--rate", type=float, default=2.0, help="lines a second of each")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--part", choices=("serve", "keep"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.part:
        asyncio.run((serve if options.part == "serve" else keep)(options.folder, options))
        return
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Start both processes, look at the keeper, and check the logs."""
    new = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(["openssl", "req", *new, *names, *files], check=True, capture_output=True)

    def start(part: str) -> subprocess.Popen[bytes]:
        given = [f"--{key}={getattr(options, key)}" for key in ("logs", "rate", "seconds", "cuts")]
        return subprocess.Popen([sys.executable, "-m", __spec__.name, f"--part={part}", f"--folder={folder}", *given])

    began, serving, keeping = time.time(), start("serve"), None
    try:
        while not (folder / "kubeconfig").exists():
            time.sleep(0.02)
        keeping = start("keep")
        logs = [folder / f"store/+none/run/pod-{number}/1/00000001" for number in range(options.logs)]
        while not all(path.exists() for path in logs):
            if keeping.poll() is not None or time.time() > began + options.seconds:
                raise SystemExit("not all logs were followed before they ended: give more --seconds")
            time.sleep(0.1)
        print(
            f"all {options.logs} logs are followed after {time.time() - began:.1f} s with {cpu_seconds(keeping.pid):.1f} s of CPU"
        )
        before, at = cpu_seconds(keeping.pid), time.time()
        found = sorted(lags(logs[:: max(1, options.logs // SAMPLED)], began + options.seconds))
        used = (cpu_seconds(keeping.pid) - before) / (time.time() - at)
        rss, load = memory(keeping.pid, "VmRSS"), os.getloadavg()[0]
        (folder / "ended").touch()
        keeping.wait(120)
    finally:
        for process in (serving, keeping):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    print(f"{options.logs} logs, {options.rate:g} lines a second each, {options.cuts} streams cut, load {load:.0f}:")
    print(
        f"memory {rss:.0f} MB, {100 * used:.0f} % of a core, {len(found)} lags: p50 {statistics.median(found):.3f} s, ",
        end="",
    )
    print(f"p99 {found[int(0.99 * len(found))]:.3f} s")
    texts = [whole(path) for path in logs]
    wrong = [text for text in texts if not is_whole(text)]
    print(f"gaps or repeats in {len(wrong)} logs of {len(logs)}, {sum(map(len, texts)) // WIDTH} lines")


def is_whole(text: bytes) -> bool:
    """Whether a log has each number once, in order."""
    numbers = [int(line.split(b" ", 1)[0]) for line in text.splitlines()]
    return numbers == list(range(len(numbers)))


if __name__ == "__main__":
    main()
