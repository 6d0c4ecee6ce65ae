"""Errors of checkpoints, ordered by what the caller should do.

::

    SpotwrightError
    └── CheckpointError           base of all below
        ├── PlaceError the place cannot be used: not writable, no credentials, a missing package
        ├── SaveFailed            this save failed (a full disk, a network); the checkpoint before it is untouched: try again
        ├── StaleWriter           another attempt took over: stop at once without saving
        ├── UnstorableState       the state holds a value that cannot be stored; the message gives its path in the state
        ├── OtherProgram          the place holds a checkpoint of another program, or of a newer Spotwright: name another place
        ├── BrokenCheckpoint      the place holds saves, and none of them is whole
        └── NotLoaded             the order of calls would lose work: call load() first, and step_done() for each step
"""

from __future__ import annotations

from spotwright.errors import SpotwrightError

__all__ = [
    "BrokenCheckpoint",
    "CheckpointError",
    "NotLoaded",
    "OtherProgram",
    "PlaceError",
    "SaveFailed",
    "StaleWriter",
    "UnstorableState",
]


class CheckpointError(SpotwrightError):
    """Base of every error of :mod:`spotwright.checkpoint`."""


class PlaceError(CheckpointError):
    """The place for checkpoints cannot be used; it was left unchanged."""


class SaveFailed(CheckpointError):
    """A save failed: a full disk, a network failure. The checkpoint before it is untouched."""


class StaleWriter(CheckpointError):
    """Another attempt took over. Later saves of this attempt would never count, so it should stop at once."""


class UnstorableState(CheckpointError):
    """The state holds a value that cannot be stored. The message has its path (``state['model'][3]``) and its type."""


class OtherProgram(CheckpointError):
    """The place holds a checkpoint of another program or version, or of a newer Spotwright."""


class BrokenCheckpoint(CheckpointError):
    """The place holds checkpoints and none of them is whole, or a value in a whole one is malformed."""


class NotLoaded(CheckpointError):
    """The order of calls would lose work: ``load()`` was not called, or a step was not ended with ``step_done()``."""
