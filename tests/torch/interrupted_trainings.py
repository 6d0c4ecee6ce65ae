"""Trainings of :mod:`tests.torch.training` that a test interrupts and restarts, and their saves."""

from __future__ import annotations

import functools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.torch.ranks import Ranks, start
from tests.torch.training import train

from spotwright.checkpoint.save_log import SaveLog
from spotwright.checkpoint.store import open_store

__all__ = ["KINDS", "committed", "interrupted", "put_notice", "run", "saved_steps", "uninterrupted"]

KINDS = {"replicated": 2, "sharded": 2, "hybrid": 4}
"""Kinds of training, with their ranks."""


@functools.cache
def uninterrupted(kind: str, **settings: Any) -> list[float]:
    """Return the weights after a training without an interruption."""
    with tempfile.TemporaryDirectory() as folder:
        results = run(Path(folder), kind, **settings)
    weights: list[float] = results[0]["weights"]
    return weights


def run(folder: Path, kind: str, **settings: Any) -> list[Any]:
    place = str(folder / "place")
    with start(folder / f"run-{time.monotonic_ns()}", train, kind, place, settings, count=KINDS[kind]) as ranks:
        return ranks.results()


def interrupted(folder: Path, kind: str, settings: dict[str, Any], count: int = 0) -> Any:
    return start(folder / "interrupted", train, kind, str(folder / "place"), settings, count=count or KINDS[kind])


def saved_steps(ranks: Ranks) -> list[list[int]]:
    """Return at which steps each rank took part in a save."""
    return [[each["step"] for each in ranks.said(rank) if each.get("saved")] for rank in range(len(ranks.pids))]


def committed(folder: Path) -> list[int]:
    """Return the steps of the saves that count, newest first."""
    return [entry.data["step"] for entry in SaveLog(open_store(folder / "place")).saves()]


def put_notice(ranks: Ranks, seconds: float) -> None:
    """Let the node of the rank that is ``noticed`` go in so many seconds, and wait until it has seen that."""
    notice = {"kind": "preemption", "goes_at": time.time() + seconds, "certain": True}
    (ranks.folder / "notice.new").write_text(json.dumps(notice))
    (ranks.folder / "notice.new").rename(ranks.folder / "notice")
    time.sleep(1.5)  # the watch looks once a second
