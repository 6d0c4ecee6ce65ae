"""The runs of a cluster for the views of this machine: a list of lines, and a reader of one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.cluster.reading.controller import LOG_AT_ONCE, Controller
from spotwright.errors import SpotwrightError
from spotwright.records.journal import JournalRow, decoded
from spotwright.records.reader import RunReader
from spotwright.records.run_source import Look
from spotwright.records.state_folder import RunFolder

__all__ = ["RemoteRun", "RemoteRuns"]


class RemoteRuns:
    """The runs that a controller serves to the caller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.left_out: list[dict[str, Any]] = []  # the pools that new attempts pass over, after :meth:`lines`

    def lines(self, namespace: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """The lines of all runs, oldest first, and a sentence for each run that cannot be read."""
        lines: list[dict[str, Any]] = []
        problems: list[str] = []
        before = ""
        while True:
            page = self._controller.get("/v1/runs", {"namespace": namespace, "before": before})
            lines += page["runs"]
            problems += page["problems"]
            before = page["next"]
            if not before:
                self.left_out = page.get("left_out", [])
                return lines[::-1], problems

    def look_at_pools(self) -> list[dict[str, Any]]:
        """The pools that new attempts pass over now, each with ``until``, ``since`` and ``times`` in a row."""
        page = self._controller.get("/v1/runs", {"limit": 1})
        self.left_out = page.get("left_out", [])  # a controller of an earlier version tells of none
        return self.left_out

    def open(self, name: str, namespace: str = "") -> RunReader:
        """A reader of the run of this name. Raises :class:`UnknownRun`."""
        found = self._controller.get("/v1/find", {"name": name, "namespace": namespace})
        return RunReader(RunFolder(Path(found["folder"])), RemoteRun(self._controller, found["run"]))


class RemoteRun:
    """The facts of one run, as a controller serves them. It is a :class:`~spotwright.records.run_source.RunSource`."""

    def __init__(self, controller: Controller, name: str) -> None:
        self._controller, self._name = controller, name
        self._path = f"/v1/runs/{quote(name)}"
        self._answer: dict[str, Any] = {}
        self._is_new = False  # the answer has events that no look has taken yet
        self._wait = 0.0
        self._offset = 0.0  # seconds that the controller's clock is ahead of ours

    def made_at(self) -> int:
        """See :meth:`RunSource.made_at`."""
        if not self._answer:
            self._ask(0)
            self._is_new = True
        return int(self._answer["made_at"])

    @contextmanager
    def look(self, after: int) -> Iterator[Look]:
        """See :meth:`RunSource.look`."""
        if not self._is_new or after:
            self._ask(after)
        self._is_new = False
        yield Look(bool(self._answer["driven"]), decoded(self._rows(), f"run {self._name} of the cluster", str))

    def _rows(self) -> Iterator[JournalRow]:
        while True:
            rows = [tuple(row) for row in self._answer["events"]]
            yield from rows
            if not self._answer.get("more"):
                return
            self._ask(rows[-1][0])

    def _ask(self, after: int) -> None:
        params = {"after": after, "wait": self._wait}
        if after:
            params["made_at"] = self._answer["made_at"]
        self._wait = 0.0
        self._answer = self._controller.get(f"{self._path}/events", params)
        self._offset = self._answer["now"] - time.time()

    def plan_count(self) -> int:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_count`."""
        return int(self._answer["plans"])

    def plan_text(self, version: int) -> tuple[str, str]:
        """See :meth:`~spotwright.records.stored_plan.PlanTexts.plan_text`."""
        answer = self._controller.get(f"{self._path}/plans/{version}")
        return str(answer["place"]), str(answer["text"])

    def pause(self, seconds: float) -> None:
        """See :meth:`RunSource.pause`: the controller waits in the next look, and answers as soon as something happens."""
        self._wait = seconds

    def now(self) -> float:
        """See :meth:`RunSource.now`."""
        return time.time() + self._offset

    def read_log(self, task: str, attempt: int, environment: str, offset: int) -> bytes:
        """See :meth:`RunSource.read_log`."""
        parts: list[bytes] = []
        while True:
            query = {"task": task, "attempt": attempt, "environment": environment, "offset": offset}
            part = self._controller.get_bytes(f"{self._path}/log", query)
            parts.append(part)
            offset += len(part)
            if len(part) < LOG_AT_ONCE:
                return b"".join(parts)

    def other_run(self, name: str) -> RemoteRun | None:
        """See :meth:`RunSource.other_run`."""
        other = RemoteRun(self._controller, name)
        try:
            other.made_at()
        except SpotwrightError:
            return None  # deleted, or not for the caller to read: its results remain, its logs do not
        return other
