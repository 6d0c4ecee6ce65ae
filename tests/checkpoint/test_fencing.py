"""Of two writers the older one never wins, at whatever moment the younger one begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.checkpoint.places import FACTS, MemoryStore

from spotwright.checkpoint import Checkpoint, NotLoaded, SaveFailed, StaleWriter
from spotwright.checkpoint.save_manager import SaveManager


def manager(store: Any) -> SaveManager:
    return SaveManager(store, program="", keep=2, allow_pickle=False)


def loaded(store: Any) -> Any:
    found = manager(store).load()
    return found.state if found else None


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_late_save_of_an_older_attempt_is_refused_and_names_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Checkpoint(tmp_path)
    older.load()
    older.save("of the older")
    monkeypatch.setenv("SPOTWRIGHT_ATTEMPT", "2")
    younger = Checkpoint(tmp_path)

    assert younger.load() == "of the older"
    with pytest.raises(StaleWriter, match=r"attempt 2.*must stop"):
        older.save("too late")
    younger.save("of the younger")
    assert Checkpoint(tmp_path, writer=False).load() == "of the younger"


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_pod_without_an_attempt_number_is_named_by_its_uid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOTWRIGHT_ATTEMPT", raising=False)
    older = Checkpoint(tmp_path)
    older.load()
    monkeypatch.setenv("SPOTWRIGHT_POD_UID", "5f0c-77")
    Checkpoint(tmp_path).load()

    with pytest.raises(StaleWriter, match=r"pod 5f0c-77") as refused:
        older.save("too late")
    assert "attempt " not in str(refused.value).partition("(")[2].partition(")")[0]


@pytest.mark.usefixtures("attempts_in_one_process")
def test_two_pods_with_the_same_attempt_number_fence_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTWRIGHT_ATTEMPT", "1")
    older = Checkpoint(tmp_path)
    older.load()
    younger = Checkpoint(tmp_path)
    younger.load()
    younger.save("of the younger")

    with pytest.raises(StaleWriter):
        older.save("too late")
    assert Checkpoint(tmp_path, writer=False).load() == "of the younger"


class BesideStore(MemoryStore):
    """Begins another attempt at one moment of the first one's save."""

    moment = ""
    writes = 0

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        self.writes += 1
        self.reached("writing")
        with super().write(name) as file:
            yield file
        self.reached("written")

    def create(self, name: str, data: bytes) -> bool:
        if b'"save"' in data:
            self.reached("committing")
        return super().create(name, data)

    def reached(self, moment: str) -> None:
        if moment == self.moment:
            self.moment = ""
            self.other = manager(self)
            self.other.claim(None)


@pytest.mark.parametrize("moment", ["writing", "written", "committing"])
@pytest.mark.parametrize("saves", [True, False], ids=["and has saved", "and has not saved"])
def test_a_save_under_way_when_the_successor_begins_never_counts(moment: str, saves: bool) -> None:
    store = BesideStore()
    older = manager(store)
    older.claim(None)
    older.save("first", FACTS)
    store.moment = moment

    with pytest.raises(StaleWriter):
        older.save("late", FACTS)
    assert sum(name.startswith("state-") for name in store.files) == 1, "what will never count takes no room"
    if saves:
        store.other.save("of the younger", FACTS)
    assert loaded(store) == ("of the younger" if saves else "first")


def test_an_attempt_that_was_surely_replaced_writes_nothing() -> None:
    store = BesideStore()
    older = manager(store)
    older.claim(None)
    manager(store).claim(None)

    with pytest.raises(StaleWriter):
        older.save("late", FACTS)
    assert store.writes == 0


def test_an_entry_that_an_older_attempt_completes_late_is_passed_over() -> None:
    store = MemoryStore()
    older = manager(store)
    older.claim(None)
    older.save("first", FACTS)
    late = f"entry-{older.save('late', FACTS).number:010d}"
    complete = dict(store.files)
    store.files[late] = b""  # made, and not written yet

    manager(store).claim(None)
    store.files |= complete
    assert loaded(store) == "first"


