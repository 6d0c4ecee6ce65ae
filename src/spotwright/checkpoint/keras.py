"""Checkpoints for Keras 3 with any backend: ``fit()`` continues after the saved epoch.

The state is every variable of the model and of its optimizer, in Keras' order. Seeds of layers such as dropout are variables
too, so they continue; the shuffling order of ``fit`` is not, and starts over.
"""

from __future__ import annotations

from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError(
        f"spotwright.checkpoint.keras needs Keras 3 and a backend ({error}): pip install keras jax"
    ) from error

from spotwright.checkpoint.checkpoint import Checkpoint
from spotwright.checkpoint.errors import OtherProgram

__all__ = ["SaveEpochs", "fit", "restore", "state_of"]


def state_of(model: Any) -> dict[str, Any]:
    """Return the variables of a compiled model and of its optimizer, as arrays."""
    return {
        name: [keras.ops.convert_to_numpy(each) for each in variables] for name, variables in _variables(model).items()
    }


def restore(model: Any, state: dict[str, Any] | None) -> None:
    """Set the variables of a compiled model from :func:`state_of` of an equal model; ``None`` changes nothing.

    Raises :class:`OtherProgram` if the variables differ.
    """
    if state is None:
        return
    for name, variables in _variables(model).items():
        shapes = [array.shape for array in state[name]]
        if shapes != [tuple(each.shape) for each in variables]:
            raise OtherProgram(f"the checkpoint's {name} variables differ in shape from this model's")
        for variable, array in zip(variables, state[name], strict=True):
            variable.assign(array)


class SaveEpochs(keras.callbacks.Callback):
    """Callback that ends a step of a checkpoint after each epoch. For your own calls of ``model.fit``."""

    def __init__(self, ckpt: Checkpoint) -> None:
        super().__init__()
        self._ckpt = ckpt

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  # Keras' signature
        """Called by Keras."""
        self._ckpt.step_done(lambda: state_of(self.model))


def fit(ckpt: Checkpoint, model: Any, *data: Any, epochs: int, **options: Any) -> Any:
    """Call ``model.fit(*data, epochs=epochs, **options)`` for the remaining epochs; returns its result.

    The model must be compiled and built, so that its input shape is known.
    """
    restore(model, ckpt.load())
    ckpt.steps(epochs)  # sets the total; Keras counts
    callbacks = [*(options.pop("callbacks", None) or ()), SaveEpochs(ckpt)]
    return model.fit(*data, initial_epoch=ckpt.step, epochs=epochs, callbacks=callbacks, **options)


def _variables(model: Any) -> dict[str, Any]:
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return {"model": model.variables, "optimizer": model.optimizer.variables}
