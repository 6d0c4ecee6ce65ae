"""Why an attempt ended, for every kind of end that this machine can bring about."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from tests.e2e.building import step
from tests.e2e.inside import attempt, hold, note, raise_file, until_noticed, when_told, work_and_hold
from tests.e2e.project import AT_WORK, Project, eventually

from spotwright.local import cgroups


def returns() -> int:
    return 1


def raises() -> int:
    raise ValueError("it is broken")


def ends_without_outputs() -> int:
    sys.exit(0)


def kills_itself() -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return 1


def holds_on_spot() -> int:
    note("here")
    if attempt() == 1:
        work_and_hold()
    return 1


def ends_when_told() -> int:
    if attempt() == 1:
        when_told(7)
        work_and_hold()
    return 1


def returns_when_told() -> int:
    """Takes the notice as its cue, saves, and comes to its end."""
    until_noticed()
    return attempt()


def leaves_when_told() -> int:
    if attempt() == 1:
        when_told(0)
        work_and_hold()
    return 1


def holds() -> int:
    raise_file("holding")
    hold()


def eats() -> int:
    eaten = [b"x" * (1 << 20) for _ in range(512)]
    return len(eaten)


def needs_nothing() -> int:
    return 1


def one(project: Project) -> dict[str, object]:
    """What is said of the first attempt of the only task."""
    found: dict[str, object] = project.show()["tasks"]["it"]["attempts"][0]
    return found


def test_a_function_that_returns_has_succeeded(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(returns)})).code == 0
    assert (one(project)["cause"], one(project)["exit_code"]) == ("succeeded", 0)


def test_a_function_that_raises_has_failed_and_its_traceback_is_in_its_log(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(raises)}))
    assert done.code == 1
    assert (one(project)["cause"], one(project)["exit_code"]) == ("failed", 1)
    log = project.spotwright("logs", "r", "it", "1").out
    assert "ValueError: it is broken" in log
    assert "Traceback" in log
    assert "Traceback" not in done.err


def test_an_end_with_0_and_without_outputs_has_failed(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(ends_without_outputs)})).code == 1
    assert (one(project)["cause"], one(project)["exit_code"]) == ("failed", 0)
    assert "Output" in str(one(project)["why"])


def test_a_signal_of_its_own_has_failed(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(kills_itself)})).code == 1
    assert (one(project)["cause"], one(project)["signal"]) == ("failed", int(signal.SIGSEGV))


def test_a_node_that_goes_without_a_word_has_interrupted_its_attempt(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    assert project.run(project.pipeline({"it": step(holds_on_spot)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert one(project)["signal"] == int(signal.SIGKILL)
    assert one(project)["noticed_at"] is None


def test_an_end_after_a_notice_with_another_code_than_0_is_an_interruption(project: Project) -> None:
    project.config(AT_WORK.format(notice="5s", grace="5s"))
    assert project.run(project.pipeline({"it": step(ends_when_told)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert (one(project)["exit_code"], project.noted("told")) == (7, [1])


def test_an_end_with_0_and_outputs_while_a_notice_runs_has_succeeded(project: Project) -> None:
    project.config(AT_WORK.format(notice="20s", grace="1ms"))
    assert project.run(project.pipeline({"it": step(returns_when_told)})).code == 0
    assert project.causes("it") == ["succeeded"]
    assert one(project)["noticed_at"] is not None


def test_an_end_with_0_without_outputs_while_a_notice_runs_is_an_interruption(project: Project) -> None:
    project.config(AT_WORK.format(notice="5s", grace="5s"))
    assert project.run(project.pipeline({"it": step(leaves_when_told)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert one(project)["exit_code"] == 0


def test_an_attempt_whose_shim_was_killed_is_lost(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(holds_on_spot)})), "--name", "r")
    eventually(lambda: project.noted("here"))
    os.kill(project.shim("it"), signal.SIGKILL)
    assert under.wait().code == 0
    assert project.causes("it") == ["lost", "succeeded"]


@pytest.mark.skipif(cgroups.parent() is None, reason=cgroups.available())
def test_more_memory_than_the_limit_is_out_of_memory(project: Project) -> None:
    limit = {"memoryLimit": 0.2, "resourceMemoryLimit": "200Mi"}
    assert project.run(project.pipeline({"it": step(eats, resources=limit)})).code == 1
    assert project.causes("it") == ["out of memory"]


def test_an_attempt_that_takes_too_long_has_timed_out(project: Project) -> None:
    project.config("policy:\n  default: {timeout: 200ms, grace_period: 10s}\n")
    assert project.run(project.pipeline({"it": step(holds)})).code == 1
    assert (one(project)["cause"], one(project)["signal"]) == ("timed out", int(signal.SIGTERM))


def test_packages_that_cannot_be_installed_are_a_failed_start(project: Project) -> None:
    nothing = str(project.folder / "nothing-1.0-py3-none-any.whl")
    done = project.run(project.pipeline({"it": step(needs_nothing, packages=[nothing])}))
    assert done.code == 1
    assert one(project)["cause"] == "start-up"
    assert nothing in project.spotwright("logs", "r", "it", "1").out
    assert len(done.said) <= 2


def test_a_pool_without_nodes_is_left_and_after_the_last_one_the_task_is_unschedulable(project: Project) -> None:
    project.write("none.json", json.dumps({"metadata": {"gap_seconds": 60}, "data": [0]}))
    project.config("""
pools:
  spot: {capacity: spot, simulate: {trace: none.json}}
policy:
  default: {spot: require, pending_timeout: 1m}
""")
    done = project.run(project.pipeline({"it": step(returns)}), "--time-scale", "600")
    assert done.code == 1
    assert one(project)["cause"] == "unschedulable"
    assert "spot" in str(one(project)["why"])
    assert "the trace has 0 nodes now" in str(one(project)["why"])


def test_an_attempt_of_a_cancelled_run_is_cancelled(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(holds)})), "--name", "r")
    eventually((project.playground / "holding").exists)
    assert project.spotwright("cancel", "r").code == 0
    assert under.wait().code == 130
    assert one(project)["cause"] == "cancelled"
