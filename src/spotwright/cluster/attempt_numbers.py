"""Gives every attempt its number and every gang its rung once, whichever replica is asked.

An API server asks one replica about a pod, and another one about the next. So the numbers that were given out, and the rungs on
which gangs have agreed, lie in a table that all replicas share: SQLite in the state folder, for replicas on one machine, which
:mod:`spotwright.cluster.state_folder_guard` sees to. (The Kubernetes API is to take its place, for replicas on several machines.)

With the number the table keeps what was decided of the pod, by the token of its review: nobody believes the annotations of a
pod, because whoever may write in its namespace writes them.

A number is given out before the pod exists, and the pod may never exist: a quota may refuse it. A number is confirmed once its
pod was seen, which every replica watches for by itself. One that is not confirmed after :data:`PATIENCE` seconds is doubtful,
and may be given out again after the API server has said that it knows no such pod.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from spotwright.cluster.admit_pods import ADMISSION_ANNOTATION, Admission
from spotwright.cluster.api_client import Api
from spotwright.cluster.marked_pods import LONGEST_TOKEN
from spotwright.cluster.mirror import ChangeKind, FollowedNamespaces, Resource
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, uid_of
from spotwright.records.state_folder import StateFolder

__all__ = ["PATIENCE", "Ledger", "PodsSeen", "Seen", "Slot", "ledger_of", "token_of"]


_LOG = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds in which a pod that was admitted is seen by the replicas: their streams are behind by milliseconds."""

