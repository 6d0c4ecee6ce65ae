"""The folder of a pod in which saving processes ask its preStop hook to wait for them.

Kubernetes runs the hook when it has decided to end a pod, and sends SIGTERM when the hook returns. So the hook can give code the
grace period before SIGTERM, which KFP otherwise leaves unused: it ends the code within a second of SIGTERM. The hook
writes a notice into the folder and waits as long as there is a file ``saver.PID`` of a living process. A process that has saved
after the notice removes its file; without such a file the hook returns at once. The hook is made by
:mod:`spotwright.cluster.admit_pods`, and the folder is on a volume of the pod that each container has for itself, so that a
PID means the same on both sides.
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
"""The beginning of the name of a process' file; its PID follows."""

_registered: dict[str, set[PodHook]] = {}
"""The hooks that this process waits with, by file: two checkpoints in one process share a file."""


class PodHook:
    """One checkpoint's side of the hook. It never raises: without the folder, a pod ends as it would without us."""

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
        """Let the hook wait for :meth:`release`. Returns why it will not, or an empty text."""
        try:
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o666))
        except OSError as error:
            return f"{self._file} cannot be written ({error.strerror}), so this pod ends without waiting for a save"
        _registered.setdefault(self._file, set()).add(self)
        return ""

    @property
    def waits(self) -> bool:
        """Whether the hook waits for this checkpoint now: it has written its notice, and was not released yet."""
        return self in _registered.get(self._file, ()) and self._is_own() and self._notice.exists()

    def release(self) -> None:
        """Let the hook return, unless other checkpoints hold it. Does nothing the second time, and in forked children."""
        waiting = _registered.get(self._file, set())
        if self not in waiting or not self._is_own():
            return
        waiting.discard(self)
        if not waiting:
            with contextlib.suppress(OSError):  # the hook also looks whether the process lives, and at the clock
                Path(self._file).unlink()

    def _is_own(self) -> bool:
        return os.getpid() == self._process
