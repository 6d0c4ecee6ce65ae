"""The recorder's port to the records of runs, implemented by :mod:`spotwright.cluster.api_run_records`.

A laptop has no API server: its engine writes the journal itself, without a recorder.

The name of a run is the workload's namespace, name and the beginning of its UID, so a new look after a crash finds the same
run. If another workload of that name has the same beginning, the whole UID is used: that happens after enough recreations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from spotwright.engine.events import Event, RunCreated
from spotwright.engine.state import RunState
from spotwright.errors import SpotwrightError, StateError
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.model.pools import Pool
from spotwright.records.journal import JournalRow, decoded
from spotwright.records.state_folder import RunFolder
from spotwright.records.stored_plan import PlanTexts, RunSource, StoredPlan, load_plans

__all__ = [
    "SHORT",
    "UID",
    "WHOLE",
    "Facts",
    "Glance",
    "RecordGone",
    "RunRecord",
    "RunRecords",
    "TooLarge",
    "facts_of",
    "run_name",
]


SHORT, WHOLE = 8, 36
"""Digits of a UID in the name of a run: usually ``SHORT``; all of them if another workload has the same first ones."""

UID = "uid"
"""The argument of a run that holds its workload's UID."""


class Glance(NamedTuple):
    """A summary of a run without reading all of it: its arguments, and whether it has ended."""

    arguments: Mapping[str, Any]
    has_ended: bool

    @property
    def uid(self) -> str:
        """The UID of its workload; empty if unknown."""
        return str(self.arguments.get(UID, ""))

    @property
    def namespace(self) -> str:
        """The namespace of its workload."""
        return str(self.arguments.get("namespace", ""))


class RecordGone(StateError):
    """All records of a run were deleted."""


class TooLarge(SpotwrightError):
    """A part of a run exceeds the size limit of records."""


class Facts(NamedTuple):
    """Some events of a run, with the arguments of the run and the pools of its configuration."""

    arguments: Mapping[str, Any]
    pools: Mapping[str, Pool]
    events: Sequence[Event]


class RunRecord(Protocol):
    """The records of one run. Each method raises :class:`StateError` if they cannot be read or written.

    ``folder`` has its name, and its logs. After an error the record counts as closed and must be reopened.
    """

    folder: RunFolder
    at_once: int
    """The number of events that are recorded atomically."""
    lost: Sequence[int]
    """The numbers of recorded events that no longer exist, once it is open."""

    @property
    def epoch(self) -> int:
        """The number of recorders that have opened it."""

    @property
    def size(self) -> int:
        """The stored bytes of its plan and its events."""

    @property
    def stored(self) -> int:
        """All its stored bytes."""

    def glance(self) -> Glance | None:
        """A summary without reading all of the run; None: no record yet."""

    def create(self, stored: StoredPlan) -> None:
        """Store its plan. A killed process's unfinished work is completed."""

    def source(self) -> RunSource:
        """The reader of all its records."""

    def facts(self, kinds: Collection[str], since: float) -> Facts | None:
        """The events of these kinds since a time (Unix seconds), or None."""

    def open(self) -> bool:
        """Begin to record, with the next epoch. Returns whether it already has events."""

    def append(self, events: Sequence[Event], state: RunState) -> None:
        """Record at most ``at_once`` events durably and atomically. ``state`` is the run's state after them."""

    def tell(self, state: RunState, now: float) -> None:
        """Publish the run's current state for people, beside its records."""

    def note_incomplete(self, reason: str, why: str) -> None:
        """Mark the run as incomplete with the next recorded events. ``reason`` is a word, ``why`` a sentence."""

    def close(self) -> None:
        """Stop recording. It may be opened again."""


class RunRecords(Protocol):
    """The records of all runs. ``kept`` is their retention after the run's end, in seconds; None: forever."""

    kept: float | None

    def all(self, is_wanted: Callable[[str], bool] = lambda _: True) -> Iterable[RunRecord]:
        """Every active run of the wanted namespaces, possibly with others. Raises :class:`StateError`."""

    def of(self, root: Mapping[str, Any]) -> RunRecord:
        """The record of a workload's run, which need not exist yet, never another workload's.

        Raises :class:`StateError` for an unreadable one.
        """

    def recent(self, since: float) -> Iterable[RunRecord]:
        """The runs that may have events since a time (Unix seconds)."""

    def deleted_until(self, namespace: str) -> float:
        """The latest end (Unix seconds) of a namespace's runs that were deleted early; 0: none.

        Raises :class:`StateError`.
        """


def facts_of(first: Event | None, rows: Sequence[JournalRow], folder: RunFolder, texts: PlanTexts) -> Facts | None:
    """The facts in these rows of a run that begins with ``first``."""
    if not rows or not isinstance(first, RunCreated):
        return None
    events = [event for _, event in decoded(rows, str(folder.journal), str)]
    return Facts(first.meta.arguments, load_plans(folder, texts)[-1].config.pools, events)


def run_name(root: Mapping[str, Any], digits: int = SHORT) -> str:
    """The name of a workload's run, with ``digits`` digits of its UID.

    It has at most 100 characters, which a namespace and a name may exceed.
    """
    meta = metadata(root)
    text = f"{meta.get('namespace', '')}.{meta.get('name', '')}"[: 98 - digits].rstrip("-.")
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"{text}-{uid_of(root)[:digits]}").lstrip(".-_") or "run"
