"""What the agent tells: only whether and when this node goes. Who asks sees no more of the machine than that.

``GET /notice`` answers at once; with ``?wait=SECONDS&since=STATE`` when there is another state than the one that is known, or the
time is over. ``GET /health`` says whether the source answers. Anything else is refused.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from spotwright.notices import Notice
from spotwright.notices.node_agent import FORMAT, LONGEST_WAIT
from spotwright.notices.serving import Later, Request, Response

__all__ = ["Board"]


class Board:
    """The state of one node. ``problem`` says why its source cannot be asked, and is empty while it answers."""

    def __init__(self, problem: Callable[[], str], changed: Callable[[], None] = lambda: None) -> None:
        self._problem, self._changed = problem, changed
        self._lock = threading.Lock()
        self._start = secrets.token_hex(4)  # states of two agents are never taken for one another
        self._count = 0
        self._notice: Notice | None = None
        self._open = 0
        self._last_open: float | None = None

    def update(self, notice: Notice | None) -> None:
        """There is another notice, or none any more. From any thread."""
        with self._lock:
            self._notice, self._count = notice, self._count + 1
        self._changed()

    @property
    def notice(self) -> Notice | None:
        """What is told now."""
        return self._notice

    def quiet(self) -> float | None:
        """For how many seconds nobody has had a question open; ``None``: nobody ever asked."""
        if self._open:
            return 0.0
        return None if self._last_open is None else time.monotonic() - self._last_open

    def handle(self, request: Request) -> Response | Later:
        """Answer one request."""
        if request.method not in {"GET", "HEAD"}:
            return _json(405, {"format": FORMAT, "problem": "this agent only tells: GET /notice"})
        if request.path == "/health":
            return _json(200, {"format": FORMAT, "problem": self._problem()})
        if request.path != "/notice":
            return _json(404, {"format": FORMAT, "problem": "there is only /notice, and /health"})
        self._last_open = time.monotonic()
        wait = _seconds(request.query.get("wait", ""))
        if wait <= 0 or request.query.get("since") != self._state():
            return self._say()
        self._open += 1
        since = self._state()
        return Later(
            time.monotonic() + wait, lambda over: self._say() if over or self._state() != since else None, self._gone
        )

    def _gone(self) -> None:
        self._open -= 1
        self._last_open = time.monotonic()

    def _state(self) -> str:
        return f"{self._start}{self._count}"

    def _say(self) -> Response:
        with self._lock:
            notice, state = self._notice, self._state()
        problem = self._problem()
        if notice is None and problem:
            return _json(503, {"format": FORMAT, "problem": problem})
        return _json(
            200, {"format": FORMAT, "state": state, "notice": _written(notice) if notice is not None else None}
        )


def _written(notice: Notice) -> dict[str, Any]:
    known = math.isfinite(notice.ends_at)
    return {
        "ends_at": notice.ends_at if known else None,
        "seconds_left": notice.ends_at - time.time() if known else None,
        "kind": notice.kind,
        "source": notice.source,
        "certain": notice.certain,
        "reason": notice.reason,
    }


def _json(status: int, content: dict[str, Any]) -> Response:
    return Response(status, json.dumps(content).encode())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, LONGEST_WAIT) if math.isfinite(seconds) else 0.0
