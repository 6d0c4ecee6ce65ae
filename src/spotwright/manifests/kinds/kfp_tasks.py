"""The tasks of a compiled pipeline, found through its DAGs: where each stands, which executor runs it, what it says itself.

An executor's settings count for every task that names it: through its component, and again through each use of the pipeline
around it. So tasks are listed by their path, as in a run, and an executor may be that of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.manifests.context import Context
from spotwright.manifests.documents import Path
from spotwright.manifests.pairs import EXECUTORS
from spotwright.model.kfp_settings import group_names, inherit_retry, read_policy_text, read_retry
from spotwright.model.policy import Layer, Policy

__all__ = ["Home", "Task", "list_tasks", "mapping_at", "mixed_up", "policy_of"]

_MOST = 100_000  # tasks; pipelines inside pipelines multiply
_NO_POD = ("argostub/createpvc", "argostub/deletepvc")  # images for which the driver acts itself (driver/k8s.go)
_ITERATORS = ("parameterIterator", "artifactIterator")
_AFTER_ALL = "ALL_UPSTREAM_TASKS_COMPLETED"
_STAYS = "it is an exit handler, which has to run whatever happened"


@dataclass(frozen=True, slots=True)
class Home:
    """Where the two halves of a compiled pipeline stand: the pipeline, and the mapping of its platforms."""

    pipeline: Path
    platforms: Path

    def executor(self, label: str) -> Path:
        """What an executor runs."""
        return (*self.pipeline, "deploymentSpec", "executors", label)

    def settings(self, label: str) -> Path:
        """The Kubernetes settings of an executor."""
        return (*self.platforms, *EXECUTORS, label)

    def policy(self, label: str) -> Path:
        """What the pipeline says of spot for an executor."""
        return (*self.platforms, "spotwright", *EXECUTORS[1:], label, "policy")


@dataclass(frozen=True, slots=True)
class Task:
    """One task that runs in a pod. ``at`` is its place in the document, which it may share with the same task of another path.

    ``retry`` is what ``set_retry`` and ``set_timeout`` say of it, its own or of the pipeline around it.
    """

    path: str
    at: Path
    component: str
    label: str
    retry: Layer | None = None
    loops: bool = False
    stays: str = ""


@dataclass(slots=True)
class _Walk:
    ctx: Context
    home: Home
    found: list[Task] = field(default_factory=list)

    def dag(self, at: Path, path: str, above: Layer | None, *, loops: bool, opened: tuple[str, ...]) -> None:
        tasks = mapping_at(self.ctx, (*at, "dag", "tasks"))
        for key, name in group_names({key: mapping_at(self.ctx, (*at, "dag", "tasks", key)) for key in tasks}).items():
            here = (*at, "dag", "tasks", key)
            task = mapping_at(self.ctx, here)
            inside = f"{path}/{name}" if path else str(name)
            if len(self.found) >= _MOST:
                raise self.ctx.problem(here, f"more than {_MOST} tasks, pipelines inside pipelines unfolded")
            component, definition = self._component(here)
            loop = loops or any(key in task for key in _ITERATORS)
            if "dag" not in mapping_at(self.ctx, definition):
                stays = _STAYS if _is_exit_handler(task) else ""
                self._leaf(Task(inside, here, component, "", above, loop, stays), definition)
            elif component in opened:
                raise self.ctx.problem(here, f"the pipeline {component} contains itself")
            else:
                own = self._retry(here, None) or above
                self.dag(definition, inside, own, loops=loop, opened=(*opened, component))

    def _component(self, task: Path) -> tuple[str, Path]:
        name = str(mapping_at(self.ctx, (*task, "componentRef")).get("name", ""))
        definition = (*self.home.pipeline, "components", name)
        if self.ctx.editor.get(definition) is None:
            raise self.ctx.problem(task, f"its component {name!r} is not in components")
        return name, definition

    def _leaf(self, task: Task, definition: Path) -> None:
        label = str(mapping_at(self.ctx, definition).get("executorLabel", ""))
        executor = self.home.executor(label)
        if self.ctx.editor.get(executor) is None:
            raise self.ctx.problem(definition, f"its executor {label!r} is not in deploymentSpec.executors")
        container = mapping_at(self.ctx, (*executor, "container"))
        if not container or container.get("image") in _NO_POD:
            return  # an importer, or what the driver does itself
        timeout = mapping_at(self.ctx, self.home.settings(label)).get("activeDeadlineSeconds")
        retry = inherit_retry(self._retry(task.at, timeout), task.retry)
        self.found.append(Task(task.path, task.at, task.component, label, retry, task.loops, task.stays))

    def _retry(self, task: Path, timeout: Any) -> Layer | None:
        given = mapping_at(self.ctx, task).get("retryPolicy")
        try:
            return read_retry(given, float(timeout) if timeout else None)
        except (ValueError, TypeError, AttributeError) as error:
            raise self.ctx.problem((*task, "retryPolicy"), f"cannot be read: {error}") from error


def list_tasks(ctx: Context, home: Home) -> list[Task]:
    """Every task that runs in a pod, with its path. Raises :class:`ManifestError` where the document contradicts itself."""
    walk = _Walk(ctx, home)
    walk.dag((*home.pipeline, "root"), "", None, loops=False, opened=())
    return walk.found


def mixed_up(ctx: Context, home: Home) -> dict[str, str]:
    """What the compiler of the SDK mixed up, by the label of the executor that it gave to several components.

    It renames the executors of nested pipelines one after another, and may give two of them one name: then one executor has
    several components, and another one has none. A pipeline that was compiled well has neither. Seen with kfp 2.17.0
    (``_rename_executor_labels`` in ``kfp/compiler/pipeline_spec_builder.py``), at random from one compilation to the next.
    """
    users: dict[str, list[str]] = {}
    for name in mapping_at(ctx, (*home.pipeline, "components")):
        label = mapping_at(ctx, (*home.pipeline, "components", name)).get("executorLabel")
        if label is not None:
            users.setdefault(str(label), []).append(str(name))
    idle = [label for label in mapping_at(ctx, home.executor("")[:-1]) if label not in users]
    if not idle:
        return {}
    return {
        label: (
            f"the components {' and '.join(names)} share the executor {label}, and {', '.join(idle)} is used by none: the "
            "compiler of the SDK mixed them up, so the image, resources and settings of one are lost; compile again until no "
            "executor is left over, or give the components of nested pipelines names of their own"
        )
        for label, names in users.items()
        if len(names) > 1
    }


def _is_exit_handler(task: Mapping[str, Any]) -> bool:
    """Whether a task is what ``dsl.ExitHandler`` runs at the end: whatever happened, after the group of that name."""
    trigger = task.get("triggerPolicy")
    before = task.get("dependentTasks")
    return (
        isinstance(trigger, dict)
        and trigger.get("strategy") == _AFTER_ALL
        and isinstance(before, list)
        and any(str(name).startswith("exit-handler") for name in before)
    )


def policy_of(ctx: Context, home: Home, task: Task) -> Policy:
    """The policy of a task, as a run of the pipeline would have it."""
    said = [*_said(ctx, (*home.platforms, "spotwright", "config", "policy")), *_said(ctx, home.policy(task.label))]
    return ctx.policy(task.path, stays=task.stays, said=said, kfp=task.retry)


def _said(ctx: Context, path: Path) -> Iterator[Layer]:
    text = ctx.editor.get(path)
    if text is not None:
        try:
            yield read_policy_text(text)
        except (ValueError, TypeError) as error:
            raise ctx.problem(path, str(error)) from error


def mapping_at(ctx: Context, path: Path) -> Mapping[str, Any]:
    """The mapping at a path; an empty one where nothing is. Raises :class:`ManifestError` for anything else."""
    value = ctx.editor.get(path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ctx.problem(path, f"expected a mapping, found {value!r}")
    return value
