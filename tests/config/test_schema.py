"""The JSON schema of ``spotwright.yaml`` accepts every file that the loader accepts, and refuses the same malformed values."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator
from scripts.make_config_schema import SCHEMA, schema, schema_text

from spotwright.cli import cli
from spotwright.config import parse
from spotwright.config.fields import LINT, POOL, SIMULATE, TARGET, TOP
from spotwright.errors import ConfigError
from spotwright.model.policy import FIELDS

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = Draft7Validator(schema())


def test_the_schema_is_the_one_that_the_script_writes() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()
    Draft7Validator.check_schema(schema())


def test_the_command_prints_the_shipped_schema() -> None:
    done = CliRunner().invoke(cli, ["config", "schema"], standalone_mode=False)

    assert json.loads(done.output) == schema()


def is_accepted(text: str) -> bool:
    """Whether the loader takes a text, apart from files that it names."""
    try:
        parse(text, traces_exist=False)
    except ConfigError:
        return False
    return True


def example_texts() -> Iterator[tuple[str, str]]:
    """Every text in docs, examples and tests that is a configuration, with its place."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for number, block in enumerate(re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)):
            yield f"{path.relative_to(ROOT)} block {number}", block
    for folder in ("examples", "tests", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("spotwright*.yaml"):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "version: 1" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "version: 1" in node.value:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


class AsEditors(yaml.SafeLoader):
    """Reads YAML 1.2, as editors do: only ``true`` and ``false`` are booleans, and times are texts."""


AsEditors.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if not tag.endswith(":timestamp") and (first in "tTfF" or not tag.endswith(":bool"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

EXAMPLES = {place: text for place, text in example_texts() if "version: 1" in text and is_accepted(text)}


def test_every_example_of_docs_and_tests_is_valid() -> None:
    assert len(EXAMPLES) > 40
    wrong = {}
    for place, text in EXAMPLES.items():
        document = yaml.load(text, AsEditors)  # noqa: S506 - it is a SafeLoader
        wrong[place] = [error.message for error in VALIDATOR.iter_errors(document)]

    assert {place: errors for place, errors in wrong.items() if errors} == {}


VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 1.5, 10**7),
    *("", " ", "x", "two\nlines", "5m", "-5m", "1h30m", "30 s", "0.97/h", "-1/h", "1.33", "2.3", "v1.33", "1.2.3.4"),
    *("spot", "on-demand", "aks", "karpenter", "require", "linux", "stock", "at-notice", "USD", "usd", "/x", "image"),
    *("2027-01-01T00:00:00+01:00", "8h best-effort", "pvc://c", "{x}", "16Gi", "true"),
    *([], ["a"], ["a", "a"], [1], [None], [{}], ["sku=gpu:NoSchedule"], ["sku"]),
    *(
        {},
        {"a": "b"},
        {"a": 1},
        {"a": None},
        {"a": {"b": "@env:C"}},
        {"a": {"b": "c"}},
        {"cpu": 1},
        {"cpu": "x"},
        {"A B": "b"},
    ),
]

SPANS_FIELDS = re.compile(
    r"is not a pool|needs a spot pool|has an effect only with|expected at most max_nodes|make node pools|remove it"
    r"|no spot pool|fall_back_after|needs the pool|expected .* more than 0|2\.2 is the oldest|a whole number from 0 to"
    r"|expected (a version|embedded).*, found \d+$"
)
"""What only the loader knows: names and numbers that depend on other fields, and of a number how it was written (4 or 4.0)."""


def documents() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """A document for every field of the file and every value."""
    for value in VALUES:
        for field in TOP:
            yield field.name, value, {"version": 1, field.name: value}
        for name, table in (("target", TARGET), ("lint", LINT)):
            for field in table:
                yield f"{name}.{field.name}", value, {"version": 1, name: {field.name: value}}
        for field in POOL:
            pool = {"capacity": "spot", field.name: value}
            yield f"pools.p.{field.name}", value, {"version": 1, "pools": {"p": pool}}
        for field in SIMULATE:
            pool = {"capacity": "spot", "simulate": {field.name: value}}
            yield f"pools.p.simulate.{field.name}", value, {"version": 1, "pools": {"p": pool}}
        for name in FIELDS:
            group, dot, last = name.rpartition(".")
            policy = {group: {last: value}} if dot else {name: value}
            yield f"policy.{name}", value, {"version": 1, "policy": {"default": policy}}
            yield f"policy.tasks.{name}", value, {"version": 1, "policy": {"tasks": {"train": policy}}}


def test_the_schema_and_the_loader_agree_on_every_field_and_value() -> None:
    too_strict, too_lax = [], []
    for name, value, document in documents():
        valid = VALIDATOR.is_valid(document)
        try:
            parse(json.dumps(document), traces_exist=False)
        except ConfigError as error:
            if valid and not SPANS_FIELDS.search(str(error)):
                too_lax.append((name, value, str(error)))
        else:
            if not valid:
                too_strict.append((name, value))

    assert too_strict == []
    assert too_lax == []


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2},
        {"version": 1, "pool": {}},
        {"version": 1, "pools": {}},
        {"version": 1, "pools": {"A_B": {"capacity": "spot"}}},
        {"version": 1, "pools": {"p": {}}},
        {"version": 1, "pools": {"p": {"capacity": "spot", "prise": 1}}},
        {"version": 1, "policy": {"default": {"interuptions": {"max": 1}}}},
        {"version": 1, "policy": {"default": {"interruptions": {"most": 1}}}},
        {"version": 1, "policy": {"tasks": {"train": "never"}}},
        {"version": 1, "target": {"package": "newest"}},
    ],
)
def test_what_the_loader_refuses_for_its_structure_the_schema_refuses(document: dict[str, Any]) -> None:
    assert not is_accepted(json.dumps(document))
    assert not VALIDATOR.is_valid(document)
