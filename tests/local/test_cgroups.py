"""Memory limits end one attempt, and say so; where no groups can be made, nothing breaks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.local.lab import Lab
from tests.local.test_shim import SLEEP

from spotwright.local import cgroups
from spotwright.local.messages import group_of
from spotwright.local.orders import Ended, Started, StartOrder

needs_groups = pytest.mark.skipif(cgroups.parent() is None, reason="no control groups can be made here")
GREEDY = "def work():\n    kept = [bytearray(2**20) for _ in range(512)]\n"


def group_folder(order: StartOrder) -> Path:
    """Where the kernel shows the attempt's group."""
    found = group_of(order)
    assert found is not None
    version, parent, name = found
    return Path(cgroups.Group(version, parent).child(name).path)


@needs_groups
def test_a_component_over_its_limit_is_killed_for_memory(lab: Lab) -> None:
    record = lab.play(GREEDY, memory_limit=128 * 2**20)
    assert record.signal == 9
    assert record.oom_kills is not None
    assert record.oom_kills >= 1
    assert record.ordered == ()


@needs_groups
def test_a_component_below_its_limit_is_left_alone(lab: Lab) -> None:
    record = lab.play("def work():\n    pass\n", memory_limit=256 * 2**20)
    assert (record.exit_code, record.oom_kills) == (0, 0)


@needs_groups
def test_a_killed_child_of_a_component_counts_too(lab: Lab) -> None:
    record = lab.play(
        "import os, sys\ndef work():\n    pid = os.fork()\n    if pid == 0:\n"
        "        kept = [bytearray(2**20) for _ in range(512)]\n        os._exit(0)\n    os.waitpid(pid, 0)\n    sys.exit(9)\n",
        memory_limit=128 * 2**20,
    )
    assert record.oom_kills is not None
    assert record.oom_kills >= 1


@needs_groups
def test_a_greedy_component_harms_no_other(lab: Lab) -> None:
    other = lab.start("import time\ndef work():\n    while True:\n        time.sleep(600)\n", name="other")
    lab.wait_for(Started, other)
    assert lab.play(GREEDY, memory_limit=128 * 2**20).signal == 9
    lab.processes.kill(other)
    assert lab.end(other).oom_kills is None


@needs_groups
def test_the_group_is_there_while_the_attempt_runs_and_gone_afterwards(lab: Lab) -> None:
    order = lab.order(SLEEP, memory_limit=256 * 2**20)
    lab.processes.order(order)
    pid = lab.number("pid")
    assert str(pid) in (group_folder(order) / "cgroup.procs").read_text().split()
    lab.wait_for(Started, order.key)
    lab.processes.kill(order.key)
    lab.end(order.key)
    assert not group_folder(order).exists()


@needs_groups
def test_the_group_of_a_killed_shim_is_removed(lab: Lab) -> None:
    order = lab.order(SLEEP, memory_limit=256 * 2**20)
    lab.processes.order(order)
    lab.number("pid")
    os.kill(lab.wait_for(Started, order.key).pid, 9)
    lab.wait_for(Ended, order.key)
    assert not group_folder(order).exists()


def test_without_groups_a_limit_is_only_not_enforced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "parent", lambda: None)
    record = lab.play("def work():\n    pass\n", memory_limit=2**20)
    assert (record.exit_code, record.oom_kills) == (0, None)
    assert "not enforced" in cgroups.available()


def test_without_a_limit_there_is_no_group(lab: Lab) -> None:
    order = lab.order("def work():\n    pass\n")
    lab.processes.order(order)
    assert group_of(order) is None
    assert lab.end(order.key).oom_kills is None


@needs_groups
def test_it_is_said_how_limits_are_enforced() -> None:
    assert cgroups.available().startswith("memory limits are enforced by control groups")


def test_the_machines_own_count_is_a_number() -> None:
    assert cgroups.machine_oom_kills() >= 0
