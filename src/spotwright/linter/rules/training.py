"""Rules on jobs of the training operator, of Trainer and of Katib, as manifests and as objects of their SDKs.

They cover roles, names of containers, and how losses end a job; for the SDKs, unknown names and fields on the wrong object.

Sources: kubeflow/trainer v1.9, ``pkg/webhooks`` and ``pkg/controller.v1``; mpi-operator v0.8 and #647; katib v0.19,
``pkg/webhook/v1beta1/experiment/validator``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from textwrap import indent

from spotwright.kinds.katib import NO_SIGTERM, Collector, collector_of
from spotwright.kinds.kind import Retry, all_kinds
from spotwright.linter.python_source import PythonFile, calls_named, keyword, name_of_call
from spotwright.linter.rule import ON_SPOT, Checks, Problem, Rule, Severity, job, training_job
from spotwright.linter.rules.save_places import has_checkpoint
from spotwright.linter.settings import Settings
from spotwright.linter.subjects import KubeObject, Pods, is_whole, items_of, mapping_at, mapping_of

__all__ = ["RULES", "SDK_RULES"]


_PARAMETER = re.compile(r"\$\{trialParameters\.([^}]+)\}")


def _is_of_operator(subject: KubeObject) -> bool:
    return subject.record.container != "" and subject.api_version == subject.record.api_version


def _container_names(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    owner = pods.owner
    if owner is None or not _is_of_operator(owner) or not pods.containers:
        return
    wanted = owner.record.container
    names = [str(container.value.get("name")) for container in pods.containers]
    if wanted not in names and not any("{" in name for name in names):
        path = (*pods.containers[0].path, "name")
        yield Problem(
            path, f"{pods.label} has no container named {wanted}", f"Name the container that trains {wanted}."
        )


def _roles(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Roles that the operator does not know, or that must have one replica."""
    known = subject.record.roles
    if not known:
        return
    field = subject.record.places[0].steps[1]
    for name, role in subject.mapping("spec", field).items():
        if name.lower() not in {one.lower() for one in known}:
            text = f"{subject.label} has the role {name}; the roles of a {subject.kind} are {', '.join(known)}"
            yield Problem(subject.at("spec", field, name), text)
        replicas = mapping_of(role).get("replicas")
        single = name.lower() in ("chief", "master", "launcher")
        if single and is_whole(replicas) and replicas != 1:
            yield Problem(
                subject.at("spec", field, name, "replicas"), f"{subject.label} has {replicas} {name}s, and there is one"
            )


