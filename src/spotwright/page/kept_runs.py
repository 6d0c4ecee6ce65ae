"""The runs that the page keeps open: readers with folded state, columns, latest changes, accounts, logs.

A run is folded once and followed from then on. If there are too many, the least recently requested ones are closed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from spotwright.engine.events import Event
from spotwright.errors import UnknownRun
from spotwright.page.columns import Changes, Marks, RunColumns, over_lanes
from spotwright.page.heads import head, line
from spotwright.page.index import RunIndex, index_path
from spotwright.page.log_lines import RunLogs
from spotwright.page.run_sources import ClusterRuns, LocalRuns, RunsSource
from spotwright.records.reader import RunReader
from spotwright.views.account import Account, account

__all__ = ["KeptRun", "KeptRuns"]

_KEPT_EVENTS = 800_000  # of all kept runs: about 350 MB
_FOLLOWED = 5.0
"""Seconds since the last request in which a window follows a run. Windows of several large runs would otherwise refold them in
turns, so followed runs may exceed the limit by half."""
_LARGE_RUN = 10_000  # events that take a tenth of a second
_LOOK_EVERY = 0.22  # seconds between looks at a run: its changes are sent at most four times a second
_HEAD_EVERY = 1.0  # seconds between heads of an active run; for a large one, this many times the duration of a head
_HEAD_SHARE = 10.0
_LARGE = 2000  # attempts: above it the head does not wait for the account unless costs are requested
_LARGE_EVERY = 60.0  # seconds between accounts of a large active run
_KEPT_LOOKS = 500  # two minutes of changes: a window that was away longer reloads


class _Costs(NamedTuple):
    """The account of a run: its run (of this name) and last event, whether it was active then, and when it was made."""

    made_at: int
    seq: int
    goes_on: bool
    at: float
    account: Account


@dataclass
class KeptRun:
    """A run with everything derived from it."""

    reader: RunReader
    kfp_url: str = ""  # the KFP address for pages of runs with an id there, if given
    plan: Path | None = None  # the plan for runs without their own
    stamp: object = None
    looked_at: float = 0.0
    asked_at: float = 0.0
    looks: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)
    """For each look, the last event numbers before and after, and the changes."""
    costs: _Costs | None = None
    logs: RunLogs | None = None
    downloads: dict[tuple[str, int | None, int], Iterator[bytes]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    head_number: int = 0  # counts heads, so that a follower gets each once
    head_at: float = 0.0  # when it was made, and how long that took
    head_took: float = 0.0
    rows: str = field(default_factory=lambda: secrets.token_hex(4))
    """Identifies the numbering of rows, which new columns may change."""
    _columns: RunColumns | None = None

    @property
    def made_at(self) -> int:
        """When it was made, in nanoseconds."""
        return self.reader.made_at

    @property
    def seq(self) -> int:
        """The number of the last folded event."""
        return self.reader.seq

    @property
    def columns(self) -> RunColumns:
        """Its columns, made on request."""
        if self._columns is None:
            self._columns = RunColumns(self.reader.state, self.reader.now)
        return self._columns

    def update(self, events: Sequence[Event]) -> Changes | None:
        """Add events to the columns. ``None``: they must be made again."""
        return None if self._columns is None else self._columns.update(self.reader.state, events, self.reader.now)

    def begin_again(self) -> None:
        """Forget data of other rows, or of another run of this name."""
        self._columns, self.rows = None, secrets.token_hex(4)
        self.looks.clear()

    @property
    def place(self) -> dict[str, Any]:
        """A follower's position: its rows, and the number of their last event."""
        now, state = self.reader.now, self.reader.state
        return {
            "made_at": f"{self.made_at}-{self.rows}",  # a string: nanoseconds exceed JavaScript's integers
            "seq": self.seq,
            "t0": state.started_at,
            "now": max(0.0, (state.last_at if now is None else now) - state.started_at),
            "driven": self.reader.is_driven,
        }

    @property
    def account(self) -> Account:
        """Its account, made again when there are new events.

        It is expensive, so an active run's may be a second old, a large one's a minute.
        """
        now, costs = time.monotonic(), self.costs
        if costs is not None and costs.made_at == self.made_at:
            every = 0.0 if not self.reader.is_driven else _LARGE_EVERY if self._is_large else _HEAD_EVERY
            if (costs.seq == self.seq and not costs.goes_on) or now - costs.at < every:
                return costs.account
        found = account(self.reader.state, self.reader.now)
        self.costs = _Costs(self.made_at, self.seq, self.reader.is_driven, now, found)
        return found

    @property
    def account_at_hand(self) -> Account | None:
        """Its account, for callers that do not wait for a large run's: ``None`` until requested."""
        is_there = self.costs is not None and self.costs.made_at == self.made_at
        return None if self._is_large and not is_there else self.account

    @property
    def _is_large(self) -> bool:
        return sum(len(task.attempts) for task in self.reader.state.tasks.values()) > _LARGE

    @property
    def line(self) -> dict[str, Any]:
        """Its line in a list of runs."""
        state = self.reader.state
        causes = Counter(
            attempt.cause.value
            for task in chain(state.tasks.values(), state.retired.values())
            for attempt in task.attempts
            if attempt.cause is not None
        )
        return {**line(self.reader, self.account), "causes": dict(causes)}

    def head_now(self, costs: Account | None) -> dict[str, Any]:
        """Its head, its place, and the bands and marks over its timeline, without the plan."""
        found = {**head(self.reader, costs), **self.place}
        run_there = str(self.reader.state.meta.arguments.get("kfp_run", ""))
        if found["links"]["kfp"] is None and self.kfp_url and run_there:
            found["links"] = {"kfp": f"{self.kfp_url}/#/runs/details/{quote(run_there)}"}
        deadline = found["deadline"] or {}
        marks = Marks(deadline.get("at"), deadline.get("last_moment"))
        lanes = over_lanes(self.reader.state, self.reader.now, marks)
        del lanes["marks"]["planned"]  # it never changes, and the timeline has it
        return {**found, **lanes, "plan": found["plan"] or self.plan is not None}

    def head_after(self, number: int) -> dict[str, Any]:
        """Its head with the head's number, if newer than the follower's."""
        now = time.monotonic()
        is_old = not self.head or self.head["seq"] != self.seq or self.head["driven"] or self.reader.is_driven
        is_old |= bool(self.head) and self.head["summary"]["cost"] is None and self.costs is not None
        if is_old and now - self.head_at >= max(_HEAD_EVERY, _HEAD_SHARE * self.head_took):
            self.head = self.head_now(self.account_at_hand)
            self.head_number, self.head_at = self.head_number + 1, now
            self.head_took = time.monotonic() - now
        return {"head": self.head, "head_number": self.head_number} if self.head_number != number else {}


