"""What a state folder has of a cluster's workloads: which run belongs to which object, and the line of each in a list.

A run's object stands in its first event and never changes, so it is read once. The line of a run that has ended is kept until its
files change; a run that goes on is folded anew for each list, because its seconds and its cost grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from spotwright.engine.events import RunCreated
from spotwright.engine.ports import Liveness
from spotwright.errors import SpotwrightError, UnknownRun
from spotwright.records.journal import Journal, JournalRow, decoded
from spotwright.records.journal_stamp import JournalStamp, journal_stamp
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder
from spotwright.views.run_json import summary

__all__ = ["IndexedRun", "Rows", "RunIndex"]


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run and the object that it records. ``kfp_run`` is the id that Kubeflow Pipelines gave it, or empty."""

    folder: RunFolder
    made_at: int
    namespace: str
    kind: str
    name: str
    kfp_run: str

    def is_called(self, text: str) -> bool:
        """Whether this is the name of the run, of its object as ``kind/name``, or its id in Kubeflow Pipelines."""
        kind, slash, name = text.partition("/")
        if slash:
            return name == self.name and kind.lower() in {self.kind.lower(), f"{self.kind.lower()}s"}
        return text in {self.folder.name, self.kfp_run}


@dataclass(frozen=True, slots=True)
class Rows:
    """Stored events after a sequence number. ``more``: there are further ones already."""

    is_driven: bool
    rows: Sequence[JournalRow]
    more: bool


class RunIndex:
    """The runs of a state folder, for several threads at once. ``is_alive`` tells whether the holder of a lease lives.

    ``now`` is the clock by which runs are recorded: the API server's, from which this machine's may differ.
    """

    def __init__(self, state: StateFolder, is_alive: Liveness, now: Callable[[], float] = time.time) -> None:
        self.state, self._is_alive, self.now = state, is_alive, now
        self._known: dict[tuple[str, int], IndexedRun] = {}
        self._lines: dict[str, tuple[JournalStamp, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[IndexedRun]:
        """The runs of workloads, newest first. A run whose first event is not written yet, or cannot be read, is left out."""
        known: dict[tuple[str, int], IndexedRun] = {}
        for folder in self.state.runs():
            try:
                key = (folder.name, folder.made_at())
                run = self._known.get(key) or _read_first(folder, key[1])
            except (SpotwrightError, OSError):
                continue
            if run is not None:
                known[key] = run
        with self._lock:
            self._known = known
            self._lines = {name: line for name, line in self._lines.items() if any(name == key[0] for key in known)}
        return sorted(known.values(), key=lambda run: (run.made_at, run.folder.name), reverse=True)

    def find(self, text: str, readable: Collection[str], namespace: str = "") -> IndexedRun:
        """The newest run of this name, or the only one that begins with it; ``last`` for the newest of all.

        ``readable`` are the namespaces that the caller may read, ``namespace`` the one that was asked for. Raises
        :class:`UnknownRun`.
        """
        wanted = [run for run in self.runs() if run.namespace in readable and namespace in {"", run.namespace}]
        if text == "last" and wanted:
            return wanted[0]
        called = [run for run in wanted if run.is_called(text)]
        spaces = list(dict.fromkeys(run.namespace for run in called))
        if len(spaces) > 1:
            raise UnknownRun(f"{text!r} is in several namespaces ({', '.join(spaces)}): name one with -n")
        if called:
            return called[0]
        matches = [run for run in wanted if text and run.folder.name.startswith(text)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(run.folder.name for run in matches[:5])
            raise UnknownRun(f"{text!r} is the beginning of several runs: {names}")
        raise UnknownRun(_not_found(text, wanted, namespace))

    def line(self, run: IndexedRun) -> dict[str, Any]:
        """The run in one line, as :func:`~spotwright.views.run_json.summary` makes it. Raises :class:`StateError`."""
        stamp = journal_stamp(run.folder.journal)
        kept = self._lines.get(run.folder.name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        reader = RunReader(run.folder, self._is_alive)
        made = summary(reader.state, run.folder.name, self.now() if reader.is_driven else None)
        if stamp is not None and not reader.is_driven:
            with self._lock:
                self._lines[run.folder.name] = (stamp, made)
        return made

    def rows(self, run: IndexedRun, after: int, at_most: int) -> Rows:
        """At most so many stored events after a sequence number. Raises :class:`StateError`."""
        with closing(Journal.read(run.folder.journal)) as journal:
            lease = journal.lease()  # before the events: once nobody holds it, the journal is complete
            is_driven = lease is not None and lease.is_held(time.time(), self._is_alive)
            found = list(journal.rows(after, at_most=at_most + 1))
        return Rows(is_driven, found[:at_most], len(found) > at_most)


def _read_first(folder: RunFolder, made_at: int) -> IndexedRun | None:
    """The object of a run, from its first event; None for a run of another body, or one that has only begun."""
    with closing(Journal.read(folder.journal)) as journal, closing(journal.rows(at_most=1)) as rows:
        first = next((event for _, event in decoded(rows, str(folder.journal), str)), None)
    if not isinstance(first, RunCreated) or not first.meta.arguments.get("namespace"):
        return None
    told = {key: str(first.meta.arguments.get(key, "")) for key in ("namespace", "kind", "name", "kfp_run")}
    return IndexedRun(folder, made_at, **told)


def _not_found(text: str, wanted: Iterable[IndexedRun], namespace: str) -> str:
    newest = ", ".join(run.folder.name for run in list(wanted)[:3])
    where = f"namespace {namespace}" if namespace else "the namespaces that you may read"
    return f"no run {text!r} in {where}: {f'the newest are {newest}' if newest else 'there are none yet'}"
