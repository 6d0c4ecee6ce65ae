"""Read and evaluate conditions of tasks: the part of CEL that KFP's compiler writes for ``dsl.If``, ``dsl.Elif``, ``dsl.Else``.

The backend hands ``triggerPolicy.condition`` to cel-go, with the task's inputs below ``inputs.parameter_values``
(``backend/src/v2/expression/expression.go`` of kubeflow/pipelines). Comparisons are strict here too: a string never equals a
number, and an input without a value is an error, not false.

This module accepts more than CEL in one point. The compiler quotes strings without escaping them
(``_single_binary_operation_to_cel_condition`` in ``pipeline_spec_builder.py``), so ``x == "it's"`` becomes ``x == 'it's'``,
which cel-go refuses. A condition that is not valid CEL is read in the compiler's shape: comparisons joined by ``&&``, each
perhaps negated, a string from its first quote to its last.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from spotwright.kfp.values import to_text

__all__ = ["CelCondition", "ConditionError", "read_condition"]


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<input>inputs\.parameter_values\[(?:'(?P<single>[^'\\]*)'|"(?P<double>[^"\\]*)")\])
      | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+))
      | (?P<whole>-?\d+)
      | (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign>==|!=|<=|>=|<|>|&&|\|\||!|\(|\))
    )""",
    re.VERBOSE,
)
_INPUT = re.compile(r"inputs\.parameter_values\['([^']*)'\]")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"} | {c: c for c in "\\'\"`?"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_LOOSE_COMPARISON = re.compile(r" (==|!=|<=|>=|<|>) ")
_LOOSE_QUOTED_INPUT = re.compile(r"(?:int\()?inputs\.parameter_values\['([^']*)'\]\)?")

Node = tuple[Any, ...]
"""``(and|or, left, right)``, ``(not, inner)``, ``(cmp, sign, left, right)``, ``(call, name, inner)``, ``(value, it)`` or
``(input, name)``.
"""


class ConditionError(ValueError):
    """The condition cannot be evaluated with these values."""


class CelCondition(NamedTuple):
    """A condition: its text as compiled, and its syntax tree."""

    text: str
    tree: Node

    def holds(self, inputs: Mapping[str, Any]) -> bool:
        """Whether it holds for these input values. Raises :class:`ConditionError` if the result is not a boolean."""
        value = _evaluate(self.tree, inputs)
        if not isinstance(value, bool):
            raise ConditionError(f"it gives {value!r}, neither true nor false")
        return value

    def operands(self) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """The names of the inputs that it reads, and the constants in it, in its order."""
        leaves = list(_leaves(self.tree))
        names = dict.fromkeys(value for kind, value in leaves if kind == "input")
        return tuple(names), tuple(value for kind, value in leaves if kind == "value")

    def __str__(self) -> str:
        return _INPUT.sub(lambda match: match[1].removeprefix("pipelinechannel--"), self.text)


@lru_cache(maxsize=256)
def read_condition(text: str) -> CelCondition:
    """Read a condition. Raises ``ValueError`` for a text outside this part of CEL and the compiler's shape."""
    try:
        return CelCondition(text, _Parser(text).whole())
    except ValueError as error:
        tree = _loose_all(text.strip())
        if tree is None:
            raise ValueError(f"{text!r} cannot be read: {error}") from error
        return CelCondition(text, tree)


