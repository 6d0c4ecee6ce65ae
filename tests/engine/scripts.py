"""Scripted attempts: a test gives the behavior of each attempt by task and number.

What a scripted attempt computes depends on its inputs alone, so the outputs of a run show whether every task ran on the right
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from tests.simulation.simulated_attempts import FAILED, SUCCEEDED, Behavior, Outputs

from spotwright.engine.io_resolution import Inputs
from spotwright.engine.state import TaskState
from spotwright.model.attempts import Signals

__all__ = [
    "FAILED",
    "LOST",
    "MOVED",
    "SUCCEEDED",
    "TAKEN",
    "Behavior",
    "Script",
    "always",
    "outputs_of_inputs",
    "scripted",
]

TAKEN = Signals(signal=9, noticed=True, node_gone=True, spot=True)
LOST = Signals(heard=False)
MOVED = Signals(signal=15, moved="drained")

Script = Callable[[str, int], Behavior]
"""The behavior of each attempt, by the task's path and the attempt's number."""


def always(behavior: Behavior) -> Script:
    return lambda _path, _number: behavior


def scripted(behaviors: Mapping[str, Sequence[Behavior]], otherwise: Behavior | None = None) -> Script:
    """The attempts of each named task in order; all others succeed."""
    default = otherwise or Behavior()

    def script(path: str, number: int) -> Behavior:
        of_task = behaviors.get(path, ())
        return of_task[number - 1] if number <= len(of_task) else default

    return script


def outputs_of_inputs(task: TaskState, inputs: Inputs) -> Outputs:
    """The output ``out``: the task's path and its parameters, as a text that is not too long to read."""
    given = ",".join(f"{name}={value}" for name, value in sorted(inputs.parameters.items()))
    short = given if len(given) < 200 else f"#{crc32(given.encode()):x}"
    return Outputs({"out": f"{task.path}({short})"}, {})
