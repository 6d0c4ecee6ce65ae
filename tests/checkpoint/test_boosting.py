"""XGBoost and LightGBM go on after the trees that were saved."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotwright.checkpoint import Checkpoint

WHY = "needs the group `boosting`: xgboost-cpu and lightgbm"


class Taken(Exception):
    """Simulates the end of a node during training."""


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 5))
    return features, (features[:, 0] * features[:, 1] + random.normal(size=300) / 10)


@pytest.mark.usefixtures("attempts_in_one_process")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="xgboost-cpu has wheels for x86_64 only")
def test_xgboost_gives_the_same_trees_as_without_an_interruption(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason=WHY)
    from spotwright.checkpoint.xgboost import train

    features, target = data()
    params = {"max_depth": 3, "nthread": 1}
    matrix = xgboost.DMatrix(features, target)

    base: Any = xgboost.callback.TrainingCallback

    class TakenAt(base):
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch == 4:
                raise Taken
            return False

    with Checkpoint(tmp_path, every=0) as ckpt, pytest.raises(Taken):
        train(ckpt, params, matrix, 10, callbacks=[TakenAt()])
    with Checkpoint(tmp_path) as ckpt:
        booster = train(ckpt, params, matrix, 10)
        assert ckpt.step == 10
    with Checkpoint(tmp_path) as ckpt:
        again = train(ckpt, params, matrix, 10)

    undisturbed = xgboost.train(params, matrix, 10)
    assert booster.num_boosted_rounds() == 10
    assert np.array_equal(booster.predict(matrix), undisturbed.predict(matrix))
    assert np.array_equal(again.predict(matrix), booster.predict(matrix))


@pytest.mark.usefixtures("attempts_in_one_process")
def test_lightgbm_goes_on_and_ends_with_as_many_trees_and_as_good_ones(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason=WHY)
    from spotwright.checkpoint.lightgbm import train

    features, target = data()
    params = {"num_leaves": 7, "verbose": -1, "deterministic": True, "num_threads": 1, "seed": 7}

    def rows() -> Any:
        return lightgbm.Dataset(features, target, free_raw_data=False)

    def taken(env: Any) -> None:
        if env.iteration == 4:
            raise Taken

    taken.before_iteration = True  # type: ignore[attr-defined]
    with Checkpoint(tmp_path, every=0) as ckpt, pytest.raises(Taken):
        train(ckpt, params, rows(), 10, callbacks=[taken])
    with Checkpoint(tmp_path) as ckpt:
        booster = train(ckpt, params, rows(), 10)
        assert ckpt.step == 10
    with Checkpoint(tmp_path) as ckpt:
        again = train(ckpt, params, rows(), 10)

    undisturbed = lightgbm.train(params, rows(), 10)
    assert booster.num_trees() == 10
    assert np.allclose(booster.predict(features), undisturbed.predict(features), atol=1e-6)
    assert np.array_equal(again.predict(features), booster.predict(features))