class _Parser:
    """CEL by recursive descent: or, and, not, one comparison, operand."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    def whole(self) -> Node:
        return self._ended(self._either())

    def operand(self) -> Node:
        """A single operand up to the end."""
        return self._ended(self._operand())

    def _ended(self, tree: Node) -> Node:
        if self._next < len(self._tokens):
            raise ValueError(f"{self._tokens[self._next][1]} was not expected")
        return tree

    def _either(self) -> Node:
        tree = self._all()
        while self._take("sign", "||"):
            tree = ("or", tree, self._all())
        return tree

    def _all(self) -> Node:
        tree = self._negated()
        while self._take("sign", "&&"):
            tree = ("and", tree, self._negated())
        return tree

    def _negated(self) -> Node:
        if self._take("sign", "!"):
            return ("not", self._negated())
        left = self._operand()
        kind, sign = self._peek()
        if kind != "sign" or sign not in _COMPARISONS:
            return left
        self._next += 1
        return ("cmp", sign, left, self._operand())

    def _operand(self) -> Node:
        kind, token = self._peek()
        self._next += 1
        if kind in ("input", "value"):
            return (kind, token)
        if (kind, token) == ("sign", "("):
            inner = self._either()
        elif kind == "word" and token in _CALLS and self._take("sign", "("):
            inner = ("call", token, self._either())
        else:
            raise ValueError(f"{token or 'its end'} was not expected")
        if not self._take("sign", ")"):
            raise ValueError("a parenthesis is not closed")
        return inner

    def _peek(self) -> tuple[str, Any]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, *token: Any) -> bool:
        if self._peek() != token:
            return False
        self._next += 1
        return True


def _tokens(text: str) -> Any:
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"{text[place:].strip()[:20]!r} was not expected")
        place = match.end()
        yield _token(match)


def _token(match: re.Match[str]) -> tuple[str, Any]:
    kind = match.lastgroup if match["input"] is None else "input"
    if kind == "input":
        return "input", match["single"] if match["single"] is not None else match["double"]
    text = match[str(kind)]
    if kind == "number":
        return "value", float(text)
    if kind == "whole":
        return "value", int(text)
    if kind == "text":
        return "value", _ESCAPE.sub(_unescaped, text[1:-1])
    if kind == "word" and text in ("true", "false"):
        return "value", text == "true"
    return str(kind), text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code in _ESCAPES:
        return _ESCAPES[code]
    if len(code) == 1:
        raise ValueError(f"\\{code} is not a valid escape")
    return chr(int(code, 8) if code[0] in "01234567" else int(code[1:], 16))


# The compiler's shape, for conditions that are not valid CEL


@lru_cache(maxsize=256)
def _loose_all(text: str) -> Node | None:
    """The tree of comparisons joined by ``&&``, or ``None``; the first ends at the first ``&&`` whose rest parses."""
    negated = text.startswith("!(")
    ends = [match.start() for match in re.finditer(" && ", text)] + [len(text)]
    for end in ends:
        first, rest = text[:end], text[end + 4 :]
        if negated and not first.endswith(")"):
            continue
        tree = _loose_comparison(first[2:-1] if negated else first)
        if tree is None:
            continue
        tree = ("not", tree) if negated else tree
        if end == len(text):
            return tree
        others = _loose_all(rest)
        if others is not None:
            return ("and", tree, others)
    return None


def _loose_comparison(text: str) -> Node | None:
    for match in _LOOSE_COMPARISON.finditer(text):
        left, right = _loose_operand(text[: match.start()]), _loose_operand(text[match.end() :])
        if left is not None and right is not None:
            return ("cmp", match[1], left, right)
    return None


def _loose_operand(text: str) -> Node | None:
    try:
        tree = _Parser(text).operand()
    except ValueError:
        tree = None
    if tree is not None or len(text) < 2 or not text.startswith("'") or not text.endswith("'"):
        return tree
    quoted = _LOOSE_QUOTED_INPUT.fullmatch(text[1:-1])
    return ("call", "string", ("input", quoted[1])) if quoted else ("value", text[1:-1])


def _leaves(tree: Node) -> Iterator[Node]:
    """The inputs and the constants of a tree."""
    if tree[0] in ("input", "value"):
        yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from _leaves(part)


# Evaluation


def _evaluate(tree: Node, inputs: Mapping[str, Any]) -> Any:
    return _EVALUATE[tree[0]](tree, inputs)


def _input(tree: Node, inputs: Mapping[str, Any]) -> Any:
    if inputs.get(tree[1]) is None:
        raise ConditionError(f"its input {tree[1].removeprefix('pipelinechannel--')} has no value")
    return inputs[tree[1]]


def _both(tree: Node, inputs: Mapping[str, Any]) -> bool:
    """Evaluate ``and`` or ``or``. As in CEL, an error on one side is ignored if the other side decides the result."""
    decides = tree[0] == "or"
    failed: ConditionError | None = None
    for side in tree[1:]:
        try:
            if _truth(side, inputs) is decides:
                return decides
        except ConditionError as error:
            failed = error
    if failed is not None:
        raise failed
    return not decides


def _truth(tree: Node, inputs: Mapping[str, Any]) -> bool:
    value = _evaluate(tree, inputs)
    if not isinstance(value, bool):
        raise ConditionError(f"{_shown(value)} is neither true nor false")
    return value


def _compare(tree: Node, inputs: Mapping[str, Any]) -> bool:
    left, right = _evaluate(tree[2], inputs), _evaluate(tree[3], inputs)
    if _kind(left) != _kind(right) or not _kind(left):
        raise ConditionError(f"{_shown(left)} and {_shown(right)} cannot be compared")
    return _COMPARISONS[tree[1]](left, right)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return int(value)


def _to_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    return float(value)


_CALLS: Mapping[str, Callable[[Any], Any]] = {"int": _to_int, "double": _to_double, "string": to_text}


def _call(tree: Node, inputs: Mapping[str, Any]) -> Any:
    value = _evaluate(tree[2], inputs)
    try:
        return _CALLS[tree[1]](value)
    except (ValueError, OverflowError) as error:
        raise ConditionError(f"{_shown(value)} is not a number") from error


_EVALUATE: Mapping[str, Callable[[Node, Mapping[str, Any]], Any]] = {
    "value": lambda tree, _inputs: tree[1],
    "input": _input,
    "and": _both,
    "or": _both,
    "not": lambda tree, inputs: not _truth(tree[1], inputs),
    "cmp": _compare,
    "call": _call,
}
