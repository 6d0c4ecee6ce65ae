"""The table of numbers and gangs: every number once, whichever replica gives it out."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from spotwright.cluster.admit_pods import Admission
from spotwright.cluster.attempt_numbers import PATIENCE, Ledger, Seen, Slot
from spotwright.errors import StateError


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
        return ledger.number(f"token-{next(tokens)}", "team-a", "job", [Slot("train")])[1]

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(ask, ledgers * 50))
    assert sorted(numbers) == list(range(1, 101))


def test_a_review_that_comes_again_gets_the_same_number(ledgers: list[Ledger]) -> None:
    assert [ledger.number("one", "team-a", "job", [Slot("train")])[1] for ledger in ledgers] == [1, 1]


def test_numbers_go_on_after_those_of_the_journal(ledgers: list[Ledger]) -> None:
    assert ledgers[0].number("one", "team-a", "job", [Slot("train", recorded=7)])[1] == 8
    assert ledgers[0].highest("job", ["train"]) == {"train": 8}


def test_pods_that_are_alike_take_the_first_slot_that_is_free(ledgers: list[Ledger]) -> None:
    slots = [Slot("p-0", 1, is_free=False), Slot("p-1"), Slot("p-2")]
    taken = [ledgers[n % 2].number(f"t{n}", "team-a", "job", slots) for n in range(3)]
    assert [(slot.path, number) for slot, number in taken] == [("p-1", 1), ("p-2", 1), ("p-2", 2)]


def test_a_number_whose_pod_was_never_made_is_given_out_again(ledgers: list[Ledger], clock: Clock) -> None:
    first, second = ledgers
    first.number("refused-by-a-quota", "team-a", "job", [Slot("train")])
    assert second.doubtful("job") == []
    clock.now += PATIENCE + 1
    assert second.doubtful("job") == [("refused-by-a-quota", "train")]
    second.withdraw(["refused-by-a-quota"])
    assert second.number("next", "team-a", "job", [Slot("train")])[1] == 1


def test_a_number_whose_pod_was_seen_is_never_given_out_again(ledgers: list[Ledger], clock: Clock) -> None:
    first, second = ledgers
    first.number("made", "team-a", "job", [Slot("train")])
    second.confirm([Seen("team-b", "made")])
    clock.now += PATIENCE + 1
    assert first.doubtful("job") == [("made", "train")], "a pod of another namespace says nothing"
    second.confirm([Seen("team-a", "made")])
    clock.now += PATIENCE + 1
    assert first.doubtful("job") == []
    first.withdraw(["made"])
    assert first.number("next", "team-a", "job", [Slot("train")])[1] == 2


def test_a_gang_agrees_once(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    rungs = [("spot-a", "spot-b"), ("regular",)]
    assert not first.has_begun("team-a", "set/1")
    assert first.agree("team-a", "set/1", rungs, ("spot-a", "spot-b")) == ("spot-a", "spot-b")
    assert second.agree("team-a", "set/1", rungs, ("regular",)) == ("spot-a", "spot-b")
    assert second.agree("team-a", "set/11", rungs, ("regular",)) == ("regular",)
    assert [second.has_begun("team-a", gang) for gang in ("set/1", "set/11", "set/2", "set")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_leader_on_on_demand_does_not_decide_for_workers_that_have_other_rungs(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    assert first.agree("team-a", "set/0", [("regular",)], ("regular",)) == ("regular",)
    assert second.agree("team-a", "set/0", [("spot",), ("regular",)], ("spot",)) == ("spot",)
    assert first.agree("team-a", "set/0", [("spot",), ("regular",)], ("regular",)) == ("spot",)


def test_gangs_of_two_namespaces_never_meet(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    rungs = [("spot",), ("regular",)]
    assert first.agree("team-a", "set/0", rungs, ("regular",)) == ("regular",)
    assert not second.has_begun("team-b", "set/0")
    assert second.agree("team-b", "set/0", rungs, ("spot",)) == ("spot",)


SPOT = Admission(("spot-a", "spot-b"), is_open=True, why="first attempt", number=1)


def admit(ledger: Ledger, review: str = "token") -> None:
    ledger.number(review, "team-a", "job", [Slot("train")])
    ledger.keep(review, SPOT)


def test_what_was_decided_is_found_by_every_replica_and_stays_with_the_pod(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    admit(first)
    assert second.admission("token", "team-a", "job", "pod-uid") == SPOT
    assert first.admission("another", "team-a", "job", "pod-uid") == SPOT, "its annotation was changed since"
    assert first.admission("", "team-a", "job", "pod-uid") == SPOT


@pytest.mark.parametrize(
    ("token", "namespace", "root"),
    [("token", "team-b", "job"), ("token", "team-a", "job-2"), ("forged", "team-a", "job"), ("", "team-a", "job")],
)
def test_a_token_of_another_namespace_or_workload_counts_for_nothing(
    ledgers: list[Ledger], token: str, namespace: str, root: str
) -> None:
    admit(ledgers[0])
    assert ledgers[1].admission(token, namespace, root, "pod-uid") is None


def test_a_copied_token_counts_for_the_first_pod_alone(ledgers: list[Ledger]) -> None:
    admit(ledgers[0])
    assert ledgers[0].admission("token", "team-a", "job", "first") == SPOT
    assert ledgers[1].admission("token", "team-a", "job", "copy") is None


def test_a_pod_that_is_a_run_by_itself_is_known_by_its_token_in_its_namespace(ledgers: list[Ledger]) -> None:
    first, second = ledgers
    first.alone("token", "team-a")
    first.keep("token", SPOT)
    assert second.admission("token", "team-b", "other-uid", "other-uid") is None
    assert second.admission("token", "team-a", "pod-uid", "pod-uid") == SPOT


def test_a_review_is_taken_up_for_a_moment_and_only_by_its_own_pod(ledgers: list[Ledger], clock: Clock) -> None:
    first, second = ledgers
    admit(first)
    assert second.is_under_review("token", "team-a", "job")
    assert not second.is_under_review("token", "team-b", "job")
    first.confirm([Seen("team-a", "token")])
    assert not second.is_under_review("token", "team-a", "job")
    admit(first, "later")
    clock.now += 60.0
    assert not second.is_under_review("later", "team-a", "job")


OLD = """
CREATE TABLE numbers (token TEXT PRIMARY KEY, root TEXT NOT NULL, path TEXT NOT NULL, number INTEGER NOT NULL,
                      at REAL NOT NULL, is_seen INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX numbers_of_task ON numbers (root, path, number);
CREATE TABLE gangs (gang TEXT PRIMARY KEY, pools TEXT NOT NULL, at REAL NOT NULL);
INSERT INTO numbers VALUES ('old', 'job', 'train', 4, 1000.0, 1);
"""


def test_a_file_of_an_earlier_version_is_taken_over_where_it_is(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "numbers.db"
    with sqlite3.connect(path) as old:
        old.executescript(OLD)
    old.close()
    ledger = Ledger(path, clock)
    assert ledger.losses == []
    assert ledger.number("new", "team-a", "job", [Slot("train")])[1] == 5
    assert ledger.admission("old", "team-a", "job", "pod-uid") == Admission(number=4), "its rung was not noted"
    ledger.close()


def damage(path: Path, how: str) -> None:
    if how == "rubbish":
        path.write_bytes(os.urandom(5000))
    elif how == "torn":
        path.write_bytes(path.read_bytes()[:4096] + os.urandom(8192))
    else:
        path.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)


@pytest.mark.parametrize("how", ["rubbish", "torn", "another header"])
def test_a_damaged_file_is_set_aside_and_numbers_go_on(tmp_path: Path, clock: Clock, how: str) -> None:
    path = tmp_path / "numbers.db"
    first = Ledger(path, clock)
    admit(first)
    first.close()
    damage(path, how)
    ledger = Ledger(path, clock)
    with_loss = ledger.losses
    try:
        ledger.number("new", "team-a", "job", [Slot("train", recorded=3)])
    except StateError:  # the damage is seen only where it is read
        assert ledger.number("new", "team-a", "job", [Slot("train", recorded=3)])[1] == 4
    assert [text for text in with_loss if f"{path}: was damaged" in text and "numbers.db.corrupt-1000" in text]
    assert (tmp_path / "numbers.db.corrupt-1000").exists()
    assert ledger.highest("job", ["train"]) == {"train": 4}
    ledger.close()


def test_the_other_replica_goes_on_with_the_new_file(ledgers: list[Ledger], tmp_path: Path, clock: Clock) -> None:
    first, second = ledgers
    admit(first)
    (tmp_path / "numbers.db").rename(tmp_path / "aside")
    third = Ledger(tmp_path / "numbers.db", clock)
    assert third.number("third", "team-a", "job", [Slot("train", recorded=1)])[1] == 2
    assert second.number("second", "team-a", "job", [Slot("train", recorded=1)])[1] == 3
    assert not second.is_restored("job")
    third.close()


def test_numbers_that_pods_carry_are_restored_and_their_rungs_are_not_believed(
    ledgers: list[Ledger], tmp_path: Path
) -> None:
    ledger = ledgers[0]
    (tmp_path / "numbers.db").rename(tmp_path / "aside")
    assert ledger.highest("job", ["train"]) == {}
    assert not ledger.is_restored("job")
    ledger.restore("team-a", "job", [("one", ["train"], 6), ("two", ["p-0", "p-1"], 1), ("three", ["p-0", "p-1"], 1)])
    assert ledger.is_restored("job")
    assert not ledger.is_restored("another")
    assert ledger.highest("job", ["train", "p-0", "p-1"]) == {"train": 6, "p-0": 1, "p-1": 1}
    assert ledger.admission("one", "team-a", "job", "pod-uid") == Admission(number=6)


def test_what_is_no_text_in_the_file_is_read_as_far_as_it_is_one(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger(tmp_path / "numbers.db", clock)
    admit(ledger)
    other = sqlite3.connect(tmp_path / "numbers.db")
    other.execute("UPDATE numbers SET why = CAST(x'ff41' AS TEXT)")
    other.commit()
    other.close()
    found = ledger.admission("token", "team-a", "job", "pod-uid")
    assert found is not None
    assert found.why == "\ufffdA"
    ledger.close()


def test_the_file_is_for_its_owner_alone(ledgers: list[Ledger], tmp_path: Path) -> None:
    admit(ledgers[0])
    assert {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("numbers.db", "numbers.db.lock", "numbers.db-wal", "numbers.db-shm"), 0
    )


def test_numbers_of_pods_that_were_never_made_do_not_stay(tmp_path: Path) -> None:
    """Whoever reaches the webhook's port may send reviews of pods that nobody makes, thousands a minute."""
    now = [1000.0]
    ledger = Ledger(tmp_path / "numbers.db", lambda: now[0])
    for number in range(50):
        ledger.alone(f"forged-{number}", "team-a")
    ledger.alone("made", "team-a")
    ledger.confirm([Seen("team-a", "made")])
    now[0] += 7200.0
    ledger.alone("new", "team-a")
    with closing(sqlite3.connect(tmp_path / "numbers.db")) as file:
        assert {row[0] for row in file.execute("SELECT token FROM numbers")} == {"made", "new"}
    ledger.close()
