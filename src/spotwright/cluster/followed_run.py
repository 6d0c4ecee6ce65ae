"""A recorded run for its readers: its events and logs as they arrive, and whether it is still being recorded.

While a reader waits, it watches for changes, so objects are not listed again. The end of a log in an attempt's object is
presented as a log that only grows, as readers expect.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from spotwright.cluster.api_client import ApiFailed
from spotwright.cluster.api_run_records import ApiRun, ReadLog
from spotwright.cluster.kubernetes_login import Kubernetes
from spotwright.cluster.run_objects import (
    ATTEMPT,
    RUN,
    WORKLOAD_LABEL,
    Home,
    object_name,
    recorder_of,
    records_path,
)
from spotwright.cluster.shown_runs import LogsKept, known_conditions
from spotwright.records.stored_plan import Look

__all__ = ["ArchivedRun", "FollowedRun", "RunWatch", "TailText"]


_LOG = logging.getLogger(__name__)
_LOGS_KEPT = LogsKept.NONE.condition.type
_STORES = LogsKept.OBJECT_STORE.value, LogsKept.VOLUME.value
_PAUSE = 1.0  # least seconds between looks without news
_LASTS, _SILENCE = 300, 330.0  # seconds until the server ends a watch, and until a silent one counts as dead


class RunWatch:
    """Watches from these versions on, by kind, until one of the streams ends. A thread waits for it.

    ``uid`` is the workload's, as in the objects' label. The streams end with the login.
    """

    def __init__(
        self, kubernetes: Kubernetes, namespace: str, name: str, uid: str, versions: Mapping[str, str]
    ) -> None:
        self._kubernetes, self._namespace = kubernetes, namespace
        self._changes: list[dict[str, Any]] | None = []  # None: something was missed
        self._news = threading.Condition()
        self._streams: list[asyncio.Task[None]] = []
        by_name, by_label = f"metadata.name={name}", f"{WORKLOAD_LABEL}={uid}"
        selectors = {
            kind: {"fieldSelector": by_name} if kind == RUN else {"labelSelector": by_label} for kind in versions
        }
        kubernetes.call(
            self._begin(
                [self._follow(kind, {**selectors[kind], "resourceVersion": at}) for kind, at in versions.items()]
            )
        )

    def wait(self, seconds: float) -> None:
        """Wait for news, at most ``seconds``."""
        with self._news:
            self._news.wait_for(lambda: self._changes is None or self._changes, seconds)

    def take(self) -> list[dict[str, Any]] | None:
        """The objects that changed since the last call; None: a stream ended, and everything must be read again."""
        with self._news:
            changes = self._changes
            self._changes = None if changes is None else []
            return changes

    def end(self) -> None:
        """Close the streams."""
        self._kubernetes.call(self._cancel())

    async def _begin(self, streams: list[Coroutine[Any, Any, None]]) -> None:
        self._streams = [asyncio.create_task(stream, name="watch of a run") for stream in streams]

    async def _cancel(self) -> None:
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def _follow(self, kind: str, selector: Mapping[str, str]) -> None:
        asked = {**selector, "watch": "true", "timeoutSeconds": str(_LASTS)}
        try:
            async with self._kubernetes.api.lines(
                records_path(kind, self._namespace), asked, silence=_SILENCE
            ) as lines:
                async for line in lines:
                    change = msgspec.json.decode(line, type=dict[str, Any])
                    if change["type"] not in ("ADDED", "MODIFIED"):  # deleted, or too old
                        return
                    self._heard({"kind": kind, **change["object"]})
        except (ApiFailed, ValueError, KeyError, TypeError) as error:
            _LOG.debug("the watch of %ss in namespace %s ended: %s", kind, self._namespace, error)
        finally:
            self._heard(None)

    def _heard(self, found: dict[str, Any] | None) -> None:
        with self._news:
            if found is None:
                self._changes = None
            elif self._changes is not None:
                self._changes.append(found)
            self._news.notify_all()


class TailText:
    """A reader's position in a log. If it was away too long for the stored end, a line says what is missing."""

    def __init__(self) -> None:
        self.text = b""
        self._end = 0  # bytes of the whole log up to the end of the text

    def take(self, status: Mapping[str, Any]) -> None:
        """Add the new text in an attempt's status."""
        tail = str(status.get("logTail", "")).encode()
        end = int(status.get("logBytes") or len(tail))
        begin = max(0, end - len(tail))
        if end <= self._end:
            return
        if begin > self._end:
            line_end = "\n" if self.text and not self.text.endswith(b"\n") else ""
            missing = begin - self._end
            self.text += (
                f"{line_end}[spotwright: {missing:,} bytes are missing here: whole logs are not stored]\n".encode()
            )
        self.text += tail[max(0, self._end - begin) :]
        self._end = end


