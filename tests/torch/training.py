"""A training that the tests interrupt: a tiny model on some ranks, whose loss depends on every step and random number before."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from tests.torch.ranks import Rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from spotwright.checkpoint import Checkpoint, SaveFailed, shared_save
from spotwright.checkpoint.shared_save import SharedSave
from spotwright.checkpoint.store import FolderStore
from spotwright.checkpoint.torch import restore, state_of

STEPS = 24


def model_of(kind: str, dtype: str = "float32") -> nn.Module:
    """Return the model of each kind of training; ``hybrid`` has two replicas."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 1)).to(getattr(torch, dtype))
    if kind == "replicated":
        return DistributedDataParallel(model)
    world = torch.distributed.get_world_size()
    shape, names = ((2, world // 2), ("replicate", "shard")) if kind == "hybrid" else ((world,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def wait_with_hook(rank: Rank, settings: dict[str, Any]) -> None:
    """Give a rank that the settings name the folder of its pod's preStop hook."""
    if rank.number in settings.get("stopped", ()):
        hook = rank.folder / f"hook-{rank.number}"
        hook.mkdir()
        os.environ |= {"SPOTWRIGHT_GRACE_FOLDER": str(hook), "SPOTWRIGHT_NOTICE_FILE": str(hook / "notice")}


def write_slowly(rank: Rank, settings: dict[str, Any]) -> None:
    """Let each state file and shard take so many ``slow`` seconds, and say when it begins.

    That of a rank and number that ``full`` names fails; that of ``hangs`` never ends, and is late after a second.
    """
    if "slow" not in settings:
        return
    if "hangs" in settings:
        setattr(shared_save, "_LATE_AFTER", 1.0)  # noqa: B010  # in this process only
        setattr(shared_save, "_LATE_TIMES", 0.0)  # noqa: B010
    write, numbers = FolderStore.write, itertools.count()

    def slow(store: FolderStore, name: str) -> Any:
        number = next(numbers)
        rank.say(writes=number)
        time.sleep(settings["slow"])
        if [rank.number, number] == settings.get("full"):
            raise SaveFailed("there is no room left")
        if [rank.number, number] == settings.get("hangs"):
            threading.Event().wait()
        return write(store, name)

    setattr(FolderStore, "write", slow)  # noqa: B010  # in this process only


def train(rank: Rank, kind: str, place: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Train from the last save on; say each step, and return the sum of the weights with the step of the start."""
    if rank.number == settings.get("noticed"):
        os.environ["SPOTWRIGHT_NOTICE_FILE"] = str(rank.folder / "notice")
    wait_with_hook(rank, settings)
    write_slowly(rank, settings)
    model = model_of(kind, settings.get("dtype", "float32"))
    if settings.get("compiled"):
        model = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank.number)
    with Checkpoint(Path(place), group=torch.distributed.group.WORLD, every=settings.get("every", 1e9)) as ckpt:
        restore(ckpt.load(), model=model, optimizer=optimizer)
        first = ckpt.step
        rank.say(start=first)
        for step in ckpt.steps(STEPS):
            pauses = step == settings.get("pause_at") and rank.number in settings.get("pausing", ())
            optimizer.zero_grad()
            for part in range(settings.get("accumulates", 1)):
                if part and pauses:
                    pause(rank, step)
                features = torch.randn(8, 6, dtype=next(model.parameters()).dtype)
                loss = (model(features) - features.sum(1, keepdim=True)).square().mean()
                loss.backward()
            optimizer.step()
            time.sleep(settings.get("seconds", 0.0))
            if settings.get("evaluates"):
                evaluate(model, functools.partial(pause, rank, step) if pauses else None)
            elif pauses and "accumulates" not in settings:
                pause(rank, step)
            if [rank.number, step] == settings.get("fails"):
                raise ValueError(f"a fault in step {step}")
            freeze(rank, step, settings)
            began = time.monotonic()
            with suppress(*([SystemExit] if rank.number == settings.get("swallows") else [])):
                saved = False
                saved = ckpt.step_done(
                    state_taken(rank, step, settings, lambda: state_of(model=model, optimizer=optimizer))
                )
            rank.say(step=step, saved=saved, held=time.monotonic() - began)
    return {"first": first, "weights": weights_of(model)}


def freeze(rank: Rank, step: int, settings: dict[str, Any]) -> None:
    """Let a rank stop answering at a point of the save at the end of a step or a later one, as if its node were suspended."""
    if [rank.number, step] != settings.get("freezes"):
        return
    tell = SharedSave.tell

    def frozen(save: SharedSave, what: str, value: Any) -> None:
        if what in ("begin", "saved", f"part/{rank.number}"):
            setattr(SharedSave, "tell", tell)  # noqa: B010
            rank.say(frozen=what)
            os.kill(os.getpid(), signal.SIGSTOP)
        tell(save, what, value)

    setattr(SharedSave, "tell", frozen)  # noqa: B010  # in this process only


def pause(rank: Rank, step: int) -> None:
    """Wait for the test, in the middle of a step."""
    rank.say(paused=step)
    rank.waits_for("go")


def evaluate(model: nn.Module, within: Callable[[], None] | None) -> None:
    """Evaluate a model on all ranks together."""
    model.eval()
    with torch.no_grad():
        for number in range(4):
            loss = model(torch.full((8, 6), float(number))).mean()
            if number == 2 and within is not None:
                within()
            torch.distributed.all_reduce(loss)
    model.train()


def state_taken(rank: Rank, step: int, settings: dict[str, Any], state: Callable[[], Any]) -> Callable[[], Any]:
    """Return the state, and let a rank be killed between its claim and the commit of a save."""

    def take() -> Any:
        if rank.number == settings.get("dies_in_save") and step >= settings["dies_from"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return state()

    return take


def train_then_stay(rank: Rank, kind: str, place: str, settings: dict[str, Any]) -> None:
    """Train, and stay after a fault with all connections open, as a process does whose error is being handled for long."""
    try:
        train(rank, kind, place, settings)
    except ValueError:
        rank.say(failed=time.time())
        rank.waits_for("never")


def weights_of(model: nn.Module) -> list[float]:
    """Return sums of all weights, exactly the same on all ranks."""
    sums = []
    for each in model.parameters():
        whole = each.full_tensor() if hasattr(each, "full_tensor") else each
        sums.append(whole.detach().double().abs().sum().item())
    return sums
