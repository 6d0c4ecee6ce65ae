"""Keras 3 with checkpoints, whatever its backend: ``fit()`` that goes on after the epoch which was saved.

The state is every variable of the model and of its optimizer, in Keras' order. Seeds of layers such as dropout are variables of
the model too, so they go on as well; the order in which ``fit`` shuffles is not, and begins anew.
"""

from __future__ import annotations

from typing import Any

import keras

from spotwright.checkpoint.api import Checkpoint
from spotwright.checkpoint.errors import OtherProgram

__all__ = ["SaveEpochs", "fit", "restore", "state_of"]


def state_of(model: Any) -> dict[str, Any]:
    """The variables of a compiled model and of its optimizer, as arrays."""
    return {
        name: [keras.ops.convert_to_numpy(each) for each in variables] for name, variables in _variables(model).items()
    }


def restore(model: Any, state: dict[str, Any] | None) -> None:
    """Give a compiled model what :func:`state_of` took from one that is built the same; nothing for ``None``.

    Raises :class:`OtherProgram` where the variables are other ones.
    """
    if state is None:
        return
    for name, variables in _variables(model).items():
        found = [array.shape for array in state[name]]
        if found != [tuple(each.shape) for each in variables]:
            raise OtherProgram(
                f"the checkpoint's {name} variables have other shapes than this model's: it is another model"
            )
        for variable, array in zip(variables, state[name], strict=True):
            variable.assign(array)


class SaveEpochs(keras.callbacks.Callback):
    """Ends a step of a checkpoint after each epoch. For your own calls of ``model.fit``."""

    def __init__(self, ckpt: Checkpoint) -> None:
        super().__init__()
        self._ckpt = ckpt

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # Keras' signature
        """Called by Keras."""
        self._ckpt.step_done(lambda: state_of(self.model))


def fit(ckpt: Checkpoint, model: Any, *data: Any, epochs: int, **options: Any) -> Any:
    """``model.fit(*data, epochs=epochs, **options)`` for the epochs that are left; gives what it gives.

    The model must be compiled, and built: it knows the shape of its input.
    """
    restore(model, ckpt.load())
    ckpt.steps(epochs)  # how many there are; Keras counts them
    callbacks = [*(options.pop("callbacks", None) or ()), SaveEpochs(ckpt)]
    return model.fit(*data, initial_epoch=ckpt.step, epochs=epochs, callbacks=callbacks, **options)


def _variables(model: Any) -> dict[str, Any]:
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return {"model": model.variables, "optimizer": model.optimizer.variables}
