"""Encodes events as rows of a journal and decodes them. No other module knows the names in the rows.

A row is ``(at, kind, task, attempt, data)``; ``data`` is a JSON object with the fields that differ from their defaults. Rows of
format 1 (version 0.1) and format 2 are decoded alike: format 2 added kinds and fields and renamed none. A row with an unknown
kind or field was written by a newer version, and is refused, because a state without it would be wrong. Values whose type
affects decisions (causes, statuses, signals) are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from json import JSONDecoder
from operator import attrgetter
from typing import Any, NamedTuple

from spotwright.engine.events import (
    WORKLOAD_EVENTS,
    AttemptAdopted,
    AttemptBound,
    AttemptDecided,
    AttemptEnded,
    AttemptHalted,
    AttemptKept,
    AttemptMoved,
    AttemptPlaced,
    AttemptRecalled,
    CacheAsked,
    CacheMissed,
    CancelRequested,
    EngineDetached,
    EngineStarted,
    EnvironmentAsked,
    EnvironmentChanged,
    Event,
    MarketKnown,
    NodeChanged,
    NoteAdded,
    NoticeGiven,
    ProgressReported,
    RunCreated,
    RunExpired,
    RunFinished,
    RunMeta,
    RunReset,
    RunStatus,
    SnapshotTaken,
    StopRequested,
    TaskCached,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TasksUnfolded,
)
from spotwright.errors import StateError
from spotwright.model.attempts import Cause, ContainerEnd, Signals, StatusCondition
from spotwright.scheduling.budgets import FollowUp

__all__ = ["DECISIONS", "EVENT_TYPES", "BadEvent", "Row", "RowReader", "UnknownEvent", "decode", "encode"]


class Row(NamedTuple):
    """One line of a journal, without its sequence number. ``data`` holds plain JSON values."""

    at: float
    kind: str
    task: str
    attempt: int
    data: Mapping[str, Any]


class BadEvent(StateError):
    """A row of a journal cannot be read."""


class UnknownEvent(BadEvent):
    """A row has a kind or field that this version does not know: a newer version wrote it."""


_HEADER = frozenset(("at", "task", "attempt"))
DECISIONS = (
    TasksUnfolded,
    TaskSkipped,
    CacheAsked,
    EnvironmentAsked,
    AttemptPlaced,
    AttemptMoved,
    AttemptKept,
    AttemptHalted,
    AttemptDecided,
    TaskCompleted,
    TaskFailed,
    RunExpired,
    RunFinished,
)
"""The kinds of event that :func:`~spotwright.engine.decide.decide` returns. All others are facts."""

EVENT_TYPES = (
    RunCreated,
    EngineStarted,
    EngineDetached,
    CancelRequested,
    StopRequested,
    RunReset,
    NoteAdded,
    NodeChanged,
    NoticeGiven,
    AttemptBound,
    ProgressReported,
    AttemptEnded,
    TaskCached,
    CacheMissed,
    EnvironmentChanged,
    SnapshotTaken,
    MarketKnown,
    *WORKLOAD_EVENTS,
    *DECISIONS,
)
"""All kinds of event. The set is closed: a journal with another kind was written by a newer version."""

_KEYS: Mapping[tuple[type, str], str] = {
    (TaskCached, "of_task"): "task",
    (AttemptDecided, "following"): "next",
}
"""The fields with another name in rows."""


class _Codec(NamedTuple):
    """The codec of one field; ``None`` for a function: the value is unchanged."""

    name: str
    default: Any
    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None


def encode(event: Event) -> Row:
    """The row of an event."""
    data: dict[str, Any] = {}
    values_of, codecs = _WRITERS[type(event)]
    for value, (key, default, write) in zip(values_of(event), codecs, strict=True):
        if value != default:
            data[key] = value if write is None else write(value)
    if type(event) is RunCreated:
        data = data.get("meta", {})  # its fields are the row's
    return Row(event.at, event.kind, event.task, event.attempt, data)


def decode(row: Row) -> Event:
    """The event of a row. Raises :class:`UnknownEvent` for kinds and fields of newer versions, else :class:`BadEvent`."""
    at, name, task, attempt, data = row
    kind = _TYPES.get(name)
    if kind is None:
        raise UnknownEvent(f"an event of the unknown kind {name!r}")
    try:
        return kind(at, task, attempt, **_fields_of(kind, data))
    except (KeyError, TypeError, ValueError) as error:
        raise _refusal(kind, row, error) from error


class RowReader:
    """Decodes the rows of a journal, one after another.

    Many rows have equal data (a success, a progress of 50 %). Decoded data are reused, and events are made by writing their
    slots, which takes half the time of the constructor: a long journal is read in two thirds of the time. Events are frozen, so
    they can share values.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], tuple[type[Event], tuple[Any, ...]]] = {}
        self._parse = JSONDecoder().raw_decode

    def decode(self, at: float, name: str, task: str, attempt: int, text: str) -> Event:
        """The event of a row with its data as JSON text. Raises the errors of :func:`decode`, and ``JSONDecodeError``."""
        shared = self._read.get((name, text))
        if shared is not None:
            return shared[0].of_values(at, task, attempt, *shared[1])
        data = self._parse(text)[0]
        kind = _TYPES.get(name)
        if kind is None or len(text) > _LONGEST_SHARED:
            return decode(Row(at, name, task, attempt, data))
        try:
            event = kind(at, task, attempt, **_fields_of(kind, data))
        except (KeyError, TypeError, ValueError) as error:
            raise _refusal(kind, Row(at, name, task, attempt, data), error) from error
        if len(self._read) < _MOST_SHARED:
            self._read[name, text] = kind, _WRITERS[kind][0](event)
        return event


