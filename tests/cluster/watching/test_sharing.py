"""Equal parts of objects are kept once, and no object is another one for that."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotwright.cluster.kept_objects import Sharing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 2) | st.sampled_from(["", "a", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.lists(st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"labels": VALUES}), "spec": VALUES}))


def a_pod(name: str) -> dict[str, Any]:
    variables = [{"name": f"V{number}", "value": "x" * 80} for number in range(20)]
    container = {"name": "main", "env": variables}
    return {"metadata": {"name": name, "labels": {"job-name": "train"}}, "spec": {"containers": [container]}}


@given(OBJECTS)
def test_an_object_equals_what_it_was_in_types_and_order_too(objects: list[dict[str, Any]]) -> None:
    sharing = Sharing(kept=5)  # the table begins anew now and then
    for item in objects:
        before = json.dumps(item)
        assert json.dumps(sharing.shared(copy.deepcopy(item))) == before


def test_equal_parts_of_two_objects_are_one() -> None:
    sharing = Sharing()
    one, other = sharing.shared(a_pod("one")), sharing.shared(a_pod("other"))
    assert one["spec"]["containers"] is other["spec"]["containers"]
    assert one["metadata"]["labels"] is other["metadata"]["labels"]
    assert (one["metadata"]["name"], other["metadata"]["name"]) == ("one", "other")


def test_the_table_does_not_grow_for_ever() -> None:
    sharing = Sharing(kept=100)
    for number in range(1000):
        sharing.shared({"metadata": {}, "spec": {"name": f"{number}", "of": [f"{number}"]}})
    assert len(sharing._known) < 110  # what it holds is what it costs
