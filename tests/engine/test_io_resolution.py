"""The resolution of inputs and outputs."""

from __future__ import annotations

from tests.engine.builders import a_dag, a_plan, a_task, from_outside
from tests.engine.driving import Run

from spotwright.engine.io_resolution import inputs_of, run_outputs
from spotwright.graph import Constant, Dag, DagInput, ParameterSpec, TaskOutput

MODEL = [{"name": "model", "uri": "/model", "metadata": {}}]


def inputs(run: Run, path: str) -> tuple[dict[str, object], dict[str, object]]:
    run.start()
    values = inputs_of(run.state, run.state.tasks[path])
    return values.parameters, values.artifacts


def test_a_constant_is_itself() -> None:
    run = Run(a_plan([a_task("a", parameters={"x": Constant([1, None])})]))
    assert inputs(run, "a") == ({"x": [1, None]}, {})


def test_an_input_without_a_source_has_its_default() -> None:
    declared = {
        "x": ParameterSpec("STRING", has_default=True, default=None),
        "y": ParameterSpec("STRING", optional=True),
    }
    assert inputs(Run(a_plan([a_task("a", parameter_specs=declared)])), "a") == ({"x": None}, {})


def test_an_argument_that_was_not_given_leaves_the_default() -> None:
    declared = {"x": ParameterSpec("STRING", has_default=True, default="d")}
    run = Run(a_plan([a_task("a", parameters=from_outside("x"), parameter_specs=declared)]))
    assert inputs(run, "a") == ({"x": "d"}, {})


def test_the_default_of_a_pipeline_inside_reaches_its_tasks() -> None:
    inner = Dag(
        "inner",
        parameters={"x": ParameterSpec("STRING", has_default=True, default="d")},
        tasks={"x": a_task("x", parameters=from_outside("x"))},
    )
    assert inputs(Run(a_plan([a_task("loop", dag="inner")], inner=inner)), "loop/x") == ({"x": "d"}, {})


def test_artifacts_are_passed_on_unchanged() -> None:
    inner = a_dag(a_task("x", artifacts={"m": DagInput("given")}))
    root = [a_task("a"), a_task("loop", "a", dag="inner", parameters={}, artifacts={"given": TaskOutput("a", "model")})]
    run = Run(a_plan(root, inner=inner))
    run.world.cache("a", parameters={}, artifacts={"model": MODEL})
    assert inputs(run, "loop/x") == ({}, {"m": MODEL})


def test_a_missing_artifact_is_no_input() -> None:
    run = Run(a_plan([a_task("a"), a_task("b", "a", parameters={}, artifacts={"m": TaskOutput("a", "model")})]))
    assert inputs(run, "b") == ({}, {})


def test_without_declared_outputs_a_run_has_those_of_its_last_tasks() -> None:
    run = Run(a_plan([a_task("a"), a_task("b", "a"), a_task("c", "a")]))
    run.start()
    assert run_outputs(run.state) == {"b.out": "b(a=a())", "c.out": "c(a=a())"}


def test_a_run_has_the_declared_outputs() -> None:
    dag = Dag(
        "root",
        tasks={"a": a_task("a")},
        parameter_outputs={"answer": TaskOutput("a", "out")},
        artifact_outputs={"model": TaskOutput("a", "model")},
    )
    run = Run(a_plan(dag))
    run.world.cache("a", parameters={"out": 42}, artifacts={"model": MODEL})
    run.start()
    assert run.outputs == {"answer": 42, "model": MODEL}
