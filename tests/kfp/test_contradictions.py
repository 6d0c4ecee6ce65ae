"""Compiled pipelines that contradict themselves: each is refused before the run, with its task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kfp.builders import component, graph, ir, kubernetes, one, python_container, task

from spotwright.errors import PipelineError
from spotwright.kfp.compiled import Compiled
from spotwright.kfp.pipeline_graph import build


def test_an_output_of_a_nested_pipeline_that_no_task_produces_is_refused_at_its_reader() -> None:
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
        PipelineError, match="task b: its input n: it reads 'n' of the task 'inner', in which no task produces"
    ):
        graph(tasks, components)
    made = {"valueFromParameter": {"producerSubtask": "a", "outputParameterKey": "n"}}
    inner["dag"]["outputs"] = {"parameters": {"n": made}}
    assert list(graph(tasks, components).root.tasks) == ["inner", "b"]


@pytest.mark.parametrize(
    ("importer", "message"),
    [
        ({"artifactUri": {"runtimeParameter": "url"}}, "task get: one of its strings reads the input 'url'"),
        (
            {"artifactUri": {"constant": "gs://a/{{$.inputs.parameters['day']}}"}},
            "one of its strings reads the input 'day'",
        ),
        (
            {"artifactUri": {"constant": "gs://a"}, "metadata": {"{{$.inputs.parameters['k']}}": 1}},
            "reads the input 'k'",
        ),
        ({"artifactUri": {}}, "task get: an importer without an address"),
    ],
)
def test_an_importer_that_reads_a_missing_input_is_refused(importer: dict[str, Any], message: str) -> None:
    made = {"artifacts": {"artifact": {"artifactType": {"schemaTitle": "system.Model"}}}}
    document = ir({"get": task("get")}, {"comp-get": component("get", outputs=made)})
    document["deploymentSpec"]["executors"]["exec-get"] = {"importer": importer}
    with pytest.raises(PipelineError, match=message):
        build(Compiled(ir=document, source="p.yaml"))


def test_a_text_with_a_missing_input_is_refused() -> None:
    text = {"runtimeValue": {"constant": "{{$.inputs.parameters['pipelinechannel--no']}} and more"}}
    step = task("step", inputs={"parameters": {"x": text}})
    declared = component("step", {"parameters": {"x": {"parameterType": "STRING"}}})
    with pytest.raises(PipelineError, match="task step: one of its strings reads the input 'pipelinechannel--no'"):
        graph({"step": step}, {"comp-step": declared})


def test_a_condition_over_a_missing_input_is_refused() -> None:
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


def test_a_component_whose_source_does_not_define_its_function_is_refused() -> None:
    damaged = python_container("step", source="def other(): ...")
    with pytest.raises(
        PipelineError, match="task step: a Python component whose source does not define its function 'step'"
    ):
        graph({"step": task("step")}, containers={"exec-step": damaged})


def test_an_unknown_trigger_strategy_is_refused() -> None:
    with pytest.raises(PipelineError, match="task step: its triggerPolicy has the unknown strategy 7"):
        graph({"step": task("step", triggerPolicy={"strategy": 7})})


def test_a_pipeline_without_tasks_is_refused() -> None:
    with pytest.raises(PipelineError, match="root: a pipeline has tasks below root"):
        graph({})


@pytest.mark.parametrize(
    ("setting", "message"),
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
        ({"pvcMount": [{"constant": "c", "mountPath": "/d", "subPath": "../other"}]}, "points outside the volume"),
        ({"fieldPathAsEnv": [{"name": "A", "fieldPath": "spec.containers"}]}, "found 'spec.containers'"),
    ],
)
def test_an_impossible_pod_setting_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=f"task step: .*{message}"):
        graph({"step": task("step")}, platform=kubernetes("exec-step", **setting))


def test_a_mount_path_without_a_leading_slash_is_below_the_root() -> None:
    platform = kubernetes("exec-step", genericEphemeralVolume=[{"volumeName": "g", "mountPath": "data/g"}])
    assert one(graph({"step": task("step")}, platform=platform)).pod_config.mounts == ("/data/g",)


def test_a_security_context_counts_for_containers_only() -> None:
    platform = kubernetes("exec-step", securityContext={"runAsUser": "7"})
    assert graph({"step": task("step")}, platform=platform).ignored == ("securityContext",)
    contained = {"exec-step": {"image": "alpine", "command": ["true"]}}
    assert graph({"step": task("step")}, containers=contained, platform=platform).ignored == ()