class KeptRuns:
    """The runs of one source. ``settings``: where they are, as :mod:`spotwright.cli.page` writes it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._source: RunsSource | None = None
        self._index: RunIndex | None = None
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()
        self.pools: dict[str, Any] | None = None  # the last answer about the pools of all runs
        self.pools_until = 0.0  # valid until then (Unix seconds)

    @property
    def source(self) -> RunsSource:
        """The source, opened at the first question, so that a fault becomes an answer."""
        if self._source is None:
            from spotwright.runs.bodies import is_alive

            options = self.settings["source"]
            self._source = (
                ClusterRuns(options) if options.get("cluster") else LocalRuns(Path(options["state"]), is_alive)
            )
        return self._source

    @property
    def index(self) -> RunIndex:
        """The lines of all runs, opened on request."""
        if self._index is None:
            self._index = RunIndex(self.source, _index_file(self.settings), self._line)
        return self._index

    def step(self) -> bool:
        """Do one unit of background work; return ``False`` when idle."""
        return self._index is not None and self._index.step()

    def close(self) -> None:
        """Release open resources."""
        if self._index is not None:
            self._index.close()
        if self._source is not None:
            self._source.close()

    def _line(self, name: str) -> dict[str, Any]:
        """A run in one line.

        An active run is kept, so that it is not refolded repeatedly, and a large one if there is room, because readers of the
        list may open it.
        """
        line = self.source.line(name)
        if line is not None:
            return line
        if name in self._runs:
            return self.run(name).line
        run = self._opened(name)
        is_large = run.seq > _LARGE_RUN and run.seq + sum(each.seq for each in self._runs.values()) <= _KEPT_EVENTS
        if run.reader.is_driven or is_large:
            self._keep(name, run)
        return run.line

    def run(self, name: str) -> KeptRun:
        """The run with its newest events folded. Raises :class:`UnknownRun` for one that was deleted."""
        try:
            run = self._runs.get(name)
            if run is None:
                stamp = self.source.stamp(name)  # before the journal is read
                run = self._opened(name, stamp)
                run.looked_at = time.monotonic()
            self._keep(name, run)
            self._look(name, run)
        except (UnknownRun, OSError) as error:
            self._runs.pop(name, None)
            raise UnknownRun(str(error) if isinstance(error, UnknownRun) else f"run {name} was deleted") from error
        return run

    def has(self, run: KeptRun) -> bool:
        """Whether a run that is kept is still there."""
        try:
            return run.reader.source.made_at() == run.made_at
        except OSError:
            return False

    def _opened(self, name: str, stamp: object = None) -> KeptRun:
        plan = self.settings.get("plan")
        kfp_url = str(self.settings.get("kfp_url") or "").rstrip("/")
        return KeptRun(self.source.open(name), kfp_url, None if plan is None else Path(plan), stamp)

    def _keep(self, name: str, run: KeptRun) -> None:
        """Keep a run, and drop the least recently used ones beyond the limit."""
        self._runs[name] = run
        self._runs.move_to_end(name)
        run.asked_at = now = time.monotonic()
        while len(self._runs) > 1:
            oldest = next(iter(self._runs.values()))
            most = _KEPT_EVENTS if now - oldest.asked_at > _FOLLOWED else _KEPT_EVENTS * 3 // 2
            if sum(each.seq for each in self._runs.values()) <= most:
                return
            self._runs.popitem(last=False)

    def _look(self, name: str, run: KeptRun) -> None:
        """Fold new events, if the stamp, which needs no open journal, shows any."""
        now = time.monotonic()
        if now - run.looked_at < _LOOK_EVERY:
            return
        run.looked_at = now
        stamp = self.source.stamp(name)
        if stamp is not None and stamp == run.stamp and not run.reader.is_driven:
            return
        run.stamp = stamp
        before, made_at = run.seq, run.made_at
        events = run.reader.refresh()
        if run.made_at == made_at and not events:
            return
        changes = run.update(events) if run.made_at == made_at else None
        if changes is None:
            run.begin_again()
        else:
            changed = {kind: delta for kind, delta in changes._asdict().items() if delta is not None}
            run.looks.append((before, run.seq, changed))
            del run.looks[:-_KEPT_LOOKS]


def _index_file(settings: Mapping[str, Any]) -> Path | None:
    """The index file of a state folder; a cluster's lines are not stored."""
    state = settings["source"].get("state")
    try:
        return index_path(Path(state)) if state else None
    except RuntimeError:
        return None
