"""The start order of a container component: its command on this machine, or in a container of podman or docker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.checkpoint_file import FILE_NAME, checkpoint_file
from spotwright.errors import StateError
from spotwright.graph import Container, TaskContext, TaskSpec
from spotwright.kfp.launcher import ARTIFACTS, PARAMETERS, command_of
from spotwright.local.pod_environment import make_folder
from spotwright.local.protocol import OUT, WORK, StartOrder
from spotwright.local.supervisor.containers import (
    CALLING_USER,
    IMAGE_USER,
    MAPPED_USER,
    ROOT_USER,
    ContainerMount,
    ContainerRun,
    ContainerRuntime,
    container_name,
    is_client_variable,
    memory_folder,
    run_command,
)

__all__ = ["ContainerSettings", "container_order", "user_mode"]


class ContainerSettings(NamedTuple):
    """How a run executes a container component: with or without a runtime, and the writable folders."""

    runtime: ContainerRuntime | None
    run_folder: str
    checkpoint: str
    mounts: tuple[Mapping[str, Any], ...] = ()
    workspace: str = ""


def container_order(
    order: StartOrder,
    spec: TaskSpec,
    container: Container,
    context: TaskContext,
    env: Mapping[str, str],
    settings: ContainerSettings,
) -> StartOrder:
    """Complete an attempt's order with the command to execute; makes the folders of its outputs.

    ``env`` has the variables of every attempt. Without a runtime the command is executed on this machine itself. Raises
    :class:`PipelineError` for a command that cannot be built, :class:`StateError` if a folder cannot be made.
    """
    for folder in (PARAMETERS, ARTIFACTS):
        make_folder(Path(order.directory, OUT, folder))
    command = command_of(spec, container, order.executor_input, env, context)
    env = {**command.env, **env}
    library = _checkpoint_library(Path(settings.run_folder))
    if settings.runtime is None:
        line = (*command.command, *command.args)
        inherited = command.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        env["PYTHONPATH"] = f"{inherited}:{library}" if inherited else library
        return replace(order, command=line, env=env, executor_input={}, mounts=settings.mounts)
    declared = command.env.get("PYTHONPATH", "")
    if declared:
        env["PYTHONPATH"] = f"{declared}:{library}"
    marks = {"SPOTWRIGHT_RUN": order.run, "SPOTWRIGHT_TASK": order.task, "SPOTWRIGHT_ATTEMPT": str(order.attempt)}
    name = container_name(settings.run_folder, order.task, order.attempt, order.epoch)
    folder = memory_folder(name)
    pod_mounts, files = _container_mounts(settings.mounts, folder)
    if container.shared_memory is not None:
        pod_mounts.append(ContainerMount("", "/dev/shm", size=container.shared_memory or None))  # noqa: S108 (its path in every pod)
    run = ContainerRun(
        name=name,
        image=command.image,
        command=command.command,
        args=command.args,
        env={**marks, **env},
        mounts=[*_data_mounts(order.executor_input, [settings.run_folder, settings.checkpoint]), *pod_mounts],
        memory=order.memory_limit,
        cpu=spec.limits.get("cpu"),
        gpus="nvidia.com/gpu" in spec.limits,
    )
    container_data = {
        "program": settings.runtime.program,
        "name": name,
        "folder": folder if files else "",
        "image": command.image,
        "pull": container.pull,
        "user_mode": user_mode(settings.runtime),
        "user": container.user,
        "group": container.group,
        "non_root": container.non_root,
        "home": str(Path(order.directory, WORK)),
        "library": "" if declared else library,
        **_writable_folders(order.directory, settings),
    }
    return replace(
        order,
        command=tuple(run_command(settings.runtime, run)),
        # the values of the client's variables are on the command line
        env={variable: value for variable, value in env.items() if not is_client_variable(variable)},
        executor_input={},
        container=container_data,
        files=files,
        memory_limit=None,  # it is the container's limit, not the client's
    )


def _checkpoint_library(run_folder: Path) -> str:
    """The checkpoint library as a file in the run's folder, which every container mounts; written by the first attempt."""
    file = run_folder / FILE_NAME
    if not file.exists():
        temporary = file.with_name(f".{FILE_NAME}.{os.getpid()}")
        try:
            temporary.write_bytes(checkpoint_file())
            temporary.replace(file)
        except OSError as error:
            raise StateError(f"{file}: cannot be written ({error.strerror}); free some space, then resume") from error
    return str(file)


def user_mode(runtime: ContainerRuntime) -> str:
    """The user of containers: a mode of :mod:`spotwright.local.supervisor.containers`."""
    if runtime.rootless:
        return MAPPED_USER if runtime.kind == "podman" else ROOT_USER
    return IMAGE_USER if os.getuid() == 0 else CALLING_USER


def _writable_folders(directory: str, settings: ContainerSettings) -> dict[str, list[str]]:
    """The existing folders that the attempt writes to: its own ``folders``, and ``shared`` with other tasks."""
    own = [directory, *(f"{directory}/{each}" for each in (OUT, f"{OUT}/{PARAMETERS}", f"{OUT}/{ARTIFACTS}", WORK))]
    own += [settings.checkpoint] if settings.checkpoint.startswith("/") else []
    sources = [mount["source"] for mount in settings.mounts if "source" in mount and not mount.get("optional")]
    inside = [path for path in sources if Path(path).is_relative_to(directory)]
    shared = [path for path in (*sources, settings.workspace) if path not in inside and Path(path).is_dir()]
    return {"folders": [*own, *inside], "shared": shared}


def _container_mounts(
    mounts: tuple[Mapping[str, Any], ...], folder: str
) -> tuple[list[ContainerMount], dict[str, dict[str, str]]]:
    """The mounts for the client, and the files to write before, by folder."""
    converted, files = [], {}
    for number, mount in enumerate(mounts):
        source = mount.get("source", "")
        if "files" in mount:
            source = f"{folder}/{number}"
            files[source] = dict(mount["files"])
        converted.append(ContainerMount(source, mount["target"], "files" in mount, mount.get("size")))
    return converted, files


def _data_mounts(executor_input: Mapping[str, Any], writable: list[str]) -> list[ContainerMount]:
    """Mounts of the run's folder, the checkpoint folder and, read-only, inputs elsewhere; each at its own path."""
    mounts: list[ContainerMount] = []
    candidates = [ContainerMount(path, path) for path in writable if path.startswith("/")]
    candidates += [ContainerMount(path, path, read_only=True) for path in _local_inputs(executor_input)]
    for mount in candidates:
        if not any(Path(mount.source).is_relative_to(other.source) for other in mounts):
            mounts.append(mount)
    return mounts


def _local_inputs(executor_input: Mapping[str, Any]) -> Iterator[str]:
    for entry in executor_input["inputs"]["artifacts"].values():
        for artifact in entry["artifacts"]:
            path = str(artifact.get("uri", ""))
            if path.startswith("/") and Path(path).exists():
                yield path
