"""Any pipeline of the KFP language comes to what the language says: drawn ones, reckoned apart from what the SDK compiles.

``pytest tests/conformance/test_random.py -m many`` tries many more. What the SDK refuses, or writes so that no backend
could run it, is left out: about one in twelve.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.compared import differences
from tests.conformance.compiling import compile_each
from tests.conformance.drawing import drawn
from tests.conformance.reckoned import reckoned
from tests.conformance.running import WORLDS, run_on
from tests.conformance.written import written

SEEDS = range(16)
MANY = range(len(SEEDS), 1000)
TAKEN = """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, notice: 10ms, simulate: {boot: 0s, taken_every: 100ms}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, grace_period: 10ms, interruptions: {max: 30, backoff: 1ms}, fall_back_after: 4}
"""
"""Pools whose nodes are taken while most tasks run."""


@pytest.fixture(scope="module")
def compiled_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first pipelines, compiled."""
    return _compiled(SEEDS, tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def compiled_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The others, compiled."""
    return _compiled(MANY, tmp_path_factory.mktemp("drawn"))


def _compiled(seeds: range, folder: Path) -> Path:
    for seed in seeds:
        (folder / f"p{seed}.py").write_text(written(drawn(seed)))
    compile_each(folder)
    return folder


def check(seed: int, compiled: Path, pools: str, folder: Path) -> None:
    """Run the pipeline of a seed and compare."""
    refused = compiled / f"p{seed}.refused"
    if refused.exists():
        pytest.skip(refused.read_text())
    pipeline = drawn(seed)
    ran = run_on(compiled / f"p{seed}.yaml", pools, folder, pipeline.arguments)
    assert differences(ran, reckoned(pipeline)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_pipeline_comes_to_what_was_reckoned(seed: int, compiled_few: Path, tmp_path: Path) -> None:
    pools = TAKEN if seed % 2 else WORLDS["undisturbed"]
    check(seed, compiled_few, pools, tmp_path)


@pytest.mark.slow
@pytest.mark.many
@pytest.mark.parametrize("pools", [WORLDS["undisturbed"], TAKEN], ids=["undisturbed", "taken"])
@pytest.mark.parametrize("seed", MANY)
def test_so_do_many_more(seed: int, pools: str, compiled_many: Path, tmp_path: Path) -> None:
    check(seed, compiled_many, pools, tmp_path)


def test_what_the_sdk_refuses_is_a_small_part(compiled_few: Path) -> None:
    assert len(list(compiled_few.glob("*.refused"))) <= len(SEEDS) // 4
