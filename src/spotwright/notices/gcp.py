"""Reads preemption and host maintenance of this machine from Google Compute Engine's metadata server.

Sources: Google Cloud, "Create and use Spot VMs" (``instance/preempted`` is ``TRUE`` once the machine is preempted; 30 seconds
between the soft-off signal and the end, best effort), "Query VM metadata" (the header ``Metadata-Flavor: Google``, in the
request and in the answer; ``wait_for_change``, ``last_etag`` and ``timeout_sec``; 503 while the server itself is maintained) and
"Get live migration notices" (``instance/maintenance-event``: 60 seconds ahead, an hour for machines with GPUs, and only for
clients that asked before).
"""

from __future__ import annotations

import time

from spotwright.notices.http_client import HttpClient
from spotwright.notices.notice import SHORTEST, Notice, SourceError

__all__ = ["GcpSource"]

METADATA = "http://169.254.169.254"
ROOT = "/computeMetadata/v1/instance/"
_STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
EVENTS = frozenset({"NONE", "MIGRATE_ON_HOST_MAINTENANCE", _STOPS})

_HEADERS = {"Metadata-Flavor": "Google"}
_TIMEOUT = 5.0
_LONGEST_WAIT = 60.0
_PAUSE = 1.0  # seconds between two requests while there is a notice
_MAINTENANCE = 60.0  # seconds from the notice to the end; an hour at most for machines with GPUs


class GcpSource:
    """Preemption and maintenance of the machine this runs on.

    ``notice`` is the length of a preemption notice in seconds: 30, or 120 where the machine was created with that preemption
    notice. The server does not say when it began, so the seconds count from the first answer: at once, as a request waits for it.
    """

    name = "gcp"

    def __init__(self, url: str = METADATA, *, notice: float = SHORTEST) -> None:
        self._http = HttpClient(self.name, url)
        self._notice = notice
        self._etag = ""
        self._last: Notice | None = None
        self._first: dict[str, float] = {}  # when each value was first seen, by the monotonic clock

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`."""
        if self._last is not None:
            time.sleep(min(timeout, _PAUSE))  # the notice can only run out or be withdrawn
        event = self._maintenance_event()
        waits = self._last is None and event != _STOPS
        try:
            preempted = self._preempted(min(timeout, _LONGEST_WAIT) if waits else 0.0)
        except SourceError:
            self._etag = ""  # so that the next request is answered at once
            raise
        reasons = [("preempted", self._notice, "Google preempts this machine")] if preempted else []
        if event == _STOPS:
            reasons.append((event, _MAINTENANCE, "Google stops this machine for maintenance of its host"))
        notice = self._read(reasons)
        if notice is None or not notice.same_as(self._last):
            self._last = notice
        return self._last

    def _read(self, reasons: list[tuple[str, float, str]]) -> Notice | None:
        now = time.monotonic()
        self._first = {what: self._first.get(what, now) for what, _, _ in reasons}
        left = [(self._first[what] + seconds - now, text) for what, seconds, text in reasons]
        if not left:
            return None
        seconds, text = min(left)
        return Notice(time.time() + seconds, "interruption", self.name, certain=True, reason=text)

    def _preempted(self, wait: float) -> bool:
        """True if the machine is preempted; waits up to ``wait`` seconds for a change."""
        query = (
            f"?wait_for_change=true&timeout_sec={int(wait)}&last_etag={self._etag}" if wait >= 1 and self._etag else ""
        )
        value, etag = self._get(f"preempted{query}", wait + _TIMEOUT)
        if value not in {"TRUE", "FALSE"}:
            raise SourceError(f"{self.name}: 'preempted' is neither TRUE nor FALSE")
        self._etag = etag
        return value == "TRUE"

    def _maintenance_event(self) -> str:
        value, _ = self._get("maintenance-event", _TIMEOUT)
        if value not in EVENTS:
            raise SourceError(f"{self.name}: 'maintenance-event' is none of {', '.join(sorted(EVENTS))}")
        return value

    def _get(self, key: str, timeout: float) -> tuple[str, str]:
        answer = self._http.request(ROOT + key, headers=_HEADERS, timeout=timeout)
        if answer.headers.get("metadata-flavor") != "Google":
            raise SourceError(f"{self.name}: what answers at {self._http.url} is not Google's metadata server")
        if answer.status != 200:
            raise SourceError(f"{self.name}: the metadata server answered {answer.status}")
        etag = answer.headers.get("etag", "")
        return answer.body.decode("ascii", "replace").strip(), etag if etag.isascii() and etag.isalnum() else ""
