"""Why an attempt ended: the row of the rules, the evidence that decided, the follow-up, and an attempt's waits."""

from __future__ import annotations

from typing import Any

import pytest
from scripts.make_failure_matrix import Recorded, read
from tests.engine.builders import SPOT, SPOT_B, START
from tests.page.reading import AJob, reader_from, reader_of
from tests.views.builders import Story, a_plan, a_task

from spotwright.engine.events import AttemptEnded, NoticeGiven, RunReset
from spotwright.errors import UnknownRun
from spotwright.model.attempts import Cause, Signals
from spotwright.model.policy import Deadline, Spot
from spotwright.page.attempt_panel import attempt_panel
from spotwright.scheduling.cause import ROWS, classify, deciding, row_of
from spotwright.views.run_json import run_view
from spotwright.views.run_text import show_text


def a_run(*tasks: str, **policy: Any) -> Story:
    """Tasks that run on one spot node."""
    story = Story(a_plan(*map(a_task, tasks or ("a",)), policy=policy or None)).boots("cpu-spot-1")
    for task in tasks or ("a",):
        story.binds(task, "cpu-spot-1")
    return story.after(10)


def panel(story: Story, task: str = "a", number: int = 1, *, driven: bool = True) -> dict[str, Any]:
    return attempt_panel(reader_of(story, driven=driven), task, number)


def of_job(job: AJob) -> dict[str, Any]:
    return attempt_panel(reader_from(job.state.plans[0], job.events, START + 700), "work", 1)


def decided(told: dict[str, Any]) -> list[str]:
    return [signal["signal"] for signal in told["evidence"] if signal["decided"]]


@pytest.mark.parametrize("recorded", read(), ids=lambda recorded: recorded.case)
def test_every_recorded_ending_has_its_row_and_the_signals_that_decided(recorded: Recorded) -> None:
    story = a_run()
    signals, progress = recorded.signals._replace(progress=None), recorded.signals.progress
    story.tell(AttemptEnded(story.at, "a", 1, signals=signals, progress=progress))
    told = panel(story)

    assert told["attempt"]["cause"] == recorded.cause.value
    row = row_of(recorded.signals)
    assert (told["rule"]["row"], told["rule"]["text"]) == row
    assert told["rule"]["table"] == [each.text for each in ROWS]
    assert decided(told), told["evidence"]
    observed = {name for name, value in signals._asdict().items() if value != Signals._field_defaults[name]}
    assert observed <= {signal["signal"] for signal in told["evidence"]}
    if recorded.cause is not Cause.SUCCEEDED:
        assert told["sentence"] in " ".join(show_text(run_view(story.state, "r")).split())


@pytest.mark.parametrize("recorded", read(), ids=lambda recorded: recorded.case)
def test_the_exit_code_decides_only_where_nobody_else_ended_the_attempt(recorded: Recorded) -> None:
    ending = classify(recorded.signals)
    by_itself = ending.cause in (Cause.SUCCEEDED, Cause.FAILED) and ending.evidence.keys() <= {
        "exit_code", "signal", "outputs_complete", "missing_outputs",
    }  # fmt: skip
    assert bool(deciding(ending) & {"exit_code", "signal"}) == (by_itself and bool(ending.evidence))


def test_a_signal_says_who_told_it_and_when() -> None:
    story = a_run()
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["a", 1]], why="the provider takes it")
    noticed = story.at
    story.after(30).node("cpu-spot-1", "gone", "taken").ends(
        "a", exit_code=143, noticed=True, node_gone=True, spot=True
    )
    told = {signal["signal"]: signal for signal in panel(story)["evidence"]}

    assert {name: signal["told_by"] for name, signal in told.items()} == {
        "exit_code": "process", "noticed": "notice", "node_gone": "node", "spot": "node",
    }  # fmt: skip
    assert (told["noticed"]["at"], told["node_gone"]["at"]) == (noticed, noticed + 30)
    assert [name for name, signal in told.items() if signal["decided"]] == ["noticed", "node_gone"]


def test_a_node_that_is_still_there_is_no_evidence_of_an_end() -> None:
    story = a_run()
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["a", 1]], why="taken")
    told = panel(story.after(3).ends("a", signal=15, noticed=True))
    assert decided(told) == ["noticed"]
    assert [signal["signal"] for signal in told["evidence"]] == ["signal", "noticed"]


