"""Test helpers that start components as real processes and wait for their events, always with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spotwright.local.attempt_processes import AttemptProcesses
from spotwright.local.protocol import Ended, ExitRecord, Started, StartFailed, StartOrder
from spotwright.local.supervisor import process_identity

TIMEOUT = 300.0
# The header of a lightweight component's source (kfp.dsl.component_factory).
HEADER = "\nimport kfp\nfrom kfp import dsl\nfrom kfp.dsl import *\nfrom typing import *\n\n"


def component(source: str) -> str:
    """The source of a component's module whose function is ``work``."""
    return HEADER + textwrap.dedent(source)


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"{what} did not happen within {TIMEOUT} seconds")


def alive(pid: int) -> bool:
    seen = process_identity.stat(pid)
    return seen is not None and seen.state not in "ZX"


class ProcessHarness:
    """The attempt processes of an engine, without the engine."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder
        self.run = f"run-{uuid.uuid4().hex}"
        self.selector = selectors.DefaultSelector()
        self.processes = AttemptProcesses(self.selector, run=self.run, folder=folder, cache=cache or folder / "cache")
        self.events: list[Started | Ended | StartFailed] = []

    def order(
        self, source: str, parameters: dict[str, Any] | None = None, name: str = "task", **fields: Any
    ) -> StartOrder:
        directory = self.directory(name)
        directory.mkdir(parents=True)
        out = directory / "out"
        given = {
            "inputs": {"parameterValues": parameters or {}},
            "outputs": {"parameters": {}, "outputFile": str(out / "executor_output.json")},
        }
        defaults: dict[str, Any] = {
            "key": f"{name}#1",
            "directory": str(directory),
            "run": self.run,
            "task": name,
            "attempt": 1,
            "epoch": 1,
            "module": component(source),
            "function": "work",
            "executor_input": given,
        }
        return StartOrder(**(defaults | fields))

    def start(self, source: str, parameters: dict[str, Any] | None = None, name: str = "task", **fields: Any) -> str:
        order = self.order(source, parameters, name, **fields)
        self.processes.order(order)
        return order.key

    def turn(self, timeout: float) -> None:
        for key, _ in self.selector.select(timeout):
            key.data()
        self.events += self.processes.pump()

    def turn_until(self, condition: Callable[[], Any], what: str) -> None:
        """Handle events until the condition is true."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen within {TIMEOUT} seconds"
            self.turn(0.01)

    def wait_for(self, kind: type[Any] | tuple[type[Any], ...], key: str) -> Any:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            for event in self.events:
                if event.key == key and isinstance(event, kind):
                    return event
            self.turn(0.5)
        raise AssertionError(f"no {kind} event of {key}; events: {self.events}; log: {self._any_log()}")

    def end(self, key: str) -> ExitRecord:
        """Wait for the exit record of an attempt."""
        ended = self.wait_for((Ended, StartFailed), key)
        assert isinstance(ended, Ended), ended
        assert ended.record is not None, self._any_log()
        return ended.record

    def play(
        self, source: str, parameters: dict[str, Any] | None = None, name: str = "task", **fields: Any
    ) -> ExitRecord:
        return self.end(self.start(source, parameters, name, **fields))

    def directory(self, name: str = "task") -> Path:
        return self.folder / "attempts" / name

    def log(self, name: str = "task") -> str:
        file = self.directory(name) / "log.txt"
        return file.read_text() if file.exists() else ""

    def output(self, name: str = "task") -> Any:
        return json.loads((self.directory(name) / "out" / "executor_output.json").read_text())["parameterValues"][
            "Output"
        ]

    def number(self, file: str, name: str = "task") -> int:
        """Wait for a number that the attempt writes into its working directory."""

        def found() -> str:
            with contextlib.suppress(FileNotFoundError):
                text = (self.directory(name) / "work" / file).read_text()
                return text if text.endswith("\n") else ""
            return ""

        return int(until(found, f"{file} of {name}"))

    def server(self) -> int:
        """The pid of the only fork server."""
        (server,) = self.processes._servers.values()
        return server.pid

    def close(self) -> None:
        self.processes.close()
        self.selector.close()

    def _any_log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("attempts/*/log.txt"))


def marked(run: str) -> list[int]:
    """All living processes with the run's mark, without this one."""
    mark = f"SPOTWRIGHT_RUN={run}".encode()
    return [
        pid
        for pid in process_identity.pids()
        if pid != os.getpid() and mark in process_identity.environ(pid) and alive(pid)
    ]


@contextlib.contextmanager
def process_harness(folder: Path) -> Iterator[ProcessHarness]:
    """A harness that ends all its processes, and checks that none is left."""
    harness = ProcessHarness(folder)
    try:
        yield harness
    finally:
        harness.close()
        assert marked(harness.run) == []
