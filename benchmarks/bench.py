"""The shared part of every line of the benchmark: a separate folder, a clean environment, the inputs, and processes that end.

Bytecode goes to the benchmark's own folder, so that a first run measures the same as a later one, whatever the environment
says about writing it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import inputs

__all__ = ["HERE", "SPOTWRIGHT", "Bench", "BenchmarkError", "Done", "processor_time", "stop", "terminal", "wait_until"]

HERE = Path(__file__).resolve().parent
_PATIENCE = 900.0  # seconds that one process may take
_ROOM_FOR_20 = """\
version: 1
pools:
  bench: {capacity: on-demand, node: {cpu: 20, memory: 64Gi, pods: 20}, max_nodes: 1, simulate: {boot: 0s}}
"""


class BenchmarkError(Exception):
    """A measurement failed; the text says which."""


@dataclass(frozen=True, slots=True)
class Done:
    """A process that ended well: its wall time in seconds and the content of its result file."""

    seconds: float
    result: Mapping[str, Any]


class Bench:
    """One run of the benchmark. Everything is made below ``folder``, or ``memory`` where a disk would be measured."""

    def __init__(self, folder: Path, memory: Path, *, quick: bool, full: bool) -> None:
        self.folder, self.memory, self.quick, self.full = folder, memory, quick, full
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KFP_", "SPOTWRIGHT_"))
        }
        self.env = kept | {
            "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}",  # the simulation lies among the tests
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "BENCHMARK_WHEEL": str(inputs.write_wheel(folder)),
        }
        self._count = 0
        (folder / "spotwright.yaml").write_text(_ROOM_FOR_20)

    def times(self, usual: int, quick: int = 1) -> int:
        """How often something is measured."""
        return quick if self.quick else usual

    @cached_property
    def compiled(self) -> Path:
        """The folder that holds every pipeline of ``pipelines.py``, compiled by the SDK, as ``NAME.yaml``."""
        self.run([sys.executable, HERE / "compile_all.py", self.folder])
        return self.folder

    def grown(self, count: int, *, chain: bool = False) -> Path:
        """A compiled pipeline of ``count`` no-op tasks, independent or a chain, as the SDK would have written it."""
        path = self.folder / f"{'chain' if chain else 'independent'}-{count}.json"
        if not path.exists():
            inputs.write_grown(self.compiled / "chain.yaml", path, count, chain=chain)
        return path

    def loop(self, count: int) -> Path:
        """A compiled pipeline of one loop over ``count`` constants."""
        path = self.folder / f"loop-{count}.json"
        if not path.exists():
            inputs.write_loop(self.compiled / "looping.yaml", path, count)
        return path

    def new_folder(self, name: str, *, in_memory: bool = False) -> Path:
        """An unused folder."""
        self._count += 1
        path = (self.memory if in_memory else self.folder) / f"{name}-{self._count}"
        path.mkdir()
        return path

    def run(self, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Done:
        """Run a process to its end. ``RESULT`` in the command is replaced by the file that it writes JSON to.

        Raises :class:`BenchmarkError` with its last output when it fails.
        """
        folder = self.new_folder("process")
        result, log = folder / "result.json", folder / "log.txt"
        words = [str(result) if word == "RESULT" else str(word) for word in command]
        with log.open("wb") as output:
            start = time.perf_counter()
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True,
                env=self.env | dict(env or {}),
            )  # fmt: skip
            try:
                code = _wait(process)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            seconds = time.perf_counter() - start
        if code != 0:
            said = log.read_text(errors="replace").splitlines()[-12:]
            raise BenchmarkError(f"{' '.join(words)}: exit code {code}\n" + "\n".join(said))
        return Done(seconds, json.loads(result.read_text()) if result.exists() else {})

    def start(self, command: Sequence[str | Path], terminal: int | None = None) -> subprocess.Popen[bytes]:
        """Start a process that the caller ends; its output goes to the terminal, if there is one."""
        output = subprocess.DEVNULL if terminal is None else terminal
        return subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
            start_new_session=True, env=self.env | {"TERM": "xterm-256color"},
        )  # fmt: skip

    def ours(self, pipeline: Path, *options: str, in_memory: bool = False) -> Done:
        """Run a pipeline inside one process that times its parts: see ``ours.py``.

        ``in_memory`` keeps the state off the disk, for comparison with a bare fork, which uses no disk. (A new file on ext4
        takes ten times as long if many were deleted in the minutes before.)
        """
        state = self.new_folder("state", in_memory=in_memory)
        return self.run([sys.executable, HERE / "ours.py", pipeline, state, "RESULT", *options])

    def command(self, pipeline: Path, *options: str) -> Done:
        """The whole ``spotwright run``, as a user types it, without earlier results."""
        state = self.new_folder("state")
        return self.run([*SPOTWRIGHT, "run", pipeline, "--state", state, "--cache", "off", *options])

    def theirs(self, name: str, *options: str) -> Done:
        """The same pipeline under ``kfp.local``: see ``theirs.py``."""
        return self.run([sys.executable, HERE / "theirs.py", name, self.new_folder("kfp-local"), "RESULT", *options])


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process by the kernel's event: ``Popen.wait`` with a timeout looks only every 50 ms."""
    pidfd = os.pidfd_open(process.pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    ended = poller.poll(_PATIENCE * 1000)
    os.close(pidfd)
    if not ended:
        raise BenchmarkError(f"{process.args} did not end within {_PATIENCE:g}s")
    return process.wait()


SPOTWRIGHT = (sys.executable, "-m", "spotwright")


def wait_until(what: str, condition: Callable[[], Any], patience: float = 60.0) -> Any:
    """Look until the condition gives something true, and return that. Raises :class:`BenchmarkError` after ``patience``."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.002)
    raise BenchmarkError(f"{what} did not happen within {patience:g}s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and wait until it has ended."""
    process.terminate()
    process.wait(30)


def processor_time(pid: int) -> float:
    """Seconds, of all threads, counted in ticks of 10 ms: fields 14 and 15 of proc(5)'s stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def terminal() -> Iterator[int]:
    """A terminal as a descriptor; its output is read and discarded."""
    keyboard, opened = pty.openpty()
    reader = threading.Thread(target=_read_all, args=(keyboard,))
    reader.start()
    try:
        yield opened
    finally:
        os.close(opened)
        reader.join()
        os.close(keyboard)


def _read_all(descriptor: int) -> None:
    with suppress(OSError):  # EIO: the other end is closed
        while os.read(descriptor, 65536):
            pass
