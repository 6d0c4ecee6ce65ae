"""Steps that save their work as users do: in one file or several, with a log, by hand.

The docstring of each says what it does right or wrong. Their verdicts are in :mod:`tests.rehearsal.samples`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from kfp import dsl


def numpy_generator_forgotten(model: dsl.Output[dsl.Model]) -> None:
    """Resumes the weights, and starts NumPy's generator again."""
    import numpy as np

    rng = np.random.default_rng(0)
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.npz")
    epoch, w = 0, np.zeros(4)
    if saved.exists():
        with np.load(saved) as data:
            epoch, w = int(data["epoch"]), data["w"]
    while epoch < 20:
        time.sleep(0.01)
        w = w * 0.9 + rng.normal(size=4)
        epoch += 1
        with open(f"{saved}.tmp", "wb") as file:
            np.savez(file, epoch=epoch, w=w)
        os.replace(f"{saved}.tmp", saved)
    np.save(model.path + ".npy", w)
    os.replace(model.path + ".npy", model.path)


def numpy_generator_saved(model: dsl.Output[dsl.Model]) -> None:
    """Saves the state of NumPy's generator with the weights."""
    import pickle

    import numpy as np

    rng = np.random.default_rng(0)
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.pkl")
    epoch, w = 0, np.zeros(4)
    if saved.exists():
        state = pickle.loads(saved.read_bytes())
        epoch, w, rng.bit_generator.state = state["epoch"], state["w"], state["rng"]
    while epoch < 20:
        time.sleep(0.01)
        w = w * 0.9 + rng.normal(size=4)
        epoch += 1
        with open(f"{saved}.tmp", "wb") as file:
            pickle.dump({"epoch": epoch, "w": w, "rng": rng.bit_generator.state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{saved}.tmp", saved)
    Path(model.path).write_text(json.dumps(w.tolist()))


def shuffles_again(model: dsl.Output[dsl.Model]) -> None:
    """Shuffles the data at every start with a generator that goes on through the epochs."""
    import random

    random.seed(3)
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "ckpt.json")
    state: dict[str, Any] = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    data = list(range(50))
    for epoch in range(state["epoch"], 15):
        random.shuffle(data)
        w = state["w"]
        for value in data:
            w = w * 0.99 + value
        time.sleep(0.015)
        state = {"epoch": epoch + 1, "w": w}
        tmp = saved.with_name("ckpt.json.tmp")
        tmp.write_text(json.dumps(state))
        os.replace(tmp, saved)
    Path(model.path).write_text(str(state["w"]))


def logs_beside_checkpoint(log: dsl.Output[dsl.Dataset]) -> None:
    """Appends to a log in the checkpoint folder, then saves; the log is copied to the output."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    saved, rows = place / "epoch", place / "train.log"
    epoch = int(saved.read_text()) if saved.exists() else 0
    with rows.open("a", buffering=1) as file:
        while epoch < 15:
            time.sleep(0.015)
            file.write(f"epoch {epoch} loss {1 / (epoch + 1):.4f}\n")
            epoch += 1
            saved.with_suffix(".tmp").write_text(str(epoch))
            saved.with_suffix(".tmp").replace(saved)
    Path(log.path).write_text(rows.read_text())


def dedupes(log: dsl.Output[dsl.Dataset]) -> None:
    """Appends, and drops rows at or behind the saved position when it resumes."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    saved, rows = place / "epoch", place / "rows.csv"
    epoch = int(saved.read_text()) if saved.exists() else 0
    kept = rows.read_text().splitlines(keepends=True)[:epoch] if rows.exists() else []
    rows.with_suffix(".new").write_text("".join(kept))
    rows.with_suffix(".new").replace(rows)
    while epoch < 15:
        time.sleep(0.015)
        with rows.open("a") as file:
            file.write(f"{epoch},{epoch * epoch}\n")
        epoch += 1
        saved.with_suffix(".tmp").write_text(str(epoch))
        saved.with_suffix(".tmp").replace(saved)
    Path(log.path).write_text(rows.read_text())


def two_files_agree(model: dsl.Output[dsl.Model]) -> None:
    """Weights and optimizer in two files, both replaced atomically, read without a check."""
    import pickle

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    weights, optimizer = place / "weights.pkl", place / "optimizer.pkl"
    w, m, epoch = 1.0, 0.0, 0
    if optimizer.exists():
        w = pickle.loads(weights.read_bytes())
        m, epoch = pickle.loads(optimizer.read_bytes())
    while epoch < 20:
        time.sleep(0.01)
        m = m * 0.9 + w * 0.1 + epoch
        w = w - 0.01 * m
        epoch += 1
        for path, value in ((weights, w), (optimizer, (m, epoch))):
            tmp = path.with_suffix(".tmp")
            tmp.write_bytes(pickle.dumps(value))
            os.replace(tmp, path)
    Path(model.path).write_text(repr(w))


def two_files_checked(model: dsl.Output[dsl.Model]) -> None:
    """Two files named by epoch, and a pointer that is replaced last."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    pointer = place / "latest"
    w, m, epoch = 1.0, 0.0, 0
    if pointer.exists():
        epoch = int(pointer.read_text())
        w = float((place / f"weights-{epoch}").read_text())
        m = float((place / f"optimizer-{epoch}").read_text())
    while epoch < 20:
        time.sleep(0.01)
        m = m * 0.9 + w * 0.1 + epoch
        w = w - 0.01 * m
        epoch += 1
        (place / f"weights-{epoch}").write_text(repr(w))
        (place / f"optimizer-{epoch}").write_text(repr(m))
        (place / "latest.tmp").write_text(str(epoch))
        os.replace(place / "latest.tmp", pointer)
    Path(model.path).write_text(repr(w))


def pickle_in_place(model: dsl.Output[dsl.Model]) -> None:
    """Writes a large pickle in place."""
    import pickle

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "model.pkl")
    state: dict[str, Any] = {"epoch": 0, "w": [0.0] * 20000}
    if saved.exists():
        with saved.open("rb") as file:
            state = pickle.load(file)
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": [x + state["epoch"] for x in state["w"]]}
        with saved.open("wb") as file:
            pickle.dump(state, file)
    Path(model.path).write_text(str(sum(state["w"])))


def corrupt_means_start(model: dsl.Output[dsl.Model]) -> None:
    """Writes in place; a file that cannot be read counts as none."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    try:
        state = json.loads(saved.read_text())
    except (OSError, ValueError):
        state = {"epoch": 0, "w": 0.0}
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        saved.write_text(json.dumps(state))
    Path(model.path).write_text(str(state["w"]))


def alternates(model: dsl.Output[dsl.Model]) -> None:
    """Two slots in turn with a checksum each."""
    import hashlib

    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])

    def load(slot: int) -> Any:
        try:
            digest, text = (place / f"slot-{slot}").read_text().split("\n", 1)
        except (OSError, ValueError):
            return None
        return json.loads(text) if hashlib.sha256(text.encode()).hexdigest() == digest else None

    state = max(filter(None, (load(0), load(1))), key=lambda s: s["epoch"], default={"epoch": 0, "w": 0.0})
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        text = json.dumps(state)
        (place / f"slot-{state['epoch'] % 2}").write_text(hashlib.sha256(text.encode()).hexdigest() + "\n" + text)
    Path(model.path).write_text(str(state["w"]))


