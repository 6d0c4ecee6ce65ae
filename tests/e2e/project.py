"""A user's project: a folder, the real command in it, and questions of tests about runs, processes and the ledger.

Every process that comes of it carries ``PLAYGROUND=<folder>`` in its environment, so that whatever is left is found.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Step, document

from spotwright.engine.events import Event
from spotwright.errors import SpotwrightError
from spotwright.records.journal import Journal
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.runs.bodies import is_alive
from spotwright.views.run_json import run_view

__all__ = ["AT_WORK", "PATIENCE", "QUICK", "Done", "Project", "RunningCommand", "a_project", "alive", "eventually"]

_CRASHING = Path(__file__).parent / "crashes" / "crashing.py"
_KEPT = ("PATH", "PYTHONPATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
PATIENCE = 300.0
"""Seconds that anything may take before a test gives up."""

QUICK = """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer}
"""
"""Two pools whose nodes boot at once and are never taken."""

AT_WORK = """
pools:
  spot: {{capacity: spot, node: {{cpu: 8}}, notice: {notice},
    simulate: {{boot: 0s, interrupt_every: 1h, expected_duration: 10000h}}}}
  od: {{capacity: on-demand, node: {{cpu: 8}}, simulate: {{boot: 0s}}}}
policy:
  default: {{spot: prefer, fall_back_after: 1, grace_period: {grace}, interruptions: {{backoff: 1ms}}}}
