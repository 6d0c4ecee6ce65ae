"""Whatever a file holds: an answer, and no failure. Documents are mutated at any place, and files are large or many."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import plain_yaml
from tests.linter.linting import found_in, linted
from tests.linter.linting import settings as lint_settings
from tests.placing.placed import SHARED, a_config

from spotwright.errors import InputError
from spotwright.linter.linting import RULES, lint_text
from spotwright.linter.rule import ON_SPOT, Severity, job

GOLDEN = Path(__file__).parents[1] / "kinds" / "golden"
LEVEL = "tolerations: [{key: a}], nodeSelector: {a: b}, affinity: {nodeAffinity: {}}"
LEVELS = (
    f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: w}}\nspec:\n  templateDefaults: {{{LEVEL}}}\n"
    f"  templates:\n  - {{name: main, {LEVEL}, steps: [[{{name: a, template: a}}, {{name: b, inline: {{script: {{}}}}}}]]}}\n"
    f"  - {{name: a, container: {{image: a}}, sidecars: [{{image: a}}]}}\n"
)
TEXTS = [
    *(path.read_text() for path in sorted(GOLDEN.glob("*/in.yaml"))),
    *(rule.fails for rule in RULES if not rule.is_python),
    LEVELS,
]
POOLS = a_config("{default: {spot: prefer}}").text
UPSTREAM = sorted((SHARED / "manifests").glob("*.yaml"))
ODD: list[Any] = [
    None,
    True,
    0,
    1.5,
    "",
    "x",
    "{{a}}",
    "${b}",
    [],
    {},
    [None],
    ["x"],
    {"a": None},
    [{}],
    [[1]],
    {"name": []},
]


@pytest.mark.parametrize("odd", [5, True, "x", [3, None], {"a": [1]}], ids=str)
def test_a_level_of_a_workflow_may_hold_anything(odd: Any) -> None:
    for path in places(plain_yaml.load(LEVELS)):
        if path and path[0] == "spec":
            found_in(plain_yaml.dump(with_value(plain_yaml.load(LEVELS), path, odd)))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in children for found in places(child, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = with_value(copied[path[0]], path[1:], new)
    return copied


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_document_with_any_value_at_any_place_is_linted(data: st.DataObject) -> None:
    documents = list(plain_yaml.load_all(data.draw(st.sampled_from(TEXTS))))
    number = data.draw(st.integers(0, len(documents) - 1))
    path = data.draw(st.sampled_from(places(documents[number])))
    documents[number] = with_value(documents[number], path, data.draw(st.sampled_from(ODD)))
    text = plain_yaml.dump_all(documents)
    for configuration in ("", POOLS):
        with suppress(InputError):  # an empty document
            assert all(finding.line > 0 for finding in linted(text, configuration).findings)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([rule.fails for rule in RULES if rule.is_python]), st.data())
def test_a_python_file_that_is_cut_anywhere_is_linted_or_refused(text: str, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    with suppress(InputError):  # no Python any more
        assert linted(text[:start] + text[end:], python=True).documents == 1


@pytest.mark.skipif(not UPSTREAM, reason="the upstream manifests are not beside this project")
@pytest.mark.parametrize("path", UPSTREAM, ids=lambda path: path.name)
def test_upstream_manifests_have_no_error(path: Path) -> None:
    found = lint_text(path.read_text(), path.name, lint_settings()).findings

    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


@pytest.mark.long
def test_thousands_of_documents_are_linted_in_their_turn() -> None:
    text = "---\n".join([job(ON_SPOT + "nodeName: a\n")] * 3000)
    before = time.process_time()
    result = linted(text)

    assert (result.documents, len(result.findings)) == (3000, 3000)
    assert 3000 / (time.process_time() - before) > 200
    assert result.findings[-1].line == text[: text.rindex("nodeName")].count("\n") + 1


def test_lint_imports_neither_kfp_nor_what_only_linux_has() -> None:
    code = (
        "import sys\nfor name in ('fcntl', 'pwd', 'resource', 'termios'): sys.modules[name] = None\n"
        "import spotwright.linter.linting, spotwright.linter.linting, spotwright.linter.formats\n"
        "assert not {name for name in sys.modules if name.partition('.')[0] in ('kfp', 'kubernetes', 'google')}\n"
        "assert not {name for name in sys.modules if name.startswith(('spotwright.local', 'spotwright.runs'))}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "words"), [("only words\n", "a text"), ("- a\n- b\n", "a list"), ("[{kind: Pod}]\n", "a list")]
)
def test_a_document_that_is_no_mapping_is_said_to_be_unchecked(text: str, words: str) -> None:
    [finding] = found_in(text)

    assert (finding.rule, finding.text) == (
        "no-object",
        f"this is {words} and not a Kubernetes object, so it was not checked",
    )


def test_a_shell_script_that_makes_preemptible_nodes_is_told_the_form_of_today() -> None:
    script = "gcloud container node-pools create a \\\n    --machine-type n1-highmem-8 \\\n    --preemptible \\\n    --scopes b\n"

    assert "preemptible-flag" in {one.rule for one in found_in(script)}