_LONGEST_SHARED = 300  # characters: longer data rarely repeat
_MOST_SHARED = 10_000


def _fields_of(kind: type[Event], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an event from its row's data. The class refuses unknown names."""
    if kind is RunCreated:
        return {"meta": _read_meta(data)}
    converted = _CONVERTED[kind]
    if not converted:
        return data
    values = dict(data)
    for key, codec in converted.items():
        if key in values:
            value = values.pop(key)
            values[codec.name] = value if codec.read is None else codec.read(value)
    return values


def _refusal(kind: type[Event], row: Row, error: Exception) -> BadEvent:
    told = set(row.data) if isinstance(row.data, dict) else set()  # an untrusted journal may hold any JSON
    unknown = sorted(told - _CODECS[kind].keys()) if kind is not RunCreated else ()
    if unknown:
        return UnknownEvent(f"an event {row.kind!r} with the unknown field {unknown[0]!r}")
    return BadEvent(f"an event {row.kind!r} of {row.task or 'the run'} that cannot be read: {error}")


# Fields that are more than JSON


def _write_signals(signals: Signals) -> dict[str, Any]:
    """The signals that differ from their defaults: unobserved signals are not written."""
    values = zip(_SIGNALS.items(), signals, strict=True)
    return {name: _plain(value) for (name, default), value in values if value != default}


def _read_signals(data: Mapping[str, Any]) -> Signals:
    """Read signals. Most attempts end in one of a few ways, so equal signals without lists share one object."""
    if _PARTS.keys().isdisjoint(data):
        key = tuple(data.items())
        signals = _shared_signals.get(key)
        if signals is None:
            signals = _make_signals(data)
            if len(_shared_signals) < _MOST_SHARED_SIGNALS:
                _shared_signals[key] = signals
        return signals
    return _make_signals({name: _PARTS[name](value) if name in _PARTS else value for name, value in data.items()})


def _make_signals(values: Mapping[str, Any]) -> Signals:
    unknown = sorted(values.keys() - _SIGNALS.keys())
    if unknown:
        raise UnknownEvent(f"an event 'ended' with the unknown signals {', '.join(unknown)}")
    return Signals(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, StatusCondition | ContainerEnd):
        defaults = value._field_defaults
        return {name: v for name, v in value._asdict().items() if name not in defaults or v != defaults[name]}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _many(kind: type[StatusCondition | ContainerEnd]) -> Callable[[Any], tuple[Any, ...]]:
    names = set(kind._fields)

    def read(items: Any) -> tuple[Any, ...]:
        for item in items:
            if unknown := item.keys() - names:
                raise UnknownEvent(f"a {kind.__name__} with the unknown field {min(unknown)!r}")
        return tuple(kind(**item) for item in items)

    return read


_SIGNALS: Mapping[str, Any] = Signals._field_defaults
_MOST_SHARED_SIGNALS = 1000
_shared_signals: dict[tuple[tuple[str, Any], ...], Signals] = {}
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "missing_outputs": tuple,
    "node_taints": tuple,
    "conditions": _many(StatusCondition),
    "node_conditions": _many(StatusCondition),
    "node_events": _many(StatusCondition),
    "containers": _many(ContainerEnd),
}