def test_a_node_that_was_gone_before_the_end_was_seen_has_its_own_moment() -> None:
    story = a_run().node("cpu-spot-1", "gone", "taken").after(7).ends("a", node_gone=True, spot=True)
    told = {signal["signal"]: signal["at"] for signal in panel(story)["evidence"]}
    assert told == {"node_gone": story.at - 7, "spot": story.at}


def test_a_task_that_declares_no_outputs_succeeds_by_its_exit_code() -> None:
    told = panel(a_run().ends("a", exit_code=0))
    assert (told["attempt"]["cause"], told["rule"]["row"]) == ("succeeded", 3)
    assert decided(told) == ["exit_code", "outputs_complete"]


def test_a_condition_is_told_in_one_line_and_marked_where_it_decided() -> None:
    story = a_run()
    conditions = [
        {"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI", "message": "evicted"},
        {"type": "PodScheduled", "status": "True"},
    ]
    story.ends("a", exit_code=143, conditions=conditions, node_conditions=[{"type": "Ready", "status": "True"}])
    told = [(signal["value"], signal["decided"]) for signal in panel(story)["evidence"] if signal["told_by"] == "pod"]
    assert told == [
        ("DisruptionTarget=True EvictionByEvictionAPI: evicted", True),
        ("PodScheduled=True", False),
    ]


def test_an_end_that_an_earlier_version_judged_otherwise_has_no_row_of_today() -> None:
    story = a_run()
    story.ends("a", exit_code=1)
    reader = reader_of(story)
    reader.state.tasks["a"].last.cause = Cause.INTERRUPTED
    assert attempt_panel(reader, "a", 1)["rule"] is None


def test_what_followed_has_the_budgets_before_and_after() -> None:
    story = a_run("a", **{"errors.retries": 2})
    story.ends("a", exit_code=1).after(60)
    story.binds("a", "cpu-spot-1").after(5).ends("a", moved="drained").boots("cpu-spot-2")
    story.binds("a", "cpu-spot-2").after(5).taken("cpu-spot-2", "a")
    spent = [
        {name: (followed["budget_before"][name]["spent"], followed["budget_after"][name]["spent"]) for name in of}
        for number, of in ((1, ["errors", "moves"]), (2, ["errors", "moves"]), (3, ["interruptions", "moves"]))
        for followed in [panel(story, "a", number)["followed"]]
    ]
    assert spent == [
        {"errors": (0, 1), "moves": (0, 0)}, {"errors": (1, 1), "moves": (0, 1)}, {"interruptions": (0, 1), "moves": (1, 1)}
    ]  # fmt: skip
    last = panel(story, "a", 3)["followed"]
    assert (last["row"], last["then"], last["rung"], last["pools"]) == (3, "retry", 1, ["cpu-spot"])
    assert last["due"] == story.at + last["wait"]
    assert last["budget_after"]["interruptions"]["max"] == 10


def test_after_a_resume_the_budgets_begin_anew() -> None:
    story = a_run()
    story.ends("a", exit_code=1)
    assert story.state.status.value == "failed"
    story.after(5).tell(RunReset(story.at))
    story.boots("cpu-spot-2").binds("a", "cpu-spot-2").after(1).taken("cpu-spot-2", "a")
    first, second = (panel(story, "a", number)["followed"] for number in (1, 2))
    assert first["budget_after"]["errors"]["spent"] == 1
    assert (second["budget_before"]["errors"]["spent"], second["budget_after"]["interruptions"]["spent"]) == (0, 1)


def test_a_move_of_our_own_spends_nothing() -> None:
    policy = {"spot": Spot.PREFER, "deadline": Deadline(after=3600.0), "expected_duration": 600.0}
    story = Story(a_plan(a_task("a"), policy=policy)).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(10)
    story.fact("halt", "a", 1, why="to on-demand, at the last safe moment: 1m of work", moves=True)
    story.after(1).ends("a", exit_code=143, moved="to on-demand")
    followed = panel(story)["followed"]
    assert story.state.tasks["a"].spent.moves == 0
    assert (followed["row"], followed["budget_before"]) == (4, followed["budget_after"])


