"""Answer questions about runs: find the run, check the address's parameters, and enforce the limits.

Every document is made by a pure function elsewhere.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spotwright.engine.event_codec import EVENT_TYPES
from spotwright.errors import InputError, SpotwrightError, StateError, UnknownRun
from spotwright.model.quantities import parse_duration
from spotwright.page.artifacts import artifact_raw, task_artifacts
from spotwright.page.attempt_panel import attempt_panel, history, nodes
from spotwright.page.columns import Marks, timeline
from spotwright.page.heads import deadline_of, pools
from spotwright.page.kept_runs import KeptRun, KeptRuns
from spotwright.page.log_lines import RunLogs
from spotwright.page.money import account_document, plan_document, totals_document
from spotwright.page.run_sources import Problem, RunsSource
from spotwright.page.scopes import graph
from spotwright.records.reader import ENVIRONMENT, RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.views.account import Account, account
from spotwright.visible_text import visible

__all__ = ["answer", "rehearsals_document"]

_LOG = logging.getLogger(__name__)

_PIECE = 1 << 20  # bytes of a log in one answer
_MOST_DOWNLOADS = 8  # in parallel for one run; for others the log is read again from its start
_MOST_ROWS = 1000  # of the history in one answer
_DAY = 86400.0
_POOLS_EVERY = 4.0  # seconds between answers about pools ...
_POOLS_SHARE = 20.0  # ... and this many times the duration of the last one
_MOST_REHEARSALS = 200  # in a list
_LARGEST_REPORT = 20_000_000  # bytes
_MOST_RUNS = 2000  # in one answer about many runs: reading more takes too long

_Question = Mapping[str, Any]


def answer(runs: KeptRuns, question: _Question) -> tuple[int, Any]:
    """The status and the document or bytes for a question."""
    name = str(question.get("ask"))
    try:
        if name in _OF_A_RUN:
            return 200, _of_a_run(runs, name, question)
        if name in _OF_ALL:
            return 200, _OF_ALL[name](runs, question)
    except UnknownRun as error:
        return 404, {"error": "not-found", "message": str(error)}
    except InputError as error:
        return 400, {"error": "input", "message": str(error)}
    except SpotwrightError as error:
        return 409, {"error": "unreadable", "message": str(error)}
    except RecursionError:
        return 409, {"error": "unreadable", "message": "a value of this run is nested too deeply to be shown"}
    except Exception:  # noqa: BLE001  # one fault must not end all other answers
        _LOG.exception("cannot answer the request %s", question)
        return 500, {"error": "fault", "message": "internal error of the page; see its terminal for details"}
    return 404, {"error": "not-found", "message": "address not found"}


def _of_a_run(runs: KeptRuns, name: str, question: _Question) -> Any:
    """The document about a run, which may be deleted meanwhile."""
    run = runs.run(str(question.get("run", "")))
    try:
        return _OF_A_RUN[name](run, question)
    except FileNotFoundError as error:
        if runs.has(run):
            raise
        raise UnknownRun(f"run {run.reader.folder.name} was deleted") from error


# -- parameters


def _task_of(run: KeptRun, question: _Question) -> str:
    """The path of a question's task. The page knows paths as shown, with marks for hidden characters."""
    task = str(question.get("task", ""))
    if not task:
        raise InputError("expected task=TASK, the path of a task")
    tasks = run.reader.state.tasks
    return task if task in tasks else next((path for path in tasks if visible(path) == task), task)


def _number(question: _Question, name: str, *, negative: bool = False) -> int | None:
    """A whole number of a question; ``None`` if it has none."""
    text = str(question.get(name, ""))
    if not text:
        return None
    digits = text.removeprefix("-") if negative else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise InputError(f"expected a whole number for {name}, not {text[:40]!r}")
    return int(text)


# -- of all runs


def _find(runs: KeptRuns, question: _Question) -> dict[str, Any]:
    """The whole name of a run by its beginning, or ``last``. Without a name: whether the source is readable."""
    name = str(question.get("name") or "")
    if not name:
        runs.source.check()
    return {"run": runs.source.find(name) if name else ""}


