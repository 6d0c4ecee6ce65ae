"""Which save an attempt loaded, and which one it should have loaded.

An attempt that follows an interruption is to go on from the newest save that is whole. What it reads is observed with inotify(7)
on the folders that outlive an attempt; which saves lie there follows from the file operations of the attempts before it. So the
answer does not depend on how long anything took.

A save is *whole* if the attempt went on after it or ended by itself, or if it has all the operations that a save of the
undisturbed step has; and as long as none of its files was removed, emptied or replaced. Files of a kind that no attempt ever
reads, such as logs, are no saves.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final

from spotwright.local.supervisor import kernel
from spotwright.local.supervisor.kernel import FileCall
from spotwright.rehearsal.attempt_trace import FileOperation
from spotwright.rehearsal.injection_points import SAVES, FileActivity, Save, summarize_activity

__all__ = ["LoadWatcher", "Origin", "Resume", "count_saves", "ends_inside_save", "kind_of", "resume_of"]


_ACCESS, _MODIFY, _CLOSE_READ, _FROM, _TO, _CREATE, _DELETE = 0x1, 0x2, 0x10, 0x40, 0x80, 0x100, 0x200
_READS = _ACCESS | _CLOSE_READ  # a file that is mapped into memory is opened and closed, and never read
_CHANGES = _MODIFY | _FROM | _TO | _CREATE | _DELETE
_OVERFLOW, _IS_FOLDER = 0x4000, 0x40000000
_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_MAX_FOLDERS = 2000  # of one attempt: the kernel has a limit for all of a user's


class LoadWatcher:
    """Watches which files an attempt reads of those that were there when it began.

    ``folders`` are folders or files that outlive an attempt. A file that the attempt has changed itself does not count any more.
    :meth:`read` is to be called from time to time, because the kernel keeps a limited number of events.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self.descriptor = kernel.inotify_init()
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
        """Take the events that have come so far."""
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
        """End, and give the paths that were read, inside the watched folders; ``None`` if not all reads were seen."""
        self.read()
        os.close(self.descriptor)
        return tuple(self._loads) if self._is_complete else None


class Origin(StrEnum):
    """What an attempt went on from."""

    NEWEST = "the newest whole save"
    OLDER = "an older save"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Resume:
    """What the attempt after an interruption loaded.

    ``newest`` are the files of the newest whole save; empty: none was left. ``loaded`` are the files of saves that the attempt
    read; ``origin`` is None where no save was left whole. ``saved`` is how many saves the attempts before it had made,
    ``redone`` how many of them it made again, counted by the undisturbed step.
    ``lost_by`` is the operation that left no whole save, else the last one before the attempt; ``lost_until`` is the one after
    which there is a whole save again.
    """

    attempt: int
    newest: tuple[str, ...]
    loaded: tuple[str, ...]
    origin: Origin | None
    saved: int
    redone: int
    lost_by: FileOperation | None = None
    lost_until: FileOperation | None = None

    @property
    def is_all_lost(self) -> bool:
        """Whether there had been saves, and the attempt loaded none that is whole and made most of them again."""
        return self.origin in (None, Origin.NOTHING) and self.saved > 0 and 2 * self.redone >= self.saved


def kind_of(path: str) -> str:
    """A path without what changes from save to save: its numbers."""
    return re.sub(r"\d+", "#", path)


@dataclass(slots=True)
class _Written:
    """One save: its files, the names that they had when it was made, and the operation that took one of them away."""

    operations: tuple[FileOperation, ...]
    is_complete: bool
    files: set[str] = field(default_factory=set)
    names: frozenset[str] = frozenset()
    broken_by: FileOperation | None = None


def resume_of(
    attempt: int,
    before: Sequence[tuple[Sequence[FileOperation], bool]],
    after: Sequence[FileOperation],
    loads: Sequence[str],
    activity: FileActivity,
    kinds: frozenset[str],
) -> Resume | None:
    """What attempt number ``attempt`` resumed from; ``None`` if nothing had been saved before it.

    ``before`` has the file operations of the attempts before it, and whether each ended by itself; ``after`` its own.
    ``activity`` is that of the undisturbed step, ``kinds`` are the kinds of files that some attempt reads.
    """
    written: list[_Written] = []
    for operations, ended_by_itself in before:
        _add_saves(written, operations, activity, kinds, ended_by_itself=ended_by_itself)
    saves = [each for each in written if each.is_complete and (each.files or each.broken_by is not None)]
    if not saves:
        return None
    whole = [each for each in saves if each.broken_by is None and each.files]
    newest = whole[-1] if whole else None
    known = {path for each in written for path in each.files}
    read = tuple(path for path in loads if path in known)
    saved, redone = _redone(before, after, [each for save in activity.saves for each in save.operations], kinds)
    if newest is None:  # what it read, if anything, is not whole
        by = next((each.broken_by for each in reversed(saves) if each.broken_by is not None), None)
        until = next((save.operations[-1] for save in reversed(activity.saves) if _is_of(save, kinds)), None)
        return Resume(attempt, (), read, None, saved, redone, by, until)
    key = _own_files(newest, saves)
    later = {path for each in written[written.index(newest) + 1 :] for path in each.files}
    origin, last = (
        _origin(read, key | later),
        next((each for each in reversed(before[-1][0]) if each.area == SAVES), None),
    )
    return Resume(attempt, tuple(sorted(key)), read, origin, saved, redone, last)


