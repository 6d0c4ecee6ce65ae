"""The records of runs as objects of the Kubernetes API: how events are stored in them, and how a run is reassembled.

A run is a SpotRun with its plan and the events without a task, a SpotTask for each task with events or its own template, and a
SpotAttempt for each attempt. Each holds its part of the run's journal as lines of text, with more pages if that would exceed
:data:`PAGE` bytes: the API server stores no object above 1.5 MB (etcd's request limit), and each write sends a whole object to
every watcher.

Several objects cannot be written in one transaction, and a former recorder may still have a write under way. So each line says
which events were recorded together, and in which epoch. Readers accept events recorded together all or none, in order of their
numbers, and ignore lines of an earlier epoch from the first number of a later one on (:class:`RunRows`). So the order in which
objects are written, listed or watched does not matter.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from spotwright.engine.event_codec import encode
from spotwright.engine.events import EngineStarted, Event, PlanExtended
from spotwright.errors import StateError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.records.journal import JournalRow

__all__ = [
    "AGE",
    "API_VERSION",
    "ATTEMPT",
    "DELETED_UNTIL",
    "ENDED_LABEL",
    "KINDS",
    "PAGE",
    "RUN",
    "TAIL",
    "TASK",
    "WORKLOAD_LABEL",
    "Home",
    "ListedParts",
    "RunRows",
    "StoredRow",
    "deleted_path",
    "deleted_until",
    "home_of",
    "object_name",
    "owner_of",
    "packed",
    "recorder_of",
    "records_path",
    "rows_of",
    "stored_rows",
    "unpacked",
]


API_VERSION = "spotwright.dev/v1alpha1"
RUN, TASK, ATTEMPT = "SpotRun", "SpotTask", "SpotAttempt"
KINDS = (RUN, TASK, ATTEMPT)

WORKLOAD_LABEL = "spotwright.dev/workload"
"""The label of every object of a run: the UID of its workload."""

ENDED_LABEL = "spotwright.dev/ended"
"""The label, with the value ``true``, of an ended run's SpotRun."""

DELETED_UNTIL = "spotwright.dev/deleted-until"
"""The annotation of :func:`deleted_path`: runs of the namespace that ended by then were deleted early."""

AGE = 7 * 24 * 3600.0
"""Seconds for which a run's records are kept after its end."""

PAGE = 48 << 10
"""Bytes of events in one object."""

TAIL = 4 << 10
"""Bytes of the log's end in an attempt's object."""

_LISTED_TOGETHER = 500  # objects in a page that lists many runs
_FRESH = 60.0  # seconds for which they are cached
_TO_JSON = json.JSONEncoder(separators=(",", ":")).encode
_TOGETHER, _MOST_EVENTS = 10_000, 10_000_000  # events recorded together, and of a run
_MOST_UNPACKED = 4 << 20  # bytes of a plan: a configuration has at most one, and templates some more


class StoredRow(NamedTuple):
    """A stored event. ``seq`` is its number in the run; ``first`` to ``last`` were recorded together in ``epoch``."""

    seq: int
    first: int
    last: int
    epoch: int
    at: float
    kind: str
    attempt: int
    task: str
    data: str

    def to_text(self) -> str:
        """The line: everything before the data in one line, and the data as JSON in the next."""
        head = f"{self.seq} {self.first} {self.last} {self.epoch} {self.at!r} {self.kind} {self.attempt}"
        head += f" {_TO_JSON(self.task)}"  # a task's name may be anything, even two lines
        return f"{head}\n{self.data}"

    @classmethod
    def from_text(cls, text: str) -> StoredRow:
        """The row of a line. Raises :class:`ValueError`."""
        head, _, data = text.partition("\n")
        seq, first, last, epoch, at, kind, attempt, task = head.split(" ", 7)
        numbers = int(first), int(seq), int(last)
        if not 0 < numbers[0] <= numbers[1] <= numbers[2] <= min(numbers[0] + _TOGETHER, _MOST_EVENTS):
            raise ValueError(f"the numbers {numbers} do not belong to one batch of events")
        return cls(int(seq), int(first), int(last), int(epoch), float(at), kind, int(attempt), json.loads(task), data)

    @property
    def journal_row(self) -> JournalRow:
        """The row as journal readers expect it."""
        return self.seq, self.at, self.kind, self.task, self.attempt, self.data


class Home(NamedTuple):
    """The subject of an object: the run, a task, or an attempt. Without one ``attempt`` is 0, ``task`` empty."""

    task: str = ""
    attempt: int = 0

    @property
    def kind(self) -> str:
        """The kind of the first object about it."""
        return ATTEMPT if self.attempt else TASK if self.task else RUN


