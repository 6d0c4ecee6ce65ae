"""Send SIGTERM to an attempt's container through the runtime, not through the client that carries the container's output.

A client of podman before 4.5 forwards no signal until some milliseconds after the container has started: SIGTERM in between ends
the client, and the container then loses its grace period and its last output (podman's pull request 17489). Docker's client drops
a signal that comes before the container runs. So the client of the attempt gets no SIGTERM. A second client asks the runtime to
send it (``podman kill``), again and again until the container runs or the attempt ends.

Runs in the fork server's interpreter too, so it uses only the standard library.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

__all__ = ["ContainerTermination"]

_RETRY_SECONDS = 0.05  # until the next request after a failed one: the container does not run yet


class ContainerTermination:
    """SIGTERM for one container. ``container`` holds the client's ``program`` and the container's ``name``.

    The clients that it starts are children of this process, whose end the caller reports with :meth:`reaped`.
    """

    def __init__(self, container: dict[str, Any]) -> None:
        self._command = [container["program"], "kill", "--signal", "TERM", container["name"]]
        self._pid = 0  # of the client under way
        self.retry_at: float | None = None
        """The moment of the monotonic clock from which the caller must call :meth:`send` again; None: not at all."""

    def send(self) -> None:
        """Start the client that requests SIGTERM, without waiting for it; do nothing while one is under way."""
        self.retry_at = None
        if self._pid:
            return
        quiet = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
        try:
            self._pid = os.posix_spawn(
                self._command[0],
                self._command,
                os.environ,
                file_actions=quiet,
                setsigmask=(),  # this process blocks the signals that it waits for
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
            )
        except OSError:  # the limit of processes
            self.retry_at = time.monotonic() + _RETRY_SECONDS

    def reaped(self, pid: int, status: int) -> None:
        """Take note of the end of a child of this process, with its status as wait(2) gives it."""
        if pid == self._pid:
            self._pid = 0
            if status != 0:
                self.retry_at = time.monotonic() + _RETRY_SECONDS
