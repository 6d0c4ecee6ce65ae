"""A namespace whose objects cost too much is served last, then set aside and taken back; the others do not notice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.cluster.namespace_costs import Aside, Key, NamespaceCosts, Turns

QUIET, HOSTILE = ("quiet", "10.0.0.1"), ("hostile", "10.0.0.1")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def some_costs() -> tuple[NamespaceCosts, Clock, list[tuple[Key, Aside]]]:
    clock, told = Clock(), list[tuple[Key, Aside]]()
    return NamespaceCosts(0.05, clock, lambda *heard: told.append(heard)), clock, told


def test_a_burst_of_ordinary_objects_is_no_offence() -> None:
    costs, clock, told = some_costs()
    for _ in range(100_000):
        costs.spent(QUIET, 0.05)
        clock.now += 0.0001
    assert not costs.is_last(QUIET)
    assert told == []


def test_a_namespace_is_served_last_for_a_minute_after_an_object_that_cost_too_much() -> None:
    costs, clock, told = some_costs()
    costs.spent(HOSTILE, 0.3)
    assert costs.is_last(HOSTILE)
    assert not costs.is_last(QUIET)
    clock.now += 58
    assert costs.is_last(HOSTILE)
    clock.now += 3
    assert not costs.is_last(HOSTILE)
    assert told == []


def test_a_namespace_that_goes_on_is_set_aside_and_taken_back_and_longer_each_time() -> None:
    costs, clock, told = some_costs()
    lasted = []
    for _ in range(6):
        spent = 0.0
        while costs.set_aside(HOSTILE) is None:
            costs.spent(HOSTILE, 1.05)
            clock.now, spent = clock.now + 1, spent + 1
        assert spent == 5
        assert list(costs.aside) == [HOSTILE]
        assert "its objects took 5.0 s more of the processor" in told[-1][1].why
        began = clock.now
        costs.spent(HOSTILE, 100.0)  # what began before counts no more
        while costs.set_aside(HOSTILE) is not None:
            clock.now += 1
        lasted.append(round(clock.now - began + 1))
        assert not costs.is_last(HOSTILE)
    assert lasted == [300, 600, 1200, 2400, 3600, 3600]
    assert [key for key, _ in told] == [HOSTILE] * 6
    clock.now += 3601
    for _ in range(5):
        costs.spent(HOSTILE, 1.05)
    assert told[-1][1].lasts == 300


def test_whoever_names_a_namespace_of_others_sets_aside_nothing_but_itself() -> None:
    costs, _, _ = some_costs()
    costs.spent(("quiet", "10.244.1.7"), 60.0)
    assert costs.set_aside(("quiet", "10.244.1.7")) is not None
    assert costs.set_aside(QUIET) is None
    assert not costs.is_last(QUIET)


def test_made_up_names_take_no_memory_without_end() -> None:
    costs, _, _ = some_costs()
    for number in range(20_000):
        costs.spent((f"n{number}", ""), 1.0)
    assert len(costs._costs) == 5_000


def in_turns(waiting: list[Key], most: int, costs: NamespaceCosts) -> tuple[list[Key], int]:
    """The order in which so many get their turns, one after the other in each place, and how many were at work at most."""
    order: list[Key] = []
    at_work = highest = 0

    async def one(turns: Turns, key: Key) -> None:
        nonlocal at_work, highest
        await turns.take(key)
        order.append(key)
        at_work += 1
        highest = max(highest, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        turns.give_back(key)

    async def all_of_them() -> None:
        turns = Turns(most, costs)
        await asyncio.gather(*(one(turns, key) for key in waiting))
        assert turns._waiting == {}
        assert turns._working == {}

    asyncio.run(all_of_them())
    return order, highest


def test_a_burst_of_one_namespace_delays_another_by_one_object() -> None:
    costs, _, _ = some_costs()
    order, _ = in_turns([HOSTILE] * 50 + [QUIET] * 3, 1, costs)
    assert max(index for index, key in enumerate(order) if key == QUIET) <= 7


def test_made_up_namespaces_of_one_address_get_one_turn_of_its_own() -> None:
    costs, _, _ = some_costs()
    made_up = [(f"n{number}", "10.244.1.7") for number in range(50)]
    order, _ = in_turns([*made_up, *[QUIET] * 3], 1, costs)
    assert max(index for index, key in enumerate(order) if key == QUIET) <= 7


def test_those_that_cost_too_much_have_one_place_together_and_come_after_all_others() -> None:
    costs, _, _ = some_costs()
    other = ("other", "10.0.0.1")
    for key in (HOSTILE, other):
        costs.spent(key, 1.0)
    order, highest = in_turns([HOSTILE] * 5 + [other] * 5 + [QUIET] * 5, 4, costs)
    assert highest <= 3, "two of the quiet namespace, and one of both others together"
    assert max(index for index, key in enumerate(order) if key == QUIET) <= 8


def test_whoever_waits_no_more_takes_no_turn() -> None:
    costs, _, _ = some_costs()

    async def scenario() -> list[str]:
        turns, went = Turns(1, costs), []

        async def go(name: str, key: Key) -> None:
            await turns.take(key)
            went.append(name)
            await asyncio.sleep(0.01)
            turns.give_back(key)

        tasks = [asyncio.create_task(go(name, QUIET)) for name in "abc"]
        await asyncio.sleep(0.001)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return went

    assert asyncio.run(scenario()) == ["a", "c"]


def test_whoever_is_cancelled_in_the_moment_of_its_turn_keeps_no_place() -> None:
    costs, _, _ = some_costs()

    async def scenario() -> None:
        turns = Turns(1, costs)
        await turns.take(QUIET)
        waiting = [asyncio.create_task(turns.take(QUIET)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # it has had no time yet to say that it waits no more
        turns.give_back(QUIET)
        await asyncio.wait_for(waiting[1], 1)
        turns.give_back(QUIET)
        await asyncio.wait_for(waiting[2], 1)
        turns.give_back(QUIET)
        assert turns._waiting == {}
        assert turns._working == {}

    asyncio.run(scenario())


keys = st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "2"]))


@given(st.lists(keys, max_size=40), st.sets(keys), st.integers(1, 6))
def test_everybody_has_a_turn_and_no_place_stays_empty(waiting: list[Key], costly: set[Key], most: int) -> None:
    costs, _, _ = some_costs()
    for key in costly:
        costs.spent(key, 1.0)
    order, highest = in_turns(waiting, most, costs)
    assert sorted(order) == sorted(waiting)
    assert highest <= most


@pytest.mark.parametrize("seconds", [-1.0, 0.0])
def test_odd_costs_change_nothing(seconds: float) -> None:
    costs, _, told = some_costs()
    costs.spent(HOSTILE, seconds)
    assert not costs.is_last(HOSTILE)
    assert told == []