def home_of(event: Event) -> Home:
    """The object for an event: a task's template is stored with the task, so that each is written once."""
    task = str(event.template.get("name", "")) if isinstance(event, PlanExtended) else event.task
    return Home(task, event.attempt)


def stored_rows(events: Sequence[Event], last: int, epoch: int) -> list[tuple[Home, StoredRow]]:
    """The rows of events recorded together after the event number ``last``, each with its home."""
    found = []
    ends = last + len(events)
    for seq, event in enumerate(events, last + 1):
        at, kind, task, attempt, data = encode(event)
        found.append((home_of(event), StoredRow(seq, last + 1, ends, epoch, at, kind, attempt, task, _TO_JSON(data))))
    return found


def rows_of(found: Mapping[str, Any]) -> Iterator[StoredRow]:
    """The rows of an object. Raises :class:`StateError` that names it for one that cannot be read."""
    try:
        for text in found.get("journal") or ():
            yield StoredRow.from_text(text)
    except (ValueError, AttributeError, TypeError) as error:
        raise StateError(
            f"{found.get('kind')} {metadata(found).get('name')} in namespace {metadata(found).get('namespace')}: its journal "
            f"cannot be read ({error}); it was changed from outside, or written by a newer version of spotwright"
        ) from error


class RunRows:
    """The rows of one run, added from its objects in any order, and returned in order of their numbers."""

    def __init__(self) -> None:
        self._rows: dict[int, StoredRow] = {}
        self._begun: dict[int, int] = {}  # by epoch: the number of the event with which it began
        self._absent: set[int] = set()
        self._given = self._forgotten = 0
        self.restarts = 0
        """Grows when returned rows turn out to be invalid: then everything must be reread."""

    def take(self, rows: Iterable[StoredRow], absent: Iterable[int] = ()) -> None:
        """Add rows, possibly known ones. ``absent`` are numbers whose rows are permanently lost."""
        self._absent.update(absent)
        for row in rows:
            begins = row.kind == EngineStarted.kind and row.epoch not in self._begun
            if row.seq <= self._forgotten and not begins:
                continue
            known = self._rows.get(row.seq)
            if known is not None and known.epoch >= row.epoch:
                continue
            self._rows[row.seq] = row
            if begins:
                self._begun[row.epoch] = row.seq
            if row.seq <= self._given and (known is not None or begins):
                self._given = 0
                self.restarts += 1

    @property
    def has_lost(self) -> bool:
        """Whether some rows are known to be lost."""
        return bool(self._absent)

    def forget(self, seq: int) -> None:
        """Drop the rows up to a number, all of which were returned."""
        for number in [number for number in self._rows if number <= seq]:
            del self._rows[number]
        self._forgotten = max(self._forgotten, seq)

    def after(self, seq: int) -> list[StoredRow]:
        """The consecutive rows after a number, each with everything recorded together with it."""
        found: list[StoredRow] = []
        bounds: dict[int, float] = {}
        number = seq + 1
        while True:
            while number in self._absent and number not in self._rows:
                number += 1
            row = self._rows.get(number)
            together = [] if row is None else self._together(number, row, bounds)
            if row is None or not together:
                break
            found += together
            number = row.last + 1
        if found:
            self._given = max(self._given, found[-1].seq)
        return found

    def _together(self, number: int, row: StoredRow, bounds: dict[int, float]) -> list[StoredRow]:
        """The rows from a number on that were recorded together; empty if one is missing or invalid."""
        if row.last >= self._bound(row.epoch, bounds):
            return []
        rows = [self._rows.get(each) for each in range(number, row.last + 1)]
        whole = [each for each in rows if each is not None and each.epoch == row.epoch]
        missing = sum(each in self._absent and each not in self._rows for each in range(number, row.last + 1))
        return whole if len(whole) + missing == len(rows) else []

    def _bound(self, epoch: int, known: dict[int, float]) -> float:
        """The number with which a later epoch began."""
        if epoch not in known:
            known[epoch] = min((at for each, at in self._begun.items() if each > epoch), default=float("inf"))
        return known[epoch]

    def lost(self) -> list[int]:
        """The numbers of missing recorded events, if all objects of the run were added.

        Events are recorded in order, so events missing before later ones were deleted from outside.
        """
        highest = max(self._begun, default=0)
        newest = max((row.first for row in self._rows.values() if row.epoch == highest), default=0)
        bounds: dict[int, float] = {}
        there = {
            number for number, row in self._rows.items() if row.last < self._bound(row.epoch, bounds)
        } | self._absent
        return [number for number in range(1, newest) if number not in there]

    def __len__(self) -> int:
        return len(self._rows)


