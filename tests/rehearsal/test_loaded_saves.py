"""Which save an attempt loaded: what inotify shows of real files, and what follows from the operations of saves."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation
from spotwright.rehearsal.injection_points import SAVES, summarize_activity
from spotwright.rehearsal.loaded_saves import (
    LoadWatcher,
    Origin,
    Resume,
    SaveCounts,
    ends_inside_save,
    resume_of,
    settled,
)

Operations = Sequence[FileOperation]


def operation(call: FileCall, path: str, at: float, source: str = "", *, truncates: bool = False) -> FileOperation:
    return FileOperation(call, SAVES, path, at, source, truncates)


def renamed(number: int, name: str = "ck-{}.json") -> Operations:
    """A save that is written beside, and renamed when it is whole."""
    path = name.format(number)
    return [
        operation(FileCall.OPEN, f"{path}.tmp", number, truncates=True),
        operation(FileCall.WRITE, f"{path}.tmp", number + 0.001),
        operation(FileCall.RENAME, path, number + 0.002, f"{path}.tmp"),
    ]


def in_place(number: int, path: str = "ck.json") -> Operations:
    return [
        operation(FileCall.OPEN, path, number, truncates=True),
        operation(FileCall.WRITE, path, number + 0.001),
    ]


def removed_first(number: int) -> Operations:
    return [operation(FileCall.REMOVE, "ck.json", number - 0.001), *renamed(number, "ck.json")]


def saves(make: Callable[[int], Operations], count: int, first: int = 1) -> list[FileOperation]:
    return [each for number in range(first, first + count) for each in make(number)]


def found(
    before: Operations,
    after: Operations,
    loads: Sequence[str],
    undisturbed: Operations,
    kinds: str = "ck-1.json ck.json",
    *,
    ended_by_itself: bool = False,
    is_last: bool = True,
) -> Resume | None:
    """What the second attempt resumed from; ``kinds`` are files of each kind that some attempt reads."""
    counts = SaveCounts(undisturbed, [[name] for name in kinds.split()])
    return resume_of(2, [(before, ended_by_itself)], after, loads, undisturbed, counts, is_last=is_last)


def resumed(
    before: Operations, after: Operations, loads: Sequence[str], undisturbed: Operations, *kinds: str
) -> Resume:
    """As :func:`found`, of an attempt that had something to resume from."""
    resume = found(before, after, loads, undisturbed, *kinds)
    assert resume is not None
    return resume


@pytest.mark.parametrize(
    ("loads", "origin"),
    [
        (["ck-5.json"], Origin.NEWEST),
        (["ck-3.json", "ck-5.json"], Origin.NEWEST),
        (["ck-3.json"], Origin.OLDER),
        (["config.json"], Origin.NOTHING),
        ([], Origin.NOTHING),
    ],
)
def test_the_newest_whole_save_is_the_last_that_was_renamed(loads: list[str], origin: Origin) -> None:
    inside_the_sixth = [*saves(renamed, 5), *renamed(6)[:2]]

    resume = resumed(inside_the_sixth, saves(renamed, 4, first=7), loads, saves(renamed, 10))

    assert (resume.newest, resume.origin) == (("ck-5.json",), origin)


def test_a_save_that_was_renamed_but_is_not_read_back_by_anybody_is_none() -> None:
    assert found(saves(renamed, 5), (), (), saves(renamed, 10), "") is None


def test_a_log_that_is_never_read_is_no_save() -> None:
    log = [operation(FileCall.WRITE, "train.log", 5.5)]

    resume = resumed([*saves(renamed, 5), *log], saves(renamed, 5, first=6), ["ck-5.json"], saves(renamed, 10))

    assert (resume.newest, resume.origin) == (("ck-5.json",), Origin.NEWEST)


def test_a_pointer_that_every_save_writes_is_not_enough_where_each_has_a_file_of_its_own() -> None:
    def with_pointer(number: int) -> Operations:
        return [*renamed(number), *renamed(number, "latest")]

    undisturbed = saves(with_pointer, 10)
    resume = resumed(saves(with_pointer, 5), (), ["latest", "ck-3.json"], undisturbed, "ck-1.json latest")

    assert resume.origin is Origin.OLDER


@pytest.mark.parametrize(("make", "cut"), [(in_place, 1), (removed_first, 1), (removed_first, 2)])
def test_a_kill_while_the_only_save_is_gone_loses_all_if_the_next_attempt_begins_from_the_start(
    make: Callable[[int], Operations], cut: int
) -> None:
    undisturbed = saves(make, 10)[1 if make is removed_first else 0 :]
    before = [*undisturbed[: len(undisturbed) // 2], *make(20)[:cut]]

    lost = resumed(before, undisturbed, [], undisturbed)
    went_on = resumed(before, saves(make, 5, first=30), [], undisturbed)

    assert lost.is_all_lost
    assert not went_on.is_all_lost
    assert lost.lost_by == make(20)[0]
    assert lost.lost_until is not None
    assert lost.lost_until.call is make(20)[-1].call


def test_two_files_in_turn_always_leave_a_whole_save() -> None:
    def in_turn(number: int) -> Operations:
        return in_place(number, f"slot-{'ab'[number % 2]}")

    resume = resumed(
        [*saves(in_turn, 5), *in_turn(6)[:1]],
        saves(in_turn, 5, first=6),
        ["slot-b"],
        saves(in_turn, 10),
        "slot-a slot-b",
    )

    assert (resume.newest, resume.origin, resume.is_all_lost) == (("slot-b",), Origin.NEWEST, False)


def test_a_save_that_was_moved_aside_before_the_next_was_written_is_still_whole() -> None:
    def rotated(number: int) -> Operations:
        return [operation(FileCall.RENAME, "prev", number, "last"), *in_place(number, "last")]

    before = [*in_place(0, "last"), *saves(rotated, 4), *rotated(5)[:2]]
    resume = resumed(before, (), ["prev"], [*in_place(0, "last"), *saves(rotated, 9)], "last prev")

    assert (resume.newest, resume.origin) == (("prev",), Origin.NEWEST)


def test_an_attempt_that_ended_by_itself_finished_its_save() -> None:
    told = found(in_place(1), (), ["ck.json"], (), ended_by_itself=True)

    assert told is not None
    assert told.origin is Origin.NEWEST
    assert found(in_place(1), (), ["ck.json"], ()) is None


def test_an_attempt_that_was_interrupted_before_it_loaded_anything_tells_nothing() -> None:
    before, undisturbed = saves(renamed, 5), saves(renamed, 10)

    assert found(before, (), [], undisturbed, is_last=False) is None
    loaded = found(before, (), ["ck-2.json"], undisturbed, is_last=False)

    assert loaded is not None
    assert (loaded.origin, loaded.behind, loaded.saved) == (Origin.OLDER, 3, 0)


def marked(number: int) -> Operations:
    """A save of two files, and a third one whose presence alone says that they are whole."""
    names = [f"ck-{number}/{name}" for name in ("a.bin", "b.bin", "DONE")]
    return [operation(call, name, number) for name in names for call in (FileCall.OPEN, FileCall.WRITE)]


def test_the_files_of_one_save_are_counted_as_one() -> None:
    kinds = "ck-1/a.bin ck-1/b.bin"
    inside = [*saves(marked, 5), *marked(6)[:5]]

    resume = resumed(inside, (), ["ck-4/a.bin", "ck-4/b.bin"], saves(marked, 10), kinds)

    assert (resume.behind, resume.newest) == (2, ("ck-6/a.bin", "ck-6/b.bin"))


def test_one_save_behind_says_nothing_if_the_step_ever_loads_the_newest() -> None:
    undisturbed, kinds = saves(marked, 10), "ck-1/a.bin ck-1/b.bin"
    before_mark = resumed([*saves(marked, 5), *marked(6)[:5]], (), ["ck-5/a.bin"], undisturbed, kinds)
    first = resumed(marked(1)[:5], (), [], undisturbed, kinds)
    between = resumed(saves(marked, 5), (), ["ck-5/a.bin"], undisturbed, kinds)
    older = resumed(saves(marked, 5), (), ["ck-1/a.bin"], undisturbed, kinds)

    assert [each.behind for each in (before_mark, first, between, older)] == [1, 1, 0, 4]
    assert [[each.behind for each in trial] for trial in settled([[before_mark], [first], [between], [older]])] == [
        [0], [], [0], [4],
    ]  # fmt: skip
    never = settled([[before_mark, first], [older]])
    assert [[each.origin for each in trial] for trial in never] == [[Origin.OLDER, Origin.NOTHING], [Origin.OLDER]]


def test_a_save_that_early_attempts_made_again_and_again_is_one() -> None:
    def pointed(number: int) -> Operations:
        return [*in_place(number, f"ck-{number}.json"), *renamed(number, "latest")]

    counts = SaveCounts(saves(pointed, 10), [["ck-1.json", "latest"]])
    before = [(pointed(1)[:3], False)] * 4

    assert resume_of(5, before, saves(pointed, 10), [], saves(pointed, 10), counts) is None

    in_the_next = [*before, (pointed(1)[:1], False)]  # ck-1.json is emptied, and no pointer ever named it
    assert resume_of(6, in_the_next, saves(pointed, 10), [], saves(pointed, 10), counts) is None


def test_a_journal_that_is_read_stands_for_its_database() -> None:
    writes = [operation(FileCall.WRITE, "state.db", number) for number in range(9)]
    opened = [operation(FileCall.OPEN, "state.db", 0), operation(FileCall.OPEN, "state.db-journal", 0)]

    resume = resumed([*opened, *writes[:5]], writes, ["state.db-journal"], [*opened, *writes], "state.db")

    assert (resume.loaded, resume.origin) == (("state.db",), Origin.NEWEST)


def test_a_log_whose_every_write_is_a_save_is_never_lost_and_counted_by_its_writes() -> None:
    def logged(count: int) -> Operations:
        writes = [operation(FileCall.WRITE, "log.jsonl", number) for number in range(count)]
        return [operation(FileCall.OPEN, "log.jsonl", 0), *writes]

    resume = resumed(logged(6), logged(5), ["log.jsonl"], logged(10), "log.jsonl")

    assert (resume.origin, resume.saved, resume.redone) == (Origin.NEWEST, 6, 1)


@pytest.mark.parametrize(
    ("operations", "cut"),
    [((), False), (renamed(1), False), (renamed(1)[:2], True), ([*renamed(1), *renamed(2)[:1]], True)],
)
def test_an_attempt_ends_inside_a_save_that_lacks_operations(operations: Operations, *, cut: bool) -> None:
    assert ends_inside_save(operations, summarize_activity(saves(renamed, 3))) is cut


# -- real files


def test_files_that_are_read_or_mapped_are_loads_and_files_that_are_listed_or_written_are_none(tmp_path: Path) -> None:
    for name in ("read", "mapped", "listed", "rewritten", "deep/read"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("content")
    watcher = LoadWatcher([tmp_path])

    (tmp_path / "read").read_text()
    (tmp_path / "deep" / "read").read_text()
    with (tmp_path / "mapped").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        assert content[:1] == b"c"
    assert len(list(tmp_path.iterdir())) == 5
    (tmp_path / "rewritten").write_text("new")
    (tmp_path / "rewritten").read_text()
    (tmp_path / "new").write_text("new")
    (tmp_path / "new").read_text()

    assert sorted(watcher.close() or ()) == ["deep/read", "mapped", "read"]


def test_a_single_file_and_one_that_is_not_there_can_be_watched(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("content")
    watcher = LoadWatcher([tmp_path / "state", tmp_path / "missing"])

    (tmp_path / "state").read_text()

    assert watcher.close() == ("state",)


def take_all_descriptors(taken: list[int]) -> None:
    while True:
        taken.append(os.dup(0))


def test_a_watcher_waits_where_other_trials_have_all_instances(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 40, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            take_all_descriptors(taken)
        threading.Timer(0.3, lambda: os.close(taken.pop())).start()
        watcher = LoadWatcher([])
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert watcher.close() == ()


@pytest.mark.long
def test_where_events_were_lost_nothing_is_said(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    (tmp_path / "state").write_text("content")
    watcher = LoadWatcher([tmp_path])

    for number in range(limit):
        (tmp_path / f"{number % 7}").write_text("x")

    assert watcher.close() is None
