"""A memory limit ends its attempt and is recorded; without control groups limits are not enforced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.local.process_harness import ProcessHarness
from tests.local.programs import SLEEP

from spotwright.local.attempt_processes import cgroup_of
from spotwright.local.protocol import Ended, Started, StartOrder
from spotwright.local.supervisor import cgroups

needs_groups = pytest.mark.skipif(cgroups.parent() is None, reason="no control groups can be made here")
GREEDY = "def work():\n    kept = [bytearray(2**20) for _ in range(512)]\n"


def group_folder(order: StartOrder) -> Path:
    """The folder of the attempt's control group."""
    found = cgroup_of(order)
    assert found is not None
    version, parent, name = found
    return Path(cgroups.Group(version, parent).child(name).path)


@needs_groups
def test_a_component_above_its_memory_limit_is_killed(harness: ProcessHarness) -> None:
    record = harness.play(GREEDY, memory_limit=128 * 2**20)
    assert record.signal == 9
    assert record.oom_kills is not None
    assert record.oom_kills >= 1
    assert record.ordered == ()


@needs_groups
def test_a_component_below_its_memory_limit_is_not_killed(harness: ProcessHarness) -> None:
    record = harness.play("def work():\n    pass\n", memory_limit=256 * 2**20)
    assert (record.exit_code, record.oom_kills) == (0, 0)


@needs_groups
def test_an_out_of_memory_kill_of_a_child_counts(harness: ProcessHarness) -> None:
    record = harness.play(
        "import os, sys\ndef work():\n    pid = os.fork()\n    if pid == 0:\n"
        "        kept = [bytearray(2**20) for _ in range(512)]\n        os._exit(0)\n    os.waitpid(pid, 0)\n    sys.exit(9)\n",
        memory_limit=128 * 2**20,
    )
    assert record.oom_kills is not None
    assert record.oom_kills >= 1


@needs_groups
def test_a_component_above_its_limit_does_not_affect_another(harness: ProcessHarness) -> None:
    other = harness.start("import time\ndef work():\n    while True:\n        time.sleep(600)\n", name="other")
    harness.wait_for(Started, other)
    assert harness.play(GREEDY, memory_limit=128 * 2**20).signal == 9
    harness.processes.kill(other)
    assert harness.end(other).oom_kills is None


@needs_groups
def test_the_group_exists_while_the_attempt_runs(harness: ProcessHarness) -> None:
    order = harness.order(SLEEP, memory_limit=256 * 2**20)
    harness.processes.order(order)
    pid = harness.number("pid")
    assert str(pid) in (group_folder(order) / "cgroup.procs").read_text().split()
    harness.wait_for(Started, order.key)
    harness.processes.kill(order.key)
    harness.end(order.key)
    assert not group_folder(order).exists()


@needs_groups
def test_the_group_of_a_killed_shim_is_removed(harness: ProcessHarness) -> None:
    order = harness.order(SLEEP, memory_limit=256 * 2**20)
    harness.processes.order(order)
    harness.number("pid")
    os.kill(harness.wait_for(Started, order.key).pid, 9)
    harness.wait_for(Ended, order.key)
    assert not group_folder(order).exists()


def test_without_control_groups_a_limit_is_not_enforced(
    harness: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "parent", lambda: None)
    record = harness.play("def work():\n    pass\n", memory_limit=2**20)
    assert (record.exit_code, record.oom_kills) == (0, None)
    assert "not enforced" in cgroups.why_not_enforced()


def test_without_a_limit_there_is_no_group(harness: ProcessHarness) -> None:
    order = harness.order("def work():\n    pass\n")
    harness.processes.order(order)
    assert cgroup_of(order) is None
    assert harness.end(order.key).oom_kills is None


@needs_groups
def test_with_control_groups_limits_are_enforced() -> None:
    assert cgroups.why_not_enforced() == ""


def test_the_machines_count_of_out_of_memory_kills_is_read() -> None:
    assert cgroups.machine_oom_kills() >= 0
