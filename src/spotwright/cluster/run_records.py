"""Where the records of runs are kept, as the recorder needs it: one interface, with a body for a state folder.

:mod:`spotwright.cluster.api_run_records` is the other body, for objects of the Kubernetes API.

The name of a run is the workload's namespace, name and the beginning of its UID, so whoever looks again after a crash finds the
same run. Where another workload of that name has the same beginning, it is the whole UID: whoever makes and deletes one
name often enough has two such workloads.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from spotwright.engine.events import Event, RunCreated, RunFinished
from spotwright.engine.ports import Holder
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.model.pools import Pool
from spotwright.records.journal import Journal, JournalRow, decoded
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.records.stored_plan import PlanTexts, RunFiles, RunSource, StoredPlan, load_plans, save_plan

__all__ = [
    "SHORT",
    "UID",
    "WHOLE",
    "Facts",
    "FolderRecord",
    "FolderRecords",
    "Glance",
    "RecordGone",
    "RunRecord",
    "RunRecords",
    "TooLarge",
    "facts_of",
    "folder_of",
    "has_ended",
    "run_name",
    "workload_of",
]


SHORT, WHOLE = 8, 36
"""Digits of a UID in the name of a run: mostly so many, and all of them where another workload has the first ones too."""

UID = "uid"
"""The argument of a run that holds its workload's UID."""


class Glance(NamedTuple):
    """What is known of a run without reading all of it: its arguments, and whether it has ended."""

    arguments: Mapping[str, Any]
    has_ended: bool

    @property
    def uid(self) -> str:
        """The UID of its workload; empty if it is not known."""
        return str(self.arguments.get(UID, ""))

    @property
    def namespace(self) -> str:
        """The namespace of its workload."""
        return str(self.arguments.get("namespace", ""))


class RecordGone(StateError):
    """What was recorded of a run is not there any more: somebody has deleted all of it."""


class TooLarge(SpotwrightError):
    """Something of a run is larger than what is recorded."""


class Facts(NamedTuple):
    """Some events of a run, with the arguments of the run and the pools of its configuration."""

    arguments: Mapping[str, Any]
    pools: Mapping[str, Pool]
    events: Sequence[Event]


class RunRecord(Protocol):
    """The records of one run. Each method raises :class:`StateError` where they cannot be read or written.

    ``folder`` has its name, and its logs. After an error the record counts as closed: it is opened anew.
    """

    folder: RunFolder
    at_once: int
    """How many events are recorded durably at once, all or none of them."""
    lost: Sequence[int]
    """The numbers of events that were recorded and are not there any more, once it is open."""

    @property
    def epoch(self) -> int:
        """How many times it has been opened by somebody who records; 0 before."""

    @property
    def size(self) -> int:
        """The bytes that its plan and its events take where they are kept."""

    @property
    def stored(self) -> int:
        """The bytes that it takes there with all that stands beside its events."""

    def glance(self) -> Glance | None:
        """What is known of it without reading all of it; None: nothing is recorded yet."""

    def create(self, stored: StoredPlan) -> None:
        """Keep its plan. What a process that was killed has begun of it is finished."""

    def source(self) -> RunSource:
        """The reader of all that is recorded."""

    def facts(self, kinds: Collection[str], since: float) -> Facts | None:
        """The events of these kinds since a moment (Unix seconds); None where there are none."""

    def open(self, holder: Holder) -> bool:
        """Begin to record, with the next epoch. Returns whether events are recorded already."""

    def append(self, events: Sequence[Event], state: RunState) -> None:
        """Record events durably, all or none of them; no more than ``at_once``. ``state`` is that of the run with them."""

    def tell(self, state: RunState, now: float) -> None:
        """Show the run as it is, where people see it beside its records."""

    def note_incomplete(self, reason: str, why: str) -> None:
        """Let people see with what is recorded next that this is not the whole run. ``reason`` is a word, ``why`` a sentence."""

    def give_up(self) -> None:
        """Record nothing more."""

    def rest(self) -> None:
        """Hold nothing open until :meth:`wake`, without giving up."""

    def wake(self) -> None:
        """Hold open again what is needed to record."""


