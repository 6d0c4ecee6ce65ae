"""Lightning's ``Trainer`` on spot nodes: it resumes exactly, saves after a notice, and ends with 143 after SIGTERM.

::

    trainer = Trainer(max_steps=48, plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint()])
    trainer.fit(model, data, ckpt_path="last")  # at the first attempt too

Lightning saves neither the random generators nor the data loader's position in its epoch (``DataLoader`` has no state). Both
are added to each checkpoint here. A resumed epoch draws its order again and skips the finished batches.

Lightning's own handler of SIGTERM broadcasts inside the handler and ends the training with exit 0
(``trainer/connectors/signal_connector.py``); a training with :class:`SpotCheckpoint` does not use it.
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
            f"{found.__file__}: this file hides Lightning's package of the same name: rename it"
        ) from error
    raise ImportError(f"spotwright.checkpoint.lightning needs Lightning ({error}): pip install lightning") from error

from spotwright.checkpoint import random_states
from spotwright.checkpoint.attempt_environment import progress
from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.checkpoint.errors import SaveFailed
from spotwright.checkpoint.marked_folder import MarkedFolders, check_one_place, folder_at
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.refused_write import what_refused
from spotwright.checkpoint.termination import EXIT, let_workers_outlive_sigterm

__all__ = ["SpotCheckpoint", "SpotCheckpointIO"]

_NAME = re.compile(r"step-(\d{10})\.ckpt")
_PART = ".part"  # suffix of a file that is being written
_PART_NAME = re.compile(r".+\.\d{1,10}-[0-9a-f]{8}\.part")
_LEFT_AFTER = 3600.0  # seconds without a write, after which such a file's writer counts as ended
_KEY = "spotwright"  # our part of a checkpoint
_METRICS = "spotwright-metrics.json"  # of a complete training
_RANDOM_BYTES = 1 << 16  # of the random states of one rank, as JSON; without a GPU they have 30,000
_OWN_PLACE = (
    'give each training its own place, such as SpotCheckpoint(name="fold1"). To continue the same training in another Trainer, '
    "use SpotCheckpoint(again=True)"
)


class SpotCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is not there when types are checked
    """Writes each checkpoint beside its place, makes it durable, and moves it there, so that a file is whole or absent.

    It serves every callback that saves. Loading does not run code from checkpoints, unless ``fit(weights_only=False)`` allows
    it. Addresses of object stores are left to Lightning. Raises :class:`SaveFailed` if the place is not writable, as on a full
    disk; that checkpoint is removed.
    """

    check: Callable[[Path], None] = staticmethod(lambda _: None)
    """Called with a checkpoint's path before and after its move to its place. An exception invalidates the checkpoint."""

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
            part.unlink(missing_ok=True)  # it would keep the disk full
            if (refused := what_refused(error, place)) is None:
                raise
            raise SaveFailed(refused) from error
        for left in place.parent.glob(f"*{_PART}"):
            with suppress(OSError):
                if _PART_NAME.fullmatch(left.name) and left.stat().st_mtime < now - _LEFT_AFTER:
                    left.unlink()  # its writer has ended; if not, its checkpoint will not count
        folder = os.open(place.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _take_place(self, part: Path, place: Path) -> None:
        """Move a file to its place; a process that was frozen just before restores another attempt's file."""
        self.check(place)
        kept = _new_part(place)
        with suppress(OSError):  # no file there, or a file system without links
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
    - ``name`` distinguishes several trainings of one process, such as ``"fold1"``: its checkpoints are below the folder.
    - ``again`` lets another ``Trainer`` of this process continue the work of the first one. Without it, the second ``Trainer``
      that fits with one folder raises; ``fit`` of the same ``Trainer`` continues.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save.
    - ``keep`` is the number of checkpoints to keep, the newest ones.

    ``fit(ckpt_path="last")`` finds its newest checkpoint, and starts over without one. A save that fails on a full disk is
    logged, and the training continues, unless it is the first save. Raises :class:`PlaceError` if the folder cannot be used.
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        again: bool = False,
        every: float | None = None,
        keep: int = 2,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        self._folder = folder_at(dirpath, name)
        super().__init__(str(self._folder))  # fit(ckpt_path="last") asks this callback for a path
        self._every, self._keep, self._again = every, keep, again
        self._claims = MarkedFolders(self._folder, "step-")
        self._training: AttendedTraining | None = None
        self._users_handler: Any = None
        self._loaded: dict[str, Any] | None = None
        self._epoch_random: dict[str, Any] = {}  # before the current epoch's batches were ordered
        self._ordered_epoch = -1
        self._random: dict[str, Any] | None = None
        self._step = self._first_step = 0

    @property
    def ckpt_path(self) -> str:
        """The newest whole checkpoint; empty without one. Lightning asks for it at ``fit(ckpt_path="last")``."""
        return next((str(path) for path in self._paths() if zipfile.is_zipfile(path)), "")

    # -- called by Lightning

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        """Claim the folder. Raises :class:`PlaceError` if another ``Trainer`` of this process has it."""
        if stage != "fit":
            return
        let_workers_outlive_sigterm()  # they are forked before the training starts
        found = _NAME.fullmatch(Path(self.ckpt_path).name)
        step = torch.tensor([int(found[1]) if found else 0], device=trainer.strategy.root_device)
        check_one_place(self._folder, trainer.strategy.all_gather(step).flatten().tolist())
        self._users_handler = signal.getsignal(signal.SIGTERM)  # Lightning's own handler comes later
        if trainer.is_global_zero:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._claims.claim(PlaceOwner(trainer, _OWN_PLACE, again=self._again))
            for path in self._folder.glob(f"step-*{_PART}"):
                path.unlink(missing_ok=True)  # an earlier attempt's process that still writes it gets an error
            if isinstance(checkpoint_io := trainer.strategy.checkpoint_io, SpotCheckpointIO):
                checkpoint_io.check = self._check_claim
            else:
                _warn(
                    "SpotCheckpoint needs SpotCheckpointIO: without it, a kill during a save leaves a torn file, and an older"
                    " attempt may still save: use Trainer(plugins=[SpotCheckpointIO()])"
                )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Continue with the checkpoint's data position and random numbers; start handling SIGTERM and notices."""
        if trainer.received_sigterm:
            raise SystemExit(EXIT)
        self._continue(trainer)
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._users_handler is None else self._users_handler)
        total = trainer.estimated_stepping_batches
        self._step = self._first_step = trainer.global_step
        epochs = trainer.fit_loop.epoch_progress.current
        if self._step >= total and (trainer.max_epochs or 0) > epochs.processed:
            epochs.processed = trainer.max_epochs  # the save came before Lightning counted the last epoch
        self._training = AttendedTraining(
            self._step,
            int(total) if total < float("inf") else 0,
            saves_when_due=True,
            every=self._every,
            is_replicated=isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy),
        )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Remember the random state from which Lightning orders the next batches."""
        if trainer.current_epoch != self._ordered_epoch:
            self._epoch_random, self._ordered_epoch = random_states.capture(), trainer.current_epoch

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Save at the agreed step."""
        if self._training is None or trainer.global_step == self._step:  # gradients are being accumulated
            return
        self._step = trainer.global_step
        if self._training.step_done(self._step):
            self._save(trainer, self._training)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Keep the validation from drawing the training's random numbers, which a resumed training would not draw again."""
        self._random = random_states.capture()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Restore the training's random numbers."""
        if self._random is not None:
            random_states.put_back(self._random)
            self._random = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Report that the training is complete, and save its last metrics or restore the saved ones."""
        if self._training is not None:
            if self._training.is_unfinished and not trainer.fit_loop.done:
                raise SystemExit(EXIT)
            self._training.finish()
            if trainer.global_step == self._first_step:
                self._put_metrics_back(trainer)
            elif trainer.is_global_zero:
                self._keep_metrics(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Report a training that was already complete."""
        if self._training is None:
            progress(1.0)
            self._put_metrics_back(trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Add the random states of every rank."""
        own = {"now": random_states.capture(), "epoch": self._epoch_random}
        text = json.dumps(own).encode().ljust(_RANDOM_BYTES)
        states = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        is_alone = self._training is not None and self._training.is_alone
        if trainer.world_size > 1 and not is_alone:
            states = trainer.strategy.all_gather(states.to(trainer.strategy.root_device)).cpu()
        checkpoint[_KEY] = {"random": states.reshape(-1, len(text))}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Take the random states of this rank."""
        states = checkpoint.get(_KEY, {}).get("random")
        if states is None:
            return
        if len(states) != trainer.world_size:
            _warn(
                "the checkpoint was saved by %d processes, and %d are running now: batches and random numbers will differ from an"
                " uninterrupted training",
                len(states),
                trainer.world_size,
            )
        self._loaded = json.loads(bytes(states[trainer.global_rank % len(states)].numpy()))

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Stop handling SIGTERM and notices, without a save: the current step is half done."""
        if self._training is not None:
            self._training.abandon()
        elif isinstance(exception, RuntimeError) and "state_dict" in str(exception):  # of torch's load_state_dict
            exception.add_note(
                f"{self.ckpt_path or self._folder}: this checkpoint's model has other parameters: name another place, or remove"
                " this file (it was left unchanged)"
            )
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Stop handling SIGTERM and notices; the checkpoints stay."""
        self._close()

    # -- inside

    def _save(self, trainer: Any, training: AttendedTraining) -> None:
        training.begin_save()
        if trainer.is_global_zero:
            self._claims.check()
        try:
            self._write(trainer, self._folder / f"step-{self._step:010d}.ckpt", training)
        except SaveFailed as error:  # of rank 0, which writes
            if not training.is_alone:
                trainer.strategy.barrier()  # the others wait there
            training.fail_save(str(error), saved_before=bool(self._paths()))
            return
        if trainer.is_global_zero:
            for path in self._paths()[self._keep :]:
                path.unlink(missing_ok=True)
        training.end_save()

    def _keep_metrics(self, trainer: Any) -> None:
        """Save the last validation's metrics: an attempt of a complete training does not validate again."""
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        part = _new_part(self._folder / _METRICS)
        try:
            part.write_text(json.dumps({"step": trainer.global_step, "metrics": metrics}))
            os.replace(part, self._folder / _METRICS)
        except OSError as error:
            part.unlink(missing_ok=True)
            _warn("%s: could not save the last metrics (%s)", self._folder, error)

    def _put_metrics_back(self, trainer: Any) -> None:
        """Restore the saved ``trainer.callback_metrics``, if the last validation was not killed."""
        try:
            kept = json.loads((self._folder / _METRICS).read_bytes())
        except (OSError, ValueError):
            return
        if isinstance(kept, dict) and kept.get("step") == trainer.global_step:
            for name, value in kept["metrics"].items():
                trainer.callback_metrics.setdefault(name, torch.tensor(value))

    def _write(self, trainer: Any, path: Path, training: AttendedTraining) -> None:
        if training.is_alone:  # Trainer.save_checkpoint ends with a barrier
            checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001
            trainer.strategy.save_checkpoint(checkpoint, path)
        else:
            trainer.save_checkpoint(path)

    def _check_claim(self, path: Path) -> None:
        if path.parent == self._folder:
            self._claims.check()

    def _continue(self, trainer: Any) -> None:
        """Order the batches of the epoch, and skip the finished ones."""
        loop, loaded, self._loaded = trainer.fit_loop, self._loaded, None
        loaders = loop._combined_loader.flattened  # noqa: SLF001  # Lightning has no public name for its iterated loaders
        self._ordered_epoch = trainer.current_epoch
        if any(hasattr(loader, "state_dict") for loader in loaders):  # Lightning keeps its position
            if loaded is not None:
                random_states.put_back(loaded["now"])
            return
        done = loop.epoch_loop.batch_progress.current.ready
        if loaded is not None and 0 < done < trainer.num_training_batches:
            random_states.put_back(loaded["epoch"])
        else:
            done = 0
            if loaded is not None:
                random_states.put_back(loaded["now"])
        self._epoch_random = random_states.capture()
        for loader in loaders:
            batch_sampler = getattr(loader, "batch_sampler", None)
            for sampler in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
                if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                    set_epoch(trainer.current_epoch)
        fetcher = iter(loop._data_fetcher)  # noqa: SLF001
        for _ in range(done):
            next(fetcher)
        fetcher.fetched -= done  # Lightning adds them later
        if done and loaded is not None:
            random_states.put_back(loaded["now"])

    def _paths(self) -> list[Path]:
        """The checkpoints, newest first."""
        found = [path for path in self._folder.glob("step-*.ckpt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name, reverse=True)

    def _close(self) -> None:
        if self._training is not None:
            self._training.close()
            self._training = None


def _new_part(place: Path) -> Path:
    """Return a new file name beside a checkpoint, unique to this process."""
    return place.with_name(f"{place.name}.{os.getpid()}-{secrets.token_hex(4)}{_PART}")


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
