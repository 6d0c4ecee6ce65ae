"""Takes from every Python process that is started with this folder on its path what another platform lacks.

``HIDE_LINUX`` says which platform: ``darwin`` or ``win32``. On the latter, files that Spotwright opens in the encoding of the
platform are errors: that is not UTF-8 there. The standard library keeps what it needs to work here, because it is
imported first; the modules of Spotwright see neither Linux's calls nor /proc, and are told that platform's name.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import select
import signal
import socket
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

PLATFORM = os.environ["HIDE_LINUX"]

_LINUX_OS = (
    "pidfd_open memfd_create eventfd setns unshare splice copy_file_range sched_setaffinity sched_getaffinity "
    "posix_fadvise posix_fallocate O_TMPFILE O_PATH O_DIRECT O_NOATIME getrandom setresuid setresgid getresuid "
    "sched_setscheduler getxattr setxattr listxattr removexattr "
)
_LINUX_SIGNAL = ["pidfd_send_signal", "sigtimedwait", "sigwaitinfo"]
_POSIX_OS = (
    "fork forkpty openpty getuid geteuid getgid getegid getgroups setuid setgid setgroups setsid getsid getpgid "
    "setpgid killpg chown fchown lchown fchmod mkfifo mknod uname statvfs fstatvfs getloadavg posix_spawn "
    "posix_spawnp waitid wait3 wait4 WNOHANG pread pwrite preadv pwritev O_NONBLOCK O_DIRECTORY O_NOFOLLOW "
    "O_CLOEXEC O_SYNC O_NDELAY nice sysconf pathconf sync fdatasync lockf environb fsencodeb getpriority setpriority "
    "register_at_fork ctermid ttyname "
)
_POSIX_SIGNAL = (
    "SIGKILL SIGUSR1 SIGUSR2 SIGHUP SIGCHLD SIGALRM SIGQUIT SIGSTOP SIGCONT SIGPIPE SIGTSTP SIGWINCH pthread_sigmask "
    "pthread_kill sigwait sigpending setitimer alarm pause siginterrupt "
)
_POSIX_MODULES = frozenset({"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog"})
_FOLDER_ERROR = "a folder cannot be opened here"


def _own(depth: int = 2) -> bool:
    """Whether Spotwright itself calls."""
    return str(sys._getframe(depth).f_globals.get("__name__", "")).startswith("spotwright")


class _Libc:
    """The C library of a platform without Linux's calls."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"symbol not found: {name}")


class _Sys(types.ModuleType):
    """``sys`` as a module of Spotwright sees it."""

    platform = PLATFORM

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


class _Loader(importlib.abc.Loader):
    """Loads a module of Spotwright, and then tells it the name of the platform."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self._loader.exec_module(module)
        if vars(module).get("sys") is sys:
            vars(module)["sys"] = _Sys("sys")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if PLATFORM == "win32" and name in _POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if not name.startswith("spotwright"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _no_proc(event: str, given: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(given[0]).startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", given[0])


def _take(module: types.ModuleType, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def hide() -> None:
    """Take everything away."""
    _take(select, ["epoll", "EPOLLIN", "EPOLLOUT"])
    import selectors  # noqa: F401 (the standard library's own, before more goes)
    import shutil  # noqa: F401
    import sqlite3  # noqa: F401
    import subprocess  # noqa: F401
    import tempfile  # noqa: F401
    import threading  # noqa: F401

    _take(os, _LINUX_OS.split())
    _take(signal, _LINUX_SIGNAL)
    ctypes.CDLL = _Libc  # type: ignore[assignment, misc]
    if PLATFORM == "win32":
        warnings.filterwarnings("error", category=EncodingWarning, module=r"spotwright\b|__main__")
        _take(os, _POSIX_OS.split())
        _take(signal, _POSIX_SIGNAL.split())
        _take(socket, ["AF_UNIX"])
        for name in _POSIX_MODULES:
            sys.modules.pop(name, None)
        real_open = os.open

        def open_no_folder(path: Any, *given: Any, **options: Any) -> int:
            if _own() and os.path.isdir(path):  # noqa: PTH112
                raise PermissionError(13, _FOLDER_ERROR, path)
            return real_open(path, *given, **options)

        os.open = open_no_folder
    sys.addaudithook(_no_proc)
    sys.meta_path.insert(0, _Finder())


hide()
