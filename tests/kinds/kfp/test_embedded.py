"""YAML inside YAML: in every style it is placed, keeps its bytes, and can be unplaced."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.placing.placed import FILE, a_config, assert_unplaces, place

from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.documents import parse
from spotwright.placing.patch import Editor, Splice
from spotwright.placing.yaml_writer import apply, splices

TRIAL = """\
# a trial

apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: training
        image: "mnist:${trialParameters.tag}"
"""
EXPERIMENT = """\
---
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: grid}
spec: {trialTemplate: {configMap: {configMapName: templates, configMapNamespace: team, templatePath: t}}}
"""


def a_config_map(scalar: str, after: str = "") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: templates\ndata:\n  t: {scalar}\n{after}{EXPERIMENT}"


def a_block(header: str = "|", margin: int = 4) -> str:
    lines = [f"{' ' * margin}{line}" if line else "" for line in TRIAL.splitlines()]
    return "\n".join([header, *lines])


SCALARS = {
    "literal": a_block(),
    "stripped": a_block("|-"),
    "kept": a_block("|+") + "\n\n",
    "with a comment": a_block("|  # the template"),
    "with an indentation of its own": a_block("|4", margin=6),
    "deep": a_block(margin=9),
    "double quoted": json.dumps(TRIAL),
    "single quoted": "'{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: a, image: b}]}}}}'",
    "folded": ">\n    apiVersion: batch/v1\n\n    kind: Job\n\n    spec: {template: {spec: {containers: [{name: a}]}}}",
}


@pytest.mark.parametrize("style", SCALARS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_text_of_any_style_is_placed_and_comes_out_again(style: str, newline: str) -> None:
    text = a_config_map(SCALARS[style], "  # the end\n\n# more\n").replace("\n", newline)
    outcome = place(text)

    inner = plain_yaml.load(outcome.documents[0]["data"]["t"])
    assert inner["spec"]["template"]["spec"]["tolerations"][0]["value"] == "spot"


def test_only_new_lines_are_written_into_a_literal_block() -> None:
    text = a_config_map(a_block())
    placed = place(text).text.splitlines()

    kept = iter(placed)
    assert all(line in kept for line in text.splitlines()), "every old line is there, in order"


def test_a_text_that_a_tool_indented_again_keeps_its_comments_when_unplaced() -> None:
    text = a_config_map(a_block())
    touched = place(text).text.replace("kind: ConfigMap", "kind:   ConfigMap")
    back = unplace_text(touched, FILE)

    assert back.text == text.replace("kind: ConfigMap", "kind:   ConfigMap")
    assert any("reformatted since it was placed" in str(finding) for finding in back.findings)


def test_a_text_that_somebody_changed_since_is_left_and_named() -> None:
    text = a_config_map(a_block())
    touched = place(text).text.replace("image: ", "image:  ")
    back = unplace_text(touched, FILE)

    assert "tolerations" in back.text
    assert any("data.t: was changed since it was placed, so it stays" in str(finding) for finding in back.findings)


def test_several_documents_in_one_text_are_all_placed() -> None:
    both = a_block() + "\n    ---\n" + a_block("")[1:]
    outcome = place(a_config_map(both))

    inner = list(plain_yaml.load_all(outcome.documents[0]["data"]["t"]))
    assert [len(one["spec"]["template"]["spec"]["tolerations"]) for one in inner] == [1, 1]


@given(
    margin=st.integers(1, 8),
    header=st.sampled_from(["|", "|-", "|+"]),
    blanks=st.integers(0, 2),
    newline=st.sampled_from(["\n", "\r\n"]),
    trailing=st.sampled_from(["", "   "]),
)
@settings(max_examples=40, deadline=None)
def test_a_literal_block_of_any_shape_survives(
    margin: int, header: str, blanks: int, newline: str, trailing: str
) -> None:
    margin += 2
    block = a_block(header, margin).replace("\n\n", f"\n{trailing}\n") + "\n" * blanks
    text = a_config_map(block).replace("\n", newline)

    assert_unplaces(text, place_text(text, FILE, a_config("{default: {spot: prefer}}")).text)


def test_a_change_of_a_literal_block_is_made_at_its_own_lines() -> None:
    [document] = parse("a: |\n  one: 1\n  two: 2\n", FILE)
    editor = Editor(document)
    editor.embed(("a",), "one: 1\nnew: 0\ntwo: 2\n", [Splice(7, "new: 0\n")])

    [(_, change)] = splices(document, editor.edits)
    assert (change.at, change.text) == (16, "new: 0\n  ")
    assert apply(document.text, [change]) == "a: |\n  one: 1\n  new: 0\n  two: 2\n"
