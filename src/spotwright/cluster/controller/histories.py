"""Reads the attempts of every task from the journals, which the leader writes and all replicas read.

A journal is opened again only after its files have changed, and only the events since the last look are read. Five kinds of event
are enough for the next attempt: adopted, taken back, bound, ended and decided; the run is not folded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from spotwright.cluster.watching.run_store import run_name
from spotwright.engine.events import AttemptAdopted, AttemptBound, AttemptDecided, AttemptEnded, AttemptTakenBack, Event
from spotwright.model.attempts import Cause
from spotwright.records.journal import Journal
from spotwright.records.journal_stamp import JournalStamp, journal_stamp
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.scheduling.next_attempt import PastAttempt

__all__ = ["Histories", "RecordedAttempt", "RunHistory"]

_KEPT = 5_000  # runs whose histories stay in memory


@dataclass(slots=True)
class RecordedAttempt:
    """One attempt as the journal has it. ``cause`` is None until it is decided; ``gang`` is the restart of a set, SET/RESTART."""

    key: str
    pools: tuple[str, ...]
    gang: str = ""
    pool: str | None = None
    has_ended: bool = False
    cause: Cause | None = None
    moved_to: tuple[str, ...] | None = None  # it was taken back, and the next attempt waits for a node of these pools
    moved_at: float = 0.0  # when that was decided, in Unix seconds

    @property
    def past(self) -> PastAttempt:
        """The attempt as the decision about the next one reads it."""
        waited, then = self.moved_to is not None, self.moved_to or ()
        return PastAttempt(
            self.cause, self.pools, self.pool, waited_in_vain=waited, then=then, has_ended=self.has_ended or waited
        )

    @property
    def is_settled(self) -> bool:
        """Whether what followed it is known: its cause, or the decision to take it back, which comes before its end."""
        return self.cause is not None or self.moved_to is not None


@dataclass(slots=True)
class RunHistory:
    """The attempts of one run by the path of their task, in order."""

    tasks: dict[str, list[RecordedAttempt]] = field(default_factory=dict)

    def of(self, path: str) -> Sequence[RecordedAttempt]:
        """The attempts of a task; none if it is not in the journal."""
        return self.tasks.get(path, ())

    def members(self, gang: str) -> Iterator[tuple[str, RecordedAttempt]]:
        """The attempts of all restarts of the set that ``gang``, as SET/RESTART, belongs to, each with the path of its task."""
        of_set = f"{gang.partition('/')[0]}/"
        for path, attempts in self.tasks.items():
            yield from ((path, attempt) for attempt in attempts if attempt.gang.startswith(of_set))

    def restarts_before(self, gang: str) -> Sequence[Mapping[str, RecordedAttempt]]:
        """The restarts of a set before this one, in order, each with its members by the path of their task.

        A restart may have ended before all of its pods were made, and a Job may have replaced a pod within one: a task need not
        have as many attempts as its set has restarts.
        """
        restarts: dict[tuple[int, ...], dict[str, RecordedAttempt]] = {}
        for path, attempt in self.members(gang):
            place = _place(attempt.gang)
            if place[0] < _place(gang)[0]:
                restarts.setdefault(place, {})[path] = attempt
        return [restarts[place] for place in sorted(restarts)]

    def take(self, event: Event) -> None:
        """Add what an event says."""
        if isinstance(event, AttemptAdopted):
            adopted = RecordedAttempt(event.key, tuple(event.pools), event.gang)
            self.tasks.setdefault(event.task, []).append(adopted)
        elif isinstance(event, (AttemptBound, AttemptEnded, AttemptDecided, AttemptTakenBack)):
            attempt = self.tasks[event.task][event.attempt - 1]
            if isinstance(event, AttemptBound):
                attempt.pool, attempt.moved_to = event.pool, None
            elif isinstance(event, AttemptTakenBack):
                attempt.moved_to, attempt.moved_at = tuple(event.pools), event.at
            elif isinstance(event, AttemptEnded):
                attempt.has_ended = True
            else:
                attempt.has_ended, attempt.cause = True, event.cause


def _place(gang: str) -> tuple[int, ...]:
    """The place of a restart in the order of its set: its number, and that of a pod that was replaced within it."""
    return tuple(int(number) for number in gang.split("/")[1:] if number.isdecimal()) or (0,)


class _Reader:
    """One journal, read as far as it went at the last look."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.journal
        self._stamp: JournalStamp | None = None
        self._last = 0
        self.history = RunHistory()

    def refresh(self) -> RunHistory:
        """Read what was written since the last look. Raises :class:`StateError`."""
        stamp = journal_stamp(self._path)
        if (stamp is not None and stamp == self._stamp) or not self._path.exists():
            return self.history
        with closing(Journal.read(self._path)) as journal:
            for number, event in journal.events(self._last):
                self.history.take(event)
                self._last = number
        self._stamp = stamp
        return self.history


class Histories:
    """The histories of the runs of a state folder. For one thread at a time."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._readers: OrderedDict[str, _Reader] = OrderedDict()

    def of(self, root: Mapping[str, Any]) -> RunHistory:
        """What the journal of a workload has now; empty if there is none yet. Raises :class:`StateError`."""
        name = run_name(root)
        reader = self._readers.pop(name, None) or _Reader(self._state.run(name))
        self._readers[name] = reader
        while len(self._readers) > _KEPT:
            self._readers.popitem(last=False)
        return reader.refresh()
