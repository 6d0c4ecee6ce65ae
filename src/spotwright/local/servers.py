"""The engine's end of one fork server: its process, what it is asked, and what it says when it cannot start."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotwright.local.channels import Channel

__all__ = ["ForkServer", "tail"]

_BOOT = Path(__file__).with_name("boot.py")
_SHOWN = 2000  # bytes of an error message
# They would point a built environment's interpreter at somebody else's packages.
_NOT_FOR_BUILT = frozenset({"PYTHONPATH", "PYTHONHOME"})


class ForkServer:
    """A running fork server. ``marks`` are in its environment, so that what is left of it can be found."""

    def __init__(self, python: str, marks: Mapping[str, str]) -> None:
        self.python = python
        self.ready = False  # it has said that it can fork
        self.said = ""  # the last thing it complained about, once it is closed
        self.idle: list[int] = []  # the numbers of its shims that have nothing to do
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
        """After :meth:`close`: whether a signal ended it, so that nothing is wrong with its environment."""
        return self._process.returncode < 0

    def fork(self, number: int) -> Channel:
        """Ask for a shim, which the server will name by this number. Returns the channel to it. Raises ``OSError``."""
        channel, theirs = Channel.pair()
        self.channel.send({"fork": number}, theirs.detach())
        return channel

    def bury(self, number: int) -> None:
        """Ask what a shim that was killed has left, and to kill it."""
        self.channel.send({"bury": number})

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that have come, and whether the server still lives."""
        messages, alive = self.channel.receive()
        answers = [message for message in messages if "ready" not in message]
        self.ready = self.ready or len(answers) < len(messages)
        return answers, alive

    def close(self, patience: float = 5.0) -> None:
        """End the server without touching what it has started. :attr:`said` is the last thing that it complained about then."""
        self.channel.close()
        if not _has_ended(self._process.pid, patience):
            self._process.kill()
        self._process.wait()
        try:
            self.said = tail(self._output)
        finally:
            os.close(self._output)


def _execute(python: str, marks: Mapping[str, str], descriptor: int, output: int) -> subprocess.Popen[bytes]:
    built = python != sys.executable
    env = {name: value for name, value in os.environ.items() if not (built and name in _NOT_FOR_BUILT)}
    return subprocess.Popen(
        [python, str(_BOOT), "server", str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # not the terminal: shims outlive us, and would hold a pipe behind us open
        stderr=output,
        start_new_session=True,  # Ctrl-C is for the engine alone
        env={**env, "_KFP_RUNTIME": "true", **marks},
    )


def _has_ended(child: int, patience: float) -> bool:
    """Wait for the end of a child that nobody has waited for, told by the kernel; ``Popen.wait`` would look now and then."""
    pidfd = os.pidfd_open(child)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(patience * 1000))
    finally:
        os.close(pidfd)


def tail(descriptor: int) -> str:
    """The end of what was written to a file without a name."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _SHOWN, max(0, size - _SHOWN)).decode(errors="replace").strip()
