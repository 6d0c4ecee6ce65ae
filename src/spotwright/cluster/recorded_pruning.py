"""Chooses and deletes records of runs in the Kubernetes API for ``spotwright prune --cluster``, with the caller's rights.

A run is one SpotRun: what belongs to it goes with it, and its logs in a store within the hour. Runs that go on stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotwright.cluster.api_client import FORBIDDEN, ApiFailed
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.recorded_runs import RecordedRuns
from spotwright.cluster.run_names import find_run, named_run
from spotwright.cluster.run_objects import ENDED_LABEL, RUN, records_path
from spotwright.errors import InputError
from spotwright.kube.object_fields import metadata, seconds, uid_of
from spotwright.records.trash import Item, Sort
from spotwright.views.text import age_text

__all__ = ["RecordedPruning"]


_GONE, _ANOTHER = 404, 409  # statuses of a run that is not there, and of another one that has its name by now


class RecordedPruning:
    """Runs of a namespace, or of all, that ended ``age`` seconds ago, but for those in ``keep`` and the ``keep_last`` newest."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        runs: RecordedRuns,
        namespace: str,
        *,
        age: float,
        keep: Sequence[str] = (),
        keep_last: int | None = None,
    ) -> None:
        """Raises :class:`UnknownRun` for a name in ``keep`` that no run has."""
        if keep_last is not None and keep_last < 0:
            raise InputError(f"--keep-last {keep_last}: expected a number from 0")
        self._kubernetes, self._runs, self._namespace = kubernetes, runs, namespace
        self._age, self._keep_last = age, keep_last
        self._uids: dict[str, str] = {}  # of SpotRuns, by namespace and name
        named = [one for found in reversed(runs.listed(namespace)) if (one := named_run(found)) is not None]
        self._keep = {find_run(name, named, namespace).run for name in keep}

    def take_stock(self, now: float) -> list[Item]:
        """All runs, oldest first, each with the reason why it stays."""
        found = self._runs.listed(self._namespace)
        newest = {uid_of(each) for each in found[len(found) - (self._keep_last or 0) :]}
        return [self._item(each, now, is_newest=uid_of(each) in newest) for each in found]

    def _item(self, found: Mapping[str, Any], now: float, *, is_newest: bool) -> Item:
        name, namespace = str(metadata(found).get("name")), str(metadata(found).get("namespace"))
        status = found.get("status") or {}
        ended_at = seconds(status.get("finishedAt"))
        kept = ""
        if name in self._keep:
            kept = "named by --keep"
        elif ended_at is None or (metadata(found).get("labels") or {}).get(ENDED_LABEL) != "true":
            kept = "under way"
        elif is_newest:
            kept = f"one of the {self._keep_last} newest"
        elif now - ended_at < self._age:
            kept = f"used in the last {age_text(self._age)}"
        path = Path(namespace, name)
        self._uids[str(path)] = uid_of(found)
        used_at = ended_at or seconds(metadata(found).get("creationTimestamp")) or now
        return Item(Sort.RUN, name, path, used_at, int(status.get("bytes") or 0), kept, str(status.get("phase", "")))

    def delete(self, items: Iterable[Item]) -> Iterator[tuple[Item, str]]:
        """Delete runs; each with the reason why it could not be, empty if it was."""
        for item in items:
            namespace, _, name = str(item.path).partition("/")
            conditions = {"uid": self._uids[str(item.path)]}
            body = {"propagationPolicy": "Background", "preconditions": conditions}
            try:
                api = self._kubernetes.api
                self._kubernetes.call(api.send("DELETE", records_path(RUN, namespace, name), body))
            except ApiFailed as error:
                yield item, "" if error.status in (_GONE, _ANOTHER) else _why_not(error, namespace, name)
            else:
                yield item, ""


def _why_not(error: ApiFailed, namespace: str, name: str) -> str:
    if error.status not in FORBIDDEN:
        return f"run {name} in namespace {namespace} stays: {error}"
    return (
        f"run {name} in namespace {namespace} stays: only a member of the group spotwright:repair (records.repairGroup of the "
        f"chart) who also has the right to delete SpotRuns there may delete it ({error})"
    )