def test_a_failed_save_that_was_written_after_all_and_is_removed_by_the_successor_frees_no_number() -> None:
    store = MemoryStore()
    older, younger = manager(store), manager(store)
    older.claim(None)
    store.tears["entry-0000000002"] = 9999
    with pytest.raises(SaveFailed):
        older.save("written, and not known to be", FACTS)
    younger.claim(None)
    for number in range(2):
        younger.save(number, FACTS)
    assert "entry-0000000002" not in store.files

    with pytest.raises(StaleWriter):
        older.save("late", FACTS)
    assert loaded(store) == 1


def test_a_save_that_slips_past_a_claim_under_way_never_counts() -> None:
    store = MemoryStore()
    older, younger = manager(store), manager(store)
    older.claim(None)
    older.save("first", FACTS)
    store.tears["entry-0000000003"] = None
    with pytest.raises(SaveFailed):
        older.save("failed", FACTS)
    younger.claim(None)
    claim = store.files["entry-0000000003"]
    store.files["entry-0000000003"] = b""  # as the older one sees it, which takes it for its own failure

    older.save("late", FACTS)
    store.files["entry-0000000003"] = claim
    assert loaded(store) == "first"


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_program_that_did_not_load_cannot_overwrite_a_checkpoint(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as first:
        first.save("precious")

    with Checkpoint(tmp_path) as second, pytest.raises(NotLoaded, match=r"load\(\) first"):
        second.save("initial")
    assert Checkpoint(tmp_path, writer=False).load() == "precious"


class Writers(RuleBasedStateMachine):
    """Any number of attempts, each step of a save as a separate rule, including torn writes, compared with the model."""

    attempts = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.owner: SaveManager | None = None
        self.expected: Any = None
        self.count = 0

    @rule(target=attempts)
    def begin(self) -> SaveManager:
        self.owner = manager(self.store)
        self.owner.claim(None)
        return self.owner

    @rule(tear=st.integers(0, 400))
    def begin_in_vain(self, tear: int) -> None:
        """An attempt whose claim fails, and which ends by that. Its remains still stop the previous attempt."""
        claim = self.tear_next(tear)
        with pytest.raises(SaveFailed):
            manager(self.store).claim(None)
        left = self.store.files.get(claim)
        if left is None:
            return
        mine = self.owner is not None and self.owner.log._doubtful == int(claim.removeprefix("entry-"))
        if b'"format": 1}' in left or not mine:  # else the one before takes it for what its own failure has left
            self.owner = None

    @rule(attempt=attempts, tear=st.one_of(st.none(), st.integers(0, 400)))
    def save(self, attempt: SaveManager, tear: int | None) -> None:
        self.count += 1
        if tear is not None and attempt is self.owner:
            self.tear_next(tear)
        try:
            attempt.save(self.count, FACTS)
        except StaleWriter:
            assert attempt is not self.owner
        except SaveFailed:
            assert tear is not None
            if (now := loaded(self.store)) == self.count:  # all of the entry had been written before the disk failed
                self.expected = now
        else:
            assert attempt is self.owner
            self.expected = self.count

    @rule(attempt=consumes(attempts))
    def forget(self, attempt: SaveManager) -> None:
        """An attempt that ends without a trace."""

    def tear_next(self, tear: int) -> str:
        """Let the creation of the next entry fail, leaving some of its bytes, or, for an even number, nothing."""
        numbers = [int(name.removeprefix("entry-")) for name in self.store.files if name.startswith("entry-")]
        name = f"entry-{max(numbers, default=0) + 1:010d}"
        self.store.tears[name] = tear if tear % 2 else None
        return name

    @invariant()
    def the_newest_that_counts_is_loaded(self) -> None:
        assert loaded(self.store) == self.expected

    @invariant()
    def little_is_left_behind(self) -> None:
        assert sum(name.startswith("state-") for name in self.store.files) <= 3


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=30, stateful_step_count=25)
