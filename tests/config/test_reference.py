"""The reference page agrees with the tables of fields."""

from __future__ import annotations

import dataclasses
import re

from scripts.make_config_reference import page

from spotwright import config
from spotwright.config.fields import POOL, SIMULATE
from spotwright.config.sections import POLICY_MEANINGS
from spotwright.model.policy import FIELDS
from spotwright.model.pools import Pool, Simulate


def test_the_example_of_the_page_is_a_configuration() -> None:
    example = re.search(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert example is not None
    assert list(config.parse(example[1]).pools) == ["gpu-spot", "gpu"]


def test_every_field_of_a_pool_has_a_row() -> None:
    set_by_the_program = {"is_spot", "name", "price_source", "quote"}
    assert {field.name for field in POOL} | set_by_the_program == {field.name for field in dataclasses.fields(Pool)}


def test_every_field_of_the_simulation_has_a_row() -> None:
    assert {field.name for field in SIMULATE} == set(Simulate._fields)


def test_every_field_of_a_policy_has_a_meaning() -> None:
    assert set(POLICY_MEANINGS) == set(FIELDS)


def test_every_field_is_on_the_page() -> None:
    assert all(f"| `{name}` |" in page() for name in [*FIELDS, *(field.name for field in (*POOL, *SIMULATE))])
