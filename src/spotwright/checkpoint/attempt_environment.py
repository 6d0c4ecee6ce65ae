"""The environment of an attempt for the code inside it: the place for checkpoints, and the file for progress.

Every attempt of ``spotwright run`` and every placed pod with a ``checkpoint`` has ``SPOTWRIGHT_CHECKPOINT``. Elsewhere the
saves go below the working directory, one folder per program, named in a warning: the same code runs without Spotwright, a
restarted script continues, and two scripts in one folder do not load each other's state. Progress is a number from 0 to 1 in
the file that ``SPOTWRIGHT_PROGRESS_FILE`` names. A process that returns after a notice with less than 1 reported exits with
143, so that it does not count as a success.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from contextlib import suppress

__all__ = ["ProgressFile", "default_folder", "progress"]


_FOLDER = "spotwright-checkpoint"

_NAME_ONE = 'set the variable, or call Checkpoint("folder")'

_warned: set[str] = set()  # folders named in a warning
_temporary: dict[int, str] = {}  # by process


def default_folder() -> str:
    """Return the folder of this program's checkpoints below the working directory; a warning names it once.

    If the working directory is not writable, it is a new temporary folder, from which no later process loads.
    """
    place = _below_working_directory()
    if place:
        outlook = (
            f"a later start here resumes from them; to start over, remove the folder; to choose another, {_NAME_ONE}"
        )
    else:
        place = _temporary_folder()
        outlook = f"later starts will not find them, because the working directory is read-only: {_NAME_ONE}"
    if place not in _warned and os.environ.get("RANK", "0") == "0":  # once per training
        import logging

        _warned.add(place)
        text = "SPOTWRIGHT_CHECKPOINT is not set: checkpoints are saved in %s; %s"
        logging.getLogger("spotwright.checkpoint").warning(text, place, outlook)
    return place


def _below_working_directory() -> str:
    """Return the folder in the working directory; empty if it cannot be made or is not writable."""
    try:
        nearest = place = os.path.join(os.getcwd(), _FOLDER, _program())
    except OSError:  # the working directory was removed
        return ""
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    return place if os.access(nearest, os.W_OK | os.X_OK) else ""


def _temporary_folder() -> str:
    """Return the temporary folder of this process."""
    if os.getpid() not in _temporary:
        import tempfile

        _temporary[os.getpid()] = tempfile.mkdtemp(prefix=f"{_FOLDER}-")
    return _temporary[os.getpid()]


def _program() -> str:
    """Return a name for the running program: its script, or the package that ``python -m`` runs."""
    script = sys.argv[0] if sys.argv else ""
    folder, name = os.path.split(script)
    if name == "__main__.py":
        name = os.path.basename(folder)
    name = os.path.splitext(name)[0]
    return name if name and not name.startswith(("-", ".")) else "python"


_SECONDS_BETWEEN = 0.05  # a loop with a million steps must not spend its time writing files
_LARGE_STEP = 0.01  # a report that differs by this share from the previous one is always written


class ProgressFile:
    """The progress file of this process's attempt."""

    def __init__(self) -> None:
        self._path = os.environ.get("SPOTWRIGHT_PROGRESS_FILE", "")
        self._next = 0.0
        self._written = math.nan

    def report(self, share: float) -> None:
        """Write the finished share of the work, from 0 to 1; small changes at most 20 times a second, 1 always."""
        share = min(max(float(share), 0.0), 1.0)
        if not math.isnan(share):
            _done[os.getpid()] = share
        now = time.monotonic()
        is_small = abs(share - self._written) < _LARGE_STEP and share < 1
        if not self._path or math.isnan(share) or (is_small and now < self._next):
            return
        self._next, self._written = now + _SECONDS_BETWEEN, share
        temporary = f"{self._path}.{os.getpid()}"
        with suppress(OSError):
            with open(temporary, "w", encoding="ascii") as file:
                file.write(repr(share))
            os.replace(temporary, self._path)


_done: dict[int, float] = {}  # by process: its last reported share


def _at_exit() -> None:
    """Exit with 143 if work is left and the node is going away; a fork without a report ends as before."""
    share = _done.get(os.getpid(), 1.0)
    if share < 1.0:
        from spotwright.notices.early_exit import leave_early

        leave_early(share, os.environ)


atexit.register(_at_exit)  # now, so that the program's own handlers are called first


_files: dict[str, ProgressFile] = {}  # by the variable's current value


def progress(share: float) -> None:
    """Report the finished share of the work, a number from 0 to 1; larger and smaller ones count as 1 and 0.

    Call it when the attempt starts (with the checkpoint's share) and after each step; :meth:`Checkpoint.steps` does so itself.
    Does nothing if ``SPOTWRIGHT_PROGRESS_FILE`` is not set, and never raises because of the file. A process that ends after a
    notice with a last report below 1 exits with 143: report 1 if the work may stop early.
    """
    path = os.environ.get("SPOTWRIGHT_PROGRESS_FILE", "")
    if path not in _files:
        _files[path] = ProgressFile()
    _files[path].report(share)
