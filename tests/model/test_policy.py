"""A policy is resolved from layers, with the source of every value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.policy import BUILT_IN, FIELDS, Backoff, Deadline, Layer, Policy, Spot, imply_spot, resolve

DEFAULT = "spotwright.yaml:12"
RETRY = "set_retry"

numbers = st.integers(0, 50)


def layer(source: str, **values: Any) -> Layer:
    """Build a layer; a double underscore stands for the dot of a field's name."""
    return Layer(source, {key.replace("__", "."): value for key, value in values.items()})


def with_retry(*stronger: Layer, weaker: tuple[Layer, ...] = (), **values: Any) -> Policy:
    """Resolve with KFP's own settings between weaker and stronger layers."""
    kfp = layer(RETRY, **values)
    return resolve([*weaker, kfp, *stronger], kfp)


def test_without_layers_the_built_in_values_hold() -> None:
    policy = resolve([])
    assert (policy.max_interruptions, policy.retries, policy.fall_back_after) == (10, 0, 10)
    assert policy.interruption_backoff == policy.error_backoff == Backoff(1.0, 2.0, 300.0)
    assert (policy.pending_timeout, policy.grace_period) == (600.0, 30.0)


def test_without_layers_nothing_is_placed() -> None:
    assert resolve([]).spot is None


def test_the_defaults_of_the_class_are_the_built_in_values() -> None:
    plain, resolved = Policy(), resolve([])
    assert {name: getattr(plain, name) for name in Policy.__slots__ if name != "sources"} == {
        name: getattr(resolved, name) for name in Policy.__slots__ if name != "sources"
    }


def test_every_built_in_value_belongs_to_a_field() -> None:
    assert set(BUILT_IN.values) <= set(FIELDS)


def test_the_stronger_layer_wins_field_by_field() -> None:
    policy = resolve([layer("weak", spot="prefer", errors__retries=1), layer("strong", errors__retries=3)])
    assert policy.spot is Spot.PREFER
    assert policy.retries == 3


def test_every_value_names_its_source() -> None:
    policy = resolve([layer(DEFAULT, spot="prefer", timeout=60.0), layer("--spot", spot="never")])
    assert policy.sources["spot"] == "--spot"
    assert policy.sources["timeout"] == DEFAULT
    assert policy.sources["grace_period"] == "built in"


def test_a_value_equal_to_the_default_keeps_its_source() -> None:
    policy = resolve([layer(DEFAULT, pending_timeout=600.0)])
    assert policy.sources["pending_timeout"] == DEFAULT


@pytest.mark.parametrize("spot", list(Spot))
def test_spot_is_read_from_its_name(spot: Spot) -> None:
    assert resolve([layer(DEFAULT, spot=spot.value)]).spot is spot


def test_an_unknown_value_of_spot_is_refused() -> None:
    with pytest.raises(ValueError, match="maybe"):
        resolve([layer(DEFAULT, spot="maybe")])


def test_an_unknown_ladder_and_an_empty_one_differ() -> None:
    assert resolve([]).ladder is None
    assert resolve([layer(DEFAULT, ladder=[])]).ladder == ()
    assert resolve([layer(DEFAULT, ladder=["a", "b"])]).ladder == ("a", "b")


def test_every_field_reaches_the_policy() -> None:
    deadline = Deadline(after=60.0)
    policy = resolve(
        [
            layer(
                DEFAULT,
                spot="require",
                ladder=["a"],
                interruptions__max=7,
                interruptions__backoff=2.0,
                interruptions__factor=3.0,
                interruptions__max_backoff=4.0,
                errors__retries=5,
                errors__backoff=6.0,
                errors__factor=7.0,
                errors__max_backoff=8.0,
                fall_back_after=6,
                pending_timeout=9.0,
                deadline=deadline,
                expected_duration=10.0,
                grace_period=11.0,
                timeout=12.0,
                checkpoint="pvc://ckpt",
                image_pull_secrets=["acr-auth"],
            )
        ]
    )
    assert policy == Policy(
        spot=Spot.REQUIRE,
        ladder=("a",),
        max_interruptions=7,
        interruption_backoff=Backoff(2.0, 3.0, 4.0),
        retries=5,
        error_backoff=Backoff(6.0, 7.0, 8.0),
        fall_back_after=6,
        pending_timeout=9.0,
        deadline=deadline,
        expected_duration=10.0,
        grace_period=11.0,
        timeout=12.0,
        checkpoint="pvc://ckpt",
        image_pull_secrets=("acr-auth",),
        sources=dict.fromkeys(FIELDS, DEFAULT),
    )


def test_the_last_allowed_attempt_is_on_demand_unless_set_otherwise() -> None:
    policy = resolve([layer(DEFAULT, interruptions__max=4)])
    assert policy.fall_back_after == 4
    assert policy.sources["fall_back_after"] == "interruptions.max"
    assert resolve([layer(DEFAULT, interruptions__max=4, fall_back_after=0)]).fall_back_after == 0


