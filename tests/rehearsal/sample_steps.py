"""Sample steps, safe and unsafe, as users write them. The docstring of each says what it does right or wrong.

Each is a component that works for 0.2 seconds in small iterations and returns a number that depends on every iteration.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from kfp import dsl


def library() -> float:
    """Resumes from checkpoints of the library."""
    from spotwright.checkpoint import Checkpoint

    checkpoint = Checkpoint()
    state = checkpoint.load(default={"x": 1.0})
    for step in checkpoint.steps(20):
        time.sleep(0.01)
        state["x"] = state["x"] * 0.9 + step
        checkpoint.step_done(state)
    return float(state["x"])


def by_hand(model: dsl.Output[dsl.Dataset]) -> float:
    """Resumes from its own checkpoint file, which it replaces atomically."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "x": 1.0}
    while state["step"] < 20:
        time.sleep(0.01)
        state = {"step": state["step"] + 1, "x": state["x"] * 0.9 + state["step"]}
        beside = saved.with_suffix(".new")
        beside.write_text(json.dumps(state))
        beside.rename(saved)
    Path(model.path).write_text(json.dumps(state))
    return float(state["x"])


def by_hand_and_reports(model: dsl.Output[dsl.Dataset]) -> float:
    """Resumes from its own checkpoint file and reports progress."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "x": 1.0}
    Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(state["step"] / 20))
    while state["step"] < 20:
        time.sleep(0.01)
        state = {"step": state["step"] + 1, "x": state["x"] * 0.9 + state["step"]}
        beside = saved.with_suffix(".new")
        beside.write_text(json.dumps(state))
        beside.rename(saved)
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(state["step"] / 20))
    Path(model.path).write_text(json.dumps(state))
    return float(state["x"])


def saves_at_the_notice() -> int:
    """Saves only when SIGTERM comes, so that a kill without notice loses everything."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    stop: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while step < 40:
        time.sleep(0.01)
        step += 1
        if stop:
            saved.with_suffix(".new").write_text(str(step))
            saved.with_suffix(".new").rename(saved)
            sys.exit(143)
    return step


def saves_at_the_notice_and_reports() -> int:
    """Saves only when SIGTERM comes, and reports progress."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    stop: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while step < 40:
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(step / 40))
        time.sleep(0.01)
        step += 1
        if stop:
            saved.with_suffix(".new").write_text(str(step))
            saved.with_suffix(".new").rename(saved)
            sys.exit(143)
    return step


def starts_over(model: dsl.Output[dsl.Dataset]) -> float:
    """Saves nothing, and gives the same result every time."""
    x = 1.0
    for step in range(20):
        time.sleep(0.01)
        x = x * 0.9 + step
    Path(model.path).write_text(str(x))
    return x


def starts_over_and_reports() -> float:
    """Saves nothing and reports progress."""
    x = 1.0
    for step in range(20):
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(step / 20))
        time.sleep(0.01)
        x = x * 0.9 + step
    return x


def timestamps(model: dsl.Output[dsl.Dataset]) -> float:
    """Resumes; its outputs hold the time and a random number, so they differ without any interruption."""
    import random

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    made = {"at": time.time(), "steps": step, "luck": random.random()}  # noqa: S311 (what people write)
    Path(model.path).write_text(json.dumps(made))
    return time.time()


def ignores_sigterm() -> int:
    """Ignores SIGTERM, and still resumes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def wipes() -> int:
    """Like the first form of a well-known tutorial: every start overwrites the newest checkpoint with the initial one."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    saved.write_text("0")
    step = int(saved.read_text())
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def appends_twice(table: dsl.Output[dsl.Dataset]) -> int:
    """Appends to a persistent file first and saves its position afterwards, so a row may be written twice."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])
    rows, saved = place / "rows.csv", place / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        with rows.open("a") as file:
            file.write(f"{step}\n")
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    Path(table.path).write_text(rows.read_text())
    return step


def appends_twice_elsewhere(ledger: str) -> int:
    """Appends to a file of the host, and starts over at every attempt."""
    for step in range(20):
        time.sleep(0.01)
        with Path(ledger).open("a") as file:
            file.write(f"{step}\n")
    return 20


def half_a_file() -> int:
    """Takes an existing file for a complete one."""
    cached = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "downloaded.txt")
    if not cached.exists():
        with cached.open("w", buffering=1) as file:
            for line in range(20):
                time.sleep(0.008)
                file.write(f"{line}\n")
    time.sleep(0.04)
    return sum(map(int, cached.read_text().split()))


def renames_too_early() -> int:
    """Puts its checkpoint in place before the content is written out of the buffer."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    step = json.loads(saved.read_text())["step"] if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        beside = saved.with_suffix(".new")
        with beside.open("w") as file:
            file.write(json.dumps({"step": step}))
            beside.rename(saved)
    return int(step)


def torn() -> int:
    """Writes its checkpoint in place; a restart that reads half of it crashes."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    step = json.loads(saved.read_text())["step"] if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.write_text(json.dumps({"step": step}))
    return int(step)


