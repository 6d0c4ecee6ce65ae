"""The fields of an object that its users wrote: the ones that the API server lists with a manager."""

from __future__ import annotations

from typing import Any

import pytest

from spotwright.cluster.admit_updates import without_unowned_fields

SPEC = {
    "a": 1,
    "b": {"c": 2, "d": {"e": 3}},
    "atomic": [{"x": 1}],
    "named": [{"name": "one", "y": 1, "z": 2}, {"name": "two", "y": 3}],
    "values": ["u", "v"],
}


def kept(*fields: dict[str, Any], **more: Any) -> Any:
    managers = [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:spec": each}, **more} for each in fields]
    data = {"kind": "Any", "metadata": {"name": "n", "managedFields": managers}, "spec": SPEC}
    found = without_unowned_fields(data)
    return None if found is None else found["spec"]


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"f:a": {}}, {"a": 1}),
        ({"f:b": {"f:c": {}}}, {"b": {"c": 2}}),
        ({"f:b": {".": {}, "f:d": {"f:e": {}}}}, {"b": {"d": {"e": 3}}}),
        ({"f:b": {}}, {"b": SPEC["b"]}),
        ({"f:atomic": {}}, {"atomic": [{"x": 1}]}),
        ({"f:named": {'k:{"name":"one"}': {".": {}, "f:y": {}, "f:name": {}}}}, {"named": [{"name": "one", "y": 1}]}),
        ({"f:values": {'v:"v"': {}}}, {"values": ["v"]}),
        ({"f:named": {"k:no JSON": {}}}, {"named": []}),
        ({"f:gone": {}, "f:a": {}}, {"a": 1}),
    ],
)
def test_what_has_a_manager_stays(fields: dict[str, Any], spec: dict[str, Any]) -> None:
    assert kept(fields) == spec


def test_the_fields_of_all_managers_count_but_not_those_of_a_status() -> None:
    assert kept({"f:a": {}}, {"f:b": {"f:c": {}}}) == {"a": 1, "b": {"c": 2}}
    assert kept({"f:a": {}}, subresource="status") is None


@pytest.mark.parametrize("metadata", [{}, {"managedFields": None}, {"managedFields": ["x", {"fieldsV1": "y"}]}])
def test_without_managers_nothing_is_known(metadata: dict[str, Any]) -> None:
    assert without_unowned_fields({"metadata": metadata, "spec": SPEC}) is None
