"""Drawn histories: after each ending the journal and the webhook have one rung for the next attempt, of one task and of a set.

The webhook reads the attempts from the events alone, without the plan of the run; the ladder and the policy are those of the pod.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.adopted import AdoptedTask
from tests.engine.builders import START, a_ladder, a_policy, a_pool
from tests.engine.scripts import FAILED, LOST, MOVED, SUCCEEDED, TAKEN

from spotwright.cluster.attempt_lookup import before
from spotwright.engine.attempt_history import set_history
from spotwright.engine.decide import take_back
from spotwright.engine.events import TaskStatus
from spotwright.engine.next_rung import expected_rung
from spotwright.engine.waits import CANNOT_GROW
from spotwright.model.attempts import Cause, Signals
from spotwright.scheduling.next_attempt import NextAttempt, PastAttempt, next_rung

CANCELLED = Signals(cancelled=True)
ENDS = {"taken": TAKEN, "lost": LOST, "moved": MOVED, "failed": FAILED, "cancelled": CANCELLED, "done": SUCCEEDED}
IN_VAIN = ("in vain", "in vain, then cancelled")
POOLS = st.lists(st.booleans(), min_size=2, max_size=4)
POLICIES = st.builds(
    lambda spot, most, fall_back_after, retries: {
        "spot": spot,
        "interruptions": {"max": most},
        "errors": {"retries": retries},
        **({"fall_back_after": min(fall_back_after, most)} if spot == "prefer" else {}),
    },
    st.sampled_from(["prefer", "require", "never"]),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 2),
)
PAUSED = st.sets(st.sampled_from(["p0", "p1", "p2"]), max_size=2)
STEPS = st.lists(
    st.tuples(st.sampled_from([*ENDS, *IN_VAIN]), st.integers(0, 5), st.booleans(), PAUSED), min_size=1, max_size=6
)


def a_task(are_spot: list[bool], policy: dict[str, Any]) -> AdoptedTask | None:
    """A task on these pools, and on one that its ladder does not name; None if it has no pool."""
    wanted = {"prefer": (True, False), "require": (True,), "never": (False,)}[policy["spot"]]
    pools = [a_pool(f"p{number}", spot=one) for number, one in enumerate(are_spot)]
    ladder = [pool.name for pool in pools if pool.is_spot in wanted]
    return AdoptedTask([*pools, a_pool("stranger")], **policy, ladder=ladder) if ladder else None


def asked(task: AdoptedTask, without: set[str] = frozenset()) -> NextAttempt:  # type: ignore[assignment]
    """The webhook's decision about the next attempt."""
    planned = task.state.plan.instance("work", "work")
    made = len(task.history.tasks["work"].attempts) if task.history.tasks else 0
    return next_rung(before(task.history, "work", made + 1), planned.policy, planned.ladder, without)


@settings(max_examples=400, deadline=None)
@given(POOLS, POLICIES, STEPS)
def test_the_journal_and_the_webhook_have_one_rung_after_any_history(
    are_spot: list[bool], policy: dict[str, Any], steps: list[tuple[str, int, bool, set[str]]]
) -> None:
    task = a_task(are_spot, policy)
    if task is None:
        return
    planned = task.state.plan.instance("work", "work")
    rungs = [rung.pools for rung in planned.ladder.rungs]
    every = tuple(name for rung in rungs for name in rung)
    at = 0.0
    for what, number, wants_open, paused in steps:
        at += 1_000_000.0  # the pauses of pools that are recorded are over
        is_open = wants_open and len(rungs) > 1
        pools = every if is_open else rungs[asked(task, paused).rung]
        task.adopt(pools, at, is_open=is_open)
        if what in IN_VAIN:
            task.wait(at, CANNOT_GROW)
            decided = take_back(task.state, task.task, task.last, {}, {}, START + at + 10)
            if not decided:
                return  # it waits on, or its autoscaler goes on by itself
            task.take_back(decided[0])
            task.end(CANCELLED if "cancelled" in what else Signals(), at + 20)
        else:
            took = [*pools, "stranger"] if is_open else pools
            task.bind(took[number % len(took)], at + 10)
            task.end(ENDS[what], at + 20)
        of_webhook = asked(task)
        if task.task.status is TaskStatus.FAILED:
            assert of_webhook.refusal
            return
        assert not of_webhook.refusal
        assert rungs[of_webhook.rung] == rungs[expected_rung(task.task, planned)]


