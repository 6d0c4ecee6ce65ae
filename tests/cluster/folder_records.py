"""Records of runs in a state folder: the body of the recorder's port that its tests read with the commands of a laptop.

The suite of the port runs on it and on the API's body, so a test that looks at journals says the same of both.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from spotwright.cluster.attempt_lookup import NO_PLAN
from spotwright.cluster.run_records import SHORT, UID, WHOLE, Facts, Glance, RunRecord, facts_of, run_name
from spotwright.engine.events import Event, RunCreated, RunFinished
from spotwright.engine.fold import fold
from spotwright.engine.ports import Holder
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.kube.object_fields import uid_of
from spotwright.records.journal import Journal, JournalStamp, decoded, journal_stamp
from spotwright.records.state_folder import RunFolder, StateFolder, write_atomically
from spotwright.records.stored_plan import RunFiles, RunSource, StoredPlan, save_plan
from spotwright.runs.bodies import this_process


class FolderRecords:
    """The runs of a state folder."""

    kept: float | None = None

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def all(self, is_wanted: Callable[[str], bool] = lambda _: True) -> Iterable[RunRecord]:  # files say it
        """See :meth:`RunRecords.all`."""
        return map(FolderRecord, self._folder.runs())

    def of(self, root: Mapping[str, Any]) -> RunRecord:
        """See :meth:`RunRecords.of`."""
        return FolderRecord(folder_of(self._folder, root))

    def recent(self, since: float) -> Iterable[RunRecord]:
        """See :meth:`RunRecords.recent`."""
        for folder in self._folder.runs():
            with contextlib.suppress(FileNotFoundError):
                if folder.journal.stat().st_mtime >= since or _has_log(folder.journal):
                    yield FolderRecord(folder)

    def deleted_until(self, namespace: str) -> float:  # nobody deletes a part of a folder early
        """See :meth:`RunRecords.deleted_until`."""
        return 0.0


class FolderRecord:
    """A run in a state folder: a file for its plan, and its journal. See :class:`RunRecord`."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._journal: Journal | None = None
        self._epoch = 0
        self.at_once = sys.maxsize
        self.lost: Sequence[int] = ()

    @property
    def epoch(self) -> int:
        """See :attr:`RunRecord.epoch`."""
        return self._epoch

    @property
    def size(self) -> int:
        """See :attr:`RunRecord.size`."""
        return self._open.size + self.folder.plan_bytes()

    @property
    def stored(self) -> int:
        """See :attr:`RunRecord.stored`."""
        return self.size

    def glance(self) -> Glance | None:
        """See :meth:`RunRecord.glance`."""
        return _glance(self.folder) if self.folder.journal.exists() else None

    def create(self, stored: StoredPlan) -> None:
        """See :meth:`RunRecord.create`."""
        try:
            self.folder.path.mkdir(exist_ok=True)
        except OSError as error:
            raise StateError(f"{self.folder.path}: cannot be created ({error.strerror}); free some space") from error
        if not self.folder.plan(1).exists():
            save_plan(self.folder, 1, stored)
        if not self.folder.journal.exists():
            _create_whole(self.folder.journal)

    def source(self) -> RunSource:
        """See :meth:`RunRecord.source`."""
        return RunFiles(self.folder, _is_nobody)

    def facts(self, kinds: Collection[str], since: float) -> Facts | None:
        """See :meth:`RunRecord.facts`."""
        with closing(Journal.read(self.folder.journal)) as journal:
            rows = [row for row in journal.rows() if row[2] in kinds and row[1] > since]
            first, _ = journal.first_and_last()
        return facts_of(first, rows, self.folder, self.source())

    def open(self) -> bool:
        """See :meth:`RunRecord.open`."""
        journal = Journal.open(self.folder.journal)
        try:
            self._epoch = journal.take(this_process(), _is_nobody)
            has_begun = next(iter(journal.events()), None) is not None
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        return has_begun

    def append(self, events: Sequence[Event], state: RunState) -> None:  # a file shows nothing beside
        """See :meth:`RunRecord.append`."""
        self._open.append(events)

    def tell(self, state: RunState, now: float) -> None:
        """See :meth:`RunRecord.tell`: who reads a journal computes that."""

    def note_incomplete(self, reason: str, why: str) -> None:
        """See :meth:`RunRecord.note_incomplete`: the end of the run says so."""

    def close(self) -> None:
        """See :meth:`RunRecord.close`: the lease in the file is given up, where it can be written."""
        if self._journal is not None:
            with contextlib.suppress(SpotwrightError):
                self._journal.give_up()
            self._journal.close()
            self._journal = None

    @property
    def _open(self) -> Journal:
        if self._journal is None:
            raise StateError(f"{self.folder.journal}: is not open")
        return self._journal


