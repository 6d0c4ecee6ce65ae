"""The engine's end of one fork server: its process, its requests, and its error output."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotwright.local.captured_output import tail
from spotwright.local.processes.channels import Channel

if TYPE_CHECKING:
    from spotwright.local.processes.shim_connection import TrackedAttempt

__all__ = ["MAX_STARTING", "ForkServer"]

_EARLY_TIMEOUT = 5.0  # seconds for an early shim to remove its private folders
_BOOTSTRAP = Path(__file__).parents[1] / "supervisor" / "bootstrap.py"
# Shims per fork server that prepare for their first attempt. More of them would only take turns on the processors, and meanwhile
# a short attempt ends, whose shim takes the next order: that saves a fork and a mount namespace.
MAX_STARTING = (os.cpu_count() or 1) + 1
# Variables that would make a built environment's interpreter import packages from elsewhere.
_NOT_FOR_BUILT = frozenset({"PYTHONPATH", "PYTHONHOME"})


class ForkServer:
    """A running fork server. ``marks`` are added to its environment, so that all its descendants can be found."""

    def __init__(self, python: str, marks: Mapping[str, str]) -> None:
        self.python = python
        self.ready = False  # then it can fork
        self.error_output = ""  # the end of it, after close()
        self.idle: list[int] = []  # numbers of its shims without an attempt
        self.starting: set[int] = set()  # numbers of its shims that have not reported themselves
        self.waiting: deque[TrackedAttempt] = deque()  # until there is room
        self.early: dict[int, Channel] = {}  # to shims that were requested before the engine had an attempt for them
        self._output = os.memfd_create("forkserver")
        self.channel, theirs = Channel.pair()
        try:
            with theirs:
                self._process = _execute(python, marks, theirs.fileno(), self._output)
        except OSError:  # no such interpreter, no more processes
            self.channel.close()
            os.close(self._output)
            raise

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def was_killed(self) -> bool:
        """After :meth:`close`: whether a signal ended the server, so that its environment is not at fault."""
        return self._process.returncode < 0

    @property
    def has_room(self) -> bool:
        """Whether a shim is idle, or another one may start so that at most :data:`MAX_STARTING` are starting."""
        return bool(self.idle) or len(self.starting) < MAX_STARTING

    def fork(self, number: int, private: Mapping[str, Any] | None = None) -> Channel:
        """Request a shim with this number. Returns the channel to it. Raises ``OSError``.

        ``private`` are the settings for the private folders of its first attempt, which the server prepares for all its shims.
        """
        channel, theirs = Channel.pair()
        self.channel.send({"fork": number, "private": private}, theirs.detach())
        return channel

    def fork_early(self, private: Mapping[str, Any]) -> None:
        """Request a shim before an engine has an attempt for it. Its number is negative. Raises ``OSError``."""
        number = -1 - len(self.early)
        self.early[number] = self.fork(number, private)

    def reap(self, number: int) -> None:
        """Request that the server kills the processes that a killed shim has left."""
        self.channel.send({"reap": number})

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The received messages, and whether the server is still alive."""
        messages, alive = self.channel.receive()
        answers = [message for message in messages if "ready" not in message]
        self.ready = self.ready or len(answers) < len(messages)
        return answers, alive

    def close(self, patience: float = 5.0) -> None:
        """End the server; its shims continue. Sets :attr:`error_output`. Kills the server after ``patience`` seconds.

        Early shims that no engine has taken end as well.
        """
        self.channel.close()
        for channel in self.early.values():
            channel.finish()
        if not _has_ended(self._process.pid, patience):
            self._process.kill()
        self._process.wait()
        for channel in self.early.values():
            channel.await_end(_EARLY_TIMEOUT)
            channel.close()
        try:
            self.error_output = tail(self._output)
        finally:
            os.close(self._output)


def _execute(python: str, marks: Mapping[str, str], descriptor: int, output: int) -> subprocess.Popen[bytes]:
    built = python != sys.executable
    env = {name: value for name, value in os.environ.items() if not (built and name in _NOT_FOR_BUILT)}
    return subprocess.Popen(
        [python, str(_BOOTSTRAP), "server", str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # not the terminal: shims outlive the engine and would keep a pipe open
        stderr=output,
        start_new_session=True,  # Ctrl-C must reach the engine only
        env={**env, "_KFP_RUNTIME": "true", **marks},
    )


def _has_ended(child: int, patience: float) -> bool:
    """Wait for the end of a child by its pidfd, up to ``patience`` seconds; ``Popen.wait`` with a timeout would poll."""
    pidfd = os.pidfd_open(child)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(patience * 1000))
    finally:
        os.close(pidfd)
