"""Threads of one training that save at once: none mistakes another for a successor, and committed saves are complete."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.checkpoint.places import FACTS

from spotwright.checkpoint.errors import StaleWriter
from spotwright.checkpoint.save_manager import SaveManager, new_name
from spotwright.checkpoint.store import FolderStore

MOMENTS = ["the layout is written", "the entry is made", "the entry is written"]


class PausingStore(FolderStore):
    """A folder in which the first commit pauses at one moment, until the other thread has ended or waits for the pause to end."""

    moment = ""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.reached, self.other_ended = threading.Event(), threading.Event()

    def at(self, moment: str) -> None:
        if moment == self.moment:
            self.moment = ""
            self.reached.set()
            self.other_ended.wait(0.5)

    @contextmanager
    def write(self, name: str) -> Iterator[BinaryIO]:
        with super().write(name) as file:
            yield file
        self.at("the layout is written")

    def _new(self, name: str) -> BinaryIO:
        file = super()._new(name)
        if name.startswith("entry-"):
            self.at("the entry is made")
        return file

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        self.at("the entry is written")
        return created


def manager_at(store: FolderStore) -> SaveManager:
    return SaveManager(store, program="", keep=1, allow_pickle=False)


def begun(manager: SaveManager) -> tuple[int, str]:
    """Begin a sharded save, and write its only shard. Returns the number of the save and the name of the shard."""
    count = manager.begin_shards()
    name = new_name(manager.log.token, count)
    (Path(manager.store.place) / name).write_bytes(b"a shard")
    return count, name


def committed(manager: SaveManager, count: int, shard: str) -> None:
    manager.commit_shards(count, {"of": count}, [(shard, 7, 0)], FACTS, 0.0)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_save_that_begins_while_another_thread_commits_one_harms_neither(moment: str, tmp_path: Path) -> None:
    store = PausingStore(str(tmp_path))
    manager = manager_at(store)
    manager.claim(None)
    count, shard = begun(manager)
    store.moment = moment

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(committed, manager, count, shard)
        assert store.reached.wait(30)
        second = threads.submit(begun, manager)
        second.add_done_callback(lambda _: store.other_ended.set())
        first.result()
        later = second.result()

    entry = next(manager_at(store).log.saves())
    assert manager.read_layout(entry) == {"of": count}
    assert (tmp_path / shard).exists(), "a committed save has its shards"
    committed(manager, *later)
    assert next(manager_at(store).log.saves()).shards == [(later[1], 7, 0)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_two_threads_that_save_at_once_both_save(moment: str, tmp_path: Path) -> None:
    store = PausingStore(str(tmp_path))
    manager = manager_at(store)
    manager.claim(None)
    store.moment = moment

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(manager.save, "first", FACTS)
        assert store.reached.wait(30)
        second = threads.submit(manager.save, "second", FACTS)
        second.add_done_callback(lambda _: store.other_ended.set())
        assert (first.result().number, second.result().number) == (2, 3)

    found = manager_at(store).load()
    assert found is not None
    assert (found.state, found.passed_over) == ("second", ())


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_successor_that_begins_while_two_threads_save_stops_both(moment: str, tmp_path: Path) -> None:
    store = PausingStore(str(tmp_path))
    manager = manager_at(store)
    manager.claim(None)
    store.moment = moment
    is_first_in_time = moment != "the layout is written"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(manager.save, "first", FACTS)
        assert store.reached.wait(30)
        manager_at(FolderStore(str(tmp_path))).claim(None)
        second = threads.submit(manager.save, "second", FACTS)
        second.add_done_callback(lambda _: store.other_ended.set())
        assert isinstance(first.exception(), StaleWriter | None)
        assert (first.exception() is None) is is_first_in_time
        assert isinstance(second.exception(), StaleWriter)


class InterruptedStore(FolderStore):
    """A folder in which Ctrl-C comes once, right after an entry was written."""

    comes = False

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        if self.comes:
            self.comes = False
            raise KeyboardInterrupt
        return created


def test_a_program_that_is_interrupted_in_a_commit_can_save_once_more(tmp_path: Path) -> None:
    store = InterruptedStore(str(tmp_path))
    manager = manager_at(store)
    manager.claim(None)
    store.comes = True
    with pytest.raises(KeyboardInterrupt):
        manager.save("interrupted", FACTS)

    manager.save("at the end", FACTS)
    found = manager_at(store).load()
    assert found is not None
    assert found.state == "at the end"