def _pools(runs: KeptRuns, _question: _Question) -> dict[str, Any]:
    """The pools over the runs of a day. Windows share an answer, which is kept the longer the longer it took."""
    now = time.time()
    if now < runs.pools_until and runs.pools is not None:
        return runs.pools
    problems: list[Problem] = []
    document = pools(_readers(runs.source, now - _DAY, problems, by_end=True), now)
    runs.pools = {**document, **_problems_of(problems)}
    runs.pools_until = time.time() + max(_POOLS_EVERY, _POOLS_SHARE * (time.time() - now))
    return runs.pools


def _totals(runs: KeptRuns, question: _Question) -> dict[str, Any]:
    """The totals of the runs that began within a time, such as ``7d``."""
    try:
        span = parse_duration(str(question.get("since") or "7d"))
    except ValueError as error:
        raise InputError(f"since: {error}") from error
    since = time.time() - span
    problems: list[Problem] = []
    found = (
        (reader, costs)
        for reader in _readers(runs.source, since, problems)
        if (costs := _account_of(reader, problems)) is not None
    )
    return {**totals_document(found, since), **_problems_of(problems)}


def _account_of(reader: RunReader, problems: list[Problem]) -> Account | None:
    """The account of one of many runs, whose files are untrusted."""
    try:
        return account(reader.state, reader.now)
    except Exception:  # noqa: BLE001  # one run must not hide all others
        problems.append(_fault(reader.folder.name))
        return None


def _fault(run: str) -> Problem:
    _LOG.exception("run %s cannot be read", run)
    return Problem(run, f"run {run} is left out: it cannot be read; see the page's terminal for details")


def _readers(source: RunsSource, since: float, problems: list[Problem], *, by_end: bool = False) -> Iterator[RunReader]:
    """The runs that began after a moment, newest first, one in memory at a time; ``by_end``: or changed since."""
    for count, run in enumerate(source.names()):
        if count >= _MOST_RUNS:
            text = f"only the newest {_MOST_RUNS:,} runs are counted: spotwright report --since counts all"
            problems.append(Problem("", text))
            return
        if run.made_at / 1e9 < since and not by_end:
            return
        if by_end and run.changed_at < since:
            continue
        try:
            reader = source.open(run.name)
        except SpotwrightError as error:
            problems.append(Problem(run.name, f"run {run.name} is left out: {error}"))
            continue
        except Exception:  # noqa: BLE001  # one run must not hide all others
            problems.append(_fault(run.name))
            continue
        yield reader


def rehearsals_document(source: RunsSource, name: str = "") -> dict[str, Any]:
    """The rehearsals of a project, newest first, and the report of one.

    - ``rehearsals``: ``name``, ``changed_at`` (Unix seconds), ``steps`` (``task``, ``verdict``), ``safe``, ``problem`` (why it
      cannot be read, or empty). Without a report (running or killed), ``steps`` is empty and ``safe`` null;
    - ``of``: their number in all;
    - ``report``: null, or that of the one with the ``name``: the document of ``rehearse --json`` with ``text``, what it printed.
    """
    folders = source.rehearsals()
    found = [_rehearsal(path) for path in folders[:_MOST_REHEARSALS]]
    wanted = next((path for path in folders if path.name == name), None)
    if name and wanted is None:
        raise UnknownRun(f"no rehearsal {name[:100]!r}")
    report = None if wanted is None else _report(wanted)
    if wanted is not None and report is None:
        raise UnknownRun(
            f"rehearsal {name[:100]!r} has no report: it is still running, was stopped, or is from an earlier version"
        )
    return {"rehearsals": found, "of": len(folders), "report": report}