def saves_in_output_folder(model: dsl.Output[dsl.Model]) -> None:
    """Keeps its checkpoint in the folder of its output artifact."""
    folder = Path(model.path)
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "checkpoint.json"
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        saved.with_suffix(".tmp").write_text(json.dumps(state))
        saved.with_suffix(".tmp").replace(saved)


def saves_in_cwd() -> float:
    """Keeps its checkpoint in the current folder."""
    saved = Path("checkpoint.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        saved.with_suffix(".tmp").write_text(json.dumps(state))
        saved.with_suffix(".tmp").replace(saved)
    return state["w"]


def counts_epochs_wrongly() -> float:
    """Saves the number of the epoch that it has done, and does it again when it resumes."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state: dict[str, Any] = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    w = state["w"]
    for epoch in range(state["epoch"], 20):
        time.sleep(0.01)
        w = w * 0.9 + epoch
        saved.with_suffix(".tmp").write_text(json.dumps({"epoch": epoch, "w": w}))
        saved.with_suffix(".tmp").replace(saved)
    return w


def best_model_forgotten(model: dsl.Output[dsl.Model]) -> None:
    """Resumes the weights, and forgets the best score so far."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0}
    best = {"score": -1.0, "epoch": -1}
    while state["epoch"] < 20:
        time.sleep(0.01)
        score = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4][state["epoch"]]
        if score > best["score"]:
            best = {"score": score, "epoch": state["epoch"]}
        state = {"epoch": state["epoch"] + 1}
        saved.with_suffix(".tmp").write_text(json.dumps(state))
        saved.with_suffix(".tmp").replace(saved)
    Path(model.path).write_text(json.dumps(best))


def saves_rarely(model: dsl.Output[dsl.Model]) -> None:
    """Saves every fifth epoch, atomically."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    while state["epoch"] < 40:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        if state["epoch"] % 5 == 0:
            saved.with_suffix(".tmp").write_text(json.dumps(state))
            saved.with_suffix(".tmp").replace(saved)
    Path(model.path).write_text(str(state["w"]))


def removes_before_it_writes(model: dsl.Output[dsl.Model]) -> None:
    """Removes the old checkpoint before it writes the new one; without any it starts over."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    while state["epoch"] < 20:
        time.sleep(0.01)
        state = {"epoch": state["epoch"] + 1, "w": state["w"] * 0.9 + state["epoch"]}
        saved.with_suffix(".tmp").write_text(json.dumps(state))
        saved.unlink(missing_ok=True)
        saved.with_suffix(".tmp").rename(saved)
    Path(model.path).write_text(str(state["w"]))


def syncs_after_rename() -> int:
    """Renames first and syncs afterwards: safe against a kill, not against a power cut."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        with saved.with_suffix(".tmp").open("w") as file:
            file.write(str(step))
            file.flush()
            saved.with_suffix(".tmp").replace(saved)
            os.fsync(file.fileno())
    return step
