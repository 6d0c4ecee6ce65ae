"""Broken and odd files: each gives a message with its line and a fix, or stays unchanged with a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests import plain_yaml
from tests.placing.placed import FILE, PREFER, a_config, place, refusal

from spotwright import config
from spotwright.errors import ConfigError
from spotwright.manifests.files import place_text, unplace_text

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  template:
    spec:
      containers:
      - name: main
        image: python
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOB.replace("        image", "\t    image"), "work.yaml:10: not valid YAML: .*; indent with spaces, not tabs"),
        (JOB + "  restartPolicy: a: b\n", "work.yaml:11: not valid YAML: mapping values are not allowed"),
        (JOB.replace("name: train", "name: {{name}}"), "work.yaml:4: .*needs quotes"),
        (
            JOB.replace("  name: train\n", "  name: train\n  {{- with .Values.labels }}\n  labels: {}\n  {{- end }}\n"),
            r"work.yaml:\d: not valid YAML: .*render it first \(helm template CHART \| spotwright place -\)",
        ),
        (JOB.replace("image: python", "image: 'python"), "work.yaml:11: not valid YAML: found unexpected end of stream"),
        (JOB.replace("python", "py\x00thon"), r"work.yaml:10: not valid YAML: the character U\+0000 is not allowed"),
        (JOB.replace("python", "py\x07thon"), r"work.yaml:10: not valid YAML: the character U\+0007 is not allowed"),
        (JOB + "      containers: []\n", "work.yaml:11: the key 'containers' stands here and on line 8"),
        (JOB.replace("python", "*nothing"), r"work.yaml:10: the alias \*nothing names no anchor that ended before it"),
        ("a: &a b\n*a : c\n", "work.yaml:2: a key must be a text; write the key in place of its alias"),
        ("a: &a\n  b: *a\n", r"work.yaml:2: the alias \*a names no anchor that ended before it"),
        ("[" * 1000 + "]" * 1000, "work.yaml:1: nested deeper than 200 levels"),
        ("- {a: [b, {c: }\n", "work.yaml:2: not valid YAML"),
    ],
    ids=[
        "tab", "colon", "marker", "chart", "quote", "null", "bell", "twice", "alias", "key", "cycle", "deep", "open",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_at_its_line(text: str, message: str) -> None:
    with pytest.raises(Exception, match=f"^{message}"):
        place_text(text, FILE, a_config(PREFER))


def test_the_line_is_that_of_the_file_also_behind_other_documents() -> None:
    text = f"{JOB}---\n# two\n---\n{JOB}      containers: []\n"
    assert refusal(text) == "work.yaml:24: the key 'containers' stands here and on line 21"


def test_aliases_that_unfold_to_billions_are_refused_at_once() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    names = "abcdefghi"
    for name, before in zip(names[1:], names, strict=False):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    assert "the aliases unfold to more than 1,000,000 values" in refusal("\n".join(lines) + "\n")


@pytest.mark.parametrize("text", ["", "\n", "---\n", "# nothing\n", "---\n---\n", "null\n", "\ufeff", "--- # a\n...\n"])
def test_a_file_without_a_document_passes(text: str) -> None:
    placed = place_text(text, FILE, a_config(PREFER))
    assert (placed.text, placed.findings) == (text, [])
    assert unplace_text(text, FILE).text == text


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("<html>\n<body>404</body>\n", "work.yaml:1: warning: this is not a mapping"),
        ("- a\n- b\n", "work.yaml:1: warning: this is not a mapping"),
        ("replicaCount: 1\n", "work.yaml:1: warning: this has no kind"),
        (JOB.replace("kind: Job\n", ""), "work.yaml:1: warning: this has no kind"),
        (
            JOB.replace("apiVersion: batch/v1\n", ""),
            "work.yaml:1: warning: Job train has no apiVersion: write batch/v1",
        ),
    ],
)
def test_what_is_no_object_passes_and_is_named(text: str, messages: str) -> None:
    placed = place(text)
    assert placed.text == text
    assert placed.messages[0].startswith(messages)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: f"---\n\n---\n# Source: chart/job.yaml\n{text}---\n# Source: chart/nothing.yaml\n",
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n", "  \n"),
        lambda text: f"%YAML 1.2\n---\n{text}...\n",
        lambda text: f"--- # first\n{text}...\n---\n{text}",
        lambda text: text.replace("name: train", "name: träin-\U0001f680"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace("image: python", "image: !!str python"),
        lambda text: text.replace("apiVersion", '"apiVersion"').replace("kind:", "'kind':"),
        lambda text: "\n".join("  " + line for line in text.splitlines()) + "\n",
    ],
)
def test_odd_but_valid_files_are_placed_and_come_out_to_the_same_bytes(change: Callable[[str], str]) -> None:
    text = change(JOB)
    settings = a_config(PREFER)
    placed = place_text(text, FILE, settings).text

    assert "scalesetpriority" in placed
    assert place_text(placed, FILE, settings).text == placed
    assert unplace_text(placed, FILE).text == text


def test_a_policy_that_names_an_unknown_pool_is_refused_with_its_line_and_the_pools_there_are() -> None:
    pools = "version: 1\npools:\n  spot: {capacity: spot, provider: aks}\n"
    with pytest.raises(ConfigError, match=r"(?s)nope.*spot"):
        place_text(JOB, FILE, config.parse(f"{pools}policy: {{default: {{spot: prefer, ladder: [nope]}}}}\n"))


def test_an_annotation_with_an_unknown_pool_is_refused() -> None:
    text = JOB.replace(
        "  name: train\n",
        '  name: train\n  annotations:\n    spotwright.dev/policy: \'{"ladder": ["nope"]}\'\n',
    )
    with pytest.raises(ConfigError, match=r"work\.yaml:3.*names the pool 'nope'.*the pools are spot"):
        place_text(text, FILE, a_config(PREFER))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "mine"),
        ("edits", [["add", ["spec"], 0, 0, ""]]),
        ("edits", [["add", [], 0, 0, "", ["a"]]]),
        ("edits", "add"),
        ("made", ["add"]),
        ("cut", [0, 0]),
        ("inside", [[["spec"], "a", [1]]]),
        ("before", None),
    ],
)
def test_a_record_that_is_none_is_refused_with_the_way_out(name: str, value: Any) -> None:
    placed = place_text(JOB, FILE, a_config(PREFER)).text
    annotations = plain_yaml.load(placed)["metadata"]["annotations"]
    record = annotations["spotwright.dev/placed"]
    damaged = json.dumps({**json.loads(record), name: value}) if name else value
    message = refusal(placed.replace(record.replace("'", "''"), damaged.replace("'", "''")))
    assert message.startswith("work.yaml:5: metadata.annotations.spotwright.dev/placed: is not a record")
    assert message.endswith("remove the annotation")


def test_thousands_of_items_take_a_time_that_grows_with_their_number() -> None:
    item = "- " + JOB.replace("\n", "\n  ").rstrip(" ")
    text = "apiVersion: v1\nkind: List\nitems:\n" + item * 400
    placed = place_text(text, FILE, a_config(PREFER)).text
    assert placed.count("spotwright.dev/placed") == 400
    assert unplace_text(placed, FILE).text == text


@pytest.mark.parametrize("indent", [None, 2])
def test_json_that_keeps_to_ascii_is_read_as_it_is_meant(indent: int | None) -> None:
    job = plain_yaml.load(JOB)
    job["metadata"]["annotations"] = {"a": "\U0001f680 and \\ud83d\\ude80, \\\U0001f680", "b": "\u00e4\u2028"}
    text = json.dumps(job, indent=indent)
    assert r"\ud83d\ude80" in text

    settings = a_config(PREFER)
    placed = place_text(text, FILE, settings).text
    assert json.loads(placed)["metadata"]["annotations"].items() >= job["metadata"]["annotations"].items()
    assert place_text(placed, FILE, settings).text == placed
    assert unplace_text(placed, FILE).text == text
    assert json.loads(unplace_text(json.dumps(json.loads(placed), indent=1), FILE).text) == job
