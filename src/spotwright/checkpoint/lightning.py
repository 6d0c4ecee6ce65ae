"""Lightning's ``Trainer`` on spot nodes: it resumes exactly, saves after a notice, and ends with 143 after SIGTERM.

::

    trainer = Trainer(max_steps=48, plugins=[SpotCheckpointIO()], callbacks=[SpotCheckpoint()])
    trainer.fit(model, data, ckpt_path="last")  # at the first attempt too

Lightning saves neither the random generators, nor where the data loader is in its epoch (``DataLoader`` has no state), nor what
was logged in the epoch so far. All are added to each checkpoint here. A resumed epoch draws its order again and reads past the
batches that are done.

What was logged is the sums behind ``self.log(on_epoch=True)``, the states of ``torchmetrics`` that are parts of the model, and
``trainer.callback_metrics``, which schedulers and callbacks watch between two validations. It is kept as values of JSON, and a
resumed epoch logs the mean of all its batches.

A save comes when a batch is done with its hooks. What Lightning does after that batch is *owed*: a validation, schedulers that
watch it, the end of the epoch. It may last longer than a notice, so it does not come before the save; a resumed training begins
with it. At the end of a training one more save says that nothing is owed.

Lightning's own handler of SIGTERM broadcasts inside the handler and ends the training with exit 0
(``trainer/connectors/signal_connector.py``); while a training with :class:`SpotCheckpoint` runs, it is not in use.
"""

from __future__ import annotations

import functools
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
        from pytorch_lightning.callbacks import EarlyStopping, OnExceptionCheckpoint
        from pytorch_lightning.plugins.io import TorchCheckpointIO
        from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
    else:
        from lightning.pytorch.callbacks import EarlyStopping, OnExceptionCheckpoint
        from lightning.pytorch.plugins.io import TorchCheckpointIO
        from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
    from torchmetrics import Metric  # Lightning requires it
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
from spotwright.checkpoint.place_owners import PlaceOwner, accept_complete
from spotwright.checkpoint.refused_write import what_refused
from spotwright.checkpoint.termination import EXIT, let_workers_outlive_sigterm

__all__ = ["SpotCheckpoint", "SpotCheckpointIO"]

_NAME = re.compile(r"step-(\d{10})\.ckpt")
_PART = ".part"  # the end of the name of a file that is being written
_PART_NAME = re.compile(r".+\.\d{1,10}-[0-9a-f]{8}\.part")
_LEFT_AFTER = 3600.0  # seconds without a write, after which such a file was left by a process that has ended
_KEY = "spotwright"  # our part of a checkpoint
_OWN_PLACE = (
    'give each training its own place, such as SpotCheckpoint(name="fold1"). To continue the same training in another Trainer, '
    "use SpotCheckpoint(again=True)"
)
_FIELDS = (
    "fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx", "dataloader_idx",
    "metric_attribute",
)  # fmt: skip
_SUMS = ("value", "cumulated_batch_size")


class SpotCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]  # Lightning is not there when types are checked
    """Writes each checkpoint beside its place, makes it durable, and moves it there, so that a file is whole or absent.

    It serves every callback that saves. Checkpoints are loaded without running code from them, unless
    ``fit(weights_only=False)`` allows it. Addresses of object stores are left to Lightning. Raises :class:`SaveFailed` if the
    place cannot be written to, as on a full disk; that checkpoint is removed.
    """

    check: Callable[[Path], None] = staticmethod(lambda _: None)
    """Called with the path of a checkpoint before it is moved to its place, and after. An exception keeps it from counting."""

    _has_callback = False  # whether a SpotCheckpoint uses it

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Called by Lightning."""
        if not self._has_callback:
            self._has_callback = True  # said once
            _warn(
                "SpotCheckpointIO without SpotCheckpoint: nothing is saved after a notice or SIGTERM, and the process then ends "
                "with 0: make the trainer with Trainer(callbacks=[SpotCheckpoint()])"
            )
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
                    left.unlink()  # its writer has ended; if not, its checkpoint will not count
        folder = os.open(place.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _take_place(self, part: Path, place: Path) -> None:
        """Let a file take its place; a process that was frozen just before puts back what another attempt has put there."""
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
      that fits with one folder raises; ``fit`` of the same ``Trainer`` goes on.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save.
    - ``keep`` is the number of checkpoints to keep, the newest ones.

    ``fit(ckpt_path="last")`` finds its newest checkpoint, and starts over without one. A save that finds no room on the disk is
    logged, and the training goes on, unless it is the first save. Raises :class:`PlaceError` if the folder
    cannot be used.
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
        super().__init__(str(self._folder))  # the callback in which fit(ckpt_path="last") looks for a path
        self._every, self._keep, self._again = every, keep, again
        self._claims = MarkedFolders(self._folder, "step-")
        self._training: AttendedTraining | None = None
        self._users_handler: Any = None
        self._loaded: dict[str, Any] | None = None
        self._epoch_random: dict[str, Any] = {}  # before the batches of the present epoch were ordered
        self._ordered_epoch = -1
        self._random: dict[str, Any] | None = None
        self._step = 0
        self._owes = self._is_complete = False  # what is said in a save that is made now

    @property
    def ckpt_path(self) -> str:
        """The newest whole checkpoint; empty without one. Lightning asks for it at ``fit(ckpt_path="last")``."""
        return next((str(path) for path in self._paths() if zipfile.is_zipfile(path)), "")

    # -- called by Lightning

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002  # Lightning's signature
        """Claim the folder. Raises :class:`PlaceError` if another ``Trainer`` of this process has it."""
        if stage != "fit":
            return
        let_workers_outlive_sigterm()  # they are forked before the training begins
        found = _NAME.fullmatch(Path(self.ckpt_path).name)
        step = torch.tensor([int(found[1]) if found else 0], device=trainer.strategy.root_device)
        check_one_place(self._folder, trainer.strategy.all_gather(step).flatten().tolist())
        self._users_handler = signal.getsignal(signal.SIGTERM)  # Lightning's own handler comes later
        self._loaded = None
        _decide_end(trainer.fit_loop, end=None)
        if trainer.is_global_zero:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._claims.claim(PlaceOwner(trainer, _OWN_PLACE, again=self._again))
            for path in self._folder.glob(f"step-*{_PART}"):
                path.unlink(missing_ok=True)  # a process of an earlier attempt that still writes it gets an error
            if isinstance(checkpoint_io := trainer.strategy.checkpoint_io, SpotCheckpointIO):
                checkpoint_io.check, checkpoint_io._has_callback = self._check_claim, True  # noqa: SLF001
            else:
                _warn(
                    "SpotCheckpoint needs SpotCheckpointIO: without it, a kill during a save leaves a torn file, and an older"
                    " attempt may still save: use Trainer(plugins=[SpotCheckpointIO()])"
                )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Continue with the data and the random numbers of the checkpoint; handle SIGTERM and notices from here on."""
        if trainer.received_sigterm:
            raise SystemExit(EXIT)
        owes = self._loaded is not None and self._loaded["owes"]
        self._continue(trainer, pl_module)
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._users_handler is None else self._users_handler)
        total = trainer.estimated_stepping_batches
        self._step = trainer.global_step
        self._training = AttendedTraining(
            self._step,
            int(total) if total < float("inf") else 0,
            saves_when_due=True,
            every=self._every,
            is_replicated=isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy),
        )
        self._follow(trainer, owes=owes)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Remember the random state from which Lightning orders the next batches."""
        if trainer.current_epoch != self._ordered_epoch:
            self._epoch_random, self._ordered_epoch = random_states.capture(), trainer.current_epoch

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Let the validation draw no random number of the training, which a resumed one would not draw again."""
        self._random = random_states.capture()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Put the random numbers of the training back."""
        if self._random is not None:
            random_states.put_back(self._random)
            self._random = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Report that the training is complete."""
        if self._training is not None:
            if self._training.is_unfinished and not trainer.fit_loop.done:
                raise SystemExit(EXIT)
            self._training.finish()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Report a training that was complete before, with the metrics of its end."""
        if self._training is None and self._loaded is not None:
            progress(1.0)
            saved = self._loaded["training"]
            accept_complete(self._folder, trainer.global_step, saved, _training_of(trainer, pl_module), _OWN_PLACE)
            _put_logged_back(trainer, pl_module, self._loaded["metrics"], within_epoch=False)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Add what each rank has for itself: its random numbers, and what it has logged."""
        own = {
            "now": random_states.capture(),
            "epoch": self._epoch_random,
            "metrics": _capture_logged(trainer, pl_module),
        }
        text = bytearray(json.dumps(own).encode())
        is_alone = self._training is not None and self._training.is_alone
        if trainer.world_size > 1 and not is_alone:
            device = trainer.strategy.root_device
            longest = trainer.strategy.all_gather(torch.tensor([len(text)], device=device)).max()
            states = torch.frombuffer(text.ljust(int(longest)), dtype=torch.uint8)
            states = trainer.strategy.all_gather(states.to(device)).cpu()
        else:
            states = torch.frombuffer(text, dtype=torch.uint8)
        checkpoint[_KEY] = {
            "ranks": states.reshape(-1, states.shape[-1]),
            "owes": self._owes,
            "complete": _limits(trainer) if self._is_complete else None,
            "training": _training_of(trainer, pl_module),
        }

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Take what this rank has saved for itself."""
        kept = checkpoint.get(_KEY)
        if kept is None or trainer.state.fn != "fit":
            return
        states = kept["ranks"]
        if len(states) != trainer.world_size:
            _warn(
                "the checkpoint was saved by %d processes, and %d are running now: batches and random numbers will differ from an"
                " uninterrupted training", len(states), trainer.world_size,
            )  # fmt: skip
        own = json.loads(bytes(states[trainer.global_rank % len(states)].numpy()))
        self._loaded = {**own, "owes": kept["owes"], "training": kept["training"]}
        if kept["complete"] == _limits(trainer):
            _decide_end(trainer.fit_loop, end=True)
        elif kept["owes"]:
            _decide_end(trainer.fit_loop, end=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Stop handling SIGTERM and notices. It does not save: the step under way is half done."""
        if self._training is not None:
            self._training.abandon()
        elif isinstance(exception, RuntimeError) and "state_dict" in str(exception):  # of torch's load_state_dict
            exception.add_note(
                f"{self.ckpt_path or self._folder}: this checkpoint's model has other parameters: name another place, or remove"
                " this file (it was left unchanged)"
            )
        self._close(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
        """Stop handling SIGTERM and notices; the checkpoints stay."""
        self._close(trainer)

    # -- inside

    def _follow(self, trainer: Any, *, owes: bool) -> None:
        """Save at the agreed step when its batch is done, and at the end of the training. ``owes``: a batch needs its end first.

        Lightning calls no callback there: those for the end of a batch come before the model's own hook.
        """
        fit, epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
        advance, end_run = epoch.advance, fit.on_run_end

        def advance_and_save(data_fetcher: Any) -> None:
            nonlocal owes
            if owes:  # Lightning goes on to what follows a batch
                owes = False
                epoch.val_loop.restarting = False
                epoch.val_loop.reset_restart_stage()
                _decide_end(fit, end=None)
                return
            advance(data_fetcher)
            if self._training is not None and trainer.global_step != self._step:  # else gradients are being accumulated
                self._step = trainer.global_step
                if self._training.step_done(self._step):
                    self._save(trainer, self._training)

        def end_run_and_save() -> None:
            end_run()
            if self._training is not None and _is_over(trainer):
                self._save_end(trainer, self._training)

        epoch.advance, fit.on_run_end = advance_and_save, end_run_and_save

    def _save_end(self, trainer: Any, training: AttendedTraining) -> None:
        """Save the complete training: an attempt that follows, because its outputs were lost, then trains nothing."""
        self._is_complete = True
        try:
            self._save(trainer, training)
        finally:
            self._is_complete = False

    def _save(self, trainer: Any, training: AttendedTraining) -> None:
        self._owes = not self._is_complete
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
        finally:
            self._owes = False
        if trainer.is_global_zero:
            for path in self._paths()[self._keep :]:
                path.unlink(missing_ok=True)
        training.end_save()

    def _write(self, trainer: Any, path: Path, training: AttendedTraining) -> None:
        if training.is_alone:  # Trainer.save_checkpoint ends with a barrier
            checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001
            trainer.strategy.save_checkpoint(checkpoint, path)
        else:
            trainer.save_checkpoint(path)

    def _check_claim(self, path: Path) -> None:
        if path.parent == self._folder:
            self._claims.check()

    def _continue(self, trainer: Any, module: Any) -> None:
        """Order the batches of the epoch, and read past those that are done."""
        loop, loaded, self._loaded = trainer.fit_loop, self._loaded, None
        done = loop.epoch_loop.batch_progress.current.ready
        is_within = loaded is not None and 0 < done < trainer.num_training_batches
        is_in_epoch = loaded is not None and (is_within or loaded["owes"])
        if loaded is not None:
            _put_logged_back(trainer, module, loaded["metrics"], within_epoch=is_in_epoch)
            random_states.put_back(loaded["epoch" if is_within else "now"])
        loaders = loop._combined_loader.flattened  # noqa: SLF001  # Lightning has no other name for what it iterates
        self._epoch_random, self._ordered_epoch = random_states.capture(), trainer.current_epoch
        if not any(hasattr(loader, "state_dict") for loader in loaders):  # else Lightning keeps its position
            _read_on(loop, done if is_within else 0)
        if loaded is not None and (is_in_epoch or any(hasattr(loader, "state_dict") for loader in loaders)):
            random_states.put_back(loaded["now"])

    def _paths(self) -> list[Path]:
        """The checkpoints, the newest first."""
        found = [path for path in self._folder.glob("step-*.ckpt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name, reverse=True)

    def _close(self, trainer: Any) -> None:
        for loop, name in ((trainer.fit_loop.epoch_loop, "advance"), (trainer.fit_loop, "on_run_end")):
            loop.__dict__.pop(name, None)  # the functions of _follow
        if self._training is not None:
            self._training.close()
            self._training = None


@functools.cache
def _deciding(kind: type[Any]) -> Any:
    """Return a kind of loop whose end can be decided: Lightning does not run a loop that is done, also if it owes something."""

    def done(loop: Any) -> bool:
        end = loop.spotwright_end
        return bool(kind.done.fget(loop) if end is None else end)

    def restart(loop: Any, value: bool) -> None:
        kind.restarting.fset(loop, value)
        if (
            loop.spotwright_end
        ):  # then Lightning checks no validation, whose hooks would change a model that is complete
            loop.epoch_loop.restarting = value

    decided = {"done": property(done), "restarting": property(kind.restarting.fget, restart), "spotwright_end": None}
    return type(kind.__name__, (kind,), decided)


def _decide_end(loop: Any, *, end: bool | None) -> None:
    """Say that a loop is done, or not done; ``None``: as Lightning says."""
    if not hasattr(loop, "spotwright_end"):
        kind: Any = type(loop)
        loop.__class__ = _deciding(kind)
    loop.spotwright_end = end


def _is_over(trainer: Any) -> bool:
    """True if a training has reached a limit, or its early stopping; what else stops one may want it to go on later."""
    early = any(isinstance(each, EarlyStopping) for each in trainer.callbacks) and trainer.should_stop
    limits = ((trainer.global_step, trainer.max_steps), (trainer.current_epoch, trainer.max_epochs))
    return early or any(limit is not None and 0 <= limit <= reached for reached, limit in limits)


def _limits(trainer: Any) -> list[Any]:
    """What ends a training, beside rules that stop it early: one that goes further than a complete one trains on."""
    return [trainer.max_epochs, trainer.max_steps]


def _training_of(trainer: Any, module: Any) -> dict[str, Any]:
    """What a training is: its model, and the number of its samples where the loaders know it."""
    found: dict[str, Any] = {"model": type(getattr(module, "_orig_mod", module)).__qualname__}
    loader = trainer.fit_loop._combined_loader  # noqa: SLF001  # of this process, also where it has trained nothing
    try:
        found["samples"] = sum(len(each.dataset) for each in loader.flattened)
    except (AttributeError, TypeError, NotImplementedError):
        return found  # a stream
    return found


def _read_on(loop: Any, done: int) -> None:
    """Begin the epoch of a loop, and read past the batches that are done."""
    for loader in loop._combined_loader.flattened:  # noqa: SLF001
        batch_sampler = getattr(loader, "batch_sampler", None)
        for sampler in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
            if callable(set_epoch := getattr(sampler, "set_epoch", None)):
                set_epoch(loop.trainer.current_epoch)
    fetcher = iter(loop._data_fetcher)  # noqa: SLF001
    for _ in range(done):
        next(fetcher)
    fetcher.fetched -= done  # Lightning adds them later


def _capture_logged(trainer: Any, module: Any) -> dict[str, Any]:
    """Return what this rank has logged since the epoch began, and the metrics that callbacks see."""
    results = trainer.fit_loop.epoch_loop._results  # noqa: SLF001  # Lightning has no public name for these
    return {
        "seen": {
            name: _text(value) for name, value in trainer.callback_metrics.items() if isinstance(value, torch.Tensor)
        },
        "logged": {key: _of_result(each) for key, each in results.items() if not each.has_reset},
        "states": {
            name: {
                "count": each._update_count,  # noqa: SLF001
                "state": {key: _text(value) for key, value in each.metric_state.items()},
            }
            for name, each in module.named_modules()
            if isinstance(each, Metric)
        },
    }


def _put_logged_back(trainer: Any, module: Any, kept: dict[str, Any], *, within_epoch: bool) -> None:
    """Set what :func:`_capture_logged` has returned; the sums only ``within_epoch``."""
    connector = trainer._logger_connector  # noqa: SLF001
    device = trainer.strategy.root_device
    for name, value in kept["seen"].items():
        connector._callback_metrics.setdefault(name, _tensor(value, device))  # noqa: SLF001
    if not within_epoch:
        return
    modules = dict(module.named_modules())
    for name, value in kept["states"].items():
        if isinstance(metric := modules.get(name), Metric):
            metric._update_count, metric._computed = value["count"], None  # noqa: SLF001
            for key, state in value["state"].items():
                setattr(metric, key, _tensor(state, device))
    results = trainer.fit_loop.epoch_loop._results  # noqa: SLF001
    for key, value in kept["logged"].items():
        results[key] = _to_result(value, trainer, modules, device)
    connector._first_loop_iter = False  # noqa: SLF001  # the first batch of an epoch starts its sums anew


def _of_result(result: Any) -> dict[str, Any]:
    meta = result.meta
    found = {name: getattr(meta, name) for name in _FIELDS}
    found |= {"reduce": meta.reduce_fx.__name__, "sync": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only}
    if result.is_tensor:
        found["sums"] = {name: _text(getattr(result, name)) for name in _SUMS if hasattr(result, name)}
        if isinstance(result._forward_cache, torch.Tensor):  # noqa: SLF001
            found["last"] = _text(result._forward_cache)  # noqa: SLF001
        found["count"] = result._update_count  # noqa: SLF001
    return found


def _to_result(kept: dict[str, Any], trainer: Any, modules: dict[str, Any], device: Any) -> Any:
    library = sys.modules[type(trainer.fit_loop.epoch_loop._results).__module__]  # noqa: SLF001
    meta = library._Metadata(  # noqa: SLF001
        **{name: kept[name] for name in _FIELDS}, reduce_fx=getattr(torch, kept["reduce"])
    )
    meta.sync = library._Sync(  # noqa: SLF001
        _should=kept["sync"], fn=trainer.strategy.reduce, rank_zero_only=kept["rank_zero_only"]
    )
    result = library._ResultMetric(meta, "sums" in kept)  # noqa: SLF001
    if "sums" in kept:
        for name, value in kept["sums"].items():
            setattr(result, name, _tensor(value, device))
        result._update_count = kept["count"]  # noqa: SLF001
        if "last" in kept:
            result._forward_cache = _tensor(kept["last"], device)  # noqa: SLF001
    else:
        result.value = modules[kept["metric_attribute"]]
        result._forward_cache = None  # noqa: SLF001
    return result


def _text(value: Any) -> Any:
    """Return a tensor, or a list of tensors, as values of JSON. A float of JSON holds one of a tensor exactly."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    value = value.detach().cpu()
    return {
        "type": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "values": value.flatten().tolist(),
    }


def _tensor(kept: Any, device: Any) -> Any:
    if isinstance(kept, list):
        return [_tensor(each, device) for each in kept]
    return torch.tensor(kept["values"], dtype=getattr(torch, kept["type"]), device=device).reshape(kept["shape"])


def _new_part(place: Path) -> Path:
    """Return the name of a file beside a checkpoint which no other process writes."""
    return place.with_name(f"{place.name}.{os.getpid()}-{secrets.token_hex(4)}{_PART}")


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
