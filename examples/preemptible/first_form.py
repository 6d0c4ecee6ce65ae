"""The tutorial's pipeline before it was made fit for preemptible nodes: copying the checkpoint is part of the training step.

A training step that is preempted starts again, copies again, and wipes what it had saved with the initial checkpoint. Its
result is right, if it ever gets there. ``spotwright rehearse --must-resume`` says so before the first preemption.
"""

from kfp import dsl
from pipeline import PACKAGES, copy_data

import spotwright as spot


@dsl.component(packages_to_install=PACKAGES)
def copy_and_train(
    data: dsl.Input[dsl.Dataset],
    initial: dsl.Input[dsl.Model],
    epochs: int,
    seconds_per_epoch: float,
    model: dsl.Output[dsl.Model],
) -> float:
    """Copy the initial checkpoint into place, train from what is there, saving every epoch; return the accuracy."""
    import os
    import shutil
    import time
    from pathlib import Path

    import numpy

    place = Path(os.environ.get("SPOTWRIGHT_CHECKPOINT", "checkpoint"))
    place.mkdir(exist_ok=True)
    newest, beside = place / "newest.npz", place / "beside.npz"
    shutil.copy(initial.path, newest)  # here: also when something newer is there

    with numpy.load(newest) as file:
        hidden, output, done = file["hidden"], file["output"], int(file["epochs"])
    with numpy.load(data.path) as file:
        images, labels = file["images"], file["labels"]
    for epoch in range(done, epochs):
        for batch in numpy.split(numpy.random.default_rng(epoch).permutation(1500), 50):
            inside = numpy.tanh(images[batch] @ hidden)
            odds = numpy.exp(inside @ output)
            error = (odds / odds.sum(axis=1, keepdims=True) - numpy.eye(10)[labels[batch]]) / len(batch)
            back = error @ output.T * (1 - inside**2)
            output = output - 0.5 * inside.T @ error
            hidden = hidden - 0.5 * images[batch].T @ back
        time.sleep(seconds_per_epoch)  # stands for the hours that real data takes
        numpy.savez(beside, hidden=hidden, output=output, epochs=epoch + 1)
        beside.rename(newest)  # in one step: whole or absent

    guessed = (numpy.tanh(images[1500:] @ hidden) @ output).argmax(axis=1)
    with open(model.path, "wb") as file:
        numpy.savez(file, hidden=hidden, output=output)
    return round(float((guessed == labels[1500:]).mean()), 3)


@dsl.pipeline(name="preemptible-training-first-form")
def training(epochs: int = 30, seconds_per_epoch: float = 0.05) -> float:
    """Copy and train on spot in one step, with up to five interruptions and five retries."""
    copied = copy_data()
    trained = copy_and_train(
        data=copied.outputs["data"],
        initial=copied.outputs["initial"],
        epochs=epochs,
        seconds_per_epoch=seconds_per_epoch,
    )
    return spot.prefer(trained, interruptions=5, gpus=4).set_retry(5).outputs["Output"]
