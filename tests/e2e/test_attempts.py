"""The surroundings of an attempt: its environment, notice, checkpoint, inputs and folder."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.building import Of, Param, step
from tests.e2e.inside import attempt, note, progress, until_noticed, work_and_hold
from tests.e2e.project import AT_WORK, Project

if TYPE_CHECKING:
    from kfp import dsl


def tells() -> dict[str, Any]:
    variables = {name: value for name, value in os.environ.items() if name.startswith("SPOTWRIGHT_")}
    return {**variables, "cwd": str(Path.cwd()), "exists": Path(os.environ["SPOTWRIGHT_CHECKPOINT"]).is_dir()}


def saves() -> int:
    """Count on from the checkpoint of the attempt before."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"]) / "count"
    count = int(saved.read_text()) if saved.exists() else 0
    saved.write_text(str(count + 1))
    if attempt() < 3:
        work_and_hold()
    return count + 1


def reads_its_notice() -> dict[str, Any]:
    until_noticed()
    notice = json.loads(Path(os.environ["SPOTWRIGHT_NOTICE_FILE"]).read_text())
    progress(1.0)
    return {**notice, "now": time.time()}


def hears_sigterm() -> int:
    heard: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append(time.time()))
    if attempt() > 1:
        return 1
    until_noticed()
    notice = json.loads(Path(os.environ["SPOTWRIGHT_NOTICE_FILE"]).read_text())
    while not heard:
        time.sleep(0.005)
    note("heard", before_the_end=notice["goes_at"] - heard[0])
    raise SystemExit(143)


def writes(number: int, made: dsl.Output[dsl.Dataset]) -> str:
    Path(made.path).write_text(f"number {number}")
    made.metadata["number"] = number
    return "written"


def reads(
    made: dsl.Input[dsl.Dataset],
    said: str,
    text: str,
    ratio: float,
    is_on: bool,
    names: list[str],
    more: dict[str, Any],
) -> dict[str, Any]:
    content = Path(made.path).read_text()
    return {
        "made": content, "metadata": made.metadata, "said": said, "text": text, "ratio": ratio, "is_on": is_on,
        "names": names, "more": more,
    }  # fmt: skip


def output(project: Project, name: str = "it.Output") -> object:
    return project.show()["outputs"][name]["value"]


def test_the_environment_of_an_attempt_has_its_names_and_paths(project: Project) -> None:
    assert project.run(project.pipeline({"it": step(tells)})).code == 0
    values = output(project)
    assert isinstance(values, dict)
    folder = project.attempt("it")
    assert {name: values[name] for name in ("SPOTWRIGHT_RUN", "SPOTWRIGHT_TASK", "SPOTWRIGHT_ATTEMPT")} == {
        "SPOTWRIGHT_RUN": "r",
        "SPOTWRIGHT_TASK": "it",
        "SPOTWRIGHT_ATTEMPT": "1",
    }
    assert values["SPOTWRIGHT_NOTICE_FILE"] == str(folder / "notice.json")
    assert values["SPOTWRIGHT_NOTICE_URL"] == (folder / "notice.json").as_uri()
    assert values["SPOTWRIGHT_PROGRESS_FILE"] == str(folder / "progress")
    assert values["SPOTWRIGHT_CHECKPOINT"] == str(project.state / "runs" / "r" / "checkpoints" / "it")
    assert (values["cwd"], values["exists"]) == (str(folder / "work"), True)


def test_a_checkpoint_is_handed_from_attempt_to_attempt(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s").replace("fall_back_after: 1", "fall_back_after: 2"))
    assert project.run(project.pipeline({"it": step(saves)})).code == 0
    assert project.causes("it") == ["interrupted", "interrupted", "succeeded"]
    assert output(project) == 3


def test_two_runs_of_one_pipeline_never_share_a_checkpoint(project: Project) -> None:
    project.config("policy:\n  default: {checkpoint: 'pvc://shared'}\n")
    pipeline = project.pipeline({"it": step(tells, cached=False)})
    for name in ("r", "q"):
        assert project.run(pipeline, name=name).code == 0
    places = {str(project.show(name)["outputs"]["it.Output"]["value"]["SPOTWRIGHT_CHECKPOINT"]) for name in ("r", "q")}
    assert len(places) == 2
    assert all(place.startswith(str(project.state / "volumes" / "shared")) for place in places)


def test_a_notice_says_when_the_node_goes_and_how_long_that_is(project: Project) -> None:
    project.config(AT_WORK.format(notice="1h", grace="1ms"))
    assert project.run(project.pipeline({"it": step(reads_its_notice)})).code == 0
    notice = output(project)
    assert isinstance(notice, dict)
    assert sorted(notice) == ["goes_at", "noticed_at", "now", "seconds", "why"]
    assert 0 < notice["seconds"] <= 3600  # fewer by the time that a busy machine took to tell it
    assert notice["noticed_at"] <= notice["now"] < notice["goes_at"]


def test_sigterm_comes_the_grace_period_before_the_node_goes(project: Project) -> None:
    project.config(AT_WORK.format(notice="601s", grace="10m"))
    assert project.run(project.pipeline({"it": step(hears_sigterm)})).code == 0
    [heard] = project.ledger("heard")
    assert 0 < heard["before_the_end"] <= 600
    assert project.causes("it")[0] == "interrupted"


def test_the_waits_of_a_notice_pass_faster_under_a_time_scale(project: Project) -> None:
    project.config(AT_WORK.format(notice="10h", grace="1ms"))
    assert project.run(project.pipeline({"it": step(reads_its_notice)}), "--time-scale", "60").code == 0
    notice = output(project)
    assert isinstance(notice, dict)
    assert (
        0 < notice["seconds"] <= 600
    )  # ten hours of the node's, fewer by the time that a busy machine took to tell it


def test_values_and_artifacts_reach_the_next_task_unchanged(project: Project) -> None:
    given = {"text": "größer\n'\"", "ratio": 0.5, "is_on": True, "names": ["a", "b"], "more": {"k": [1, None]}}
    steps = {
        "writes": step(writes, {"number": Param("number")}),
        "reads": step(reads, {"made": Of("writes", "made"), "said": Of("writes"), **given}),
    }
    assert project.run(project.pipeline(steps, {"number": "int"}), "--arg", "number=7").code == 0
    assert output(project, "reads.Output") == {
        "made": "number 7", "metadata": {"number": 7}, "said": "written", **given,
    }  # fmt: skip


def saves_where_nothing_survives() -> int:
    places = [Path("/tmp/saved-by-a-test"), Path.home() / "saved-by-a-test"]  # noqa: S108 (what people write)
    note("places", found=[place.exists() for place in places])
    for place in places:
        place.write_text("1")
    if attempt() == 1:
        work_and_hold()
    return 1


def test_what_an_attempt_wrote_to_tmp_and_home_is_gone_for_the_next_one(project: Project) -> None:
    project.config(AT_WORK.format(notice="0s", grace="1s"))

    assert project.run(project.pipeline({"it": step(saves_where_nothing_survives)})).code == 0

    assert project.causes("it") == ["interrupted", "succeeded"]
    assert [line["found"] for line in project.ledger("places")] == [[False, False], [False, False]]
    assert not (project.folder / "saved-by-a-test").exists(), "the home folder of the project's commands"
