"""The preemptible-VM tutorial in today's SDK: copy a checkpoint once, train on four GPUs, go on after every preemption.

The copy is a step of its own, so that a training step that starts again never overwrites what it had saved with the initial
checkpoint. Where the tutorial wrote ``use_preemptible_nodepool()`` and ``set_retry(5)``, the task prefers spot.
"""

from kfp import dsl

import spotwright as spot


@dsl.component
def copy_checkpoint(steps_done: int, checkpoint: dsl.Output[dsl.Artifact]) -> None:
    """Write the initial checkpoint, as if it had been copied from a bucket."""
    with open(checkpoint.path, "w") as file:
        file.write(str(steps_done))


@dsl.component
def train(initial: dsl.Input[dsl.Artifact], steps: int, seconds_per_step: float) -> int:
    """Count steps up, saving each; goes on after the newest save, else after the initial checkpoint."""
    import os
    import time
    from pathlib import Path

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    place.mkdir(parents=True, exist_ok=True)
    saved, progress = place / "step", Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"])
    first = int(Path(initial.path).read_text())
    done = int(saved.read_text()) if saved.exists() else first
    print(f"starts after step {done}")
    while done < steps:
        progress.write_text(str((done - first) / (steps - first)))
        time.sleep(seconds_per_step)
        done += 1
        beside = place / "next"
        beside.write_text(str(done))
        beside.rename(saved)  # in one step: whole or absent
    return done


@dsl.pipeline(name="preemptible-training")
def training(steps: int = 40, steps_done: int = 10, seconds_per_step: float = 0.05) -> int:
    """Copy, then train on spot with up to five interruptions and five retries."""
    copied = copy_checkpoint(steps_done=steps_done)
    trained = train(initial=copied.outputs["checkpoint"], steps=steps, seconds_per_step=seconds_per_step)
    return spot.prefer(trained, interruptions=5, gpus=4).set_retry(5).output
