"""A compiled pipeline as a value that a run can store, so that it is compiled and parsed as YAML only once.

Its DAGs can be walked as in the document, or as a run unfolds them, with the names of their tasks: the keys, except for loops
and conditions that the user has named.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.kfp.kfp_settings import read_retry
from spotwright.model.policy import Layer

__all__ = [
    "PVC_IMAGES",
    "Compiled",
    "IrError",
    "MergedExecutor",
    "UnfoldedTask",
    "dag_tasks",
    "file_digests",
    "group_names",
    "is_exit_handler",
    "is_group",
    "merged_executors",
    "read_shared_json",
    "require_size",
    "sorted_json",
    "unfold",
]


_MAX_SHARED_KEYS = 5  # the mappings of a single task and its component; the whole pipeline's have more


@dataclass(frozen=True, slots=True)
class Compiled:
    """KFP's intermediate representation (IR) of one pipeline, in the JSON names of its protobuf messages, keys sorted.

    ``ir`` is the ``PipelineSpec``; ``platform`` the mapping below ``platforms`` of the platform document, often empty.
    ``source`` is the absolute path of the file it came from, ``pipeline`` the pipeline's name. ``files`` are digests of the
    user's source files by absolute path: while they are unchanged, so is the result. ``commits`` are digests of component texts
    by address, for addresses that name a commit.
    """

    ir: dict[str, Any]
    platform: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    pipeline: str = ""
    warnings: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)

    @property
    def first_tasks(self) -> int:
        """The number of tasks that do not wait for another; a loop or a pipeline counts as one."""
        tasks = self.ir.get("root", {}).get("dag", {}).get("tasks", {})
        return sum(not task.get("dependentTasks") for task in tasks.values())

    def to_data(self) -> dict[str, Any]:
        """The value as JSON data, part of a larger document. Its mappings are shared, not copied."""
        return {
            "ir": self.ir,
            "platform": self.platform,
            "source": self.source,
            "pipeline": self.pipeline,
            "warnings": list(self.warnings),
            "files": self.files,
            "commits": self.commits,
        }

    @classmethod
    def from_data(cls, document: Mapping[str, Any]) -> Compiled:
        """The value that :meth:`to_data` was called on. Raises ``KeyError`` for a document without its keys."""
        return cls(
            ir=document["ir"],
            platform=document["platform"],
            source=document["source"],
            pipeline=document["pipeline"],
            warnings=tuple(document["warnings"]),
            files=document["files"],
            commits=document.get("commits", {}),
        )


def read_shared_json(text: str) -> Any:
    """Read JSON that may hold a compiled pipeline; equal small mappings become one object, so they must not be changed.

    The SDK writes a component and an executor for every task, each with its whole source, so most of the text is repeated.
    """
    objects: dict[str, dict[str, Any]] = {}
    large: set[int] = set()

    def shared(item: dict[str, Any]) -> dict[str, Any]:
        if len(item) > _MAX_SHARED_KEYS or not large.isdisjoint(map(id, item.values())):
            large.add(id(item))  # every mapping around it is large too
            return item
        return objects.setdefault(repr(item), item)

    return json.loads(text, object_hook=shared)


def file_digests(paths: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files by path, in hex; files that cannot be read are left out."""
    digests = {}
    for path in paths:
        with contextlib.suppress(OSError):
            digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return digests


def sorted_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """Copy JSON data, the keys of every mapping in order: a protobuf map's come in a random order per process."""
    copy: dict[str, Any] = json.loads(json.dumps(value, sort_keys=True, default=_refuse))
    return copy


def _refuse(value: object) -> Any:
    raise ValueError(f"{type(value).__name__} is not a JSON value")


class MergedExecutor(NamedTuple):
    """An executor that several components share by mistake, and the executors left without a component."""

    label: str
    components: tuple[str, ...]
    unused: tuple[str, ...]


