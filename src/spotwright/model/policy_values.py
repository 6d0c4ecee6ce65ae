"""Reads policy values as users write them into layers, and refuses contradictory combinations.

``spotwright.yaml``, the command line and the policy inside a compiled pipeline use one shape: a mapping with nested
``interruptions`` and ``errors``. This module reads it for all of them, so that a value means the same wherever it is written.
:func:`check` examines the merged policy, because a contradiction may have two sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from spotwright.model.policy import BUILT_IN, FIELDS, Deadline, Layer, Policy, Spot, imply_spot, resolve
from spotwright.model.quantities import parse_duration

__all__ = ["PolicyValueError", "check", "parse_policy", "policy_mapping", "resolve_layers"]

_GROUPS = frozenset(name.partition(".")[0] for name in FIELDS if "." in name)
_BEST_EFFORT = "best-effort"


class PolicyValueError(ValueError):
    """A policy value is wrong. ``field`` is its dotted name, ``expected`` describes a right value, ``given`` is the wrong one."""

    def __init__(self, field: str, expected: str, given: Any = None, *, unknown: bool = False) -> None:
        self.field = field
        self.expected = expected
        self.given = given
        what = "unknown field" if unknown else f"{given!r} is wrong"
        super().__init__(f"{field}: {what}; expected {expected}")


def parse_policy(mapping: Mapping[str, Any], source: str) -> Layer:
    """Read one policy in the shape of ``spotwright.yaml`` as a layer of this ``source``.

    Durations become seconds, ``spot`` a :class:`Spot`, ``deadline`` a :class:`Deadline`, lists become tuples.
    Raises :class:`PolicyValueError` for the first wrong value or unknown field.
    """
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key in _GROUPS:
            values.update(_group(str(key), value))
        else:
            values[str(key)] = _read(str(key), value)
    return Layer(source, values)


def policy_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a layer in the shape of ``spotwright.yaml``, as JSON data: the inverse of :func:`parse_policy`."""
    mapping: dict[str, Any] = {}
    for name, value in values.items():
        group, dot, field = name.rpartition(".")
        target = mapping.setdefault(group, {}) if dot else mapping
        target[field] = _plain(value)
    return mapping


def _plain(value: Any) -> Any:
    if isinstance(value, Deadline):
        at = "" if value.at is None else datetime.fromtimestamp(value.at, UTC).isoformat()
        return f"{at or f'{value.after}s'}{f' {_BEST_EFFORT}' if value.best_effort else ''}"
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Spot) else value


