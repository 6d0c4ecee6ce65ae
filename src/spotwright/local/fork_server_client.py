"""The engine's end of a fork server and of its shims: processes, requests and answers in non-blocking frames.

A shim is requested, forked, then with or without an attempt, and finally closed. The first fork server of a run is started
while the engine is still being imported.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from spotwright.local.protocol import StartOrder
from spotwright.local.python_envs import tail
from spotwright.local.supervisor import process_identity
from spotwright.local.supervisor.frames import pack, unpack

__all__ = ["MAX_STARTING", "Channel", "EarlyServer", "ForkServer", "ShimConnection", "TrackedAttempt"]


class Channel:
    """One end of a connected stream socket. A message can transfer a file descriptor."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self._socket = end
        self._incoming = bytearray()
        self._outgoing: deque[tuple[memoryview, int | None]] = deque()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel and its other end, which the caller transfers and closes. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        """The socket's descriptor, for the selector: for reading, and for writing while :attr:`wants_to_send`."""
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Whether unsent data waits for the socket."""
        return bool(self._outgoing)

    def send(self, message: Mapping[str, Any], descriptor: int | None = None) -> None:
        """Send as much of a message as the socket accepts; :meth:`flush` sends the rest. Closes the sent descriptor."""
        self._outgoing.append((memoryview(pack(message)), descriptor))
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket accepts. Reading the socket shows whether the other side has ended."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                content, descriptor = self._outgoing[0]
                if descriptor is None:
                    sent = self._socket.send(content)
                else:
                    sent = socket.send_fds(self._socket, [content], [descriptor])
                    os.close(descriptor)
                if sent == len(content):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = content[sent:], None

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages of one read, and whether the other side is still alive."""
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return [], True
        except ConnectionResetError:
            data = b""
        self._incoming += data
        messages: list[dict[str, Any]] = []
        while (message := unpack(self._incoming)) is not None:
            messages.append(message)
        return messages, bool(data)

    def finish(self) -> None:
        """Send end-of-file; messages of the other side can still be received."""
        with contextlib.suppress(OSError):  # the other side has ended
            self._socket.shutdown(socket.SHUT_WR)

    def await_end(self, timeout: float) -> None:
        """Wait, up to ``timeout`` seconds, until the other side has closed its end; drops further messages."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        while poller.poll(timeout * 1000) and self.receive()[1]:
            pass

    def close(self) -> None:
        """Close the socket and every descriptor that was not sent."""
        self._socket.close()
        for _, descriptor in self._outgoing:
            if descriptor is not None:
                os.close(descriptor)
        self._outgoing.clear()


_EARLY_TIMEOUT = 5.0  # seconds for an early shim to remove its private folders
_BOOTSTRAP = Path(__file__).parent / "supervisor" / "bootstrap.py"
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
        self.error_output = ""  # its end, after close()
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
        """Request that the server kills the leftover processes of a killed shim."""
        self.channel.send({"reap": number})

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """The received messages, and whether the server is still alive."""
        messages, alive = self.channel.receive()
        answers = [message for message in messages if "ready" not in message]
        self.ready = self.ready or len(answers) < len(messages)
        return answers, alive

    def close(self, patience: float = 5.0) -> None:
        """End the server; its shims continue. Sets :attr:`error_output`. Kills the server after ``patience`` seconds.

        Early shims that no engine uses end as well.
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


# Milliseconds for a shim to report its identity, or to end after it has closed its socket: far more than a busy machine takes,
# because a shim that is given up can still run its attempt, beside the next one.
_TIMEOUT = 60_000


@dataclass(slots=True, eq=False)
class TrackedAttempt:
    """An active order: waiting for its environment or for room, sent to a shim, or running."""

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
        """Open a pidfd of the shim unless one is open: an earlier try may have failed at the limit of descriptors."""
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
        """Close the connection to a shim that has closed its socket, and wait for its end."""
        self.channel.close()
        if self.pidfd is not None:
            poller = select.poll()
            poller.register(self.pidfd, select.POLLIN)
            poller.poll(_TIMEOUT)
            os.close(self.pidfd)


class EarlyServer:
    """The fork server of the running interpreter for the run in this folder; ended with the block unless an engine uses it.

    ``tasks`` is the known number of tasks that can start when the run begins.
    """

    def __init__(self, folder: Path, tasks: int = 0) -> None:
        self._server: ForkServer | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a later start reports why it fails
                self._server = ForkServer(sys.executable, process_identity.marks(folder.name, folder))
                _fork_shims(self._server, folder.absolute().parent, min(tasks, MAX_STARTING))

    def take(self) -> ForkServer | None:
        """The server, whose end is now the caller's task; ``None`` if it could not be started."""
        server, self._server = self._server, None
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server = self.take()
        if server is not None:
            server.close(patience=0)  # its shims have no attempts, so no work is lost if it is killed while it boots


def _fork_shims(server: ForkServer, runs: Path, count: int) -> None:
    """Request shims with the private folders of a task that names no path of this machine."""
    from spotwright.local.visible_paths import private_folder_settings  # imported while the server boots

    private = private_folder_settings(str(runs), "", {}, {})
    if all(Path(path).exists() for path in private.own):  # folders made later would be invisible
        for _ in range(count):
            server.fork_early(private.data)
