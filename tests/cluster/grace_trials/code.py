"""The code in the pods of the trials: it writes down each moment of its life into a file that outlives its pod.

``code.py saving FILE PLACE`` trains with the checkpoint library. ``code.py plain FILE`` does not know it: it begins to save when
SIGTERM comes, which takes as long as a step. ``code.py quick FILE`` ends at SIGTERM. The FILE ``-`` is the standard output. Each
line is a moment in Unix seconds, and a word: ``alive`` ten times a second, ``notice``, ``sigterm``, ``saved``.
"""

from __future__ import annotations

import os
import signal
import sys
import time

STEP = 4.0  # seconds


def say(word: str) -> None:
    os.write(_FILE, f"{time.time():.3f} {word}\n".encode())


def end() -> None:
    say("sigterm")
    if sys.argv[1] == "plain":
        work(STEP)
        say("saved")
    sys.exit(143)


def work(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        say("alive")
        time.sleep(0.1)


def train(place: str) -> None:
    """Steps of four seconds; but for the first one, a save is not due for an hour."""
    from spotwright.checkpoint import Checkpoint

    with Checkpoint(place, every=3600) as ckpt:
        state = ckpt.load(default={"at": 0.0})
        ckpt.on_notice(lambda notice: say("notice" if notice else "withdrawn"))
        for _ in ckpt.steps(1000):
            work(STEP)
            if ckpt.step_done({**state, "at": time.time()}):
                say("saved")


_FILE = 1 if sys.argv[2] == "-" else os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
if __name__ == "__main__":
    if sys.argv[1] == "saving":
        signal.signal(signal.SIGTERM, lambda *_: say("sigterm"))
        train(sys.argv[3])
    else:
        signal.signal(signal.SIGTERM, lambda *_: end())
        work(3600)