_KEPT_SECONDS = 60 * 86_400.0  # seconds: no workload lives longer
_NEVER_MADE = (
    3600.0  # seconds: a pod that nobody has seen for so long was not made; whoever sends reviews may invent pods
)
_CLEARS = 60.0  # seconds between two looks for numbers of pods that were not made
_REVIEWED_AGAIN = (
    10.0  # seconds in which an API server asks again about a pod that another webhook has changed meanwhile
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS numbers (token TEXT PRIMARY KEY, root TEXT NOT NULL, path TEXT NOT NULL, number INTEGER NOT NULL,
                                    at REAL NOT NULL, is_seen INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX IF NOT EXISTS numbers_of_task ON numbers (root, path, number);
CREATE TABLE IF NOT EXISTS gangs (gang TEXT PRIMARY KEY, pools TEXT NOT NULL, at REAL NOT NULL);
"""
_ADDED = {  # columns that came after the first version, which files of earlier versions get
    "namespace": "TEXT NOT NULL DEFAULT ''",
    "pod": "TEXT NOT NULL DEFAULT ''",  # the UID of the one pod that the token counts for, once it was seen
    "pools": "TEXT NOT NULL DEFAULT ''",
    "is_open": "INTEGER NOT NULL DEFAULT 0",
    "is_refused": "INTEGER NOT NULL DEFAULT 0",
    "why": "TEXT NOT NULL DEFAULT ''",
    "pinned": "TEXT NOT NULL DEFAULT ''",  # the conditions of this attempt alone, for each required term, as JSON
}
_INDEXES = """
CREATE INDEX IF NOT EXISTS numbers_of_pod ON numbers (pod) WHERE pod != '';
CREATE INDEX IF NOT EXISTS numbers_not_seen ON numbers (root) WHERE is_seen = 0;
"""
_READ = "number, pools, is_open, is_refused, why, pinned"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Slot(NamedTuple):
    """A task that a pod may belong to. ``recorded`` is the number of its attempts in the journal.

    ``is_free``: none of these runs or has succeeded, as far as the journal knows.
    """

    path: str
    recorded: int = 0
    is_free: bool = True


class Seen(NamedTuple):
    """A token that a pod of this namespace has."""

    namespace: str
    token: str


class Ledger:
    """The table in a file. All methods may be called from any thread, and raise :class:`StateError`.

    ``clock`` gives Unix seconds of this machine, which all of its replicas share. A file that is damaged is set aside, and a new
    one begun: ``losses`` has a sentence for each time. Numbers go on from the journals and from what :meth:`restore` is told.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock, self._lock = path, clock, threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file = 0  # the inode of the file that is open
        self._cleared_at = clock()
        self._restored: set[str] = set()  # the roots whose numbers were restored since the last loss
        self.losses: list[str] = []
        with self._errors(), self._lock:
            for table in ("numbers", "gangs"):
                self._db.execute(f"DELETE FROM {table} WHERE at < ?", (clock() - _KEPT_SECONDS,))  # noqa: S608  # names of ours

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def number(self, token: str, namespace: str, root: str, slots: Sequence[Slot]) -> tuple[Slot, int]:
        """Give out the next number of the first free slot, or of the last one if none is free. A token gets its number once."""
        with self._transaction():
            known = self._db.execute("SELECT path, number FROM numbers WHERE token = ?", (token,)).fetchone()
            if known is not None:
                return next((slot for slot in slots if slot.path == known[0]), slots[-1]), known[1]
            highest = self._highest(root, [slot.path for slot in slots])
            free = (slot for slot in slots if slot.is_free and highest.get(slot.path, 0) <= slot.recorded)
            slot = next(free, slots[-1])
            number = max(highest.get(slot.path, 0), slot.recorded) + 1
            self._insert(token, namespace, root, slot.path, number)
            return slot, number

    def alone(self, token: str, namespace: str) -> None:
        """Note the only attempt of a pod that is a run by itself, and that has no UID yet."""
        with self._transaction():
            self._insert(token, namespace, "", token, 1)

    def keep(self, token: str, admission: Admission) -> None:
        """Note what was decided of the pod with this token, before the API server hears of it."""
        pinned = json.dumps(admission.pinned) if any(admission.pinned) else ""
        values = (",".join(admission.pools), admission.is_open, admission.is_refused, admission.why, pinned)
        with self._transaction():
            query = "UPDATE numbers SET pools = ?, is_open = ?, is_refused = ?, why = ?, pinned = ? WHERE token = ?"
            self._db.execute(query, (*values, token))

    def admission(self, token: str, namespace: str, root: str, pod: str) -> Admission | None:
        """What was decided of a pod, by its UID; None: no review of ours has made it what it is.

        A token counts for the first pod of its namespace and workload that is seen with it. From then on that pod is known by
        its UID, whatever it says later.
        """
        with self._errors(), self._lock:
            query = f"SELECT {_READ} FROM numbers WHERE pod = ?"  # noqa: S608  # names of ours
            row = self._db.execute(query, (pod,)).fetchone()
        if row is None and token:
            with self._transaction():
                fits = "token = ? AND pod = '' AND namespace IN (?, '') AND root IN (?, '')"
                self._db.execute(f"UPDATE numbers SET pod = ?, is_seen = 1 WHERE {fits}", (pod, token, namespace, root))  # noqa: S608
                row = self._db.execute(query, (pod,)).fetchone()
        if row is None:
            return None
        number, pools, is_open, is_refused, why, pinned = row
        added = tuple(map(tuple, json.loads(pinned))) if pinned else ()
        return Admission(tuple(filter(None, pools.split(","))), bool(is_open), bool(is_refused), why, number, added)

    def admission_of(self, pod: Mapping[str, Any], root: str) -> Admission | None:
        """:meth:`admission` of a pod of the workload with this UID."""
        return self.admission(token_of(pod), str(metadata(pod).get("namespace", "")), root, uid_of(pod))

    def is_under_review(self, token: str, namespace: str, root: str) -> bool:
        """Whether a pod that is about to be made was made precise just now, and no pod was seen with its token."""
        query = "SELECT 1 FROM numbers WHERE token = ? AND namespace = ? AND root = ? AND is_seen = 0 AND at > ?"
        with self._errors(), self._lock:
            since = self._clock() - _REVIEWED_AGAIN
            return self._db.execute(query, (token, namespace, root, since)).fetchone() is not None

    def highest(self, root: str, paths: Sequence[str]) -> Mapping[str, int]:
        """The highest numbers that were given out for tasks; those without one are left out."""
        with self._errors(), self._lock:
            return self._highest(root, paths)

    def paths(self, root: str) -> Sequence[str]:
        """The tasks of a workload that have numbers."""
        with self._errors(), self._lock:
            query = "SELECT DISTINCT path FROM numbers WHERE root = ?"
            return [row[0] for row in self._db.execute(query, (root,))]

    def doubtful(self, root: str) -> list[tuple[str, str]]:
        """The tokens, each with its task, of numbers of a workload whose pods should have been seen by now."""
        query = "SELECT token, path FROM numbers WHERE root = ? AND is_seen = 0 AND at < ?"
        with self._errors(), self._lock:
            return list(self._db.execute(query, (root, self._clock() - PATIENCE)))

    def confirm(self, seen: Sequence[Seen]) -> None:
        """The pods with these tokens exist, or have existed; a token counts only in the namespace of its review."""
        if seen:
            with self._transaction():
                query = "UPDATE numbers SET is_seen = 1 WHERE namespace IN (?, '') AND token = ?"
                self._db.executemany(query, seen)

    def withdraw(self, tokens: Sequence[str]) -> None:
        """No pod with these tokens was ever made: their numbers may be given out again."""
        if tokens:
            with self._transaction():
                query = "DELETE FROM numbers WHERE is_seen = 0 AND token = ?"
                self._db.executemany(query, [(token,) for token in tokens])

    def is_restored(self, root: str) -> bool:
        """Whether nothing of a workload's numbers was lost, or what its pods carry was restored since."""
        return not self.losses or root in self._restored

    def restore(self, namespace: str, root: str, numbers: Sequence[tuple[str, Sequence[str], int]]) -> None:
        """Take over the numbers that the pods of a workload carry: of each its token, the tasks that it may be, its number.

        A pod's word counts for its own workload alone, and only for what comes after: its rung is not believed.
        """
        with self._transaction():
            for token, paths, number in numbers:
                for path in paths:
                    if self._insert(token, namespace, root, path, number):
                        self._db.execute("UPDATE numbers SET is_seen = 1 WHERE token = ?", (token,))
                        break
        self._restored.add(root)

    def agree(
        self, namespace: str, gang: str, rungs: Sequence[Sequence[str]], pools: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The pools on which those of a gang that have these rungs have agreed; ``pools``, if nobody has asked before.

        A leader that has to stay on on-demand and its workers have different rungs, so neither decides for the other.
        """
        key = f"{namespace}/{gang} {';'.join(','.join(rung) for rung in rungs)}"
        with self._errors(), self._lock:
            found = self._pools_of(key)  # mostly another pod has asked, and then nothing is written
        if found is None:
            with self._transaction():
                values = (key, ",".join(pools), self._clock())
                self._db.execute("INSERT OR IGNORE INTO gangs (gang, pools, at) VALUES (?, ?, ?)", values)
                found = self._pools_of(key)
        return pools if found is None else tuple(found.split(","))

    def has_begun(self, namespace: str, gang: str) -> bool:
        """Whether a pod of a gang has asked for its rung."""
        query = "SELECT 1 FROM gangs WHERE gang >= ? AND gang < ? LIMIT 1"  # its key begins with the gang and a space
        with self._errors(), self._lock:
            found = self._db.execute(query, (f"{namespace}/{gang} ", f"{namespace}/{gang}!")).fetchone()
            return found is not None

    def _pools_of(self, key: str) -> str | None:
        found = self._db.execute("SELECT pools FROM gangs WHERE gang = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def _highest(self, root: str, paths: Sequence[str]) -> dict[str, int]:
        if len(paths) == 1:
            query = "SELECT path, max(number) FROM numbers WHERE root = ? AND path = ? GROUP BY path"
            return dict(self._db.execute(query, (root, paths[0])))
        found = self._db.execute("SELECT path, max(number) FROM numbers WHERE root = ? GROUP BY path", (root,))
        wanted = set(paths)
        return {path: number for path, number in found if path in wanted}

    def _insert(self, token: str, namespace: str, root: str, path: str, number: int) -> bool:
        """Add a number, unless it or its token is there; now and then drop those of pods that were never made."""
        now = self._clock()
        if now >= self._cleared_at + _CLEARS:
            self._cleared_at = now
            self._db.execute("DELETE FROM numbers WHERE is_seen = 0 AND at < ?", (now - _NEVER_MADE,))
        query = "INSERT OR IGNORE INTO numbers (token, namespace, root, path, number, at) VALUES (?, ?, ?, ?, ?, ?)"
        return self._db.execute(query, (token, namespace, root, path, number, now)).rowcount > 0

    # The file

    @property
    def _db(self) -> sqlite3.Connection:
        """The open file; opened again where another replica has set it aside."""
        if self._connection is not None and _inode(self._path) != self._file:
            self._connection.close()
            self._connection = None
            self._lose(f"{self._path}: another replica has begun it anew")
        if self._connection is None:
            with _alone(self._path):  # replicas may begin at once, or find the same damage
                try:
                    self._connection = _opened(self._path)
                except sqlite3.DatabaseError as error:
                    if not _is_damaged(error):
                        raise
                    self._move_away(error)
                    self._connection = _opened(self._path)
                self._file = _inode(self._path)
        return self._connection

    def _set_aside(self, error: sqlite3.Error) -> None:
        """Give up the open file, because it is damaged; the next call begins a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            with _alone(self._path):
                if _inode(self._path) == self._file:  # else another replica has done it
                    self._move_away(error)

    def _move_away(self, error: sqlite3.Error) -> None:
        aside = f"{self._path.name}.corrupt-{self._clock():.0f}"
        try:
            for ending in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    self._path.with_name(f"{self._path.name}{ending}").rename(self._path.with_name(f"{aside}{ending}"))
        except OSError as failed:
            text = f"{self._path}: is damaged ({error}), and cannot be set aside ({failed.strerror})"
            raise StateError(text) from failed
        self._lose(f"{self._path}: was damaged ({error}), and is now {aside}")

    def _lose(self, what: str) -> None:
        self._restored.clear()
        self.losses.append(f"{what}; numbers of attempts go on from the journals and the pods that are there")
        _LOG.error("%s", self.losses[-1])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors(), self._lock:
            db = self._db
            db.execute("BEGIN IMMEDIATE")
            try:
                yield
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_damaged(error):
                with self._lock:
                    self._set_aside(error)
            raise StateError(f"{self._path}: cannot be used ({error}); numbers of attempts are not certain") from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from opening or moving the file."""
    try:
        with os.fdopen(os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StateError(f"{path}: cannot be used ({error.strerror}); numbers of attempts are not certain") from error


def ledger_of(state: StateFolder) -> Path:
    """The file of a state folder; its folder is made if it is missing. Raises :class:`StateError`."""
    path = state.path / "controller" / "numbers.db"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"{path.parent}: cannot be made ({error.strerror})") from error
    return path


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to the file, which is made for its owner alone, with the tables of today."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    db = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
    try:
        db.text_factory = _text
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # the number stands on the pod too; no commit waits for the disk
        db.executescript(_SCHEMA)
        known = {row[1] for row in db.execute("PRAGMA table_info(numbers)")}
        for name, kind in _ADDED.items():
            if name not in known:
                db.execute(f"ALTER TABLE numbers ADD COLUMN {name} {kind}")
        db.executescript(_INDEXES)
    except BaseException:
        db.close()
        raise
    return db


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_damaged(error: sqlite3.Error) -> bool:
    """Whether an error says that the file is no ledger; another one (a full disk, a lock) may pass."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGED


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


_TOKENS_KEPT = 50_000  # tokens that were told already


class PodsSeen:
    """The precise pods of these namespaces, or of all; await :meth:`follow`.

    ``confirm`` is told each token once, when its pod is seen.
    """

    def __init__(self, api: Api, confirm: Callable[[Sequence[Seen]], None], namespaces: Sequence[str] = ()) -> None:
        self._confirm = confirm
        self._followed = FollowedNamespaces(
            api, Resource("/api/v1", "pods"), namespaces, keep=_has_token, slim=_slim, remember=False
        )
        self._told: OrderedDict[Seen, None] = OrderedDict()

    @property
    def is_complete(self) -> bool:
        """Whether every precise pod was seen that may be read."""
        return self._followed.is_complete

    @property
    def problem(self) -> str:
        """Why the pods cannot be followed at present; empty while they can."""
        return self._followed.problem

    async def follow(self) -> None:
        """Follow until cancelled."""
        async for change in self._followed.changes():
            if change.kind is not ChangeKind.PUT:
                continue
            token = Seen(str(metadata(change.data).get("namespace", "")), token_of(change.data))
            if token not in self._told:
                self._told[token] = None
                self._confirm([token])
            while len(self._told) > _TOKENS_KEPT:
                self._told.popitem(last=False)


def token_of(pod: Mapping[str, Any]) -> str:
    """The token of the review that made a pod precise; empty if none did."""
    token = str((metadata(pod).get("annotations") or {}).get(ADMISSION_ANNOTATION, ""))
    return token if len(token) <= LONGEST_TOKEN else ""  # another one is none of ours


def _has_token(pod: Mapping[str, Any]) -> bool:
    """Whether a pod has a token such as the webhook writes: whoever makes the pod may write others."""
    return bool(token_of(pod))


def _slim(pod: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a pod: ten thousand of them fit into a few megabytes."""
    meta = metadata(pod)
    kept = {key: meta[key] for key in ("name", "namespace", "resourceVersion") if key in meta}
    return {"metadata": {**kept, "uid": uid_of(pod), "annotations": {ADMISSION_ANNOTATION: token_of(pod)}}}
