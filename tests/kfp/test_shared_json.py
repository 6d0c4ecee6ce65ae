"""Equal parts of a compiled pipeline are one object in memory, which keeps large pipelines small."""

from __future__ import annotations

import json

from tests.kfp.builders import restored, stored

from spotwright.kfp.compiled import Compiled, read_shared_json
from spotwright.kfp.pipeline_graph import build


def test_equal_executors_of_a_stored_pipeline_are_one_object(training: Compiled) -> None:
    executors = training.ir["deploymentSpec"]["executors"]
    label, executor = next(iter(executors.items()))
    copied = json.loads(stored(training))
    copied["ir"]["deploymentSpec"]["executors"] |= {f"{label}-again": executor}
    found = read_shared_json(json.dumps(copied))["ir"]["deploymentSpec"]["executors"]
    assert found[label] is found[f"{label}-again"]
    assert found == copied["ir"]["deploymentSpec"]["executors"]


def test_mappings_around_large_mappings_are_not_shared() -> None:
    large = {str(number): number for number in range(10)}
    one, other = read_shared_json(json.dumps([{"inside": large}, {"inside": large}]))
    assert one == other
    assert one is not other


def test_tasks_of_one_executor_share_the_executor_of_the_graph(training: Compiled) -> None:
    document = json.loads(stored(training))
    tasks = document["ir"]["root"]["dag"]["tasks"]
    name = next(name for name, task in tasks.items() if not task.get("dependentTasks"))
    tasks[f"{name}-again"] = tasks[name]
    pipeline = build(restored(json.dumps(document)))
    assert pipeline.root.tasks[name].executor is pipeline.root.tasks[f"{name}-again"].executor
