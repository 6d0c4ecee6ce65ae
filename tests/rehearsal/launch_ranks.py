"""Starts ranks, and ends all when one ends with an error, as torchrun does: ``launch_ranks.py COUNT PROGRAM...``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def main(count: int, program: list[str]) -> int:
    """Start the ranks, each in a session of its own, and wait until all have ended."""
    ranks = [
        subprocess.Popen(
            [sys.executable, *program],
            start_new_session=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count)},
        )
        for rank in range(count)
    ]

    def end(*_: object) -> None:
        for rank in ranks:
            rank.terminate()

    signal.signal(signal.SIGTERM, end)
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            end()
            for rank in ranks:
                rank.wait()
        time.sleep(0.02)
    return int(any(rank.returncode for rank in ranks))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
