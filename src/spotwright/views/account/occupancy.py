"""Splits the time of a node into boot, idle and unfilled time and the time of each attempt.

The rules, for one node from its ``booting`` event to its ``gone`` event:

- until it is ready it boots; then, with no attempt on it, it is idle;
- an attempt uses its largest share of the node: of its CPU, its memory or its GPUs (any device counted by the piece). An attempt
  without requests may use everything, and a node of unknown size runs one attempt at a time: the share of both is the whole node;
- where shares add up to more than one node (one attempt heavy in CPU beside one heavy in memory), each pays its part of one node,
  rounded to a trillionth: without rounding, the fractions would grow with every attempt of a long-lived node;
- the rest of a node with an attempt on it is unfilled.

So the four add up to the node's time exactly. An attempt pays at most until its node is gone.

Nodes of a cluster serve many workloads, and a run sees its own pods alone: :func:`paid_only` leaves what attempts paid.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from spotwright.model.pools import Resources

__all__ = ["NodeUse", "Stay", "occupy", "paid_only", "share_of"]

_ZERO = Fraction(0)
_ONE = Fraction(1)
_GRAINS = 10**12


class Stay(NamedTuple):
    """An attempt on a node: its key, its share of the node (above 0, at most 1), its begin and end in Unix seconds."""

    key: Hashable
    share: Fraction
    start: float
    end: float


@dataclass(slots=True)
class NodeUse:
    """The split time of a node in seconds: ``boot + idle + unfilled + sum(used.values()) == whole``."""

    whole: Fraction
    boot: Fraction = _ZERO
    idle: Fraction = _ZERO
    unfilled: Fraction = _ZERO
    used: dict[Hashable, Fraction] = field(default_factory=dict)


def share_of(requests: Resources, node: Resources | None) -> Fraction:
    """The largest share of a node among the requests of CPU, memory and GPUs; one if there are none."""
    if node is None:
        return _ONE
    shares = [Fraction(amount, node[name]) for name, amount in requests.items() if node.get(name) and _is_paid(name)]
    largest = max(shares, default=_ZERO)
    return min(largest, _ONE) or _ONE


def _is_paid(resource: str) -> bool:
    """Whether a resource is paid for. Storage and the number of pods are not."""
    return resource in ("cpu", "memory") or "/" in resource


def occupy(booted: float, ready: float | None, gone: float, stays: Sequence[Stay]) -> NodeUse:
    """Split the time of a node from the request for it until it is gone. All moments are Unix seconds."""
    gone = max(booted, gone)
    ready = gone if ready is None else min(max(booted, ready), gone)
    use = NodeUse(_between(booted, gone), boot=_between(booted, ready))
    marks = sorted(_marks(stays, ready, gone), key=lambda mark: mark[0])
    paid = _ZERO  # seconds that a share of one has paid since the node was ready
    load = _ZERO  # sum of the shares on the node
    count, last, began = 0, ready, {}
    for at, enters, stay in marks:
        length = _between(last, at)
        if length:
            if count:
                part = _ONE if load <= _ONE else Fraction(int(_GRAINS / load), _GRAINS)
                paid += length * part
                use.unfilled += length * (_ONE - load * part)
            else:
                use.idle += length
            last = at
        if enters:
            began[stay.key] = paid
            load, count = load + stay.share, count + 1
        else:
            use.used[stay.key] = stay.share * (paid - began[stay.key])
            load, count = load - stay.share, count - 1
    use.idle += _between(last, gone)
    return use


def paid_only(use: NodeUse) -> NodeUse:
    """The same node, as far as attempts paid for it: of its other time nobody here knows whose it was."""
    return NodeUse(sum(use.used.values(), _ZERO), used=use.used)


def _marks(stays: Sequence[Stay], ready: float, gone: float) -> list[tuple[float, bool, Stay]]:
    """When attempts come (``True``) and go, each in this order and within the life of the node."""
    marks = []
    for stay in stays:
        start = min(max(stay.start, ready), gone)
        marks += [(start, True, stay), (min(max(stay.end, start), gone), False, stay)]
    return marks


def _between(start: float, end: float) -> Fraction:
    return Fraction(end) - Fraction(start)
