"""Taints, tolerations and affinity answer as the Kubernetes scheduler does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.scheduling_terms import (
    Constraints,
    Expression,
    Preference,
    Taint,
    Term,
    Toleration,
    is_placeholder,
)

SPOT = Taint("kubernetes.azure.com/scalesetpriority", "spot")
GPU = Taint("sku", "gpu")

words = st.sampled_from(["", "a", "b", "gpu", "spot"])
keys = st.sampled_from(["a", "b", "gpu", "spot"])
effects = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
taints = st.builds(Taint, keys, words, effects)
label_sets = st.dictionaries(keys, words)
expressions = st.builds(
    Expression, keys, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.tuples(words, words)
)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration(SPOT.key, "Equal", "spot", "NoSchedule"), True),
        (Toleration(SPOT.key, "Equal", "spot"), True),
        (Toleration(SPOT.key, "Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(SPOT.key, "Equal", "regular"), False),
        (Toleration(SPOT.key, "Equal"), False),
        (Toleration("sku", "Exists"), False),
        (Toleration(SPOT.key, "Equal", "spot", "NoExecute"), False),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Equal", value="spot"), False),
        (Toleration(), False),
    ],
)
def test_a_toleration_matches_a_taint_by_key_value_and_effect(toleration: Toleration, *, tolerated: bool) -> None:
    assert toleration.tolerates(SPOT) is tolerated


def test_equal_is_the_default_operator() -> None:
    assert Toleration("sku", value="gpu").tolerates(GPU)
    assert not Toleration("sku", value="cpu").tolerates(GPU)


@given(taints)
def test_exists_without_a_key_tolerates_everything(taint: Taint) -> None:
    assert Toleration(operator="Exists").tolerates(taint)


@given(taints)
def test_the_toleration_that_repeats_a_taint_tolerates_it(taint: Taint) -> None:
    assert Toleration(taint.key, "Equal", taint.value, taint.effect).tolerates(taint)


@pytest.mark.parametrize(
    ("taint", "text"),
    [
        (SPOT, "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"),
        (Taint("gone", effect="NoExecute"), "gone:NoExecute"),
    ],
)
def test_a_taint_is_written_as_kubectl_writes_it(taint: Taint, text: str) -> None:
    assert str(taint) == text


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (Expression("zone", "In", ("1", "2")), True),
        (Expression("zone", "In", ("3",)), False),
        (Expression("zone", "In"), False),
        (Expression("absent", "In", ("",)), False),
        (Expression("zone", "NotIn", ("1",)), False),
        (Expression("zone", "NotIn", ("3",)), True),
        (Expression("absent", "NotIn", ("1",)), True),
        (Expression("zone", "Exists"), True),
        (Expression("absent", "Exists"), False),
        (Expression("zone", "DoesNotExist"), False),
        (Expression("absent", "DoesNotExist"), True),
        (Expression("cores", "Gt", ("8",)), True),
        (Expression("cores", "Gt", ("16",)), False),
        (Expression("cores", "Lt", ("17",)), True),
        (Expression("cores", "Lt", ("16",)), False),
        (Expression("absent", "Gt", ("0",)), False),
        (Expression("absent", "Lt", ("9",)), False),
    ],
)
def test_an_expression_matches_labels_by_its_operator(expression: Expression, *, matches: bool) -> None:
    assert expression.matches({"zone": "1", "cores": "16"}) is matches


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
@pytest.mark.parametrize(("label", "bound"), [("many", ("8",)), ("16", ("few",)), ("1.5", ("1",)), ("16", ())])
def test_a_label_that_is_no_integer_is_neither_greater_nor_less(
    operator: str, label: str, bound: tuple[str, ...]
) -> None:
    assert not Expression("cores", operator, bound).matches({"cores": label})


@given(label_sets, expressions)
def test_an_operator_and_its_opposite_never_agree(labels: dict[str, str], expression: Expression) -> None:
    opposites = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    opposite = Expression(expression.key, opposites[expression.operator], expression.values)
    assert expression.matches(labels) is not opposite.matches(labels)


def test_every_expression_of_a_term_must_hold() -> None:
    term = Term((Expression("spot", "Exists"), Expression("zone", "In", ("1",))))
    assert term.matches({"spot": "true", "zone": "1"})
    assert not term.matches({"spot": "true", "zone": "2"})


def test_a_term_without_conditions_matches_no_node() -> None:
    assert not Term().matches({"spot": "true"})


def test_the_name_of_a_node_counts_as_met_beside_the_labels_of_its_term() -> None:
    named = Expression("metadata.name", "In", ("node-1",))
    assert Term(fields=(named,)).matches({})
    assert not Term((Expression("spot", "Exists"),), (named,)).matches({})


@pytest.mark.parametrize(
    "value", ["{{inputs.parameters.pool}}", "${POOL}", "$POOL", "<pool>", "@pool@", "%POOL%", "__POOL__", "[[pool]]"]
)
def test_a_placeholder_counts_as_met(value: str) -> None:
    work = Constraints(selector={"pool": value}, required=(Term((Expression("zone", "In", ("a", value)),)),))
    assert work.refusal({}, ()) == ""
    assert [one.key for one in work.undecided] == ["pool", "zone"]


@pytest.mark.parametrize("value", ["n2-standard-8", "my_pool", "a.b", "1__2", ""])
def test_a_value_of_a_label_is_no_placeholder(value: str) -> None:
    assert not is_placeholder(value)


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
def test_a_condition_on_an_unknown_label_counts_as_met(operator: str) -> None:
    assert Expression("cpus", operator, ("4",)).matches({}, {"cpus"})


def test_work_without_constraints_fits_any_node_without_taints() -> None:
    assert Constraints().refusal({}, ()) == ""


def test_a_taint_repels_work_that_does_not_tolerate_it() -> None:
    assert Constraints().refusal({}, (GPU,)) == "it does not tolerate the taint sku=gpu:NoSchedule"


def test_each_taint_needs_a_toleration_of_its_own() -> None:
    spot_only = Constraints(tolerations=(Toleration(SPOT.key, "Exists"),))
    both = Constraints(tolerations=(Toleration(SPOT.key, "Exists"), Toleration("sku", "Exists")))
    assert "sku=gpu" in spot_only.refusal({}, (SPOT, GPU))
    assert both.refusal({}, (SPOT, GPU)) == ""


def test_a_taint_that_only_prefers_never_refuses() -> None:
    assert Constraints().refusal({}, (Taint("busy", effect="PreferNoSchedule"),)) == ""


def test_a_selector_names_the_label_that_is_missing() -> None:
    work = Constraints(selector={"spot": "true"})
    assert work.refusal({"spot": "true"}, ()) == ""
    assert work.refusal({"spot": "false"}, ()) == "its node selector asks for spot=true"
    assert work.refusal({}, ()) == "its node selector asks for spot=true"


def test_one_of_the_required_terms_is_enough() -> None:
    work = Constraints(required=(Term((Expression("a", "Exists"),)), Term((Expression("b", "Exists"),))))
    assert work.refusal({"b": ""}, ()) == ""
    assert work.refusal({"c": ""}, ()) == "its required node affinity does not match"


def test_a_preference_never_refuses() -> None:
    work = Constraints(preferred=(Preference(100, Term((Expression("spot", "Exists"),))),))
    assert work.refusal({}, ()) == ""


def test_a_toleration_admits_to_a_node_and_does_not_attract_to_it() -> None:
    work = Constraints(tolerations=(Toleration(operator="Exists"),), selector={"spot": "true"})
    assert work.refusal({}, (SPOT,)) == "its node selector asks for spot=true"


@given(
    label_sets, st.lists(taints).map(tuple), st.builds(Toleration, words, st.sampled_from(["Equal", "Exists"]), words)
)
def test_one_more_toleration_never_closes_a_node(
    labels: dict[str, str], node_taints: tuple[Taint, ...], toleration: Toleration
) -> None:
    if Constraints().refusal(labels, node_taints) == "":
        assert Constraints(tolerations=(toleration,)).refusal(labels, node_taints) == ""
