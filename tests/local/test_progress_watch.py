"""Progress is reported however it is written, and an idle watch causes no event."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotwright.local.progress_watch import ProgressWatch, read_progress
from spotwright.local.supervisor import kernel


class Watching:
    """A watch with its own selector, and one attempt's directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "progress"
        self.selector = selectors.DefaultSelector()
        self.watch = ProgressWatch(self.selector)

    def wakes(self) -> bool:
        """Handle pending events; return whether there were any."""
        ready = self.selector.select(0)
        for key, _ in ready:
            key.data()
        return bool(ready)

    def seen(self) -> list[float]:
        self.wakes()
        return [value for _, _, value in self.watch.changes()]


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    made = Watching(tmp_path)
    assert made.watch.add("task", 1, tmp_path)
    yield made
    made.watch.close()
    made.selector.close()


def test_the_first_write_is_reported(watching: Watching) -> None:
    watching.file.write_text("0.25")
    assert watching.wakes()
    assert watching.watch.changes() == [("task", 1, 0.25)]


def test_every_write_to_an_open_file_is_reported(watching: Watching) -> None:
    seen = []
    with watching.file.open("w") as file:
        for value in ("0.1", "0.2", "0.3"):
            file.seek(0)
            file.write(value)
            file.flush()
            seen += watching.seen()
    assert seen == [0.1, 0.2, 0.3]


def test_a_renamed_file_and_writes_to_it_are_reported(watching: Watching) -> None:
    seen = []
    for value in ("0.1", "0.2"):
        (watching.folder / "new").write_text(value)
        (watching.folder / "new").rename(watching.file)
        seen += watching.seen()
    watching.file.write_text("0.3")
    assert [*seen, *watching.seen()] == [0.1, 0.2, 0.3]


def test_a_removed_and_rewritten_file_is_reported(watching: Watching) -> None:
    watching.file.write_text("0.5")
    watching.seen()
    watching.file.unlink()
    watching.file.write_text("0.6")
    assert watching.seen() == [0.6]


def test_an_unchanged_value_is_reported_once(watching: Watching) -> None:
    watching.file.write_text("0.5")
    watching.seen()
    watching.file.write_text("0.5")
    assert watching.seen() == []


def test_writes_to_the_log_cause_no_event(watching: Watching) -> None:
    (watching.folder / "log.txt").touch()
    watching.seen()
    with (watching.folder / "log.txt").open("a") as log:
        log.write("line\n")
    assert not watching.wakes()


def test_an_attempt_that_was_removed_causes_no_event(watching: Watching) -> None:
    watching.file.write_text("0.5")
    watching.watch.remove("task", 1)
    watching.wakes()
    assert watching.watch.changes() == []
    watching.file.write_text("0.6")
    assert not watching.wakes()


def test_a_removed_directory_is_ignored(watching: Watching) -> None:
    watching.file.write_text("0.5")
    watching.file.unlink()
    watching.folder.rmdir()
    watching.wakes()
    assert watching.watch.changes() == []
    watching.watch.remove("task", 1)


def test_two_attempts_are_reported_separately(watching: Watching) -> None:
    other = watching.folder / "other"
    other.mkdir()
    watching.watch.add("task", 2, other)
    (other / "progress").write_text("1")
    watching.file.write_text("0.5")
    watching.wakes()
    assert sorted(watching.watch.changes()) == [("task", 1, 0.5), ("task", 2, 1.0)]


def test_at_the_limit_of_watches_an_attempt_is_not_watched(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel, "inotify_add_watch", refuse)
    assert not watching.watch.add("other", 1, watching.folder)
    assert watching.watch.changes() == []


def test_a_missing_directory_is_an_error(watching: Watching) -> None:
    with pytest.raises(FileNotFoundError):
        watching.watch.add("other", 1, watching.folder / "nowhere")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0.5", 0.5), ("1", 1.0), (" 0.25\n", 0.25), ("1e-1", 0.1), ("7", 1.0), ("-1", 0.0), ("inf", 1.0)),
        *(("", None), ("half", None), ("nan", None), ("0.5 of it", None), ("\0", None), ("1" * 100, 1.0)),
    ],
)
def test_a_progress_file_is_read_as_a_number_or_none(tmp_path: Path, text: str, value: float | None) -> None:
    (tmp_path / "progress").write_text(text)
    assert read_progress(tmp_path / "progress") == value


def test_a_missing_file_a_folder_and_a_pipe_have_no_progress(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert [read_progress(tmp_path / name) for name in ("missing", "folder", "pipe")] == [None] * 3


def test_an_attempt_stays_watched_after_many_others_have_ended(watching: Watching) -> None:
    for number in range(2, 300):
        folder = watching.folder / str(number)
        folder.mkdir()
        watching.watch.add("other", number, folder)
        watching.watch.remove("other", number)
    watching.seen()
    watching.file.write_text("0.5")
    assert watching.seen() == [0.5]
    watching.file.write_text("0.75")
    assert watching.seen() == [0.75]
