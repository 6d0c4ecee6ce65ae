"""End a process with 143 if its code returns amid its work after a notice, and report that in its pod.

A Job, Argo and Kubeflow Pipelines see only exit codes: they count 0 as done, and the rest stays undone. The report is one line
in the container's termination message, a file of at most 4096 bytes that the kubelet keeps in the pod's status (Kubernetes
documentation, "Determine the Reason for Pod Failure"). Code without this library may write the line itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress

from spotwright.notices.from_env import from_environment
from spotwright.notices.notice import SourceError

__all__ = ["EXIT", "MESSAGE_FILE", "leave_early", "progress_in"]

EXIT = 143
"""128 + SIGTERM: the exit code of a process ended by the signal, in shells and Kubernetes."""

MESSAGE_FILE = "/dev/termination-log"
"""The default ``terminationMessagePath`` of a container."""

_KEY = "spotwright.dev/progress"
_LINE = re.compile(rf"^{re.escape(_KEY)}: ([01](?:\.\d{{1,20}})?)\s*$", re.MULTILINE)
_LONGEST_MESSAGE = 4096


def progress_in(message: str) -> float | None:
    """The finished share of the work, from 0 to 1, in a termination message; ``None`` without one."""
    found = _LINE.search(message[:_LONGEST_MESSAGE])
    return min(1.0, float(found[1])) if found else None


def leave_early(share: float, environ: Mapping[str, str], message_file: str = MESSAGE_FILE) -> None:
    """Exit with 143 now, if the environment's source of notices says that this node is going away.

    ``share`` is the finished part of the work, below 1. A silent source counts as no notice. An existing message stays.
    """
    try:
        source = from_environment(environ)
        notice = None if source is None else source.wait(0.0)
    except SourceError:
        return
    if notice is None or notice.kind == "rebalance":  # after a recommendation the node may stay
        return
    _leave_word(share, message_file)
    with suppress(OSError, ValueError):  # a closed stream needs no more output
        sys.stderr.write(
            f"spotwright: {share:.0%} of the work is done and the node is going away, so this process exits with {EXIT} and the"
            " next attempt resumes; work that may stop early reports a progress of 1\n"
        )
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(EXIT)


def _leave_word(share: float, message_file: str) -> None:
    with suppress(OSError):
        descriptor = os.open(message_file, os.O_WRONLY | os.O_NONBLOCK)  # exists only in containers
        try:
            if os.fstat(descriptor).st_size == 0:
                os.write(descriptor, f"{_KEY}: {share:.6f}\n".encode())
        finally:
            os.close(descriptor)
