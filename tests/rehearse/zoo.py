"""Steps of every sort, safe and unsafe, as people write them. What each does wrong stands in its docstring.

Every one is a component: it works for a fifth of a second, in small steps, and gives a number that depends on each of them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl

from spotwright.rehearsal.verdict import Verdict

__all__ = ["ZOO", "Animal"]


def library() -> float:
    """Checkpoints with the library."""
    from spotwright.checkpoint import Checkpoint

    checkpoint = Checkpoint()
    state = checkpoint.load(default={"x": 1.0})
    for step in checkpoint.steps(20):
        time.sleep(0.01)
        state["x"] = state["x"] * 0.9 + step
        checkpoint.step_done(state)
    return float(state["x"])


def by_hand(model: dsl.Output[dsl.Dataset]) -> float:
    """Checkpoints by hand, whole or absent."""
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
    """The same, and says how far it is."""
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


def starts_over(model: dsl.Output[dsl.Dataset]) -> float:
    """Saves nothing, and is the same whenever it runs."""
    x = 1.0
    for step in range(20):
        time.sleep(0.01)
        x = x * 0.9 + step
    Path(model.path).write_text(str(x))
    return x


def starts_over_and_reports() -> float:
    """The same, and says how far it is."""
    x = 1.0
    for step in range(20):
        Path(os.environ["SPOTWRIGHT_PROGRESS_FILE"]).write_text(str(step / 20))
        time.sleep(0.01)
        x = x * 0.9 + step
    return x


def timestamps(model: dsl.Output[dsl.Dataset]) -> float:
    """Goes on, and its outputs hold the time and a random number: they differ without any interruption."""
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
    """Does not listen to SIGTERM; goes on all the same."""
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
    """The first form of a well-known tutorial: whenever it starts, the initial checkpoint takes the place of the newest."""
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
    """Appends to a file that stays, and saves afterwards how far it is."""
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
    """Appends to a file of the host's whenever it runs, and begins anew."""
    for step in range(20):
        time.sleep(0.01)
        with Path(ledger).open("a") as file:
            file.write(f"{step}\n")
    return 20


def half_a_file() -> int:
    """Takes a file that is there for one that is whole."""
    cached = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "downloaded.txt")
    if not cached.exists():
        with cached.open("w", buffering=1) as file:
            for line in range(20):
                time.sleep(0.008)
                file.write(f"{line}\n")
    time.sleep(0.04)
    return sum(map(int, cached.read_text().split()))


def torn() -> int:
    """Writes its checkpoint in place; a restart that finds half of it crashes."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "state.json")
    step = json.loads(saved.read_text())["step"] if saved.exists() else 0
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.write_text(json.dumps({"step": step}))
    return int(step)


def torn_slowly() -> int:
    """The same with a checkpoint that takes a while to write."""
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
    """Each of its two files is whole or absent, both together are not."""
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
    """Ends with 0 on SIGTERM, having written what it had: that counts as done."""
    done = [0]
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    while done[0] < 20 and not stop:
        time.sleep(0.01)
        done[0] += 1
    return done[0]


def forgets_the_seed() -> float:
    """Goes on, but with random numbers from their beginning."""
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


def waits_for_a_lock() -> int:
    """Leaves a lock behind, and waits for it."""
    lock = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "lock")
    while lock.exists():
        time.sleep(0.01)
    lock.touch()
    time.sleep(0.2)
    lock.unlink()
    return 1


def restores_for_ever() -> int:
    """Loading its checkpoint takes longer than the work that was saved."""
    saved = Path(os.environ["SPOTWRIGHT_CHECKPOINT"], "step")
    step = int(saved.read_text()) if saved.exists() else 0
    time.sleep(step * 3.0)
    while step < 20:
        time.sleep(0.01)
        step += 1
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").rename(saved)
    return step


@dataclass(frozen=True)
class Animal:
    """A step and the one right verdict about it; ``keeps`` says that it writes to a place of the host's."""

    step: Callable[..., Any]
    verdict: Verdict
    keeps: bool = False


ZOO = {
    animal.step.__name__: animal
    for animal in (
        Animal(library, Verdict.RESUMES),
        Animal(by_hand, Verdict.RESUMES),
        Animal(by_hand_and_reports, Verdict.RESUMES),
        Animal(timestamps, Verdict.RESUMES),
        Animal(ignores_sigterm, Verdict.RESUMES),
        Animal(starts_over, Verdict.STARTS_OVER),
        Animal(starts_over_and_reports, Verdict.STARTS_OVER),
        Animal(wipes, Verdict.STARTS_OVER),
        Animal(appends_twice, Verdict.UNSAFE),
        Animal(appends_twice_elsewhere, Verdict.UNSAFE, keeps=True),
        Animal(half_a_file, Verdict.UNSAFE),
        Animal(torn, Verdict.UNSAFE),
        Animal(torn_slowly, Verdict.UNSAFE),
        Animal(torn_in_two, Verdict.UNSAFE),
        Animal(says_done, Verdict.UNSAFE),
        Animal(forgets_the_seed, Verdict.UNSAFE),
        Animal(waits_for_a_lock, Verdict.NEVER),
        Animal(restores_for_ever, Verdict.NEVER),
    )
}