def torn_slowly() -> int:
    """Writes its checkpoint in place, and slowly."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    step = json.loads(saved.read_text())["step"] if saved.exists() else 0
    while step < 10:
        time.sleep(0.01)
        step += 1
        with saved.open("w", buffering=1) as file:
            file.write('{"weights": [0,\n')
            time.sleep(0.01)
            file.write(f'0], "step": {step}}}')
    return int(step)


def torn_in_two() -> float:
    """Replaces each of two files atomically, but not both together."""
    place = Path(os.environ["SPOTWRIGHT_CHECKPOINT"])

    def put(name: str, text: str) -> None:
        (place / f"{name}.new").write_text(text)
        (place / f"{name}.new").rename(place / name)

    step = int((place / "step").read_text()) if (place / "step").exists() else 0
    x = float((place / "x").read_text()) if (place / "x").exists() else 1.0
    while step < 20:
        time.sleep(0.01)
        x = x * 0.9 + step
        step += 1
        put("x", repr(x))
        put("step", str(step))
    return x


def says_done() -> int:
    """Exits with 0 on SIGTERM with a partial result, which counts as success."""
    done = [0]
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while done[0] < 20 and not stop:
        time.sleep(0.01)
        done[0] += 1
    return done[0]


def leaves_half(table: dsl.Output[dsl.Dataset]) -> None:
    """Exits with 0 on SIGTERM while its only output, an artifact, is half written."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Path(table.path).open("w", buffering=1) as file:
        for row in range(20):
            time.sleep(0.01)
            file.write(f"{row}\n")


def leaves_half_and_saves(table: dsl.Output[dsl.Dataset]) -> None:
    """Resumes from its own output rows, and exits with 0 on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "rows")
    rows = json.loads(saved.read_text()) if saved.exists() else []
    while len(rows) < 20:
        time.sleep(0.01)
        rows.append(len(rows))
        saved.with_suffix(".new").write_text(json.dumps(rows))
        saved.with_suffix(".new").rename(saved)
        Path(table.path).write_text(json.dumps(rows))


def forgets_the_seed() -> float:
    """Resumes, but restarts its sequence of random numbers."""
    import random

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "x": 0.0}
    chance = random.Random(7)  # noqa: S311 (what people write)
    while state["step"] < 20:
        time.sleep(0.01)
        state = {"step": state["step"] + 1, "x": state["x"] + chance.random()}
        saved.with_suffix(".new").write_text(json.dumps(state))
        saved.with_suffix(".new").rename(saved)
    return float(state["x"])


def seeds_again() -> float:
    """Resumes, but seeds the shared generator at each start."""
    import random

    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    state = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "x": 0.0}
    random.seed(7)
    while state["step"] < 20:
        time.sleep(0.01)
        state = {"step": state["step"] + 1, "x": state["x"] + random.random()}  # noqa: S311 (what people write)
        saved.with_suffix(".new").write_text(json.dumps(state))
        saved.with_suffix(".new").rename(saved)
    return float(state["x"])


def waits_for_a_lock() -> int:
    """Leaves a lock file behind, and waits until it is gone."""
    lock = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "lock")
    while lock.exists():
        time.sleep(0.01)
    lock.touch()
    time.sleep(0.2)
    lock.unlink()
    return 1


def restores_for_ever() -> int:
    """Takes longer to load its checkpoint than to redo the saved work."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    time.sleep(step * 3.0)
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def saves_in_tmp() -> int:
    """Replaces its checkpoint atomically, in a folder that a pod loses with its node."""
    saved = Path("/tmp/training-state")  # noqa: S108 (what people write)
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def saves_in_home() -> int:
    """Replaces its checkpoint atomically, in a cache folder of the home folder."""
    saved = Path.home() / ".cache" / "training-run" / "state"
    saved.parent.mkdir(parents=True, exist_ok=True)
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def saves_elsewhere() -> int:
    """Replaces its checkpoint atomically, in a folder of the machine where no volume is mounted."""
    saved = Path("/opt/training-run/state")
    saved.parent.mkdir(parents=True, exist_ok=True)
    step = int(saved.read_text()) if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


def keeps_a_log() -> int:
    """Resumes from a log with one line for each iteration, appended in one write."""
    log = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "log.jsonl")
    lines = log.read_text().splitlines() if log.exists() else []
    x = sum(json.loads(line)["x"] for line in lines)
    for step in range(len(lines), 20):
        time.sleep(0.01)
        with log.open("a") as file:
            file.write(json.dumps({"x": step}) + "\n")
        x += step
    return int(x)
