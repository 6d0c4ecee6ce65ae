"""An object that comes as data is placed exactly as its file is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests import plain_yaml
from tests.cluster.golden_objects import GOLDEN, POLICY, TARGET, documents
from tests.cluster.json_patches import apply_patch
from tests.placing.placed import a_config

from spotwright.manifests.files import place_text
from spotwright.manifests.objects import place_object
from spotwright.placing.context import PlaceOptions
from spotwright.placing.documents import References, parse


def cases() -> list[str]:
    """The golden inputs that are Kubernetes objects, one a file."""
    inputs = {path.parent.name: documents(path) for path in sorted(GOLDEN.glob("*/in.yaml"))}
    return [name for name, found in inputs.items() if len(found) == 1 and "apiVersion" in found[0]]


def without_record(data: dict[str, Any]) -> dict[str, Any]:
    """The object without its record, which an Experiment has in its trial; empty parents are removed."""
    holder = data["spec"]["trialTemplate"]["trialSpec"] if data["kind"] == "Experiment" else data
    metadata = holder["metadata"]
    metadata["annotations"].pop("spotwright.dev/placed")
    if not metadata["annotations"]:
        del metadata["annotations"]
    if not metadata:
        del holder["metadata"]
    return data


@pytest.mark.parametrize("case", cases())
def test_an_object_is_placed_as_its_file_is(case: str) -> None:
    folder = GOLDEN / case
    given, beside = (folder / "in.yaml").read_text(), folder / "with.yaml"
    config, options = a_config(POLICY, TARGET), PlaceOptions(may_add=False, has_webhook=False)
    references = References(parse(beside.read_text(), "with.yaml") if beside.exists() else [])
    from_file = place_text(given, "in.yaml", config, references, options)
    before = copy.deepcopy(data := plain_yaml.load(given))
    placed = place_object(data, config, beside=documents(beside), options=options)
    expected = without_record(plain_yaml.load(from_file.text))
    assert data == before
    assert apply_patch(data, placed.patch) == expected
    assert [finding.text for finding in placed.findings] == [finding.text for finding in from_file.findings]


def test_the_cases_cover_every_family_of_kinds() -> None:
    assert len(cases()) >= 20
