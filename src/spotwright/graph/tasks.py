"""Tasks, DAGs and the whole graph: frozen values, free of YAML, protobuf and the KFP SDK.

A graph is a set of DAGs. A task is one step of a DAG: it has an executor, or it names another DAG. Loops, conditions and exit
handlers are DAGs too. The task that names the DAG carries the ``loop`` or ``condition``; an exit handler has ``after_all``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spotwright.graph.declarations import ArtifactSpec, OutputSpecs, ParameterSpec
from spotwright.graph.dialect import PLAIN, Dialect
from spotwright.graph.executors import Executor
from spotwright.graph.pod_config import PodConfig
from spotwright.graph.sources import OutputSource, Source
from spotwright.model.policy import Layer
from spotwright.model.pools import Resources
from spotwright.model.scheduling_terms import Constraints

__all__ = ["Condition", "Dag", "Loop", "TaskGraph", "TaskSpec", "inherit_retry"]


class Condition(Protocol):
    """The condition of a task. ``str`` of it is for messages."""

    def holds(self, inputs: Mapping[str, Any]) -> bool:
        """Whether it holds for these input values. Raises ``ValueError`` if the result is neither true nor false."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The task's DAG runs once for each item (in KFP ``dsl.ParallelFor``).

    ``item`` is the DAG's input that holds the item. The items are the value of the task's own input ``items``, or ``raw``
    where that is empty. ``of_artifacts``: they are artifacts. ``limit`` is how many iterations run at a time, 0: all.
    ``fields`` are inputs of the DAG that hold a field of the item, with the field.
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

    ``parameters`` maps inputs to sources, also inputs that only the task's ``deferred`` settings need. Inputs without a source
    have a default in ``parameter_specs`` or are optional. ``after`` names the tasks of the same DAG that must have succeeded
    before. With ``after_all`` it is enough that they have ended in any way (exit handlers). A task whose ``condition`` does not
    hold is skipped, and so are its downstream tasks.

    ``requests`` and ``constraints`` are its needs; requests follow Kubernetes: a limit without a request is the request.
    ``retry`` is the weaker layer of its own policy, from the source's own settings (KFP's ``set_retry`` and ``set_timeout``);
    of a task that is a DAG it is inherited by the tasks inside that have none. ``policy`` is the layer that the source states
    for Spotwright. ``deferred`` are settings that need values of inputs; the graph's dialect reads them during the run.
    ``extension`` is data that only the source of the graph reads again.
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


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """A whole graph. ``dags`` holds every DAG by component name, the root as ``root``; ``policy`` is the graph's own default.

    ``ignored`` names settings of the source that have no effect on one machine. ``placed`` has the policy layer that each task,
    by its path, had when the source was placed for a cluster. ``notes`` are for the user. ``active_deadline`` is how many
    seconds a whole run may take; ``None``: no limit.
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


def inherit_retry(own: Layer | None, above: Layer | None) -> Layer | None:
    """The retry layer of a task inside a DAG: its own, else that of the task that is the DAG.

    ``above`` is the nearest such layer. Source: ``backend/src/v2/compiler/visitor.go`` of kubeflow/pipelines.
    """
    if own is None or above is None or "errors.retries" in own.values:
        return own or above
    return Layer(f"{above.source} and {own.source}", {**above.values, **own.values})
