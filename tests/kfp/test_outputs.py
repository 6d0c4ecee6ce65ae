"""Reading the outputs of an attempt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotwright.graph import ArtifactSpec, OutputSpecs, ParameterSpec, TaskSpec
from spotwright.kfp.launcher import read_outputs

TASK = TaskSpec(
    "step",
    "comp-step",
    outputs=OutputSpecs(
        {"n": ParameterSpec("NUMBER_INTEGER"), "flag": ParameterSpec("BOOLEAN")},
        {"model": ArtifactSpec("system.Model", metadata={"a": 1})},
    ),
)


def left(folder: Path, output: Any) -> str:
    """Write an executor output; text is written as it is."""
    folder.mkdir(exist_ok=True)
    (folder / "executor_output.json").write_text(output if isinstance(output, str) else json.dumps(output))
    return str(folder)


def artifact(**fields: Any) -> dict[str, Any]:
    return {"artifacts": {"model": {"artifacts": [{"name": "x", "uri": "", "metadata": {}, **fields}]}}}


GOOD = {"parameterValues": {"n": 3.0, "flag": True}}


def test_values_and_artifacts_are_read(tmp_path: Path) -> None:
    outputs = read_outputs(TASK, left(tmp_path, {**GOOD, **artifact(metadata={"b": 2.0})}))
    assert json.dumps(outputs.parameters) == '{"n": 3, "flag": true}'
    assert outputs.artifacts["model"] == {
        "name": "model",
        "type": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"},
        "uri": f"{tmp_path}/artifacts/model",
        "metadata": {"a": 1, "b": 2},
    }
    assert outputs.missing == ()


def test_an_artifact_without_a_file_is_not_missing(tmp_path: Path) -> None:
    assert read_outputs(TASK, left(tmp_path, GOOD)).missing == ()


def test_a_parameter_without_a_value_is_missing(tmp_path: Path) -> None:
    assert read_outputs(TASK, left(tmp_path, {"parameterValues": {"n": 1, "flag": None}})).missing == ("flag",)


def test_kfp_accepts_an_end_without_executor_output_if_all_outputs_are_artifacts(tmp_path: Path) -> None:
    artifacts_only = replace(TASK, outputs=OutputSpecs({}, TASK.outputs.artifacts))

    assert read_outputs(artifacts_only, str(tmp_path)).accepted_by_kfp
    assert not read_outputs(TASK, str(tmp_path)).accepted_by_kfp, "with an output parameter the task fails on KFP"
    assert not read_outputs(artifacts_only, left(tmp_path, "{")).accepted_by_kfp


@pytest.mark.parametrize(("text", "value"), [("True", True), ("false\n", False), ("1", True)])
def test_files_of_output_paths_are_read_by_their_type(tmp_path: Path, text: str, value: bool) -> None:
    folder = left(tmp_path, {"parameterValues": {"n": 1}})
    (tmp_path / "parameters").mkdir()
    (tmp_path / "parameters" / "flag").write_text(text)
    assert read_outputs(TASK, folder).parameters["flag"] is value


@pytest.mark.parametrize("content", [b"maybe", b"\xff", b""])
def test_an_output_whose_file_cannot_be_parsed_is_missing_with_a_note(tmp_path: Path, content: bytes) -> None:
    folder = left(tmp_path, {"parameterValues": {"n": 1}})
    (tmp_path / "parameters").mkdir()
    (tmp_path / "parameters" / "flag").write_bytes(content)
    outputs = read_outputs(TASK, folder)
    assert outputs.missing == ("flag",)
    assert "flag: its file cannot be read" in outputs.notes[0]


def test_the_returned_value_counts_before_a_file(tmp_path: Path) -> None:
    folder = left(tmp_path, GOOD)
    (tmp_path / "parameters").mkdir()
    (tmp_path / "parameters" / "n").write_text("9")
    assert read_outputs(TASK, folder).parameters["n"] == 3


WHOLE = json.dumps({**GOOD, **artifact()})


@pytest.mark.parametrize(
    "text", [*(WHOLE[:end] for end in range(0, len(WHOLE), 7)), "[]", "null", '{"a": NaN}', "[" * 5000]
)
def test_with_a_torn_file_all_outputs_are_missing_and_nothing_is_raised(tmp_path: Path, text: str) -> None:
    outputs = read_outputs(TASK, left(tmp_path, text))
    assert outputs.missing == ("n", "flag", "model")
    assert outputs.notes


def test_without_the_file_the_function_did_not_return(tmp_path: Path) -> None:
    assert read_outputs(TASK, str(tmp_path)).missing == ("n", "flag", "model")
    assert read_outputs(TaskSpec("t", "c"), str(tmp_path)).missing == ("executor_output",)
    assert read_outputs(TaskSpec("t", "c"), left(tmp_path, {})).missing == ()


@pytest.mark.parametrize(
    "output",
    [
        {"parameterValues": [1], "artifacts": [1]},
        {"parameterValues": GOOD["parameterValues"], "artifacts": {"model": {"artifacts": "x"}}},
        {"parameterValues": GOOD["parameterValues"], "artifacts": {"model": {"artifacts": [None]}}},
        {"parameterValues": GOOD["parameterValues"], **artifact(uri=5, metadata=[1], custom_path=7)},
    ],
)
def test_unexpected_json_raises_nothing(tmp_path: Path, output: Any) -> None:
    assert "model" not in read_outputs(TASK, left(tmp_path, output)).missing


def test_a_value_of_another_type_is_kept_for_its_reader_to_refuse(tmp_path: Path) -> None:
    assert read_outputs(TASK, left(tmp_path, {"parameterValues": {"n": [1.0], "flag": True}})).parameters["n"] == [1]


def test_a_remote_address_is_kept(tmp_path: Path) -> None:
    outputs = read_outputs(TASK, left(tmp_path, {**GOOD, **artifact(uri="s3://bucket/model")}))
    assert outputs.artifacts["model"]["uri"] == "s3://bucket/model"


@pytest.mark.parametrize("uri", ["/etc/passwd", "{out}/../elsewhere", "relative", "{out}-beside/x"])
def test_with_an_address_outside_the_run_the_artifact_is_missing(tmp_path: Path, uri: str) -> None:
    out = tmp_path / "out"
    outputs = read_outputs(TASK, left(out, {**GOOD, **artifact(uri=uri.format(out=out))}))
    assert outputs.missing == ("model",)
    assert "is outside the run's folder" in outputs.notes[0]


def test_an_address_below_the_runs_folder_is_kept(tmp_path: Path) -> None:
    other = f"{tmp_path}/other-task/artifacts/data"
    folder = left(tmp_path / "out", {**GOOD, **artifact(uri=other)})
    assert read_outputs(TASK, folder).missing == ("model",)
    assert read_outputs(TASK, folder, (str(tmp_path),)).artifacts["model"]["uri"] == other


def test_the_reader_follows_no_custom_path_because_it_sees_other_files_than_the_attempt(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("of another user")
    out = tmp_path / "out"
    outputs = read_outputs(TASK, left(out, {**GOOD, **artifact(custom_path=str(tmp_path / "elsewhere"))}))
    assert outputs.missing == ()
    assert not Path(outputs.artifacts["model"]["uri"]).exists()


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "/etc/passwd", "gs://bucket/../../etc/passwd", "{out}/../../x", "{out}/link/x"]
)
def test_no_address_leaves_the_runs_folder_in_any_way(tmp_path: Path, uri: str) -> None:
    folder = tmp_path / "out"
    out = left(folder, {**GOOD, **artifact(uri=uri.format(out=folder))})
    (folder / "link").symlink_to("/etc")
    outputs = read_outputs(TASK, out)
    assert outputs.missing == ("model",)
    assert "is outside the run's folder" in outputs.notes[0]


def test_an_artifact_may_be_a_link_or_in_a_cloud(tmp_path: Path) -> None:
    place = tmp_path / "artifacts" / "model"
    place.parent.mkdir()
    place.symlink_to("/usr/share")
    for uri in (str(place), f"file://{place}", "gs://bucket/a..b/c"):
        assert read_outputs(TASK, left(tmp_path, {**GOOD, **artifact(uri=uri)})).missing == ()
