"""Who used a node when: from the moments in the journal to the node time of every attempt, boot, idle and unfilled time.

The rules, for one node from its ``booting`` event until it is gone:

- until it is ready it boots; then, with no attempt on it, it is idle;
- an attempt uses its largest share of the node: of its CPU, of its memory or of its GPUs (any device
  that is counted by the piece), whichever is most. One that asks for
  nothing may use everything, and a node of unknown size takes one attempt at a time: both have the whole node as their share;
- shares that add up to more than one node (one attempt heavy in CPU beside one heavy in memory) pay their part of one, to a
  trillionth: with a grain, the numbers of a long life do not grow with every attempt;
- what is left of one node while an attempt is on it is unfilled.

So the four add up to the node's time exactly. An attempt whose end was seen a moment after its node had gone pays until then.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from spotwright.model.pools import Resources

__all__ = ["NodeUse", "Stay", "occupy", "share_of"]

_ZERO = Fraction(0)
_ONE = Fraction(1)
_GRAINS = 10**12


@dataclass(frozen=True, slots=True)
class Stay:
    """An attempt on a node: who, its share of the node (more than 0, at most 1), and its moments in Unix seconds."""

    key: Hashable
    share: Fraction
    start: float
    end: float


@dataclass(slots=True)
class NodeUse:
    """A node's time in seconds, split: ``boot + idle + unfilled + sum(used.values()) == whole``."""

    whole: Fraction
    boot: Fraction = _ZERO
    idle: Fraction = _ZERO
    unfilled: Fraction = _ZERO
    used: dict[Hashable, Fraction] = field(default_factory=dict)


def share_of(requests: Resources, node: Resources | None) -> Fraction:
    """The largest share of a node that the requests ask for, of CPU, memory or GPUs; one where they ask for nothing."""
    if node is None:
        return _ONE
    shares = [Fraction(amount, node[name]) for name, amount in requests.items() if node.get(name) and _is_paid(name)]
    largest = max(shares, default=_ZERO)
    return min(largest, _ONE) or _ONE


def _is_paid(resource: str) -> bool:
    """Whether a resource decides what a node costs: storage and the number of pods do not."""
    return resource in ("cpu", "memory") or "/" in resource


def occupy(booted: float, ready: float | None, gone: float, stays: Sequence[Stay]) -> NodeUse:
    """Split the time of a node between the moments it was asked for and gone (Unix seconds)."""
    gone = max(booted, gone)
    ready = gone if ready is None else min(max(booted, ready), gone)
    use = NodeUse(_between(booted, gone), boot=_between(booted, ready))
    marks = sorted(_marks(stays, ready, gone), key=lambda mark: mark[0])
    paid = load = (
        _ZERO  # what a share of one has paid since the node was ready, and the sum of the shares that are there
    )
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


def _marks(stays: Sequence[Stay], ready: float, gone: float) -> list[tuple[float, bool, Stay]]:
    """The moments at which attempts come and go, those of one attempt in this order, kept within the node's life."""
    marks = []
    for stay in stays:
        start = min(max(stay.start, ready), gone)
        marks += [(start, True, stay), (min(max(stay.end, start), gone), False, stay)]
    return marks


def _between(start: float, end: float) -> Fraction:
    return Fraction(end) - Fraction(start)
