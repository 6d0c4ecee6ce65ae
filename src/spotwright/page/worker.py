"""The process that owns the runs: it folds their events, keeps what the page asks for, and answers one question after the other.

``python -m spotwright.page.worker`` reads the settings, then questions, from standard input, and writes answers to standard output
(:mod:`spotwright.page.workers` has the frames). It ends with its input. Between questions it fills the index of runs.

Of a run it keeps the reader, the columns, the changes of the last looks and its account; of too many runs those that were asked for
least recently are let go.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.page import answers
from spotwright.page.columns import RunColumns
from spotwright.page.sources import ClusterRuns, LocalRuns, Problem, RunsSource, lines_of
from spotwright.page.workers import ANSWER, QUESTION
from spotwright.records.reader import RunReader, list_logs
from spotwright.views.account import Account, account
from spotwright.views.run_json import run_view, summary

__all__ = ["main"]

FORMAT = "spotwright-page/1"

_KEPT_RUNS = 8  # besides those that somebody follows, which are asked for all the time
_LARGE = 5000  # attempts from which the account of a run that goes on is made once a minute, else once a second
_KEPT_LOOKS = 600  # two minutes of changes: a window that was away for longer loads again

_Look = tuple[int, int, dict[str, Any]]
"""The numbers of the last events before and after a look, and what it changed."""


@dataclass
class _Run:
    """What is kept of a run."""

    reader: RunReader
    columns: RunColumns
    made_at: int
    seq: int
    stamp: object
    looked_at: float
    looks: list[_Look] = field(default_factory=list)
    costs: tuple[int, float, Account] | None = (
        None  # the account, the last event in it, and when it was made (monotonic)
    )

    def account(self) -> Account:
        """See :meth:`answers.KeptRun.account`."""
        now = time.monotonic()
        if self.costs is not None:
            seq, at, costs = self.costs
            pause = 60.0 if len(costs.attempts_by_start) > _LARGE else 1.0
            if now - at < pause or (seq == self.seq and not self.reader.is_driven):
                return costs
        self.costs = (self.seq, now, account(self.reader.state, self.reader.now))
        return self.costs[2]


class _Worker:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._source: RunsSource | None = None
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

    def answer(self, question: Mapping[str, Any]) -> tuple[int, Any]:
        """The status and the document or bytes for a question."""
        ask = _ASKED.get(str(question.get("ask")))
        try:
            if ask is None:
                raise UnknownRun("there is no such address")
            return 200, ask(self, question)
        except UnknownRun as error:
            return 404, {"error": "not-found", "message": str(error)}
        except InputError as error:
            return 400, {"error": "input", "message": str(error)}
        except SpotwrightError as error:
            return 409, {"error": "unreadable", "message": str(error)}
        except Exception:
            logging.exception("the question %s cannot be answered", question)
            return 500, {"error": "fault", "message": "the page has a fault here; its terminal has the details"}

    def run(self, name: str) -> _Run:
        """The run with its newest events folded."""
        run = self._runs.get(name)
        if run is None:
            reader = self.source.open(name)
            run = _Run(reader, RunColumns(reader.state, reader.now), _made_at(reader), _seq(reader), None, 0.0)
            run.stamp = self.source.stamp(name)
            self._runs[name] = run
        self._runs.move_to_end(name)
        while len(self._runs) > _KEPT_RUNS:
            self._runs.popitem(last=False)
        self._look(name, run)
        return run

    def _look(self, name: str, run: _Run) -> None:
        """Fold what is new. The stamp tells without opening the journal whether anything is."""
        stamp = self.source.stamp(name)
        if stamp is not None and stamp == run.stamp and not run.reader.is_driven:
            return
        run.stamp = stamp
        before = _seq(run.reader)
        events = run.reader.refresh()
        if _made_at(run.reader) != run.made_at:
            self._begin_again(run)
            return
        if not events:
            return
        self._begin_again(run)

    def _begin_again(self, run: _Run) -> None:
        run.columns = RunColumns(run.reader.state, run.reader.now)
        run.made_at, run.seq = _made_at(run.reader), _seq(run.reader)
        run.looks.clear()
        run.costs = None


def _made_at(reader: RunReader) -> int:
    return reader.made_at


def _seq(reader: RunReader) -> int:
    return reader.seq


_Ask = Callable[[_Worker, Mapping[str, Any]], Any]


def _runs(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    del question
    found = list(lines_of(worker.source))
    lines = [line for line in found if not isinstance(line, Problem)]
    problems = [{"run": each.run, "message": each.message} for each in found if isinstance(each, Problem)]
    return {"lines": lines, "problems": problems, "total": len(lines), "left_out": worker.source.left_out()}


def _head(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    run = worker.run(question["run"])
    state = run.reader.state
    return {**_place_of(run), "summary": summary(state, question["run"], run.reader.now), "deadline": None, "waits": []}


def _attempt(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    reader = worker.run(question["run"]).reader
    view = run_view(reader.state, question["run"], reader.now)
    for task in view["tasks"]:
        for attempt in task["attempts"]:
            if task["path"] == question["task"] and str(attempt["number"]) == question["n"]:
                return {"task": task["path"], "attempt": attempt}
    raise UnknownRun(f"run {question['run']} has no attempt {question['n']} of task {question['task']}")


def _log(worker: _Worker, question: Mapping[str, Any]) -> dict[str, Any]:
    (log,) = list_logs(worker.run(question["run"]).reader, question["task"], int(question["n"]))
    return {"lines": [{"n": n, "parts": [[line, ""]]} for n, line in enumerate(log.text().splitlines())]}


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
        "made_at": str(run.made_at),  # nanoseconds do not fit into a number of JavaScript
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
    looks = [(last, changes) for first, last, changes in run.looks if last > after]
    if after < run.seq and (not looks or run.looks[0][0] > after):
        return {**place, "reset": True, "looks": []}
    return {**place, "looks": [{"seq": last, **changes} for last, changes in looks]}


_ASKED: Mapping[str, _Ask] = {
    "runs": _runs,
    "head": _head,
    "attempt": _attempt,
    "log": _log,
    "tasks": _tasks,
    "timeline": _timeline,
    "changes": _changes,
    "graph": lambda worker, question: answers.graph_answer(worker.run(question["run"]), question),
    "account": lambda worker, question: answers.account_answer(worker.run(question["run"]), question),
    "plan": lambda worker, question: answers.plan_answer(worker.run(question["run"]), question),
    "pools": lambda worker, _: answers.pools_answer(worker.source),
    "totals": lambda worker, question: answers.totals_answer(worker.source, question),
}


def _encoded(document: Any) -> tuple[bytes, bool]:
    if isinstance(document, bytes):
        return document, False
    text = json.dumps({"format": FORMAT, **document}, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    return (gzip.compress(text, 4, mtime=0), True) if len(text) > 1000 else (text, False)


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next question; ``None`` at the end of the input."""
    head = stream.read(QUESTION.size)
    if len(head) < QUESTION.size:
        return None
    (length,) = QUESTION.unpack(head)
    question: dict[str, Any] = json.loads(stream.read(length))
    return question


def main() -> None:
    """Answer until the input ends."""
    questions = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not write among the answers
    settings = _read(questions)
    if settings is None:
        return
    worker = _Worker(settings)
    while True:
        question = _read(questions)
        if question is None:
            break
        status, document = worker.answer(question)
        body, is_gzip = _encoded(document)
        answers.write(ANSWER.pack(question["id"], status, is_gzip, len(body)) + body)
        answers.flush()
    worker.source.close()


if __name__ == "__main__":
    main()
