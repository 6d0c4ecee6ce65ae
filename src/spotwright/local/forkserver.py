"""The fork server ("zygote"): an interpreter that has imported KFP's runtime and forks shims, each for many attempts.

Starting an interpreter costs forty milliseconds, a fork less than one. There is one server per Python environment, executed,
never forked, from the engine, so that it shares neither locks nor threads nor descriptors with it. It stays single-threaded
and imports nothing but the standard library and KFP's runtime: numpy's generator, forked, would draw the same numbers in
every task, and OpenMP would hang. (What stays: ``hash()`` of a text is the same in all attempts of one server.) It ends at
once when the engine ends, without touching what runs.

The conversation is JSON in the frames of :mod:`.frames` over a UNIX stream socket. In come ``{"fork": number}`` with the
socket over which the engine will talk to the shim itself (see :mod:`.shim`); out go ``{"ready": true}`` once, and
``{"failed": number, "why"}`` for a shim that could not be forked; one that was speaks for itself. ``{"bury": number}`` asks
about a shim that was killed; ``{"buried": number}`` says that nothing is left.
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

from . import identity, kernel, taskmain
from .attending import KILL
from .frames import pack, unpack
from .shim import Shim

__all__ = ["serve"]

_HELD_BACK = frozenset({signal.SIGTERM, KILL, signal.SIGCHLD})  # from before a shim exists until it listens
_GONE = select.EPOLLHUP | select.EPOLLRDHUP
_FDS = 64  # descriptors taken with one read


def serve(descriptor: int) -> None:
    """Serve forks on a connected socket until the engine closes it or ends."""
    engine = socket.socket(fileno=descriptor)
    engine.set_inheritable(False)
    kernel.become_subreaper()  # what a killed shim leaves comes here
    taskmain.warm_up()
    identity.boot_id()
    gc.collect()
    gc.freeze()  # nothing that is here now is looked at, and so copied, by a collection in a fork
    gc.disable()
    engine.sendall(pack({"ready": True}))
    _Server(engine).loop()
    os._exit(0)  # the engine waits for the end, and there is nothing here to put in order


class _Server:
    """The loop: requests from one socket, the ends of shims from their pidfds."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine, self._pid = engine, os.getpid()
        self._buffer = bytearray()
        self._given: deque[int] = deque()  # descriptors that came with requests
        self._shims: dict[int, int] = {}  # pidfd: pid
        self._pidfds: dict[int, int] = {}  # by the number of the shim
        self._epoll = select.epoll()
        self._epoll.register(engine, select.EPOLLIN | select.EPOLLRDHUP)

    def loop(self) -> None:
        while True:
            ready = dict(self._epoll.poll())
            events = ready.pop(self._engine.fileno(), 0)
            for pidfd in ready:
                self._bury(pidfd)
            if events & _GONE or (events and not self._receive()):
                return

    def _receive(self) -> bool:
        """Read what has come and do it; ``False`` when the engine is gone."""
        data, given, _, _ = socket.recv_fds(self._engine, 1 << 16, _FDS)
        self._buffer += data
        self._given.extend(given)
        while data and (request := unpack(self._buffer)) is not None:
            if self._engine_is_gone():  # nobody is left who would watch it
                return False
            if "bury" in request:
                self._bury_and_tell(request["bury"])
            else:
                self._fork(request["fork"], self._given.popleft())
        return bool(data)

    def _engine_is_gone(self) -> bool:
        return any(events & _GONE for descriptor, events in self._epoll.poll(0) if descriptor == self._engine.fileno())

    def _fork(self, number: int, channel: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            pid = os.fork()
        except OSError as error:  # the limit of processes, no memory
            self._tell({"failed": number, "why": str(error)})
            os.close(channel)
            return
        finally:
            if os.getpid() == self._pid:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
        if pid == 0:
            self._become_shim(channel)
        os.close(channel)
        pidfd = os.pidfd_open(pid)  # it has not been waited for: the pid is still its own
        self._shims[pidfd], self._pidfds[number] = pid, pidfd
        self._epoll.register(pidfd, select.EPOLLIN)

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the loop will see that the engine is gone
            self._engine.sendall(pack(message))

    def _become_shim(self, channel: int) -> NoReturn:
        status = 1
        try:
            last = max(self._engine.fileno(), self._epoll.fileno(), channel, *self._shims, *self._given)
            os.dup2(channel, 3, inheritable=False)
            os.closerange(4, last + 1)
            status = Shim(3).serve()
        except BaseException:  # noqa: BLE001 (the top of a process; what is printed here reaches the engine)
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _bury(self, pidfd: int) -> None:
        """Wait for a shim that has ended, or is about to."""
        self._epoll.unregister(pidfd)
        os.waitpid(self._shims.pop(pidfd), 0)
        self._pidfds = {number: other for number, other in self._pidfds.items() if other != pidfd}
        os.close(pidfd)

    def _bury_and_tell(self, number: int) -> None:
        """A shim was killed, and what its attempt had started has become ours: kill all of it.

        The engine asks as soon as the shim's socket is closed, which is a moment before its children become ours.
        """
        if number in self._pidfds:
            self._bury(self._pidfds[number])
        shims = set(self._shims.values())
        while orphans := [pid for pid in identity.children(os.getpid()) if pid not in shims and identity.killed(pid)]:
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        self._tell({"buried": number})
