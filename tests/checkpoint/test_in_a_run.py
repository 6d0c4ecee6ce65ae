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
    import time

    from spotwright.checkpoint import Checkpoint

    ckpt = Checkpoint()
    state = ckpt.load(default={"done": []})
    for epoch in ckpt.steps(epochs):
        time.sleep(0.05)
        state["done"].append(epoch)
        ckpt.step_done(state)
    print(ckpt.explain())
    return str(state["done"])


@dsl.pipeline
def training(epochs: int = 40) -> str:
    return train(epochs=epochs).output
"""

POOLS = """
version: 1
pools:
  spot: {capacity: spot, node: {cpu: 4, memory: 8Gi}, max_nodes: 2, notice: 1s, simulate: {boot: 50ms, taken_every: 2s}}
policy: {default: {spot: prefer, grace_period: 500ms, interruptions: {backoff: 0s}}}
"""


@pytest.mark.slow
def test_an_interrupted_task_ends_with_143_and_does_no_step_twice(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text(PIPELINE)
    (tmp_path / "spotwright.yaml").write_text(POOLS)
    command = [sys.executable, "-m", "spotwright", "run", "training.py", "--seed", "4", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

    run = json.loads(done.stdout)
    attempts = run["tasks"][0]["attempts"]
    assert len(attempts) > 1
    assert {(attempt["cause"], attempt["exit_code"]) for attempt in attempts[:-1]} == {("interrupted", 143)}
    assert [attempt["kept"]["low"] for attempt in attempts] == [1.0] * len(attempts)
    explained = subprocess.run(
        [sys.executable, "-m", "spotwright", "logs", "last", "train", str(len(attempts))],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "nodes are taken every" in explained.stdout
    assert "as the pool states" in explained.stdout
