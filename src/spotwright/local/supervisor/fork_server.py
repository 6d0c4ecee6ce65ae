"""The fork server: an interpreter that has imported KFP's runtime and forks shims, each of which runs many attempts.

Starting an interpreter takes forty milliseconds, a fork less than one. There is one server per Python environment. The engine
executes it and does not fork it, so that they share no locks, threads or descriptors. The server stays single-threaded and
imports only the standard library and KFP's runtime: a forked NumPy generator would draw the same numbers in every task, and
OpenMP would hang. (One effect remains: ``hash()`` of a text is equal in all attempts of a server.) The server ends as soon as
the engine ends; running attempts continue.

The messages are JSON in the frames of :mod:`.frames` over a UNIX stream socket. The server receives
``{"fork": number, "private"}`` with the socket over which the engine will talk to the shim (see :mod:`.shim`), and the settings
for the private folders of its first attempt. It sends ``{"ready": true}`` once, and
``{"failed": number, "why"}`` for a shim that could not be forked; a forked shim reports itself. ``{"reap": number}`` asks it to
kill what a killed shim has left; ``{"reaped": number}`` confirms that nothing is left.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections import deque
from typing import Any, NoReturn

from . import executor_main, kernel, process_identity
from .attempt_supervisor import KILL
from .frames import pack, unpack
from .mounting import private_folders, private_namespace
from .shim import Shim

__all__ = ["serve"]

_BLOCKED = frozenset({signal.SIGTERM, KILL, signal.SIGCHLD})  # from before a shim's fork until it waits for signals
_HANG_UP = select.EPOLLHUP | select.EPOLLRDHUP
_MAX_DESCRIPTORS = 64  # received with one read


def serve(descriptor: int) -> None:
    """Serve forks on a connected socket until the engine closes it or ends."""
    engine = socket.socket(fileno=descriptor)
    engine.set_inheritable(False)
    kernel.become_subreaper()  # orphans of killed shims become children of this process
    executor_main.warm_up()
    private_folders.warm_up()
    process_identity.boot_id()
    gc.collect()
    gc.freeze()  # a collection in a fork must not touch, and so copy, the objects that exist now
    gc.disable()
    engine.sendall(pack({"ready": True}))
    private_folders.remove_abandoned()
    _Server(engine).loop()
    os._exit(0)  # the engine waits for the end, and nothing needs a clean-up


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
                    private_namespace.remember_visible_paths(request["private"])
                self._fork(request["fork"], request["private"], self._received_fds.popleft())
        return bool(data)

    def _engine_is_gone(self) -> bool:
        return bool(self._poll(0).get(self._engine.fileno(), 0) & _HANG_UP)

    def _poll(self, timeout: float | None = None) -> dict[int, int]:
        """Wait for events: by descriptor. A change of the machine's mounts, reported only once, is handled here."""
        ready = dict(self._epoll.poll(timeout))
        if ready.pop(self._mounts, 0):
            private_namespace.forget_visible_paths()
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
        """Kill the processes that a killed shim has left, which are children of this process now, and confirm it.

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
