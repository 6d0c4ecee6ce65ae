"""How long a notice takes from the provider to a program: ``noticing.py PROVIDER COUNT RESULT``.

Nodes with the provider's metadata server and a node agent in front of it, as in a local run; for each a program that watches.
Their notices come one after another, spread over the provider's polling interval, so that no phase is favoured.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import threading
import time
from pathlib import Path

from spotwright.local.imds_client import MetadataServers
from spotwright.model.pools import Capacity, Pool
from spotwright.notices import Notice, NoticeWatch, from_environment

INTERVALS = {"aks": 1.0, "gke": 0.0, "eks": 5.0}
PATIENCE = 30.0


class Attempt:
    """A program on a node that is notified."""

    def __init__(self, url: str) -> None:
        self.told = threading.Event()
        self.at = 0.0
        source = from_environment({"SPOTWRIGHT_NOTICE_URL": url})
        if source is None:
            sys.exit(f"{url} is not a source")
        self.watch = NoticeWatch(source, self._tell)
        self.watch.start()

    def _tell(self, notice: Notice | None) -> None:
        self.at = time.monotonic()
        if notice is not None:
            self.told.set()


def measure(provider: str, count: int) -> list[float]:
    """Seconds from each notice to its callback."""
    pool = Pool("p", Capacity.SPOT, provider, notice=60.0)
    with selectors.DefaultSelector() as selector:
        metadata = MetadataServers(selector, {}, scale=1.0)
        attempts: list[Attempt] = []
        for number in range(count):
            metadata.boot(f"p-{number}", pool)
            attempts.append(Attempt(metadata.environment(f"p-{number}")["SPOTWRIGHT_NOTICE_URL"]))
        deadline = time.monotonic() + PATIENCE
        while not all(attempt.watch.answered for attempt in attempts) and time.monotonic() < deadline:
            time.sleep(0.05)
        given: list[float] = []
        for number in range(count):
            time.sleep(INTERVALS[provider] / count + 0.02)
            given.append(time.monotonic())
            metadata.notice(f"p-{number}", 60.0)
        if not all(attempt.told.wait(PATIENCE) for attempt in attempts):
            sys.exit(f"{provider}: a notice did not arrive within {PATIENCE:g}s")
        metadata.close()
    return [attempt.at - at for attempt, at in zip(attempts, given, strict=True)]


if __name__ == "__main__":
    provider, count, result = sys.argv[1:]
    seconds = measure(provider, int(count))
    Path(result).write_text(json.dumps({"seconds": seconds, "interval": INTERVALS[provider]}))
    os._exit(0)
