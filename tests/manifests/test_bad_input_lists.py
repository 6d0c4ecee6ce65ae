"""Lists as ``kubectl get -o`` writes them, also after other tools have reformatted them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, REQUIRE, a_config, refusal

from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import ManifestError, References, parse

ITEMS = """\
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: batch/v1
  kind: Job
  metadata: {name: train}
  spec:
    backoffLimit: 2
    template:
      spec:
        tolerations: [{key: team, operator: Exists}]
        restartPolicy: Never
        containers: [{name: main, image: python, env: [{name: A, value: b}]}]
- apiVersion: v1
  kind: Service
  metadata: {name: other}
- apiVersion: trainer.kubeflow.org/v1alpha1
  kind: TrainJob
  metadata: {name: mnist}
  spec:
    runtimeRef: {name: torch}
    trainer: {numNodes: 2, env: [{name: A, value: b}]}
    runtimePatches:
    - manager: example.io/team
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
            - name: node
              template: {spec: {template: {spec: {tolerations: [{key: team, operator: Exists}]}}}}
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template: {spec: {template: {spec: {containers: [{name: node, image: torch}]}}}}
"""
WRITERS: dict[str, Callable[[Any], str]] = {
    "json in one line": json.dumps,
    "json": lambda value: json.dumps(value, indent=4) + "\n",
    "yaml": lambda value: str(plain_yaml.dump(value, width=60)),
    "flow": lambda value: str(plain_yaml.dump(value, width=60, default_flow_style=True)),
    "flow in one line": lambda value: str(plain_yaml.dump(value, width=10**6, default_flow_style=True)),
}


def placed(text: str) -> str:
    settings, references = a_config(REQUIRE), References(parse(RUNTIME, "runtime.yaml"))
    return place_text(text, FILE, settings, references, PlaceOptions(may_add=False)).text


@pytest.mark.parametrize("anew", WRITERS.values(), ids=WRITERS)
def test_a_reformatted_list_becomes_equal_when_unplaced(anew: Callable[[Any], str]) -> None:
    after = plain_yaml.load(placed(ITEMS))
    assert after != plain_yaml.load(ITEMS)

    assert plain_yaml.load(unplace_text(anew(after), FILE).text) == plain_yaml.load(ITEMS)


@pytest.mark.parametrize("written", WRITERS.values(), ids=WRITERS)
def test_a_list_in_any_style_is_placed_and_comes_out_to_the_same_bytes(written: Callable[[Any], str]) -> None:
    text = written(plain_yaml.load(ITEMS))
    after = placed(text)

    assert plain_yaml.load(after)["items"][0]["spec"]["template"]["spec"]["tolerations"][0]["value"] == "spot"
    assert unplace_text(after, FILE).text == text


def test_json_stays_json_when_it_comes_out() -> None:
    after = plain_yaml.load(placed(json.dumps(plain_yaml.load(ITEMS))))
    assert json.loads(unplace_text(json.dumps(after), FILE).text) == plain_yaml.load(ITEMS)


def test_an_item_that_is_wrong_is_named_at_its_own_line() -> None:
    wrong = ITEMS.replace("        restartPolicy: Never\n", "        restartPolicy: Never\n        tolerations: []\n")
    assert refusal(wrong) == "work.yaml:14: the key 'tolerations' stands here and on line 12"


SHARED_LABELS = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: a, labels: &labels {app: x}}
- apiVersion: v1
  kind: Pod  # of two
  metadata:
    name: b
    labels: {<<: *labels, tier: y}
  spec:
    containers: [{name: a, image: b}]
- apiVersion: v1
  kind: Pod
  metadata:
    name: c
    labels: {<<: *labels}
  spec:
    containers: [{name: a, image: b}]
"""


def test_items_that_share_an_anchor_are_placed_where_nothing_of_it_is_changed() -> None:
    after = placed(SHARED_LABELS)
    assert after.count("spotwright.dev/placed") == 2
    assert placed(after) == after
    assert unplace_text(after, FILE).text == SHARED_LABELS


def test_a_list_within_a_list_is_placed() -> None:
    inner = plain_yaml.load(ITEMS)
    text = plain_yaml.dump({"apiVersion": "v1", "kind": "List", "items": [inner]})
    after = placed(text)
    assert after.count("spotwright.dev/placed") == 2
    assert unplace_text(after, FILE).text == text


@pytest.mark.parametrize("items", ["", "[]", "{}", "text", "[1, two, null]"])
def test_items_that_are_no_objects_pass_or_are_named(items: str) -> None:
    text = f"apiVersion: v1\nkind: List\nitems: {items}\n"
    try:
        assert placed(text) == text
    except ManifestError as error:
        assert str(error).startswith("work.yaml:3: ")  # noqa: PT017 (either is right)


@pytest.mark.parametrize("items", ["", "items:\n", "items: []\n", "items: {}\n", "items: text\n"])
def test_a_list_without_items_passes_with_a_note(items: str) -> None:
    text = f"apiVersion: v1\nkind: List\n{items}"
    result = place_text(text, FILE, a_config(REQUIRE))
    assert result.text == text
    assert [str(one) for one in result.findings] == [
        "work.yaml:2: note: List (v1) has no items, or they are not a list: not placed"
    ]


EMPTY = """\
# mine
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  tolerations: [] # none yet
  containers:
  - name: a # the only one
    image: "b\\N\\L\\P"
"""


@pytest.mark.parametrize("margin", ["", "  "])
@pytest.mark.parametrize("remark", ["", " # none yet"])
def test_a_list_that_was_empty_is_empty_again_and_comments_stay(margin: str, remark: str) -> None:
    after = placed(EMPTY)
    shown = after[after.index("  tolerations:") : after.index("  containers:")]
    items = f"  tolerations:{remark}\n" + "".join(
        f"  {margin}{'- ' if index == 0 else '  '}{name}: {value}\n"
        for index, (name, value) in enumerate(plain_yaml.load(after)["spec"]["tolerations"][0].items())
    )
    rest = shown[shown.index("affinity") - 2 :] if "affinity" in shown else ""
    back = unplace_text(after.replace(shown, items + rest), FILE).text

    assert plain_yaml.load(back) == plain_yaml.load(EMPTY)
    assert "# mine" in back
    assert "# the only one" in back


def test_line_breaks_that_only_yaml_knows_come_back() -> None:
    anew = plain_yaml.dump(plain_yaml.load(placed(EMPTY)), width=40)
    assert plain_yaml.load(unplace_text(anew, FILE).text) == plain_yaml.load(EMPTY)
