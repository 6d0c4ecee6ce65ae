"""Convert parameter values as KFP's backend does: its types, and numbers that went through a protobuf ``Value``.

A protobuf ``Value`` has one kind of number, a double. The backend prints it as JSON from Go, where a whole double has no
decimal point, so that a list ``[1, 2]`` comes back as ``[1, 2]``; a parameter that the component annotates as ``int`` must
come back as an ``int`` too. Sources: ``backend/src/v2/metadata/converter.go`` and ``backend/src/v2/driver/resolve.go`` of
kubeflow/pipelines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

__all__ = ["KINDS", "coerce", "parse_json", "parse_text", "to_text", "whole_numbers"]

KINDS: Mapping[str, str] = {
    "STRING": "a text",
    "NUMBER_INTEGER": "a whole number",
    "NUMBER_DOUBLE": "a number",
    "BOOLEAN": "true or false",
    "LIST": "a list",
    "STRUCT": "a mapping",
}
"""Every supported parameter type, with its name in messages."""

_WHOLE_LIMIT = 10**21  # from here on Go's JSON writes an exponent, which reads back as a float
_HTML_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # Go's json.Marshal escapes them


def whole_numbers(value: Any) -> Any:
    """Convert whole floats inside lists and mappings to ints, as they are after a way through the backend.

    The keys of mappings are sorted, as in Go's JSON of a protobuf ``Struct`` (``protojson``).
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _WHOLE_LIMIT else value
    if isinstance(value, list | tuple):
        return [whole_numbers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: whole_numbers(value[key]) for key in sorted(value)}
    return value


def to_text(value: Any) -> str:
    """Convert a value to text as the backend does: plain numbers, ``true``, compact JSON; ``None`` is empty."""
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


def parse_json(text: str | bytes) -> Any:
    """Parse JSON as the backend does: ``NaN`` and ``Infinity`` are errors. Raises ``ValueError``."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


def parse_text(text: str, kind: str) -> Any:
    """Parse the text of a value of a parameter type, from a command line or an ``OutputPath`` file.

    Raises ``ValueError`` for a text that is not of that type.
    """
    if kind == "STRING":
        return text
    return coerce(_PARSERS[kind](text.strip()), kind)


def _boolean(text: str) -> bool:
    """Parse a boolean. Source of the accepted words: Go's ``strconv.ParseBool``, which the backend uses."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _whole(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "NUMBER_INTEGER": _whole,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": _boolean,
    "LIST": parse_json,
    "STRUCT": parse_json,
}


def coerce(value: Any, kind: str) -> Any:
    """Convert a value to a parameter type, as the backend does when it passes the value to a component.

    For ``STRING`` every value becomes text; whole floats become ints for ``NUMBER_INTEGER`` and inside lists and mappings, ints
    become floats for ``NUMBER_DOUBLE``. Raises ``ValueError`` for a value of another type.
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
