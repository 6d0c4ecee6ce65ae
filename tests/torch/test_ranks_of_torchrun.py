"""torchrun as a rehearsal sees it: its ranks and itself are found, and its ranks outlive it when it is killed alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.project import Project, eventually
from tests.rehearsal.waiting_ranks import WAITS, waiting_ranks

from spotwright.rehearsal.ranks import TakenRanks, launcher_of, rank_processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
RENDEZVOUS = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0")


@pytest.fixture
def main_process(tmp_path: Path) -> Iterator[int]:
    """A process that waits for torchrun with two ranks, which sleep."""
    (tmp_path / "train.py").write_text(WAITS)
    with waiting_ranks(*TORCHRUN, *RENDEZVOUS, str(tmp_path / "train.py")) as process:
        yield process


def test_ranks_of_torchrun_outlive_it_when_it_is_killed_alone(main_process: int) -> None:
    ranks = rank_processes(main_process)
    launcher = launcher_of(ranks, main_process)
    taken = TakenRanks(main_process, (), of_launcher=True)
    taken.kill()
    time.sleep(0.5)

    assert list(ranks) == [0, 1]
    assert launcher is not None
    assert taken.end_orphans().keys() == {0, 1}


def test_torchrun_ends_when_one_rank_loses_its_node(main_process: int) -> None:
    other = rank_processes(main_process)[0]
    TakenRanks(main_process, [1], of_launcher=False).kill()

    eventually(lambda: not Path(f"/proc/{other}").exists())


TRAINING = """
import json, os, pathlib, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, folder, step, weight = dist.get_rank(), pathlib.Path(os.environ["SPOTWRIGHT_CHECKPOINT"]), 0, torch.zeros(4)
saved = folder / "state.json"
if saved.exists():
    state = json.loads(saved.read_text())
    step, weight = state["step"], torch.tensor(state["weight"])
while step < 40:
    gradient = torch.randn(4, generator=torch.Generator().manual_seed(1000 * step + rank))
    dist.all_reduce(gradient)
    weight += gradient
    time.sleep(0.1)
    step += 1
    if rank == 0 and step % 4 == 0:
        (folder / "new").write_text(json.dumps({"step": step, "weight": weight.tolist()}))
        (folder / "new").rename(saved)
if rank == 0:
    pathlib.Path("model.json").write_text(json.dumps(weight.tolist()))
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_training_under_torchrun_resumes_when_its_ranks_lose_their_nodes(project: Project) -> None:
    project.write("train.py", TRAINING)
    done = project.spotwright(
        "rehearse", "--ranks", "2", "--seed", "2", "--interruptions", "1", "--budget", "3m", "--json", "--", *TORCHRUN,
        "train.py",
    )  # fmt: skip
    (step,) = json.loads(done.out)["steps"]
    tried = [point for point in step["points"] if point["run"] is not None]

    assert [point["problem"] for point in tried if point["problem"]] == []
    assert step["verdict"] in ("safe and resumes", "undecided")  # on a slow machine the budget has room for few trials
    assert step["work_seen_by"] == "its saves"
    assert all(each["at_work"] for point in tried for each in point["interruptions"] if point["kind"] == "rank")
