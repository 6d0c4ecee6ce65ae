"""The description of a random pipeline, from which both its Python source and its expected result are made.

:mod:`.python_source` writes it as Python for the SDK, :mod:`.interpreter` computes its expected result. Expected values must
never come from the SDK's compiled form, so nothing here knows that form. Kinds of values are written ``int``, ``float``,
``str``, ``bool``, ``list``, ``dict``, ``List[...]`` of those, ``Dataset`` and ``List[Dataset]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ARTIFACTS",
    "Branches",
    "Call",
    "Collected",
    "Comparison",
    "Component",
    "Const",
    "Exit",
    "Field",
    "Input",
    "Loop",
    "Name",
    "Node",
    "OneOf",
    "Output",
    "Pipeline",
    "Source",
    "Task",
    "Text",
    "names_in",
    "names_made_by",
    "names_read_by",
]

ARTIFACTS = ("Dataset", "List[Dataset]")
"""The kinds of values that are artifacts, not parameters."""


# Sources of values


@dataclass(frozen=True)
class Const:
    """A constant in the pipeline's source."""

    value: Any


@dataclass(frozen=True)
class Name:
    """A parameter of the pipeline, or the item of a loop."""

    name: str


@dataclass(frozen=True)
class Field:
    """A field of the item of a loop: ``item.field``."""

    name: str
    field: str


@dataclass(frozen=True)
class Output:
    """An output of a task, or of a nested pipeline."""

    task: str
    output: str


@dataclass(frozen=True)
class Text:
    """A text with the values of other sources in it: ``f"a{x}b"``."""

    parts: tuple[Source, ...]


@dataclass(frozen=True)
class OneOf:
    """``dsl.OneOf``: the output of the branch that ran."""

    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Collected:
    """``dsl.Collected``: an output of a task in a loop, of every iteration in order."""

    source: Output


Source = Const | Name | Field | Output | Text | OneOf | Collected


# Tasks and groups


@dataclass(frozen=True)
class Input:
    """An input of a component or of a pipeline; ``optional`` ones have a default, which may be ``None``."""

    name: str
    kind: str
    optional: bool = False
    default: Any = None


@dataclass(frozen=True)
class Component:
    """A component that returns its inputs as ``seen`` and a ``result``: an input, a list of inputs, or a constant.

    It fails ``always``, ``once`` (in its first attempt), when the input ``failing[0]`` has the value ``failing[1]``, or never.
    ``gives`` is the kind of ``result``; with ``Dataset`` the component writes ``seen`` into the artifact ``out``.
    """

    name: str
    inputs: tuple[Input, ...]
    gives: str
    result: tuple[str, Any]
    failing: str | tuple[str, Any] = ""
    status: bool = False


@dataclass(frozen=True)
class _Assigned:
    """A node whose outputs the source keeps in a Python variable."""

    name: str

    @property
    def variable(self) -> str:
        """The name of the Python variable."""
        return f"of_{self.name.replace('-', '_')}"


@dataclass(frozen=True)
class Task(_Assigned):
    """A call of a component."""

    component: Component
    given: dict[str, Source]
    after: tuple[str, ...] = ()
    retries: int = 0
    ignores_failure: bool = False


@dataclass(frozen=True)
class Call(_Assigned):
    """A call of a pipeline inside another."""

    pipeline: Pipeline
    given: dict[str, Source]
    retries: int = 0
    ignores_failure: bool = False


@dataclass(frozen=True)
class Loop:
    """``dsl.ParallelFor``."""

    name: str
    items: Source
    item: str
    body: list[Node]
    limit: int = 0


@dataclass(frozen=True)
class Comparison:
    """A condition: two values and the operator between them."""

    left: Source
    sign: str
    right: Source


@dataclass(frozen=True)
class Branches:
    """``dsl.If``, ``dsl.Elif``, ``dsl.Else``: each arm has a name, its condition (the last may have none) and tasks."""

    arms: tuple[tuple[str, Comparison | None, list[Node]], ...]


@dataclass(frozen=True)
class Exit:
    """``dsl.ExitHandler``: the exit task, and the tasks before it."""

    name: str
    task: Task | Call
    body: list[Node]


Node = Task | Call | Loop | Branches | Exit


@dataclass
class Pipeline:
    """A pipeline with its inputs, its tasks and its outputs (name, kind, source)."""

    name: str
    inputs: tuple[Input, ...]
    body: list[Node] = field(default_factory=list)
    outputs: tuple[tuple[str, str, Source], ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


# Dependencies


def names_in(source: Source) -> Iterator[str]:
    """The variables that a source reads."""
    if isinstance(source, Name | Field):
        yield source.name
    elif isinstance(source, Output):
        yield source.task
    elif isinstance(source, Collected):
        yield source.source.task
    elif isinstance(source, Text | OneOf):
        for part in source.parts if isinstance(source, Text) else source.sources:
            yield from names_in(part)


def names_made_by(node: Node) -> Iterator[str]:
    """The variables of the tasks in a node, at any depth."""
    if isinstance(node, Task | Call):
        yield node.variable
    for inner in _inside(node):
        yield from names_made_by(inner)


def names_read_by(node: Node) -> Iterator[str]:
    """The variables that a node reads, at any depth."""
    if isinstance(node, Task | Call):
        for source in node.given.values():
            yield from names_in(source)
        yield from node.after if isinstance(node, Task) else ()
    elif isinstance(node, Loop):
        yield from names_in(node.items)
    elif isinstance(node, Branches):
        for _, condition, _ in node.arms:
            if condition is not None:
                yield from names_in(condition.left)
                yield from names_in(condition.right)
    for inner in _inside(node):
        yield from names_read_by(inner)


def _inside(node: Node) -> Iterator[Node]:
    if isinstance(node, Branches):
        for _, _, body in node.arms:
            yield from body
    elif isinstance(node, Loop | Exit):
        yield from node.body
