"""The engine's side: orders, fork servers that go, orders to end at any moment, and an end that leaves nothing."""

from __future__ import annotations

import os
import selectors
import signal
import sys
from pathlib import Path

import pytest
from tests.local.lab import Lab, alive, marked, until
from tests.local.test_shim import LEAVES, LEFT, SLEEP

from spotwright.errors import StateError
from spotwright.local.orders import Ended, Environment, Started, StartFailed
from spotwright.local.processes import Processes

NOTHING = "def work() -> int:\n    return 1\n"


def test_every_order_ends_once(lab: Lab) -> None:
    keys = [lab.start(NOTHING, name=f"task-{number}") for number in range(20)]
    assert {lab.end(key).exit_code for key in keys} == {0}
    lab.turn(0.05)
    assert sorted(event.key for event in lab.events if isinstance(event, Ended)) == sorted(keys)
    assert sorted(event.key for event in lab.events if isinstance(event, Started)) == sorted(keys)


def test_attempts_run_side_by_side(lab: Lab) -> None:
    names = [f"task-{number}" for number in range(6)]
    keys = [lab.start(SLEEP, name=name) for name in names]
    assert len({lab.number("pid", name) for name in names}) == 6
    for key in keys:
        lab.wait_for(Started, key)
        lab.processes.kill(key)
    assert {lab.end(key).signal for key in keys} == {signal.SIGKILL}


def test_started_names_the_shim(lab: Lab) -> None:
    key = lab.start(SLEEP)
    started = lab.wait_for(Started, key)
    assert until(lambda: os.getsid(started.pid) == started.pid, "session")
    assert os.getsid(lab.number("pid")) == started.pid
    lab.processes.kill(key)
    lab.end(key)


@pytest.mark.parametrize("ask", ["terminate", "kill"])
def test_an_order_to_end_that_comes_before_the_start_counts(lab: Lab, ask: str) -> None:
    key = lab.start(SLEEP)
    getattr(lab.processes, ask)(key)
    assert lab.end(key).signal == {"terminate": signal.SIGTERM, "kill": signal.SIGKILL}[ask]


def test_orders_to_end_what_has_ended_do_nothing(lab: Lab) -> None:
    key = lab.start(NOTHING)
    lab.end(key)
    lab.processes.terminate(key)
    lab.processes.kill(key)
    lab.processes.kill("never heard of")
    lab.turn(0)
    assert len([event for event in lab.events if event.key == key]) == 2


def test_the_same_key_twice_is_a_mistake(lab: Lab) -> None:
    order = lab.order(SLEEP)
    lab.processes.order(order)
    with pytest.raises(ValueError, match="task#1"):
        lab.processes.order(order)
    lab.processes.kill(order.key)
    lab.end(order.key)


def test_attempts_survive_their_fork_server(lab: Lab) -> None:
    key = lab.start(
        "import time\ndef work() -> int:\n    open('pid', 'w').write('1\\n')\n    time.sleep(0.2)\n    return 1\n"
    )
    lab.number("pid")
    lab.wait_for(Started, key)
    os.kill(lab.server(), signal.SIGKILL)
    assert lab.end(key).exit_code == 0


def test_a_shim_and_its_server_that_are_killed_leave_nothing_and_harm_no_other_attempt(lab: Lab) -> None:
    key, other = lab.start(LEAVES, {"end": "wait"}), lab.start(SLEEP, name="other")
    left, pid = [lab.number(name) for name in LEFT], lab.number("pid", "other")
    shim = lab.wait_for(Started, key).pid
    lab.wait_for(Started, other)
    os.kill(lab.server(), signal.SIGKILL)
    os.kill(shim, signal.SIGKILL)
    assert lab.wait_for(Ended, key).record is None
    assert [pid for pid in left if alive(pid)] == []
    assert alive(pid)
    lab.processes.kill(other)
    assert lab.end(other).signal == signal.SIGKILL


def test_the_next_order_starts_a_new_fork_server(lab: Lab) -> None:
    lab.end(lab.start(NOTHING, name="one"))
    first = lab.server()
    os.kill(first, signal.SIGKILL)
    lab.turn_until(lambda: not lab.processes._servers, "notice")
    assert lab.end(lab.start(NOTHING, name="two")).exit_code == 0
    assert lab.server() != first


