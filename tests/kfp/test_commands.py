"""Command lines of container components: placeholders, conditions, variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, Container, OutputSpecs, ParameterSpec, TaskContext, TaskSpec
from spotwright.kfp.launcher import command_of, executor_input
from spotwright.kfp.values import expand, expand_environment

CONTEXT = TaskContext("r", "t", 0.0)


def args(*written: str, env: dict[str, str] | None = None, **parameters: Any) -> list[str]:
    """The result of written arguments with these inputs."""
    container = Container("image", ("c",), written, env or {})
    task = TaskSpec(
        name="t",
        component="comp-t",
        executor=container,
        parameter_specs={name: ParameterSpec("STRING", optional=True) for name in ("text", "left_out", *parameters)}
        | {"number": ParameterSpec("NUMBER_DOUBLE", optional=True), "items": ParameterSpec("LIST", optional=True)},
        artifact_specs={
            "data": ArtifactSpec(),
            "none": ArtifactSpec(optional=True),
            "several": ArtifactSpec(is_list=True),
        },
        outputs=OutputSpecs({"n": ParameterSpec("NUMBER_INTEGER")}, {"made": ArtifactSpec("system.Model")}),
    )
    artifact = {"name": "d", "uri": "/runs/d", "metadata": {"k": {"deep": 1}, "s": "x"}}
    several = [{"name": "a", "uri": "/runs/a", "metadata": {"n": 1}}, {"name": "b", "uri": "/runs/b"}]
    given = executor_input(task, parameters, {"data": artifact, "several": several}, "/out", CONTEXT)
    return list(command_of(task, container, given, {}, CONTEXT).args)


def test_a_list_of_artifacts_becomes_a_json_list_of_their_records() -> None:
    (written,) = args("{{$.inputs.artifacts['several']}}")
    assert [(each["name"], each["uri"], each.get("metadata")) for each in json.loads(written)] == [
        ("a", "/runs/a", {"n": 1}),
        ("b", "/runs/b", None),
    ]


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("{{$.inputs.parameters['text']}}", 'it\'s "x" $(A) {{$.pipeline_task_name}}'),
        ("--n={{$.inputs.parameters['number']}}!", "--n=2.5!"),
        ("{{$.inputs.parameters['items']}}", '[1,"a"]'),
        ("{{$.inputs.parameters['left_out']}}", ""),
        ("{{$.inputs.artifacts['data'].path}}", "/runs/d"),
        ("{{$.inputs.artifacts['data'].uri}}", "/runs/d"),
        ("{{$.inputs.artifacts['data'].metadata['s']}}", "x"),
        ("{{$.inputs.artifacts['data'].metadata['k']}}", '{"deep":1}'),
        ("{{$.inputs.artifacts['none'].path}}", ""),
        ("{{$.outputs.artifacts['made'].path}}", "/out/artifacts/made"),
        ("{{$.outputs.parameters['n'].output_file}}", "/out/parameters/n"),
        ("{{$.outputs.output_file}}", "/out/executor_output.json"),
        ("{{$.pipeline_job_name}}", "r"),
        ("{{$.unknown}}", "{{$.unknown}}"),
        ("$(A)-$(B)-$$(A)", "a-$(B)-$(A)"),
    ],
)
def test_a_placeholder_is_replaced_by_its_value(written: str, becomes: str) -> None:
    text = 'it\'s "x" $(A) {{$.pipeline_task_name}}'
    assert args(written, env={"A": "a"}, text=text, number=2.5, items=[1, "a"]) == [becomes]


def test_concat_makes_one_argument_and_if_present_any_number() -> None:
    text, there = "{{$.inputs.parameters['text']}}", {"InputName": "text"}
    concat = json.dumps({"Concat": ["a-", text, {"IfPresent": {**there, "Then": "-b", "Else": "-c"}}]})
    several = json.dumps({"IfPresent": {**there, "Then": ["--text", text, json.loads(concat)], "Else": ["--none"]}})
    nothing = json.dumps({"IfPresent": {**there, "Then": "x"}})
    of_artifact = json.dumps({"IfPresent": {"InputName": "data", "Then": ["{{$.inputs.artifacts['data'].path}}"]}})
    assert args(concat, several, nothing, text="T") == ["a-T-b", "--text", "T", "a-T-b", "x"]
    assert args(concat.replace(text, ""), several, nothing, of_artifact) == ["a--c", "--none", "/runs/d"]


def test_the_whole_executor_input_has_a_placeholder() -> None:
    assert json.loads(args("{{$}}", text="x")[0])["inputs"]["parameterValues"] == {"text": "x"}


@pytest.mark.parametrize(
    "written",
    [
        "{{$.inputs.parameters['no']}}", "{{$.inputs.artifacts['no'].path}}", "{{$.outputs.parameters['no'].output_file}}",
        '{"Concat": [', '{"Concat": [{"Other": 1}]}',
    ],
)  # fmt: skip
def test_a_placeholder_without_a_target_is_refused_with_the_task(written: str) -> None:
    with pytest.raises(PipelineError, match="task t: cannot build its command"):
        args(written)


def test_a_variable_may_use_only_those_declared_before_it() -> None:
    assert expand_environment({"A": "1", "B": "$(A)2 $(C)", "C": "$(B)"}) == {"A": "1", "B": "12 $(C)", "C": "12 $(C)"}
    assert expand("$ $$ $(A) $(A", {"A": "1"}) == "$ $ 1 $(A"
