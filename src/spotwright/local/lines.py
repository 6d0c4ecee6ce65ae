"""The line to one shim: asked for first, then forked, then with or without an attempt, and gone at last.

A shim says who it is when it begins to live, and closes its socket a moment before it is gone. In between, whoever holds its
line can send it orders.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from typing import Any

from spotwright.local import identity
from spotwright.local.channels import Channel
from spotwright.local.orders import StartOrder
from spotwright.local.servers import ForkServer

__all__ = ["Attempt", "Line"]

_PATIENCE = 5000  # milliseconds that a shim may take to say who it is, or to go after it has closed its socket


@dataclass(slots=True, eq=False)
class Attempt:
    """An order on its way: waiting for its environment, sent to a shim, running."""

    order: StartOrder
    line: Line | None = None
    claim: dict[str, Any] | None = None  # what its shim writes there: for a sweep when the shim is killed


@dataclass(slots=True, eq=False)
class Line:
    """What leads to a shim. ``number`` is its name for the server that forks it."""

    number: int
    server: ForkServer
    channel: Channel
    attempt: Attempt | None
    pid: int = 0  # 0: not forked yet
    starttime: int = 0
    pidfd: int | None = None

    def introduced(self, message: dict[str, Any]) -> None:
        """The shim has said who it is."""
        self.pid, self.starttime = message["here"], message["starttime"]
        self.hold()

    def hold(self) -> None:
        """Have a pidfd of the shim where there is none yet: at the limit of descriptors none could be had when it began."""
        if self.pid and self.pidfd is None:
            self.pidfd = identity.open_process(identity.Identity(self.pid, self.starttime, identity.boot_id()))

    def wake(self) -> None:
        """Let the shim go on where somebody has stopped it: the attempt can, and would never end."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def await_introduction(self) -> dict[str, Any] | None:
        """Wait until the shim says who it is; ``None`` where its socket says that there is none: its server has gone."""
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        alive = True
        while alive and poller.poll(_PATIENCE):
            messages, alive = self.channel.receive()
            if messages:
                return messages[0]
        return None

    def close(self) -> None:
        """Let go of a shim that has closed its socket, after its last moment: nobody finds it alive after its attempt."""
        self.channel.close()
        if self.pidfd is not None:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            poller.poll(_PATIENCE)
            os.close(self.pidfd)
