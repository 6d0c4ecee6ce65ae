"""Read the wiring of one task: the sources of its inputs, its condition, its loop, and the sources of a DAG's outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotwright.graph import (
    Constant,
    DagInput,
    FinalStatus,
    Loop,
    OneOf,
    OutputSource,
    ParameterSpec,
    Source,
    TaskOutput,
    TaskSpec,
)
from spotwright.pipelines.graph.ir_pass import IrPass
from spotwright.pipelines.values.parameter_values import coerce, whole_numbers

if TYPE_CHECKING:
    from spotwright.pipelines.graph.cel import CelCondition

__all__ = ["drop_stray_inputs", "read_condition_of", "read_loop", "read_output_sources", "read_sources", "upstream_of"]

_CHANNEL, _FIELD, _LOOP = "pipelinechannel--", "-subvar-", "-loop-item"
_SELECTOR = re.compile(r"""parseJson\(string_value\)((?:\["[^"\\]*"\]|\['[^'\\]*'\]|\[\d+\])+)""")
_STEP = re.compile(r"""\[(?:"([^"]*)"|'([^']*)'|(\d+))\]""")

Names = Mapping[str, str]
"""The names of the tasks of a DAG, by their keys in the document."""


def read_sources(
    ir_pass: IrPass, names: Names, task: Mapping[str, Any], specs: Mapping[str, ParameterSpec], path: str
) -> tuple[dict[str, Source], dict[str, Source]]:
    """The sources of a task's parameters and of its artifacts, by input."""
    inputs = task.get("inputs") or {}
    parameters: dict[str, Source] = {}
    for name, given in (inputs.get("parameters") or {}).items():
        source = _parameter_source(ir_pass, names, name, given, specs.get(name), path)
        if given.get("parameterExpressionSelector"):
            source = _selected(ir_pass, name, given["parameterExpressionSelector"], source, path)
        parameters[name] = source
    artifacts: dict[str, Source] = {}
    for name, given in (inputs.get("artifacts") or {}).items():
        if "componentInputArtifact" in given:
            artifacts[name] = DagInput(given["componentInputArtifact"])
        else:
            artifacts[name] = _output(names, given.get("taskOutputArtifact") or {}, "outputArtifactKey")
    return parameters, artifacts


def _parameter_source(
    ir_pass: IrPass, names: Names, name: str, given: Mapping[str, Any], spec: ParameterSpec | None, path: str
) -> Source:
    if "componentInputParameter" in given:
        return DagInput(given["componentInputParameter"])
    if "taskOutputParameter" in given:
        return _output(names, given["taskOutputParameter"], "outputParameterKey")
    if "taskFinalStatus" in given:
        producer = str(given["taskFinalStatus"].get("producerTask") or "")
        return FinalStatus(names.get(producer, producer))
    value = given.get("runtimeValue") or {}
    if "constant" not in value:
        raise ir_pass.error(f"task {path}", f"its input {name} has a source that this version does not support")
    constant = value["constant"]
    if spec is None:
        return Constant(whole_numbers(constant))
    try:
        value = coerce(constant, spec.type)
        if not (isinstance(value, str) and "{{$." in value):
            spec.check(value)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"its input {name}: {error}") from error
    return Constant(value)


def _output(names: Names, given: Mapping[str, Any], key: str, task: str = "producerTask") -> TaskOutput:
    producer = str(given.get(task) or "")
    return TaskOutput(names.get(producer, producer), str(given.get(key) or ""))


def _selected(ir_pass: IrPass, name: str, expression: str, source: Source, path: str) -> Source:
    """A part of a loop's item, ``item.field``. Source of the form: ``pipeline_spec_builder.py`` of the SDK.

    Inside a condition newer SDKs select the field from a value that is the field already, which would fail on a cluster.
    """
    match = _SELECTOR.fullmatch(expression.strip())
    if match is None or not isinstance(source, DagInput):
        ir_pass.refuse(path, f"its input {name} is selected by the expression {expression!r}, which is not supported")
        return source
    steps = tuple(int(number) if number else double or single for double, single, number in _STEP.findall(match[1]))
    is_field_already = len(steps) == 1 and source.name.endswith(f"{_FIELD}{steps[0]}")
    return DagInput(source.name, () if is_field_already else steps)


