"""The lines of all runs, kept in one SQLite file for each state folder, in the user's cache folder.

A run's line needs its folded journal: 10,000 runs take minutes. A line is valid while its run's stamp is unchanged, so each is
made once: the newest and the viewed ones first, the others by :meth:`RunIndex.step`, one at a time. A lost or damaged file, or
one of another format, is rebuilt; if files cannot be written, the lines are kept in memory. Any number of pages may share a
file.

Every line comes from :func:`spotwright.page.heads.line`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from spotwright.engine.events import RunStatus
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.model.attempts import Cause
from spotwright.page.run_sources import RunName, RunsSource

__all__ = ["RunIndex", "index_path"]

_LOG = logging.getLogger(__name__)

_FORMAT = 1  # in SQLite's user_version; files of other formats are rebuilt
_AT_ONCE = 0.6  # seconds for an answer to read missing lines; the others follow
_FIRST = 50  # newest runs that are read before a filter or an order applies
_MOST = 500  # lines in one answer
_MOST_PROBLEMS = 20
_PAUSE = 1.0  # seconds at least between two reads of an active run, while it is viewed
_PAUSE_UNSEEN = 10.0
_SHARE = 10.0  # an active run is read again after this many times the duration of the read
_LOOKED = 15.0  # seconds after the last view of the list in which active runs are read again

_SORTED = (
    "run",
    "status",
    "progress",
    "began",
    "took",
    "attempts",
    "interruptions",
    "errors",
    "cost",
    "wasted",
    "saved",
)
"""Sort keys of lists; a leading dash sorts in descending order."""

_GROUPS = ("interruption", "error")
"""Groups of causes in filters: each line counts them."""

_TABLE = f"""
CREATE TABLE runs (name TEXT PRIMARY KEY, made_at INTEGER NOT NULL, stamp TEXT NOT NULL, line TEXT NOT NULL,
                   is_problem INTEGER NOT NULL, searched TEXT NOT NULL, namespace TEXT NOT NULL, causes TEXT NOT NULL,
                   {", ".join(f'"sort_{name}"' for name in _SORTED)});
PRAGMA user_version = {_FORMAT};
"""
_COLUMNS = 8 + len(_SORTED)

T = TypeVar("T")


def index_path(state: Path) -> Path:
    """The file for a state folder: ``spotwright/page/DIGEST.db`` in ``$XDG_CACHE_HOME``, or in ``~/.cache``.

    Raises :class:`RuntimeError` if the home folder is unknown.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path.home() / ".cache"  # XDG ignores relative paths
    return cache / "spotwright" / "page" / f"{hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:32]}.db"


class _Asked(NamedTuple):
    """A parsed question; see :meth:`RunIndex.runs`."""

    limit: int
    first: int
    before: str
    status: str
    cause: str
    namespace: str
    text: str
    sort: str

    @property
    def is_all(self) -> bool:
        return not (self.status or self.cause or self.namespace or self.text or self.sort)