def _origin(read: Sequence[str], newest: Collection[str]) -> Origin:
    if not read:
        return Origin.NOTHING
    return Origin.NEWEST if any(path in newest for path in read) else Origin.OLDER


def ends_inside_save(operations: Sequence[FileOperation], activity: FileActivity) -> bool:
    """Whether an attempt ended while it saved: its last save lacks operations that the saves of the undisturbed step have."""
    groups = summarize_activity(operations).saves
    if not groups:
        return False
    patterns = _patterns(activity)
    if not patterns:
        return groups[-1].operations[-1].call in (FileCall.OPEN, FileCall.WRITE)
    return not _is_like(groups[-1].operations, patterns)


def _own_files(save: _Written, saves: Sequence[_Written]) -> set[str]:
    """The files whose names only this save has, or all of them where every save writes to the same names."""
    others = {path for each in saves if each is not save for path in each.names}
    return save.files - others or save.files


def _is_of(save: Save, kinds: frozenset[str]) -> bool:
    return any(_is_kind(kind_of(each.path), kinds) for each in save.operations)


def _add_saves(
    written: list[_Written],
    operations: Sequence[FileOperation],
    activity: FileActivity,
    kinds: frozenset[str],
    *,
    ended_by_itself: bool,
) -> None:
    """Add the saves of one attempt, and note which earlier ones it broke."""
    groups = summarize_activity(operations).saves
    patterns = _patterns(activity)
    for number, group in enumerate(groups):
        is_last = number == len(groups) - 1
        save = _Written(group.operations, not is_last or ended_by_itself or _is_like(group.operations, patterns))
        written.append(save)
        for operation in group.operations:
            _apply(operation, save, written)
        save.files = {path for path in save.files if kind_of(path) in kinds}
        save.names = frozenset(save.files)
    written[:] = [each for each in written if each.files or each.broken_by is not None or each is written[-1]]


def _apply(operation: FileOperation, save: _Written, written: Sequence[_Written]) -> None:
    """What an operation of a save does to its files, and to those of the saves before it."""
    path = operation.path
    if operation.call in (FileCall.OPEN, FileCall.WRITE):
        if operation.truncates:
            _break(operation, path, save, written)
        save.files.add(path)
    elif operation.call is FileCall.REMOVE:
        _break(operation, path, save, written)
        save.files -= _below(path, save.files)
    elif operation.call is FileCall.RENAME:
        moved = [(each, name) for each in written for name in _below(operation.source, each.files)]
        _break(operation, path, save, written)
        for each, name in moved:
            each.files.discard(name)
            each.files.add(path + name[len(operation.source) :])
        if not moved:
            save.files.add(path)


def _break(operation: FileOperation, path: str, save: _Written, written: Sequence[_Written]) -> None:
    """Note the earlier saves of which this operation takes a file away."""
    for each in written:
        taken = _below(path, each.files)
        if each is not save and taken:
            each.files -= taken
            each.broken_by = each.broken_by or operation


def _below(path: str, files: Iterable[str]) -> set[str]:
    """The files at a path or below it."""
    return {each for each in files if path and (each == path or each.startswith(f"{path}/"))}


_Pattern = tuple[tuple[FileCall, int], ...]


def _pattern(operations: Sequence[FileOperation]) -> _Pattern:
    """The calls of a save, equal ones in a row counted."""
    return tuple((call, len(list(each))) for call, each in groupby(operation.call for operation in operations))


def _patterns(activity: FileActivity) -> list[_Pattern]:
    """Those of the undisturbed step's saves. The first is left out where there are more: it finds nothing to replace."""
    saves = activity.saves[1:] if len(activity.saves) > 2 else activity.saves
    return [_pattern(save.operations) for save in saves]


def _is_like(operations: Sequence[FileOperation], patterns: Sequence[_Pattern]) -> bool:
    """Whether the operations are as many as those of a save of the undisturbed step."""
    own = _pattern(operations)
    return any(
        len(own) == len(pattern)
        and all(call is other and count >= least for (call, count), (other, least) in zip(own, pattern, strict=True))
        for pattern in patterns
    )


def _redone(
    before: Sequence[tuple[Sequence[FileOperation], bool]],
    after: Sequence[FileOperation],
    undisturbed: Sequence[FileOperation],
    kinds: frozenset[str],
) -> tuple[int, int]:
    """How many saves the attempts ``before`` made, and how many of them were made again: those beyond the undisturbed step's."""
    made = sum(count_saves(operations, kinds) for operations, _ in before)
    whole = count_saves(undisturbed, kinds)
    beyond = made + count_saves(after, kinds) - whole if whole else 0  # a step that saves when it is told has no number
    return made, min(made, max(0, beyond))


def count_saves(operations: Sequence[FileOperation], kinds: frozenset[str]) -> int:
    """How often a file of one of the kinds, or a folder of them, was opened or put in place; else how often it was written to."""
    calls = [each.call for each in operations if each.area == SAVES and _is_kind(kind_of(each.path), kinds)]
    made = sum(call in (FileCall.OPEN, FileCall.RENAME) for call in calls)
    return made or calls.count(FileCall.WRITE)


def _is_kind(kind: str, kinds: frozenset[str]) -> bool:
    return kind in kinds or any(each.startswith(f"{kind}/") for each in kinds)
