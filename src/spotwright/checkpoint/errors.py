"""What can go wrong with a checkpoint, by what the caller should do.

::

    SpotwrightError
    └── CheckpointError           base of all below
        ├── PlaceError            the place cannot be used: unwritable, no credentials, a package missing; the message says which
        ├── SaveFailed            this save did not happen (a full disk, a network); the checkpoint before it is untouched
        ├── StaleWriter           another attempt has begun: stop at once and save nothing more
        ├── UnstorableState       the state holds a value that cannot be stored; the message gives its path in the state
        ├── OtherProgram          the place holds another program's checkpoint, or that of a newer Spotwright
        ├── BrokenCheckpoint      something was saved here, and nothing of it is whole
        └── NotLoaded             the order of calls would lose work: load() was never called, or a step was never ended
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
    """The place for checkpoints cannot be used; nothing was changed there."""


class SaveFailed(CheckpointError):
    """A save did not happen: a full disk, a network that is down. The checkpoint before it is untouched."""


class StaleWriter(CheckpointError):
    """Another attempt has taken over: what this one still saves will never count, so it should stop at once."""


class UnstorableState(CheckpointError):
    """The state holds a value that cannot be stored. The message names its place (``state['model'][3]``) and its type."""


class OtherProgram(CheckpointError):
    """The place holds the checkpoint of another program or version, or one that a newer Spotwright wrote."""


class BrokenCheckpoint(CheckpointError):
    """Checkpoints were saved here and none of them is whole; or one is, and a value in it is not what it should be."""


class NotLoaded(CheckpointError):
    """Going on like this would lose work: ``load()`` was never called, or a step was never ended with ``step_done()``."""
