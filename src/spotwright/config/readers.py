"""Readers of field values: each turns a node of the document into a value, or reports a problem and returns ``None``.

The tables of fields (:mod:`spotwright.config.fields`) name the readers. The description of the expected value comes from the
tables too, so that the reference page and the error messages agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeAlias

from spotwright.config.problems import Location
from spotwright.config.yaml_nodes import Entry, Items, Node, Scalar, Table, plain
from spotwright.model.quantities import parse_duration, parse_price, parse_quantity, parse_resource
from spotwright.model.scheduling_terms import Taint

__all__ = [
    "Reader",
    "choice",
    "create_flags",
    "currency",
    "duration",
    "exactly",
    "labels",
    "one_of",
    "one_or_more",
    "package",
    "positive_duration",
    "price",
    "reasons",
    "release",
    "resources",
    "table",
    "taints",
    "texts",
    "whole",
    "words",
]

Reader: TypeAlias = Callable[[Node, Location, str], Any]
"""Reads a node at a location; the text describes the expected value."""

MOST = 1_000_000  # nodes of a pool, at most
_LARGEST = 2**63 - 1  # the largest amount in the Kubernetes API
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=.{1,253}/)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*/"
_KEY = re.compile(rf"(?:{_PREFIX})?{_NAME}")  # Kubernetes: "Labels and Selectors", syntax
_VALUE = re.compile(rf"(?:{_NAME})?")
_EXTENDED = re.compile(rf"{_PREFIX}{_NAME}")
_TAINT = re.compile(r"([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_COUNTED = frozenset({"pods"})  # also every resource with a prefix
_MEASURED = frozenset({"cpu", "memory", "ephemeral-storage"})
_LEAST_MEMORY = 2**20  # a smaller amount lacks its unit: "16" is 16 bytes
_NUMBERS = ("int", "float")


def _scalar(convert: Callable[[Scalar], Any]) -> Reader:
    """Return a reader of a single value; ``convert`` raises ``ValueError`` for a wrong one."""

    def read(node: Node, location: Location, expects: str) -> Any:
        if isinstance(node, Scalar) and node.kind not in ("null", "bool"):
            try:
                return convert(node)
            except ValueError:
                location.expected(node, expects)
                return None
        location.expected(node, expects)
        return None

    return read


def _words(node: Scalar) -> str:
    text = node.text.strip()
    if not text or not text.isprintable() or len(text) > 1000:
        raise ValueError("no text")
    return text


def _whole(node: Scalar) -> int:
    if node.kind != "int" or not 0 <= int(node.text) <= MOST:
        raise ValueError("no whole number")
    return int(node.text)


def _positive(node: Scalar) -> float:
    seconds = parse_duration(node.text)
    if seconds == 0:
        raise ValueError("no time at all")
    return seconds


def _release(node: Scalar) -> str:
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", node.text):
        raise ValueError("no version")
    return node.text


def _package(node: Scalar) -> str:
    if not re.fullmatch(
        r"embedded|configmap|image|[0-9]+(\.[0-9]+)+[\w.+!-]*|(https?|file)://[!-~]+|/[!-~]+", node.text
    ):
        raise ValueError("no package")
    return node.text


def _currency(node: Scalar) -> str:
    if not re.fullmatch(r"[A-Z]{3}", node.text):
        raise ValueError("no currency")
    return node.text


words = _scalar(_words)
"""Text on one line."""
whole = _scalar(_whole)
"""A whole number, 0 or more."""
duration = _scalar(lambda node: parse_duration(node.text))
"""Seconds."""
positive_duration = _scalar(_positive)
"""Seconds, more than 0."""
price = _scalar(lambda node: parse_price(node.text))
"""An exact amount per node hour."""
release = _scalar(_release)
"""A release such as 1.30, as text: as a number it would lose its last digit."""
package = _scalar(_package)
"""How pods get the checkpoint library."""
currency = _scalar(_currency)
"""Three capital letters, as in ISO 4217."""


def exactly(number: int) -> Reader:
    """Return a reader of this number alone."""

    def convert(node: Scalar) -> int:
        if node.kind != "int" or int(node.text) != number:
            raise ValueError("another number")
        return number

    return _scalar(convert)


def choice(kind: type[StrEnum]) -> Reader:
    """Return a reader of a value of an enumeration."""
    return _scalar(lambda node: kind(node.text))


def one_of(*names: str) -> Reader:
    """Return a reader of one of these words."""

    def convert(node: Scalar) -> str:
        if node.text not in names:
            raise ValueError("another word")
        return node.text

    return _scalar(convert)


def table(node: Node, location: Location, expects: str) -> Table | None:
    """Read a mapping whose fields another table describes."""
    if not isinstance(node, Table):
        location.expected(node, expects)
        return None
    return node


def texts(node: Node, location: Location, expects: str) -> tuple[str, ...]:
    """Read a list of different texts."""
    values: dict[str, None] = {}
    for item, where in _items(node, location, expects):
        text = words(item, where, "text")
        if text in values:
            where.wrong(item.line, f"{text!r} is given twice: remove one")
        values[text] = None
    return tuple(values)


def one_or_more(node: Node, location: Location, expects: str) -> tuple[str, ...]:
    """Read a text, or a list of different texts."""
    if isinstance(node, Items):
        return texts(node, location, expects)
    text = words(node, location, expects)
    return () if text is None else (text,)


def labels(node: Node, location: Location, expects: str) -> Mapping[str, str]:
    """Read Kubernetes labels: keys with an optional prefix, values that are text."""
    values: dict[str, str] = {}
    for key, entry, where in _entries(node, location, expects):
        if not _KEY.fullmatch(key):
            where.wrong(
                entry.line, "expected a label key: letters, digits, - _ . and an optional prefix such as example.com/"
            )
        value = entry.node
        if isinstance(value, Scalar) and value.kind in ("bool", *_NUMBERS):
            where.wrong(
                value.line, f'expected text, found {value.text}: labels are text, write "{value.text}" in quotes'
            )
        elif not isinstance(value, Scalar) or value.kind == "null":
            where.expected(value, 'text ("" for an empty value)')
        elif not _VALUE.fullmatch(value.text):
            where.expected(
                value, "a label value of at most 63 letters, digits, - _ . that begins and ends with a letter or digit"
            )
        else:
            values[key] = value.text
    return values


def reasons(node: Node, location: Location, expects: str) -> Mapping[str, str]:
    """Read names, each with a sentence that says why."""
    values: dict[str, str] = {}
    for name, entry, where in _entries(node, location, expects):
        text = words(entry.node, where, "the reason, as a text")
        if text:
            values[name] = text
        elif text is not None:
            where.wrong(entry.line, "expected the reason, found an empty text")
    return values


def taints(node: Node, location: Location, expects: str) -> tuple[Taint, ...]:
    """Read Kubernetes taints: ``key=value:Effect`` or ``key:Effect``; a node has one taint of a key and effect."""
    by_key: dict[tuple[str, str], Taint] = {}
    for item, where in _items(node, location, expects):
        match = _TAINT.fullmatch(item.text) if isinstance(item, Scalar) else None
        if match is None or not _KEY.fullmatch(match[1]) or not _VALUE.fullmatch(match[2] or ""):
            where.expected(item, 'text such as "sku=gpu:NoSchedule" (or PreferNoSchedule, NoExecute)')
            continue
        taint = Taint(match[1], match[2] or "", match[3])
        if (taint.key, taint.effect) in by_key:
            where.wrong(
                item.line, f"{taint.key}:{taint.effect} is given twice, and a node has one such taint: remove one"
            )
        by_key[taint.key, taint.effect] = taint
    return tuple(by_key.values())


def create_flags(node: Node, location: Location, expects: str) -> Mapping[str, Any]:
    """Read settings of a provider's tool by name: any value but null; the tool's own names are not known here."""
    values: dict[str, Any] = {}
    for key, entry, where in _entries(node, location, expects):
        if not _FLAG.fullmatch(key):
            where.wrong(entry.line, "expected a name without dashes before it, such as disk-size")
        elif isinstance(entry.node, Scalar) and entry.node.kind == "null":
            where.expected(entry.node, "a value; true for a flag that has none")
        else:
            values[key] = _as_written(entry.node)
    return values


def _as_written(node: Node) -> Any:
    """A number keeps its text (``1.10``) where the node is a value or a list of values; nested settings become Python values."""
    if isinstance(node, Scalar):
        return node.text if node.kind == "float" else plain(node)
    if isinstance(node, Items) and all(isinstance(item, Scalar) for item in node.nodes):
        return tuple(_as_written(item) for item in node.nodes)
    return plain(node)


def resources(node: Node, location: Location, expects: str) -> Mapping[str, int]:
    """Read the resources of a node by name."""
    amounts: dict[str, int] = {}
    for name, entry, where in _entries(node, location, expects):
        amount = _amount(name, entry, where)
        if amount is not None:
            amounts[name] = amount
    return amounts


def _amount(name: str, entry: Entry, where: Location) -> int | None:
    counted = name in _COUNTED or _EXTENDED.fullmatch(name) is not None
    if not counted and name not in _MEASURED and not name.startswith("hugepages-"):
        known = "cpu, memory, ephemeral-storage or a device such as nvidia.com/gpu"
        where.wrong(entry.line, f"unknown resource, expected {known}")
        return None

    def convert(node: Scalar) -> int:
        exact, amount = parse_quantity(node.text), parse_resource(name, node.text)
        too_small = (name == "memory" and amount < _LEAST_MEMORY) or (name == "cpu" and amount == 0)
        if too_small or amount > _LARGEST or (counted and exact.denominator != 1):
            raise ValueError("out of range")
        return amount

    amount: int | None = _scalar(convert)(entry.node, where, _expected_amount(name, counted=counted))
    return amount


def _expected_amount(name: str, *, counted: bool) -> str:
    if counted:
        return "a whole number such as 1"
    return "cores such as 6 or 500m" if name == "cpu" else "an amount with its unit such as 112Gi"


def _items(node: Node, location: Location, expects: str) -> list[tuple[Node, Location]]:
    if not isinstance(node, Items):
        location.expected(node, expects)
        return []
    return [(item, location.item(index)) for index, item in enumerate(node.nodes)]


def _entries(node: Node, location: Location, expects: str) -> list[tuple[str, Entry, Location]]:
    if not isinstance(node, Table):
        location.expected(node, expects)
        return []
    return [(key, entry, location.key(key)) for key, entry in node.entries.items()]
