"""The download-and-merge pipeline of the Kubeflow spot tutorials, followed by a training step that checkpoints by hand.

The first two steps are what tutorials run on spot: a download, and a merge of the CSV files in the archive. They are short
and simply run again when their node is taken. The third trains a classifier, one epoch after another, and goes on where the
attempt before it was interrupted.
"""

from typing import NamedTuple

from kfp import dsl

PACKAGES: list[str] = []  # pandas, with NumPy, comes with `make demo`; on a cluster: ["pandas"]


@dsl.component
def download(url: str, data: dsl.Output[dsl.Artifact]) -> int:
    """Fetch the archive; return its size in bytes."""
    import shutil
    import urllib.request

    with urllib.request.urlopen(url) as response, open(data.path, "wb") as file:
        shutil.copyfileobj(response, file)
        size = file.tell()
    print(f"fetched {size} bytes")
    return size


@dsl.component(packages_to_install=PACKAGES)
def merge_csv(archive: dsl.Input[dsl.Artifact], table: dsl.Output[dsl.Dataset]) -> int:
    """Merge the CSV files of a tar.gz into one; return the number of rows."""
    import tarfile

    import pandas

    with tarfile.open(archive.path) as tar:
        frames = [
            pandas.read_csv(tar.extractfile(member)) for member in tar.getmembers() if member.name.endswith(".csv")
        ]
    merged = pandas.concat(frames, ignore_index=True)
    merged.to_csv(table.path, index=False)
    print(f"merged {len(frames)} files, {len(merged)} rows")
    return len(merged)


@dsl.component(packages_to_install=PACKAGES)
def train(
    table: dsl.Input[dsl.Dataset], epochs: int, save_every: int, seconds_per_epoch: float, model: dsl.Output[dsl.Model]
) -> float:
    """Train a linear classifier and return its accuracy. Saves every few epochs, goes on after the last one saved."""
    import csv
    import os
    import time
    from pathlib import Path

    from spotwright.checkpoint import progress

    place = Path(os.environ.get("SPOTWRIGHT_CHECKPOINT", "checkpoint"))  # a folder of our own outside of Spotwright
    place.mkdir(exist_ok=True)
    saved = sorted(place.glob("epoch-*.npy"))
    done = int(saved[-1].stem.split("-")[1]) if saved else 0
    progress(done / epochs)  # before slow imports: from here on the work is measured by its progress

    import numpy

    with open(table.path) as file:
        rows = list(csv.DictReader(file))
    measured = [[float(row[name]) for name in row if name != "species"] for row in rows]
    features = (numpy.array(measured) - numpy.mean(measured, axis=0)) / numpy.std(measured, axis=0)
    features = numpy.column_stack([features, numpy.ones(len(rows))])
    classes, labels = numpy.unique([row["species"] for row in rows], return_inverse=True)
    if saved:
        weights = numpy.load(saved[-1])
        print(f"goes on after epoch {done}")
    else:
        weights = numpy.zeros((features.shape[1], len(classes)))

    def accuracy() -> float:
        return round(float(((features @ weights).argmax(axis=1) == labels).mean()), 3)

    for epoch in range(done, epochs):
        for i in numpy.random.default_rng(epoch).permutation(len(rows)):  # the same order whenever the epoch is run
            odds = numpy.exp(features[i] @ weights)
            error = odds / odds.sum() - (numpy.arange(len(classes)) == labels[i])
            weights -= 0.1 * numpy.outer(features[i], error)
        time.sleep(seconds_per_epoch)  # stands for the hours that real data takes
        if (epoch + 1) % save_every == 0:
            beside = place / "next.npy"
            numpy.save(beside, weights)
            beside.rename(place / f"epoch-{epoch + 1:04d}.npy")  # in one step: whole or absent
        progress((epoch + 1) / epochs)
        print(f"epoch {epoch + 1} of {epochs}: accuracy {accuracy():.3f}")

    with open(model.path, "wb") as file:
        numpy.savez(file, weights=weights, classes=classes)
    model.metadata["epochs"] = epochs
    return accuracy()


class Outputs(NamedTuple):
    """The outputs of the pipeline."""

    accuracy: float
    model: dsl.Model


@dsl.pipeline(name="iris")
def iris(url: str, epochs: int = 40, save_every: int = 5, seconds_per_epoch: float = 0.1) -> Outputs:
    """Download the archive, merge its files, train on them."""
    archive = download(url=url)
    merged = merge_csv(archive=archive.outputs["data"])
    training = train(
        table=merged.outputs["table"], epochs=epochs, save_every=save_every, seconds_per_epoch=seconds_per_epoch
    )
    training.set_cpu_request("2").set_memory_request("4Gi")
    return Outputs(training.outputs["Output"], training.outputs["model"])
