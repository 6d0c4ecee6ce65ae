"""Where the page reads runs: one port, two sources, the state folder of a project and a cluster through the caller's kubeconfig.

A source opens runs as :class:`~spotwright.records.reader.RunReader`, so a run looks the same wherever it is read. A third source,
the controller's own store for a page that a cluster serves to a team, has its place here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from spotwright.engine.ports import Liveness
from spotwright.errors import SpotwrightError, UnknownRun
from spotwright.records.journal import journal_stamp
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import StateFolder
from spotwright.views.run_json import summary

__all__ = ["ClusterRuns", "LocalRuns", "Problem", "RunName", "RunsSource"]


class RunName(NamedTuple):
    """A run in a list. ``made_at``: nanoseconds. ``stamp``: changes when the run does; empty where nobody can say cheaply."""

    name: str
    made_at: int
    stamp: str


class Problem(NamedTuple):
    """A run that cannot be read, and why."""

    run: str
    message: str


class RunsSource(Protocol):
    """What the page asks of a place with runs."""

    kind: str
    """``state`` or ``cluster``."""

    def names(self) -> Sequence[RunName]:
        """All runs, newest first."""

    def line(self, name: str) -> dict[str, Any]:
        """The summary of one run, as :func:`spotwright.views.run_json.summary` makes it. Raises :class:`SpotwrightError`."""

    def find(self, name: str) -> str:
        """The full name of a run by its beginning, or ``last``. Raises :class:`UnknownRun`."""

    def open(self, name: str) -> RunReader:
        """A reader of the run of exactly this name. Raises :class:`SpotwrightError`."""

    def stamp(self, name: str) -> object:
        """Changes when the run has new events; ``None`` where only a look can tell."""

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """The pools that new attempts pass over now."""

    def close(self) -> None:
        """Give connections back."""


class LocalRuns:
    """The runs of a state folder. ``is_alive`` tells whether the holder of a lease lives."""

    kind = "state"

    def __init__(self, path: Path, is_alive: Liveness) -> None:
        self._folder = StateFolder.existing(path)
        self._is_alive = is_alive

    def names(self) -> Sequence[RunName]:
        """See :meth:`RunsSource.names`."""
        return [
            RunName(run.name, run.made_at(), str(journal_stamp(run.journal))) for run in reversed(self._folder.runs())
        ]

    def line(self, name: str) -> dict[str, Any]:
        """See :meth:`RunsSource.line`."""
        reader = self.open(name)
        return summary(reader.state, name, reader.now)

    def find(self, name: str) -> str:
        """See :meth:`RunsSource.find`."""
        return self._folder.find(name).name

    def open(self, name: str) -> RunReader:
        """See :meth:`RunsSource.open`."""
        folder = self._folder.run(name)
        if "/" in name or name in {"", ".", ".."} or not folder.journal.exists():
            raise UnknownRun(f"there is no run {name!r} in {self._folder.path}")
        return RunReader(folder, self._is_alive)

    def stamp(self, name: str) -> object:
        """See :meth:`RunsSource.stamp`."""
        return journal_stamp(self._folder.run(name).journal)

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """See :meth:`RunsSource.left_out`; each run tells its own."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


class ClusterRuns:
    """The runs of a cluster, which its controller serves to the caller's own login. ``options``: as ``--cluster`` takes them."""

    kind = "cluster"

    def __init__(self, options: Mapping[str, Any]) -> None:
        from spotwright.cluster.run_api_client import Kubernetes, RemoteRuns, find_controller

        self._namespace = str(options.get("namespace") or "")
        self._open = ExitStack()
        kubernetes = Kubernetes(options.get("context"), options.get("kubeconfig"))
        self._open.callback(kubernetes.close)
        controller = find_controller(kubernetes, str(options.get("controller") or ""))
        self._open.callback(controller.close)
        self._runs = RemoteRuns(controller)
        self._lines: dict[str, dict[str, Any]] = {}
        self.problems: list[Problem] = []

    def names(self) -> Sequence[RunName]:
        """See :meth:`RunsSource.names`."""
        lines, problems = self._runs.lines(self._namespace)
        self._lines = {str(line["run"]): line for line in lines}
        self.problems = [Problem("", text) for text in problems]
        return [RunName(name, int(line["started_at"] * 1e9), "") for name, line in reversed(self._lines.items())]

    def line(self, name: str) -> dict[str, Any]:
        """See :meth:`RunsSource.line`."""
        if name not in self._lines:
            raise UnknownRun(f"there is no run {name!r} that you may read")
        return self._lines[name]

    def find(self, name: str) -> str:
        """See :meth:`RunsSource.find`."""
        return self.open(name).folder.name

    def open(self, name: str) -> RunReader:
        """See :meth:`RunsSource.open`."""
        return self._runs.open(name, self._namespace)

    def stamp(self, _name: str) -> object:
        """See :meth:`RunsSource.stamp`."""
        return None

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """See :meth:`RunsSource.left_out`."""
        return self._runs.left_out

    def close(self) -> None:
        """See :meth:`RunsSource.close`."""
        self._open.close()


def lines_of(source: RunsSource) -> Iterator[dict[str, Any] | Problem]:
    """The summaries of all runs, newest first; a damaged run hides no other."""
    for run in source.names():
        try:
            yield source.line(run.name)
        except SpotwrightError as error:
            yield Problem(run.name, str(error))
