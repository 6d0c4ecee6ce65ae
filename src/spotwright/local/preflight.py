"""Check that this machine can run a plan, and read the container runtime, secrets and config maps for the run.

Each is read once a start: the results (:class:`HostResources`) go with the run. Commands for an image are not executed on this
machine unless the user says so: they would find other programs, and the user's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotwright.engine.plan import Plan
from spotwright.errors import PipelineError
from spotwright.graph import Container, Dag, PodTemplate, TaskGraph, TaskSpec
from spotwright.interrupts import interrupts_held
from spotwright.kfp.arguments import bind, references
from spotwright.kfp.executors import Importer
from spotwright.kfp.secrets import ClusterObjects, Secrets, look_up_objects
from spotwright.kfp.values import CLUSTER_ONLY
from spotwright.local.supervisor import cgroups
from spotwright.local.supervisor.mounts import why_impossible
from spotwright.local.supervisor.private_folders import why_incomplete

if TYPE_CHECKING:
    from spotwright.local.supervisor.containers import ContainerRuntime


__all__ = ["HostResources", "check_containers", "check_machine", "read_secrets", "read_secrets_again", "unmet_requests"]


PlaceOf = Callable[[str], str]
"""The place of a task, by its path, in the source of its graph."""

_EXECUTOR = "kfp.dsl.executor_main"  # in a container's command: ``kfp component build`` has put the code into the image
_PLACEHOLDERS = ("{{$", "$(")  # in a command whose program is known only at its start


@dataclass(frozen=True, slots=True)
class HostResources:
    """The resources that a run reads from this machine at its start.

    ``objects`` are the secrets and config maps that its tasks name, ``secrets`` all values to keep out of records.
    ``arguments`` are the run's in storable form, with markers in place of secrets. ``containers`` is the runtime of container
    components; ``None``: none, or they run as processes of this machine.
    """

    objects: ClusterObjects = field(default_factory=ClusterObjects)
    secrets: Secrets = field(default_factory=Secrets)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    containers: ContainerRuntime | None = None


def read_secrets(plan: Plan, arguments: Mapping[str, Any]) -> HostResources:
    """Resolve the references among bound arguments, and look up the objects that tasks name.

    Raises :class:`InputError` for a reference to a missing object.
    """
    objects = _objects_of(plan)
    secrets, stored = Secrets.resolve(arguments, os.environ, _text_of, objects.secrets)
    return HostResources(objects, secrets, stored)


def read_secrets_again(plan: Plan, given: Mapping[str, Any], *, textual: bool) -> HostResources:
    """The same as :func:`read_secrets`, from the journal's arguments, with references in place of secrets.

    Raises :class:`InputError` also for arguments that no longer fit the pipeline.
    """
    objects, read = _objects_of(plan), cache(_text_of)
    referenced, _ = Secrets.resolve(references(plan.graph, given), os.environ, read, objects.secrets)
    arguments = bind(plan.graph, referenced.reveal(given), textual=textual)
    secrets, stored = Secrets.resolve(arguments, os.environ, read, objects.secrets)
    return HostResources(objects, secrets, stored)


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _objects_of(plan: Plan) -> ClusterObjects:
    """The secrets and config maps that the tasks of a plan may name, as this machine has them."""
    used = [refs for _, task in _tasks(plan.graph, plan.graph.root, "") for refs in task.pod_config.key_refs]
    if not used:
        return ClusterObjects()
    configured = {"secret": plan.config.secrets, "config map": plan.config.config_maps}
    folder = Path.cwd() if plan.config.is_built_in else Path(plan.config.path).parent
    return look_up_objects(
        configured, used, folder, os.environ, lambda path: path.read_text("utf-8", "surrogateescape")
    )


def check_machine(place_of: PlaceOf, graph: TaskGraph, host: HostResources, containers: str) -> HostResources:
    """Check that this machine meets the needs of a plan's tasks. Returns ``host`` with the container runtime.

    ``containers`` is one of :data:`~spotwright.runs.run_options.CONTAINER_MODES`. Raises :class:`PipelineError` with the
    task, its line and every way out.
    """
    runtime = check_containers(place_of, graph, containers)
    for path, task in _tasks(graph, graph.root, ""):
        if not task.pod_config:
            continue
        try:
            for refs in task.pod_config.key_refs:
                if refs.name:
                    host.objects.environment(refs)
                    _ = host.objects.files(refs) if refs.mount else None
        except PipelineError as error:
            raise _refusal(place_of, path, f": {error}") from error
        if task.pod_config.mounts and not (runtime is not None and isinstance(task.executor, Container | PodTemplate)):
            _check_mounts(place_of, path, task.pod_config.mounts)
    return replace(host, containers=runtime)


def unmet_requests(plan: Plan, runtime: ContainerRuntime | None) -> list[str]:
    """Warnings for settings of tasks that this machine cannot honour."""
    return [
        *_not_fetched(plan),
        *_not_limited(plan, runtime),
        *_not_contained(plan, runtime),
        *_not_isolated(plan, runtime),
    ]


def _not_fetched(plan: Plan) -> Iterator[str]:
    """Warnings for constant addresses of importers that this machine cannot fetch."""
    for path, task in _tasks(plan.graph, plan.graph.root, ""):
        if not isinstance(task.executor, Importer) or _PLACEHOLDERS[0] in task.executor.uri:
            continue
        from spotwright.local.supervisor.fetch import EXTRAS

        uri = task.executor.uri
        module, extra = EXTRAS.get(uri.partition("://")[0], ("", ""))
        if uri.startswith(CLUSTER_ONLY):
            yield (
                f"{uri} (task {path}) exists only on a cluster: a task finds no file at its path; "
                "import a copy in a folder or a bucket here"
            )
        elif module and find_spec(module) is None:
            yield f"{uri} (task {path}) is not fetched: a task finds no file at its path; install spotwright[{extra}]"


def _not_limited(plan: Plan, runtime: ContainerRuntime | None) -> Iterator[str]:
    """Memory limits of tasks that run as processes of this machine, if it cannot enforce them."""
    limited = [
        path
        for path, task in _tasks(plan.graph, plan.graph.root, "")
        if "memory" in task.limits and not (runtime is not None and isinstance(task.executor, Container | PodTemplate))
    ]
    why = cgroups.why_not_enforced() if limited else ""
    if why:
        yield f"{why} (task {_some(limited)})"


def _not_contained(plan: Plan, runtime: ContainerRuntime | None) -> list[str]:
    """Warnings for limits and devices of containers that the runtime does not provide."""
    if runtime is None:
        return []
    tasks = _tasks(plan.graph, plan.graph.root, "")
    contained = [(path, task) for path, task in tasks if isinstance(task.executor, Container | PodTemplate)]
    notes = []
    if runtime.init is None:
        notes.append(
            f"{runtime.kind} finds no init program for its containers: a command that does not handle SIGTERM itself ends "
            "only by SIGKILL, after its grace period; install catatonit"
        )
    for limit in ("cpu", "memory"):
        limited = [path for path, task in contained if limit in task.limits]
        if limited and limit not in runtime.limits:
            notes.append(
                f"the {limit} limit of {_some(limited)} is not kept: {runtime.kind} may not limit {limit} for you on this machine"
            )
    for device, path in {device: path for path, task in contained for device in task.limits if "/" in device}.items():
        if device != "nvidia.com/gpu" or not runtime.gpus:
            notes.append(f"the container of {path} has no {device}: {runtime.kind} knows of none on this machine")
    return notes


def _not_isolated(plan: Plan, runtime: ContainerRuntime | None) -> Iterator[str]:
    """Warnings of what tasks that run as processes share with this machine, unlike pods."""
    tasks = _tasks(plan.graph, plan.graph.root, "")
    if any(not (runtime is not None and isinstance(task.executor, Container | PodTemplate)) for _, task in tasks):
        with interrupts_held():
            why = why_incomplete()
        if why:
            yield f"{why}; a checkpoint there survives here, and would be lost with a node"


def _some(paths: list[str]) -> str:
    return paths[0] + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


def _check_mounts(place_of: PlaceOf, path: str, mounts: tuple[str, ...]) -> None:
    why = _why_no_mounts()
    if why:
        text = f"mounts {', '.join(mounts)}, and {why}: run on another machine"
        raise _refusal(place_of, path, f" {text}, or with podman or docker if it is a container component")


@cache
def _why_no_mounts() -> str:
    with interrupts_held():
        return why_impossible()


def check_containers(place_of: PlaceOf, graph: TaskGraph, mode: str) -> ContainerRuntime | None:
    """The runtime of a graph's container components; ``None`` if it has none, or they run as processes of this machine.

    ``mode`` is one of :data:`~spotwright.runs.run_options.CONTAINER_MODES`. Raises :class:`PipelineError` with the
    task, its line and every way out if no runtime can run one.
    """
    containers = list(_containers(place_of, graph))
    if not containers:
        return None
    if mode == "host":
        for path, container in containers:
            _check_host(place_of, path, container)
        return None
    from spotwright.local.supervisor.containers import CLIS, detect_runtime

    refused = []
    for kind in CLIS if mode == "auto" else (mode,):
        runtime, why = detect_runtime(kind)
        if runtime is not None:
            return runtime
        refused.append(why)
    path, container = containers[0]
    others = f" (and {len(containers) - 1} more)" if len(containers) > 1 else ""
    raise _refusal(
        place_of,
        path,
        f" is a container component{others}, with the image {container.image}, and {'; '.join(refused)}: start one of them, or "
        "let its command run as a process of this machine with --containers host",
    )


def _containers(place_of: PlaceOf, graph: TaskGraph) -> Iterator[tuple[str, Container]]:
    """The containers of a graph's tasks. A pod counts as its only container, because no kubelet runs here."""
    for path, task in _tasks(graph, graph.root, ""):
        if isinstance(task.executor, Container):
            yield path, task.executor
        elif isinstance(task.executor, PodTemplate):
            try:
                yield path, task.executor.only_container()
            except ValueError as error:
                why = f" {error}: this machine runs pods of one container without volumes; run it on a cluster"
                raise _refusal(place_of, path, why) from error


