"""Trace an attempt's file operations with ptrace, and hold the attempt at exactly one of them.

A dedicated thread traces the attempt's main process and all its descendants (ptrace(2)). The processes run at full speed except
for the calls of :mod:`spotwright.local.supervisor.kernel`; each call that succeeds in a watched folder becomes a
:class:`FileOperation`. At an injection's operation, every traced process is stopped until the backend has reclaimed the node or
delivered the notice. So "inside a save" is exact for any code and size. The waits of the processes for a processor are measured
too, so that a busy machine is not mistaken for a step that hangs.

ptrace is bound to a thread: the one that attaches must also wait and resume. Other threads must not wait for a traced process,
because each stop is reported once; the shim is its only parent here. Source: ptrace(2), seccomp(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spotwright.local.supervisor import process_identity
from spotwright.local.supervisor.kernel import CALLS, FileCall, is_supported_machine
from spotwright.rehearsal.attempt_trace import (
    AttemptTrace,
    FileOperation,
    OnSigterm,
    Untold,
    read_blocked,
    read_on_sigterm,
)

__all__ = ["SyscallTracer", "command_of", "process_tree"]


_SEIZE, _LISTEN, _CONT, _SYSCALL, _GET_SYSCALL_INFO = 0x4206, 0x4208, 7, 24, 0x420E
# SYSGOOD, FORK, VFORK, CLONE, EXEC, SECCOMP, EXITKILL
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
_EVENT_SECCOMP, _EVENT_STOP = 7, 128
_WAIT = 0x40000000 | 0x20000000  # __WALL | __WNOTHREAD: every kind of child, but only those that this thread traces
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_STOP_SIGNALS = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_ENTRY = struct.Struct("7Q")  # number and six arguments
_EXIT = struct.Struct("qB")  # result, and whether it is an error
_PAYLOAD = 24  # offset of the union in struct ptrace_syscall_info
_TIMEOUT = 5.0  # seconds for a held attempt to stop
_START_TIMEOUT = 60.0  # seconds for an attempt to begin: its shim mounts and fetches first
_PATH_MAX = 4096
_AT_FDCWD = -100
_OPENAT2 = 437  # on every machine; the flags are in memory
_CACHE = "/__pycache__/"
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
_MAX_STRAY_FILES = 1000
_SHORTEST_ADDRESS, _LONGEST_ADDRESS, _NAME_SERVER = (
    8,
    28,
    53,
)  # bytes of a sockaddr_in without padding, of a sockaddr_in6; port

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(slots=True)
class _PendingCall:
    call: FileCall
    path: str | None  # None: the file is the descriptor that the call returns
    source: str | None = None  # the old name of a file that is renamed
    truncates: bool = False
    appends: bool = False


class SyscallTracer(threading.Thread):
    """Traces the attempt that is the child of a shim.

    ``folders`` are the watched folders, each with the name of its area. ``must_hold`` is called after every operation, in the
    tracer's thread; if true, the attempt is stopped until :meth:`release`. ``failure`` says why the attempt could not be
    traced: then it runs untraced, and its files are unknown. ``on_begin`` is called in the tracer's thread, right before the
    attempt's code begins. ``passes_on_sigterm``: the attempt's main process is Spotwright's, and only passes SIGTERM on. Files
    below ``ignored`` are not stray files. :meth:`trace` returns the observations.
    """

    def __init__(
        self,
        shim: int,
        folders: Mapping[Path, str],
        must_hold: Callable[[FileOperation], bool],
        ignored: Sequence[str] = (),
        on_begin: Callable[[], None] = lambda: None,
        *,
        passes_on_sigterm: bool = False,
    ) -> None:
        super().__init__(name="tracer", daemon=True)
        self._ignored = (*_NO_FILES, *(f"{os.path.realpath(folder)}/" for folder in ignored))
        self._on_begin = on_begin
        self._passes_on_sigterm = passes_on_sigterm
        self._stray_files: dict[str, None] = {}
        self._connections: dict[str, None] = {}
        self._own_peers: set[str] = set()
        self._mapped: dict[tuple[str, str], None] = {}
        self._on_sigterm: dict[int, OnSigterm] = {}
        self._untold: dict[int, Untold] = {}  # by process
        self._shim, self._must_hold = shim, must_hold
        areas = {os.path.realpath(folder): area for folder, area in folders.items()}
        self._areas = dict(sorted(areas.items(), key=lambda item: -len(item[0])))  # the innermost folder wins
        self._main = 0
        self._is_frozen = self._is_finished = self._has_filter = False
        self._pending: dict[int, _PendingCall] = {}
        self._released = threading.Event()
        self._look = threading.Lock()
        self._waited = 0.0  # seconds, up to the last look
        self._delays: dict[Path, float] = {}  # of each thread, at the last look
        self._own_before = 0.0  # before the attempt's code began
        self._held = 0.0  # seconds in which a process of the attempt was stopped for this thread
        self._info = ctypes.create_string_buffer(88)
        self.operations: list[FileOperation] = []
        self.failure = ""
        self._began = time.monotonic()

    @property
    def process(self) -> int:
        """The attempt's main process; 0 before it has begun."""
        return self._main

    @property
    def run_delay(self) -> float:
        """Seconds in which the attempt waited for a processor, or for this thread, which works or waits for one itself.

        Each sample adds the slowest thread's wait since the last one. The kernel forgets the waits of ended processes, so each
        process is also sampled at its end.
        """
        with self._look:
            processes = process_tree(self._main) if self._main else ()
            delays = {thread: _thread_delay(thread) for each in processes for thread in _threads(each)}
            self._waited += max(
                (delay - self._delays.get(thread, 0.0) for thread, delay in delays.items()), default=0.0
            )
            self._delays = delays
            return max(self._own_delay() - self._own_before, self._held) + self._waited

    def _own_delay(self) -> float:
        return _thread_delay(Path(f"/proc/self/task/{self.native_id}"))

    @property
    def cpu_seconds(self) -> float:
        """The computing time of the attempt's processes and their ended children, in seconds."""
        return sum(map(_computed, process_tree(self._main))) if self._main else 0.0

    def release(self, *, resume: bool) -> None:
        """Resume a held attempt; without ``resume`` it stays stopped until it is killed."""
        self._is_frozen = self._is_frozen or not resume
        self._released.set()

    def note_blocked_sigterm(self) -> None:
        """Note the attempt's processes that block SIGTERM by their mask. A later arrival replaces the note."""
        waiting = [self._main] if self._main else []
        while waiting:
            process = waiting.pop()
            if read_blocked(process, signal.SIGTERM):
                self._on_sigterm.setdefault(process, OnSigterm.BLOCKS)
            waiting += process_identity.children(process)

    def finish(self) -> None:
        """Wait until the last operations of a finished attempt are recorded."""
        self._is_finished = True
        self.release(resume=True)
        self.join(_TIMEOUT)

    def trace(self) -> AttemptTrace:
        """The observations; complete after :meth:`finish`."""
        return AttemptTrace(
            tuple(self.operations),
            tuple(self._stray_files),
            self.failure,
            tuple(self._on_sigterm.values()),
            tuple(self._connections),
            tuple(self._mapped),
            untold=tuple(dict.fromkeys(self._untold.values())),
        )

    def run(self) -> None:
        """Attach, then handle stops until no traced process is left."""
        main = self._main_process()
        if main is None:
            self.failure = "it ended before the tracer could attach"
            self._on_begin()  # from now on the limit of its time counts
            return
        if not is_supported_machine():
            self.failure = f"the system calls of this machine ({platform.machine()}) are not known"
        elif _ptrace(_SEIZE, main, None, _OPTIONS) < 0:
            self.failure = f"ptrace is refused: {os.strerror(ctypes.get_errno())}"
        self._own_before = self._own_delay()
        self._delays = {thread: _thread_delay(thread) for thread in _threads(main)}
        self._main = main
        self._began = time.monotonic()
        self._on_begin()
        os.kill(main, signal.SIGCONT)
        if not self.failure:
            self._handle_stops()

    def _main_process(self) -> int | None:
        """The attempt's main process, once it has stopped itself; None if it ends before or takes longer than the timeout."""
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline and not self._is_finished:
            for child in process_identity.children(self._shim):
                stat = process_identity.stat(child)
                if stat is not None and stat.state == "T":
                    return child
            time.sleep(0.0005)
        return None

    def _handle_stops(self) -> None:
        while True:
            try:
                tid, status = os.waitpid(-1, _WAIT)
            except ChildProcessError:
                return
            if os.WIFSTOPPED(status):
                stopped_at = time.monotonic()
                self._handle_stop(tid, os.WSTOPSIG(status), status >> 16)
                self._held += time.monotonic() - stopped_at
                continue
            self._pending.pop(tid, None)
            if tid == self._main and os.WIFEXITED(status) and not self._has_filter:  # it would have stopped at its exit
                self.failure = "no seccomp filter could be installed"

    def _handle_stop(self, tid: int, number: int, event: int) -> None:
        if number == _SYSCALL_STOP:
            self._syscall_returned(tid)
            self._resume(_CONT, tid)
        elif event == _EVENT_SECCOMP:
            self._has_filter = True
            self._resume(_SYSCALL if self._syscall_entered(tid) else _CONT, tid)
        elif event == _EVENT_STOP and number in _STOP_SIGNALS:
            self._resume(_LISTEN, tid)
        elif event:
            self._resume(_CONT, tid)
        else:
            if number == signal.SIGTERM:
                self._note_sigterm(tid)
            self._resume(_CONT, tid, number)

    def _note_sigterm(self, tid: int) -> None:
        """Note what a process does with SIGTERM. The kernel reports the signal to a tracer even if it is ignored."""
        answer = read_on_sigterm(tid, signal.SIGTERM)
        if answer is not None and not (self._passes_on_sigterm and tid == self._main):
            self._on_sigterm[tid] = answer
        self._untold.pop(tid, None)
        for below in [process for process in process_tree(tid) if process != tid and process not in self._on_sigterm]:
            if read_on_sigterm(below, signal.SIGTERM) is OnSigterm.HANDLES:
                self._untold[below] = Untold(command_of(below), command_of(tid))

    def _resume(self, request: int, tid: int, number: int = 0) -> None:
        if self._is_frozen:
            return
        if _ptrace(request, tid, None, number) < 0 and ctypes.get_errno() != errno.ESRCH:  # ESRCH: killed meanwhile
            raise OSError(ctypes.get_errno(), "a traced process cannot be resumed")

    # -- system calls

    def _syscall_entered(self, tid: int) -> bool:
        """Note a call that is about to be made; return whether its result is needed."""
        if _ptrace(_GET_SYSCALL_INFO, tid, len(self._info), ctypes.addressof(self._info)) <= 0:
            return False
        number, *arguments = _ENTRY.unpack_from(self._info.raw, _PAYLOAD)
        layout = CALLS.get(number)
        if layout is None:
            return False
        if layout.call is FileCall.EXIT:
            _ = self.run_delay
            if tid == self._main:
                self._record(FileCall.EXIT, "", "")
            return False
        if layout.address is not None:
            self._note_connection(tid, *arguments[layout.address : layout.address + 2])
            return False
        if layout.call is FileCall.MAP:
            self._note_map(tid, arguments)
            return False
        path: str | None = None
        if layout.descriptor is not None:
            path = _link_target(f"/proc/{tid}/fd/{_signed(arguments[layout.descriptor])}")
        elif layout.path is not None:
            path = _named(tid, arguments, layout.folder, layout.path)
        if layout.call is not FileCall.OPEN and self._locate(path) is None and not self._is_stray(path):
            return False
        source = None if layout.old_path is None else _named(tid, arguments, layout.old_folder, layout.old_path)
        flags = _open_flags(tid, number, arguments, layout.flags) if layout.call is FileCall.OPEN else 0
        truncates, appends = bool(flags & os.O_TRUNC), bool(flags & os.O_APPEND)
        self._pending[tid] = _PendingCall(layout.call, path, source, truncates, appends)
        return True

    def _syscall_returned(self, tid: int) -> None:
        """Record a call that has succeeded; a failed call had no effect."""
        pending = self._pending.pop(tid, None)
        if pending is None or _ptrace(_GET_SYSCALL_INFO, tid, len(self._info), ctypes.addressof(self._info)) <= 0:
            return
        result, is_error = _EXIT.unpack_from(self._info.raw, _PAYLOAD)
        if is_error:
            return
        path = pending.path if pending.path is not None else _link_target(f"/proc/{tid}/fd/{result}")
        location = self._locate(path)
        if location is not None:
            source = self._locate(pending.source)
            inside = source[1] if source is not None and source[0] == location[0] else ""
            self._record(pending.call, *location, source=inside, truncates=pending.truncates, appends=pending.appends)
        elif path is not None and self._is_stray(path):
            self._note_stray(pending.call, path)

    def _is_stray(self, path: str | None) -> bool:
        """Whether a path is a file of the attempt's outside the folders that a rehearsal knows."""
        return path is not None and path.startswith("/") and not path.startswith(self._ignored) and _CACHE not in path

    def _note_stray(self, call: FileCall, path: str) -> None:
        if call is FileCall.REMOVE:
            self._stray_files.pop(path, None)
        elif call is not FileCall.MAKE_FOLDER and len(self._stray_files) < _MAX_STRAY_FILES:
            self._stray_files[path] = None

    def _note_map(self, tid: int, arguments: Sequence[int]) -> None:
        """Note a writable map of a watched file, but not the index (``-shm``) of a database, which SQLite builds again."""
        _, _, protection, _, descriptor, _ = arguments
        path = _link_target(f"/proc/{tid}/fd/{_signed(descriptor)}") if protection & mmap.PROT_WRITE else None
        location = self._locate(path)
        if location is not None and not location[1].endswith("-shm"):
            self._mapped[location] = None

    def _note_connection(self, tid: int, address: int, length: int) -> None:
        """Note a peer, unless it is the attempt itself, such as the rank at which all other ranks of a training meet."""
        host, port = _internet_address(_read_memory(tid, address, min(length, _LONGEST_ADDRESS)))
        peer = f"{host}:{port}"
        if not host or peer in self._own_peers:
            return
        if self._main and _is_served_by(self._main, host.strip("[]"), port):
            self._own_peers.add(peer)
            self._connections.pop(peer, None)  # noted before it listened
        elif len(self._connections) < _MAX_STRAY_FILES:
            self._connections[peer] = None

    def _record(
        self, call: FileCall, area: str, path: str, *, source: str = "", truncates: bool = False, appends: bool = False
    ) -> bool:
        """Record an operation, and hold the attempt if requested; return whether the attempt continues."""
        operation = FileOperation(call, area, path, time.monotonic() - self._began, source, truncates, appends)
        self.operations.append(operation)
        if self._is_frozen:  # another process of the attempt is being killed
            return False
        self._released.clear()
        if self._must_hold(operation):
            self._released.wait()
        return not self._is_frozen

    def _locate(self, path: str | None) -> tuple[str, str] | None:
        """The area of a path and the path inside it; None for a path that is not watched."""
        if path is not None:
            for folder, area in self._areas.items():
                if path.startswith(folder) and path[len(folder) : len(folder) + 1] in ("/", ""):
                    return area, path[len(folder) + 1 :] or os.path.basename(folder)  # noqa: PTH119 (thousands of times)
        return None


