"""Keras and JAX: the recipes of the page about checkpoints give the same numbers as without an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotwright.checkpoint import Checkpoint

WHY = "needs the group `networks`, keras with jax: make networks"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # what these libraries say about themselves
]


class Taken(Exception):
    """Simulates the end of a node during training."""


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    features = random.normal(size=(64, 5)).astype("float32")
    return features, features.sum(axis=1, keepdims=True)


def test_keras_goes_on_after_the_saved_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax", reason=WHY)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason=WHY)
    from spotwright.checkpoint.keras import fit

    def model() -> Any:
        keras.utils.set_random_seed(3)
        layers = [
            keras.Input((5,)),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dropout(0.2, seed=1),
            keras.layers.Dense(1),
        ]
        found = keras.Sequential(layers)
        found.compile("adam", "mse")
        return found

    base: Any = keras.callbacks.Callback

    class TakenAt(base):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise Taken

    quiet = {"verbose": 0, "shuffle": False}
    with Checkpoint(tmp_path, every=0) as ckpt, pytest.raises(Taken):
        fit(ckpt, model(), *data(), epochs=5, callbacks=[TakenAt()], **quiet)
    resumed = model()
    with Checkpoint(tmp_path) as ckpt:
        fit(ckpt, resumed, *data(), epochs=5, **quiet)
        assert ckpt.step == 5

    undisturbed = model()
    undisturbed.fit(*data(), epochs=5, **quiet)
    for ours, theirs in zip(resumed.get_weights(), undisturbed.get_weights(), strict=True):
        assert np.array_equal(ours, theirs)


def test_jax_trees_of_arrays_go_on_with_their_random_key(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax", reason=WHY)
    jnp = jax.numpy
    features, target = data()

    @jax.jit
    def step(params: Any, key: Any) -> Any:
        key, draw = jax.random.split(key)
        keep = jax.random.bernoulli(draw, 0.8, features.shape)

        def loss(params: Any) -> Any:
            return jnp.mean((features * keep @ params["w"] + params["b"].astype("float32") - target) ** 2)

        grads = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: (p - 0.05 * g).astype(p.dtype), params, grads), key

    def train(place: Path, stop_after: int) -> Any:
        with Checkpoint(place, every=0) as ckpt:
            state = {
                "params": {"w": jnp.zeros((5, 1)), "b": jnp.zeros(1, "bfloat16")},
                "key": jax.random.key_data(jax.random.key(1)),
            }
            state = ckpt.load(default=state)
            params, key = jax.tree.map(jnp.asarray, state["params"]), jax.random.wrap_key_data(state["key"])
            for number in ckpt.steps(6):
                if number == stop_after:
                    return None
                params, key = step(params, key)
                ckpt.step_done({"params": params, "key": jax.random.key_data(key)})
        return params

    assert train(tmp_path / "taken", 3) is None
    resumed, undisturbed = train(tmp_path / "taken", 99), train(tmp_path / "undisturbed", 99)
    assert resumed["b"].dtype == "bfloat16"
    assert jax.tree.all(jax.tree.map(lambda ours, theirs: bool((ours == theirs).all()), resumed, undisturbed))
