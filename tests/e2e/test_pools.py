"""The nodes of attempts: room of nodes and pools, GPUs, reuse of nodes, fallback, and the idle engine."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.building import Of, step
from tests.e2e.inside import alone, attempt, hold, note, raise_file, until, work_and_hold
from tests.e2e.project import AT_WORK, Project, eventually
from tests.sampling import every

ONE_EACH = """
pools:
  spot: {{capacity: spot, max_nodes: {nodes}, node: {{cpu: {cpu}, nvidia.com/gpu: 1}}, simulate: {{boot: 0s}}}}
policy:
  default: {{spot: require, pending_timeout: 1h}}
"""
ONE_CPU = {"cpuRequest": 1, "resourceCpuRequest": "1"}
ONE_GPU = {"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "1"}}
IDLE_FOR = 1.5  # seconds of wall time that are looked at
TICKS = os.sysconf("SC_CLK_TCK")


def takes_a_while(number: int) -> int:
    with alone():
        for _ in range(20):
            note("tick", number=number)
            time.sleep(0.005)
        return number


def meets_the_others(number: int) -> int:
    """Ends only if all three run at the same time."""
    raise_file(f"here-{number}")
    for other in range(3):
        until(f"here-{other}")
    return number


def meets_twenty_nine_others(number: int) -> int:
    """Ends only if all thirty run at the same time."""
    raise_file(f"here-{number}")
    for other in range(30):
        until(f"here-{other}")
    return number


def holds(number: int) -> int:
    raise_file("holding")
    hold()


def interrupted_on_spot(number: int) -> int:
    if attempt() <= 2:
        work_and_hold()
    return number


def adds_one(number: int) -> int:
    return number + 1


def intervals(project: Project) -> list[tuple[float, float, str]]:
    """When each attempt had its node, as the journal has it, and which node that was."""
    attempts = [each for task in project.show()["tasks"].values() for each in task["attempts"]]
    return sorted((each["bound_at"], each["ended_at"], each["node"]) for each in attempts)


def most_at_once(project: Project) -> int:
    moments = sorted(
        [(end, -1) for _, end, _ in intervals(project)] + [(begin, 1) for begin, _, _ in intervals(project)]
    )
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def beside(count: int, function: Any, **settings: Any) -> dict[str, Any]:
    return {f"t{number}": step(function, {"number": number}, **settings) for number in range(count)}


@pytest.mark.parametrize(("nodes", "cpu", "room"), every(2, [(2, 1, 2), (1, 1, 1), (1, 3, 3)]))
def test_no_more_attempts_run_at_once_than_nodes_have_room_for(
    project: Project, nodes: int, cpu: int, room: int
) -> None:
    project.config(ONE_EACH.format(nodes=nodes, cpu=cpu))
    assert project.run(project.pipeline(beside(5, takes_a_while, resources=ONE_CPU))).code == 0
    assert most_at_once(project) <= room
    assert len({node for _, _, node in intervals(project)}) <= nodes


def test_independent_tasks_run_at_the_same_time_if_there_is_room(project: Project) -> None:
    project.config(ONE_EACH.format(nodes=3, cpu=1))
    assert project.run(project.pipeline(beside(3, meets_the_others, resources=ONE_CPU))).code == 0
    assert most_at_once(project) == 3


def test_thirty_tasks_without_requests_do_not_share_one_node_of_four_cpus(project: Project) -> None:
    project.config(ONE_EACH.format(nodes=10, cpu=4))
    done = project.run(project.pipeline(beside(30, meets_twenty_nine_others)))
    assert done.code == 0
    assert done.out.count("tasks without resource requests take 1 cpu each of a simulated node") == 1
    on_nodes = Counter(node for _, _, node in intervals(project))
    assert (len(on_nodes), max(on_nodes.values())) == (8, 4)


def test_a_gpu_is_used_by_one_attempt_at_a_time(project: Project) -> None:
    project.config(ONE_EACH.format(nodes=1, cpu=8))
    assert project.run(project.pipeline(beside(3, takes_a_while, resources=ONE_GPU))).code == 0
    for (_, end, _), (begin, _, _) in pairwise(intervals(project)):
        assert end <= begin


def test_a_node_is_used_again(project: Project) -> None:
    steps = {"one": step(adds_one, {"number": 1}), "two": step(adds_one, {"number": Of("one")})}
    assert project.run(project.pipeline(steps)).code == 0
    assert len(project.show()["nodes"]) == 1


def test_a_node_may_live_longer_than_any_wait_of_the_machine(project: Project) -> None:
    project.config(ONE_EACH.format(nodes=1, cpu=1).replace("boot: 0s", "boot: 0s, interrupt_every: 100000h"))
    assert project.run(project.pipeline({"one": step(adds_one, {"number": 1})})).code == 0


def test_after_so_many_interruptions_a_task_goes_to_on_demand(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s").replace("fall_back_after: 1", "fall_back_after: 2"))
    assert project.run(project.pipeline({"it": step(interrupted_on_spot, {"number": 1})})).code == 0
    attempts = project.show()["tasks"]["it"]["attempts"]
    assert [(each["pool"], each["cause"]) for each in attempts] == [
        ("spot", "interrupted"),
        ("spot", "interrupted"),
        ("od", "succeeded"),
    ]


def used(pid: int) -> int:
    """The processor time that a process has used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_idle_engine_and_its_helper_processes_use_no_cpu(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"it": step(holds, {"number": 1})})), "--name", "r")
    eventually((project.playground / "holding").exists)
    eventually(lambda: "bound" in project.kinds())
    pids = list(project.processes())

    def rests() -> bool:
        """Whether they are idle for a while; a busy machine may delay their waits."""
        before = sum(map(used, pids))
        with pytest.raises(subprocess.TimeoutExpired):
            started.process.wait(IDLE_FOR)
        return (sum(map(used, pids)) - before) / TICKS < 0.1 * IDLE_FOR

    eventually(rests)
    assert project.spotwright("cancel", "r").code == 0
    started.wait()
