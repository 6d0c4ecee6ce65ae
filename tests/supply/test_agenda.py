"""Actions at future moments."""

from __future__ import annotations

from spotwright.supply.simulated_pools import TimerQueue


def test_actions_come_in_the_order_of_their_moments_then_of_their_entry() -> None:
    agenda, seen = TimerQueue(), list[str]()
    for moment, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        agenda.at(moment, lambda _, name=name: seen.append(name))  # type: ignore[misc]
    agenda.run_until(2.0)
    assert seen == ["first", "second", "late"]


def test_an_action_is_given_its_own_moment() -> None:
    agenda, seen = TimerQueue(), list[float]()
    agenda.at(1.0, seen.append)
    agenda.run_until(5.0)
    assert seen == [1.0]


def test_an_action_that_enters_another_one_is_followed_by_it_when_that_is_due() -> None:
    agenda, seen = TimerQueue(), list[float]()

    def enter_two(at: float) -> None:
        agenda.at(at + 1, seen.append)
        agenda.at(at + 9, seen.append)

    agenda.at(1.0, enter_two)
    agenda.run_until(5.0)
    assert (seen, agenda.next_moment()) == ([2.0], 10.0)


def test_a_cleared_agenda_has_no_next_moment() -> None:
    agenda = TimerQueue()
    agenda.at(1.0, lambda _: None)
    agenda.clear()
    assert agenda.next_moment() is None
