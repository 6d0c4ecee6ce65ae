"""Checkpoints for LightGBM: ``train()`` as in lightgbm continues after the saved trees.

The state is the model in LightGBM's own text format. LightGBM continues from that model's predictions, so the trees after an
interruption are close to an uninterrupted run's, but not bit-identical. Random draws of data (``bagging_fraction``,
``feature_fraction``) start over.
"""

from __future__ import annotations

from typing import Any

import lightgbm

from spotwright.checkpoint.checkpoint import Checkpoint

__all__ = ["save_trees", "train"]


def save_trees(ckpt: Checkpoint) -> Any:
    """Return a callback that ends a step of a checkpoint after each boosting round. For your own calls of ``lightgbm.train``."""

    def after(env: Any) -> None:
        ckpt.step_done(lambda: {"booster": env.model.model_to_string(num_iteration=-1)})

    after.order = 100  # type: ignore[attr-defined]  # after the others, as LightGBM sorts them
    return after


def train(
    ckpt: Checkpoint,
    params: dict[str, Any],
    train_set: lightgbm.Dataset,
    num_boost_round: int,
    **options: Any,
) -> lightgbm.Booster:
    """Boost up to ``num_boost_round`` rounds, including those before an interruption.

    ``options`` are as for ``lightgbm.train``. Its callbacks' state, such as the best round of early stopping, is lost between
    attempts.
    """
    state = ckpt.load()
    ckpt.steps(num_boost_round)  # sets the total; LightGBM counts
    booster = lightgbm.Booster(model_str=state["booster"]) if state is not None else None
    if booster is not None and ckpt.step >= num_boost_round:
        return booster
    callbacks = [*(options.pop("callbacks", None) or ()), save_trees(ckpt)]
    left = num_boost_round - ckpt.step
    return lightgbm.train(params, train_set, left, init_model=booster, callbacks=callbacks, **options)
