"""A Workflow with the shape that KFP's backend gives to runs, which runs on Argo alone: driver and launcher are stand-ins.

The driver reads the task's container and Kubernetes settings from its parameters and makes a patch of the pod of them, so what
admission writes into these parameters reaches the pod, as on KFP. The launcher makes every exit code of the user's command 1,
and dies of SIGTERM at once; the command is in its process group, as on KFP. Shaped after Workflows of KFP 2.16.1 and 2.17.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["a_run"]

_PYTHON = "localhost/python:1"
_DRIVER = """
import json, pathlib, sys
container, config = (json.loads(text or "{}") for text in sys.argv[1:3])
env = [{"name": one["name"], "value": one["value"]} for one in container.get("env", ())]
for one in config.get("fieldPathAsEnv", ()):
    env.append({"name": one["name"], "valueFrom": {"fieldRef": {"fieldPath": one["fieldPath"]}}})
main = {
    "name": "main", "image": container["image"], "imagePullPolicy": "IfNotPresent", "env": env,
    "command": ["/kfp-launcher/launch", "--"], "args": container["command"],
}
limit = container.get("resources", {}).get("resourceMemoryLimit")
if limit:
    main["resources"] = {"limits": {"memory": limit}}
patch = {"containers": [main], "terminationGracePeriodSeconds": 3}
claims = [(one["constant"], one["mountPath"]) for one in config.get("pvcMount", ())]
if claims:
    patch["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name, _ in claims]
    main["volumeMounts"] = [{"name": name, "mountPath": path} for name, path in claims]
if config.get("tolerations"):
    patch["tolerations"] = config["tolerations"]
folder = pathlib.Path("/outputs")
folder.mkdir(exist_ok=True)
(folder / "pod-spec-patch").write_text(json.dumps(patch))
(folder / "cached-decision").write_text("false")
"""
_LAUNCHER = """cat > /kfp-launcher/launch <<'END'
#!/bin/sh
shift
"$@" || exit 1
END
chmod 755 /kfp-launcher/launch"""


def a_run(name: str, command: Sequence[str], *, image: str, memory: str = "") -> dict[str, Any]:
    """The Workflow of a pipeline with one task, ``work``, which runs a command."""
    task = {"componentRef": {"name": "comp-work"}, "taskInfo": {"name": "work"}, "cachingOptions": {}}
    resources = {"resources": {"resourceMemoryLimit": memory}} if memory else {}
    container = {"image": image, "command": list(command), **resources}
    parameters = {
        "components-root": {"dag": {"tasks": {"work": task}}},
        "components-work1": {"executorLabel": "exec-work"},
        "implementations-work1": container,
    }
    labels = {"pipeline/runid": "00000000-0000-4000-8000-000000000001"}
    spec = {
        "entrypoint": "entrypoint",
        "arguments": {"parameters": [_argument(key, json.dumps(value)) for key, value in parameters.items()]},
        "podMetadata": {"labels": labels},
        "templates": _templates(json.dumps(task)),
    }
    annotations = {"pipelines.kubeflow.org/run_name": name}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}


def _templates(task: str) -> list[dict[str, Any]]:
    of_driver = {
        "component": "{{workflow.parameters.components-work1}}",
        "task": task,
        "container": "{{workflow.parameters.implementations-work1}}",
    }
    patch = {
        name: f"{{{{tasks.work-driver.outputs.parameters.{name}}}}}" for name in ("pod-spec-patch", "cached-decision")
    }
    steps = [
        _task("work-driver", "system-container-driver", of_driver),
        {**_task("work", "system-container-executor", patch), "depends": "work-driver.Succeeded"},
    ]
    outer = [
        _task("root-driver", "system-dag-driver", {}),
        {**_task("root", "root", {}), "depends": "root-driver.Succeeded"},
    ]
    inner = {
        **_task("executor", "system-container-impl", {"pod-spec-patch": "{{inputs.parameters.pod-spec-patch}}"}),
        "when": "{{inputs.parameters.cached-decision}} != true",
    }
    given = {"parameters": [{"name": "pod-spec-patch"}, {"name": "cached-decision", "default": "false"}]}
    return [
        {"name": "entrypoint", "dag": {"tasks": outer}},
        _driver("system-dag-driver", ["sh", "-c", "true"], {}),
        {"name": "root", "dag": {"tasks": steps}},
        _container_driver(),
        {"name": "system-container-executor", "dag": {"tasks": [inner]}, "inputs": given},
        _implementation(),
    ]


def _container_driver() -> dict[str, Any]:
    inputs = [{"name": name} for name in ("component", "task", "container")]
    inputs.append({"name": "kubernetes-config", "default": ""})
    arguments = [f"{{{{inputs.parameters.{name}}}}}" for name in ("container", "kubernetes-config")]
    outputs = [
        {"name": name, "valueFrom": {"path": f"/outputs/{name}"}} for name in ("pod-spec-patch", "cached-decision")
    ]
    more = {"inputs": {"parameters": inputs}, "outputs": {"parameters": outputs}}
    return _driver("system-container-driver", ["python3", "-c", _DRIVER, *arguments], more)


def _driver(name: str, command: Sequence[str], more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "metadata": {"annotations": {"pipelines.kubeflow.org/runtime-role": "driver"}},
        "container": {"image": _PYTHON, "imagePullPolicy": "IfNotPresent", "command": list(command)},
        **more,
    }


def _implementation() -> dict[str, Any]:
    mount = [{"name": "kfp-launcher", "mountPath": "/kfp-launcher"}]
    image = {"image": _PYTHON, "imagePullPolicy": "IfNotPresent"}
    copier = {"name": "kfp-launcher", **image, "command": ["sh", "-c", _LAUNCHER], "volumeMounts": mount}
    return {
        "name": "system-container-impl",
        "metadata": {"annotations": {"pipelines.kubeflow.org/runtime-role": "launcher"}},
        "inputs": {"parameters": [{"name": "pod-spec-patch"}]},
        "container": {**image, "command": ["should-be-overridden-during-runtime"], "volumeMounts": mount},
        "initContainers": [copier],
        "podSpecPatch": "{{inputs.parameters.pod-spec-patch}}",
        "volumes": [{"name": "kfp-launcher", "emptyDir": {}}],
    }


def _argument(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _task(name: str, template: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    given = [_argument(key, value) for key, value in arguments.items()]
    return {"name": name, "template": template, **({"arguments": {"parameters": given}} if given else {})}
