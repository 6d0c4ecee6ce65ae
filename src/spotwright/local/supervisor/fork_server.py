"""The fork server: an interpreter that has imported KFP's runtime and forks shims, each of which runs many attempts.

Starting an interpreter takes forty milliseconds, a fork less than one. There is one server per Python environment. The engine
executes it and does not fork it, so that they share no locks, threads or descriptors. The server stays single-threaded and
imports only the standard library and KFP's runtime: a forked NumPy generator would draw the same numbers in every task, and
OpenMP would hang. (One effect remains: the ``hash()`` of a string is equal in all attempts of a server.) The server ends as
soon as the engine ends; running attempts continue.

The messages are JSON in the frames of :mod:`.frames` over a UNIX stream socket. The server receives
``{"fork": number, "private"}`` with the engine's socket to the shim, and the settings for the private folders of its first
attempt. It sends ``{"ready": true}`` once, and ``{"failed": number, "why"}`` for a shim that could not be forked; a forked shim
reports itself. ``{"reap": number}`` requests the end of a killed shim's processes; ``{"reaped": number}`` confirms it.

A shim is the parent of attempts, one after another. It outlives the engine, and ends all that an attempt started.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from typing import Any, NoReturn

from . import executor_main, kernel, private_folders, process_identity
from .attempt_supervisor import KILL, AttemptSupervisor
from .frames import pack, unpack
from .private_folders import PrivateFolders

__all__ = ["Shim", "serve"]


_FENCED = 3  # exit status of a shim whose attempt another process had claimed
_IDLE_SECONDS = 30.0  # without an order, before the shim reports that it is idle
_END_SIGNALS = frozenset({signal.SIGTERM, KILL})
_AWAITED = _END_SIGNALS | {signal.SIGCHLD, signal.SIGIO}


class Shim:
    """Runs attempts for the engine. ``engine`` is the descriptor of the shim's end of the socket.

    ``private`` are the settings for the private folders of the first attempt that are known before its order.
    """

    def __init__(self, engine: int, private: dict[str, Any] | None = None) -> None:
        self._engine, self._private = engine, private
        self._buffer = bytearray()
        self._key = ""  # of the running attempt
        self._is_identified = False  # the engine knows this process
        self._is_last = False  # the running attempt is the last one
        self._private_folders = PrivateFolders()

    def serve(self) -> int:
        """Run attempts until the engine is gone. Returns the exit status."""
        os.setsid()
        kernel.become_subreaper()
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        # incoming data raises a signal, so that the shim waits for signals only
        fcntl.fcntl(self._engine, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self._engine, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        try:
            return self._run_attempts()
        finally:
            self._private_folders.remove()

    def _run_attempts(self) -> int:
        self._private_folders.prepare(self._private)
        while (order := self._next_order()) is not None:
            self._key = order["key"]
            self._private_folders.prepare(order["private"])
            self._identify()
            supervisor = AttemptSupervisor(order, self._next_signal, self._private_folders)
            record = supervisor.run()
            if record is None:
                return _FENCED
            if self._is_last or not supervisor.shim_is_reusable or signal.sigpending() & _END_SIGNALS:
                break  # a pending signal was for this attempt and must not reach the next one
            self._send({"ended": self._key, "record": record})
            self._private_folders.clean()  # after the message, because large files take a while
        return 0

    def _identify(self) -> None:
        """Report this process, once."""
        if not self._is_identified:
            own = process_identity.mine()
            self._send({"pid": own.pid, "starttime": own.starttime})
            self._is_identified = True

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the engine is gone, as the next read shows
            os.write(self._engine, pack(message))

    def _next_order(self) -> dict[str, Any] | None:
        """Wait for an order; ``None`` once the shim must end."""
        while True:
            self._read()
            if self._is_last:
                return None
            while (message := unpack(self._buffer)) is not None:
                if "end" not in message:  # an end order that came too late: its attempt has ended
                    return message
            self._identify()
            received = signal.sigtimedwait(_AWAITED, _IDLE_SECONDS)
            if received is None:
                self._send({"idle": True})
                received = signal.sigwaitinfo(_AWAITED)
            if received.si_signo in _END_SIGNALS:
                return None

    def _next_signal(self, until: float | None) -> int | None:
        """The next signal or end order for the running attempt; ``None`` once ``until`` has passed."""
        while True:
            while (message := unpack(self._buffer)) is not None:
                if message.get("key") == self._key and "end" in message:
                    return int(message["end"])
            if until is None:
                number = signal.sigwaitinfo(_AWAITED).si_signo
            elif (received := signal.sigtimedwait(_AWAITED, max(0.0, until - time.monotonic()))) is None:
                return None
            else:
                number = received.si_signo
            if number != signal.SIGIO:
                self._is_last = self._is_last or number != signal.SIGCHLD
                return number
            self._read()

    def _read(self) -> None:
        """Read all available data into the buffer; at end of file, the running attempt is the last."""
        with contextlib.suppress(BlockingIOError):
            while not self._is_last:
                data = self._read_once()
                self._buffer += data
                self._is_last = not data

    def _read_once(self) -> bytes:
        try:
            return os.read(self._engine, 1 << 16)
        except ConnectionResetError:  # the engine ended without reading our last message
            return b""


_BLOCKED = frozenset({signal.SIGTERM, KILL, signal.SIGCHLD})  # from before a shim's fork until it waits for signals
_HANG_UP = select.EPOLLHUP | select.EPOLLRDHUP
_MAX_DESCRIPTORS = 64  # received with one read


def serve(descriptor: int) -> None:
    """Serve forks on a connected socket until the engine closes it or ends."""
    engine = socket.socket(fileno=descriptor)
    engine.set_inheritable(False)
    kernel.become_subreaper()  # orphans of killed shims become children of this process
    executor_main.warm_up()
    private_folders.warm_up_folders()
    process_identity.boot_id()
    gc.collect()
    gc.freeze()  # a collection in a fork must not touch, and so copy, the objects that exist now
    gc.disable()
    engine.sendall(pack({"ready": True}))
    private_folders.remove_abandoned()
    _Server(engine).loop()
    os._exit(0)  # the engine waits for the end, and there is nothing to clean up


class _Server:
    """The event loop: requests from the engine's socket, ends of shims from their pidfds."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine, self._pid = engine, os.getpid()
        self._buffer = bytearray()
        self._received_fds: deque[int] = deque()  # that came with requests
        self._shims: dict[int, int] = {}  # pidfd: pid
        self._pidfds: dict[int, int] = {}  # by number of the shim
        self._epoll = select.epoll()
        self._epoll.register(engine, select.EPOLLIN | select.EPOLLRDHUP)
        self._mounts = os.open("/proc/self/mounts", os.O_RDONLY | os.O_CLOEXEC)
        self._epoll.register(self._mounts, select.EPOLLPRI)  # a change, see proc(5), /proc/pid/mounts

    def loop(self) -> None:
        while True:
            ready = self._poll()
            events = ready.pop(self._engine.fileno(), 0)
            for pidfd in ready:
                self._reap(pidfd)
            if events & _HANG_UP or (events and not self._receive()):
                return

    def _receive(self) -> bool:
        """Read and perform requests; ``False`` once the engine is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._engine, 1 << 16, _MAX_DESCRIPTORS)
        self._buffer += data
        self._received_fds.extend(descriptors)
        while data and (request := unpack(self._buffer)) is not None:
            if self._engine_is_gone():  # no engine would watch a new attempt
                return False
            if "reap" in request:
                self._reap_orphans(request["reap"])
            else:
                if request["private"] is not None:
                    private_folders.remember_visible_paths(request["private"])
                self._fork(request["fork"], request["private"], self._received_fds.popleft())
        return bool(data)

    def _engine_is_gone(self) -> bool:
        return bool(self._poll(0).get(self._engine.fileno(), 0) & _HANG_UP)

    def _poll(self, timeout: float | None = None) -> dict[int, int]:
        """Wait for events: by descriptor. A change of the machine's mounts, reported only once, is handled here."""
        ready = dict(self._epoll.poll(timeout))
        if ready.pop(self._mounts, 0):
            private_folders.forget_visible_paths()
        return ready

    def _fork(self, number: int, private: dict[str, Any] | None, channel: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            pid = os.fork()
        except OSError as error:  # the limit of processes, no memory
            self._send({"failed": number, "why": str(error)})
            os.close(channel)
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        if pid == 0:
            self._become_shim(channel, private)
        os.close(channel)
        pidfd = os.pidfd_open(pid)  # it was not waited for, so the pid is not reused
        self._shims[pidfd], self._pidfds[number] = pid, pidfd
        self._epoll.register(pidfd, select.EPOLLIN)

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the loop detects that the engine is gone
            self._engine.sendall(pack(message))

    def _become_shim(self, channel: int, private: dict[str, Any] | None) -> NoReturn:
        status = 1
        try:
            last = max(
                self._engine.fileno(), self._epoll.fileno(), self._mounts, channel, *self._shims, *self._received_fds
            )
            os.dup2(channel, 3, inheritable=False)
            os.closerange(4, last + 1)
            status = Shim(3, private).serve()
        except BaseException:  # noqa: BLE001 (top level of a process; the engine reads this output)
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _reap(self, pidfd: int) -> None:
        """Wait for a shim that has ended or is ending."""
        self._epoll.unregister(pidfd)
        os.waitpid(self._shims.pop(pidfd), 0)
        self._pidfds = {number: other for number, other in self._pidfds.items() if other != pidfd}
        os.close(pidfd)

    def _reap_orphans(self, number: int) -> None:
        """Kill a killed shim's processes, now children of this process, and confirm it.

        The engine asks as soon as the shim's socket is closed; the children change their parent a moment later.
        """
        if number in self._pidfds:
            self._reap(self._pidfds[number])
        shims = set(self._shims.values())
        while orphans := [
            pid
            for pid in process_identity.children(os.getpid())
            if pid not in shims and process_identity.kill_child(pid)
        ]:
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        self._send({"reaped": number})
