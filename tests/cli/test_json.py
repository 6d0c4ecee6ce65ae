"""``--json``: the same facts for a machine, the same in every command, and nothing else on standard output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.building import Of, Param, step
from tests.e2e.inside import attempt, hold, raise_file, say, work_and_hold
from tests.e2e.project import AT_WORK, Project, eventually

HEAD = {
    "run", "pipeline", "status", "why", "seed", "time_scale", "started_at", "finished_at", "seconds", "currency", "prices",
    "has_prices", "orchestrator", "deadline",
}  # fmt: skip
RUN = HEAD | {"engines", "driven", "arguments", "notes", "tasks", "left_behind", "nodes", "outputs", "left_out"}
SUMMARY = HEAD | {"tasks", "attempts", "interruptions", "errors", "cached", "cost"}
TASK = {
    "path", "written", "display_name", "environment", "is_pipeline", "status", "why", "waits_for", "cached_from", "spent",
    "budgets", "outputs", "attempts", "needs",
}  # fmt: skip
ATTEMPT = {
    "number", "status", "pools", "pool", "node", "capacity", "cause", "why", "next", "tried", "placed_why", "kept_why",
    "moved_why", "moved_at", "placed_at", "bound_at", "runs_since",
    "noticed_at", "goes_at", "ended_at", "ended_by", "last_proof", "seconds", "share", "cost", "kept", "held", "released",
    "first_progress", "progress", "exit_code",
    "signal", "last_line", "log",
}  # fmt: skip
NODE = {
    "name", "pool", "capacity", "state", "booted_at", "ready_at", "noticed_at", "gone_at", "why",
}  # fmt: skip
LOG = {"task", "attempt", "path", "ended", "text"}
PRICED = AT_WORK.replace("capacity: spot,", "capacity: spot, price: 1/h,").replace(
    "on-demand,", "on-demand, price: 3/h,"
)


def prints(number: int) -> int:
    say(f"number {number}")
    if attempt() == 1:
        work_and_hold()
    return number + 1


def fails(number: int) -> int:
    raise ValueError(number)


def holds(number: int) -> int:
    raise_file("holding")
    hold()


def interrupted(project: Project) -> dict[str, Any]:
    """A run in which one task was interrupted once and another follows it; what ``run --json`` says of it."""
    project.config(PRICED.format(notice="0s", grace="1s"))
    steps = {"one": step(prints, {"number": Param("number")}), "two": step(prints, {"number": Of("one")})}
    done = project.run(project.pipeline(steps, {"number": "int"}), "--arg", "number=4", "--seed", "3", "--json")
    assert done.code == 0, done
    found: dict[str, Any] = done.json()
    return found


def asked(project: Project, *command: str) -> Any:
    done = project.spotwright(*command, "--json")
    assert done.code == 0, done
    assert done.err == ""
    return done.json()


def test_run_and_show_print_the_same_json_for_an_ended_run(project: Project) -> None:
    ran = interrupted(project)
    shown = asked(project, "show", "r")
    assert shown == ran
    assert set(shown) == RUN
    assert {frozenset(task) for task in shown["tasks"]} == {frozenset(TASK)}
    assert {frozenset(each) for task in shown["tasks"] for each in task["attempts"]} == {frozenset(ATTEMPT)}
    assert {frozenset(node) for node in shown["nodes"]} == {frozenset(NODE)}


def test_the_facts_of_a_run(project: Project) -> None:
    ran = interrupted(project)
    assert {key: ran[key] for key in ("run", "pipeline", "status", "seed", "time_scale", "currency", "arguments")} == {
        "run": "r", "pipeline": "tested", "status": "succeeded", "seed": 3, "time_scale": 1.0, "currency": "USD",
        "arguments": {"number": 4},
    }  # fmt: skip
    assert ran["outputs"] == {"two.Output": {"kind": "parameter", "value": 6}}
    one = ran["tasks"][0]
    assert [(each["cause"], each["pool"]) for each in one["attempts"]] == [("interrupted", "spot"), ("succeeded", "od")]
    assert one["spent"] == {"interruptions": 1, "errors": 0, "moves": 0}


def test_runs_agrees_with_show(project: Project) -> None:
    ran = interrupted(project)
    [summary] = asked(project, "runs")
    assert set(summary) == SUMMARY
    assert {key: summary[key] for key in HEAD} == {key: ran[key] for key in HEAD}
    assert summary["attempts"] == sum(len(task["attempts"]) for task in ran["tasks"])
    assert summary["tasks"] == {"all": 2, "succeeded": 2}
    assert summary["interruptions"] == sum(task["spent"]["interruptions"] for task in ran["tasks"]) == 2


def test_report_adds_up_to_the_costs_of_the_attempts(project: Project) -> None:
    ran = interrupted(project)
    report = asked(project, "report", "r")
    attempts = [each for task in ran["tasks"] for each in task["attempts"]]
    assert report["attempts"]["money"] == pytest.approx(sum(each["cost"]["money"] for each in attempts))
    parts = sum(report[part]["money"] for part in ("attempts", "boot", "idle", "unfilled"))
    assert report["whole"]["money"] == pytest.approx(parts)
    [summary] = asked(project, "runs")
    assert summary["cost"]["money"] == pytest.approx(report["whole"]["money"])


def test_logs_has_every_attempt_with_its_text(project: Project) -> None:
    ran = interrupted(project)
    logs = asked(project, "logs", "r")
    assert {frozenset(log) for log in logs} == {frozenset(LOG)}
    attempts = [(task["path"], each["number"]) for task in ran["tasks"] for each in task["attempts"]]
    assert [(log["task"], log["attempt"]) for log in logs] == attempts
    assert [log["text"] for log in logs] == ["number 4\n", "number 4\n", "number 5\n", "number 5\n"]
    assert asked(project, "logs", "r", "one", "2") == [logs[1]]


def test_a_failed_run_is_failed_in_json(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(fails, {"number": 1})}), "--json")
    assert done.code == 1
    assert (done.json()["status"], done.json()["tasks"][0]["status"]) == ("failed", "failed")
    assert done.json() == asked(project, "show", "r")


def test_progress_goes_to_the_error_output_beside_json(project: Project) -> None:
    done = project.run(project.pipeline({"it": step(fails, {"number": 1})}), "--json")
    assert "it: attempt 1" in done.err
    assert done.out.count("\n") == 1


def test_resume_and_cancel_print_the_same_shape(project: Project) -> None:
    under = project.start("run", str(project.pipeline({"it": step(holds, {"number": 1})})), "--name", "r", "--json")
    eventually((project.playground / "holding").exists)
    running = asked(project, "show", "r")
    assert (running["status"], running["driven"], running["finished_at"]) == ("running", True, None)
    cancelled = asked(project, "cancel", "r")
    assert under.wait().json()["status"] == cancelled["status"] == "cancelled"
    assert set(cancelled) == RUN
    project.pipeline({"it": step(fails, {"number": 1})})
    resumed = project.spotwright("resume", "r", "--json")
    assert resumed.code == 1
    assert resumed.json() == asked(project, "show", "r")
    assert "task it has changed" in resumed.err


def test_json_is_ascii_without_infinity_and_nan(project: Project) -> None:
    interrupted(project)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for command in (["show", "r"], ["runs"], ["report", "r"], ["logs", "r"]):
        text = project.spotwright(*command, "--json").out
        json.loads(text, parse_constant=refuse)
        assert text.isascii()


def test_an_error_is_no_json(project: Project) -> None:
    done = project.here("show", "nothing", "--json")
    assert (done.code, done.out) == (2, "")


Facts = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize("command", [["show", "r"], ["runs"], ["report", "r"], ["logs", "r"]])
def test_without_json_there_is_text_for_people(project: Project, command: list[str]) -> None:
    interrupted(project)
    done = project.spotwright(*command)
    assert done.code == 0
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(done.out)
    assert all(len(line) < 160 for line in done.out.splitlines())
