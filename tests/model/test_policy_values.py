"""Policy values as users write them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from spotwright.model.policy import (
    FIELDS,
    Deadline,
    Layer,
    PolicyValueError,
    Spot,
    check,
    parse_policy,
    policy_mapping,
    resolve,
    resolve_layers,
)

GOOD: dict[str, Any] = {
    "spot": "prefer",
    "ladder": ["a", "b"],
    "interruptions": {"max": 5, "backoff": "1s", "factor": 2, "max_backoff": "5m"},
    "errors": {"retries": 1, "backoff": 0.5, "factor": 1.5, "max_backoff": "1h"},
    "fall_back_after": 3,
    "pending_timeout": "10m",
    "deadline": "8h",
    "expected_duration": "2h",
    "grace_period": "0s",
    "timeout": "1h30m",
    "checkpoint": "pvc://ckpt",
    "image_pull_secrets": ["acr"],
}


def test_every_field_of_the_policy_can_be_read() -> None:
    values = parse_policy(GOOD, "here").values
    assert set(values) == set(FIELDS)
    assert values["spot"] is Spot.PREFER
    assert values["timeout"] == 5400.0
    assert values["ladder"] == ("a", "b")


@pytest.mark.parametrize(
    "deadline", ["8h", "90s best-effort", "2026-11-21T08:00:00+01:00", "2026-11-21T08:00:00Z best-effort"]
)
def test_written_values_read_back_equal(deadline: str) -> None:
    values = parse_policy({**GOOD, "deadline": deadline}, "here").values
    assert parse_policy(json.loads(json.dumps(policy_mapping(values))), "here").values == values


def test_a_layer_names_its_source() -> None:
    assert parse_policy({}, "spotwright.yaml:3") == Layer("spotwright.yaml:3", {})


@pytest.mark.parametrize(
    ("text", "deadline"),
    [
        ("8h", Deadline(after=28800.0)),
        (3600, Deadline(after=3600.0)),
        ("8h best-effort", Deadline(after=28800.0, best_effort=True)),
        ("1970-01-01T01:00:00+01:00", Deadline(at=0.0)),
        ("1970-01-01T00:00:10Z best-effort", Deadline(at=10.0, best_effort=True)),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), Deadline(at=0.0)),
    ],
)
def test_a_deadline_is_a_duration_or_a_time_with_its_zone(text: Any, deadline: Deadline) -> None:
    assert parse_policy({"deadline": text}, "here").values["deadline"] == deadline


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"spot": "maybe"}, "spot"),
        ({"spot": None}, "spot"),
        ({"ladder": "a"}, "ladder"),
        ({"ladder": ["a", "a"]}, "ladder"),
        ({"ladder": []}, "ladder"),
        ({"interruptions": 3}, "interruptions"),
        ({"interruptions": {"max": True}}, "interruptions.max"),
        ({"interruptions": {"max": -1}}, "interruptions.max"),
        ({"interruptions": {"max": 1.0}}, "interruptions.max"),
        ({"interruptions": {"factor": 0.5}}, "interruptions.factor"),
        ({"interruptions": {"factor": float("nan")}}, "interruptions.factor"),
        ({"errors": {"backoff": "soon"}}, "errors.backoff"),
        ({"errors": {"backoff": [1]}}, "errors.backoff"),
        ({"timeout": "0s"}, "timeout"),
        ({"deadline": "2026-11-21T08:00:00"}, "deadline"),
        ({"deadline": datetime(2026, 11, 21, 8)}, "deadline"),  # noqa: DTZ001 - that is what is wrong with it
        ({"checkpoint": " "}, "checkpoint"),
        ({"checkpoint": "pvc://ckpt/{run}/{task}"}, "checkpoint"),
        ({"image_pull_secrets": [1]}, "image_pull_secrets"),
    ],
)
def test_a_wrong_value_names_its_field_and_the_expected_form(policy: dict[str, Any], field: str) -> None:
    with pytest.raises(PolicyValueError) as error:
        parse_policy(policy, "here")
    assert error.value.field == field
    assert error.value.expected in str(error.value)


@pytest.mark.parametrize(
    ("policy", "field", "hint"),
    [
        ({"sopt": "prefer"}, "sopt", "spot"),
        ({"retries": 2}, "retries", "errors.retries"),
        ({"interruptions": {"maximum": 1}}, "interruptions.maximum", "interruptions.max"),
    ],
)
def test_an_unknown_field_names_the_closest_known_one(policy: dict[str, Any], field: str, hint: str) -> None:
    with pytest.raises(PolicyValueError, match="unknown field") as error:
        parse_policy(policy, "here")
    assert (error.value.field, error.value.expected) == (field, hint)


def problems(*layers: dict[str, Any]) -> list[str]:
    parsed = [parse_policy(layer, f"place {number}") for number, layer in enumerate(layers)]
    return check(resolve(parsed), parsed)


@pytest.mark.parametrize(
    "layers",
    [
        [{"spot": "never", "fall_back_after": 3}],
        [{"spot": "require", "fall_back_after": 3}],
        [{"spot": "require"}, {"fall_back_after": 3}],
        [{"spot": "prefer", "interruptions": {"max": 2}, "fall_back_after": 3}],
        [{"fall_back_after": 8}, {"interruptions": {"max": 5}}],
        [{"spot": "require", "deadline": "8h"}],
        [{"deadline": "8h", "pending_timeout": "1m"}],
        [{"deadline": "8h"}, {"fall_back_after": 1}],
    ],
)
def test_a_contradiction_in_a_policy_is_reported(layers: list[dict[str, Any]]) -> None:
    (problem,) = problems(*layers)
    assert "place" in problem


@pytest.mark.parametrize(
    "layers",
    [
        [],
        [{"spot": "prefer", "fall_back_after": 10}, {"spot": "never"}],
        [{"spot": "prefer", "fall_back_after": 0}],
        [{"spot": "require", "deadline": "8h best-effort"}],
        [{"spot": "never", "deadline": "8h"}],
        [{"pending_timeout": "10m", "fall_back_after": 10}, {"deadline": "8h"}],
        [{"fall_back_after": 10}, {"spot": "never", "interruptions": {"max": 1}}],
    ],
)
def test_a_stronger_layer_may_make_a_weaker_value_pointless(layers: list[dict[str, Any]]) -> None:
    assert problems(*layers) == []


def test_without_layers_only_values_of_one_source_can_contradict() -> None:
    weak, strong = Layer("a", {"fall_back_after": 3}), Layer("b", {"spot": Spot.NEVER})
    assert check(resolve([weak, strong])) == []
    assert check(resolve([Layer("a", {"fall_back_after": 3, "spot": Spot.NEVER})])) != []


def test_resolved_layers_are_checked_with_the_spot_that_they_imply() -> None:
    policy, problems = resolve_layers([Layer("here", {"fall_back_after": 3, "interruptions.max": 2})])

    assert policy.spot is Spot.PREFER
    assert len(problems) == 1
    assert "on-demand would never be reached" in problems[0]
