"""The shim: the attempt's claim, its orders, its time, what is left of it, its record."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.local.lab import Lab, alive, until

from spotwright.local import identity
from spotwright.local.orders import Ended, Started

SLEEP = "import os, time\ndef work():\n    open('pid', 'w').write(f'{os.getpid()}\\n')\n    time.sleep(600)\n"
STUBBORN = """
import os, signal, time
def work():
    signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
    open("pid", "w").write(f"{os.getpid()}\\n")
    while True:
        time.sleep(600)
"""
# Leaves processes behind: in its session, in a session of its own, and one that is nobody's child any more.
LEAVES = """
import os, subprocess, sys, time
def leave(name, *, session):
    subprocess.Popen(["sh", "-c", f"echo $$ > {name}.new; mv {name}.new {name}; sleep 600; true"], start_new_session=session)
def work(end: str):
    leave("child", session=False)
    leave("daemon", session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("orphan.new", "w").write(f"{os.getpid()}\\n")
            os.rename("orphan.new", "orphan")
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not all(map(os.path.exists, ("child", "daemon", "orphan"))):
        time.sleep(0.005)
    if end == "wait":
        time.sleep(600)
"""
LEFT = ("child", "daemon", "orphan")


def names(lab: Lab) -> list[str]:
    return sorted(path.name for path in lab.directory().iterdir())


def test_the_record_tells_the_exit_code_and_the_times(lab: Lab) -> None:
    record = lab.play("import time\ndef work():\n    time.sleep(0.05)\n    raise SystemExit(5)\n")
    assert (record.exit_code, record.signal, record.timed_out, record.ordered, record.start_error) == (
        5,
        None,
        False,
        (),
        "",
    )
    assert 0.05 <= record.seconds < 5
    assert abs(record.ended_at - record.started_at - record.seconds) < 0.5
    assert record.epoch == 1


def test_the_record_tells_what_was_used(lab: Lab) -> None:
    record = lab.play("def work():\n    x = bytearray(64 * 2**20)\n    sum(range(2_000_000))\n")
    assert record.max_rss > 64 * 2**20
    assert 0.01 < record.cpu_seconds < record.seconds + 1


def test_a_crash_is_a_signal(lab: Lab) -> None:
    record = lab.play("import os\ndef work():\n    os.abort()\n")
    assert (record.exit_code, record.signal) == (None, signal.SIGABRT)


def test_terminate_reaches_the_component(lab: Lab) -> None:
    key = lab.start(
        "import signal, sys, time\ndef work():\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "    open('ready', 'w').write('1\\n')\n    time.sleep(600)\n"
    )
    lab.number("ready")
    lab.processes.terminate(key)
    record = lab.end(key)
    assert record.exit_code == 9
    assert [order.what for order in record.ordered] == ["term"]
    assert record.started_at <= record.ordered[0].at <= record.ended_at


def test_terminate_reaches_what_the_component_has_started_in_its_group(lab: Lab) -> None:
    key = lab.start(
        "import subprocess\ndef work():\n    child = subprocess.Popen(['sleep', '600'])\n"
        "    open('ready', 'w').write(f'{child.pid}\\n')\n    raise SystemExit(-child.wait())\n"
    )
    child = lab.number("ready")
    lab.processes.terminate(key)
    lab.end(key)
    assert not alive(child)


def test_kill_ends_a_component_that_ignores_sigterm(lab: Lab) -> None:
    key = lab.start(STUBBORN)
    pid = lab.number("pid")
    lab.wait_for(Started, key)
    lab.processes.terminate(key)
    until(lambda: lab.log() == "asked\n", "the first signal")
    lab.processes.kill(key)
    record = lab.end(key)
    assert record.signal == signal.SIGKILL
    assert [order.what for order in record.ordered] == ["term", "kill"]
    assert not alive(pid)


def test_its_own_time_limit_ends_it_and_says_so(lab: Lab) -> None:
    record = lab.play(SLEEP, timeout=0.1)
    assert record.signal == signal.SIGTERM
    assert record.timed_out
    assert record.ordered == ()
    assert 0.1 <= record.seconds < 5


def test_after_its_grace_a_time_limit_kills(lab: Lab) -> None:
    record = lab.play(STUBBORN, timeout=0.1, grace=0.1)
    assert record.signal == signal.SIGKILL
    assert record.timed_out
    assert lab.log() in ("asked\n", "")
    assert 0.2 <= record.seconds < 5


@pytest.mark.parametrize("end", ["normally", "wait"])
def test_nothing_that_an_attempt_started_outlives_it(lab: Lab, end: str) -> None:
    key = lab.start(LEAVES, {"end": end})
    left = [lab.number(name) for name in LEFT]
    if end == "wait":
        lab.processes.kill(key)
    record = lab.end(key)
    assert (record.exit_code, record.signal) == ((0, None) if end == "normally" else (None, signal.SIGKILL))
    assert [pid for pid in left if alive(pid)] == []


def test_a_shim_that_is_killed_leaves_nothing_and_no_record(lab: Lab) -> None:
    key = lab.start(LEAVES, {"end": "wait"})
    left = [lab.number(name) for name in LEFT]
    os.kill(lab.wait_for(Started, key).pid, signal.SIGKILL)
    assert lab.wait_for(Ended, key).record is None
    assert [pid for pid in left if alive(pid)] == []


def test_the_other_attempts_of_a_server_survive_a_killed_shim(lab: Lab) -> None:
    first, second = lab.start(SLEEP, name="first"), lab.start(SLEEP, name="second")
    pid = lab.number("pid", "second")
    os.kill(lab.wait_for(Started, first).pid, signal.SIGKILL)
    lab.wait_for(Ended, first)
    assert alive(pid)
    lab.processes.kill(second)
    assert lab.end(second).signal == signal.SIGKILL


def test_an_attempt_that_was_fenced_off_runs_nothing(lab: Lab) -> None:
    order = lab.order("def work():\n    open('ran', 'w')\n")
    identity.claim(order.directory, {"by": "fence"})
    lab.processes.order(order)
    assert lab.wait_for(Ended, order.key).record is None
    assert names(lab) == ["claim"]


def test_the_claim_names_the_shim_and_the_attempt(lab: Lab) -> None:
    key = lab.start("def work():\n    pass\n")
    started = lab.wait_for(Started, key)
    lab.end(key)
    claim = json.loads((lab.directory() / "claim").read_text().splitlines()[0])
    assert (claim["pid"], claim["starttime"], claim["boot_id"]) == (started.pid, started.starttime, identity.boot_id())
    assert (claim["run"], claim["task"], claim["attempt"], claim["epoch"]) == (lab.run, "task", 1, 1)


def test_a_directory_of_an_attempt_holds_only_what_is_named(lab: Lab) -> None:
    lab.play("def work() -> int:\n    return 1\n")
    assert names(lab) == ["claim", "exit.jsonl", "log.txt", "out", "work"]


def test_what_cannot_be_prepared_is_said_in_the_record(lab: Lab) -> None:
    order = lab.order("def work():\n    pass\n")
    (lab.directory() / "log.txt").mkdir()
    lab.processes.order(order)
    record = lab.end(order.key)
    assert "log.txt" in record.start_error
    assert (record.exit_code, record.signal) == (None, None)


def test_an_idle_attempt_uses_no_processor(lab: Lab) -> None:
    key = lab.start(SLEEP)
    lab.number("pid")
    shim = lab.wait_for(Started, key).pid

    def used() -> tuple[list[str], list[str]]:
        times = Path(f"/proc/{shim}/stat").read_text().rpartition(")")[2].split()[11:13]
        status = Path(f"/proc/{shim}/status").read_text().splitlines()
        return times, [line for line in status if "ctxt_switches" in line]

    until(lambda: identity.stat(shim).state == "S", "sleep")  # type: ignore[union-attr]
    before = used()
    lab.turn(0.3)
    assert used() == before
    lab.processes.kill(key)
    lab.end(key)


def test_a_child_that_ends_while_the_component_runs_is_no_zombie(lab: Lab) -> None:
    key = lab.start(
        """
        import os, time
        def work():
            if os.fork() == 0:
                if os.fork() == 0:
                    time.sleep(0.05)
                    open("orphan", "w").write(f"{os.getpid()}\\n")
                os._exit(0)
            os.wait()
            time.sleep(600)
        """
    )
    orphan = lab.number("orphan")
    until(lambda: identity.stat(orphan) is None, "burial")
    lab.processes.kill(key)
    lab.end(key)