def _rehearsal(folder: Path) -> dict[str, Any]:
    line: dict[str, Any] = {"name": folder.name, "changed_at": None, "steps": [], "safe": None, "problem": ""}
    try:
        line["changed_at"] = folder.stat().st_mtime
        report = _report(folder)
        if report is not None:
            line["steps"] = [{"task": each["task"], "verdict": each["verdict"]} for each in report["steps"]]
            line["safe"] = bool(report["safe"])
    except (OSError, SpotwrightError) as error:
        line["problem"] = str(error)
    except (KeyError, TypeError):
        line["problem"] = f"{StateFolder(folder).rehearsal_report}: not a rehearsal report"
    return line


def _report(folder: Path) -> dict[str, Any] | None:
    """The report of a rehearsal; ``None`` without one. Raises :class:`StateError` for one that cannot be read."""
    path = StateFolder(folder).rehearsal_report
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _LARGEST_REPORT:
            raise StateError(f"{path}: it is larger than {_LARGEST_REPORT:,} bytes")
        report = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path}: cannot be read ({error})") from error
    if not isinstance(report, dict) or not isinstance(report.get("steps"), list):
        raise StateError(f"{path}: not a rehearsal report")
    return report


def _problems_of(problems: list[Problem]) -> dict[str, Any]:
    return {"problems": [{"run": each.run, "message": each.message} for each in problems]}


_OF_ALL: Mapping[str, Callable[[KeptRuns, _Question], Any]] = {
    "runs": lambda runs, question: runs.index.runs(question),
    "find": _find,
    "pools": _pools,
    "totals": _totals,
    "rehearsals": lambda runs, question: rehearsals_document(runs.source, str(question.get("name") or "")),
}


# -- of one run


def _head(run: KeptRun, question: _Question) -> dict[str, Any]:
    return run.head_now(run.account if question.get("costs") else run.account_at_hand)


def _attempt(run: KeptRun, question: _Question) -> dict[str, Any]:
    task, number = _task_of(run, question), _number(question, "n")
    if number is None:
        state = run.reader.state.tasks.get(task) or run.reader.state.retired.get(task)
        number = 0 if state is None else len(state.attempts)
    return attempt_panel(run.reader, task, number, run.account_at_hand)


def _history(run: KeptRun, question: _Question) -> dict[str, Any]:
    kinds = [kind for kind in str(question.get("kind", "")).split(",") if kind]
    known = sorted({each.kind for each in EVENT_TYPES})
    if unknown := sorted(set(kinds) - set(known)):
        raise InputError(f"unknown kind of event {unknown[0][:40]!r}: the kinds are {', '.join(known)}")
    limit = min(_number(question, "limit") or 200, _MOST_ROWS)
    rows = history(run.reader, _number(question, "after") or 0, limit, task=str(question.get("task", "")), kinds=kinds)
    return {**rows, "kinds": known, "seq": run.seq, "t0": run.reader.state.started_at}


def _tasks(run: KeptRun, _question: _Question) -> dict[str, Any]:
    return {**run.columns.tasks(), **run.place}


def _timeline(run: KeptRun, _question: _Question) -> dict[str, Any]:
    return {**timeline(run.reader.state, run.columns, run.reader.now, _marks(run)), **run.place}


def _marks(run: KeptRun) -> Marks:
    deadline = deadline_of(run.reader.state, run.reader.now) or {}
    return Marks(deadline.get("at"), deadline.get("last_moment"), _planned_end(run))


def _planned_end(run: KeptRun) -> tuple[float, float] | None:
    """The 10th and the 90th percentile of the planned end (Unix seconds), if the run has a plan."""
    if run.plan is None and not run.reader.folder.forecast.exists():
        return None
    planned = plan_document(run.reader, run.account, run.plan)["planned"]
    if planned is None or planned["end"]["p10"] is None or planned["end"]["p90"] is None:
        return None
    began = run.reader.state.started_at
    return began + planned["end"]["p10"], began + planned["end"]["p90"]


def _changes(run: KeptRun, question: _Question) -> dict[str, Any]:
    """The changes after a number. ``reset``: load everything again."""
    place = run.place
    after = _number(question, "after") or 0
    if str(question.get("made_at")) != place["made_at"] or after > run.seq:
        return {**place, "reset": True, "looks": []}
    looks = [(last, changes) for first, last, changes in run.looks if last > after]
    if after < run.seq and (not looks or run.looks[0][0] > after):
        return {**place, "reset": True, "looks": []}
    head = run.head_after(_number(question, "head") or 0)
    return {**place, **head, "looks": [{"seq": last, **changes} for last, changes in looks]}


