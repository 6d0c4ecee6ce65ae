"""Placed pods of every kind have their UID in the environment, and no number that two attempts could share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import plain_yaml

GOLDEN = Path(__file__).parent / "golden"
UID = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
OF_THE_IR = {"fieldPath": "metadata.uid"}
NO_ATTEMPTS = {"daemonset", "inferenceservice", "notebook", "resourceflavor", "statefulset"}
"""Kinds without attempts: services stay on on-demand, a daemon belongs to its node, a flavour has no pods."""


def variables(value: Any) -> Iterator[dict[str, Any]]:
    """Every variable of an attempt in a document, also in YAML that is a text of it."""
    if isinstance(value, str) and "SPOTWRIGHT_" in value and "\n" in value:
        yield from variables(plain_yaml.load(re.sub(r"{{.*?}}", "marker", value)))
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, dict) and str(item.get("name")).startswith("SPOTWRIGHT_"):
            yield item
        else:
            yield from variables(item)


@pytest.mark.parametrize("case", sorted(path.name for path in GOLDEN.iterdir()))
def test_every_kind_names_the_pod_by_its_uid_and_sets_no_number(case: str) -> None:
    documents = list(plain_yaml.load_all((GOLDEN / case / "out.yaml").read_text()))
    given: dict[str, list[dict[str, Any]]] = {}
    for variable in variables(documents):
        given.setdefault(variable["name"], []).append({key: item for key, item in variable.items() if key != "name"})

    if case in NO_ATTEMPTS:
        assert given == {}
        return
    assert len(given["SPOTWRIGHT_POD_UID"]) == len(given["SPOTWRIGHT_RUN"])
    assert all(source in (UID, OF_THE_IR) for source in given["SPOTWRIGHT_POD_UID"])
    assert "SPOTWRIGHT_ATTEMPT" not in given