def test_an_attempt_that_runs_though_a_budget_is_spent_moves_the_rung_as_any_other() -> None:
    task = AdoptedTask([a_pool("p0", spot=True), a_pool("p1", spot=True)], spot="require", errors={"retries": 0})
    for number, ends in enumerate((FAILED, TAKEN)):  # its owner makes it again all the same
        task.adopt(("p0",), 100.0 * number)
        task.bind("p0", 100.0 * number + 10)
        task.end(ends, 100.0 * number + 20)
    assert (asked(task).rung, task.task.next_rung) == (1, 1)
    assert asked(task).refusal == "no retry is left (errors.retries is 0) (attempt 1)"


MEMBERS = st.sampled_from([*ENDS, "in vain"])


@settings(max_examples=300, deadline=None)
@given(
    POOLS,
    POLICIES,
    st.lists(st.tuples(MEMBERS, MEMBERS, st.booleans(), st.integers(0, 5), st.booleans()), min_size=1, max_size=4),
)
def test_all_members_of_a_set_go_where_the_webhook_sends_them(
    are_spot: list[bool], policy: dict[str, Any], restarts: list[tuple[str, str, bool, int, bool]]
) -> None:
    members = a_task(are_spot, policy)
    if members is None:
        return
    planned = members.state.plan.instance("work", "work")
    rungs = [rung.pools for rung in planned.ladder.rungs]
    every = tuple(name for rung in rungs for name in rung)
    at, rung = 0.0, next_rung((), planned.policy, planned.ladder).rung
    for restart, (one, other, is_turned, number, wants_open) in enumerate(restarts):
        at += 1_000_000.0
        is_open = wants_open and len(rungs) > 1
        pools = every if is_open else rungs[rung]
        for name in ("one", "other"):
            members.path = name
            members.adopt(pools, at, is_open=is_open, gang=f"set/{restart}")
        ends = [("one", one), ("other", other)]
        for turn, (name, what) in enumerate(reversed(ends) if is_turned else ends):
            members.path = name
            if what == "in vain":
                members.wait(at, CANNOT_GROW)
                decided = take_back(members.state, members.task, members.last, {}, {}, START + at + 10)
                if not decided:
                    return
                members.take_back(decided[0])
                members.end(Signals(), at + 20 + turn)
            else:
                members.bind(pools[(number + turn) % len(pools)], at + 10)
                members.end(ENDS[what], at + 20 + turn)
        if any(task.status in (TaskStatus.FAILED, TaskStatus.SUCCEEDED) for task in members.state.tasks.values()):
            return
        of_webhook = {
            name: next_rung(set_history(members.history, f"set/{restart + 1}", name), planned.policy, planned.ladder)
            for name in ("one", "other")
        }
        assert not any(each.refusal for each in of_webhook.values())
        rung = of_webhook["one"].rung
        assert {name: expected_rung(members.state.tasks[name], planned) for name in of_webhook} == {
            name: each.rung for name, each in of_webhook.items()
        }


@pytest.mark.parametrize("first", ["one", "other"])
def test_a_member_whose_end_is_known_first_goes_with_the_one_that_ended_the_restart(first: str) -> None:
    members = AdoptedTask([a_pool("p0", spot=True), a_pool("p1", spot=True)], spot="require", errors={"retries": 9})
    for name in ("one", "other"):
        members.path = name
        members.adopt(("p0",), gang="set/0")
        members.bind("p0", 10)
    for name, ends in ((first, FAILED), ({"one": "other", "other": "one"}[first], TAKEN)):
        members.path = name
        members.end(ends, 20)
    assert {task.next_rung for task in members.state.tasks.values()} == {1}


def test_the_recorded_decision_holds_where_the_policy_was_changed_since() -> None:
    pools = [a_pool("p0", spot=True), a_pool("p1", spot=True), a_pool("p2")]
    policy = a_policy(spot="prefer", interruptions={"max": 3})
    ladder = a_ladder(policy, *pools)
    past = PastAttempt(Cause.INTERRUPTED, ("p0",), "p0", then=("p2",))
    decided = next_rung([past], policy, ladder)
    assert ladder.rungs[decided.rung].pools == ("p2",)
    assert decided.why == "interruption 1 of 3: on p2, as was recorded"
    assert ladder.rungs[next_rung([past], policy, ladder, {"p2"}).rung].pools == ("p2",)  # no rung is below it
    gone = past._replace(then=("p9",))
    assert ladder.rungs[next_rung([gone], policy, ladder).rung].pools == ("p1",)


def test_ends_that_were_seen_of_a_record_that_was_begun_anew_are_left_out() -> None:
    empty = AdoptedTask([a_pool("p0")], ladder=["p0"]).history
    found = before(empty, "work", 2, {1: Cause.LOST, 3: Cause.INTERRUPTED})
    assert [past.cause for past in found] == [Cause.LOST]
