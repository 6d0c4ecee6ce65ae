"""Builds the start order of an attempt on this machine, with its folders and environment.

All files of an attempt are below its own folder, so that attempts never see each other's half-written files. Only the
checkpoint folder is passed from attempt to attempt. Remote inputs are downloaded once per run, and mounted at the path that
pods use (``/gcs``, ``/s3``). How an attempt ends is read by :mod:`spotwright.local.ends`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from spotwright.engine.io_resolution import context_of, inputs_of
from spotwright.engine.next_rung import effective_plan
from spotwright.engine.state import RunState, TaskState
from spotwright.errors import StateError
from spotwright.graph import Container, PodTemplate, TaskContext, TaskSpec
from spotwright.kfp.executors import PythonComponent
from spotwright.kfp.launcher import executor_input
from spotwright.kfp.secrets import ClusterObjects, Secrets
from spotwright.kfp.values import CLUSTER_ONLY, expand_environment, path_of
from spotwright.local.pod_environment import Volumes, make_folder, pod_environment
from spotwright.local.protocol import OUT, PROGRESS, WORK, StartOrder
from spotwright.local.python_envs import environment_of
from spotwright.local.visible_paths import private_folder_settings
from spotwright.model.pools import Pool

if TYPE_CHECKING:
    from spotwright.local.supervisor.containers import ContainerRuntime


__all__ = ["NOTICE", "AttemptPaths", "RemoteInputs", "attempt_key", "remote_inputs", "start_order", "write_notice"]


_FETCH = Path(__file__).parent / "supervisor" / "fetch.py"


class RemoteInputs(NamedTuple):
    """Download commands, and mounts as :func:`spotwright.local.supervisor.mounts.enter` takes them."""

    fetches: tuple[tuple[str, ...], ...]
    mounts: tuple[Mapping[str, Any], ...]


def remote_inputs(executor_input: Mapping[str, Any], below: str) -> RemoteInputs:
    """The downloads into ``below``, a folder of the run, that an executor input needs; makes the folders to mount.

    For an artifact that only a cluster can provide, the download command just logs that in the attempt's log.
    """
    if not executor_input["inputs"]["artifacts"]:
        return _NONE
    fetches: list[tuple[str, ...]] = []
    mounts: dict[str, Mapping[str, Any]] = {}
    folder = Path(below)
    for entry in executor_input["inputs"]["artifacts"].values():
        for artifact in entry["artifacts"]:
            uri = str(artifact.get("uri", ""))
            path = path_of(uri)
            if uri.startswith(CLUSTER_ONLY):
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(folder / "nothing")))
            if path == uri or ".." in path.split("/"):
                continue
            target, root = folder / path.lstrip("/"), path.split("/")[1]
            if not target.exists():
                fetches.append((sys.executable, "-P", str(_FETCH), uri, str(target)))
            (folder / root).mkdir(parents=True, exist_ok=True)
            mounts[root] = {"target": f"/{root}", "source": str(folder / root), "optional": True}
    return RemoteInputs(tuple(dict.fromkeys(fetches)), tuple(mounts.values())) if fetches or mounts else _NONE


_NONE = RemoteInputs((), ())


WORKSPACE = "workspace"
"""The folder of a run that all its tasks share: ``dsl.WORKSPACE_PATH_PLACEHOLDER``."""

NOTICE = "notice.json"
"""The file of an attempt that appears with the notice of its node: ``SPOTWRIGHT_NOTICE_FILE``."""


@dataclass(frozen=True, slots=True)
class AttemptPaths:
    """The paths, secrets and container runtime of a run's attempts. ``volume`` maps a claim to its folder."""

    run: str
    epoch: int
    root: str  # the folder of all runs; artifacts may lie below it
    attempt: Callable[[str, int], Path]
    checkpoint: Callable[[str], Path]
    volume: Callable[[str], Path]
    secrets: Secrets
    containers: ContainerRuntime | None = None  # None: container components are processes of this machine
    objects: ClusterObjects = field(default_factory=ClusterObjects)

    @property
    def folder(self) -> Path:
        """The folder of the run, absolute."""
        return Path(self.root, self.run)

    @property
    def volumes(self) -> Volumes:
        """The folders of claims."""
        return Volumes(f"{self.root}/{self.run}/volumes", self.volume)


def attempt_key(task: str, number: int) -> str:
    """The key of an attempt's start order."""
    return f"{task}#{number}"