def merged_executors(ir: Mapping[str, Any]) -> list[MergedExecutor]:
    """The executors that were merged by mistake, in the order of their components, or empty.

    Takes raw IR: values other than mappings are ignored.
    """
    users: dict[str, list[str]] = {}
    for name, component in _mapping(ir.get("components")).items():
        label = _mapping(component).get("executorLabel")
        if label:
            users.setdefault(str(label), []).append(str(name))
    executors = _mapping(_mapping(ir.get("deploymentSpec")).get("executors"))
    unused = tuple(sorted(str(label) for label in executors if label not in users))
    if not unused:
        return []
    merged = [MergedExecutor(label, tuple(sorted(names)), unused) for label, names in users.items() if len(names) > 1]
    return sorted(merged, key=lambda found: found.components)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_GROUP = re.compile(r"(?:for-loop|condition|condition-branches|exit-handler)-\d+")


def group_names(tasks: Mapping[str, Any]) -> dict[str, str]:
    """The names of a DAG's tasks by their keys: a named loop, condition or exit handler (a group) has its own name.

    The compiler keys a group ``for-loop-12`` and keeps ``ParallelFor(name="loop")`` as its display name. A name that is not
    unique, or cannot be a part of a path, does not count.
    """
    shown = {key: _display_name(task) or key for key, task in tasks.items()}
    groups = {key for key, task in tasks.items() if is_group(key, task)}
    taken = Counter(shown[key] if key in groups else key for key in tasks)
    return {
        key: shown[key]
        if key in groups and taken[shown[key]] == 1 and shown[key] not in tasks and _is_path_part(shown[key])
        else key
        for key in tasks
    }


def is_group(key: str, task: Mapping[str, Any]) -> bool:
    """Whether a task is a loop, condition or exit handler that the compiler made, by its key in the document."""
    return _GROUP.fullmatch(key) is not None and "cachingOptions" not in task


def _display_name(task: Mapping[str, Any]) -> str:
    info = task.get("taskInfo")
    return str(info.get("name") or "") if isinstance(info, Mapping) else ""


def _is_path_part(text: str) -> bool:
    return "/" not in text and text not in (".", "..") and text.isprintable() and len(text) <= 100


PVC_IMAGES = {"argostub/createpvc": True, "argostub/deletepvc": False}
"""Images of ``CreatePVC`` (true) and ``DeletePVC``: the driver does the work and starts no pod (``driver/k8s.go``)."""

MAX_TASKS = 20_000
"""Nested pipelines multiply, so a small document can unfold to any number of tasks; runs of 10,000 are measured."""

MAX_LEVELS = 50
"""Pipelines inside one another: each is several calls deep here. Argo ends a workflow of more than 100."""

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

    ``path`` is its path in the run (``loop/train-3``). ``keys`` lead to it in the document; tasks of a pipeline used twice have
    equal keys and different paths. ``task``, ``definition`` and ``executor`` are the mappings of the task, its component and
    its executor. ``in_loop``: a loop runs it. ``in_exit_handler``: it is the exit task of a
    ``dsl.ExitHandler``, or inside one. ``enclosing_retry`` is the ``set_retry`` of the nearest pipeline around it.
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
        """Whether a pod runs its code: not for importers and steps that create or delete a volume claim."""
        container = self.executor.get("container")
        return isinstance(container, Mapping) and bool(container) and str(container.get("image")) not in PVC_IMAGES


class _Scope(NamedTuple):
    """Properties that the tasks of a DAG inherit."""

    path: str = ""
    in_loop: bool = False
    in_exit_handler: bool = False
    retry: Layer | None = None


