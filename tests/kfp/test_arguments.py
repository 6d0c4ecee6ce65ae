"""The arguments of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, Dag, ParameterSpec, TaskGraph
from spotwright.kfp.arguments import bind
from spotwright.kfp.secrets import Reference


def pipeline(**specs: ParameterSpec) -> TaskGraph:
    return TaskGraph("p", Dag("root", specs), {})


ALL = pipeline(
    text=ParameterSpec("STRING", optional=True, has_default=True, default="d"),
    whole=ParameterSpec("NUMBER_INTEGER", optional=True, has_default=True, default=1),
    number=ParameterSpec("NUMBER_DOUBLE", optional=True, has_default=True, default=0.5),
    flag=ParameterSpec("BOOLEAN", optional=True, has_default=True, default=False),
    items=ParameterSpec("LIST", optional=True),
    table=ParameterSpec("STRUCT", optional=True),
)


def given(textual: bool, **arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in bind(ALL, arguments, textual=textual).items() if name in arguments}


def test_an_argument_that_is_left_out_gets_its_default_or_none() -> None:
    assert bind(ALL, {}, textual=True) == {
        "text": "d", "whole": 1, "number": 0.5, "flag": False, "items": None, "table": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "12", "12"),
        ("text", "@alice", "@alice"),
        ("text", "@@env:X", "@env:X"),
        ("text", "@@", "@"),
        ("whole", "12", 12),
        ("number", "1e-3", 0.001),
        ("flag", "true", True),
        ("items", "[1, 2.0]", [1, 2]),
        ("table", '{"a": {"b": 1.5}}', {"a": {"b": 1.5}}),
    ],
)
def test_texts_of_a_command_line_are_parsed_by_the_declared_type(name: str, text: str, value: Any) -> None:
    assert given(True, **{name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("whole", 3.0, 3),
        ("number", 3, 3),
        ("items", (1, 2), [1, 2]),
        ("table", {1: "a"}, {"1": "a"}),
        ("items", None, None),
    ],
)
def test_python_values_take_the_form_of_json(name: str, value: Any, bound: Any) -> None:
    assert given(False, **{name: value}) == {name: bound}


@pytest.mark.parametrize("textual", [True, False])
def test_references_stay_references_with_the_declared_type(textual: bool) -> None:
    assert given(textual, whole="@env:PIN", text="@file:a:b") == {
        "whole": Reference("env", "PIN", "NUMBER_INTEGER"),
        "text": Reference("file", "a:b"),
    }
    assert given(False, flag=Reference("env", "F")) == {"flag": Reference("env", "F", "BOOLEAN")}


@pytest.mark.parametrize(
    ("name", "value", "textual", "words"),
    [
        ("whole", "1.5", True, "argument whole: expected a whole number, got '1.5'$"),
        ("flag", "yes", True, "argument flag: expected true or false, got 'yes'$"),
        ("items", "1,2", True, "argument items: expected a list, got '1,2': Extra data at character 2$"),
        ("table", "[1]", True, "argument table: expected a mapping"),
        ("whole", "1", False, r"argument whole: expected a whole number, got '1' \(str\)$"),
        ("whole", 1.5, False, r"got 1.5 \(float\)$"),
        ("whole", True, False, r"got True \(bool\)$"),
        ("text", 1, False, r"argument text: expected a text, got 1 \(int\)$"),
        ("text", None, False, None),
        ("number", float("nan"), False, "argument number: expected a number"),
        ("table", {"a": object()}, False, "argument table: expected a mapping"),
        ("items", "x" * 500, True, r"got 'x{56}\.\.\.: Expecting value at character 1$"),
    ],
)
def test_an_error_names_the_expected_type_and_the_given_value(
    name: str, value: Any, textual: bool, words: str | None
) -> None:
    if words is None:
        assert given(textual, **{name: value}) == {name: None}
        return
    with pytest.raises(PipelineError, match=words):
        given(textual, **{name: value})


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PipelineError, match=r"pipeline p has no parameter 'tetx'; did you mean 'text'\?"):
        bind(ALL, {"tetx": "a"}, textual=True)
    with pytest.raises(PipelineError, match="it has text, whole, number, flag, items, table"):
        bind(ALL, {"zzz": "a"}, textual=True)
    with pytest.raises(PipelineError, match="it has no parameters"):
        bind(pipeline(), {"a": "a"}, textual=True)


def test_every_missing_argument_is_named_with_its_type() -> None:
    wanted = pipeline(url=ParameterSpec("STRING"), n=ParameterSpec("NUMBER_INTEGER"))
    with pytest.raises(
        PipelineError, match=r"needs a value for url \(a text\), n \(a whole number\): give --arg url=VALUE"
    ):
        bind(wanted, {}, textual=True)


FILES = TaskGraph(
    "p",
    Dag(
        "root",
        artifacts={
            "data": ArtifactSpec("system.Dataset", metadata={"a": 1}),
            "many": ArtifactSpec(is_list=True, optional=True),
        },
    ),
    {},
)


def test_an_artifact_may_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert bind(FILES, {"data": "here.csv"}, textual=True) == {
        "data": {
            "name": "data",
            "type": {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"},
            "uri": str(tmp_path / "here.csv"),
            "metadata": {"a": 1},
        }
    }


@pytest.mark.parametrize("textual", [True, False])
def test_an_artifact_may_be_an_address_also_with_metadata_and_in_lists(textual: bool, tmp_path: Path) -> None:
    many: Any = ["s3://b/x", {"uri": f"file://{tmp_path}", "metadata": {"n": 2.0}}]
    found = bind(FILES, {"data": "gs://b/x", "many": json.dumps(many) if textual else many}, textual=textual)
    assert found["data"]["uri"] == "gs://b/x"
    assert [(each["uri"], each["metadata"]) for each in found["many"]] == [("s3://b/x", {}), (str(tmp_path), {"n": 2})]


def test_a_path_beside_metadata_becomes_absolute_like_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.csv").touch()
    monkeypatch.chdir(tmp_path)
    assert bind(FILES, {"data": '{"uri": "here.csv"}'}, textual=True)["data"]["uri"] == str(tmp_path / "here.csv")
    with pytest.raises(PipelineError, match=r"file or folder not found: gone\.csv"):
        bind(FILES, {"data": {"uri": "gone.csv"}}, textual=False)


def test_an_artifact_that_was_bound_already_stays_as_it_is() -> None:
    given = {"data": {"name": "data", "uri": "/gone/since", "metadata": {"a": 2}}}
    found = bind(FILES, given, textual=True)["data"]
    assert (found["uri"], found["metadata"]) == ("/gone/since", {"a": 2})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"needs a value for data \(system.Dataset\): give --arg data=PATH_OR_ADDRESS"),
        ({"data": "/nowhere/at-all"}, "argument data: file or folder not found: /nowhere/at-all"),
        ({"data": "gs://b/../c"}, r"argument data: the address gs://b/\.\./c must not contain"),
        ({"data": "{nothing"}, "argument data: '{nothing' is not valid JSON"),
        ({"data": 3}, "argument data: expected the path or address of an artifact, got 3"),
        ({"data": {"metadata": {}}}, "argument data: expected an artifact: a path, an address, or a mapping"),
        ({"date": "x"}, "has no parameter 'date'; did you mean 'data'"),
    ],
)
def test_a_value_that_is_no_artifact_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        bind(FILES, given, textual=True)


def test_an_argument_outside_the_literals_of_its_type_is_refused() -> None:
    limited = pipeline(stage=ParameterSpec("STRING", literals=("dev", "prod")))
    assert bind(limited, {"stage": "dev"}, textual=True) == {"stage": "dev"}
    with pytest.raises(PipelineError, match="argument stage: 'test' is not one of 'dev', 'prod'"):
        bind(limited, {"stage": "test"}, textual=True)
