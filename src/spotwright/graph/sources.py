"""The sources of values for inputs of tasks and outputs of DAGs.

A source is resolved in the scope of its task's DAG, so that the engine can unfold DAGs while the run goes on
(:mod:`spotwright.engine.io_resolution`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Constant", "DagInput", "FinalStatus", "OneOf", "OutputSource", "Source", "TaskOutput"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A value written in the graph. The graph's dialect fills in placeholders (:mod:`spotwright.graph.dialect`)."""

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
