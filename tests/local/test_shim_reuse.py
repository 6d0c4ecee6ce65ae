"""A shim runs several attempts: separation of attempts, late end orders, idle shims and the shim's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.local.process_harness import ProcessHarness, alive, marked, until
from tests.local.programs import SLEEP

from spotwright.local import attempt_processes
from spotwright.local.attempt_processes import OrderCodec
from spotwright.local.fork_server_client import ForkServer
from spotwright.local.protocol import Started, read_exit
from spotwright.local.recovery import KILL
from spotwright.local.supervisor import process_identity

NOTHING = "def work():\n    pass\n"
# A shim that gets no order.
UNUSED = """
import os, socket
from spotwright.local.supervisor import fork_server as shim

shim._IDLE_SECONDS = 0.05
engine, theirs = socket.socketpair()
if os.fork() == 0:
    engine.close()
    shim.Shim(theirs.fileno()).serve()
    os._exit(0)
theirs.close()
received = b""
while b"idle" not in received:
    received += engine.recv(1 << 16)
engine.shutdown(socket.SHUT_WR)
os.wait()
print(received.count(b"idle"))
"""


def test_a_shim_runs_one_attempt_after_another(harness: ProcessHarness) -> None:
    for name in ("first", "second", "third"):
        harness.play(NOTHING, name=name)
    started = [event.pid for event in harness.events if isinstance(event, Started)]
    assert len(started) == 3
    assert len(set(started)) == 1


def test_parallel_attempts_have_separate_shims(harness: ProcessHarness) -> None:
    first, second = harness.start(SLEEP, name="first"), harness.start(SLEEP, name="second")
    assert harness.wait_for(Started, first).pid != harness.wait_for(Started, second).pid


def test_the_record_excludes_the_previous_attempt(harness: ProcessHarness) -> None:
    greedy = harness.play("def work():\n    sum(bytearray(400 * 2**20)[:: 2**12])\n", name="greedy")
    modest = harness.play(NOTHING, name="modest")
    assert greedy.max_rss > 300 * 2**20 > 150 * 2**20 > modest.max_rss
    assert greedy.cpu_seconds > modest.cpu_seconds


def test_process_state_does_not_pass_to_the_next_attempt(harness: ProcessHarness) -> None:
    source = """
    import os, signal

    def work() -> str:
        state = f"{os.umask(0o077)} {os.environ.get('LEFT')} {signal.getsignal(signal.SIGTERM)!r} {len(os.listdir('.'))}"
        os.environ["LEFT"] = "behind"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("left", "w").close()
        os.nice(1)
        return f"{state} {os.nice(0) - 1}"
    """
    for name in ("first", "second"):
        assert harness.play(source, name=name).exit_code == 0
    assert harness.output("first") == harness.output("second")


def test_a_shim_runs_the_next_attempt_after_an_end_order(harness: ProcessHarness) -> None:
    first = harness.start(SLEEP, name="first")
    harness.number("pid", "first")
    harness.processes.kill(first)
    assert harness.end(first).signal == signal.SIGKILL
    assert harness.play(NOTHING, name="second").exit_code == 0
    assert harness.wait_for(Started, "second#1").pid == harness.wait_for(Started, first).pid


def test_a_late_end_order_does_not_affect_the_next_attempt(harness: ProcessHarness) -> None:
    """Sent directly to a shim, in the order of an engine that has not yet read the attempt's end."""
    first = harness.order(NOTHING, name="first")
    second = harness.order("import time\n\ndef work():\n    time.sleep(0.2)\n", name="second")
    codec, server = (
        OrderCodec(harness.folder),
        ForkServer(sys.executable, process_identity.marks(harness.run, harness.folder)),
    )
    shim = server.fork(1)
    try:
        shim.send(codec.encode(first))
        until((harness.directory("first") / "exit.jsonl").exists)
        for message in ({"end": int(KILL), "key": first.key}, codec.encode(second), {"end": 15, "key": first.key}):
            shim.send(message)
        until((harness.directory("second") / "exit.jsonl").exists)
    finally:
        shim.close()
        server.close()
    until(lambda: marked(harness.run) == [], "the end of the shim")
    record = read_exit(harness.directory("second"))
    assert record is not None
    assert (record.exit_code, record.ordered) == (0, ())


def test_a_shim_without_an_engine_starts_no_attempt(harness: ProcessHarness) -> None:
    first, second = harness.order(SLEEP, name="first"), harness.order(SLEEP, name="second")
    codec, server = (
        OrderCodec(harness.folder),
        ForkServer(sys.executable, process_identity.marks(harness.run, harness.folder)),
    )
    shim = server.fork(1)
    shim.send(codec.encode(first))
    pid = harness.number("pid", "first")
    shim.send(codec.encode(second))
    shim.close()
    server.close()
    os.kill(pid, signal.SIGKILL)
    until(lambda: marked(harness.run) == [], "the end of the shim")
    assert read_exit(harness.directory("first")) is not None
    assert not (harness.directory("second") / "claim").exists()


def test_the_number_of_idle_shims_is_limited(harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_processes, "_MAX_IDLE", 1)
    keys = [harness.start(SLEEP, name=name) for name in ("first", "second", "third")]
    shims = {harness.wait_for(Started, key).pid for key in keys}
    for name in ("first", "second", "third"):
        harness.number("pid", name)
    for key in keys:
        harness.processes.kill(key)
        harness.end(key)
    harness.turn_until(lambda: sum(map(alive, shims)) == 1, "the end of two shims")


def test_a_shim_without_orders_reports_that_it_is_idle() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "1\n"


def test_an_idle_shim_is_ended(harness: ProcessHarness) -> None:
    harness.play(NOTHING)
    (connection,) = harness.processes._connections.values()
    harness.processes._dismiss(connection)
    harness.turn_until(lambda: not harness.processes._connections, "the end of the shim")
    assert not alive(connection.pid)
    assert harness.play(NOTHING, name="next").exit_code == 0


def test_an_idle_shim_with_an_order_on_its_way_stays(harness: ProcessHarness) -> None:
    harness.play(NOTHING)
    (connection,) = harness.processes._connections.values()
    key = harness.start(SLEEP, name="next")
    harness.processes._dismiss(connection)
    harness.processes.kill(key)
    assert harness.end(key).signal == signal.SIGKILL
