"""Defines a job with a deadline and its actions: the vocabulary that every policy shares.

A job is work that must be done by a deadline. A launch on a node, a relaunch after a loss, and a change of the kind of node
cost an overhead before the work continues; a new launch replaces the rest of an earlier overhead. This is the setting of "Can't
Be Late" (Wu et al., NSDI 2024), with time in seconds and prices per hour.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from spotwright.errors import InputError

__all__ = ["DUST", "Action", "Job", "nearest_deadline"]

DUST = 1e-6
"""Seconds that rounding may leave of a zero duration; far below the resolution of any clock here."""


class Action(IntEnum):
    """A job's action until the next decision; as a mode, its action until now."""

    WAIT = 0
    SPOT = 1
    ON_DEMAND = 2

    @property
    def words(self) -> str:
        """The action in words, for people."""
        return ("wait", "spot", "on-demand")[self]


class Job(NamedTuple):
    """A job with a deadline.

    ``work`` is its duration on a node that is never reclaimed, ``deadline`` the time until it must be done, ``overhead`` the
    time of a launch before work continues (boot, image, restore, lost work); all in seconds. Prices are per hour, in any
    currency.
    """

    work: float
    deadline: float
    overhead: float
    spot_price: float
    on_demand_price: float

    @property
    def is_possible(self) -> bool:
        """Whether on-demand alone can meet the deadline, so that a policy can guarantee it."""
        return self.work + self.overhead <= self.deadline + DUST

    def checked(self) -> Job:
        """Return the job itself. Raises :class:`InputError` for meaningless durations and prices."""
        for name, value, least in (
            ("work", self.work, 0.0),
            ("deadline", self.deadline, 0.0),
            ("overhead", self.overhead, 0.0),
            ("spot_price", self.spot_price, 0.0),
            ("on_demand_price", self.on_demand_price, 0.0),
        ):
            if not math.isfinite(value) or value < least:
                raise InputError(f"{name}: expected a finite number, {least:g} or more, found {value!r}")
        return self


def nearest_deadline(job: Job) -> float:
    """The shortest deadline that can be guaranteed, in seconds from the start: all of the work on on-demand."""
    return job.work + job.overhead