class FollowedRun(ApiRun):
    """A recorded run; ``read_log`` reads logs that are not in the attempts' objects.

    ``is_recorded`` tells whether a recorder holds a Lease, given by namespace and name; for None, whether any recorder runs.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        name: str,
        *,
        read_log: ReadLog,
        others: Callable[[str], ApiRun | None],
        is_recorded: Callable[[tuple[str, str] | None], bool],
    ) -> None:
        super().__init__(kubernetes.get, namespace, name, others=others)
        self._kubernetes, self._read_elsewhere, self._is_recorded = kubernetes, read_log, is_recorded
        self._watch: RunWatch | None = None
        self._tails: dict[str, TailText] = {}  # by the name of the attempt's object
        self._elsewhere: set[str] = set()  # names of objects whose log was partly read elsewhere

    @contextmanager
    def look(self, after: int, only_of: str = "") -> Iterator[Look]:
        """See :meth:`RunSource.look`."""
        with super().look(after, only_of) as found:
            recorder = recorder_of(self.objects.get((RUN, self.name), {}))
            yield found._replace(is_driven=found.is_driven and self._is_recorded(recorder))

    def now(self) -> float:
        """See :meth:`RunSource.now`: by the API server's clock, like all times of a run."""
        return self._kubernetes.api.now()

    def read_all(self) -> None:
        """Read every object of the run, or the changed ones. Raises :class:`StateError`."""
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
        """See :meth:`RunSource.pause`: until the API server sends news, if it can."""
        if self._watch is None and len(self.versions) > 1:
            self._watch = RunWatch(self._kubernetes, self.namespace, self.name, self.workload, self.versions)
        if self._watch is None:
            time.sleep(max(seconds, _PAUSE))
        else:
            self._watch.wait(max(seconds, _PAUSE))

    def read_log(self, task: str, attempt: int, environment: str, offset: int, at_most: int = -1) -> bytes:
        """See :meth:`RunSource.read_log`. Attempts of a run may differ: the controller's log store may have changed."""
        if environment:
            return b""
        name = object_name(self.name, Home(task, attempt))
        status = self.objects.get((ATTEMPT, name), {}).get("status") or {}
        if self._is_elsewhere(name, status, Home(task, attempt)):
            data = self._read_elsewhere(task, attempt, environment, offset, at_most)
            self._elsewhere |= {name} if data else set()
            return data
        tail = self._tails.setdefault(name, TailText())
        tail.take(status)
        return tail.text[offset:] if at_most < 0 else tail.text[offset : offset + at_most]

    def _is_elsewhere(self, name: str, status: Mapping[str, Any], home: Home) -> bool:
        """Whether a log is read elsewhere than from its attempt's object. A reader keeps its first source.

        The object also has an incomplete end if a recorder without a store was followed by one with a store.
        """
        if name in self._elsewhere:
            return True
        kept = known_conditions(self.objects.get((RUN, self.name), {}))
        reason = next((each["reason"] for each in kept if each["type"] == _LOGS_KEPT), "")
        if "logTail" not in status:
            return name not in self._tails and reason in ("", *_STORES)
        if status.get("logComplete") or reason not in _STORES or name in self._tails:
            return False
        return bool(self._read_elsewhere(home.task, home.attempt, "", 0, 1))


class ArchivedRun(FollowedRun):
    """A run that is no longer in the API. ``objects`` are the ones in its archive."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        name: str,
        objects: Sequence[dict[str, Any]],
        *,
        read_log: ReadLog,
        others: Callable[[str], ApiRun | None],
    ) -> None:
        super().__init__(kubernetes, namespace, name, read_log=read_log, others=others, is_recorded=lambda _: False)
        self._archived = objects
        self._get = self._of_archive

    def _of_archive(self, path: str, _params: Mapping[str, str] | None) -> dict[str, Any]:
        """The API server's answer, from the archive. Raises :class:`ApiFailed`."""
        if path == records_path(RUN, self.namespace, self.name):
            return next(iter(self._archived))
        return {"items": [each for each in self._archived if path == records_path(str(each["kind"]), self.namespace)]}
