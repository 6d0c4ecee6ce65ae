"""Training loops with Hugging Face's accelerate on spot nodes: they resume exactly, and end with 143 after SIGTERM.

::

    spot = SpotState(accelerator, total=480)  # after accelerator.prepare
    spot.load()  # the newest checkpoint; nothing at the first attempt
    for _epoch in spot.epochs(10):
        for batch in spot.batches(loader):  # goes on after the last batch that counts
            with accelerator.accumulate(model):
                ...
            spot.step_done()  # saves when that pays, and after a notice

Checkpoints are the folders of ``accelerator.save_state``, each valid once it has its mark. The order of the data must follow
from a seed and the epoch's number, so a shuffling loader needs accelerate's seedable sampler.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

try:
    import torch
    from accelerate import Accelerator
    from accelerate.data_loader import SeedableRandomSampler, get_sampler, skip_first_batches
except ImportError as error:
    raise ImportError(
        f"spotwright.checkpoint.accelerate needs accelerate with PyTorch ({error}): pip install accelerate"
    ) from error

from spotwright.checkpoint import marked_folder, random_states
from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.checkpoint.errors import NotLoaded
from spotwright.checkpoint.folder_saves import FolderSaves, claim_together, is_replicated
from spotwright.checkpoint.marked_folder import MarkedFolders, folder_at
from spotwright.checkpoint.place_owners import PlaceOwner

__all__ = ["SpotState"]


_OWN_PLACE = (
    'give each training its own place, such as SpotState(accelerator, name="fold1"). To continue the same training, '
    "use SpotState(accelerator, again=True)"
)


class SpotState:
    """The checkpoints of a loop with an ``Accelerator``, after its ``prepare``.

    - ``place`` is a folder on a volume that all nodes mount. Default: ``SPOTWRIGHT_CHECKPOINT``, which every attempt has; if it
      is not set, a folder ``spotwright-checkpoint`` in the working directory.
    - ``name`` distinguishes several trainings of one process, such as ``"fold1"``: its checkpoints are below the place.
    - ``again`` continues the work of another ``SpotState`` of this process. Without it, the second one at a place raises.
    - ``total`` is the number of optimizer steps of the whole training, for progress reports; 0: unknown.
    - ``every`` is the seconds of work between two saves. By default they are optimal for the measured cost of a save.
    - ``keep`` is the number of checkpoints to keep, the newest ones.

    Raises :class:`PlaceError` if the place cannot be used, and :class:`ValueError` for unsupported settings.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        place: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        again: bool = False,
        total: int = 0,
        every: float | None = None,
        keep: int = 2,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least the newest checkpoint must be kept")
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise ValueError(
                "remove automatic_checkpoint_naming=True: with SpotState, accelerate must not choose the folders"
            )
        self._accelerator, self._total, self._every, self._keep = accelerator, total, every, keep
        self._folders = MarkedFolders(folder_at(place, name), "checkpoint-")
        self._owner = PlaceOwner(self, _OWN_PLACE, again=again)
        self._training: AttendedTraining | None = None
        self._step = self._epoch = self._batch = 0
        self._seed: int | None = None
        self._random: dict[str, Any] | None = None  # of the checkpoint, until its batches are skipped

    @property
    def step(self) -> int:
        """Number of finished optimizer steps: before the loaded state, and since."""
        return self._step

    def load(self) -> bool:
        """Load the newest whole checkpoint; without one, return False and change nothing.

        From now on this attempt is the writer, and handles SIGTERM and notices. Raises :class:`OtherProgram` for a model with
        other parameters, and :class:`PlaceError` if the place cannot be used, or another ``SpotState`` of this process has it.
        """
        accelerator = self._accelerator
        for line in claim_together(self._folders, accelerator, self._owner, marks=accelerator.is_main_process):
            _warn("%s: %s", self._folders.place, line)
        found = self._folders.newest_of(self._model_facts(), accelerator.num_processes)
        step = 0 if found is None else marked_folder.facts_of(found)["step"]
        steps = accelerator.gather(torch.tensor([step], device=accelerator.device))
        marked_folder.check_one_place(self._folders.place, steps.tolist())
        if found is not None:
            facts = marked_folder.facts_of(found)
            accelerator.load_state(str(found))
            self._step, self._epoch, self._batch = facts["step"], facts["epoch"], facts["batch"]
            self._seed = facts["seed"]
            self._random = random_states.capture()
        self._training = AttendedTraining(
            self._step,
            self._total,
            saves_when_due=True,
            every=self._every,
            is_replicated=is_replicated(accelerator),
        )
        return found is not None

    def epochs(self, count: int) -> Iterator[int]:
        """Iterate over the numbers of the remaining epochs, from the loaded one (or 0) to ``count - 1``.

        Raises :class:`NotLoaded` if :meth:`load` was not called.
        """
        training = self._loaded()
        for epoch in range(self._epoch, count):
            self._epoch = epoch
            yield epoch
            self._batch = 0
        training.finish()
        self.close()

    def batches(self, loader: Any) -> Iterator[Any]:
        """Iterate over the epoch's remaining batches. ``loader`` comes from ``accelerator.prepare``.

        Raises :class:`ValueError` for a loader whose order does not follow from a seed.
        """
        self._loaded()
        sampler = get_sampler(loader)
        if isinstance(sampler, SeedableRandomSampler):
            self._seed = sampler.initial_seed if self._seed is None else self._seed
            sampler.initial_seed = self._seed
        elif isinstance(sampler, torch.utils.data.RandomSampler):
            raise ValueError(
                "a later attempt cannot repeat this loader's shuffling: create the accelerator with "
                "Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))"
            )
        if callable(set_epoch := getattr(loader, "set_epoch", None)):
            set_epoch(self._epoch)
        if isinstance(sampler, SeedableRandomSampler):
            sampler.set_epoch(self._epoch)
        has_position = getattr(loader, "use_stateful_dataloader", False)  # accelerate loads it
        left = skip_first_batches(loader, self._batch) if self._batch and not has_position else loader
        for batch in left:
            self._put_random_back()
            self._batch += 1
            yield batch
        self._put_random_back()  # if no batch remained

    def step_done(self) -> None:
        """End a batch. Saves if it ended an optimizer step and a save pays, or after a notice.

        After SIGTERM this does not return: the process saves and exits with 143. Raises :class:`StaleWriter` if another
        attempt took over.
        """
        training = self._loaded()
        if not self._accelerator.sync_gradients:
            return
        self._step += 1
        if training.step_done(self._step):
            self._save(training)

    def close(self) -> None:
        """Stop handling SIGTERM and notices; :meth:`epochs` does so at its end."""
        if self._training is not None:
            self._training.close()

    def _save(self, training: AttendedTraining) -> None:
        accelerator = self._accelerator
        facts = {
            "step": self._step, "epoch": self._epoch, "batch": self._batch, "seed": self._seed,
            "processes": accelerator.num_processes, **self._model_facts(),
        }  # fmt: skip
        saves = FolderSaves(self._folders, training, accelerator, marks=accelerator.is_main_process)
        if saves.save(
            self._step,
            lambda folder: accelerator.save_state(str(folder)),
            facts,
            is_independent=is_replicated(accelerator),
        ):
            if accelerator.is_main_process:
                self._folders.prune(self._keep)
            training.end_save()

    def _put_random_back(self) -> None:
        """Forget the random numbers drawn by the skipped batches: they were drawn before the save."""
        if self._random is not None:
            random_states.put_back(self._random)
            self._random = None

    def _loaded(self) -> AttendedTraining:
        if self._training is None:
            raise NotLoaded("SpotState continues after the loaded state: call load() first, after accelerator.prepare")
        return self._training

    def _model_facts(self) -> dict[str, Any]:
        models = self._accelerator._models  # noqa: SLF001  # the models of prepare(), which has no public name
        return marked_folder.model_facts(self._accelerator.unwrap_model(each) for each in models)


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