def _graph(run: KeptRun, question: _Question) -> dict[str, Any]:
    first = _number(question, "first") or 0
    return graph(run.reader, str(question.get("scope", "")), run.account_at_hand, first)


# -- its logs and artifacts


def _asked_log(run: KeptRun, question: _Question) -> tuple[RunLogs, str, int | None]:
    """The logs of a run, and the question's: a task, and an attempt, its environment's build, or all attempts."""
    if run.logs is None:
        run.logs = RunLogs(run.reader)
    attempt = ENVIRONMENT if question.get("environment") else _number(question, "n")
    return run.logs, _task_of(run, question), attempt


def _log(run: KeptRun, question: _Question) -> dict[str, Any]:
    logs, task, attempt = _asked_log(run, question)
    line = _number(question, "line", negative=True)
    return logs.page(task, attempt, 0 if line is None else line, _number(question, "count") or 200)


def _find_in_log(run: KeptRun, question: _Question) -> dict[str, Any]:
    logs, task, attempt = _asked_log(run, question)
    return logs.find(task, attempt, str(question.get("q", "")), _number(question, "from") or 0)


def _raw_log(run: KeptRun, question: _Question) -> bytes:
    """The next bytes of a log from an offset on; empty at its end."""
    logs, task, attempt = _asked_log(run, question)
    offset = _number(question, "offset") or 0
    pieces = run.downloads.pop((task, attempt, offset), None)
    if pieces is None:
        pieces = _from(logs.raw(task, attempt), offset)
    piece = b"".join(_up_to(pieces, _PIECE))
    if not piece:
        _check_that_it_is_there(run)
    else:
        while len(run.downloads) >= _MOST_DOWNLOADS:
            del run.downloads[next(iter(run.downloads))]
        run.downloads[task, attempt, offset + len(piece)] = pieces
    return piece


def _check_that_it_is_there(run: KeptRun) -> None:
    """Raise :class:`UnknownRun` for a run that was just deleted, whose logs would seem to have ended."""
    try:
        is_other = run.reader.source.made_at() != run.made_at
    except OSError:
        is_other = True
    if is_other:
        raise UnknownRun(f"run {run.reader.folder.name} was deleted")


def _from(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    """The pieces without their first bytes."""
    for piece in pieces:
        if offset < len(piece):
            yield piece[offset:]
        offset = max(0, offset - len(piece))


def _up_to(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yield pieces up to a number of bytes."""
    while count > 0:
        piece = next(pieces, b"")
        if not piece:
            return
        yield piece
        count -= len(piece)


def _artifact(run: KeptRun, question: _Question) -> bytes:
    """The media type of an artifact's content in a separate line, and the content."""
    task, name = _task_of(run, question), str(question.get("name", ""))
    named = (each["name"] for each in task_artifacts(run.reader, task) if visible(each["name"]) == name)
    raw = artifact_raw(run.reader, task, next(named, name))
    media = f"{raw.media}; charset=utf-8" if raw.media == "text/html" else raw.media
    return media.encode() + b"\n" + raw.data


_OF_A_RUN: Mapping[str, Callable[[KeptRun, _Question], Any]] = {
    "head": _head,
    "tasks": _tasks,
    "timeline": _timeline,
    "changes": _changes,
    "graph": _graph,
    "attempt": _attempt,
    "account": lambda run, _: account_document(run.reader, run.account),
    "plan": lambda run, _: plan_document(run.reader, run.account, run.plan),
    "nodes": lambda run, _: nodes(run.reader),
    "history": _history,
    "log": _log,
    "log/find": _find_in_log,
    "log/raw": _raw_log,
    "artifacts": lambda run, question: {"artifacts": task_artifacts(run.reader, _task_of(run, question))},
    "artifact": _artifact,
}
