"""PyTorch in one process: the recipe of the page about checkpoints gives the same numbers as without an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from spotwright.checkpoint import Checkpoint
from spotwright.checkpoint.torch import restore, state_of


@pytest.mark.usefixtures("attempts_in_one_process")
def test_pytorch_goes_on_through_its_own_state_dicts(tmp_path: Path) -> None:
    features = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    target = features.sum(dim=1, keepdim=True)

    def train(place: Path, stop_after: int) -> Any:
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        with Checkpoint(place, every=0) as ckpt:
            restore(ckpt.load(), model=model, optimizer=optimizer, schedule=schedule)
            for number in ckpt.steps(6):
                if number == stop_after:
                    return None
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(features), target).backward()
                optimizer.step()
                schedule.step()
                ckpt.step_done(lambda: state_of(model=model, optimizer=optimizer, schedule=schedule))
        return model.state_dict()

    assert train(tmp_path / "taken", 3) is None
    resumed, undisturbed = train(tmp_path / "taken", 99), train(tmp_path / "undisturbed", 99)
    assert resumed.keys() == undisturbed.keys()
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in resumed)