_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_TASK = 40  # characters of a task in a name


def object_name(run: str, home: Home, page: int = 1) -> str:
    """The name of an object of a run: a DNS name with its task and attempt; a digest distinguishes equal ones."""
    if home.kind == RUN:
        return run if page == 1 else f"{run}.run.{page}"
    slug = _NAME.sub("-", home.task.lower())[:_LONGEST_TASK].strip("-")
    digest = hashlib.blake2b(home.task.encode(), digest_size=5).hexdigest()
    parts = [f"{run}.{slug}-{digest}" if slug else f"{run}.{digest}"]
    parts += [f"{home.attempt}"] if home.attempt else []
    parts += [f"p{page}"] if page > 1 else []
    return ".".join(parts)


def owner_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The owner reference of objects that belong to a SpotRun."""
    return {"apiVersion": API_VERSION, "kind": RUN, "name": metadata(run).get("name"), "uid": uid_of(run)}


def recorder_of(run: Mapping[str, Any]) -> tuple[str, str] | None:
    """The namespace and name of the Lease of a SpotRun's last recorder; None: unknown."""
    home, slash, name = str((run.get("status") or {}).get("recordedBy", "")).partition("/")
    return (home, name) if home and slash and name else None


def records_path(kind: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of all of a kind; of all namespaces if empty."""
    where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    named = f"/{quote(name, safe='')}" if name else ""
    return f"/apis/{API_VERSION}{where}/{kind.lower()}s{named}"


def deleted_path(namespace: str) -> str:
    """The path of the object with the ended runs of a namespace that were deleted early; created on first use."""
    return f"/apis/{API_VERSION}/namespaces/{quote(namespace, safe='')}/spotcounters/deleted-runs"


def deleted_until(found: Mapping[str, Any] | None) -> float:
    """The latest end of the runs that were deleted early, from that object, in Unix seconds; 0: none."""
    annotations = {} if found is None else metadata(found).get("annotations") or {}
    return seconds(annotations.get(DELETED_UNTIL)) or 0.0


def packed(text: str) -> str:
    """A text compressed for an object: configurations are repetitive, and shrink to a fifth."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """The decompressed text. Raises :class:`ValueError`, also for a text larger than any packed one."""
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(base64.b64decode(text, validate=True), _MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"it is not in spotwright's packed format ({error})") from error
    if unpack.unconsumed_tail:
        raise ValueError(f"it is larger than {_MOST_UNPACKED} bytes")
    return found.decode()


class _Meta(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class ListedParts:
    """The tasks and attempts of these workloads' runs in a namespace, listed once, on first use.

    For a list with a selector the API server reads every object of the namespace. So lists for a thousand runs would read each
    object a thousand times. ``get_page`` reads a page of a list: its objects as text, and the token of the next page, empty
    after the last.
    """

    def __init__(
        self,
        get_page: Callable[[str, Mapping[str, str]], tuple[Sequence[bytes], str]],
        namespace: str,
        workloads: Collection[str],
    ) -> None:
        self._get_page, self._namespace, self._workloads = get_page, namespace, set(workloads)
        self._found: dict[str, list[tuple[str, bytes]]] | None = None  # by workload: kinds and objects, as text
        self._until = 0.0

    def take(self, workload: str) -> Sequence[dict[str, Any]] | None:
        """The parts of a run, once; None: they must be listed again."""
        if workload not in self._workloads:
            return None
        if self._found is None or time.monotonic() > self._until:
            self._found = self._list()
            self._until = time.monotonic() + _FRESH
        self._workloads.remove(workload)
        return [{"kind": kind, **msgspec.json.decode(text)} for kind, text in self._found.pop(workload, ())]

    def _list(self) -> dict[str, list[tuple[str, bytes]]]:
        found: defaultdict[str, list[tuple[str, bytes]]] = defaultdict(list)
        for kind in (each for each in KINDS if each != RUN):
            following = ""
            while True:
                asked = {"limit": str(_LISTED_TOGETHER)} | ({"continue": following} if following else {})
                items, following = self._get_page(records_path(kind, self._namespace), asked)
                for text in items:
                    workload = msgspec.json.decode(text, type=_Labelled).metadata.labels.get(WORKLOAD_LABEL, "")
                    if workload in self._workloads:
                        found[workload].append((kind, text))
                if not following:
                    break
        return found
