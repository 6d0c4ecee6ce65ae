"""Row 8 of the design's table: which rung under a deadline, or wait; and the last moment for on-demand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.builders import ON_DEMAND, SPOT, a_ladder, a_policy, a_pool

from spotwright.scheduling.deadline import Choice, Outlook, choose, choose_while_pending, countdown
from spotwright.scheduling.estimates import Estimate, Needs
from spotwright.scheduling.ladder import Ladder

LADDER = a_ladder(a_policy(spot="prefer"))  # spot, spot-b, on-demand
ONE_SPOT = a_ladder(a_policy(spot="prefer"), SPOT, ON_DEMAND)
SPOT_ONLY = a_ladder(a_policy(spot="require"))
TWO_ON_DEMAND = a_ladder(a_policy(spot="prefer"), SPOT, ON_DEMAND, a_pool("on-demand-b", spot=False))
SLACK = Outlook(
    now=0.0,
    deadline=1000.0,
    work=100.0,
    progress=0.0,
    overhead=10.0,
    useless=0,
    max_interruptions=3,
    patience=60.0,
)
LATE = SLACK._replace(now=900.0)

Room = Callable[[str], bool]


def everywhere(_pool: str) -> bool:
    return True


def nowhere(_pool: str) -> bool:
    return False


def only(*pools: str) -> Room:
    return lambda pool: pool in pools


@pytest.mark.parametrize(
    ("left", "clause"),
    [(134.0, "the deadline is in 2m14s"), (0.0, "the deadline is in 0s"), (-180.0, "the deadline passed 3m00s ago")],
)
def test_a_deadline_that_has_passed_is_told_as_past(left: float, clause: str) -> None:
    assert countdown(left) == clause


# The last moment


def test_the_last_moment_leaves_time_for_the_work_and_a_start() -> None:
    assert SLACK.last_moment == 890.0


def test_saved_progress_moves_the_last_moment() -> None:
    assert SLACK._replace(progress=0.5).last_moment == 940.0


def test_without_stated_work_there_is_no_safe_moment_to_wait_for() -> None:
    assert SLACK._replace(work=None).last_moment is None


# Placing


def test_with_slack_the_first_spot_rung_with_room_is_used() -> None:
    assert choose(SLACK, LADDER, only("spot-b")).rung == 1


def test_with_slack_and_no_room_it_waits_on_the_first_spot_rung() -> None:
    choice = choose(SLACK, LADDER, only("on-demand"))
    assert (choice.rung, choice.why) == (0, "waits for spot: on-demand can still finish in time later")


def test_that_on_demand_has_no_room_is_told_before_it_is_needed() -> None:
    assert choose(SLACK, LADDER, only("spot")).why == (
        "spot: there is slack before the deadline; no on-demand pool has room now, and in 14m50s it may be needed"
    )


def test_spot_with_room_is_better_than_on_demand_without() -> None:
    choice = choose(LATE, LADDER, only("spot-b"))
    assert (choice.rung, "no on-demand pool has room now" in choice.why) == (1, True)


def test_spot_that_got_nowhere_is_not_taken_in_place_of_on_demand_without_room() -> None:
    assert choose(SLACK._replace(useless=4), LADDER, only("spot-b")).rung == 2


def test_without_room_anywhere_on_demand_is_waited_for() -> None:
    choice = choose(LATE, LADDER, nowhere)
    assert (choice.rung, "no on-demand pool has room now" in choice.why) == (2, True)


def test_of_two_on_demand_rungs_one_with_room_is_taken() -> None:
    assert choose(LATE, TWO_ON_DEMAND, only("on-demand-b")).rung == 2


def test_before_the_deadline_an_attempt_that_waits_for_on_demand_goes_on_waiting() -> None:
    choice = choose_while_pending(LATE, LADDER, nowhere, 2)
    assert choice is not None
    assert choice.rung == 2


def test_an_attempt_that_waits_for_on_demand_takes_spot_with_room_also_after_the_deadline() -> None:
    choice = choose_while_pending(LATE._replace(now=1001.0), TWO_ON_DEMAND, only("spot"), 1)
    assert choice is not None
    assert choice.rung == 0


def test_it_waits_on_the_only_spot_rung_until_the_last_moment() -> None:
    assert choose(SLACK, ONE_SPOT, nowhere).until == 890.0


def test_it_waits_on_one_of_several_spot_rungs_for_its_patience() -> None:
    assert choose(SLACK, LADDER, nowhere).until == 60.0


def test_patience_ends_at_the_last_moment() -> None:
    assert choose(SLACK._replace(now=850.0), LADDER, nowhere).until == 890.0


def test_from_the_last_moment_only_on_demand_is_used() -> None:
    assert choose(LATE, LADDER, everywhere).rung == 2


def test_the_moment_before_the_last_one_spot_is_still_used() -> None:
    assert choose(SLACK._replace(now=889.9), LADDER, everywhere).rung == 0


def test_after_more_useless_attempts_in_a_row_than_allowed_only_on_demand_is_used() -> None:
    choice = choose(SLACK._replace(useless=4), LADDER, everywhere)
    assert (choice.rung, choice.why) == (
        2,
        "on-demand: 4 attempts in a row on spot got nowhere, and interruptions.max is 3",
    )


def test_as_many_useless_attempts_in_a_row_as_allowed_leave_spot_open() -> None:
    assert choose(SLACK._replace(useless=3), LADDER, everywhere).rung == 0


def test_without_stated_work_only_on_demand_is_used() -> None:
    choice = choose(SLACK._replace(work=None), LADDER, everywhere)
    assert (choice.rung, "without 'expected_duration'" in choice.why) == (2, True)


def test_without_an_on_demand_rung_it_waits_for_spot_until_the_deadline() -> None:
    assert choose(LATE, a_ladder(a_policy(spot="require"), SPOT), nowhere).until == 1000.0


def test_after_the_deadline_it_still_waits_its_patience() -> None:
    assert choose(SLACK._replace(now=2000.0), a_ladder(a_policy(spot="require"), SPOT), nowhere).until == 2060.0


def test_without_a_spot_rung_on_demand_is_used_at_once() -> None:
    choice = choose(SLACK, a_ladder(a_policy(spot="never")), everywhere)
    assert (choice.rung, choice.why) == (0, "on-demand: the ladder has no spot rung")


def test_on_demand_is_waited_for_with_looks_for_spot_in_between() -> None:
    assert choose(LATE, LADDER, everywhere).until == 912.0


def test_after_the_deadline_on_demand_is_waited_for_no_longer_than_its_patience() -> None:
    assert choose(LATE._replace(now=1000.0), LADDER, everywhere).until == 1060.0


# Rows 4 and 5 stay


def test_an_attempt_that_failed_stays_on_its_rung_while_there_is_slack() -> None:
    assert choose(SLACK, LADDER, everywhere, stay=1).rung == 1


def test_an_attempt_that_failed_leaves_spot_at_the_last_moment() -> None:
    assert choose(LATE, LADDER, everywhere, stay=1).rung == 2


def test_an_attempt_that_failed_on_demand_stays_there() -> None:
    assert choose(SLACK, LADDER, everywhere, stay=2) == Choice(
        2, "the same rung: there is slack before the deadline", 12.0
    )


# Pending


def test_while_there_is_slack_it_waits_on_one_spot_rung_after_another() -> None:
    turn = [choose_while_pending(SLACK, LADDER, nowhere, rung) for rung in (0, 1)]
    assert [choice.rung for choice in turn if choice] == [1, 0]


def test_while_it_waits_a_spot_rung_with_room_comes_first() -> None:
    choice = choose_while_pending(SLACK, LADDER, only("spot"), 0)
    assert choice is not None
    assert choice.rung == 0


def test_at_the_last_moment_a_pending_attempt_goes_to_on_demand() -> None:
    choice = choose_while_pending(LATE, LADDER, everywhere, 0)
    assert choice is not None
    assert choice.rung == 2


def test_pending_on_demand_goes_on_to_the_next_on_demand_rung() -> None:
    choice = choose_while_pending(LATE, TWO_ON_DEMAND, everywhere, 1)
    assert choice is not None
    assert choice.rung == 2


def test_after_the_last_on_demand_rung_nothing_is_left() -> None:
    assert choose_while_pending(LATE._replace(now=1000.0), TWO_ON_DEMAND, everywhere, 2) is None


def test_after_the_deadline_room_on_spot_is_not_waited_for_a_second_time() -> None:
    late = LATE._replace(now=1001.0)
    assert [choose_while_pending(late, LADDER, only("spot-b"), rung) is None for rung in (0, 1, 2)] == [
        False,
        True,
        False,
    ]


def test_pending_on_demand_with_slack_left_goes_back_to_spot() -> None:
    choice = choose_while_pending(SLACK, LADDER, everywhere, 2)
    assert choice is not None
    assert choice.rung == 0


def test_spot_alone_is_given_up_only_after_the_deadline() -> None:
    late = SLACK._replace(now=1001.0)
    assert [choose_while_pending(outlook, SPOT_ONLY, nowhere, 1) is None for outlook in (LATE, late)] == [False, True]


# For any outlook

ESTIMATES = st.builds(Estimate, expected=st.floats(0, 1000), at_most=st.floats(0, 1000))
OUTLOOKS = st.builds(
    Outlook,
    now=st.floats(0, 2000),
    deadline=st.floats(0, 2000),
    work=st.one_of(st.none(), st.floats(0, 1000)),
    progress=st.floats(0, 1),
    overhead=st.floats(0, 60),
    useless=st.integers(0, 5),
    max_interruptions=st.integers(0, 5),
    patience=st.floats(1, 600),
    saves=st.booleans(),
    drain=st.floats(0, 60),
    advice=st.none(),
    estimated=st.one_of(st.none(), st.builds(Needs, left=ESTIMATES, whole=ESTIMATES, launch=ESTIMATES)),
)
LADDERS = st.sampled_from([LADDER, ONE_SPOT, SPOT_ONLY, TWO_ON_DEMAND, a_ladder(a_policy(spot="never"))])
ROOMS = st.sampled_from([everywhere, nowhere, only("spot-b"), only("on-demand")])


@given(OUTLOOKS, LADDERS, ROOMS)
def test_when_only_on_demand_can_finish_nothing_else_is_chosen(outlook: Outlook, ladder: Ladder, room: Room) -> None:
    """If on-demand has no room, spot with room is better than waiting."""
    if outlook.only_on_demand and ladder.on_demand:
        has_room = any(room(pool) for index in ladder.on_demand for pool in ladder.rungs[index].pools)
        assert choose(outlook, ladder, room).rung in ladder.on_demand or not has_room


@given(OUTLOOKS, LADDERS, ROOMS)
def test_nothing_waits_for_ever(outlook: Outlook, ladder: Ladder, room: Room) -> None:
    """Every choice ends, and a chain of waits ends soon after the deadline.

    Until then an attempt without a node looks for room on spot five times in its patience. After it each rung is tried once.
    """
    choice: Choice | None = choose(outlook, ladder, room)
    looks = 5 * max(0.0, outlook.deadline - outlook.now) / outlook.patience
    most, waits = looks + 2 * len(ladder.rungs) + 1, 0
    while choice is not None:
        assert choice.until is not None
        assert choice.until > outlook.now
        outlook = outlook._replace(now=choice.until)
        choice = choose_while_pending(outlook, ladder, room, choice.rung)
        waits += 1
        assert waits <= most


@given(OUTLOOKS, LADDERS, ROOMS)
def test_no_wait_for_spot_passes_the_last_moment(outlook: Outlook, ladder: Ladder, room: Room) -> None:
    choice = choose(outlook, ladder, room)
    has_room = any(room(pool) for index in ladder.on_demand for pool in ladder.rungs[index].pools)
    if ladder.rungs[choice.rung].spot and has_room:
        assert outlook.last_moment is not None
        assert choice.until is not None
        assert choice.until <= outlook.last_moment
