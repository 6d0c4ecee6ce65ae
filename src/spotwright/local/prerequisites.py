"""What this machine must have before attempts can run on it: Linux with pidfds, and room for descriptors."""

from __future__ import annotations

import os
import resource
import sys

from spotwright.errors import StateError

__all__ = ["allow_descriptors", "require_linux"]

_DESCRIPTORS = 65536  # a shim costs the engine two, and its fork server one


def require_linux() -> None:
    """Raise :class:`StateError` where attempts cannot be run safely: they need pidfds, so Linux 5.3."""
    if not sys.platform.startswith("linux"):
        raise StateError(f"runs on this machine need Linux, and this is {sys.platform}: use WSL 2 or a container")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        raise StateError(
            f"runs on this machine need Linux 5.3 or newer with pidfds, and this is {os.uname().release}"
        ) from error


def allow_descriptors() -> None:
    """Raise the soft limit of open files as far as is useful; attempts inherit it, as from a shell that does so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
