"""The table of numbers and gangs: every number once, whichever replica gives it out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from spotwright.cluster.attempt_numbers import PATIENCE, Ledger, Slot


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledgers(tmp_path: Path, clock: Clock) -> Iterator[list[Ledger]]:
    """Those of two replicas."""
    made = [Ledger(tmp_path / "numbers.db", clock) for _ in range(2)]
    yield made
    for ledger in made:
        ledger.close()


def test_two_replicas_never_give_out_one_number_twice(ledgers: list[Ledger]) -> None:
    tokens = count()

    def ask(ledger: Ledger) -> int:
        return ledger.number(f"token-{next(tokens)}", "job", [Slot("train")])[1]

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(ask, ledgers * 50))
    assert sorted(numbers) == list(range(1, 101))


def test_a_review_that_comes_again_gets_the_same_number(ledgers: list[Ledger]) -> None:
    assert [ledger.number("one", "job", [Slot("train")])[1] for ledger in ledgers] == [1, 1]


def test_numbers_go_on_after_those_of_the_journal(ledgers: list[Ledger]) -> None:
    assert ledgers[0].number("one", "job", [Slot("train", recorded=7)])[1] == 8
    assert ledgers[0].highest("job", "train") == 8


def test_pods_that_are_alike_take_the_first_slot_that_is_free(ledgers: list[Ledger]) -> None:
    slots = [Slot("p-0", 1, is_free=False), Slot("p-1"), Slot("p-2")]
    taken = [ledgers[n % 2].number(f"t{n}", "job", slots) for n in range(3)]
    assert [(slot.path, number) for slot, number in taken] == [("p-1", 1), ("p-2", 1), ("p-2", 2)]


def test_a_number_whose_pod_was_never_made_is_given_out_again(ledgers: list[Ledger], clock: Clock) -> None:
    first, second = ledgers
    first.number("refused-by-a-quota", "job", [Slot("train")])
    assert second.doubtful("job", ["train"]) == []
    clock.now += PATIENCE + 1
    assert second.doubtful("job", ["train"]) == ["refused-by-a-quota"]
    second.withdraw(["refused-by-a-quota"])
    assert second.number("next", "job", [Slot("train")])[1] == 1


def test_a_number_whose_pod_was_seen_is_never_given_out_again(ledgers: list[Ledger], clock: Clock) -> None:
    first, second = ledgers
    first.number("made", "job", [Slot("train")])
    second.confirm(["made"])
    clock.now += PATIENCE + 1
    assert first.doubtful("job", ["train"]) == []
    first.withdraw(["made"])
    assert first.number("next", "job", [Slot("train")])[1] == 2


def test_a_gang_agrees_once(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    rungs = [("spot-a", "spot-b"), ("regular",)]
    assert not first.has_begun("set/1")
    assert first.agree("set/1", rungs, ("spot-a", "spot-b")) == ("spot-a", "spot-b")
    assert second.agree("set/1", rungs, ("regular",)) == ("spot-a", "spot-b")
    assert second.agree("set/11", rungs, ("regular",)) == ("regular",)
    assert [second.has_begun(gang) for gang in ("set/1", "set/11", "set/2", "set")] == [True, True, False, False]


def test_a_leader_on_on_demand_does_not_decide_for_workers_that_have_other_rungs(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    assert first.agree("set/0", [("regular",)], ("regular",)) == ("regular",)
    assert second.agree("set/0", [("spot",), ("regular",)], ("spot",)) == ("spot",)
    assert first.agree("set/0", [("spot",), ("regular",)], ("regular",)) == ("spot",)
