"""The graph of a compiled pipeline."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kfp.builders import compiled, component, graph, ir, kubernetes, one, python_container, task

from spotwright.errors import PipelineError
from spotwright.graph import (
    Constant,
    DagInput,
    FinalStatus,
    KeyRefs,
    PodConfig,
    PvcMount,
    ScratchVolume,
    TaskGraph,
    TaskOutput,
)
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.pipeline_graph import build
from spotwright.model.policy import Spot
from spotwright.model.scheduling_terms import Expression, Preference, Term, Toleration

TEXT = {"parameterType": "STRING"}


@pytest.fixture(scope="module")
def pipeline(training: Compiled) -> TaskGraph:
    return build(training)


def test_tasks_are_in_topological_order(pipeline: TaskGraph) -> None:
    assert list(pipeline.root.tasks) == ["get", "inner", "size", "train", "train-2"]


def test_each_input_has_its_source(pipeline: TaskGraph) -> None:
    train = pipeline.root.tasks["train"]
    assert train.artifacts == {"data": TaskOutput("get", "data")}
    assert train.parameters["steps"] == Constant(7)
    assert train.parameters["pipelinechannel--url"] == DagInput("url")
    assert pipeline.root.parameter_outputs == {"Output": TaskOutput("inner", "Output")}


def test_a_task_waits_for_the_tasks_that_it_names_and_reads(pipeline: TaskGraph) -> None:
    assert pipeline.root.tasks["train"].after == ("get", "inner")
    assert pipeline.root.tasks["train-2"].after == ("get", "size")  # the SDK leaves out what only a resource reads


def test_a_nested_pipeline_is_a_dag_of_its_own(pipeline: TaskGraph) -> None:
    nested = pipeline.root.tasks["inner"]
    dag = pipeline.dags[str(nested.dag)]
    assert nested.executor is None
    assert dag.tasks["train"].parameters["steps"] == DagInput("steps")
    assert dag.parameter_outputs == {"Output": TaskOutput("train", "Output")}
    assert nested.retry is not None
    assert nested.retry.values == {"errors.retries": 1}


def test_whole_numbers_stay_whole(pipeline: TaskGraph) -> None:
    train = pipeline.root.tasks["train-2"]
    assert json.dumps(train.parameters["options"].value) == '{"layers": [3]}'  # type: ignore[union-attr]
    assert json.dumps(train.parameter_specs["options"].default) == '{"layers": [1, 2]}'
    assert json.dumps(pipeline.root.parameters["steps"].default) == "3"
    assert json.dumps(train.parameter_specs["rate"].default) == "0.5"


def test_declared_outputs_are_read(pipeline: TaskGraph) -> None:
    outputs = pipeline.root.tasks["train"].outputs
    assert {name: spec.type for name, spec in outputs.parameters.items()} == {
        "Output": "NUMBER_DOUBLE",
        "log": "STRING",
    }
    assert outputs.artifacts["model"].schema == "system.Model"


def test_settings_of_a_task_are_read(pipeline: TaskGraph) -> None:
    train = pipeline.root.tasks["train"]
    assert train.requests == {"cpu": 500, "nvidia.com/gpu": 2}
    assert train.constraints.tolerations == (Toleration("sku", "Equal", "gpu", "NoSchedule"),)
    assert train.constraints.required == (Term((Expression("z", "Exists"),)),)
    assert train.constraints.preferred == (Preference(5, Term((Expression("a", "In", ("b",)),))),)
    assert pipeline.root.tasks["train-2"].constraints.selector == {"disk": "ssd"}
    assert pipeline.root.tasks["get"].display_name == "Get it"


def test_set_retry_and_set_timeout_are_one_layer(pipeline: TaskGraph) -> None:
    retry = pipeline.root.tasks["train"].retry
    assert retry is not None
    assert retry.source == "set_retry and set_timeout"
    assert retry.values == {
        "errors.retries": 2,
        "errors.backoff": 30.0,
        "errors.factor": 3.0,
        "errors.max_backoff": 600.0,
        "timeout": 600.0,
    }


def test_policies_are_read_as_layers(pipeline: TaskGraph) -> None:
    policy = pipeline.root.tasks["train"].policy
    assert policy is not None
    assert (policy.source, policy.values) == ("the pipeline", {"spot": Spot.PREFER, "interruptions.max": 5})
    assert pipeline.policy is not None
    assert pipeline.policy.values["interruptions.max"] == 3


def test_caching_is_off_where_a_constant_depends_on_the_run(pipeline: TaskGraph) -> None:
    assert not pipeline.root.tasks["train"].caching
    assert pipeline.root.tasks["train-2"].caching
    assert pipeline.root.tasks["train-2"].cache_key == "mine"


def test_ignored_platform_settings_are_named(pipeline: TaskGraph) -> None:
    assert pipeline.ignored == ("imagePullSecret",)


def test_unknown_server_settings_are_named_and_ignored() -> None:
    config = {"resourceTtlOnSuccess": 60, "maxActiveRuns": 2, "workspace": {"size": "1Gi"}}
    pipeline = graph({"step": task("step")}, platform={"kubernetes": {"pipelineConfig": config}})
    assert pipeline.ignored == ("maxActiveRuns", "resourceTtlOnSuccess")


def test_the_order_of_tasks_depends_on_names_alone() -> None:
    tasks = {f"t-{number}": task(f"t-{number}") for number in (10, 9, 1)}
    assert list(graph(tasks).root.tasks) == ["t-1", "t-9", "t-10"]
    assert list(graph(dict(reversed(tasks.items()))).root.tasks) == ["t-1", "t-9", "t-10"]


def reads(name: str, key: str = "out") -> dict[str, Any]:
    return {"inputs": {"parameters": {"x": {"taskOutputParameter": {"producerTask": name, "outputParameterKey": key}}}}}


PRODUCER = component("a", outputs={"parameters": {"out": TEXT}})
CONSUMER = component("b", inputs={"parameters": {"x": TEXT}})
BOTH = {"comp-a": PRODUCER, "comp-b": CONSUMER}


def test_a_group_whose_component_the_sdk_left_empty_is_refused_with_the_fix() -> None:
    empty: dict[str, Any] = {"comp-condition-2-3": {"inputDefinitions": {"parameters": {}}}}
    with pytest.raises(PipelineError, match=r"component comp-condition-2-3: it is empty: .* run the \.py file"):
        graph({"a": task("a")}, {**empty, "comp-a": component("a")})


def test_a_task_waits_for_the_output_that_it_reads() -> None:
    assert graph({"a": task("a"), "b": task("b", **reads("a"))}, BOTH).root.tasks["b"].after == ("a",)


@pytest.mark.parametrize(
    ("tasks", "components", "words"),
    [
        (
            {"a": task("a", dependentTasks=["b"]), "b": task("b", dependentTasks=["a"])},
            {},
            "task a: these tasks wait for each other: a, b",
        ),
        ({"a": task("a", dependentTasks=["a"])}, {}, "task a: it waits for itself"),
        ({"a": task("a", dependentTasks=["gone"])}, {}, "task a: it waits for the task 'gone'"),
        ({"b": task("b", **reads("gone"))}, {"comp-b": CONSUMER}, "its input x: it reads from the task 'gone'"),
        ({"a": task("a"), "b": task("b", **reads("a", "no"))}, BOTH, "'no' of the task 'a', which has no such output"),
        (
            {"b": task("b", inputs={"parameters": {"x": {"componentInputParameter": "no"}}})},
            BOTH,
            "pipeline's input 'no'",
        ),
        ({"b": task("b")}, {"comp-b": CONSUMER}, "task b: its input x is given no value"),
        ({"a": task("a")}, {"comp-a": {**component("a"), "executorLabel": "gone"}}, None),
        ({"a/b": task("a")}, {}, "slash"),
        ({"a": task("a")}, {"comp-a": component("a", outputs={"parameters": {"../x": TEXT}})}, "cannot be a file name"),
        ({"a": task("a")}, {"comp-a": component("a", inputs={"parameters": {"x": {"parameterType": "ODD"}}})}, "'ODD'"),
        (
            {"b": task("b", inputs={"parameters": {"x": {"runtimeValue": {"constant": [1]}}}})},
            {"comp-b": component("b", inputs={"parameters": {"x": {"parameterType": "NUMBER_INTEGER"}}})},
            "task b: its input x: .* not a whole number",
        ),
    ],
)
def test_a_document_that_contradicts_itself_is_refused_with_the_place(
    tasks: dict[str, Any], components: dict[str, Any], words: str | None
) -> None:
    spec = ir(tasks, components)
    if words is None:
        del spec["deploymentSpec"]["executors"]["gone"]
        words = "task a: its executor 'gone' is not in deploymentSpec.executors"
    with pytest.raises(PipelineError, match=words) as error:
        build(compiled(spec))
    assert str(error.value).startswith("/pipelines/built.yaml: ")


def test_a_missing_component_and_a_pipeline_inside_itself_are_refused() -> None:
    spec = ir({"a": task("a")})
    del spec["components"]["comp-a"]
    with pytest.raises(PipelineError, match="'comp-a' is not in components"):
        build(compiled(spec))
    looped = ir({"a": task("a")}, {"comp-a": {"dag": {"tasks": {"again": task("a")}}}})
    with pytest.raises(PipelineError, match=r"components.comp-a.dag.tasks.again: the pipeline comp-a contains itself"):
        build(compiled(looped))


def test_an_output_of_a_pipeline_without_a_source_is_refused() -> None:
    outputs = {"parameters": {"o": {"valueFromParameter": {"producerSubtask": "no", "outputParameterKey": "x"}}}}
    spec = ir({"a": task("a")})
    spec["root"]["dag"]["outputs"] = outputs
    with pytest.raises(PipelineError, match="root: its output o: it reads from the task 'no'"):
        build(compiled(spec))


LOOP = {"parameterIterator": {"itemInput": "i", "items": {"raw": "[1]"}}}
PICKED = {"componentInputParameter": "i", "parameterExpressionSelector": "size(string_value)"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (LOOP, "a loop over a component"),
        ({"triggerPolicy": {"condition": "size('a') == 1"}}, "its condition .*size was not expected"),
        ({"inputs": {"parameters": {"x": PICKED}}}, r"the expression 'size\(string_value\)'"),
    ],
)
def test_an_unsupported_feature_is_named_with_the_path_of_its_task(more: dict[str, Any], words: str) -> None:
    nested = {"comp-inner": {"dag": {"tasks": {"bad": task("a", **more)}}}, "comp-a": component("a")}
    with pytest.raises(PipelineError, match=f"task inner/bad: .*{words}"):
        graph({"inner": task("inner")}, nested)


def test_all_unsupported_features_are_named_in_one_error() -> None:
    containers = {"exec-c": {"command": ["echo"]}}
    with pytest.raises(PipelineError, match="task a: a loop") as error:
        graph({"a": task("a", **LOOP), "c": task("c")}, containers=containers)
    assert "and 1 more: task c: a container component without an image" in str(error.value)
    assert str(error.value).count("\n") == 1


def test_an_output_that_comes_from_no_task_is_refused() -> None:
    spec = ir({"a": task("a")}, {"comp-a": PRODUCER})
    spec["root"]["dag"]["outputs"] = {"parameters": {"o": {"valueFromOneof": {"parameterSelectors": []}}}}
    with pytest.raises(PipelineError, match="root: its output o: no task produces it"):
        build(compiled(spec))


@pytest.mark.parametrize(
    ("iterator", "words"),
    [
        ({"itemInput": "i", "items": {"raw": "[1"}}, "the items of its loop are not valid JSON"),
        ({"itemInput": "i", "items": {"raw": "{}"}}, "the items of its loop are not a list"),
        ({"itemInput": "i", "items": {}}, "its iterator lacks its items"),
        (
            {"itemInput": "i", "items": {"inputParameter": "l"}},
            "it iterates over its input 'l', which is given no value",
        ),
        ({"itemInput": "j", "items": {"raw": "[1]"}}, "goes to the input 'j', which does not exist"),
    ],
)
def test_a_loop_that_contradicts_itself_is_refused(iterator: dict[str, Any], words: str) -> None:
    inner = {"dag": {"tasks": {"a": task("a")}}, "inputDefinitions": {"parameters": {"i": {"parameterType": "STRING"}}}}
    with pytest.raises(PipelineError, match=f"task inner: .*{words}"):
        graph({"inner": task("inner", parameterIterator=iterator)}, {"comp-inner": inner, "comp-a": component("a")})


def test_the_final_status_of_a_missing_task_is_refused() -> None:
    given = {"inputs": {"parameters": {"s": {"taskFinalStatus": {"producerTask": "x"}}}}}
    with pytest.raises(PipelineError, match="it reads the final status of the task 'x', which does not exist"):
        graph({"a": task("a", **given)})


def test_a_group_has_its_own_name_unless_another_task_has_it() -> None:
    group = {"dag": {"tasks": {"a": task("a")}}}
    named = {key: {**task("inner"), "taskInfo": {"name": "mine"}} for key in ("for-loop-1", "exit-handler-2")}
    for each in named.values():
        del each["cachingOptions"]
    found = graph({"for-loop-1": named["for-loop-1"]}, {"comp-inner": group, "comp-a": component("a")})
    assert list(found.root.tasks) == ["mine"]
    both = graph(named, {"comp-inner": group, "comp-a": component("a")})
    assert list(both.root.tasks) == ["exit-handler-2", "for-loop-1"]


def test_a_note_names_input_artifacts_which_kfp_cannot_pass_to_a_run() -> None:
    root: dict[str, Any] = {
        "inputDefinitions": {"artifacts": {"d": {"artifactType": {"schemaTitle": "system.Dataset"}}}}
    }
    assert "needs d" in graph({"a": task("a")}, root=root).notes[0]
    root["inputDefinitions"]["artifacts"]["d"]["isOptional"] = True
    assert graph({"a": task("a")}, root=root).notes == ()


def test_the_pod_config_of_a_task_is_read() -> None:
    keys = [{"envVar": "PASSWORD", "secretKey": "password"}]
    platform = kubernetes(
        "exec-step",
        secretAsEnv=[{"secretName": "db", "optional": True, "keyToEnv": keys}],
        configMapAsVolume=[{"configMapNameParameter": {"runtimeValue": {"constant": "c"}}, "mountPath": "/etc/c/"}],
        pvcMount=[{"constant": "claim", "mountPath": "/d", "subPath": "a"}],
        emptyDirMounts=[{"volumeName": "e", "mountPath": "/e", "medium": "Memory", "sizeLimit": "1Mi"}],
        genericEphemeralVolume=[{"volumeName": "g", "mountPath": "/g", "size": "1Gi"}],
        fieldPathAsEnv=[{"name": "NODE", "fieldPath": "spec.nodeName"}],
    )
    assert one(graph({"step": task("step")}, platform=platform)).pod_config == PodConfig(
        key_refs=(
            KeyRefs("secret", "db", optional=True, env={"PASSWORD": "password"}),
            KeyRefs("config map", "c", mount="/etc/c"),
        ),
        pvcs=(PvcMount("claim", "/d", "a"),),
        scratch=(ScratchVolume("e", "/e", in_memory=True, size=2**20), ScratchVolume("g", "/g")),
        fields={"NODE": "spec.nodeName"},
    )


def test_labels_of_spotwright_are_not_reported_as_ignored() -> None:
    own = {"labels": {"spotwright.dev/spot": "never"}}
    assert graph({"step": task("step")}, platform=kubernetes("exec-step", podMetadata=own)).ignored == ()
    other = {"labels": {"team": "a"}}
    pipeline = graph({"step": task("step")}, platform=kubernetes("exec-step", podMetadata=other))
    assert pipeline.ignored == ("podMetadata",)
    assert one(pipeline).labels == {"team": "a"}


@pytest.mark.parametrize("text", ["{", "[]", '{"spot": "maybe"}', 3])
def test_a_policy_in_the_file_that_cannot_be_read_names_its_task(text: Any) -> None:
    platform = {"spotwright": {"deploymentSpec": {"executors": {"exec-step": {"policy": text}}}}}
    with pytest.raises(PipelineError, match=r"task step: platforms\.spotwright"):
        graph({"step": task("step")}, platform=platform)


def test_components_may_share_an_executor() -> None:
    shared = {"comp-a": component("x"), "comp-b": component("x")}
    pipeline = graph({"a": task("a"), "b": task("b")}, shared, {"exec-x": python_container("both")})
    found = [entry.executor for entry in pipeline.root.tasks.values()]
    assert [each.function for each in found if isinstance(each, PythonComponent)] == ["both", "both"]


def test_a_graph_of_many_tasks_is_read_in_linear_time() -> None:
    tasks = {f"t-{n}": task("a", dependentTasks=[f"t-{n - 1}"] if n else []) for n in range(2000)}
    assert list(graph(tasks).root.tasks)[-1] == "t-1999"


@pytest.mark.parametrize(("name", "steps"), [("x-subvar-b", ()), ("x-subvar-c", ("b",)), ("x", ("b",))])
def test_a_field_is_not_selected_from_itself(name: str, steps: tuple[str, ...]) -> None:
    picked = {"componentInputParameter": name, "parameterExpressionSelector": 'parseJson(string_value)["b"]'}
    inner = {
        "dag": {"tasks": {"a": task("a", inputs={"parameters": {"v": picked}})}},
        "inputDefinitions": {"parameters": {name: TEXT}},
    }
    given = {"parameters": {name: {"runtimeValue": {"constant": "2"}}}}
    found = graph({"inner": task("inner", inputs=given)}, {"comp-inner": inner, "comp-a": component("a")})
    assert found.dags["comp-inner"].tasks["a"].parameters["v"] == DagInput(name, steps)


def test_a_missing_input_of_a_group_that_no_dag_around_it_has_is_refused() -> None:
    group = {
        "dag": {
            "tasks": {
                "step": task("step", inputs={"parameters": {"x": {"componentInputParameter": "pipelinechannel--no"}}})
            }
        }
    }
    loop = {
        "componentRef": {"name": "comp-for-loop-1"},
        "parameterIterator": {"itemInput": "i", "items": {"raw": "[1]"}},
    }
    group["inputDefinitions"] = {"parameters": {"i": {"parameterType": "NUMBER_INTEGER"}}}
    with pytest.raises(PipelineError, match=r"for-loop-1.*'pipelinechannel--no', which does not exist"):
        graph(
            {"for-loop-1": loop},
            components={
                "comp-for-loop-1": group,
                "comp-step": component("step", {"parameters": {"x": {"parameterType": "STRING"}}}),
            },
            containers={"exec-step": python_container()},
        )


def test_an_input_of_final_status_without_a_source_is_refused() -> None:
    inputs = {"parameters": {"status": {"parameterType": "TASK_FINAL_STATUS", "isOptional": True}}}
    with pytest.raises(
        PipelineError, match=r"task b: its input status is given no value; it holds the final status of another task"
    ):
        graph({"a": task("a"), "b": task("b")}, {"comp-b": component("b", inputs)})
    given = {"parameters": {"status": {"taskFinalStatus": {"producerTask": "a"}}}}
    found = graph({"a": task("a"), "b": task("b", inputs=given)}, {"comp-b": component("b", inputs)})
    assert found.root.tasks["b"].parameters == {"status": FinalStatus("a")}


def test_a_constant_outside_the_literals_of_its_type_is_refused() -> None:
    inputs = {"parameters": {"n": {"parameterType": "NUMBER_INTEGER", "literals": [1.0, 3.0]}}}

    def given(value: float) -> TaskGraph:
        said = {"parameters": {"n": {"runtimeValue": {"constant": value}}}}
        return graph({"a": task("a", inputs=said)}, {"comp-a": component("a", inputs)})

    assert given(3.0).root.tasks["a"].parameter_specs["n"].literals == (1, 3)
    with pytest.raises(PipelineError, match="task a: its input n: 2 is not one of 1, 3"):
        given(2.0)
