"""The policy of a piece of work, resolved from layers, with the source of every value.

A layer is a flat mapping from field names (``interruptions.max``) to values, with the name of its source; values are read as
users write them, and contradictory combinations are refused. Layers are ordered from weakest to strongest, and the strongest
layer that sets a field wins. KFP's ``set_retry`` is the one exception of the design: it also *raises* ``interruptions.max``
(see :func:`resolve`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from spotwright.model.quantities import parse_duration

__all__ = [
    "BUILT_IN",
    "EXIT_HANDLER",
    "FIELDS",
    "RENAMED",
    "Backoff",
    "Deadline",
    "Layer",
    "Policy",
    "PolicyValueError",
    "Spot",
    "check",
    "imply_spot",
    "inherit_retry",
    "lost_deadline",
    "parse_policy",
    "policy_mapping",
    "resolve",
    "resolve_layers",
    "without_deadlines",
]


class Spot(StrEnum):
    """Use of spot capacity."""

    REQUIRE = "require"  # spot only
    PREFER = "prefer"  # spot, then on-demand
    NEVER = "never"  # on-demand only


class Backoff(NamedTuple):
    """Waits between attempts, seconds: ``first * factor ** n``, never above ``max_backoff``."""

    first: float = 1.0
    factor: float = 2.0
    max_backoff: float = 300.0

    def wait(self, ended: int) -> float:
        """Seconds to wait after the ``ended``-th ending of its kind, counted from one."""
        try:
            return min(self.max_backoff, self.first * self.factor ** max(0, ended - 1))
        except OverflowError:
            return self.max_backoff


class Deadline(NamedTuple):
    """The time by which the work must be done: either ``after`` (seconds from the run's start) or ``at`` (Unix time) is set."""

    after: float | None = None
    at: float | None = None
    best_effort: bool = False  # it may be missed, so ``spot: require`` allows it

    def moment(self, run_started: float) -> float:
        """The deadline as Unix time."""
        return self.at if self.at is not None else run_started + (self.after or 0.0)


class Layer(NamedTuple):
    """Values from one source. ``source`` is its name for people: ``spotwright.yaml:12``, ``set_retry``."""

    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """The resolved policy of one task. Durations are in seconds; ``sources`` gives the source of each field's value.

    ``spot`` is ``None`` if no source sets it. The task's own tolerations, selectors and affinity then decide its placement
    alone.
    """

    spot: Spot | None = None
    ladder: tuple[str, ...] | None = None
    max_interruptions: int = 10
    interruption_backoff: Backoff = field(default_factory=Backoff)
    retries: int = 0
    error_backoff: Backoff = field(default_factory=Backoff)
    fall_back_after: int = 10
    pending_timeout: float = 600.0
    deadline: Deadline | None = None
    expected_duration: float | None = None
    grace_period: float = 30.0
    timeout: float | None = None
    checkpoint: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


FIELDS: Mapping[str, str] = {
    "spot": "require, prefer or never",
    "ladder": "a list of pool names",
    "interruptions.max": "a whole number, 0 or more",
    "interruptions.backoff": "a duration such as 1s",
    "interruptions.factor": "a number, 1 or more",
    "interruptions.max_backoff": "a duration such as 5m",
    "errors.retries": "a whole number, 0 or more",
    "errors.backoff": "a duration such as 1s",
    "errors.factor": "a number, 1 or more",
    "errors.max_backoff": "a duration such as 5m",
    "fall_back_after": "a whole number from 0 to interruptions.max",
    "pending_timeout": "a duration such as 10m",
    "deadline": (
        "a duration from the run's start (8h), or a time with its zone (2026-11-21T08:00:00+01:00); "
        "add 'best-effort' if it may be missed"
    ),
    "expected_duration": "a duration: how long the task takes on a node that is never reclaimed",
    "grace_period": "a duration such as 20s",
    "timeout": "a duration such as 1h",
    "checkpoint": "a folder, a URL or pvc://NAME, without placeholders: each task of each run has its own folder there",
    "image_pull_secrets": "a list of secret names",
}
"""Every policy field with the form of its value. The source of the reference page and the error messages."""

EXIT_HANDLER = Layer("it is an exit handler, which must run however the pipeline ends", {"spot": Spot.NEVER})
"""Keeps exit handlers on on-demand although the default policy allows spot; its source says why."""

RENAMED: Mapping[str, str] = {
    "ceiling": "max_backoff",
    "lifetime": "max_lifetime",
    "taken_every": "interrupt_every",
    "work": "expected_duration",
}
"""Earlier names of keys of ``spotwright.yaml``. Files with one are refused with the new name; stored runs may have them."""

BUILT_IN = Layer(
    "built in",
    {
        "interruptions.max": 10,
        "interruptions.backoff": 1.0,
        "interruptions.factor": 2.0,
        "interruptions.max_backoff": 300.0,
        "errors.retries": 0,
        "errors.backoff": 1.0,
        "errors.factor": 2.0,
        "errors.max_backoff": 300.0,
        "pending_timeout": 600.0,
        "grace_period": 30.0,
    },
)
_RETRY_TO_INTERRUPTIONS = {
    "errors.backoff": "interruptions.backoff",
    "errors.factor": "interruptions.factor",
    "errors.max_backoff": "interruptions.max_backoff",
}


def inherit_retry(own: Layer | None, above: Layer | None) -> Layer | None:
    """The retry layer of a task inside a DAG: its own, else the DAG task's.

    ``above`` is the nearest such layer. Source: ``backend/src/v2/compiler/visitor.go`` of kubeflow/pipelines.
    """
    if own is None or above is None or "errors.retries" in own.values:
        return own or above
    return Layer(f"{above.source} and {own.source}", {**above.values, **own.values})


def resolve(layers: Iterable[Layer], kfp: Layer | None = None, own: Layer | None = None) -> Policy:
    """Resolve layers, weakest first, over the built-in values.

    ``kfp`` is the layer of KFP's own settings (``set_retry``, ``set_timeout``) and must also be in ``layers``, in its order.
    Its retries raise ``interruptions.max`` to at least their number, and its backoff applies to interruptions in fields that no
    layer sets. ``fall_back_after`` defaults to ``interruptions.max``.

    ``own`` is the layer of the workload controller's retries (a Job's ``backoffLimit``), likewise in ``layers``. These count
    interruptions too, so they raise ``interruptions.max``, unless a stronger layer sets it; the default of ``fall_back_after``
    does not change.
    """
    layers = tuple(layers)
    values: dict[str, Any] = dict(BUILT_IN.values)
    sources: dict[str, str] = dict.fromkeys(values, BUILT_IN.source)
    for layer in layers:
        for key, value in layer.values.items():
            values[key], sources[key] = value, layer.source
    if kfp is not None:
        _apply_set_retry(kfp, values, sources)
    if own is not None and _rank("interruptions.max", layers) < layers.index(own):
        _allow_as_many_interruptions(own, values, sources)
    if "fall_back_after" not in values:
        values["fall_back_after"], sources["fall_back_after"] = values["interruptions.max"], "interruptions.max"
    return Policy(
        spot=Spot(values["spot"]) if values.get("spot") else None,
        ladder=tuple(values["ladder"]) if values.get("ladder") is not None else None,
        max_interruptions=values["interruptions.max"],
        interruption_backoff=_backoff("interruptions", values),
        retries=values["errors.retries"],
        error_backoff=_backoff("errors", values),
        fall_back_after=values["fall_back_after"],
        pending_timeout=values["pending_timeout"],
        deadline=values.get("deadline"),
        expected_duration=values.get("expected_duration"),
        grace_period=values["grace_period"],
        timeout=values.get("timeout"),
        checkpoint=values.get("checkpoint"),
        image_pull_secrets=tuple(values.get("image_pull_secrets", ())),
        sources=sources,
    )


def imply_spot(policy: Policy) -> Policy:
    """Return the policy with ``spot: prefer`` if the user set a deadline or ``fall_back_after`` and no ``spot``."""
    defaults = (None, BUILT_IN.source, "interruptions.max")
    implying = [name for name in ("deadline", "fall_back_after") if policy.sources.get(name) not in defaults]
    if policy.spot is not None or not implying:
        return policy
    return replace(policy, spot=Spot.PREFER, sources={**policy.sources, "spot": policy.sources[implying[0]]})


def _backoff(kind: str, values: Mapping[str, Any]) -> Backoff:
    return Backoff(values[f"{kind}.backoff"], values[f"{kind}.factor"], values[f"{kind}.max_backoff"])


def _apply_set_retry(kfp: Layer, values: dict[str, Any], sources: dict[str, str]) -> None:
    """Apply the design's rule: ``set_retry`` sets the error budget, and the interruption budget too, as tutorials use it."""
    retries = kfp.values.get("errors.retries")
    if retries is not None and values["interruptions.max"] < retries:
        values["interruptions.max"], sources["interruptions.max"] = retries, kfp.source
    for error_field, interruption_field in _RETRY_TO_INTERRUPTIONS.items():
        if error_field in kfp.values and sources[interruption_field] == BUILT_IN.source:
            values[interruption_field], sources[interruption_field] = kfp.values[error_field], kfp.source


def _allow_as_many_interruptions(own: Layer, values: dict[str, Any], sources: dict[str, str]) -> None:
    """Allow at least as many interruptions as the workload's controller retries, because it counts them with the errors."""
    retries, before = own.values["errors.retries"], values["interruptions.max"]
    if before < retries:
        if "fall_back_after" not in values:
            values["fall_back_after"], sources["fall_back_after"] = before, "interruptions.max"
        values["interruptions.max"], sources["interruptions.max"] = retries, own.source


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
    Raises :class:`PolicyValueError` for the first wrong value or unknown field, and for anything but a mapping.
    """
    if not isinstance(mapping, Mapping):  # an annotation may hold any JSON
        raise PolicyValueError("policy", "a mapping", mapping)
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

    group, dot, word = field.rpartition(".")
    present = f"{group}{dot}{RENAMED.get(word)}"
    if present in FIELDS:
        return present
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
        raise ValueError(f"{place!r} has a placeholder, which is not substituted")
    return place


def _deadline(value: Any) -> Deadline:
    """Read a deadline. A YAML reader may have converted an ISO time to ``datetime``; other sources give strings."""
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
    "interruptions.max_backoff": _duration,
    "errors.retries": _whole,
    "errors.backoff": _duration,
    "errors.factor": _factor,
    "errors.max_backoff": _duration,
    "fall_back_after": _whole,
    "pending_timeout": _positive_duration,
    "deadline": _deadline,
    "expected_duration": _positive_duration,
    "grace_period": _duration,
    "timeout": _positive_duration,
    "checkpoint": _checkpoint,
    "image_pull_secrets": _names,
}


def without_deadlines(layers: Sequence[Layer]) -> list[Layer]:
    """The layers without deadlines, which have no effect on a cluster.

    Placement, the webhook, the journal and the descheduler all read a policy through this, so that a deadline does not take
    effect in part: nor does it imply ``spot: prefer``.
    """
    return [
        Layer(layer.source, {key: value for key, value in layer.values.items() if key != "deadline"})
        if "deadline" in layer.values
        else layer
        for layer in layers
    ]


def lost_deadline(layers: Sequence[Layer]) -> str:
    """The message to a user whose layers set a deadline that :func:`without_deadlines` drops; empty if none does."""
    source = next((layer.source for layer in reversed(layers) if layer.values.get("deadline") is not None), "")
    return (
        f"deadline ({source}) has no effect on a cluster: only spotwright run on one machine keeps it; on a cluster, set"
        " fall_back_after and pending_timeout"
        if source
        else ""
    )


def resolve_layers(
    layers: Sequence[Layer], kfp: Layer | None = None, own: Layer | None = None
) -> tuple[Policy, list[str]]:
    """Resolve layers, with the ``spot`` that they imply, and :func:`check` the result: the policy, and its contradictions.

    The arguments are as for :func:`~spotwright.model.policy.resolve`.
    """
    policy = imply_spot(resolve(layers, kfp, own))
    return policy, check(policy, layers)


def check(policy: Policy, layers: Sequence[Layer] = ()) -> list[str]:
    """Find contradictions in a merged policy: one sentence each, with the sources of the values; empty without any.

    ``layers`` are the layers that the policy was resolved from, weakest first. A value of a weaker layer that a stronger layer
    makes pointless (``fall_back_after`` for every task, ``spot: never`` for one) is not a contradiction. Without ``layers`` only
    values of the same source are compared in this way.
    """
    problems = []
    if policy.spot in (Spot.REQUIRE, Spot.NEVER) and _contradicts("fall_back_after", "spot", policy, layers):
        problems.append(
            f"fall_back_after {_source('fall_back_after', policy)} has no effect with spot: {policy.spot}"
            f" {_source('spot', policy)}; remove it, or set spot: prefer"
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
            f"deadline {_source('deadline', policy)} cannot be guaranteed with spot: require {_source('spot', policy)}; set"
            " spot: prefer, or add 'best-effort' to the deadline"
        )
    problems += [
        f"{field} {_source(field, policy)} has no effect with a deadline {_source('deadline', policy)}, which decides itself"
        " when to leave spot; remove one of them"
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
