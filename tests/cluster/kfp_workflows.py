"""Workflows as KFP's backends make them of runs, as small as their parts allow: drivers, executors, DAGs and parameters."""

from __future__ import annotations

import copy
import json
from typing import Any

__all__ = ["TASK", "a_workflow", "step_templates"]

TASK: dict[str, Any] = {"cachingOptions": {}, "componentRef": {"name": "comp-train"}, "taskInfo": {"name": "train"}}
_INPUTS = {"parameters": [{"name": "pod-spec-patch"}, {"name": "cached-decision", "default": "false"}]}
_CACHED = "{{inputs.parameters.cached-decision}} != true"


def _driver(name: str, *, newer: bool) -> dict[str, Any]:
    annotations = {"pipelines.kubeflow.org/runtime-role": "driver"} if newer else {}
    container = {"command": ["driver"], "image": "driver:1", "resources": {"requests": {"cpu": "100m"}}}
    return {"name": name, "container": container, "metadata": {"annotations": annotations}}


def _argument(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _parameter(name: str) -> str:
    return f"{{{{workflow.parameters.{name}}}}}"


def _executor() -> list[dict[str, Any]]:
    patch = _argument("pod-spec-patch", "{{inputs.parameters.pod-spec-patch}}")
    inner = {
        "name": "executor",
        "template": "system-container-impl",
        "when": _CACHED,
        "arguments": {"parameters": [patch]},
    }
    pod = {
        "name": "system-container-impl",
        "container": {"command": ["should-be-overridden-during-runtime"], "image": "none:1"},
        "inputs": _INPUTS,
        "metadata": {"annotations": {"pipelines.kubeflow.org/v2_component": "true"}},
        "podSpecPatch": "{{inputs.parameters.pod-spec-patch}}",
    }
    return [{"name": "system-container-executor", "dag": {"tasks": [inner]}, "inputs": _INPUTS}, pod]


def _step(name: str, settings: bool) -> list[dict[str, Any]]:
    """The two tasks of a DAG that run one task of the pipeline."""
    task = {**TASK, "componentRef": {"name": f"comp-{name}"}, "taskInfo": {"name": name}}
    arguments = [
        _argument("component", _parameter(f"components-{name}1")),
        _argument("task", json.dumps(task)),
        _argument("container", _parameter(f"implementations-{name}1")),
        *([_argument("kubernetes-config", _parameter(f"kubernetes-comp-{name}"))] if settings else []),
    ]
    patch = _argument("pod-spec-patch", f"{{{{tasks.{name}-driver.outputs.parameters.pod-spec-patch}}}}")
    return [
        {"name": f"{name}-driver", "template": "system-container-driver", "arguments": {"parameters": arguments}},
        {
            "name": name,
            "template": "system-container-executor",
            "depends": f"{name}-driver.Succeeded",
            "arguments": {"parameters": [patch]},
        },
    ]


def a_workflow(
    *tasks: str,
    settings: dict[str, dict[str, Any]] | None = None,
    newer: bool = True,
    resources: Any = None,
    importer: str = "",
    exit_task: str = "",
) -> dict[str, Any]:
    """The Workflow of a pipeline whose ``tasks`` are in its root DAG, by default ``train`` alone.

    ``settings`` are the Kubernetes settings of each task, as the compiler writes them. ``newer``: of a backend from 2.17 on.
    ``importer`` is the template of an importer beside the tasks; ``exit_task`` the task that runs after the others, in a hook.
    """
    tasks, settings = tasks or ("train",), settings or {}
    dag = {name: {**TASK, "componentRef": {"name": f"comp-{name}"}, "taskInfo": {"name": name}} for name in tasks}
    if exit_task:
        others = [name for name in tasks if name != exit_task]
        dag[exit_task] |= {
            "dependentTasks": others,
            "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
        }
    parameters = [_argument("components-root", json.dumps({"dag": {"tasks": dag}}))]
    for name in tasks:
        container = {"image": "train:1", "command": ["python3"], **({"resources": resources} if resources else {})}
        parameters.append(_argument(f"components-{name}1", json.dumps({"executorLabel": f"exec-{name}"})))
        parameters.append(_argument(f"implementations-{name}1", json.dumps(container)))
        if name in settings:
            parameters.append(_argument(f"kubernetes-comp-{name}", json.dumps(settings[name])))
    steps = [step for name in tasks if name != exit_task for step in _step(name, name in settings)]
    if importer:
        steps.append({"name": "fetch", "template": importer})
    templates = [
        _driver("system-container-driver", newer=newer),
        *_executor(),
        *([{"name": f"exit-hook-root-{exit_task}", "dag": {"tasks": _step(exit_task, False)}}] if exit_task else []),
        *([_driver(importer, newer=newer)] if importer else []),
        {"name": "root", "dag": {"tasks": steps}},
        _driver("system-dag-driver", newer=newer),
        {"name": "entrypoint", "dag": {"tasks": [{"name": "root", "template": "root"}]}},
    ]
    return copy.deepcopy(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"generateName": "mnist-", "namespace": "team-a", "labels": {"pipeline/runid": "1-2"}},
            "spec": {
                "entrypoint": "entrypoint",
                "arguments": {"parameters": parameters},
                "podMetadata": {"labels": {"pipeline/runid": "1-2"}},
                "templates": templates,
            },
        }
    )


def step_templates(workflow: dict[str, Any], task: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two templates that run a task of the root DAG: the executor's DAG, and its pod."""
    templates = {template["name"]: template for template in workflow["spec"]["templates"]}
    [step] = [one for one in templates["root"]["dag"]["tasks"] if one["name"] == task]
    executor = templates[step["template"]]
    return executor, templates[executor["dag"]["tasks"][0]["template"]]
