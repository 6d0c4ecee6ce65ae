"""KFP's conventions for values, behind the engine's port: placeholders, JSON texts, statuses and deferred settings.

Sources, in kubeflow/pipelines: ``backend/src/v2/driver/resolve.go``, ``backend/src/v2/component/launcher_v2.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotwright.graph import Dialect, ParameterSpec, TaskContext, TaskEnd, TaskSpec
from spotwright.pipelines.graph.task_settings import read_deferred
from spotwright.pipelines.values.parameter_values import coerce, parse_json
from spotwright.pipelines.values.placeholders import fill

__all__ = ["KFP"]

_STATES = {"succeeded": "COMPLETE", "failed": "FAILED", "skipped": "SKIPPED"}
_UNKNOWN_ERROR = 2  # google.rpc.Code.UNKNOWN: the code of an error of the user's own


@dataclass(frozen=True, slots=True)
class KfpDialect:
    """The dialect of graphs that were read from a compiled pipeline."""

    def fill(
        self, value: Any, parameters: Mapping[str, Any], artifacts: Mapping[str, Any], context: TaskContext
    ) -> Any:
        """The value with placeholders such as ``{{$.inputs.parameters['x']}}`` filled in."""
        return fill(value, parameters, artifacts, context)

    def parse(self, text: str) -> Any:
        """The JSON value in a text, as the driver reads it. Raises ``ValueError``."""
        return parse_json(text)

    def condition_inputs(self, specs: Mapping[str, ParameterSpec], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values, those of ``STRING`` parameters converted to text: conditions are strict about types."""
        return {
            name: coerce(value, "STRING")
            if value is not None and name in specs and specs[name].type == "STRING"
            else value
            for name, value in values.items()
        }

    def final_status(self, end: TaskEnd) -> dict[str, Any]:
        """The value of a ``dsl.PipelineTaskFinalStatus``; its states are those of the backend's metadata store."""
        error = {"code": _UNKNOWN_ERROR, "message": end.error} if end.status == "failed" else {}
        return {
            "state": "CACHED" if end.cached else _STATES.get(end.status, "CANCELED"),
            "pipelineJobResourceName": end.run,
            "pipelineTaskName": end.name,
            "error": error,
        }

    def read_deferred(self, task: TaskSpec, values: Mapping[str, Any]) -> TaskSpec:
        """The task with its resources and placement read from the values. Raises :class:`PipelineError`."""
        return read_deferred(task, values)

    def shown(self, name: str) -> str:
        """The name without the compiler's prefix."""
        return name.removeprefix("pipelinechannel--")


KFP: Dialect = KfpDialect()
"""The one instance: it has no state."""
