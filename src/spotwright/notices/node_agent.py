"""Reads notices from the node agent of this node, which ``SPOTWRIGHT_NOTICE_URL`` names in a pod.

The agent answers ``GET /notice`` with a small JSON object, whose ``state`` changes with the notice. A client that sends the last
state it saw, and the seconds that it is ready to wait, is answered when the state differs. So a notice arrives at once, without
frequent requests.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

from spotwright.notices.http_client import HttpClient
from spotwright.notices.notice import KINDS, Notice, SourceError

__all__ = ["FORMAT", "LONGEST_WAIT", "PORT", "NodeAgentSource"]

FORMAT = "spotwright-notice/1"
"""Value of ``format`` in every answer of a node agent, so that no other server at the address is believed."""

PORT = 8788
"""Default port of a node agent."""

LONGEST_WAIT = 60.0
"""Seconds that an agent lets a client wait at most."""

_TIMEOUT = 2.0
"""Seconds that an agent on the same node may take to answer, beyond the requested wait."""

_LONGEST_REASON = 500
_LONGEST_TIME = 1e9  # seconds until the end; anything longer than thirty years is not believed


class NodeAgentSource:
    """The node agent at ``url``, such as ``http://10.1.2.3:8788/notice``. Raises :class:`SourceError` for any other form."""

    name = "node-agent"

    def __init__(self, url: str) -> None:
        host, slash, path = url.removeprefix("http://").partition("/")
        self._http = HttpClient(self.name, f"http://{host}")
        if not url.startswith("http://") or not slash or "?" in path or not path.isprintable() or " " in path:
            raise SourceError(f"{self.name}: {url!r} is no address of an agent: expected http://HOST:PORT/notice")
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
            raise SourceError(f"{self.name}: what listens at {self._http.url} is no node agent (it answered {status})")
        if status != 200:
            raise SourceError(f"{self.name}: {_text(given.get('problem')) or f'it answered {status}'}")
        state = given.get("state")
        if not isinstance(state, str) or not (state.isascii() and state.isalnum()) or "notice" not in given:
            raise SourceError(f"{self.name}: the agent at {self._http.url} answers with an incomplete notice")
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
        raise SourceError("node-agent: it answers with an incomplete notice")
    # the time left counts, not the agent's clock, which may be set meanwhile
    ends_at = time.time() + _left(given.get("seconds_left", ""), certain=given["certain"])
    return Notice(ends_at, given["kind"], _text(given["source"]), given["certain"], _text(given.get("reason")))


def _left(given: Any, *, certain: bool) -> float:
    """Seconds until the end; infinite where the agent does not know it, which a certain notice must."""
    if given is None and not certain:
        return math.inf
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not abs(given) < _LONGEST_TIME:
        raise SourceError("node-agent: it answers with a notice without a time")
    return float(given)


def _text(given: Any) -> str:
    return " ".join(given.split())[:_LONGEST_REASON] if isinstance(given, str) else ""
