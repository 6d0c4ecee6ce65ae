"""Walk the DAGs of a compiled pipeline: every DAG as the document has it, and every task as a run unfolds it.

A pipeline inside a pipeline is one component, however many tasks use it. :func:`dag_tasks` visits each DAG once, to edit or
search the document. :func:`unfold` follows the tasks from the root, as a run does, and yields those that have an executor.

Both take raw IR, as YAML or JSON parsed it: it need not have been checked against KFP's protobuf messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from spotwright.model.policy import Layer
from spotwright.pipelines.ir.kfp_settings import read_retry
from spotwright.pipelines.ir.task_names import group_names

__all__ = ["PVC_IMAGES", "IrError", "UnfoldedTask", "dag_tasks", "is_exit_handler", "unfold"]

PVC_IMAGES = {"argostub/createpvc": True, "argostub/deletepvc": False}
"""Images of ``CreatePVC`` (true) and ``DeletePVC``: the driver acts itself and starts no pod (``driver/k8s.go``)."""

MAX_TASKS = 100_000
"""Nested pipelines multiply, so a small document can unfold to any number of tasks."""

_ITERATORS = ("parameterIterator", "artifactIterator")

Keys = tuple[str, ...]
"""The keys that lead from the top of the pipeline document to a value."""


class IrError(ValueError):
    """The document contradicts itself. ``keys`` lead to the place; the text says what is wrong there."""

    def __init__(self, keys: Keys, text: str) -> None:
        super().__init__(text)
        self.keys = keys


class UnfoldedTask(NamedTuple):
    """One task that has an executor, as a run knows it.

    ``path`` is its path in the run (``loop/train-3``). ``keys`` lead to it in the document; tasks of a pipeline that is used
    twice have the same keys and different paths. ``task``, ``definition`` and ``executor`` are the mappings of the task,
    its component and its executor. ``in_loop``: an iteration of a loop runs it. ``in_exit_handler``: it is the exit task of a
    ``dsl.ExitHandler``, or stands inside one. ``enclosing_retry`` is the ``set_retry`` of the nearest pipeline around it.
    """

    path: str
    keys: Keys
    task: Mapping[str, Any]
    component: str
    definition: Mapping[str, Any]
    label: str
    executor: Mapping[str, Any]
    in_loop: bool = False
    in_exit_handler: bool = False
    enclosing_retry: Layer | None = None

    @property
    def has_pod(self) -> bool:
        """Whether a pod runs its code: an importer has none, nor has a step that creates or deletes a volume claim."""
        container = self.executor.get("container")
        return isinstance(container, Mapping) and bool(container) and container.get("image") not in PVC_IMAGES


class _Scope(NamedTuple):
    """Properties that the tasks of a DAG inherit. ``components`` are the pipelines around the DAG, outermost first."""

    path: str = ""
    in_loop: bool = False
    in_exit_handler: bool = False
    retry: Layer | None = None
    components: tuple[str, ...] = ()


def dag_tasks(ir: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(component, key, task)`` for every task of every DAG, each once; the component of the root is empty.

    Where the document has something else than a mapping, there are no tasks.
    """
    for component, definition in [("", ir.get("root")), *_mapping(ir.get("components")).items()]:
        for key, task in _mapping(_mapping(_mapping(definition).get("dag")).get("tasks")).items():
            yield component, key, task


def unfold(ir: Mapping[str, Any]) -> Iterator[UnfoldedTask]:
    """Yield every task that has an executor, in the order of the document.

    Raises :class:`IrError` where the document contradicts itself: a missing component or executor, a pipeline that contains
    itself, a value of the wrong kind, more than :data:`MAX_TASKS` tasks.
    """
    return _Unfolding(ir).dag(("root",), _Scope())


def is_exit_handler(task: Mapping[str, Any]) -> bool:
    """Whether a task is the exit task of a ``dsl.ExitHandler``.

    It runs however the tasks before it ended, as one with ``ignore_upstream_failure`` does; the group before it is the mark.
    """
    upstream = task.get("dependentTasks")
    return (
        _mapping(task.get("triggerPolicy")).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        and isinstance(upstream, list)
        and any(str(name).startswith("exit-handler") for name in upstream)
    )


class _Unfolding:
    """One walk from the root; it counts pipelines too, so that it ends where they hold no task."""

    def __init__(self, ir: Mapping[str, Any]) -> None:
        self._ir = ir
        self._count = 0

    def dag(self, definition_keys: Keys, scope: _Scope) -> Iterator[UnfoldedTask]:
        dag_keys = (*definition_keys, "dag", "tasks")
        tasks = {key: _mapping_at(self._ir, (*dag_keys, key)) for key in _mapping_at(self._ir, dag_keys)}
        for key, name in group_names(tasks).items():
            path = f"{scope.path}/{name}" if scope.path else name
            yield from self._task((*dag_keys, key), tasks[key], path, scope)

    def _task(self, keys: Keys, task: Mapping[str, Any], path: str, scope: _Scope) -> Iterator[UnfoldedTask]:
        self._count += 1
        if self._count > MAX_TASKS:
            raise IrError(keys, f"more than {MAX_TASKS} tasks, pipelines inside pipelines unfolded")
        component, definition = self._component(task, keys)
        in_loop = scope.in_loop or any(iterator in task for iterator in _ITERATORS)
        in_exit_handler = scope.in_exit_handler or is_exit_handler(task)
        if "dag" not in definition:
            label, executor = self._executor(definition, component)
            yield UnfoldedTask(
                path, keys, task, component, definition, label, executor, in_loop, in_exit_handler, scope.retry
            )
        elif component in scope.components:
            raise IrError(keys, f"the pipeline {component} contains itself")
        else:
            retry = _retry(task, keys) or scope.retry
            inner = _Scope(path, in_loop, in_exit_handler, retry, (*scope.components, component))
            yield from self.dag(("components", component), inner)

    def _component(self, task: Mapping[str, Any], keys: Keys) -> tuple[str, Mapping[str, Any]]:
        name = str(_mapping_at(task, ("componentRef",), keys).get("name") or "")
        if _mapping_at(self._ir, ("components",)).get(name) is None:
            raise IrError(keys, f"its component {name!r} is not in components")
        return name, _mapping_at(self._ir, ("components", name))

    def _executor(self, definition: Mapping[str, Any], component: str) -> tuple[str, Mapping[str, Any]]:
        label = str(definition.get("executorLabel") or "")
        keys = ("deploymentSpec", "executors")
        if _mapping_at(self._ir, keys).get(label) is None:
            raise IrError(("components", component), f"its executor {label!r} is not in deploymentSpec.executors")
        return label, _mapping_at(self._ir, (*keys, label))


def _retry(task: Mapping[str, Any], keys: Keys) -> Layer | None:
    try:
        return read_retry(task.get("retryPolicy"), None)
    except (ValueError, TypeError, AttributeError) as error:
        raise IrError((*keys, "retryPolicy"), f"cannot be read: {error}") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mapping_at(value: Any, keys: Keys, above: Keys = ()) -> Mapping[str, Any]:
    """The mapping at a place; an empty one where nothing is. Raises :class:`IrError` for any other value."""
    for depth, key in enumerate(keys, 1):
        value = value.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise IrError((*above, *keys[:depth]), f"expected a mapping, found {value!r:.60}")
    found: Mapping[str, Any] = value
    return found
