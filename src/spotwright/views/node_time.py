"""Split the time of a node into boot, idle and unfilled time, and the time of each attempt on it.

Time is counted in whole parts of a second, so that the lines of a node add up to its whole time exactly.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from spotwright.model.pools import Resources

__all__ = ["SECOND", "NodeUse", "Stay", "occupy", "paid_only", "parts_of", "share_of"]


SECOND = 2**60
"""The parts of a second in which node time is counted.

A moment is a binary floating-point number, so a power of two makes it a whole number without rounding, except within
milliseconds of 1970.
"""

_PER_SECOND = float(SECOND)
_ZERO = Fraction(0)
_ONE = Fraction(1)


class Stay(NamedTuple):
    """An attempt on a node: its key, its share of the node (above 0, at most 1), its begin and end in Unix seconds."""

    key: Hashable
    share: Fraction
    start: float
    end: float


@dataclass(slots=True)
class NodeUse:
    """The split time of a node in parts of a second: ``boot + idle + unfilled + sum(used.values()) == whole``."""

    whole: int
    boot: int = 0
    idle: int = 0
    unfilled: int = 0
    used: dict[Hashable, int] = field(default_factory=dict)


def share_of(requests: Resources, node: Resources | None) -> Fraction:
    """The largest share of a node among the requests of CPU, memory and GPUs; 1 without requests."""
    if node is None:
        return _ONE
    shares = [Fraction(amount, node[name]) for name, amount in requests.items() if node.get(name) and _is_paid(name)]
    largest = max(shares, default=_ZERO)
    return min(largest, _ONE) or _ONE


def _is_paid(resource: str) -> bool:
    """Whether a resource is paid for, unlike storage and the number of pods."""
    return resource in ("cpu", "memory") or "/" in resource


def occupy(booted: float, ready: float | None, gone: float, stays: Sequence[Stay]) -> NodeUse:
    """Split the time of a node from its request until it is gone. All moments are Unix seconds.

    The remainder of a share that is not a whole number of parts goes to the attempt that pays most.
    """
    begin, end = parts_of(booted), max(parts_of(booted), parts_of(gone))
    last = end if ready is None else min(max(begin, parts_of(ready)), end)
    use = NodeUse(end - begin, boot=last - begin)
    node = math.lcm(*(stay.share.denominator for stay in stays))  # the node in units: every share is some of them
    paid = 0  # the payment of a share of the whole node since it was ready
    load = 0  # sum of the shares on the node, in these units
    unfilled = 0  # in these units too
    began = {}
    for at, enters, stay in sorted(_marks(stays, last, end), key=lambda mark: mark[0]):
        length = at - last
        if length:
            if not load:
                use.idle += length
            elif load <= node:
                paid += length
                unfilled += length * (node - load)
            else:
                paid += length * node // load
            last = at
        share = stay.share.numerator * (node // stay.share.denominator)
        if enters:
            began[stay.key] = paid
            load += share
        else:
            use.used[stay.key] = share * (paid - began[stay.key]) // node
            load -= share
    use.idle += end - last
    use.unfilled = unfilled // node
    lost = use.whole - use.boot - use.idle - use.unfilled - sum(use.used.values())
    if lost:
        use.used[max(use.used, key=use.used.__getitem__)] += lost
    return use


def paid_only(use: NodeUse) -> NodeUse:
    """The node's time that attempts paid for: the owner of the rest is unknown."""
    return NodeUse(sum(use.used.values()), used=use.used)


def _marks(stays: Sequence[Stay], ready: int, gone: int) -> Iterator[tuple[int, bool, Stay]]:
    """When attempts come (``True``) and go, each in this order and within the life of the node."""
    for stay in stays:
        start = min(max(parts_of(stay.start), ready), gone)
        yield start, True, stay
        yield min(max(parts_of(stay.end), start), gone), False, stay


def parts_of(moment: float) -> int:
    """A moment (Unix seconds) in parts of a second."""
    return int(moment * _PER_SECOND)