def _group(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        fields = ", ".join(field.partition(".")[2] for field in FIELDS if field.startswith(f"{name}."))
        raise PolicyValueError(name, f"a mapping with {fields}", value)
    return {f"{name}.{key}": _read(f"{name}.{key}", item) for key, item in value.items()}


def _read(field: str, value: Any) -> Any:
    reader = _READERS.get(field)
    if reader is None:
        raise PolicyValueError(field, _suggestion(field), value, unknown=True)
    try:
        return reader(value)
    except ValueError as error:
        raise PolicyValueError(field, FIELDS[field], value) from error


def _suggestion(field: str) -> str:
    import difflib

    close = difflib.get_close_matches(field, FIELDS, n=1) or [f for f in FIELDS if f.endswith(f".{field}")][:1]
    return close[0] if close else f"one of {', '.join(FIELDS)}"


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 1:
        raise ValueError(f"{value!r} is not a number of 1 or more")
    return float(value)


def _duration(value: Any) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a duration")
    return parse_duration(value)


def _positive_duration(value: Any) -> float:
    seconds = _duration(value)
    if seconds == 0:
        raise ValueError("it must be more than 0")
    return seconds


def _names(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ValueError(f"{value!r} is not a list of different names")
    return names


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value.strip()


def _checkpoint(value: Any) -> str:
    place = _text(value)
    if "{" in place or "}" in place:
        raise ValueError(f"{place!r} has a placeholder, which nothing fills in")
    return place


def _deadline(value: Any) -> Deadline:
    """Read a deadline. A YAML reader may have made a ``datetime`` of an ISO time; every other source gives text."""
    if isinstance(value, datetime):
        return Deadline(at=_moment(value))
    if not isinstance(value, str):
        return Deadline(after=_positive_duration(value))
    head, _, tail = value.strip().rpartition(" ")
    best_effort = tail == _BEST_EFFORT
    text = head.strip() if best_effort else value.strip()
    if text[:4].isdigit() and text[4:5] == "-":
        return Deadline(at=_moment(datetime.fromisoformat(text)), best_effort=best_effort)
    return Deadline(after=_positive_duration(text), best_effort=best_effort)


def _moment(value: datetime) -> float:
    if value.tzinfo is None:
        raise ValueError(f"{value} has no zone")
    return value.timestamp()


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "spot": Spot,
    "ladder": _names,
    "interruptions.max": _whole,
    "interruptions.backoff": _duration,
    "interruptions.factor": _factor,
    "interruptions.ceiling": _duration,
    "errors.retries": _whole,
    "errors.backoff": _duration,
    "errors.factor": _factor,
    "errors.ceiling": _duration,
    "fall_back_after": _whole,
    "pending_timeout": _positive_duration,
    "deadline": _deadline,
    "work": _positive_duration,
    "grace_period": _duration,
    "timeout": _positive_duration,
    "checkpoint": _checkpoint,
    "image_pull_secrets": _names,
}


def resolve_layers(layers: Sequence[Layer], kfp: Layer | None = None) -> tuple[Policy, list[str]]:
    """Resolve layers, with the ``spot`` that they imply, and :func:`check` the result: the policy, and its contradictions.

    The arguments are those of :func:`~spotwright.model.policy.resolve`.
    """
    policy = imply_spot(resolve(layers, kfp))
    return policy, check(policy, layers)


def check(policy: Policy, layers: Sequence[Layer] = ()) -> list[str]:
    """Find contradictions in a merged policy: one sentence each, with the sources of the values; empty if there are none.

    ``layers`` are the layers that the policy was resolved from, weakest first. A value of a weaker layer that a stronger layer
    makes pointless (``fall_back_after`` for every task, ``spot: never`` for one) is no contradiction. Without ``layers`` only
    values of the same source are compared in this way.
    """
    problems = []
    if policy.spot in (Spot.REQUIRE, Spot.NEVER) and _contradicts("fall_back_after", "spot", policy, layers):
        problems.append(
            f"fall_back_after {_source('fall_back_after', policy)} has no meaning beside spot: {policy.spot} "
            f"{_source('spot', policy)}; remove it, or say spot: prefer"
        )
    elif policy.spot not in (Spot.REQUIRE, Spot.NEVER) and policy.fall_back_after > policy.max_interruptions:
        problems.append(
            f"fall_back_after is {policy.fall_back_after} {_source('fall_back_after', policy)} but interruptions.max is "
            f"{policy.max_interruptions} {_source('interruptions.max', policy)}: on-demand would never be reached; "
            "lower the first"
        )
    if policy.deadline is not None:
        problems += _check_deadline(policy.deadline, policy, layers)
    return problems


def _check_deadline(deadline: Deadline, policy: Policy, layers: Sequence[Layer]) -> list[str]:
    problems = []
    if policy.spot is Spot.REQUIRE and not deadline.best_effort:
        problems.append(
            f"deadline {_source('deadline', policy)} cannot be kept beside spot: require {_source('spot', policy)}; "
            "say spot: prefer, or add 'best-effort' to the deadline"
        )
    problems += [
        f"{field} {_source(field, policy)} has no meaning beside a deadline {_source('deadline', policy)}, "
        "which decides by itself when to leave spot; remove one of them"
        for field in ("fall_back_after", "pending_timeout")
        if _contradicts(field, "deadline", policy, layers)
    ]
    return problems


def _contradicts(field: str, other: str, policy: Policy, layers: Sequence[Layer]) -> bool:
    """True if a user set ``field`` in the same layer as ``other``, or in a stronger one."""
    sources = policy.sources
    if field not in sources or sources[field] in (BUILT_IN.source, "interruptions.max"):
        return False
    if not layers:
        return sources[field] == sources.get(other)
    return _rank(field, layers) >= _rank(other, layers)


def _rank(field: str, layers: Sequence[Layer]) -> int:
    return max((index for index, layer in enumerate(layers) if field in layer.values), default=-1)


def _source(field: str, policy: Policy) -> str:
    return f"({policy.sources.get(field, BUILT_IN.source)})"
