"""The save that an attempt loaded, and the one that it should have loaded.

After an interruption, an attempt should resume from the newest whole save. inotify(7) shows what it reads in the persistent
folders; the file operations of earlier attempts show the existing saves. So the answer does not depend on timing.

A file of a save is *whole* once it was renamed to its name, or the attempt went on to another file or ended by itself, until it
is removed or emptied. Files of a kind that is never read, such as logs, are not saves.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final

from spotwright.local.supervisor import kernel
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation
from spotwright.rehearsal.injection_points import SAVES, FileActivity, is_save, summarize_activity

__all__ = [
    "LoadWatcher",
    "Origin",
    "Resume",
    "SaveCounts",
    "ends_inside_save",
    "kind_of",
    "resume_of",
    "settled",
    "with_databases",
]


_ACCESS, _MODIFY, _CLOSE_READ, _FROM, _TO, _CREATE, _DELETE = 0x1, 0x2, 0x10, 0x40, 0x80, 0x100, 0x200
_READS = _ACCESS | _CLOSE_READ  # a memory-mapped file is opened and closed, but never read
_CHANGES = _MODIFY | _FROM | _TO | _CREATE | _DELETE
_OVERFLOW, _IS_FOLDER = 0x4000, 0x40000000
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MAX_FOLDERS = 2000  # per attempt: the kernel limits all watches of a user
_MAX_WAIT = 10.0  # seconds


def _new_instance() -> int:
    """Open an inotify descriptor. Wait a while for one if other trials of this user hold all of them."""
    until = time.monotonic() + _MAX_WAIT
    while True:
        try:
            return kernel.inotify_init()
        except OSError as error:
            if error.errno != errno.EMFILE or time.monotonic() > until:
                raise
        time.sleep(0.05)


class LoadWatcher:
    """Watches which of the files present at its start an attempt reads.

    ``folders`` are persistent folders or files. A file that the attempt itself has changed no longer counts. Call :meth:`read`
    from time to time, because the kernel keeps a limited number of events. Raises ``OSError`` if the user's programs hold all
    inotify instances (128) for some seconds.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.descriptor = _new_instance()
        self._paths: dict[
            int, tuple[str, bool]
        ] = {}  # by watch: the path inside the watched folder, and whether it is a folder
        self._loads: dict[str, None] = {}
        self._changed: set[str] = set()
        self._is_complete = True
        for folder in folders:
            self._watch(folder)

    def _watch(self, top: Path) -> None:
        if not top.is_dir():
            self._add(top, top.name, is_folder=False)
            return
        for here, _, _ in os.walk(top):
            inside = os.path.relpath(here, top)
            self._add(Path(here), "" if inside == "." else inside, is_folder=True)

    def _add(self, path: Path, inside: str, *, is_folder: bool) -> None:
        if len(self._paths) >= _MAX_FOLDERS:
            self._is_complete = False
            return
        try:
            self._paths[kernel.inotify_add_watch(self.descriptor, str(path), _READS | _CHANGES)] = (inside, is_folder)
        except FileNotFoundError:
            return
        except OSError as error:  # the user's limit of watches
            if error.errno not in (errno.ENOSPC, errno.EACCES):
                raise
            self._is_complete = False

    def read(self) -> None:
        """Process the events so far."""
        while True:
            try:
                events = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, offset)
                offset += _EVENT.size + length
                name = os.fsdecode(events[offset - length : offset].rstrip(b"\0"))
                self._note(watch, mask, name)

    def _note(self, watch: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            self._is_complete = False
        if mask & (_OVERFLOW | _IS_FOLDER) or watch not in self._paths:
            return
        inside, is_folder = self._paths[watch]
        if is_folder and not name:
            return
        path = f"{inside}/{name}" if is_folder and inside else name or inside
        if mask & _CHANGES:
            self._changed.add(path)
        elif path not in self._changed:
            self._loads[path] = None

    def close(self) -> tuple[str, ...] | None:
        """End, and return the paths that were read, inside the watched folders; ``None`` if some reads were missed."""
        self.read()
        os.close(self.descriptor)
        return tuple(self._loads) if self._is_complete else None


class Origin(StrEnum):
    """What an attempt resumed from."""

    NEWEST = "the newest whole save"
    OLDER = "an older save"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Resume:
    """What the attempt after an interruption loaded.

    ``newest`` are the files of the newest whole save; empty: none was left. ``loaded`` are the files of saves that the attempt
    read, and ``behind`` counts newer whole saves; None if no save was left whole. ``whole`` counts the whole saves. ``saved``
    counts the saves of earlier attempts, ``redone`` those that this attempt repeated, by the undisturbed step's number; both
    are 0 for an attempt that was itself interrupted, whose further saves are unknown. ``lost_by`` is the operation that left no
    whole save, else the last one before the attempt; ``lost_until`` is the operation after which there is a whole save again.
    """

    attempt: int
    newest: tuple[str, ...]
    loaded: tuple[str, ...]
    behind: int | None
    whole: int = 0
    saved: int = 0
    redone: int = 0
    lost_by: FileOperation | None = None
    lost_until: FileOperation | None = None

    @property
    def origin(self) -> Origin | None:
        """What the attempt resumed from; None if no save was left whole."""
        if self.behind == 0:
            return Origin.NEWEST
        return None if self.behind is None else Origin.OLDER if self.loaded else Origin.NOTHING

    @property
    def is_all_lost(self) -> bool:
        """Whether saves existed, but the attempt loaded no whole one and repeated nearly all of them."""
        began_again = self.redone >= _FEWEST_REDONE and self.redone >= _MOST * self.saved
        return self.origin in (None, Origin.NOTHING) and began_again


_FEWEST_REDONE = 2  # saves: an attempt that resumes from the second to last save repeats one too
_MOST = 0.75  # of the saves


def kind_of(path: str) -> str:
    """A path without its numbers, which change from save to save."""
    return re.sub(r"\d+", "#", path)


_INDEX = re.compile(r"-(?:journal|wal|shm)$")  # beside an SQLite database, which reads it by itself


def with_databases(loads: Iterable[str]) -> tuple[str, ...]:
    """The files that were read, with databases in place of their journals.

    SQLite reads the journal of an interrupted transaction, and writes the database before it reads it ("hot journal" in "File
    Locking And Concurrency In SQLite Version 3").
    """
    return tuple(dict.fromkeys(_INDEX.sub("", path) for path in loads))


class SaveCounts:
    """The kinds of files of the step's saves, and the number of files of each kind in a save.

    ``undisturbed`` are the file operations of the undisturbed step, ``loads`` the paths that each attempt of any trial has
    read. A file of a kind that is never read, such as a log, is not a save.
    """

    def __init__(self, undisturbed: Sequence[FileOperation], loads: Iterable[Collection[str]]) -> None:
        self._files: dict[str, int] = {}  # by kind: how many files of it one save has
        for paths in loads:
            for kind, count in Counter(map(kind_of, with_databases(paths))).items():
                self._files[kind] = min(count, self._files.get(kind, count))
        calls = {kind: Counter[FileCall]() for kind in self._files}
        for each in undisturbed:
            if each.area == SAVES and kind_of(each.path) in calls:
                calls[kind_of(each.path)][each.call] += 1
        self.written = frozenset(kind for kind, each in calls.items() if each)
        """The kinds that the undisturbed step writes."""
        self.unread = tuple(sorted(_unread(undisturbed, self._files)))
        """The files that are written once or only grow, and are never read: configurations and logs, not saves."""
        self._appended = {
            kind
            for kind, each in calls.items()
            if each[FileCall.OPEN] + each[FileCall.RENAME] <= 1 < each[FileCall.WRITE]
        }

    def __contains__(self, path: str) -> bool:
        return kind_of(path) in self._files

    def belongs(self, path: str) -> bool:
        """Whether a file is one of the saves, or belongs to such a database."""
        return _INDEX.sub("", path) in self

    def files_of(self, kind: str) -> int:
        """How many files of a kind one save has, at least."""
        return self._files[kind]

    def is_appended(self, path: str) -> bool:
        """Whether each write to the file is a save, as to a log or a database: it is opened once, and written to often."""
        return kind_of(path) in self._appended

    def count(self, operations: Iterable[FileOperation]) -> int:
        """How often a file or folder of the saves was opened or put in place, or written to if each write is a save."""
        return sum(self._is_counted(each) for each in operations if each.area == SAVES)

    def _is_counted(self, operation: FileOperation) -> bool:
        kind = kind_of(operation.path)
        if kind in self._appended:
            return operation.call is FileCall.WRITE
        if operation.call not in (FileCall.OPEN, FileCall.RENAME):
            return False
        return kind in self._files or any(each.startswith(f"{kind}/") for each in self._files)


def _unread(undisturbed: Sequence[FileOperation], read: Collection[str]) -> Iterator[str]:
    """The files that are written once or only grow, and whose kind is never read.

    A file that is opened to be changed in place is excluded: it may be mapped into memory, which is not seen as reading. So is
    a file that the step removes: it may be a lock, of which an attempt checks only the existence.
    """
    on_saves = [each for each in undisturbed if is_save(each)]
    for kind in {kind_of(each.path) for each in on_saves} - set(read):
        own = [each for each in on_saves if kind_of(each.path) == kind]
        is_once = sum(each.truncates or each.call is FileCall.RENAME for each in own) <= 1
        in_place = any(each.call is FileCall.OPEN and not (each.truncates or each.appends) for each in own)
        is_removed = any(each.call is FileCall.REMOVE for each in own)
        if is_once and not in_place and not is_removed and len({each.path for each in own}) == 1:
            yield own[0].path


@dataclass(slots=True)
class _File:
    """A file of a save. ``saved_at``: when it was last known to be whole, in operations from the first attempt; 0: never."""

    saved_at: int = 0
    is_whole: bool = False


class _Shelf:
    """The files of saves after the operations of some attempts. The module's docstring says when a file is whole."""

    def __init__(self, counts: SaveCounts) -> None:
        self._counts = counts
        self._files: dict[str, _File] = {}
        self._times: dict[str, dict[str | int, int]] = {}  # by kind: when each save of it became whole
        self._now = 0
        self._written = ""  # the file that the attempt is still writing
        self.lost_by: FileOperation | None = None

    def add(self, operations: Iterable[FileOperation], *, ended_by_itself: bool) -> None:
        """Apply the operations of one attempt."""
        self._written = ""
        for operation in operations:
            if operation.area == SAVES:
                self._now += 1
                self._apply(operation)
        if ended_by_itself:
            self._finish()

    def _apply(self, operation: FileOperation) -> None:
        path, call = operation.path, operation.call
        if call is FileCall.RENAME:
            self._finish()
            self._rename(operation.source, path)
        elif call is FileCall.REMOVE:
            self._finish()
            self._take(self._below(path), operation)
        elif call in (FileCall.OPEN, FileCall.WRITE):
            goes_on = call is FileCall.WRITE and not self._counts.is_appended(path)
            if self._written and not (goes_on and path == self._written):
                self._finish()
            if operation.truncates:
                self._take([path], operation)
            self._files.setdefault(path, _File())
            if call is FileCall.WRITE:
                self._written = path

    def _finish(self) -> None:
        """Mark the file that the attempt was writing as whole."""
        if self._written:
            self._save(self._written)
        self._written = ""

    def _save(self, path: str) -> None:
        self._files[path] = _File(self._now, is_whole=True)
        if path in self._counts:
            kind = kind_of(path)
            one = (
                path if path != kind else self._now
            )  # a number in the name identifies the save, also one of a later attempt
            self._times.setdefault(kind, {})[one] = self._now

    def _rename(self, source: str, path: str) -> None:
        moved = self._below(source)
        for name in moved:
            file, new = self._files.pop(name), path + name[len(source) :]
            if name in self._counts and new in self._counts:  # the save was renamed
                self._files[new] = file
                self._move_times(kind_of(name), kind_of(new))
            else:
                self._save(new)
        if not moved:
            self._save(path)

    def _move_times(self, kind: str, new: str) -> None:
        """Move the saves of a kind without files to the kind that its files were renamed to."""
        if kind != new and not self.whole(kind):
            self._times.setdefault(new, {}).update(self._times.pop(kind, {}))

    def _take(self, paths: Iterable[str], operation: FileOperation) -> None:
        """Drop files that were removed or emptied."""
        was_complete = self.has_whole and self._counts.written <= self._times.keys()
        for path in paths:
            self._files.pop(path, None)
        if was_complete and not self.has_whole:
            self.lost_by = operation

    def _below(self, path: str) -> list[str]:
        """The files at a path or below it."""
        return [each for each in self._files if path and (each == path or each.startswith(f"{path}/"))]

    def whole(self, kind: str = "") -> list[str]:
        """The whole files of saves, of all kinds or of one, the oldest first."""
        files = [(each.saved_at, path) for path, each in self._files.items() if each.is_whole and path in self._counts]
        return [path for _, path in sorted(files) if not kind or kind_of(path) == kind]

    @property
    def has_whole(self) -> bool:
        """Whether there is a whole file of every kind that ever had one."""
        return bool(self._times) and self._times.keys() <= {kind_of(path) for path in self.whole()}

    def is_known(self, path: str) -> bool:
        """Whether an attempt has written this file of a save, whole or not."""
        return path in self._files and path in self._counts

    def saves_after(self, kind: str, loaded: Collection[str]) -> int:
        """How many saves of a kind became whole after its loaded files; all if none was loaded."""
        of_kind = [self._files[path] for path in loaded if kind_of(path) == kind]
        if any(not each.is_whole for each in of_kind):
            return 0  # newer than the known whole saves
        last = max((each.saved_at for each in of_kind), default=0)
        return sum(each > last for each in self._times.get(kind, {}).values()) // self._counts.files_of(kind)

    def behind(self, loaded: Collection[str]) -> int:
        """How many whole saves are newer than the loaded files; all of them if none was loaded."""
        if loaded:
            return max(self.saves_after(kind, loaded) for kind in map(kind_of, loaded))
        return min(self.saves_after(kind, ()) for kind in {*self._times, *self._counts.written})

    def newest(self) -> tuple[str, ...]:
        """The files of the newest whole save: the last ones of each kind, without those named alike in each save."""
        last = [path for kind in self._times for path in self.whole(kind)[-self._counts.files_of(kind) :]]
        own = [path for path in last if kind_of(path) != path]
        return tuple(sorted(own or last))


def resume_of(
    attempt: int,
    before: Sequence[tuple[Sequence[FileOperation], bool]],
    after: Sequence[FileOperation],
    loads: Sequence[str],
    undisturbed: Sequence[FileOperation],
    counts: SaveCounts,
    *,
    is_last: bool = True,
) -> Resume | None:
    """The save from which attempt ``attempt`` resumed; ``None`` without a save, or if it ended too early to tell.

    ``before`` has the file operations of the earlier attempts, and whether each ended by itself; ``after`` has its own.
    ``loads`` are the files that it read, ``undisturbed`` the undisturbed step's operations. ``is_last``: it was not
    interrupted.
    """
    shelf = _Shelf(counts)
    for operations, ended_by_itself in before:
        shelf.add(operations, ended_by_itself=ended_by_itself)
    loaded = tuple(path for path in with_databases(loads) if shelf.is_known(path))
    saved, redone = _redone([operations for operations, _ in before], after, undisturbed, counts) if is_last else (0, 0)
    if not (loaded or is_last) or not (shelf.has_whole or shelf.lost_by):
        return None
    if not shelf.has_whole:
        until = next((each for each in reversed(undisturbed) if each.area == SAVES and each.path in counts), None)
        lost = Resume(attempt, (), loaded, None, 0, saved, redone, shelf.lost_by, until)
        if lost.is_all_lost or not any(path in loaded for path in shelf.whole()):
            return lost
    behind = shelf.behind(loaded)
    if not (loaded or behind):  # a file of the first save is still missing
        return None
    last = next((each for each in reversed(before[-1][0]) if each.area == SAVES), None)
    whole = max(shelf.saves_after(kind, ()) for kind in map(kind_of, loaded)) if loaded else behind
    return Resume(attempt, shelf.newest(), loaded, behind, whole, saved, redone, last)


def _redone(
    before: Sequence[Sequence[FileOperation]],
    after: Sequence[FileOperation],
    undisturbed: Sequence[FileOperation],
    counts: SaveCounts,
) -> tuple[int, int]:
    """How many saves the attempts ``before`` made, and how many were repeated: the saves beyond the undisturbed step's."""
    made, whole = sum(map(counts.count, before)), counts.count(undisturbed)
    beyond = made + counts.count(after) - whole if whole else 0  # a step that saves on request has no fixed number
    return made, min(made, max(0, beyond))


def settled(trials: Sequence[Sequence[Resume]]) -> list[tuple[Resume, ...]]:
    """The resumes of each trial; one save behind does not count if the step ever loads the newest of several.

    A kill may come after the last visible file of a save, and before what makes it whole for the step, such as a marker. So
    only a step that never loads the newest is one save behind.
    """
    chosen = [each.behind for resumes in trials for each in resumes if each.loaded and each.whole > 1]
    if 0 not in chosen and len(chosen) - chosen.count(None) >= _FEWEST_CHOICES:
        return [tuple(resumes) for resumes in trials]
    return [tuple(_settled(each) for each in resumes if each.loaded or each.behind != 1) for resumes in trials]


_FEWEST_CHOICES = 2


def _settled(resume: Resume) -> Resume:
    return replace(resume, behind=0) if resume.behind == 1 else resume


def ends_inside_save(operations: Sequence[FileOperation], activity: FileActivity) -> bool:
    """Whether an attempt ended inside a save: its last save lacks operations that the undisturbed step's saves have."""
    groups = summarize_activity(operations).saves
    if not groups:
        return False
    patterns = _patterns(activity)
    if not patterns:
        return groups[-1].operations[-1].call in (FileCall.OPEN, FileCall.WRITE)
    return not _is_like(groups[-1].operations, patterns)


_Pattern = tuple[tuple[FileCall, int], ...]


def _pattern(operations: Sequence[FileOperation]) -> _Pattern:
    """The calls of a save, each with its number in a row."""
    return tuple((call, len(list(each))) for call, each in groupby(operation.call for operation in operations))


def _patterns(activity: FileActivity) -> list[_Pattern]:
    """The patterns of the undisturbed step's saves, without the first of several, which has no file to replace."""
    saves = activity.saves[1:] if len(activity.saves) > 2 else activity.saves
    return [_pattern(save.operations) for save in saves]


def _is_like(operations: Sequence[FileOperation], patterns: Sequence[_Pattern]) -> bool:
    """Whether the operations have the calls of an undisturbed save, each at least as often."""
    own = _pattern(operations)
    return any(
        len(own) == len(pattern)
        and all(call is other and count >= least for (call, count), (other, least) in zip(own, pattern, strict=True))
        for pattern in patterns
    )
