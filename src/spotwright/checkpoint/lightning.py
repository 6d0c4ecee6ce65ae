"""Lightning's ``Trainer`` on spot nodes: it resumes exactly, saves after a notice, and ends with 143 after SIGTERM.

::

    trainer = Trainer(max_steps=48, plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint()])
    trainer.fit(model, data, ckpt_path="last")  # at the first attempt too

Lightning saves neither the random generators nor where the data loader is in its epoch (``DataLoader`` has no state). Both are
added to each checkpoint here. A resumed epoch draws its order again and reads past the batches that are done.

Lightning's own handler of SIGTERM broadcasts inside the handler and ends the training with exit 0
(``trainer/connectors/signal_connector.py``); while a training with :class:`SpotCheckpoint` runs, it is not in use.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    import torch

    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning.callbacks import OnExceptionCheckpoint
        from pytorch_lightning.plugins.io import TorchCheckpointIO
        from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
    else:
        from lightning.pytorch.callbacks import OnExceptionCheckpoint
        from lightning.pytorch.plugins.io import TorchCheckpointIO
        from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
except ImportError as error:
    found = sys.modules.get("lightning")
    if found is not None and not hasattr(found, "__path__"):  # the user's script, mostly
        raise ImportError(
            f"{found.__file__}: has the name of Lightning's package, which cannot be imported beside it: "
            "rename this file"
        ) from error
    raise ImportError(f"spotwright.checkpoint.lightning needs Lightning ({error}): pip install lightning") from error

from spotwright.checkpoint import random_states
from spotwright.checkpoint.attempt_environment import progress
from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.checkpoint.errors import SaveFailed
from spotwright.checkpoint.marked_folder import MarkedFolders, check_one_place, folder_at
from spotwright.checkpoint.refused_write import what_refused
from spotwright.checkpoint.termination import EXIT, let_workers_outlive_sigterm

__all__ = ["SpotCheckpoint", "SpotCheckpointIO"]

_NAME = re.compile(r"step-(\d{10})\.ckpt")
_PART = ".part"  # the end of the name of a file that is being written
_PART_NAME = re.compile(r".+\.\d{1,10}-[0-9a-f]{8}\.part")
_LEFT_AFTER = 3600.0  # seconds without a write, after which such a file was left by a process that has ended
_KEY = "spotwright"  # our part of a checkpoint
_RANDOM_BYTES = 1 << 16  # of the random states of one rank, as JSON; without a GPU they have 30,000


class SpotCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is not there when types are checked
    """Writes each checkpoint beside its place, makes it durable, and moves it there, so that a file is whole or absent.

    It serves every callback that saves. Checkpoints are loaded without running code from them, unless
    ``fit(weights_only=False)`` allows it. Addresses of object stores are left to Lightning. Raises :class:`SaveFailed` if the
    place cannot be written to, as on a full disk; nothing of that checkpoint stays.
    """

    check: Callable[[Path], None] = staticmethod(lambda _: None)
    """Called with the path of a checkpoint before it takes its place, and after. What it raises keeps it from counting."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Called by Lightning."""
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = _new_part(place)
        try:
            with open(part, "xb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            now = part.stat().st_mtime
            self._take_place(part, place)
        except BaseException as error:
            part.unlink(missing_ok=True)  # it would keep a disk full
            if (refused := what_refused(error, place)) is None:
                raise
            raise SaveFailed(refused) from error
        for left in place.parent.glob(f"*{_PART}"):
            with suppress(OSError):
                if _PART_NAME.fullmatch(left.name) and left.stat().st_mtime < now - _LEFT_AFTER:
                    left.unlink()  # whoever wrote it has ended; if not, its checkpoint will not count
        folder = os.open(place.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _take_place(self, part: Path, place: Path) -> None:
        """Let a file take its place; a process that was frozen just before puts back what another attempt has put there."""
        self.check(place)
        kept = _new_part(place)
        with suppress(OSError):  # nothing is there, or the file system has no links
            os.link(place, kept)
        os.replace(part, place)
        try:
            self.check(place)
        except BaseException:
            if kept.exists():
                os.replace(kept, place)
            else:
                place.unlink(missing_ok=True)
            raise
        kept.unlink(missing_ok=True)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Called by Lightning."""
        loaded: dict[str, Any] = super().load_checkpoint(path, map_location, weights_only is not False)
        return loaded


class SpotCheckpoint(OnExceptionCheckpoint):  # type: ignore[misc]  # Lightning is not there when types are checked
    """The callback for ``Trainer(plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint()])``.

    - ``dirpath`` is the folder of the checkpoints. Default: ``SPOTWRIGHT_CHECKPOINT``, which every attempt has; if it is not set,
      a folder ``spotwright-checkpoint`` in the working directory.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save.
    - ``keep`` is the number of checkpoints to keep, the newest ones.

    ``fit(ckpt_path="last")`` finds its newest checkpoint, and begins anew without one. A save that finds no room on the disk is
    logged, and the training goes on, unless nothing was saved before. Raises :class:`PlaceError` if the folder
    cannot be used.
    """

    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, *, every: float | None = None, keep: int = 2
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        self._folder = folder_at(dirpath)
        super().__init__(str(self._folder))  # the callback in which fit(ckpt_path="last") looks for a path
        self._every, self._keep = every, keep
        self._claims = MarkedFolders(self._folder, "step-")
        self._training: AttendedTraining | None = None
        self._users_handler: Any = None
        self._loaded: dict[str, Any] | None = None
        self._epoch_random: dict[str, Any] = {}  # before the batches of the present epoch were ordered
        self._ordered_epoch = -1
        self._random: dict[str, Any] | None = None
        self._step = 0

    @property
    def ckpt_path(self) -> str:
        """The newest whole checkpoint; empty without one. Lightning asks for it at ``fit(ckpt_path="last")``."""
        return next((str(path) for path in self._paths() if zipfile.is_zipfile(path)), "")

    # -- called by Lightning

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        """Claim the folder."""
        if stage != "fit":
            return
        let_workers_outlive_sigterm()  # they are forked before the training begins
        found = _NAME.fullmatch(Path(self.ckpt_path).name)
        step = torch.tensor([int(found[1]) if found else 0], device=trainer.strategy.root_device)
        check_one_place(self._folder, trainer.strategy.all_gather(step).flatten().tolist())
        self._users_handler = signal.getsignal(signal.SIGTERM)  # Lightning's own handler comes later
        if trainer.is_global_zero:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._claims.claim()
            for path in self._folder.glob(f"step-*{_PART}"):
                path.unlink(missing_ok=True)  # a process of an earlier attempt that still writes it gets an error
            if isinstance(checkpoint_io := trainer.strategy.checkpoint_io, SpotCheckpointIO):
                checkpoint_io.check = self._check_claim
