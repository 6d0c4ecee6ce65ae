"""Where a task's values come from, when it runs and how often: the wiring of one task in the intermediate representation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spotwright.pipelines.conditions import Condition, read_condition
from spotwright.pipelines.reading import Reading
from spotwright.pipelines.spec import (
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
from spotwright.pipelines.values import fit, whole_numbers

__all__ = ["read_condition_of", "read_loop", "read_output_sources", "read_sources", "upstream_of", "without_strays"]

_CHANNEL, _FIELD, _LOOP = "pipelinechannel--", "-subvar-", "-loop-item"
_SELECTOR = re.compile(r"""parseJson\(string_value\)((?:\["[^"\\]*"\]|\['[^'\\]*'\]|\[\d+\])+)""")
_STEP = re.compile(r"""\[(?:"([^"]*)"|'([^']*)'|(\d+))\]""")

Names = Mapping[str, str]
"""The names of the tasks of a DAG, by their keys in the document."""


def read_sources(
    reading: Reading, names: Names, task: Mapping[str, Any], specs: Mapping[str, ParameterSpec], path: str
) -> tuple[dict[str, Source], dict[str, Source]]:
    """The sources of a task's parameters and of its artifacts, by input."""
    inputs = task.get("inputs") or {}
    parameters: dict[str, Source] = {}
    for name, given in (inputs.get("parameters") or {}).items():
        source = _parameter_source(reading, names, name, given, specs.get(name), path)
        if given.get("parameterExpressionSelector"):
            source = _selected(reading, name, given["parameterExpressionSelector"], source, path)
        parameters[name] = source
    artifacts: dict[str, Source] = {}
    for name, given in (inputs.get("artifacts") or {}).items():
        if "componentInputArtifact" in given:
            artifacts[name] = DagInput(given["componentInputArtifact"])
        else:
            artifacts[name] = _output(names, given.get("taskOutputArtifact") or {}, "outputArtifactKey")
    return parameters, artifacts


def _parameter_source(
    reading: Reading, names: Names, name: str, given: Mapping[str, Any], spec: ParameterSpec | None, path: str
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
        raise reading.error(f"task {path}", f"its input {name} has no value that this version knows")
    constant = value["constant"]
    if spec is None:
        return Constant(whole_numbers(constant))
    try:
        value = fit(constant, spec.type)
        if not (isinstance(value, str) and "{{$." in value):
            spec.check(value)
    except ValueError as error:
        raise reading.error(f"task {path}", f"its input {name}: {error}") from error
    return Constant(value)


def _output(names: Names, given: Mapping[str, Any], key: str, task: str = "producerTask") -> TaskOutput:
    producer = str(given.get(task) or "")
    return TaskOutput(names.get(producer, producer), str(given.get(key) or ""))


def _selected(reading: Reading, name: str, expression: str, source: Source, path: str) -> Source:
    """A part of a loop's item, ``item.field``. Source of the form: ``pipeline_spec_builder.py`` of the SDK.

    Inside a condition newer SDKs pick the field out of what is the field already, which would fail on the cluster.
    """
    found = _SELECTOR.fullmatch(expression.strip())
    if found is None or not isinstance(source, DagInput):
        reading.refuse(path, f"its input {name} is picked by the expression {expression!r}, which is not supported")
        return source
    steps = tuple(int(number) if number else double or single for double, single, number in _STEP.findall(found[1]))
    is_that_field = len(steps) == 1 and source.name.endswith(f"{_FIELD}{steps[0]}")
    return DagInput(source.name, () if is_that_field else steps)


def upstream_of(names: Names, task: Mapping[str, Any], *sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The names of the tasks that a task comes after, sorted: those it names and those it takes something from."""
    found = dict.fromkeys(names.get(key, key) for key in task.get("dependentTasks") or ())
    for group in sources:
        found.update(
            dict.fromkeys(source.task for source in group.values() if isinstance(source, TaskOutput | FinalStatus))
        )
    return tuple(sorted(found))


def read_condition_of(reading: Reading, task: Mapping[str, Any], path: str) -> Condition | None:
    """The condition under which a task runs."""
    trigger = task.get("triggerPolicy") or {}
    if isinstance(trigger.get("strategy"), int):  # protobuf keeps the number of a value that it does not know
        reading.refuse(path, f"its triggerPolicy has the unknown strategy {trigger['strategy']}")
    text = trigger.get("condition")
    if not text:
        return None
    try:
        return read_condition(str(text))
    except ValueError as error:
        reading.refuse(path, f"its condition {error}")
        return None


def read_loop(reading: Reading, task: Mapping[str, Any], path: str) -> Loop | None:
    """What a task iterates over. Raises :class:`PipelineError` for an iterator that names nothing."""
    over_parameters, over_artifacts = task.get("parameterIterator"), task.get("artifactIterator")
    if over_parameters and over_artifacts:
        raise reading.error(f"task {path}", "parameterIterator and artifactIterator cannot both be there")
    iterator = over_parameters or over_artifacts
    if not iterator:
        return None
    items = iterator.get("items") or {}
    name = str(items.get("inputParameter") or items.get("inputArtifact") or "")
    if not iterator.get("itemInput") or not (name or "raw" in items):
        raise reading.error(f"task {path}", "its iterator names no items or no input for the item")
    limit = int((task.get("iteratorPolicy") or {}).get("parallelismLimit") or 0)
    raw = () if name else _raw_items(reading, str(items["raw"]), path)
    return Loop(str(iterator["itemInput"]), name, raw, over_artifacts is not None, limit)


def _raw_items(reading: Reading, text: str, path: str) -> tuple[Any, ...]:
    try:
        items = json.loads(text)
    except ValueError as error:
        raise reading.error(f"task {path}", f"the items of its loop are no JSON: {error}") from error
    if not isinstance(items, list):
        raise reading.error(f"task {path}", "the items of its loop are no list")
    return tuple(items)


def without_strays(task: TaskSpec, of_dag: Mapping[str, ParameterSpec]) -> TaskSpec:
    """A loop, condition or exit handler without the inputs that the compiler gives it by mistake.

    Where a text inside such a group is made of an inner loop's item, or of a field of its own item, the compiler lets the group
    itself read that from the pipeline around it, where it does not exist (kfp 2.17.0, ``pipeline_spec_builder.py``). The inner
    loop fills in the one; the other is the field of the item.
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
    known = {name: source for name, source in task.parameters.items() if name not in strays}
    specs = {n: replace(spec, optional=True) if n in strays else spec for n, spec in task.parameter_specs.items()}
    loop = task.loop
    if loop is not None:
        item = f"{loop.item}{_FIELD}"
        fields = {
            name: name.removeprefix(item) for name in strays if name.startswith(item) and _LOOP not in name[len(item) :]
        }
        loop = replace(loop, fields=fields)
    return replace(task, parameters=known, parameter_specs=specs, loop=loop)


def read_output_sources(
    reading: Reading, names: Names, outputs: Mapping[str, Any], place: str
) -> tuple[dict[str, OutputSource], dict[str, OutputSource]]:
    """The sources of a DAG's own outputs, parameters and artifacts."""
    parameters: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("parameters") or {}).items():
        several = (selection.get("valueFromOneof") or {}).get("parameterSelectors")
        one = [selection["valueFromParameter"]] if selection.get("valueFromParameter") else []
        parameters[name] = _selection(
            reading, names, several or one, "outputParameterKey", f"{place}: its output {name}"
        )
    artifacts: dict[str, OutputSource] = {}
    for name, selection in (outputs.get("artifacts") or {}).items():
        several = selection.get("artifactSelectors") or []
        artifacts[name] = _selection(reading, names, several, "outputArtifactKey", f"{place}: its output {name}")
    return parameters, artifacts


def _selection(reading: Reading, names: Names, given: list[Mapping[str, Any]], key: str, place: str) -> OutputSource:
    found = tuple(_output(names, each, key, "producerSubtask") for each in given)
    if not found:
        raise reading.error(place, "it comes from no task")
    return found[0] if len(found) == 1 else OneOf(found)
