"""How the container components of a run are executed: through podman or docker, or as processes of this machine.

Decided and checked before anything runs. Commands that were written for an image are never executed on this machine unless the
user says so: they would find other programs there, and the user's own files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from spotwright.errors import PipelineError
from spotwright.local.containers import CLIS, Engine, answering
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.places import line_of
from spotwright.pipelines.spec import Container, Dag, Pipeline

__all__ = ["engine_for"]

_NOT_WRITTEN = ("{{$", "$(")  # in a command whose program is known only when it starts


def engine_for(compiled: Compiled, pipeline: Pipeline, mode: str) -> Engine | None:
    """What runs the container components of a pipeline; ``None`` where it has none, or they are processes of this machine.

    ``mode`` is one of :data:`~spotwright.runs.options.CONTAINER_MODES`. Raises :class:`PipelineError` with the task, its line and
    every way out where there is nothing that can run one.
    """
    found = list(_containers(pipeline, pipeline.root, ""))
    if not found:
        return None
    if mode == "host":
        for path, container in found:
            _check_host(compiled, path, container)
        return None
    refused = []
    for kind in CLIS if mode == "auto" else (mode,):
        engine, why = answering(kind)
        if engine is not None:
            return engine
        refused.append(why)
    path, container = found[0]
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise _refusal(
        compiled,
        path,
        f"is a container component{others}, with the image {container.image}, and {'; '.join(refused)}: start one of them, or "
        "let its command run as a process of this machine with --containers host",
    )


def _check_host(compiled: Compiled, path: str, container: Container) -> None:
    if not container.command:
        raise _refusal(
            compiled,
            path,
            f"has no command: that of the image {container.image} is not known on this machine; give it a command, or leave "
            "out --containers host and start podman or docker",
        )
    program = container.command[0]
    if not any(sign in program for sign in _NOT_WRITTEN) and shutil.which(program) is None:
        raise _refusal(
            compiled,
            path,
            f"executes {program!r}, which is not on the PATH of this machine: install it, or leave out --containers host and "
            "start podman or docker",
        )


def _containers(pipeline: Pipeline, dag: Dag, path: str) -> Iterator[tuple[str, Container]]:
    for name, task in dag.tasks.items():
        here = f"{path}/{name}" if path else name
        if isinstance(task.executor, Container):
            yield here, task.executor
        elif task.dag is not None:
            yield from _containers(pipeline, pipeline.dags[task.dag], here)


def _refusal(compiled: Compiled, path: str, why: str) -> PipelineError:
    line = line_of(compiled.source, compiled.ir, path)
    place = compiled.source if line is None else f"{compiled.source}:{line}"
    return PipelineError(f"{place}: task {path} {why}")
