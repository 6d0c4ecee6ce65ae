"""Every step of the zoo gets the verdict that is right for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rehearse.conftest import Rehearse
from tests.rehearse.zoo import ZOO, Animal

from spotwright.rehearsal.report import as_text

pytestmark = pytest.mark.slow

SEEDS = 20


def judge(rehearse: Rehearse, animal: Animal, seed: int, folder: Path) -> None:
    """Rehearse it once, and look at the verdict."""
    ledger = str(folder / "ledger.csv")
    more = {"arguments": {"ledger": ledger}, "keep": (ledger,)} if animal.keeps else {}

    found = rehearse(animal.step, seed=seed, **more)

    assert found.steps[0].verdict is animal.verdict, as_text(found)


@pytest.mark.parametrize("name", ZOO)
def test_a_step_gets_its_verdict(name: str, rehearse: Rehearse, tmp_path: Path) -> None:
    judge(rehearse, ZOO[name], len(name), tmp_path)


@pytest.mark.many
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", ZOO)
def test_a_step_gets_its_verdict_at_every_seed(name: str, seed: int, rehearse: Rehearse, tmp_path: Path) -> None:
    judge(rehearse, ZOO[name], 1000 + seed, tmp_path)