def test_set_retry_is_the_error_budget() -> None:
    policy = with_retry(errors__retries=5)
    assert policy.retries == 5
    assert policy.sources["errors.retries"] == RETRY


def test_set_retry_raises_the_interruption_budget_to_at_least_as_many() -> None:
    policy = with_retry(errors__retries=25)
    assert policy.max_interruptions == 25
    assert policy.sources["interruptions.max"] == RETRY
    assert policy.fall_back_after == 25


def test_set_retry_never_lowers_the_interruption_budget() -> None:
    policy = with_retry(errors__retries=5)
    assert policy.max_interruptions == 10
    assert policy.sources["interruptions.max"] == "built in"


@pytest.mark.parametrize("place", ["weaker", "stronger"])
def test_set_retry_also_raises_a_budget_that_a_policy_names(place: str) -> None:
    named = layer(DEFAULT, interruptions__max=2)
    layers = {"weaker": {"weaker": (named,)}, "stronger": {}}[place]
    policy = with_retry(*([named] if place == "stronger" else []), errors__retries=5, **layers)
    assert policy.max_interruptions == 5


def test_the_backoff_of_set_retry_counts_for_interruptions_too() -> None:
    policy = with_retry(errors__retries=5, errors__backoff=30.0, errors__factor=1.0, errors__max_backoff=60.0)
    assert policy.error_backoff == policy.interruption_backoff == Backoff(30.0, 1.0, 60.0)
    assert policy.sources["interruptions.backoff"] == RETRY


def test_a_policy_that_sets_a_wait_keeps_it_field_by_field() -> None:
    weaker = (layer(DEFAULT, interruptions__backoff=5.0),)
    policy = with_retry(weaker=weaker, errors__retries=5, errors__backoff=30.0, errors__max_backoff=60.0)
    assert policy.interruption_backoff == Backoff(5.0, 2.0, 60.0)
    assert policy.error_backoff == Backoff(30.0, 2.0, 60.0)


def test_the_backoff_of_a_plain_policy_does_not_spread() -> None:
    assert resolve([layer(DEFAULT, errors__backoff=30.0)]).interruption_backoff.first == 1.0


@given(st.lists(st.dictionaries(st.sampled_from(["errors.retries", "interruptions.max", "fall_back_after"]), numbers)))
def test_each_value_is_that_of_the_strongest_layer(layers: list[dict[str, int]]) -> None:
    policy = resolve([Layer(str(index), values) for index, values in enumerate(layers)])
    merged: dict[str, int] = {}
    for values in layers:
        merged |= values
    assert policy.retries == merged.get("errors.retries", 0)
    assert policy.max_interruptions == merged.get("interruptions.max", 10)
    assert policy.fall_back_after == merged.get("fall_back_after", policy.max_interruptions)


@given(numbers, st.none() | numbers)
def test_with_set_retry_the_interruption_budget_is_never_below_the_retries(retries: int, named: int | None) -> None:
    weaker = () if named is None else (layer(DEFAULT, interruptions__max=named),)
    policy = with_retry(weaker=weaker, errors__retries=retries)
    assert policy.max_interruptions == max(retries, 10 if named is None else named)


@pytest.mark.parametrize(
    ("ended", "wait"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (10**9, 300.0)]
)
def test_the_wait_grows_by_its_factor_up_to_its_ceiling(ended: int, wait: float) -> None:
    assert Backoff().wait(ended) == wait


def test_a_factor_of_one_waits_the_same_each_time() -> None:
    assert {Backoff(5.0, 1.0, 300.0).wait(ended) for ended in range(1, 50)} == {5.0}


def test_a_ceiling_below_the_first_wait_holds_from_the_start() -> None:
    assert Backoff(60.0, 2.0, 10.0).wait(1) == 10.0


@given(st.floats(0, 1e6), st.floats(1, 10), st.floats(0, 1e6), st.integers(0, 10_000))
def test_a_wait_never_shrinks_and_never_passes_its_ceiling(
    first: float, factor: float, ceiling: float, ended: int
) -> None:
    backoff = Backoff(first, factor, ceiling)
    assert backoff.wait(ended) <= backoff.wait(ended + 1) <= ceiling


def test_a_deadline_after_the_start_moves_with_the_run() -> None:
    assert Deadline(after=60.0).moment(1000.0) == 1060.0


def test_a_deadline_at_a_time_does_not_move() -> None:
    assert Deadline(at=5000.0).moment(1000.0) == 5000.0


@pytest.mark.parametrize(("field", "value"), [("deadline", Deadline(after=60.0)), ("fall_back_after", 2)])
def test_a_deadline_or_fall_back_after_implies_prefer(field: str, value: Any) -> None:
    policy = imply_spot(resolve([Layer(DEFAULT, {field: value})]))
    assert (policy.spot, policy.sources["spot"]) == (Spot.PREFER, DEFAULT)


def test_without_them_spot_stays_unset() -> None:
    assert imply_spot(resolve([layer(DEFAULT, timeout=60.0)])).spot is None
