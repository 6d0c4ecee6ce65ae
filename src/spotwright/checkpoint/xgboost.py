"""Checkpoints for XGBoost: ``train()`` as in xgboost continues after the saved trees.

The state is the booster in XGBoost's own format (``save_raw``), with everything that boosting continues from. Without random
draws the trees are bit-identical to an uninterrupted run's. Draws of rows or columns (``subsample``, the ``colsample`` family)
start over with each call of XGBoost, so :func:`train` gives each attempt another seed: the trees differ, but no draw is
repeated.
"""

from __future__ import annotations

from typing import Any

import xgboost

from spotwright.checkpoint.checkpoint import Checkpoint

__all__ = ["SaveTrees", "train"]


class SaveTrees(xgboost.callback.TrainingCallback):
    """Callback that ends a step of a checkpoint after each boosting round. For your own calls of ``xgboost.train``."""

    def __init__(self, ckpt: Checkpoint) -> None:
        super().__init__()
        self._ckpt = ckpt

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002  # XGBoost's signature
        """Called by XGBoost; never asks it to stop."""
        self._ckpt.step_done(lambda: {"booster": bytes(model.save_raw("ubj"))})
        return False


def train(
    ckpt: Checkpoint,
    params: dict[str, Any],
    dtrain: xgboost.DMatrix,
    num_boost_round: int,
    **options: Any,
) -> xgboost.Booster:
    """Boost up to ``num_boost_round`` rounds, including those before an interruption.

    ``options`` are as for ``xgboost.train``. Its callbacks' state, such as the best round of early stopping, is lost between
    attempts.
    """
    state = ckpt.load()
    ckpt.steps(num_boost_round)  # sets the total; XGBoost counts
    booster = None
    if state is not None:
        booster = xgboost.Booster(params, model_file=bytearray(state["booster"]))
        if ckpt.step >= num_boost_round:
            return booster
    callbacks = [*(options.pop("callbacks", None) or ()), SaveTrees(ckpt)]
    left = num_boost_round - ckpt.step
    params = {**params, "seed": int(params.get("seed", 0)) + ckpt.step}
    return xgboost.train(params, dtrain, left, xgb_model=booster, callbacks=callbacks, **options)
