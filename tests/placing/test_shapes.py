"""Values of the wrong shape are refused at their line, never with a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml
from tests.kinds.argo.workflows import LEAF, a_workflow
from tests.placing.placed import a_config, refusal

from spotwright.errors import InputError
from spotwright.manifests.files import place_text
from spotwright.placing.documents import References, parse

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
CASES = [
    "workflow",
    "workflowtemplate",
    "cronworkflow",
    "trainingruntime",
    "trainjob-2.2",
    "trainjob-2.3",
    "raycluster",
    "rayjob",
    "sparkapplication",
    "sparkapplication-template",
    "deployment",
    *("volcanojob", "pipelinerun", "taskrun", "rayservice", "xgboostjob", "tfjob", "resourceflavor"),
    *("notebook", "inferenceservice", "statefulset", "daemonset"),
]
ODD = [None, 1, "x", [], {}, [1], {"a": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (a_workflow(spec="  tolerations: all\n"), "spec.tolerations: expected a list, found 'all'"),
        (a_workflow(LEAF.replace("container", "affinity: [], container")), "affinity: expected a mapping, found []"),
        (a_workflow("{name: train, container: x}"), "spec.templates[0].container: expected a mapping, found 'x'"),
        (a_workflow("{name: train, steps: [{}]}"), "spec.templates[0].steps[0]: expected a list, found {}"),
        (a_workflow(metadata="{name: x, labels: 1}"), "metadata.labels: expected a mapping, found 1"),
    ],
)
def test_the_message_names_the_line_the_path_and_what_was_expected(text: str, message: str) -> None:
    refused = refusal(text)

    assert refused.startswith("work.yaml:")
    assert message in refused


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in children:
        yield (*path, key)
        yield from paths(item, (*path, key))


@pytest.mark.parametrize("case", CASES)
def test_any_value_at_any_path_is_placed_or_refused_with_a_message(case: str) -> None:
    folder = GOLDEN / case
    whole = plain_yaml.load((folder / "in.yaml").read_text())
    beside = (folder / "with.yaml").read_text() if (folder / "with.yaml").exists() else ""
    trainer = case.rpartition("-")[2] if case.startswith("trainjob") else "2.3"
    settings = a_config("{default: {spot: prefer}}", f"{{trainer: '{trainer}'}}")
    references = References(parse(beside, "beside.yaml"))
    for number, path in enumerate(paths(whole)):
        changed = copy.deepcopy(whole)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = copy.deepcopy(ODD[number % len(ODD)])
        try:
            place_text(plain_yaml.dump(changed, sort_keys=False), "work.yaml", settings, references)
        except InputError as error:
            assert str(error)  # noqa: PT017 (a placement is as good)