def _signed(word: int) -> int:
    """A descriptor argument, which is a C int."""
    return ctypes.c_int(word & 0xFFFFFFFF).value


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 (thousands of times)
    except OSError:
        return None


def _named(tid: int, arguments: Sequence[int], folder: int, path: int) -> str | None:
    """The file that two arguments name: a folder's descriptor, of which -1 means the current folder, and a path."""
    return _path_argument(tid, _signed(arguments[folder]) if folder >= 0 else _AT_FDCWD, arguments[path])


def _open_flags(tid: int, number: int, arguments: Sequence[int], flags: int | None) -> int:
    """The flags of an ``open``. Source: open(2), creat(2), openat2(2)."""
    if flags is not None:
        return arguments[flags]
    if number != _OPENAT2:
        return os.O_TRUNC  # creat
    return int.from_bytes(_read_memory(tid, arguments[2], 8), sys.byteorder)


def _path_argument(tid: int, folder: int, address: int) -> str | None:
    """Read a path argument from the process's memory and make it absolute."""
    content = _read_memory(tid, address, _PATH_MAX)
    if not content:
        return None
    path = os.fsdecode(content.split(b"\0", 1)[0])
    if not path.startswith("/"):
        base = _link_target(f"/proc/{tid}/cwd" if folder == _AT_FDCWD else f"/proc/{tid}/fd/{folder}")
        if base is None:
            return None
        path = f"{base}/{path}"
    parent, name = os.path.split(os.path.normpath(path))
    return f"{os.path.realpath(parent)}/{name}"


