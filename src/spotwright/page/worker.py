"""The process that owns the runs: it folds their events, keeps what the page asks for, and answers one question after the other.

``python -m spotwright.page.worker`` reads the settings, then questions, from standard input, and writes answers to standard
output (:mod:`spotwright.page.workers` has the frames). It ends with its input. Between questions it fills the index of runs.

Of a run it keeps the reader, the columns, the changes of the last looks and its account; of too many runs those that were asked
for least recently are let go.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import secrets
import select
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from spotwright.engine.event_codec import EVENT_TYPES
from spotwright.engine.events import Event
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.page.columns import Changes, RunColumns
from spotwright.page.details import attempt_panel, head, history, line, nodes
from spotwright.page.index import RunIndex, index_path
from spotwright.page.log_lines import RunLogs
from spotwright.page.sources import ClusterRuns, LocalRuns, RunsSource
from spotwright.page.workers import ANSWER, QUESTION
from spotwright.records.reader import ENVIRONMENT, RunReader
from spotwright.views.account import Account, account
from spotwright.views.text import visible

__all__ = ["main"]

_LOG = logging.getLogger(__name__)

FORMAT = "spotwright-page/1"

_KEPT_EVENTS = 300_000  # of all runs that are kept: some 400 MB
_LOOK_EVERY = 0.22  # seconds between looks at a run: what it changes is told at most four times a second
_IDLE = 0.5  # seconds until a worker without questions looks whether runs that go on are to be read again
_HEAD_EVERY = 1.0  # seconds between heads of a run that goes on
_LARGE = 2000  # attempts: above it the head does not wait for the account unless somebody asks for costs
_LARGE_EVERY = 60.0  # seconds between accounts of a large run that goes on
_PIECE = 1 << 20  # bytes of a log in one answer
_MOST_DOWNLOADS = 8  # that go on at once in one run; of the others the log is read again from its start
_MOST_ROWS = 1000  # of the history in one answer

_KEPT_LOOKS = 500  # two minutes of changes: a window that was away for longer loads again


class _Costs(NamedTuple):
    """The account of a run: of which run of this name, up to which event, whether it went on then, and when it was made."""

    made_at: int
    seq: int
    goes_on: bool
    at: float
    account: Account


@dataclass
class _Run:
    """What is kept of a run."""

    reader: RunReader
    stamp: object = None
    looked_at: float = 0.0
    looks: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)
    """Of each look at it the number of the last event before and after, and what changed."""
    costs: _Costs | None = None
    logs: RunLogs | None = None
    downloads: dict[tuple[str, int | None, int], Iterator[bytes]] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    head_number: int = 0  # counts the heads, so that a follower is told each once
    head_at: float = 0.0
    rows: str = field(default_factory=lambda: secrets.token_hex(4))
    """Names the numbering of rows: columns that are made anew may number them otherwise."""
    _columns: RunColumns | None = None

    @property
    def made_at(self) -> int:
        """When it was made, in nanoseconds."""
        return self.reader.made_at

    @property
    def seq(self) -> int:
        """The number of the last event that is folded."""
        return self.reader.last

    @property
    def columns(self) -> RunColumns:
        """Its columns, made when somebody asks for them."""
        if self._columns is None:
            self._columns = RunColumns(self.reader.state, self.reader.now)
        return self._columns

    def update(self, events: Sequence[Event]) -> Changes | None:
        """Take events over into the columns. ``None``: they have to be made anew."""
        return None if self._columns is None else self._columns.update(self.reader.state, events, self.reader.now)

    def begin_again(self) -> None:
        """Forget what belongs to other rows, or to another run of this name."""
        self._columns, self.rows = None, secrets.token_hex(4)
        self.looks.clear()


class _Worker:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._source: RunsSource | None = None
        self._index: RunIndex | None = None
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    @property
    def source(self) -> RunsSource:
        """The source, opened at the first question, so that its fault is an answer."""
        if self._source is None:
            from spotwright.runs.bodies import is_alive

            options = self.settings["source"]
            self._source = (
                ClusterRuns(options) if options.get("cluster") else LocalRuns(Path(options["state"]), is_alive)
            )
        return self._source

    @property
    def index(self) -> RunIndex:
        """The lines of all runs, opened when somebody asks for them."""
        if self._index is None:
            self._index = RunIndex(self.source, _index_file(self.settings), self._line)
        return self._index

    def step(self) -> bool:
        """Do a piece of the work that nobody waits for; ``False``: there is none now."""
        return self._index is not None and self._index.step()

    def close(self) -> None:
        """Give back what is open."""
        if self._index is not None:
            self._index.close()
        if self._source is not None:
            self._source.close()

    def _line(self, name: str) -> dict[str, Any]:
        """A run in one line. One that goes on is kept, so that it is not folded from its start again and again."""
        told = self.source.line(name)
        if told is not None:
            return told
        if name in self._runs:
            return _line_of(self.run(name))
        run = _Run(self.source.open(name))
        if run.reader.is_driven:
            self._keep(name, run)
        return _line_of(run)

    def answer(self, question: Mapping[str, Any]) -> tuple[int, Any]:
        """The status and the document or bytes for a question."""
        ask = _ASKED.get(str(question.get("ask")))
        if ask is None:
            return 404, {"error": "not-found", "message": "there is no such address"}
        try:
            return 200, ask(self, question)
        except UnknownRun as error:
            return 404, {"error": "not-found", "message": str(error)}
        except InputError as error:
            return 400, {"error": "input", "message": str(error)}
        except SpotwrightError as error:
            return 409, {"error": "unreadable", "message": str(error)}
        except Exception:  # noqa: BLE001  # one fault must not end all other answers
            _LOG.exception("the question %s cannot be answered", question)
            return 500, {"error": "fault", "message": "the page has a fault here; its terminal has the details"}

    def run(self, name: str) -> _Run:
        """The run with its newest events folded. Raises :class:`UnknownRun` for one that was deleted."""
        try:
            run = self._runs.get(name)
            if run is None:
                stamp = self.source.stamp(name)  # before the journal is read
                run = _Run(self.source.open(name), stamp=stamp)
                run.looked_at = time.monotonic()
            self._keep(name, run)
            self._look(name, run)
        except (UnknownRun, OSError) as error:
            self._runs.pop(name, None)
            raise UnknownRun(str(error) if isinstance(error, UnknownRun) else f"run {name} was deleted") from error
        return run

    def _keep(self, name: str, run: _Run) -> None:
        """Keep a run, and let go of those that were asked for least recently where all of them are too many."""
        self._runs[name] = run
        self._runs.move_to_end(name)
        while len(self._runs) > 1 and sum(each.reader.last for each in self._runs.values()) > _KEPT_EVENTS:
            self._runs.popitem(last=False)

    def _look(self, name: str, run: _Run) -> None:
        """Fold what is new. The stamp tells without opening the journal whether anything is."""
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
            told = {kind: delta for kind, delta in changes._asdict().items() if delta is not None}
            run.looks.append((before, run.seq, told))
            del run.looks[:-_KEPT_LOOKS]


def _index_file(settings: Mapping[str, Any]) -> Path | None:
    """The file of the index of a state folder; the lines of a cluster are those of its controller."""
    state = settings["source"].get("state")
    try:
        return index_path(Path(state)) if state else None
    except RuntimeError:
        return None


_Ask = Callable[[_Worker, Mapping[str, Any]], Any]


def _runs(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    return worker.index.runs(question)


def _find(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    """The whole name of a run by its beginning, or ``last``. Without a name: whether the source can be read at all."""
    name = str(question.get("name") or "")
    source = worker.source
    if not name:
        source.check()
    return {"run": source.find(name) if name else ""}


def _line_of(run: _Run) -> dict[str, Any]:
    state = run.reader.state
    causes = Counter(
        attempt.cause.value
        for task in chain(state.tasks.values(), state.retired.values())
        for attempt in task.attempts
        if attempt.cause is not None
    )
    return {**line(run.reader, _account_of(run, waits=True)), "causes": dict(causes)}


def _account_of(run: _Run, *, waits: bool) -> Account | None:
    """The account of a run, made again when there are events. ``None`` for a large run that has none yet, unless ``waits``.

    It takes long: of a run that goes on it is at most a second old, of a large one a minute.
    """
    attempts = sum(len(task.attempts) for task in run.reader.state.tasks.values())
    now = time.monotonic()
    costs = run.costs if run.costs is not None and run.costs.made_at == run.made_at else None
    if costs is not None:
        every = 0.0 if not run.reader.is_driven else _LARGE_EVERY if attempts > _LARGE else _HEAD_EVERY
        if (costs.seq == run.seq and not costs.goes_on) or now - costs.at < every:
            return costs.account
    if costs is None and attempts > _LARGE and not waits:
        return None
    run.costs = _Costs(run.made_at, run.seq, run.reader.is_driven, now, account(run.reader.state, run.reader.now))
    return run.costs.account


def _head(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    run = worker.run(question["run"])
    return {**head(run.reader, _account_of(run, waits=bool(question.get("costs")))), **_place_of(run)}


def _head_after(run: _Run, number: int) -> dict[str, Any]:
    """The head of a followed run with its number, if it is another one than the follower has."""
    now = time.monotonic()
    is_old = not run.head or run.head["seq"] != run.seq or run.head["driven"] or run.reader.is_driven
    if is_old and now - run.head_at >= _HEAD_EVERY:
        run.head = {**head(run.reader, _account_of(run, waits=False)), **_place_of(run)}
        run.head_number, run.head_at = run.head_number + 1, now
    return {"head": run.head, "head_number": run.head_number} if run.head_number != number else {}


def _attempt(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    run = worker.run(question["run"])
    task = _task_of(run, question)
    number = _number(question, "n")
    if number is None:
        state = run.reader.state.tasks.get(task) or run.reader.state.retired.get(task)
        number = 0 if state is None else len(state.attempts)
    return attempt_panel(run.reader, task, number, _account_of(run, waits=False))


def _nodes(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    return nodes(worker.run(question["run"]).reader)


def _history(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in str(question.get("kind", "")).split(",") if kind]
    known = sorted({each.kind for each in EVENT_TYPES})
    if unknown := sorted(set(kinds) - set(known)):
        raise InputError(f"there is no kind of event {unknown[0]!r}: the kinds are {', '.join(known)}")
    limit = min(_number(question, "limit") or 200, _MOST_ROWS)
    run = worker.run(question["run"])
    rows = history(run.reader, _number(question, "after") or 0, limit, task=str(question.get("task", "")), kinds=kinds)
    return {**rows, "kinds": known, "seq": run.seq, "t0": run.reader.state.started_at}


def _task_of(run: _Run, question: Mapping[str, Any]) -> str:
    """The path of the task that a question means. The page knows paths as they are shown, with marks for what they hide."""
    task = str(question.get("task", ""))
    if not task:
        raise InputError("expected task=TASK, the path of a task")
    tasks = run.reader.state.tasks
    return task if task in tasks else next((path for path in tasks if visible(path) == task), task)


def _number(question: Mapping[str, Any], name: str, *, negative: bool = False) -> int | None:
    """A whole number of a question; ``None`` where it has none."""
    text = str(question.get(name, ""))
    if not text:
        return None
    digits = text.removeprefix("-") if negative else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise InputError(f"expected a whole number for {name}, not {text[:40]!r}")
    return int(text)


def _asked_log(worker: _Worker, question: Mapping[str, Any]) -> tuple[_Run, RunLogs, str, int | None]:
    """The logs of a run, and which of them a question means: a task, and an attempt, its environment's build, or all attempts."""
    run = worker.run(question["run"])
    if run.logs is None:
        run.logs = RunLogs(run.reader)
    attempt = ENVIRONMENT if question.get("environment") else _number(question, "n")
    return run, run.logs, _task_of(run, question), attempt