def dag_tasks(ir: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield ``(component, key, task)`` for every task of every DAG, each once; the component of the root is empty.

    Values that are not mappings have no tasks.
    """
    for component, definition in [("", ir.get("root")), *_mapping(ir.get("components")).items()]:
        for key, task in _mapping(_mapping(_mapping(definition).get("dag")).get("tasks")).items():
            yield component, key, task


def unfold(ir: Mapping[str, Any]) -> Iterator[UnfoldedTask]:
    """Yield every task that has an executor, in the order of the document.

    Raises :class:`IrError` where the document contradicts itself: a missing component or executor, a value of the wrong kind,
    and what :func:`require_size` raises.
    """
    require_size(ir)
    return _Unfolding(ir).dag(("root",), _Scope())


class _Opened:
    """A DAG whose tasks are being counted. ``calls``: inner pipelines left to count, and the keys of tasks."""

    def __init__(self, name: str, keys: Keys, definition: Any) -> None:
        tasks = _mapping(_mapping(_mapping(definition).get("dag")).get("tasks"))
        self.name, self.size, self.levels = name, len(tasks), 1
        self.calls = [((*keys, "dag", "tasks", key), _called(task)) for key, task in reversed(list(tasks.items()))]


def require_size(ir: Mapping[str, Any]) -> None:
    """Raise :class:`IrError`, before unfolding, for a pipeline that is too large; each inner pipeline is counted once.

    It contains itself, or has more than :data:`MAX_TASKS` tasks (pipelines, loops and conditions count) or more than
    :data:`MAX_LEVELS` nested pipelines.
    """
    components = _mapping(ir.get("components"))
    counted: dict[str, _Opened] = {}
    opened = {"": _Opened("", ("root",), ir.get("root"))}
    while opened:
        name, dag = next(reversed(opened.items()))
        if not dag.calls:
            counted[name] = opened.pop(name)
            continue
        keys, inner = dag.calls[-1]
        if inner not in counted and "dag" in _mapping(components.get(inner)):
            if inner in opened:
                raise IrError(keys, f"the pipeline {inner} contains itself")
            opened[inner] = _Opened(inner, ("components", inner), components[inner])
        else:
            dag.calls.pop()
            if inner in counted:
                dag.size, dag.levels = dag.size + counted[inner].size, max(dag.levels, counted[inner].levels + 1)
        if dag.size > MAX_TASKS:
            raise IrError(keys, f"more than {MAX_TASKS:,} tasks, pipelines inside pipelines unfolded")
        if max(len(opened), dag.levels) > MAX_LEVELS:
            raise IrError(keys, f"more than {MAX_LEVELS} pipelines inside one another")


def _called(task: Any) -> str:
    return str(_mapping(_mapping(task).get("componentRef")).get("name") or "")


def is_exit_handler(task: Mapping[str, Any]) -> bool:
    """Whether a task is the exit task of a ``dsl.ExitHandler``.

    Like a task with ``ignore_upstream_failure``, it runs whatever happened before; the group before it identifies it.
    """
    upstream = task.get("dependentTasks")
    return (
        _mapping(task.get("triggerPolicy")).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        and isinstance(upstream, list)
        and any(str(name).startswith("exit-handler") for name in upstream)
    )


class _Unfolding:
    """One walk from the root of a pipeline of bounded size."""

    def __init__(self, ir: Mapping[str, Any]) -> None:
        self._ir = ir

    def dag(self, definition_keys: Keys, scope: _Scope) -> Iterator[UnfoldedTask]:
        dag_keys = (*definition_keys, "dag", "tasks")
        tasks = {key: _mapping_at(self._ir, (*dag_keys, key)) for key in _mapping_at(self._ir, dag_keys)}
        for key, name in group_names(tasks).items():
            path = f"{scope.path}/{name}" if scope.path else name
            yield from self._task((*dag_keys, key), tasks[key], path, scope)

    def _task(self, keys: Keys, task: Mapping[str, Any], path: str, scope: _Scope) -> Iterator[UnfoldedTask]:
        component, definition = self._component(task, keys)
        in_loop = scope.in_loop or any(iterator in task for iterator in _ITERATORS)
        in_exit_handler = scope.in_exit_handler or is_exit_handler(task)
        if "dag" not in definition:
            label, executor = self._executor(definition, component)
            yield UnfoldedTask(
                path, keys, task, component, definition, label, executor, in_loop, in_exit_handler, scope.retry
            )
        else:
            retry = _retry(task, keys) or scope.retry
            inner = _Scope(path, in_loop, in_exit_handler, retry)
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


def _mapping_at(value: Any, keys: Keys, above: Keys = ()) -> Mapping[str, Any]:
    """The mapping at a place, by default an empty one. Raises :class:`IrError` for any other value."""
    for depth, key in enumerate(keys, 1):
        value = value.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise IrError((*above, *keys[:depth]), f"expected a mapping, found {value!r:.60}")
    found: Mapping[str, Any] = value
    return found