def test_what_ended_on_the_same_node_within_a_minute_stands_beside() -> None:
    story = a_run("a", "b", "c")
    story.ends("c", exit_code=0, outputs_complete=True).after(61)
    story.node("cpu-spot-1", "gone", "taken").ends("a", node_gone=True, signal=9).ends("b", node_gone=True, signal=9)
    assert panel(story)["beside"] == [
        {"run": "iris-x7k2p", "task": "b", "attempt": 1, "at": story.at, "cause": "interrupted"}
    ]


def test_its_events_are_its_own_its_notices_and_those_of_its_node() -> None:
    story = a_run("a", "b")
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["a", 1], ["b", 1]], why="taken")
    story.after(30).node("cpu-spot-1", "gone", "taken").ends("a", noticed=True, signal=15).ends("b", exit_code=1)
    told = panel(story)
    assert [event["kind"] for event in told["events"]] == [
        "placed", "node", "bound", "notice", "node", "ended", "decided",
    ]  # fmt: skip
    last = told["events"][-1]
    assert last["decision"]
    assert last["json"]["cause"] == "interrupted"
    assert last["text"].startswith("a: attempt 1 on cpu-spot-1 was interrupted: ")


def test_of_very_many_events_the_first_and_the_last_are_told() -> None:
    story = a_run()
    for number in range(1000):
        story.reports("a", number / 1000)
    told = panel(story)
    assert (len(told["events"]), told["events_left_out"]) == (400, 603)
    assert told["events"][-1]["text"] == "a: attempt 1 has done 100%"


def test_a_running_attempt_says_where_it_runs() -> None:
    told = panel(a_run())
    assert (told["sentence"], told["rule"], told["followed"], told["evidence"]) == (
        "a attempt 1 runs on cpu-spot-1", None, None, []
    )  # fmt: skip
    assert told["log"]
    assert told["commands"]["logs"] == "spotwright logs iris-x7k2p a 1"


def test_an_attempt_that_waits_here_says_until_when_and_where_next() -> None:
    story = Story(a_plan(a_task("a"), policy={"spot": "prefer"})).after(5)
    told = panel(story)
    waiting = told["waiting"]
    assert (waiting["why"], waiting["since"], waiting["until"]) == (
        "waits for a node of cpu-spot", story.at - 5, story.at + 595
    )  # fmt: skip
    assert (waiting["pools"], waiting["next_pools"], waiting["stays"]) == (["cpu-spot"], ["cpu"], "")
    assert told["sentence"] == "a attempt 1 waits for a node of cpu-spot"


def test_an_attempt_that_waits_in_a_cluster_says_when_it_is_taken_back_and_how_to_ask_more() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.wait(60, "Unschedulable: 0/3 nodes are available")
    waiting = of_job(job)["waiting"]
    assert (waiting["since"], waiting["until"]) == (START + 60, START + 660)
    assert (waiting["pools"], waiting["next_pools"]) == ([SPOT.name], [SPOT_B.name])
    assert waiting["command"] == "spotwright explain iris-x7k2p --cluster"
    assert "0/3 nodes are available" in waiting["why"]


def test_the_agent_of_a_node_is_named_where_it_told_the_notice() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.bind("spot", 5)
    job.add(NoticeGiven(START + 9, node="spot-5", goes_at=START + 39, attempts=[("work", 1)], why="taken", id="n-1"))
    job.end(Signals(exit_code=143, noticed=True), 20)
    told = {signal["signal"]: signal for signal in of_job(job)["evidence"]}
    assert (told["noticed"]["told_by"], told["noticed"]["at"]) == ("agent", START + 9)


def test_measures_are_those_of_the_process() -> None:
    story = a_run()
    story.reports("a", 0.25).reports("a", 0.5)
    story.tell(
        AttemptEnded(
            story.at, "a", 1, signals=Signals(exit_code=1), seconds=9.5, cpu_seconds=4.25, max_rss=2**20, last_line="no"
        )
    )
    assert panel(story)["measures"] == {
        "first_progress": 0.25, "progress": 0.5, "reported_at": story.at, "exit_code": 1, "signal": None, "last_line": "no",
        "seconds": 9.5, "cpu_seconds": 4.25, "max_rss": 2**20, "outputs_missing": [],
    }  # fmt: skip


@pytest.mark.parametrize(("task", "number"), [("b", 1), ("a", 0), ("a", 2), ("a", -1)])
def test_an_attempt_that_is_not_there_is_refused(task: str, number: int) -> None:
    with pytest.raises(UnknownRun):
        panel(a_run(), task, number)
