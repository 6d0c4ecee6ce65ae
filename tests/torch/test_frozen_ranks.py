"""A rank that freezes inside a save, after all have agreed on its step, holds the others for seconds."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.torch.interrupted_trainings import committed, interrupted, put_notice, run, uninterrupted
from tests.torch.training import STEPS


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_rank_that_freezes_inside_the_save_of_a_notice_holds_the_others_for_seconds(
    kind: str, frozen: int, tmp_path: Path
) -> None:
    other = 1 - frozen
    settings: dict[str, Any] = {"pause_at": 8, "pausing": [0, 1], "noticed": other, "freezes": [frozen, 8]}
    with interrupted(tmp_path, kind, settings) as ranks:
        ranks.until_all(paused=8)
        before = committed(tmp_path)[0]
        put_notice(ranks, seconds=120)
        ranks.allow("go")
        found = ranks.until(other, step=8)
        assert found["held"] < 20  # gloo's own time-out is half an hour
        if kind == "replicated":
            assert found["saved"]
            assert committed(tmp_path)[0] == 9
        else:
            assert not found["saved"]
            assert f"rank {frozen} does not answer" in ranks.log(other)
            assert committed(tmp_path)[0] == before
        ranks.kill(other)
        ranks.code(other)
        ranks.kill(frozen, signal.SIGCONT)
        assert ranks.code(frozen) != 0
    results = run(tmp_path, kind)
    assert [each["first"] for each in results] == [9 if kind == "replicated" else before] * 2


def test_ranks_go_on_together_after_one_was_frozen_inside_a_save(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"pause_at": 8, "pausing": [0, 1], "noticed": 1, "freezes": [0, 8]}
    with interrupted(tmp_path, "replicated", settings) as ranks:
        ranks.until_all(paused=8)
        put_notice(ranks, seconds=120)
        ranks.allow("go")
        assert ranks.until(1, step=8)["saved"]
        ranks.kill(0, signal.SIGCONT)
        results = ranks.results()
    assert committed(tmp_path)[0] == STEPS
    assert results[0]["weights"] == pytest.approx(uninterrupted("replicated"), rel=1e-12)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_rank_ends_itself_when_another_one_has_gone_with_its_node_and_closed_no_connection(
    gone: int, tmp_path: Path
) -> None:
    """A frozen process acts like one on a node without power: it does not answer, and its connections stay."""
    other = 1 - gone
    with interrupted(
        tmp_path, "replicated", {"noticed": gone, "seconds": 0.05, "pause_at": 8, "pausing": [0, 1]}
    ) as ranks:
        ranks.until_all(paused=8)
        put_notice(ranks, seconds=3)
        ranks.allow("go")
        ranks.until(gone, step=8)
        ranks.kill(gone, signal.SIGSTOP)
        assert ranks.code(other) == 143, ranks.log(other)
        assert f"rank {gone} was lost with its node" in ranks.log(other)
