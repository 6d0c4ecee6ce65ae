"""Any text is a configuration or an error for its user, in short time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.config.design_example import DESIGN

from spotwright import config
from spotwright.config.fields import POOL, SIMULATE, TARGET, TOP
from spotwright.config.sections import POLICY
from spotwright.errors import ConfigError
from spotwright.model.policy import FIELDS

SECONDS = 1.0  # what takes milliseconds; far above, so that a slow machine fails no test

WORDS = st.sampled_from(
    [
        *(field.name for table in (TOP, TARGET, POOL, SIMULATE, POLICY) for field in table),
        *(part for name in FIELDS for part in name.split(".")),
        *(
            "spot",
            "on-demand",
            "prefer",
            "never",
            "require",
            "aks",
            "cpu",
            "memory",
            "nvidia.com/gpu",
            "a",
            "<<",
            "**/a",
            "*",
        ),
        *(
            "1",
            "1.30",
            "-1",
            "1e99",
            "30s",
            "0s",
            "1h best-effort",
            "2026-11-21T08:00:00+01:00",
            "0.97/h",
            "112Gi",
            "USD",
        ),
        *("a=b:NoSchedule", "true", "null", "", "9" * 30, "9" * 5000, "1e999999999", "0001-01-01T00:00:00+14:00"),
    ]
)
VALUES = st.recursive(
    st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=30,
)
FILES = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        "currency": VALUES,
        "target": st.dictionaries(WORDS, VALUES, max_size=3),
        "pools": st.dictionaries(WORDS, st.dictionaries(WORDS, VALUES, max_size=6), max_size=3),
        "policy": st.fixed_dictionaries(
            {},
            optional={
                "default": st.dictionaries(WORDS, VALUES, max_size=5),
                "tasks": st.dictionaries(WORDS, st.dictionaries(WORDS, VALUES, max_size=4), max_size=3),
            },
        ),
    },
)
YAML_TEXT = st.text(st.sampled_from("ab1:-?*&!<>|'\"%@`#{}[], \n\r\t~=/.é\ufeff\x85\u2028\ud800\x00"), max_size=60)

POOL_WITH = "version: 1\npools: {{a: {{capacity: spot, {}}}}}"
FRAGMENTS = (
    *(
        "&a ",
        "*a",
        "<<: ",
        "- ",
        "!!str ",
        "? ",
        "{",
        "}",
        "[",
        "]",
        "{a: 1}",
        "[[a]]",
        "\n",
        "\t",
        '"',
        "'",
        "#",
        ":",
        ",",
    ),
    *("---\n", "...\n", "0x1f", "1e99", "-1", ".inf", "~", "true", "\u00e9", "\x00"),
)
COSTLY = {
    "brackets": "[" * 900_000,
    "braces": "{" * 900_000,
    "questions": "? " * 400_000,
    "dashes": "- " * 400_000,
    "an alias bomb": "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)),
    "a thousand mistakes": "version: 1\npools:\n" + "".join(f"  P{n}: {{capacty: x}}\n" for n in range(8000)),
    "many taints": POOL_WITH.format(f"taints: [{','.join(f'k{n}:NoSchedule' for n in range(20_000))}]"),
    "many zones": POOL_WITH.format(f"zones: [{','.join(f'z{n}' for n in range(40_000))}]"),
    "many patterns": "version: 1\npolicy:\n  tasks:\n" + "".join(f"    p{n}: {{spot: never}}\n" for n in range(8000)),
    "a long number": POOL_WITH.format(f"notice: {'9' * 900_000}"),
    "a long amount": POOL_WITH.format(f"node: {{cpu: {'9' * 900_000}m}}"),
    "a large exponent": POOL_WITH.format("node: {cpu: 1e999999999}"),
    "a long key": f"version: 1\npools:\n  a:\n    capacity: spot\n    labels:\n      ? {'a.' * 400_000}/x\n      : y",
    "a long taint": POOL_WITH.format(f"taints: ['{'a' * 900_000}']"),
}


def read(text: str) -> None:
    message = "none"
    try:
        config.parse(text)
    except ConfigError as error:
        message = str(error)
    assert message.encode(), "an error says something that can be printed"


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), YAML_TEXT))
def test_any_text_is_a_configuration_or_an_error_of_the_configuration(text: str) -> None:
    read(text)


@settings(max_examples=150, deadline=None)
@given(FILES)
def test_any_value_in_any_field_is_read_or_an_error_of_the_configuration(document: dict[str, Any]) -> None:
    read(json.dumps(document, ensure_ascii=False))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(WORDS, WORDS, max_size=6))
def test_any_unquoted_word_in_a_pool_is_read_or_an_error(pool: dict[str, str]) -> None:
    read(
        "version: 1\npools:\n  a:\n    capacity: spot\n"
        + "".join(f"    {key}: {value}\n" for key, value in pool.items())
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(DESIGN)), st.sampled_from(FRAGMENTS)), max_size=4))
def test_a_right_file_with_any_insertion_is_read_or_an_error(edits: list[tuple[int, str]]) -> None:
    text = DESIGN
    for index, fragment in edits:
        text = text[:index] + fragment + text[index:]
    read(text)


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_text_is_read_or_refused_soon(name: str) -> None:
    before = time.process_time()
    read(COSTLY[name])
    assert time.process_time() - before < SECONDS
