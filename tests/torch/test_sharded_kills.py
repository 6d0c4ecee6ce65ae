"""Ranks that are killed at any byte of a sharded save leave a whole checkpoint, never older than the last confirmed save."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.torch.dying_saves import bytes_of, killed, saved_at

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.long)])
def test_after_kills_inside_saves_every_load_is_whole(tmp_path: Path, kills: int) -> None:
    place = str(tmp_path / "place")
    newest = 0
    for number, (victim, after) in enumerate(bytes_of(kills, seed=kills)):
        confirmed, begun = killed(tmp_path / str(number), place, victim, after)
        found = saved_at(place)
        assert found is not None, f"kill {number}: of rank {victim} after {after} bytes: the load is not whole"
        assert max(newest, confirmed) <= found <= begun
        newest = found
    assert newest >= 2 * kills
