"""A training program that prints each event of its end on a line: ``terminated_program.py MODE FOLDER``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from spotwright.checkpoint import Checkpoint

MODE, PLACE = sys.argv[1], sys.argv[2]


def say(*words: object) -> None:
    """In one call of the system: a handler may say something in the middle of it, which Python's own files do not allow."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def work(seconds: float) -> None:
    """Work that a signal's handler may interrupt only by an exception."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.005)


def steps(ckpt: Checkpoint, seconds: float, total: int = 1000) -> None:
    for step in ckpt.steps(total):
        say("begins", step)
        work(60 if MODE == "long" and step == 3 else seconds)
        saved = ckpt.step_done({"step": step})
        say("ended", step, saved)


def slow_disk() -> None:
    sync = os.fsync

    def slow(fd: Any) -> None:
        say("saving")
        os.read(0, 1)  # until SIGTERM was sent
        sync(fd)

    os.fsync = slow


def plain(ckpt: Checkpoint) -> None:
    steps(ckpt, 0.2)


def known_too_long(ckpt: Checkpoint) -> None:
    """SIGTERM arrives at the beginning of the second step; its handler runs before this continues."""
    for step in ckpt.steps(1000):
        say("begins", step)
        if step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            say("goes on")
        work(1)
        ckpt.step_done({"step": step})


def idle(_: Checkpoint) -> None:
    say("begins idle")
    work(60)


def slow_save(ckpt: Checkpoint) -> None:
    slow_disk()
    steps(ckpt, 0.01)


def lone_save(ckpt: Checkpoint) -> None:
    slow_disk()
    ckpt.save("whole")


def polled(ckpt: Checkpoint) -> None:
    with ckpt:
        while not ckpt.should_stop():
            say("begins to wait")
            work(0.01)
        ckpt.save("in the middle")


def broken_off(ckpt: Checkpoint) -> None:
    with ckpt:
        for step in ckpt.steps(1000):
            say("begins", step)
            while not ckpt.should_stop():
                work(0.01)
            break


def forked(ckpt: Checkpoint) -> None:
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.write(theirs, b"ready")  # what comes while it is being made is lost by Python itself
        work(60)
    os.read(ours, 5)
    os.kill(child, signal.SIGTERM)
    say("the child ended with", os.waitpid(child, 0)[1])
    steps(ckpt, 0.01, total=3)


def deaf(ckpt: Checkpoint) -> None:
    for step in ckpt.steps(1000):
        say("begins", step)
        try:
            work(60)
        except SystemExit:
            say("caught")
            work(60)


MODES = {
    "known too long": known_too_long,
    "idle": idle,
    "slow save": slow_save,
    "lone save": lone_save,
    "polled": polled,
    "broken off": broken_off,
    "forked": forked,
    "deaf": deaf,
}


def main() -> None:
    if MODE == "ignoring":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE in {"chained", "lone save"}:
        signal.signal(signal.SIGTERM, lambda *_: say("the user's own handler"))
    if MODE == "exiting":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ckpt = Checkpoint(PLACE, every=0 if MODE == "long" else 3600)
    ckpt.load()
    ckpt.on_notice(lambda notice: say("notice", notice.kind if notice else None, round(ckpt.seconds_left(), 1)))
    MODES.get(MODE, plain)(ckpt)
    say("success")
    Path(PLACE, "output").write_text("claimed")


if __name__ == "__main__":
    main()
