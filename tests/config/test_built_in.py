"""The built-in configuration, which is used without a file."""

from __future__ import annotations

from spotwright import config
from spotwright.clouds.providers import built_in_pools
from spotwright.model.policy import Spot


def test_the_built_in_pools_are_those_of_the_clouds() -> None:
    assert config.built_in().pools == built_in_pools()


def test_the_built_in_policy_prefers_spot() -> None:
    default = config.built_in().policy_default
    assert default is not None
    assert default.values == {"spot": Spot.PREFER}


def test_the_built_in_configuration_names_the_source_of_its_policy() -> None:
    default = config.built_in().policy_default
    assert default is not None
    assert default.source.startswith("built-in configuration:")


def test_the_built_in_text_reads_as_the_built_in_configuration() -> None:
    built_in = config.built_in()
    assert config.parse(built_in.text, built_in.path) == built_in


def test_a_file_without_pools_uses_the_built_in_pools_with_a_note() -> None:
    parsed = config.parse("version: 1\ncurrency: EUR\n")
    assert parsed.pools == built_in_pools()
    assert (
        parsed.note
        == "spotwright.yaml does not define pools: using the built-in ones, spot (spot), on-demand (on-demand)"
    )


def test_a_file_without_pools_keeps_the_built_in_policy_beside_its_patterns() -> None:
    parsed = config.parse("version: 1\npolicy: {tasks: {deploy: {spot: never}}}\n")
    assert parsed.policy_default == config.built_in().policy_default


def test_a_file_without_pools_may_set_another_default() -> None:
    default = config.parse("version: 1\npolicy: {default: {spot: require}}\n").policy_default
    assert default is not None
    assert default.values == {"spot": Spot.REQUIRE}


def test_a_file_with_pools_has_no_note() -> None:
    assert config.parse("version: 1\npools: {a: {capacity: spot}}\n").note == ""
