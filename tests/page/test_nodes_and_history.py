"""The nodes of a run with the attempts that ended on them, its history by task and kind, and the pools over many runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.events import an_event
from tests.page.reading import AJob, reader_from, reader_of
from tests.views.builders import START, Story, a_config, a_plan, a_task, tutorial

from spotwright.engine.event_codec import EVENT_TYPES
from spotwright.engine.events import AttemptRecalled
from spotwright.engine.plan import Plan
from spotwright.graph import Dag, TaskGraph, TaskSpec
from spotwright.page.attempt_panel import history, nodes
from spotwright.page.heads import pools
from spotwright.views.narration import Narrator, event_text


def test_a_node_has_the_attempts_that_were_taken_with_it() -> None:
    found = {node["name"]: node for node in nodes(reader_of(tutorial()))["nodes"]}
    assert (found["cpu-spot-1"]["attempts"], found["cpu-spot-1"]["ended"]) == (2, [])
    assert found["gpu-spot-1"]["ended"] == [{"task": "train", "attempt": 1, "at": START + 17, "cause": "interrupted"}]
    assert (found["gpu-spot-1"]["state"], found["gpu-spot-1"]["why"]) == ("gone", "taken by the provider")


def test_a_machine_that_comes_back_under_its_name_is_another_node() -> None:
    story = Story(a_plan(a_task("a"))).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(5).taken("cpu-spot-1", "a")
    story.after(5).boots("cpu-spot-1").binds("a", "cpu-spot-1").after(5).ends("a")
    first, second = nodes(reader_of(story))["nodes"]
    assert (first["attempts"], first["ended_of"], second["attempts"], second["ended_of"]) == (1, 1, 1, 0)


def test_the_history_is_filtered_by_task_and_kind() -> None:
    reader = reader_of(tutorial())
    of_train = history(reader, task="train")["rows"]
    assert {row["task"] for row in of_train} == {"train"}
    assert [row["kind"] for row in history(reader, task="train", kinds=["decided", "placed"])["rows"]] == [
        "placed", "decided", "placed", "decided",
    ]  # fmt: skip
    assert history(reader, task="trai")["rows"] == []


def test_the_history_of_a_pipeline_has_the_tasks_in_it() -> None:

    inner = Dag("inner", tasks={"x": a_task("x")})
    root = Dag("root", tasks={"in": TaskSpec("in", "inner", dag="inner"), "inside": a_task("inside")})
    story = Story(Plan(TaskGraph("nested", root, {"root": root, "inner": inner}), a_config()))
    assert {row["task"] for row in history(reader_of(story), task="in")["rows"]} == {"in", "in/x"}


def test_the_last_page_says_that_nothing_follows() -> None:
    reader = reader_of(tutorial())
    count = reader.seq
    assert history(reader, 0, count)["next"] is None
    assert history(reader, 0, count - 1)["next"] == count - 1
    assert history(reader, count - 1, 5)["next"] is None
    assert history(reader, count, 5) == {"rows": [], "next": None}


def test_events_that_are_not_folded_yet_come_with_the_next_look() -> None:
    story = tutorial()
    reader = reader_of(story)
    reader.source.tell(an_event("note", START + 99, data={"text": "later"}))  # type: ignore[attr-defined]
    assert history(reader, reader.seq) == {"rows": [], "next": None}
    reader.refresh()
    [row] = history(reader, reader.seq - 1)["rows"]
    assert row["text"] == "note: later"


def test_secrets_in_events_are_shown_as_references() -> None:
    reader = reader_of(tutorial(arguments={"token": "{{$.secret['@env:TOKEN']}}"}))
    assert history(reader, 0, 1)["rows"][0]["json"]["arguments"] == {"token": "@env:TOKEN"}


def test_the_sentences_of_a_history_are_those_that_a_run_prints() -> None:
    told: list[str] = []
    narrator = Narrator()
    story = tutorial([lambda state, events: told.extend(each.text for each in narrator.narrate(state, events))])
    written = "; ".join(event_text(story.state, event) for event in story.events)
    assert len(told) > 10
    assert [text for text in told if text not in written] == []


NEEDED: dict[str, dict[str, Any]] = {
    "bound": {"node": "gpu-spot-1", "pool": "gpu-spot"}, "cached": {"run": "before", "task": "train"},
    "decided": {"cause": "failed", "why": "it exited with 1", "then": "fail", "next": "no retry is left"},
    "environment": {"state": "ready"}, "expired": {"why": "it took too long"}, "extended": {"version": 2},
    "failed": {"why": "no item"}, "finished": {"status": "failed"}, "halt": {"why": "the run was cancelled"},
    "moved": {"rung": 1, "pools": ["gpu"], "why": "no node"}, "node": {"node": "n", "pool": "gpu", "state": "ready"},
    "note": {"text": "careful"}, "notice": {"node": "n", "goes_at": START}, "placed": {"rung": 0, "pools": ["gpu"]},
    "progress": {"value": 0.1}, "released": {"why": "its machine is gone"}, "skipped": {"why": "its condition"},
    "stop": {"why": "stopped by the user"}, "taken-back": {"rung": 1, "pools": ["gpu"], "why": "no node on spot"},
    "waits": {"why": "Unschedulable"}, "withdrawn": {"node": "n"}, "adopted": {"key": "k", "template": "train"},
}  # fmt: skip
"""The minimum fields of an event of a kind."""


@pytest.mark.parametrize("kind", [kind.kind for kind in EVENT_TYPES])
def test_no_kind_of_event_is_without_a_line(kind: str) -> None:
    event = an_event(kind, START, "train", 1, NEEDED.get(kind))
    assert event_text(tutorial().state, event)


def test_the_line_of_each_wait_in_a_cluster() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.wait(60, "Unschedulable: 0/3 nodes are available")
    job.wait(70, "")
    texts = [row["text"] for row in history(reader_from(job.state.plans[0], job.events))["rows"]]
    assert texts[1:] == [
        "work: attempt 1 is made",
        "work: attempt 1 waits: Unschedulable: 0/3 nodes are available",
        "work: attempt 1 is held up no more",
    ]


# -- pools


def test_pools_add_up_over_runs() -> None:
    runs = [reader_of(tutorial()), reader_of(tutorial())]
    found = {pool["name"]: pool for pool in pools(runs, START + 60)["pools"]}
    gpu = found["gpu-spot"]
    assert list(found) == ["cpu-spot", "gpu-spot"]
    assert (gpu["runs"], gpu["attempts"], gpu["interruptions"], gpu["running"]) == (2, 4, 2, 0)
    assert gpu["nodes"] == {"booting": 0, "ready": 0, "noticed": 0, "gone": 4}
    assert gpu["hours"] == pytest.approx(28 / 3600)
    assert gpu["interruptions_an_hour"] == pytest.approx(2 * 3600 / 28)
    assert (gpu["boot"], gpu["price"], gpu["capacity"], gpu["waiting"]) == (2.0, 0.9, "spot", [])


def test_what_was_over_before_the_time_that_is_asked_for_does_not_count() -> None:
    assert pools([reader_of(tutorial())], START + 90_000)["pools"] == []
    late = {pool["name"]: pool for pool in pools([reader_of(tutorial())], START + 60, START + 20)["pools"]}
    assert (late["gpu-spot"]["attempts"], late["gpu-spot"]["interruptions"]) == (1, 0)
    assert late["gpu-spot"]["hours"] == pytest.approx(8 / 3600)


def test_nodes_and_attempts_of_a_run_that_goes_on_are_there_now() -> None:
    story = Story(a_plan(a_task("a"), a_task("b", requests={"cpu": 4000}))).boots("cpu-spot-1").binds("a", "cpu-spot-1")
    story.node("cpu-spot-2", "booting").after(5)
    story.fact("notice", node="cpu-spot-1", goes_at=story.at + 30, attempts=[["a", 1]], why="taken")
    [pool] = pools([reader_of(story, driven=True)], story.at)["pools"]
    assert pool["nodes"] == {"booting": 1, "ready": 0, "noticed": 1, "gone": 0}
    assert (pool["running"], pool["waiting"]) == (1, [{"reason": "no node yet", "count": 1}])
    [left] = pools([reader_of(story)], story.at)["pools"]
    assert (left["running"], left["waiting"], left["nodes"]["gone"]) == (0, [], 2)


def test_a_pool_that_is_left_out_says_until_when_and_why() -> None:
    job = AJob()
    job.adopt(("spot",))
    job.wait(60, "Unschedulable: 0/3 nodes are available")
    at = job.state.last_at + 600
    left_out = {"spot": (at + 300, 2)}
    job.take_back(AttemptRecalled(at, "work", 1, rung=1, pools=("spot-b",), why="no node on spot", left_out=left_out))
    reader = reader_from(job.state.plans[0], job.events, at + 1)
    found = {pool["name"]: pool for pool in pools([reader], at + 1)["pools"]}
    assert found["spot"]["left_out"] == {"until": at + 300, "times": 2, "why": "no node on spot", "run": "iris-x7k2p"}
    assert found["spot"]["waiting"] == [{"reason": "Unschedulable", "count": 1}]
