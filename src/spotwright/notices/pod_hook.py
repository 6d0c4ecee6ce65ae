"""The folder of a pod by which saving processes make its preStop hook wait for them.

Kubernetes runs the hook when it has decided to end a pod, and sends SIGTERM when the hook returns. So the hook can give code
the grace period before SIGTERM, which KFP otherwise wastes by ending the code within a second of SIGTERM. The hook writes a
notice into the folder and waits while there is a file ``saver.PID`` of a living process. A process that has saved after the
notice removes its file; without such a file the hook returns at once. :mod:`spotwright.cluster.admit_pods` makes the hook, and
each container has a separate volume for the folder, so that PIDs agree on both sides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["FOLDER_VARIABLE", "NOTICE", "SAVER", "PodHook"]

FOLDER_VARIABLE = "SPOTWRIGHT_GRACE_FOLDER"
"""The variable that names the folder in pods whose container has the hook."""

NOTICE = "notice"
"""The name of the file that the hook writes, in the form of ``SPOTWRIGHT_NOTICE_FILE``."""

SAVER = "saver."
"""The prefix of a process's file name; its PID follows."""

_registered: dict[str, set[PodHook]] = {}
"""This process's registered hooks by file: two checkpoints in one process share a file."""


class PodHook:
    """One checkpoint's side of the hook. It never raises: without the folder, a pod ends as usual."""

    def __init__(self, folder: str) -> None:
        self._notice = Path(folder, NOTICE)
        self._process = os.getpid()
        self._file = f"{folder}/{SAVER}{self._process}"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> PodHook | None:
        """The hook that the environment names; ``None`` in every pod and process without one."""
        folder = environ.get(FOLDER_VARIABLE, "").strip()
        return cls(folder) if folder else None

    def register(self) -> str:
        """Make the hook wait for :meth:`release`. Returns why it will not, or an empty string."""
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o666))
        except OSError as error:
            return f"{self._file} cannot be written ({error.strerror}), so this pod ends without waiting for a save"
        _registered.setdefault(self._file, set()).add(self)
        return ""

    @property
    def waits(self) -> bool:
        """Whether the hook waits for this checkpoint now: it has written its notice and was not released."""
        return self in _registered.get(self._file, ()) and self._is_own() and self._notice.exists()

    def release(self) -> None:
        """Let the hook return, unless other checkpoints hold it. No effect on repetition and in forked children."""
        waiting = _registered.get(self._file, set())
        if self not in waiting or not self._is_own():
            return
        waiting.discard(self)
        if not waiting:
            with contextlib.suppress(OSError):  # the hook also checks the process and the clock
                Path(self._file).unlink()

    def _is_own(self) -> bool:
        return os.getpid() == self._process