def _inner_restart_policy(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    owner = pods.owner
    if owner is None or not _is_of_operator(owner):
        return
    at = pods.spec[:-2]
    inner, outer = pods.value.get("restartPolicy"), mapping_at(pods.document.get(()), *at).get("restartPolicy")
    if inner is not None and inner != outer:
        text = f"{pods.label} sets restartPolicy {inner} in the pod template, and the operator overwrites it"
        yield Problem(pods.at("restartPolicy"), text)


def _evicted_workers(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    owner = pods.owner
    if owner is None or not owner.record.roles or owner.record.retry is Retry.ROLE:
        return
    if pods.asks_for_spot and pods.role.lower() == "worker":
        yield Problem(
            pods.spec,
            f"{pods.label} is on spot, and an MPIJob fails when a worker is evicted, whatever its restartPolicy",
        )


def _trial_metadata(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    if subject.outer is None or not subject.outer.record.makes_trials:
        return
    for name in ("name", "namespace"):
        if subject.get("metadata", name) is not None:
            yield Problem(
                subject.at("metadata", name), f"the trial of {subject.outer.label} has a {name}, which Katib refuses"
            )


def _trial_parameters(subject: KubeObject, _settings: Settings) -> Iterator[Problem]:
    """Parameters of an experiment that its trial does not use, and the other way round."""
    if not subject.record.makes_trials:
        return
    trial = subject.get("spec", "trialTemplate", "trialSpec")
    given = subject.items("spec", "trialTemplate", "trialParameters")
    if not isinstance(trial, dict) or not given:
        return
    used = set(_PARAMETER.findall(str(trial)))
    for index, parameter in enumerate(given):
        name = mapping_of(parameter).get("name")
        if isinstance(name, str) and name not in used:
            path = subject.at("spec", "trialTemplate", "trialParameters", index, "name")
            yield Problem(path, f"{subject.label} has the trial parameter {name}, which the trial does not use")
    names = {str(mapping_of(parameter).get("name")) for parameter in given}
    for name in sorted(used - names):
        path = subject.at("spec", "trialTemplate", "trialSpec")
        yield Problem(
            path, f"the trial of {subject.label} uses the parameter {name}, which is not among its trialParameters"
        )


def _collector_of(pods: Pods) -> Collector:
    """The metrics collector of the pods' experiment, if it reads only the last attempt."""
    outer = None if pods.owner is None else pods.owner.outer
    is_trial = outer is not None and outer.record.makes_trials
    return collector_of(outer.get("spec")) if outer is not None and is_trial else Collector("")


def _metrics_of_last_attempt(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    collector = _collector_of(pods)
    if collector.kind and pods.asks_for_spot and has_checkpoint(pods):
        yield Problem(pods.spec, f"{pods.label}: {collector.of_last_attempt}")


def _no_sigterm(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    if not _collector_of(pods).kind or not pods.asks_for_spot:
        return
    words = [word for container in pods.containers for word in container.words]
    if not any("trap " in word for word in words):
        yield Problem(pods.spec, f"{pods.label}: {NO_SIGTERM}")


def _exec_in_trial(pods: Pods, _settings: Settings) -> Iterator[Problem]:
    """A shell that ``exec`` replaces by the program, so that what Katib appended never runs."""
    outer = None if pods.owner is None else pods.owner.outer
    if outer is None or not _collector_of(pods).kind:
        return
    primary = outer.get("spec", "trialTemplate", "primaryContainerName")
    for container in pods.containers:
        words = [*items_of(container.value.get("command")), *items_of(container.value.get("args"))]
        script = str(words[2]) if len(words) == _SHELL_WORDS and words[0] in ("sh", "bash") and words[1] == "-c" else ""
        if container.value.get("name") == primary and _LAST_EXEC.search(script):
            text = f"{pods.label} replaces the shell by exec, so what Katib adds behind the command never runs"
            yield Problem((*container.path, "command"), text)


_SHELL_WORDS = 3  # sh -c SCRIPT
_LAST_EXEC = re.compile(r"(?:^|[;&\n])[ \t]*exec [^;&|\n]*\s*$")

_MASTER = (
    "    Master:\n      replicas: {replicas}\n      restartPolicy: ExitCode\n      template:\n        spec:\n"
    "          containers:\n"
    "          - name: pytorch\n            image: training:1\n"
)
_EXIT = "restartPolicy: ExitCode\n"
_EXPERIMENT = (
    "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata:\n  name: tune\nspec:\n  trialTemplate:\n    "
    "trialParameters:\n"
    "    - {{name: {name}, reference: lr}}\n    trialSpec:\n      apiVersion: batch/v1\n      kind: "
    "Job\n{metadata}      spec:\n"
    "        template:\n          spec:\n            restartPolicy: Never\n            containers:\n            - "
    "name: main\n"
    '              image: trainer:1\n              command: [train, "--lr=${{trialParameters.lr}}"]\n'
)


def _experiment(pod_spec: str = "", *, collector: str = "StdOut", container: str = "command: [train]\n") -> str:
    """An experiment whose trials are Jobs: the lines of their pod spec and of their container."""
    trial = job(pod_spec, container=container).replace("metadata:\n  name: train\n", "", 1)
    return (
        "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nmetadata:\n  name: tune\nspec:\n  metricsCollectorSpec:\n"
        f"    collector: {{kind: {collector}}}\n  trialTemplate:\n    primaryContainerName: main\n    trialSpec:\n"
    ) + indent(trial, " " * 6)


_IN_CLAIM = ON_SPOT + "volumes:\n- {name: ckpt, persistentVolumeClaim: {claimName: ckpt}}\n"
_CKPT = "volumeMounts:\n- {name: ckpt, mountPath: /ckpt}\n"
_PASSES_SIGTERM = (
    "command: [sh, -c, \"{ trap 'kill $p; wait $p; exit 143' TERM; python3 train.py & p=$!; wait $p; }\"]\n"
)

RULES = (
    Rule(
        id="operator-container-name",
        severity=Severity.ERROR,
        title="No container with the name that the training operator demands",
        why="The operator's webhook refuses the job: it looks for a container with a fixed name.",
        fix="Name the container tensorflow, pytorch, xgboost, paddle or jax, after the kind.",
        fails=training_job("", role=_EXIT, container="my-training-process"),
        passes=training_job("", role=_EXIT),
        checks=Checks(pods=_container_names),
        source="kubeflow/trainer v1.9, pkg/webhooks",
    ),
    Rule(
        id="unknown-role",
        severity=Severity.ERROR,
        title="A role that the kind does not have, or has once",
        why="The operator refuses the job, or makes no pods of the role.",
        fix="Use the roles of the kind; a master, a chief or a launcher has one replica.",
        fails=training_job("", role=_EXIT, kind="PyTorchJob", container="pytorch") + _MASTER.format(replicas=2),
        passes=training_job("", role=_EXIT, kind="PyTorchJob", container="pytorch") + _MASTER.format(replicas=1),
        checks=Checks(objects=_roles),
    ),
    Rule(
        id="restart-policy-overwritten",
        severity=Severity.WARNING,
        title="restartPolicy in the pod template of a training job",
        why="The operator overwrites it with that of the role, or with its default, and says so in an event only.",
        fix="Write it into the role, beside replicas and template.",
        fails=training_job("restartPolicy: OnFailure\n"),
        passes=training_job("", role="restartPolicy: OnFailure\n"),
        checks=Checks(pods=_inner_restart_policy),
    ),
    Rule(
        id="mpi-worker-on-spot",
        severity=Severity.WARNING,
        title="Workers of an MPIJob on spot",
        why="Both versions of the MPI operator fail the job when a worker is evicted; mpirun of the launcher ends as "
        "well.",
        fix="Use spot only with elastic Horovod or work that is started again as a whole, or use TrainJob with a "
        "runtime that restarts.",
        fails=training_job(ON_SPOT, kind="MPIJob", container="mpi"),
        passes=training_job("", kind="MPIJob", container="mpi"),
        checks=Checks(pods=_evicted_workers),
        place_says=True,
        source="kubeflow/mpi-operator#647",
    ),
    Rule(
        id="trial-has-name",
        severity=Severity.ERROR,
        title="The trial of an experiment has a name or a namespace",
        why="Katib names each trial itself and refuses a template that has one.",
        fix="Remove metadata.name and metadata.namespace from the trialSpec.",
        fails=_EXPERIMENT.format(name="lr", metadata="      metadata: {name: trial}\n"),
        passes=_EXPERIMENT.format(name="lr", metadata=""),
        checks=Checks(objects=_trial_metadata),
    ),
    Rule(
        id="trial-metrics-of-last-attempt",
        severity=Severity.WARNING,
        title="Trials on spot that resume, and metrics that Katib reads from the last attempt",
        why="The collectors StdOut, File and TensorFlowEvent read a file in the pod, once the trial has succeeded. What an "
        "interrupted attempt wrote went with its pod: a best value of 0.92 before the interruption became 0.75.",
        fix="Print metrics with Checkpoint.print of spotwright.checkpoint, which prints the earlier ones again, or use the "
        "collector Push.",
        fails=_experiment(_IN_CLAIM, container=_PASSES_SIGTERM + _CKPT),
        passes=_experiment(_IN_CLAIM, container=_PASSES_SIGTERM + _CKPT, collector="Push"),
        checks=Checks(pods=_metrics_of_last_attempt),
        place_says=True,
        source="kubeflow/katib v0.19, cmd/metricscollector/v1beta1/file-metricscollector/main.go",
    ),
    Rule(
        id="trial-hears-no-sigterm",
        severity=Severity.NOTE,
        title="Trials on spot behind a shell that passes no SIGTERM on",
        why="For StdOut, File and TensorFlowEvent Katib makes the command sh -c 'COMMAND && echo completed > ...'. The shell "
        "dies of SIGTERM, and the program is killed with it, whatever the grace period.",
        fix="Give the code a notice (by the controller's webhook or a node agent), or let the shell pass SIGTERM on "
        "and wait: docs/kinds/katib.md has the line.",
        fails=_experiment(ON_SPOT),
        passes=_experiment(ON_SPOT, container=_PASSES_SIGTERM),
        checks=Checks(pods=_no_sigterm),
        place_says=True,
        source="kubeflow/katib v0.19, pkg/webhook/v1beta1/pod/utils.go",
    ),
    Rule(
        id="trial-execs",
        severity=Severity.ERROR,
        title="The command of a trial replaces the shell by exec",
        why="For StdOut, File and TensorFlowEvent Katib writes '&& echo completed > ...' behind a command that is sh -c SCRIPT. "
        "With exec the program is the last command, and the collector counts a trial that succeeded as failed.",
        fix="Leave exec out.",
        fails=_experiment(container="command: [sh, -c, exec train]\n"),
        passes=_experiment(container="command: [sh, -c, exec train]\n", collector="Push"),
        checks=Checks(pods=_exec_in_trial),
        source="kubeflow/katib v0.19, pkg/webhook/v1beta1/pod/utils.go and pkg/metricscollector/v1beta1/common/pns.go",
    ),
    Rule(
        id="trial-parameter-unused",
        severity=Severity.WARNING,
        title="Parameters of the trial and of its template differ",
        why="Katib refuses an experiment whose trialParameters are not all used in the trialSpec, or that uses another "
        "one there.",
        fix="Write ${trialParameters.NAME} where the value belongs, or remove the parameter.",
        fails=_EXPERIMENT.format(name="rate", metadata=""),
        passes=_EXPERIMENT.format(name="lr", metadata=""),
        checks=Checks(objects=_trial_parameters),
    ),
)
"""The rules of this module."""


_REPLICA_SPECS = ("V1ReplicaSpec", "KubeflowOrgV1ReplicaSpec")
_JOB_SPECS = tuple(f"KubeflowOrgV1{kind.name}Spec" for kind in all_kinds().values() if kind.roles)
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
    """What is wrong with an argument, and the fix, or ``None``."""
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

SDK_RULES = (
    Rule(
        id="training-sdk-name",
        severity=Severity.ERROR,
        title="A name that the training SDK does not have",
        why="The models of kubeflow.training carry KubeflowOrgV1 before their names; the import or the call fails.",
        fix="Write the current name.",
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