def _check_host(place_of: PlaceOf, path: str, container: Container) -> None:
    import shutil

    if not container.command:
        raise _refusal(
            place_of,
            path,
            f" has no command: that of the image {container.image} is not known on this machine; give it a command, or leave "
            "out --containers host and start podman or docker",
        )
    if _EXECUTOR in container.command:
        raise _refusal(
            place_of,
            path,
            f" is a Python component whose code is in the image {container.image}: take its target_image out, so that the code "
            "travels with the pipeline, or leave out --containers host and start podman or docker",
        )
    program = container.command[0]
    if not any(mark in program for mark in _PLACEHOLDERS) and shutil.which(program) is None:
        raise _refusal(
            place_of,
            path,
            f" executes {program!r}, which is not on the PATH of this machine: install it, or leave out --containers host and "
            "start podman or docker",
        )


def _tasks(graph: TaskGraph, dag: Dag, path: str) -> Iterator[tuple[str, TaskSpec]]:
    """Every task except DAGs, with its path."""
    for name, task in dag.tasks.items():
        task_path = f"{path}/{name}" if path else name
        if task.dag is None:
            yield task_path, task
        else:
            yield from _tasks(graph, graph.dags[task.dag], task_path)


def _refusal(place_of: PlaceOf, path: str, why: str) -> PipelineError:
    return PipelineError(f"{place_of(path)}: task {path}{why}")