def _write_meta(meta: RunMeta) -> dict[str, Any]:
    return {f.name: getattr(meta, f.name) for f in fields(meta)}


_FORMER_META = frozenset({"explicit_config"})
"""Fields of runs' first events in earlier journals, no longer read."""


def _read_meta(data: Mapping[str, Any]) -> RunMeta:
    data = {name: value for name, value in data.items() if name not in _FORMER_META}
    unknown = data.keys() - {f.name for f in fields(RunMeta)}
    if unknown:
        raise UnknownEvent(f"an event 'created' with the unknown field {min(unknown)!r}")
    return RunMeta(**data)


def _value(member: Enum) -> Any:
    return member.value


def _member_of(kind: type[Enum]) -> Callable[[Any], Any]:
    """Read a member by its value; a look-up costs a third of a call to the class."""
    return {member.value: member for member in kind}.__getitem__


def _pairs(items: Any) -> tuple[tuple[str, int], ...]:
    return tuple((task, number) for task, number in items)


def _lists(pairs: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: list(pair) for name, pair in pairs.items()}


def _tuples(pairs: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(pair) for name, pair in pairs.items()}


_SPECIAL: Mapping[tuple[type, str], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    (RunCreated, "meta"): (_write_meta, _read_meta),
    (AttemptEnded, "signals"): (_write_signals, _read_signals),
    (AttemptDecided, "cause"): (_value, _member_of(Cause)),
    (AttemptDecided, "then"): (_value, _member_of(FollowUp)),
    (RunFinished, "status"): (_value, _member_of(RunStatus)),
    (AttemptPlaced, "pools"): (list, tuple),
    (AttemptMoved, "pools"): (list, tuple),
    (AttemptAdopted, "pools"): (list, tuple),
    (AttemptRecalled, "pools"): (list, tuple),
    (AttemptRecalled, "left_out"): (_lists, _tuples),
    (RunReset, "again"): (list, tuple),
    (MarketKnown, "pools"): (_lists, _tuples),
    (MarketKnown, "boots"): (_lists, _tuples),
    (EnvironmentChanged, "packages"): (list, tuple),
    (EnvironmentChanged, "last_lines"): (list, tuple),
    (NoticeGiven, "attempts"): (lambda pairs: [list(pair) for pair in pairs], _pairs),
}


def _codecs(kind: type[Event]) -> dict[str, _Codec]:
    codecs = {}
    for name, default in kind.fields().items():
        if name not in _HEADER:
            write, read = _SPECIAL.get((kind, name), (None, None))
            codecs[_KEYS.get((kind, name), name)] = _Codec(name, default, write, read)
    return codecs


def _values_of(names: Sequence[str]) -> Callable[[Event], tuple[Any, ...]]:
    """A function that returns the fields of an event; one look-up of all fields costs half as much as separate ones."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda event: tuple(getattr(event, name) for name in names)


_TYPES: Mapping[str, type[Event]] = {kind.kind: kind for kind in EVENT_TYPES}
_CODECS: Mapping[type[Event], Mapping[str, _Codec]] = {kind: _codecs(kind) for kind in EVENT_TYPES}
_WRITERS = {
    kind: (
        _values_of([codec.name for codec in codecs.values()]),
        [(key, codec.default, codec.write) for key, codec in codecs.items()],
    )
    for kind, codecs in _CODECS.items()
}
"""For each kind: a function that returns the values of its fields, and each field's writer."""
_CONVERTED: Mapping[type[Event], Mapping[str, _Codec]] = {
    kind: {key: codec for key, codec in codecs.items() if codec.read is not None or codec.name != key}
    for kind, codecs in _CODECS.items()
}
"""The fields that a row names or encodes differently."""
