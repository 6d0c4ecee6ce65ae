"""A value of an odd shape anywhere in an object is placed around, or refused at its line: nothing crashes, no byte is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plain_yaml
from tests.placing.placed import FILE, a_config, refusal

from spotwright.config import Config
from spotwright.errors import SpotwrightError
from spotwright.linter.linting import fixed_text, lint_text
from spotwright.linter.settings import settings_of
from spotwright.manifests.files import place_text, unplace_text
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import Path as Steps
from spotwright.placing.patch import clone
from spotwright.views.explanation import explanation_json, explanation_text

GOLDEN = sorted((Path(__file__).resolve().parents[1] / "kinds" / "golden").glob("*/in.yaml"))
OBJECTS = [document for path in GOLDEN for document in plain_yaml.load_all(path.read_text()) if document]
CONFIGS = [
    a_config("{default: {spot: prefer}}"),
    a_config(
        "{default: {spot: require, timeout: 1h, checkpoint: 'pvc://c', grace_period: 20s, image_pull_secrets: [a]}}"
    ),
]
WORDS = [
    "", "~", "1.5", "-1", "true", "text", "'{{x}}'", "[]", "{}", "[~]", "[1]", "[[]]", "[{}]", "{a: 1}", "[{a: }]",
    "{name: []}", "[{name: {}}]", "1e30", ".nan", ".inf", "-.inf", "9999999999999999999999", "1:30", "0o17", "2001-01-01",
    "!!int ''", "!!int 5", "!!bool maybe", "!!float x", "!!null x", "!!binary aGk=", "!!timestamp 2001-01-01",
    "!!set {a, b}", "!vault abc", "!custom {a: b}", "&x [a]", "1:00:00:00.5", "=",
]  # fmt: skip
MARK = "replace-this"


def steps_in(value: Any, above: Steps = ()) -> list[Steps]:
    """The paths of all values inside a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inside = [(*above, key) for key, _ in pairs]
    return inside + [path for path in inside for path in steps_in(value[path[-1]], path)]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A document of the kinds that are known, in which one or two values are replaced by odd ones."""
    value = clone(draw(st.sampled_from(OBJECTS)))
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2))
    for index, _ in enumerate(words):
        *above, key = draw(st.sampled_from(steps_in(value)))
        parent = value
        for step in above:
            parent = parent[step]
        parent[key] = f"{MARK}-{index}"
    text = plain_yaml.dump(value, sort_keys=False, default_flow_style=draw(st.sampled_from([False, True])))
    for index, word in enumerate(words):
        text = text.replace(f"{MARK}-{index}", word)
    return text


def message_of(action: Callable[[], object]) -> str:
    """The message with which something is refused; empty if it is not. Any other error is one of the program."""
    try:
        action()
    except SpotwrightError as error:
        return str(error)
    return ""


@given(text=texts(), config=st.sampled_from(CONFIGS), replace=st.booleans())
def test_odd_values_are_placed_or_refused_at_their_line(text: str, config: Config, replace: bool) -> None:
    options, records = PlaceOptions(replace_retries=replace), dict[str, str]()
    message = message_of(lambda: place_text(text, FILE, config, None, options, records))
    if message:
        assert re.match(rf"(policy of \S+: )?.*\b{FILE}:\d+\b", message)
        return
    placed = place_text(text, FILE, config, None, options, records).text
    assert unplace_text(placed, FILE, records).text == text
    assert place_text(placed, FILE, config, None, options, records).text == placed


@given(text=texts(), config=st.sampled_from(CONFIGS))
def test_odd_values_are_explained_or_refused_at_their_line(text: str, config: Config) -> None:
    def explain() -> None:
        placed = {FILE: place_text(text, FILE, config, None, PlaceOptions(only_explain=True), {})}
        assert explanation_json(placed, config)
        explanation_text(placed, config)

    assert re.match(rf"$|(policy of \S+: )?.*\b{FILE}:\d+\b", message_of(explain))


@given(text=texts(), config=st.sampled_from(CONFIGS))
def test_odd_values_are_linted_and_mended(text: str, config: Config) -> None:
    settings = settings_of(config)

    def lint() -> None:
        linted = lint_text(text, FILE, settings)
        lint_text(fixed_text(text, linted, settings), FILE, settings)

    assert re.match(rf"$|{FILE}:\d+: ", message_of(lint))


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  template:
    metadata: {labels: {}}
    spec:
      restartPolicy: Never
      containers:
      - {name: a, image: b, command: [c]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    metadata: {labels: {}}", "    metadata: 1.5", "work.yaml:6: spec.template.metadata: expected a mapping"),
        ("{labels: {}}", "{labels: x}", r"work.yaml:6: spec.template.metadata.labels: expected a mapping, found 'x'"),
        ("metadata: {name: a}", "metadata: 1.5", r"work.yaml:3: metadata: expected a mapping, found 1.5"),
        ("[c]", "5", r"work.yaml:10: spec.template.spec.containers\[0\].command: expected a list, found 5"),
        ("spec:\n  t", "spec:\n  podFailurePolicy: {rules: [{onPodConditions: 1}]}\n  t", "work.yaml:5: .* expected a list"),
        ("spec:\n  t", "spec:\n  activeDeadlineSeconds: []\n  t", r"work.yaml:5: .* expected a text or a number, found \[\]"),
        (
            "metadata: {name: a}",
            "metadata: {name: a, annotations: {spotwright.dev/policy: 'null'}}",
            "work.yaml:3: metadata: spotwright.dev/policy: policy: None is wrong; expected a mapping",
        ),
        (
            "metadata: {name: a}",
            "metadata: {name: a, annotations: {spotwright.dev/policy: 'spot: prefer'}}",
            r"work.yaml:3: metadata: spotwright.dev/policy is not JSON \(line 1, column 1: Expecting value\): write it as \{",
        ),
        (
            "metadata: {name: a}",
            "metadata: {name: a, annotations: {spotwright.dev/policy: 5}}",
            "work.yaml:3: metadata: spotwright.dev/policy is not JSON .it must be a string, not 5.: write it as ",
        ),
        (
            "metadata: {name: a}",
            f"metadata: {{name: a, annotations: {{spotwright.dev/policy: '{'[' * 100_000}'}}}}",
            "work.yaml:3: metadata: spotwright.dev/policy is not JSON .it is nested too deeply",
        ),
        (
            "metadata: {name: a}",
            "metadata: {name: a, labels: {spotwright.dev/spot: perhaps}}",
            "work.yaml:3: metadata: spotwright.dev/spot: spot: 'perhaps' is wrong",
        ),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_named_with_its_line(old: str, new: str, message: str) -> None:
    assert re.match(message, refusal(JOB.replace(old, new, 1)))


@pytest.mark.parametrize(
    "spec",
    [
        "replicatedJobs: 5",
        "replicatedJobs: [text]",
        "{failurePolicy: {rules: [{onJobFailureReasons: 1}]}, replicatedJobs: []}",
    ],
)
def test_a_wrong_shape_in_a_set_of_jobs_is_named_with_its_line(spec: str) -> None:
    value = spec if spec.startswith("{") else f"{{{spec}}}"
    text = f"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: a}}\nspec: {value}\n"
    assert re.match(r"work.yaml:4: spec\.\S+: expected a", refusal(text))
