"""XGBoost with checkpoints: ``train()`` as in xgboost, that goes on after the trees which were saved.

The state is the booster in XGBoost's own format (``save_raw``), with everything that boosting goes on from. The trees are the
same as without an interruption, to the last bit, where nothing is drawn at random. Where rows or columns are (``subsample``, the
``colsample`` family), XGBoost starts its draws anew with each call, so :func:`train` gives each attempt a seed of its own: the
trees are other ones, and no draw is made twice.
"""

from __future__ import annotations

from typing import Any

import xgboost

from spotwright.checkpoint.api import Checkpoint

__all__ = ["SaveTrees", "train"]


class SaveTrees(xgboost.callback.TrainingCallback):
    """Ends a step of a checkpoint after each round of boosting. For your own calls of ``xgboost.train``."""

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
    """Boost up to ``num_boost_round`` rounds in all, those before an interruption counted.

    ``options`` are those of ``xgboost.train``. What its callbacks remember, such as the best round of early stopping, begins
    anew with each attempt.
    """
    state = ckpt.load()
    ckpt.steps(num_boost_round)  # how many there are; XGBoost counts them
    booster = None
    if state is not None:
        booster = xgboost.Booster(params, model_file=bytearray(state["booster"]))
        if ckpt.step >= num_boost_round:
            return booster
    callbacks = [*(options.pop("callbacks", None) or ()), SaveTrees(ckpt)]
    left = num_boost_round - ckpt.step
    params = {**params, "seed": int(params.get("seed", 0)) + ckpt.step}
    return xgboost.train(params, dtrain, left, xgb_model=booster, callbacks=callbacks, **options)
