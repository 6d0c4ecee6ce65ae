"""Count the skipped tests by reason, and fail a CI run that skips for a reason nobody listed.

A skip hides a test that does not run. So every reason stands in ``skips.yaml`` with why it is legitimate; the summary of
a run shows each with its number of tests, and a run with ``CI=true`` fails on a reason that is not listed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import yaml

__all__ = ["LIST", "SkipSummary", "justification", "read"]

LIST = Path(__file__).with_name("skips.yaml")


def read(path: Path = LIST) -> Mapping[re.Pattern[str], str]:
    """The listed reasons as patterns, each with its justification."""
    return {re.compile(entry["reason"]): entry["because"] for entry in yaml.safe_load(path.read_text(encoding="utf-8"))}


def justification(reason: str, listed: Mapping[re.Pattern[str], str]) -> str | None:
    """Why a skip for this reason is legitimate, or None if the reason is not listed."""
    return next((because for pattern, because in listed.items() if pattern.fullmatch(reason)), None)


class SkipSummary:
    """A pytest plugin: a section with the reasons of all skips, and exit code 1 in CI if one of them is not listed."""

    def __init__(self, listed: Mapping[re.Pattern[str], str], *, strict: bool) -> None:
        self._listed, self._strict = listed, strict
        self._counts: Counter[str] = Counter()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that skipped itself while it was collected."""
        self._count(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a skipped test."""
        self._count(report)

    def _count(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            self._counts[" ".join(report.longrepr[2].removeprefix("Skipped: ").split())] += 1

    def unlisted(self) -> Iterable[str]:
        """The reasons of this run that are not in the list."""
        return [reason for reason in self._counts if justification(reason, self._listed) is None]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run in CI for a reason that is not listed."""
        if self._strict and self.unlisted() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write each reason with the number of its tests and its justification."""
        if not self._counts:
            return
        terminalreporter.section("skipped tests")
        for reason, count in self._counts.most_common():
            terminalreporter.write_line(f"{count:4}  {reason}")
            because = justification(reason, self._listed)
            if because is None:
                terminalreporter.write_line(
                    f"      NOT LISTED in tests/{LIST.name}; a run with CI=true fails", red=True
                )
            else:
                terminalreporter.write_line(f"      {because}")
