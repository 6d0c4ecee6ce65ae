"""Rules on objects of the training SDK and of the Kubernetes client: names that it does not have, fields at a wrong object.

Sources: kubeflow-training 1.9, ``kubeflow/training/models``; kubernetes client, ``V1PodSpec``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from spotwright.lint.python_rules.scopes import calls_named, keyword, name_of_call
from spotwright.lint.rule import Checks, Problem, Rule, Severity
from spotwright.lint.settings import Settings
from spotwright.lint.subjects.python_files import PythonFile

__all__ = ["RULES"]

_REPLICA_SPECS = ("V1ReplicaSpec", "KubeflowOrgV1ReplicaSpec")
_JOB_SPECS = tuple(f"KubeflowOrgV1{kind}Spec" for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob"))
_RENAMED: Mapping[str, str] = {
    "V1ReplicaSpec": "KubeflowOrgV1ReplicaSpec",
    "V1RunPolicy": "KubeflowOrgV1RunPolicy",
    "V1TFJob": "KubeflowOrgV1TFJob",
    "V1TFJobSpec": "KubeflowOrgV1TFJobSpec",
    "V1PyTorchJob": "KubeflowOrgV1PyTorchJob",
    "V1PyTorchJobSpec": "KubeflowOrgV1PyTorchJobSpec",
}
_OF_RUN_POLICY = ("clean_pod_policy", "backoff_limit", "active_deadline_seconds", "ttl_seconds_after_finished")
_POD_FIELDS = ("affinity", "node_selector", "tolerations", "containers", "termination_grace_period_seconds")


def _own_names(file: PythonFile) -> set[str]:
    return {node.name for node in file.nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _renamed(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    own = _own_names(file)
    for call in calls_named(file, *_RENAMED):
        name = name_of_call(call)
        if name not in own:
            yield Problem((), f"kubeflow.training has no {name}", f"Write {_RENAMED[name]}.", line=call.lineno)


def _wrong_arguments(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    for call in calls_named(file, *_REPLICA_SPECS, *_JOB_SPECS, "V1PodSpec"):
        for argument in call.keywords:
            wrong = _wrong(name_of_call(call), argument.arg or "", _short(argument.value))
            if wrong is not None:
                yield Problem((), *wrong, line=argument.value.lineno)


def _wrong(function: str, name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with an argument, and the fix; ``None`` if nothing is."""
    if function == "V1PodSpec":
        is_wrong = name == "node_affinity"
        return (
            ("a pod spec has no node_affinity", "Write affinity=V1Affinity(node_affinity=...).") if is_wrong else None
        )
    if function in _JOB_SPECS:
        fix = f"Write run_policy=KubeflowOrgV1RunPolicy({name}={value})."
        return (f"the spec of a job has no {name}", fix) if name in _OF_RUN_POLICY else None
    if name == "spec":
        return "a replica spec has no spec; it has a template", f"Write template=V1PodTemplateSpec(spec={value})."
    return (
        (f"a replica spec has no {name}", f"Write it into the pod: V1PodSpec({name}=...).")
        if name in _POD_FIELDS
        else None
    )


def _short(value: ast.expr) -> str:
    text = ast.unparse(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _single_containers(file: PythonFile, _settings: Settings) -> Iterator[Problem]:
    made = {
        target.id
        for node in file.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and name_of_call(node.value) == "V1Container"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in calls_named(file, "V1PodSpec"):
        given = keyword(call, "containers")
        is_one = isinstance(given, ast.Name) and given.id in made
        is_one = is_one or (isinstance(given, ast.Call) and name_of_call(given) == "V1Container")
        if is_one and given is not None:
            fix = f"Write containers=[{_short(given)}]."
            yield Problem(
                (), "containers is one container and no list, which the client takes in silence", fix, line=given.lineno
            )


_IMPORT = (
    "from kubeflow.training import KubeflowOrgV1ReplicaSpec\n"
    "from kubernetes.client import V1Container, V1PodSpec, V1PodTemplateSpec\n\n"
)
_CONTAINER = 'container = V1Container(name="tensorflow", image="training:1")\n'
_POD = "spec = V1PodSpec(containers=[container])\n"
_SOUND = _IMPORT + _CONTAINER + _POD + "worker = KubeflowOrgV1ReplicaSpec(template=V1PodTemplateSpec(spec=spec))\n"

RULES = (
    Rule(
        id="training-sdk-name",
        severity=Severity.ERROR,
        title="A name that the training SDK does not have",
        why="The models of kubeflow.training carry KubeflowOrgV1 before their names; the import or the call fails.",
        fix="Write the name of today.",
        fails="from kubeflow import training\n\nworker = training.V1ReplicaSpec(replicas=2)\n",
        passes=_SOUND,
        checks=Checks(python=_renamed),
    ),
    Rule(
        id="training-sdk-argument",
        severity=Severity.ERROR,
        title="An argument at a wrong object of the training SDK",
        why="The constructor refuses it (TypeError), or the field belongs into the pod: a replica spec has a template, "
        "a pod spec has affinity.",
        fix="Write it at the object that has it.",
        fails=_SOUND.replace("template=V1PodTemplateSpec(spec=spec)", "spec=spec"),
        passes=_SOUND,
        checks=Checks(python=_wrong_arguments),
    ),
    Rule(
        id="containers-no-list",
        severity=Severity.ERROR,
        title="One container where a list belongs",
        why="The Kubernetes client takes it in silence and writes an object instead of a list; the API server refuses "
        "the job.",
        fix="Write a list.",
        fails=_SOUND.replace("[container]", "container"),
        passes=_SOUND,
        checks=Checks(python=_single_containers),
    ),
)
"""The rules of this module."""
