"""Signals as JSON and back: only what was seen is written, so that a journal line stays short.

Reading tells an unknown field apart from a default: a journal of a newer version is refused rather than half understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from spotwright.errors import StateError
from spotwright.model.attempts import Signals

__all__ = ["read_signals", "write_signals"]

_LOCAL = {
    field.name: field.default
    for field in fields(Signals)
    if not field.name.startswith(("node_c", "node_t", "node_e")) and field.name not in ("conditions", "containers")
}


def write_signals(signals: Signals) -> dict[str, Any]:
    """The fields that differ from their defaults. Only those that a body without pods can fill are written."""
    written = {}
    for name, default in _LOCAL.items():
        value = getattr(signals, name)
        if value != default:
            written[name] = list(value) if isinstance(value, tuple) else value
    return written


def read_signals(data: Mapping[str, Any]) -> Signals:
    """The signals of an ``ended`` event."""
    given = data.get("signals", {})
    unknown = given.keys() - _LOCAL.keys()
    if unknown:
        raise StateError(f"the journal holds signals of a newer version: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Signals(**values)
