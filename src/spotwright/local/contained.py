"""A container component as the process of an attempt: its command on this machine, or in a container of podman or docker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spotwright.local.around import make_folder
from spotwright.local.clients import Engine
from spotwright.local.containers import Mount, Run, container_name, in_memory, is_clients_own, run_command
from spotwright.local.images import AS_IT_SAYS, AS_ROOT, AS_YOU, MAPPED
from spotwright.local.orders import OUT, WORK, StartOrder
from spotwright.pipelines.commands import command_of
from spotwright.pipelines.outputs import ARTIFACTS, PARAMETERS
from spotwright.pipelines.placeholders import Context
from spotwright.pipelines.spec import Container, TaskSpec

__all__ = ["Ground", "as_process", "manner"]


@dataclass(frozen=True, slots=True)
class Ground:
    """On what the container components of a run stand: an engine or none, and the folders that they may write to."""

    engine: Engine | None
    run_folder: str
    checkpoint: str
    mounts: tuple[Mapping[str, Any], ...] = ()
    workspace: str = ""


def as_process(
    order: StartOrder, spec: TaskSpec, container: Container, context: Context, told: Mapping[str, str], ground: Ground
) -> StartOrder:
    """The order of an attempt with the command that it executes; makes the folders in which its outputs will lie.

    ``told`` are the variables of every attempt. Without an engine the command is executed on this machine. Raises
    :class:`PipelineError` for a command that cannot be made, :class:`StateError` for a folder.
    """
    for folder in (PARAMETERS, ARTIFACTS):
        make_folder(Path(order.directory, OUT, folder))
    command = command_of(spec, container, order.executor_input, told, context)
    env = {**command.env, **told}
    if ground.engine is None:
        line = (*command.command, *command.args)
        return replace(order, command=line, env=env, executor_input={}, mounts=ground.mounts)
    marks = {"SPOTWRIGHT_RUN": order.run, "SPOTWRIGHT_TASK": order.task, "SPOTWRIGHT_ATTEMPT": str(order.attempt)}
    name = container_name(ground.run_folder, order.task, order.attempt, order.epoch)
    folder = in_memory(name)
    surrounding, files = _as_mounts(ground.mounts, folder)
    if container.shared_memory is not None:
        surrounding.append(Mount("", "/dev/shm", size=container.shared_memory or None))  # noqa: S108 (its name in every pod)
    run = Run(
        name=name,
        image=command.image,
        command=command.command,
        args=command.args,
        env={**marks, **env},
        mounts=[*_mounts(order.executor_input, [ground.run_folder, ground.checkpoint]), *surrounding],
        memory=order.memory_limit,
        cpu=spec.limits.get("cpu"),
        gpus="nvidia.com/gpu" in spec.limits,
    )
    told_apart = {
        "program": ground.engine.program,
        "name": name,
        "folder": folder if files else "",
        "image": command.image,
        "pull": container.pull,
        "manner": manner(ground.engine),
        "user": container.user,
        "group": container.group,
        "non_root": container.non_root,
        "home": str(Path(order.directory, WORK)),
        **_to_be_written(order.directory, ground),
    }
    return replace(
        order,
        command=tuple(run_command(ground.engine, run)),
        env={
            variable: value for variable, value in env.items() if not is_clients_own(variable)
        },  # it stands on the line
        executor_input={},
        container=told_apart,
        files=files,
        memory_limit=None,  # the container has it, not its client
    )


def manner(engine: Engine) -> str:
    """As whom containers run, see :mod:`.images`."""
    if engine.rootless:
        return MAPPED if engine.kind == "podman" else AS_ROOT
    return AS_IT_SAYS if os.getuid() == 0 else AS_YOU


def _to_be_written(directory: str, ground: Ground) -> dict[str, list[str]]:
    """The folders of an attempt alone, and those that it shares with other tasks."""
    own = [directory, *(f"{directory}/{each}" for each in (OUT, f"{OUT}/{PARAMETERS}", f"{OUT}/{ARTIFACTS}", WORK))]
    own += [ground.checkpoint] if ground.checkpoint.startswith("/") else []
    given = [mount["source"] for mount in ground.mounts if "source" in mount and not mount.get("optional")]
    inside = [place for place in given if Path(place).is_relative_to(directory)]
    shared = [place for place in (*given, ground.workspace) if place not in inside and Path(place).is_dir()]
    return {"folders": [*own, *inside], "shared": shared}


def _as_mounts(mounts: tuple[Mapping[str, Any], ...], folder: str) -> tuple[list[Mount], dict[str, dict[str, str]]]:
    """Mounts for a client, and the files that have to be written before, by folder."""
    found, files = [], {}
    for number, mount in enumerate(mounts):
        source = mount.get("source", "")
        if "files" in mount:
            source = f"{folder}/{number}"
            files[source] = dict(mount["files"])
        found.append(Mount(source, mount["target"], "files" in mount, mount.get("size")))
    return found, files


def _mounts(given: Mapping[str, Any], writable: list[str]) -> list[Mount]:
    """The run's folder and the place of checkpoints at their own paths; and inputs that lie elsewhere, only to be read."""
    found: list[Mount] = []
    wanted = [Mount(place, place) for place in writable if place.startswith("/")]
    wanted += [Mount(path, path, read_only=True) for path in _local_inputs(given)]
    for mount in wanted:
        if not any(Path(mount.source).is_relative_to(other.source) for other in found):
            found.append(mount)
    return found


def _local_inputs(given: Mapping[str, Any]) -> Iterator[str]:
    for entry in given["inputs"]["artifacts"].values():
        for artifact in entry["artifacts"]:
            path = str(artifact.get("uri", ""))
            if path.startswith("/") and Path(path).exists():
                yield path