def _read_memory(tid: int, address: int, length: int) -> bytes:
    """Memory of a stopped process; empty if it cannot be read."""
    try:
        with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 (thousands of times)
            return os.pread(memory.fileno(), length, address)
    except OSError:
        return b""


def _internet_address(address: bytes) -> tuple[str, int]:
    """Host and port of a ``sockaddr_in`` or ``sockaddr_in6``; an empty host for other families and for name servers."""
    if len(address) < _SHORTEST_ADDRESS:
        return "", 0
    family, port = int.from_bytes(address[:2], sys.byteorder), int.from_bytes(address[2:4], "big")
    if port in (0, _NAME_SERVER):
        return "", 0
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, address[4:8]), port
    if family == socket.AF_INET6 and len(address) >= 24:
        return f"[{socket.inet_ntop(socket.AF_INET6, address[8:24])}]", port
    return "", 0


_LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def _is_served_by(process: int, host: str, port: int) -> bool:
    """Whether a process, or one below it, listens at this port, and the host is an address of this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError:
        return False  # the address of another machine
    sockets: set[str | None] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # it has ended, or the machine has no IPv6
            sockets.update(_listening(f"/proc/{process}/net/{name}", port))
    return bool(sockets) and any(sockets & _descriptors(each) for each in process_tree(process))


def _listening(table: str, port: int) -> Iterator[str]:
    """The sockets in a table of the kernel that listen at a port, as their descriptors show them."""
    for line in process_identity.read(table).decode("ascii").splitlines()[1:]:
        _, local, _, state, *fields = line.split()
        if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
            yield f"socket:[{fields[5]}]"


def _descriptors(process: int) -> set[str | None]:
    folder = f"/proc/{process}/fd"
    try:
        return {_link_target(f"{folder}/{name}") for name in os.listdir(folder)}  # noqa: PTH208 (hundreds of names)
    except OSError:
        return set()  # it has ended


def command_of(process: int) -> str:
    """The first words of the command of a process, without folders; empty for one that has ended."""
    try:
        words = process_identity.read(f"/proc/{process}/cmdline").split(b"\0")
    except OSError:
        return ""
    return " ".join(os.path.basename(os.fsdecode(word)) for word in words[:3] if word)  # noqa: PTH119 (words, not paths)


def process_tree(process: int) -> Iterator[int]:
    """A process and all its descendants."""
    yield process
    for child in process_identity.children(process):
        yield from process_tree(child)


def _threads(process: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []  # it has ended


_TICKS = os.sysconf("SC_CLK_TCK")


def _computed(process: int) -> float:
    """The seconds that a process and its ended children computed; 0 if it has ended.

    Source: ``stat`` and ``schedstat`` of proc(5). The first counts threads that have ended, in hundredths; the second is exact.
    """
    try:
        text = process_identity.read(f"/proc/{process}/stat")
    except OSError:
        return 0.0
    *own, of_children, in_kernel = map(int, text[text.rindex(b")") + 2 :].split()[11:15])
    exact = sum(_schedstat(thread, 0) for thread in _threads(process))
    return max(sum(own) / _TICKS, exact) + (of_children + in_kernel) / _TICKS


def _thread_delay(thread: Path) -> float:
    return _schedstat(thread, 1)


def _schedstat(thread: Path, field: int) -> float:
    """Seconds in which a thread ran (0), or was ready and waited (1)."""
    try:
        return int((thread / "schedstat").read_text("ascii").split()[field]) / 1e9
    except (OSError, IndexError):
        return 0.0  # it has ended, or the kernel does not count
