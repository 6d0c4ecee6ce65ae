"""Write a random pipeline as the Python source that its author would write with the KFP SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.conformance.pipeline_model import (
    ARTIFACTS,
    Branches,
    Call,
    Collected,
    Comparison,
    Component,
    Const,
    Exit,
    Field,
    Input,
    Loop,
    Name,
    Node,
    OneOf,
    Output,
    Pipeline,
    Source,
    Task,
    Text,
)

__all__ = ["python_source"]

HEAD = """\
from functools import partial
from typing import Dict, List, NamedTuple

from kfp import dsl

component = partial(dsl.component, base_image="python:3.11", install_kfp_package=False)
"""


def python_source(pipeline: Pipeline) -> str:
    """A module with the pipeline as ``PIPELINE``; components and pipelines inside stand before it, each once."""
    components: dict[str, str] = {}
    pipelines: dict[str, str] = {}
    _gather(pipeline, components, pipelines)
    return "\n\n".join([HEAD, *components.values(), *pipelines.values(), f"PIPELINE = {pipeline.name}\n"])


def _gather(pipeline: Pipeline, components: dict[str, str], pipelines: dict[str, str]) -> None:
    for task in _tasks(pipeline.body):
        if isinstance(task, Call):
            _gather(task.pipeline, components, pipelines)
        else:
            components.setdefault(task.component.name, "\n".join(_component(task.component)))
    pipelines.setdefault(pipeline.name, "\n".join(_pipeline(pipeline)))


def _tasks(body: list[Node]) -> Iterator[Task | Call]:
    for node in body:
        if isinstance(node, Task | Call):
            yield node
        elif isinstance(node, Branches):
            for _, _, inner in node.arms:
                yield from _tasks(inner)
        else:
            if isinstance(node, Exit):
                yield node.task
            yield from _tasks(node.body)


# Components


def _annotation(kind: str) -> str:
    if kind == "Dataset":
        return "dsl.Input[dsl.Dataset]"
    return "dsl.Input[List[dsl.Dataset]]" if kind == "List[Dataset]" else kind


def _signature(inputs: tuple[Input, ...], extra: tuple[str, ...] = ()) -> str:
    needed = [f"{each.name}: {_annotation(each.kind)}" for each in inputs if not each.optional]
    optional = [f"{each.name}: {_annotation(each.kind)} = {each.default!r}" for each in inputs if each.optional]
    return ", ".join([*needed, *extra, *optional])


def _component(component: Component) -> Iterator[str]:
    of_data = component.gives == "Dataset"
    extra = (*(("status: dsl.PipelineTaskFinalStatus",) if component.status else ()),)
    extra = (*extra, *(("out: dsl.Output[dsl.Dataset]",) if of_data else ()))
    fields = "('seen', str)" + ("" if of_data else f", ('result', {component.gives})")
    yield "@component"
    signature = _signature(component.inputs, extra)
    yield f"def {component.name}({signature}) -> NamedTuple('Outputs', [{fields}]):"
    yield "    import os"
    yield from _failing(component)
    shown = []
    for each in component.inputs:
        if each.kind == "Dataset":
            shown.append(f"({each.name} and open({each.name}.path).read())")
        elif each.kind == "List[Dataset]":
            shown.append(f"[open(each.path).read() for each in {each.name} or []]")
        else:
            shown.append(each.name)
    if component.status:
        shown.append("[status.state, status.pipeline_task_name]")
    yield f"    seen = repr([{', '.join(shown)}])"
    if of_data:
        yield "    with open(out.path, 'w') as file:"
        yield f"        file.write('{component.name}' + seen)"
        yield "    return (seen,)"
    else:
        how, what = component.result
        texts = {"input": what, "constant": repr(what), "list": f"[{', '.join(what)}]" if how == "list" else ""}
        yield f"    return (seen, {texts[how]})"


def _failing(component: Component) -> Iterator[str]:
    if not component.failing:
        return
    if component.failing == "always":
        condition = "True"
    elif component.failing == "once":
        condition = "os.environ['SPOTWRIGHT_ATTEMPT'] == '1'"
    else:
        condition = f"{component.failing[0]} == {component.failing[1]!r}"
    yield f"    if {condition}:"
    yield f"        raise RuntimeError('{component.name} fails')"


# Pipelines


def _pipeline(pipeline: Pipeline) -> Iterator[str]:
    yield "@dsl.pipeline"
    kinds = {kind: "dsl.Dataset" if kind == "Dataset" else "List[dsl.Dataset]" for kind in ARTIFACTS}
    returns = ", ".join(f"('{name}', {kinds.get(kind, kind)})" for name, kind, _ in pipeline.outputs)
    arrow = f" -> NamedTuple('Outputs', [{returns}])" if returns else ""
    yield f"def {pipeline.name}({_signature(pipeline.inputs)}){arrow}:"
    yield from _body(pipeline.body, "    ")
    if returns:
        values = ", ".join(f"{name}={_source(source)}" for name, _, source in pipeline.outputs)
        yield f"    return NamedTuple('Outputs', [{returns}])({values})"


def _body(body: list[Node], indent: str) -> Iterator[str]:
    for node in body:
        for line in _node(node):
            yield indent + line
    if not body:
        yield indent + "pass"


def _node(node: Node) -> Iterator[str]:
    if isinstance(node, Task | Call):
        yield _call(node)
    elif isinstance(node, Loop):
        limit = f", parallelism={node.limit}" if node.limit else ""
        yield f"with dsl.ParallelFor({_source(node.items)}, name={node.name!r}{limit}) as {node.item}:"
        yield from _body(node.body, "    ")
    elif isinstance(node, Exit):
        yield f"with dsl.ExitHandler({_call(node.task).partition(' = ')[2]}, name={node.name!r}):"
        yield from _body(node.body, "    ")
    else:
        word = "If"
        for name, condition, body in node.arms:
            if condition is None:
                yield f"with dsl.Else(name={name!r}):"
            else:
                yield f"with dsl.{word}({_comparison(condition)}, name={name!r}):"
            yield from _body(body, "    ")
            word = "Elif"


def _call(task: Task | Call) -> str:
    function = task.component.name if isinstance(task, Task) else task.pipeline.name
    text = f"{task.variable} = {function}({_given(task.given)})"
    if isinstance(task, Task) and task.after:
        text += f".after({', '.join(task.after)})"
    if task.retries:
        text += f".set_retry({task.retries}, backoff_duration='0s')"
    return text + (".ignore_upstream_failure()" if task.ignores_failure else "")


def _given(given: Mapping[str, Source]) -> str:
    return ", ".join(f"{name}={_source(source)}" for name, source in given.items())


def _comparison(condition: Comparison) -> str:
    return f"{_source(condition.left)} {condition.sign} {_source(condition.right)}"


def _source(source: Source) -> str:
    match source:
        case Const(value):
            return repr(value)
        case Name(name):
            return name
        case Field(name, part):
            return f"{name}.{part}"
        case Output(task, output):
            return f'{task}.outputs["{output}"]'
        case Collected(inner):
            return f"dsl.Collected({_source(inner)})"
        case OneOf(sources):
            return f"dsl.OneOf({', '.join(map(_source, sources))})"
        case Text(parts):
            texts = (repr(part.value) if isinstance(part, Const) else f"f'{{{_source(part)}}}'" for part in parts)
            return " + ".join(texts)
    raise TypeError(source)
