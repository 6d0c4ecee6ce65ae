"""The graph of a compiled pipeline: from KFP's intermediate representation to the values the engine works with."""

from __future__ import annotations

from spotwright.pipelines.spec import (
    ArtifactSpec,
    Constant,
    Dag,
    DagInput,
    Executor,
    OutputSpecs,
    ParameterSpec,
    Pipeline,
    Source,
    TaskOutput,
    TaskSpec,
)

__all__ = [
    "ArtifactSpec",
    "Constant",
    "Dag",
    "DagInput",
    "Executor",
    "OutputSpecs",
    "ParameterSpec",
    "Pipeline",
    "Source",
    "TaskOutput",
    "TaskSpec",
]