def _log(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    _, logs, task, attempt = _asked_log(worker, question)
    line = _number(question, "line", negative=True)
    return logs.page(task, attempt, 0 if line is None else line, _number(question, "count") or 200)


def _find_in_log(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    _, logs, task, attempt = _asked_log(worker, question)
    return logs.find(task, attempt, str(question.get("q", "")), _number(question, "from") or 0)


def _raw_log(worker: _Worker, question: Mapping[str, Any]) -> bytes:
    """The next bytes of a log from an offset on; nothing at its end."""
    run, logs, task, attempt = _asked_log(worker, question)
    offset = int(question["offset"])
    pieces = run.downloads.pop((task, attempt, offset), None)
    if pieces is None:
        pieces = _from(logs.raw(task, attempt), offset)
    piece = b"".join(_up_to(pieces, _PIECE))
    if piece:
        while len(run.downloads) >= _MOST_DOWNLOADS:
            del run.downloads[next(iter(run.downloads))]
        run.downloads[task, attempt, offset + len(piece)] = pieces
    return piece


def _from(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    """The pieces without their first bytes."""
    for piece in pieces:
        if offset < len(piece):
            yield piece[offset:]
        offset = max(0, offset - len(piece))


def _up_to(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Pieces until so many bytes are together."""
    while count > 0:
        piece = next(pieces, b"")
        if not piece:
            return
        yield piece
        count -= len(piece)


def _tasks(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    run = worker.run(question["run"])
    return {**run.columns.tasks(), **_place_of(run)}


def _timeline(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    run = worker.run(question["run"])
    return {**_place_of(run), "attempts": run.columns.attempts(), "nodes": run.columns.nodes()}


def _place_of(run: _Run) -> dict[str, Any]:
    """What a follower names to get what comes after: the run's making and the number of its last event."""
    now = run.reader.now
    state = run.reader.state
    return {
        "made_at": f"{run.made_at}-{run.rows}",  # a text: nanoseconds do not fit into a number of JavaScript
        "seq": run.seq,
        "t0": state.started_at,
        "now": (state.last_at if now is None else now) - state.started_at,
        "driven": run.reader.is_driven,
    }


def _changes(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    """What came after a number. ``reset``: load everything again."""
    run = worker.run(question["run"])
    after, made_at = int(question["after"]), str(question["made_at"])
    place = _place_of(run)
    if made_at != place["made_at"] or after > run.seq:
        return {**place, "reset": True, "looks": []}
    place.update(_head_after(run, _number(question, "head") or 0))
    looks = [(last, changes) for first, last, changes in run.looks if last > after]
    if after < run.seq and (not looks or run.looks[0][0] > after):
        return {**place, "reset": True, "looks": []}
    return {**place, "looks": [{"seq": last, **changes} for last, changes in looks]}


_ASKED: Mapping[str, _Ask] = {
    "runs": _runs,
    "find": _find,
    "head": _head,
    "attempt": _attempt,
    "nodes": _nodes,
    "history": _history,
    "log": _log,
    "log/find": _find_in_log,
    "log/raw": _raw_log,
    "tasks": _tasks,
    "timeline": _timeline,
    "changes": _changes,
}


def _encoded(document: Any) -> tuple[bytes, bool]:
    if isinstance(document, bytes):
        return document, False
    written = json.dumps({"format": FORMAT, **document}, separators=(",", ":"), ensure_ascii=False)
    if not (written.isascii() and written.isprintable()) or "\\u" in written:
        written = json.dumps(_visible({"format": FORMAT, **document}), separators=(",", ":"), ensure_ascii=False)
    text = written.encode("utf-8", "replace")
    return (gzip.compress(text, 4, mtime=0), True) if len(text) > 1000 else (text, False)


def _visible(value: Any) -> Any:
    """A document whose texts show what they hide: whoever names a task or writes a log chooses them."""
    if isinstance(value, str):
        return visible(value, block=True)
    if isinstance(value, Mapping):
        return {visible(str(name)): _visible(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(each) for each in value]
    return value


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next question; ``None`` at the end of the input."""
    head = _exactly(stream, QUESTION.size)
    if head is None:
        return None
    (length,) = QUESTION.unpack(head)
    text = _exactly(stream, length)
    if text is None:
        return None
    question: dict[str, Any] = json.loads(text)
    return question


def _exactly(stream: BinaryIO, length: int) -> bytes | None:
    """So many bytes, which a pipe may give in pieces; ``None`` at the end of the input."""
    found = b""
    while len(found) < length:
        piece = stream.read(length - len(found))
        if not piece:
            return None
        found += piece
    return found


def main() -> None:
    """Answer until the input ends, and fill the index between questions."""
    questions = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not write among the answers
    settings = _read(questions)
    if settings is None:
        return
    with closing(_Worker(settings)) as worker, suppress(BrokenPipeError):
        has_work = False
        while True:
            if not select.select([questions], [], [], 0.0 if has_work else _IDLE)[0]:
                has_work = worker.step()
                continue
            question = _read(questions)
            if question is None:
                return
            status, document = worker.answer(question)
            body, is_gzip = _encoded(document)
            answers.write(ANSWER.pack(question["id"], status, is_gzip, len(body)) + body)
            answers.flush()


if __name__ == "__main__":
    main()
