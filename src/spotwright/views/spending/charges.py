"""The charges of a run: its account as a list, in which every second of every node is on exactly one line.

An attempt is one charge. The boot, the idle and the unfilled time of a node are one charge each. So the sum of all charges is
node time times price, as in the account.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from spotwright.model.attempts import Cause
from spotwright.model.pools import Pool
from spotwright.views.account.account_model import Account
from spotwright.views.account.amounts import Amount
from spotwright.views.account.waste import KeptWork

__all__ = ["Charge", "Line", "charges_of"]


class Line(StrEnum):
    """The line of the account to which a charge belongs."""

    ATTEMPT = "attempt"  # the part of a node that an attempt used
    BOOT = "boot"  # from the request for a node until it is ready
    IDLE = "idle"  # ready, and nothing on it
    UNFILLED = "unfilled"  # the part that no attempt had requested while another part was in use


class Charge(NamedTuple):
    """One charge: node time between two moments (Unix seconds) on one node. ``task``, ``attempt`` and ``cause``: of an attempt.

    ``amount`` may be less than the time between the moments: an attempt pays its share of the node.
    """

    line: Line
    node: str
    pool: Pool
    start: float
    end: float
    amount: Amount
    task: str = ""
    attempt: int = 0
    cause: Cause | None = None
    kept: KeptWork | None = None


def charges_of(account: Account) -> Iterator[Charge]:
    """All charges of a run, node by node; those without any node time are left out."""
    pools = {node.name: node.pool for node in account.nodes}
    for node in account.nodes:
        for line, amount in ((Line.BOOT, node.boot), (Line.IDLE, node.idle), (Line.UNFILLED, node.unfilled)):
            if amount.seconds:
                yield Charge(line, node.name, node.pool, node.start, node.end, amount)
    for cost in account.attempts_by_start:
        if cost.cost.seconds:
            end = float(cost.started_at + cost.seconds)
            yield Charge(
                Line.ATTEMPT, cost.node, pools[cost.node], cost.started_at, end, cost.cost,
                cost.task, cost.number, cost.cause, cost.kept,
            )  # fmt: skip
