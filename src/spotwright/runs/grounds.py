"""What a run needs of this machine beside Python, checked before anything runs: containers, secrets, mounts.

Commands that were written for an image are never executed on this machine unless the user says so: they would find other
programs there, and the user's own files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from spotwright.engine.plan import Plan
from spotwright.errors import PipelineError
from spotwright.local.clients import CLIS, Engine, answering
from spotwright.local.fetch import EXTRAS
from spotwright.local.mounts import why_impossible
from spotwright.pipelines.compiled import Compiled
from spotwright.pipelines.objects import Objects, look_up
from spotwright.pipelines.places import line_of
from spotwright.pipelines.remote import CLUSTERS_OWN
from spotwright.pipelines.spec import Container, Dag, Importer, Pipeline, TaskSpec

__all__ = ["check_grounds", "check_plan", "objects_of", "unmet"]

_EXECUTOR = "kfp.dsl.executor_main"  # in a container's command: ``kfp component build`` has put the code into the image
_NOT_WRITTEN = ("{{$", "$(")  # in a command whose program is known only when it starts


def check_grounds(compiled: Compiled, plan: Plan, mode: str) -> Engine | None:
    """Check that this machine has what the tasks of a pipeline need. Returns what runs the container components, if anything.

    ``mode`` is one of :data:`~spotwright.runs.options.CONTAINER_MODES`. Raises :class:`PipelineError` with the task, its line and
    every way out.
    """
    engine = _engine_for(compiled, plan.pipeline, mode)
    objects: Objects | None = None
    for path, task in _tasks(plan.pipeline, plan.pipeline.root, ""):
        if not task.surroundings:
            continue
        objects = objects or objects_of(plan)
        try:
            for keyed in task.surroundings.keyed:
                if keyed.name:
                    objects.environment(keyed)
                    _ = objects.files(keyed) if keyed.mount else None
        except PipelineError as error:
            raise _refusal(compiled, path, f": {error}") from error
        if task.surroundings.mounts and not (engine is not None and isinstance(task.executor, Container)):
            _check_mounts(compiled, path, task.surroundings.mounts)
    return engine


def check_plan(compiled: Compiled, plan: Plan) -> tuple[str, ...]:
    """:meth:`Plan.check`, whose errors about a task get its line here: the plan knows no files."""
    try:
        return plan.check()
    except PipelineError as error:
        if not error.task:
            raise
        raise PipelineError(f"{_place(compiled, error.task)}: {error}") from error


def unmet(plan: Plan, engine: Engine | None) -> list[str]:
    """What the tasks of a pipeline ask for and do not get here, in sentences for the user."""
    return [*_not_fetched(plan), *_not_contained(plan, engine)]


def _not_fetched(plan: Plan) -> Iterator[str]:
    """Addresses that importers name for good and that this machine cannot bring to the tasks that read them."""
    for path, task in _tasks(plan.pipeline, plan.pipeline.root, ""):
        if not isinstance(task.executor, Importer) or _NOT_WRITTEN[0] in task.executor.uri:
            continue
        uri = task.executor.uri
        module, extra = EXTRAS.get(uri.partition("://")[0], ("", ""))
        if uri.startswith(CLUSTERS_OWN):
            yield (
                f"{uri} (task {path}) is brought by a cluster only: a task finds nothing at its path; "
                "import a copy in a folder or a bucket here"
            )
        elif module and find_spec(module) is None:
            yield f"{uri} (task {path}) is not fetched: a task finds nothing at its path; install spotwright[{extra}]"
        elif "://" not in uri and not Path(uri).is_absolute():
            yield f"{uri} (task {path}) is no address: a task finds nothing at its path; write an absolute path"


def _not_contained(plan: Plan, engine: Engine | None) -> list[str]:
    if engine is None:
        return []
    found = [
        (path, task)
        for path, task in _tasks(plan.pipeline, plan.pipeline.root, "")
        if isinstance(task.executor, Container)
    ]
    notes = []
    if engine.init is None:
        notes.append(
            f"{engine.kind} finds no init program for its containers: a command that does not handle SIGTERM itself ends "
            "only by SIGKILL, after its grace period; install catatonit"
        )
    for limit in ("cpu", "memory"):
        limited = [path for path, task in found if limit in task.limits]
        if limited and limit not in engine.limits:
            notes.append(
                f"the {limit} limit of {_some(limited)} is not kept: {engine.kind} may not limit {limit} for you on this machine"
            )
    for device, path in {device: path for path, task in found for device in task.limits if "/" in device}.items():
        if device != "nvidia.com/gpu" or not engine.gpus:
            notes.append(f"the container of {path} has no {device}: {engine.kind} knows of none on this machine")
    return notes


def _some(paths: list[str]) -> str:
    return paths[0] + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


def objects_of(plan: Plan) -> Objects:
    """The secrets and config maps that the tasks of a pipeline may name, as this machine has them."""
    used = [keyed for _, task in _tasks(plan.pipeline, plan.pipeline.root, "") for keyed in task.surroundings.keyed]
    if not used:
        return Objects()
    configured = {"secret": plan.config.secrets, "config map": plan.config.config_maps}
    folder = Path.cwd() if plan.config.is_built_in else Path(plan.config.path).parent
    return look_up(configured, used, folder, os.environ, lambda path: path.read_text("utf-8", "surrogateescape"))


def _check_mounts(compiled: Compiled, path: str, mounts: tuple[str, ...]) -> None:
    why = _why_no_mounts()
    if why:
        text = f"mounts {', '.join(mounts)}, and {why}: run on a machine that does"
        raise _refusal(compiled, path, f" {text}, or with podman or docker if it is a container component")


@cache
def _why_no_mounts() -> str:
    return why_impossible()


def _engine_for(compiled: Compiled, pipeline: Pipeline, mode: str) -> Engine | None:
    """What runs the container components of a pipeline; ``None`` where it has none, or they are processes of this machine.

    ``mode`` is one of :data:`~spotwright.runs.options.CONTAINER_MODES`. Raises :class:`PipelineError` with the task, its line and
    every way out where there is nothing that can run one.
    """
    tasks = _tasks(pipeline, pipeline.root, "")
    found = [(path, task.executor) for path, task in tasks if isinstance(task.executor, Container)]
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
        f" is a container component{others}, with the image {container.image}, and {'; '.join(refused)}: start one of them, or "
        "let its command run as a process of this machine with --containers host",
    )


def _check_host(compiled: Compiled, path: str, container: Container) -> None:
    if not container.command:
        raise _refusal(
            compiled,
            path,
            f" has no command: that of the image {container.image} is not known on this machine; give it a command, or leave "
            "out --containers host and start podman or docker",
        )
    if _EXECUTOR in container.command:
        raise _refusal(
            compiled,
            path,
            f" is a Python component whose code is in the image {container.image}: take its target_image out, so that the code "
            "travels with the pipeline, or leave out --containers host and start podman or docker",
        )
    program = container.command[0]
    if not any(sign in program for sign in _NOT_WRITTEN) and shutil.which(program) is None:
        raise _refusal(
            compiled,
            path,
            f" executes {program!r}, which is not on the PATH of this machine: install it, or leave out --containers host and "
            "start podman or docker",
        )


def _tasks(pipeline: Pipeline, dag: Dag, path: str) -> Iterator[tuple[str, TaskSpec]]:
    """Every task that is no pipeline, with its path."""
    for name, task in dag.tasks.items():
        here = f"{path}/{name}" if path else name
        if task.dag is None:
            yield here, task
        else:
            yield from _tasks(pipeline, pipeline.dags[task.dag], here)


def _refusal(compiled: Compiled, path: str, why: str) -> PipelineError:
    return PipelineError(f"{_place(compiled, path)}: task {path}{why}")


def _place(compiled: Compiled, path: str) -> str:
    line = line_of(compiled.source, compiled.ir, path)
    return compiled.source if line is None else f"{compiled.source}:{line}"
