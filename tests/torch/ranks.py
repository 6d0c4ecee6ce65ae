"""Ranks of a process group for tests: processes that are forked from one that has imported PyTorch, which takes seconds.

A test names a function of a test module. Each rank calls it with its own :class:`Rank`, by which it says things to the test.
The store of the group is in a process of its own, as torchrun's is, so that any rank can be killed::

    def sums(rank: Rank, add: int) -> int: ...

    def test_all_ranks_know_the_sum(tmp_path: Path) -> None:
        with start(tmp_path, sums, 3, count=4) as ranks:
            assert ranks.results() == [18, 18, 18, 18]
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

__all__ = ["Rank", "Ranks", "start"]

ROOT = Path(__file__).parents[2]

PATIENCE = 60.0
"""Seconds that a test waits for anything that ranks do."""


class Rank:
    """The argument of a rank's function: its number, and its connection to the test."""

    def __init__(self, number: int, count: int, folder: Path) -> None:
        self.number, self.count, self.folder = number, count, folder
        self._said = (folder / f"rank-{number}.said").open("a", encoding="utf-8", buffering=1)

    def say(self, **facts: Any) -> None:
        """Tell the test something; it reads it with :meth:`Ranks.until` or :meth:`Ranks.said`."""
        self._said.write(json.dumps(facts) + "\n")

    def waits_for(self, name: str) -> None:
        """Wait until the test makes the file ``name`` in its folder, with :meth:`Ranks.allow`."""
        end = time.monotonic() + PATIENCE
        while not (self.folder / name).exists():
            if time.monotonic() > end:
                raise TimeoutError(f"rank {self.number}: the test did not allow {name!r}")
            time.sleep(0.002)


class Ranks:
    """The running ranks, seen from the test."""

    def __init__(self, pids: list[int], store: int, folder: Path) -> None:
        self.pids, self.store, self.folder = pids, store, folder
        self._codes: dict[int, int] = {}

    def said(self, rank: int) -> list[dict[str, Any]]:
        """Return all that a rank has said."""
        path = self.folder / f"rank-{rank}.said"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def until(self, rank: int, **facts: Any) -> dict[str, Any]:
        """Wait until a rank says these facts, and return all that it said with them."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for each in self.said(rank):
                if facts.items() <= each.items():
                    return each
            if rank in self._codes or self._ended(rank):
                break
            time.sleep(0.005)
        raise AssertionError(f"rank {rank} did not say {facts}: {self.said(rank)[-5:]}\n{self.log(rank)}")

    def until_all(self, **facts: Any) -> None:
        """Wait until every rank says these facts."""
        for rank in range(len(self.pids)):
            self.until(rank, **facts)

    def log(self, rank: int) -> str:
        """Return the output of a rank."""
        path = self.folder / f"rank-{rank}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def allow(self, name: str) -> None:
        """Let ranks go on that wait for ``name``."""
        (self.folder / name).touch()

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a rank: SIGKILL, SIGSTOP, SIGCONT, SIGTERM."""
        if rank not in self._codes:
            os.kill(self.pids[rank], number)

    def code(self, rank: int, within: float = PATIENCE) -> int:
        """Return the exit code of a rank (negative: the signal that ended it), once it has ended."""
        end = time.monotonic() + within
        while rank not in self._codes and not self._ended(rank):
            if time.monotonic() > end:
                raise AssertionError(f"rank {rank} runs after {within} s: {self.said(rank)[-5:]}\n{self.log(rank)}")
            time.sleep(0.005)
        return self._codes[rank]

    def results(self) -> list[Any]:
        """Return the function's result in each rank. All must have ended without an error."""
        for rank in range(len(self.pids)):
            assert self.code(rank) == 0, f"rank {rank}: exit code {self.code(rank)}\n{self.log(rank)}"
        return [self.said(rank)[-1]["returned"] for rank in range(len(self.pids))]

    def _ended(self, rank: int) -> bool:
        code = _forker().ask({"reap": self.pids[rank]})["code"]
        if code is not None:
            self._codes[rank] = code
        return code is not None

    def end(self) -> None:
        """Kill the ranks that still run, and the store."""
        for rank in range(len(self.pids)):
            if rank not in self._codes and not self._ended(rank):
                os.kill(self.pids[rank], signal.SIGKILL)
                self.code(rank)
        if self.store:
            os.kill(self.store, signal.SIGKILL)
            _forker().ask({"reap": self.store, "wait": True})


