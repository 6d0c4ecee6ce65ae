"""What the engine sees of a pipeline: frozen values, free of YAML, protobuf and the KFP SDK.

A pipeline is a set of DAGs. A task is one step of a DAG: a Python function (it has an executor) or another DAG (it names
that DAG). Where a value comes from is a :data:`Source`, resolved in the DAG's own scope, so that the engine can unfold
DAGs while the run goes on. :mod:`spotwright.pipelines.graph` builds these values from a compiled pipeline.

Loops, conditions and exit handlers are DAGs too: what makes them special stands at the task that names the DAG (``loop``,
``condition``) or at the task that comes after it (``after_all``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spotwright.model.placing import Constraints
from spotwright.model.policy import Layer
from spotwright.model.pools import Resources
from spotwright.pipelines.conditions import Condition
from spotwright.pipelines.surroundings import Surroundings
from spotwright.pipelines.task_config import Passed

__all__ = [
    "RUNS_NOWHERE",
    "ArtifactSpec",
    "ClaimStep",
    "Constant",
    "Container",
    "Dag",
    "DagInput",
    "Executor",
    "FinalStatus",
    "Importer",
    "Loop",
    "OneOf",
    "OutputSource",
    "OutputSpecs",
    "ParameterSpec",
    "Pipeline",
    "Source",
    "TaskOutput",
    "TaskSpec",
]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value written in the pipeline. Its texts may hold placeholders such as ``{{$.inputs.parameters['x']}}``."""

    value: Any


@dataclass(frozen=True, slots=True)
class DagInput:
    """An input of the DAG in which the task stands. ``item`` leads to the part of it that is meant; empty: all of it."""

    name: str
    item: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """An output of another task of the same DAG."""

    task: str
    output: str


@dataclass(frozen=True, slots=True)
class FinalStatus:
    """How another task of the same DAG ended (``dsl.PipelineTaskFinalStatus``)."""

    task: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """The first of these outputs that is there (``dsl.OneOf``): the others belong to branches that were skipped."""

    outputs: tuple[TaskOutput, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """``dsl.ParallelFor``: the task's DAG runs once for each item.

    ``item`` is the DAG's input that holds the item. The items are the value of the task's own input ``items``, or ``raw``
    where that is empty. ``of_artifacts``: they are artifacts. ``limit`` is how many run at a time, 0: all of them.
    ``fields`` are inputs of the DAG that hold a field of the item, with the field.
    """

    item: str
    items: str = ""
    raw: tuple[Any, ...] = ()
    of_artifacts: bool = False
    limit: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)


Source = Constant | DagInput | TaskOutput | FinalStatus
"""Where the value of an input comes from."""

OutputSource = TaskOutput | OneOf
"""Where the value of a DAG's output comes from."""


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A declared parameter.

    ``type`` is KFP's word: ``STRING``, ``NUMBER_INTEGER``, ``NUMBER_DOUBLE``, ``BOOLEAN``, ``LIST`` or ``STRUCT``.
    ``default`` counts only where ``has_default`` says so, because ``None`` is a value. ``literals`` are the only values that it
    may have (``typing.Literal``); empty: any.
    """

    type: str
    optional: bool = False
    has_default: bool = False
    default: Any = None
    description: str = ""
    literals: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` for a value that is none of the literals."""
        if self.literals and value is not None and value not in self.literals:
            raise ValueError(f"{value!r:.60} is none of {', '.join(map(repr, self.literals))}")


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
    """What a task declares to produce."""

    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Executor:
    """How a lightweight Python component runs: a module's source, the function in it, and what it needs installed.

    ``packages`` are pip requirements in the component's order; ``kfp`` is the requirement by which the compiled command
    would install the SDK (empty: none). ``command`` is the compiled container command, the component's identity.
    """

    module: str
    function: str
    packages: tuple[str, ...] = ()
    index_urls: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    kfp: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Container:
    """How a container component runs: an image, its command and arguments with their placeholders, its environment.

    Without a ``command`` it is the image's own entry point. ``pull`` is Kubernetes' imagePullPolicy, empty where nothing was
    said. ``user``, ``group`` and ``non_root`` are its security context. ``shared_memory`` is the size of ``/dev/shm`` in bytes,
    0 for as large as it gets, ``None`` where nothing was said.
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
class Importer:
    """A task that gives an artifact by its address and runs nowhere. Address and metadata may hold placeholders."""

    output: str
    uri: str
    schema: str = "system.Artifact"
    version: str = "0.0.1"
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """A task that makes a persistent volume claim (``creates``) or deletes one. It runs nowhere, as on the cluster."""

    creates: bool


RUNS_NOWHERE = (Importer, ClaimStep)
"""The executors of tasks that have no attempts."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One step of a DAG. Exactly one of ``dag`` (it is a pipeline itself) and ``executor`` is set.

    ``parameters`` holds a source for every input that the pipeline gives, and under names that start with ``placement:``
    for what only the task's placement needs (see :func:`spotwright.pipelines.settings.settled`). Inputs without a source
    have a default in ``parameter_specs`` or are optional. ``after`` names the tasks of the same DAG that must have
    succeeded before: those of ``.after()`` and those whose outputs it uses. With ``after_all`` it is enough that they have
    ended in whatever way (exit handlers, ``ignore_upstream_failure``).

    A task with a ``condition`` is skipped where that does not hold, and so is what comes after it.

    ``retry`` is what ``set_retry`` and ``set_timeout`` said; of a task that is a pipeline it counts for the tasks inside
    that say nothing themselves, as in the KFP backend. ``config_inputs`` are its inputs of the type ``dsl.TaskConfig``, which are
    given ``config``. ``policy`` is what the pipeline said under ``platforms.spotwright``.
    ``requests`` follow Kubernetes: a limit without a request is the request.
    """

    name: str
    component: str
    dag: str | None = None
    executor: Executor | Container | Importer | ClaimStep | None = None
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
    surroundings: Surroundings = field(default_factory=Surroundings)
    passed: Passed = field(default_factory=Passed)
    config: Mapping[str, Any] = field(default_factory=dict)
    config_inputs: tuple[str, ...] = ()
    deferred: Mapping[str, Any] = field(default_factory=dict)  # settings that need input values: see settings.settled


@dataclass(frozen=True, slots=True)
class Dag:
    """A graph of tasks with inputs and outputs of its own. ``tasks`` stand in one fixed topological order."""

    component: str
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    artifacts: Mapping[str, ArtifactSpec] = field(default_factory=dict)
    tasks: Mapping[str, TaskSpec] = field(default_factory=dict)
    parameter_outputs: Mapping[str, OutputSource] = field(default_factory=dict)
    artifact_outputs: Mapping[str, OutputSource] = field(default_factory=dict)
    outputs: OutputSpecs = field(default_factory=OutputSpecs)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline. ``dags`` holds every DAG by component name, the root as ``root``; ``policy`` is its own default.

    ``ignored`` names the platform settings that mean nothing on one machine, to be said once. ``placed`` is what the
    configuration said of each task, by its path, when the file was placed for a cluster. ``notes`` are to be said once.
    ``active_deadline`` is how many seconds a whole run may take; ``None``: as long as it wants.
    """

    name: str
    root: Dag
    dags: Mapping[str, Dag]
    policy: Layer | None = None
    ignored: tuple[str, ...] = ()
    placed: Mapping[str, Layer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    active_deadline: float | None = None
