"""Compiled pipelines that contradict themselves: what can be known before a run is said before it, with the task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipelines.builders import component, graph, ir, kubernetes, one, python_container, task

from spotwright.errors import PipelineError
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.graph import build


def test_an_output_that_a_pipeline_inside_declares_and_no_task_of_it_makes_is_refused_where_it_is_read() -> None:
    number = {"parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}}
    inner: dict[str, Any] = {"dag": {"tasks": {"a": task("a")}}, "outputDefinitions": number}
    reads = {"parameters": {"n": {"taskOutputParameter": {"producerTask": "inner", "outputParameterKey": "n"}}}}
    components = {
        "comp-inner": inner,
        "comp-a": component("a", outputs=number),
        "comp-b": component("b", inputs=number),
    }
    tasks = {"inner": task("inner"), "b": task("b", inputs=reads)}
    with pytest.raises(
        PipelineError, match="task b: its input n: it reads 'n' of the task 'inner', in which no task makes"
    ):
        graph(tasks, components)
    made = {"valueFromParameter": {"producerSubtask": "a", "outputParameterKey": "n"}}
    inner["dag"]["outputs"] = {"parameters": {"n": made}}
    assert list(graph(tasks, components).root.tasks) == ["inner", "b"]


@pytest.mark.parametrize(
    ("importer", "said"),
    [
        ({"artifactUri": {"runtimeParameter": "url"}}, "task get: a text of it reads its input 'url'"),
        ({"artifactUri": {"constant": "gs://a/{{$.inputs.parameters['day']}}"}}, "a text of it reads its input 'day'"),
        ({"artifactUri": {"constant": "a"}, "metadata": {"{{$.inputs.parameters['k']}}": 1}}, "reads its input 'k'"),
        ({"artifactUri": {}}, "task get: an importer without an address"),
    ],
)
def test_an_importer_of_what_it_is_not_given_is_refused(importer: dict[str, Any], said: str) -> None:
    made = {"artifacts": {"artifact": {"artifactType": {"schemaTitle": "system.Model"}}}}
    document = ir({"get": task("get")}, {"comp-get": component("get", outputs=made)})
    document["deploymentSpec"]["executors"]["exec-get"] = {"importer": importer}
    with pytest.raises(PipelineError, match=said):
        build(Compiled(ir=document, source="p.yaml"))


def test_a_text_made_of_an_input_that_is_not_there_is_refused() -> None:
    text = {"runtimeValue": {"constant": "{{$.inputs.parameters['pipelinechannel--no']}} and more"}}
    step = task("step", inputs={"parameters": {"x": text}})
    declared = component("step", {"parameters": {"x": {"parameterType": "STRING"}}})
    with pytest.raises(PipelineError, match="task step: a text of it reads its input 'pipelinechannel--no'"):
        graph({"step": step}, {"comp-step": declared})


def test_a_condition_over_an_input_that_the_pipeline_does_not_have_is_refused() -> None:
    given = {"parameters": {"pipelinechannel--no": {"componentInputParameter": "no"}}}
    group = {
        "dag": {"tasks": {"step": task("step")}},
        "inputDefinitions": {"parameters": {"pipelinechannel--no": {"parameterType": "STRING"}}},
    }
    condition = {"componentRef": {"name": "comp-condition-1"}, "inputs": given}
    with pytest.raises(
        PipelineError, match="condition-1: its input pipelinechannel--no: it reads the pipeline's input 'no'"
    ):
        graph(
            {"condition-1": condition},
            {"comp-condition-1": group, "comp-step": component("step")},
            {"exec-step": python_container()},
        )


def test_a_component_whose_source_does_not_have_its_function_is_refused() -> None:
    damaged = python_container("step", source="def other(): ...")
    with pytest.raises(
        PipelineError, match="task step: a Python component whose source does not have its function 'step'"
    ):
        graph({"step": task("step")}, containers={"exec-step": damaged})


def test_a_strategy_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PipelineError, match="task step: its triggerPolicy has the unknown strategy 7"):
        graph({"step": task("step", triggerPolicy={"strategy": 7})})


def test_a_pipeline_without_tasks_is_refused() -> None:
    with pytest.raises(PipelineError, match="root: a pipeline has tasks below root"):
        graph({})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"pvcMount": [{"constant": "c"}]}, "mountPath: expected a text, found nothing"),
        ({"pvcMount": [{"constant": "c", "mountPath": ["/d"]}]}, r"mountPath: expected a text, found \['/d'\]"),
        (
            {"pvcMount": {"constant": "c", "mountPath": "/d"}},
            "pvcMount: expected a list of mappings, found {'constant'",
        ),
        ({"tolerations": "spot"}, "tolerations: expected a list of mappings, found 'spot'"),
        (
            {"tolerations": [{"tolerationJson": {"componentInputParameter": 7}}]},
            "expected the name of a task, output or",
        ),
        ({"nodeSelector": ["a"]}, r"nodeSelector: expected a mapping, found \['a'\]"),
        ({"secretAsEnv": [{"secretName": "s", "keyToEnv": [{"envVar": "A"}]}]}, "secretKey: expected a text, found"),
        ({"fieldPathAsEnv": [{"name": "A"}]}, "fieldPath: expected a text, found nothing"),
        ({"initContainers": [{"name": "first", "image": "alpine"}]}, "initContainers are not supported"),
        ({"pvcMount": [{"constant": "c", "mountPath": "/"}]}, "expected an absolute path"),
        ({"pvcMount": [{"constant": "c", "mountPath": "/d/../../etc"}]}, "expected an absolute path"),
        ({"pvcMount": [{"constant": "c", "mountPath": "/d", "subPath": "../other"}]}, "leaves the volume"),
        ({"fieldPathAsEnv": [{"name": "A", "fieldPath": "spec.containers"}]}, "found 'spec.containers'"),
    ],
)
def test_what_cannot_surround_a_task_is_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=f"task step: .*{said}"):
        graph({"step": task("step")}, platform=kubernetes("exec-step", **setting))


def test_a_path_of_a_mount_without_a_slash_in_front_is_below_the_root_as_in_a_pod() -> None:
    platform = kubernetes("exec-step", genericEphemeralVolume=[{"volumeName": "g", "mountPath": "data/g"}])
    assert one(graph({"step": task("step")}, platform=platform)).surroundings.mounts == ("/data/g",)


def test_a_security_context_means_something_to_a_container_alone() -> None:
    platform = kubernetes("exec-step", securityContext={"runAsUser": "7"})
    assert graph({"step": task("step")}, platform=platform).ignored == ("securityContext",)
    contained = {"exec-step": {"image": "alpine", "command": ["true"]}}
    assert graph({"step": task("step")}, containers=contained, platform=platform).ignored == ()
