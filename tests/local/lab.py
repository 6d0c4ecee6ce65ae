"""Starts components as real processes and waits for what comes of them, always with a deadline."""

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

from spotwright.local import identity
from spotwright.local.orders import Ended, ExitRecord, Started, StartFailed, StartOrder
from spotwright.local.processes import Processes

PATIENCE = 30.0
# What the SDK writes before a lightweight component's source (kfp.dsl.component_factory).
HEADER = "\nimport kfp\nfrom kfp import dsl\nfrom kfp.dsl import *\nfrom typing import *\n\n"


def component(source: str) -> str:
    """The module of a component whose function is ``work``."""
    return HEADER + textwrap.dedent(source)


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Ask again until the condition holds; what it gave is returned."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"{what} did not happen within {PATIENCE} seconds")


def alive(pid: int) -> bool:
    seen = identity.stat(pid)
    return seen is not None and seen.state not in "ZX"


class Lab:
    """One engine's processes, driven by hand."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self.folder = folder
        self.run = f"run-{uuid.uuid4().hex}"
        self.selector = selectors.DefaultSelector()
        self.processes = Processes(self.selector, run=self.run, folder=folder, cache=cache or folder / "cache")
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
        """Serve what comes until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE} seconds"
            self.turn(0.01)

    def wait_for(self, kind: type[Any] | tuple[type[Any], ...], key: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for event in self.events:
                if event.key == key and isinstance(event, kind):
                    return event
            self.turn(0.5)
        raise AssertionError(f"nothing of {key} that is {kind}; seen: {self.events}; log: {self._any_log()}")

    def end(self, key: str) -> ExitRecord:
        """The exit record of an attempt that must have one."""
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
        """A number that the attempt writes into its working directory, once it is there."""

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
    """Every living process that carries the run's mark, but this one."""
    mark = f"SPOTWRIGHT_RUN={run}".encode()
    return [pid for pid in identity.pids() if pid != os.getpid() and mark in identity.environ(pid) and alive(pid)]


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[Lab]:
    """A lab that leaves nothing behind, whatever the test does."""
    lab = Lab(folder)
    try:
        yield lab
    finally:
        lab.close()
        assert marked(lab.run) == []
