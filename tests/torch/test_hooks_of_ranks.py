"""The preStop hook of a rank's pod waits for the save of all ranks, and returns at once if no save is possible."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch.ranks import Rank, start
from tests.torch.training import train, wait_with_hook

from spotwright.checkpoint.attended_training import AttendedTraining
from spotwright.cluster.admit_pods import hook_script

GRACE = 30  # seconds


@contextmanager
def stopped_pod(folder: Path, rank: int) -> Iterator[None]:
    """The hook of a rank's pod, run as the kubelet does, while the block runs: it lets go long before its time is over."""
    began = time.monotonic()
    with subprocess.Popen(["sh", "-c", hook_script(GRACE, str(folder / f"hook-{rank}"))]) as hook:
        yield
        assert hook.wait(90) == 0
    assert time.monotonic() - began < GRACE / 2


def attend(rank: Rank, _kind: str, _place: str, settings: dict[str, Any]) -> None:
    """Train as the adapters of frameworks do."""
    wait_with_hook(rank, settings)
    training = AttendedTraining(0, 10_000, saves_when_due=False)
    for step in range(1, 10_000):
        time.sleep(settings["seconds"])
        torch.distributed.all_reduce(torch.ones(1))
        rank.say(step=step)
        if training.step_done(step) or step == settings.get("saves_at"):
            training.begin_save()
            training.end_save()


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_the_hook_of_one_rank_waits_for_the_save_of_all_and_no_longer(kind: str, tmp_path: Path) -> None:
    settings = {"stopped": [0, 1], "seconds": 0.05}
    folder = tmp_path / "ranks"
    with start(folder, train, kind, str(tmp_path / "place"), settings, count=2) as ranks:
        ranks.until(1, step=3)
        with stopped_pod(folder, 1):
            pass
        saved = [[each["step"] for each in ranks.said(rank) if each.get("saved")] for rank in range(2)]
        assert saved[1], "the rank has taken part in a save before its pod ends"
        assert not (folder / "hook-0" / "notice").exists()
        ranks.results()  # the other one goes on, and so does this one until it is ended


@pytest.mark.parametrize("training", [train, attend])
def test_a_rank_whose_pod_is_stopped_ends_itself_where_another_one_does_not_answer(
    training: Callable[..., Any], tmp_path: Path
) -> None:
    settings = {"stopped": [0], "seconds": 0.05}
    folder = tmp_path / "ranks"
    with start(folder, training, "replicated", str(tmp_path / "place"), settings, count=2) as ranks:
        ranks.until(1, step=3)
        ranks.kill(1, signal.SIGSTOP)  # as on a node without power, nothing answers, and no connection is closed
        with stopped_pod(folder, 0):
            assert ranks.code(0) == 143, ranks.log(0)
        ranks.kill(1, signal.SIGKILL)


def test_a_save_before_the_pod_is_stopped_is_not_the_one_that_its_hook_waits_for(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    with start(folder, attend, "", "", {"stopped": [0], "seconds": 0.05, "saves_at": 2}, count=2) as ranks:
        ranks.until(0, step=4)
        assert list((folder / "hook-0").glob("saver.*")), "the hook has to wait for the next save"
        with stopped_pod(folder, 0):
            ranks.until(0, step=6)
        assert not list((folder / "hook-0").glob("saver.*"))
