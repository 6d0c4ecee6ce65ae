"""Chooses the default folder for checkpoints, so that the same code runs without Spotwright.

Every attempt of ``spotwright run`` and every placed pod with a ``checkpoint`` has ``SPOTWRIGHT_CHECKPOINT``. Elsewhere the saves
go below the working directory, one folder for each program, and a warning names it. So a script that is started again continues,
as in attempts, and two scripts in one folder do not load each other's state.
"""

from __future__ import annotations

import os
import sys

__all__ = ["default_folder"]

_FOLDER = "spotwright-checkpoint"

_NAME_ONE = 'set the variable, or call Checkpoint("folder")'

_warned: set[str] = set()  # folders that were named in a warning
_temporary: dict[int, str] = {}  # by process


def default_folder() -> str:
    """Return the folder of this program's checkpoints below the working directory; a warning names it once.

    If the working directory cannot be written to, it is a new temporary folder: the process saves, and no later process loads.
    """
    place = _below_working_directory()
    if place:
        outlook = (
            f"a later start here goes on from them; to begin again remove the folder, to choose another {_NAME_ONE}"
        )
    else:
        place = _temporary_folder()
        outlook = f"no later start finds them, because the working directory cannot be written to: {_NAME_ONE}"
    if place not in _warned:
        import logging

        _warned.add(place)
        text = "SPOTWRIGHT_CHECKPOINT is not set: checkpoints are saved in %s; %s"
        logging.getLogger("spotwright.checkpoint").warning(text, place, outlook)
    return place


def _below_working_directory() -> str:
    """Return the folder in the working directory; empty if it cannot be made or written to."""
    try:
        nearest = place = os.path.join(os.getcwd(), _FOLDER, _program())
    except OSError:  # the working directory was removed
        return ""
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    return place if os.access(nearest, os.W_OK | os.X_OK) else ""


def _temporary_folder() -> str:
    """Return the temporary folder of this process, the same one at each call."""
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
