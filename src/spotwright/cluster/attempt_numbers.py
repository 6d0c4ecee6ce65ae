"""Gives every attempt its number and every gang its rung once, whichever replica is asked.

An API server asks one replica about a pod, and another one about the next. So the numbers that were given out, and the rungs on
which gangs have agreed, lie in a table that all replicas share: SQLite in the state folder, for replicas on one machine, which
:mod:`spotwright.cluster.state_folder_guard` sees to. (A store for replicas on several machines is to come with PostgreSQL.)

A number is given out before the pod exists, and the pod may never exist: a quota may refuse it. A number is confirmed once its
pod was seen, which every replica watches for by itself. One that is not confirmed after :data:`PATIENCE` seconds is doubtful,
and may be given out again after the API server has said that it knows no such pod.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION
from spotwright.cluster.api_client import Api
from spotwright.cluster.mirror import ChangeKind, Mirror, Resource
from spotwright.cluster.workloads import metadata, uid_of
from spotwright.errors import StateError

__all__ = ["PATIENCE", "Ledger", "PodsSeen", "Slot"]


PATIENCE = 2.0
"""Seconds in which a pod that was admitted is seen by the replicas: their streams are behind by milliseconds."""

_KEPT_SECONDS = 60 * 86_400.0  # seconds: no workload lives longer
_SCHEMA = """
CREATE TABLE IF NOT EXISTS numbers (token TEXT PRIMARY KEY, root TEXT NOT NULL, path TEXT NOT NULL, number INTEGER NOT NULL,
                                    at REAL NOT NULL, is_seen INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX IF NOT EXISTS numbers_of_task ON numbers (root, path, number);
CREATE TABLE IF NOT EXISTS gangs (gang TEXT PRIMARY KEY, pools TEXT NOT NULL, at REAL NOT NULL);
"""


class Slot(NamedTuple):
    """A task that a pod may belong to. ``recorded`` is the number of its attempts in the journal.

    ``is_free``: none of these runs or has succeeded, as far as the journal knows.
    """

    path: str
    recorded: int = 0
    is_free: bool = True


class Ledger:
    """The table in a file. All methods may be called from any thread, and raise :class:`StateError`.

    ``clock`` gives Unix seconds of this machine, which all of its replicas share.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock, self._lock = path, clock, threading.Lock()
        with self._errors():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(
                "PRAGMA synchronous = NORMAL"
            )  # the number stands on the pod too; no commit waits for the disk
            self._db.executescript(_SCHEMA)
            for table in ("numbers", "gangs"):
                self._db.execute(f"DELETE FROM {table} WHERE at < ?", (clock() - _KEPT_SECONDS,))  # noqa: S608  # names of ours

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def number(self, token: str, root: str, slots: Sequence[Slot]) -> tuple[Slot, int]:
        """Give out the next number of the first free slot, or of the last one if none is free. A token gets its number once."""
        with self._transaction():
            known = self._db.execute("SELECT path, number FROM numbers WHERE token = ?", (token,)).fetchone()
            if known is not None:
                return next((slot for slot in slots if slot.path == known[0]), slots[-1]), known[1]
            highest = {slot.path: self._highest(root, slot.path) for slot in slots}
            free = (slot for slot in slots if slot.is_free and highest[slot.path] <= slot.recorded)
            slot = next(free, slots[-1])
            number = max(highest[slot.path], slot.recorded) + 1
            self._db.execute(
                "INSERT INTO numbers (token, root, path, number, at) VALUES (?, ?, ?, ?, ?)",
                (token, root, slot.path, number, self._clock()),
            )
            return slot, number

    def highest(self, root: str, path: str) -> int:
        """The highest number that was given out for a task; 0 if there is none."""
        with self._errors(), self._lock:
            return self._highest(root, path)

    def doubtful(self, root: str, paths: Sequence[str]) -> list[str]:
        """The tokens of numbers of these tasks whose pods should have been seen by now."""
        query = f"SELECT token FROM numbers WHERE root = ? AND is_seen = 0 AND at < ? AND path IN ({_marks(paths)})"  # noqa: S608
        with self._errors(), self._lock:
            return [row[0] for row in self._db.execute(query, (root, self._clock() - PATIENCE, *paths))]

    def confirm(self, tokens: Sequence[str]) -> None:
        """The pods with these tokens exist, or have existed."""
        if tokens:
            with self._transaction():
                self._db.execute(f"UPDATE numbers SET is_seen = 1 WHERE token IN ({_marks(tokens)})", tuple(tokens))  # noqa: S608

    def withdraw(self, tokens: Sequence[str]) -> None:
        """No pod with these tokens was ever made: their numbers may be given out again."""
        if tokens:
            with self._transaction():
                query = f"DELETE FROM numbers WHERE is_seen = 0 AND token IN ({_marks(tokens)})"  # noqa: S608
                self._db.execute(query, tuple(tokens))

    def agree(self, gang: str, rungs: Sequence[Sequence[str]], pools: tuple[str, ...]) -> tuple[str, ...]:
        """The pools on which those of a gang that have these rungs have agreed; ``pools``, if nobody has asked before.

        A leader that has to stay on on-demand and its workers have different rungs, so neither decides for the other.
        """
        key = f"{gang} {';'.join(','.join(rung) for rung in rungs)}"
        with self._errors(), self._lock:
            found = self._pools_of(key)  # mostly another pod has asked, and then nothing is written
        if found is None:
            with self._transaction():
                values = (key, ",".join(pools), self._clock())
                self._db.execute("INSERT OR IGNORE INTO gangs (gang, pools, at) VALUES (?, ?, ?)", values)
                found = self._pools_of(key)
        return pools if found is None else tuple(found.split(","))

    def has_begun(self, gang: str) -> bool:
        """Whether a pod of a gang has asked for its rung."""
        query = "SELECT 1 FROM gangs WHERE gang >= ? AND gang < ? LIMIT 1"  # its key begins with the gang and a space
        with self._errors(), self._lock:
            return self._db.execute(query, (f"{gang} ", f"{gang}!")).fetchone() is not None

    def _pools_of(self, key: str) -> str | None:
        found = self._db.execute("SELECT pools FROM gangs WHERE gang = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def _highest(self, root: str, path: str) -> int:
        query = "SELECT max(number) FROM numbers WHERE root = ? AND path = ?"
        found = self._db.execute(query, (root, path)).fetchone()[0]
        return 0 if found is None else int(found)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors(), self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: cannot be used ({error}); numbers of attempts are not certain") from error


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


_LOG = logging.getLogger(__name__)
_TOKENS_KEPT = 50_000  # tokens that were told already


class PodsSeen:
    """The precise pods of all namespaces; await :meth:`follow`. ``confirm`` is told each token once, when its pod is seen."""

    def __init__(self, api: Api, confirm: Callable[[Sequence[str]], None]) -> None:
        self._confirm = confirm
        self._mirror = Mirror(api, Resource("/api/v1", "pods"), keep=_has_token, slim=_slim)
        self._told: OrderedDict[str, None] = OrderedDict()
        self.is_complete = False

    @property
    def problem(self) -> str:
        """Why the pods cannot be followed at present; empty while they can."""
        return self._mirror.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._mirror.changes():
            if change.kind is ChangeKind.SYNCED:
                self.is_complete = True
                continue
            token = token_of(change.data)
            if token not in self._told:
                self._told[token] = None
                self._confirm([token])
            while len(self._told) > _TOKENS_KEPT:
                self._told.popitem(last=False)


def token_of(pod: Mapping[str, Any]) -> str:
    """The token of the review that made a pod precise; empty if none did."""
    return str((metadata(pod).get("annotations") or {}).get(ADMISSION_ANNOTATION, ""))


def _has_token(pod: Mapping[str, Any]) -> bool:
    return bool(token_of(pod))


def _slim(pod: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a pod: ten thousand of them fit into a few megabytes."""
    meta = metadata(pod)
    kept = {key: meta[key] for key in ("name", "namespace", "resourceVersion") if key in meta}
    return {"metadata": {**kept, "uid": uid_of(pod), "annotations": {ADMISSION_ANNOTATION: token_of(pod)}}}
