"""Sources of notices for an attempt: a file, the node agent of its node, or both.

The file appears before the node is reclaimed, and is removed if the node stays after all. Spotwright writes JSON: ``goes_at``
(Unix seconds) and ``why``; ``kind`` and ``certain`` are optional. Any other content, or none, means a reclaim at an unknown
time: then the shortest notice of all providers is assumed. In a pod ``SPOTWRIGHT_NOTICE_URL`` names the agent, which knows the
node's end; the file announces the pod's end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from spotwright.notices.http_client import HttpClient
from spotwright.notices.notice import KINDS, SHORTEST, Notice, NoticeWatch, PollingSource, Source, SourceError

__all__ = [
    "FORMAT",
    "LONGEST_WAIT",
    "PORT",
    "EitherSource",
    "FileSource",
    "NodeAgentSource",
]


_MAX_SIZE = 1 << 16  # bytes of a notice that are read


class FileSource(PollingSource):
    """Reads a file five times a second, which costs one system call while it is missing."""

    name = "file"
    interval = 0.2

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def poll(self, timeout: float) -> Notice | None:  # noqa: ARG002  # reading a file does not wait
        """Read the file. Raises :class:`SourceError` if it is unreadable."""
        try:
            with self.path.open("rb") as file:
                written_at = os.fstat(file.fileno()).st_mtime
                text = file.read(_MAX_SIZE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(f"file: {self.path} cannot be read ({error.strerror})") from error
        return _read(text, written_at)


def _read(text: bytes, written_at: float) -> Notice:
    """The notice in a file's content."""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        given = {}
    kind, why = given.get("kind"), given.get("why")
    return Notice(
        ends_at=_moment(given.get("goes_at"), written_at + SHORTEST),
        kind=kind if kind in KINDS else "interruption",
        source="file",
        certain=given.get("certain") is not False,
        reason=why if isinstance(why, str) and why else "the notice file exists",
    )


def _moment(given: Any, otherwise: float) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given) and given > 0:
        return float(given)
    return otherwise


FORMAT = "spotwright-notice/1"
"""Value of ``format`` in every answer of a node agent, which identifies it."""

PORT = 8788
"""Default port of a node agent."""

LONGEST_WAIT = 60.0
"""The longest seconds that an agent lets a client wait."""

_TIMEOUT = 2.0
"""Seconds that an agent on the same node may take to answer, beyond the requested wait."""

_LONGEST_REASON = 500
_LONGEST_TIME = 1e9  # seconds until the end; more than thirty years is rejected


class NodeAgentSource:
    """The node agent at ``url``, such as ``http://10.1.2.3:8788/notice``. Raises :class:`SourceError` for any other form."""

    name = "node-agent"

    def __init__(self, url: str) -> None:
        host, slash, path = url.removeprefix("http://").partition("/")
        self._http = HttpClient(self.name, f"http://{host}")
        if not url.startswith("http://") or not slash or "?" in path or not path.isprintable() or " " in path:
            raise SourceError(f"{self.name}: {url!r} is not an agent's address; use http://HOST:PORT/notice")
        self._path = f"/{path}"
        self._state = ""
        self._last: Notice | None = None

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`."""
        wait = min(timeout, LONGEST_WAIT)
        query = f"?wait={wait:.3f}&since={self._state}" if self._state and wait > 0 else ""
        try:
            answer = self._http.request(self._path + query, timeout=wait + _TIMEOUT)
        except SourceError:
            self._state = ""  # so that the next request returns at once
            raise
        given = self._read(answer.status, answer.body)
        self._state = given["state"]
        notice = _notice(given["notice"])
        if notice is None or not notice.same_as(self._last):
            self._last = notice
        return self._last

    def _read(self, status: int, body: bytes) -> dict[str, Any]:
        """The answer of an agent. Raises :class:`SourceError` for any other or incomplete answer."""
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise SourceError(f"{self.name}: {self._http.url} is not a node agent (HTTP {status})")
        if status != 200:
            raise SourceError(f"{self.name}: {_text(given.get('problem')) or f'it answered {status}'}")
        state = given.get("state")
        if not isinstance(state, str) or not (state.isascii() and state.isalnum()) or "notice" not in given:
            raise SourceError(f"{self.name}: the agent at {self._http.url} sent an incomplete notice")
        return given


def _notice(given: Any) -> Notice | None:
    """The notice in an answer. Raises :class:`SourceError` for an incomplete one."""
    if given is None:
        return None
    if (
        not isinstance(given, dict)
        or given.get("kind") not in KINDS
        or not isinstance(given.get("certain"), bool)
        or not isinstance(given.get("source"), str)
    ):
        raise SourceError("node-agent: incomplete notice")
    # the time left counts, not the agent's clock, which may be set meanwhile
    ends_at = time.time() + _left(given.get("seconds_left", ""), certain=given["certain"])
    return Notice(ends_at, given["kind"], _text(given["source"]), given["certain"], _text(given.get("reason")))


def _left(given: Any, *, certain: bool) -> float:
    """Seconds until the end; infinite if unknown, which a certain notice forbids."""
    if given is None and not certain:
        return math.inf
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not abs(given) < _LONGEST_TIME:
        raise SourceError("node-agent: notice without a time")
    return float(given)


def _text(given: Any) -> str:
    return " ".join(given.split())[:_LONGEST_REASON] if isinstance(given, str) else ""


_FIRST_ANSWER = 1.0  # seconds for which the first call waits for an agent's answer
_POLL = 0.2  # seconds between two looks at the file


class EitherSource:
    """The notice in ``file``, with the earlier end if ``agent`` has one too; without one, the last notice of the agent.

    The agent need not answer.
    """

    def __init__(self, agent: Source, file: Source) -> None:
        self.name = agent.name
        self._file = file
        self._watch = NoticeWatch(agent, lambda _notice: None)
        self._last: Notice | None = None
        self._answered = False

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`. Never raises: a missing file is an answer, even without an agent."""
        if not self._answered:
            self._watch.start()
            self._wait_for_agent()
        deadline = time.monotonic() + timeout
        while True:
            notice = self._current()
            left = deadline - time.monotonic()
            if notice != self._last or not self._answered or left <= 0:
                self._last, self._answered = notice, True
                return notice
            time.sleep(min(left, _POLL))

    def stop(self) -> None:
        """Stop watching the agent, for callers that outlive this source."""
        self._watch.stop()

    def _current(self) -> Notice | None:
        ours, theirs = None, self._watch.current
        with contextlib.suppress(SourceError):  # an unreadable file counts as empty; the agent may know
            ours = self._file.wait(0)
        if ours is None or theirs is None or not theirs.certain:
            return ours or theirs
        return replace(ours, ends_at=min(ours.ends_at, theirs.ends_at))

    def _wait_for_agent(self) -> None:
        deadline = time.monotonic() + _FIRST_ANSWER
        while not (self._watch.answered or self._watch.problem) and time.monotonic() < deadline:
            time.sleep(0.002)
