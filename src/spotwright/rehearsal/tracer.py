"""What an attempt does to its files, call by call, and the power to stop it at exactly one of them.

A thread of its own traces the attempt's main process and everything that comes of it (ptrace(2)). The processes run at full
speed but for the calls of :mod:`spotwright.local.syscalls`; each of those that succeeded on a watched place becomes an
:class:`Op`. When an operation is the one that was asked for, everything that is traced stands still where it is, until the
world has taken the node or told the attempt that it will: so "inside a save" means inside, for any code and any size of save.

ptrace belongs to a thread: whoever attaches must also wait and resume. And no other thread may wait for a traced process, as
each stop is told once; here only the shim is its parent. Source: ptrace(2), seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spotwright.local import identity
from spotwright.local.syscalls import CALLS, Call, is_known_machine
from spotwright.rehearsal.watcher import watch

__all__ = ["Op", "Tracer"]

_SEIZE, _LISTEN, _CONT, _SYSCALL, _INFO = 0x4206, 0x4208, 7, 24, 0x420E
# SYSGOOD, FORK, VFORK, CLONE, EXEC, SECCOMP, EXITKILL
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
_EVENT_SECCOMP, _EVENT_STOP = 7, 128
_WAIT = (
    0x40000000 | 0x20000000
)  # __WALL | __WNOTHREAD: what this thread traces, whatever it is, and nobody else's children
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_STOPPING = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_ENTRY = struct.Struct("7Q")
_EXIT = struct.Struct("qB")
_PAYLOAD = 24  # where the union begins in struct ptrace_syscall_info
_PATIENCE = 5.0  # seconds for a held attempt to stop
_PATH_MAX = 4096

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class Op:
    """One change of a file, ``at`` seconds after the attempt began; ``path`` is relative to the place named ``place``."""

    call: Call
    place: str
    path: str
    at: float


@dataclass(slots=True)
class _Pending:
    call: Call
    path: str | None  # None: the descriptor that the call gives back tells


class Tracer(threading.Thread):
    """Traces the attempt below a shim.

    ``folders`` are the watched folders, each with the name of its place. ``wanted`` is asked about every operation, in the
    tracer's thread; if it says yes, the attempt stands still until :meth:`let_go`. ``failed`` says why it could not be traced:
    then :mod:`.watcher` looks at it from outside.
    """

    def __init__(self, shim: int, folders: Mapping[Path, str], wanted: Callable[[Op], bool]) -> None:
        super().__init__(name="tracer", daemon=True)
        self._shim, self._wanted = shim, wanted
        named = {os.path.realpath(folder): place for folder, place in folders.items()}
        self._folders = dict(sorted(named.items(), key=lambda item: -len(item[0])))  # the innermost one counts
        self._main = 0
        self._frozen = self._over = False
        self._pending: dict[int, _Pending] = {}
        self._go_on = threading.Event()
        self._info = ctypes.create_string_buffer(88)
        self.ops: list[Op] = []
        self.failed = ""
        self._began = time.monotonic()

    def let_go(self, *, resume: bool) -> None:
        """What stands still goes on; without ``resume`` it stands still for good, as it is about to be killed."""
        self._frozen = self._frozen or not resume
        self._go_on.set()

    def finish(self) -> None:
        """Nothing of the attempt lives any more: wait for the last of what was seen."""
        self._over = True
        self.let_go(resume=True)
        self.join(_PATIENCE)

    def run(self) -> None:
        """Attach, then serve stops until nothing is left to trace."""
        main = self._main_process()
        if main is None:
            self.failed = "it ended before it could be looked at"
            return
        if not is_known_machine():
            self.failed = "the system calls of this machine are not known"
        elif _ptrace(_SEIZE, main, None, _OPTIONS) < 0:
            self.failed = f"it cannot be traced: {os.strerror(ctypes.get_errno())}"
        self._main = main
        if self.failed:
            watch(main, self._folders, self._done, self._begin)
        else:
            self._begin()
            self._serve()

    def _begin(self) -> None:
        self._began = time.monotonic()
        os.kill(self._main, signal.SIGCONT)

    def _main_process(self) -> int | None:
        """The attempt's main process, once it holds."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and not self._over:
            for child in identity.children(self._shim):
                seen = identity.stat(child)
                if seen is not None and seen.state == "T":
                    return child
            time.sleep(0.0005)
        return None

    def _serve(self) -> None:
        while True:
            try:
                tid, status = os.waitpid(-1, _WAIT)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(status):
                self._stopped(tid, os.WSTOPSIG(status), status >> 16)
            else:
                self._pending.pop(tid, None)
                if tid == self._main and os.WIFEXITED(status) and not any(op.call is Call.EXIT for op in self.ops):
                    self.failed = "its system calls could not be watched: no filter could be installed"

    def _stopped(self, tid: int, number: int, event: int) -> None:
        if number == _SYSCALL_STOP:
            self._left(tid)
            self._resume(_CONT, tid)
        elif event == _EVENT_SECCOMP:
            self._resume(_SYSCALL if self._entered(tid) else _CONT, tid)
        elif event == _EVENT_STOP and number in _STOPPING:
            self._resume(_LISTEN, tid)
        elif event:
            self._resume(_CONT, tid)
        else:
            self._resume(_CONT, tid, number)

    def _resume(self, request: int, tid: int, number: int = 0) -> None:
        if self._frozen:
            return
        if _ptrace(request, tid, None, number) < 0 and ctypes.get_errno() != errno.ESRCH:  # killed meanwhile
            raise OSError(ctypes.get_errno(), "a traced process cannot be resumed")

    # -- calls

    def _entered(self, tid: int) -> bool:
        """A call of the table is about to be made; whether its outcome is of interest."""
        if _ptrace(_INFO, tid, len(self._info), ctypes.addressof(self._info)) <= 0:
            return False
        number, *arguments = _ENTRY.unpack_from(self._info.raw, _PAYLOAD)
        spec = CALLS.get(number)
        if spec is None:
            return False
        if spec.call is Call.EXIT:
            if tid == self._main:
                self._done(Call.EXIT, "", "")
            return False
        path: str | None = None
        if spec.descriptor is not None:
            path = _link(f"/proc/{tid}/fd/{_signed(arguments[spec.descriptor])}")
        elif spec.path is not None:
            path = _named(tid, _signed(arguments[spec.folder]) if spec.folder >= 0 else -100, arguments[spec.path])
        if spec.call is not Call.OPEN and self._place_of(path) is None:
            return False
        self._pending[tid] = _Pending(spec.call, path)
        return True

    def _left(self, tid: int) -> None:
        """A call has been made. One that failed changed nothing."""
        pending = self._pending.pop(tid, None)
        if pending is None or _ptrace(_INFO, tid, len(self._info), ctypes.addressof(self._info)) <= 0:
            return
        result, is_error = _EXIT.unpack_from(self._info.raw, _PAYLOAD)
        if is_error:
            return
        found = self._place_of(pending.path if pending.path is not None else _link(f"/proc/{tid}/fd/{result}"))
        if found is not None:
            self._done(pending.call, *found)

    def _done(self, call: Call, place: str, path: str) -> bool:
        """Tell of an operation, and stand still where that is wanted; whether it goes on."""
        op = Op(call, place, path, time.monotonic() - self._began)
        self.ops.append(op)
        self._go_on.clear()
        if self._wanted(op):
            self._go_on.wait()
        return not self._frozen

    def _place_of(self, path: str | None) -> tuple[str, str] | None:
        if path is not None:
            for folder, place in self._folders.items():
                if path.startswith(folder) and path[len(folder) : len(folder) + 1] in ("/", ""):
                    return place, path[len(folder) + 1 :] or os.path.basename(folder)  # noqa: PTH119 (thousands of times)
        return None


def _signed(word: int) -> int:
    """A descriptor as the int it is."""
    return ctypes.c_int(word & 0xFFFFFFFF).value


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 (thousands of times)
    except OSError:
        return None


def _named(tid: int, folder: int, address: int) -> str | None:
    """A path that is an argument, made absolute."""
    try:
        with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 (thousands of times)
            text = os.pread(memory.fileno(), _PATH_MAX, address).split(b"\0", 1)[0]
    except OSError:
        return None
    path = os.fsdecode(text)
    if not path.startswith("/"):
        base = _link(f"/proc/{tid}/cwd" if folder == -100 else f"/proc/{tid}/fd/{folder}")
        if base is None:
            return None
        path = f"{base}/{path}"
    parent, name = os.path.split(os.path.normpath(path))
    return f"{os.path.realpath(parent)}/{name}"
