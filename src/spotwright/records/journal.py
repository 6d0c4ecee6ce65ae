"""The journal of a run: an append-only SQLite file that only the engine with the lease may write.

It uses WAL with ``synchronous=FULL``: events survive ``kill -9`` and power loss once :meth:`Journal.append` has returned, and
SQLite recognises a torn tail, which would otherwise look like a shorter history. Every append checks the epoch of the lease in
the same transaction, so an engine that lost its run stops writing. Readers never block the engine. In a folder that
cannot be written they read the file as immutable, or a copy of a file that a killed engine left with an unfinished log.
Files alone show whether thousands of journals may have changed, without opening them.

A journal may be untrusted. So its files must be regular and of bounded size, its schema only tables (views, triggers and
expressions would be evaluated here), its rows ascending, and each query has a deadline.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from spotwright.engine.event_codec import BadEvent, RowReader, UnknownEvent, encode
from spotwright.engine.events import EngineStarted, Event
from spotwright.engine.ports import REQUESTS, Holder, Lease, Liveness
from spotwright.errors import Fenced, RunBusy, StateError
from spotwright.regular_files import require_regular

if TYPE_CHECKING:
    import tempfile


__all__ = ["FORMAT", "Journal", "JournalRow", "JournalStamp", "decoded", "journal_stamp"]


JournalRow = tuple[int, float, str, str, int, str]
"""A stored event: its sequence number, moment, kind, task, attempt and data as JSON text."""

FORMAT = 2
"""The format of journals, in SQLite's ``user_version``. Journals of format 1 (version 0.1) can be read as well.

Format 2 has more kinds of event, and leases that expire. An engine that resumes a run of format 1 converts its journal to
format 2.
"""

_SCHEMA = """
CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, task TEXT NOT NULL,
                     attempt INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE lease (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, owner TEXT NOT NULL,
                    renewed_at REAL NOT NULL DEFAULT 0, expires_at REAL);
