"""The page's sources of runs: one interface for a project's state folder and for a cluster through the caller's kubeconfig.

A source opens runs as :class:`~spotwright.records.reader.RunReader`, so a run looks the same from each. A third source would
fit here: the controller's store, for a page that a cluster serves to a team.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from spotwright.engine.events import TaskStatus
from spotwright.engine.ports import Liveness
from spotwright.errors import UnknownRun
from spotwright.records.journal import JournalStamp, journal_stamp
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder, StateFolder

__all__ = ["ClusterRuns", "LocalRuns", "Problem", "RunName", "RunsSource"]

_LISTED = 1.0  # seconds for which a list is kept, at least
_SHARE = 20.0  # and this many times the duration of making it
_LISTED_CLUSTER = 2.0
_LONGEST = 255  # bytes of a file's name
_TRIES = 4  # after a lost connection, 1.4 seconds: the page retries by itself


class RunName(NamedTuple):
    """A run in a list. ``made_at``: nanoseconds. ``stamp``: changes with the run; empty if costly to compute.

    ``changed_at``: Unix seconds, the time of its last change.
    """

    name: str
    made_at: int
    stamp: str
    changed_at: float


class Problem(NamedTuple):
    """A run that cannot be read, and why."""

    run: str
    message: str


class RunsSource(Protocol):
    """The page's interface to a place with runs."""

    kind: str
    """``state`` or ``cluster``."""

    def check(self) -> None:
        """Raise :class:`SpotwrightError` for an unreadable source."""

    def names(self) -> Sequence[RunName]:
        """All runs, newest first."""

    tells_causes: bool
    """Whether its lines have the causes of attempts."""

    def line(self, name: str) -> dict[str, Any] | None:
        """The line of a run, if the source has it; ``None``: open the run. Raises :class:`UnknownRun`."""

    def find(self, name: str) -> str:
        """The full name of a run by its beginning, or ``last``. Raises :class:`UnknownRun`."""

    def open(self, name: str) -> RunReader:
        """A reader of the run of exactly this name. Raises :class:`SpotwrightError`."""

    def stamp(self, name: str) -> object:
        """Changes when the run has new events; ``None`` if only a look can show it."""

    def rehearsals(self) -> Sequence[Path]:
        """The state folders of rehearsals, newest first."""

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """The pools that new attempts skip now."""

    problems: Sequence[Problem]
    """Runs that :meth:`names` leaves out because they cannot be read."""

    def close(self) -> None:
        """Release connections."""


