"""The published state of the agent: the notice of its node, and nothing else about the machine.

``GET /notice`` is answered at once. With ``?wait=SECONDS&since=STATE`` it is a long poll: the answer comes when the state differs
from STATE, or after SECONDS. ``GET /health`` tells whether the source of notices answers. Every other request is refused.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from spotwright.agent.http_server import DeferredResponse, Request, Response
from spotwright.notices import Notice
from spotwright.notices.node_agent import FORMAT, LONGEST_WAIT

__all__ = ["NoticeBoard"]


class NoticeBoard:
    """The published state of one node.

    ``problem`` returns why its source of notices cannot be reached, or an empty text. ``on_change`` is called after each change.
    """

    def __init__(self, problem: Callable[[], str], on_change: Callable[[], None] = lambda: None) -> None:
        self._problem, self._on_change = problem, on_change
        self._lock = threading.Lock()
        self._agent = secrets.token_hex(4)  # so that the states of two agents always differ
        self._changes = 0
        self._notice: Notice | None = None
        self._open_requests = 0
        self._last_request: float | None = None

    def update(self, notice: Notice | None) -> None:
        """Publish another notice, or ``None``: there is none any more. Safe in any thread."""
        with self._lock:
            self._notice, self._changes = notice, self._changes + 1
        self._on_change()

    @property
    def notice(self) -> Notice | None:
        """The published notice."""
        return self._notice

    def idle_seconds(self) -> float | None:
        """Seconds since a client last had a request open; ``None`` if no client ever had."""
        if self._open_requests:
            return 0.0
        return None if self._last_request is None else time.monotonic() - self._last_request

    def handle(self, request: Request) -> Response | DeferredResponse:
        """Answer one request."""
        if request.method not in {"GET", "HEAD"}:
            return _json(405, {"format": FORMAT, "problem": "this agent only publishes: GET /notice"})
        if request.path == "/health":
            return _json(200, {"format": FORMAT, "problem": self._problem()})
        if request.path != "/notice":
            return _json(404, {"format": FORMAT, "problem": "there is only /notice, and /health"})
        self._last_request = time.monotonic()
        wait = _seconds(request.query.get("wait", ""))
        if wait <= 0 or request.query.get("since") != self.state:
            return self._response()
        self._open_requests += 1
        since = self.state
        return DeferredResponse(
            time.monotonic() + wait,
            lambda over: self._response() if over or self.state != since else None,
            self._on_close,
        )

    @property
    def state(self) -> str:
        """Name of the published state; another one after each change."""
        return f"{self._agent}{self._changes}"

    def _on_close(self) -> None:
        self._open_requests -= 1
        self._last_request = time.monotonic()

    def _response(self) -> Response:
        with self._lock:
            notice, state = self._notice, self.state
        problem = self._problem()
        if notice is None and problem:
            return _json(503, {"format": FORMAT, "problem": problem})
        published = _as_json(notice) if notice is not None else None
        return _json(200, {"format": FORMAT, "state": state, "notice": published})


def _as_json(notice: Notice) -> dict[str, Any]:
    has_end = math.isfinite(notice.ends_at)
    return {
        "ends_at": notice.ends_at if has_end else None,
        "seconds_left": notice.ends_at - time.time() if has_end else None,
        "kind": notice.kind,
        "source": notice.source,
        "certain": notice.certain,
        "reason": notice.reason,
    }


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(status, json.dumps(content).encode())


def _seconds(text: str) -> float:
    """The seconds that a client wants to wait; 0 for anything but a finite number."""
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, LONGEST_WAIT) if math.isfinite(seconds) else 0.0