CREATE TABLE requests (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL);
INSERT INTO lease (one, epoch, owner) VALUES (1, 0, '');
"""
_LEASE = "SELECT epoch, owner, renewed_at, expires_at FROM lease"
_LEASE_1 = "SELECT epoch, owner, 0.0, NULL FROM lease"  # a lease of format 1 does not expire
_TO_JSON = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make an encoder for every event
_ROWS = (
    "SELECT seq, at, kind, task, attempt, data FROM events WHERE seq > :after"
    " AND (:task = '' OR task IN ('', :task) OR substr(task, 1, length(:task) + 1) = :task || '/')"
    " ORDER BY seq LIMIT :most"
)
_INSERT = "INSERT INTO events (at, kind, task, attempt, data) VALUES (?, ?, ?, ?, ?)"

_LARGEST = 4_000_000_000  # bytes of a journal: 100,000 events have some ten millions
_LARGEST_VALUE = 64_000_000  # bytes of one event
_MOST_EVENTS = 1_000_000  # for readers; five seconds to read. An engine reads more of its run's
_DEADLINE = 10.0  # seconds for SQLite to find the next row
_STEPS = 100_000  # of SQLite's virtual machine between two looks at the clock, a few milliseconds
_TABLE = re.compile(r"CREATE TABLE \w+\s*\([^()]*\)")
_OUR_CHECK = " CHECK (one = 1)"

_FROM_FORMAT_1 = """
ALTER TABLE lease ADD COLUMN renewed_at REAL NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN expires_at REAL;
"""


class Journal:
    """One run's journal. Open it with :meth:`create`, :meth:`open` or :meth:`read`; close it when done."""

    def __init__(self, connection: _Connection, path: Path, epoch: int = 0) -> None:
        self._db = connection
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self.path = path
        self.epoch = epoch
        self._lasts: float | None = None  # validity of the lease in seconds without renewal
        self._renewed_at = 0.0

    @classmethod
    def create(cls, path: Path) -> Journal:
        """Create a journal. Raises :class:`StateError` if it exists, or if the folder is read-only or full."""
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
        """Open for writing; :meth:`take` the lease before the first append. Raises :class:`StateError` if that fails."""
        _require_files(path)
        with _clear_errors(path):
            return cls(_checked(_connect(path, "rw"), path), path)

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Open for reading only, also in a folder that is read-only or belongs to another user.

        Raises :class:`StateError` for a file that is not a journal, and for one with more than a million events.
        """
        _require_files(path)
        with _clear_errors(path):
            journal = cls._read(path)
            try:
                journal.require_few()
            except (StateError, sqlite3.Error):
                journal.close()
                raise
            return journal

    @classmethod
    def _read(cls, path: Path) -> Journal:
        try:
            return cls(_checked(_open(path, "mode=ro"), path), path)
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise
            # SQLite cannot create the files that a reader needs beside it
            wal = path.with_name(f"{path.name}-wal")
            if wal.exists() and wal.stat().st_size:
                return cls._read_copy(path, wal)
            return cls(_checked(_open(path, "mode=ro&immutable=1"), path), path)

    @classmethod
    def _read_copy(cls, path: Path, wal: Path) -> Journal:
        """Read a copy of the file and its log, without which the history would be shorter."""
        import shutil
        import tempfile

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

    def require_few(self) -> None:
        """Raise :class:`StateError` where the journal has more than a million events."""
        (last,) = self._db.execute("SELECT max(seq) FROM events").fetchone()
        if last is not None and last > _MOST_EVENTS:
            raise StateError(f"{self.path}: has more than {_MOST_EVENTS:,} events and cannot be read")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    # -- the lease

    def take(self, holder: Holder, is_alive: Liveness, *, now: float | None = None, lasts: float | None = None) -> int:
        """Take the lease with the next epoch, which fences every earlier engine. Returns the epoch.

        ``lasts`` is the lease's validity in seconds without renewal; by default the lifetime of its holder.
        Raises :class:`RunBusy` while another engine holds the lease.
        """
        now = time.time() if now is None else now
        with self._question(), self._transaction():
            self._upgrade()
            held = self._lease()
            if held is not None and held.is_held(now, is_alive):
                raise RunBusy(
                    f"run {self.path.parent.name} is driven by another engine ({_named(held.holder)}): "
                    "wait for it or cancel it"
                )
            epoch = self._epoch_in_force() + 1
            values = (epoch, json.dumps(dict(holder)), now, None if lasts is None else now + lasts)
            self._db.execute("UPDATE lease SET epoch = ?, owner = ?, renewed_at = ?, expires_at = ?", values)
            self._db.execute("DELETE FROM requests")  # they were for an earlier engine
        self.epoch, self._lasts, self._renewed_at = epoch, lasts, now
        return epoch

    def renew(self, now: float) -> float | None:
        """Renew a lease with expiry once a third of its time has passed. Returns the moment of the next call.

        ``None`` for a lease without expiry. Raises :class:`Fenced` after another engine took the run.
        """
        if self._lasts is None:
            return None
        if now >= self._renewed_at + self._lasts / 3:
            with self._question(), self._transaction():
                self._check_epoch()
                self._db.execute("UPDATE lease SET renewed_at = ?, expires_at = ?", (now, now + self._lasts))
            self._renewed_at = now
        return self._renewed_at + self._lasts / 3

    def give_up(self) -> None:
        """Release the lease, unless another engine has taken it."""
        with self._question(), self._transaction():
            self._db.execute("UPDATE lease SET owner = '' WHERE epoch = ?", (self.epoch,))

    def lease(self) -> Lease | None:
        """The lease; ``None`` since its release. :meth:`Lease.is_held` tells whether it is valid."""
        with self._question():
            return self._lease()

    def _lease(self) -> Lease | None:
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(lease)")}
        query = _LEASE if "expires_at" in columns else _LEASE_1
        epoch, owner, renewed_at, expires_at = self._db.execute(query).fetchone()
        return Lease(json.loads(owner), epoch, renewed_at, expires_at) if owner else None

    def _upgrade(self) -> None:
        """Convert a journal of format 1, which lacks kinds that the next event may have.

        Part of the transaction of :meth:`take`, so a crash or a refused lease leaves the old format.
        """
        if self._db.execute("PRAGMA user_version").fetchone()[0] == 1:
            for statement in _FROM_FORMAT_1.strip().splitlines():
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _check_epoch(self) -> None:
        if self._epoch_in_force() != self.epoch:
            raise Fenced(f"run {self.path.parent.name} was taken over by another engine")

    def _epoch_in_force(self) -> int:
        epoch: int = self._db.execute("SELECT epoch FROM lease").fetchone()[0]
        return epoch

    # -- events

    def append(self, events: Iterable[Event]) -> None:
        """Append events in one durable transaction.

        Raises :class:`Fenced` if another engine took the run, :class:`StateError` if the disk is full.
        """
        rows = [(at, kind, task, attempt, _TO_JSON(data)) for at, kind, task, attempt, data in map(encode, events)]
        with self._question(), self._transaction():
            self._check_epoch()
            self._db.executemany(_INSERT, rows)

    @property
    def size(self) -> int:
        """The bytes of its events on the disk."""
        with _clear_errors(self.path):
            pages, bytes_each = (
                self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
            )
        return int(pages * bytes_each)

    def events(self, after: int = 0, only_of: str = "") -> Iterator[tuple[int, Event]]:
        """The events after a sequence number, each with its own sequence number.

        ``only_of``: only events of this task, of the tasks inside it, and without a task. Filtering here is ten times as fast
        as reading all.
        """
        with closing(self.rows(after, only_of=only_of)) as rows:
            yield from decoded(rows, str(self.path), self._writer)

    def rows(self, after: int = 0, *, at_most: int = -1, only_of: str = "") -> Generator[JournalRow, None, None]:
        """The rows after a sequence number as they are stored, for decoding elsewhere; -1: all of them."""
        with self._question():
            rows = self._db.execute(_ROWS, {"after": after, "most": at_most, "task": only_of})
            last = after
            for row in rows:
                if not isinstance(row[0], int) or row[0] <= last:  # a file's pages may be repeated or form a cycle
                    raise StateError(f"{self.path}: is damaged (event {row[0]} follows event {last})")
                last = row[0]
                yield row
                self._db.begin()

    def first_and_last(self) -> tuple[Event | None, str]:
        """The first event, and the kind of the last one; None and an empty text for a journal without events.

        For lists of many runs, few of which are read in full.
        """
        with self._question():
            last = self._db.execute("SELECT kind FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        first = next((event for _, event in self.events()), None)
        return first, last[0] if last else ""

    def last(self, kind: str) -> Event | None:
        """The last event of a kind. Raises :class:`StateError` for one that cannot be read."""
        query = "SELECT seq, at, kind, task, attempt, data FROM events WHERE kind = ? ORDER BY seq DESC LIMIT 1"
        with self._question():
            rows = self._db.execute(query, (kind,)).fetchall()
        return next((event for _, event in decoded(rows, str(self.path), self._writer)), None)

    def _writer(self) -> str:
        """The version of the run's newest engine, which can read the whole journal."""
        query = "SELECT data FROM events WHERE kind = ? ORDER BY seq DESC LIMIT 1"
        row = self._db.execute(query, (EngineStarted.kind,)).fetchone()
        version = json.loads(row[0]).get("version") if row else None
        return f" ({version})" if version else ""

    # -- requests of other processes to the engine

    def request(self, kind: str, at: float) -> None:
        """Leave a request, one of :data:`~spotwright.engine.ports.REQUESTS`. The engine reads it when it is woken."""
        if kind not in REQUESTS:
            raise ValueError(f"an engine can be asked for {' or '.join(REQUESTS)}, not {kind!r}")
        with self._question(), self._transaction():
            self._db.execute("INSERT INTO requests (kind, at) VALUES (?, ?)", (kind, at))

    def take_requests(self) -> list[str]:
        """Remove and return the requests, oldest first."""
        with self._question(), self._transaction():
            kinds = [kind for (kind,) in self._db.execute("SELECT kind FROM requests ORDER BY id")]
            if kinds:
                self._db.execute("DELETE FROM requests")
        return kinds

    @contextmanager
    def _question(self) -> Iterator[None]:
        """Start the deadline of a query, and turn SQLite's errors into one line."""
        self._db.begin()
        with _clear_errors(self.path):
            yield

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


