"""What Hugging Face's ``Trainer`` owes after a save, and the states of its callbacks.

A save in the last step of an epoch comes before ``on_epoch_end``, and with it before the evaluation, the logging and the best
metric of that epoch. transformers resumes with the next epoch and leaves them out. So the save says that they are owed, and a
resumed training begins with them. Callbacks with a state (``ExportableState``), such as the patience of early stopping, are
restored by default here; in transformers only with ``restore_callback_states_from_checkpoint``.
"""

from __future__ import annotations

import time
from typing import Any

from transformers.trainer_callback import EarlyStoppingCallback, ExportableState

__all__ = ["LastCall", "is_over", "pay", "restore_callbacks", "training_of"]


class LastCall:
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


def pay(trainer: Any, owed: dict[str, Any], folder: str) -> None:
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


def restore_callbacks(trainer: Any) -> None:
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


def is_over(trainer: Any) -> bool:
    """True if a training has reached its last step, or its early stopping; what else stops one may want it to go on later."""
    if 0 < trainer.state.max_steps <= trainer.state.global_step:
        return True
    return any(
        isinstance(each, EarlyStoppingCallback) and each.early_stopping_patience_counter >= each.early_stopping_patience
        for each in trainer.callback_handler.callbacks
    )


def training_of(trainer: Any) -> dict[str, Any]:
    """What a training is: its model, and the number of its samples, if its data have one."""
    found: dict[str, Any] = {"model": type(trainer.accelerator.unwrap_model(trainer.model)).__name__}
    try:
        found["samples"] = len(trainer.train_dataset)
    except (TypeError, NotImplementedError):
        return found  # a stream
    return found
