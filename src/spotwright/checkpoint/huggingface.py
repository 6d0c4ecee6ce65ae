"""Hugging Face's ``Trainer`` on spot nodes: one line resumes, saves after a notice, and ends with 143 after SIGTERM.

::

    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SpotCallback()])
    trainer.train(resume_from_checkpoint=True)  # at the first attempt too

Checkpoints are the folders ``checkpoint-STEP`` of transformers, saved by its own schedule (``save_strategy``) and, beside that,
after a notice. A checkpoint counts when its mark is written. In an attempt of Spotwright they are below
``SPOTWRIGHT_CHECKPOINT``, because ``output_dir`` goes with the attempt; elsewhere they are in ``output_dir``. If that is an
object store, an absolute ``output_dir`` is used, and any other is refused.

The path below ``SPOTWRIGHT_CHECKPOINT`` is the whole relative ``output_dir``. An absolute one counts from the working directory
or the attempt's folder, if it is there, and else from ``/``, without the parts that are new in each attempt: UUIDs and the names
that Python's ``tempfile`` makes.

transformers gives a callback neither the trainer nor a word before it looks for a checkpoint, and refuses
``resume_from_checkpoint=True`` without one (``Trainer.train`` in ``transformers/trainer.py``). Therefore this module puts a
function before ``Trainer.train``. It leaves trainers alone without a :class:`SpotCallback`.

A save in the last step of an epoch comes before ``on_epoch_end``, and with it before the evaluation, the logging and the best
metric of that epoch. transformers resumes with the next epoch and leaves them out. So the save says that they are owed, and a
resumed training begins with them. Callbacks with a state (``ExportableState``), such as the patience of early stopping, are
restored by default here; in transformers only with ``restore_callback_states_from_checkpoint``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

try:
    import torch
    from accelerate import Accelerator
    from transformers import Trainer, TrainerCallback
    from transformers.trainer import TRAINER_STATE_NAME
    from transformers.trainer_callback import EarlyStoppingCallback, ExportableState, TrainerControl, TrainerState
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
from spotwright.checkpoint.place_owners import NEW_EACH_TIME, PlaceOwner, accept_complete
from spotwright.checkpoint.store import check_name
from spotwright.checkpoint.termination import EXIT

__all__ = ["SpotCallback"]


_OWN_PLACE = (
    'give each training its own place, such as SpotCallback(name="fold1") or output_dir="runs/fold1". To continue the same '
    "training in another Trainer, use SpotCallback(again=True)"
)


class SpotCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not there when types are checked
    """The callback for ``Trainer(callbacks=[SpotCallback()])``.

    - ``name`` is that of one of several trainings, such as ``"fold1"``: its checkpoints are below those of ``output_dir``.
    - ``every`` is the seconds between two saves beside ``save_strategy``; by default none.
    - ``again`` lets another ``Trainer`` of this process continue the work of the first one in an ``output_dir``. Without it,
      the second one that resumes there raises; ``train`` of the same ``Trainer`` goes on.

    Raises :class:`ValueError` for arguments with which a training cannot resume.
    """

    def __init__(self, *, name: str = "", every: float | None = None, again: bool = False) -> None:
        if name:
            check_name(name)
        self._name, self._every, self._again = name, every, again
        self._training: AttendedTraining | None = None
        self._folders: MarkedFolders | None = None
        self._facts: dict[str, Any] = {}
        self._keep: int | None = None
        self._random: dict[str, Any] | None = None
        self._is_whole = False
        self._resumed_from: Path | None = None
        self._trainer: Trainer | None = None
        self._last: _LastCall | None = None
        self._within_step = False

    # -- called by transformers

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Raise :class:`ValueError` or :class:`PlaceError` for arguments with which a training cannot resume."""
        self._check(args)

    def _check(self, args: TrainingArguments) -> None:
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
                facts = marked_folder.facts_of(self._resumed_from)
                _put_loss_back(self._trainer, facts.get("loss"))
                if _is_over(self._trainer) and not facts.get("owes"):
                    training, place = _training_of(self._trainer), self._resumed_from.parent
                    accept_complete(place, state.global_step, facts.get("training"), training, _OWN_PLACE)
        if self._folders is not None and not state.is_hyper_param_search:  # a search has a folder for each trial
            self._training = AttendedTraining(
                state.global_step, state.max_steps, saves_when_due=self._every is not None, every=self._every
            )

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Save at the agreed step."""
        if self._training is not None:
            self._within_step = True
            if self._training.step_done(state.global_step):
                control.should_save = True
            self._keep_random(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Prepare for an evaluation."""
        self._within_step = False
        if self._training is not None:
            self._keep_random(control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Let the evaluation draw no random number of the training, which a resumed one would not draw again."""
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
        """Keep the checkpoints of a ``Trainer.train`` in the place that survives, from before it looks for one to its end.

        ``resumes`` says that it resumes from the newest one. Raises :class:`PlaceError` if that is another training's.
        """
        self._check(trainer.args)  # a callback that was added later has not heard of the end of the initialization
        self._resumed_from, self._trainer = None, trainer
        owner = PlaceOwner(trainer, _OWN_PLACE, again=self._again or not resumes)
        args = trainer.args
        if str(getattr(args.save_strategy, "value", args.save_strategy)) == "no" and self._every is None:
            _warn(
                'save_strategy="no": only a notice, SIGTERM and the end of the training save, and a node that goes without '
                "notice takes all work with it; SpotCallback(every=600) saves every 600 s"
            )
        self._folders = MarkedFolders(_place(args.output_dir) / self._name, f"{PREFIX_CHECKPOINT_DIR}-", _looks_whole)
        self._facts = {"processes": args.world_size, **marked_folder.model_facts([trainer.model])}
        self._keep = args.save_total_limit
        self._last = _LastCall(trainer)
        # It begins with a collective operation (store_flos): no rank can save by itself once another one is dead.
        save, handler = trainer._save_checkpoint, trainer.callback_handler  # noqa: SLF001
        with ExitStack() as stack:
            stack.callback(setattr, args, "output_dir", args.output_dir)
            stack.callback(setattr, args, "save_total_limit", args.save_total_limit)
            args.output_dir = str(self._folders.place)
            args.save_total_limit = None  # transformers removes the last whole checkpoint before the new one is whole
            stack.enter_context(_replaced(trainer, "_save_checkpoint", functools.partial(self._save, trainer, save)))
            stack.enter_context(_replaced(trainer, "_maybe_log_save_evaluate", self._last))
            begin = functools.partial(self._begin, trainer, handler.on_train_begin)
            stack.enter_context(_replaced(handler, "on_train_begin", begin))
            if (run_epoch := getattr(trainer, "_run_epoch", None)) is not None:  # of newer versions
                run = functools.partial(self._run_epoch, trainer, run_epoch)
                stack.enter_context(_replaced(trainer, "_run_epoch", run))
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
                self.close()
                self._folders = self._trainer = self._last = None

    def _begin(self, trainer: Trainer, begin: Callable[..., TrainerControl], *values: Any) -> TrainerControl:
        """Begin a training: with the states of its callbacks, and with what the last save has owed."""
        if self._resumed_from is not None:
            _restore_callbacks(trainer)
        control = begin(*values)
        owed = None if self._resumed_from is None else marked_folder.facts_of(self._resumed_from).get("owes")
        if owed is None or self._training is None:
            return control
        trainer.control = control
        _pay(trainer, owed, str(self._resumed_from))
        return trainer.control

    def _run_epoch(self, trainer: Trainer, run_epoch: Callable[..., None], **options: Any) -> None:
        """Run an epoch, unless the training was over before it: transformers asks for that only after one more step.

        The end of a training is saved with all that has come after its last step, so that an attempt which follows, because
        the outputs were lost, makes no step.
        """
        if trainer.control.should_training_stop or (self._resumed_from is not None and _is_over(trainer)):
            trainer.control.should_training_stop = True
        else:
            run_epoch(**options)
        if self._training is not None and self._last is not None and _is_over(trainer) and not self._last.is_saved:
            self._within_step = False
            trainer._save_checkpoint(options["model"], options["trial"])  # noqa: SLF001
            trainer.control = trainer.callback_handler.on_save(trainer.args, trainer.state, trainer.control)

    def _end_if_unfinished(self) -> None:
        if self._training is not None and self._training.is_unfinished:
            raise SystemExit(EXIT)

    def newest(self, accelerator: Accelerator) -> str | None:
        """Return the newest complete checkpoint; ``None`` without one. Raises :class:`OtherProgram` if it is of another model."""
        if self._folders is None:
            return None
        found = self._folders.newest_of(self._facts, self._facts["processes"])
        step = 0 if found is None else marked_folder.facts_of(found).get("step", 0)
        steps = accelerator.gather(torch.tensor([step], device=accelerator.device))
        marked_folder.check_one_place(self._folders.place, steps.tolist())
        self._resumed_from = found
        return None if found is None else str(found)

    def warn_of_a_new_beginning(self) -> None:
        """Warn of a training that starts over beside a complete checkpoint: usually its resumption was forgotten."""
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
        owed = None if self._last is None else self._last.owed(within_step=self._within_step)
        saves = FolderSaves(self._folders, self._training, trainer.accelerator, marks=trainer.args.should_save)
        self._is_whole = saves.save(
            state.global_step,
            lambda folder: self._write(trainer, folder, lambda: save(*values)),
            {
                **self._facts,
                "step": state.global_step,
                "loss": _loss_of(trainer, alone=self._training.is_alone),
                "owes": owed,
                "training": _training_of(trainer),
            },
            is_independent=is_replicated(trainer.accelerator) and not state.best_global_step,  # which is waited for
        )
        if self._is_whole and self._last is not None:
            self._last.is_saved = owed is None
        if not self._is_whole:
            state.best_model_checkpoint = best
        elif trainer.args.push_to_hub:
            trainer._push_from_checkpoint(str(self._folders.folder_of(state.global_step)))  # noqa: SLF001

    def _write(self, trainer: Trainer, folder: Path, save: Callable[[], None]) -> None:
        """Let transformers fill a folder that is moved to its place later, from where it is pushed to the hub."""
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


class _LastCall:
    """The last call of ``Trainer._maybe_log_save_evaluate``, which comes after each step and after each epoch."""

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._call = trainer, trainer._maybe_log_save_evaluate  # noqa: SLF001
        self._step = -1
        self._gradient: Any = None
        self._rate: float | None = None
        self.is_saved = False
        """True if the state after the last step was saved with all that has come after it."""

    def __call__(self, tr_loss: Any, grad_norm: Any, *values: Any, learning_rate: Any = None) -> None:
        """Called by transformers."""
        control, step = self._trainer.control, self._trainer.state.global_step
        if step != self._step or control.should_log or control.should_evaluate:
            self.is_saved = False
        self._step, self._rate, self._gradient = step, learning_rate, grad_norm
        self._call(tr_loss, grad_norm, *values, learning_rate=learning_rate)

    def owed(self, *, within_step: bool) -> dict[str, Any] | None:
        """Return what a save at this moment owes: the end of the epoch, with values that it logs; ``None``: nothing."""
        state, control = self._trainer.state, self._trainer.control
        is_end = float(state.epoch or 0.0).is_integer() or state.global_step >= state.max_steps
        if not within_step or not (is_end or control.should_training_stop or control.should_epoch_stop):
            return None
        gradient = (
            None if self._gradient is None else float(self._gradient)
        )  # not at each step: a GPU would be waited for
        return {"grad_norm": gradient, "learning_rate": self._rate}


def _pay(trainer: Any, owed: dict[str, Any], folder: str) -> None:
    """Do what a save at the end of an epoch has owed. ``folder`` has the random numbers from before."""
    trainer._load_rng_state(folder)  # noqa: SLF001  # a save in here saves them
    trainer.control = trainer.callback_handler.on_epoch_end(trainer.args, trainer.state, trainer.control)
    trainer._maybe_log_save_evaluate(  # noqa: SLF001
        trainer._tr_loss,  # noqa: SLF001
        owed.get("grad_norm"),
        trainer.model_wrapped,
        None,
        max(0, round(trainer.state.epoch or 0) - 1),
        None,
        time.time(),
        learning_rate=owed.get("learning_rate"),
    )


def _restore_callbacks(trainer: Any) -> None:
    """Give each callback that has a state the one from the checkpoint, and keep its arguments, which the program says now."""
    saved = trainer.state.stateful_callbacks
    seen: dict[str, int] = {}
    for callback in trainer.callback_handler.callbacks:
        if not isinstance(callback, ExportableState):
            continue
        name = type(callback).__name__
        states = saved.setdefault(name, callback.state())  # a save looks for each of them
        number = seen[name] = seen.get(name, -1) + 1
        of_all = [states] if isinstance(states, dict) else states
        alike = sum(type(each).__name__ == name for each in trainer.callback_handler.callbacks)
        last = of_all[-alike:]  # each save appends those of all
        for attribute, value in last[min(number, len(last) - 1)].get("attributes", {}).items():
            setattr(callback, attribute, value)


def _is_over(trainer: Any) -> bool:
    """True if a training has reached its last step, or its early stopping; what else stops one may want it to go on later."""
    if 0 < trainer.state.max_steps <= trainer.state.global_step:
        return True
    return any(
        isinstance(each, EarlyStoppingCallback) and each.early_stopping_patience_counter >= each.early_stopping_patience
        for each in trainer.callback_handler.callbacks
    )


def _training_of(trainer: Any) -> dict[str, Any]:
    """What a training is: its model, and the number of its samples, if its data have one."""
    found: dict[str, Any] = {"model": type(trainer.accelerator.unwrap_model(trainer.model)).__name__}
    try:
        found["samples"] = len(trainer.train_dataset)
    except (TypeError, NotImplementedError):
        return found  # a stream
    return found


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


def _below(output_dir: str) -> Path:
    """The path of an ``output_dir`` below the attempt's place: the same one in every attempt and on every node."""
    path = Path(os.path.normpath(output_dir))
    attempt = os.path.dirname(os.environ.get("SPOTWRIGHT_PROGRESS_FILE", ""))
    for base in filter(None, (os.getcwd(), attempt)):
        if path.is_relative_to(base):
            path = path.relative_to(base)
            break
    parts = path.relative_to(path.anchor).parts
    return Path(*(part for part in parts if part != ".." and not NEW_EACH_TIME.fullmatch(part)))


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Put a function in the place of a method of an object."""
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)


def _loss_of(trainer: Trainer, *, alone: bool) -> list[float]:
    """The losses from which ``Trainer.train`` computes the mean that it returns, and the next one that it logs."""
    pending = trainer._tr_loss.detach().reshape(1)  # noqa: SLF001  # transformers has no other name for these
    pending = pending if alone else trainer.accelerator.gather(pending)
    return [
        trainer._total_loss_scalar,  # noqa: SLF001
        float(pending.mean()),
        trainer._globalstep_last_logged,  # noqa: SLF001
        trainer._initial_global_step,  # noqa: SLF001
    ]


def _put_loss_back(trainer: Trainer, loss: Any) -> None:
    """Let a resumed training log and return the losses of the whole training: one with no step left would return 0."""
    if loss is None:
        return  # saved before Spotwright was used here
    total, pending, logged, began = loss
    trainer._total_loss_scalar = total  # noqa: SLF001
    trainer._tr_loss.fill_(pending)  # noqa: SLF001
    trainer._globalstep_last_logged, trainer._initial_global_step = int(logged), int(began)  # noqa: SLF001


def _take_problem_type(folder: Path, model: Any) -> None:
    """Give a model for classification the sort of its labels, which its first forward pass writes into its configuration.

    Without it, what an attempt saves that has no step left to do would differ. Source: ``forward`` of any
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
    """Whether a folder from before Spotwright was filled to its end: transformers writes the state of the trainer last."""
    try:
        state = json.loads((folder / "trainer_state.json").read_bytes()[: 64 << 20])
        return isinstance(state["global_step"], int)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _warn(message: str, *values: object) -> None:
    import logging

    logging.getLogger("spotwright.checkpoint").warning(message, *values)
