"""The environment variables and mounts that an attempt's pod would have, provided by this machine.

A persistent volume claim is a folder, shared between runs or owned by the run that made the claim.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.engine.io_resolution import context_of, filled_inputs
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import PipelineError, StateError
from spotwright.graph import PodConfig, TaskSpec
from spotwright.kfp.executors import PvcStep, generated_pvc_name
from spotwright.kfp.secrets import ClusterObjects
from spotwright.kfp.values import run_id
from spotwright.kube.object_fields import ARGO_NODE

__all__ = ["PodEnvironment", "Volumes", "deleted_pvc", "make_folder", "pod_environment"]


class Volumes(NamedTuple):
    """The folders of claims: below ``own`` for claims that the run made under a generated name, from ``shared`` for others."""

    own: str
    shared: Callable[[str], Path]

    def folder(self, state: RunState, claim: str) -> Path:
        """The folder of a claim."""
        shared = self.shared(claim)
        return Path(self.own, shared.name) if _is_of_run(state, claim) else shared

    def delete(self, state: RunState, claim: str) -> None:
        """Delete the content of a claim. Raises :class:`StateError`."""
        import shutil

        folder = self.folder(state, claim)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return  # the claim was never mounted
        except OSError as error:
            raise StateError(f"{folder}: cannot be deleted ({error.strerror})") from error


def deleted_pvc(state: RunState, task: TaskState) -> str:
    """The name of the claim that a completed task deletes; empty for every other task."""
    executor = task.plan.spec.executor
    if not isinstance(executor, PvcStep) or executor.creates:
        return ""
    return str(filled_inputs(state, task).parameters["pvc_name"])


def _is_of_run(state: RunState, name: str) -> bool:
    """Whether this run made the claim under a generated name, so that other runs cannot use it."""
    return any(
        isinstance(task.plan.spec.executor, PvcStep)
        and task.parameters.get("name") == name
        and name.startswith(generated_pvc_name(context_of(state, task)))
        for task in state.tasks.values()
    )


SCRATCH = "scratch"
"""The folder of an attempt with its empty-folder mounts; it is removed with the attempt."""

_ADDRESS = "127.0.0.1"
_INVALID_IN_NAME = re.compile(r"[^a-z0-9-]+")
_LABEL_OR_ANNOTATION = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class PodEnvironment(NamedTuple):
    """Environment variables, and mounts as :func:`spotwright.local.supervisor.mounts.enter` takes them."""

    env: Mapping[str, str]
    mounts: tuple[Mapping[str, Any], ...]


def pod_environment(
    state: RunState, task: TaskState, spec: TaskSpec, directory: str, volumes: Volumes, objects: ClusterObjects
) -> PodEnvironment:
    """Variables and mounts of a task's newest attempt; makes the folders to mount.

    Raises :class:`PipelineError` for an unknown secret or config map, :class:`StateError` if a folder cannot be made.
    """
    pod_config = spec.pod_config
    if not pod_config:
        return PodEnvironment({}, ())
    try:
        env = {variable: value for refs in pod_config.key_refs for variable, value in objects.environment(refs).items()}
        mounts = [
            *({"target": each.mount, "files": dict(objects.files(each))} for each in pod_config.key_refs if each.mount),
            *_claims(state, pod_config, volumes),
            *_scratch(pod_config, f"{directory}/{SCRATCH}"),
        ]
    except PipelineError as error:
        raise PipelineError(f"task {task.path}: {error}") from error
    return PodEnvironment(env | _fields(state, task, spec, pod_config), tuple(mounts))


def _claims(state: RunState, pod_config: PodConfig, volumes: Volumes) -> Iterator[Mapping[str, Any]]:
    for claim in pod_config.pvcs:
        folder = volumes.folder(state, claim.name) / claim.below
        make_folder(folder)
        yield {"target": claim.mount, "source": str(folder)}


def _scratch(pod_config: PodConfig, folder: str) -> Iterator[Mapping[str, Any]]:
    for number, each in enumerate(pod_config.scratch):
        if each.in_memory:
            yield {"target": each.mount, "size": each.size}
        else:
            source = Path(folder, str(number))
            make_folder(source)
            yield {"target": each.mount, "source": str(source)}


def make_folder(folder: str | Path) -> None:
    """Make a folder and its parents. Raises :class:`StateError`."""
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 (four times for every attempt)
    except OSError as error:
        raise StateError(
            f"{folder}: cannot be made ({error.strerror}); free some space, then resume the run"
        ) from error


def _pod_name(run: str, task: str, number: int) -> str:
    """The name of an attempt's pod: run, task and number, in characters that Kubernetes allows."""
    return _INVALID_IN_NAME.sub("-", f"{run}-{task}-{number}".lower()).strip("-")[:253]


def _fields(state: RunState, task: TaskState, spec: TaskSpec, pod_config: PodConfig) -> dict[str, str]:
    """The requested fields of the pod. Name, uid and node are the attempt's; addresses are this machine's."""
    if not pod_config.fields:
        return {}
    run, number = state.meta.run, task.last.number
    digest = hashlib.sha256(f"{run}\0{task.path}\0{number}".encode()).hexdigest()
    path = f"{run}.{task.path.replace('/', '.')}({number - 1})"
    fields = {
        "metadata.name": _pod_name(run, task.path, number),
        "metadata.namespace": "default",
        "metadata.uid": "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])),
        "spec.nodeName": task.last.node or "",
        "spec.serviceAccountName": "default",
        **{f"status.{name}": _ADDRESS for name in ("hostIP", "hostIPs", "podIP", "podIPs")},
    }
    labels_and_annotations = {
        "labels": {"pipeline/runid": run_id(context_of(state, task)), **spec.labels},
        "annotations": {ARGO_NODE: path, **spec.annotations},
    }
    values = {}
    for variable, field in pod_config.fields.items():
        match = _LABEL_OR_ANNOTATION.fullmatch(field)
        values[variable] = fields[field] if match is None else labels_and_annotations[match[1]].get(match[2], "")
    return values
