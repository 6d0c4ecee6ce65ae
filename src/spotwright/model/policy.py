"""The policy of a piece of work, resolved from layers, with the source of every value.

A layer is a flat mapping from field names (``interruptions.max``) to values, with the name of its source. Layers are ordered from
weakest to strongest, and the strongest layer that sets a field wins. KFP's ``set_retry`` is the one exception of the design: it
also *raises* ``interruptions.max`` (see :func:`resolve`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["BUILT_IN", "FIELDS", "Backoff", "Deadline", "Layer", "Policy", "Spot", "imply_spot", "resolve"]


class Spot(StrEnum):
    """Use of spot capacity."""

    REQUIRE = "require"  # spot only
    PREFER = "prefer"  # spot, then on-demand
    NEVER = "never"  # on-demand only


class Backoff(NamedTuple):
    """Waits between attempts, seconds: ``first * factor ** n``, never above ``ceiling``."""

    first: float = 1.0
    factor: float = 2.0
    ceiling: float = 300.0

    def wait(self, ended: int) -> float:
        """Seconds to wait after the ``ended``-th ending of its kind, counted from one."""
        try:
            return min(self.ceiling, self.first * self.factor ** max(0, ended - 1))
        except OverflowError:
            return self.ceiling


class Deadline(NamedTuple):
    """Time by which the work must be done: either ``after``, in seconds from the run's start, or ``at``, in Unix time, is set."""

    after: float | None = None
    at: float | None = None
    best_effort: bool = False  # it may be missed, and so is allowed with ``spot: require``

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

    ``spot`` is ``None`` where no source sets it. Spotwright then adds no placement, and the task goes where its own tolerations,
    selectors and affinity let it, as on a cluster.
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
    work: float | None = None
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
    "interruptions.ceiling": "a duration such as 5m",
    "errors.retries": "a whole number, 0 or more",
    "errors.backoff": "a duration such as 1s",
    "errors.factor": "a number, 1 or more",
    "errors.ceiling": "a duration such as 5m",
    "fall_back_after": "a whole number from 0 to interruptions.max",
    "pending_timeout": "a duration such as 10m",
    "deadline": (
        "a duration from the run's start (8h), or a time with its zone (2026-11-21T08:00:00+01:00); "
        "add 'best-effort' where it may be missed"
    ),
    "work": "a duration: how long the task takes on a node that is never taken",
    "grace_period": "a duration such as 20s",
    "timeout": "a duration such as 1h",
    "checkpoint": "a folder, a URL or pvc://NAME, without placeholders: each task of each run has a folder of its own there",
    "image_pull_secrets": "a list of secret names",
}
"""Every policy field with the form of its value. The reference page and the error messages are made from this table."""

BUILT_IN = Layer(
    "built in",
    {
        "interruptions.max": 10,
        "interruptions.backoff": 1.0,
        "interruptions.factor": 2.0,
        "interruptions.ceiling": 300.0,
        "errors.retries": 0,
        "errors.backoff": 1.0,
        "errors.factor": 2.0,
        "errors.ceiling": 300.0,
        "pending_timeout": 600.0,
        "grace_period": 30.0,
    },
)
_RETRY_TO_INTERRUPTIONS = {
    "errors.backoff": "interruptions.backoff",
    "errors.factor": "interruptions.factor",
    "errors.ceiling": "interruptions.ceiling",
}


def resolve(layers: Iterable[Layer], kfp: Layer | None = None) -> Policy:
    """Resolve layers, weakest first, over the built-in values.

    ``kfp`` is the layer of KFP's own settings (``set_retry``, ``set_timeout``) and must also be in ``layers``, in its order. Its
    retries raise ``interruptions.max`` to at least their number, and its backoff holds for interruptions in each field that no
    layer sets. ``fall_back_after`` defaults to ``interruptions.max``.
    """
    values: dict[str, Any] = dict(BUILT_IN.values)
    sources: dict[str, str] = dict.fromkeys(values, BUILT_IN.source)
    for layer in layers:
        for key, value in layer.values.items():
            values[key], sources[key] = value, layer.source
    if kfp is not None:
        _apply_set_retry(kfp, values, sources)
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
        work=values.get("work"),
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
    return Backoff(values[f"{kind}.backoff"], values[f"{kind}.factor"], values[f"{kind}.ceiling"])


def _apply_set_retry(kfp: Layer, values: dict[str, Any], sources: dict[str, str]) -> None:
    """Apply the design's rule: ``set_retry`` sets the error budget, and the interruption budget too, as tutorials use it."""
    retries = kfp.values.get("errors.retries")
    if retries is not None and values["interruptions.max"] < retries:
        values["interruptions.max"], sources["interruptions.max"] = retries, kfp.source
    for error_field, interruption_field in _RETRY_TO_INTERRUPTIONS.items():
        if error_field in kfp.values and sources[interruption_field] == BUILT_IN.source:
            values[interruption_field], sources[interruption_field] = kfp.values[error_field], kfp.source
