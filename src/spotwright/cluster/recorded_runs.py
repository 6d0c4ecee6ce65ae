"""The runs that a controller has recorded in the Kubernetes API, read with the caller's own login and rights.

Logs, the pools that new attempts pass over, and what is watched, are asked of the controller, and only when they are needed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotwright.cluster.api_client import FORBIDDEN, ApiFailed
from spotwright.cluster.api_run_records import ApiRun
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_api_client import TRIES, Controller, RemoteRun, RemoteRuns, find_controller
from spotwright.cluster.run_names import NamedRun, find_run, object_of
from spotwright.cluster.run_objects import API_VERSION, RUN, rows_of
from spotwright.errors import InputError, SpotwrightError, UnknownRun
from spotwright.kube.object_fields import metadata, seconds
from spotwright.records.journal import decoded
from spotwright.records.reader import RunReader
from spotwright.records.state_folder import RunFolder

__all__ = ["RecordedRuns", "are_recorded", "open_runs"]


def are_recorded(kubernetes: Kubernetes) -> bool:
    """Whether the cluster has the kinds in which runs are recorded. Raises :class:`InputError` where it cannot be asked."""
    try:
        kubernetes.get(f"/apis/{API_VERSION}")
    except ApiFailed as error:
        if error.status in (404, *FORBIDDEN):
            return False
        raise InputError(f"context {kubernetes.context}: {error}") from error
    return True


@contextmanager
def open_runs(
    kubernetes: Kubernetes, controller: str = "", *, tries: int | None = None
) -> Iterator[RemoteRuns | RecordedRuns]:
    """The runs of a cluster: those in the Kubernetes API, or those that its controller serves, where it keeps them itself.

    ``controller`` names it, as :func:`~spotwright.cluster.run_api_client.find_controller` takes it. ``tries`` are those of
    a request to it. Raises :class:`InputError`.
    """
    if are_recorded(kubernetes):
        recorded = RecordedRuns(kubernetes, lambda: _found(kubernetes, controller, tries))
        try:
            yield recorded
        finally:
            recorded.close()
        return
    found = _found(kubernetes, controller, tries)
    try:
        yield RemoteRuns(found)
    finally:
        found.close()


def _found(kubernetes: Kubernetes, named: str, tries: int | None) -> Controller:
    controller = find_controller(kubernetes, named)
    controller.tries = TRIES if tries is None else tries
    return controller


class _Forbidden(InputError):
    """The caller may not list the records."""


class RecordedRuns:
    """The runs that the caller may read. ``controller`` finds the controller, which need not run for more than its answers.

    A controller that was started by hand keeps runs itself, also where the kinds are installed. So it is asked where the API has
    no run, and where the caller may not list records.
    """

    def __init__(self, kubernetes: Kubernetes, controller: Callable[[], Controller]) -> None:
        self._kubernetes, self._find_controller = kubernetes, controller
        self._controller: Controller | None = None
        self.left_out: list[dict[str, Any]] = []  # the pools that new attempts pass over, after :meth:`look_at_pools`
        self.namespaces: dict[str, str] = {}  # of the runs, after :meth:`lines`

    def lines(self, namespace: str = "") -> tuple[list[dict[str, Any]], list[str]]:
        """The lines of all runs, oldest first, and a sentence for each run that cannot be read."""
        forbidden: _Forbidden | None = None
        try:
            found = self._recorded_lines(namespace)
        except _Forbidden as error:
            found, forbidden = ([], []), error
        if not any(found):
            with contextlib.suppress(SpotwrightError):  # no controller, or one that says the same
                remote = self._remote
                found = remote.lines(namespace)
                self.namespaces, self.left_out = remote.namespaces, remote.left_out
        if forbidden is not None and not any(found):
            raise forbidden
        return found

    def _recorded_lines(self, namespace: str) -> tuple[list[dict[str, Any]], list[str]]:
        lines: list[dict[str, Any]] = []
        problems: list[str] = []
        self.namespaces = {}
        for found in sorted(self._listed(namespace), key=_made_at):
            name = str(metadata(found).get("name"))
            try:
                lines.append({**json.loads(found["status"]["line"]), "run": name})
                self.namespaces[name] = str(metadata(found).get("namespace"))
            except (KeyError, TypeError, ValueError) as error:
                problems.append(f"run {name} is left out: its SpotRun has no line that can be read ({error!r})")
        return lines, problems

    def _listed(self, namespace: str) -> Iterator[dict[str, Any]]:
        """The SpotRuns of a namespace, or of all; of the login's own one, where the caller may not list those of all."""
        run = ApiRun(self._kubernetes.get, namespace, "all")
        try:
            yield from run.listed(RUN, {})
        except SpotwrightError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiFailed) or cause.status != 403:
                raise
            own = self._kubernetes.namespace
            if namespace or not own:
                where = f"in namespace {namespace}" if namespace else "in all namespaces: name one with -n"
                raise _Forbidden(
                    f"context {self._kubernetes.context}: you may not list SpotRuns {where}; the role view allows it"
                ) from error
            yield from self._listed(own)

    def look_at_pools(self) -> list[dict[str, Any]]:
        """See :meth:`RemoteRuns.look_at_pools`."""
        self.left_out = self._remote.look_at_pools()
        return self.left_out

    def look_at_watched(self, namespace: str) -> Mapping[str, Any]:
        """See :meth:`RemoteRuns.look_at_watched`."""
        return self._remote.look_at_watched(namespace)

    @property
    def _remote(self) -> RemoteRuns:
        return RemoteRuns(self._asked())

    def _asked(self) -> Controller:
        if self._controller is None:
            self._controller = self._find_controller()
        return self._controller

    def close(self) -> None:
        """Close the connection to the controller, if there is one."""
        if self._controller is not None:
            self._controller.close()

    def open(self, name: str, namespace: str = "") -> RunReader:
        """A reader of the run of this name. Raises :class:`UnknownRun`."""
        try:
            return self._open_recorded(name, namespace)
        except (_Forbidden, UnknownRun) as error:
            try:
                return self._remote.open(name, namespace)
            except UnknownRun:
                raise
            except SpotwrightError:  # no controller, or one that cannot be reached
                raise error from None

    def _open_recorded(self, name: str, namespace: str) -> RunReader:
        known = [(one, found) for found in self._listed(namespace) if (one := _named(found)) is not None]
        known.sort(key=lambda each: _made_at(each[1]), reverse=True)
        chosen = find_run(name, [one for one, _ in known], namespace)
        return RunReader(RunFolder(Path(chosen.run)), self._source(chosen.namespace, chosen.run))

    def _source(self, namespace: str, run: str) -> ApiRun:
        def read_log(task: str, attempt: int, environment: str, offset: int, at_most: int) -> bytes:
            return RemoteRun(self._asked(), run).read_log(task, attempt, environment, offset, at_most)

        def other(name: str) -> ApiRun | None:
            one = self._source(namespace, quote(name, safe="-._"))
            return None if one.read() is None else one

        return ApiRun(self._kubernetes.get, namespace, run, read_log=read_log, others=other)


def _made_at(found: Mapping[str, Any]) -> tuple[float, str]:
    return seconds(metadata(found).get("creationTimestamp")) or 0.0, str(metadata(found).get("name"))


def _named(found: Mapping[str, Any]) -> NamedRun | None:
    """The names of a run; None for one that cannot be read, or has only begun."""
    name = str(metadata(found).get("name"))
    try:
        first = next((event for _, event in decoded((row.journal_row for row in rows_of(found)), name, str)), None)
    except SpotwrightError:
        return None  # whoever names it is told that it is not found; lists say why
    return object_of(name, first)
