"""Parameter values: KFP's types, the conversions its backend makes, and numbers that went through a protobuf ``Value``.

A protobuf ``Value`` knows one kind of number, a double. The backend prints it as JSON from Go, where a whole double has no
point, so that a list ``[1, 2]`` comes back as ``[1, 2]``; what the component's own annotation calls ``int`` must come back
as an ``int`` too. Sources: ``backend/src/v2/metadata/converter.go`` and ``backend/src/v2/driver/resolve.go`` of
kubeflow/pipelines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

__all__ = ["KINDS", "fit", "parse_text", "read_json", "to_text", "whole_numbers"]

KINDS: Mapping[str, str] = {
    "STRING": "a text",
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a list",
    "STRUCT": "a mapping",
}
"""Every parameter type that is supported, with the words for people."""

_WHOLE_LIMIT = 10**21  # from here on Go's JSON writes an exponent, which reads back as a float
_HTML_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # Go's json.Marshal escapes them


def whole_numbers(value: Any) -> Any:
    """Turn whole floats inside lists and mappings into ints, as a value reads after it went through the backend.

    The keys of a mapping are in order then too: Go's JSON of a protobuf ``Struct`` sorts them (``protojson``).
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _WHOLE_LIMIT else value
    if isinstance(value, list | tuple):
        return [whole_numbers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: whole_numbers(value[key]) for key in sorted(value)}
    return value


def to_text(value: Any) -> str:
    """Write a value as the backend does where a text is wanted: plain numbers, ``true``, compact JSON; ``None`` is empty."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        whole = whole_numbers(value)
        return str(whole) if isinstance(whole, int) else format(Decimal(repr(value)), "f")
    text = json.dumps(whole_numbers(value), ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_HTML_ESCAPES)


def read_json(text: str | bytes) -> Any:
    """Read JSON as the backend's readers do: ``NaN`` and ``Infinity`` are no JSON. Raises ``ValueError``."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def parse_text(text: str, kind: str) -> Any:
    """Read the text of a value of a parameter type, as a command line or an ``OutputPath`` file gives it.

    Raises ``ValueError`` when the text is not of that type.
    """
    if kind == "STRING":
        return text
    return fit(_PARSERS[kind](text.strip()), kind)


def _boolean(text: str) -> bool:
    """Source of the accepted words: Go's ``strconv.ParseBool``, which the backend uses."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _whole(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "NUMBER_INTEGER": _whole,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": _boolean,
    "LIST": read_json,
    "STRUCT": read_json,
}


def fit(value: Any, kind: str) -> Any:
    """Give a value the form that a parameter type asks for, as the backend does when it passes it to a component.

    Everything becomes text for ``STRING``; whole floats become ints for ``NUMBER_INTEGER`` and inside lists and mappings, and
    whole numbers floats for ``NUMBER_DOUBLE``.
    Raises ``ValueError`` for a value of another type.
    """
    if kind == "STRING":
        return to_text(value)
    if kind in ("NUMBER_INTEGER", "NUMBER_DOUBLE"):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{value!r} is not {KINDS[kind]}")
        return whole_numbers(value) if kind == "NUMBER_INTEGER" else float(value)
    wanted = {"BOOLEAN": bool, "LIST": list | tuple, "STRUCT": Mapping}.get(kind)
    if wanted is None or not isinstance(value, wanted):
        raise ValueError(f"{value!r} is not {KINDS.get(kind, kind)}")
    return whole_numbers(value)
