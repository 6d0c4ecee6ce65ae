"""``make demo`` keeps its promises, on a quiet machine and on a busy one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT, blocks, same
from tests.examples.conftest import EXAMPLES

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Demo:
    """One run of the demo: what it printed, what ``show`` and ``report`` said as JSON, and how long it took in all."""

    printed: str
    view: dict[str, Any]
    report: dict[str, Any]
    seconds: float

    @property
    def causes(self) -> list[tuple[str, int, str, str]]:
        """Task, attempt, pool and cause of every attempt, in the order in which they began."""
        every = [(task["path"], attempt) for task in self.view["tasks"] for attempt in task["attempts"]]
        every.sort(key=lambda each: each[1]["bound_at"])
        return [(path, attempt["number"], attempt["pool"], attempt["cause"]) for path, attempt in every]

    @property
    def model(self) -> bytes:
        """The trained model."""
        return Path(self.view["outputs"]["model"]["uri"]).read_bytes()


def run_demo(folder: Path) -> Demo:
    """Run the demo as ``make demo`` does, with its state in a folder of the test."""
    began = time.monotonic()
    printed = _said([str(EXAMPLES / "iris" / "demo.py"), "--name", "demo"], folder)
    seconds = time.monotonic() - began
    view, report = (
        json.loads(_said(["-m", "spotwright", what, "demo", "--json"], folder)) for what in ("show", "report")
    )
    return Demo(printed, view, report, seconds)


def _said(command: Sequence[str], folder: Path) -> str:
    environment = {**os.environ, "SPOTWRIGHT_STATE": str(folder / "state"), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def busy_machine() -> Iterator[None]:
    """Two processes that want all of the processor."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(tmp_path_factory.mktemp("quiet"))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    with busy_machine():
        return run_demo(tmp_path_factory.mktemp("busy"))


def test_a_busy_machine_sees_the_same_causes_in_the_same_order(quiet: Demo, busy: Demo) -> None:
    assert quiet.causes == busy.causes


def test_a_busy_machine_comes_to_the_same_outputs(quiet: Demo, busy: Demo) -> None:
    assert quiet.view["outputs"]["accuracy"] == busy.view["outputs"]["accuracy"]
    assert quiet.model == busy.model


def test_the_training_is_interrupted_and_falls_back_to_on_demand(quiet: Demo) -> None:
    training = [(pool, cause) for task, _, pool, cause in quiet.causes if task == "train"]

    assert training == [("spot", "interrupted")] * 3 + [("on-demand", "succeeded")]


def test_the_readme_shows_what_the_demo_prints(quiet: Demo) -> None:
    (shown,) = (block.text for block in blocks(ROOT / "README.md") if "Outputs" in block.text)

    assert same(shown, quiet.printed), quiet.printed


def test_the_demo_takes_less_than_a_minute(quiet: Demo) -> None:
    assert quiet.seconds < 60


def test_spot_saves_with_wasted_work_counted(quiet: Demo) -> None:
    wasted = quiet.report["spent"]["interruptions"]["high"]["money"]

    assert 0 < wasted < quiet.report["saved"]["low"]