class RunRecords(Protocol):
    """The records of all runs. ``kept`` is how long they stay after the end of their run, in seconds; None: for ever."""

    kept: float | None

    def all(self) -> Iterable[RunRecord]:
        """Every run, whether it has ended or not. Raises :class:`StateError`."""

    def of(self, root: Mapping[str, Any]) -> RunRecord:
        """The record of a workload's run, which need not exist yet: none that is another workload's.

        Raises :class:`StateError` for one that cannot be read.
        """

    def recent(self, since: float) -> Iterable[RunRecord]:
        """The runs in which something may have been recorded since a moment (Unix seconds)."""

    def deleted_until(self, namespace: str) -> float:
        """Until when (Unix seconds) runs of a namespace had ended that were deleted early; 0: none.

        Raises :class:`StateError`.
        """


class FolderRecords:
    """The runs of a state folder."""

    kept: float | None = None

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def all(self) -> Iterable[RunRecord]:
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

    def deleted_until(self, namespace: str) -> float:  # noqa: ARG002  # nobody deletes a part of a folder early
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
            raise StateError(f"{self.folder.path}: cannot be made ({error.strerror}); free some space") from error
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

    def open(self, holder: Holder) -> bool:
        """See :meth:`RunRecord.open`."""
        journal = Journal.open(self.folder.journal)
        try:
            self._epoch = journal.take(holder, _is_nobody)
            has_begun = next(iter(journal.events()), None) is not None
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        return has_begun

    def append(self, events: Sequence[Event], state: RunState) -> None:  # noqa: ARG002  # a file shows nothing beside
        """See :meth:`RunRecord.append`."""
        self._open.append(events)

    def tell(self, state: RunState, now: float) -> None:
        """See :meth:`RunRecord.tell`: who reads a journal computes that."""

    def note_incomplete(self, reason: str, why: str) -> None:
        """See :meth:`RunRecord.note_incomplete`: the end of the run says so."""

    def give_up(self) -> None:
        """See :meth:`RunRecord.give_up`."""
        self._open.give_up()

    def rest(self) -> None:
        """See :meth:`RunRecord.rest`: its lease stays, because that is in the file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def wake(self) -> None:
        """See :meth:`RunRecord.wake`."""
        if self._journal is None:
            self._journal = Journal.open(self.folder.journal)
            self._journal.epoch = self._epoch

    @property
    def _open(self) -> Journal:
        if self._journal is None:
            raise StateError(f"{self.folder.journal}: is not open")
        return self._journal


def facts_of(first: Event | None, rows: Sequence[JournalRow], folder: RunFolder, texts: PlanTexts) -> Facts | None:
    """What these rows of a run say, which begins with ``first``."""
    if not rows or not isinstance(first, RunCreated):
        return None
    events = [event for _, event in decoded(rows, str(folder.journal), str)]
    return Facts(first.meta.arguments, load_plans(folder, texts)[-1].config.pools, events)


def _has_log(journal: Path) -> bool:
    """Whether events wait in the journal's write-ahead log, which does not change the time of the file."""
    wal = journal.with_name(f"{journal.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _is_nobody(_holder: Holder) -> bool:
    """No other watcher may write: the lock of the state folder or the Lease lets one in, and the next epoch fences the others."""
    return False


def _glance(folder: RunFolder) -> Glance:
    """What the first and the last event say. Raises :class:`StateError`."""
    journal = Journal.read(folder.journal)
    try:
        first, last = journal.first_and_last()
    finally:
        journal.close()
    return Glance(first.meta.arguments if isinstance(first, RunCreated) else {}, last == RunFinished.kind)


def has_ended(folder: RunFolder) -> bool:
    """Whether the run of a folder has ended. Raises :class:`StateError`."""
    return _glance(folder).has_ended


def run_name(root: Mapping[str, Any], digits: int = SHORT) -> str:
    """The name of a workload's run, with so many digits of its UID.

    The state folder allows 100 characters, which a namespace and a name may exceed.
    """
    meta = metadata(root)
    text = f"{meta.get('namespace', '')}.{meta.get('name', '')}"[: 98 - digits].rstrip("-.")
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"{text}-{uid_of(root)[:digits]}").lstrip(".-_") or "run"


def folder_of(state: StateFolder, root: Mapping[str, Any]) -> RunFolder:
    """The folder of a workload's run, which need not exist yet: none that is another workload's.

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
    """Make a journal that is there whole or not at all: what a kill or a full disk left of one is no journal for ever.

    Raises :class:`StateError`.
    """
    beside = path.with_name("journal.new")
    try:
        for left in path.parent.glob(f"{beside.name}*"):
            left.unlink()
        Journal.create(beside).close()
        beside.rename(path)
    except OSError as error:
        raise StateError(f"{path}: cannot be made ({error.strerror}); free some space") from error
