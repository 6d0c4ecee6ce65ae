"""ConfigMaps: the policy of a namespace above that of the cluster, and the last good text in force."""

from __future__ import annotations

from typing import Any

import pytest

from spotwright.cluster.configurations import Configurations

CLUSTER = """\
version: 1
pools:
  spotpool: {capacity: spot, provider: aks}
  agentpool: {capacity: on-demand, provider: aks}
policy:
  default: {spot: prefer, interruptions: {max: 3}}
"""
OWN = """\
version: 1
policy:
  default: {interruptions: {max: 8}}
  tasks:
    train: {ladder: [spotpool]}
"""


def config_map(text: str) -> dict[str, Any]:
    return {"data": {"spotwright.yaml": text}}


def configurations(**texts: str) -> Configurations:
    found = Configurations("spotwright")
    found.apply("spotwright", config_map(CLUSTER))
    for namespace, text in texts.items():
        found.apply(namespace.replace("_", "-"), config_map(text))
    return found


def values(found: Configurations, namespace: str) -> dict[str, Any]:
    config = found.of(namespace)
    assert config is not None
    assert config.policy_default is not None
    return dict(config.policy_default.values)


def test_a_namespace_without_a_config_map_has_the_cluster_s_configuration() -> None:
    assert values(configurations(), "team-a") == {"spot": "prefer", "interruptions.max": 3}


def test_a_namespace_s_policy_is_stronger_and_uses_the_cluster_s_pools() -> None:
    found = configurations(team_a=OWN)
    config = found.of("team-a")
    assert config is not None
    assert values(found, "team-a") == {"spot": "prefer", "interruptions.max": 8}
    assert list(config.pools) == ["spotpool", "agentpool"]
    assert found.problems == []


def test_a_namespace_s_own_pools_are_used_instead_of_the_cluster_s() -> None:
    own = "version: 1\npools: {mine: {capacity: spot, provider: gke}}\n"
    config = configurations(team_a=own).of("team-a")
    assert config is not None
    assert list(config.pools) == ["mine"]


def test_a_wrong_text_leaves_the_last_good_one_in_force_and_names_its_line() -> None:
    found = configurations(team_a=OWN)
    found.apply("team-a", config_map(OWN.replace("max: 8", "max: many")))
    assert values(found, "team-a")["interruptions.max"] == 8
    [problem] = found.problems
    assert problem.namespace == "team-a"
    assert "spotwright.yaml:3: policy.default.interruptions.max" in problem.message


def test_a_text_that_was_never_good_leaves_the_cluster_s_in_force() -> None:
    found = configurations(team_a="{")
    assert values(found, "team-a")["interruptions.max"] == 3
    assert len(found.problems) == 1


def test_a_mended_text_ends_the_problem() -> None:
    found = configurations(team_a="{")
    found.apply("team-a", config_map(OWN))
    assert found.problems == []


def test_a_deleted_config_map_ends_its_policy() -> None:
    found = configurations(team_a=OWN)
    found.apply("team-a", None)
    assert values(found, "team-a")["interruptions.max"] == 3


def test_new_pools_of_the_cluster_reach_every_namespace() -> None:
    found = configurations(team_a=OWN)
    found.apply("spotwright", config_map(CLUSTER.replace("agentpool:", "regular:")))
    config = found.of("team-a")
    assert config is not None
    assert list(config.pools) == ["spotpool", "regular"]


def test_pools_that_a_namespace_s_ladder_misses_are_a_problem_of_the_namespace() -> None:
    found = configurations(team_a=OWN)
    found.apply("spotwright", config_map(CLUSTER.replace("spotpool:", "other:")))
    assert [problem.namespace for problem in found.problems] == ["team-a"]


def test_without_any_config_map_there_is_no_configuration() -> None:
    assert Configurations("spotwright").of("team-a") is None


BOMB = "{" + ", ".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(9)) + "}"


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nsince: 2026-99-99\n",
        f"version: 1\nnumber: {'9' * 5000}\n",
        f"version: 1\ndeep: {'[' * 5000}{']' * 5000}\n",
        BOMB,
        "version: 1\nbroken: '\ud800'\n",
        "version: 1\n? {a: b}\n: c\n",
    ],
    ids=["no_date", "digits", "deep", "bomb", "surrogate", "key"],
)
def test_whatever_a_team_writes_is_a_problem_of_its_own_namespace(text: str) -> None:
    found = configurations(team_a=OWN)
    found.apply("team-a", config_map(text))
    assert [problem.namespace for problem in found.problems] == ["team-a"]
    assert values(found, "team-a")["interruptions.max"] == 8  # the last good one stays


def test_a_value_of_the_cluster_s_pools_that_yaml_takes_for_a_date_is_named() -> None:
    found = configurations()
    found.apply(
        "spotwright", config_map(CLUSTER.replace("provider: aks}", "provider: aks, labels: {a: 2026-99-99}}", 1))
    )
    found.apply("team-a", config_map(OWN))
    [problem] = found.problems
    assert problem.namespace == "team-a"
    assert "its pools cannot be used by other namespaces (month must be in 1..12): quote this value" in problem.message


@pytest.mark.parametrize("own", ["{}", "{version: 1}", '  {"version": 1, "policy": {"default": {"spot": "never"}}}'])
def test_a_text_in_braces_gets_the_cluster_s_pools_too(own: str) -> None:
    config = configurations(team_a=own).of("team-a")
    assert config is not None
    assert list(config.pools) == ["spotpool", "agentpool"]
