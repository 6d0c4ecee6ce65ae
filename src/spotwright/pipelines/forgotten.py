"""Parameters that the SDK's compiler forgets to pass into a loop, condition or exit handler.

``set_memory_limit(parameter)`` and its kind compile to a reference to the group's own input, and the group is not given that
input: the task fails on the cluster ("parent DAG does not have input parameter", ``resolve.go``). What the user meant is clear,
so the groups around the task are given it here, and the user is told. Source: ``get_inputs_for_all_groups`` in
``kfp/compiler/compiler_utils.py``, which looks at a task's inputs and not at its settings (SDK 2.0 to 2.17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spotwright.pipelines.spec import DagInput, ParameterSpec, Source, TaskOutput, TaskSpec

__all__ = ["called", "forgotten", "given_to"]

_CHANNEL, _ITEM = "pipelinechannel--", "loop-item-param-"


def forgotten(tasks: Mapping[str, TaskSpec], parameters: Mapping[str, ParameterSpec]) -> dict[str, ParameterSpec]:
    """The inputs that tasks of a group read and the group does not have, as inputs that it should have."""
    names = {
        source.name
        for task in tasks.values()
        for source in task.parameters.values()
        if isinstance(source, DagInput) and source.name.startswith(_CHANNEL) and source.name not in parameters
    }
    return {name: ParameterSpec("STRING", optional=True) for name in sorted(names)}


def called(name: str) -> str:
    """What the user calls such an input."""
    bare = name.removeprefix(_CHANNEL)
    return "the item of an outer loop" if _ITEM in bare else bare


def given_to(
    group: TaskSpec,
    names: Mapping[str, ParameterSpec],
    parameters: Mapping[str, ParameterSpec],
    tasks: Mapping[str, TaskSpec],
) -> TaskSpec:
    """A group with the inputs that it was not given. ``parameters`` and ``tasks`` are those of the pipeline around it.

    A name that stands for nothing there stays a reference of that pipeline, for the one around that to find.
    """
    found = {name: _source(name, parameters, tasks) for name in names if name not in group.parameters}
    before = {source.task for source in found.values() if isinstance(source, TaskOutput)}
    return replace(
        group,
        parameters={**group.parameters, **found},
        parameter_specs={**names, **group.parameter_specs},
        after=tuple(sorted({*group.after, *before})),
    )


def _source(name: str, parameters: Mapping[str, ParameterSpec], tasks: Mapping[str, TaskSpec]) -> Source:
    """A parameter is called ``pipelinechannel--NAME`` inside, an output ``pipelinechannel--TASK-OUTPUT``."""
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
