"""How conditions come into the alternatives of a pod, and out again: each condition of ours, and none of its author's."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.placing.pod_change import OWN_ANNOTATION, PodChange, ours_in, with_terms, without_conditions

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
    own = change.own_in(present)
    pod = {
        "metadata": {"annotations": {OWN_ANNOTATION: json.dumps(own)} if own else {}},
        "spec": {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": after}}
            }
        },
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
    assert PodChange(preferred=(X,), is_wish=True).own_in([term(A), term(X)]) == {"1": ["x"]}
    assert PodChange(preferred=(X,)).own_in([term(X)]) == {}
