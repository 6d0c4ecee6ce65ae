"""Cut, damaged or missing files: the newest whole checkpoint is loaded, or loading fails."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoint.places import FACTS, MemoryStore

from spotwright.checkpoint import BrokenCheckpoint, Checkpoint, OtherProgram
from spotwright.checkpoint.save_manager import SaveManager

LAST, BEFORE = {"number": 2, "bytes": b"\x02" * 40}, {"number": 1, "bytes": b"\x01" * 40}


def manager(store: MemoryStore, program: str = "") -> SaveManager:
    return SaveManager(store, program=program, keep=2, allow_pickle=False)


def two_saves() -> tuple[MemoryStore, str, str]:
    """A store with two saves; the names of the last one's state and entry."""
    store = MemoryStore()
    ours = manager(store)
    ours.claim(None)
    ours.save(BEFORE, FACTS)
    entry = ours.save(LAST, FACTS)
    return store, entry.state, f"entry-{entry.number:010d}"


def loaded(store: MemoryStore) -> Any:
    found = manager(store).load()
    assert found is not None
    return found.state


@pytest.mark.parametrize("which", ["state", "entry"])
def test_cut_at_any_byte_the_previous_save_is_loaded(which: str) -> None:
    store, state, entry = two_saves()
    name = {"state": state, "entry": entry}[which]
    whole = store.files[name]

    for length in range(len(whole)):
        store.files[name] = whole[:length]
        assert loaded(store) == BEFORE, length
    store.files[name] = whole
    assert loaded(store) == LAST


@pytest.mark.parametrize("which", ["state", "entry"])
def test_with_any_byte_changed_one_of_the_two_saves_is_loaded(which: str) -> None:
    store, state, entry = two_saves()
    name = {"state": state, "entry": entry}[which]
    whole = store.files[name]
    found = []

    for place in range(len(whole)):
        store.files[name] = whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :]
        found.append(loaded(store))
    assert all(state in (BEFORE, LAST) for state in found)
    assert found.count(LAST) <= 64 + 8  # the gap before the bytes and the mark at the beginning say nothing


def test_with_zeros_at_the_end_as_after_a_power_failure_the_previous_save_is_loaded() -> None:
    store, state, _ = two_saves()
    whole = store.files[state]

    for length in range(len(whole)):
        store.files[state] = whole[:length] + bytes(len(whole) - length)
        assert loaded(store) in (BEFORE, LAST) if whole[length:].strip(b"\0") == b"" else loaded(store) == BEFORE


def test_a_state_file_that_is_gone_is_passed_over() -> None:
    store, state, _ = two_saves()
    del store.files[state]

    assert loaded(store) == BEFORE


def test_without_a_whole_save_loading_fails_and_does_not_start_anew() -> None:
    store, _, _ = two_saves()
    for name in [name for name in store.files if name.startswith("state-")]:
        store.files[name] = store.files[name][:20]

    with pytest.raises(BrokenCheckpoint, match="every checkpoint is incomplete"):
        manager(store).load()


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_save_that_was_passed_over_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(1)
        ckpt.save(2)
    max(tmp_path.glob("state-*")).write_bytes(b"cut")

    with Checkpoint(tmp_path) as ckpt:
        assert ckpt.load() == 1
    assert "skipped an incomplete checkpoint" in caplog.text


@pytest.mark.usefixtures("attempts_in_one_process")
def test_after_a_torn_save_the_next_save_works(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(1)
        ckpt.save(2)
    max(tmp_path.glob("state-*")).write_bytes(b"cut")

    with Checkpoint(tmp_path) as ckpt:
        ckpt.load()
        ckpt.save(3)
    assert Checkpoint(tmp_path, writer=False).load() == 3


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_requested_number_of_saves_is_kept(tmp_path: Path, count: int) -> None:
    with Checkpoint(tmp_path, keep=count) as ckpt:
        for number in range(6):
            ckpt.save(number)

    assert len(list(tmp_path.glob("state-*"))) == count


@pytest.mark.usefixtures("attempts_in_one_process")
def test_the_next_attempt_removes_the_files_of_a_killed_save(tmp_path: Path) -> None:
    with Checkpoint(tmp_path) as ckpt:
        ckpt.save(1)
    left = tmp_path / "state-0000000001-000009-00000000"
    left.write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("the user's own")

    Checkpoint(tmp_path).load()
    assert not left.exists()
    assert (tmp_path / "notes.txt").exists()


def test_the_next_attempt_finishes_a_removal_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    for number in range(4):
        each = SaveManager(store, program="", keep=4, allow_pickle=False)
        each.claim(None)
        each.save(number, FACTS)
    removed: list[str] = []

    def kill(name: str) -> None:
        if removed:
            raise KeyboardInterrupt
        removed.append(name)
        store.files.pop(name)

    with monkeypatch.context() as patch:
        patch.setattr(store, "remove", kill)
        with pytest.raises(KeyboardInterrupt):
            SaveManager(store, program="", keep=1, allow_pickle=False).claim(None)
    SaveManager(store, program="", keep=1, allow_pickle=False).claim(None)

    assert loaded(store) == 3
    assert sum(b'"save"' in data[:9999] and name.startswith("entry-") for name, data in store.files.items()) == 1


def test_a_checkpoint_of_another_program_is_not_loaded_and_the_other_program_not_disturbed() -> None:
    store = MemoryStore()
    first = manager(store, "digits/1")
    first.claim(None)
    first.save(1, FACTS)

    other = manager(store, "digits/2")

    with pytest.raises(OtherProgram, match=r"'digits/1'.*'digits/2'"):
        other.load()
    with pytest.raises(OtherProgram, match=r"'digits/1'.*'digits/2'"):
        other.claim(None)
    first.save(2, FACTS)


@pytest.mark.parametrize("kind", ["claim", "save"])
def test_a_checkpoint_of_a_newer_spotwright_is_refused(kind: str) -> None:
    store, _, entry = two_saves()
    name = entry if kind == "save" else "entry-0000000001"
    body = json.dumps({**json.loads(store.files[name][9:]), "format": 3}).encode()
    store.files[name] = b"%08x " % zlib.crc32(body) + body

    with pytest.raises(OtherProgram, match="newer Spotwright"):
        manager(store).load()
