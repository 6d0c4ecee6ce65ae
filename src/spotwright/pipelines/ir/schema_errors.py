"""Find the values of a document that do not fit its protobuf message, after protobuf has refused the document.

Protobuf's own error lacks the place for many mistakes (a text where a mapping belongs), and names Python's types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Step", "schema_errors"]

Step = str | int
"""A key of a mapping, or a number in a list."""

_SchemaError = tuple[tuple[Step, ...], str]
_FREE = ("google.protobuf.Value", "google.protobuf.ListValue")
_STRUCT, _DURATION = "google.protobuf.Struct", "google.protobuf.Duration"
_SECONDS = re.compile(r"-?\d+(\.\d+)?s")
_WORDS = {dict: "a mapping", list: "a list", type(None): "nothing"}


def schema_errors(value: Any, message: Any, path: tuple[Step, ...] = ()) -> Iterator[_SchemaError]:
    """Yield each place at which ``value`` does not fit a message's descriptor, with the expected kind, in the value's order."""
    if message.full_name in _FREE:
        return
    if message.full_name == _DURATION:
        if not (isinstance(value, str) and _SECONDS.fullmatch(value)):
            yield path, f"expected seconds such as '60s', found {_shown(value)}"
    elif not isinstance(value, dict):
        yield path, f"expected a mapping, found {_shown(value)}"
    elif message.full_name != _STRUCT:
        yield from _in_fields(value, message, path)


def _in_fields(value: Mapping[Any, Any], message: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    fields = {field.json_name: field for field in message.fields}
    names = fields | {field.name: field for field in message.fields}
    for key, item in value.items():
        if key not in names:
            yield (*path, key), f"unknown key, known here: {', '.join(fields) or 'none'}"
        elif item is not None:  # null is the same as a field that is left out
            yield from _in_field(item, names[key], (*path, key))


def _in_field(item: Any, field: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if not isinstance(item, dict):
            yield path, f"expected a mapping, found {_shown(item)}"
            return
        value_field = field.message_type.fields_by_name["value"]
        for key, each in item.items():
            if isinstance(key, str):
                yield from _in_value(each, value_field, (*path, key))
            else:
                yield (*path, key), f"expected a text as the key, found {_shown(key)}"
    elif not _is_repeated(field):
        yield from _in_value(item, field, path)
    elif not isinstance(item, list):
        yield path, f"expected a list, found {_shown(item)}"
    else:
        for number, each in enumerate(item):
            yield from _in_value(each, field, (*path, number))


def _is_repeated(field: Any) -> bool:
    """Whether a field is a list. Newer versions of protobuf have a property for it, and warn where the label is read."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _in_value(value: Any, field: Any, path: tuple[Step, ...]) -> Iterator[_SchemaError]:
    if field.message_type is not None:
        yield from schema_errors(value, field.message_type, path)
    elif field.enum_type is not None:
        names = [each.name for each in field.enum_type.values]
        if value not in names and not _is_number(value):
            yield path, f"expected one of {', '.join(names)}; found {_shown(value)}"
    elif field.cpp_type == field.CPPTYPE_STRING:
        if not isinstance(value, str):
            yield path, f"expected a text, found {_shown(value)}"
    elif field.cpp_type == field.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            yield path, f"expected true or false, found {_shown(value)}"
    elif not _is_number(value):
        yield path, f"expected a number, found {_shown(value)}"


def _is_number(value: Any) -> bool:
    """Whether a value is a number; protobuf accepts a text that holds one too."""
    try:
        return not isinstance(value, bool) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _shown(value: Any) -> str:
    text = _WORDS.get(type(value)) or repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
