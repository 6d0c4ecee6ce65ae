"""Events by the names that they have in a journal: short to write in a test, and read by the journal's own codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotwright.engine.event_codec import Row, decode, encode
from spotwright.engine.events import Event


def an_event(kind: str, at: float, task: str = "", attempt: int = 0, data: Mapping[str, Any] | None = None) -> Event:
    """The event of a journal's row."""
    return decode(Row(at, kind, task, attempt, data or {}))


def data_of(event: Event) -> Mapping[str, Any]:
    """What the row of an event says beside its moment, kind, task and attempt."""
    return encode(event).data
