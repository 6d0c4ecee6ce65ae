"""The cause of an attempt's end, for every kind of end that this machine can produce."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from kfp import dsl
from tests.e2e.building import step
from tests.e2e.inside import attempt, hold, note, progress, raise_file, until_noticed, when_told, work_and_hold
from tests.e2e.project import AT_WORK, Project, eventually

from spotwright.local.supervisor import cgroups


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


def leaves_half_an_artifact(table: dsl.Output[dsl.Dataset]) -> None:
    Path(table.path).write_text("half")
    if attempt() == 1:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        work_and_hold()
    Path(table.path).write_text("whole")


def returns_when_told() -> int:
    """Takes the notice as its cue, finishes the work, and ends."""
    until_noticed()
    progress(1.0)
    return attempt()


def returns_half_way_when_told() -> int:
    """Takes the notice as its cue, saves, and returns its partial result: exit code 0 and every output, with work left."""
    if attempt() == 1:
        until_noticed()
    else:
        progress(1.0)
    return attempt()


def returns_half_way_when_told_to_leave() -> int:
    """Saves and returns at SIGTERM, as trainers do; the script then writes its outputs."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    progress(0.5)
    if attempt() == 1:
        share = 0.5
        while not told:  # its node is taken after a share of its work
            progress(share := min(0.9, share + 0.001))
            time.sleep(0.002)
    progress(1.0 if attempt() > 1 else 0.9)
    return attempt()


def stops_early() -> int:
    """Returns early by its own stopping rule."""
    progress(0.4)
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
    """The first attempt of the only task in ``show --json``."""
    attempt: dict[str, object] = project.show()["tasks"]["it"]["attempts"][0]
    return attempt


def test_a_function_that_returns_has_succeeded(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(returns)})).code == 0
    assert (one(project)["cause"], one(project)["exit_code"]) == ("succeeded", 0)


def test_a_function_that_raises_has_failed_and_its_traceback_is_in_its_log(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(raises)}))
    assert done.code == 1
    assert (one(project)["cause"], one(project)["exit_code"]) == ("failed", 1)
    log = project.here("logs", "r", "it", "1").out
    assert "ValueError: it is broken" in log
    assert "Traceback" in log
    assert "Traceback" not in done.err


def test_an_exit_with_0_without_outputs_has_failed(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(ends_without_outputs)})).code == 1
    assert (one(project)["cause"], one(project)["exit_code"]) == ("failed", 0)
    assert "Output" in str(one(project)["why"])


def test_an_attempt_that_kills_itself_has_failed(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(kills_itself)})).code == 1
    assert (one(project)["cause"], one(project)["signal"]) == ("failed", int(signal.SIGSEGV))


def test_a_node_that_goes_without_notice_interrupts_its_attempt(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))
    assert project.run(project.pipeline({"it": step(holds_on_spot)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert one(project)["signal"] == int(signal.SIGKILL)
    assert one(project)["noticed_at"] is None


def test_a_nonzero_exit_after_a_notice_is_an_interruption(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="10m"))
    assert project.run(project.pipeline({"it": step(ends_when_told)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert (one(project)["exit_code"], project.noted("told")) == (7, [1])


def test_an_exit_with_0_and_outputs_during_a_notice_has_succeeded(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="1ms"))
    assert project.run(project.pipeline({"it": step(returns_when_told)})).code == 0
    assert project.causes("it") == ["succeeded"]
    assert one(project)["noticed_at"] is not None


def test_an_exit_with_0_and_outputs_during_a_notice_with_work_left_is_an_interruption(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="1ms"))
    assert project.run(project.pipeline({"it": step(returns_half_way_when_told)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert project.show()["outputs"]["it.Output"]["value"] == 2
    assert one(project)["exit_code"] == 0
    shown = " ".join(project.here("show", "r").out.split())
    assert "it exited with 0 after the notice for its node, with work left (at " in shown


def test_a_trainer_that_saves_and_returns_at_sigterm_is_run_again(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="10m"))
    assert project.run(project.pipeline({"it": step(returns_half_way_when_told_to_leave)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert project.show()["outputs"]["it.Output"]["value"] == 2


def test_an_exit_with_0_with_work_left_has_succeeded_where_nothing_told_it_to_stop(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(stops_early)})).code == 0
    assert project.causes("it") == ["succeeded"]


def test_an_exit_with_0_without_outputs_during_a_notice_is_an_interruption(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="10m"))
    assert project.run(project.pipeline({"it": step(leaves_when_told)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert one(project)["exit_code"] == 0


def test_half_an_artifact_after_sigterm_is_no_success_and_the_difference_to_kfp_is_said(project: Project) -> None:
    project.config(AT_WORK.format(notice="10m", grace="10m"))
    assert project.run(project.pipeline({"it": step(leaves_half_an_artifact)})).code == 0
    assert project.causes("it") == ["interrupted", "succeeded"]
    assert one(project)["exit_code"] == 0
    assert "KFP would have counted this as a success" in str(one(project)["why"])
    shown = " ".join(project.here("show", "r").out.split())  # the lines of a sentence are wrapped
    assert "KFP would have counted this as a success" in shown


def test_an_attempt_whose_shim_was_killed_is_lost(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"it": step(holds_on_spot)})), "--name", "r")
    eventually(lambda: project.noted("here"))
    os.kill(project.shim("it"), signal.SIGKILL)
    assert started.wait().code == 0
    assert project.causes("it") == ["lost", "succeeded"]


@pytest.mark.skipif(cgroups.parent() is None, reason=cgroups.why_not_enforced())
def test_more_memory_than_the_limit_is_out_of_memory(project: Project) -> None:
    limit = {"memoryLimit": 0.2, "resourceMemoryLimit": "200Mi"}
    assert project.run(project.pipeline({"it": step(eats, resources=limit)})).code == 1
    assert project.causes("it") == ["out of memory"]


def test_an_attempt_that_takes_too_long_has_timed_out(project: Project) -> None:
    project.config("policy:\n  default: {timeout: 200ms, grace_period: 10m}\n")
    assert project.run(project.pipeline({"it": step(holds)})).code == 1
    assert (one(project)["cause"], one(project)["signal"]) == ("timed out", int(signal.SIGTERM))


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


def test_a_price_above_max_price_takes_the_nodes_of_the_pool(project: Project) -> None:
    project.write("priced.json", json.dumps({"metadata": {"gap_seconds": 3}, "data": [4, 4], "prices": [0.5, 2]}))
    project.config("""
pools:
  spot: {capacity: spot, price: 0.5/h, max_price: 1/h, notice: 1s, simulate: {boot: 0s, trace: priced.json}}
  on-demand: {capacity: on-demand, price: 3/h, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, fall_back_after: 1, grace_period: 0s}
""")
    done = project.run(project.pipeline({"it": step(holds_on_spot)}))
    assert done.code == 0
    attempts = project.show()["tasks"]["it"]["attempts"]
    assert [(attempt["cause"], attempt["pool"]) for attempt in attempts] == [
        ("interrupted", "spot"),
        ("succeeded", "on-demand"),
    ]


def test_an_attempt_of_a_cancelled_run_is_cancelled(project: Project) -> None:
    started = project.start("run", str(project.pipeline({"it": step(holds)})), "--name", "r")
    eventually((project.playground / "holding").exists)
    assert project.spotwright("cancel", "r").code == 0
    assert started.wait().code == 130
    assert one(project)["cause"] == "cancelled"
