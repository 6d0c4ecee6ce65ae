"""The engine's connection to one shim: requested, forked, then with or without an attempt, and finally closed.

A shim reports its identity when it is ready for its first attempt, and closes its socket a moment before its end. The engine
can send it orders over the connection from the request for its fork on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from typing import Any

from spotwright.local.processes.channels import Channel
from spotwright.local.processes.fork_server_client import ForkServer
from spotwright.local.processes.protocol import StartOrder
from spotwright.local.supervisor import process_identity

__all__ = ["ShimConnection", "TrackedAttempt"]

# Milliseconds for a shim to report its identity, or to end after it has closed its socket: far more than a busy machine takes,
# because a shim that is given up can still run its attempt, beside the next one.
_TIMEOUT = 60_000


@dataclass(slots=True, eq=False)
class TrackedAttempt:
    """An order under way: waiting for its environment or for room, sent to a shim, or running."""

    order: StartOrder
    connection: ShimConnection | None = None
    claim: dict[str, Any] | None = None  # the claim that its shim writes; a sweep needs it if the shim is killed


@dataclass(slots=True, eq=False)
class ShimConnection:
    """The connection to a shim. ``number`` identifies the shim towards the fork server that forks it."""

    number: int
    server: ForkServer
    channel: Channel
    attempt: TrackedAttempt | None
    pid: int = 0  # 0: not forked yet
    starttime: int = 0
    pidfd: int | None = None

    def identify(self, message: dict[str, Any]) -> None:
        """Take over the identity that the shim reports."""
        self.pid, self.starttime = message["pid"], message["starttime"]
        self.open_pidfd()

    def open_pidfd(self) -> None:
        """Open a pidfd of the shim unless one is open: at the limit of descriptors an earlier try may have failed."""
        if self.pid and self.pidfd is None:
            self.pidfd = process_identity.open_process(
                process_identity.ProcessIdentity(self.pid, self.starttime, process_identity.boot_id())
            )

    def resume(self) -> None:
        """Send SIGCONT: the shim may have been stopped, also by its attempt, and would never end."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def await_identity(self) -> dict[str, Any] | None:
        """Wait for the shim's first message, its identity; ``None`` if its socket closes because its server has ended."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        alive = True
        while alive and poller.poll(_TIMEOUT):
            messages, alive = self.channel.receive()
            if messages:
                return messages[0]
        return None

    def close(self) -> None:
        """Close the connection to a shim that has closed its socket, and wait for its end: no shim outlives its last event."""
        self.channel.close()
        if self.pidfd is not None:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            poller.poll(_TIMEOUT)
            os.close(self.pidfd)
