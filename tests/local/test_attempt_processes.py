"""The engine's side of attempt processes: orders, lost fork servers, end orders at any moment, and closing."""

from __future__ import annotations

import os
import selectors
import signal
import sys
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, alive, marked, until
from tests.local.programs import LEAVES, LEFT, SLEEP

from spotwright.errors import UnsupportedPlatform
from spotwright.local import fork_server_client
from spotwright.local.attempt_processes import AttemptProcesses
from spotwright.local.protocol import Ended, PythonEnvironment, Started, StartFailed
from spotwright.local.supervisor import process_identity

NOTHING = "def work() -> int:\n    return 1\n"


def test_every_order_ends_exactly_once(harness: ProcessHarness) -> None:
    keys = [harness.start(NOTHING, name=f"task-{number}") for number in range(20)]
    assert {harness.end(key).exit_code for key in keys} == {0}
    harness.turn(0.05)
    assert sorted(event.key for event in harness.events if isinstance(event, Ended)) == sorted(keys)
    assert sorted(event.key for event in harness.events if isinstance(event, Started)) == sorted(keys)


def test_attempts_run_in_parallel(harness: ProcessHarness) -> None:
    names = [f"task-{number}" for number in range(6)]
    keys = [harness.start(SLEEP, name=name) for name in names]
    for key in keys:
        harness.wait_for(Started, key)
    assert len({harness.number("pid", name) for name in names}) == 6
    for key in keys:
        harness.processes.kill(key)
    assert {harness.end(key).signal for key in keys} == {signal.SIGKILL}


def test_a_short_attempt_leaves_its_shim_to_one_that_waits_for_room(
    harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server_client, "MAX_STARTING", 1)
    keys = [harness.start(NOTHING, name=name) for name in ("first", "second")]

    until((harness.directory("first") / "exit.jsonl").exists)
    shim = process_identity.read_claim(harness.directory("first"))["pid"]
    until(lambda: process_identity.stat(shim).state == "S", "the wait for an order")  # type: ignore[union-attr]

    assert {harness.end(key).exit_code for key in keys} == {0}
    assert len({harness.wait_for(Started, key).pid for key in keys}) == 1


def test_an_attempt_that_waits_for_room_can_be_ended(harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server_client, "MAX_STARTING", 1)
    first, second, third = (harness.start(SLEEP, name=name) for name in ("first", "second", "third"))

    harness.processes.kill(second)

    assert harness.wait_for(Ended, second).record is None
    for key in (first, third):
        harness.wait_for(Started, key)
        harness.processes.kill(key)
        assert harness.end(key).signal == signal.SIGKILL
    assert not (harness.directory("second") / "claim").exists()


def test_started_identifies_the_shim(harness: ProcessHarness) -> None:
    key = harness.start(SLEEP)
    started = harness.wait_for(Started, key)
    assert until(lambda: os.getsid(started.pid) == started.pid, "session")
    assert os.getsid(harness.number("pid")) == started.pid
    harness.processes.kill(key)
    harness.end(key)


@pytest.mark.parametrize("ask", ["terminate", "kill"])
def test_an_end_order_before_the_start_takes_effect(harness: ProcessHarness, ask: str) -> None:
    key = harness.start(SLEEP)
    getattr(harness.processes, ask)(key)
    assert harness.end(key).signal == {"terminate": signal.SIGTERM, "kill": signal.SIGKILL}[ask]


def test_end_orders_after_the_end_do_nothing(harness: ProcessHarness) -> None:
    key = harness.start(NOTHING)
    harness.end(key)
    harness.processes.terminate(key)
    harness.processes.kill(key)
    harness.processes.kill("never heard of")
    harness.turn(0)
    assert len([event for event in harness.events if event.key == key]) == 2


def test_a_key_cannot_be_ordered_twice(harness: ProcessHarness) -> None:
    order = harness.order(SLEEP)
    harness.processes.order(order)
    with pytest.raises(ValueError, match="task#1"):
        harness.processes.order(order)
    harness.processes.kill(order.key)
    harness.end(order.key)


def test_attempts_survive_a_killed_fork_server(harness: ProcessHarness) -> None:
    key = harness.start(
        "import time\ndef work() -> int:\n    open('pid', 'w').write('1\\n')\n    time.sleep(0.2)\n    return 1\n"
    )
    harness.number("pid")
    harness.wait_for(Started, key)
    os.kill(harness.server(), signal.SIGKILL)
    assert harness.end(key).exit_code == 0


def test_a_shim_killed_with_its_server_leaves_nothing_and_affects_no_other_attempt(harness: ProcessHarness) -> None:
    key, other = harness.start(LEAVES, {"end": "wait"}), harness.start(SLEEP, name="other")
    left, pid = [harness.number(name) for name in LEFT], harness.number("pid", "other")
    shim = harness.wait_for(Started, key).pid
    harness.wait_for(Started, other)
    os.kill(harness.server(), signal.SIGKILL)
    os.kill(shim, signal.SIGKILL)
    assert harness.wait_for(Ended, key).record is None
    assert [pid for pid in left if alive(pid)] == []
    assert alive(pid)
    harness.processes.kill(other)
    assert harness.end(other).signal == signal.SIGKILL


