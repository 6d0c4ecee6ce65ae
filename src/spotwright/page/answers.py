"""The documents of a run that need its account: graph, cost, plan; and those of many runs: pools and totals.

The parameters of a question are texts of an address, and are checked here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from spotwright.errors import InputError, SpotwrightError
from spotwright.model.quantities import parse_duration
from spotwright.page.details import pools
from spotwright.page.money import account_document, plan_document, totals_document
from spotwright.page.scopes import graph
from spotwright.page.sources import Problem, RunsSource
from spotwright.records.reader import RunReader
from spotwright.views.account import Account, account

__all__ = ["KeptRun", "account_answer", "graph_answer", "number_in", "plan_answer", "pools_answer", "totals_answer"]

_DAY = 86400.0
_MOST_RUNS = 2000  # of one answer about many runs: reading more takes longer than a person waits


class KeptRun(Protocol):
    """A run that a worker keeps."""

    reader: RunReader

    def account(self) -> Account:
        """Its account: of now, or a moment old where the run is large and goes on."""


def number_in(question: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of at most nine digits. Raises :class:`InputError`."""
    text = str(question.get(name, "" if default is None else default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise InputError(f"{name}: expected a number, found {text[:40]!r}")
    return int(text)


def graph_answer(run: KeptRun, question: Mapping[str, Any]) -> dict[str, Any]:
    """One scope of the pipeline."""
    first = number_in(question, "first", 0)
    return graph(run.reader, str(question.get("scope", "")), run.account(), first)


def account_answer(run: KeptRun, _question: Mapping[str, Any]) -> dict[str, Any]:
    """What was spent on what."""
    return account_document(run.reader, run.account())


def plan_answer(run: KeptRun, _question: Mapping[str, Any]) -> dict[str, Any]:
    """The plan beside what came."""
    return plan_document(run.reader, run.account())


def pools_answer(source: RunsSource) -> dict[str, Any]:
    """The pools over the runs of a day."""
    now = time.time()
    problems: list[Problem] = []
    document = pools(_readers(source, now - _DAY, problems, by_end=True), now)
    return {**document, **_problems(problems)}


def totals_answer(source: RunsSource, question: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of the runs that began within a time, such as ``7d``."""
    try:
        span = parse_duration(str(question.get("since") or "7d"))
    except ValueError as error:
        raise InputError(f"since: {error}") from error
    since = time.time() - span
    problems: list[Problem] = []
    found = ((reader, account(reader.state, reader.now)) for reader in _readers(source, since, problems))
    return {**totals_document(found, since), **_problems(problems)}


def _readers(source: RunsSource, since: float, problems: list[Problem], *, by_end: bool = False) -> Iterator[RunReader]:
    """The runs that began after a moment, newest first, one in memory at a time; ``by_end``: or that have changed since."""
    for count, run in enumerate(source.names()):
        if count >= _MOST_RUNS:
            problems.append(
                Problem("", f"only the newest {_MOST_RUNS:,} runs are counted: spotwright report --since counts all")
            )
            return
        if run.made_at / 1e9 < since and not by_end:
            return
        try:
            reader = source.open(run.name)
        except SpotwrightError as error:
            problems.append(Problem(run.name, f"run {run.name} is left out: {error}"))
            continue
        if by_end and reader.state.known_until(reader.now) < since:
            return  # runs before it are older still, but for one that a resume took up again
        yield reader


def _problems(problems: list[Problem]) -> dict[str, Any]:
    return {"problems": [{"run": each.run, "message": each.message} for each in problems]}
