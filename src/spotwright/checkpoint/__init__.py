"""Checkpoints that survive the loss of a node: each is whole or absent, and an older attempt never overwrites a newer one's.

Training code imports this package anywhere, so it needs only the standard library. NumPy, fsspec and other packages are
imported when a state or a place needs them.

::

    from spotwright.checkpoint import Checkpoint

    ckpt = Checkpoint()                                  # at SPOTWRIGHT_CHECKPOINT, else in the working directory
    state = ckpt.load(default={"total": 0})
    for step in ckpt.steps(100):                         # goes on after the loaded step
        state["total"] += step
        ckpt.step_done(state)                            # saves when that pays, or after a notice

Code with its own saves calls :func:`progress` and :func:`notice`, which do nothing if no variable names a file or source.
"""

from __future__ import annotations

from spotwright.checkpoint.attempt_environment import progress
from spotwright.checkpoint.checkpoint import Checkpoint
from spotwright.checkpoint.errors import (
    BrokenCheckpoint,
    CheckpointError,
    NotLoaded,
    OtherProgram,
    PlaceError,
    SaveFailed,
    StaleWriter,
    UnstorableState,
)
from spotwright.checkpoint.file_values import Directory, File
from spotwright.checkpoint.termination import notice

__all__ = [
    "BrokenCheckpoint",
    "Checkpoint",
    "CheckpointError",
    "Directory",
    "File",
    "NotLoaded",
    "OtherProgram",
    "PlaceError",
    "SaveFailed",
    "StaleWriter",
    "UnstorableState",
    "notice",
    "progress",
]