@contextmanager
def start(
    folder: Path,
    function: Callable[..., Any],
    *arguments: Any,
    count: int,
    environment: Mapping[str, str] | None = None,
    group: bool = True,
) -> Iterator[Ranks]:
    """Start ``count`` ranks that call ``function(rank, *arguments)``; the arguments must be values of JSON.

    With ``group`` each has a gloo process group first. What the function returns must be a value of JSON too. The ranks are
    killed at the end of the block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = {
        "module": function.__module__,
        "function": function.__qualname__,
        "arguments": arguments,
        "count": count,
        "folder": str(folder),
        "environment": dict(environment or {}),
        "group": group,
    }
    answer = _forker().ask(request)
    ranks = Ranks(answer["pids"], answer["store"], folder)
    try:
        yield ranks
    finally:
        ranks.end()


class _Forker:
    """The process that has imported PyTorch and forks ranks, by lines of JSON."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torch.ranks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(["src", *_python_path()])},
        )
        atexit.register(self.end)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        """End the process, and with it its forks."""
        if os.getpid() == self.owner:
            assert self._process.stdin
            self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout
            self._process.stdout.close()


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != "src"]


_running: list[_Forker] = []


def _forker() -> _Forker:
    if not _running or _running[0].owner != os.getpid():
        _running[:] = [_Forker()]
    return _running[0]


# -- in the process that forks


def _serve() -> None:
    for name in ("torch", "torch.distributed.tensor"):  # what all ranks share
        importlib.import_module(name)
    children: set[int] = set()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "reap" in request:
                done, status = os.waitpid(request["reap"], 0 if "wait" in request else os.WNOHANG)
                children.discard(done)
                answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status) if done else None}
            else:
                store, port = _start_store() if request["group"] else (0, 0)
                pids = [_fork(_run_rank, request, number, port) for number in range(request["count"])]
                children.update([*pids, store] if store else pids)
                answer = {"pids": pids, "store": store}
            answers.write(json.dumps(answer) + "\n")
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _fork(function: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        function(*arguments)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  # the process ends here, and its log says why
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _start_store() -> tuple[int, int]:
    """Start the store of a group in a separate process; return its number and port."""
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    with listener:
        child = _fork(_run_store, listener.fileno(), port)
    return child, port


def _run_store(listener: int, port: int) -> None:
    from torch.distributed import TCPStore

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    store = TCPStore("127.0.0.1", port, None, is_master=True, wait_for_workers=False, master_listen_fd=listener)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)
    del store


def _run_rank(request: Mapping[str, Any], number: int, port: int) -> None:
    folder = Path(request["folder"])
    log = os.open(folder / f"rank-{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in [name for name in os.environ if name.startswith("SPOTWRIGHT_")]:
        del os.environ[name]
    os.environ |= request["environment"] | {"RANK": str(number), "WORLD_SIZE": str(request["count"])}
    rank = Rank(number, request["count"], folder)
    function: Any = importlib.import_module(request["module"])
    for name in request["function"].split("."):
        function = getattr(function, name)
    if request["group"]:
        import torch.distributed as dist

        store = dist.TCPStore("127.0.0.1", port, None, is_master=False, timeout=timedelta(seconds=PATIENCE))
        dist.init_process_group("gloo", store=store, rank=number, world_size=request["count"])
    rank.say(returned=function(rank, *request["arguments"]))


if __name__ == "__main__":
    importlib.import_module("tests.torch.ranks")._serve()