def start_order(
    state: RunState,
    task: TaskState,
    paths: AttemptPaths,
    pool: Pool,
    scale: float = 1.0,
    node_env: Mapping[str, str] | None = None,
) -> StartOrder:
    """The start order of a task's newest attempt on a node of ``pool``; makes the attempt's folders.

    ``scale`` is the run's time scale. ``node_env`` are variables that the node adds or replaces. Raises :class:`StateError`
    if a folder cannot be made.
    """
    planned, number = effective_plan(state, task), task.last.number
    spec, policy = planned.spec, planned.policy
    executor = spec.executor.only_container() if isinstance(spec.executor, PodTemplate) else spec.executor
    if not isinstance(executor, PythonComponent | Container):
        raise StateError(f"task {task.path} has no executor that this machine can start")
    folder = str(paths.attempt(task.path, number))
    checkpoint = _checkpoint(policy.checkpoint, task.path, paths)
    for each in (f"{folder}/{OUT}", f"{folder}/{WORK}", *([checkpoint] if checkpoint.startswith("/") else [])):
        make_folder(each)
    context = context_of(state, task, f"{paths.root}/{paths.run}/{WORKSPACE}")
    inputs = _executor_input(state, task, spec, paths, folder, context)
    remote = remote_inputs(inputs, f"{paths.root}/{paths.run}/remote")
    pod = pod_environment(state, task, spec, folder, paths.volumes, paths.objects)
    env = {
        **pod.env,
        **_environment(folder, checkpoint, paths.run, task.path, number),
        **_expectations(pool, policy.grace_period, scale),
        **(node_env or {}),
    }
    mounts = (*pod.mounts, *remote.mounts)
    # The order is made in one step: each copy would cost as much as deciding on the attempt.
    order = partial(
        StartOrder,
        key=attempt_key(task.path, number),
        directory=folder,
        run=paths.run,
        task=task.path,
        attempt=number,
        epoch=paths.epoch,
        executor_input=inputs,
        timeout=policy.timeout,
        grace=policy.grace_period,
        memory_limit=spec.limits.get("memory"),
        secrets=tuple(paths.secrets.patterns()),
        fetches=remote.fetches,
    )
    if isinstance(executor, PythonComponent):
        env = {**expand_environment(executor.env), **env}
        return order(
            module=executor.module,
            function=executor.function,
            environment=environment_of(executor),
            env=env,
            mounts=mounts,
            private=private_folder_settings(paths.root, checkpoint, inputs, _without(env, node_env)),
        )
    from spotwright.local.container_attempt import ContainerSettings, container_order

    settings = ContainerSettings(paths.containers, f"{paths.root}/{paths.run}", checkpoint, mounts, context.workspace)
    client_order = container_order(order(), spec, executor, context, env, settings)
    if client_order.container is not None:  # its client sees the real machine, unlike its container
        return client_order
    own = _without(client_order.env, node_env)
    return replace(
        client_order, private=private_folder_settings(paths.root, checkpoint, inputs, own, client_order.command)
    )


def _executor_input(
    state: RunState, task: TaskState, spec: TaskSpec, paths: AttemptPaths, folder: str, context: TaskContext
) -> dict[str, Any]:
    """KFP's executor input with revealed secrets; makes the run's workspace if an input refers to it."""
    inputs = inputs_of(state, task)
    revealed = paths.secrets.reveal(inputs.parameters)
    result = executor_input(spec, revealed, inputs.artifacts, f"{folder}/{OUT}", context)
    if any(context.workspace in str(value) for value in result["inputs"]["parameterValues"].values()):
        make_folder(context.workspace)
    return result


def _without(env: Mapping[str, str], node_env: Mapping[str, str] | None) -> Mapping[str, str]:
    """The variables that the node does not set."""
    return {name: value for name, value in env.items() if name not in node_env} if node_env else env


def _environment(folder: str, checkpoint: str, run: str, task: str, number: int) -> dict[str, str]:
    """The variables of every attempt, with the same names on every backend."""
    notice = f"{folder}/{NOTICE}"
    return {
        "SPOTWRIGHT_RUN": run,
        "SPOTWRIGHT_TASK": task,
        "SPOTWRIGHT_ATTEMPT": str(number),
        "SPOTWRIGHT_CHECKPOINT": checkpoint,
        "SPOTWRIGHT_NOTICE_FILE": notice,
        "SPOTWRIGHT_NOTICE_URL": f"file://{quote(os.fsencode(notice))}",
        "SPOTWRIGHT_PROGRESS_FILE": f"{folder}/{PROGRESS}",
    }


def _expectations(pool: Pool, grace: float, scale: float) -> dict[str, str]:
    """Variables on the expected end of the node, in real seconds. The mean time between interruptions is not scaled."""
    env = {"SPOTWRIGHT_NOTICE": f"{pool.notice / scale:g}", "SPOTWRIGHT_GRACE": f"{grace / scale:g}"}
    simulate = pool.simulate
    if simulate.interrupt_every is not None:
        env["SPOTWRIGHT_INTERRUPT_EVERY"] = f"{simulate.interrupt_every:g}"
    elif simulate.trace is None and pool.max_lifetime is None:
        env["SPOTWRIGHT_INTERRUPT_EVERY"] = "inf"
    return env


def _checkpoint(location: str | None, task: str, paths: AttemptPaths) -> str:
    """The folder or URL of a task's checkpoints: separate for each run and task below the policy's location."""
    if location is None:
        return str(paths.checkpoint(task))
    if location.startswith("pvc://"):
        name, _, below = location.removeprefix("pvc://").partition("/")
        return str(paths.volume(name) / below / paths.run / paths.checkpoint(task).name)
    if "://" in location:
        return f"{location.rstrip('/')}/{paths.run}/{task}"
    return str(Path(location).absolute() / paths.run / paths.checkpoint(task).name)


def write_notice(folder: Path, noticed_at: float, goes_at: float, why: str) -> None:
    """Write an attempt's notice file atomically. Times are Unix seconds."""
    content = {"noticed_at": noticed_at, "goes_at": goes_at, "seconds": goes_at - noticed_at, "why": why}
    temporary = folder / f".{NOTICE}.tmp"
    temporary.write_text(json.dumps(content))
    temporary.replace(folder / NOTICE)
