"""Kills a process that saves, at random moments, and counts wrong loads: ``killing.py FOLDER KILLS SEED [RESULT]``.

Each child goes on where the last one was killed: it loads, then saves states whose parts depend on their number, and tells each
number through a pipe once its save has returned. A load is right when the state is whole, was begun at all, and is not older
than the last one that was confirmed.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from spotwright.checkpoint import Checkpoint


def state_of(number: int) -> dict[str, object]:
    """A state of a specific size, every part of which contains its number."""
    mark = number.to_bytes(8, "little")
    return {"number": number, "small": [mark] * (number % 7), "large": mark * (1 + number * 7919 % 60_000)}


def save_for_ever(folder: str, confirmed: int) -> None:
    """The child: load, then save until it is killed."""
    ckpt = Checkpoint(folder)
    number = ckpt.load(default={"number": 0})["number"]
    while True:
        number += 1
        ckpt.save(state_of(number))
        os.write(confirmed, number.to_bytes(8, "little"))


def kill_once(folder: str, chance: random.Random) -> int:
    """Start a child, kill it after its first line or later; return the last number that it confirmed, 0 for none."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        save_for_ever(folder, theirs)
    os.close(theirs)
    if chance.random() < 0.9:
        select.select([ours], [], [], 10)
    time.sleep(chance.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as pipe:
        numbers = pipe.read()
    return int.from_bytes(numbers[-8:], "little")


def main(folder: str, kills: int, seed: int) -> dict[str, int]:
    """Kill and load; return the counts of the results."""
    chance = random.Random(seed)  # noqa: S311  # a kill is no secret
    found = {"kills": kills, "wrong": 0, "older": 0, "inside": 0, "last": 0}
    newest = 0
    for _ in range(kills):
        newest = max(newest, kill_once(folder, chance))
        with Checkpoint(folder, writer=False) as reader:
            loaded = reader.load(default={"number": 0})
            states = sum(name.startswith("state-") for name in reader._manager.store.names())
            found["inside"] += states > sum(1 for _ in reader._manager.log.saves())
        number = loaded["number"]
        found["wrong"] += bool(number) and loaded != state_of(number)
        found["older"] += number < newest
        newest = max(newest, number)
    found["last"] = newest
    return found


if __name__ == "__main__":
    report = json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    Path(sys.argv[4] if len(sys.argv) > 4 else "/dev/stdout").write_text(report)
