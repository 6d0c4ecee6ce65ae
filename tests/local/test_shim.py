"""The shim: claim, end orders, timeout, remaining processes and exit record of an attempt."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness, alive, until
from tests.local.programs import LEAVES, LEFT, SLEEP, STUBBORN

from spotwright.local.protocol import Ended, Started
from spotwright.local.supervisor import process_identity


def names(harness: ProcessHarness) -> list[str]:
    return sorted(path.name for path in harness.directory().iterdir())


def test_the_record_has_the_exit_code_and_the_times(harness: ProcessHarness) -> None:
    record = harness.play("import time\ndef work():\n    time.sleep(0.05)\n    raise SystemExit(5)\n")
    assert (record.exit_code, record.signal, record.timed_out, record.ordered, record.start_error) == (
        5,
        None,
        False,
        (),
        "",
    )
    assert 0.05 <= record.seconds < 120
    assert abs(record.ended_at - record.started_at - record.seconds) < 60
    assert record.epoch == 1


def test_the_record_has_the_resource_usage(harness: ProcessHarness) -> None:
    record = harness.play("def work():\n    x = bytearray(64 * 2**20)\n    sum(range(2_000_000))\n")
    assert record.max_rss > 64 * 2**20
    assert 0.01 < record.cpu_seconds < record.seconds + 1


def test_a_crash_is_recorded_as_a_signal(harness: ProcessHarness) -> None:
    record = harness.play("import os\ndef work():\n    os.abort()\n")
    assert (record.exit_code, record.signal) == (None, signal.SIGABRT)


def test_terminate_reaches_the_component(harness: ProcessHarness) -> None:
    key = harness.start(
        "import signal, sys, time\ndef work():\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "    open('ready', 'w').write('1\\n')\n    time.sleep(600)\n"
    )
    harness.number("ready")
    harness.processes.terminate(key)
    record = harness.end(key)
    assert record.exit_code == 9
    assert [order.what for order in record.ordered] == ["term"]
    assert record.started_at <= record.ordered[0].at <= record.ended_at


def test_terminate_reaches_the_components_process_group(harness: ProcessHarness) -> None:
    key = harness.start(
        "import subprocess\ndef work():\n    child = subprocess.Popen(['sleep', '600'])\n"
        "    open('ready', 'w').write(f'{child.pid}\\n')\n    raise SystemExit(-child.wait())\n"
    )
    child = harness.number("ready")
    harness.processes.terminate(key)
    harness.end(key)
    assert not alive(child)


def test_kill_ends_a_component_that_ignores_sigterm(harness: ProcessHarness) -> None:
    key = harness.start(STUBBORN)
    pid = harness.number("pid")
    harness.wait_for(Started, key)
    harness.processes.terminate(key)
    until(lambda: harness.log() == "asked\n", "the first signal")
    harness.processes.kill(key)
    record = harness.end(key)
    assert record.signal == signal.SIGKILL
    assert [order.what for order in record.ordered] == ["term", "kill"]
    assert not alive(pid)


def test_a_timeout_ends_the_attempt_and_is_recorded(harness: ProcessHarness) -> None:
    record = harness.play(SLEEP, timeout=0.1)
    assert record.signal == signal.SIGTERM
    assert record.timed_out
    assert record.ordered == ()
    assert 0.1 <= record.seconds < 120


def test_a_timeout_kills_after_the_grace_period(harness: ProcessHarness) -> None:
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        harness.processes.warm()  # the component inherits this, so it ignores SIGTERM from its first moment
    finally:
        signal.signal(signal.SIGTERM, handler)
    record = harness.play(SLEEP, timeout=0.1, grace=0.1)
    assert record.signal == signal.SIGKILL
    assert record.timed_out
    assert 0.2 <= record.seconds < 120


@pytest.mark.parametrize("end", ["normally", "wait"])
def test_no_process_of_an_attempt_outlives_it(harness: ProcessHarness, end: str) -> None:
    key = harness.start(LEAVES, {"end": end})
    left = [harness.number(name) for name in LEFT]
    if end == "wait":
        harness.processes.kill(key)
    record = harness.end(key)
    assert (record.exit_code, record.signal) == ((0, None) if end == "normally" else (None, signal.SIGKILL))
    assert [pid for pid in left if alive(pid)] == []


def test_a_killed_shim_leaves_no_process_and_no_record(harness: ProcessHarness) -> None:
    key = harness.start(LEAVES, {"end": "wait"})
    left = [harness.number(name) for name in LEFT]
    os.kill(harness.wait_for(Started, key).pid, signal.SIGKILL)
    assert harness.wait_for(Ended, key).record is None
    assert [pid for pid in left if alive(pid)] == []


def test_the_other_attempts_of_a_server_survive_a_killed_shim(harness: ProcessHarness) -> None:
    first, second = harness.start(SLEEP, name="first"), harness.start(SLEEP, name="second")
    pid = harness.number("pid", "second")
    os.kill(harness.wait_for(Started, first).pid, signal.SIGKILL)
    harness.wait_for(Ended, first)
    assert alive(pid)
    harness.processes.kill(second)
    assert harness.end(second).signal == signal.SIGKILL


def test_a_fenced_attempt_runs_nothing(harness: ProcessHarness) -> None:
    order = harness.order("def work():\n    open('ran', 'w')\n")
    process_identity.claim(order.directory, {"by": "fence"})
    harness.processes.order(order)
    assert harness.wait_for(Ended, order.key).record is None
    assert names(harness) == ["claim"]


def test_the_claim_identifies_the_shim_and_the_attempt(harness: ProcessHarness) -> None:
    key = harness.start("def work():\n    pass\n")
    started = harness.wait_for(Started, key)
    harness.end(key)
    claim = json.loads((harness.directory() / "claim").read_text().splitlines()[0])
    assert (claim["pid"], claim["starttime"], claim["boot_id"]) == (
        started.pid,
        started.starttime,
        process_identity.boot_id(),
    )
    assert (claim["run"], claim["task"], claim["attempt"], claim["epoch"]) == (harness.run, "task", 1, 1)


def test_an_attempts_directory_has_only_the_documented_files(harness: ProcessHarness) -> None:
    harness.play("def work() -> int:\n    return 1\n")
    assert names(harness) == ["claim", "exit.jsonl", "log.txt", "out", "work"]


def test_a_failed_preparation_is_recorded(harness: ProcessHarness) -> None:
    order = harness.order("def work():\n    pass\n")
    (harness.directory() / "log.txt").mkdir()
    harness.processes.order(order)
    record = harness.end(order.key)
    assert "log.txt" in record.start_error
    assert (record.exit_code, record.signal) == (None, None)


def test_a_waiting_shim_uses_no_processor_time(harness: ProcessHarness) -> None:
    key = harness.start(SLEEP)
    harness.number("pid")
    shim = harness.wait_for(Started, key).pid

    def used() -> tuple[list[str], list[str]]:
        times = Path(f"/proc/{shim}/stat").read_text().rpartition(")")[2].split()[11:13]
        status = Path(f"/proc/{shim}/status").read_text().splitlines()
        return times, [line for line in status if "ctxt_switches" in line]

    def rests() -> bool:
        """Whether it does nothing for a while; a busy machine may let it come to its wait late."""
        before = used()
        harness.turn(0.3)
        return used() == before

    until(rests, "rest")
    harness.processes.kill(key)
    harness.end(key)


def test_an_orphan_that_ends_does_not_stay_a_zombie(harness: ProcessHarness) -> None:
    key = harness.start(
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
    orphan = harness.number("orphan")
    until(lambda: process_identity.stat(orphan) is None, "burial")
    harness.processes.kill(key)
    harness.end(key)
