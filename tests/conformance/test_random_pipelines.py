"""Random pipelines give the results of KFP's semantics, which an interpreter computes without the SDK's compiled form.

``pytest tests/conformance/test_random_pipelines.py -m many`` tries many more. Pipelines that the SDK refuses, or compiles so
that no backend could run them, are left out: about one in twelve.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.conformance.compiling import compile_each
from tests.conformance.interpreter import interpret
from tests.conformance.python_source import python_source
from tests.conformance.random_pipelines import random_pipeline
from tests.conformance.run_differences import differences
from tests.conformance.running import POOLS, run_on
from tests.sampling import every

from spotwright.forecast.tasks import Durations, tasks_of
from spotwright.kfp.loader import load
from spotwright.runs.planning import plan_run
from spotwright.runs.run_options import PlanOptions

SEEDS = range(16)
MANY = range(len(SEEDS), 1000)
INTERRUPTED = """
pools:
  spot: {capacity: spot, node: {cpu: 8, memory: 16Gi}, notice: 10ms, simulate: {boot: 0s, interrupt_every: 100ms}}
  od: {capacity: on-demand, node: {cpu: 8, memory: 16Gi}, simulate: {boot: 0s}}
policy:
  default: {spot: prefer, grace_period: 10ms, interruptions: {max: 30, backoff: 1ms}, fall_back_after: 4}
"""
"""Pools whose nodes are interrupted while most tasks run."""
PLANNED = {"version": 1, "pools": {"od": {"capacity": "on-demand"}}, "policy": {"default": {"spot": "never"}}}


@pytest.fixture(scope="module")
def compiled_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first pipelines, compiled."""
    return _compiled(SEEDS, tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="module")
def compiled_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The others, compiled."""
    return _compiled(MANY, tmp_path_factory.mktemp("random"))


def _compiled(seeds: range, folder: Path) -> Path:
    for seed in seeds:
        (folder / f"p{seed}.py").write_text(python_source(random_pipeline(seed)))
    compile_each(folder)
    return folder


def check(seed: int, compiled: Path, pools: str, folder: Path) -> None:
    """Run the pipeline of a seed and compare."""
    refused = compiled / f"p{seed}.refused"
    if refused.exists():
        pytest.skip(f"the SDK refuses this random pipeline: {refused.read_text()}")
    pipeline = random_pipeline(seed)
    ran = run_on(compiled / f"p{seed}.yaml", pools, folder, pipeline.arguments)
    assert differences(ran, interpret(pipeline)) == []


@pytest.mark.parametrize("seed", every(4, SEEDS))
def test_a_random_pipeline_gives_the_result_of_the_interpreter(seed: int, compiled_few: Path, tmp_path: Path) -> None:
    pools = INTERRUPTED if seed % 2 else POOLS["undisturbed"]
    check(seed, compiled_few, pools, tmp_path)


@pytest.mark.slow
@pytest.mark.many
@pytest.mark.parametrize("pools", [POOLS["undisturbed"], INTERRUPTED], ids=["undisturbed", "interrupted"])
@pytest.mark.parametrize("seed", MANY)
def test_many_more_random_pipelines_do_too(seed: int, pools: str, compiled_many: Path, tmp_path: Path) -> None:
    check(seed, compiled_many, pools, tmp_path)


def plan_tasks(seed: int, compiled: Path) -> tuple[set[str], bool]:
    """The tasks of the plan of a random pipeline, named as by the interpreter, and whether none of them is a guess."""
    pipeline = random_pipeline(seed)
    planned = plan_run(load(compiled / f"p{seed}.yaml"), PlanOptions(arguments=pipeline.arguments, config=PLANNED))
    found = tasks_of(planned.stored.plan, Durations(), planned.arguments)
    names = {re.sub(r"condition-branches-\d+", "*", task.path) for task in found.tasks}
    return names, not any("only the run will know" in note for note in found.notes)


def test_a_plan_has_the_tasks_that_the_interpreter_runs_where_arguments_decide_them(compiled_few: Path) -> None:
    compared = 0
    for seed in SEEDS:
        expected = interpret(random_pipeline(seed))
        if (compiled_few / f"p{seed}.refused").exists() or not expected.succeeds:
            continue
        planned, is_known = plan_tasks(seed, compiled_few)
        if is_known:
            compared += 1
            ran = {path for path, outcome in expected.outcomes.items() if outcome.statuses == {"succeeded"}}
            assert planned == {path for path in ran if re.search(r"(^|/)t\d+(-\d+)*$", path)}
    assert compared >= 5


def test_the_sdk_refuses_few_of_the_random_pipelines(compiled_few: Path) -> None:
    assert len(list(compiled_few.glob("*.refused"))) <= len(SEEDS) // 4
