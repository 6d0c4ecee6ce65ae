"""Which pools are left out because they had no node: computed from the journals, and told to all replicas by a file.

The journals say when an attempt was taken back, and when one got a node. The leader computes the pauses from these facts when
it begins, and goes on from what it records. The file in the state folder tells the other replicas, whose webhooks choose
rungs, and the server for readers; if it is lost, the next leader writes it anew. The numbers of what was moved and what waits
are counted here for the metrics.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Literal

from spotwright.engine.events import AttemptBound, AttemptTakenBack, Event
from spotwright.errors import StateError
from spotwright.records.journal import Journal, decoded
from spotwright.records.state_folder import StateFolder
from spotwright.scheduling.budgets import CEILING, Pause, left_out

__all__ = ["LEFT_OUT_FILE", "Move", "PoolPauses", "PoolsLeftOut", "Tally", "read_pauses"]


LEFT_OUT_FILE = Path("controller") / "pools-left-out.json"
"""The file, from the state folder on."""

_LOG = logging.getLogger(__name__)
_KINDS = (AttemptTakenBack.kind, AttemptBound.kind)
_READ = 6 * CEILING  # seconds: journals that nobody has written for longer hold no pause that counts


class PoolPauses:
    """The pauses as the leader knows them. ``taken`` are the moments at which an attempt last got a node of a pool."""

    def __init__(self, state: StateFolder) -> None:
        self._path = state.path / LEFT_OUT_FILE
        self.pauses: dict[str, Pause] = {}
        self.taken: dict[str, float] = {}

    def begin(self, state: StateFolder, now: float) -> None:
        """Compute the pauses from the journals of the last hours, and write the file."""
        facts = sorted(_facts(state, now), key=lambda event: event.at)
        for event in facts:
            self._take(event)
        self._write()

    def take(self, event: Event) -> None:
        """Take a fact that is in a journal now."""
        before = dict(self.pauses)
        self._take(event)
        if self.pauses != before:
            self._tell(before)
            self._write()

    def _take(self, event: Event) -> None:
        if isinstance(event, AttemptTakenBack):
            for pool, (until, times) in event.left_out.items():
                known = self.pauses.get(pool)
                if known is None or until > known.until:
                    self.pauses[pool] = Pause(times, event.at, until)
        elif isinstance(event, AttemptBound):
            self.taken[event.pool] = max(event.at, self.taken.get(event.pool, 0.0))
            pause = self.pauses.get(event.pool)
            if pause is not None and event.at >= pause.since:
                del self.pauses[event.pool]

    def _tell(self, before: Mapping[str, Pause]) -> None:
        for pool in before.keys() - self.pauses.keys():
            _LOG.info("pool %s has nodes again: attempts are sent there as before", pool)
        for pool, pause in self.pauses.items():
            if before.get(pool) != pause:
                text = "pool %s had no node for an attempt: it is left out for %g s (%d in a row)"
                _LOG.warning(text, pool, pause.until - pause.since, pause.times)

    def _write(self) -> None:
        """Replace the file as a whole. Without it the webhook leaves no pool out, so a full disk stops nothing."""
        pauses = {pool: pause._asdict() for pool, pause in self.pauses.items()}
        new = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text(json.dumps(pauses), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            _LOG.warning("%s: cannot be written (%s); the webhook leaves out no pool", self._path, error.strerror)


class PoolsLeftOut:
    """The pools that are left out at a moment, for replicas that only read: the file is read again when it has changed."""

    def __init__(self, state: StateFolder) -> None:
        self._path = state.path / LEFT_OUT_FILE
        self._stamp: tuple[int, int] | None = None
        self._pauses: Mapping[str, Pause] = {}

    def at(self, now: float) -> frozenset[str]:
        """The pools that are left out at this moment."""
        return frozenset(self.pauses(now))

    def pauses(self, now: float) -> Mapping[str, Pause]:
        """The pools that are left out at this moment, with their pauses."""
        try:
            stat = self._path.stat()
        except OSError:
            return {}
        if self._stamp != (stat.st_mtime_ns, stat.st_ino):
            self._stamp, self._pauses = (stat.st_mtime_ns, stat.st_ino), read_pauses(self._path)
        return {pool: self._pauses[pool] for pool in left_out(self._pauses, now)}


def read_pauses(path: Path) -> Mapping[str, Pause]:
    """The pauses in the file; none if it is not there, or cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(pool): Pause(int(one["times"]), float(one["since"]), float(one["until"])) for pool, one in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s: cannot be read (%s); no pool is left out", path, error)
        return {}


def _facts(state: StateFolder, now: float) -> Iterable[Event]:
    """What journals that were written lately say about pools."""
    for folder in state.runs():
        try:
            if folder.journal.stat().st_mtime < now - _READ and not _has_log(folder.journal):
                continue
            with closing(Journal.read(folder.journal)) as journal:
                rows = [row for row in journal.rows() if row[2] in _KINDS]
                yield from (event for _, event in decoded(rows, str(folder.journal), str) if event.at > now - _READ)
        except (OSError, StateError) as error:
            _LOG.warning("run %s tells nothing about pools: %s", folder.name, error)


def _has_log(journal: Path) -> bool:
    """Whether events wait in the journal's write-ahead log, which does not change the time of the file."""
    wal = journal.with_name(f"{journal.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


Move = Literal["taken-back", "evicted", "deleted"]
"""Decided about an attempt that waited in vain; its pod evicted; a pod deleted whose machine is gone."""


class Tally:
    """Since this process has begun. ``is_leading``: this replica watches and moves now."""

    def __init__(self) -> None:
        self._moves: Counter[Move] = Counter({"taken-back": 0, "evicted": 0, "deleted": 0})
        self._waiting: dict[str, tuple[str, str]] = {}  # pod UID -> namespace and Kubernetes' reason
        self.is_leading = False

    def moved(self, what: Move) -> None:
        """Count one move."""
        self._moves[what] += 1

    def waits(self, uid: str, namespace: str, reason: str) -> None:
        """Note that a pod waits for a node; without a reason the scheduler has not said why."""
        self._waiting[uid] = (namespace, reason or "NotScheduledYet")

    def waits_no_more(self, uid: str) -> None:
        """Note that a pod has a node, or is gone."""
        self._waiting.pop(uid, None)

    def begin(self) -> None:
        """This replica begins to watch: what waits is found anew."""
        self._waiting.clear()
        self.is_leading = True

    def end(self) -> None:
        """This replica watches no more, and knows nothing of what waits."""
        self.is_leading = False
        self._waiting.clear()

    @property
    def moves(self) -> Mapping[Move, int]:
        """How often each move happened."""
        return dict(self._moves)

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        """How many pods wait, by namespace and reason."""
        return Counter(dict(self._waiting).values())
