"""Check what this machine needs to run attempts: Linux with pidfds, and enough file descriptors.

This module can be imported on every platform. Commands that run attempts call it first, so that the user reads one message with
the alternatives instead of an error about the first missing system call.
"""

from __future__ import annotations

import os
import sys

from spotwright.errors import UnsupportedPlatform

__all__ = ["allow_descriptors", "require_linux"]

_DESCRIPTORS = 65536  # each shim takes two of the engine's and one of its fork server's
_NAMES = {"darwin": "macOS", "win32": "Windows"}
_WAYS_OUT = (
    "use a container, made with the Dockerfile of Spotwright's repository, or WSL 2 on Windows; the README shows how. "
    "Here work: runs, show, logs, report, compile, place, unplace and explain"
)


def require_linux() -> None:
    """Raise :class:`UnsupportedPlatform` if attempts cannot run safely here: they need pidfds, so Linux 5.3 or newer."""
    if sys.platform != "linux":
        platform = _NAMES.get(sys.platform, sys.platform)
        raise UnsupportedPlatform(f"runs on this machine need Linux, and this is {platform}: {_WAYS_OUT}")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except AttributeError as error:
        raise UnsupportedPlatform(
            "runs on this machine need pidfds, and this Python was built without os.pidfd_open: use another Python"
        ) from error
    except OSError as error:
        raise UnsupportedPlatform(
            f"runs on this machine need Linux 5.3 or newer with pidfds, and this is {os.uname().release}"
        ) from error


def allow_descriptors() -> None:
    """Raise the soft limit of open files as far as useful; attempts inherit it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