class RunIndex:
    """The lines of the runs of a source.

    ``path``: the file, or ``None`` for lines in memory. ``line`` reads one run, or raises :class:`SpotwrightError`.
    """

    def __init__(self, source: RunsSource, path: Path | None, line: Callable[[str], dict[str, Any]]) -> None:
        self._source, self._path, self._line = source, path, line
        self._db = self._opened()
        self._listed: Sequence[RunName] | None = None  # the list as the source gave it
        self._names: Sequence[RunName] = ()
        self._missing: dict[str, RunName] = {}  # runs without a line, or with an old one, newest first
        self._lineless: set[str] = set()  # the ones without a line
        self._read: dict[str, tuple[float, float]] = {}  # the last read of a run, and its duration
        self._looked_at = -_LOOKED

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -- questions

    def runs(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The lines of the runs that match a question.

        ``limit`` (50, at most 500), ``from`` (the number of the first row, from 0) or ``before`` (go on after the run of this
        name); ``status``, ``cause`` (a cause, ``interruption`` or ``error``), ``namespace``, ``q`` (text that the name or the
        pipeline contains); ``sort`` (by default the newest first).

        In the answer ``total`` counts all rows, ``next`` is the value of ``before`` for the next page (empty at the end), and
        ``indexed`` of ``of`` runs have a line: only these are filtered and ordered. The row of a run that was not read yet has
        ``unread``, of an unreadable run ``problem``; both have only ``run`` and ``started_at`` besides. Raises
        :class:`InputError`.
        """
        asked = _asked(question)
        if asked.cause and asked.cause not in _GROUPS and not self._source.tells_causes:
            raise InputError(f"cause={asked.cause}: a cluster's list does not have causes; use interruption or error")
        self._looked_at = time.monotonic()
        self._sync()
        if asked.is_all:
            rows = [run.name for run in self._names]
        else:
            self._fill([run.name for run in self._names[:_FIRST]])
            rows = self._matching(asked)
        first = asked.first
        if asked.before:
            first = next((number + 1 for number, name in enumerate(rows) if name == asked.before), len(rows))
        shown = rows[first : first + asked.limit]
        self._fill(shown)
        problems = self._stored("is_problem LIMIT ?", [_MOST_PROBLEMS])
        return {
            "lines": self._lines(shown),
            "next": shown[-1] if shown and first + len(shown) < len(rows) else "",
            "first": first,
            "total": len(rows),
            "indexed": len(self._names) - len(self._lineless),
            "of": len(self._names),
            "problems": [
                *({"run": line["run"], "message": line["problem"]} for line in problems),
                *({"run": run, "message": message} for run, message in self._source.problems),
            ],
            "left_out": list(self._source.left_out()),
        }

    def _lines(self, names: Sequence[str]) -> list[dict[str, Any]]:
        found = self._stored(f"name IN ({','.join('?' * len(names))})", names)
        lines = {line["run"]: line for line in found}
        made_at = {run.name: run.made_at for run in self._names}
        return [
            lines.get(name) or {"run": name, "started_at": made_at[name] / 1e9, "unread": True}
            for name in names
            if name in lines or name in made_at
        ]

    def _stored(self, condition: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        text = f"SELECT line FROM runs WHERE {condition}"  # noqa: S608  # conditions are of this module
        return self._do(lambda db: [_loaded(row) for row in db.execute(text, values)])

    def _matching(self, asked: _Asked) -> list[str]:
        """The names of all runs that match a question, in its order."""
        conditions, values = ["1"], list[Any]()
        if asked.status:
            conditions.append("sort_status = ?")
            values.append(asked.status)
        if asked.cause in _GROUPS:
            conditions.append(f"sort_{asked.cause}s > 0")
        elif asked.cause:
            conditions.append("instr(causes, ?)")
            values.append(f"\n{asked.cause}\n")
        if asked.namespace:
            conditions.append("namespace = ?")
            values.append(asked.namespace)
        if asked.text:
            conditions.append("instr(searched, ?)")
            values.append(asked.text.casefold())
        order = "made_at DESC, name DESC"
        if asked.sort:
            column = f"sort_{asked.sort.removeprefix('-')}"
            order = f"{column} IS NULL, {column} {'DESC' if asked.sort.startswith('-') else 'ASC'}, {order}"
        text = f"SELECT name FROM runs WHERE {' AND '.join(conditions)} ORDER BY {order}"  # noqa: S608  # words of this module
        return [name for (name,) in self._do(lambda db: db.execute(text, values).fetchall())]

    # -- lines

    def step(self) -> bool:
        """Read one run whose line is missing or outdated. ``False``: nothing to do now."""
        now = time.monotonic()
        goes_on = now - self._looked_at < _LOOKED
        if goes_on:
            with suppress(SpotwrightError):  # the next request reports it
                self._sync()
        for name in self._missing:
            if name in self._lineless or (goes_on and self._is_due(name, now, _PAUSE_UNSEEN)):
                self._fill_one(name)
                return True
        return False

    def _sync(self) -> None:
        """List the runs, and find those whose lines are missing or outdated."""
        names = self._source.names()
        if names is self._listed:
            return
        self._listed = names
        known = self._do(
            lambda db: {row[0]: row[1:] for row in db.execute("SELECT name, made_at, stamp FROM runs").fetchall()}
        )
        self._names = names
        there = {run.name for run in names}
        self._missing = {
            run.name: run for run in names if not run.stamp or known.get(run.name) != (run.made_at, run.stamp)
        }
        self._lineless = {name for name, run in self._missing.items() if known.get(name, (0,))[0] != run.made_at}
        gone = [(name,) for name in known if name not in there]
        gone += [(name,) for name in self._lineless if name in known]  # another run has the name
        if gone:
            self._do(lambda db: db.executemany("DELETE FROM runs WHERE name = ?", gone))
        if len(self._read) > 2 * len(names) + 100:
            self._read = {name: read for name, read in self._read.items() if name in there}

    def _is_due(self, name: str, now: float, pause: float) -> bool:
        at, took = self._read.get(name, (-pause, 0.0))
        return now - at >= max(pause, _SHARE * took)

    def _fill(self, names: Sequence[str]) -> None:
        """Read the runs of these whose lines are missing, then those with outdated lines, while there is time."""
        until = time.monotonic() + _AT_ONCE
        wanted = [name for name in names if name in self._missing]
        for name in sorted(wanted, key=lambda name: name not in self._lineless):
            now = time.monotonic()
            if now > until:
                return
            if name in self._lineless or self._is_due(name, now, _PAUSE):
                self._fill_one(name)

    def _fill_one(self, name: str) -> None:
        run, began = self._missing[name], time.monotonic()
        stamp = run.stamp
        try:
            line = self._line(name)
            columns = json.dumps(line), 0, *_row(line)
            if line.get("driven"):
                stamp = ""  # its engine may end without an event in the journal
        except UnknownRun:  # it was deleted meanwhile
            self._missing.pop(name)
            self._lineless.discard(name)
            self._names = [each for each in self._names if each.name != name]
            return
        except (SpotwrightError, OSError) as error:
            columns = _problem_row(run, str(error))
        except Exception:  # noqa: BLE001  # one run, whatever its files say, must not hide all others
            _LOG.exception("run %s cannot be read", name)
            columns = _problem_row(run, f"run {name} cannot be read: see the page's terminal for details")
        row = (name, run.made_at, stamp, *columns)
        marks = ",".join("?" * _COLUMNS)
        self._do(lambda db: db.execute(f"INSERT OR REPLACE INTO runs VALUES ({marks})", row))  # noqa: S608  # marks
        now = time.monotonic()
        self._read[name] = now, now - began
        self._lineless.discard(name)
        if stamp:
            del self._missing[name]

    # -- the file

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Work on the file; on a new one if it is damaged, in memory if it is unusable."""
        for _ in range(2):
            try:
                return work(self._db)
            except (sqlite3.Error, _Damaged) as error:
                self._db.close()
                if not isinstance(error, sqlite3.OperationalError) or str(error).startswith("no such"):
                    self._delete()
                else:
                    self._path = None
                self._db, self._listed = self._opened(), None
        self._db.close()
        self._path = self._listed = None
        self._db = self._opened()
        return work(self._db)

    def _opened(self) -> sqlite3.Connection:
        """The file, rebuilt if missing or of another format; else a database in memory."""
        path = self._path
        for _ in range(2):
            if path is None:
                break
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                return _connected(str(path))
            except (sqlite3.OperationalError, OSError):
                break
            except sqlite3.DatabaseError:
                self._delete()
        self._path = None
        return _connected(":memory:")

    def _delete(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


class _Damaged(Exception):
    """An invalid line of the file."""


def _loaded(row: tuple[str]) -> dict[str, Any]:
    try:
        line: dict[str, Any] = json.loads(row[0])
    except ValueError as error:
        raise _Damaged from error
    return line


def _connected(path: str) -> sqlite3.Connection:
    """A connection to a file of this format. Raises :class:`sqlite3.Error`."""
    db = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    try:
        if path != ":memory:":
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        db.execute("BEGIN IMMEDIATE")  # two pages may begin at once
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in _TABLE.split(";"):
                db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    if version not in (0, _FORMAT):
        db.close()
        raise sqlite3.DatabaseError("of another format")
    return db


def _problem_row(run: RunName, message: str) -> tuple[Any, ...]:
    """The stored row of a run that cannot be read."""
    line = {"run": run.name, "started_at": run.made_at / 1e9, "problem": message}
    return json.dumps(line), 1, *_row(line)


def _row(line: Mapping[str, Any]) -> list[Any]:
    """The columns by which a line is found and sorted."""
    searched = f"{line['run']}\n{line.get('pipeline', '')}".casefold().encode(errors="replace").decode()
    causes = "".join(f"\n{cause}\n" for cause in line.get("causes") or ())
    sorts = {
        **line,
        "began": line.get("started_at"),
        "took": line.get("seconds"),
        "cost": _figure(line.get("cost")),
        "wasted": _figure(line.get("wasted")),
        "saved": _figure(line.get("saved")),
    }
    return [searched, str(line.get("namespace") or ""), causes, *(sorts.get(name) for name in _SORTED)]


def _figure(amount: Any) -> float | None:
    """The money of an amount, or its seconds without prices; for a range its middle."""
    if not isinstance(amount, Mapping):
        return None if amount is None else float(amount)
    if "low" in amount:
        low, high = _figure(amount["low"]), _figure(amount["high"])
        return None if low is None or high is None else (low + high) / 2
    return _figure(amount["seconds"] if amount["money"] is None else amount["money"])


def _asked(question: Mapping[str, Any]) -> _Asked:
    status, cause, sort = (str(question.get(name) or "") for name in ("status", "cause", "sort"))
    _check("status", status, [each.value for each in RunStatus])
    _check("cause", cause, [*_GROUPS, *(each.value for each in Cause)])
    _check("sort", sort.removeprefix("-"), _SORTED)
    return _Asked(
        limit=min(_MOST, max(1, _number(question, "limit", 50))),
        first=_number(question, "from", 0),
        before=str(question.get("before") or ""),
        status=status,
        cause=cause,
        namespace=str(question.get("namespace") or ""),
        text=str(question.get("q") or ""),
        sort="" if sort == "-began" else sort,
    )


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value and value not in known:
        raise InputError(f"{name}={value[:40]}: expected one of {', '.join(known)}")


def _number(question: Mapping[str, Any], name: str, default: int) -> int:
    text = str(question.get(name) or default)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InputError(f"{name}={text[:40]}: expected a whole number")
    return int(text)
