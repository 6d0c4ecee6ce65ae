"""The preemptible-VM tutorial in today's SDK: copy data and an initial checkpoint, train, go on after every preemption.

The copy is a step of its own, so that a training step that starts again never overwrites what it had saved with the initial
checkpoint; ``first_form.py`` is how it was before. Where the tutorial wrote ``use_preemptible_nodepool()`` and
``set_retry(5)``, the task prefers spot. The data are scikit-learn's handwritten digits, the model is a small network.
"""

from kfp import dsl

import spotwright as spot

PACKAGES: list[str] = []  # on a cluster: ["scikit-learn"]; spotwright compile brings spotwright.checkpoint


@dsl.component(packages_to_install=PACKAGES)
def copy_data(data: dsl.Output[dsl.Dataset], initial: dsl.Output[dsl.Model]) -> int:
    """Write the digits and the initial checkpoint, as if they had been copied from a bucket; return how many digits."""
    import numpy
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    chance = numpy.random.default_rng(0)
    with open(data.path, "wb") as file:
        numpy.savez(file, images=images / 16.0, labels=labels)
    with open(initial.path, "wb") as file:
        numpy.savez(
            file, hidden=chance.normal(0, 0.1, (64, 32)), output=chance.normal(0, 0.1, (32, 10)), epochs=numpy.array(0)
        )
    return len(labels)


@dsl.component(packages_to_install=PACKAGES)
def train(
    data: dsl.Input[dsl.Dataset],
    initial: dsl.Input[dsl.Model],
    epochs: int,
    seconds_per_epoch: float,
    model: dsl.Output[dsl.Model],
) -> float:
    """Train from the initial checkpoint, or from the newest one of an earlier attempt; return the accuracy."""
    import time

    import numpy

    from spotwright.checkpoint import Checkpoint

    with numpy.load(initial.path) as file:
        first = {"hidden": file["hidden"], "output": file["output"]}
    checkpoint = Checkpoint(program="digits/1")  # it finds its own pace: from what a save costs and how long nodes live
    weights = checkpoint.load(default=first)

    with numpy.load(data.path) as file:
        images, labels = file["images"], file["labels"]
    for epoch in checkpoint.steps(epochs):
        order = numpy.random.default_rng(epoch).permutation(
            1500
        )  # the same whenever the epoch is done; 297 are for testing
        for batch in numpy.split(order, 50):
            inside = numpy.tanh(images[batch] @ weights["hidden"])
            odds = numpy.exp(inside @ weights["output"])
            error = (odds / odds.sum(axis=1, keepdims=True) - numpy.eye(10)[labels[batch]]) / len(batch)
            back = error @ weights["output"].T * (1 - inside**2)
            weights["output"] = weights["output"] - 0.5 * inside.T @ error
            weights["hidden"] = weights["hidden"] - 0.5 * images[batch].T @ back
        time.sleep(seconds_per_epoch)  # stands for the hours that real data takes
        checkpoint.step_done(weights)

    guessed = (numpy.tanh(images[1500:] @ weights["hidden"]) @ weights["output"]).argmax(axis=1)
    with open(model.path, "wb") as file:
        numpy.savez(file, **weights)
    return round(float((guessed == labels[1500:]).mean()), 3)


@dsl.pipeline(name="preemptible-training")
def training(epochs: int = 30, seconds_per_epoch: float = 0.05) -> float:
    """Copy, then train on spot with up to five interruptions and five retries."""
    copied = copy_data()
    trained = train(
        data=copied.outputs["data"],
        initial=copied.outputs["initial"],
        epochs=epochs,
        seconds_per_epoch=seconds_per_epoch,
    )
    return spot.prefer(trained, interruptions=5, gpus=4).set_retry(5).outputs["Output"]