def test_the_next_order_starts_a_new_fork_server(harness: ProcessHarness) -> None:
    harness.end(harness.start(NOTHING, name="one"))
    first = harness.server()
    os.kill(first, signal.SIGKILL)
    harness.turn_until(lambda: not harness.processes._servers, "notice")
    assert harness.end(harness.start(NOTHING, name="two")).exit_code == 0
    assert harness.server() != first


def test_pending_orders_of_a_dying_server_run_at_most_once(harness: ProcessHarness) -> None:
    harness.processes.warm()
    count = harness.folder / "count"
    source = f"def work():\n    open({str(count)!r}, 'a').write('x')\n"
    os.kill(harness.server(), signal.SIGSTOP)
    keys = [harness.start(source, name=f"task-{number}") for number in range(5)]
    os.kill(harness.server(), signal.SIGKILL)
    ends = [harness.wait_for((Ended, StartFailed), key) for key in keys]
    ran = [end for end in ends if isinstance(end, Ended)]
    assert (len(count.read_text()) if count.exists() else 0) == len(ran)
    assert marked(harness.run) == []


def test_a_server_that_dies_under_load_runs_no_attempt_twice(harness: ProcessHarness) -> None:
    count = harness.folder / "count"
    source = f"def work():\n    open({str(count)!r}, 'a').write('x')\n"
    harness.end(harness.start(source, name="first"))
    keys = [harness.start(source, name=f"task-{number}") for number in range(30)]
    harness.wait_for(Started, keys[3])
    os.kill(harness.server(), signal.SIGKILL)
    ends = [harness.wait_for((Ended, StartFailed), key) for key in keys]
    failed = [end for end in ends if isinstance(end, StartFailed)]
    assert all(end.ours for end in failed)
    assert len(count.read_text()) == 1 + len(keys) - len(failed)


def test_an_unusable_interpreter_is_reported(harness: ProcessHarness, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    python.chmod(0o755)
    failed = harness.wait_for(StartFailed, harness.start(NOTHING, environment=PythonEnvironment(python=str(python))))
    assert "no such thing" in failed.reason
    assert not failed.ours


def test_a_missing_interpreter_is_reported(harness: ProcessHarness) -> None:
    failed = harness.wait_for(
        StartFailed, harness.start(NOTHING, environment=PythonEnvironment(python="/nowhere/python"))
    )
    assert "/nowhere/python" in failed.reason


def test_a_directory_that_cannot_be_written_is_reported_and_nothing_runs(harness: ProcessHarness) -> None:
    order = harness.order(NOTHING)
    harness.directory().rmdir()
    harness.directory().write_text("in the way")
    harness.processes.order(order)
    assert str(harness.directory()) in harness.wait_for(StartFailed, order.key).reason


def test_a_run_folder_that_cannot_be_written_is_reported(harness: ProcessHarness) -> None:
    (harness.folder / "components").write_text("no folder can be made here")
    assert "components" in harness.wait_for(StartFailed, harness.start(NOTHING)).reason


def test_large_inputs_do_not_block_the_loop(harness: ProcessHarness) -> None:
    harness.processes.warm()
    os.kill(harness.server(), signal.SIGSTOP)
    keys = [
        harness.start("def work(text: str) -> int:\n    return len(text)\n", {"text": "x" * 2**21}, f"task-{n}")
        for n in range(4)
    ]
    os.kill(harness.server(), signal.SIGCONT)
    assert {harness.end(key).exit_code for key in keys} == {0}
    assert harness.output("task-3") == 2**21


def test_closing_ends_all_processes(harness: ProcessHarness) -> None:
    harness.start(LEAVES, {"end": "wait"})
    left = [harness.number(name) for name in LEFT]
    harness.start(SLEEP, name="other")
    server = harness.server()
    harness.processes.close()
    assert [pid for pid in [*left, server] if alive(pid)] == []
    assert marked(harness.run) == []
    assert harness.selector.get_map() == {}
    assert harness.processes.pump() == []


def test_an_idle_engine_is_not_woken(harness: ProcessHarness) -> None:
    key = harness.start(SLEEP)
    harness.number("pid")
    harness.wait_for(Started, key)
    assert harness.selector.select(0.2) == []
    harness.processes.kill(key)
    harness.end(key)


def test_warming_starts_the_server_before_the_first_order(harness: ProcessHarness) -> None:
    harness.processes.warm()
    server = harness.server()
    assert harness.play(NOTHING).exit_code == 0
    assert harness.server() == server


@pytest.mark.parametrize(("module", "name", "value", "says"), [
    (sys, "platform", "darwin", "need Linux"),
    (os, "pidfd_open", None, "5.3"),
])  # fmt: skip
def test_other_systems_get_one_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, value: object, says: str
) -> None:
    def unknown(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(module, name, value or unknown)
    with pytest.raises(UnsupportedPlatform, match=says), selectors.DefaultSelector() as selector:
        AttemptProcesses(selector, run="run", folder=tmp_path)