"""
"""A spot pool that takes the node of an attempt soon after its first progress, and of no other; then on-demand."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        """The lines of its error output."""
        return [line for line in self.err.splitlines() if line.strip()]

    def json(self) -> Any:
        """The output, parsed as JSON."""
        return json.loads(self.out)


@dataclass
class RunningCommand:
    """A running command. Its outputs go to files, so that it never blocks on a full pipe."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @property
    def pid(self) -> int:
        """The engine's process."""
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> Done:
        """Wait for its end."""
        code = self.process.wait(seconds)
        return Done(code, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"))

    def kill(self) -> Done:
        """``kill -9``."""
        self.send(signal.SIGKILL)
        return self.wait()


@dataclass
class Project:
    """A folder with a pipeline, its configuration and its runs."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    started: list[RunningCommand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.playground = self.folder / "playground"
        self.playground.mkdir(parents=True, exist_ok=True)
        self.state = self.folder / ".spotwright"

    # -- what the user writes

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.folder / name
        path.write_text(text)
        return path

    def config(self, text: str) -> Path:
        """Write ``spotwright.yaml``: the text below ``version: 1``."""
        return self.write("spotwright.yaml", f"version: 1\n{text}")

    def pipeline(
        self,
        steps: Mapping[str, Step],
        parameters: Mapping[str, str | tuple[str, Any]] | None = None,
        name: str = "tested",
    ) -> Path:
        """Write ``NAME.yaml``, a compiled pipeline of these steps, which share the playground with the test."""
        shared = {"PLAYGROUND": str(self.playground)}
        steps = {key: replace(each, env=shared | dict(each.env)) for key, each in steps.items()}
        return self.write(f"{name}.yaml", document(steps, parameters, name))

    # -- the command

    @property
    def env(self) -> dict[str, str]:
        """The environment of every command: of the machine's variables only those that find programs and packages."""
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        return {**kept, "HOME": str(self.folder), "PLAYGROUND": str(self.playground), **self.extra}

    def start(
        self, *command: str, crash: tuple[str, int] | None = None, program: Sequence[str] = ("-m", "spotwright")
    ) -> RunningCommand:
        """Start ``spotwright COMMAND`` in the project's folder. ``crash``: kill it at this crash point.

        ``program``: what Python runs in its place.
        """
        program = program if crash is None else [str(_CRASHING), crash[0], str(crash[1])]
        out, err = (self.folder / f"{len(self.started)}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *program, *command],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        started = RunningCommand(process, out, err)
        self.started.append(started)
        return started

    def spotwright(self, *command: str, crash: tuple[str, int] | None = None) -> Done:
        """Run ``spotwright COMMAND`` to its end."""
        return self.start(*command, crash=crash).wait()

    def here(self, *command: str) -> Done:
        """Run ``spotwright COMMAND`` in this process: for wrong input, without processes, where an interpreter costs most."""
        from spotwright.cli import main

        out, err, environ, folder, argv = io.StringIO(), io.StringIO(), dict(os.environ), Path.cwd(), sys.argv
        try:
            os.environ.clear()
            os.environ.update(self.env)
            os.chdir(self.folder)
            sys.argv = ["spotwright", *command]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
                main()
        finally:
            sys.argv = argv
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environ)
        return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())

    def run(self, pipeline: Path, *options: str, name: str = "r", crash: tuple[str, int] | None = None) -> Done:
        """``spotwright run`` under a name."""
        return self.spotwright("run", str(pipeline), "--name", name, *options, crash=crash)

    # -- what happened

    def show(self, name: str = "r") -> dict[str, Any]:
        """The output of ``spotwright show --json``, with the tasks by path; see tests/cli for the command itself."""
        view = run_view(RunReader(StateFolder(self.state).find(name), is_alive).state, name)
        return {**view, "tasks": {task["path"]: task for task in view["tasks"]}}

    def causes(self, task: str, name: str = "r") -> list[str]:
        """Why each attempt of a task ended, in order."""
        return [attempt["cause"] for attempt in self.show(name)["tasks"][task]["attempts"]]

    def events(self, name: str = "r") -> list[Event]:
        """The events of a run so far; empty without a journal."""
        try:
            journal = Journal.read(self.state / "runs" / name / "journal.db")
        except SpotwrightError:
            return []
        with contextlib.closing(journal):
            return [event for _, event in journal.events()]

    def kinds(self, name: str = "r") -> list[str]:
        """The kinds of the events of a run."""
        return [event.kind for event in self.events(name)]

    def attempt(self, task: str, number: int = 1, name: str = "r") -> Path:
        """The folder of an attempt."""
        return self.state / "runs" / name / "tasks" / task.replace("/", "+") / f"attempt-{number}"

    def ledger(self, *what: str) -> list[dict[str, Any]]:
        """The notes of the components, in order; with kinds only the notes of these kinds."""
        path = self.playground / "ledger"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not what or line["what"] in what]

    def noted(self, what: str, task: str | None = None) -> list[int]:
        """The attempts that noted something."""
        return [line["attempt"] for line in self.ledger(what) if task in (None, line["task"])]

    def raise_file(self, name: str) -> None:
        """Create a file of the playground for which components wait."""
        (self.playground / name).touch()

    # -- what is alive

    def processes(self) -> dict[int, str]:
        """Every living process that came of this project, with its command."""
        mark = f"PLAYGROUND={self.playground}".encode()
        return {pid: _command(pid) for pid in _pids() if mark in _environ(pid) and alive(pid)}

    def fork_servers(self) -> list[int]:
        """The fork servers that are alive. Shims are leaders of a session too, and carry the same command."""
        shims = {claim["pid"] for claim in self._claims()}
        pids = [
            pid for pid, command in self.processes().items() if "bootstrap.py server" in command and pid not in shims
        ]
        return [pid for pid in pids if os.getsid(pid) == pid]

    def shim(self, task: str, number: int = 1, name: str = "r") -> int:
        """The pid of an attempt's shim."""
        claim = json.loads((self.attempt(task, number, name) / "claim").read_text().splitlines()[0])
        return int(claim["pid"])

    def _claims(self) -> list[dict[str, Any]]:
        files = self.state.glob("runs/*/tasks/*/attempt-*/claim")
        claims = [json.loads(path.read_text().splitlines()[0]) for path in files]
        return [claim for claim in claims if claim["by"] == "shim"]

    def end_all(self) -> None:
        """SIGKILL to everything that came of this project."""
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for started in self.started:
            started.process.wait()


@contextlib.contextmanager
def a_project(folder: Path) -> Iterator[Project]:
    """A project with two quick pools. At the end of the block all processes of its commands end, soon and by themselves.

    A fork server ends with its engine, but a moment after it where the engine was killed.
    """
    made = Project(folder)
    made.config(QUICK)
    try:
        yield made
        deadline = time.monotonic() + PATIENCE
        while (left := made.processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        made.end_all()
    assert not left, f"left behind: {left}"


def eventually(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until a function returns a true value, and return that value. Fails after this many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"did not come within {seconds:g}s"
        time.sleep(0.01)
    return value


def alive(pid: int, started: int | None = None) -> bool:
    """Whether a process lives; with ``started``, whether it is the one that started then. A zombie does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and started in (None, int(fields[19]))


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _environ(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
