"""After an engine was killed: finished attempts count, running ones are ended, others never start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, alive, marked, until
from tests.local.programs import LEAVES, LEFT, SLEEP, STUBBORN

from spotwright.errors import StateError
from spotwright.local.protocol import ExitRecord
from spotwright.local.recovery import settle, settle_all, sweep, sweep_attempt
from spotwright.local.supervisor import process_identity

# An engine in a separate process: it starts the given attempts and waits for ever.
ENGINE = """
import json, sys
from pathlib import Path
from tests.local.process_harness import ProcessHarness
harness = ProcessHarness(Path(sys.argv[1]))
harness.run = sys.argv[2]
harness.processes._marks["SPOTWRIGHT_RUN"] = harness.run
for name, source, parameters in json.loads(sys.argv[3]):
    harness.start(source, parameters, name)
while True:
    harness.turn(None)
    if len(harness.processes._servers) == 1:
        Path(sys.argv[1], "server").write_text(f"{harness.server()}\\n")
"""


WAITS = """
import os, time
def work() -> str:
    open("pid", "w").write(f"{os.getpid()}\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    return "done"
"""


class Engine:
    """An engine process that can be killed."""

    def __init__(self, folder: Path, *attempts: tuple[str, str, dict[str, str]]) -> None:
        self.folder, self.run = folder, f"run-{folder.name}-{time.time_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENGINE, str(folder), self.run, json.dumps(attempts)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    def directory(self, name: str = "task") -> Path:
        return self.folder / "attempts" / name

    def number(self, file: str, name: str = "task") -> int:
        path = self.directory(name) / "work" / file
        return int(until(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text(), file))

    def server(self) -> int:
        path = self.folder / "server"
        return int(until(lambda: path.exists() and path.read_text(), "server"))

    def shim(self, name: str = "task") -> int:
        return int(process_identity.read_claim(self.directory(name))["pid"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def settle(self, name: str = "task") -> ExitRecord | None:
        return settle(self.directory(name), folder=self.folder, run=self.run, epoch=2)


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    made: list[Engine] = []
    yield made
    for engine in made:
        engine.kill()
        sweep(engine.folder)
        assert marked(engine.run) == []


def start(engines: list[Engine], folder: Path, *attempts: tuple[str, str, dict[str, str]]) -> Engine:
    engines.append(Engine(folder, *attempts))
    return engines[-1]


def test_an_attempt_continues_after_its_engine_is_killed(engines: list[Engine], tmp_path: Path) -> None:
    engine = start(engines, tmp_path, ("task", WAITS, {}))
    engine.number("pid")
    engine.kill()
    (engine.directory() / "work" / "go").touch()
    until((engine.directory() / "exit.jsonl").exists, "the record")
    record = engine.settle()
    assert record is not None
    assert record.exit_code == 0
    assert "done" in (engine.directory() / "out" / "executor_output.json").read_text()


def test_the_fork_server_ends_with_its_engine(engines: list[Engine], tmp_path: Path) -> None:
    engine = start(engines, tmp_path, ("task", SLEEP, {}))
    engine.number("pid")
    server = engine.server()
    engine.kill()
    until(lambda: not alive(server), "the server's end")


def test_a_surviving_attempt_is_ended_and_its_record_says_so(engines: list[Engine], tmp_path: Path) -> None:
    engine = start(engines, tmp_path, ("task", LEAVES, {"end": "wait"}))
    left = [engine.number(name) for name in LEFT]
    engine.kill()
    record = engine.settle()
    assert record is not None
    assert record.signal == signal.SIGKILL
    assert [order.what for order in record.ordered] == ["kill"]
    assert [pid for pid in left if alive(pid)] == []


def test_many_attempts_are_ended_together(engines: list[Engine], tmp_path: Path) -> None:
    names = [f"task-{number}" for number in range(8)]
    engine = start(engines, tmp_path, *((name, STUBBORN, {}) for name in names))
    pids = [engine.number("pid", name) for name in names]
    engine.kill()
    records = settle_all([engine.directory(name) for name in names], folder=engine.folder, run=engine.run, epoch=2)
    assert [record is not None and record.signal for record in records] == [signal.SIGKILL] * 8
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.parametrize("killed", [("shim",), ("server",), ("server", "shim"), ("shim", "server")], ids="+".join)
def test_nothing_is_left_if_other_processes_are_killed_with_the_engine(
    engines: list[Engine], tmp_path: Path, killed: tuple[str, ...]
) -> None:
    engine = start(engines, tmp_path, ("task", LEAVES, {"end": "wait"}))
    left = [engine.number(name) for name in LEFT]
    pids = {"server": engine.server(), "shim": engine.shim()}
    engine.process.kill()
    for name in killed:
        os.kill(pids[name], signal.SIGKILL)
    engine.process.wait()
    record = engine.settle()
    assert (record is None) == ("shim" in killed)
    sweep(engine.folder)
    assert [pid for pid in left if alive(pid)] == []
    assert marked(engine.run) == []


def test_a_fenced_attempt_never_starts(harness: ProcessHarness) -> None:
    order = harness.order("def work():\n    pass\n")
    assert settle(order.directory, folder=harness.folder, run=harness.run, epoch=2) is None
    harness.processes.order(order)
    harness.wait_for(object, order.key)
    assert not (harness.directory() / "log.txt").exists()


def test_settling_twice_gives_the_same_result(harness: ProcessHarness) -> None:
    record = harness.play("def work():\n    raise SystemExit(4)\n")
    assert settle(harness.directory(), folder=harness.folder, run=harness.run, epoch=2) == record
    assert settle(harness.directory(), folder=harness.folder, run=harness.run, epoch=3) == record
    fresh = harness.folder / "attempts" / "fresh"
    assert [settle(fresh, folder=harness.folder, run=harness.run, epoch=epoch) for epoch in (2, 3)] == [None, None]


def test_a_stopped_shim_is_continued_to_end_its_attempt(engines: list[Engine], tmp_path: Path) -> None:
    engine = start(engines, tmp_path, ("task", SLEEP, {}))
    engine.number("pid")
    engine.kill()
    os.kill(engine.shim(), signal.SIGSTOP)
    record = engine.settle()
    assert record is not None
    assert record.signal == signal.SIGKILL


def test_an_unresponsive_shim_is_killed_after_the_timeout(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' USR1; echo deaf; exec sleep 600"]
    marks = {**process_identity.marks("r", tmp_path), "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=marks) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        seen = process_identity.stat(deaf.pid)
        assert seen is not None
        claim = {"by": "shim", "folder": "/r", "task": "t", "attempt": 1, "epoch": 1, "group": None, "pid": deaf.pid}
        process_identity.claim(tmp_path, claim | {"starttime": seen.starttime, "boot_id": process_identity.boot_id()})
        assert settle(tmp_path, folder=tmp_path, run="r", epoch=2, patience=0.1) is None
        assert deaf.wait() == -signal.SIGKILL


def test_a_reused_pid_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        seen = process_identity.stat(other.pid)
        assert seen is not None
        claim = {"by": "shim", "folder": "/r", "task": "t", "attempt": 1, "epoch": 1, "group": None, "pid": other.pid}
        process_identity.claim(
            tmp_path, claim | {"starttime": seen.starttime - 1, "boot_id": process_identity.boot_id()}
        )
        assert settle(tmp_path, folder=tmp_path, run="r", epoch=2) is None
        assert alive(other.pid)
        other.kill()


def test_a_claim_of_an_earlier_boot_names_no_process(tmp_path: Path) -> None:
    me = process_identity.mine()
    claim = {"by": "shim", "folder": "/r", "task": "t", "attempt": 1, "epoch": 1, "group": None, "pid": me.pid}
    process_identity.claim(tmp_path, claim | {"starttime": me.starttime, "boot_id": "another"})
    assert settle(tmp_path, folder=tmp_path, run="r", epoch=2) is None


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"by": "shim"}'])
def test_a_truncated_record_does_not_count(tmp_path: Path, torn: str) -> None:
    (tmp_path / "exit.jsonl").write_text(f"{{}}\n{torn}")
    assert settle(tmp_path, folder=tmp_path, run="r", epoch=2) is None


def test_an_unreadable_claim_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "claim").write_text("{")
    with pytest.raises(StateError, match=f"{tmp_path}/claim"):
        settle(tmp_path, folder=tmp_path, run="r", epoch=2)


def test_sweep_spares_this_process_and_its_descendants(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], env=process_identity.marks("run", tmp_path)) as below:
        assert sweep(tmp_path) == 0
        assert alive(below.pid)
        below.kill()


def test_sweep_ends_a_daemon_of_the_run(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    subprocess.run(
        ["sh", "-c", f"setsid sleep 600 & echo $! > {pid}"],
        env={**process_identity.marks("run", tmp_path), "PATH": os.environ["PATH"]},
        check=True,
    )
    daemon = int(pid.read_text())
    # A process that begins another program shows no environment for a moment: the shell's copy begins setsid, and that sleep.
    until(
        lambda: Path(f"/proc/{daemon}/cmdline").read_bytes() == b"sleep\x00600\x00" and process_identity.environ(daemon)
    )
    assert sweep(tmp_path) == 1
    assert not alive(daemon)


def test_the_monitor_of_a_container_is_ended_if_its_client_was_killed_at_the_start(tmp_path: Path) -> None:
    line = ["conmon", "-c", "sleep 1000 & wait", "-n"]
    started = [subprocess.Popen([*line, name], executable="/bin/sh") for name in ("spotwright-a", "spotwright-b")]
    try:
        container = {"program": "/bin/true", "name": "spotwright-a", "image": "", "folder": ""}
        claim = {"folder": str(tmp_path), "task": "t", "attempt": 1, "pid": 0, "group": None, "container": container}
        until(lambda: all(process_identity.children(process.pid) for process in started))
        assert sweep_attempt(claim) == 2  # the process and its child
        assert started[0].wait(120) == -signal.SIGKILL
        assert started[1].poll() is None
    finally:
        for process in started:
            for child in process_identity.children(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()
            process.wait()
