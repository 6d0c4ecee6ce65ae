"""A rank is gone, and the others are in the middle of a step that will not end: one of them saves the last finished step."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.torch.interrupted_trainings import committed, interrupted, put_notice, run

from spotwright.checkpoint.group_saves import LastStep
from spotwright.checkpoint.torch import restore, state_of


@pytest.mark.parametrize(
    ("count", "dead"), [(2, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in [(2, 0), (4, 0), (4, 3)])]
)
def test_where_a_rank_has_died_another_one_saves_the_last_step(count: int, dead: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"pause_at": 8, "pausing": [*range(count)]}
    with interrupted(tmp_path, "replicated", settings, count=count) as ranks:
        ranks.until_all(paused=8)
        ranks.kill(dead)
        ranks.code(dead)
        assert committed(tmp_path)[0] < 9
        ranks.allow("go")
        others = [rank for rank in range(count) if rank != dead]
        assert 0 not in [ranks.code(rank) for rank in others]
        assert any("the ranks that are left have saved step 9" in ranks.log(rank) for rank in others), ranks.log(
            others[0]
        )
    assert committed(tmp_path)[0] == 9
    if count == 2:
        assert [each["first"] for each in run(tmp_path, "replicated")] == [9, 9]


@pytest.mark.parametrize(
    ("count", "frozen"), [(2, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in [(2, 0), (4, 0), (4, 3)])]
)
def test_where_a_rank_is_frozen_another_one_saves_within_the_notice(count: int, frozen: int, tmp_path: Path) -> None:
    noticed = count - 1 if frozen == 0 else 0
    settings: dict[str, Any] = {"pause_at": 8, "pausing": [frozen], "noticed": noticed}
    with interrupted(tmp_path, "replicated", settings, count=count) as ranks:
        ranks.until(frozen, paused=8)
        ranks.until(noticed, step=8)
        ranks.kill(frozen, signal.SIGSTOP)
        ranks.allow("go")
        put_notice(ranks, seconds=30)  # it is in the collective operation of the next step
        end = {rank: ranks.pids[rank] for rank in range(count) if rank != frozen}
        while "have saved step 9" not in "".join(map(ranks.log, end)):
            for rank in end:
                assert not ranks._ended(rank), ranks.log(rank)
        assert committed(tmp_path)[0] == 9
        for rank in range(count):
            ranks.kill(rank)


def test_the_state_of_a_step_is_kept_while_the_next_one_is_half_done() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters())
    last = LastStep()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    after, drawn = state_of(model=model, optimizer=optimizer), torch.get_rng_state()
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    last.keep(lambda: state_of(model=model, optimizer=optimizer), {"step": 1})
    model(torch.randn(8, 4)).sum().backward()  # changes the statistics, and draws random numbers
    moved = model[1].running_mean.clone()
    with last.held() as held:
        assert held is not None
        state, facts = held
    assert facts == {"step": 1}
    assert torch.equal(model[1].running_mean, moved), "the program goes on with its own statistics"
    restore(state, model=model, optimizer=optimizer)
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert after.keys() == state.keys()

    optimizer.step()
    with last.held() as held:
        assert held is None, "the next step has begun to change it"
    last.close()


def test_a_state_with_values_of_the_program_is_not_kept() -> None:
    model, losses = torch.nn.Linear(2, 1), [1.0]
    last = LastStep()
    last.keep(lambda: {**state_of(model=model), "losses": losses}, {"step": 1})
    with last.held() as held:
        assert held is None
    last.close()