def _has_log(journal: Path) -> bool:
    """Whether events wait in the journal's write-ahead log, which does not change the time of the file."""
    wal = journal.with_name(f"{journal.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _is_nobody(_holder: Holder) -> bool:
    """No other watcher may write: the lock of the state folder or the Lease lets one in, and the next epoch fences the others."""
    return False


def _glance(folder: RunFolder) -> Glance:
    """The content of the first and the last event. Raises :class:`StateError`."""
    journal = Journal.read(folder.journal)
    try:
        first, last = journal.first_and_last()
    finally:
        journal.close()
    return Glance(first.meta.arguments if isinstance(first, RunCreated) else {}, last == RunFinished.kind)


def has_ended(folder: RunFolder) -> bool:
    """Whether the run of a folder has ended. Raises :class:`StateError`."""
    return _glance(folder).has_ended


def folder_of(state: StateFolder, root: Mapping[str, Any]) -> RunFolder:
    """The folder of a workload's run, which need not exist yet, never one of another workload.

    Raises :class:`StateError` for a folder that cannot be read.
    """
    for digits in (SHORT, WHOLE):
        folder = state.run(run_name(root, digits))
        if not folder.journal.exists():
            return folder
        with closing(Journal.read(folder.journal)) as journal:
            if workload_of(journal) in ("", uid_of(root)):
                return folder
    raise SpotwrightError(f"{folder.path}: this run is that of another workload; move the folder away, and begin again")


def workload_of(journal: Journal) -> str:
    """The UID of the workload of a journal; empty where no run of a workload has begun there. Raises :class:`StateError`."""
    with closing(journal.rows(at_most=1)) as rows:
        first = next((event for _, event in decoded(rows, str(journal.path), str)), None)
    return str(first.meta.arguments.get(UID, "")) if isinstance(first, RunCreated) else ""


def _create_whole(path: Path) -> None:
    """Create a journal atomically: the remains of a kill or a full disk never become a journal.

    Raises :class:`StateError`.
    """
    beside = path.with_name("journal.new")
    try:
        for left in path.parent.glob(f"{beside.name}*"):
            left.unlink()
        Journal.create(beside).close()
        beside.rename(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be created ({error.strerror}); free some space") from error


class _Reader:
    """The journal of one workload, read as far as it went at the last look."""

    def __init__(self, state: StateFolder, root: Mapping[str, Any]) -> None:
        self._state, self._root = state, root
        self._path: Path | None = None  # known once the run has begun: until then another workload may take the folder
        self._stamp: JournalStamp | None = None
        self._last = 0
        self.history = RunState([NO_PLAN])

    def refresh(self) -> RunState:
        """Read the events since the last look. Raises :class:`StateError`."""
        path = self._path or folder_of(self._state, self._root).journal
        stamp = journal_stamp(path)
        if (stamp is not None and stamp == self._stamp) or not path.exists():
            return self.history
        with closing(Journal.read(path)) as journal:
            if self._path is None and workload_of(journal) != uid_of(self._root):
                return self.history
            self._path = path
            for number, event in journal.events(self._last):
                fold(self.history, event)
                self._last = number
        self._stamp = stamp
        return self.history


class FolderHistories:
    """The histories of the runs of a state folder, as reviews ask for them. For one thread at a time."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._readers: dict[str, _Reader] = {}  # by the UID of the workload

    def of(self, root: Mapping[str, Any]) -> RunState:
        """The journal of a workload now; empty if there is none yet. Raises :class:`StateError`."""
        return self._readers.setdefault(uid_of(root), _Reader(self._state, root)).refresh()


class FolderRuns:
    """The runs of a state folder for the keeper of logs. See :class:`~spotwright.cluster.log_store.LogRuns`."""

    def __init__(self, state: StateFolder) -> None:
        self._state, self._own = state, ""

    @property
    def owner(self) -> str:
        """See :attr:`LogRuns.owner`."""
        if not self._own:
            path = self._state.path / "log-owner"
            if not path.exists():
                write_atomically(path, secrets.token_hex(16))
            self._own = path.read_text(encoding="ascii").strip()
        return self._own

    async def is_gone(self, namespace: str, uid: str) -> bool:  # a folder has none
        """See :meth:`LogRuns.is_gone`."""
        return False

    async def existing(self, runs: Collection[str]) -> Collection[str]:
        """See :meth:`LogRuns.existing`."""
        return {run for run in runs if run and "/" not in run and (self._state.path / "runs" / run).exists()}
