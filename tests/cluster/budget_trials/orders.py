"""The orders of endings that are tried: each letter is the ending of one attempt.

==== =====================================================================================================================
``i`` interrupted: the pod is marked and deleted as Kubernetes' pod garbage collector does when a Node is gone
``m`` moved: the pod is deleted while its node lives
``e`` the code exits with 1
``k`` the code exits with 137, as after a SIGKILL that nobody accounts for
``o`` the code exceeds its memory limit
``c`` the command does not exist
``s`` the code exits with 0
==== =====================================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["STRUCK", "TRIED", "Order"]

STRUCK = "im"
"""Endings that come from outside; the others are the code's own."""


class Order(NamedTuple):
    """Budgets, and the endings of the attempts of a task that has them."""

    interruptions: int
    errors: int
    endings: str

    @property
    def name(self) -> str:
        """A name for objects of the API."""
        return f"{self.endings}-{self.interruptions}-{self.errors}"


_BOTH = ("iis", "iii", "es", "ee", "iies", "iiee", "eiis", "eiii", "ieii", "mems")
_NO_ERRORS = ("iis", "iii", "e", "iie", "k", "ik", "o", "c")

TRIED: Sequence[Order] = (
    *(Order(2, 1, endings) for endings in _BOTH),
    *(Order(2, 0, endings) for endings in _NO_ERRORS),
)
"""The orders at the limits of the budgets, which real controllers go through."""
