"""The settings of one executor of a compiled pipeline: what ``kfp.kubernetes`` can say of its pods, in the fields of the IR.

They are fields of a pod in other shapes: required node affinity is a list of alternatives, one entry each, so all conditions
stand in every entry; values of the downward API stand apart from the container's variables. Sources: ``kfp/kubernetes``,
``kubernetes_executor_config.proto``, ``backend/src/v2/driver/k8s.go`` and ``driver.go`` of kubeflow/pipelines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spotwright.clouds.provider import NVIDIA_GPU
from spotwright.manifests.affinity import Expression, attraction, off_idle_gpus
from spotwright.manifests.context import QUEUE_LABEL, Context, Level
from spotwright.manifests.documents import Path
from spotwright.manifests.environment import CHECKPOINT_PATH
from spotwright.manifests.kinds.kfp_tasks import Home, Task, mapping_at
from spotwright.manifests.pods import Placed, mark, tolerations_of, warn_of_preference
from spotwright.manifests.unknowns import without_unknown
from spotwright.model.kfp_settings import read_constraints, read_resources
from spotwright.scheduling.ladder import Work

__all__ = ["decided_in_the_run", "place_executor", "read_work"]

_BY_FIELD = {
    "SPOTWRIGHT_RUN": "metadata.labels['pipeline/runid']",
    "SPOTWRIGHT_ATTEMPT": "metadata.annotations['workflows.argoproj.io/node-name']",
    "SPOTWRIGHT_HOST": "status.hostIP",
}
"""Variables and the fields they come from: set by the backend and by Argo; the name of a node has iteration and retry in it."""

_RUN = "{{workflow.name}}"  # Argo puts the run's name in, also into what the driver makes
_NODE = "{{=sprig.trunc(12, sprig.sha256sum(node.name))}}"
"""Argo puts in a short name for where a task stands in the run: its path, with the iteration of every loop around it.

