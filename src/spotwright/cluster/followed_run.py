"""A recorded run as its readers take it: with its logs, with news as soon as there is some, and whether it is still recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spotwright.cluster.api_run_records import ApiRun, ReadLog
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.log_tail_text import TailText
from spotwright.cluster.run_objects import ATTEMPT, Home, object_name
from spotwright.cluster.run_watch import RunWatch
from spotwright.records.stored_plan import Look

__all__ = ["FollowedRun"]


_PAUSE = 1.0  # seconds between two looks, at least, where nothing is heard in between


class FollowedRun(ApiRun):
    """``read_log`` reads logs that are not in the attempts' objects. ``is_recorded`` tells whether somebody records now."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        name: str,
        *,
        read_log: ReadLog,
        others: Callable[[str], ApiRun | None],
        is_recorded: Callable[[], bool],
    ) -> None:
        super().__init__(kubernetes.get, namespace, name, others=others)
        self._kubernetes, self._read_elsewhere, self._is_recorded = kubernetes, read_log, is_recorded
        self._watch: RunWatch | None = None
        self._tails: dict[str, TailText] = {}  # by the name of the attempt's object

    @contextmanager
    def look(self, after: int, only_of: str = "") -> Iterator[Look]:
        """See :meth:`RunSource.look`."""
        with super().look(after, only_of) as found:
            yield found._replace(is_driven=found.is_driven and self._is_recorded())

    def read_all(self) -> None:
        """Read every object of the run, or those that were heard to have changed. Raises :class:`StateError`."""
        changes = None if self._watch is None else self._watch.take()
        if changes is None:
            if self._watch is not None:
                self._watch.end()
                self._watch = None
            super().read_all()
            return
        for found in changes:
            self.hear(found)

    def pause(self, seconds: float) -> None:
        """See :meth:`RunSource.pause`: until there is news, where the API server tells it."""
        if self._watch is None and len(self.versions) > 1:
            self._watch = RunWatch(self._kubernetes, self.namespace, self.name, self.workload, self.versions)
        if self._watch is None:
            time.sleep(max(seconds, _PAUSE))
        else:
            self._watch.wait(max(seconds, _PAUSE))

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """See :meth:`RunSource.read_log`. A run of which some attempt has the end of its log has none elsewhere."""
        if environment:
            return b""
        statuses = {name: found.get("status") or {} for (kind, name), found in self.objects.items() if kind == ATTEMPT}
        if not any("logTail" in status for status in statuses.values()):
            return self._read_elsewhere(task, attempt, environment, offset, at_most)
        name = object_name(self.name, Home(task, attempt))
        tail = self._tails.setdefault(name, TailText())
        tail.take(statuses.get(name, {}))
        return tail.text[offset:] if at_most < 0 else tail.text[offset : offset + at_most]
