"""The task graph: tasks with needs, policy, inputs and dependencies, independent of their source.

Frozen values, free of YAML, protobuf and the KFP SDK. A graph is a set of DAGs. A task is one step of a DAG: it has an
executor, or it names another DAG. Loops, conditions and exit handlers are DAGs too. The task that names the DAG carries the
``loop`` or ``condition``; an exit handler has ``after_all``.

The :class:`Dialect` of a graph has its source's conventions for values, such as KFP's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, NamedTuple, Protocol

from spotwright.errors import InputError
from spotwright.model.policy import Layer
from spotwright.model.pools import Pool, Resources
from spotwright.model.scheduling_terms import Constraints
from spotwright.model.task_names import NUMBER, matches, no_such_task

__all__ = [
    "PLAIN",
    "ArtifactSpec",
    "Condition",
    "Constant",
    "Container",
    "Dag",
    "DagInput",
    "Dialect",
    "Executor",
    "FinalStatus",
    "KeyRefs",
    "Loop",
    "OneOf",
    "OutputSource",
    "OutputSpecs",
    "ParameterSpec",
    "PlainDialect",
    "PodConfig",
    "PodTemplate",
    "PvcMount",
    "RunsNowhere",
    "ScratchVolume",
    "Source",
    "TaskContext",
    "TaskEnd",
    "TaskGraph",
    "TaskOutput",
    "TaskSpec",
    "TemplateReader",
    "WrittenTask",
]


class TaskContext(NamedTuple):
    """The task and the run to which placeholders of a graph may refer.

    ``run`` is the run's name, ``task`` the task's path, ``name`` its name in its DAG, ``created_at`` the run's start as Unix
    time, ``workspace`` the folder that all tasks of the run share.
    """

    run: str
    task: str
    created_at: float
    name: str = ""
    workspace: str = ""


class TaskEnd(NamedTuple):
    """The end of a task: ``status`` is ``succeeded``, ``failed``, ``skipped`` or ``cancelled``; ``error`` says why it failed."""

    run: str
    name: str
    status: str
    cached: bool = False
    error: str = ""


class Dialect(Protocol):
    """The meaning of strings and values in the graphs of one source."""

    def fill(
        self, value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> Any:
        """The JSON value with its placeholders filled in."""

    def parse(self, text: str) -> Any:
        """The list or mapping that a string contains. Raises ``ValueError``."""

    def condition_inputs(self, specs: Mapping[str, ParameterSpec], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs of a task in the form that its condition reads."""

    def final_status(self, end: TaskEnd) -> Any:
        """The value of an input for the final status of another task."""

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
        """The task with its ``deferred`` settings read from the values of its inputs. Raises :class:`PipelineError`."""

    def shown(self, name: str) -> str:
        """An input's name as the user wrote it, for messages."""