def decoded(rows: Iterable[JournalRow], place: str, writer: Callable[[], str]) -> Iterator[tuple[int, Event]]:
    """The events of rows, each with its sequence number. ``place`` names the journal in messages, ``writer`` its engine.

    Raises :class:`StateError` for a row that cannot be read.
    """
    read, seq = RowReader().decode, 0
    try:
        for seq, at, kind, task, attempt, data in rows:
            yield seq, read(at, kind, task, attempt, data)
    except json.JSONDecodeError as error:
        raise StateError(f"{place}: is damaged ({error}) and cannot be read beyond that point") from error
    except RecursionError:
        raise StateError(f"{place}: event {seq} has a value that is nested too deeply to be read") from None
    except UnknownEvent as error:
        raise StateError(
            f"{place}: event {seq} is {error}; a newer version of spotwright wrote it{writer()}: upgrade"
        ) from None
    except BadEvent as error:
        raise StateError(f"{place}: event {seq} is {error}") from None


def _named(holder: Holder) -> str:
    return f"process {holder['pid']}" if "pid" in holder else str(holder.get("name", holder))


def _require_files(path: Path) -> None:
    """Raise :class:`StateError` unless the journal, and SQLite's files beside it, are regular files of bounded size."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = f"{path}{suffix}"
        try:
            require_regular(os.lstat(file), _LARGEST)
        except FileNotFoundError:
            if not suffix:
                raise StateError(f"{path}: no journal") from None
        except OSError as error:
            raise StateError(f"{file}: is not a journal of spotwright ({error.strerror})") from error


class _Connection(sqlite3.Connection):
    """A connection whose queries have a deadline, from :meth:`begin`."""

    _ends = 0.0

    def begin(self) -> None:
        """Start the deadline of the next query or row."""
        self._ends = time.monotonic() + _DEADLINE

    def is_over(self) -> bool:
        """Whether the deadline has passed; SQLite calls it and then interrupts the query."""
        return time.monotonic() > self._ends


def _open(path: Path, options: str) -> _Connection:
    name = quote(os.fsencode(path.resolve()))  # a name that the locale cannot decode is opened by its bytes
    uri = f"file:{name}?{options}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30, factory=_Connection)
    connection.begin()
    connection.set_progress_handler(connection.is_over, _STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
    return connection


def _connect(path: Path, mode: str) -> _Connection:
    connection = _open(path, f"mode={mode}")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _checked(connection: _Connection, path: Path) -> _Connection:
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        foreign = version in (1, FORMAT) and _foreign(connection)
    except sqlite3.Error:
        connection.close()
        raise
    if version in (1, FORMAT) and not foreign:
        return connection
    connection.close()
    if foreign:
        raise StateError(f"{path}: is not a journal of spotwright (its schema has: {foreign[:60]!r})")
    if version > FORMAT:
        raise StateError(
            f"{path}: written by a newer version of spotwright (format {version}, this one reads up to {FORMAT}): upgrade"
        )
    raise StateError(f"{path}: is not a journal of spotwright")


def _foreign(connection: _Connection) -> str:
    """The first item of a schema that is not a plain table: a view, a trigger, an index, a table with an expression; or empty.

    SQLite parses each row's ``sql``; other columns do not matter. Expressions have parentheses.
    """
    for (text,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if not _TABLE.fullmatch(str(text).replace(_OUR_CHECK, "")):
            return str(text)
    return ""


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line that names the file and the fix."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise StateError(f"{path}: is damaged ({error}) and cannot be read beyond that point") from error
    except sqlite3.Error as error:
        text = str(error)
        if text == "interrupted":
            raise StateError(f"{path}: cannot be read: a query took more than {_DEADLINE:g} s") from error
        if "disk is full" in text or "disk I/O" in text:
            raise StateError(
                f"{path}: the disk is full or failing ({text}); free some space, then resume the run"
            ) from error
        if "readonly" in text or "unable to open" in text:
            raise StateError(f"{path}: cannot be written ({text}); choose another folder with --state") from error
        raise StateError(f"{path}: {text}") from error


JournalStamp = tuple[int, ...]

_WHILE = 2_000_000_000  # nanoseconds after which another write surely gives a file another time


def journal_stamp(journal: Path) -> JournalStamp | None:
    """A stamp that changes with the journal. ``None`` after a write so recent that the next one may not show.

    Take it before the journal is read: later writes change the next stamp.
    """
    now, wal = time.time_ns(), f"{os.fspath(journal)}-wal"
    stamp: list[int] = []
    for path in (os.fspath(journal), wal):  # pathlib is slow for thousands
        try:
            status = os.stat(path)  # noqa: PTH116
        except FileNotFoundError:
            stamp += [0, 0, 0]
            continue
        if path == wal and not status.st_size:  # left empty by a reader
            stamp += [0, 0, 0]
            continue
        if now - status.st_mtime_ns < _WHILE:
            return None
        stamp += [status.st_mtime_ns, status.st_size, status.st_ino]
    return tuple(stamp)
