"""The input of the SDK's executor, also with the real executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from spotwright.errors import PipelineError
from spotwright.graph import ArtifactSpec, Constant, DagInput, OutputSpecs, ParameterSpec, TaskContext, TaskSpec
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.launcher import executor_input, read_outputs
from spotwright.kfp.pipeline_graph import build
from spotwright.kfp.task_settings import TaskConfig
from spotwright.kfp.values import context_text, run_id

CONTEXT = TaskContext(run="r1", task="inner/train", created_at=0.0)
DATA = {
    "name": "d",
    "type": {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"},
    "uri": "/in/d",
    "metadata": {},
}


def step(parameters: dict[str, Any], **specs: ParameterSpec) -> TaskSpec:
    return TaskSpec("step", "comp-step", parameters=parameters, parameter_specs=specs)


def values(task: TaskSpec, **given: Any) -> Any:
    return executor_input(task, given, {}, "/out", CONTEXT)["inputs"]["parameterValues"]


def test_outputs_are_written_below_the_given_folder() -> None:
    outputs = OutputSpecs({"log": ParameterSpec("STRING")}, {"model": ArtifactSpec("system.Model", metadata={"a": 1})})
    given = executor_input(TaskSpec("t", "c", outputs=outputs), {}, {}, "/out", CONTEXT)
    assert given["outputs"] == {
        "parameters": {"log": {"outputFile": "/out/parameters/log"}},
        "artifacts": {
            "model": {
                "artifacts": [
                    {
                        "name": "model",
                        "type": {"schemaTitle": "system.Model", "schemaVersion": "0.0.1"},
                        "uri": "/out/artifacts/model",
                        "metadata": {"a": 1},
                    }
                ]
            }
        },
        "outputFile": "/out/executor_output.json",
    }


def test_values_are_converted_to_the_declared_type() -> None:
    task = step({"n": DagInput("n"), "s": DagInput("s"), "l": DagInput("l")},
                n=ParameterSpec("NUMBER_INTEGER"), s=ParameterSpec("STRING"), l=ParameterSpec("LIST"))  # fmt: skip
    assert json.dumps(values(task, n=3.0, s=4.0, l=[1.0])) == '{"n": 3, "s": "4", "l": [1]}'


def test_the_error_for_a_value_of_another_type_names_the_input() -> None:
    with pytest.raises(PipelineError, match="task step: its input n: 'x' is not a whole number"):
        values(step({"n": DagInput("n")}, n=ParameterSpec("NUMBER_INTEGER")), n="x")


def test_an_input_that_is_left_out_keeps_the_default_of_the_component() -> None:
    task = step({"a": DagInput("a")}, a=ParameterSpec("STRING", optional=True))
    assert values(task, a=None) == {}
    with pytest.raises(PipelineError, match="its input a got no value"):
        values(step({"a": DagInput("a")}, a=ParameterSpec("STRING")), a=None)


def test_a_value_outside_the_literals_is_refused_when_the_task_reads_it() -> None:
    task = step({"a": DagInput("a")}, a=ParameterSpec("STRING", literals=("x", "y")))
    assert values(task, a="x") == {"a": "x"}
    with pytest.raises(PipelineError, match="its input a: 'z' is not one of 'x', 'y'"):
        values(task, a="z")


def test_a_task_config_without_settings_has_null_fields() -> None:
    task = replace(step({}, c=ParameterSpec("STRUCT", optional=True)), extension=TaskConfig(inputs=("c",)))
    nothing = dict.fromkeys(("affinity", "env", "nodeSelector", "tolerations", "volumeMounts", "volumes"))
    assert values(task) == {"c": {**nothing, "resources": {}}}


def test_constants_may_hold_placeholders_of_other_inputs_and_of_the_run() -> None:
    written = (
        "{{$.inputs.parameters['pipelinechannel--u']}}/{{$.inputs.parameters['n']}} {{$.pipeline_task_name}} {{$.odd}}"
    )
    task = step(
        {"c": Constant(written), "n": DagInput("n"), "pipelinechannel--u": DagInput("u")},
        c=ParameterSpec("STRING"), n=ParameterSpec("NUMBER_DOUBLE"),
    )  # fmt: skip
    found = values(task, **{"c": written, "n": 2.0, "pipelinechannel--u": "http://x"})
    assert found["c"] == "http://x/2 train {{$.odd}}"


def test_placeholders_are_filled_in_inside_lists_and_mappings() -> None:
    written = {"a": ["{{$.pipeline_job_name}}"], "{{$.pipeline_job_resource_name}}": 1}
    task = step({"c": Constant(written)}, c=ParameterSpec("STRUCT"))
    assert values(task, c=written) == {"c": {"a": ["r1"], "r1": 1}}


@pytest.mark.parametrize(
    ("placeholder", "text"),
    [
        ("pipeline_job_name", "r1"),
        ("pipeline_job_resource_name", "r1"),
        ("pipeline_task_name", "train"),
        ("pipeline_job_create_time_utc", "1970-01-01T00:00:00Z"),
        ("pipeline_job_schedule_time_utc", "1970-01-01T00:00:00Z"),
    ],
)
def test_every_placeholder_of_the_run_is_filled_in(placeholder: str, text: str) -> None:
    written = f"{{{{$.{placeholder}}}}}"
    assert values(step({"c": Constant(written)}, c=ParameterSpec("STRING")), c=written) == {"c": text}


def test_the_ids_of_a_run_and_its_tasks_are_uuids_that_never_change() -> None:
    ids = [context_text(CONTEXT, "pipeline_job_uuid"), context_text(CONTEXT, "pipeline_task_uuid")]
    assert [str(UUID(each)) for each in ids] == ids
    other = CONTEXT._replace(task="inner/train-2")
    assert context_text(other, "pipeline_job_uuid") == ids[0] == run_id(CONTEXT)
    assert context_text(other, "pipeline_task_uuid") not in ids
    assert run_id(CONTEXT._replace(created_at=1.0)) != ids[0]  # a run of the same name, somewhere else


def test_a_value_with_the_text_of_a_placeholder_is_not_filled_in() -> None:
    text = "{{$.pipeline_job_name}} {{$.inputs.parameters['x']}}"
    assert values(step({"s": DagInput("s")}, s=ParameterSpec("STRING")), s=text) == {"s": text}
    written = "<{{$.inputs.parameters['s']}}>"
    task = step({"s": DagInput("s"), "c": Constant(written)}, s=ParameterSpec("STRING"), c=ParameterSpec("STRING"))
    assert values(task, s=text, c=written)["c"] == f"<{text}>"


def test_a_constant_may_hold_the_address_of_an_artifact() -> None:
    written = "{{$.inputs.artifacts['d'].path}} {{$.inputs.artifacts['d'].uri}}"
    task = step({"c": Constant(written)}, c=ParameterSpec("STRING"))
    found = executor_input(task, {"c": written}, {"d": DATA}, "/out", CONTEXT)
    assert found["inputs"]["parameterValues"] == {"c": "/in/d /in/d"}


def test_inputs_of_the_placement_are_not_passed_to_the_code() -> None:
    assert values(step({"placement:tol": DagInput("tol")}), **{"placement:tol": {"key": "a"}}) == {}


def test_artifacts_are_passed_as_lists() -> None:
    task = TaskSpec("t", "c", artifact_specs={"d": ArtifactSpec(), "o": ArtifactSpec(optional=True)})
    given = executor_input(task, {}, {"d": DATA, "o": None}, "/out", CONTEXT)
    assert given["inputs"]["artifacts"] == {"d": {"artifacts": [DATA]}}
    assert executor_input(task, {}, {"d": [DATA, DATA]}, "/out", CONTEXT)["inputs"]["artifacts"]["d"]["artifacts"] == [
        DATA,
        DATA,
    ]
    with pytest.raises(PipelineError, match="its input artifact d got no value"):
        executor_input(task, {}, {}, "/out", CONTEXT)


def test_the_real_executor_runs_a_component_and_its_outputs_are_read_back(training: Compiled, tmp_path: Path) -> None:
    """The whole contract: source, executor input, the SDK's own executor, outputs."""
    task = build(training).root.tasks["train"]
    (tmp_path / "in.txt").write_text("rows")
    given = executor_input(
        task,
        {name: source.value for name, source in task.parameters.items() if isinstance(source, Constant)}
        | {"pipelinechannel--url": "http://x", "pipelinechannel--memory": "2Gi"},
        {"data": {**DATA, "uri": str(tmp_path / "in.txt")}},
        str(tmp_path / "out"),
        CONTEXT,
    )
    module = tmp_path / "component.py"
    assert isinstance(task.executor, PythonComponent)
    module.write_text(task.executor.module)
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--component_module_path", str(module)]
    command += ["--function_to_execute", task.executor.function, "--executor_input", json.dumps(given)]
    done = subprocess.run(
        command, env={**os.environ, "_KFP_RUNTIME": "true"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = read_outputs(task, str(tmp_path / "out"))
    assert outputs.missing == ()
    assert outputs.parameters == {"Output": 3.5, "log": "line"}
    assert outputs.artifacts["model"]["metadata"] == {"steps": 7}
    model = Path(outputs.artifacts["model"]["uri"])
    assert model.read_text() == "rows 7 http://x of r1 {'layers': [1, 2]}"
