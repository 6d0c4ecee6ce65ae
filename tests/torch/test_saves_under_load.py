"""Every save that can be loaded is of one step, however busy the machine is, and whenever the ranks are killed.

The ranks are programs, as users start them. Each step stamps every number of the model and the optimizer with its number, so
that two steps in one save would show.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch.training_scripts import free_port

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import unpack

RANK = """\
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import restore, state_of

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.BatchNorm1d(96), torch.nn.Linear(96, 96)))
optimizer = torch.optim.AdamW(model.parameters())


def numbers():
    yield from model.state_dict().values()
    for state in optimizer.state_dict()["state"].values():
        yield from state.values()


with Checkpoint(sys.argv[1], group=dist.group.WORLD, every=0) as ckpt:
    restore(ckpt.load(), model=model, optimizer=optimizer)
    found = {float(value) for each in numbers() for value in (each.min(), each.max())} if ckpt.step else {0.0}
    print("loaded", ckpt.step, sorted(found), flush=True)
    assert found == {float(ckpt.step)}, found
    for step in ckpt.steps(1_000_000):
        optimizer.zero_grad()
        model(torch.randn(8, 96)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for each in numbers():
                each.fill_(step + 1)
        if ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer)):
            print("saved", step + 1, flush=True)
"""


@contextmanager
def ranks_of(folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the program in so many ranks, whose output is in ``log-RANK``."""
    port, running = str(free_port()), []
    for rank in range(count):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": port}
        environment = {**os.environ, **own, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(folder / "rank.py"), str(folder / "place")]
        with (folder / f"log-{rank}").open("a") as log:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    try:
        yield running
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.wait()


@contextmanager
def load_of(processes: int) -> Iterator[None]:
    """Keep the processors busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def saves_of(folder: Path) -> int:
    return (folder / "log-0").read_text().count("saved ") if (folder / "log-0").exists() else 0


def versions_in(state: Any) -> set[float]:
    """All the numbers in the parts of a state, but the settings of the optimizer."""
    parts = unpack(state["parts"])
    values = [
        *parts["model"].values(),
        *(each for one in parts["optimizer"]["state"].values() for each in one.values()),
    ]
    return {float(number) for value in values for number in torch.as_tensor(value).double().unique()}


@pytest.mark.parametrize(
    ("count", "saves", "load"),
    [
        (2, 12, 0),
        pytest.param(2, 250, 36, marks=(pytest.mark.long, pytest.mark.many)),
        pytest.param(4, 250, 36, marks=(pytest.mark.long, pytest.mark.many)),
    ],
)
def test_each_loaded_state_is_of_one_step(count: int, saves: int, load: int, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    drawn, kills, looks = random.Random(count), 0, 0  # noqa: S311
    with load_of(load):
        while saves_of(tmp_path) < saves:
            with ranks_of(tmp_path, count) as running:
                goal = min(saves, saves_of(tmp_path) + drawn.randint(5, 40))
                while saves_of(tmp_path) < goal:
                    assert [each.poll() for each in running] == [None] * count, (tmp_path / "log-0").read_text()[-2000:]
                    if (tmp_path / "place").exists():
                        reader = Checkpoint(tmp_path / "place", writer=False)
                        state = reader.load()
                        looks += state is not None
                        assert state is None or versions_in(state) == {float(reader.step)}
                    time.sleep(0.05)
                time.sleep(drawn.random() / 10)
                running[drawn.randrange(count)].send_signal(
                    signal.SIGKILL
                )  # the others are killed at once or end themselves
                kills += 1
    reader = Checkpoint(tmp_path / "place", writer=False)
    assert versions_in(reader.load()) == {float(reader.step)}
    assert kills > 0
    assert looks > 0
