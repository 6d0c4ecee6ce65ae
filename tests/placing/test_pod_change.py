"""How conditions come into the alternatives of a pod, and out again: each condition of ours, and none of its author's."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.kube.pod import PREFERRED, TERMS
from spotwright.placing.patch import Editor, data_document, value_at
from spotwright.placing.pod_change import (
    OWN_ANNOTATION,
    ContainerChange,
    PodChange,
    ours_in,
    with_terms,
    without_conditions,
    without_preferences,
    write,
)

Term = dict[str, Any]


def condition(key: str) -> Term:
    return {"key": key, "operator": "Exists"}


A, B, X, Y = (condition(key) for key in "abxy")


def term(*some: Term) -> Term:
    return {"matchExpressions": list(some)} if some else {}


@pytest.mark.parametrize(
    ("present", "change", "after"),
    [
        ([], PodChange(), []),
        ([], PodChange(required=(X,)), [term(X)]),
        ([], PodChange(required=(X,), any_of=(A, B)), [term(X, A), term(X, B)]),
        ([term(A)], PodChange(required=(X,)), [term(A, X)]),
        ([term(A), term()], PodChange(required=(X,)), [term(A, X), term()]),
        ([term()], PodChange(required=(X,), any_of=(A, B)), [term()]),
        ([{"matchExpressions": None}], PodChange(required=(X,)), [{"matchExpressions": None}]),
        ([{"matchExpression": [A]}], PodChange(required=(X,)), [{"matchExpression": [A]}]),
        ([term(X, A)], PodChange(required=(X, Y)), [term(X, A, Y)]),
        ([term(A)], PodChange(any_of=(X, Y)), [term(A, X), term(A, Y)]),
    ],
)
def test_a_condition_comes_into_each_alternative_that_can_match(
    present: list[Term], change: PodChange, after: list[Term]
) -> None:
    before = copy.deepcopy(present)
    assert with_terms(present, change) == after
    assert present == before


some_conditions = st.lists(st.sampled_from([A, B, X, Y]), max_size=3, unique_by=lambda one: one["key"])


@settings(max_examples=200)
@given(st.lists(some_conditions, max_size=3), some_conditions, some_conditions)
def test_what_was_added_is_taken_out_and_what_its_author_wrote_stays(
    terms: list[list[Term]], required: list[Term], any_of: list[Term]
) -> None:
    present = [term(*some) for some in terms]
    change = PodChange(required=tuple(required), any_of=tuple(one for one in any_of if one not in required))
    edits = change.terms(present)
    after = [*map(dict, edits.more), *with_terms(present, change)[: len(present)]]  # as a file has them
    own = change.own_in(a_spec(present))
    pod = {
        "metadata": {"annotations": {OWN_ANNOTATION: json.dumps(own)} if own else {}},
        "spec": a_spec(after),
    }
    left = without_conditions(after, ours_in(pod, (*change.required, *change.any_of)))

    def texts(some: list[Term]) -> set[str]:
        return {json.dumps(sorted(one["key"] for one in each.get("matchExpressions") or ())) for each in some}

    assert texts(left) == texts(present)


def test_a_condition_that_came_with_a_review_is_taken_out_by_its_record() -> None:
    present = [term(A, X), term(B)]
    edits = PodChange(required=(X,)).terms(present)
    assert without_conditions(with_terms(present, PodChange(required=(X,))), edits.conditions) == present


def test_a_condition_that_is_only_wished_beside_its_author_s_is_noted_as_the_author_s() -> None:
    assert PodChange(preferred=(X,), is_wish=True).own_in(a_spec([term(A), term(X)])) == {"1": ["x"]}
    assert PodChange(preferred=(X,)).own_in(a_spec([term(X)])) == {}


def test_a_preference_of_the_author_s_stays_where_a_requirement_takes_the_place_of_ours() -> None:
    change = PodChange(preferred=(X, Y))
    author_s = PodChange(preferred=(X,)).preferences
    spec = a_spec([term(A)], author_s)
    own = change.own_in(spec)
    assert own == {"preferred": ["x"]}
    pod = {"metadata": {"annotations": {OWN_ANNOTATION: json.dumps(own)}}, "spec": written(spec, change)}
    assert value_at(pod["spec"], PREFERRED) == change.preferences
    assert value_at(without_preferences(pod["spec"], pod, change.preferred), PREFERRED) == author_s
    del pod["metadata"]
    assert value_at(without_preferences(pod["spec"], pod, change.preferred), PREFERRED) is None


def test_a_container_gets_its_part_and_keeps_what_it_has() -> None:
    container = {"name": "main", "command": ["sh", "-c", "train"], "env": [{"name": "A", "value": "1"}]}
    lifecycle = {"postStart": {"sleep": {"seconds": 1}}}
    spec = {"containers": [{"name": "other"}, {**container, "lifecycle": lifecycle}]}
    hook = {"sleep": {"seconds": 2}}
    first = PodChange(containers={1: ContainerChange(({"name": "A", "value": "2"}, {"name": "B", "value": "3"}))})
    second = PodChange(
        containers={
            1: ContainerChange((), ({"name": "v", "mountPath": "/v"},), hook, {("command", 2): "set -e; train"})
        },
        volumes=({"name": "v", "emptyDir": {}},),
        image_pull_secrets=("key",),
    )
    assert written(spec, first | second) == {
        "containers": [
            {"name": "other"},
            {
                "name": "main",
                "command": ["sh", "-c", "set -e; train"],
                "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
                "lifecycle": {**lifecycle, "preStop": hook},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            },
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "imagePullSecrets": [{"name": "key"}],
    }


def test_two_changes_are_written_as_one_after_the_other() -> None:
    one = PodChange(
        required=(X,), grace_period=20, labels={"a": "1"}, containers={0: ContainerChange(({"name": "A"},))}
    )
    other = PodChange(
        tolerations=({"key": "t"},),
        grace_period=30,
        labels={"a": "2", "b": "2"},
        containers={0: ContainerChange(({"name": "B"},))},
    )
    both = one | other
    assert (both.grace_period, both.labels) == (20, {"a": "1", "b": "2"})
    spec = {"containers": [{"name": "main"}]}
    assert written(spec, both) == written(written(spec, one), replace(other, grace_period=None))


def a_spec(required: list[Term], preferred: list[Term] | None = None) -> dict[str, Any]:
    affinity = {str(TERMS[2]): {TERMS[3]: required}, str(PREFERRED[2]): preferred}
    return {"affinity": {"nodeAffinity": affinity}}


def written(spec: Mapping[str, Any], change: PodChange) -> dict[str, Any]:
    editor = Editor(data_document({"spec": spec}, "Pod p"))
    write(editor, ("spec",), change)
    after: dict[str, Any] = editor.data["spec"]
    return after
