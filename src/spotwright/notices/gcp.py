"""Google Compute Engine's metadata server: whether this machine is preempted, or its host is under maintenance.

Sources: Google Cloud, "Create and use Spot VMs" (``instance/preempted`` is ``TRUE`` once the machine is preempted; 30 seconds
between the soft-off signal and the end, best effort), "Query VM metadata" (the header ``Metadata-Flavor: Google``, in the
request and in the answer; ``wait_for_change``, ``last_etag`` and ``timeout_sec``; 503 while the server itself is maintained) and
"Get live migration notices" (``instance/maintenance-event``: 60 seconds ahead, an hour for machines with GPUs, and only for those
who asked before).
"""

from __future__ import annotations

import time

from spotwright.notices.asking import Server
from spotwright.notices.notice import SHORTEST, Notice, SourceError

__all__ = ["GcpSource"]

METADATA = "http://169.254.169.254"
ROOT = "/computeMetadata/v1/instance/"
_STOPS = "TERMINATE_ON_HOST_MAINTENANCE"
EVENTS = frozenset({"NONE", "MIGRATE_ON_HOST_MAINTENANCE", _STOPS})

_HEADERS = {"Metadata-Flavor": "Google"}
_PATIENCE = 5.0
_LONGEST_WAIT = 60.0
_PAUSE = 1.0  # between two questions once there is a notice
_MAINTENANCE = 60.0  # seconds from the notice to the end; machines with GPUs may have an hour


class GcpSource:
    """Preemption and maintenance of the machine this runs on.

    ``notice`` is how many seconds a preemption leaves: 30, or 120 where the machine was made with that preemption notice. The
    server does not say when it began, so the seconds count from when it was first seen: at once, as the question waits for it.
    """

    name = "gcp"

    def __init__(self, url: str = METADATA, *, notice: float = SHORTEST) -> None:
        self._server = Server(self.name, url)
        self._notice = notice
        self._etag = ""
        self._said: Notice | None = None
        self._first: dict[str, float] = {}  # when each value was first seen, by the clock that is never set

    def wait(self, timeout: float) -> Notice | None:
        """See :meth:`spotwright.notices.Source.wait`."""
        if self._said is not None:
            time.sleep(min(timeout, _PAUSE))  # what is known only runs out, or is withdrawn
        event = self._event()
        waits = self._said is None and event != _STOPS
        try:
            preempted = self._preempted(min(timeout, _LONGEST_WAIT) if waits else 0.0)
        except SourceError:
            self._etag = ""  # the next question is answered at once
            raise
        reasons = [("preempted", self._notice, "Google preempts this machine")] if preempted else []
        if event == _STOPS:
            reasons.append((event, _MAINTENANCE, "Google stops this machine for maintenance of its host"))
        notice = self._read(reasons)
        if notice is None or not notice.same_as(self._said):
            self._said = notice
        return self._said

    def _read(self, reasons: list[tuple[str, float, str]]) -> Notice | None:
        now = time.monotonic()
        self._first = {what: self._first.get(what, now) for what, _, _ in reasons}
        left = [(self._first[what] + seconds - now, text) for what, seconds, text in reasons]
        if not left:
            return None
        seconds, text = min(left)
        return Notice(time.time() + seconds, "interruption", self.name, certain=True, reason=text)

    def _preempted(self, wait: float) -> bool:
        """Whether the machine is preempted; waits up to ``wait`` seconds for a change of it."""
        query = (
            f"?wait_for_change=true&timeout_sec={int(wait)}&last_etag={self._etag}" if wait >= 1 and self._etag else ""
        )
        value, etag = self._ask(f"preempted{query}", wait + _PATIENCE)
        if value not in {"TRUE", "FALSE"}:
            raise SourceError(f"{self.name}: 'preempted' is neither TRUE nor FALSE")
        self._etag = etag
        return value == "TRUE"

    def _event(self) -> str:
        value, _ = self._ask("maintenance-event", _PATIENCE)
        if value not in EVENTS:
            raise SourceError(f"{self.name}: 'maintenance-event' is none of {', '.join(sorted(EVENTS))}")
        return value

    def _ask(self, key: str, patience: float) -> tuple[str, str]:
        answer = self._server.ask(ROOT + key, headers=_HEADERS, patience=patience)
        if answer.headers.get("metadata-flavor") != "Google":
            raise SourceError(f"{self.name}: what answers at {self._server.url} is not Google's metadata server")
        if answer.status != 200:
            raise SourceError(f"{self.name}: the metadata server answered {answer.status}")
        etag = answer.headers.get("etag", "")
        return answer.body.decode("ascii", "replace").strip(), etag if etag.isascii() and etag.isalnum() else ""
