"""Outputs are read back: parameters from KFP's metadata store, artifacts as the addresses at which they lie."""

from __future__ import annotations

import pytest
from tests.kubeflow.conftest import TWO_TASKS, Folder
from tests.kubeflow.flows import Flow, Try
from tests.kubeflow.metadata import executions
from tests.kubeflow.pipelines import compiled, task
from tests.kubeflow.stand_in import StandIn, Step

from spotwright.kubeflow.server import CannotRead, outputs_in, request_for

WRITTEN = {"accuracy": 1.0, "right": 37, "verdict": "good \u2713", "counts": [1, 2.5, {"deep": [True, None]}]}


def both_tasks() -> Flow:
    flow = Flow()
    flow.task("train", Try(), artifacts={"model": "gs://bucket/digits/model"}, execution=6)
    flow.task("evaluate", Try(), execution=700)
    return flow.end()


def test_output_parameters_are_shown_with_their_declared_types(folder: Folder, server: StandIn) -> None:
    server.steps, server.outputs = [Step("SUCCEEDED", both_tasks())], {700: WRITTEN, 6: {}}
    done = folder.run("--json")
    outputs = {name: each["value"] for name, each in done.json()["outputs"].items()}
    assert outputs == {f"evaluate.{name}": value for name, value in WRITTEN.items()}
    assert [type(outputs[f"evaluate.{name}"]) for name in ("accuracy", "right")] == [float, int]
    shown = folder("show", "first").out
    assert "evaluate.right     37" in shown
    assert "gs://bucket/digits/model" in shown


def test_outputs_of_a_pipeline_inside_are_those_of_its_tasks(folder: Folder, server: StandIn) -> None:
    inner = {"train": task("train"), "evaluate": task("evaluate", model="train")}
    folder.pipeline.write_text(compiled({"inner": task("inner")}, {"inner": inner}))
    flow = Flow()
    place = flow.pipeline("inner", "Succeeded")
    flow.task("train", Try(), place=place, execution=1)
    flow.task("evaluate", Try(), place=place, execution=2)
    server.steps, server.outputs = [Step("SUCCEEDED", flow.end())], {2: {"right": 5}}
    view = folder.run("--json").json()
    [evaluate] = [each for each in view["tasks"] if each["path"] == "inner/evaluate"]
    assert evaluate["outputs"]["parameters"] == {"right": 5}


def test_an_address_without_the_metadata_store_is_said(folder: Folder, server: StandIn) -> None:
    server.steps, server.has_metadata_store = [Step("SUCCEEDED", both_tasks())], False
    done = folder.run()
    assert done.code == 0
    assert "output parameters are unknown: KFP's metadata store" in done.out


def with_earlier_results(*names: str) -> Flow:
    """A run in which KFP used an earlier result of these tasks; their drivers do not write it, as seen on a real backend."""
    flow = Flow(retried=False)
    for name in names:
        flow.task(name, cached=True)
    return flow.end()


def test_tasks_whose_outputs_are_those_of_an_earlier_result_are_named(folder: Folder, server: StandIn) -> None:
    flow = with_earlier_results("train")
    flow.task("evaluate", Try(), execution=700)
    server.steps, server.outputs = [Step("SUCCEEDED", flow)], {700: WRITTEN}
    view = folder.run("--json").json()
    [note] = [note for note in view["notes"] if "earlier result" in note]
    assert note.startswith("KFP used an earlier result for train, and its outputs are unknown here: look at ")
    assert note.endswith(f"/#/runs/details/{next(iter(server.runs))}")


def test_many_such_tasks_are_counted(folder: Folder, server: StandIn) -> None:
    names = [f"train-{number}" for number in range(7)]
    folder.pipeline.write_text(compiled({name: task("train") for name in names}))
    server.steps = [Step("SUCCEEDED", with_earlier_results(*names))]
    [note] = [note for note in folder.run("--json").json()["notes"] if "earlier result" in note]
    named = ", ".join(names[:5])
    assert f"an earlier result for {named} and 2 other tasks, and their outputs are unknown here" in note


def test_a_task_without_outputs_misses_none_when_it_was_not_run_again(folder: Folder, server: StandIn) -> None:
    folder.pipeline.write_text(compiled({"clean": task("clean")}))
    server.steps = [Step("SUCCEEDED", with_earlier_results("clean"))]
    assert not [note for note in folder.run("--json").json()["notes"] if "earlier result" in note]


def test_a_pipeline_without_output_parameters_does_not_ask_for_any(folder: Folder, server: StandIn) -> None:
    folder.pipeline.write_text(compiled({"train": TWO_TASKS["train"]}))
    flow = Flow()
    flow.task("train", Try())
    server.steps, server.has_metadata_store = [Step("SUCCEEDED", flow.end())], False
    assert "metadata store" not in folder.run().out


@pytest.mark.parametrize("ids", [[], [1], [127, 128, 300, 2**40]])
def test_what_is_asked_for_and_answered_is_what_protobuf_reads_and_writes(ids: list[int]) -> None:
    outputs = {number: {"number": number % 7, "text": "x" * 300} for number in ids}
    assert outputs_in(executions(request_for(ids), outputs)) == outputs


@pytest.mark.parametrize(
    "answer", [b"", b"<html>log in</html>", b"\x80\0\0\0\x03x:1", b"\0\0\0\0\x05\x0a\xff", b"\0\0\0\0\x01\x0a"]
)
def test_an_answer_that_is_none_of_the_store_is_refused(answer: bytes) -> None:
    with pytest.raises(CannotRead):
        outputs_in(answer)