@dataclass(frozen=True, slots=True)
class PlainDialect:
    """Literal values: no placeholders, no deferred settings."""

    def fill(
        self,
        value: Any,
        parameters: Mapping[str, Any],  # noqa: ARG002 - the port defines the parameters
        artifacts: Mapping[str, Any],  # noqa: ARG002
        context: TaskContext,  # noqa: ARG002
    ) -> Any:
        """The value itself."""
        return value

    def parse(self, text: str) -> Any:
        """Refuse: a string is just a string."""
        raise ValueError(f"the string {text[:60]!r} contains neither a list nor a mapping")

    def condition_inputs(
        self,
        specs: Mapping[str, ParameterSpec],  # noqa: ARG002
        values: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """The values themselves."""
        return values

    def final_status(self, end: TaskEnd) -> Any:
        """The status in one word."""
        return end.status

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:  # noqa: ARG002
        """The task itself."""
        return task

    def shown(self, name: str) -> str:
        """The name itself."""
        return name


PLAIN: Dialect = PlainDialect()
"""The dialect of graphs without placeholders."""


@dataclass(frozen=True, slots=True)
class Executor:
    """The base of all executors."""

    @property
    def environment(self) -> Hashable | None:
        """A key of the Python environment that an attempt needs beside the backend's; ``None``: none."""
        return None


@dataclass(frozen=True, slots=True)
class Container(Executor):
    """An image, its command and arguments, and its environment. The graph's dialect may fill in its texts.

    Without a ``command`` the image's entry point runs. ``pull`` is Kubernetes' imagePullPolicy, empty if the source does not
    set it. ``user``, ``group`` and ``non_root`` are its security context. ``shared_memory`` is the size of ``/dev/shm`` in
    bytes, 0 for unlimited, ``None`` if the source does not set it.
    """

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    pull: str = ""
    user: int | None = None
    group: int | None = None
    non_root: bool = False
    shared_memory: int | None = None


@dataclass(frozen=True, slots=True)
class PodTemplate(Executor):
    """The Kubernetes pod of an attempt: its spec, and the ``kind`` of its object."""

    kind: str
    spec: Mapping[str, Any]

    def only_container(self) -> Container:
        """The pod's only container, for a backend without pods.

        Raises ``ValueError`` for a pod that needs more of Kubernetes: other containers, volumes, variables from elsewhere.
        """
        containers: Sequence[Mapping[str, Any]] = self.spec.get("containers") or ()
        if len(containers) != 1 or self.spec.get("initContainers"):
            raise ValueError("has more containers than one, or none")
        container = containers[0]
        if container.get("volumeMounts"):
            raise ValueError("mounts volumes")
        variables = container.get("env") or ()
        if container.get("envFrom") or any("valueFrom" in variable for variable in variables):
            raise ValueError("reads environment variables from other objects (envFrom, valueFrom)")
        security = {**(self.spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
        return Container(
            image=container.get("image", ""),
            command=tuple(container.get("command") or ()),
            args=tuple(container.get("args") or ()),
            env={variable["name"]: variable.get("value", "") for variable in variables},
            pull=container.get("imagePullPolicy", ""),
            user=security.get("runAsUser"),
            group=security.get("runAsGroup"),
            non_root=bool(security.get("runAsNonRoot")),
        )


@dataclass(frozen=True, slots=True)
class RunsNowhere(Executor, ABC):
    """A step without attempts: the engine computes its outputs from its inputs (in KFP an importer, a PVC step)."""

    @abstractmethod
    def outputs(
        self, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> dict[str, Any]:
        """The outputs under ``parameters`` and ``artifacts``, from the resolved and filled inputs.

        Raises ``ValueError`` for inputs without a result, which fails the task.
        """


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A declared parameter.

    ``type`` is one of KFP's types: ``STRING``, ``NUMBER_INTEGER``, ``NUMBER_DOUBLE``, ``BOOLEAN``, ``LIST`` or ``STRUCT``.
    ``default`` counts only if ``has_default`` is set, because ``None`` is a value too. ``literals`` are the allowed values
    (``typing.Literal``); empty: any value.
    """

    type: str
    optional: bool = False
    has_default: bool = False
    default: Any = None
    description: str = ""
    literals: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` for a value that is not allowed."""
        if self.literals and value is not None and value not in self.literals:
            raise ValueError(f"{value!r:.60} is not one of {', '.join(map(repr, self.literals))}")


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """A declared artifact. ``schema`` is its title (``system.Dataset``) with its version."""

    schema: str = "system.Artifact"
    version: str = "0.0.1"
    is_list: bool = False
    optional: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""


@dataclass(frozen=True, slots=True)
class OutputSpecs:
    """The outputs that a task declares. Without any, the exit code alone decides success."""

    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactSpec] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.parameters or self.artifacts)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value written in the graph. The graph's dialect fills in placeholders (:mod:`spotwright.graph`)."""

    value: Any


@dataclass(frozen=True, slots=True)
class DagInput:
    """An input of the task's DAG. ``item`` is the path (keys, indexes) to a part of its value; empty: the whole value."""

    name: str
    item: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """An output of another task of the same DAG."""

    task: str
    output: str


@dataclass(frozen=True, slots=True)
class FinalStatus:
    """How another task of the same DAG ended (in KFP ``dsl.PipelineTaskFinalStatus``)."""

    task: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first of these outputs that exists (in KFP ``dsl.OneOf``): the others belong to branches that were skipped."""

    outputs: tuple[TaskOutput, ...]


Source = Constant | DagInput | TaskOutput | FinalStatus
"""The source of an input's value."""

OutputSource = TaskOutput | OneOf
"""The source of a DAG output's value."""


@dataclass(frozen=True, slots=True)
class KeyRefs:
    """Keys of one secret or config map (``kind``): as variables, or all of them as files below ``mount``.

    ``env`` maps variables to keys. ``name`` is empty while it depends on inputs of the task.
    """

    kind: str
    name: str
    optional: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    mount: str = ""


@dataclass(frozen=True, slots=True)
class PvcMount:
    """A persistent volume claim at a path; ``below`` is a path within the volume (subPath)."""

    name: str
    mount: str
    below: str = ""


@dataclass(frozen=True, slots=True)
class ScratchVolume:
    """An empty volume of one attempt (emptyDir, ephemeral volume), in memory or on disk; ``size`` in bytes."""

    name: str
    mount: str
    in_memory: bool = False
    size: int | None = None


@dataclass(frozen=True, slots=True)
class PodConfig:
    """Variables and mounts of one task's pod. ``fields`` maps variables to fields of the pod."""

    key_refs: tuple[KeyRefs, ...] = ()
    pvcs: tuple[PvcMount, ...] = ()
    scratch: tuple[ScratchVolume, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def mounts(self) -> tuple[str, ...]:
        """Every path at which something is mounted."""
        paths = [*(refs.mount for refs in self.key_refs if refs.mount), *(pvc.mount for pvc in self.pvcs)]
        return (*paths, *(volume.mount for volume in self.scratch))

    def __bool__(self) -> bool:
        return bool(self.key_refs or self.pvcs or self.scratch or self.fields)


class Condition(Protocol):
    """The condition of a task. ``str`` of it is for messages."""

    def holds(self, inputs: Mapping[str, Any]) -> bool:
        """Whether it holds for these input values. Raises ``ValueError`` if the result is neither true nor false."""

    def operands(self) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """The names of the inputs that it reads, and the constants in it, in its order."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The task's DAG runs once for each item (in KFP ``dsl.ParallelFor``).

    ``item`` is the DAG's input that holds the item. The items are the value of the task's own input ``items``, or ``raw`` if
    that is empty. ``of_artifacts``: they are artifacts. ``limit`` is the number of parallel iterations, 0: all. ``fields`` are
    inputs of the DAG that hold a field of the item, with the field.
    """

    item: str
    items: str = ""
    raw: tuple[Any, ...] = ()
    of_artifacts: bool = False
    limit: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One step of a DAG. Exactly one of ``dag`` (it is a DAG itself) and ``executor`` is set.

    ``component`` is the name of its definition in the source of the graph.

    ``parameters`` maps inputs to sources, including inputs only for the task's ``deferred`` settings. Inputs without a source
    have a default in ``parameter_specs`` or are optional. ``after`` names the tasks of the same DAG that must have succeeded
    before. With ``after_all`` any end suffices (exit handlers). A task with a false ``condition`` is skipped, and so are its
    downstream tasks.

    ``requests`` and ``constraints`` are its needs; requests follow Kubernetes: a limit without a request is the request.
    ``retry`` is the weaker layer of its policy, from the source's own settings (KFP's ``set_retry`` and ``set_timeout``); tasks
    inside a DAG without one inherit the DAG task's. ``policy`` is the source's layer for Spotwright. ``deferred`` are settings
    that need values of inputs; the graph's dialect reads them during the run. ``extension`` is data for the source of the
    graph.
    """

    name: str
    component: str
    dag: str | None = None
    executor: Executor | None = None
    parameters: Mapping[str, Source] = field(default_factory=dict)
    artifacts: Mapping[str, Source] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    after_all: bool = False
    condition: Condition | None = None
    loop: Loop | None = None
    parameter_specs: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifact_specs: Mapping[str, ArtifactSpec] = field(default_factory=dict)
    outputs: OutputSpecs = field(default_factory=OutputSpecs)
    requests: Resources = field(default_factory=dict)
    limits: Resources = field(default_factory=dict)
    retry: Layer | None = None
    policy: Layer | None = None
    caching: bool = True
    cache_key: str = ""
    constraints: Constraints = field(default_factory=Constraints)
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_config: PodConfig = field(default_factory=PodConfig)
    deferred: Mapping[str, Any] = field(default_factory=dict)
    extension: object = None


@dataclass(frozen=True, slots=True)
class Dag:
    """Tasks with their own inputs and outputs. ``tasks`` is in a fixed topological order."""

    component: str
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactSpec] = field(default_factory=dict)
    tasks: Mapping[str, TaskSpec] = field(default_factory=dict)
    parameter_outputs: Mapping[str, OutputSource] = field(default_factory=dict)
    artifact_outputs: Mapping[str, OutputSource] = field(default_factory=dict)
    outputs: OutputSpecs = field(default_factory=OutputSpecs)


TemplateReader = Callable[[TaskSpec | None, Mapping[str, Any], Mapping[str, Pool]], TaskSpec]
"""Reads a template from its data in the form of the graph's source; the first argument is the known template."""


_MOST_TRIED = 64  # iterations compared with a name


class WrittenTask(NamedTuple):
    """A task with attempts in the graph: its names from the root, and which of them have an iteration's number."""

    names: tuple[str, ...]
    repeated: tuple[bool, ...]

    @property
    def path(self) -> str:
        """Its path without numbers of iterations."""
        return "/".join(self.names)

    def meant_by(self, name: str) -> str:
        """The path of the first iteration that a name means; empty if the name means another task."""
        if matches(name, self.path):
            return self._path(iter([0] * len(self.names)))
        numbers = list(dict.fromkeys([0, *map(int, NUMBER.findall(name))]))
        tried = islice(product(numbers, repeat=sum(self.repeated)), _MOST_TRIED)
        return next((path for path in map(self._path, map(iter, tried)) if matches(name, path)), "")

    def _path(self, numbers: Iterator[int]) -> str:
        pairs = zip(self.names, self.repeated, strict=True)
        return "/".join(f"{name}-{next(numbers)}" if repeated else name for name, repeated in pairs)


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """A whole graph. ``dags`` holds every DAG by component name, the root as ``root``; ``policy`` is the graph's own default.

    ``ignored`` names settings of the source that have no effect on one machine. ``placed`` has the policy layer that each task,
    by its path, had when the source was placed for a cluster. ``notes`` are for the user. ``active_deadline`` is the limit of a
    whole run in seconds; ``None``: no limit. ``read_template`` reads a template that becomes known during the run, from the
    known one, the new data and the pools; ``None``: the graph is complete.
    """

    name: str
    root: Dag
    dags: Mapping[str, Dag]
    policy: Layer | None = None
    ignored: tuple[str, ...] = ()
    placed: Mapping[str, Layer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    active_deadline: float | None = None
    dialect: Dialect = PLAIN
    read_template: TemplateReader | None = None

    def with_template(self, data: Mapping[str, Any], pools: Mapping[str, Pool]) -> TaskGraph:
        """The graph with one more task in its root, or an extended one. All other tasks are the same objects.

        Raises :class:`ValueError` for a graph that is complete, and the errors of its source.
        """
        if self.read_template is None:
            raise ValueError(f"the graph of {self.name} is complete")
        spec = self.read_template(self.root.tasks.get(data["name"]), data, pools)
        root = replace(self.root, tasks={**self.root.tasks, spec.name: spec})
        return replace(self, root=root, dags={**self.dags, "root": root})

    def written_tasks(self) -> list[WrittenTask]:
        """The tasks that may have attempts, in the order of the graph."""
        return list(_written(self, self.root))

    def find_task(self, name: str) -> str:
        """The path of the one task that a name means; in a loop the path of its first iteration, or of the named one.

        Raises :class:`InputError` for a name that means none or several.
        """
        written = {task.path: task for task in self.written_tasks()}
        all_meant = {path: task.meant_by(name) for path, task in written.items()}
        meant = {path: iteration for path, iteration in all_meant.items() if iteration}
        exact = {path: iteration for path, iteration in meant.items() if name in (path, iteration)}
        # A task work-2 precedes iteration 2 of a task work.
        by_name = {path: iteration for path, iteration in meant.items() if matches(name, path)}
        found = exact or by_name or meant
        if not found:
            raise InputError(f"matches no task{no_such_task(name, written)}")
        if len(found) > 1:
            raise InputError(f"means {len(found)} tasks: {', '.join(found)}; name one of them")
        return next(iter(found.values()))


def _written(
    graph: TaskGraph, dag: Dag, names: tuple[str, ...] = (), repeated: tuple[bool, ...] = (), *, in_loop: bool = False
) -> Iterator[WrittenTask]:
    for name, spec in dag.tasks.items():
        task = WrittenTask((*names, name), (*repeated, in_loop))
        if spec.dag is None:
            yield task
        else:
            yield from _written(graph, graph.dags[spec.dag], *task, in_loop=spec.loop is not None)
