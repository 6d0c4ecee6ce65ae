"""In a local run: a task that uses the library loses no work at all where the notice fits a save."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
from kfp import dsl


@dsl.component
def train(epochs: int) -> str:
    import os
    import time

    from spotwright.checkpoint import Checkpoint, notice

    ckpt = Checkpoint()
    state = ckpt.load(default={"done": []})
    for epoch in ckpt.steps(epochs):
        while epoch == 5 and os.environ["SPOTWRIGHT_ATTEMPT"] == "1" and not notice():
            time.sleep(0.01)  # its node is taken, however late the engine sees the progress
        state["done"].append(epoch)
        ckpt.step_done(state)
    print(ckpt.explain())
    return str(state["done"])


@dsl.pipeline
def training(epochs: int = 20) -> str:
    return train(epochs=epochs).output
"""

POOLS = """
version: 1
pools:
  taken: {capacity: spot, node: {cpu: 4}, notice: 10m, simulate: {boot: 0s, interrupt_every: 1h, expected_duration: 10000h}}
  kept: {capacity: spot, node: {cpu: 4}, notice: 10m, simulate: {boot: 0s, interrupt_every: 10000h, expected_duration: 1s}}
policy:
  default: {spot: prefer, ladder: [taken, kept], fall_back_after: 1, grace_period: 10m, interruptions: {backoff: 0s}}
"""
"""The notice is the grace period, so that SIGTERM comes with it, and there is time for a save on any machine."""


@pytest.mark.slow
def test_an_interrupted_task_ends_with_143_and_does_no_step_twice(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(PIPELINE)
    (tmp_path / "spotwright.yaml").write_text(POOLS)
    command = [sys.executable, "-m", "spotwright", "run", "training.py", "--seed", "4", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr

    run = json.loads(done.stdout)
    attempts = run["tasks"][0]["attempts"]
    ends = [(attempt["cause"], attempt["exit_code"]) for attempt in attempts]
    assert ends == [("interrupted", 143), ("succeeded", 0)]
    assert [attempt["kept"]["low"] for attempt in attempts] == [1.0] * len(attempts)
    explained = subprocess.run(
        [sys.executable, "-m", "spotwright", "logs", "last", "train", str(len(attempts))],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert "nodes are reclaimed every" in explained.stdout
    assert "as the pool's configuration says" in explained.stdout
