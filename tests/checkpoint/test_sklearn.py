"""Models of scikit-learn continue as without an interruption, and a checkpoint cannot choose code to run.

scikit-learn takes a second to import, so the tests import it: every process of the suite collects this file, and one runs it.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checkpoint.places import round_trip

from spotwright.checkpoint import Checkpoint, OtherProgram, UnstorableState

MODULES = {
    "BaggingClassifier": "ensemble",
    "BaseEstimator": "base",
    "Birch": "cluster",
    "ExtraTreesRegressor": "ensemble",
    "GaussianNB": "naive_bayes",
    "GradientBoostingClassifier": "ensemble",
    "HistGradientBoostingClassifier": "ensemble",
    "IncrementalPCA": "decomposition",
    "MLPClassifier": "neural_network",
    "MiniBatchKMeans": "cluster",
    "MiniBatchNMF": "decomposition",
    "RandomForestClassifier": "ensemble",
    "SGDClassifier": "linear_model",
    "SGDRegressor": "linear_model",
    "StandardScaler": "preprocessing",
}
IN_PARTS: dict[str, dict[str, Any]] = {
    "SGDClassifier": {"random_state": 0, "average": True},
    "SGDRegressor": {"random_state": 0, "learning_rate": "adaptive"},
    "MLPClassifier": {"hidden_layer_sizes": (8,), "random_state": 0},
    "MiniBatchKMeans": {"n_clusters": 3, "random_state": 0},
    "GaussianNB": {},
    "IncrementalPCA": {"n_components": 3},
    "MiniBatchNMF": {"n_components": 3, "random_state": 0},
    "StandardScaler": {},
}
GROWING: dict[str, dict[str, Any]] = {
    "RandomForestClassifier": {"warm_start": True, "random_state": 0},
    "ExtraTreesRegressor": {"warm_start": True, "random_state": 0},
    "GradientBoostingClassifier": {"warm_start": True, "random_state": 0, "subsample": 0.5},
    "HistGradientBoostingClassifier": {"warm_start": True, "random_state": 0, "max_depth": 3},
    "BaggingClassifier": {"warm_start": True, "random_state": 0},
}


@pytest.fixture(scope="module", autouse=True)
def _in_one_process() -> None:
    """Do nothing: a module fixture keeps its tests in one process of the suite (tests/distribution.py)."""


def of_sklearn(name: str) -> Any:
    """A class of scikit-learn."""
    return getattr(importlib.import_module(f"sklearn.{MODULES[name]}"), name)


def a_model(name: str, **settings: Any) -> Any:
    return of_sklearn(name)(**settings)


def state_of(model: Any) -> Any:
    return importlib.import_module("spotwright.checkpoint.sklearn").state_of(model)


def restore(model: Any, state: Any) -> None:
    importlib.import_module("spotwright.checkpoint.sklearn").restore(model, state)


@functools.cache
def digits() -> tuple[Any, Any]:
    """Pictures of digits, and which digits they are."""
    pictures, numbers = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    return pictures[:240], numbers[:240]


def predictions(model: Any) -> Any:
    """The model's output for the data."""
    name = next(name for name in ("predict_proba", "decision_function", "predict", "transform") if hasattr(model, name))
    return getattr(model, name)(digits()[0])


def learn(model: Any, step: int) -> None:
    pictures, numbers = digits()
    rows = slice(step * 80, step * 80 + 80)
    more = {"classes": range(10)} if type(model).__name__ in {"SGDClassifier", "MLPClassifier", "GaussianNB"} else {}
    model.partial_fit(pictures[rows], numbers[rows], **more)


def again(new: Any, model: Any) -> Any:
    """A new model that loaded another one's save."""
    restore(new, round_trip(state_of(model)))
    return new


@pytest.mark.parametrize("name", IN_PARTS)
def test_learning_in_parts_goes_on_to_the_same_bits(name: str) -> None:
    undisturbed, interrupted = a_model(name, **IN_PARTS[name]), a_model(name, **IN_PARTS[name])
    for step in range(3):
        learn(undisturbed, step)
        learn(interrupted, step)
        interrupted = again(a_model(name, **IN_PARTS[name]), interrupted)

    if name == "IncrementalPCA":  # its arrays are views, and LAPACK rounds by where memory lies
        assert np.allclose(predictions(interrupted), predictions(undisturbed), rtol=1e-9)
    else:
        assert np.array_equal(predictions(interrupted), predictions(undisturbed))


@pytest.mark.parametrize("name", GROWING)
def test_a_warm_start_goes_on_to_the_same_bits(name: str) -> None:
    count = "max_iter" if name.startswith("Hist") else "n_estimators"
    undisturbed, before, after = (a_model(name, **GROWING[name], **{count: 1}) for _ in range(3))
    interrupted = again(after, before.fit(*digits()))
    undisturbed.fit(*digits())
    for model in (undisturbed, interrupted):
        model.set_params(**{count: 3}).fit(*digits())

    assert np.array_equal(predictions(interrupted), predictions(undisturbed))


@pytest.mark.usefixtures("attempts_in_one_process")
def test_a_training_that_is_interrupted_and_resumed_gives_the_same_model(tmp_path: Path) -> None:
    def train(place: Path, stop_after: int) -> Any:
        model = a_model("SGDClassifier", random_state=0)
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
    model = a_model("SGDClassifier")
    before = dict(vars(model))
    restore(model, None)

    assert vars(model) == before


def test_another_class_is_refused() -> None:
    with pytest.raises(OtherProgram, match=r"SGDClassifier.*GaussianNB"):
        restore(a_model("GaussianNB"), state_of(a_model("SGDClassifier")))


def test_another_version_of_scikit_learn_is_refused() -> None:
    with pytest.raises(OtherProgram, match=r"scikit-learn 0\.1"):
        restore(a_model("SGDClassifier"), {**state_of(a_model("SGDClassifier")), "version": "0.1"})


def test_a_model_whose_parts_point_to_each_other_is_refused() -> None:
    with pytest.raises(UnstorableState, match="Birch"):
        state_of(a_model("Birch", n_clusters=None).fit(digits()[0]))


def test_a_part_of_another_library_is_refused_when_saving() -> None:
    base: Any = of_sklearn("BaseEstimator")

    class Own(base):
        pass

    with pytest.raises(UnstorableState, match=r"\['estimator'\]: a .*Own cannot be stored"):
        round_trip(state_of(a_model("BaggingClassifier", estimator=Own())))


@pytest.mark.parametrize(
    "name",
    ["os:system", "sklearn:os", "builtins:eval", "sklearn.base:os", "sklearn.utils:Bunch.fromkeys", "sklearnx:X"],
)
def test_a_checkpoint_that_names_anything_else_is_refused(name: str) -> None:
    state = state_of(a_model("SGDClassifier"))
    state["attributes"]["loss"] = {"sklearn": "call", "class": name, "arguments": ["true"], "attributes": None}

    with pytest.raises(OtherProgram, match="names"):
        restore(a_model("SGDClassifier"), state)
