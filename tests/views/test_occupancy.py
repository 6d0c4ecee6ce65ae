"""Whose node time a second is: shares, boot, idle and unfilled time."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from spotwright.views.node_time import SECOND, Stay, occupy, share_of

HALF = Fraction(1, 2)
NODE = {"cpu": 4000, "memory": 16 * 2**30, "nvidia.com/gpu": 2}


def test_the_largest_of_the_shares_counts() -> None:
    assert share_of({"cpu": 1000, "memory": 8 * 2**30}, NODE) == HALF
    assert share_of({"cpu": 3000, "memory": 2**30}, NODE) == Fraction(3, 4)
    assert share_of({"cpu": 100, "nvidia.com/gpu": 1}, NODE) == HALF


def test_work_without_requests_has_the_whole_node() -> None:
    assert share_of({}, NODE) == share_of({"cpu": 0}, NODE) == 1


def test_a_node_of_unknown_size_is_one_attempts_whole_node() -> None:
    assert share_of({"cpu": 100}, None) == 1


def test_no_share_is_more_than_one_node() -> None:
    assert share_of({"cpu": 6000}, NODE) == 1  # the pool's nodes were larger when it was bound


def test_storage_does_not_decide_the_share() -> None:
    assert share_of({"cpu": 1000, "ephemeral-storage": 90}, {**NODE, "ephemeral-storage": 100}) == Fraction(1, 4)


def seconds(*parts: int) -> list[Fraction]:
    return [Fraction(each, SECOND) for each in parts]


def test_a_node_boots_then_is_idle_then_is_filled_in_part() -> None:
    use = occupy(10.0, 13.0, 30.0, [Stay("a", HALF, 15.0, 25.0)])
    assert seconds(use.whole, use.boot, use.idle, use.unfilled, use.used["a"]) == [20, 3, 7, 5, 5]


def test_attempts_side_by_side_fill_the_node_together() -> None:
    use = occupy(0.0, 0.0, 10.0, [Stay("a", HALF, 0.0, 10.0), Stay("b", HALF, 0.0, 4.0)])
    assert seconds(use.used["a"], use.used["b"], use.unfilled) == [5, 2, 3]


def test_shares_above_one_node_pay_their_part_of_one() -> None:
    use = occupy(0.0, 0.0, 9.0, [Stay("cpu", Fraction(1), 0.0, 9.0), Stay("memory", HALF, 0.0, 9.0)])
    assert seconds(use.used["cpu"], use.used["memory"], use.unfilled) == [6, 3, 0]


def test_two_attempts_without_requests_pay_half_each_while_both_run() -> None:
    use = occupy(0.0, 0.0, 10.0, [Stay("a", Fraction(1), 0.0, 10.0), Stay("b", Fraction(1), 6.0, 10.0)])
    assert seconds(use.used["a"], use.used["b"]) == [8, 2]


def test_a_node_that_was_never_ready_only_booted() -> None:
    use = occupy(0.0, None, 4.0, [])
    assert seconds(use.whole, use.boot) == [4, 4]


def test_an_attempt_pays_only_until_its_node_is_gone() -> None:
    use = occupy(0.0, 1.0, 5.0, [Stay("a", Fraction(1), 2.0, 5.4)])
    assert seconds(use.used["a"]) == [3]


def test_what_a_third_of_a_part_leaves_is_paid_too() -> None:
    """Three thirds are a whole node, and nothing of it is left over."""
    use = occupy(0.0, 0.0, 10.0, [Stay(name, Fraction(1, 3), 0.0, 10.0) for name in "abc"])
    assert [use.idle, use.unfilled, sum(use.used.values())] == [0, 0, 10 * SECOND]
    assert max(use.used.values()) - min(use.used.values()) <= 3


moments = st.floats(0, 1e6, allow_nan=False).map(lambda moment: 1_785_153_600.0 + moment)
lengths = st.floats(0, 1e6, allow_nan=False)
shares = st.fractions(Fraction(1, 1000), 1)
stays = st.lists(st.tuples(shares, moments, lengths), max_size=12)


@given(booted=moments, boot=st.none() | lengths, life=lengths, given_stays=stays)
def test_the_lines_of_a_node_add_up_to_its_time_exactly(
    booted: float, boot: float | None, life: float, given_stays: list[tuple[Fraction, float, float]]
) -> None:
    all_stays = [Stay(index, share, start, start + length) for index, (share, start, length) in enumerate(given_stays)]
    use = occupy(booted, None if boot is None else booted + boot, booted + life, all_stays)
    parts = [use.boot, use.idle, use.unfilled, *use.used.values()]
    assert sum(parts) == use.whole
    assert seconds(use.whole) == [Fraction(booted + life) - Fraction(booted)]
    assert min(parts) >= 0
    assert use.used.keys() == {stay.key for stay in all_stays}


@given(ready=moments, life=lengths, given_stays=stays)
def test_whole_numbers_give_what_fractions_give(
    ready: float, life: float, given_stays: list[tuple[Fraction, float, float]]
) -> None:
    """Second by second, with fractions: a stay pays its share, or its part of the node where the shares are more than one."""
    gone = ready + life
    all_stays = [Stay(index, share, start, start + length) for index, (share, start, length) in enumerate(given_stays)]
    inside = [(stay, min(max(stay.start, ready), gone), min(max(stay.end, ready), gone)) for stay in all_stays]
    paid: dict[Hashable, Fraction] = {stay.key: Fraction(0) for stay in all_stays}
    idle = unfilled = Fraction(0)
    changes = sorted({ready, gone, *(at for _, *ends in inside for at in ends)})
    for start, end in pairwise(changes):
        length = Fraction(end) - Fraction(start)
        here = [stay for stay, enters, leaves in inside if enters <= start and end <= leaves]
        load = sum((stay.share for stay in here), Fraction(0))
        for stay in here:
            paid[stay.key] += length * stay.share / max(load, Fraction(1))
        idle += 0 if here else length
        unfilled += length * max(1 - load, Fraction(0)) if here else 0

    use = occupy(ready, ready, gone, all_stays)
    assert seconds(use.idle) == [idle]
    tiny = Fraction(1, 10**15)
    assert abs(seconds(use.unfilled)[0] - unfilled) < tiny
    assert all(abs(seconds(use.used[key])[0] - amount) < tiny for key, amount in paid.items())
