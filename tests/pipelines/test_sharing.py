"""What equal tasks have in common is held once: the memory of a large pipeline depends on it."""

from __future__ import annotations

import json

from spotwright.pipelines.compiled import Compiled, read_json
from spotwright.pipelines.graph import build


def test_equal_executors_of_a_stored_pipeline_are_one_object(training: Compiled) -> None:
    executors = training.ir["deploymentSpec"]["executors"]
    label, executor = next(iter(executors.items()))
    copied = json.loads(training.to_json())
    copied["ir"]["deploymentSpec"]["executors"] |= {f"{label}-again": executor}
    found = read_json(json.dumps(copied))["ir"]["deploymentSpec"]["executors"]
    assert found[label] is found[f"{label}-again"]
    assert found == copied["ir"]["deploymentSpec"]["executors"]


def test_mappings_that_hold_large_ones_are_left_apart() -> None:
    large = {str(number): number for number in range(10)}
    one, other = read_json(json.dumps([{"inside": large}, {"inside": large}]))
    assert one == other
    assert one is not other


def test_tasks_of_one_executor_share_what_was_read_of_it(training: Compiled) -> None:
    stored = json.loads(training.to_json())
    tasks = stored["ir"]["root"]["dag"]["tasks"]
    name = next(name for name, task in tasks.items() if not task.get("dependentTasks"))
    tasks[f"{name}-again"] = tasks[name]
    pipeline = build(Compiled.from_json(json.dumps(stored)))
    assert pipeline.root.tasks[name].executor is pipeline.root.tasks[f"{name}-again"].executor