class LocalRuns:
    """The runs of a state folder. ``is_alive`` says whether the holder of a lease lives."""

    kind = "state"
    tells_causes = True

    def __init__(self, path: Path, is_alive: Liveness) -> None:
        self._folder = StateFolder.existing(path)
        self._is_alive = is_alive
        self.problems: Sequence[Problem] = ()  # lines have them
        self._names: Sequence[RunName] = ()
        self._list_again_at = 0.0

    def check(self) -> None:
        """See :meth:`RunsSource.check`: the constructor has looked."""

    def names(self) -> Sequence[RunName]:
        """See :meth:`RunsSource.names`. A list is kept for a second, and one of very many runs for longer."""
        began = time.monotonic()
        if began >= self._list_again_at:
            self._names = [
                RunName(run.name, made_at, "" if stamp is None else str(stamp), _changed_at(stamp))
                for made_at, run in reversed(self._folder.runs_by_age())
                if _is_file_name(run.name)
                for stamp in [journal_stamp(run.journal)]
            ]
            now = time.monotonic()
            self._list_again_at = now + max(_LISTED, _SHARE * (now - began))
        return self._names

    def line(self, _name: str) -> None:
        """See :meth:`RunsSource.line`."""
        return

    def find(self, name: str) -> str:
        """See :meth:`RunsSource.find`."""
        return self._folder.find(name).name

    def open(self, name: str) -> RunReader:
        """See :meth:`RunsSource.open`."""
        folder = self._run(name)
        if not folder.journal.exists():
            raise self._unknown(name)
        try:
            return RunReader(folder, self._is_alive)
        except OSError as error:
            raise UnknownRun(f"run {name} was deleted just now") from error

    def stamp(self, name: str) -> object:
        """See :meth:`RunsSource.stamp`."""
        return journal_stamp(self._run(name).journal)

    def _run(self, name: str) -> RunFolder:
        """The folder of a run, which may be missing; names cannot lead out of the state folder."""
        if not _is_file_name(name):
            raise self._unknown(name)
        return self._folder.run(name)

    def _unknown(self, name: str) -> UnknownRun:
        return UnknownRun(f"no run {name[:100]!r} in {self._folder.path}")

    def rehearsals(self) -> Sequence[Path]:
        """See :meth:`RunsSource.rehearsals`."""
        found: list[tuple[float, Path]] = []
        for path in self._folder.rehearsals.glob("*"):
            with suppress(OSError):
                found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found, reverse=True)]

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """See :meth:`RunsSource.left_out`; each run has its own."""
        return ()

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class ClusterRuns:
    """The runs recorded in a cluster, read with the caller's own login. ``options``: as ``--cluster`` takes them.

    A lost connection is reopened by the next question.
    """

    kind = "cluster"
    tells_causes = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        from spotwright.cluster.kubernetes_login import Kubernetes
        from spotwright.cluster.recorded_runs import open_runs

        self._namespace = str(options.get("namespace") or "")
        self.problems: Sequence[Problem] = ()
        self._lines: dict[str, dict[str, Any]] = {}
        self._names: Sequence[RunName] = ()
        self._listed_at = -_LISTED_CLUSTER
        with ExitStack() as opened:
            kubernetes = Kubernetes(options.get("context"), options.get("kubeconfig"))
            opened.callback(kubernetes.close)
            self._runs = opened.enter_context(open_runs(kubernetes, str(options.get("controller") or ""), tries=_TRIES))
            self._open = opened.pop_all()

    def check(self) -> None:
        """See :meth:`RunsSource.check`."""
        self.names()

    def names(self) -> Sequence[RunName]:
        """See :meth:`RunsSource.names`. The cluster is asked at most every two seconds."""
        if time.monotonic() - self._listed_at >= _LISTED_CLUSTER:
            lines, problems = self._runs.lines(self._namespace)
            self._lines = {str(line["run"]): line for line in lines}
            self._runs.look_at_pools({*self._runs.namespaces.values(), self._namespace})
            self.problems = [Problem("", text) for text in (*problems, self._runs.pools_unknown) if text]
            self._names = [
                RunName(
                    name,
                    int(line["started_at"] * 1e9),
                    f"{zlib.crc32(json.dumps(line).encode()):x}",
                    time.time() if line["finished_at"] is None else line["finished_at"],
                )
                for name, line in reversed(self._lines.items())
            ]
            self._listed_at = time.monotonic()
        return self._names

    def line(self, name: str) -> dict[str, Any]:
        """See :meth:`RunsSource.line`: the recorder's status of a run, without causes, waste and savings."""
        if name not in self._lines:
            raise UnknownRun(f"run {name!r} does not exist, or you may not read it")
        line = self._lines[name]
        tasks = line["tasks"]
        done = sum(tasks.get(status.value, 0) for status in TaskStatus if status.is_good)
        return {
            **line,
            "namespace": self._runs.namespaces.get(name, ""),
            "progress": done / tasks["all"] if tasks["all"] else 0.0,
        }

    def find(self, name: str) -> str:
        """See :meth:`RunsSource.find`."""
        return self._runs.open(name, self._namespace).folder.name

    def open(self, name: str) -> RunReader:
        """See :meth:`RunsSource.open`. Only a whole name counts, as in a state folder."""
        reader = self._runs.open(name, self._namespace)
        if reader.folder.name != name:
            raise UnknownRun(f"run {name!r} does not exist, or you may not read it")
        return reader

    def stamp(self, _name: str) -> object:
        """See :meth:`RunsSource.stamp`."""
        return None

    def rehearsals(self) -> Sequence[Path]:
        """See :meth:`RunsSource.rehearsals`: they run on one machine."""
        return ()

    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """See :meth:`RunsSource.left_out`."""
        return self._runs.left_out

    def close(self) -> None:
        """See :meth:`RunsSource.close`."""
        self._open.close()


def _is_file_name(name: str) -> bool:
    """Whether a name is valid for a folder in the folder of runs."""
    if "/" in name or "\0" in name or name in {"", ".", ".."}:
        return False
    try:
        return len(name.encode()) <= _LONGEST
    except UnicodeEncodeError:  # bytes that are not text
        return False


def _changed_at(stamp: JournalStamp | None) -> float:
    """The newest time of a journal's files; now, without a stamp: it is being written."""
    return time.time() if stamp is None else max(stamp[0], stamp[3]) / 1e9
