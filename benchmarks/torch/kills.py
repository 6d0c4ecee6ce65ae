"""Kills inside sharded saves, at any byte and between any two files: how many leave a place that is not whole, or too old.

They are those of ``tests/torch/test_sharded_kills.py``: one of two ranks dies in its shard, in the layout, in the entry
that commits the save, or in the removal of older saves.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.torch.dying_saves import bytes_of, killed, saved_at

__all__ = ["measure"]


def measure(kills: int = 100) -> tuple[int, int, int]:
    """Return the number of kills, how many of them have done harm, and after how many the interrupted save was loaded."""
    harm = new = newest = 0
    with tempfile.TemporaryDirectory(prefix="spotwright-kills-") as folder:
        place = f"{folder}/place"
        for number, (victim, after) in enumerate(bytes_of(kills, seed=kills)):
            confirmed, begun = killed(Path(folder, str(number)), place, victim, after)
            found = saved_at(place)
            harm += found is None or not max(newest, confirmed) <= found <= begun
            new += found == begun
            newest = found or newest
    return kills, harm, new
