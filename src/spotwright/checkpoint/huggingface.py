"""Hugging Face's ``Trainer`` on spot nodes: one line resumes, saves after a notice, and ends with 143 after SIGTERM.

::

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SpotCallback()])
    trainer.train(resume_from_checkpoint=True)  # at the first attempt too

Checkpoints are the folders ``checkpoint-STEP`` of transformers, saved by its own schedule (``save_strategy``) and also after a
notice. A checkpoint is valid once its mark is written. In an attempt of Spotwright they are below ``SPOTWRIGHT_CHECKPOINT``,
because ``output_dir`` is lost with the attempt; elsewhere they are in ``output_dir``. If the variable names an object store, an
absolute ``output_dir`` is used, and any other is refused.

The path below ``SPOTWRIGHT_CHECKPOINT`` is the whole relative ``output_dir``. An absolute one is taken relative to the working
directory or the attempt's folder, if it is there, and else to ``/``, without the parts that are new in each attempt: UUIDs and
``tempfile``'s names.

transformers gives a callback neither the trainer nor a call before it looks for a checkpoint, and refuses
``resume_from_checkpoint=True`` without one (``Trainer.train`` in ``transformers/trainer.py``). So this module wraps
``Trainer.train``. Trainers without a :class:`SpotCallback` are unaffected.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import torch
    from accelerate import Accelerator
    from transformers import Trainer, TrainerCallback
    from transformers.trainer import TRAINER_STATE_NAME
    from transformers.trainer_callback import TrainerControl, TrainerState
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints
    from transformers.training_args import TrainingArguments
except ImportError as error:
    found = getattr(sys.modules.get("transformers"), "__version__", None)
    lacks = f"{error}; transformers {found} is installed" if found else str(error)
    raise ImportError(
        f"spotwright.checkpoint.huggingface needs transformers 5 with PyTorch ({lacks}): "
        "pip install --upgrade 'transformers[torch]'"
    ) from error

from spotwright.checkpoint import marked_folder, random_states
from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.checkpoint.errors import PlaceError
from spotwright.checkpoint.folder_saves import FolderSaves, claim_together, is_replicated
from spotwright.checkpoint.marked_folder import MarkedFolders
from spotwright.checkpoint.place_owners import PlaceOwner
from spotwright.checkpoint.termination import EXIT

__all__ = ["SpotCallback"]


_OWN_PLACE = (
    'give each training its own output_dir, such as output_dir="runs/fold1". To continue the same training in another Trainer, '
    "use SpotCallback(again=True)"
)


class SpotCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there when types are checked
    """The callback for ``Trainer(callbacks=[SpotCallback()])``.

    - ``every`` is the seconds between two additional saves beside ``save_strategy``; by default none.
    - ``again`` lets another ``Trainer`` of this process continue the work of the first one in an ``output_dir``. Without it,
      the second one that resumes there raises; ``train`` of the same ``Trainer`` continues.

    Raises :class:`ValueError` for arguments with which a training cannot resume.
    """

    def __init__(self, *, every: float | None = None, again: bool = False) -> None:
        self._every, self._again = every, again
        self._training: AttendedTraining | None = None
        self._folders: MarkedFolders | None = None
        self._facts: dict[str, Any] = {}
        self._keep: int | None = None
        self._random: dict[str, Any] | None = None
        self._is_whole = False
        self._resumed_from: Path | None = None
        self._trainer: Trainer | None = None

    # -- called by transformers

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Raise :class:`ValueError` or :class:`PlaceError` for arguments with which a training cannot resume."""
        if getattr(args, "enable_jit_checkpoint", False):
            raise ValueError(
                "remove enable_jit_checkpoint=True: it ends an interrupted training with exit 0, which counts as a success;"
                " SpotCallback saves after SIGTERM and ends with 143"
            )
        if "://" in str(args.output_dir):
            raise PlaceError(
                f"output_dir={args.output_dir}: transformers would create a local folder of this name: mount a volume and name"
                " a folder there, or write your own training loop with spotwright.checkpoint.Checkpoint"
            )
        if args.save_only_model:
            raise ValueError("remove save_only_model=True: without the optimizer's state, training cannot resume")

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **options: Any,
    ) -> None:
        """Handle SIGTERM and notices from here on."""
        self.close()
        if self._resumed_from is not None:
            _take_problem_type(self._resumed_from, options.get("model"))
            if self._trainer is not None:
                _put_loss_back(self._trainer, marked_folder.facts_of(self._resumed_from).get("loss"))
        if self._folders is not None and not state.is_hyper_param_search:  # a search has a folder for each trial
            self._training = AttendedTraining(
                state.global_step, state.max_steps, saves_when_due=self._every is not None, every=self._every
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Save at the agreed step."""
        if self._training is not None:
            if self._training.step_done(state.global_step):
                control.should_save = True
            self._keep_random(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Prepare for an evaluation."""
        if self._training is not None:
            self._keep_random(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Keep the evaluation from drawing the training's random numbers, which a resumed training would not draw again."""
        if self._random is not None:
            random_states.put_back(self._random)
            self._random = None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Remove old checkpoints after a whole one, and end with 143 after SIGTERM."""
        if self._training is None or self._folders is None or not self._is_whole:
            return
        if args.should_save:
            rotate_checkpoints(str(self._folders.place), self._keep, state.best_model_checkpoint, use_mtime=True)
        self._training.end_save()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Report that the training is complete."""
        if self._training is not None and (state.global_step >= state.max_steps or not self._training.is_unfinished):
            self._training.finish()

    # -- inside

    @contextmanager
    def attend(self, trainer: Trainer, *, resumes: bool) -> Iterator[None]:
        """Keep the checkpoints of a ``Trainer.train`` in the durable place, from before it looks for one to its end.

        ``resumes``: it resumes from the newest one. Raises :class:`PlaceError` if that is another training's.
        """
        self._resumed_from, self._trainer = None, trainer
        owner = PlaceOwner(trainer, _OWN_PLACE, again=self._again or not resumes)
        args = trainer.args
        before = args.output_dir, args.save_total_limit
        self._folders = MarkedFolders(_place(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-", _looks_whole)
        self._facts = {"processes": args.world_size, **marked_folder.model_facts([trainer.model])}
        self._keep = args.save_total_limit
        args.output_dir = str(self._folders.place)
        args.save_total_limit = None  # transformers removes the last whole checkpoint before the new one is whole
        # It begins with a collective operation (store_flos): a rank cannot save alone once another one is dead.
        save = trainer._save_checkpoint  # noqa: SLF001  # no callback is called around it
        trainer._save_checkpoint = functools.partial(self._save, trainer, save)  # noqa: SLF001
        run_epoch = getattr(trainer, "_run_epoch", None)  # of newer versions
        if run_epoch is not None:
            trainer._run_epoch = functools.partial(_run_unless_finished, trainer, run_epoch)  # noqa: SLF001
        try:
            for line in claim_together(self._folders, trainer.accelerator, owner, marks=args.should_save):
                _warn("%s: %s", self._folders.place, line)
            yield
            self._end_if_unfinished()
        except BaseException:
            if self._training is not None:
                self._training.abandon()
            raise
        finally:
            args.output_dir, args.save_total_limit = before
            trainer._save_checkpoint = save  # noqa: SLF001
            if run_epoch is not None:
                trainer._run_epoch = run_epoch  # noqa: SLF001
            self.close()
            self._folders = self._trainer = None

    def _end_if_unfinished(self) -> None:
        if self._training is not None and self._training.is_unfinished:
            raise SystemExit(EXIT)

    def newest(self, accelerator: Accelerator) -> str | None:
        """Return the newest complete checkpoint; ``None`` without one. Raises :class:`OtherProgram` for another model's."""
        if self._folders is None:
            return None
        found = self._folders.newest_of(self._facts, self._facts["processes"])
        step = 0 if found is None else marked_folder.facts_of(found).get("step", 0)
        steps = accelerator.gather(torch.tensor([step], device=accelerator.device))
        marked_folder.check_one_place(self._folders.place, steps.tolist())
        self._resumed_from = found
        return None if found is None else str(found)

    def warn_of_a_new_beginning(self) -> None:
        """Warn that a training starts over beside a complete checkpoint: usually the resume was forgotten."""
        found = self._folders.newest() if self._folders is not None else None
        if found is not None and os.environ.get("RANK", "0") == "0":
            _warn(
                "this training starts over although %s is complete: call train(resume_from_checkpoint=True), or remove that"
                " checkpoint",
                found,
            )

    def close(self) -> None:
        """Stop handling SIGTERM and notices."""
        if self._training is not None:
            self._training.close()
            self._training = None

    def _keep_random(self, control: TrainerControl) -> None:
        if control.should_evaluate:  # it comes before the save
            self._random = random_states.capture()

    def _save(self, trainer: Trainer, save: Callable[..., None], *values: Any) -> None:
        """Let transformers write a checkpoint, and commit it."""
        if self._training is None or self._folders is None:
            save(*values)
            return
        state = trainer.state
        best = state.best_model_checkpoint
        saves = FolderSaves(self._folders, self._training, trainer.accelerator, marks=trainer.args.should_save)
        self._is_whole = saves.save(
            state.global_step,
            lambda folder: self._write(trainer, folder, lambda: save(*values)),
            {**self._facts, "step": state.global_step, "loss": _loss_of(trainer, alone=self._training.is_alone)},
            is_independent=is_replicated(trainer.accelerator) and not state.best_global_step,  # write waits for it
        )
        if not self._is_whole:
            state.best_model_checkpoint = best
        elif trainer.args.push_to_hub:
            trainer._push_from_checkpoint(str(self._folders.folder_of(state.global_step)))  # noqa: SLF001

    def _write(self, trainer: Trainer, folder: Path, save: Callable[[], None]) -> None:
        """Let transformers fill a folder that is later moved to its place and pushed to the hub from there."""
        assert self._folders is not None  # noqa: S101  # a checkpoint is being saved
        args, state = trainer.args, trainer.state
        before = trainer._get_output_dir, args.push_to_hub  # noqa: SLF001  # transformers has no other name for it
        trainer._get_output_dir = lambda trial: str(folder.parent)  # noqa: ARG005, SLF001
        args.push_to_hub = False
        try:
            save()
        finally:
            trainer._get_output_dir, args.push_to_hub = before  # noqa: SLF001
        if state.best_model_checkpoint == str(folder):
            state.best_model_checkpoint = str(self._folders.folder_of(state.global_step))
            if args.should_save:
                state.save_to_json(str(folder / TRAINER_STATE_NAME))


_train = Trainer.train


@functools.wraps(_train)
def _train_on_spot(self: Trainer, resume_from_checkpoint: Any = None, *values: Any, **options: Any) -> Any:
    spot = next((each for each in self.callback_handler.callbacks if isinstance(each, SpotCallback)), None)
    if spot is None:
        return _train(self, resume_from_checkpoint, *values, **options)
    with spot.attend(self, resumes=resume_from_checkpoint is True):
        if resume_from_checkpoint is True:
            resume_from_checkpoint = spot.newest(self.accelerator)
        elif not resume_from_checkpoint:
            spot.warn_of_a_new_beginning()
        return _train(self, resume_from_checkpoint, *values, **options)


Trainer.train = _train_on_spot


def _place(output_dir: str) -> Path:
    """The folder of the checkpoints: below the attempt's place, unless ``output_dir`` is already there."""
    wanted = Path(os.path.abspath(output_dir))
    if not os.environ.get("SPOTWRIGHT_CHECKPOINT"):
        if "KUBERNETES_SERVICE_HOST" in os.environ and not os.path.isabs(output_dir):
            _warn(
                "SPOTWRIGHT_CHECKPOINT is not set: checkpoints are saved in %s and lost with this pod unless that is a volume;"
                " name a volume in the policy (checkpoint: pvc://NAME), or an absolute output_dir on one",
                wanted,
            )
        return wanted
    try:
        place = marked_folder.folder_at()
    except PlaceError as error:
        if not os.path.isabs(output_dir):
            raise PlaceError(f"{error}; {wanted}, the output_dir, is lost with this node") from error
        _warn("%s; checkpoints are saved in %s, which must be on such a volume", error, wanted)
        return wanted
    return wanted if wanted.is_relative_to(place) else place / _below(output_dir)


_NEW_EACH_TIME = re.compile(r"tmp[a-z0-9_]{8}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # tempfile's names, UUIDs


def _below(output_dir: str) -> Path:
    """The path of an ``output_dir`` below the attempt's place: the same in every attempt and on every node."""
    path = Path(os.path.normpath(output_dir))
    attempt = os.path.dirname(os.environ.get("SPOTWRIGHT_PROGRESS_FILE", ""))
    for base in filter(None, (os.getcwd(), attempt)):
        if path.is_relative_to(base):
            path = path.relative_to(base)
            break
    parts = path.relative_to(path.anchor).parts
    return Path(*(part for part in parts if part != ".." and not _NEW_EACH_TIME.fullmatch(part)))


def _run_unless_finished(trainer: Trainer, run_epoch: Callable[..., None], **options: Any) -> None:
    """Run an epoch, unless the training was already finished: transformers checks that only after one more step."""
    if 0 < trainer.state.max_steps <= trainer.state.global_step:
        trainer.control.should_training_stop = True
    else:
        run_epoch(**options)


def _loss_of(trainer: Trainer, *, alone: bool) -> list[float]:
    """The losses from which ``Trainer.train`` computes its returned mean and its next logged loss."""
    pending = trainer._tr_loss.detach().reshape(1)  # noqa: SLF001  # transformers has no other name for these
    pending = pending if alone else trainer.accelerator.gather(pending)
    return [
        trainer._total_loss_scalar,  # noqa: SLF001
        float(pending.mean()),
        trainer._globalstep_last_logged,  # noqa: SLF001
        trainer._initial_global_step,  # noqa: SLF001
    ]


def _put_loss_back(trainer: Trainer, loss: Any) -> None:
    """Let a resumed training log and return the whole training's losses: with no step left it would return 0."""
    if loss is None:
        return  # saved before Spotwright was used
    total, pending, logged, began = loss
    trainer._total_loss_scalar = total  # noqa: SLF001
    trainer._tr_loss.fill_(pending)  # noqa: SLF001
    trainer._globalstep_last_logged, trainer._initial_global_step = int(logged), int(began)  # noqa: SLF001


def _take_problem_type(folder: Path, model: Any) -> None:
    """Restore a classification model's problem type, which its first forward pass writes into its configuration.

    Without it, the save of an attempt without remaining steps would differ. Source: ``forward`` of any
    ``ForSequenceClassification``, and ``transformers/loss/loss_utils.py``.
    """
    config = getattr(getattr(model, "module", model), "config", None)
    if config is None or getattr(config, "problem_type", None) is not None:
        return
    try:
        saved = json.loads((folder / "config.json").read_bytes()).get("problem_type")
    except (OSError, ValueError, AttributeError):
        return  # a model without one
    if saved is not None:
        config.problem_type = saved


def _looks_whole(folder: Path) -> bool:
    """Whether a folder from before Spotwright is complete: transformers writes the trainer's state last."""
    try:
        state = json.loads((folder / "trainer_state.json").read_bytes()[: 64 << 20])
        return isinstance(state["global_step"], int)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
