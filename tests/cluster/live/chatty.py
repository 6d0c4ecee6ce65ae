"""A pod that writes numbered lines without a pause, what it wrote by then, and a keeper of logs beside it.

The pod notes the number of each line in a volume once it is written. After a fault the truth is read on the node's disk: this
number, and the file of the container's output, in the format of the runtime.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.settings import Settings
from tests.cluster.live.kube import Kube, Object, job, pod_spec
from tests.cluster.live.recorded import kept_log, log_is_complete

from spotwright.records.state_folder import StateFolder

NODE, NUMBER = "n2", 2
CHATTY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pause, width = float(sys.argv[1]), int(sys.argv[2])
last = os.open("/count/last", os.O_WRONLY | os.O_CREAT)
number = 0
while not os.path.exists("/count/stop"):
    number += 1
    text = b"%d %s\\n" % (number, b"x" * (number % width))
    if number % 50 == 0:
        text += b"the same\\nthe same\\n" + b"\\xff not UTF-8\\n"
    if number % 500 == 0:
        text += b"y" * 50_000 + b"\\n"
    os.write(1, text)
    os.pwrite(last, b"%9d" % number, 0)
    time.sleep(pause)
"""


def chatty(namespace: str, *, pause: float = 0.005, width: int = 100) -> Object:
    """A Job whose pod writes lines until :func:`stop`, with so many seconds after each, and fewer bytes than ``width`` a line."""
    container = {
        "name": "main",
        "image": "localhost/python:1",
        "imagePullPolicy": "Never",
        "command": ["python3", "-u", "-c", CHATTY, str(pause), str(width)],
        "volumeMounts": [{"name": "count", "mountPath": "/count"}],
    }
    spec = pod_spec(container, NODE, volumes=[{"name": "count", "emptyDir": {}}], terminationGracePeriodSeconds=2)
    return job("chatty", namespace, spec)


class Keeper:
    """The watcher with its keeper of logs, as a process."""

    def __init__(self, kube: Kube, folder: Path, namespace: str, *options: str) -> None:
        self.state = folder / "state"
        self._log = folder / "keeper.log"
        self._command = [sys.executable, "-m", "tests.cluster.watching.watching_main", "--state", str(self.state)]
        self._command += ["--kubeconfig", str(kube.kubeconfig), "--namespace", namespace, *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs during the block, and again where the block has killed it."""
        self.start()
        try:
            yield
        finally:
            self.kill()

    @property
    def _run(self) -> str:
        """The name of the Job's run; empty before it has begun."""
        folders = StateFolder.existing(self.state).runs() if self.state.exists() else []
        return next((folder.name for folder in folders), "")

    def kept(self) -> bytes:
        """The bytes that are kept of the log of its attempt."""
        run = self._run
        return kept_log(self.state / "logs", run, "chatty") if run else b""

    def has_finished(self) -> bool:
        """Whether the log is complete."""
        run = self._run
        return bool(run) and log_is_complete(self.state / "logs", run, "chatty")


def written(bed: Settings, uid: str) -> int:
    """The number of the last line that the pod has written, read on the node's disk."""
    return int((_volume(bed, uid) / "last").read_bytes())


def stop(bed: Settings, uid: str) -> None:
    """Let the pod end with its next line."""
    (_volume(bed, uid) / "stop").touch()


def output(bed: Settings, namespace: str, uid: str) -> bytes:
    """The container's output as the runtime stored it, without the parts that the kubelet rotated away."""
    (path,) = (bed.node_folder(NUMBER) / "pods").glob(f"{namespace}_*_{uid}/main/0.log")
    return b"".join(_text(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))


def numbers(text: bytes) -> list[int]:
    """The numbers of the lines."""
    return [int(line.split(b" ")[0]) for line in text.split(b"\n") if line[:1].isdigit() and b" " in line]


def _volume(bed: Settings, uid: str) -> Path:
    return bed.node_folder(NUMBER) / f"kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/count"


def _text(line: bytes) -> bytes:
    _time, _stream, tag, text = line.split(b" ", 3)
    return text[:-1] if tag == b"P" else text
