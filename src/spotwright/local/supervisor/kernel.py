"""The few Linux calls that Python's standard library lacks: prctl and inotify, by ctypes.

The fork server imports this module, so it uses only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal

__all__ = ["become_subreaper", "die_with_parent", "inotify_add_watch", "inotify_init", "inotify_rm_watch", "prctl"]

# Numbers from linux/prctl.h; ABI, the same on every architecture.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]  # prctl is variadic and reads whole words


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """``prctl(2)``. Raises ``OSError``."""
    _checked(_libc.prctl(option, first, second, 0, 0))


def become_subreaper() -> None:
    """Make orphaned descendants children of this process instead of init."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Request SIGKILL for this process when the parent thread ends; die now if ``parent`` has ended already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def inotify_init() -> int:
    """Open an inotify descriptor, non-blocking and close-on-exec. Raises ``OSError`` at the user's limit of instances."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    """Watch a path. Returns the watch number that its events carry. Raises ``OSError``: no such path, limit of watches."""
    return _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask))


def inotify_rm_watch(descriptor: int, watch: int) -> None:
    """Remove a watch. Raises ``OSError`` if the watched file was removed before."""
    _checked(_libc.inotify_rm_watch(descriptor, watch))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