def upstream_of(names: Names, task: Mapping[str, Any], *sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The names of the tasks that a task waits for, sorted: those it names and those whose outputs or status it reads."""
    upstream = {names.get(key, key) for key in task.get("dependentTasks") or ()}
    for group in sources:
        upstream.update(source.task for source in group.values() if isinstance(source, TaskOutput | FinalStatus))
    return tuple(sorted(upstream))


def read_condition_of(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> CelCondition | None:
    """The condition under which a task runs; ``None`` where it always does."""
    trigger = task.get("triggerPolicy") or {}
    if isinstance(trigger.get("strategy"), int):  # protobuf keeps the number of an unknown value
        ir_pass.refuse(path, f"its triggerPolicy has the unknown strategy {trigger['strategy']}")
    text = trigger.get("condition")
    if not text:
        return None
    from spotwright.pipelines.graph.cel import read_condition  # most pipelines have no condition

    try:
        return read_condition(str(text))
    except ValueError as error:
        ir_pass.refuse(path, f"its condition {error}")
        return None


def read_loop(ir_pass: IrPass, task: Mapping[str, Any], path: str) -> Loop | None:
    """The loop of a task; ``None`` where it has none. Raises :class:`PipelineError` for an iterator without items."""
    over_parameters, over_artifacts = task.get("parameterIterator"), task.get("artifactIterator")
    if over_parameters and over_artifacts:
        raise ir_pass.error(f"task {path}", "parameterIterator and artifactIterator cannot both be there")
    iterator = over_parameters or over_artifacts
    if not iterator:
        return None
    items = iterator.get("items") or {}
    name = str(items.get("inputParameter") or items.get("inputArtifact") or "")
    if not iterator.get("itemInput") or not (name or "raw" in items):
        raise ir_pass.error(f"task {path}", "its iterator lacks the items, or the input for the item")
    limit = int((task.get("iteratorPolicy") or {}).get("parallelismLimit") or 0)
    raw = () if name else _raw_items(ir_pass, str(items["raw"]), path)
    return Loop(str(iterator["itemInput"]), name, raw, over_artifacts is not None, limit)


def _raw_items(ir_pass: IrPass, text: str, path: str) -> tuple[Any, ...]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise ir_pass.error(f"task {path}", f"the items of its loop are not valid JSON: {error}") from error
    if not isinstance(items, list):
        raise ir_pass.error(f"task {path}", "the items of its loop are not a list")
    return tuple(items)


def drop_stray_inputs(task: TaskSpec, of_dag: Mapping[str, ParameterSpec]) -> TaskSpec:
    """A loop, condition or exit handler without the inputs that the compiler adds by mistake.

    Where a text inside such a group holds an inner loop's item, or a field of the group's own item, the compiler lets the group
    itself read that value from the pipeline around it, where it does not exist (kfp 2.17.0, ``pipeline_spec_builder.py``). The
    inner loop supplies its item; the field is read from the item here.
    """
    if task.dag is None:
        return task
    strays = [
        name
        for name, source in task.parameters.items()
        if isinstance(source, DagInput)
        and source.name not in of_dag
        and name == f"{_CHANNEL}{source.name}"
        and _LOOP in name
    ]
    if not strays:
        return task
    parameters = {name: source for name, source in task.parameters.items() if name not in strays}
    specs = {n: replace(spec, optional=True) if n in strays else spec for n, spec in task.parameter_specs.items()}
    loop = task.loop
    if loop is not None:
        item = f"{loop.item}{_FIELD}"
        fields = {
            name: name.removeprefix(item) for name in strays if name.startswith(item) and _LOOP not in name[len(item) :]
        }
        loop = replace(loop, fields=fields)
    return replace(task, parameters=parameters, parameter_specs=specs, loop=loop)


def read_output_sources(
    ir_pass: IrPass, names: Names, outputs: Mapping[str, Any], place: str
) -> tuple[dict[str, OutputSource], dict[str, OutputSource]]:
    """The sources of a DAG's own outputs, parameters and artifacts."""
    parameters: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("parameters") or {}).items():
        several = (selection.get("valueFromOneof") or {}).get("parameterSelectors")
        one = [selection["valueFromParameter"]] if selection.get("valueFromParameter") else []
        parameters[name] = _selection(
            ir_pass, names, several or one, "outputParameterKey", f"{place}: its output {name}"
        )
    artifacts: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("artifacts") or {}).items():
        several = selection.get("artifactSelectors") or []
        artifacts[name] = _selection(ir_pass, names, several, "outputArtifactKey", f"{place}: its output {name}")
    return parameters, artifacts


def _selection(ir_pass: IrPass, names: Names, given: list[Mapping[str, Any]], key: str, place: str) -> OutputSource:
    outputs = tuple(_output(names, each, key, "producerSubtask") for each in given)
    if not outputs:
        raise ir_pass.error(place, "no task produces it")
    return outputs[0] if len(outputs) == 1 else OneOf(outputs)
