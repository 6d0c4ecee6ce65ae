"""The rung of an attempt that was open to all is the pool that took it; the webhook and the engine go on from there alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.adopted import AdoptedTask
from tests.engine.builders import ON_DEMAND, SPOT, SPOT_B, START, a_pool
from tests.engine.scripts import FAILED, LOST, MOVED, TAKEN

from spotwright.cluster.attempt_lookup import before
from spotwright.engine.decide import take_back
from spotwright.engine.waits import CANNOT_GROW
from spotwright.model.attempts import Signals
from spotwright.model.pools import Pool
from spotwright.scheduling.next_attempt import NextAttempt, next_rung

EVERY = ("spot", "spot-b", "on-demand")


def asked(task: AdoptedTask) -> NextAttempt:
    """The webhook's decision about the next attempt."""
    return next_rung(
        before(task.history, "work", len(task.task.attempts) + 1), task.task.plan.policy, task.task.plan.ladder
    )


def admitted_by_webhook(task: AdoptedTask) -> str:
    """The first pool of the rung of the next attempt."""
    return task.task.plan.ladder.rungs[asked(task).rung].pools[0]


@pytest.mark.parametrize(
    ("took", "then"), [("spot", "spot-b"), ("spot-b", "spot"), ("on-demand", "spot"), ("other-nodes", "spot-b")]
)
def test_after_an_interruption_the_next_spot_rung_follows_that_of_the_pool_that_took_it(took: str, then: str) -> None:
    task = AdoptedTask((SPOT, SPOT_B, ON_DEMAND, a_pool("other-nodes")), spot="prefer", ladder=list(EVERY))
    task.adopt(EVERY, is_open=True)
    task.bind(took, 10)
    decided = task.end(TAKEN, 20)
    assert decided is not None
    assert decided.rung is not None
    assert task.task.plan.ladder.rungs[decided.rung].pools[0] == admitted_by_webhook(task) == then


@pytest.mark.parametrize(("took", "rung"), [("spot", 0), ("spot-b", 1), ("on-demand", 2)])
def test_an_attempt_that_is_open_has_the_rung_of_its_node(took: str, rung: int) -> None:
    task = AdoptedTask()
    task.adopt(EVERY, is_open=True)
    assert (task.last.rung, task.last.is_open) == (0, True)
    task.bind(took, 10)
    assert (task.last.first, task.last.rung, task.last.pool) == (rung, rung, took)


def test_an_attempt_for_one_rung_keeps_it_whatever_node_it_gets() -> None:
    task = AdoptedTask()
    task.adopt(("spot",))
    task.bind("on-demand", 10)
    assert task.last.rung == 0


_POOLS = st.lists(st.booleans(), min_size=2, max_size=5)
_ENDS: dict[str, Signals] = {"taken": TAKEN, "lost": LOST, "moved": MOVED, "failed": FAILED}
_STEPS = st.lists(
    st.tuples(st.sampled_from([*_ENDS, "in vain"]), st.integers(0, 4), st.booleans()), min_size=1, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(
    _POOLS,
    _STEPS,
    st.integers(1, 4),
    st.sampled_from(["prefer", "require"]),
    st.sampled_from([None, "1m best-effort", "8h best-effort"]),
)
def test_the_webhook_and_the_engine_agree_on_the_rung_after_any_history(
    are_spot: list[bool], steps: list[tuple[str, int, bool]], fall_back_after: int, spot: str, deadline: str | None
) -> None:
    given_pools: list[Pool] = [a_pool(f"p{number}", spot=one) for number, one in enumerate(are_spot)]
    policy: dict[str, Any] = {"interruptions": {"max": 9}, "errors": {"retries": 9}, "spot": spot}
    if deadline is not None:
        policy["deadline"] = deadline
    elif spot == "prefer":
        policy["fall_back_after"] = fall_back_after
    if spot == "require" and not any(are_spot):
        return  # there is no pool for it
    task = AdoptedTask(given_pools, **policy)
    rungs = [rung.pools for rung in task.state.plan.instance("work", "work").ladder.rungs]
    every = tuple(name for rung in rungs for name in rung)
    at, rung, is_first = 0.0, 0, True
    for what, number, wants_open in steps:
        at += 1_000_000.0  # the pauses of pools are over
        is_open = is_first and wants_open and len(rungs) > 1
        task.adopt(every if is_open else rungs[rung], at, is_open=is_open)
        if what == "in vain":
            task.wait(at, CANNOT_GROW)
            decided = take_back(task.state, task.task, task.last, {}, {}, START + at + 10)
            if not decided:
                return  # it waits on, or its autoscaler goes on by itself
            task.take_back(decided[0])
            task.end(Signals(), at + 20)
        else:
            allowed = every if is_open else rungs[rung]
            task.bind(allowed[number % len(allowed)], at + 10)
            task.end(_ENDS[what], at + 20)
        is_first = False
        asked_of_webhook = asked(task)
        if task.task.next_rung is None:
            assert asked_of_webhook.refusal
            return
        assert not asked_of_webhook.refusal
        assert rungs[asked_of_webhook.rung] == rungs[task.task.next_rung]
        rung = asked_of_webhook.rung
