"""A process that is killed at any moment leaves a whole checkpoint, never older than the last confirmed save."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def killed(folder: Path, kills: int, seed: int, patience: float = 600) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, HERE / "killing.py", str(folder), str(kills), str(seed)],
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.long
@pytest.mark.slow
def test_after_hundreds_of_kills_every_load_is_whole_and_none_is_older_than_the_last_confirmed_save(
    tmp_path: Path,
) -> None:
    found = killed(tmp_path / "place", 300, seed=1)

    assert (found["wrong"], found["older"]) == (0, 0)
    assert found["inside"] > 10  # it did hit saves in the middle
    assert found["last"] > 100


@pytest.mark.many
def test_after_ten_thousand_kills_every_load_is_whole(tmp_path: Path) -> None:
    found = killed(tmp_path / "place", 10_000, seed=2, patience=1200)

    assert (found["wrong"], found["older"]) == (0, 0)
    assert found["inside"] > 1000
