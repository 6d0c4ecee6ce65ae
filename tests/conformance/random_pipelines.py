"""Generate a random pipeline from a seed: a few tasks, loops, branches, exit handlers and nested pipelines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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

__all__ = ["random_pipeline"]

SIMPLE = ("int", "float", "str", "bool")
LISTS = ("List[int]", "List[float]", "List[str]", "List[Dict]", "list")
PARAMETERS = (*SIMPLE, "list", "dict", "List[int]", "List[str]", "List[float]", "List[Dict]")
TEXTS = (
    "", "a", "b", "it's", 'say "x"', "a && b", "x == 'y'", "back\\slash", "{brace}", "é ü 漢", "1", "true", "<&>", "a\nb",
)  # fmt: skip
DEPTH = 3


def random_pipeline(seed: int) -> Pipeline:
    """The pipeline of a seed; equal seeds give equal pipelines."""
    return _Generator(random.Random(seed)).pipeline(0)  # noqa: S311 (test data)


@dataclass(frozen=True)
class Candidate:
    """A value that a task in a scope may read; ``nullable``: it may be ``None``."""

    source: Source
    kind: str
    nullable: bool = False


@dataclass
class _Scope:
    """The part of a pipeline that new tasks are added to: values that they may read, tasks that they may wait for."""

    candidates: list[Candidate]
    tasks: list[str] = field(default_factory=list)
    depth: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    allows_exit: bool = True
    """Whether an exit handler may be added here."""

    def inner(self) -> _Scope:
        return replace(
            self, candidates=list(self.candidates), tasks=list(self.tasks), depth=self.depth + 1, allows_exit=False
        )


class _Generator:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = iter(range(1, 1000))
        self._components: list[Component] = []
        self._pipelines: list[Pipeline] = []
        self._fails = chance.random() < 0.4

    def _name(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    def _chance_of(self, share: float) -> bool:
        return self._chance.random() < share

    # Values

    def _constant(self, kind: str) -> Any:
        chance = self._chance
        makers: dict[str, Callable[[], Any]] = {
            "int": lambda: chance.choice([0, 1, 2, 3, -7, 10**9, 2**53]),
            "float": lambda: chance.choice([0.5, 2.0, -1.25, 0.1, 3.0, 1e-3]),
            "str": lambda: chance.choice(TEXTS),
            "bool": lambda: chance.random() < 0.5,
            "list": lambda: [self._constant(chance.choice(SIMPLE)) for _ in range(chance.randint(0, 3))],
            "dict": lambda: {key: self._constant(chance.choice([*SIMPLE, "list"])) for key in chance.sample("cab", 2)},
            "row": lambda: {"s": self._constant("str"), "n": self._constant("int"), "l": self._constant("List[int]")},
        }
        element = {"List[int]": "int", "List[float]": "float", "List[str]": "str", "List[Dict]": "row"}.get(kind)
        if element is not None:
            return [self._constant(element) for _ in range(chance.choice([0, 1, 2, 2, 3]))]
        return makers[kind]()

    def _source(self, scope: _Scope, kind: str, *, nothing: bool) -> Source | None:
        """A source of that kind; ``None`` for an artifact that no task makes."""
        fits = [k.source for k in scope.candidates if _fits(k.kind, kind) and (nothing or not k.nullable)]
        fits += 3 * [each for each in fits if isinstance(each, OneOf | Collected)]
        if fits and (kind in ARTIFACTS or self._chance_of(0.75)):
            return self._chance.choice(fits)
        if kind in ARTIFACTS:
            return None
        if kind == "str" and self._chance_of(0.5):
            return self._text(scope)
        return Const(self._constant(kind))

    def _text(self, scope: _Scope) -> Source:
        fits = [k.source for k in scope.candidates if k.kind in (*SIMPLE, "list", "dict") and not k.nullable]
        fits = [each for each in fits if not isinstance(each, OneOf | Collected | Text)]
        if not fits:
            return Const(self._constant("str"))
        parts: list[Source] = [Const(self._chance.choice(["<", "a", "it's "]))]
        for each in self._chance.sample(fits, min(len(fits), self._chance.randint(1, 2))):
            parts += [each, Const(self._chance.choice(["-", ">", '"']))]
        return Text(tuple(parts))

    # Tasks

    def _inputs(self, kinds: Sequence[str], most: int) -> tuple[Input, ...]:
        inputs = []
        for name in "pqr"[: self._chance.randint(0, most)]:
            kind = self._chance.choice(kinds)
            optional = self._chance_of(0.3) and kind != "List[Dataset]"
            default = None if kind in ARTIFACTS or self._chance_of(0.3) else self._constant(kind)
            inputs.append(Input(name, kind, optional, default if optional else None))
        return tuple(inputs)

    def _component(self) -> Component:
        inputs = self._inputs((*PARAMETERS, "Dataset", "List[Dataset]"), 3)
        gives = self._chance.choice([*PARAMETERS, "Dataset", "Dataset", "bool"])
        passed = [i.name for i in inputs if i.kind == gives and not (i.optional and i.default is None)]
        values = [i.name for i in inputs if i.kind not in ARTIFACTS and not i.optional]
        result: tuple[str, Any] = ("constant", None if gives == "Dataset" else self._constant(gives))
        if passed and self._chance_of(0.8):
            result = ("input", passed[0])
        elif gives == "list" and values:
            result = ("list", values)
        component = Component(self._name("t"), inputs, gives, result, self._failing(inputs))
        self._components.append(component)
        return component

    def _failing(self, inputs: Sequence[Input]) -> str | tuple[str, Any]:
        numbers = [each.name for each in inputs if each.kind in ("int", "str")]
        if self._fails and numbers and self._chance_of(0.3):
            kinds = {each.name: each.kind for each in inputs}
            return numbers[0], self._constant(kinds[numbers[0]])
        if self._fails and self._chance_of(0.18):
            return "always"
        return "once" if self._chance_of(0.08) else ""

    def _given(self, inputs: Sequence[Input], scope: _Scope) -> dict[str, Source] | None:
        given = {}
        for each in inputs:
            if each.optional and self._chance_of(0.35):
                continue
            source = self._source(scope, each.kind, nothing=each.optional)
            if source is not None:
                given[each.name] = source
            elif not each.optional:
                return None
        return given

    def _task(self, scope: _Scope) -> Iterator[Node]:
        again = self._components and self._chance_of(0.2)
        component = self._chance.choice(self._components) if again else self._component()
        given = self._given(component.inputs, scope)
        if given is None or component.status:
            return
        name = self._numbered(scope, component.name)
        after = tuple(self._chance.sample(scope.tasks, 1)) if scope.tasks and self._chance_of(0.2) else ()
        retries = self._chance.randint(1, 2) if component.failing == "once" or self._chance_of(0.05) else 0
        ignores_failure = self._may_ignore(component, given) and self._chance_of(0.6)
        task = Task(name, component, given, after, retries, ignores_failure)
        yield task
        scope.tasks.append(task.variable)
        kind, output = (component.gives, "result") if component.gives != "Dataset" else ("Dataset", "out")
        scope.candidates += [
            Candidate(Output(task.variable, "seen"), "str"),
            Candidate(Output(task.variable, output), kind),
        ]

    def _may_ignore(self, component: Component, given: dict[str, Source]) -> bool:
        """Whether its inputs have defaults for upstream tasks that fail."""
        read = [each for each in component.inputs if each.name in given and not isinstance(given[each.name], Const)]
        return bool(read) and not component.failing and all(each.optional for each in read)

    def _numbered(self, scope: _Scope, name: str) -> str:
        """The name of a task, numbered as the SDK numbers it within a pipeline."""
        scope.counts[name] = scope.counts.get(name, 0) + 1
        return name if scope.counts[name] == 1 else f"{name}-{scope.counts[name]}"

    # Groups of tasks

    def _loop(self, scope: _Scope) -> Iterator[Node]:
        kind = self._chance.choice([*LISTS, "List[Dataset]"])
        items = self._source(scope, kind, nothing=False)
        fields = [k.source for k in scope.candidates if k.kind == "items"]
        if fields and self._chance_of(0.4):
            kind, items = "List[int]", self._chance.choice(fields)
        if items is None or isinstance(items, OneOf | Collected):
            return
        if isinstance(items, Const):
            kind = "List[int]" if kind == "list" else kind
            items = Const(self._constant(kind) or [self._constant("row" if "Dict" in kind else kind[5:-1])])
        inner, item = scope.inner(), self._name("i")
        if kind == "List[Dict]":
            inner.candidates += [
                Candidate(Name(item), "dict"), Candidate(Field(item, "s"), "str"),
                Candidate(Field(item, "n"), "int" if isinstance(items, Const) else "anything"),
                Candidate(Field(item, "l"), "items"),
            ]  # fmt: skip
        else:
            inner.candidates.append(Candidate(Name(item), "anything" if kind == "list" else kind[5:-1]))
        name = self._name("g")
        body = self._body(inner, self._chance.randint(1, 2))
        limit = self._chance.choice([0, 0, 0, 1, 2])
        yield Loop(name, items, item, body, limit)
        scope.candidates += _collected(scope, inner)

    def _branches(self, scope: _Scope) -> Iterator[Node]:
        """Several arms end with an ``Else``: after an ``Elif`` the SDK never closes the group and loses the tasks that follow."""
        conditions = [self._condition(scope) for _ in range(self._chance.choice([1, 1, 2]))]
        if None in conditions:
            return
        if len(conditions) > 1 or self._chance_of(0.6):
            conditions.append(None)
        arms, scopes = [], []
        for condition in conditions:
            inner = scope.inner()
            arms.append((self._name("g"), condition, self._body(inner, self._chance.randint(1, 2))))
            scopes.append(inner)
        yield Branches(tuple(arms))
        if conditions[-1] is None:
            scope.candidates += self._one_ofs(scope, scopes)

    def _one_ofs(self, scope: _Scope, scopes: Sequence[_Scope]) -> Iterator[Candidate]:
        new_by_arm = [
            [k for k in inner.candidates[len(scope.candidates) :] if isinstance(k.source, Output)] for inner in scopes
        ]
        for kind in ("str", *PARAMETERS[:2], "list", "Dataset"):
            chosen = [[k.source for k in new if k.kind == kind] for new in new_by_arm]
            if all(chosen):
                yield Candidate(OneOf(tuple(self._chance.choice(each) for each in chosen)), kind)

    def _condition(self, scope: _Scope) -> Comparison | None:
        fits = [k for k in scope.candidates if k.kind in SIMPLE and not k.nullable]
        fits = [
            k for k in fits if isinstance(k.source, Name | Output) or (isinstance(k.source, Field) and k.kind == "str")
        ]
        if not fits:
            return None
        left = self._chance.choice(fits)
        sign = self._chance.choice(["==", "!="] if left.kind == "bool" else ["==", "==", "!=", "<", "<=", ">", ">="])
        others = [k.source for k in fits if k.kind == left.kind and k is not left]
        right = self._chance.choice(others) if others and self._chance_of(0.3) else Const(self._constant(left.kind))
        return Comparison(left.source, sign, right)

    def _exit(self, scope: _Scope) -> Iterator[Node]:
        if not scope.allows_exit:
            return
        outer = _Scope([k for k in scope.candidates if isinstance(k.source, Name)], counts=scope.counts)
        calls = self._call(outer) if self._chance_of(0.2) and not self._fails else iter(())
        task = next((each for each in calls if isinstance(each, Call)), None) or self._exit_task(outer)
        inner = scope.inner()
        name = self._name("g")
        yield Exit(name, task, self._body(inner, self._chance.randint(1, 2)))

    def _exit_task(self, scope: _Scope) -> Task:
        inputs = self._inputs(SIMPLE, 2)
        component = Component(self._name("t"), inputs, "bool", ("constant", True), status=True)
        given = self._given(inputs, scope) or {}
        return Task(self._numbered(scope, component.name), component, given)

    def _call(self, scope: _Scope) -> Iterator[Node]:
        again = self._pipelines and self._chance_of(0.4)
        if again:
            pipeline = self._chance.choice(self._pipelines)
        else:
            pipeline = self.pipeline(scope.depth + 1)
            if not pipeline.body:
                return
            self._pipelines.append(pipeline)
        given = self._given(pipeline.inputs, scope)
        if given is None:
            return
        name = self._numbered(scope, pipeline.name)
        call = Call(name, pipeline, given, retries=self._chance.choice([0, 0, 2]))
        yield call
        scope.candidates += [Candidate(Output(call.variable, output), kind) for output, kind, _ in pipeline.outputs]

    def _body(self, scope: _Scope, size: int) -> list[Node]:
        makers = [self._task] * 4
        if scope.depth < DEPTH:
            makers += [self._loop, self._loop, self._branches, self._branches, self._exit, self._call]
        body = [node for _ in range(size) for node in self._chance.choice(makers)(scope)]
        while not body:
            body = list(self._task(scope))
        return body

    def pipeline(self, depth: int) -> Pipeline:
        """A pipeline; the outermost also has arguments."""
        kinds = PARAMETERS if depth == 0 else (*PARAMETERS, "Dataset")
        inputs = tuple(each for each in self._inputs(kinds, 3) if "\n" not in repr(each.default).replace("\\n", "\n"))
        scope = _Scope([Candidate(Name(i.name), i.kind, i.optional and i.default is None) for i in inputs], depth=depth)
        name = self._name("w")
        body = self._body(scope, self._chance.randint(2, 4) if depth == 0 else self._chance.randint(1, 2))
        made = [k for k in scope.candidates if not isinstance(k.source, Name | Field | Text)]
        chosen = self._chance.sample(made, min(len(made), self._chance.randint(0, 2)))
        outputs = tuple((f"o{n}", _declared(k.kind), k.source) for n, k in enumerate(chosen))
        given = (
            {i.name: self._constant(i.kind) for i in inputs if not i.optional or self._chance_of(0.4)}
            if depth == 0
            else {}
        )
        return Pipeline(name, inputs, body, outputs, given)


def _fits(kind: str, wanted: str) -> bool:
    if kind == "anything":
        return wanted == "str"
    return kind == wanted or (wanted == "list" and kind.startswith(("List[", "list")) and kind != "List[Dataset]")


def _declared(kind: str) -> str:
    return "list" if kind.startswith("List[List") else kind


def _collected(scope: _Scope, inner: _Scope) -> Iterator[Candidate]:
    for candidate in inner.candidates[len(scope.candidates) :]:
        source = candidate.source
        if isinstance(source, Collected):
            yield Candidate(source, "List[Dataset]" if candidate.kind == "List[Dataset]" else "list")
        elif isinstance(source, Output) and candidate.kind != "List[Dataset]":
            yield Candidate(Collected(source), "List[Dataset]" if candidate.kind == "Dataset" else "list")
