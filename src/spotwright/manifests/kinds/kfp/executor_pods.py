"""Place one executor of a compiled pipeline: the settings of ``kfp.kubernetes`` for its pods, in the fields of the IR.

The IR has the fields of a pod in other shapes: required node affinity is a list of alternatives, one entry each, so every entry
gets all conditions; values of the downward API are apart from the container's variables. Sources: ``kfp/kubernetes``,
``kubernetes_executor_config.proto``, ``backend/src/v2/driver/k8s.go`` and ``driver.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spotwright.clouds.providers import NVIDIA_GPU
from spotwright.kfp.kfp_settings import read_constraints, read_resources
from spotwright.manifests.kinds.kfp.attempt_affinity import queue_of
from spotwright.manifests.kinds.kfp.pipeline_tasks import CompiledTask, PipelinePaths, mapping_at
from spotwright.manifests.rules.affinity import Expression, attraction, off_idle_gpus
from spotwright.manifests.rules.context import Group, PlaceContext
from spotwright.manifests.rules.environment import CHECKPOINT_PATH
from spotwright.manifests.rules.placeholders import without_unknown
from spotwright.manifests.rules.pod_rules import (
    Placed,
    add_pod_metadata,
    settle_queue,
    tolerations_of,
    warn_of_preference,
)
from spotwright.manifests.yamltext.documents import Path
from spotwright.scheduling.ladder import Work

__all__ = ["named_constant", "place_executor", "read_work", "runtime_field"]

_BY_FIELD = {
    "SPOTWRIGHT_RUN": "metadata.labels['pipeline/runid']",
    "SPOTWRIGHT_POD_UID": "metadata.uid",
    "SPOTWRIGHT_HOST": "status.hostIP",
}
"""Variables and the fields of the pod that set them. None of them is the number of the attempt.

The ``(n)`` of Argo's node name counts its retries: after a lost node the same name comes again (seen with Argo 3.7.3 and 4.0.5).
So the pod's UID identifies the attempt.
"""

_RUN = "{{workflow.name}}"  # Argo replaces it by the run's name, also in what the driver creates
_NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"
"""Argo replaces it by a short name for the task's place in the run: its path, with the iteration of every loop around it.

