"""Models of scikit-learn continue as without an interruption, and a checkpoint cannot choose code to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import Birch, MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import IncrementalPCA, MiniBatchNMF
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from tests.checkpoint.places import round_trip

from spotwright.checkpoint import Checkpoint, OtherProgram, UnstorableState
from spotwright.checkpoint.sklearn import restore, state_of

X, Y = (part[:240] for part in load_digits(return_X_y=True))

IN_PARTS: list[Callable[[], Any]] = [
    lambda: SGDClassifier(random_state=0, average=True),
    lambda: SGDRegressor(random_state=0, learning_rate="adaptive"),
    lambda: MLPClassifier((8,), random_state=0),
    lambda: MiniBatchKMeans(3, random_state=0),
    GaussianNB,
    lambda: IncrementalPCA(3),
    lambda: MiniBatchNMF(3, random_state=0),
    StandardScaler,
]
GROWING: list[Callable[[int], Any]] = [
    lambda count: RandomForestClassifier(count, warm_start=True, random_state=0),
    lambda count: ExtraTreesRegressor(count, warm_start=True, random_state=0),
    lambda count: GradientBoostingClassifier(n_estimators=count, warm_start=True, random_state=0, subsample=0.5),
    lambda count: HistGradientBoostingClassifier(max_iter=count, warm_start=True, random_state=0, max_depth=3),
    lambda count: BaggingClassifier(n_estimators=count, warm_start=True, random_state=0),
]


def predictions(model: Any) -> Any:
    """What a model makes of the data."""
    name = next(name for name in ("predict_proba", "decision_function", "predict", "transform") if hasattr(model, name))
    return getattr(model, name)(X)


def learn(model: Any, step: int) -> None:
    rows = slice(step * 80, step * 80 + 80)
    more = {"classes": range(10)} if type(model).__name__ in {"SGDClassifier", "MLPClassifier", "GaussianNB"} else {}
    model.partial_fit(X[rows], Y[rows], **more)


def again(make: Callable[[], Any], model: Any) -> Any:
    """The model after it was saved and loaded into a new one."""
    found = make()
    restore(found, round_trip(state_of(model)))
    return found


@pytest.mark.parametrize("make", IN_PARTS, ids=lambda make: type(make()).__name__)
def test_learning_in_parts_goes_on_to_the_same_bits(make: Callable[[], Any]) -> None:
    undisturbed, interrupted = make(), make()
    for step in range(3):
        learn(undisturbed, step)
        learn(interrupted, step)
        interrupted = again(make, interrupted)

    if isinstance(undisturbed, IncrementalPCA):  # its arrays are views, and LAPACK rounds by where memory lies
        assert np.allclose(predictions(interrupted), predictions(undisturbed), rtol=1e-9)
    else:
        assert np.array_equal(predictions(interrupted), predictions(undisturbed))


@pytest.mark.parametrize("make", GROWING, ids=lambda make: type(make(1)).__name__)
def test_a_warm_start_goes_on_to_the_same_bits(make: Callable[[int], Any]) -> None:
    undisturbed, interrupted = make(1).fit(X, Y), make(1).fit(X, Y)
    interrupted = again(lambda: make(1), interrupted)
    count = "max_iter" if hasattr(interrupted, "max_iter") else "n_estimators"
    for model in (undisturbed, interrupted):
        model.set_params(**{count: 3}).fit(X, Y)

    assert np.array_equal(predictions(interrupted), predictions(undisturbed))


def test_a_training_that_is_interrupted_and_resumed_gives_the_same_model(tmp_path: Path) -> None:
    def train(place: Path, stop_after: int) -> Any:
        model = SGDClassifier(random_state=0)
        with Checkpoint(place, every=0) as ckpt:
            restore(model, ckpt.load())
            for step in ckpt.steps(3):
                if step == stop_after:
                    break
                learn(model, step)
                ckpt.step_done(lambda: state_of(model))
        return model

    train(tmp_path / "taken", 2)
    assert np.array_equal(train(tmp_path / "taken", 9).coef_, train(tmp_path / "undisturbed", 9).coef_)


def test_nothing_saved_changes_nothing() -> None:
    model = SGDClassifier()
    before = dict(vars(model))
    restore(model, None)

    assert vars(model) == before


def test_another_class_is_refused() -> None:
    with pytest.raises(OtherProgram, match=r"SGDClassifier.*GaussianNB"):
        restore(GaussianNB(), state_of(SGDClassifier()))


def test_another_version_of_scikit_learn_is_refused() -> None:
    with pytest.raises(OtherProgram, match=r"scikit-learn 0\.1"):
        restore(SGDClassifier(), {**state_of(SGDClassifier()), "version": "0.1"})


def test_a_model_whose_parts_point_to_each_other_is_refused() -> None:
    with pytest.raises(UnstorableState, match="Birch"):
        state_of(Birch(n_clusters=None).fit(X))


def test_a_part_of_another_library_is_refused_when_saving() -> None:
    class Own(BaseEstimator):
        pass

    with pytest.raises(UnstorableState, match=r"\['estimator'\]: a .*Own cannot be stored"):
        round_trip(state_of(BaggingClassifier(Own())))


@pytest.mark.parametrize(
    "name",
    ["os:system", "sklearn:os", "builtins:eval", "sklearn.base:os", "sklearn.utils:Bunch.fromkeys", "sklearnx:X"],
)
def test_a_checkpoint_that_names_anything_else_is_refused(name: str) -> None:
    state = state_of(SGDClassifier())
    state["attributes"]["loss"] = {"sklearn": "call", "class": name, "arguments": ["true"], "attributes": None}

    with pytest.raises(OtherProgram, match="names"):
        restore(SGDClassifier(), state)