def test_orders_that_a_dying_server_had_not_started_run_never_or_once(lab: Lab) -> None:
    lab.processes.warm()
    count = lab.folder / "count"
    source = f"def work():\n    open({str(count)!r}, 'a').write('x')\n"
    os.kill(lab.server(), signal.SIGSTOP)
    keys = [lab.start(source, name=f"task-{number}") for number in range(5)]
    os.kill(lab.server(), signal.SIGKILL)
    ends = [lab.wait_for((Ended, StartFailed), key) for key in keys]
    ran = [end for end in ends if isinstance(end, Ended)]
    assert (len(count.read_text()) if count.exists() else 0) == len(ran)
    assert marked(lab.run) == []


def test_a_server_that_dies_under_load_runs_no_attempt_twice(lab: Lab) -> None:
    count = lab.folder / "count"
    source = f"def work():\n    open({str(count)!r}, 'a').write('x')\n"
    lab.end(lab.start(source, name="first"))
    keys = [lab.start(source, name=f"task-{number}") for number in range(30)]
    lab.wait_for(Started, keys[3])
    os.kill(lab.server(), signal.SIGKILL)
    ends = [lab.wait_for((Ended, StartFailed), key) for key in keys]
    failed = [end for end in ends if isinstance(end, StartFailed)]
    assert all(end.ours for end in failed)
    assert len(count.read_text()) == 1 + len(keys) - len(failed)


def test_an_interpreter_that_cannot_be_used_is_said(lab: Lab, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    python.chmod(0o755)
    failed = lab.wait_for(StartFailed, lab.start(NOTHING, environment=Environment(python=str(python))))
    assert "no such thing" in failed.reason
    assert not failed.ours


def test_an_interpreter_that_is_not_there_is_said(lab: Lab) -> None:
    failed = lab.wait_for(StartFailed, lab.start(NOTHING, environment=Environment(python="/nowhere/python")))
    assert "/nowhere/python" in failed.reason


def test_a_directory_that_cannot_be_written_is_said_and_nothing_runs(lab: Lab) -> None:
    order = lab.order(NOTHING)
    lab.directory().rmdir()
    lab.directory().write_text("in the way")
    lab.processes.order(order)
    assert str(lab.directory()) in lab.wait_for(StartFailed, order.key).reason


def test_a_folder_of_the_run_that_cannot_be_written_is_said(lab: Lab) -> None:
    (lab.folder / "components").write_text("no folder can be made here")
    assert "components" in lab.wait_for(StartFailed, lab.start(NOTHING)).reason


def test_large_inputs_do_not_hold_up_the_loop(lab: Lab) -> None:
    lab.processes.warm()
    os.kill(lab.server(), signal.SIGSTOP)
    keys = [
        lab.start("def work(text: str) -> int:\n    return len(text)\n", {"text": "x" * 2**21}, f"task-{n}")
        for n in range(4)
    ]
    os.kill(lab.server(), signal.SIGCONT)
    assert {lab.end(key).exit_code for key in keys} == {0}
    assert lab.output("task-3") == 2**21


def test_closing_ends_everything(lab: Lab) -> None:
    lab.start(LEAVES, {"end": "wait"})
    left = [lab.number(name) for name in LEFT]
    lab.start(SLEEP, name="other")
    server = lab.server()
    lab.processes.close()
    assert [pid for pid in [*left, server] if alive(pid)] == []
    assert marked(lab.run) == []
    assert lab.selector.get_map() == {}
    assert lab.processes.pump() == []


def test_an_idle_engine_is_not_woken(lab: Lab) -> None:
    key = lab.start(SLEEP)
    lab.number("pid")
    lab.wait_for(Started, key)
    assert lab.selector.select(0.2) == []
    lab.processes.kill(key)
    lab.end(key)


def test_warming_starts_the_server_before_the_first_order(lab: Lab) -> None:
    lab.processes.warm()
    server = lab.server()
    assert lab.play(NOTHING).exit_code == 0
    assert lab.server() == server


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
    with pytest.raises(StateError, match=says), selectors.DefaultSelector() as selector:
        Processes(selector, run="run", folder=tmp_path)
