"""The journal of a run: an append-only SQLite file that only the engine holding the lease may write.

WAL with ``synchronous=FULL``: what :meth:`Journal.append` returned from survives ``kill -9`` and power loss, and a torn tail
is noticed by SQLite instead of read as a shorter history. Every append checks the lease's epoch in the same transaction, so
an engine that lost its run writes nothing more. Readers never block the engine; where the folder cannot be written they read
an immutable file, or a copy of one that a killed engine left with an unfinished log.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.engine.events import Event
from spotwright.errors import Fenced, RunBusy, StateError

__all__ = ["FORMAT", "Journal", "Lease"]

FORMAT = 1
"""The version of the file's layout, in SQLite's ``user_version``."""

_SCHEMA = """
CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, task TEXT NOT NULL,
                     attempt INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, owner TEXT NOT NULL);
CREATE TABLE requests (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL);
INSERT INTO lease VALUES (1, 0, '');
"""
_INSERT = "INSERT INTO events (at, kind, task, attempt, data) VALUES (?, ?, ?, ?, ?)"

Lease = Mapping[str, Any]
"""Who drives a run: ``pid``, ``starttime`` and ``boot_id`` of the engine's process."""


class Journal:
    """One run's journal. Open it with :meth:`create`, :meth:`open` or :meth:`read`; close it when done."""

    def __init__(self, connection: sqlite3.Connection, path: Path, epoch: int = 0) -> None:
        self._db = connection
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.path = path
        self.epoch = epoch

    @classmethod
    def create(cls, path: Path) -> Journal:
        """Make a new journal. Raises :class:`StateError` where there is one, or the folder is read-only or full."""
        if path.exists():
            raise StateError(f"{path}: exists already; choose another name for the run")
        with _clear_errors(path):
            connection = _connect(path, "rwc")
            try:
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
            except sqlite3.Error:
                connection.close()
                raise
            return cls(connection, path)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open for writing; :meth:`take` the lease before the first append. Raises :class:`StateError` where it cannot be."""
        _there(path)
        with _clear_errors(path):
            return cls(_checked(_connect(path, "rw"), path), path)

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Open for reading only, also where the folder is read-only or belongs to somebody else."""
        _there(path)
        with _clear_errors(path):
            try:
                return cls(_checked(_open(path, "mode=ro"), path), path)
            except sqlite3.OperationalError:  # SQLite cannot make the files beside it that a reader needs
                wal = path.with_name(f"{path.name}-wal")
                if wal.exists() and wal.stat().st_size:
                    return cls._read_copy(path, wal)
                return cls(_checked(_open(path, "mode=ro&immutable=1"), path), path)

    @classmethod
    def _read_copy(cls, path: Path, wal: Path) -> Journal:
        """Read a copy together with its log: an immutable file alone would be a shorter history."""
        folder = tempfile.TemporaryDirectory(prefix="spotwright-")
        copy = Path(folder.name) / path.name
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(wal, copy.with_name(wal.name))
            journal = cls(_checked(_open(copy, "mode=rw"), path), path)
        except OSError as error:
            folder.cleanup()
            raise StateError(f"{path}: cannot be read ({error.strerror})") from error
        journal._copy = folder
        return journal

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    # -- the lease

    def take(self, owner: Lease, is_alive: Callable[[Lease], bool]) -> int:
        """Take the run over: the next epoch, which fences every earlier engine. Returns the epoch.

        Raises :class:`RunBusy` while the engine that holds the lease is alive.
        """
        with _clear_errors(self.path), self._transaction():
            epoch, held = self._db.execute("SELECT epoch, owner FROM lease").fetchone()
            if held and is_alive(json.loads(held)):
                pid = json.loads(held).get("pid")
                raise RunBusy(
                    f"run {self.path.parent.name} is driven by another engine (process {pid}): wait for it or cancel it"
                )
            self.epoch = epoch + 1
            self._db.execute("UPDATE lease SET epoch = ?, owner = ?", (self.epoch, json.dumps(dict(owner))))
        return self.epoch

    def give_up(self) -> None:
        """Give the lease back at the end of an engine, where it is still ours."""
        with _clear_errors(self.path), self._transaction():
            self._db.execute("UPDATE lease SET owner = '' WHERE epoch = ?", (self.epoch,))

    def holder(self) -> Lease | None:
        """Who holds the lease; whether that process is still alive is the caller's question."""
        with _clear_errors(self.path):
            held = self._db.execute("SELECT owner FROM lease").fetchone()[0]
        return json.loads(held) if held else None

    # -- events

    def append(self, events: Iterable[Event]) -> None:
        """Append events in one durable transaction.

        Raises :class:`Fenced` when another engine has taken the run, :class:`StateError` when the disk is full.
        """
        rows = [(e.at, e.kind, e.task, e.attempt, json.dumps(e.data, separators=(",", ":"))) for e in events]
        with _clear_errors(self.path), self._transaction():
            if self._db.execute("SELECT epoch FROM lease").fetchone()[0] != self.epoch:
                raise Fenced(f"run {self.path.parent.name} was taken over by another engine")
            self._db.executemany(_INSERT, rows)

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The events after a sequence number, each with its own."""
        read = json.JSONDecoder().raw_decode
        query = "SELECT seq, at, kind, task, attempt, data FROM events WHERE seq > ? ORDER BY seq"
        with _clear_errors(self.path):
            for seq, at, kind, task, attempt, data in self._db.execute(query, (after,)):
                yield seq, Event(kind, at, task, attempt, read(data)[0])

    # -- requests of other processes to the engine

    def request(self, kind: str, at: float) -> None:
        """Ask the engine for something (``cancel``); it looks when it is woken."""
        with _clear_errors(self.path), self._transaction():
            self._db.execute("INSERT INTO requests (kind, at) VALUES (?, ?)", (kind, at))

    def take_requests(self) -> list[str]:
        """The requests since the last call, which are then gone."""
        with _clear_errors(self.path), self._transaction():
            kinds = [kind for (kind,) in self._db.execute("SELECT kind FROM requests ORDER BY id")]
            if kinds:
                self._db.execute("DELETE FROM requests")
        return kinds

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def _there(path: Path) -> None:
    if not path.exists():
        raise StateError(f"{path}: there is no journal")


def _open(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path.resolve()))}?{options}", uri=True, isolation_level=None, timeout=30)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = _open(path, f"mode={mode}")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _checked(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error:
        connection.close()
        raise
    if version == FORMAT:
        return connection
    connection.close()
    if version > FORMAT:
        raise StateError(
            f"{path}: written by a newer version of spotwright (format {version}, this one knows {FORMAT}): upgrade"
        )
    raise StateError(f"{path}: is not a journal of spotwright")


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line with the place and the fix."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise StateError(f"{path}: is damaged ({error}); nothing can be read from there on") from error
    except sqlite3.Error as error:
        text = str(error)
        if "disk is full" in text or "disk I/O" in text:
            raise StateError(
                f"{path}: the disk is full or failing ({text}); free some space, then resume the run"
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise StateError(f"{path}: cannot be written ({text}); choose another folder with --state") from error
        raise StateError(f"{path}: {text}") from error