The executor reaches its pod as an argument of the task's driver, so the node is the driver's, which all attempts of the executor
have in common. Source: ``executeTemplate`` in ``workflow/controller/operator.go`` of argo-workflows (3.3 and later), and
``argocompiler/container.go`` of kubeflow/pipelines; read, not tried.
"""
_PVC = "pvc://"
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def decided_in_the_run(ctx: Context, settings: Path) -> str:
    """The field by which a parameter decides in the run where the pods go; empty where nothing does."""
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


def read_work(ctx: Context, home: Home, label: str) -> Work:
    """What an executor asks for and says about nodes. Of what is known only in the run, a GPU counts as one, the rest as none."""
    at = (*home.executor(label), "container", "resources")
    given = mapping_at(ctx, at)
    known = {key: value for key, value in given.items() if "{{" not in json.dumps(value)}
    settings = home.settings(label)
    try:
        requests, _ = read_resources(known)
    except (ValueError, TypeError, AttributeError) as error:
        raise ctx.problem(at, f"cannot be read: {error}") from error
    if "accelerator" in given and "accelerator" not in known:
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
    """Settings with every constant that the SDK wrapped as a run-time value in its place."""
    if isinstance(item, list):
        return [_with_constants(value) for value in item]
    if not isinstance(item, dict):
        return item
    if set(item) == {"runtimeValue"}:
        return item["runtimeValue"].get("constant")
    return {key: _with_constants(value) for key, value in item.items()}


def place_executor(ctx: Context, home: Home, tasks: Sequence[Task], placed: Placed) -> None:
    """Write the placement of an executor. ``tasks`` are those that it runs, all with one policy."""
    label, policy, editor = tasks[0].label, placed.policy, ctx.editor
    settings = home.settings(label)
    used = [ctx.config.pools[name] for name in placed.report.pools]
    work = read_work(ctx, home, label)  # as it is without what follows
    editor.extend((*settings, "tolerations"), tolerations_of(placed.ladder))
    _attract(ctx, home, tasks[0], placed, work)
    mark(ctx, (*settings, "podMetadata"), placed, used)
    known = {str(name) for name in _names(ctx, (*settings, "imagePullSecret"), "secretName", "secretNameParameter")}
    secrets = [_constant("secretName", name) for name in policy.image_pull_secrets if name not in known]
    editor.extend((*settings, "imagePullSecret"), secrets)
    if policy.timeout is not None and editor.get((*settings, "activeDeadlineSeconds")) is None:
        editor.add((*settings, "activeDeadlineSeconds"), str(math.ceil(policy.timeout)))
    _tell_the_code(ctx, home, tasks, policy.checkpoint)


def _attract(ctx: Context, home: Home, task: Task, placed: Placed, work: Work) -> None:
    """Join what is required to every alternative that is there; what is preferred gets entries of its own."""
    settings = home.settings(task.label)
    if QUEUE_LABEL in mapping_at(ctx, (*settings, "podMetadata", "labels")):
        text = f"{task.path}: Kueue decides by the order of its flavors, so no affinity is added"
        ctx.say(Level.NOTE, settings, text)
        return
    used = [ctx.config.pools[name] for name in placed.report.pools]
    wanted = attraction(placed.policy, used, ctx.config.pools)
    off = off_idle_gpus(work, placed.ladder, wanted, ctx.config.pools)
    required = [*wanted.required, *off]
    at = (*settings, "nodeAffinity")
    alternatives = list(_alternatives(ctx, at))
    for path in alternatives if required else ():
        ctx.editor.extend((*path, "matchExpressions"), required)
    entries: list[Expression] = [{"matchExpressions": [wish], "weight": 100} for wish in wanted.preferred]
    if required and not alternatives:
        entries.insert(0, {"matchExpressions": required})
    ctx.editor.extend(at, entries)
    if wanted.preferred:
        warn_of_preference(ctx, (*home.pipeline, "pipelineInfo"), "tasks that prefer spot")


def _alternatives(ctx: Context, at: Path) -> Iterator[Path]:
    """The terms of which one must hold: entries without a weight, and those of a whole affinity that stands as a constant."""
    for index, entry in enumerate(ctx.editor.get(at) or ()):
        if "nodeAffinityJson" in entry:
            terms = (*at, index, "nodeAffinityJson", "runtimeValue", "constant", *_TERMS)
            yield from ((*terms, number) for number in range(len(ctx.editor.get(terms) or ())))
        elif not entry.get("weight"):
            yield (*at, index)


def _tell_the_code(ctx: Context, home: Home, tasks: Sequence[Task], checkpoint: str | None) -> None:
    """The environment of the design. A notice's URL is not in it: nothing can put the host's address into a value here."""
    settings, container = home.settings(tasks[0].label), (*home.executor(tasks[0].label), "container")
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


def _folder(ctx: Context, settings: Path, checkpoint: str) -> str:
    """The place of checkpoints as the code sees it; a claim is mounted, once."""
    if not checkpoint.startswith(_PVC):
        return checkpoint.rstrip("/")
    claim, _, below = checkpoint.removeprefix(_PVC).strip("/").partition("/")
    at = (*settings, "pvcMount")
    for mount in ctx.editor.get(at) or ():
        if claim in _named(mount, "constant", "pvcNameParameter"):
            return f"{str(mount.get('mountPath')).rstrip('/')}/{below}".rstrip("/")
    ctx.editor.extend(at, [{"mountPath": CHECKPOINT_PATH, **_constant("constant", claim, "pvcNameParameter")}])
    return f"{CHECKPOINT_PATH}/{below}".rstrip("/")


def _constant(name: str, value: str, parameter: str = "secretNameParameter") -> dict[str, Any]:
    """A name as the SDK writes it: for older backends plainly, for newer ones as a value that could be a parameter."""
    return {name: value, parameter: {"runtimeValue": {"constant": value}}}


def _names(ctx: Context, path: Path, *fields: str) -> Iterator[Any]:
    for entry in ctx.editor.get(path) or ():
        yield from _named(entry, *fields)


def _named(entry: Any, *fields: str) -> Iterable[Any]:
    """What an entry is called, in any of its fields."""
    given = (entry.get(field) for field in fields) if isinstance(entry, dict) else ()
    return [_with_constants(value) for value in given if value is not None]
