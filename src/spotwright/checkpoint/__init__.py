"""Checkpoints that survive the loss of a node: whole or absent, never an older attempt's over a newer one's.

Training code imports this anywhere, so it needs the standard library only; NumPy, fsspec and whatever else is imported where a
state or a place asks for it.

::

    from spotwright.checkpoint import Checkpoint

    ckpt = Checkpoint()                                  # SPOTWRIGHT_CHECKPOINT, or Checkpoint("folder")
    state = ckpt.load(default={"total": 0})
    for step in ckpt.steps(100):                         # goes on after the loaded one
        state["total"] += step
        ckpt.step_done(state)                            # saves when that pays, or a notice came
"""

from __future__ import annotations

from spotwright.checkpoint.api import Checkpoint
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
from spotwright.checkpoint.files import Directory, File

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
]
