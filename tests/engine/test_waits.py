"""How long an attempt has waited in vain, and from when on: only time counts in which no node was on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.adopted import AdoptedTask
from tests.engine.builders import START

from spotwright.engine.decide import take_back, why_it_stays
from spotwright.engine.events import AttemptRecalled
from spotwright.engine.waits import (
    CANNOT_GROW,
    NO_NODE,
    NO_SCALE_UP,
    NODE_ORDERED,
    ORDERS_UNKNOWN,
    in_vain_at,
    is_ruled_out,
    waited_in_vain,
)

IN_VAIN = (NO_NODE, ORDERS_UNKNOWN, CANNOT_GROW, NO_SCALE_UP)
KINDS = (*IN_VAIN, NODE_ORDERED, "SchedulingGated", "VolumeNotReady", "")


def waiting(*waits: tuple[float, str], **policy: Any) -> AdoptedTask:
    """A task whose first attempt waits on the spot pool alone, for these reasons from these seconds on."""
    task = AdoptedTask(**{"pending_timeout": "60s", **policy})
    task.adopt(("spot",))
    for at, why in waits:
        task.wait(at, why)
    return task


def due(task: AdoptedTask) -> float | None:
    """When the wait has been long enough, in seconds after the start."""
    at = in_vain_at(task.state.tasks["work"], task.last)
    return None if at is None else at - START


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([], None),
        ([(10, NO_NODE)], 70),
        ([(10, "Unschedulable: 0/3 nodes are available")], 70),
        ([(10, NODE_ORDERED)], None),
        ([(10, "SchedulingGated")], None),
        ([(10, NO_NODE), (20, "")], None),
        ([(10, CANNOT_GROW)], 10),
        ([(10, f"{NO_SCALE_UP}: no group can grow")], 10),
        ([(10, NO_NODE), (30, NODE_ORDERED), (500, NO_NODE)], 540),
        ([(10, NODE_ORDERED), (910, NO_NODE)], 970),
        ([(10, NODE_ORDERED), (910, NO_NODE), (920, NODE_ORDERED), (930, NO_NODE)], 980),
        ([(10, NO_NODE), (80, NODE_ORDERED), (90, NO_NODE)], 90),
        ([(10, NODE_ORDERED), (40, CANNOT_GROW)], 40),
        ([(10, ORDERS_UNKNOWN), (40, NO_NODE)], 70),
    ],
)
def test_the_moment_from_which_an_attempt_waits_in_vain(waits: list[tuple[float, str]], expected: float | None) -> None:
    assert due(waiting(*waits)) == expected


def test_where_orders_are_unknown_the_default_is_longer_than_an_autoscaler_waits() -> None:
    task = AdoptedTask()
    task.adopt(("spot",))
    task.wait(0, ORDERS_UNKNOWN)
    longer = due(task)
    task.wait(0, NO_NODE)
    usual = due(task)
    assert longer is not None
    assert usual is not None
    assert usual < 15 * 60 < longer


@pytest.mark.parametrize("timeout", ["1s", "10m", "1h"])
def test_a_time_out_that_somebody_has_set_counts_also_where_orders_are_unknown(timeout: str) -> None:
    blind, seeing = (waiting((10, kind), pending_timeout=timeout) for kind in (ORDERS_UNKNOWN, NO_NODE))
    assert due(blind) == due(seeing)


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_attempt_never_waits_in_vain(kind: str) -> None:
    task = AdoptedTask(pending_timeout="1s")
    task.adopt(("spot", "spot-b", "on-demand"), is_open=True)
    task.wait(0, kind)
    planned = task.state.tasks["work"]
    assert due(task) is None
    assert take_back(task.state, planned, task.last, {}, {}, START + 10_000) == []
    assert why_it_stays(task.state, planned, task.last, {}, START + 10_000)


@pytest.mark.parametrize(
    ("kind", "left_out", "words"),
    [
        (NO_NODE, ["spot"], "no node on spot for 1m00s, and none on its way"),
        (CANNOT_GROW, ["spot"], "no node can come on spot"),
        (NO_SCALE_UP, [], "no node can come on spot"),
    ],
)
def test_what_is_said_of_a_pod_alone_leaves_out_no_pool(kind: str, left_out: list[str], words: str) -> None:
    task = waiting((0, f"{kind}: as told"))
    [decided] = take_back(task.state, task.state.tasks["work"], task.last, {}, {}, START + 60)
    assert isinstance(decided, AttemptRecalled)
    assert (list(decided.left_out), decided.why) == (left_out, f"{words}: as told")
    assert tuple(decided.pools) == ("spot-b",)


def test_a_decision_tells_only_the_time_in_which_no_node_was_on_its_way() -> None:
    task = waiting((0, NO_NODE), (30, NODE_ORDERED), (930, NO_NODE))
    [decided] = take_back(task.state, task.state.tasks["work"], task.last, {}, {}, START + 960)
    assert isinstance(decided, AttemptRecalled)
    assert decided.why == "no node on spot for 1m00s, and none on its way"


@pytest.mark.parametrize("kind", [NODE_ORDERED, "SchedulingGated", ""])
def test_nobody_is_taken_back_while_a_node_comes(kind: str) -> None:
    task = waiting((0, NO_NODE), (5, kind))
    assert take_back(task.state, task.state.tasks["work"], task.last, {}, {}, START + 100_000) == []


_WAITS = st.lists(st.tuples(st.floats(0, 500, allow_nan=False), st.sampled_from(KINDS)), max_size=8)


def slow_sum(waits: Sequence[tuple[float, str]], now: float) -> float:
    """The seconds up to ``now`` in which the attempt waited for a node, and none was on its way."""
    ends = [*(at for at, _ in waits), now][1:]
    return sum(max(0.0, end - at) for (at, kind), end in zip(waits, ends, strict=True) if kind in IN_VAIN)


@given(_WAITS, st.floats(0, 500))
def test_the_clock_counts_only_time_in_which_nothing_was_on_its_way(
    steps: list[tuple[float, str]], after: float
) -> None:
    waits: list[tuple[float, str]] = []
    at = 0.0
    for step, kind in steps:
        at += step
        waits.append((at, kind))
    task, now = waiting(*waits), at + after
    expected = slow_sum(waits, now)
    assert waited_in_vain(task.last, START + now) == pytest.approx(expected, abs=1e-4)
    moment = due(task)
    last = waits[-1][1] if waits else ""
    if last in (NO_NODE, ORDERS_UNKNOWN):
        assert moment is not None
        assert moment == pytest.approx(max(waits[-1][0], now + 60 - expected), abs=1e-4)
    else:
        assert (moment is not None) == is_ruled_out(task.last)
