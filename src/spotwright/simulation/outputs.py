"""Outputs of simulated attempts: a value for every declared output, because downstream tasks read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spotwright.engine.io_resolution import Inputs
from spotwright.engine.state import TaskState
from spotwright.graph import ParameterSpec

__all__ = ["MakeOutputs", "Outputs", "declared_outputs"]

_EMPTY: Mapping[str, Any] = {
    "STRING": "",
    "NUMBER_INTEGER": 0,
    "NUMBER_DOUBLE": 0.0,
    "BOOLEAN": False,
    "LIST": (),
    "STRUCT": {},
}


class Outputs(NamedTuple):
    """The parameters and artifacts of an ended attempt, by name."""

    parameters: Mapping[str, Any]
    artifacts: Mapping[str, Any]


MakeOutputs = Callable[[TaskState, Inputs], Outputs]
"""Makes the outputs of a task that succeeded. Callers whose conditions and loops depend on values pass their own."""


def declared_outputs(task: TaskState, _inputs: Inputs) -> Outputs:
    """The empty value of each declared parameter's type, and an artifact at an address that does not exist."""
    declared = task.plan.spec.outputs
    artifacts = {
        name: {
            "name": name,
            "type": {"schemaTitle": spec.schema, "schemaVersion": spec.version},
            "uri": f"simulated://{task.path}/{name}",
            "metadata": dict(spec.metadata),
        }
        for name, spec in declared.artifacts.items()
    }
    return Outputs({name: _empty(spec) for name, spec in declared.parameters.items()}, artifacts)


def _empty(spec: ParameterSpec) -> Any:
    value = spec.literals[0] if spec.literals else _EMPTY.get(spec.type, "")
    return list(value) if isinstance(value, tuple) else value
