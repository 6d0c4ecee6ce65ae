"""The check against schemas notices fields that the API server would drop."""

from __future__ import annotations

from tests.kinds.schemas import strange

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"limit": {"type": "integer"}, "mode": {"type": "string", "enum": ["a"]}},
        }
    },
}


def test_a_field_that_the_schema_does_not_know_is_found() -> None:
    assert list(strange(SCHEMA, {"kind": "X", "spec": {"limits": 1}})) == [".spec.limits"]


def test_a_value_of_another_type_or_outside_its_choices_is_found() -> None:
    assert list(strange(SCHEMA, {"spec": {"limit": "many", "mode": "b"}})) == [
        ".spec.limit is no integer",
        ".spec.mode cannot be b",
    ]


def test_a_placeholder_fits_everywhere() -> None:
    assert list(strange(SCHEMA, {"spec": {"limit": "${trialParameters.n}"}})) == []