The executor reaches its pod as an argument of the task's driver, so the node is the driver's, and all attempts of the executor
share it. Seen on KFP 2.16.1 and 2.17.0; read in ``executeTemplate`` in ``workflow/controller/operator.go`` of argo-workflows (3.3
and later) and in ``argocompiler/container.go`` of kubeflow/pipelines.
"""
_PVC = "pvc://"
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def runtime_field(ctx: PlaceContext, settings: Path) -> str:
    """The field with which a parameter decides at run time where the pods go; empty if there is none."""
    given = mapping_at(ctx, settings)
    fields = (
        ("tolerations", "tolerationJson"),
        ("nodeAffinity", "nodeAffinityJson"),
        ("nodeSelector", "nodeSelectorJson"),
    )
    for group, field in fields:
        entries = given.get(group) or ()
        for entry in [entries] if isinstance(entries, dict) else entries:
            if isinstance(entry, dict) and field in entry and "runtimeValue" not in (entry[field] or {}):
                return field
    return ""


def read_work(ctx: PlaceContext, paths: PipelinePaths, label: str) -> Work:
    """The requests and constraints of an executor. An amount known only at run time counts as one GPU, or as none of the rest."""
    at = (*paths.executor(label), "container", "resources")
    given = mapping_at(ctx, at)
    constants = {key: value for key, value in given.items() if "{{" not in json.dumps(value)}
    settings = paths.settings(label)
    try:
        requests, _ = read_resources(constants)
    except (ValueError, TypeError, AttributeError) as error:
        raise ctx.problem(at, f"cannot be read: {error}") from error
    if "accelerator" in given and "accelerator" not in constants:
        requests = {**requests, NVIDIA_GPU: 1}
    try:
        constraints = read_constraints(_with_constants(mapping_at(ctx, settings)))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ctx.problem(settings, f"cannot be read: {error}") from error
    return Work(
        requests,
        without_unknown(ctx, constraints, (*settings, "nodeSelector", "labels"), (*settings, "nodeAffinity")),
    )


def _with_constants(item: Any) -> Any:
    """Settings with every run-time value that is a constant replaced by the constant."""
    if isinstance(item, list):
        return [_with_constants(value) for value in item]
    if not isinstance(item, dict):
        return item
    if set(item) == {"runtimeValue"}:
        return item["runtimeValue"].get("constant")
    return {key: _with_constants(value) for key, value in item.items()}


def place_executor(
    ctx: PlaceContext,
    paths: PipelinePaths,
    tasks: Sequence[CompiledTask],
    placed: Placed,
    later: Sequence[Expression] = (),
) -> None:
    """Write the placement of an executor. ``tasks`` are the tasks that it runs, all with one policy.

    ``later`` are required conditions that depend on the number of the attempt.
    """
    policy, editor = placed.policy, ctx.editor
    settings = paths.settings(tasks[0].label)
    if ctx.writes(Group.PLACEMENT):
        _write_placement(ctx, paths, tasks[0], placed, later)
    if ctx.writes(Group.RETRIES) and policy.timeout is not None and editor.get((*settings, _DEADLINE)) is None:
        editor.add((*settings, _DEADLINE), str(math.ceil(policy.timeout)))
    if ctx.writes(Group.CHECKPOINT):
        _add_environment(ctx, paths, tasks, policy.checkpoint)


_DEADLINE = "activeDeadlineSeconds"


def _write_placement(
    ctx: PlaceContext, paths: PipelinePaths, task: CompiledTask, placed: Placed, later: Sequence[Expression]
) -> None:
    """Write what brings the pods of an executor to their pools and keeps autoscalers from moving them."""
    settings = paths.settings(task.label)
    used = [ctx.config.pools[name] for name in placed.report.pools]
    work = read_work(ctx, paths, task.label)  # before the additions
    ctx.editor.extend((*settings, "tolerations"), tolerations_of(placed.ladder))
    _attract(ctx, paths, task, placed, work, later)
    add_pod_metadata(ctx, (*settings, "podMetadata"), placed, used)
    names = {str(name) for name in _names(ctx, (*settings, "imagePullSecret"), "secretName", "secretNameParameter")}
    secrets = [named_constant("secretName", name) for name in placed.policy.image_pull_secrets if name not in names]
    ctx.editor.extend((*settings, "imagePullSecret"), secrets)


def _attract(
    ctx: PlaceContext,
    paths: PipelinePaths,
    task: CompiledTask,
    placed: Placed,
    work: Work,
    later: Sequence[Expression],
) -> None:
    """Add required conditions to every alternative; add preferred conditions as entries of their own, except under Kueue."""
    settings = paths.settings(task.label)
    used = [ctx.config.pools[name] for name in placed.report.pools]
    wanted = attraction(placed.policy, used, ctx.config.pools)
    off = off_idle_gpus(work, placed.ladder, wanted, ctx.config.pools)
    required = [*wanted.required, *off, *later]
    queue = queue_of(ctx, settings)
    if queue:
        required += settle_queue(ctx, settings, placed, work, required, queue)
    preferred = () if queue else wanted.preferred
    at = (*settings, "nodeAffinity")
    alternatives = list(_alternatives(ctx, at))
    for path in alternatives if required else ():
        ctx.editor.extend((*path, "matchExpressions"), required)
    entries: list[Expression] = [{"matchExpressions": [wish], "weight": 100} for wish in preferred]
    if required and not alternatives:
        entries.insert(0, {"matchExpressions": required})
    ctx.editor.extend(at, entries)
    if preferred:
        warn_of_preference(ctx, (*paths.pipeline, "pipelineInfo"), "tasks that prefer spot", used)


def _alternatives(ctx: PlaceContext, at: Path) -> Iterator[Path]:
    """The paths of the required terms: entries without a weight, and the terms of an affinity that is one constant."""
    for index, entry in enumerate(ctx.editor.get(at) or ()):
        if "nodeAffinityJson" in entry:
            terms = (*at, index, "nodeAffinityJson", "runtimeValue", "constant", *_TERMS)
            yield from ((*terms, number) for number in range(len(ctx.editor.get(terms) or ())))
        elif not entry.get("weight"):
            yield (*at, index)


def _add_environment(
    ctx: PlaceContext, paths: PipelinePaths, tasks: Sequence[CompiledTask], checkpoint: str | None
) -> None:
    """Add the variables of every attempt, except the URL of the notice: nothing can put the host's address into a value here."""
    settings, container = paths.settings(tasks[0].label), (*paths.executor(tasks[0].label), "container")
    env = {str(name) for name in _names(ctx, (*container, "env"), "name")}
    fields = {str(name) for name in _names(ctx, (*settings, "fieldPathAsEnv"), "name")}
    work = tasks[0].path if len({task.path for task in tasks}) == 1 else tasks[0].component
    values = {"SPOTWRIGHT_TASK": work}
    several = len(tasks) > 1 or any(task.loops for task in tasks)
    if several:
        values["SPOTWRIGHT_INDEX"] = _NODE
    if checkpoint is not None:
        place = f"{_folder(ctx, settings, checkpoint)}/{_RUN}/{work}"
        values["SPOTWRIGHT_CHECKPOINT"] = f"{place}/{_NODE}" if several else place
    new = [{"name": name, "value": value} for name, value in values.items() if name not in env | fields]
    ctx.editor.extend((*container, "env"), new)
    more = [{"name": name, "fieldPath": path} for name, path in _BY_FIELD.items() if name not in env | fields]
    ctx.editor.extend((*settings, "fieldPathAsEnv"), more)


def _folder(ctx: PlaceContext, settings: Path, checkpoint: str) -> str:
    """The folder of the checkpoints in the container; a claim is mounted if it is not yet."""
    if not checkpoint.startswith(_PVC):
        return checkpoint.rstrip("/")
    claim, _, below = checkpoint.removeprefix(_PVC).strip("/").partition("/")
    at = (*settings, "pvcMount")
    for mount in ctx.editor.get(at) or ():
        if claim in _named(mount, "constant", "pvcNameParameter"):
            return f"{str(mount.get('mountPath')).rstrip('/')}/{below}".rstrip("/")
    ctx.editor.extend(at, [{"mountPath": CHECKPOINT_PATH, **named_constant("constant", claim, "pvcNameParameter")}])
    return f"{CHECKPOINT_PATH}/{below}".rstrip("/")


def named_constant(name: str, value: str, parameter: str = "secretNameParameter") -> dict[str, Any]:
    """A name as the SDK writes it: as a text for older backends, and as a run-time value for newer ones."""
    return {name: value, parameter: {"runtimeValue": {"constant": value}}}


def _names(ctx: PlaceContext, path: Path, *fields: str) -> Iterator[Any]:
    for entry in ctx.editor.get(path) or ():
        yield from _named(entry, *fields)


def _named(entry: Any, *fields: str) -> Iterable[Any]:
    """The names of an entry, in any of these fields."""
    given = (entry.get(field) for field in fields) if isinstance(entry, dict) else ()
    return [_with_constants(value) for value in given if value is not None]
