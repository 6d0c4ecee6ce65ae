"""A shim that attends one attempt after another: what is kept apart, what comes too late, when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.local.lab import Lab, alive, marked, until
from tests.local.test_shim import SLEEP

from spotwright.local import identity, processes
from spotwright.local.messages import Messages
from spotwright.local.orders import Started, read_exit
from spotwright.local.recovery import KILL
from spotwright.local.servers import ForkServer

NOTHING = "def work():\n    pass\n"
# A shim whose engine has no order for it.
UNUSED = """
import os, socket
from spotwright.local import shim

shim._IDLE_SECONDS = 0.05
engine, theirs = socket.socketpair()
if os.fork() == 0:
    engine.close()
    shim.Shim(theirs.fileno()).serve()
    os._exit(0)
theirs.close()
said = b""
while b"idle" not in said:
    said += engine.recv(1 << 16)
engine.shutdown(socket.SHUT_WR)
os.wait()
print(said.count(b"idle"))
"""


def test_a_shim_attends_one_attempt_after_another(lab: Lab) -> None:
    for name in ("first", "second", "third"):
        lab.play(NOTHING, name=name)
    started = [event.pid for event in lab.events if isinstance(event, Started)]
    assert len(started) == 3
    assert len(set(started)) == 1


def test_attempts_side_by_side_have_a_shim_each(lab: Lab) -> None:
    first, second = lab.start(SLEEP, name="first"), lab.start(SLEEP, name="second")
    assert lab.wait_for(Started, first).pid != lab.wait_for(Started, second).pid


def test_the_record_tells_nothing_of_the_attempt_before(lab: Lab) -> None:
    greedy = lab.play("def work():\n    sum(bytearray(400 * 2**20)[:: 2**12])\n", name="greedy")
    modest = lab.play(NOTHING, name="modest")
    assert greedy.max_rss > 300 * 2**20 > 150 * 2**20 > modest.max_rss
    assert greedy.cpu_seconds > modest.cpu_seconds


def test_what_one_attempt_does_to_its_process_is_not_there_in_the_next(lab: Lab) -> None:
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
        assert lab.play(source, name=name).exit_code == 0
    assert lab.output("first") == lab.output("second")


def test_a_shim_that_was_told_to_end_an_attempt_attends_the_next(lab: Lab) -> None:
    first = lab.start(SLEEP, name="first")
    lab.number("pid", "first")
    lab.processes.kill(first)
    assert lab.end(first).signal == signal.SIGKILL
    assert lab.play(NOTHING, name="second").exit_code == 0
    assert lab.wait_for(Started, "second#1").pid == lab.wait_for(Started, first).pid


def test_an_order_to_end_that_comes_too_late_harms_no_other_attempt(lab: Lab) -> None:
    """Straight to a shim, in the order in which an engine may send it that has not yet read of the end."""
    first = lab.order(NOTHING, name="first")
    second = lab.order("import time\n\ndef work():\n    time.sleep(0.2)\n", name="second")
    messages, server = Messages(lab.folder), ForkServer(sys.executable, identity.marks(lab.run, lab.folder))
    shim = server.fork(1)
    try:
        shim.send(messages.of(first))
        until((lab.directory("first") / "exit.jsonl").exists)
        for message in ({"end": int(KILL), "key": first.key}, messages.of(second), {"end": 15, "key": first.key}):
            shim.send(message)
        until((lab.directory("second") / "exit.jsonl").exists)
    finally:
        shim.close()
        server.close()
    until(lambda: marked(lab.run) == [], "the end of the shim")
    record = read_exit(lab.directory("second"))
    assert record is not None
    assert (record.exit_code, record.ordered) == (0, ())


def test_a_shim_whose_engine_has_gone_starts_nothing_more(lab: Lab) -> None:
    first, second = lab.order(SLEEP, name="first"), lab.order(SLEEP, name="second")
    messages, server = Messages(lab.folder), ForkServer(sys.executable, identity.marks(lab.run, lab.folder))
    shim = server.fork(1)
    shim.send(messages.of(first))
    pid = lab.number("pid", "first")
    shim.send(messages.of(second))
    shim.close()
    server.close()
    os.kill(pid, signal.SIGKILL)
    until(lambda: marked(lab.run) == [], "the end of the shim")
    assert read_exit(lab.directory("first")) is not None
    assert not (lab.directory("second") / "claim").exists()


def test_only_so_many_shims_wait_for_the_next_attempt(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_IDLE", 1)
    keys = [lab.start(SLEEP, name=name) for name in ("first", "second", "third")]
    for name in ("first", "second", "third"):
        lab.number("pid", name)
    for key in keys:
        lab.processes.kill(key)
        lab.end(key)
    shims = {lab.wait_for(Started, key).pid for key in keys}
    lab.turn_until(lambda: sum(map(alive, shims)) == 1, "the end of two shims")


def test_a_shim_without_orders_asks_whether_it_may_go() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "1\n"


def test_a_shim_that_asks_to_go_is_let_go(lab: Lab) -> None:
    lab.play(NOTHING)
    (line,) = lab.processes._lines.values()
    lab.processes._dismiss(line)
    lab.turn_until(lambda: not lab.processes._lines, "the end of the shim")
    assert not alive(line.pid)
    assert lab.play(NOTHING, name="next").exit_code == 0


def test_a_shim_that_asks_to_go_while_an_order_is_on_its_way_stays(lab: Lab) -> None:
    lab.play(NOTHING)
    (line,) = lab.processes._lines.values()
    key = lab.start(SLEEP, name="next")
    lab.processes._dismiss(line)
    lab.processes.kill(key)
    assert lab.end(key).signal == signal.SIGKILL
