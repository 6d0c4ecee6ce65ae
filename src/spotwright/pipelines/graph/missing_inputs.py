"""Add the inputs that the SDK's compiler does not pass into a loop, condition or exit handler (a group).

``set_memory_limit(parameter)`` and the like compile to a reference to the group's own input, but the group has no such input:
the task fails on the cluster ("parent DAG does not have input parameter", ``resolve.go``). The intention is clear, so the groups
around the task get the input here, with a note to the user. Source: ``get_inputs_for_all_groups`` in
``kfp/compiler/compiler_utils.py``, which looks at a task's inputs and not at its settings (SDK 2.0 to 2.17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotwright.graph import DagInput, ParameterSpec, Source, TaskOutput, TaskSpec

__all__ = ["add_missing_inputs", "find_missing_inputs", "input_text"]

_CHANNEL, _ITEM = "pipelinechannel--", "loop-item-param-"


def find_missing_inputs(
    tasks: Mapping[str, TaskSpec], parameters: Mapping[str, ParameterSpec]
) -> dict[str, ParameterSpec]:
    """The inputs that tasks of a group read and the group lacks, with their declarations. ``parameters`` are the group's."""
    names = {
        source.name
        for task in tasks.values()
        for source in task.parameters.values()
        if isinstance(source, DagInput) and source.name.startswith(_CHANNEL) and source.name not in parameters
    }
    return {name: ParameterSpec("STRING", optional=True) for name in sorted(names)}


def input_text(name: str) -> str:
    """A missing input as the user knows it, for messages."""
    bare = name.removeprefix(_CHANNEL)
    return "the item of an outer loop" if _ITEM in bare else bare


def add_missing_inputs(
    group: TaskSpec,
    missing: Mapping[str, ParameterSpec],
    parameters: Mapping[str, ParameterSpec],
    tasks: Mapping[str, TaskSpec],
) -> TaskSpec:
    """The group with its missing inputs. ``parameters`` and ``tasks`` are those of the DAG around it.

    An input that is neither a parameter nor an output there becomes a missing input of that DAG in its turn.
    """
    sources = {name: _source(name, parameters, tasks) for name in missing if name not in group.parameters}
    upstream = {source.task for source in sources.values() if isinstance(source, TaskOutput)}
    return replace(
        group,
        parameters={**group.parameters, **sources},
        parameter_specs={**missing, **group.parameter_specs},
        after=tuple(sorted({*group.after, *upstream})),
    )


def _source(name: str, parameters: Mapping[str, ParameterSpec], tasks: Mapping[str, TaskSpec]) -> Source:
    """The source of an input: inside, a parameter is ``pipelinechannel--NAME``, an output ``pipelinechannel--TASK-OUTPUT``."""
    bare = name.removeprefix(_CHANNEL)
    if name not in parameters and bare in parameters:
        return DagInput(bare)
    outputs = [
        TaskOutput(task.name, output)
        for task in tasks.values()
        for output in task.outputs.parameters
        if f"{task.name}-{output}" == bare
    ]
    return outputs[0] if name not in parameters and len(outputs) == 1 else DagInput(name)
